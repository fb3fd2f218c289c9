//! `vitreous transcribe` and `vitreous eval` of a speech model with random weights, and recordings that are none.

mod common;

use std::path::{Path, PathBuf};

use common::vitreous;
use vitreous_engine::{Graph, State};
use vitreous_models::initial::{Initialisation, initialise};
use vitreous_models::{Call, Model, OpenOptions, SaveOptions, preset};

/// What a random model writes is unlikely: without these, every window would be tried at all temperatures.
const ONCE: [&str; 10] = [
    "--temperature",
    "0",
    "--logprob-threshold",
    "-1000",
    "--no-speech-threshold",
    "1",
    "--compression-ratio-threshold",
    "1000",
    "--device",
    "cpu",
];

/// A model of the smallest sizes, with the vocabulary of English models and no tokenizer beside it.
fn model(directory: &Path) -> String {
    let mut sizes = OpenOptions::default();
    for (key, size) in [
        ("dim", 16),
        ("heads", 1),
        ("decoder_heads", 1),
        ("encoder_layers", 1),
        ("decoder_layers", 1),
        ("mlp_dim", 16),
        ("decoder_mlp_dim", 16),
    ] {
        sizes = sizes.with(key, size);
    }
    let architecture = preset("whisper_tiny_en").expect("known").with_settings(&sizes.settings).expect("fits");
    let mut graph = Graph::for_inference();
    architecture.build(&mut graph, &Call::whole(1)).expect("builds");
    let mut state = State::new(&graph).expect("memory");
    initialise(&mut state, Initialisation::PyTorch, 1, &|_| true).expect("initialised");
    let target = directory.join("model");
    let options = SaveOptions { state: Some(&state), ..SaveOptions::default() };
    Model::new(architecture, Vec::new()).expect("a model").save(&target, &options).expect("saved");
    target.to_string_lossy().into_owned()
}

fn speech(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/audio").join(name);
    path.to_string_lossy().into_owned()
}

fn transcribe(arguments: &[&str]) -> common::Outcome {
    vitreous(&[&["transcribe"], arguments, &ONCE].concat())
}

#[test]
fn recordings_are_transcribed_in_every_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(folder.path());
    let (one, other) = (speech("mono.wav"), speech("mono.mp3"));
    let answers = transcribe(&[&model, &one, &other, "--json"]).succeeded().json_lines();
    assert_eq!(answers.len(), 2);
    for (answer, path) in answers.iter().zip([&one, &other]) {
        assert_eq!(answer["path"], path.as_str());
        assert_eq!(answer["language"], "en");
        assert!(answer["text"].is_string());
        for segment in answer["segments"].as_array().expect("segments") {
            assert!(segment["start"].as_f64() <= segment["end"].as_f64(), "{segment}");
            assert!(segment.get("words").is_none());
        }
    }
    // Both at once.
    let together = transcribe(&[&model, &one, &other, "--json", "--batch", "2"]).succeeded().json_lines();
    assert_eq!(together, answers);
    let text = |format: &str| transcribe(&[&model, &one, "--format", format]).succeeded().stdout;
    let segments = answers[0]["segments"].as_array().expect("segments");
    let lines: Vec<String> =
        segments.iter().map(|segment| segment["text"].as_str().expect("a text").trim().to_string()).collect();
    assert_eq!(text("txt").lines().count(), lines.iter().map(|line| line.lines().count().max(1)).sum::<usize>());
    assert!(text("vtt").starts_with("WEBVTT\n\n"));
    assert_eq!(text("srt").matches(" --> ").count(), segments.len());
    // A decoder that hears nothing says the same of all.
    let deaf = transcribe(&[&model, &one, &other, "--json", "--without", "encoder.0"]).succeeded().json_lines();
    assert_eq!(deaf[0]["text"], deaf[1]["text"]);
    assert_ne!(deaf[0]["text"], answers[0]["text"]);
    transcribe(&[&model, &one, "--without", "encoder.7"]).failed(2, &["`encoder.7`"]);
    // Files are written once.
    let out = folder.path().join("out");
    let to = out.to_string_lossy();
    transcribe(&[&model, &one, "--format", "srt", "--out", &to]).succeeded();
    assert_eq!(std::fs::read_to_string(out.join("mono.srt")).expect("a file"), text("srt"));
    transcribe(&[&model, &one, "--format", "srt", "--out", &to]).failed(2, &["mono.srt"]);
    // Words lie within their recording.
    let with_words = transcribe(&[&model, &one, "--json", "--word-timestamps"]).succeeded().json_lines();
    let words: Vec<_> = with_words[0]["segments"]
        .as_array()
        .expect("segments")
        .iter()
        .flat_map(|segment| segment["words"].as_array().expect("words"))
        .collect();
    assert!(words.iter().all(|word| word["start"].as_f64() <= word["end"].as_f64()), "{words:?}");
    let beams = transcribe(&[&model, &one, "--json", "--beam", "2"]).succeeded().json_lines();
    assert_eq!(beams.len(), 1);
}

