//! `vitreous generate` and `vitreous chat` against `transformers` (the fixtures of text generation of `vitreous-models`).

mod common;

use std::path::{Path, PathBuf};

use common::{Outcome, fixtures, vitreous, vitreous_with_input};
use serde_json::{Value, json};

const MODELS: [&str; 4] = ["gpt2", "llama", "mistral", "qwen3"];

fn model(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/generate").join(name);
    path.to_str().expect("text").to_string()
}

fn expected(name: &str) -> Value {
    let file = PathBuf::from(model(name)).join("expected.json");
    serde_json::from_slice(&std::fs::read(file).expect("a fixture")).expect("JSON")
}

/// Runs `generate` on a fixture, on the CPU.
fn generate(name: &str, arguments: &[&str]) -> Outcome {
    vitreous(&[&["generate", &model(name), "--device", "cpu", "--max-tokens", "20"], arguments].concat())
}

fn prompts(expected: &Value) -> Vec<&str> {
    let texts = expected["prompts"].as_array().expect("prompts").iter();
    texts.map(|prompt| prompt["text"].as_str().expect("text")).collect()
}

#[test]
fn texts_and_tokens_are_those_of_the_peer() {
    for name in MODELS {
        let expected = expected(name);
        for (which, prompt) in prompts(&expected).into_iter().enumerate() {
            let line = generate(name, &["--json", prompt]).succeeded().json_lines().remove(0);
            let entry = &expected["greedy"][which];
            assert_eq!(
                line,
                json!({"prompt": prompt, "text": expected["texts"][which], "tokens": entry["tokens"], "stop": entry["stop"]})
            );
        }
    }
}

#[test]
fn a_single_text_is_streamed_as_it_is() {
    let expected = expected("mistral");
    let run = generate("mistral", &["Once upon a time"]).succeeded();
    assert_eq!(run.stdout, format!("{}\n", expected["texts"][0].as_str().expect("text")));
    assert!(run.stderr.contains("prompt: 16 tokens, ") && run.stderr.contains("tokens/s"), "{}", run.stderr);
    let quiet = generate("mistral", &["-q", "Once upon a time"]).succeeded();
    assert_eq!((quiet.stdout, quiet.stderr), (run.stdout, String::new()));
}

#[test]
fn many_prompts_are_answered_in_their_order() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in MODELS {
        let expected = expected(name);
        let lines: String =
            prompts(&expected).iter().map(|prompt| format!("{}\n", json!({"prompt": prompt}))).collect();
        let file = folder.path().join(format!("{name}.jsonl"));
        std::fs::write(&file, lines).expect("written");
        let file = file.to_str().expect("text");
        for batch in ["1", "2", "5"] {
            let lines = generate(name, &["--json", "--file", file, "--batch", batch]).succeeded().json_lines();
            let got: Vec<Value> = lines.iter().map(|line| line["tokens"].clone()).collect();
            let theirs = expected["greedy"].as_array().expect("a list").iter().map(|entry| entry["tokens"].clone());
            assert_eq!(got, theirs.collect::<Vec<_>>(), "{name}, {batch} at once");
        }
        // For people one line each.
        let plain = generate(name, &["--file", file]).succeeded();
        let escaped = |text: &Value| text.as_str().expect("text").replace('\n', "\\n");
        let texts: Vec<String> = expected["texts"].as_array().expect("texts").iter().map(escaped).collect();
        assert_eq!(plain.stdout.lines().collect::<Vec<_>>(), texts);
    }
}

#[test]
fn prompts_come_from_standard_input() {
    let theirs = &expected("llama")["texts"];
    let arguments = ["generate", &model("llama"), "--device", "cpu", "--max-tokens", "20"];
    for more in [&[][..], &["-"]] {
        // All of it is one prompt, with its line breaks but the last.
        let run = vitreous_with_input(&[&arguments[..], more].concat(), "x = 1\ny\n").succeeded();
        assert_eq!(run.stdout.strip_suffix('\n'), theirs[4].as_str());
    }
    let lines = vitreous_with_input(&[&arguments[..], &["--file", "-", "--json"]].concat(), "Once upon a time\na\n");
    let texts: Vec<Value> = lines.succeeded().json_lines().iter().map(|line| line["text"].clone()).collect();
    assert_eq!(texts, [theirs[0].clone(), theirs[1].clone()]);
}

