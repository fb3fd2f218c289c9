//! Models from GGUF files compute what `transformers` does, and go to and fro unchanged.

use std::fs;
use std::path::{Path, PathBuf};

use vitreous_engine::{Device, Executor, Graph, Parameter};
use vitreous_models::archive::{Archive, ElementType};
use vitreous_models::families::llama::{LlamaConfig, RopeScaling, Variant};
use vitreous_models::{Call, Format, Model, ModelError, OpenOptions, SaveOptions, WeightType, Written};

use super::{archive, fixture, open};

const MODELS: [&str; 9] = [
    "llama3_f16",
    "llama_f32",
    "llama_blocks",
    "qwen2_bf16",
    "qwen3_q8_0",
    "phi3_blocks",
    "phi3_long",
    "gemma_q8_0",
    "gpt2_q4_0",
];

/// The logits of a model for the tokens of a fixture.
fn logits(model: &Model, expected: &Archive) -> Vec<f32> {
    let tokens = expected.tensor("tokens").expect("there");
    let (batch, length) = (tokens.shape[0], tokens.shape[1]);
    let mut graph = Graph::for_inference();
    let outputs = model.architecture.build(&mut graph, &Call::whole(batch).tokens(length)).expect("builds");
    let logits = outputs.need("logits").expect("logits");
    let device = Device::Cpu { threads: 2 };
    let plan = device.plan_with_fixed_weights(&graph, &[logits]).expect("planned");
    let lend = |parameter: &Parameter| model.parameter(&parameter.name).map_err(Failed::from);
    let mut executor = Executor::with_weights(plan, &device, lend).unwrap_or_else(|error| panic!("{}", error.0));
    let numbers = tokens.to_f32().expect("read");
    let to = executor.input_i32("tokens").expect("an input");
    to.iter_mut().zip(numbers.iter()).for_each(|(to, &number)| *to = number as i32);
    executor.input_i32("lengths").expect("an input").fill(length as i32);
    executor.infer().expect("inferred");
    executor.output(logits).expect("logits").to_vec()
}

#[derive(Debug)]
struct Failed(String);

impl From<ModelError> for Failed {
    fn from(error: ModelError) -> Failed {
        Failed(error.to_string())
    }
}

impl From<vitreous_engine::Error> for Failed {
    fn from(error: vitreous_engine::Error) -> Failed {
        Failed(error.to_string())
    }
}

fn worst(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    ours.iter()
        .zip(theirs)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

#[test]
fn logits_are_those_of_transformers() {
    for name in MODELS {
        let model = open(&fixture(&format!("{name}.gguf")));
        let expected = archive(&format!("{name}.safetensors"));
        let theirs = expected.tensor("logits").expect("there").to_f32().expect("read");
        let size = theirs.iter().fold(0f32, |most, value| most.max(value.abs()));
        let difference = worst(&logits(&model, &expected), &theirs);
        assert!(difference < 1e-5 * size.max(1.0), "{name}: {difference} of {size}");
    }
}

#[test]
fn settings_are_read() {
    let config = |name: &str| {
        let model = open(&fixture(&format!("{name}.gguf")));
        model.architecture.downcast_ref::<LlamaConfig>().expect("a LLaMA").clone()
    };
    let llama3 =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_length: 8192 };
    let read = config("llama3_f16");
    assert_eq!((read.rope_scaling, read.head_dim, read.rope_base), (llama3, Some(16), 500_000.0));
    let read = config("llama_f32");
    assert!(matches!(read.rope_scaling, RopeScaling::Yarn { factor: 4.0, original_length: 8, .. }), "{read:?}");
    assert_eq!((read.qkv_bias, read.output_bias, read.tied, read.norm_eps), (true, true, true, 1e-6));
    assert_eq!((config("qwen2_bf16").variant, config("qwen2_bf16").tied), (Variant::Qwen2, false));
    let read = config("qwen3_q8_0");
    assert_eq!((read.variant, read.qk_norm, read.head_dim, read.tied), (Variant::Qwen3, true, None, true));
    let read = config("phi3_blocks");
    assert_eq!((read.variant, read.fused_qkv, read.rotary_dim, read.window), (Variant::Phi3, true, Some(96), None));
    let longrope = RopeScaling::Longrope {
        short_factor: vec![1.0, 1.05, 1.25],
        long_factor: vec![1.0, 1.5, 4.0],
        original_length: 8,
        factor: 2.0,
        attention_factor: None,
    };
    assert_eq!(config("phi3_long").rope_scaling, longrope);
    let read = config("gemma_q8_0");
    assert_eq!((read.scaled_embedding, read.unit_offset_norm, read.tied), (true, true, true));
}

