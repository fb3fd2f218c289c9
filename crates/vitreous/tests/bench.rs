//! `vitreous bench`: what it says, not how fast it is.

mod common;

use common::vitreous;
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn bench(arguments: &[&str]) -> Value {
    // What is expected of threads and memory is the processor's.
    let mut all = vec!["bench", "--seconds", "0.05", "--json", "--device", "cpu"];
    all.extend(arguments);
    let outcome = vitreous(&all).succeeded();
    outcome.json_lines().pop().expect("a line")
}

#[test]
fn json_has_the_promised_keys_and_they_agree() {
    for mode in ["infer", "train"] {
        for precision in ["f32", "bf16"] {
            let found =
                bench(&["tiny_vit", "--mode", mode, "--precision", precision, "--batch", "3", "--threads", "2"]);
            assert_eq!((&found["mode"], &found["precision"]), (&mode.into(), &precision.into()));
            assert_eq!((&found["batch"], &found["threads"]), (&3.into(), &2.into()));
            let seconds = number(&found["median_ms"]) / 1e3;
            assert!(seconds > 0.0);
            let images = number(&found["images_per_second"]);
            assert!((images * seconds / 3.0 - 1.0).abs() < 1e-9, "{found}");
            let share = number(&found["gflops"]) / number(&found["limit_gflops"]);
            assert!((number(&found["peak_share"]) / share - 1.0).abs() < 1e-9, "{found}");
            assert!(number(&found["peak_bytes"]) > 0.0 && number(&found["runs"]) >= 3.0);
        }
    }
}

#[test]
fn memory_is_what_summary_says() {
    let summary = &vitreous(&["summary", "vit_cifar", "--batch", "8", "--json"]).succeeded().json_lines()[0];
    let train = bench(&["vit_cifar", "--mode", "train", "--batch", "8"]);
    let infer = bench(&["vit_cifar", "--batch", "8"]);
    assert_eq!(train["peak_bytes"], summary["memory_bytes"]["training"]);
    assert_eq!(infer["peak_bytes"], summary["memory_bytes"]["inference"]);
    assert!(number(&train["peak_bytes"]) > number(&infer["peak_bytes"]));
}

#[test]
fn models_without_a_head_run_but_do_not_train() {
    let preset = "vit_small_patch14_dinov2";
    let found = bench(&[preset, "--image", "28", "--batch", "1"]);
    assert_eq!(found["image"], serde_json::json!([28, 28]));
    vitreous(&["bench", preset, "--mode", "train"]).failed(2, &["no head", "--mode infer"]);
}

#[test]
fn text_says_what_was_measured() {
    let text = vitreous(&["bench", "tiny_vit", "--seconds", "0", "--batch", "2", "--device", "cpu"]).succeeded().stdout;
    for part in
        ["tiny_vit, infer, f32, batch 2 of 32x32", "the median of 3 runs", "images/s", "machine's limit", "memory"]
    {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

#[test]
fn encoder_decoders_are_trained_and_write() {
    let tiny = ["--batch", "2", "--tokens", "5"];
    let trained = bench(&[&["transformer_tiny", "--mode", "train"], &tiny[..]].concat());
    assert!(number(&trained["pairs_per_second"]) > 0.0, "{trained}");
    for (model, has_audio) in [("transformer_tiny", false), ("whisper_tiny_en", true)] {
        let written = bench(&[&[model, "--mode", "generate", "--prompt", "3"], &tiny[..]].concat());
        let seconds = number(&written["median_ms"]) / 1e3;
        assert!((number(&written["sequences_per_second"]) * seconds / 2.0 - 1.0).abs() < 1e-9, "{written}");
        assert!((number(&written["generated_tokens_per_second"]) * seconds / 10.0 - 1.0).abs() < 1e-9, "{written}");
        let real_time = &written["times_real_time"];
        match has_audio {
            true => assert!((number(real_time) * seconds / 60.0 - 1.0).abs() < 1e-9, "{written}"),
            false => assert!(real_time.is_null(), "{written}"),
        }
    }
    for (model, key) in [("transformer_tiny", "texts_per_second"), ("whisper_tiny_en", "windows of audio_per_second")] {
        let encoder = bench(&[&[model, "--tower", "encoder"], &tiny[..]].concat());
        let whole = bench(&[&[model], &tiny[..]].concat());
        assert!(number(&encoder[key]) > 0.0, "{encoder}");
        let flops = |found: &Value| number(&found["gflops"]) * number(&found["median_ms"]);
        assert!(flops(&encoder) < flops(&whole) && flops(&encoder) > 0.0, "{encoder} {whole}");
    }
    for (model, tower) in [("transformer_tiny", "image"), ("tiny_vit", "encoder"), ("clip_vit_base_patch32", "encoder")]
    {
        vitreous(&["bench", model, "--tower", tower]).failed(2, &["--tower", model]);
    }
    vitreous(&["bench", "transformer_tiny", "--tower", "encoder", "--mode", "train"]).failed(2, &["--mode infer"]);
    let long =
        ["bench", "whisper_tiny_en", "--mode", "generate", "--prompt", "4", "--tokens", "448", "--device", "cpu"];
    vitreous(&long).failed(2, &["more than this model reads", "448", "--tokens"]);
}

#[test]
fn what_cannot_be_is_refused() {
    vitreous(&["bench", "vit_bas_patch16_224"]).failed(2, &["did you mean `vit_base_patch16_224`"]);
    vitreous(&["bench", "tiny_vit", "--mode", "fly"]).failed(2, &["train", "infer"]);
    vitreous(&["bench", "tiny_vit", "--batch", "0"]).failed(2, &["at least 1"]);
    vitreous(&["bench", "tiny_vit", "--seconds", "-1"]).failed(2, &["seconds"]);
    vitreous(&["bench", "tiny_vit", "--seconds", "NaN"]).failed(2, &["seconds"]);
    vitreous(&["bench", "tiny_vit", "--image", "33"]).failed(2, &["33"]);
}

/// Refused before anything is taken; the system would kill instead.
#[test]
#[cfg(target_os = "linux")]
fn a_batch_beyond_memory_is_refused_with_its_bytes() {
    for mode in ["train", "infer"] {
        let arguments = ["bench", "vit_base_patch16_224", "--mode", mode, "--batch", "200000000"];
        vitreous(&arguments).failed(
            2,
            &["with batch 200000000 needs", "bytes", "available; take a smaller batch: --batch ", "would fit"],
        );
    }
    vitreous(&["bench", "vit_22b_patch14_224", "--mode", "train"]).failed(2, &["needs", "GiB"]);
    let largest = usize::MAX.to_string();
    vitreous(&["bench", "vit_cifar", "--batch", &largest]).failed(2, &["large"]);
}
