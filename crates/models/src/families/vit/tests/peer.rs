//! Models of every dialect against the library that defines it: each fixture must give the results that the library
//! computed. `make.py` made them; no Python is needed here.

use std::fs;

use super::common::{
    Configured, LIMIT, compare_resized, compare_with, fixture, largest_difference, open, open_with, run, tensor,
};
use crate::archive::Archive;
use crate::checkpoint::resize::{Filter, resize};
use crate::families::vit::{FeedForward, FinalNorm, Pooling, PositionScope, Positions, VitConfig, vit};
use crate::settings::Activation;
use crate::{Call, Model, OpenOptions, Size, positions};
use vitreous_engine::cpu::Executor;
use vitreous_engine::random::Run;
use vitreous_engine::{CrossEntropyOptions, DType, GradientOptions, Graph, Mode, Plan, Precision, State};

/// Opens a fixture and compares it with the expected results beside it.
fn compare(name: &str) -> Model {
    let model = open(name);
    compare_with(&model, &fixture(name).join("expected.safetensors"));
    model
}

const FRUIT: [&str; 3] = ["apple", "pear", "plum"];

#[test]
fn hugging_face_vit_in_old_and_new_names() {
    let model = compare("hf_vit");
    assert_eq!((model.config().classes, model.assets.labels.as_slice()), (3, &FRUIT.map(String::from)[..]));
    assert_eq!(model.config().norm_eps, 1e-12);
    compare_with(&open("hf_vit_new_names"), &fixture("hf_vit/expected.safetensors"));
}

#[test]
fn hugging_face_base_model_with_its_pooler() {
    let model = compare("hf_vit_pooler");
    assert_eq!((model.config().classes, model.config().pre_logits), (0, Some(16)));
    assert_eq!((model.config().activation, model.config().norm_eps), (Activation::GeluTanh, 1e-3));
}

#[test]
fn hugging_face_deit_with_one_head_and_with_two() {
    let one = compare("hf_deit");
    assert!(one.config().distillation_token && !one.config().distillation_head && !one.config().qkv_bias);
    let two = compare("hf_deit_teacher");
    assert!(two.config().distillation_head && two.config().channels == 1);
}

#[test]
fn hugging_face_dinov2() {
    compare("hf_dinov2");
    assert_eq!(compare("hf_dinov2_classifier").config().pooling, Pooling::ClassAndMean);
    assert_eq!(compare("hf_dinov2_swiglu").config().feed_forward, FeedForward::SwiGlu);
    compare_with(&open("hf_dinov2_swiglu_new_names"), &fixture("hf_dinov2_swiglu/expected.safetensors"));
    let registers = compare("hf_registers");
    assert_eq!((registers.config().registers, registers.config().position_scope), (2, PositionScope::Class));
    compare("hf_registers_classifier");
}

#[test]
fn hugging_face_containers_and_element_types() {
    for name in ["hf_vit_sharded", "hf_vit_bin", "hf_vit_bf16", "hf_vit_f16", "hf_vit_rectangular"] {
        compare(name);
    }
}

#[test]
fn hugging_face_names_without_a_configuration() {
    let options = OpenOptions::default().with("heads", 2);
    for (name, eps) in [("hf_vit", 1e-12), ("hf_dinov2", 1e-6), ("hf_deit_teacher", 1e-12), ("hf_registers", 1e-6)] {
        let model = open_with(&format!("{name}/model.safetensors"), &options);
        assert_eq!(model.config().norm_eps, eps);
        compare_with(&model, &fixture(name).join("expected.safetensors"));
    }
}

#[test]
fn hugging_face_positions_at_other_sizes() {
    compare_resized("hf_vit", "hf_vit/resized.safetensors", 24, 20);
    compare_resized("hf_dinov2", "hf_dinov2/resized.safetensors", 12, 20);
    compare_resized("hf_registers", "hf_registers/resized.safetensors", 12, 28);
    // Two rows before the patches, with one head and with two.
    compare_resized("hf_deit", "hf_deit/resized.safetensors", 24, 20);
    compare_resized("hf_deit_teacher", "hf_deit_teacher/resized.safetensors", 24, 20);
}

