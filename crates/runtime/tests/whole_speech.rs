//! Whole recordings against openai-whisper's `transcribe` and `detect_language` (`fixtures/speech/make_whole.py`): a multilingual model
//! with weights by a rule, whose logits are far apart, so that texts drawn at low temperatures are the likeliest ones.

use std::path::Path;

use serde_json::{Value as Json, json};
use vitreous_data::audio::Spectrogram;
use vitreous_engine::{Device, Precision};
use vitreous_runtime::speech::{SpeechModel, SpeechSettings, SpeechTask, Transcriber, Transcript};

const DIM: usize = 16;
const END: usize = 50_257;
const FIRST_TIMESTAMP: usize = 50_364;

fn fixture() -> Json {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/speech/whole.json");
    serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON")
}

/// SplitMix64: numbers from -1 to 1.
fn uniform(stream: u64, count: usize) -> Vec<f32> {
    let number = |place: u64| {
        let mut x = (stream << 32).wrapping_add(place.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^= x >> 31;
        ((x >> 40) as f64 / f64::from(1 << 23) - 1.0) as f32
    };
    (0..count as u64).map(number).collect()
}

/// Noise whose loudness changes twice a second, in 16 bits.
fn recording(number: u64, seconds: usize) -> Vec<f32> {
    let loudness: Vec<f32> = uniform(2000 + number, seconds * 2).into_iter().map(|value| value.abs().powi(3)).collect();
    let samples = uniform(1000 + number, seconds * 16_000).into_iter().enumerate();
    samples.map(|(place, sample)| (sample * loudness[place / 8000] * 20_000.0).round_ties_even() / 32_768.0).collect()
}

/// A directory as transformers writes it.
fn model(directory: &Path, fixture: &Json) -> SpeechModel {
    let config = json!({
        "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "vocab_size": 51_865, "num_mel_bins": 80,
        "d_model": DIM, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_source_positions": 1500, "max_target_positions": 448,
        "activation_function": "gelu", "pad_token_id": 50_257, "bos_token_id": 50_257, "eos_token_id": 50_257,
        "decoder_start_token_id": 50_258,
    });
    std::fs::write(directory.join("config.json"), config.to_string()).expect("written");
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (stream, tensor) in fixture["tensors"].as_array().expect("tensors").iter().enumerate() {
        let (name, shape): (String, Vec<usize>) = (
            serde_json::from_value(tensor[0].clone()).expect("a name"),
            serde_json::from_value(tensor[1].clone()).expect("a shape"),
        );
        let number = |index: usize| tensor[index].as_f64().expect("a number") as f32;
        let mut values = uniform(stream as u64, shape.iter().product());
        values.iter_mut().for_each(|value| *value = *value * number(2) + number(3));
        if name == "decoder.embed_tokens.weight" {
            for (row, values) in values.chunks_exact_mut(DIM).enumerate() {
                let scale = fixture["row_scales"][if row == END { 0 } else { 1 }].as_f64().expect("a scale") as f32;
                let scale = if row == END || row >= FIRST_TIMESTAMP { scale } else { 1.0 };
                values.iter_mut().for_each(|value| *value *= scale);
            }
        }
        let begin = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()] });
        header.insert(format!("model.{name}"), entry);
    }
    let header = Json::Object(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(directory.join("model.safetensors"), file).expect("written");
    SpeechModel::open(directory).expect("opens")
}

/// As the cases of the script; what OpenAI calls `None` is what never happens.
fn settings(name: &str) -> SpeechSettings {
    let usual = SpeechSettings {
        temperatures: vec![0.0],
        compression_ratio_threshold: None,
        log_probability_threshold: None,
        no_speech_threshold: None,
        ..SpeechSettings::default()
    };
    let language = |code: &str| Some(code.to_string());
    match name {
        "detected" => usual,
        "translated" => SpeechSettings { language: language("de"), task: SpeechTask::Translate, ..usual },
        "alone" => SpeechSettings { language: language("fr"), condition_on_previous: false, ..usual },
        "prompted" => {
            SpeechSettings { language: language("en"), prompt: Some("Names: Ada, Grace.".to_string()), ..usual }
        }
        "fallback" => SpeechSettings {
            language: language("en"),
            temperatures: vec![0.0, 0.01, 0.02],
            compression_ratio_threshold: Some(fixture()["ratio"].as_f64().expect("a ratio")),
            ..usual
        },
        "beams" => SpeechSettings { language: language("en"), beam: 3, ..usual },
        "patient" => {
            SpeechSettings { language: language("en"), beam: 3, patience: 2.0, length_penalty: Some(0.6), ..usual }
        }
        "words" => SpeechSettings { language: language("en"), words: true, ..usual },
        "untimed" => SpeechSettings { language: language("ja"), timestamps: false, ..usual },
        other => panic!("{other}: the script has a case that is not here"),
    }
}

