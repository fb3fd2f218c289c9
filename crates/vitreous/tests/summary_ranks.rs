//! `vitreous summary --ranks`: training on many ranks, predicted.

mod common;

use common::vitreous;
use serde_json::Value;

fn plan(arguments: &[&str]) -> Value {
    vitreous(&[&["summary"], arguments, &["--json"]].concat()).succeeded().json_lines().remove(0)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn close(what: &str, found: &Value, expected: f64) {
    let found = number(found);
    assert!((found / expected - 1.0).abs() < 1e-3, "{what}: {found}, not {expected}");
}

/// 8 GPUs with NVLink, each with 256 images: what one rank measured, and 2 * 7/8 of 4 bytes per parameter at 450 GB/s.
#[test]
fn eight_gpus_are_nearly_eight_times_as_fast_as_one() {
    let found = plan(&["vit_base_patch16_224", "--ranks", "8", "--batch", "256", "--latency", "0.001"]);
    let parameters = number(&found["total_parameters"]);
    assert!((86.5e6..86.7e6).contains(&parameters), "{parameters}");
    assert_eq!((found["tokens"].as_u64(), found["global_batch"].as_u64()), (Some(197), Some(2048)));
    let plain = &found["layouts"][0];
    let (seconds, memory) = (&plain["seconds"], &plain["memory_bytes"]);
    close("computing", &seconds["computing"], 256.0 * number(&found["training_flops_per_sample"]) / (0.57 * 790e12));
    // 57.3 ms were measured with the update.
    assert!((0.054..0.060).contains(&number(&seconds["step"])), "{seconds}");
    let sent = number(&seconds["hidden"]) + number(&seconds["exposed"]);
    assert!((sent / (2.0 * 7.0 / 8.0 * 4.0 * parameters / 450e9) - 1.0).abs() < 1e-2, "{sent}");
    close("state", &memory["state"], 18.0 * parameters);
    assert!(number(&plain["efficiency"]) > 0.9);
    assert_eq!(
        (found["proposed"].as_u64(), &plain["fits"], &plain["done_here"]),
        (Some(0), &true.into(), &true.into())
    );
    // One GPU on each of 8 hosts, with 400 Gb/s.
    let far =
        plan(&["vit_base_patch16_224", "--ranks", "8", "--batch", "256", "--ranks-per-host", "1", "--link", "50"]);
    let efficiency = number(&far["layouts"][0]["efficiency"]);
    assert!(efficiency > 0.9 && efficiency < number(&plain["efficiency"]), "{efficiency}");
}

#[test]
fn what_does_not_fit_is_sharded_and_then_divided() {
    let of = |arguments: &[&str]| {
        let found = plan(arguments);
        let chosen = found["proposed"].as_u64().map(|index| found["layouts"][index as usize].clone());
        (chosen.unwrap_or(Value::Null), found["why"].as_str().expect("a reason").to_string())
    };
    // 18 bytes for each of 8 billion parameters are 134 GiB.
    let (llama, why) = of(&["llama3_8b", "--ranks", "8", "--batch", "4"]);
    assert!(why.starts_with("what Vitreous does needs at least"), "{why}");
    assert_eq!((llama["tensor"].as_u64(), llama["pipeline"].as_u64()), (Some(1), Some(1)), "{llama}");
    assert!(!llama["layout"].as_str().expect("a layout").starts_with("data parallel"), "{llama}");
    let (large, why) = of(&["llama3_70b", "--ranks", "64", "--batch", "4"]);
    assert!(large["layout"].as_str().is_some_and(|layout| layout.starts_with("FSDP")), "{large}: {why}");
    assert!(why.contains("on paper"), "{why}");
    let (none, why) = of(&["llama3_70b", "--ranks", "4", "--batch", "1"]);
    assert!(none.is_null() && why.contains("do not fit either"), "{why}");
    // More ranks than samples.
    let (divided, why) = of(&["llama3_70b", "--ranks", "4096", "--batch", "4", "--global-batch", "2048"]);
    assert_eq!(divided["done_here"], false);
    assert!(why.starts_with("there are fewer samples in a step than ranks"), "{why}");
    let [tensor, pipeline, data] = ["tensor", "pipeline", "data"].map(|key| divided[key].as_u64().expect(key));
    assert_eq!(tensor * pipeline * data, 4096);
    let m = number(&divided["micro_batches"]);
    let seconds = &divided["seconds"];
    let busy = number(&seconds["computing"]) + number(&seconds["in_layers"]);
    if pipeline > 1 {
        close("bubble", &seconds["bubble"], (pipeline as f64 - 1.0) / m * busy);
    }
}

#[test]
fn the_text_says_what_it_was_made_from_and_why() {
    let text = vitreous(&["summary", "vit_22b_patch14_224", "--ranks", "64", "--link", "25"]).succeeded().stdout;
    for says in [
        "vit_22b_patch14_224: 21.8 G parameters",
        "64 ranks on 8 hosts: 450 GB/s within a host, 25 GB/s between",
        "(as ViT-L/16 on an H200), has 139.8 GiB of memory",
        "data parallel",
        "ZeRO-1",
        "FSDP",
        "Proposed: ",
        "images/s",
    ] {
        assert!(text.contains(says), "`{says}` is not in:\n{text}");
    }
    let given = ["--flops", "100", "--memory", "40", "--bandwidth", "1", "--precision", "f32"];
    let text = vitreous(&[&["summary", "gpt2", "--ranks", "2"][..], &given].concat()).succeeded().stdout;
    assert!(text.contains("100 TFLOP/s (as given), has 40.0 GiB"), "{text}");
}

#[test]
fn what_cannot_be_planned_is_refused() {
    vitreous(&["summary", "vit_cifar", "--link", "50"]).failed(2, &["--ranks"]);
    vitreous(&["summary", "vit_cifar", "--ranks", "0"]).failed(2, &["at least 1"]);
    vitreous(&["summary", "vit_cifar", "--ranks", "12"]).failed(2, &["hosts of 8", "--ranks-per-host"]);
    vitreous(&["summary", "vit_cifar", "--ranks", "8", "--link", "-1"]).failed(2, &["above 0"]);
    vitreous(&["summary", "vit_cifar", "--ranks", "2000000"]).failed(2, &["at most"]);
    vitreous(&["summary", "vit_cifar", "--ranks", "8", "--precision", "f32"]).failed(2, &["--flops"]);
    vitreous(&["summary", "t5_small", "--ranks", "8"]).failed(2, &["models of images or of texts"]);
    vitreous(&["summary", "vit_cifar", "--ranks", "8", "--batch", "18446744073709551615"]).failed(2, &[]);
}
