//! Errors name the file, the tensor or key, and what was expected.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::common::{Configured, fixture, open, open_with, run};
use crate::archive::{Archive, TensorToWrite, write_safetensors};
use crate::checkpoint::json::Object;
use crate::checkpoint::{Inventory, problems};
use crate::families::vit::{Pooling, PositionScope, VitConfig, infer, read, vit};
use crate::{Architecture, Call, Checkpoint, Head, Model, OpenOptions, Reading, SaveOptions, Settings, Size};
use vitreous_engine::{DType, Graph, State};

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The error of opening a copy of a fixture with changed tensors or configuration.
fn refusal(name: &str, change: impl FnOnce(&mut Tensors, &mut serde_json::Value)) -> String {
    match opened(name, change, &OpenOptions::default()) {
        Ok(_) => panic!("{name} was opened"),
        Err(error) => error,
    }
}

fn opened(
    name: &str,
    change: impl FnOnce(&mut Tensors, &mut serde_json::Value),
    options: &OpenOptions,
) -> Result<Model, String> {
    let archive = Archive::open(&fixture(name).join("model.safetensors")).expect("opens");
    let mut tensors: Tensors = archive
        .tensors()
        .map(|tensor| (tensor.name().to_string(), (tensor.shape.to_vec(), tensor.to_f32().expect("f32").into_owned())))
        .collect();
    let bytes = fs::read(fixture(name).join("config.json")).expect("a file");
    let mut config: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    change(&mut tensors, &mut config);
    let directory = tempfile::tempdir().expect("a directory");
    let written = tensors.iter().map(|(name, (shape, numbers))| TensorToWrite::f32(name, shape, numbers));
    write_safetensors(&directory.path().join("model.safetensors"), written, &BTreeMap::new()).expect("written");
    fs::write(directory.path().join("config.json"), config.to_string()).expect("written");
    Model::open(directory.path(), options).map_err(|error| error.to_string())
}

fn assert_says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn missing_surplus_and_misshapen_tensors_are_named() {
    let name = "vit.encoder.layer.1.attention.attention.key.bias";
    let error = refusal("hf_vit", |tensors, _| drop(tensors.remove(name)));
    assert_says(&error, &["model.safetensors", name, "[16] is missing"]);

    let error = refusal("hf_vit", |tensors, _| drop(tensors.insert("vit.extra".to_string(), (vec![2], vec![0.0; 2]))));
    assert_says(&error, &["`vit.extra` [2] has no place in this model"]);

    let error = refusal("hf_vit", |tensors, _| {
        tensors.insert("vit.layernorm.weight".to_string(), (vec![17], vec![0.0; 17]));
    });
    assert_says(&error, &["`vit.layernorm.weight` is [17], but should be [16]"]);

    let error = refusal("timm_token", |tensors, _| tensors.retain(|name, _| !name.contains("mlp.fc2.")));
    assert_says(&error, &["blocks.0.mlp.fc1.weight"]);

    // A third layer that the file does not have: sixteen tensors, of which eight are named.
    let error = refusal("hf_vit", |_, config| config["num_hidden_layers"] = 3.into());
    assert_says(&error, &["16 tensors", "vit.encoder.layer.2.layernorm_before.weight", "and 8 more"]);
    let error = refusal("hf_vit", |_, config| config["num_hidden_layers"] = 4000.into());
    assert_says(&error, &["4000 layers"]);
}