fn compare(case: &Json, found: &Transcript) {
    let name = case["name"].as_str().expect("a name");
    assert_eq!(case["language"], found.language.as_str(), "{name}");
    assert_eq!(case["text"], found.text.as_str(), "{name}");
    let expected = case["segments"].as_array().expect("segments");
    assert_eq!(found.segments.len(), expected.len(), "{name}");
    // Where words have times, segments begin and end with them, and a step of the alignment takes 0.02 s.
    let times = if name == "words" { 0.021 } else { 1e-6 };
    for (index, (segment, expected)) in found.segments.iter().zip(expected).enumerate() {
        let tokens: Vec<u32> = serde_json::from_value(expected["tokens"].clone()).expect("tokens");
        assert_eq!(segment.tokens, tokens, "{name}, segment {index}");
        for (what, value, close) in [
            ("start", segment.start, times),
            ("end", segment.end, times),
            ("temperature", f64::from(segment.temperature), 1e-6),
            ("avg_logprob", segment.mean_log_probability, 1e-3),
            // Another compressor finds other matches: a byte or two of a short text.
            ("compression_ratio", segment.compression_ratio, 0.06),
            ("no_speech_prob", segment.no_speech, 1e-3),
        ] {
            let expected = expected[what].as_f64().expect(what);
            // OpenAI takes the first token of a text without timestamps for one.
            if what == "start" && name == "untimed" && expected < 0.0 {
                continue;
            }
            assert!((value - expected).abs() <= close, "{name}, segment {index}: {what} is {value}, not {expected}");
        }
        let words: Vec<(String, f64, f64)> = serde_json::from_value(expected["words"].clone()).unwrap_or_default();
        assert_eq!(segment.words.len(), words.len(), "{name}, segment {index}");
        for (word, (text, start, end)) in segment.words.iter().zip(words) {
            assert_eq!(word.text, text, "{name}, segment {index}");
            let off = (word.start - start).abs().max((word.end - end).abs());
            assert!(
                off <= 0.021,
                "{name}, segment {index}: {text} from {} to {}, not {start} to {end}",
                word.start,
                word.end
            );
        }
    }
}

#[test]
fn recordings_are_transcribed_as_openai_does() {
    let (fixture, directory) = (fixture(), tempfile::tempdir().expect("a directory"));
    let model = model(directory.path(), &fixture);
    let device = Device::Cpu { threads: 2 };
    let mut transcriber = Transcriber::new(&model, Precision::F32, &device).expect("ready");
    let seconds: Vec<usize> = serde_json::from_value(fixture["seconds"].clone()).expect("seconds");
    let recordings: Vec<Vec<f32>> =
        seconds.iter().enumerate().map(|(number, &seconds)| recording(number as u64, seconds)).collect();
    let mut is_drawn = false;
    for case in fixture["cases"].as_array().expect("cases") {
        let number = case["recording"].as_u64().expect("a number") as usize;
        let found = transcriber
            .transcribe_samples(recordings[number].clone(), &settings(case["name"].as_str().expect("a name")))
            .expect("transcribed");
        compare(case, &found);
        is_drawn |= found.segments.iter().any(|segment| segment.temperature > 0.015);
    }
    assert!(is_drawn, "no window was written again at a higher temperature");

    // Languages.
    for known in fixture["languages"].as_array().expect("languages") {
        let samples = recording(known[0].as_u64().expect("a number"), 12);
        let mut spectrogram = Spectrogram::of_samples(samples, 80).expect("finite");
        let probabilities = transcriber.language_probabilities(&mut spectrogram).expect("multilingual");
        let (code, share) = probabilities.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("languages");
        assert_eq!(known[1], *code, "{known}");
        assert!((share - known[2].as_f64().expect("a share")).abs() < 2e-3, "{known}: {share}");
    }

    // Several recordings at once are what they are alone.
    let alone =
        fixture["cases"].as_array().expect("cases").iter().find(|case| case["name"] == "alone").expect("a case");
    let mut together = |batch: usize, condition: bool, given: &[usize]| {
        let settings = SpeechSettings { batch, condition_on_previous: condition, ..settings("alone") };
        let given =
            given.iter().map(|&number| Spectrogram::of_samples(recordings[number].clone(), 80).expect("finite"));
        transcriber.transcribe_all(given.collect(), &settings, &mut |_| Ok(())).expect("transcribed")
    };
    let both = together(1, false, &[0, 1]);
    compare(alone, &both[0]);
    let conditioned = together(1, true, &[0, 1]);
    assert_eq!(together(2, true, &[0, 1]), conditioned);
    // Several windows of one, which is cut where it is quiet: as many at once as one likes.
    assert_eq!(together(2, false, &[0]), together(3, false, &[0]));
}
