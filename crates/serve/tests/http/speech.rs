//! Transcriptions, by a model that only pretends, and by one with random weights.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use vitreous_runtime::speech::{Segment, SpeechOptions, SpeechSettings, Transcriber, Transcript, Word};
use vitreous_serve::models::{
    ModelSet, Recording, Served, Service, Speech, Transcribe, TranscribeOptions, Transcribing,
};
use vitreous_serve::work::WorkError;
use vitreous_serve::{Limits, Loader};

use crate::client::*;
use crate::tiny::whisper;

/// Says what it was asked. A recording that is `panic` fails, one that is `long` is refused, one that is `endless` takes for ever.
struct Pretending;

impl Transcribe for Pretending {
    fn transcribe(&self, recording: Recording, options: TranscribeOptions) -> Transcribing<'_> {
        Box::pin(async move {
            if &recording.bytes[..] == b"endless" {
                std::future::pending::<()>().await;
            }
            Pretending::answer(&recording, &options)
        })
    }
}

impl Pretending {
    fn answer(recording: &Recording, options: &TranscribeOptions) -> Result<Transcript, WorkError> {
        match &recording.bytes[..] {
            b"panic" => panic!("the model fell over"),
            b"long" => return Err(WorkError::Input(format!("longer than {} s", recording.most_seconds))),
            _ => {}
        }
        let text = format!("{} {:?} {:?}", recording.bytes.len(), options.language, options.temperature);
        let word = Word { text: " one".to_string(), tokens: 1, start: 0.0, end: 0.5, probability: 0.9 };
        let segment = |start: f64, text: &str| Segment {
            start,
            end: start + 1.5,
            text: text.to_string(),
            tokens: vec![1],
            words: if start == 0.0 { vec![word.clone()] } else { Vec::new() },
            ..Segment::default()
        };
        let segments = vec![segment(0.0, " one"), segment(61.25, " two")];
        let language = "en".to_string();
        Ok(Transcript {
            text,
            language,
            seconds: 63.0,
            segments,
            has_words: options.words,
            damage: None,
            failure: None,
        })
    }
}

fn server() -> Running {
    let make = || {
        vec![Arc::new(Served::new(
            "ear",
            "a speech recogniser",
            Service::Speech(Speech(Arc::new(Pretending))),
            &Limits::default(),
        ))]
    };
    start_with(options(Vec::new()), Some(loader(make)))
}

fn ask(server: &Running, fields: &[(&str, &[u8])]) -> Answer {
    let (kind, body) = form(fields);
    post(server.address, "/v1/audio/transcriptions", &kind, &body)
}

#[test]
fn transcripts_come_in_all_formats() {
    let server = server();
    let of = |format: &str| {
        ask(
            &server,
            &[("model", b"ear"), ("file", b"abc"), ("language", b"en"), ("response_format", format.as_bytes())],
        )
    };
    assert_eq!(ask(&server, &[("model", b"ear"), ("file", b"abc")]).ok()["text"], "3 None 0.0");
    assert_eq!(of("json").ok()["text"], "3 Some(\"en\") 0.0");
    assert_eq!(of("text").text(), "3 Some(\"en\") 0.0\n");
    assert_eq!(of("srt").text(), "1\n00:00:00,000 --> 00:00:01,500\none\n\n2\n00:01:01,250 --> 00:01:02,750\ntwo\n\n");
    assert_eq!(of("vtt").text(), "WEBVTT\n\n00:00.000 --> 00:01.500\none\n\n01:01.250 --> 01:02.750\ntwo\n\n");
    let verbose = of("verbose_json").ok();
    assert_eq!((&verbose["language"], &verbose["segments"][1]["id"]), (&"english".into(), &1.into()));
    assert!(verbose.get("words").is_none());
    let words =
        ask(&server, &[("file", b"abc"), ("response_format", b"verbose_json"), ("timestamp_granularities[]", b"word")])
            .ok();
    assert_eq!(words["words"][0]["word"], "one");
    server.finish().expect("a clean end");
}

#[test]
fn a_model_that_panics_is_answered_with_500_and_the_server_goes_on() {
    let server = server();
    for _ in 0..5 {
        assert!(ask(&server, &[("file", b"panic")]).refused(500).contains("the server's log"));
    }
    ask(&server, &[("file", b"abc")]).ok();
    server.finish().expect("a clean end");
}