#[test]
fn logprobs_are_told() {
    let expected = expected("qwen3");
    let line = generate("qwen3", &["--json", "--logprobs", "2", "Once upon a time"]).succeeded().json_lines().remove(0);
    let told = line["logprobs"].as_array().expect("a list");
    let entry = &expected["greedy"][0];
    assert_eq!(told.len(), entry["tokens"].as_array().expect("tokens").len());
    for (step, told) in told.iter().enumerate() {
        let close = |ours: &Value, theirs: &Value| {
            let (ours, theirs) = (ours.as_f64().expect("a number"), theirs.as_f64().expect("a number"));
            assert!((ours - theirs).abs() < 1e-4, "{ours} and {theirs}");
        };
        assert_eq!(told["token"], entry["tokens"][step]);
        close(&told["logprob"], &entry["logprobs"][step]);
        assert_eq!(told["top"].as_array().expect("a list").len(), 2);
        assert_eq!(told["top"][0]["token"], entry["top"][step][0][0]);
        close(&told["top"][1]["logprob"], &entry["top"][step][1][1]);
    }
    assert!(generate("qwen3", &["--json", "a"]).succeeded().json_lines()[0].get("logprobs").is_none());
}

#[test]
fn beams_are_those_of_the_peer() {
    let expected = expected("llama");
    let case = &expected["beams"][1];
    let arguments = ["--json", "--beam", "4", "--n", "3", "Once upon a time"];
    let lines = generate("llama", &arguments).succeeded().json_lines();
    assert_eq!((lines.len(), &case["beam"]), (3, &json!(4)));
    for (line, theirs) in lines.iter().zip(case["hypotheses"].as_array().expect("a list")) {
        assert_eq!((&line["tokens"], &line["stop"]), (&theirs["tokens"], &theirs["stop"]));
        let difference = line["score"].as_f64().expect("a score") - theirs["score"].as_f64().expect("a score");
        assert!(difference.abs() < 1e-3, "{difference}");
    }
}

#[test]
fn a_stop_string_ends_a_text_before_itself() {
    let whole = expected("llama")["texts"][1].as_str().expect("text").to_string();
    // It spans tokens, which are letters here.
    let stop = &whole[7..10];
    let place = whole.find(stop).expect("there");
    let line =
        generate("llama", &["--json", "--stop", stop, "--stop", "never", "a"]).succeeded().json_lines().remove(0);
    assert_eq!((&line["text"], &line["stop"]), (&json!(whole[..place]), &json!("stop string")));
    assert_eq!(line["tokens"].as_array().expect("tokens").len(), place + 3);
    let streamed = generate("llama", &["--stop", stop, "a"]).succeeded();
    assert_eq!(streamed.stdout, format!("{}\n", &whole[..place]));
    let never = generate("llama", &["--stop", "never met", "a"]).succeeded();
    assert_eq!(never.stdout, format!("{whole}\n"));
}

#[test]
fn several_texts_have_random_numbers_of_their_own() {
    let run = |arguments: &[&str]| {
        let lines =
            generate("llama", &[&["--json", "--n", "4"], arguments, &["Once"]].concat()).succeeded().json_lines();
        lines.iter().map(|line| line["tokens"].to_string()).collect::<Vec<_>>()
    };
    let first = run(&["--seed", "3"]);
    assert_eq!(first.len(), 4);
    assert!(first.windows(2).any(|pair| pair[0] != pair[1]), "{first:?}");
    assert_eq!(run(&["--seed", "3", "--batch", "1"]), first);
    assert_ne!(run(&["--seed", "4"]), first);
    // Without a random choice all are the same.
    let greedy = run(&["--temperature", "0"]);
    assert!(greedy.iter().all(|tokens| *tokens == greedy[0]));
    let likeliest = run(&["--top-k", "1"]);
    assert_eq!(likeliest[0], greedy[0]);
}

#[test]
fn the_end_can_be_ignored() {
    let name = "llama";
    let ended = generate(name, &["--json", "Once upon a time"]).succeeded().json_lines().remove(0);
    let longer = generate(name, &["--json", "--ignore-eos", "Once upon a time"]).succeeded().json_lines().remove(0);
    assert_eq!((&ended["stop"], &longer["stop"]), (&json!("end"), &json!("length")));
    let tokens = longer["tokens"].as_array().expect("tokens");
    assert_eq!(tokens.len(), 20);
    let before = ended["tokens"].as_array().expect("tokens");
    assert_eq!(&tokens[..before.len()], &before[..]);
    assert!(expected(name)["ends"].as_array().expect("ends").contains(&tokens[before.len()]));
}

