//! The rules of transcribing against `openai-whisper`'s own functions (`tests/fixtures/speech/make.py`).

use serde_json::Value as Json;

use super::align::{median_filter, time_warp};
use super::decode::WindowText;
use super::rules::{TextRules, best, log_sum_exp};
use super::segments::{Window, cut};
use super::{Segment, SpeechTask, SpeechVocabulary, Transcript, TranscriptFormat, compression_ratio, language_code};

fn fixture() -> Json {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/speech/openai.json");
    serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON")
}

fn numbers(value: &Json) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("numbers")
}

#[test]
fn tokens_are_those_of_tiktoken() {
    for (name, expected) in fixture()["tokenizers"].as_object().expect("tokenizers") {
        let size = expected["size"].as_u64().expect("a size") as usize;
        let vocabulary = SpeechVocabulary::published(size).expect(name);
        let special = |key: &str| expected["special"][key].as_u64().expect(key) as u32;
        assert_eq!(vocabulary.end, special("eot"), "{name}");
        assert_eq!(vocabulary.start, special("sot"), "{name}");
        assert_eq!(vocabulary.previous, special("sot_prev"), "{name}");
        assert_eq!(vocabulary.no_speech, Some(special("no_speech")), "{name}");
        assert_eq!(vocabulary.no_timestamps, special("no_timestamps"), "{name}");
        assert_eq!(vocabulary.first_timestamp, special("timestamp_begin"), "{name}");
        let beginning = vocabulary.beginning(Some("en"), SpeechTask::Transcribe).expect("English");
        assert_eq!(beginning, numbers(&expected["sot_sequence"]), "{name}");
        assert_eq!(vocabulary.blank().expect("a space"), numbers(&expected["blank"]), "{name}");
        let suppressed = vocabulary.suppressed().expect("symbols");
        for token in numbers(&expected["non_speech"]) {
            assert!(suppressed.contains(&token), "{name}: {token}");
        }
        // Beside them only special tokens.
        let symbols = suppressed.iter().filter(|&&token| token < vocabulary.end).count();
        assert_eq!(symbols, numbers(&expected["non_speech"]).len(), "{name}");
        for case in expected["texts"].as_array().expect("texts") {
            let text = case[0].as_str().expect("a text");
            assert_eq!(vocabulary.encode(text).expect("encodes"), numbers(&case[1]), "{name}: {text:?}");
            assert_eq!(vocabulary.decode(&numbers(&case[1])).expect("decodes"), case[2], "{name}: {text:?}");
        }
        for case in expected["words"].as_array().expect("words") {
            let expected: Vec<(String, Vec<u32>)> = serde_json::from_value(case[1].clone()).expect("words");
            let tokens: Vec<u32> = expected.iter().flat_map(|(_, tokens)| tokens.iter().copied()).collect();
            assert_eq!(vocabulary.words(&tokens, Some("en")), expected, "{name}: {}", case[0]);
        }
    }
    assert!(SpeechVocabulary::published(50_000).is_err());
}

#[test]
fn what_may_come_next_is_as_openai_filters_it() {
    let vocabulary = SpeechVocabulary::published(51_864).expect("English");
    let rules = TextRules::new(&vocabulary, true, Some(50)).expect("rules");
    let first = vocabulary.first_timestamp as usize;
    for case in fixture()["filters"].as_array().expect("cases") {
        let (number, tilt) = (case["number"].as_u64().expect("a number"), case["tilt"].as_f64().expect("a tilt"));
        let logit = |index: usize| {
            let base = ((index as u64 * 7919 + 104_729 * number) % 10_007) as f64 / 1000.0;
            (base + if index >= first { tilt - 3.0 } else { 0.0 }) as f32
        };
        let mut logits: Vec<f32> = (0..vocabulary.size()).map(logit).collect();
        rules.apply(&mut logits, &numbers(&case["written"]));
        let allowed: Vec<usize> = (0..logits.len()).filter(|&token| logits[token].is_finite()).collect();
        assert_eq!(allowed.len() as u64, case["allowed"].as_u64().expect("a count"), "{case}");
        assert_eq!(allowed.iter().sum::<usize>() as u64, case["sum"].as_u64().expect("a sum"), "{case}");
        let token = best(&logits).expect("some are allowed");
        assert_eq!(u64::from(token), case["best"].as_u64().expect("a token"), "{case}");
        let log_probability = f64::from(logits[token as usize]) - log_sum_exp(&logits);
        assert!((log_probability - case["logprob"].as_f64().expect("a number")).abs() < 1e-5, "{case}");
    }
}