#[test]
fn quantised_weights_are_lent_in_their_blocks() {
    let model = open(&fixture("llama_blocks.gguf"));
    for (name, format) in [("blocks.0.attention.query.weight", "Q4_K"), ("blocks.1.mlp.down.weight", "Q5_1")] {
        let weight = model.weight(name).expect("there");
        let vitreous_engine::WeightView::Blocks(lent, _) = &weight else { panic!("{name} is not in blocks") };
        assert_eq!(lent.name(), format);
        assert_eq!(weight.into_f32(), model.parameter(name).expect("there"));
    }
    let formats = model.formats();
    let names: Vec<&str> = formats.iter().map(|format| format.element.name()).collect();
    assert_eq!(names, ["f32", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]);
    let q4k = formats.iter().find(|format| format.element.name() == "Q4_K").expect("there");
    assert_eq!((q4k.tensors, q4k.values, q4k.bytes), (2, 2 * 64 * 256, 2 * 64 * 144));
}

/// Directories of Hugging Face's in the folder of a family.
fn directories(family: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/families").join(family).join("tests/fixtures");
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).expect("fixtures").map(|entry| entry.expect("one").path()).collect();
    found.retain(|path| path.join("config.json").is_file());
    found.sort();
    found
}

/// The bytes of the weights that a model is written with to a directory.
fn as_directory(model: &Model, options: &SaveOptions) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    model.save(directory.path(), options).unwrap_or_else(|error| panic!("{error}"));
    fs::read(directory.path().join("model.safetensors")).expect("written")
}

/// Whether all weights are equal to the rounding of f16 or, of norms, of 1 + weight.
fn same_parameters(a: &Model, b: &Model) {
    for parameter in a.parameters() {
        let [a, b] = [a, b].map(|model| model.parameter(&parameter.name).expect("there"));
        assert!(worst(&a, &b) < 5e-4, "{}", parameter.name);
    }
}

#[test]
fn hugging_face_to_gguf_and_back_is_the_same_to_the_byte() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("model.gguf");
    let mut seen = 0;
    for path in ["llama", "gpt2"].iter().flat_map(|family| directories(family)) {
        let model = open(&path);
        if model.architecture.dialect(Format::Gguf).is_err() {
            continue;
        }
        for weights in [WeightType::F32, WeightType::F16] {
            let options = SaveOptions { weights: Some(weights), ..SaveOptions::default() };
            let written = model.save(&target, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(written, Written::Gguf);
            let again = open(&target);
            match path.ends_with("gemma") {
                // Its norms are written with 1 added to them, which rounds.
                true => same_parameters(&again, &model),
                false => {
                    let [again, model] = [&again, &model].map(|model| as_directory(model, &options));
                    assert!(again == model, "{}", path.display());
                }
            }
            let [now, before] = [&again, &model].map(|model| model.architecture.settings());
            let differ: Vec<&String> =
                before.keys().filter(|key| now[*key] != before[*key]).filter(|key| !key.contains("dropout")).collect();
            // Mistral without a window is a LLaMA, and files of Qwen 2 say nothing of one.
            assert!(differ.is_empty() || differ == ["variant"], "{}: {differ:?}", path.display());
        }
        seen += 1;
    }
    assert!(seen > 12, "{seen}");
}

#[test]
fn gguf_is_carried_over_with_its_blocks_and_metadata() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("copy.gguf");
    for name in MODELS {
        let from = archive(&format!("{name}.gguf"));
        open(&fixture(&format!("{name}.gguf"))).save(&target, &SaveOptions::default()).expect("saved");
        let to = Archive::open(&target).expect("opens");
        for view in from.tensors() {
            let copy = to.tensor(view.name()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((copy.element, copy.shape), (view.element, view.shape), "{name}: {}", view.name());
            // What follows from settings, and norms to which 1 was added, may differ by rounding.
            let close = view.name() == "rope_freqs.weight" || (name == "gemma_q8_0" && view.shape.len() == 1);
            if close {
                let [copy, view] = [copy, view].map(|tensor| tensor.to_f32().expect("read").into_owned());
                assert!(worst(&copy, &view) < 1e-6, "{name}");
            } else {
                assert!(copy.to_bytes().expect("read") == view.to_bytes().expect("read"), "{name}: {}", view.name());
            }
        }
        for (key, value) in from.gguf().expect("metadata").iter() {
            assert_eq!(to.gguf().expect("metadata").get(key), Some(value), "{name}: {key}");
        }
    }
}

#[test]
fn weights_are_quantised_when_a_model_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("model.gguf");
    let model = open(&fixture("llama_blocks.gguf"));
    let element = |archive: &Archive, name: &str| archive.tensor(name).expect("there").element.name();
    for (weights, query, down, output) in [
        (WeightType::Bf16, "bf16", "bf16", "bf16"),
        (WeightType::Q8_0, "Q8_0", "Q8_0", "Q8_0"),
        (WeightType::Q4_0, "Q4_0", "Q4_0", "Q6_K"),
        (WeightType::Q4KM, "Q4_K", "Q5_0", "Q6_K"),
    ] {
        model.save(&target, &SaveOptions { weights: Some(weights), ..SaveOptions::default() }).expect("saved");
        let archive = Archive::open(&target).expect("opens");
        let got = ["blk.0.attn_q.weight", "blk.0.ffn_down.weight", "output.weight"].map(|name| element(&archive, name));
        assert_eq!(got, [query, down, output], "{}", weights.name());
        assert_eq!(archive.tensor("blk.0.attn_norm.weight").expect("there").element, ElementType::F32);
        // The output matrix was Q6_K: it was not quantised twice.
        let again = open(&target);
        let (now, before) = (again.parameter("output").expect("there"), model.parameter("output").expect("there"));
        assert!(worst(&now, &before) <= if output == "Q6_K" { 0.0 } else { 0.01 }, "{}", weights.name());
    }
    let refused = model.save(
        &directory.path().join("directory"),
        &SaveOptions { weights: Some(WeightType::Q4_0), ..SaveOptions::default() },
    );
    assert!(refused.expect_err("refused").to_string().contains("name a .gguf"));
}