#[test]
fn a_full_context_is_said_or_shifted() {
    let long = "The quick brown fox jumps over the lazy dog, again and again, and then the lazy dog jumps over the fox";
    let refused = generate("llama", &[long]).failed(2, &["prompt has 10", "room for 96", "--shift"]);
    assert!(refused.stderr.contains("shorten it"), "{}", refused.stderr);
    generate("llama", &["--context", "8", "Once upon a time"]).failed(2, &["16 tokens", "room for 8", "--context"]);
    let shifted = generate("llama", &["--json", "--shift", "--ignore-eos", long]).succeeded().json_lines().remove(0);
    assert_eq!(shifted["tokens"].as_array().expect("tokens").len(), 20);
    let full = ["--json", "--context", "20", "--ignore-eos", "Once upon a time"];
    let line = generate("llama", &full).succeeded().json_lines().remove(0);
    assert_eq!((&line["stop"], line["tokens"].as_array().expect("tokens").len()), (&json!("context"), 5));
}

#[test]
fn wrong_settings_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompts.jsonl");
    std::fs::write(&file, "{\"prompt\": \"a\"}\n{\"text\": \"a\"}\n").expect("written");
    let file = file.to_str().expect("text");
    for (arguments, says) in [
        (&["--top-p", "0", "a"][..], "top-p must be above 0"),
        (&["--temperature", "-1", "a"], "temperature must be at least 0"),
        (&["--min-p", "2", "a"], "min-p must be between 0 and 1"),
        (&["--repetition-penalty", "0", "a"], "repetition penalty must be above 0"),
        (&["--n", "3", "--beam", "2", "a"], "needs a --beam of at least 3"),
        (&["--beam", "2", "--temperature", "1", "a"], "no random choices"),
        (&["--logprobs", "2", "a"], "--json"),
        (&["--max-tokens", "0", "a"], "--max-tokens"),
        (&["--file", file], "line 2: `prompt` is missing"),
    ] {
        let model = model("llama");
        let run = vitreous(&[&["generate", &model, "--device", "cpu"], arguments].concat());
        run.failed(2, &[says]);
    }
}

#[test]
fn other_models_are_told_what_they_are_for() {
    let texts = fixtures().join("texts/bert_classes");
    let texts = texts.to_str().expect("text");
    for command in ["generate", "chat"] {
        vitreous(&[command, texts]).failed(2, &["this is a text classifier, no language model", "vitreous predict"]);
        vitreous(&[command, "tiny_vit"]).failed(2, &["this is an image classifier, no language model"]);
    }
    vitreous(&["fill", &model("llama"), "a"]).failed(2, &["a language model", "vitreous generate"]);
}

/// Runs `chat` on a fixture with messages as lines.
fn chat(name: &str, arguments: &[&str], input: &str) -> Outcome {
    let model = model(name);
    let usual = ["chat", &model, "--device", "cpu", "--max-tokens", "8", "--temperature", "0"];
    vitreous_with_input(&[&usual[..], arguments].concat(), input)
}

#[test]
fn a_chat_answers_line_by_line_and_remembers() {
    // What is given is the model's template, as `generate` would be given it.
    let turn = |history: &str, message: &str| {
        let prompt = format!("{history}<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n");
        let arguments = ["generate", &model("qwen3"), "--device", "cpu", "--max-tokens", "8", &prompt];
        let answer = vitreous(&arguments).succeeded().stdout.strip_suffix('\n').expect("a line").to_string();
        (format!("{}{answer}<|im_end|>\n", prompt), answer)
    };
    let (history, first) = turn("", "Hi");
    let (_, second) = turn(&history, "yes");
    let (_, alone) = turn("", "yes");
    assert_ne!(second, alone);
    let run = chat("qwen3", &[], "Hi\n\nyes\n").succeeded();
    assert_eq!(run.stdout, format!("{first}\n{second}\n"));
    assert!(run.stderr.contains("were there already"), "{}", run.stderr);
    let reset = chat("qwen3", &[], "Hi\n/reset\nyes\n").succeeded();
    assert_eq!(reset.stdout, format!("{first}\n{alone}\n"));
    let (_, told) = turn("<|im_start|>system\nBe<|im_end|>\n", "Hi");
    assert_eq!(chat("qwen3", &["--system", "Be"], "Hi").succeeded().stdout, format!("{told}\n"));
}

