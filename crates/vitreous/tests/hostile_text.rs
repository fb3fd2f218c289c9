//! Commands for texts with broken files, odd texts and models that contradict themselves: one sentence, exit code 2, no panic.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::texts::{assert_same, change, copied, on};
use common::{fixtures, vitreous, vitreous_with_input};
use serde_json::json;

/// Each command on a model that can do it, with texts that it takes.
const COMMANDS: [(&str, &str); 4] = [
    ("embed", "sentence_mean"),
    ("predict", "bert_classes"),
    ("predict", "roberta_tokens"),
    ("fill", "roberta_masked"),
];

#[test]
fn odd_texts_have_answers() {
    let controls: String = (1..32).map(char::from).filter(|letter| !"\n\r".contains(*letter)).collect();
    let odd = [
        "",
        " ",
        &controls,
        "\u{feff}",
        "\u{200d}\u{202e}",
        "\u{fffd}",
        "\u{e000}",
        "\u{10ffff}",
        &"e\u{301}".repeat(300),
    ];
    let lines: String = odd.iter().map(|text| format!("{}\n", json!({"text": format!("<mask>{text}")}))).collect();
    for (command, model) in COMMANDS {
        let model = format!("texts/{model}");
        let run = vitreous_with_input(&[command, &model, "--json", "--device", "cpu"], &lines).succeeded();
        let answers = run.json_lines();
        assert_eq!(answers.len(), odd.len(), "{command}");
        assert!(answers.iter().zip(odd).all(|(answer, text)| answer["text"] == format!("<mask>{text}")), "{command}");
        // What is shown to people has no control characters, and as many lines as it should.
        let shown = vitreous_with_input(&[command, &model, "--device", "cpu"], &lines).succeeded();
        assert!(
            !shown.stdout.contains(|letter: char| letter.is_control() && !"\n\t".contains(letter)),
            "{:?}",
            shown.stdout
        );
    }
    for (command, model) in COMMANDS.into_iter().filter(|(command, _)| *command != "fill") {
        let model = format!("texts/{model}");
        let run = vitreous_with_input(&[command, &model, "--json", "--device", "cpu"], "\n").succeeded();
        assert_eq!(run.json_lines()[0]["text"], "");
    }
}

#[test]
fn no_text_at_all_is_no_failure() {
    for (command, model) in COMMANDS {
        let model = format!("texts/{model}");
        let run = vitreous_with_input(&[command, &model, "--device", "cpu"], "").succeeded();
        assert_eq!(run.stdout, "");
        assert!(run.stderr.contains("0 texts in "), "{}", run.stderr);
    }
}

#[test]
fn a_line_of_ten_megabytes_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("long.txt");
    fs::write(&file, format!("<mask> a\n{}\n", "a".repeat(10 << 20))).expect("written");
    let file = file.to_str().expect("text");
    for (command, model) in COMMANDS {
        let run = on(command, model, &["--file", file]).failed(2, &["long.txt, line 2", "longer than 1 MiB"]);
        assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
        // The line before it was answered.
        assert!(run.stdout.starts_with(if command == "fill" { "" } else { "<mask> a" }) && !run.stdout.is_empty());
    }
}

/// One word of nearly the longest line: time grows with its length, not faster.
#[test]
fn a_word_of_a_megabyte_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("word.txt");
    let mask = "<mask>";
    fs::write(&file, format!("{mask}{}\n", "ab".repeat((1 << 19) - 8))).expect("written");
    for (command, model) in COMMANDS {
        on(command, model, &["--file", file.to_str().expect("text")]).succeeded();
    }
}

#[test]
fn what_is_not_utf8_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("latin.txt");
    fs::write(&file, b"<mask> a\n<mask> caf\xe9\n").expect("written");
    for (command, model) in COMMANDS {
        let says = ["latin.txt", "line 2", "UTF-8"];
        on(command, model, &["--file", file.to_str().expect("text")]).failed(2, &says);
    }
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_utf8_are_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let broken = OsStr::from_bytes(b"caf\xe9");
    for (command, model) in COMMANDS {
        let mut run = Command::new(env!("CARGO_BIN_EXE_vitreous"));
        run.args([command, &format!("texts/{model}")]).current_dir(fixtures());
        if command == "predict" {
            run.arg("--text");
        }
        let run = run.arg(broken).output().expect("vitreous runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains("UTF-8") && !said.contains("panicked"), "{said}");
    }
}

#[test]
fn broken_json_lines_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("texts.jsonl");
    for (lines, says) in [
        ("{\"text\": \"a\"}\n{\"text\": \n", "line 2: this is not JSON"),
        ("{\"text\": \"a\"}\nplain\n", "line 2: this is not JSON"),
        ("{\"text\": 3}\n", "line 1: `text` must be a string"),
        ("{\"texts\": \"a\"}\n", "line 1: `text` is missing"),
        ("[\"a\"]\n", "line 1: `text` is missing"),
        ("{\"text\": \"a\", \"text_pair\": []}\n", "line 1: `text_pair` must be a string"),
    ] {
        fs::write(&file, lines).expect("written");
        on("embed", "sentence_mean", &["--file", file.to_str().expect("text")]).failed(2, &["texts.jsonl", says]);
    }
    let folder = folder.path().to_str().expect("text");
    on("embed", "sentence_mean", &["--file", folder]).failed(2, &["this is a directory"]);
    on("embed", "sentence_mean", &["--file", "missing.txt"]).failed(2, &["missing.txt"]);
}

