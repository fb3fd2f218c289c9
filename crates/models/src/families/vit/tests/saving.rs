//! Saving: what was written opens to the same bits, in every dialect that can express the model, and a failure leaves
//! existing files unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::common::{Configured, compare_with, fixture, open, open_with};
use crate::archive::{Archive, ElementType};
use crate::families::vit::{Pooling, Qkv, VitConfig, vit};
use crate::settings::Activation;
use crate::{Call, Head, Model, ModelError, OpenOptions, SaveOptions, Size, Written};
use vitreous_engine::{DType, Device, Executor, Graph, Mode, Parameter, Precision, State, WeightView};

fn reopen(path: &Path) -> Model {
    Model::open(path, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn save(model: &Model, path: &Path) -> Written {
    model.save(path, &SaveOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// All values by our names, with fused projections separated, as bits.
fn bits(model: &Model) -> BTreeMap<String, Vec<u32>> {
    let mut all = BTreeMap::new();
    for parameter in model.parameters() {
        let values = model.parameter(&parameter.name).unwrap_or_else(|error| panic!("{error}"));
        let atoms = parameter.part_names();
        for (atom, part) in atoms.iter().zip(values.chunks_exact(values.len() / atoms.len())) {
            all.insert(atom.clone(), part.iter().map(|value| value.to_bits()).collect());
        }
    }
    all
}

/// Names, types and bytes of a safetensors file.
fn contents(path: &Path) -> BTreeMap<String, (ElementType, Vec<usize>, Vec<u8>)> {
    let archive = Archive::open(path).expect("opens");
    let content = |tensor: crate::archive::TensorView| {
        (
            tensor.name().to_string(),
            (tensor.element, tensor.shape.to_vec(), tensor.to_bytes().expect("bytes").into_owned()),
        )
    };
    archive.tensors().map(content).collect()
}

#[test]
fn hugging_face_models_are_written_back_byte_by_byte() {
    let families = [
        ("hf_vit", "vit"),
        ("hf_vit_pooler", "vit"),
        ("hf_vit_rectangular", "vit"),
        ("hf_vit_bf16", "vit"),
        ("hf_vit_f16", "vit"),
        ("hf_deit", "deit"),
        ("hf_deit_teacher", "deit"),
        ("hf_dinov2", "dinov2"),
        ("hf_dinov2_classifier", "dinov2"),
        ("hf_dinov2_swiglu", "dinov2"),
        ("hf_registers", "dinov2_with_registers"),
        ("hf_registers_classifier", "dinov2_with_registers"),
    ];
    for (name, model_type) in families {
        let target = tempfile::tempdir().expect("a directory");
        let model = open(name);
        assert_eq!(save(&model, target.path()), Written::HuggingFace(model_type.to_string()), "{name}");
        let again = reopen(target.path());
        assert_eq!((&again.config(), &again.assets.labels), (&model.config(), &model.assets.labels), "{name}");
        let file = "model.safetensors";
        assert!(contents(&target.path().join(file)) == contents(&fixture(name).join(file)), "{name}: other bytes");
        compare_with(&again, &fixture(name).join("expected.safetensors"));
    }
}

#[test]
fn new_names_shards_and_pickles_become_one_file_of_the_names_that_all_versions_read() {
    for name in ["hf_vit_new_names", "hf_vit_sharded", "hf_vit_bin", "hf_dinov2_swiglu_new_names"] {
        let target = tempfile::tempdir().expect("a directory");
        let model = open(name);
        save(&model, target.path());
        assert_eq!(bits(&reopen(target.path())), bits(&model), "{name}");
    }
    let target = tempfile::tempdir().expect("a directory");
    save(&open("hf_vit_new_names"), target.path());
    let written = target.path().join("model.safetensors");
    assert!(contents(&written) == contents(&fixture("hf_vit/model.safetensors")));
}

#[test]
fn hugging_face_to_npz_and_back_is_the_same_file() {
    for name in ["hf_vit", "hf_vit_pooler"] {
        let directory = tempfile::tempdir().expect("a directory");
        let npz = directory.path().join("model.npz");
        let mut model = open(name);
        // The activation and a larger epsilon cannot be stored in an .npz, as the test below shows.
        let config = VitConfig { activation: Activation::Gelu, norm_eps: 1e-12, ..model.config().clone() };
        model.architecture = Box::new(config);
        assert_eq!(save(&model, &npz), Written::Npz);
        let middle = reopen(&npz);
        assert_eq!(bits(&middle), bits(&model), "{name}");
        let back = directory.path().join("back");
        assert_eq!(save(&middle, &back), Written::HuggingFace("vit".to_string()));
        assert!(
            contents(&back.join("model.safetensors")) == contents(&fixture(name).join("model.safetensors")),
            "{name}"
        );
    }
}

#[test]
fn npz_of_every_form_become_hugging_faces_or_our_own() {
    for (name, own) in [("plain", false), ("pre_logits", true), ("big_vision", true), ("big_vision_stacked", true)] {
        let target = tempfile::tempdir().expect("a directory");
        let model = open(&format!("npz/{name}.npz"));
        assert_eq!(matches!(save(&model, target.path()), Written::Own(_)), own, "{name}");
        let again = reopen(target.path());
        assert_eq!((bits(&again), &again.config()), (bits(&model), &model.config()), "{name}");
        compare_with(&again, &fixture(&format!("npz/{name}.expected.safetensors")));
    }
}

#[test]
fn timm_models_become_hugging_faces_or_our_own() {
    let models = [
        ("timm_token", Some("vit")),
        ("timm_distilled", Some("deit")),
        ("timm_avg", None),
        ("timm_max", None),
        ("timm_registers", None),
        ("timm_no_embed_class", None),
        ("timm_swiglu", None),
        ("facebook_dinov2_registers/dinov2.pth", Some("dinov2_with_registers")),
        ("own_post_norm", None),
        ("own_post_norm_max", None),
    ];
    for (name, model_type) in models {
        let target = tempfile::tempdir().expect("a directory");
        let model = open(name);
        match save(&model, target.path()) {
            Written::HuggingFace(written) => assert_eq!(Some(written.as_str()), model_type, "{name}"),
            Written::Own(_) => assert_eq!(model_type, None, "{name}"),
            Written::Npz | Written::Gguf => panic!("{name}: not asked for"),
        }
        let again = reopen(target.path());
        assert_eq!((bits(&again), &again.assets.labels), (bits(&model), &model.assets.labels), "{name}");
    }
}

#[test]
fn a_mask_token_is_kept_although_nothing_is_computed_with_it() {
    let target = tempfile::tempdir().expect("a directory");
    let name = "facebook_dinov2_registers/dinov2.pth";
    save(&open(name), target.path());
    let mask = |file: &Path, name: &str| contents(file).remove(name).expect("a mask token");
    let written = mask(&target.path().join("model.safetensors"), "embeddings.mask_token");
    let original = mask(&fixture(name), "teacher.backbone.mask_token");
    assert_eq!((written.1, written.2), (vec![1, 16], original.2));
}

#[test]
fn what_an_npz_cannot_say_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("model.npz");
    for (name, lacking) in [
        ("timm_registers", "register tokens"),
        ("hf_dinov2", "LayerScale"),
        ("hf_deit", "a distillation token"),
        ("own_post_norm", "positions that are not learned"),
        ("hf_vit_pooler", "another activation than GELU"),
        ("hf_vit_rectangular", "a grid that is not square"),
        ("timm_avg", "another last norm than over tokens"),
    ] {
        let error = open(name).save(&target, &SaveOptions::default()).expect_err(name).to_string();
        assert!(error.contains(&format!("cannot say {lacking}")), "{name}: {error}");
        assert!(!target.exists());
    }
}

#[test]
fn separate_and_fused_projections_hold_the_same_values() {
    for name in ["hf_vit", "timm_token", "npz/plain.npz", "own_post_norm", "npz/big_vision_stacked.npz"] {
        let [fused, separate] =
            [Qkv::Fused, Qkv::Separate].map(|qkv| open_with(name, &OpenOptions::default().with("qkv", qkv)));
        assert_eq!(bits(&fused), bits(&separate), "{name}");
        for model in [fused, separate] {
            let target = tempfile::tempdir().expect("a directory");
            save(&model, target.path());
            assert_eq!(bits(&reopen(target.path())), bits(&model), "{name}");
        }
    }
}

#[test]
fn numbers_that_lie_as_they_are_needed_are_borrowed() {
    let separate = open_with("hf_vit", &OpenOptions::default().with("qkv", Qkv::Separate));
    for (model, name) in [
        (&separate, "blocks.0.attention.key.weight"),
        (&open("hf_vit"), "positions"),
        (&open("timm_token"), "blocks.1.attention.qkv.weight"),
        (&open_with("timm_token", &OpenOptions::default().with("qkv", Qkv::Separate)), "blocks.1.attention.value.bias"),
    ] {
        assert!(matches!(model.parameter(name).expect("known"), std::borrow::Cow::Borrowed(_)), "{name}");
    }
}

#[test]
fn half_precision_weights_are_lent_as_they_are_stored_and_give_the_same_bits() {
    for (name, is_bf16) in [("hf_vit_bf16", true), ("hf_vit_f16", false)] {
        let model = open_with(name, &OpenOptions::default().with("qkv", Qkv::Separate));
        let lent = |view: &WeightView| match view {
            WeightView::Bf16(std::borrow::Cow::Borrowed(_)) => is_bf16,
            WeightView::F16(std::borrow::Cow::Borrowed(_)) => !is_bf16,
            _ => false,
        };
        let borrowed =
            model.parameters().iter().filter(|parameter| lent(&model.weight(&parameter.name).expect("known"))).count();
        assert_eq!(borrowed, model.parameters().len(), "{name}: parameters that are not lent");
        for precision in [Precision::F32, Precision::Bf16] {
            let run = |widened: bool| {
                let mut g = Graph::new(Mode::Inference, precision);
                let built = vit(&mut g, model.config(), &Call::whole(3)).expect("a model");
                let logits = built.need("logits").expect("a head");
                let logits = g.cast(logits, DType::F32).expect("f32");
                let device = Device::Cpu { threads: 2 };
                let plan = device.plan_with_fixed_weights(&g, &[logits]).expect("a plan");
                let lend = |parameter: &Parameter| -> Result<WeightView<'_>, ModelError> {
                    let weight = model.weight(&parameter.name)?;
                    Ok(if widened { weight.into_f32().into() } else { weight })
                };
                let mut executor = Executor::with_weights(plan, &device, lend).expect("an executor");
                let images = executor.input("images").expect("images").iter_mut();
                images.enumerate().for_each(|(i, pixel)| *pixel = ((i * 37 % 101) as f32 - 50.0) / 40.0);
                executor.infer().expect("a run");
                executor.output(logits).expect("logits").into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            assert_eq!(run(false), run(true), "{name}, {precision:?}");
        }
    }
}

#[test]
fn a_configuration_that_was_changed_is_not_saved_with_values_that_do_not_fit() {
    let target = tempfile::tempdir().expect("a directory");
    let mut model = open("hf_vit");
    model.architecture = Box::new(VitConfig { depth: 3, ..model.config().clone() });
    assert!(
        model.save(target.path(), &SaveOptions::default()).expect_err("refused").to_string().contains("was changed")
    );
    let mut model = open("hf_vit");
    model.assets.labels.pop();
    assert!(model.save(target.path(), &SaveOptions::default()).is_err());
}

#[test]
fn trained_values_are_what_is_saved() {
    let options =
        OpenOptions { replace_head: Some(Head::Classes(5)), ..OpenOptions::default().with("image", Size::square(24)) };
    for name in ["hf_vit", "hf_dinov2", "timm_token", "npz/pre_logits.npz", "own_post_norm"] {
        let model = open_with(name, &options);
        let mut g = Graph::for_inference();
        vit(&mut g, model.config(), &Call::whole(1)).expect("builds");
        let mut state = State::new(&g).expect("memory");
        model.load(&mut state).expect("loads");
        for (index, value) in state.parameters_mut().iter_mut().enumerate() {
            *value = index as f32 * 0.25;
        }
        let target = tempfile::tempdir().expect("a directory");
        let error = model.save(target.path(), &SaveOptions::default()).expect_err("no head yet").to_string();
        assert!(error.contains("`head.") && error.contains("was replaced"), "{error}");
        model.save(target.path(), &SaveOptions { state: Some(&state), ..SaveOptions::default() }).expect("saves");
        let again = reopen(target.path());
        assert_eq!((&again.config().image, again.config().classes), (&model.config().image, 5), "{name}");
        for parameter in model.parameters().iter().map(|parameter| &parameter.name) {
            assert_eq!(
                again.parameter(parameter).expect("known"),
                state.parameter(parameter).expect("known"),
                "{parameter}"
            );
        }
    }
}

#[test]
fn a_model_from_nothing_is_saved_from_its_state() {
    let config = VitConfig {
        image: Size::square(8),
        patch: Size::square(4),
        dim: 8,
        depth: 1,
        heads: 2,
        ..VitConfig::default()
    };
    let config = VitConfig { mlp_dim: 8, classes: 2, pooling: Pooling::Mean, ..config };
    let labels = vec!["cat".to_string(), "dog".to_string()];
    let model = Model::new(Box::new(config.clone()), labels.clone()).expect("builds");
    let mut g = Graph::for_inference();
    vit(&mut g, &config, &Call::whole(1)).expect("builds");
    let mut state = State::new(&g).expect("memory");
    state.parameters_mut().fill(0.5);
    let target = tempfile::tempdir().expect("a directory");
    assert!(model.save(target.path(), &SaveOptions::default()).is_err());
    let options = SaveOptions { state: Some(&state), preprocessor: Some(b"{}"), ..SaveOptions::default() };
    assert!(matches!(model.save(target.path(), &options).expect("saves"), Written::Own(_)));
    let again = reopen(target.path());
    assert_eq!((again.config(), &again.assets.labels), (&config, &labels));
    assert!(again.assets.preprocessing.is_some());
    assert!(Model::new(Box::new(VitConfig::default()), vec!["one".to_string()]).is_err());
}

#[test]
fn the_source_is_never_written_over_and_a_failure_leaves_what_was_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("model");
    fs::create_dir(&copy).expect("a directory");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture("hf_vit").join(file), copy.join(file)).expect("copied");
    }
    let before = contents(&copy.join("model.safetensors"));
    for source in [copy.clone(), copy.join("model.safetensors"), copy.join("../model")] {
        let model = Model::open(&source, &OpenOptions::default().with("heads", 2)).expect("opens");
        let error = model.save(&copy, &SaveOptions::default()).expect_err("refused").to_string();
        assert!(error.contains("the checkpoint that the values come from"), "{error}");
    }
    // A directory in place of the configuration: nothing is written, and no temporary file is left.
    let blocked = directory.path().join("blocked");
    fs::create_dir_all(blocked.join("config.json")).expect("a directory");
    assert!(open("hf_vit").save(&blocked, &SaveOptions::default()).is_err());
    let left: Vec<_> =
        fs::read_dir(&blocked).expect("a directory").map(|entry| entry.expect("one").file_name()).collect();
    assert_eq!(left, ["config.json"]);
    assert!(contents(&copy.join("model.safetensors")) == before);

    // The preprocessing of another model must not stay beside this one.
    fs::write(copy.join("preprocessor_config.json"), "{}").expect("written");
    let error = open("timm_token").save(&copy, &SaveOptions::default()).expect_err("refused").to_string();
    assert!(error.contains("preprocessor_config.json"), "{error}");
    assert!(contents(&copy.join("model.safetensors")) == before);
}

#[test]
fn half_precision_can_be_widened() {
    let target = tempfile::tempdir().expect("a directory");
    let model = open("hf_vit_bf16");
    model
        .save(target.path(), &SaveOptions { weights: Some(crate::WeightType::F32), ..SaveOptions::default() })
        .expect("saves");
    let again = reopen(target.path());
    assert_eq!(bits(&again), bits(&model));
    let written = contents(&target.path().join("model.safetensors"));
    assert!(written.values().all(|(element, ..)| *element == ElementType::F32));
}