#[test]
fn recordings_that_take_long_keep_nobody_else_waiting() {
    const MANY: usize = 100;
    let loader: Loader = Arc::new(|around| {
        let ear = Served::new("ear", "a model", Service::Speech(Speech(Arc::new(Pretending))), &Limits::default());
        let vit = Served::open(&named("vit", fixture("tiny_vit")), around).expect("opened");
        Ok(ModelSet::new(vec![Arc::new(ear), Arc::new(vit)]))
    });
    let server = start_with(options(Vec::new()), Some(loader));
    let (kind, body) = form(&[("file", b"endless"), ("model", b"ear")]);
    let ask = request("POST", "/v1/audio/transcriptions", &[("Content-Type", &kind)], &body);
    let waiting: Vec<TcpStream> = (0..MANY)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).expect("a connection");
            stream.write_all(&ask).expect("sent");
            stream
        })
        .collect();
    until("all are transcribed", || metric(server.address, "vitreous_queue{model=\"ear\"}") == MANY as f64);
    // Images are decoded, explained, and models are loaded on threads that may wait.
    let picture = std::fs::read(fixture("pictures/noise.png")).expect("a picture");
    post(server.address, "/classify/vit", "image/png", &picture).ok();
    assert_eq!(post(server.address, "/explain/vit?format=json", "image/png", &picture).status, 200);
    assert_eq!(post(server.address, "/admin/reload", "", b"").ok()["status"], "reloaded");
    drop(waiting);
    until("their clients are noticed", || metric(server.address, "vitreous_left_total ") == MANY as f64);
    assert_eq!(metric(server.address, "vitreous_in_flight "), 1.0, "this one");
    server.finish().expect("a clean end");
}

#[test]
fn recordings_that_are_too_long_are_refused_also_if_they_state_no_length() {
    let folder = tempfile::tempdir().expect("a folder");
    whisper(&folder.path().join("ear"));
    let mut options = options(vec![named("ear", folder.path().join("ear"))]);
    options.limits.audio_seconds = 0.5;
    let server = start_with(options, None);
    let stated = std::fs::read(repository("crates/data/tests/fixtures/audio/mono.flac")).expect("a fixture");
    // The number of samples has 36 bits; 0 is unknown.
    let mut silent = stated.clone();
    silent[21] &= 0xf0;
    silent[22..26].fill(0);
    for recording in [stated, silent] {
        let told = ask(&server, &[("file", &recording)]).refused(400);
        assert!(told.contains("longer than 0.5 s"), "{told}");
        let told = post(server.address, "/explain/ear", "audio/flac", &recording).refused(400);
        assert!(told.contains("longer than 0.5 s"), "{told}");
    }
    server.finish().expect("a clean end");
}

#[test]
fn wrong_forms_are_told() {
    let server = server();
    for (fields, says) in [
        (&[("model", &b"ear"[..])][..], "`file` is missing"),
        (&[("file", b"")], "`file` is missing"),
        (&[("file", b"abc"), ("response_format", b"xml")], "`response_format` is json"),
        (&[("file", b"abc"), ("temperature", b"hot")], "`temperature`"),
        (&[("file", b"abc"), ("temperature", b"7")], "`temperature`"),
        (&[("file", b"abc"), ("timestamp_granularities[]", b"letter")], "word or segment"),
        (&[("file", b"abc"), ("language", b"\xff")], "not UTF-8"),
        (&[("file", b"abc"), ("stream", b"true")], "not streamed"),
        (&[("file", b"long")], "longer than 1800 s"),
    ] {
        let told = ask(&server, fields).refused(400);
        assert!(told.contains(says), "{told}");
    }
    ask(&server, &[("model", b"nobody"), ("file", b"abc")]).refused(404);
    assert!(post(server.address, "/v1/audio/transcriptions", "application/json", b"{}").refused(400).contains("form"));
    server.finish().expect("a clean end");
    let (kind, body) = form(&[("model", b"vit"), ("file", b"abc")]);
    let told = post(shared(), "/v1/audio/transcriptions", &kind, &body).refused(400);
    assert!(told.contains("`vit` is an image classifier"), "{told}");
}

#[test]
fn a_model_of_speech_writes_what_the_library_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model");
    whisper(&model);
    let file = repository("crates/data/tests/fixtures/audio/mono.flac");
    let recording = std::fs::read(&file).expect("a fixture");
    let settings = SpeechSettings { temperatures: vec![0.5], ..SpeechSettings::default() };
    let mut transcriber = Transcriber::open(&model, &SpeechOptions::default()).expect("opened");
    let expected = transcriber.transcribe_file(&file, &settings).expect("a transcript");
    assert!(!expected.text.trim().is_empty());
    let server = start(vec![named("ear", model)]);
    let fields: [(&str, &[u8]); 3] = [("file", &recording), ("temperature", b"0.5"), ("model", b"ear")];
    assert_eq!(ask(&server, &fields).ok()["text"], expected.text.trim());
    // Two at once are one batch, in which each draws its own words.
    std::thread::scope(|scope| {
        let both: Vec<_> = (0..2).map(|_| scope.spawn(|| ask(&server, &fields).ok())).collect();
        for answer in both {
            assert!(answer.join().expect("an answer")["text"].as_str().is_some_and(|text| !text.is_empty()));
        }
    });
    let told = ask(&server, &[("file", b"no recording")]).refused(400);
    assert!(told.contains("the recording"), "{told}");
    server.finish().expect("a clean end");
}