#[test]
fn a_tokenizer_with_more_tokens_than_the_model_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = copied("bert_classes", &folder.path().join("model"));
    change(&model, "tokenizer.json", |tokenizer| {
        tokenizer["model"]["vocab"]["engineering"] = json!(5000);
    });
    let run = vitreous(&["predict", &model, "--text", "engineering"]);
    run.failed(2, &["token 5000", "\"engineering\"", "150", "do not belong to one model"]);
    vitreous(&["predict", &model, "--text", "the engine"]).succeeded();
}

#[test]
fn a_template_with_more_token_types_than_the_model_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, (single, pair)) in [(4_000_000_000_u32, 0), (0, 7)].into_iter().enumerate() {
        let model = copied("bert_classes", &folder.path().join(number.to_string()));
        change(&model, "tokenizer.json", |tokenizer| {
            let text = |id: &str, kind: u32| json!({"Sequence": {"id": id, "type_id": kind}});
            tokenizer["post_processor"]["single"] = json!([text("A", single)]);
            tokenizer["post_processor"]["pair"] = json!([text("A", 0), text("B", pair)]);
        });
        let wrong = format!("token type {}", single.max(pair));
        let run = vitreous(&["predict", &model, "--device", "cpu", "--text", "the engine", "--pair", "a"]);
        match pair {
            0 => run.succeeded(),
            _ => run.failed(2, &[&wrong, "the model has 2", "do not belong to one model"]),
        };
        let run = vitreous(&["predict", &model, "--device", "cpu", "--text", "the engine"]);
        match single {
            0 => run.succeeded(),
            _ => run.failed(2, &[&wrong, "the model has 2"]),
        };
    }
}

#[test]
fn settings_that_contradict_each_other_are_named_with_their_file() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, (key, value, says)) in
        [("hidden_size", 0, "must be at least 1"), ("num_attention_heads", 7, "7 heads do not divide")]
            .into_iter()
            .enumerate()
    {
        let model = copied("bert_classes", &folder.path().join(number.to_string()));
        change(&model, "config.json", |config| config[key] = json!(value));
        for command in [vec!["predict", &model, "--text", "a"], vec!["summary", &model]] {
            vitreous(&command).failed(2, &["config.json: ", says]);
        }
    }
}

#[test]
fn a_vocabulary_smaller_than_the_embedding_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = copied("bert_classes", &folder.path().join("model"));
    change(&model, "tokenizer.json", |tokenizer| {
        let vocab = tokenizer["model"]["vocab"].as_object_mut().expect("a vocabulary");
        let largest = vocab.iter().max_by_key(|(_, id)| id.as_u64()).map(|(token, _)| token.clone());
        vocab.remove(&largest.expect("a token"));
    });
    let arguments = ["--text", "a", "--json"];
    let ours = vitreous(&[&["predict", &model, "--device", "cpu"], &arguments[..]].concat()).succeeded().json_lines();
    assert_same(&ours[0], &on("predict", "bert_classes", &arguments).succeeded().json_lines()[0], 1e-6);
}

#[test]
fn directories_that_lack_files_say_which() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = copied("bert_masked", &folder.path().join("model"));
    fs::remove_file(Path::new(&model).join("tokenizer.json")).expect("removed");
    vitreous(&["embed", &model, "a"]).failed(2, &["tokenizer.json"]);
    vitreous(&["fill", &model, "[MASK]"]).failed(2, &["tokenizer.json"]);
    let model = copied("bert_masked", &folder.path().join("other"));
    change(&model, "config.json", |config| {
        let config = config.as_object_mut().expect("a configuration");
        config.remove("architectures");
        config.remove("model_type");
    });
    vitreous(&["fill", &model, "[MASK]"]).failed(2, &["config.json"]);
    let model = copied("bert_masked", &folder.path().join("third"));
    change(&model, "config.json", |config| {
        config.as_object_mut().expect("a configuration").remove("architectures");
    });
    // The tensors tell what it is.
    vitreous(&["fill", &model, "[MASK]"]).succeeded();
}

