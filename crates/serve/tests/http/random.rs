//! Ten thousand random requests: none is answered with 5xx, and the server goes on.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use vitreous_engine::random::Stream;

use crate::client::*;

const REQUESTS: usize = 10_000;
const CLIENTS: usize = 8;

/// Random choices of a client.
struct Dice(Stream, u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.1 += 1;
        self.0.four(self.1)[0] as usize % count.max(1)
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most);
        (0..count).map(|_| self.below(256) as u8).collect()
    }

    /// Any JSON, with names that mean something.
    fn json(&mut self, depth: usize) -> Value {
        const NAMES: [&str; 31] = [
            "model",
            "prompt",
            "messages",
            "role",
            "content",
            "input",
            "inputs",
            "name",
            "shape",
            "datatype",
            "data",
            "max_tokens",
            "temperature",
            "n",
            "stop",
            "seed",
            "logprobs",
            "stream",
            "response_format",
            "type",
            "text",
            "question",
            "context",
            "image",
            "input",
            "edits",
            "want",
            "path",
            "do",
            "values",
            "ids",
        ];
        const TEXTS: [&str; 16] = [
            "llama",
            "qwen3",
            "vit",
            "sentence_mean",
            "bert_classes",
            "user",
            "system",
            "images",
            "FP32",
            "BYTES",
            "",
            "Hi \u{1F600}",
            "text",
            "json_object",
            "blocks.0.mlp",
            "zero",
        ];
        match self.below(if depth == 0 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.below(40) as i64 - 5),
            3 => json!(self.below(1000) as f64 / 100.0 - 2.0),
            4 => json!([1e308, -1e-308, 1e19, -9e18][self.below(4)]),
            5 => json!(self.one(&TEXTS)),
            6 => (0..self.below(4)).map(|_| self.json(depth - 1)).collect(),
            _ => Value::Object(
                (0..self.below(7)).map(|_| (self.one(&NAMES).to_string(), self.json(depth - 1))).collect(),
            ),
        }
    }
}

