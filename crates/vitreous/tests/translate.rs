//! Translators through the command: training, translating, testing, and what a user can get wrong.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::training::killed_and_whole_are_the_same;
use common::translation::{TINY_TEXT, pair_folder, pairs, translator, write_pairs};
use common::{Outcome, vitreous, vitreous_with_input};
use serde_json::{Value, json};
use vitreous_train::tasks::translate::scores::{bleu, chrf, chrf_plus_plus};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn lines(outcome: &Outcome) -> Vec<&str> {
    outcome.stdout.lines().collect()
}

#[test]
fn arguments_a_file_and_standard_input_give_the_same_lines() {
    let (learned, place) = (translator(), tempfile::tempdir().expect("a directory"));
    let model = learned.model();
    let sentences = ["two three.", "", "seven six five four three two one.", " \t ", "one."];
    let of_arguments = vitreous(&[&["translate", &model], &sentences[..]].concat()).succeeded();
    assert!(of_arguments.stderr.contains("5 sentences in"), "{}", of_arguments.stderr);
    let answers = lines(&of_arguments);
    assert_eq!(answers.len(), 5, "{answers:?}");
    // A line without words is a line without words; the others say something, each its own.
    assert_eq!((answers[1], answers[3]), ("", ""));
    assert!(!answers[0].is_empty() && answers[0] != answers[2], "{answers:?}");

    let file = place.path().join("sentences.txt");
    std::fs::write(&file, sentences.join("\r\n")).expect("written");
    let of_file = vitreous(&["translate", &model, "--file", text(&file)]).succeeded();
    assert_eq!(of_file.stdout, of_arguments.stdout);
    let twice = vitreous(&["translate", &model, "--file", text(&file), "--file", text(&file)]).succeeded();
    assert_eq!(twice.stdout, of_arguments.stdout.repeat(2));
    let of_input = vitreous_with_input(&["translate", &model], &(sentences.join("\n") + "\n")).succeeded();
    assert_eq!(of_input.stdout, of_arguments.stdout);
    // Alone or with others, with one thread or more, with what lies in `best`: the same model says the same.
    let alone = vitreous(&["translate", &model, sentences[2], "--threads", "1"]).succeeded();
    assert_eq!(lines(&alone), [answers[2]]);
    let inner = format!("{model}/model");
    assert_eq!(lines(&vitreous(&["translate", &inner, sentences[0]]).succeeded()), [answers[0]]);
    assert_eq!(vitreous_with_input(&["translate", &model], "").succeeded().stdout, "");
}

