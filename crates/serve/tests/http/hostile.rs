//! Requests that are wrong on purpose: each is refused with a sentence, and the server goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use vitreous_serve::{ApiKeys, Limits};

use crate::client::*;

/// A BMP that says it has many pixels.
fn bmp_of(width: u32, height: u32) -> Vec<u8> {
    let mut bmp = std::fs::read(fixture("pictures/deeper/grey.BMP")).expect("a picture");
    bmp[18..22].copy_from_slice(&width.to_le_bytes());
    bmp[22..26].copy_from_slice(&height.to_le_bytes());
    bmp
}

#[test]
fn images_that_are_none_are_refused() {
    let picture = std::fs::read(fixture("pictures/noise.png")).expect("a picture");
    for (bytes, says) in [
        (b"".to_vec(), "takes an image"),
        (b"not an image".to_vec(), "not an image"),
        (picture[..picture.len() / 2].to_vec(), "the image"),
        (bmp_of(60_000, 60_000), "the image"),
        (bmp_of(10_000, 10_000), "at most 50000000 pixels"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec(), "the image"),
    ] {
        let told = post(shared(), "/classify/vit", "image/png", &bytes).refused(400);
        assert!(told.contains(says), "{told}");
    }
    // A file of this machine cannot be named.
    for text in ["/etc/passwd", "file:///etc/passwd", "@/etc/passwd"] {
        let told = post_json(shared(), "/classify/vit", &json!({"image": text})).refused(400);
        assert!(!told.contains("root:"), "{told}");
        let (kind, body) = form(&[("image", text.as_bytes())]);
        post(shared(), "/classify/vit", &kind, &body).refused(400);
    }
    for path in ["/classify/..%2f..%2fetc%2fpasswd", "/v2/models/%2e%2e/infer", "/explain/%00", "/../../etc/passwd"] {
        let status = raw(shared(), &request("POST", path, &[], b"x")).expect("an answer").status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
}

#[test]
fn texts_that_are_none_are_refused() {
    for (path, bytes, says) in [
        ("/classify/bert_classes", &b"\xff\xfe"[..], "not UTF-8"),
        ("/classify/bert_classes", b"  \n", "empty"),
        ("/classify/bert_masked", b"no mask here", "has no [MASK]"),
        ("/classify/bert_answers", b"Who?", "`question` and `context`"),
        ("/classify/llama", b"a", "cannot classify: `llama` is a language model"),
        ("/classify/bert_classes?top=0", b"a", "`top` is between 1"),
        ("/classify/bert_classes?top=x", b"a", "top"),
        ("/classify/bert_classes", b"", "empty"),
    ] {
        let told = post(shared(), path, "text/plain", bytes).refused(400);
        assert!(told.contains(says), "{told}");
    }
    // What would be read in thousands of windows, or is not read at all.
    let long = "lovely ".repeat(200_000);
    let question = json!({"question": "Who?", "context": long});
    assert!(post_json(shared(), "/classify/bert_answers", &question).refused(413).contains("the context has"));
    let question = json!({"question": long, "context": "Ada."});
    assert!(post_json(shared(), "/classify/bert_answers", &question).refused(413).contains("the text has"));
    let masked = format!("[MASK] {long}");
    post(shared(), "/classify/bert_masked", "text/plain", masked.as_bytes()).refused(413);
    let many = json!({"model": "llama", "prompt": vec!["a"; 1000], "n": 100});
    assert!(post_json(shared(), "/v1/completions", &many).refused(400).contains("100000 texts"));
    // A long text is read as far as the model reads.
    post(shared(), "/classify/bert_classes", "text/plain", long.as_bytes()).ok();
    let prompt = json!({"model": "llama", "prompt": "a ".repeat(100_000)});
    assert!(post_json(shared(), "/v1/completions", &prompt).refused(400).contains("bytes"));
    let prompt = json!({"model": "llama", "prompt": vec![1; 100_000]});
    assert!(post_json(shared(), "/v1/completions", &prompt).refused(400).contains("100000 tokens"));
}

#[test]
fn broken_requests_end_their_connection_only() {
    for bytes in [
        &b"GARBAGE\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    ] {
        let mut stream = TcpStream::connect(shared()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        stream.write_all(bytes).expect("sent");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.windows(12).any(|part| part == b"HTTP/1.1 500"), "{answer:?}");
    }
    let huge = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(200_000));
    let answer = raw(shared(), huge.as_bytes());
    assert!(answer.is_none_or(|answer| answer.status == 431 && answer.header("x-request-id").is_some()));
    let answer = raw(shared(), b"GARBAGE\r\n\r\n").expect("an answer");
    assert_eq!(answer.status, 400);
    assert!(answer.header("x-request-id").is_some_and(|id| id.starts_with("req-")), "{:?}", answer.headers);
    // An upload that ends early.
    let mut stream = TcpStream::connect(shared()).expect("a connection");
    stream.write_all(b"POST /classify/vit HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc").expect("sent");
    drop(stream);
    let (kind, body) = form(&[("image", b"abc")]);
    assert!(post(shared(), "/classify/vit", &kind, &body[..body.len() - 12]).refused(400).contains("form"));
    post(shared(), "/classify/vit", "multipart/form-data", b"abc").refused(400);
    let headers = [("Content-Encoding", "gzip")];
    raw(shared(), &request("POST", "/classify/vit", &headers, b"x")).expect("an answer").refused(415);
    get(shared(), "/v1/models").ok();
}

