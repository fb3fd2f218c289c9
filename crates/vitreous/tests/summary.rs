//! `vitreous summary`.

mod common;

use common::vitreous;

#[test]
fn the_small_model_has_the_numbers_of_its_description() {
    let text = vitreous(&["summary", "vit_cifar"]).succeeded().stdout;
    let row = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        line.split_whitespace().map(str::to_string).collect::<Vec<_>>()
    };
    assert!(row("patch_embedding").contains(&"24,704".to_string()));
    assert!(row("blocks.0").contains(&"198,272".to_string()));
    assert!(row("attention").contains(&"66,048".to_string()));
    assert!(row("mlp").contains(&"131,712".to_string()));
    assert!(row("head").contains(&"1,290".to_string()));
    assert!(row("total").contains(&"1,215,626".to_string()));
    assert!(text.contains("norms 512 = 198,272 parameters; 6 layers: 1,189,632"), "{text}");
    assert!(text.contains("= 32,768") && text.contains("= 1,048,576"), "{text}");
}

#[test]
fn json_has_every_stage_and_the_sums() {
    let summary = &vitreous(&["summary", "vit_base_patch16_224", "--json", "--batch", "2"]).succeeded().json_lines()[0];
    assert_eq!(summary["total_parameters"], 86_567_656);
    let stages = summary["stages"].as_array().expect("a list");
    let sum = |key: &str| stages.iter().map(|stage| stage[key].as_u64().expect(key)).sum::<u64>();
    assert_eq!(sum("parameters"), 86_567_656);
    assert_eq!(sum("flops"), summary["forward_flops"].as_u64().expect("a number"));
    // Two images of 17.6 G multiplications and additions each.
    assert!((70.0..71.0).contains(&(sum("flops") as f64 / 1e9)), "{}", sum("flops"));
    let stage = |name: &str| stages.iter().find(|stage| stage["name"] == name).expect(name);
    assert_eq!(stage("blocks.11.attention")["shape"], serde_json::json!([2, 197, 768]));
    assert_eq!(stage("head")["shape"], serde_json::json!([2, 1000]));
}

#[test]
fn the_largest_model_takes_no_memory_to_describe() {
    let summary = &vitreous(&["summary", "vit_22b_patch14_224", "--json"]).succeeded().json_lines()[0];
    assert!(summary["total_parameters"].as_u64().expect("a number") > 21_000_000_000);
}

/// Parameters as `transformers` counts them on the meta device; the KV cache is two vectors of all key heads per layer; a token costs
/// two FLOPs for each weight that multiplies it, and attention four for each token before it and each number of its queries.
#[test]
fn language_models_say_what_a_token_costs() {
    // Preset, parameters, those that are only looked up (words or positions), layers, width of the keys, width, maximum length.
    let models: [(&str, u64, u64, [u64; 4]); 4] = [
        ("gpt2_xl", 1_557_611_200, 1024 * 1600, [48, 1600, 1600, 1024]),
        ("gpt3_175b", 174_604_259_328, 2048 * 12_288, [96, 12_288, 12_288, 2048]),
        ("llama_7b", 6_738_415_616, 32_000 * 4096, [32, 4096, 4096, 2048]),
        ("llama2_70b", 68_976_648_192, 32_000 * 8192, [80, 1024, 8192, 4096]),
    ];
    for (name, parameters, looked_up, [layers, keys, width, longest]) in models {
        let summary = &vitreous(&["summary", name, "--json"]).succeeded().json_lines()[0];
        assert_eq!(summary["total_parameters"], parameters, "{name}");
        assert_eq!(summary["kv_cache_bytes_per_token"], layers * 2 * keys * 4, "{name}");
        assert_eq!(summary["kv_cache_bytes_per_token_bf16"], layers * 2 * keys * 2, "{name}");
        assert_eq!(summary["max_length"], longest, "{name}");
        let near = |key: &str, expected: u64| {
            let flops = summary[key].as_u64().expect(key) as f64;
            assert!((flops / expected as f64 - 1.0).abs() < 0.005, "{name}: {key} is {flops}, not {expected}");
        };
        near("flops_per_token", 2 * (parameters - looked_up));
        near("flops_per_token_at_max_length", 2 * (parameters - looked_up) + layers * 4 * width * longest);
    }
    let text = vitreous(&["summary", "gpt2_xl"]).succeeded().stdout;
    assert!(
        text.contains("KV cache: 614,400 bytes per token in f32, 307,200 in bf16; 600.0 MiB and 300.0 MiB"),
        "{text}"
    );
    assert!(text.contains("Generating with a KV cache: ") && text.contains(" for token 1,024"), "{text}");
    // Encoders generate nothing.
    let encoder = vitreous(&["summary", "bert_base", "--json"]).succeeded().json_lines().remove(0);
    assert!(encoder.get("kv_cache_bytes_per_token").is_none(), "{encoder}");
}