#[test]
fn answers_come_while_lines_are_still_to_come() {
    let learned = translator();
    let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args(["translate", &learned.model()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("an input");
    let output = BufReader::new(child.stdout.take().expect("an output"));
    let (send, answers) = std::sync::mpsc::channel();
    std::thread::spawn(move || output.lines().try_for_each(|line| send.send(line.expect("UTF-8"))));
    for sentence in ["one two.", "three."] {
        writeln!(input, "{sentence}").expect("written");
        // An answer that waits for the end of the input would never come.
        let answer = answers.recv_timeout(Duration::from_secs(120)).expect("an answer before the input's end");
        assert!(answer.trim().len() > 1, "{answer:?}");
    }
    drop(input);
    assert!(child.wait().expect("ends").success());
}

#[test]
fn beams_scores_and_json() {
    let learned = translator();
    let of = |more: &[&str]| {
        let model = learned.model();
        vitreous(&[&["translate", &model, "two three four.", "one."], more].concat())
    };
    let best = of(&["--beam", "3"]).succeeded();
    let all = of(&["--beam", "3", "--n-best", "3"]).succeeded();
    let all: Vec<(f64, &str)> = lines(&all)
        .iter()
        .enumerate()
        .map(|(place, line)| (place, line.splitn(3, '\t').collect::<Vec<_>>()))
        .map(|(place, parts)| {
            // Whose it is, how good it is, what it is.
            assert_eq!(parts[0], (place / 3 + 1).to_string());
            (parts[1].parse().expect("a number"), parts[2])
        })
        .collect();
    assert_eq!(all.len(), 6, "{all:?}");
    for (hypotheses, best) in all.chunks(3).zip(lines(&best)) {
        assert!(hypotheses.is_sorted_by(|a, b| a.0 >= b.0), "{hypotheses:?}");
        assert_eq!(hypotheses[0].1, best);
        assert!(hypotheses[0].1 != hypotheses[1].1 && hypotheses[1].1 != hypotheses[2].1, "{hypotheses:?}");
    }
    let json = of(&["--beam", "3", "--n-best", "3", "--json"]).succeeded().json_lines();
    assert_eq!(json[0]["source"], "two three four.");
    for (object, hypotheses) in json.iter().zip(all.chunks(3)) {
        let translations = object["translations"].as_array().expect("a list");
        for (translation, (score, line)) in translations.iter().zip(hypotheses) {
            assert_eq!(translation["text"], *line);
            assert!((number(&translation["score"]) - score).abs() < 1e-4, "{translation}, {score}");
            assert!(number(&translation["log_probability"]) < 0.0 && translation["ended"].is_boolean());
        }
    }
    let greedy = &of(&["--json"]).succeeded().json_lines()[0]["translations"];
    assert_eq!(greedy.as_array().map(Vec::len), Some(1));
    of(&["--n-best", "2"]).failed(2, &["--n-best 2", "--beam"]);
    of(&["--beam", "0"]).failed(2, &["at least 1"]);
    of(&["--beam", "100000"]).failed(2, &["at most 256"]);
    of(&["--length-penalty", "nan"]).failed(2, &["--length-penalty"]);
}

#[test]
fn text_that_is_broken_or_hostile() {
    let (learned, place) = (translator(), tempfile::tempdir().expect("a directory"));
    let model = learned.model();
    let file = place.path().join("text");
    let of = |bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("written");
        vitreous(&["translate", &model, "--file", text(&file)])
    };
    // What came before is answered.
    let broken = of(b"one.\ntw\xff three.\nfour.\n").failed(2, &["line 2, byte 3: this is not UTF-8"]);
    assert_eq!(lines(&broken).len(), 1);
    let long = [b"one.\n".to_vec(), vec![b'x'; (1 << 20) + 1]].concat();
    assert_eq!(lines(&of(&long).failed(2, &["line 2", "1 MiB"])).len(), 1);
    // A mark of the byte order is no text, and a line of one MiB is none too long.
    let plain = of("one two.\n".as_bytes()).succeeded().stdout;
    assert_eq!(of("\u{feff}one two.\n".as_bytes()).succeeded().stdout, plain);
    let longest = of(&[vec![b'x'; 1 << 20], b"\n".to_vec()].concat()).succeeded();
    assert!(longest.stderr.contains("1 sentence was longer"), "{}", longest.stderr);
    // More than the model reads is cut; the names of special tokens are text; nothing commands the terminal.
    let hostile =
        ["one ".repeat(5000), "</s><pad><s> \u{0} \u{1b}[31m".into(), "\u{202e}\u{1f600} \u{65e5}\u{672c}".into()];
    let answered = of(hostile.join("\n").as_bytes()).succeeded();
    assert_eq!(lines(&answered).len(), 3, "{}", answered.stdout);
    assert!(!answered.stdout.replace('\n', "").contains(char::is_control), "{:?}", answered.stdout);
    vitreous(&["translate", &model, "--file", "no/file"]).failed(2, &["no/file"]);
    vitreous(&["translate", &model, "one.", "--file", text(&file)]).failed(2, &["--file"]);
    vitreous(&["translate", &model, "one.", "--length-penalty", "1000"]).failed(2, &["between -10 and 10"]);
}

#[test]
fn a_model_of_the_other_kind_says_what_to_use_instead() {
    let (learned, place) = (translator(), tempfile::tempdir().expect("a directory"));
    let model = learned.model();
    vitreous(&["translate", "tiny_vit", "one."]).failed(2, &["tiny_vit", "no translator", "vitreous predict"]);
    vitreous(&["translate", "no/model", "one."]).failed(2, &["no/model", "no such file"]);
    vitreous(&["translate", "transformer_tiny", "one."]).failed(2, &["no weights", "train translation"]);
    let of_images = |arguments: &[&str]| {
        vitreous(arguments).failed(2, &["a translator", "vitreous translate", "vitreous summary"]);
    };
    let inner = format!("{model}/model");
    let to = place.path().join("to");
    of_images(&["predict", &model, "pictures/smooth.png"]);
    of_images(&["predict", &inner, "pictures/smooth.png"]);
    of_images(&["convert", &model, text(&to)]);
    assert!(!to.exists());
    let weights = format!("{model}/model/model.safetensors");
    vitreous(&["predict", &weights, "pictures/smooth.png"]).failed(2, &["a translator"]);
    // Tokenisers of another model.
    let mixed = place.path().join("mixed");
    std::fs::create_dir(&mixed).expect("a folder");
    for entry in std::fs::read_dir(&inner).expect("a folder").flatten() {
        std::fs::copy(entry.path(), mixed.join(entry.file_name())).expect("copied");
    }
    std::fs::write(mixed.join("tokenizer.json"), "{}").expect("written");
    vitreous(&["translate", text(&mixed), "one."]).failed(2, &["tokenizer.json"]);
    std::fs::remove_file(mixed.join("tokenizer.json")).expect("removed");
    vitreous(&["translate", text(&mixed), "one."]).failed(2, &["tokenizer.json"]);
}

#[test]
fn scores_are_those_of_the_translations_that_are_written() {
    let (learned, place) = (translator(), tempfile::tempdir().expect("a directory"));
    let model = learned.model();
    let (test, written) = (learned.data().join("test.tsv"), place.path().join("test.out"));
    let words = ["eval", &model, "--data", text(&test), "--json", "--translations", text(&written)];
    let report = vitreous(&words).succeeded().json_lines().remove(0);
    let translations = std::fs::read_to_string(&written).expect("translations");
    let translations: Vec<&str> = translations.lines().collect();
    let tested = pairs(15, 3);
    let references: Vec<&String> = tested.iter().map(|pair| &pair.1).collect();
    let expected = bleu(&translations, &references).expect("a score");
    assert_eq!(number(&report["bleu"]["score"]), expected.score);
    assert_eq!(report["bleu"]["counts"], json!(expected.counts));
    assert_eq!(report["bleu"]["signature"], expected.signature());
    assert_eq!(number(&report["chrf"]["score"]), chrf(&translations, &references).expect("a score").score);
    let plus_plus = chrf_plus_plus(&translations, &references).expect("a score");
    assert_eq!(number(&report["chrf_plus_plus"]["score"]), plus_plus.score);
    assert!(report["chrf_plus_plus"]["signature"].as_str().expect("text").contains("nw:2"));
    assert!((number(&report["perplexity"]) - number(&report["loss"]).exp()).abs() < 1e-9);
    assert_eq!((&report["pairs"], &report["split"], &report["beam"]), (&json!(15), &json!(null), &json!(1)));
    // What `translate` says of the same sentences.
    let sources: String = tested.iter().map(|pair| pair.0.clone() + "\n").collect();
    assert_eq!(lines(&vitreous_with_input(&["translate", &model], &sources).succeeded()), translations);
    // Never over a file that is there, which is known before the work.
    vitreous(&words).failed(2, &["test.out", "not overwritten"]);
    vitreous(&["eval", &model, "--data", text(&test), "--translations", "no/where"]).failed(2, &["no directory"]);
    let beam = vitreous(&["eval", &model, "--data", text(&test), "--beam", "3", "--length-penalty", "1"]).succeeded();
    for part in ["15 pairs", "beam of 3", "length penalty of 1", "BLEU = ", "chrF2 = ", "chrF2++ = ", "tok:13a", "->"] {
        assert!(beam.stdout.contains(part), "`{part}` is not in:\n{}", beam.stdout);
    }
}

#[test]
fn parts_of_the_pairs_are_as_asked() {
    let (learned, place) = (translator(), tempfile::tempdir().expect("a directory"));
    let (model, data) = (learned.model(), learned.data());
    let of = |more: &[&str]| vitreous(&[&["eval", &model, "--json", "--data"], more].concat());
    let one = |more: &[&str]| of(more).succeeded().json_lines().remove(0);
    let test = one(&[text(&data)]);
    assert_eq!((&test["split"], &test["pairs"]), (&json!("test"), &json!(15)));
    // The test after the last epoch, of the same model, with the same pairs.
    let validation = one(&[text(&data), "--split", "validation"]);
    let tested = std::fs::read(learned.run().join("evaluation.json")).expect("a test");
    let tested: Value = serde_json::from_slice(&tested).expect("JSON");
    assert_eq!((&validation["split"], &validation["pairs"]), (&json!("validation"), &json!(12)));
    assert_eq!(
        (&validation["tokens"], number(&validation["bleu"]["score"])),
        (&tested["tokens"], number(&tested["bleu"]))
    );
    assert!((number(&validation["loss"]) - number(&tested["loss"])).abs() < 1e-5, "{validation} {tested}");
    let few = one(&[text(&data), "--split", "train", "--limit", "7"]);
    assert_eq!((&few["split"], &few["pairs"]), (&json!("train"), &json!(7)));

    // Of a file all, without what has an empty side; or the share that training would have drawn.
    let file = place.path().join("some.tsv");
    let mut some = pairs(60, 9);
    some[3].1.clear();
    write_pairs(&file, &some);
    let all = of(&[text(&file)]).succeeded();
    assert!(all.stderr.contains("1 pair was left out"), "{}", all.stderr);
    assert_eq!(all.json_lines()[0]["pairs"], 59);
    let drawn = number(&one(&[text(&file), "--split", "validation", "--validation-share", "0.5"])["pairs"]);
    assert!((10.0..50.0).contains(&drawn), "{drawn}");
    of(&[text(&file), "--split", "test"]).failed(2, &["test part", "--split"]);
    // A pair that is longer than the model can read counts for BLEU, and is said to be too long for the loss.
    write_pairs(&file, &[("one ".repeat(300), "eins".to_string()), some[0].clone()]);
    assert_eq!(one(&[text(&file)])["left_out_of_loss"], 1);
    std::fs::write(&file, "no tab here\n").expect("written");
    of(&[text(&file)]).failed(2, &["line 1", "source, tab, target"]);
    std::fs::write(&file, "").expect("written");
    of(&[text(&file)]).failed(2, &["no pairs"]);
    of(&["no/pairs.tsv"]).failed(2, &["no/pairs.tsv"]);

    // A run, and a model in it, is evaluated on the run's validation pairs; a model alone has none.
    for model in [model.clone(), format!("{model}/model")] {
        let own = vitreous(&["eval", &model, "--json"]).succeeded().json_lines().remove(0);
        assert_eq!((&own["split"], &own["pairs"]), (&json!("validation"), &json!(12)));
        assert_eq!(own["bleu"], validation["bleu"]);
    }
    let alone = place.path().join("alone");
    std::fs::create_dir(&alone).expect("a folder");
    for entry in std::fs::read_dir(learned.run().join("model")).expect("a folder").flatten() {
        std::fs::copy(entry.path(), alone.join(entry.file_name())).expect("copied");
    }
    vitreous(&["eval", text(&alone)]).failed(2, &["--data FILE"]);
    of(&[text(&data), "--batch", "3"]).failed(2, &["--batch", "this is a translator"]);
    vitreous(&["eval", &model, "--device", "tpu"]).failed(2, &["`tpu` is no device", "cuda:0"]);
    vitreous(&["eval", "tiny_fashion", "--beam", "3"]).failed(2, &["--beam", "translators", "images"]);
    vitreous(&["eval", "tiny_fashion", "--translations", "x"]).failed(2, &["--translations"]);
}

#[test]
fn parallel_files_are_learned_and_tested_when_their_languages_are_named() {
    let (learned, place) = (translator(), tempfile::tempdir().expect("a directory"));
    let folder = place.path().join("parallel");
    std::fs::create_dir(&folder).expect("a folder");
    for part in ["train", "valid", "test"] {
        let pairs = std::fs::read_to_string(learned.data().join(format!("{part}.tsv"))).expect("pairs");
        let side =
            |place: usize| pairs.lines().map(move |line| format!("{}\n", line.split('\t').nth(place).expect("two")));
        std::fs::write(folder.join(format!("{part}.en")), side(0).collect::<String>()).expect("written");
        std::fs::write(folder.join(format!("{part}.de")), side(1).collect::<String>()).expect("written");
    }
    let run = place.path().join("run");
    let train = |more: &[&str]| {
        let words = ["train", "translation", "--data", text(&folder), "--out", text(&run)];
        vitreous(&[&words[..], &TINY_TEXT, more].concat())
    };
    train(&[]).failed(2, &["train.de, train.en", "--languages en-de"]);
    train(&["--languages", "english"]).failed(2, &["data.languages", "english", "en-de"]);
    train(&["--languages", "en-de"]).succeeded();
    // The same pairs from other files make the same model.
    let bytes = |run: &Path| std::fs::read(run.join("model/model.safetensors")).expect("a model");
    assert!(bytes(&run) == bytes(&learned.run()), "another model");

    let eval =
        |path: &Path, more: &[&str]| vitreous(&[&["eval", text(&run), "--json", "--data", text(path)], more].concat());
    let score = |path: &Path, more: &[&str]| eval(path, more).succeeded().json_lines()[0]["chrf"]["score"].clone();
    let expected = score(&learned.data(), &[]);
    assert_eq!(score(&folder, &["--languages", "en-de"]), expected);
    assert_eq!(score(&folder.join("test"), &["--languages", "en,de"]), expected);
    assert_ne!(score(&folder, &["--languages", "de-en"]), expected);
    // A run remembers which languages it was trained with; a model alone does not.
    assert_eq!(score(&folder, &[]), expected);
    let model = run.join("model");
    vitreous(&["eval", text(&model), "--data", text(&folder)]).failed(2, &["--languages"]);
    eval(&folder, &["--languages", "en"]).failed(2, &["two languages"]);
}

#[test]
fn a_run_tells_its_best_and_what_its_last_test_was_of() {
    let place = tempfile::tempdir().expect("a directory");
    let (folder, run) = (place.path().join("pairs"), place.path().join("run"));
    pair_folder(&folder);
    let words = ["train", "translation", "--data", text(&folder), "--out", text(&run)];
    let trained = vitreous(&[&words[..], &TINY_TEXT].concat()).succeeded();
    let lines: Vec<&str> = trained.stderr.lines().filter(|line| line.starts_with("epoch")).collect();
    let of_mean = lines.iter().map(|line| line.contains("the mean of 2 checkpoints")).collect::<Vec<_>>();
    assert_eq!(of_mean, [false, true], "{lines:?}");
    let report = vitreous(&["report", text(&run), "--json"]).succeeded().json_lines().remove(0);
    let report = report.get(0).unwrap_or(&report);
    assert!(report["best"].is_number() && report["best_epoch"].is_number(), "{report}");
}

#[test]
fn a_config_that_cannot_be_read_is_named() {
    let (learned, place) = (translator(), tempfile::tempdir().expect("a directory"));
    let of = |config: Option<&str>| {
        let model = place.path().join("model");
        let _ = std::fs::remove_dir_all(&model);
        std::fs::create_dir(&model).expect("a directory");
        for file in ["model.safetensors", "tokenizer.json"] {
            std::fs::copy(learned.run().join("model").join(file), model.join(file)).expect("copied");
        }
        if let Some(config) = config {
            std::fs::write(model.join("config.json"), config).expect("written");
        }
        vitreous(&["translate", text(&model), "one."])
    };
    of(None).failed(2, &["config.json", "No such file"]);
    of(Some("{")).failed(2, &["config.json", "not JSON"]);
    of(Some("{}")).failed(2, &["no translator"]);
    let config = std::fs::read_to_string(learned.run().join("model/config.json")).expect("a config");
    let deep = config.replace("\"encoder_layers\": 1", "\"encoder_layers\": 100000000");
    assert_ne!(config, deep);
    of(Some(&deep)).failed(2, &["encoder_layers must be at most 1000"]);
}

#[test]
fn training_says_what_is_wrong_with_pairs() {
    let place = tempfile::tempdir().expect("a directory");
    let (folder, out) = (place.path().join("pairs"), place.path().join("run"));
    let train = || vitreous(&["train", "translation", "--data", text(&folder), "--out", text(&out)]);
    vitreous(&["train", "translation"]).failed(2, &["--data"]);
    train().failed(2, &["pairs", "No such file"]);
    std::fs::create_dir(&folder).expect("a folder");
    train().failed(2, &["no sentence pairs", "train.tsv"]);
    std::fs::write(folder.join("train.tsv"), "one\teins\ntwo zwei\n").expect("written");
    train().failed(2, &["train.tsv, line 2", "1 column"]);
    std::fs::write(folder.join("train.tsv"), b"one\teins\nt\xffo\tzwei\n").expect("written");
    train().failed(2, &["train.tsv, line 2, byte 2", "not UTF-8"]);
    std::fs::write(folder.join("train.tsv"), "one\t\n\teins\n").expect("written");
    train().failed(2, &["there are no training pairs"]);
    let from_model = ["train", "translation", "--data", text(&folder), "--init", "model"];
    vitreous(&from_model).failed(2, &["--init is for fine-tuning", "vitreous train finetune --init"]);
    let too_many = ["train", "translation", "--data", text(&folder), "model.depth=2"];
    vitreous(&too_many).failed(2, &["model.depth"]);
    assert!(!out.exists(), "a run that cannot begin leaves nothing behind");
    assert!(vitreous(&["train", "--list"]).succeeded().stdout.contains("translation"));
    let shown = vitreous(&["train", "--show", "translation"]).succeeded().stdout;
    assert!(shown.contains("task = \"translation\"") && shown.contains("# "), "{shown}");
    let changed = vitreous(&["train", "--show", "translation", "model.preset=transformer_tiny", "text.vocabulary=500"]);
    let changed = changed.succeeded().stdout;
    assert!(changed.contains("vocabulary = 500") && changed.contains("encoder_layers = 3"), "{changed}");
}

#[test]
fn a_translator_that_is_killed_ends_with_the_same_bytes() {
    let place = tempfile::tempdir().expect("a directory");
    let folder = place.path().join("pairs");
    pair_folder(&folder);
    let words = [&["train", "translation", "--data", text(&folder)], &TINY_TEXT[..], &["output.checkpoint_steps=1"]];
    killed_and_whole_are_the_same(place.path(), &words.concat(), &[1, 8, 13]);
    let report = std::fs::read_to_string(place.path().join("whole/report.html")).expect("a report");
    for part in ["id=\"translations\"", "Translations", "BLEU", "tok:13a", "reference: "] {
        assert!(report.contains(part), "{part}");
    }
    for file in ["tokenizer.json", "model/tokenizer.json", "model/config.json", "best/model.safetensors"] {
        assert!(place.path().join("whole").join(file).is_file(), "{file}");
    }
}
