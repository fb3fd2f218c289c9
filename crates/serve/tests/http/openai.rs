//! OpenAI's API.

use serde_json::{Value, json};

use crate::client::*;

#[test]
fn models_are_listed() {
    let list = get(shared(), "/v1/models").ok();
    let names: Vec<&str> =
        list["data"].as_array().expect("a list").iter().filter_map(|one| one["id"].as_str()).collect();
    assert!(names.starts_with(&["vit", "bert_classes"]) && names.contains(&"llama"), "{names:?}");
    assert_eq!(get(shared(), "/v1/models/llama").ok()["description"], "a language model");
    let missing = get(shared(), "/v1/models/nobody");
    assert_eq!(missing.json()["error"]["code"], "model_not_found");
    assert!(missing.refused(404).contains("there is no model `nobody`; there are `vit`"));
}

#[test]
fn completions_are_those_of_the_peer() {
    let (_, expected) = language("llama");
    for (which, prompt) in expected["prompts"].as_array().expect("prompts").iter().enumerate() {
        for prompt in [&prompt["text"], &prompt["tokens"]] {
            let body = json!({"model": "llama", "prompt": prompt, "max_tokens": 20, "temperature": 0});
            let answer = post_json(shared(), "/v1/completions", &body).ok();
            let choice = &answer["choices"][0];
            assert_eq!(choice["text"], expected["texts"][which]);
            let reason = if expected["greedy"][which]["stop"] == "end" { "stop" } else { "length" };
            assert_eq!(choice["finish_reason"], reason);
            let written = expected["greedy"][which]["tokens"].as_array().expect("tokens").len();
            assert_eq!(answer["usage"]["completion_tokens"], written);
            // The same in pieces.
            let mut body = body.clone();
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
            let mut events = post_json(shared(), "/v1/completions", &body).events();
            assert_eq!(events.pop().expect("usage")["usage"], answer["usage"]);
            let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
            assert_eq!(json!(text), choice["text"]);
            assert_eq!(events.last().expect("an end")["choices"][0]["finish_reason"], reason);
        }
    }
    // Several prompts at once, and echoes.
    let texts: Vec<&Value> =
        expected["prompts"].as_array().expect("prompts").iter().map(|prompt| &prompt["text"]).collect();
    let body = json!({"model": "llama", "prompt": texts, "max_tokens": 20, "temperature": 0, "echo": true});
    let answer = post_json(shared(), "/v1/completions", &body).ok();
    for (which, prompt) in texts.iter().enumerate() {
        let both = format!("{}{}", prompt.as_str().expect("text"), expected["texts"][which].as_str().expect("text"));
        assert_eq!(answer["choices"][which]["text"], both);
        assert_eq!(answer["choices"][which]["index"], which);
    }
}

#[test]
fn probabilities_are_those_of_the_peer() {
    let (_, expected) = language("qwen3");
    let entry = &expected["greedy"][0];
    let body =
        json!({"model": "qwen3", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0, "logprobs": 2});
    let told = post_json(shared(), "/v1/completions", &body).ok()["choices"][0]["logprobs"].clone();
    assert_close(&numbers(&told["token_logprobs"]), &numbers(&entry["logprobs"]), 1e-4);
    assert_eq!(told["top_logprobs"][0].as_object().expect("an object").len(), 2);
    assert_eq!(told["text_offset"][0], 0);
    let mut body = body.clone();
    body["stream"] = json!(true);
    let events = post_json(shared(), "/v1/completions", &body).events();
    let told = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["token_logprobs"][0].as_f64());
    assert_close(&told.collect::<Vec<f64>>(), &numbers(&entry["logprobs"]), 1e-4);
    // In a chat they have another shape.
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let mut body =
        json!({"model": "qwen3", "messages": messages, "max_tokens": 3, "logprobs": true, "top_logprobs": 2});
    // What is drawn could end at once, or be a special token, which has no bytes.
    body["temperature"] = json!(0);
    let told = post_json(shared(), "/v1/chat/completions", &body).ok()["choices"][0]["logprobs"]["content"].clone();
    assert!(told[0]["logprob"].as_f64().expect("a number") <= 0.0 && told[0]["bytes"].is_array());
    assert_eq!(told[0]["top_logprobs"].as_array().expect("a list").len(), 2);
}

