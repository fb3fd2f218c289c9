//! What the walk over all families does not see: open_clip's and OpenAI's files, gradients of the contrastive losses, and refusals.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, GradientOptions, Graph, Group, Mode, Optimizer, Parameter, Precision,
    Run, State, StepOptions, Value,
};

use super::{ClipConfig, Towers, Variant};
use crate::archive::Archive;
use crate::testing::{fixture, largest_difference, tensor};
use crate::{Architecture, Call, CaptionToken, Format, Model, OpenOptions, POOLED, Part, Preprocessing, Size};

/// The fixtures, with whose names and configuration they have.
const FIXTURES: [&str; 6] = ["clip", "clip_legacy", "siglip", "laion", "laion_siglip", "openai"];

fn options(name: &str) -> OpenOptions {
    match name {
        // The name of timm's model tells nobody its heads.
        "laion_siglip" => OpenOptions::default().with("heads", 3),
        _ => OpenOptions::default(),
    }
}

/// A directory, or OpenAI's file.
fn path(name: &str) -> PathBuf {
    let folder = fixture("clip", name);
    if name == "openai" { folder.join("model.pt") } else { folder }
}

fn open(name: &str) -> Model {
    Model::open(&path(name), &options(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn config(model: &Model) -> &ClipConfig {
    model.architecture.downcast_ref::<ClipConfig>().expect("a CLIP")
}

struct Peer {
    archive: Archive,
}

impl Peer {
    fn of(name: &str) -> Peer {
        Peer { archive: Archive::open(&fixture("clip", name).join("expected.safetensors")).expect("opens") }
    }

    fn tensor(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        tensor(&self.archive, name)
    }

    fn fill(&self, executor: &mut Executor, graph: &Graph) {
        for (name, value) in graph.inputs().filter(|(name, _)| self.archive.names().any(|known| known == *name)) {
            let (_, numbers) = self.tensor(name);
            match graph.type_of(value).dtype {
                DType::I32 => {
                    let to = executor.input_i32(name).expect("an input");
                    to.iter_mut().zip(&numbers).for_each(|(to, &number)| *to = number as i32);
                }
                _ => executor.input(name).expect("an input").copy_from_slice(&numbers),
            }
        }
    }

    fn call(&self) -> Call<'static> {
        let tokens = self.tensor("tokens").0;
        Call::whole(tokens[0]).tokens(tokens[1])
    }
}

#[test]
fn embeddings_and_logits_are_those_of_transformers_open_clip_and_openai() {
    for name in FIXTURES {
        let (model, peer) = (open(name), Peer::of(name));
        let mut graph = Graph::for_inference();
        let outputs = model.architecture.build(&mut graph, &peer.call()).expect("builds");
        let names = ["image_embeddings", "text_embeddings", "logits"];
        let values: Vec<Value> = names.iter().map(|name| outputs.need(name).expect("an output")).collect();
        let device = Device::Cpu { threads: 2 };
        let plan = device.plan_with_fixed_weights(&graph, &values).expect("a plan");
        let lend = |parameter: &Parameter| {
            model.parameter(&parameter.name).map_err(|error| vitreous_engine::Error::Machine(error.to_string()))
        };
        let mut executor = Executor::with_weights(plan, &device, lend).expect("memory");
        peer.fill(&mut executor, &graph);
        executor.infer().expect("runs");
        for (output, value) in names.into_iter().zip(values) {
            let worst = largest_difference(&executor.output(value).expect("there"), &peer.tensor(output).1);
            assert!(worst < 1e-4, "{name}: {output} differs by {worst:e}");
        }
    }
}

/// One tower alone gives what it gives beside the other.
#[test]
fn a_tower_alone_gives_the_same_embeddings() {
    for name in FIXTURES {
        let peer = Peer::of(name);
        for (towers, output) in [(Towers::Image, "image_embeddings"), (Towers::Text, "text_embeddings")] {
            let options = options(name).with("towers", towers);
            let model = Model::open(&path(name), &options).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut graph = Graph::for_inference();
            let features = model.architecture.build(&mut graph, &peer.call()).expect("builds").need("features");
            let features = features.expect("an output");
            let device = Device::Cpu { threads: 1 };
            let plan = device.plan_with_fixed_weights(&graph, &[features]).expect("a plan");
            let lend = |parameter: &Parameter| {
                model.parameter(&parameter.name).map_err(|error| vitreous_engine::Error::Machine(error.to_string()))
            };
            let mut executor = Executor::with_weights(plan, &device, lend).expect("memory");
            peer.fill(&mut executor, &graph);
            executor.infer().expect("runs");
            let worst = largest_difference(&executor.output(features).expect("there"), &peer.tensor(output).1);
            assert!(worst < 1e-4, "{name}: {output} differs by {worst:e}");
            assert!(model.architecture.dialect(Format::HuggingFace).is_err());
        }
    }
}

/// The place of the end is found as the libraries find it, in tokens with two of them.
#[test]
fn texts_are_pooled_where_the_libraries_pool_them() {
    for name in FIXTURES.into_iter().filter(|name| !name.contains("siglip")) {
        let (model, peer) = (open(name), Peer::of(name));
        let captions = config(&model).captions();
        let (shape, tokens) = peer.tensor("tokens");
        let rows = tokens.chunks_exact(shape[1]).enumerate().map(|(row, tokens)| {
            let ids: Vec<u32> = tokens.iter().map(|&id| id as u32).collect();
            (row * shape[1] + captions.place(&ids)) as f32
        });
        assert_eq!(rows.collect::<Vec<f32>>(), peer.tensor("pooled").1, "{name}");
    }
    assert_eq!(config(&open("clip")).captions().pooled, CaptionToken::End(59));
    assert_eq!(config(&open("clip_legacy")).captions().pooled, CaptionToken::Largest);
    let last = config(&open("siglip")).captions();
    assert_eq!((last.place(&[3, 4]), last.padded_length(2), last.padding()), (6, 7, 1));
}

/// A file of a fixture as the weights of a model.
fn open_weights(name: &str, weights: &str) -> Model {
    let (from, folder) = (fixture("clip", name), tempfile::tempdir().expect("a folder"));
    for file in ["config.json", "open_clip_config.json"].iter().filter(|file| from.join(file).is_file()) {
        fs::copy(from.join(file), folder.path().join(file)).expect("copied");
    }
    fs::copy(from.join(weights), folder.path().join("model.safetensors")).expect("copied");
    Model::open(folder.path(), &options(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The loss of both papers over a batch whose pairs lie on the diagonal.
fn contrastive_loss(graph: &mut Graph, variant: Variant, logits: Value) -> Value {
    let rows = graph.shape_of(logits).rows();
    match variant {
        Variant::Clip => {
            let own: Vec<i32> = (0..rows as i32).collect();
            let targets = graph.constant_i32("own", [rows], &own).expect("a constant");
            let columns = graph.transpose(logits, &[1, 0]).expect("a matrix");
            let options = CrossEntropyOptions::default();
            let of_images = graph.cross_entropy(logits, targets, options).expect("a loss");
            let of_texts = graph.cross_entropy(columns, targets, options).expect("a loss");
            let both = graph.add(of_images, of_texts).expect("numbers");
            graph.scale(both, 0.5).expect("a number")
        }
        Variant::Siglip => {
            let diagonal = (0..rows * rows).map(|at| if at % (rows + 1) == 0 { 1.0 } else { 0.0 }).collect();
            let targets = graph.constant("own", [rows, rows], diagonal).expect("a constant");
            graph.binary_cross_entropy(logits, targets, true).expect("a loss")
        }
    }
}

#[test]
fn gradients_of_the_contrastive_losses_are_those_of_pytorch() {
    for name in FIXTURES.into_iter().filter(|name| *name != "openai") {
        let (model, peer) = (open(name), Peer::of(name));
        let expected = open_weights(name, "gradients.safetensors");
        let mut graph = Graph::new(Mode::Training, Precision::F32);
        let outputs = model.architecture.build(&mut graph, &peer.call()).expect("builds");
        let loss = contrastive_loss(&mut graph, config(&model).variant, outputs.need("logits").expect("an output"));
        let group = |_: &Parameter| Some(Group { decay: 0.0, rate_factor: 1.0 });
        let options = StepOptions {
            optimizer: Optimizer::adamw(),
            group: &group,
            clip: None,
            ema: false,
            gradient: GradientOptions::default(),
        };
        graph.accumulation_step(loss, &options).expect("gradients");
        let device = Device::Cpu { threads: 2 };
        let plan = device.plan(&graph, &[loss]).expect("a plan");
        let mut state = State::new(&graph).expect("memory");
        model.load(&mut state).expect("loads");
        let mut executor = Executor::new(plan, &device).expect("memory");
        peer.fill(&mut executor, &graph);
        executor.input("accumulate").expect("an input")[0] = 0.0;
        executor.run(&mut state, Run::default()).expect("runs");
        for parameter in model.parameters() {
            let theirs = expected.parameter(&parameter.name).expect("there");
            let ours = state.gradient(&parameter.name).expect("there");
            // Relative to the largest number of a gradient, as in the tests of language models.
            let most = theirs.iter().fold(1e-3_f32, |most, number| most.max(number.abs()));
            let worst = largest_difference(ours, &theirs) / most;
            assert!(worst < 1e-5, "{name}: the gradient of {} differs by {worst:e}", parameter.name);
        }
    }
}

/// What is written in Hugging Face's names, whatever a model was read from, is read back as the same model.
#[test]
fn every_dialect_is_written_as_a_directory_of_hugging_face() {
    for name in FIXTURES {
        let (model, folder) = (open(name), tempfile::tempdir().expect("a folder"));
        model.save(folder.path(), &crate::SaveOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let again =
            Model::open(folder.path(), &OpenOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(again.library(), Some("Hugging Face"), "{name}");
        assert_eq!(again.architecture.settings(), model.architecture.settings(), "{name}");
        for parameter in model.parameters() {
            let values = |model: &Model| model.parameter(&parameter.name).expect("there").into_owned();
            assert_eq!(values(&again), values(&model), "{name}: {}", parameter.name);
        }
    }
}

#[test]
fn images_are_prepared_as_the_libraries_do_where_no_file_says_how() {
    let processor = |name: &str| -> Json {
        match open(name).assets.preprocessing {
            Some(Preprocessing::HuggingFace(bytes)) => serde_json::from_slice(&bytes).expect("JSON"),
            other => panic!("{name}: {other:?}"),
        }
    };
    let openai = processor("openai");
    assert_eq!((&openai["size"], &openai["crop_size"]["height"]), (&json!({"shortest_edge": 14}), &json!(14)));
    assert_eq!((&openai["resample"], &openai["image_mean"][0]), (&json!(3), &json!(0.481_454_66)));
    let squashed = processor("laion_siglip");
    assert_eq!((&squashed["size"], squashed.get("do_center_crop")), (&json!({"height": 20, "width": 20}), None));
    assert_eq!(squashed["image_std"], json!([0.5, 0.5, 0.5]));
}

/// Positions are resized when images of another size are asked for.
#[test]
fn another_image_size_is_taken() {
    let options = OpenOptions::default().with("image", Size::square(35));
    let model = Model::open(&fixture("clip", "clip"), &options).expect("opens");
    assert_eq!(model.parameter("image.positions").expect("there").len(), 26 * 18);
}

fn changed(name: &str, file: &str, change: impl FnOnce(&mut Json)) -> String {
    let (from, folder) = (fixture("clip", name), tempfile::tempdir().expect("a folder"));
    for entry in fs::read_dir(&from).expect("a folder").map(|entry| entry.expect("one").path()) {
        fs::copy(&entry, folder.path().join(entry.file_name().expect("a name"))).expect("copied");
    }
    fs::remove_file(folder.path().join("gradients.safetensors")).expect("removed");
    fs::remove_file(folder.path().join("expected.safetensors")).expect("removed");
    let path: &Path = &folder.path().join(file);
    let mut json: Json = serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON");
    change(&mut json);
    fs::write(path, json.to_string()).expect("written");
    Model::open(folder.path(), &options(name)).expect_err("refused").to_string()
}

#[test]
fn configurations_that_contradict_themselves_are_refused_in_a_sentence() {
    let hugging_face = |change: fn(&mut Json)| changed("clip", "config.json", change);
    for (said, wanted) in [
        (hugging_face(|c| c["text_config"]["hidden_act"] = json!("gelu")), "they must be the same"),
        (hugging_face(|c| c["text_config"]["hidden_act"] = json!("mish")), "mish"),
        (hugging_face(|c| c["text_config"] = json!(3)), "settings of a tower"),
        (
            hugging_face(|c| c["text_config"]["num_attention_heads"] = json!(5)),
            "in the text tower, 5 heads do not divide",
        ),
        (hugging_face(|c| c["vision_config"]["image_size"] = json!(20)), "whole number of 7x7 patches"),
        (hugging_face(|c| c["projection_dim"] = json!(12)), "visual_projection.weight"),
        (hugging_face(|c| c["vision_config"]["num_hidden_layers"] = json!(1_000_000)), "layers"),
        (
            changed("siglip", "config.json", |c| c["text_config"]["projection_size"] = json!(9)),
            "SigLIP's images are not projected",
        ),
        (
            changed("laion", "open_clip_config.json", |c| {
                c["model_cfg"]["vision_cfg"]["attentional_pool"] = json!(true)
            }),
            "vision_cfg.attentional_pool",
        ),
        (
            changed("laion", "open_clip_config.json", |c| c["model_cfg"]["vision_cfg"]["layers"] = json!([3, 4, 6, 3])),
            "ResNet",
        ),
        (
            changed("laion", "open_clip_config.json", |c| c["model_cfg"]["text_cfg"]["no_causal_mask"] = json!(true)),
            "other combinations",
        ),
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
        assert!(!said.contains('\n') || said.contains("tensor"), "{said}");
    }
}

#[test]
fn texts_beyond_the_positions_are_refused() {
    let config = ClipConfig { max_length: 8, depth: 1, text_depth: 1, ..ClipConfig::default() };
    let error = config.build(&mut Graph::for_inference(), &Call::whole(1).tokens(9)).expect_err("too long").to_string();
    assert!(error.contains("longer than max_length, 8"), "{error}");
    let error = config.build(&mut Graph::for_inference(), &Call::whole(1).part(Part::Step)).expect_err("no decoder");
    assert!(error.to_string().contains("no decoder"), "{error}");
    let mut graph = Graph::for_inference();
    config.build(&mut graph, &Call::whole(2).tokens(5)).expect("builds");
    assert!(graph.inputs().any(|(name, _)| name == POOLED));
}