#[test]
fn values_that_blocks_cannot_hold_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (source, target) = (directory.path().join("source.gguf"), directory.path().join("model.gguf"));
    let mut bytes = fs::read(fixture("qwen2_bf16.gguf")).expect("read");
    let end = bytes.len();
    // The last matrix is the output's.
    bytes[end - 64..].iter_mut().for_each(|byte| *byte = 0x7F);
    fs::write(&source, bytes).expect("written");
    let error = open(&source).save(&target, &SaveOptions { weights: Some(WeightType::Q8_0), ..SaveOptions::default() });
    // Rows of 24 values are no whole blocks: they are written as f16, which would make infinity of them.
    let said = error.expect_err("refused").to_string();
    assert!(said.contains("output.weight") && said.contains("f16 cannot: write f32 or bf16"), "{said}");
    let mut bytes = fs::read(fixture("llama_blocks.gguf")).expect("read");
    let at = archive("llama_blocks.gguf").tensor("token_embd.weight").expect("there").to_bytes().expect("read")[..34]
        .to_vec();
    let place = bytes.windows(34).position(|window| window == at).expect("there");
    bytes[place..place + 2].copy_from_slice(&0x7BFFu16.to_le_bytes());
    fs::write(&source, bytes).expect("written");
    let error = open(&source).save(&target, &SaveOptions { weights: Some(WeightType::Q4_0), ..SaveOptions::default() });
    let said = error.expect_err("refused").to_string();
    assert!(said.contains("token_embd.weight") && said.contains("write f32 or bf16"), "{said}");
}

#[test]
fn a_directory_with_one_file_is_opened() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::copy(fixture("llama_f32.gguf"), directory.path().join("any-name.gguf")).expect("copied");
    let model = Model::open(directory.path(), &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(model.library(), Some("llama.cpp"));
    assert_eq!(model.assets.metadata.as_ref().expect("metadata").text("general.name"), Some("llama_f32"));
    fs::copy(fixture("llama_f32.gguf"), directory.path().join("another.gguf")).expect("copied");
    let error = Model::open(directory.path(), &OpenOptions::default()).expect_err("two").to_string();
    assert!(error.contains("name the one to open"), "{error}");
}

/// llama2.c's own order of tensors, from a model of Hugging Face's.
#[test]
fn llama2c_files_are_llamas() {
    let directory = tempfile::tempdir().expect("a directory");
    let gguf = directory.path().join("model.gguf");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/families/llama/tests/fixtures/model");
    let model = open(&path);
    let config = model.architecture.downcast_ref::<LlamaConfig>().expect("a LLaMA").clone();
    model.save(&gguf, &SaveOptions::default()).expect("saved");
    let archive = Archive::open(&gguf).expect("opens");
    let sizes = [config.dim, config.mlp_dim, config.depth, config.heads, config.kv_heads];
    let vocabulary = if config.tied { config.vocabulary as i32 } else { -(config.vocabulary as i32) };
    let mut file: Vec<u8> = sizes.iter().flat_map(|&size| (size as i32).to_le_bytes()).collect();
    file.extend(vocabulary.to_le_bytes());
    file.extend((config.max_length as i32).to_le_bytes());
    let mut put = |name: &str| file.extend(archive.tensor(name).expect("there").to_bytes().expect("read").iter());
    put("token_embd.weight");
    for kind in ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_down", "ffn_up"]
    {
        (0..config.depth).for_each(|layer| put(&format!("blk.{layer}.{kind}.weight")));
    }
    put("output_norm.weight");
    file.extend(vec![0; 2 * 4 * config.max_length * config.head_dim() / 2]);
    file.extend(archive.tensor("output.weight").expect("there").to_bytes().expect("read").iter());
    let bin = directory.path().join("model.bin");
    fs::write(&bin, file).expect("written");
    let again = open(&bin);
    // Its epsilon is fixed.
    assert_eq!(
        again.architecture.downcast_ref::<LlamaConfig>().expect("a LLaMA"),
        &LlamaConfig { norm_eps: 1e-5, ..config }
    );
    assert_eq!(as_directory(&again, &SaveOptions::default()), as_directory(&model, &SaveOptions::default()));
}