#[test]
fn a_chat_is_written_by_the_models_template() {
    let prompt = "<|im_start|>system\nBe<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    let body = json!({"model": "qwen3", "prompt": prompt, "max_tokens": 8, "temperature": 0});
    let theirs = post_json(shared(), "/v1/completions", &body).ok()["choices"][0]["text"].clone();
    let messages =
        json!([{"role": "developer", "content": "Be"}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]);
    let body = json!({"model": "qwen3", "messages": messages, "max_completion_tokens": 8, "temperature": 0});
    let answer = post_json(shared(), "/v1/chat/completions", &body).ok();
    assert_eq!(answer["choices"][0]["message"], json!({"role": "assistant", "content": theirs, "refusal": null}));
    assert_eq!(answer["object"], "chat.completion");
    let mut body = body.clone();
    body["stream"] = json!(true);
    let events = post_json(shared(), "/v1/chat/completions", &body).events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(json!(text), theirs);
    let refused = post_json(shared(), "/v1/chat/completions", &json!({"model": "vit", "messages": messages}));
    assert!(refused.refused(400).contains("cannot chat: `vit` is an image classifier"));
}

#[test]
fn sampling_follows_its_seed_and_stops_before_a_string() {
    let ask = |more: Value| {
        let mut body = json!({"model": "llama", "prompt": "Once", "max_tokens": 12});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let answer = post_json(shared(), "/v1/completions", &body).ok();
        let texts = answer["choices"].as_array().expect("a list").iter();
        texts.map(|choice| choice["text"].as_str().expect("text").to_string()).collect::<Vec<String>>()
    };
    let four = ask(json!({"n": 4, "seed": 7}));
    assert_eq!(ask(json!({"n": 4, "seed": 7})), four);
    assert_ne!(ask(json!({"n": 4, "seed": 8})), four);
    assert!(four.windows(2).any(|pair| pair[0] != pair[1]));
    let whole = language("llama").1["texts"][1].as_str().expect("text").to_string();
    let stop = &whole[7..10];
    let body = json!({"model": "llama", "prompt": "a", "max_tokens": 20, "temperature": 0, "stop": [stop, "never"]});
    let choice = post_json(shared(), "/v1/completions", &body).ok()["choices"][0].clone();
    let place = whole.find(stop).expect("there");
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(whole[..place]), &json!("stop")));
}

#[test]
fn what_asks_for_nothing_else_is_no_mistake() {
    let body = json!({"model": "llama", "prompt": "Once", "max_tokens": 2, "n": 2, "best_of": 2, "suffix": "", "logit_bias": {},
        "presence_penalty": 0, "frequency_penalty": 0.0, "user": "someone", "store": true});
    post_json(shared(), "/v1/completions", &body).ok();
    let body = json!({"model": "qwen3", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "tools": [],
        "functions": null, "tool_choice": "none", "modalities": ["text"], "metadata": {"a": "b"}});
    post_json(shared(), "/v1/chat/completions", &body).ok();
}

