//! Starting, swapping models, draining.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::json;
use vitreous_serve::models::{ModelSet, Served};
use vitreous_serve::{Loader, Server, runtime};

use crate::client::*;

#[test]
fn requests_under_way_are_finished_before_the_end() {
    let server = start(vec![named("llama", language("llama").0)]);
    let address = server.address;
    let body = json!({"model": "llama", "prompt": "a", "max_tokens": 90, "ignore_eos": true, "stream": true, "temperature": 0});
    let body = body.to_string();
    let ask = request("POST", "/v1/completions", &[("Content-Type", "application/json")], body.as_bytes());
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(&ask).expect("sent");
    // An idle connection does not hold up the end.
    let idle = TcpStream::connect(address).expect("a connection");
    until("it is under way", || metric(address, "vitreous_requests_total{endpoint=\"/v1/completions\"") >= 1.0);
    let ending = std::thread::spawn(move || server.finish());
    let events = read_answer(&mut stream).expect("an answer").events();
    let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert!(text.len() > 80, "{text}");
    ending.join().expect("no panic").expect("a clean end");
    drop(idle);
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn who_leaves_frees_the_place_at_once() {
    let mut options = options(vec![named("llama", language("llama").0)]);
    options.settings.slots = Some(1);
    let server = start_with(options, None);
    let address = server.address;
    let long =
        json!({"model": "llama", "prompt": vec!["a"; 200], "max_tokens": 90, "ignore_eos": true, "stream": true})
            .to_string();
    let ask = request("POST", "/v1/completions", &[("Content-Type", "application/json")], long.as_bytes());
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(&ask).expect("sent");
    until("it is written", || metric(address, "vitreous_texts{model=\"llama\"}") > 100.0);
    drop(stream);
    until("its place is free", || metric(address, "vitreous_queue{model=\"llama\"}") == 0.0);
    let body = json!({"model": "llama", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0});
    let answer = post_json(address, "/v1/completions", &body).ok();
    assert_eq!(answer["choices"][0]["text"], language("llama").1["texts"][0]);
    server.finish().expect("a clean end");
}

#[test]
fn texts_share_the_memory_of_the_cache() {
    let mut options = options(vec![named("llama", language("llama").0)]);
    options.settings.cache_tokens = Some(1);
    let server = start_with(options, None);
    let address = server.address;
    assert_eq!(metric(address, "vitreous_cache_room_tokens{model=\"llama\"}"), 96.0, "one whole context");
    // Of tokens, so that all of them come at the same moment.
    let prompt = language("llama").1["prompts"][0]["tokens"].clone();
    let body = |count: usize| json!({"model": "llama", "prompt": vec![prompt.clone(); count], "max_tokens": 80, "ignore_eos": true, "temperature": 0});
    let alone = post_json(address, "/v1/completions", &body(1)).ok()["choices"][0]["text"].clone();
    let together = post_json(address, "/v1/completions", &body(4)).ok();
    for choice in together["choices"].as_array().expect("choices") {
        assert_eq!(choice["text"], alone);
    }
    assert!(metric(address, "vitreous_paused_total{model=\"llama\"}") > 0.0, "nobody made room");
    server.finish().expect("a clean end");
}

#[test]
fn models_are_swapped_without_losing_a_request() {
    let server = start(vec![named("llama", language("llama").0), named("vit", fixture("tiny_vit"))]);
    let address = server.address;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let picture = std::fs::read(fixture("pictures/noise.png")).expect("a picture");
    let theirs = language("llama").1["texts"][0].clone();
    let clients: Vec<_> = (0..4)
        .map(|which| {
            let (stop, answered, picture, theirs) = (stop.clone(), answered.clone(), picture.clone(), theirs.clone());
            std::thread::spawn(move || {
                let body = json!({"model": "llama", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0});
                while !stop.load(Ordering::Relaxed) {
                    match which % 2 {
                        0 => {
                            assert_eq!(post_json(address, "/v1/completions", &body).ok()["choices"][0]["text"], theirs)
                        }
                        _ => drop(post(address, "/classify/vit", "image/png", &picture).ok()),
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..5 {
        let before = answered.load(Ordering::Relaxed);
        assert_eq!(post(address, "/admin/reload", "", b"").ok()["status"], "reloaded");
        until("requests are answered", || answered.load(Ordering::Relaxed) > before + 4);
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("every request was answered"));
    assert_eq!(metric(address, "vitreous_reloads_total "), 5.0);
    server.finish().expect("a clean end");
}

#[test]
fn a_full_queue_says_when_to_ask_again() {
    let mut options = options(vec![named("llama", language("llama").0)]);
    options.limits.queue = 1;
    let server = start_with(options, None);
    let address = server.address;
    let long = json!({"prompt": vec!["a"; 100], "max_tokens": 90, "ignore_eos": true, "stream": true}).to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(&request("POST", "/v1/completions", &[], long.as_bytes())).expect("sent");
    until("the queue is full", || metric(address, "vitreous_queue{") == 1.0);
    let refused = post_json(address, "/v1/completions", &json!({"prompt": "a"}));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    refused.refused(429);
    drop(stream);
    until("the queue is empty", || metric(address, "vitreous_queue{") == 0.0);
    post_json(address, "/v1/completions", &json!({"prompt": "a"})).ok();
    server.finish().expect("a clean end");
}

#[test]
fn a_client_that_leaves_is_noticed_also_if_it_waits_for_the_whole_answer() {
    let server = start(vec![named("llama", language("llama").0)]);
    let address = server.address;
    let long = json!({"prompt": vec!["a"; 200], "max_tokens": 90, "ignore_eos": true}).to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(&request("POST", "/v1/completions", &[], long.as_bytes())).expect("sent");
    until("it is written", || metric(address, "vitreous_texts{model=\"llama\"}") > 100.0);
    drop(stream);
    until("its place is free", || metric(address, "vitreous_queue{model=\"llama\"}") == 0.0);
    until("nothing is written", || metric(address, "vitreous_texts{model=\"llama\"}") == 0.0);
    assert_eq!(metric(address, "vitreous_left_total "), 1.0);
    assert_eq!(metric(address, "vitreous_requests_total{endpoint=\"/v1/completions\",status=\"499\"}"), 1.0);
    // Batches of generation are counted, too.
    assert!(metric(address, "vitreous_batch_size_sum{model=\"llama\"}") > 0.0);
    server.finish().expect("a clean end");
}

#[test]
fn a_stream_has_its_time() {
    let mut options = options(vec![named("llama", language("llama").0)]);
    options.limits.answer = Duration::from_secs(1);
    let server = start_with(options, None);
    // Far more than is written in that time.
    let long = json!({"prompt": vec![[1]; 2000], "max_tokens": 90, "ignore_eos": true, "stream": true});
    let answer = post_json(server.address, "/v1/completions", &long);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    let last = text.trim_end().rsplit("\n\n").next().expect("an event");
    assert!(last.contains("longer than 1 s") && !text.contains("[DONE]"), "{last}");
    assert_eq!(metric(server.address, "vitreous_broken_streams_total "), 1.0);
    until("nothing is written any more", || metric(server.address, "vitreous_texts{model=\"llama\"}") == 0.0);
    server.finish().expect("a clean end");
}

/// Loads when it is told to.
fn loader_that_waits() -> (Loader, mpsc::Sender<()>) {
    let (go_on, told) = mpsc::channel();
    let told = Mutex::new(told);
    let loader: Loader = Arc::new(move |around| {
        let _ = told.lock().expect("no panic").recv();
        Ok(ModelSet::new(vec![Arc::new(Served::open(&named("vit", fixture("tiny_vit")), around).expect("opened"))]))
    });
    (loader, go_on)
}

#[test]
fn probes_are_answered_while_models_are_loaded() {
    let (loader, go_on) = loader_that_waits();
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        runtime().expect("a runtime").block_on(async move {
            let server = Server::bind_with(options(Vec::new()), loader).await?;
            send.send(server.address()).expect("a receiver");
            let (tell, told) = mpsc::channel();
            let ended = server.run(move |handle, _| tell.send(handle.clone()).expect("a receiver"));
            // Ends as soon as it has started, and the probe below was answered.
            let ending = tokio::task::spawn_blocking(move || told.recv().expect("it starts"));
            let (ended, ()) = tokio::join!(ended, async move {
                let handle = ending.await.expect("no panic");
                tokio::time::sleep(Duration::from_millis(500)).await;
                handle.end();
            });
            ended
        })
    });
    let address = receive.recv().expect("it listens");
    assert_eq!(get(address, "/v2/health/live").status, 200);
    let ready = get(address, "/v2/health/ready");
    assert_eq!(ready.header("retry-after"), Some("2"));
    assert!(ready.refused(503).contains("being loaded"));
    get(address, "/v2/models/vit/ready").refused(503);
    post_json(address, "/v1/completions", &json!({"prompt": "a"})).refused(503);
    let waiting = TcpStream::connect(address).expect("a connection");
    go_on.send(()).expect("a loader");
    until("it is ready", || get(address, "/v2/health/ready").status == 200);
    drop(waiting);
    thread.join().expect("no panic").expect("a clean end");
}

#[test]
fn the_server_ends_while_models_are_loaded_again() {
    let (loader, go_on) = loader_that_waits();
    go_on.send(()).expect("a loader");
    let server = start_with(options(Vec::new()), Some(loader));
    let address = server.address;
    let asking = std::thread::spawn(move || post(address, "/admin/reload", "", b""));
    until("it is loading", || metric(address, "vitreous_in_flight ") > 1.0);
    server.handle.end();
    assert!(asking.join().expect("no panic").refused(503).contains("about to end"));
    until("nobody listens any more", || TcpStream::connect(address).is_err());
    // The loading thread is of this test's process, which goes on.
    drop(go_on);
    server.finish().expect("a clean end");
}

#[test]
fn an_answer_has_its_time() {
    let mut options = options(vec![named("llama", language("llama").0)]);
    options.limits.answer = Duration::from_millis(1);
    let server = start_with(options, None);
    let long = json!({"prompt": vec!["a"; 100], "max_tokens": 90, "ignore_eos": true});
    assert!(post_json(server.address, "/v1/completions", &long).refused(504).contains("longer than"));
    server.finish().expect("a clean end");
}

#[test]
fn connections_are_encrypted_where_a_certificate_is_given() {
    use ureq::tls::{Certificate, RootCerts, TlsConfig};
    let folder = repository("crates/serve/tests/http/tls");
    let mut options = options(vec![named("vit", fixture("tiny_vit"))]);
    let files =
        vitreous_serve::TlsFiles { certificate: folder.join("localhost.pem"), key: folder.join("localhost.key") };
    options.tls = Some(files);
    let server = start_with(options, None);
    let pem = std::fs::read(folder.join("localhost.pem")).expect("a certificate");
    let root = Certificate::from_pem(&pem).expect("a certificate");
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[root])).build();
    let agent: ureq::Agent = ureq::Agent::config_builder().tls_config(tls).build().into();
    let mut answer =
        agent.get(format!("https://localhost:{}/v1/models", server.address.port())).call().expect("an answer");
    assert!(answer.body_mut().read_to_string().expect("text").contains("\"vit\""));
    // Who does not encrypt is not answered.
    assert!(raw(server.address, &request("GET", "/", &[], b"")).is_none());
    server.finish().expect("a clean end");
}