#[test]
fn keys_are_named() {
    type Case = (&'static str, serde_json::Value, &'static [&'static str]);
    let cases: &[Case] = &[
        ("hidden_size", (-3).into(), &["`hidden_size`", "not -3"]),
        ("hidden_size", 1e300.into(), &["`hidden_size`"]),
        ("hidden_size", "16".into(), &["`hidden_size`", "a whole number", "\"16\""]),
        ("num_attention_heads", 3.into(), &["3 heads do not divide a dim of 16"]),
        ("hidden_act", "mish".into(), &["`hidden_act`", "mish", "gelu_new"]),
        ("model_type", "resnet".into(), &["`model_type`", "resnet", "dinov2_with_registers"]),
        ("image_size", serde_json::json!([16, 16, 16]), &["`image_size`", "height and width"]),
        ("image_size", 17.into(), &["17x17", "4x4 patches"]),
        ("layer_norm_eps", "small".into(), &["`layer_norm_eps`", "a number"]),
        ("qkv_bias", 1.into(), &["`qkv_bias`", "true or false"]),
        ("num_labels", 7.into(), &["`num_labels`", "7", "3 classes"]),
        ("id2label", serde_json::json!({"0": "a", "2": "b"}), &["`id2label`", "\"2\""]),
        ("id2label", serde_json::json!({"0": "a", "1": "b"}), &["2 classes", "`classifier.weight` has 3"]),
    ];
    for (key, value, says) in cases {
        let error = refusal("hf_vit", |_, config| config[*key] = value.clone());
        assert_says(&error, says);
        assert!(!error.contains("panicked"));
    }
    let error = refusal("hf_vit_pooler", |_, config| config["pooler_act"] = "gelu".into());
    assert_says(&error, &["`pooler_act`", "only tanh"]);
}

#[test]
fn rates_of_stochastic_depth_are_read() {
    let rate = |name: &str, put: fn(&mut serde_json::Value)| {
        let model = opened(name, |_, config| put(config), &OpenOptions::default());
        model.unwrap_or_else(|error| panic!("{error}")).config().stochastic_depth
    };
    assert_eq!(rate("hf_dinov2", |config| config["drop_path_rate"] = 0.25.into()), 0.25);
    assert_eq!(rate("hf_registers", |config| config["drop_path_rate"] = 0.125.into()), 0.125);
    assert_eq!(rate("timm_token", |config| config["model_args"]["drop_path_rate"] = 0.375.into()), 0.375);
}

/// Reads a configuration without tensors.
fn described(text: &str) -> Reading {
    let config: Settings = serde_json::from_str(text).expect("an object");
    let options = OpenOptions::default();
    let checkpoint = Checkpoint { config: Some(Object::new(&config)), gguf: None, tensors: None, options: &options };
    read::read(&checkpoint).expect("reads").expect("a Vision Transformer")
}

/// As text, "10" sorts before "9".
#[test]
fn classes_are_in_the_order_of_their_numbers() {
    let names: Vec<String> = (0..13).map(|class| format!("class number {class}")).collect();
    let numbered: serde_json::Map<String, serde_json::Value> =
        names.iter().enumerate().map(|(class, name)| (class.to_string(), name.as_str().into())).collect();
    let text = serde_json::json!({"model_type": "vit", "id2label": numbered}).to_string();
    assert_eq!(described(&text).labels, names);
}

#[test]
fn an_npz_is_not_written_where_it_cannot_hold_the_epsilon() {
    let target = tempfile::tempdir().expect("a directory");
    let npz = target.path().join("model.npz");
    let with = |eps: f64| {
        let model = opened("hf_vit", |_, config| config["layer_norm_eps"] = eps.into(), &OpenOptions::default());
        model.expect("opens").save(&npz, &SaveOptions::default())
    };
    for eps in [1e-5, 1e-3] {
        assert_says(&with(eps).expect_err("refused").to_string(), &["model.npz", "epsilon"]);
        assert!(!npz.exists());
    }
    // The epsilon with which these files are read.
    with(1e-6).expect("saves");
}

/// A timm file without configuration and with this many positions.
fn bare_with_positions(rows: usize, registers: usize, image: Option<Size>) -> Result<Model, String> {
    let archive = Archive::open(&fixture("timm_token/model.safetensors")).expect("opens");
    let mut tensors: Tensors = archive
        .tensors()
        .map(|tensor| (tensor.name().to_string(), (tensor.shape.to_vec(), tensor.to_f32().expect("f32").into_owned())))
        .collect();
    tensors.insert("pos_embed".to_string(), (vec![1, rows, 16], vec![0.0; rows * 16]));
    if registers > 0 {
        tensors.insert("reg_token".to_string(), (vec![1, registers, 16], vec![0.0; registers * 16]));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bare.safetensors");
    let written = tensors.iter().map(|(name, (shape, numbers))| TensorToWrite::f32(name, shape, numbers));
    write_safetensors(&file, written, &BTreeMap::new()).expect("written");
    Model::open(&file, &OpenOptions::default().with_some("image", image)).map_err(|error| error.to_string())
}

/// Patches are 4x4. Which grid a number of positions fits, with a class token and possibly registers.
#[test]
fn positions_of_bare_files_are_read_one_way_or_not_at_all() {
    let read = |rows, registers, image: Option<(usize, usize)>| {
        let image = image.map(|(height, width)| Size { height, width });
        bare_with_positions(rows, registers, image).map(|model| (model.config().image, model.config().position_scope))
    };
    let square = |side| Size::square(side);
    // One interpretation is square: all tokens, class and patches, or patches alone (DeiT III, DINOv2 with registers).
    assert_eq!(read(17, 0, None), Ok((square(16), PositionScope::All)));
    assert_eq!(read(19, 2, None), Ok((square(16), PositionScope::All)));
    assert_eq!(read(17, 2, None), Ok((square(16), PositionScope::Class)));
    assert_eq!(read(16, 2, None), Ok((square(16), PositionScope::Patches)));
    assert_eq!(read(16, 0, None), Ok((square(16), PositionScope::Patches)));
    // 5 x 3 patches and a class token give the same number: an image size with that grid decides.
    assert_eq!(read(16, 0, Some((20, 12))), Ok((Size { height: 20, width: 12 }, PositionScope::All)));
    // No interpretation is square, or two are: 2 x 2 with five tokens before the patches, or 3 x 3.
    for (rows, registers) in [(13, 0), (9, 4)] {
        let error = read(rows, registers, None).expect_err("refused");
        assert_says(&error, &["pos_embed", &format!("{rows} positions"), "--image HxW"]);
    }
    assert_eq!(read(13, 0, Some((12, 16))), Ok((Size { height: 12, width: 16 }, PositionScope::All)));
    assert_eq!(read(9, 4, Some((8, 8))), Ok((square(8), PositionScope::All)));
    assert_eq!(read(9, 4, Some((12, 12))), Ok((square(12), PositionScope::Patches)));
    assert_says(&read(13, 0, Some((16, 16))).expect_err("refused"), &["13 positions", "16x16"]);
}

/// Their widths suggest 12, 18 and 24 heads; timm 1.0.30 builds all with 16.
#[test]
fn heads_that_only_timms_architecture_tells_are_known() {
    for name in ["vit_base_patch16_gap_224", "vit_giantopt_patch16_siglip_gap_256"] {
        let change = |_: &mut Tensors, config: &mut serde_json::Value| {
            config["architecture"] = name.into();
            config["model_args"].as_object_mut().expect("arguments").remove("num_heads");
        };
        let model = opened("timm_token", change, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(model.config().heads, 16, "{name}");
    }
    assert_eq!(infer::usual_heads(1152), 16, "vit_so400m");
}

#[test]
fn what_timm_says_is_held_against_the_shapes() {
    let argument = |key: &'static str, value: serde_json::Value| {
        refusal("timm_token", move |_, config| config["model_args"][key] = value)
    };
    assert_says(&argument("embed_dim", 32.into()), &["`embed_dim`", "32", "16"]);
    assert_says(&argument("depth", 3.into()), &["`depth`"]);
    assert_says(&argument("pre_norm", true.into()), &["`model_args.pre_norm`"]);
    assert_says(&argument("global_pool", "map".into()), &["`model_args.global_pool`", "\"map\""]);
    assert_says(&argument("act_layer", "quick_gelu".into()), &["`model_args.act_layer`"]);
    assert_says(&argument("reg_tokens", 4.into()), &["`reg_tokens`"]);
    assert_says(&argument("img_size", 32.into()), &["`img_size`", "32x32", "16x16"]);
    let error = refusal("timm_token", |_, config| config["num_classes"] = 4.into());
    assert_says(&error, &["`num_classes`", "4", "3"]);
    let error = refusal("timm_token", |_, config| config["architecture"] = "vit_base_patch16_rpn_224".into());
    assert_says(&error, &["`architecture`"]);
    let error = refusal("timm_token", |_, config| *config = serde_json::json!({"model_type": "vit"}));
    assert_says(&error, &["Hugging Face's", "timm's names"]);
    let pre_norm =
        |tensors: &mut Tensors| drop(tensors.insert("norm_pre.weight".to_string(), (vec![16], vec![0.0; 16])));
    assert_says(&refusal("timm_token", |tensors, _| pre_norm(tensors)), &["`norm_pre.weight`"]);
}

#[test]
fn a_head_is_found_by_the_tensors_where_the_configuration_does_not_say() {
    for (name, classes) in [("hf_vit", 3), ("hf_deit_teacher", 3), ("hf_dinov2", 0), ("hf_vit_pooler", 0)] {
        let model = opened(
            name,
            |_, config| drop(config.as_object_mut().unwrap().remove("architectures")),
            &OpenOptions::default(),
        );
        assert_eq!(model.expect(name).config(), open(name).config(), "{name}");
        assert_eq!(open(name).config().classes, classes);
    }
    // A pooler beside a classifier is unused, and not an error.
    let model = opened(
        "hf_vit",
        |tensors, _| {
            tensors.insert("vit.pooler.dense.weight".to_string(), (vec![16, 16], vec![0.0; 256]));
            tensors.insert("vit.pooler.dense.bias".to_string(), (vec![16], vec![0.0; 16]));
        },
        &OpenOptions::default(),
    );
    assert_eq!(model.expect("opens").config(), open("hf_vit").config());
}

#[test]
fn what_training_tools_put_around_a_model_is_taken_off() {
    let plain = open("timm_token");
    for wrapper in ["timm_model.", "module.", "state_dict.model._orig_mod.", "teacher.backbone."] {
        let wrap = |tensors: &mut Tensors, config: &mut serde_json::Value| {
            *tensors = std::mem::take(tensors)
                .into_iter()
                .map(|(name, tensor)| (format!("{wrapper}{name}"), tensor))
                .collect();
            tensors.insert("optimizer.state".to_string(), (vec![1], vec![0.0]));
            tensors.insert("student.backbone.patch_embed.proj.weight".to_string(), (vec![1], vec![0.0]));
            config["model_type"] = "timm_wrapper".into();
        };
        let model = opened("timm_token", wrap, &OpenOptions::default()).expect(wrapper);
        assert_eq!(model.config(), plain.config(), "{wrapper}");
    }
    let unknown = |tensors: &mut Tensors, _: &mut serde_json::Value| {
        *tensors =
            std::mem::take(tensors).into_iter().map(|(name, tensor)| (format!("decoder.{name}"), tensor)).collect();
    };
    assert_says(&refusal("timm_token", unknown), &["decoder.blocks"]);
}

#[test]
fn a_replaced_head_has_no_values_and_everything_else_has() {
    for name in ["hf_vit", "hf_vit_pooler", "hf_deit_teacher", "hf_dinov2", "timm_avg", "npz/pre_logits.npz"] {
        let model = open_with(name, &OpenOptions { replace_head: Some(Head::Classes(7)), ..OpenOptions::default() });
        assert!(
            model.assets.labels.is_empty() && model.config().classes == 7 && model.config().pre_logits.is_none(),
            "{name}"
        );
        assert_eq!(model.config().pooling == Pooling::ClassAndMean, name == "hf_dinov2");
        let mut g = Graph::for_inference();
        vit(&mut g, model.config(), &Call::whole(1)).expect("builds");
        let mut state = State::new(&g).expect("memory");
        state.parameters_mut().fill(f32::NAN);
        model.load(&mut state).expect("loads");
        for parameter in state.table() {
            let values = state.parameter(&parameter.name).expect("known");
            let new = values.iter().any(|value| value.is_nan());
            assert_eq!(new, parameter.name.contains("head."), "{name}: {}", parameter.name);
            assert_eq!(new, model.is_new(&parameter.name));
            assert_eq!(new, model.parameter(&parameter.name).is_err());
        }
    }
    let features = open_with("hf_vit", &OpenOptions { replace_head: Some(Head::None), ..OpenOptions::default() });
    let outputs = run(&features, &[1, 3, 16, 16], &vec![0.5; 768]);
    assert_eq!(outputs.get("features").len(), 16);
}

#[test]
fn what_is_not_a_model_is_refused_with_what_was_looked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |path: &Path| Model::open(path, &OpenOptions::default()).expect_err("refused").to_string();
    assert_says(&refused(directory.path()), &["model.safetensors", "pytorch_model.bin", "*.npz"]);
    assert_says(&refused(&directory.path().join("absent")), &["absent", "cannot open"]);
    assert_says(&refused(&fixture("npz")), &["files of weights, name the one to open: ", "big_vision.npz"]);
    // A single weight file is the model, whatever its name.
    let single = tempfile::tempdir().expect("a directory");
    fs::copy(fixture("facebook_dinov2_registers/dinov2.pth"), single.path().join("any name.pth")).expect("copied");
    Model::open(single.path(), &OpenOptions::default()).expect("opens");
    let other = directory.path().join("other.safetensors");
    write_safetensors(&other, [TensorToWrite::f32("fc.weight", &[1], &[1.0])], &BTreeMap::new()).expect("written");
    assert_says(&refused(&other), &["other.safetensors", "`fc.weight`", "timm"]);
    assert_says(&refused(&fixture("own_post_norm/model.safetensors")), &["config.json"]);

    let copy = directory.path().join("model.safetensors");
    fs::copy(fixture("hf_vit/model.safetensors"), copy).expect("copied");
    let config = directory.path().join("config.json");
    fs::write(&config, "{").expect("written");
    assert_says(&refused(directory.path()), &["config.json", "not JSON"]);
    fs::File::create(&config).and_then(|file| file.set_len(1 << 30)).expect("a hole");
    assert_says(&refused(directory.path()), &["config.json", "64 MiB"]);
}

#[test]
fn a_state_of_another_model_is_refused() {
    let model = open("hf_vit");
    let mut g = Graph::for_inference();
    vit(&mut g, open("hf_deit").config(), &Call::whole(1)).expect("builds");
    let mut state = State::new(&g).expect("memory");
    assert_says(&model.load(&mut state).expect_err("refused").to_string(), &["parameter `"]);
    assert_says(&model.parameter("blocks.9.norm1.weight").expect_err("refused").to_string(), &["is not of this model"]);
}

#[test]
fn an_image_that_is_no_whole_number_of_patches_is_refused() {
    let options = OpenOptions::default().with("image", Size::square(18));
    let error = Model::open(&fixture("hf_vit"), &options).expect_err("refused").to_string();
    assert_says(&error, &["18x18", "4x4 patches"]);
}

#[test]
fn computed_images_of_another_size_are_refused() {
    let config = open("hf_vit").config().clone();
    let [height, width] = [config.image.height, config.image.width];
    let build = |shape: &[usize]| {
        let mut g = Graph::for_inference();
        let images = g.input("pictures", shape, DType::F32).expect("an input");
        let built = vit(&mut g, &config, &Call::default().images(Some(images)))?;
        Ok::<_, vitreous_engine::Error>(g.shape_of(built.need("features")?).axes()[0])
    };
    assert_eq!(build(&[2, 3, height, width]).expect("builds"), 2);
    for shape in [&[2, 1, height, width][..], &[2, 3, width], &[]] {
        let error = build(shape).expect_err("refused").to_string();
        assert_says(&error, &[&format!("images must be [batch, 3, {height}, {width}]")]);
    }
}

#[test]
fn absent_keys_have_the_defaults_of_the_library() {
    let config = |text: &str| described(text).architecture.downcast_ref::<VitConfig>().expect("a ViT").clone();
    let vit = config(r#"{"model_type": "vit"}"#);
    assert_eq!((vit.norm_eps, vit.patch, vit.mlp_dim, vit.depth), (1e-12, Size::square(16), 3072, 12));
    assert_eq!(config(r#"{"model_type": "dinov2"}"#).patch, Size::square(14));
    let registers = config(r#"{"model_type": "dinov2_with_registers", "image_size": [224, 448]}"#);
    assert_eq!((registers.patch, registers.registers, registers.norm_eps), (Size::square(16), 4, 1e-6));
    assert_eq!(registers.image, Size { height: 224, width: 448 });
    // DINOv2-giant: width 1536, and two thirds of four times that.
    let giant =
        config(r#"{"model_type": "dinov2", "hidden_size": 1536, "use_swiglu_ffn": true, "num_attention_heads": 24}"#);
    assert_eq!((giant.mlp_dim, giant.layer_scale), (4096, Some(1.0)));
    let head = config(r#"{"model_type": "vit", "architectures": ["ViTForImageClassification"]}"#);
    assert_eq!(head.classes, 2);
}

/// Files come from strangers: whatever shape a tensor claims, and whichever is missing, the result is a model or an
/// error.
#[test]
fn no_shape_and_no_absence_breaks_the_telling_of_what_a_file_holds() {
    let files = [
        "hf_vit/model.safetensors",
        "hf_deit_teacher/model.safetensors",
        "hf_dinov2_swiglu/model.safetensors",
        "hf_dinov2_swiglu_new_names/model.safetensors",
        "hf_registers/model.safetensors",
        "timm_registers/model.safetensors",
        "timm_swiglu/model.safetensors",
        "npz/pre_logits.npz",
        "npz/big_vision_stacked.npz",
    ];
    const HUGE: usize = usize::MAX;
    let shapes: [&[usize]; 9] = [
        &[],
        &[0],
        &[1],
        &[HUGE],
        &[0, 0, 0, 0],
        &[HUGE, HUGE],
        &[1, HUGE, HUGE],
        &[HUGE, 3, 1, HUGE],
        &[1, 1 << 39, 1 << 39, 1 << 39],
    ];
    let examine = |inventory: &Inventory| -> bool {
        let options = OpenOptions::default();
        let checkpoint = Checkpoint { config: None, gguf: None, tensors: Some(inventory), options: &options };
        let Ok(Some(Reading { architecture, dialect, .. })) = read::read(&checkpoint) else { return false };
        let architecture: &dyn Architecture = architecture.as_ref();
        let Ok(parameters) = architecture.parameters() else { return false };
        let Ok(entries) = dialect.entries(&parameters, Some(inventory)) else { return false };
        problems(&entries, inventory, |name| dialect.concerns(name)).is_empty()
    };
    for file in files {
        let archive = Archive::open(&fixture(file)).expect("opens");
        let whole: Inventory =
            archive.tensors().map(|tensor| (tensor.name().to_string(), tensor.shape.to_vec())).collect();
        // One head of width 16, where the files have two: only Google's files contain the number of heads.
        assert!(examine(&whole), "{file}");
        for name in whole.keys() {
            let mut changed = whole.clone();
            for shape in shapes {
                changed.insert(name.clone(), shape.to_vec());
                examine(&changed);
            }
            changed.remove(name);
            let kept = name.contains("mask_token") || name.contains("state/");
            let optional = ["head", "classifier", "pre_logits", "ls", "lambda1", "bias", "pos", "regist", "reg_"];
            assert!(kept == examine(&changed) || optional.iter().any(|part| name.contains(part)), "{file}: {name}");
        }
    }
}