#[test]
fn prompts_have_probabilities_as_evaluation_harnesses_ask_for_them() {
    let expected = language("llama").1;
    let (prompt, greedy) = (&expected["prompts"][0]["tokens"], &expected["greedy"][0]);
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let written = list(&greedy["tokens"]);
    // What the peer wrote is given as a part of the prompt: its probabilities are those of writing it.
    let whole: Vec<Value> = [list(prompt), written.clone()].concat();
    let body = json!({"model": "llama", "prompt": whole, "echo": true, "logprobs": 3, "max_tokens": 0});
    let answer = post_json(shared(), "/v1/completions", &body).ok();
    let choice = &answer["choices"][0];
    assert_eq!((&choice["finish_reason"], &answer["usage"]["completion_tokens"]), (&json!("length"), &json!(0)));
    assert!(choice["text"].as_str().expect("text").starts_with("Once upon a time"));
    let told = &choice["logprobs"];
    let (tokens, logprobs) = (list(&told["tokens"]), list(&told["token_logprobs"]));
    assert_eq!((tokens.len(), logprobs.len()), (whole.len(), whole.len()));
    assert_eq!((&logprobs[0], &told["top_logprobs"][0]), (&Value::Null, &Value::Null));
    let ours: Vec<f64> = logprobs[list(prompt).len()..].iter().filter_map(Value::as_f64).collect();
    assert_close(&ours, &numbers(&greedy["logprobs"]), 1e-4);
    for (place, theirs) in list(&greedy["top"]).iter().enumerate() {
        let ours = told["top_logprobs"][list(prompt).len() + place].as_object().expect("the likeliest");
        let mut ours: Vec<f64> = ours.values().filter_map(Value::as_f64).collect();
        ours.sort_by(|a, b| b.total_cmp(a));
        let theirs: Vec<f64> = list(theirs).iter().filter_map(|pair| pair[1].as_f64()).collect();
        assert_close(&ours, &theirs, 1e-4);
    }
    // With what is written behind it, also as a stream.
    let mut body =
        json!({"model": "llama", "prompt": prompt, "echo": true, "logprobs": 3, "max_tokens": 3, "temperature": 0});
    let answer = post_json(shared(), "/v1/completions", &body).ok();
    let told = &answer["choices"][0]["logprobs"];
    let count = list(prompt).len();
    assert_eq!(list(&told["token_logprobs"]).len(), count + 3);
    assert_close(&numbers(&json!(list(&told["token_logprobs"])[count..])), &numbers(&greedy["logprobs"])[..3], 1e-4);
    body["stream"] = json!(true);
    let events = post_json(shared(), "/v1/completions", &body).events();
    let streamed = |name: &str| -> Vec<Value> {
        let all = events.iter().map(|event| &event["choices"][0]["logprobs"][name]);
        all.filter_map(Value::as_array).flatten().cloned().collect()
    };
    assert_eq!(streamed("tokens"), list(&told["tokens"]));
    assert_eq!(streamed("text_offset"), list(&told["text_offset"]));
}

#[test]
fn a_text_can_be_made_to_follow_a_format() {
    let ask = |more: Value| {
        let mut body = json!({"model": "llama", "prompt": "A person:", "max_tokens": 60, "temperature": 0});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        post_json(shared(), "/v1/completions", &body)
    };
    let text = ask(json!({"regex": "[0-9]{4}-[0-9]{2}"})).ok()["choices"][0]["text"].clone();
    let text = text.as_str().expect("text");
    assert!(text.len() == 7 && text.chars().all(|letter| letter == '-' || letter.is_ascii_digit()), "{text}");
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": false});
    let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
    for _ in 0..2 {
        let text = ask(format.clone()).ok()["choices"][0]["text"].clone();
        let written: Value = serde_json::from_str(text.as_str().expect("text")).expect("JSON");
        assert!(["x", "y"].contains(&written["a"].as_str().expect("a text")), "{written}");
    }
    assert!(ask(json!({"regex": "("})).refused(400).contains("regular expression"));
    assert!(ask(json!({"response_format": {"type": "xml"}})).refused(400).contains("json_schema"));
}

#[test]
fn embeddings_are_those_of_the_peer() {
    use base64::Engine;
    let expected = read_json(&fixture("texts/expected.json"))["sentence_mean"].clone();
    let theirs =
        expected.as_object().expect("an object").iter().find(|(name, _)| *name != "texts").expect("vectors").1.clone();
    let texts: Vec<(usize, &str)> = expected["texts"]
        .as_array()
        .expect("texts")
        .iter()
        .enumerate()
        .filter_map(|(place, text)| Some((place, text.as_str()?)))
        .filter(|(_, text)| !text.is_empty())
        .collect();
    let input: Vec<&str> = texts.iter().map(|(_, text)| *text).collect();
    let answer = post_json(shared(), "/v1/embeddings", &json!({"model": "sentence_mean", "input": input})).ok();
    for ((place, _), ours) in texts.iter().zip(answer["data"].as_array().expect("a list")) {
        assert_close(&numbers(&ours["embedding"]), &numbers(&theirs[place]), 1e-5);
    }
    let body = json!({"model": "sentence_mean", "input": input[0], "encoding_format": "base64"});
    let one = post_json(shared(), "/v1/embeddings", &body).ok();
    let bytes = base64::engine::general_purpose::STANDARD.decode(one["data"][0]["embedding"].as_str().expect("text"));
    let vector: Vec<f64> = bytes
        .expect("base64")
        .chunks_exact(4)
        .map(|four| f64::from(f32::from_le_bytes(four.try_into().expect("four"))))
        .collect();
    assert_close(&vector, &numbers(&theirs[texts[0].0]), 1e-5);
    assert!(one["usage"]["prompt_tokens"].as_u64().expect("a number") > 2);
    for (wrong, says) in [
        (json!({"input": []}), "between 1 and"),
        (json!({"input": ""}), "empty"),
        (json!({"input": ["a", ""]}), "empty"),
        (json!({"input": [[]]}), "no tokens"),
        (json!({"input": [999_999]}), "vocabulary"),
        (json!({"input": "a", "encoding_format": "f16"}), "float or base64"),
        (json!({"input": "a", "dimensions": 3}), "dimensions"),
        (json!({"input": {"a": 1}}), "`input`"),
        (json!({}), "missing field `input`"),
    ] {
        let mut body = wrong.clone();
        body["model"] = json!("sentence_mean");
        let told = post_json(shared(), "/v1/embeddings", &body).refused(400);
        assert!(told.contains(says), "{told} for {wrong}");
    }
}