#[test]
fn a_model_without_a_mask_token_is_refused_by_fill() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = copied("bert_masked", &folder.path().join("model"));
    change(&model, "tokenizer_config.json", |config| {
        *config = json!({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"});
    });
    let path = Path::new(&model).join("tokenizer.json");
    let tokenizer = fs::read_to_string(&path).expect("a tokenizer");
    fs::write(&path, tokenizer.replace("[MASK]", "[HOLE]")).expect("written");
    vitreous(&["fill", &model, "a [MASK]"]).failed(2, &["no mask token"]);
}

#[test]
fn modules_outside_of_the_directory_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, path) in ["../../etc", "/etc", "1_Pooling/../..", "."].iter().enumerate() {
        let model = copied("sentence_mean", &folder.path().join(number.to_string()));
        change(&model, "modules.json", |modules| modules[1]["path"] = json!(path));
        vitreous(&["embed", &model, "a"]).failed(2, &["modules.json", "not a folder inside the model directory"]);
    }
    let model = copied("sentence_mean", &folder.path().join("cnn"));
    change(&model, "modules.json", |modules| modules[2]["type"] = json!("sentence_transformers.models.CNN"));
    vitreous(&["embed", &model, "a"]).failed(2, &["\"CNN\" is not supported"]);
    let model = copied("sentence_mean", &folder.path().join("longest"));
    change(&model, "sentence_bert_config.json", |config| config["max_seq_length"] = json!(1));
    vitreous(&["embed", &model, "a"]).failed(2, &["1", "special"]);
}

#[test]
fn wrong_usage_says_what_to_do() {
    for (command, model) in COMMANDS {
        let model = format!("texts/{model}");
        vitreous(&[command, &model, "--top", "0"]).failed(2, &["at least 1"]);
        vitreous(&[command, &model, "--threads", "0"]).failed(2, &["at least 1"]);
        vitreous(&[command, "sentence-transformers/none", "-"]).failed(2, &["hf download sentence-transformers/none"]);
        vitreous(&[command, "nothing", "--file", "x"]).failed(2, &["nothing: no such file or directory"]);
        vitreous(&[command, "vit_base_patch16_224", "--file", "x"]).failed(2, &["is a preset, which has no weights"]);
    }
    on("embed", "sentence_mean", &["a", "--file", "x"]).failed(2, &["cannot be used with"]);
    on("embed", "sentence_mean", &["a", "--pooling", "sum"]).failed(2, &["cls, mean, max, last"]);
    on("embed", "sentence_mean", &["a", "--out", "x.npy", "--json"]).failed(2, &["cannot be used with"]);
    on("embed", "sentence_mean", &["a", "--out", "x.npy", "--search", "b"]).failed(2, &["cannot be used with"]);
    vitreous(&["fill", "tiny_vit", "[MASK]"]).failed(2, &["no model for texts"]);
}

/// `vitreous .. | head -n 1`: whoever stops reading is not complained to, and the work ends.
#[test]
fn whoever_stops_reading_is_not_complained_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lines.txt");
    fs::write(&file, "<mask> the engine\n".repeat(5000)).expect("written");
    for (command, model) in COMMANDS {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
            .args([command, &format!("texts/{model}"), "--json", "--device", "cpu", "--file"])
            .arg(&file)
            .current_dir(fixtures())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("vitreous starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("vitreous ends");
        assert!(output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("error"), "{output:?}");
    }
}

/// Whoever writes a line and waits for its answer gets it before the next line.
#[test]
fn answers_do_not_wait_for_more_lines() {
    use std::io::{BufRead, BufReader, Write};
    for (command, model) in COMMANDS {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
            .args([command, &format!("texts/{model}"), "--json", "--device", "cpu"])
            .current_dir(fixtures())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("vitreous starts");
        let mut input = child.stdin.take().expect("an input");
        let (send, answers) = std::sync::mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("an output"));
        std::thread::spawn(move || output.lines().try_for_each(|line| send.send(line.expect("text"))));
        for text in ["first <mask>", "second <mask>"] {
            writeln!(input, "{text}").expect("written");
            // Far longer than it takes: without an answer this would be for ever.
            let answer = answers.recv_timeout(std::time::Duration::from_secs(120));
            if answer.is_err() {
                child.kill().expect("killed");
            }
            let answer: serde_json::Value = serde_json::from_str(&answer.expect("an answer")).expect("JSON");
            assert_eq!(answer["text"], text);
        }
        drop(input);
        assert!(child.wait().expect("vitreous ends").success());
    }
}

/// 400 lines of nearly the longest: a few of them are in memory at a time, whatever is done with them.
#[cfg(target_os = "linux")]
#[test]
fn many_long_lines_take_bounded_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("long.txt");
    fs::write(&file, format!("{}\n", "the engine ".repeat(90_000)).repeat(400)).expect("written");
    let out = folder.path().join("vectors.parquet");
    let out = out.to_str().expect("text");
    for arguments in [["--search", "a"], ["--out", out]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
            .args(["embed", "texts/sentence_mean", "--device", "cpu", "--file"])
            .arg(&file)
            .args(arguments)
            .current_dir(fixtures())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("vitreous starts");
        let status = format!("/proc/{}/status", child.id());
        let mut most = 0;
        let ended = loop {
            if let Some(ended) = child.try_wait().expect("a state") {
                break ended;
            }
            let lines = fs::read_to_string(&status).unwrap_or_default();
            let peak =
                lines.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
            most = most.max(peak.unwrap_or(0_usize));
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        assert!(ended.success());
        // All lines are 400 MB; what was measured is 130 and 210 MB, and 770 MB when all were read ahead.
        assert!(most > 0 && most < 400 << 10, "{arguments:?}: {most} kB");
    }
}