#[test]
fn timm_pools_and_tokens() {
    let token = compare("timm_token");
    assert_eq!(token.assets.labels, FRUIT);
    let average = compare("timm_avg");
    assert_eq!((average.config().pooling, average.config().final_norm), (Pooling::Mean, FinalNorm::Pooled));
    assert!(average.config().class_token);
    assert_eq!(compare("timm_max").config().pooling, Pooling::Max);
    assert_eq!(compare("timm_avg_token_norm").config().final_norm, FinalNorm::Tokens);
    let registers = compare("timm_registers");
    assert_eq!((registers.config().registers, registers.config().position_scope), (2, PositionScope::All));
    assert_eq!(registers.config().layer_scale, Some(1e-5));
    assert_eq!(compare("timm_no_embed_class").config().position_scope, PositionScope::Patches);
    let distilled = compare("timm_distilled");
    assert!(distilled.config().distillation_head && !distilled.config().qkv_bias);
}

#[test]
fn timm_without_a_configuration() {
    let model = compare("timm_avg_no_config");
    assert!(!model.config().class_token && model.config().final_norm == FinalNorm::Pooled);
    assert_eq!(compare("timm_swiglu").config().feed_forward, FeedForward::SwiGlu);
    let options = OpenOptions::default().with("heads", 2);
    for name in ["timm_token", "timm_avg", "timm_registers", "timm_no_embed_class", "timm_distilled"] {
        let model = open_with(&format!("{name}/model.safetensors"), &options);
        compare_with(&model, &fixture(name).join("expected.safetensors"));
        let described = open(name).config().clone();
        // The initial value of LayerScale is in no tensor.
        assert_eq!(model.config(), &VitConfig { layer_scale: model.config().layer_scale, ..described }, "{name}");
    }
    let training = open_with("timm_token/training.pth", &options);
    compare_with(&training, &fixture("timm_token/expected.safetensors"));
}

#[test]
fn timm_positions_at_other_sizes() {
    compare_resized("timm_token", "timm_token/resized.safetensors", 24, 32);
    compare_resized("timm_token", "timm_token/shrunk.safetensors", 12, 8);
}

#[test]
fn original_dinov2_with_registers_under_a_teacher() {
    let model = open("facebook_dinov2_registers/dinov2.pth");
    assert_eq!((model.config().registers, model.config().position_scope), (2, PositionScope::Class));
    compare_with(&model, &fixture("facebook_dinov2_registers/expected.safetensors"));
}

#[test]
fn google_npz() {
    for name in ["plain", "pre_logits", "big_vision", "big_vision_stacked"] {
        let model = open(&format!("npz/{name}.npz"));
        assert_eq!(model.config().heads, 2);
        compare_with(&model, &fixture(&format!("npz/{name}.expected.safetensors")));
    }
    compare_resized("npz/plain.npz", "npz/plain.resized.safetensors", 24, 32);
}