#[test]
fn wrong_requests_are_told_in_openais_shape() {
    let ask = |more: Value| {
        let mut body = json!({"model": "llama", "prompt": "a"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        post_json(shared(), "/v1/completions", &body)
    };
    for (wrong, says) in [
        (json!({"temperature": "hot"}), "`temperature`: invalid type"),
        (json!({"temperature": -1}), "temperature must be at least 0"),
        (json!({"top_p": 0}), "top-p"),
        (json!({"n": 0}), "`n` is between 1"),
        (json!({"n": 1000}), "`n` is between 1"),
        (json!({"max_tokens": 0}), "at least 1"),
        (json!({"max_tokens": -5}), "`max_tokens`"),
        (json!({"prompt": []}), "empty"),
        (json!({"prompt": [[1, 2], [99999]]}), "vocabulary"),
        (json!({"prompt": null}), "`prompt`"),
        (json!({"logprobs": 1000}), "at most 20"),
        (json!({"presence_penalty": 1}), "not supported"),
        (json!({"logit_bias": {"5": 1}}), "not supported"),
        (json!({"stop": vec!["x"; 99]}), "at most 16"),
        (json!({"suffix": "x"}), "not supported"),
        (json!({"best_of": 3}), "`best_of` is not supported"),
        (json!({"model": "vit"}), "cannot complete texts: `vit` is an image classifier; it answers /classify/vit"),
    ] {
        let answer = ask(wrong.clone());
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error", "{wrong}");
        let told = answer.refused(400);
        assert!(told.contains(says), "{told} for {wrong}");
    }
    let long = "x".repeat(200);
    assert!(ask(json!({"prompt": long})).refused(400).contains("200 tokens, but the context has room for 96"));
    assert!(post_json(shared(), "/v1/completions", &json!({"prompt": "a"})).refused(400).contains("name a model"));
    for body in ["", "{", "[]", "nonsense", "{\"prompt\": \"\\ud800\"}", "{\"model\": \"llama\"} {}"] {
        post(shared(), "/v1/completions", "application/json", body.as_bytes()).refused(400);
    }
    post(shared(), "/v1/completions", "application/json", b"{\"model\": \"llama\", \"prompt\": \"\xff\"}").refused(400);
    for (wrong, says) in [
        (json!({"messages": []}), "between 1 and"),
        (json!({"messages": [{"role": "robot", "content": "a"}]}), "role"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "type text"),
        (json!({"messages": "a"}), "`messages`"),
        (json!({"messages": [{"role": "user", "content": "a"}], "tools": [{}]}), "not supported"),
        (json!({"messages": [{"role": "user", "content": "a"}], "functions": [{"name": "f"}]}), "`functions` is not"),
        (json!({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"}), "`tool_choice` is not"),
        (json!({"messages": [{"role": "user", "content": "a"}], "modalities": ["text", "audio"]}), "answers are text"),
        (json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}), "`max_tokens` is at least 1"),
        (json!({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}), "needs `logprobs"),
    ] {
        let mut body = wrong.clone();
        body["model"] = json!("qwen3");
        let told = post_json(shared(), "/v1/chat/completions", &body).refused(400);
        assert!(told.contains(says), "{told} for {wrong}");
    }
}