/// 700 GB of weights are described in an address space of 1 GB.
#[cfg(target_os = "linux")]
#[test]
fn the_largest_language_model_takes_no_memory_to_describe() {
    let script = format!("ulimit -v 1048576; exec '{}' summary gpt3_175b --json", env!("CARGO_BIN_EXE_vitreous"));
    let run = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn a_model_on_disk_is_described_too() {
    let summary = &vitreous(&["summary", "tiny_vit", "--json", "--image", "64x32"]).succeeded().json_lines()[0];
    assert_eq!(summary["image"], serde_json::json!([64, 32]));
    let stages = summary["stages"].as_array().expect("a list");
    assert_eq!(stages.last().expect("a stage")["shape"], serde_json::json!([1, 7]));
}

#[test]
fn wrong_usage_says_what_to_do() {
    vitreous(&["summary", "vit_bse_patch16_224"]).failed(2, &["did you mean `vit_base_patch16_224`?"]);
    vitreous(&["summary", "nonsense"]).failed(2, &["neither a file or directory nor a preset", "vit_cifar"]);
    vitreous(&["summary", "vit_base_patch16_224", "--image", "100"]).failed(2, &["100x100", "16x16 patches"]);
    vitreous(&["summary", "vit_cifar", "--batch", "18446744073709551615"]).failed(2, &["too large"]);
    vitreous(&["summary", "vit_cifar", "--image", "axb"]).failed(2, &["HEIGHTxWIDTH"]);
    vitreous(&[]).failed(2, &["Usage"]);
    vitreous(&["explode"]).failed(2, &["explode"]);
}

#[test]
fn a_larger_batch_takes_more_of_everything_but_weights() {
    let of = |batch: &str| {
        let run = vitreous(&["summary", "vit_cifar", "--json", "--batch", batch]).succeeded();
        run.json_lines().remove(0)
    };
    let (one, eight) = (of("1"), of("8"));
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    assert_eq!(number(&eight["forward_flops"]), 8 * number(&one["forward_flops"]));
    let activations = |summary: &serde_json::Value| {
        let stages = summary["stages"].as_array().expect("a list");
        stages.iter().map(|stage| number(&stage["activation_bytes"])).sum::<u64>()
    };
    assert_eq!(activations(&eight), 8 * activations(&one));
    assert_eq!(eight["total_parameters"], one["total_parameters"]);
    let more = |key: &str| number(&eight["memory_bytes"][key]) - number(&one["memory_bytes"][key]);
    assert_eq!(more("training_state"), 0);
    // How weights are packed may depend on the batch, but their number does not.
    assert!(more("weights") * 100 < number(&one["memory_bytes"]["weights"]));
    // Seven more images of 3 x 32 x 32 numbers; in training each of 6 layers keeps its input of 16 tokens, and without
    // recomputation also query, key, value and what is inside the feed-forward part.
    let (image, input, inside) = (4 * 3 * 32 * 32, 4 * 16 * 128, 4 * 16 * (3 * 128 + 512));
    assert!(more("inference") >= 7 * image);
    assert!(more("training_with_recomputation") >= 7 * (image + 6 * input));
    assert!(more("training") >= 7 * (image + 6 * (input + inside)));
}

#[test]
fn the_transformer_of_the_paper_has_the_numbers_of_its_description() {
    let text = vitreous(&["summary", "transformer_base"]).succeeded().stdout;
    let row = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        line.split_whitespace().map(str::to_string).collect::<Vec<_>>()
    };
    assert!(row("total").contains(&"59,508,496".to_string()), "{text}");
    // Four matrices of 512 x 512 with biases; 512 to 2048 and back; two numbers a norm and place.
    assert!(row("attention").contains(&"1,050,624".to_string()), "{text}");
    assert!(row("mlp").contains(&"2,099,712".to_string()), "{text}");
    assert!(row("encoder.0").contains(&"3,152,384".to_string()), "{text}");
    assert!(row("decoder.0").contains(&"4,204,032".to_string()), "{text}");
    assert!(row("output").contains(&"5,130,000".to_string()), "{text}");
    assert!(text.contains("cross-attention 1,050,624 + feed-forward 2,099,712 + norms 3,072 = 4,204,032"), "{text}");

    let json = |more: &[&str]| {
        vitreous(&[&["summary", "transformer_base", "--json"], more].concat()).succeeded().json_lines().remove(0)
    };
    let of = json(&["--source", "7", "--target", "5", "--batch", "2"]);
    assert_eq!((&of["source"], &of["target"], &of["total_parameters"]), (&7.into(), &5.into(), &59_508_496.into()));
    let stages = of["stages"].as_array().expect("a list");
    let shape = |name: &str| stages.iter().find(|stage| stage["name"] == name).expect(name)["shape"].clone();
    assert_eq!(shape("encoder.5.mlp"), serde_json::json!([2, 7, 512]));
    assert_eq!(shape("decoder.5.cross_attention"), serde_json::json!([2, 5, 512]));
    assert_eq!(shape("output"), serde_json::json!([2, 5, 10_000]));
    let sum: u64 = stages.iter().map(|stage| stage["flops"].as_u64().expect("a number")).sum();
    assert_eq!(of["forward_flops"], sum);
    // Word by word or all at once, the products are the same.
    let flops = |key: &str| of["translating_flops"][key].as_u64().expect("a number");
    assert_eq!(flops("source") + 5 * flops("word"), sum);
    assert_eq!(stages[0]["name"], "source_embedding");
    assert!(
        vitreous(&["summary", "transformer_big", "--json"]).succeeded().json_lines()[0]["total_parameters"].is_u64()
    );
}