/// The same weights with every activation that a configuration can name, set where the library reads it.
fn compare_activations(name: &str, put: impl Fn(&mut serde_json::Value, &str)) -> usize {
    let archive = Archive::open(&fixture(name).join("activations.safetensors")).expect("opens");
    let (shape, images) = tensor(&archive, "images");
    let text = fs::read(fixture(name).join("config.json")).expect("a file");
    let directory = tempfile::tempdir().expect("a directory");
    fs::copy(fixture(name).join("model.safetensors"), directory.path().join("model.safetensors")).expect("copied");
    let activations: Vec<&str> = archive.names().filter(|name| *name != "images").collect();
    for activation in &activations {
        let mut config: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        put(&mut config, activation);
        fs::write(directory.path().join("config.json"), config.to_string()).expect("written");
        let model = Model::open(directory.path(), &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let (_, expected) = tensor(&archive, activation);
        let difference = largest_difference(run(&model, &shape, &images).get("logits"), &expected);
        assert!(difference < LIMIT, "{name}: {activation} differs by {difference:e}");
    }
    activations.len()
}

#[test]
fn activations_are_those_of_the_names_in_the_configuration() {
    let hugging_face = compare_activations("hf_vit", |config, name| config["hidden_act"] = name.into());
    let timm = compare_activations("timm_token", |config, name| config["model_args"]["act_layer"] = name.into());
    assert_eq!((hugging_face, timm), (10, 5));
}

#[test]
fn fixed_2d_positions_for_patches_behind_a_class_token() {
    let model = compare("own_sin_cos_2d");
    assert_eq!(
        (model.config().positions, model.config().position_scope),
        (Positions::SinCos2d, PositionScope::Patches)
    );
}

#[test]
fn post_norm_with_sinusoidal_positions() {
    compare("own_post_norm");
    compare("own_post_norm_max");
}

/// Gradients of the cross-entropy for every parameter. They are stored as checkpoints in the model's dialect.
fn compare_gradients(model_name: &str, gradients_name: &str) {
    let (model, expected) = (open(model_name), open(gradients_name));
    let archive = Archive::open(&fixture(gradients_name).join("expected.safetensors")).expect("opens");
    let (shape, images) = tensor(&archive, "images");
    let mut g = Graph::new(Mode::Training, Precision::F32);
    let logits = vit(&mut g, model.config(), &Call::whole(shape[0])).expect("builds").need("logits").expect("a head");
    let targets = g.input("targets", [shape[0]], DType::I32).expect("an input");
    let loss = g.cross_entropy(logits, targets, CrossEntropyOptions::default()).expect("a loss");
    let names: Vec<String> = g.parameters().iter().map(|parameter| parameter.name.clone()).collect();
    let wanted: Vec<_> = names.iter().map(|name| g.find(name).expect("a parameter")).collect();
    let gradients = g.gradients(loss, &wanted, GradientOptions::default()).expect("gradients");
    let values: Vec<_> = gradients.iter().copied().chain([loss]).collect();
    let mut executor = Executor::new(Plan::for_cpu(&g, &values).expect("plans"), 1).expect("runs");
    let mut state = State::new(&g).expect("memory");
    model.load(&mut state).expect("loads");
    executor.input("images").expect("an input").copy_from_slice(&images);
    executor.input_i32("targets").expect("an input").copy_from_slice(&[2, 0]);
    executor.run(&mut state, Run::default()).expect("a run");

    let (_, expected_loss) = tensor(&archive, "loss");
    assert!((executor.number(loss).expect("a loss") - expected_loss[0]).abs() < 1e-5);
    let mut worst = (0f32, "");
    for (name, &gradient) in names.iter().zip(&gradients) {
        let difference =
            largest_difference(&executor.output(gradient).expect("a result"), &expected.parameter(name).expect(name));
        assert!(difference < 1e-4, "{model_name}: gradient of {name} differs by {difference:e}");
        if difference > worst.0 {
            worst = (difference, name);
        }
    }
    println!("{model_name}: gradients differ by {:.1e} at most ({})", worst.0, worst.1);
}

#[test]
fn gradients_of_pre_norm_and_post_norm() {
    compare_gradients("hf_vit", "hf_vit_gradients");
    compare_gradients("own_post_norm", "own_post_norm_gradients");
}

#[test]
fn resized_tables_are_pytorchs() {
    let archive = Archive::open(&fixture("tables.safetensors")).expect("opens");
    let (_, source) = tensor(&archive, "source");
    let from = Size { height: 5, width: 7 };
    let filters = [
        ("bicubic", Filter::Bicubic),
        ("bicubic_antialias", Filter::BicubicAntialiased),
        ("bilinear", Filter::Bilinear),
    ];
    for (name, filter) in filters {
        for (height, width) in [(5, 7), (8, 11), (3, 4), (9, 3), (1, 1), (14, 2)] {
            let (_, expected) = tensor(&archive, &format!("{name}.{height}x{width}"));
            let got = resize(&source, 3, 0, from, Size { height, width }, filter);
            let difference = largest_difference(&got, &expected);
            assert!(difference < 1e-5, "{name} {height}x{width}: {difference:e}");
        }
    }
}

#[test]
fn the_2d_table_is_maes() {
    let archive = Archive::open(&fixture("tables.safetensors")).expect("opens");
    let (_, expected) = tensor(&archive, "sin_cos_2d");
    assert!(largest_difference(&positions::sin_cos_2d(Size::square(3), 16), &expected) < 1e-6);
}

#[test]
fn a_patch_convolution_is_patchify_and_linear() {
    let archive = Archive::open(&fixture("tables.safetensors")).expect("opens");
    let [(_, weight), (_, bias), (shape, images), (_, expected)] =
        ["conv_weight", "conv_bias", "conv_images", "conv_output"].map(|name| tensor(&archive, name));
    let mut g = Graph::for_inference();
    let input = g.input("images", shape.as_slice(), DType::F32).expect("an input");
    let patches = g.patchify(input, [4, 2]).expect("patches");
    let weights = g.parameter("weight", [8, 24]).expect("a parameter");
    let biases = g.parameter("bias", [8]).expect("a parameter");
    let y = g.linear(patches, weights, Some(biases)).expect("a product");
    let mut executor = Executor::new(Plan::for_cpu(&g, &[y]).expect("plans"), 1).expect("runs");
    let mut state = State::new(&g).expect("memory");
    state.parameter_mut("weight").expect("known").copy_from_slice(&weight);
    state.parameter_mut("bias").expect("known").copy_from_slice(&bias);
    executor.input("images").expect("an input").copy_from_slice(&images);
    executor.run(&mut state, Run::default()).expect("a run");
    assert!(largest_difference(&executor.output(y).expect("a result"), &expected) < 1e-5);
}