#[test]
fn time_warping_and_medians_are_openais() {
    let fixture = fixture();
    for case in fixture["warping"]["paths"].as_array().expect("paths") {
        let size = |key: &str| case[key].as_u64().expect(key) as usize;
        let cost: Vec<f32> = serde_json::from_value(case["cost"].clone()).expect("numbers");
        let expected: Vec<(usize, usize)> = serde_json::from_value(case["path"].clone()).expect("a path");
        assert_eq!(time_warp(&cost, size("rows"), size("columns")), expected, "{case}");
    }
    for case in fixture["warping"]["medians"].as_array().expect("medians") {
        let values: [Vec<f32>; 2] = serde_json::from_value(case.clone()).expect("numbers");
        assert_eq!(median_filter(&values[0], 7), values[1]);
    }
}

#[test]
fn repetitions_compress_as_zlib_compresses_them() {
    for case in fixture()["compression"].as_array().expect("cases") {
        let (found, expected) =
            (compression_ratio(case[0].as_str().expect("a text")), case[1].as_f64().expect("a ratio"));
        // The library may find other matches than zlib: a byte or two.
        assert!((found / expected - 1.0).abs() < 0.06, "{case}: {found}");
    }
}

#[test]
fn subtitles_are_those_of_openai() {
    let segment = |start: f64, end: f64, text: &str| Segment {
        start,
        end,
        text: text.to_string(),
        tokens: Vec::new(),
        temperature: 0.0,
        mean_log_probability: 0.0,
        compression_ratio: 1.0,
        no_speech: 0.0,
        words: Vec::new(),
    };
    let segments = vec![segment(0.0, 2.5, " Hello --> there."), segment(3661.04, 3662.0, " Bye.")];
    let transcript = Transcript { language: "en".to_string(), segments, ..Transcript::default() };
    let fixture = fixture();
    for format in [TranscriptFormat::Txt, TranscriptFormat::Srt, TranscriptFormat::Vtt] {
        let expected = fixture["subtitles"][format.extension()].as_str().expect("a file");
        assert_eq!(format.write("a.wav", &transcript), expected, "{format:?}");
    }
    let json: Json = serde_json::from_str(&TranscriptFormat::Json.write("a.wav", &transcript)).expect("JSON");
    assert_eq!(
        (&json["path"], &json["language"], &json["segments"][1]["start"]),
        (&"a.wav".into(), &"en".into(), &3661.04.into())
    );
}

/// The cases of `transcribe`: pairs of timestamps, one at the end, none at all.
#[test]
fn segments_are_cut_at_pairs_of_timestamps() {
    let vocabulary = SpeechVocabulary::published(51_864).expect("English");
    let t = vocabulary.first_timestamp;
    let text = |tokens: &[u32]| WindowText {
        tokens: tokens.to_vec(),
        text: String::new(),
        mean_log_probability: -0.2,
        no_speech: 0.0,
        temperature: 0.0,
        compression_ratio: 1.0,
    };
    let window = Window { seek: 1000, frames: 3000 };
    let times = |tokens: &[u32]| {
        let found = cut(window, &text(tokens), &vocabulary).expect("decodes");
        let times: Vec<(i64, i64)> = found
            .segments
            .iter()
            .map(|segment| ((segment.start * 100.0).round() as i64, (segment.end * 100.0).round() as i64))
            .collect();
        (times, found.next)
    };
    // Two segments, and a third that is not finished: it is heard again.
    assert_eq!(times(&[t, 50, t + 100, t + 110, 60, t + 300, t + 300, 70]), (vec![(1000, 1200), (1220, 1600)], 1600));
    // One timestamp at the end: nothing is said behind it.
    assert_eq!(times(&[t, 50, t + 100, t + 110, 60, t + 300]), (vec![(1000, 1200), (1220, 1600)], 4000));
    assert_eq!(times(&[t, 50, t + 100]), (vec![(1000, 1200)], 4000));
    assert_eq!(times(&[t, 50]), (vec![(1000, 4000)], 4000));
    assert_eq!(times(&[50, 60]), (vec![(1000, 4000)], 4000));
}

#[test]
fn languages_have_codes_and_names() {
    assert_eq!(
        ["de", "German", "flemish", "ENGLISH", "klingon"].map(language_code),
        [Some("de"), Some("de"), Some("nl"), Some("en"), None]
    );
}