#[test]
fn what_is_no_recording_gets_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(folder.path());
    let file = |name: &str, content: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    };
    let picture = file("picture.wav", b"\x89PNG\r\n\x1a\nand so on");
    let empty = file("empty.wav", b"");
    for (path, says) in [(&picture, "this is a picture (PNG), not audio"), (&empty, "the file is empty")] {
        let path = path.to_string_lossy();
        transcribe(&[&model, &path]).failed(2, &[&path, says]);
    }
    transcribe(&[&model, "no such file.wav"]).failed(2, &["no such file.wav", "cannot be read"]);
    // One of several: the others are transcribed.
    let outcome = transcribe(&[&model, &picture.to_string_lossy(), &speech("mono.wav"), "--json"]);
    assert_eq!((outcome.code, outcome.json_lines().len()), (1, 1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("picture (PNG)"));
    vitreous(&["transcribe", &model, "-"]).failed(2, &["standard input: the file is empty"]);
    let one = speech("mono.wav");
    transcribe(&[&model, &one, "--language", "klingon"]).failed(2, &["klingon"]);
    transcribe(&[&model, &one, "--language", "de"]).failed(2, &["English only"]);
    transcribe(&[&model, &one, "--task", "translate"]).failed(2, &["nothing to translate"]);
    transcribe(&["vit_tiny_patch16_224", &one]).failed(2, &["preset"]);
}

#[test]
fn error_rates_are_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(folder.path());
    let list = folder.path().join("list.csv");
    std::fs::write(&list, format!("path,text\n{},one two three\n", speech("mono.wav"))).expect("written");
    let list = list.to_string_lossy();
    let answer = vitreous(&["eval", &model, "--data", &list, "--json", "--device", "cpu"]).succeeded().json_lines();
    assert_eq!((answer[0]["recordings"].as_u64(), answer[0]["words"].as_u64()), (Some(1), Some(3)));
    assert!(answer[0]["wer"].as_f64().is_some_and(|rate| rate > 0.0));
    let wrong = folder.path().join("wrong.csv");
    std::fs::write(&wrong, "path,text\nmissing.wav,hello\n").expect("written");
    vitreous(&["eval", &model, "--data", &wrong.to_string_lossy()]).failed(2, &["line 2", "missing.wav"]);
    vitreous(&["eval", &model]).failed(2, &["--data"]);
}

/// A WAV file as a recording program writes it into a pipe, which does not know its length; perhaps with a sample that is none.
fn recorded(seconds: usize, bad: Option<usize>) -> Vec<u8> {
    let mut samples: Vec<f32> =
        (0..seconds * 16_000).map(|place| ((place * place / 4000) as f32).sin() * 0.1).collect();
    bad.into_iter().for_each(|second| samples[second * 16_000] = f32::NAN);
    let mut file = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0".to_vec();
    file.extend(b"\x03\0\x01\0\x80\x3e\0\0\0\xfa\0\0\x04\0\x20\0data\xff\xff\xff\xff");
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

/// What comes before a sample that is no number is written.
#[test]
fn what_was_heard_of_a_pipe_is_written_before_its_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(folder.path());
    let piped = |bytes: Vec<u8>, more: &[&str]| {
        common::vitreous_with_bytes(&[&["transcribe", &model, "-", "--no-timestamps"], more, &ONCE].concat(), &bytes)
    };
    let whole = piped(recorded(35, None), &["--json"]).succeeded();
    assert!(!whole.stderr.contains("middle"), "{}", whole.stderr);
    let whole = whole.json_lines();
    assert_eq!(whole[0]["segments"].as_array().map(Vec::len), Some(2), "{whole:?}");
    let failed = piped(recorded(40, Some(35)), &["--json"]);
    assert_eq!(failed.code, 2, "{}", failed.stderr);
    assert!(failed.stderr.contains("standard input: a sample at 35.00 s is not a number"), "{}", failed.stderr);
    assert_eq!(failed.json_lines()[0]["segments"][0], whole[0]["segments"][0]);
    let out = folder.path().join("out");
    let failed = piped(recorded(40, Some(35)), &["--out", &out.to_string_lossy()]);
    assert_eq!(failed.code, 2, "{}", failed.stderr);
    assert!(out.join("stdin.txt").is_file());
}

/// Ctrl-C ends a microphone's recording, not the work on it.
#[cfg(unix)]
#[test]
fn an_interrupted_pipe_is_transcribed_to_where_it_was() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(folder.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args([&["transcribe", &model, "-", "--no-timestamps", "--format", "srt"], &ONCE[..]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    // The pipe stays open, as that of a program that does not end.
    let mut input = child.stdin.take().expect("an input");
    input.write_all(&recorded(35, None)).expect("written");
    input.flush().expect("written");
    let mut output = BufReader::new(child.stdout.take().expect("an output"));
    let mut first = String::new();
    output.read_line(&mut first).expect("the first window");
    assert_eq!(first.trim(), "1");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("\n2\n00:00:30,000 --> 00:00:35"), "{rest}");
    assert_eq!(child.wait().expect("ends").code(), Some(130));
    drop(input);
}