#[test]
fn bodies_are_limited_in_size_and_time() {
    let limits = Limits {
        body: 1000,
        upload: Duration::from_millis(600),
        head: Duration::from_millis(600),
        ..Limits::default()
    };
    let mut options = options(vec![named("vit", fixture("tiny_vit"))]);
    options.limits = limits;
    let server = start_with(options, None);
    // A gigabyte is refused before it is sent.
    let head = b"POST /classify/vit HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n";
    let start = Instant::now();
    assert!(raw(server.address, head).expect("an answer").refused(413).contains("larger than 1000"));
    assert!(start.elapsed() < Duration::from_secs(20));
    // Without a length it is refused where it becomes too large.
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.write_all(b"POST /classify/vit HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").expect("sent");
    for _ in 0..20 {
        let _ = stream.write_all(format!("40\r\n{}\r\n", "x".repeat(64)).as_bytes());
    }
    read_answer(&mut stream).expect("an answer").refused(413);
    // A byte at a time: the body, and the head.
    for start in [
        &b"POST /classify/vit HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: x\r\nX:",
    ] {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.write_all(start).expect("sent");
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) && stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        // An answer of 408, or the connection is closed.
        if let Some(answer) = read_answer(&mut stream) {
            answer.refused(408);
        }
    }
    until("slow clients are gone", || metric(server.address, "vitreous_connections ") <= 1.0);
    server.finish().expect("a clean end");
}

#[test]
fn bodies_of_all_requests_together_are_limited() {
    let mut options = options(vec![named("vit", fixture("tiny_vit"))]);
    options.limits.bodies = 3000;
    let server = start_with(options, None);
    let ask = |size: usize| request("POST", "/classify/vit", &[("Content-Type", "image/png")], &vec![0; size]);
    let mut held = TcpStream::connect(server.address).expect("a connection");
    let most = ask(2000);
    held.write_all(&most[..most.len() - 10]).expect("sent");
    let in_a_form = |size: usize| {
        let (kind, body) = form(&[("image", &vec![0; size])]);
        post(server.address, "/classify/vit", &kind, &body)
    };
    until("it is read", || metric(server.address, "vitreous_body_bytes ") == 1990.0);
    let refused = raw(server.address, &ask(2000)).expect("an answer");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(refused.refused(429).contains("the bodies of other requests"));
    in_a_form(2000).refused(429);
    // Smaller ones have room.
    assert!(raw(server.address, &ask(500)).expect("an answer").refused(400).contains("the image"));
    drop(held);
    until("there is room again", || raw(server.address, &ask(2000)).expect("an answer").status == 400);
    assert_eq!(in_a_form(2000).status, 400);
    server.finish().expect("a clean end");
}