#[test]
fn a_translator_on_disk_is_described_too() {
    let learned = common::translation::translator();
    let model = learned.model();
    let described = vitreous(&["summary", &model, "--json"]).succeeded().json_lines().remove(0);
    let weights = common::training::tensors(&learned.run().join("model/model.safetensors"));
    let numbers: usize = weights.values().map(Vec::len).sum();
    assert_eq!(described["total_parameters"], numbers);
    for inner in ["model", "model/model.safetensors"].map(|inner| format!("{model}/{inner}")) {
        assert_eq!(vitreous(&["summary", &inner, "--json"]).succeeded().json_lines()[0]["total_parameters"], numbers);
    }
    // Its longest sequence is 64.
    vitreous(&["summary", &model, "--source", "65"]).failed(2, &["65", "max_length"]);
}

#[test]
fn options_of_the_other_kind_are_refused() {
    vitreous(&["summary", "transformer_base", "--image", "64"]).failed(2, &["--image", "images"]);
    vitreous(&["summary", "transformer_base", "--heads", "4"]).failed(2, &["--heads"]);
    vitreous(&["summary", "vit_cifar", "--source", "4"]).failed(2, &["--source", "translators"]);
    vitreous(&["summary", "transformer_bsae"]).failed(2, &["did you mean `transformer_base`?"]);
    vitreous(&["summary", "transformer_base", "--target", "0"]).failed(2, &["at least 1"]);
    vitreous(&["summary", "transformer_base", "--target", "99999999999"]).failed(2, &["1048576"]);
}