/// A request that may be almost right.
fn random_request(dice: &mut Dice) -> Vec<u8> {
    let path = dice.one(&[
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/audio/transcriptions",
        "/v1/models",
        "/v1/models/x%ff",
        "/v2/models/vit/infer",
        "/v2/models/llama/infer",
        "/v2/models/sentence_mean/infer",
        "/v2/health/ready",
        "/v2/models/%00",
        "/classify/vit",
        "/classify/bert_classes",
        "/classify/bert_masked",
        "/classify/bert_tokens?top=3",
        "/classify/bert_answers",
        "/classify/clip",
        "/explain/llama",
        "/explain/ear",
        "/explain/byt5",
        "/v2/models/byt5/infer",
        "/v2/models/clip/infer",
        "/",
        "/openapi.json",
        "/docs",
        "/metrics",
        "//",
        "/%",
        "/v2/repository/index",
        "/glass/models",
        "/glass/vit/inputs",
        "/glass/llama/inputs",
        "/glass/llama/look",
        "/glass/bert_masked/inputs",
        "/glass/vit/graph?input=0",
        "/glass/vit/inputs/0/seen",
        "/glass/app/index.html",
        "/glass/app/%2e%2e",
    ]);
    let method = dice.one(&["POST", "POST", "POST", "POST", "GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]);
    let kind = dice.one(&[
        "application/json",
        "application/json",
        "text/plain",
        "image/png",
        "multipart/form-data; boundary=edge",
        "a/b;c",
        "",
    ]);
    if dice.below(12) == 0 {
        return random_look(dice);
    }
    let mut body = match dice.below(6) {
        0 => dice.bytes(200),
        1 => {
            let (name, value) = (dice.one(&["file", "model", "text", "image", "x"]), dice.bytes(50));
            form(&[(name, &value), ("model", if dice.below(2) == 0 { b"llama" } else { b"ear" })]).1
        }
        2 => {
            let model = dice.one(&["llama", "qwen3", "sentence_mean", "vit", "byt5", "clip"]);
            let mut object = json!({"model": model, "prompt": "a", "max_tokens": 1 + dice.below(4), "input": "a",
                "messages": [{"role": "user", "content": "a"}], "temperature": 0.5});
            // One field of it is something else.
            let name = dice.one(&["prompt", "max_tokens", "input", "messages", "temperature", "stop", "n", "logprobs", "stream", "seed", "top_p"]);
            object[name] = dice.json(2);
            if object["n"].as_u64().is_some_and(|n| n > 3) {
                object["n"] = json!(2);
            }
            object["max_tokens"] = if object["max_tokens"].as_u64().is_some_and(|most| most > 4) { json!(4) } else { object["max_tokens"].clone() };
            object.to_string().into_bytes()
        }
        3 => json!({"inputs": [{"name": dice.one(&["images", "text"]), "shape": dice.json(1), "datatype": dice.one(&["FP32", "BYTES"]),
            "data": dice.json(2)}]}).to_string().into_bytes(),
        _ => dice.json(4).to_string().into_bytes(),
    };
    if !body.is_empty() && dice.below(8) == 0 {
        let place = dice.below(body.len());
        body[place] = dice.below(256) as u8;
    }
    if dice.below(20) == 0 {
        body.truncate(dice.below(body.len().max(1)));
    }
    let headers: &[(&str, &str)] = match dice.below(12) {
        0 => &[("Inference-Header-Content-Length", "10")],
        1 => &[("X-Request-Id", "\t"), ("Origin", "null")],
        2 => &[("Accept", "application/json"), ("Authorization", "Bearer x")],
        _ => &[],
    };
    let headers: Vec<(&str, &str)> = headers.iter().copied().chain([("Content-Type", kind)]).collect();
    let mut bytes = request(method, path, &headers, &body);
    // Now and then the head is broken, too.
    if dice.below(60) == 0 {
        let place = dice.below(bytes.len().min(60));
        bytes[place] = dice.below(256) as u8;
    }
    bytes
}

/// A look at an input that is there, or is given, with something wrong in it.
fn random_look(dice: &mut Dice) -> Vec<u8> {
    let headers = [("Content-Type", "application/json")];
    let ids = json!({"ids": [1, 5, 9]});
    if dice.below(3) == 0 {
        let mut body = ids;
        body[dice.one(&["ids", "text", "pair", "target"])] = dice.json(2);
        return request("POST", "/glass/llama/inputs", &headers, body.to_string().as_bytes());
    }
    let path = dice.one(&[
        "blocks.0",
        "blocks.0.mlp",
        "blocks.1.attention.heads.1",
        "blocks.0.attention.weights",
        "norm",
        "x",
        "logits",
    ]);
    let mut edit =
        json!({"path": path, "do": dice.one(&["zero", "scale", "clamp", "from"]), "factor": 0.5, "low": -1, "high": 1});
    edit[dice.one(&["path", "do", "factor", "tokens", "low", "input"])] = dice.json(1);
    let mut want = json!({"answer": {"top": 2}, "values": [{"path": path}], "stages": {"fit": [4, 4]}});
    let name = dice.one(&[
        "answer",
        "values",
        "stages",
        "attention",
        "attention_row",
        "lens",
        "attribution",
        "effects",
        "scores",
        "relevance",
    ]);
    want[name] = match dice.below(3) {
        0 => dice.json(2),
        1 => json!({}),
        _ => json!({"token": dice.below(5), "target": dice.below(400), "query": dice.below(5), "fit": dice.below(3)}),
    };
    let input = LOOKED_AT.get().map_or("0", String::as_str);
    let body =
        json!({"input": input, "edits": if dice.below(2) == 0 { json!([edit]) } else { json!([]) }, "want": want});
    request("POST", "/glass/llama/look", &headers, body.to_string().as_bytes())
}

/// The input of looks.
static LOOKED_AT: std::sync::OnceLock<String> = std::sync::OnceLock::new();

fn client(address: SocketAddr, number: usize, count: usize) -> (usize, usize) {
    let mut dice = Dice(Stream::new(7, 0, number as u64), 0);
    let (mut answered, mut good) = (0, 0);
    let mut connection: Option<TcpStream> = None;
    for _ in 0..count {
        let bytes = random_request(&mut dice);
        let mut stream = connection.take().unwrap_or_else(|| {
            let stream = TcpStream::connect(address).expect("a connection");
            stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
            stream.set_nodelay(true).expect("no delay");
            stream
        });
        if stream.write_all(&bytes).is_err() {
            continue;
        }
        // The answer to HEAD has a length and no body.
        let is_plain = !bytes.starts_with(b"HEAD");
        if dice.below(50) == 0 || !is_plain {
            // Somebody who does not wait for the answer.
            continue;
        }
        let Some(answer) = read_answer(&mut stream) else { continue };
        answered += 1;
        good += usize::from(answer.status == 200);
        assert!(answer.status < 500, "{}: {}", answer.text(), String::from_utf8_lossy(&bytes));
        if answer.header("connection") != Some("close") && answer.status != 400 && answer.status != 413 {
            connection = Some(stream);
        }
    }
    (answered, good)
}

#[test]
fn ten_thousand_random_requests_are_answered() {
    let address = shared();
    let given = post_json(address, "/glass/llama/inputs", &json!({"ids": [1, 5, 9]})).ok();
    LOOKED_AT.get_or_init(|| given["input"].as_str().expect("an id").to_string());
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| std::thread::spawn(move || client(address, number, REQUESTS / CLIENTS))).collect();
    let told: Vec<(usize, usize)> = clients.into_iter().map(|client| client.join().expect("no 5xx")).collect();
    let (answered, good) = told.iter().fold((0, 0), |(all, fine), (answered, good)| (all + answered, fine + good));
    assert!(answered > REQUESTS * 8 / 10, "{answered} were answered");
    assert!(good > REQUESTS / 50, "{good} were right");
    // Of answers that nobody read, too.
    let numbers = get(address, "/metrics").text();
    let failed = |line: &&str| line.starts_with("vitreous_requests_total{") && line.contains("status=\"5");
    let failed: Vec<&str> = numbers.lines().filter(failed).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(metric(address, "vitreous_broken_streams_total "), 0.0);
    for model in ["vit", "bert_classes", "llama", "qwen3", "clip", "ear", "byt5"] {
        assert_eq!(get(address, &format!("/v2/models/{model}/ready")).status, 200, "{model}");
    }
    assert_eq!(get(address, "/v2/health/ready").status, 200);
    let body = json!({"model": "llama", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0});
    assert_eq!(
        post_json(address, "/v1/completions", &body).ok()["choices"][0]["text"],
        language("llama").1["texts"][0]
    );
}