#[test]
#[cfg(target_os = "linux")] // which tells of a socket whether its timer runs
fn the_system_is_asked_to_notice_clients_that_are_gone_without_a_word() {
    let mut stream = TcpStream::connect(shared()).expect("a connection");
    stream.write_all(&request("GET", "/v2/health/live", &[], b"")).expect("sent");
    read_answer(&mut stream).expect("an answer");
    let (server, client) = (shared().port(), stream.local_addr().expect("an address").port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("a list");
    let of_server = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[1].ends_with(&format!(":{server:04X}")) && words[2].ends_with(&format!(":{client:04X}"))
    };
    let line = sockets.lines().skip(1).find(of_server).expect("the connection");
    // `tr`, the timer that runs: 2 is that of keepalive.
    assert!(line.split_whitespace().nth(5).is_some_and(|timer| timer.starts_with("02:")), "{line}");
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let mut options = options(vec![named("llama", language("llama").0)]);
    options.limits.stalled = Duration::from_millis(500);
    let server = start_with(options, None);
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    let ask = request("GET", "/openapi.json", &[], b"");
    // Far more answers than the system buffers, none of which is read.
    stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a limit");
    while stream.write_all(&ask.repeat(50)).is_ok() {}
    until("it is cut off", || metric(server.address, "vitreous_connections ") <= 1.0);
    server.finish().expect("a clean end");
}

#[test]
fn keys_are_needed_where_there_are_some() {
    let mut options = options(vec![named("vit", fixture("tiny_vit"))]);
    options.keys = ApiKeys::parse("first\nsecond\n");
    options.origins = vec!["https://example.org".to_string()];
    let server = start_with(options, None);
    let ask =
        |headers: &[(&str, &str)]| raw(server.address, &request("GET", "/v1/models", headers, b"")).expect("an answer");
    for headers in [
        &[][..],
        &[("Authorization", "Bearer wrong")],
        &[("Authorization", "first")],
        &[("Authorization", "Basic first")],
    ] {
        let answer = ask(headers);
        assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        answer.refused(401);
    }
    ask(&[("Authorization", "Bearer second")]).ok();
    ask(&[("Authorization", "bearer first")]).ok();
    ask(&[("X-Api-Key", "first")]).ok();
    // Probes have none.
    assert_eq!(get(server.address, "/v2/health/ready").status, 200);
    get(server.address, "/metrics").refused(401);
    get(server.address, "/docs").refused(401);
    // Browsers' pages may ask from the origins that were named.
    let key = ("Authorization", "Bearer first");
    let allowed = ask(&[key, ("Origin", "https://example.org")]);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://example.org"));
    assert_eq!(ask(&[key, ("Origin", "https://evil.org")]).header("access-control-allow-origin"), None);
    let preflight = request("OPTIONS", "/v1/completions", &[("Origin", "https://example.org")], b"");
    let preflight = raw(server.address, &preflight).expect("an answer");
    assert_eq!((preflight.status, preflight.header("access-control-allow-methods")), (204, Some("GET, POST")));
    // A page must not have models loaded again.
    let headers = [key, ("Origin", "https://example.org")];
    raw(server.address, &request("POST", "/admin/reload", &headers, b"")).expect("an answer").refused(403);
    server.finish().expect("a clean end");
    // Without a name nobody may.
    let answer = raw(shared(), &request("GET", "/", &[("Origin", "https://example.org")], b"")).expect("an answer");
    assert_eq!(answer.header("access-control-allow-origin"), None);
}