#[test]
fn a_chat_has_the_models_own_template() {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(model("qwen3")).expect("a fixture") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("copied");
    }
    let file = folder.path().join("tokenizer_config.json");
    let mut settings: Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("JSON");
    settings["chat_template"] = json!("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}=");
    std::fs::write(&file, settings.to_string()).expect("written");
    let own = folder.path().to_str().expect("text");
    let arguments = ["--device", "cpu", "--max-tokens", "8", "--temperature", "0"];
    let answer = vitreous(&[&["generate", own, "[system: Be][user: Hi]="], &arguments[..]].concat()).succeeded();
    let talk = vitreous_with_input(&[&["chat", own, "--system", "Be"], &arguments[..]].concat(), "Hi\n").succeeded();
    assert_eq!(talk.stdout, answer.stdout);
    settings["chat_template"] = json!("{% for");
    std::fs::write(&file, settings.to_string()).expect("written");
    vitreous(&["chat", own]).failed(2, &["chat template"]);
}

#[test]
fn a_chat_that_is_too_long_forgets_its_beginning() {
    let run = chat("qwen3", &["--context", "60"], "Hi there\nand then\n").succeeded();
    assert_eq!(run.stdout.lines().count(), 2);
    assert!(run.stderr.contains("the oldest 2 messages were left out"), "{}", run.stderr);
    chat("qwen3", &["--context", "20"], "Hi\n").failed(2, &["leaves room for", "--context"]);
    // A line that never ends takes no more memory than this.
    chat("qwen3", &[], &"a".repeat(3 << 20)).failed(2, &["standard input", "longer than 1 MiB"]);
}

/// A model that never ends an answer.
#[cfg(unix)]
fn endless_model(folder: &Path) {
    for entry in std::fs::read_dir(model("qwen3")).expect("a fixture") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), folder.join(entry.file_name())).expect("copied");
    }
    for name in ["config.json", "generation_config.json"] {
        let file = folder.join(name);
        let mut settings: Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("JSON");
        settings["eos_token_id"] = Value::Null;
        if name == "config.json" {
            settings["max_position_embeddings"] = json!(1_000_000);
        }
        std::fs::write(&file, settings.to_string()).expect("written");
    }
    let file = folder.join("tokenizer.json");
    let tokenizer = std::fs::read_to_string(&file).expect("a file");
    let renamed = tokenizer.replace("<|im_end|>", "<|one|>").replace("<|endoftext|>", "<|other|>");
    std::fs::write(&file, renamed).expect("written");
    let template = json!({"chat_template": "{% for m in messages %}[{{ m.content }}]{% endfor %}="});
    std::fs::write(folder.join("tokenizer_config.json"), template.to_string()).expect("written");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_an_answer_of_a_chat_and_twice_ends_it() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    let folder = tempfile::tempdir().expect("a folder");
    endless_model(folder.path());
    // In a file, whose length says what is written and not what has been read.
    let answers = folder.path().join("answers");
    let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .arg("chat")
        .arg(folder.path())
        .args(["--device", "cpu", "--temperature", "0", "--max-tokens", "500000", "--context", "600000"])
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(&answers).expect("a file"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("vitreous starts");
    let mut input = child.stdin.take().expect("an input");
    let mut told = BufReader::new(child.stderr.take().expect("an output")).lines();
    let id = child.id().to_string();
    let interrupt = || assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
    let length = || std::fs::metadata(&answers).expect("a file").len();
    let mut more_than = |before: u64| {
        while length() <= before {
            assert!(child.try_wait().expect("a child").is_none(), "it ended too soon");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };

    writeln!(input, "Hi").expect("written");
    more_than(0);
    interrupt();
    // This is read when the answer has ended.
    writeln!(input, "/reset").expect("written");
    assert!(told.any(|line| line.expect("text").contains("the conversation is forgotten")), "Ctrl-C ended the program");
    let first = length();
    writeln!(input, "yes").expect("written");
    more_than(first);
    interrupt();
    std::thread::sleep(std::time::Duration::from_millis(50));
    interrupt();
    assert_eq!(child.wait().expect("ends").code(), Some(130));
}
