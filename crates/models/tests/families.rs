//! What every family must hold to: one walk over the list. A new family is tested by being in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use vitreous_engine::{Caches, DType, Device, Executor, Graph, Parameter, ResultCopy, State, Value};
use vitreous_models::archive::Archive;
use vitreous_models::checkpoint::{Inventory, Presence, problems};
use vitreous_models::{
    Architecture, CacheFormat, Call, FAMILIES, Family, Format, Gives, Model, ModelError, OpenOptions, Part,
    SaveOptions, StepShape, preset, preset_names,
};

/// The limit of the difference to the peers, in results whose size is about one.
const LIMIT: f32 = 2e-5;
const FORMATS: [Format; 4] = [Format::Own, Format::HuggingFace, Format::Npz, Format::Gguf];

fn folder(family: &dyn Family) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/families").join(family.name())
}

/// Directories of models with what the peer computed of them.
fn fixtures(family: &dyn Family) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(family).join("tests/fixtures")).expect("fixtures");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("one").path()).collect();
    found.retain(|path| path.join("config.json").is_file() && path.join("expected.safetensors").is_file());
    // Gradients in the form of a checkpoint are no model.
    found.retain(|path| !path.to_string_lossy().ends_with("_gradients"));
    found.sort();
    found
}

fn open(path: &Path) -> Model {
    Model::open(path, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// All models that are looked at: presets, and those of fixtures.
fn models(family: &dyn Family) -> Vec<(String, Box<dyn Architecture>)> {
    let presets = family.presets().into_iter().map(|name| {
        let model = family.preset(&name).unwrap_or_else(|| panic!("{name} is no preset"));
        (name, model)
    });
    let fixtures = fixtures(family).into_iter().map(|path| (path.display().to_string(), open(&path).architecture));
    presets.chain(fixtures).collect()
}

#[test]
fn a_family_is_a_folder_with_a_peers_fixture_and_the_script_that_made_it() {
    for family in FAMILIES {
        let name = family.name();
        for file in ["mod.rs", "config.rs", "graph.rs", "presets.rs", "tests/make.py"] {
            assert!(folder(family).join(file).is_file(), "{name}: there is no {file}");
        }
        assert!(!fixtures(family).is_empty(), "{name} has no fixture");
        assert!(!family.presets().is_empty(), "{name} has no preset");
    }
    let names: BTreeSet<String> = preset_names().into_iter().collect();
    assert_eq!(names.len(), preset_names().len(), "a preset's name is of one family");
}

#[test]
fn every_preset_builds_and_its_settings_say_all_of_it() {
    for family in FAMILIES {
        for (name, model) in models(family) {
            let again = family.from_settings(&model.settings()).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
            assert_eq!(again.settings(), model.settings(), "{name}");
            assert_eq!(again.parameters().expect("builds"), model.parameters().expect("builds"), "{name}");
            assert_eq!(again.signature(), model.signature(), "{name}");
            assert_eq!(again.family().name(), family.name());
        }
        let unknown = OpenOptions::default().with("no_such_setting", 1);
        assert!(family.from_settings(&unknown.settings).is_err(), "{}: takes any setting", family.name());
    }
    assert!(preset("vit_base_patch16_224").is_some() && preset("no_such_preset").is_none());
}

/// Every parameter is in exactly one tensor, every tensor has a name of its own, and a file of these tensors is read by the same names.
#[test]
fn names_cover_every_parameter_both_ways() {
    for family in FAMILIES {
        for (model_name, model) in models(family) {
            let parameters = model.parameters().expect("builds");
            for dialect in FORMATS.iter().filter_map(|&format| model.dialect(format).ok()) {
                let context = format!("{model_name}, {}", dialect.library);
                let entries = dialect.entries(&parameters, None).unwrap_or_else(|error| panic!("{context}: {error}"));
                let needed = entries.iter().filter(|entry| entry.presence == Presence::Needed);
                let mut covered: Vec<&String> = needed.flat_map(|entry| &entry.atoms).collect();
                let mut expected: Vec<String> = parameters.iter().flat_map(Parameter::part_names).collect();
                covered.sort();
                expected.sort();
                assert_eq!(covered, expected.iter().collect::<Vec<_>>(), "{context}");
                let file: Inventory = entries.iter().map(|entry| (entry.name.clone(), entry.shape.clone())).collect();
                assert_eq!(file.len(), entries.len(), "{context}: two tensors have one name");
                let read = dialect.entries(&parameters, Some(&file)).expect("reads");
                assert_eq!(read, entries, "{context}");
                assert_eq!(problems(&read, &file, |_| true), [], "{context}");
            }
        }
    }
}

/// A model that was saved, opened and saved again is the same to the byte; so are its values.
#[test]
fn what_is_saved_is_opened_as_it_was() {
    for family in FAMILIES {
        for path in fixtures(family) {
            let (first, second) =
                (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
            let model = open(&path);
            model.save(first.path(), &SaveOptions::default()).unwrap_or_else(|error| panic!("{error}"));
            let again = open(first.path());
            assert_eq!(again.architecture.settings(), model.architecture.settings(), "{}", path.display());
            assert_eq!(again.assets.labels, model.assets.labels, "{}", path.display());
            for parameter in model.parameters() {
                let values = |model: &Model| -> Vec<u32> {
                    model.parameter(&parameter.name).expect("there").iter().map(|value| value.to_bits()).collect()
                };
                assert!(values(&model) == values(&again), "{}: {}", path.display(), parameter.name);
            }
            again.save(second.path(), &SaveOptions::default()).unwrap_or_else(|error| panic!("{error}"));
            for file in ["config.json", "model.safetensors"] {
                let bytes = |directory: &Path| fs::read(directory.join(file)).expect("written");
                assert!(bytes(first.path()) == bytes(second.path()), "{}: {file}", path.display());
            }
        }
    }
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

/// The peer's inputs through the model: the largest difference to each of the peer's results.
fn compare(path: &Path) -> Result<BTreeMap<String, f32>, Failed> {
    let model = open(path);
    let expected = Archive::open(&path.join("expected.safetensors")).expect("opens");
    let tensor = |name: &str| {
        let view = expected.tensor(name).unwrap_or_else(|error| panic!("{error}"));
        (view.shape.to_vec(), view.to_f32().expect("numbers").into_owned())
    };
    // An input is called as the graph's is, with `.in` behind it where a result has the same name.
    let input = |name: &str| {
        [format!("{name}.in"), name.to_string()].into_iter().find(|name| expected.names().any(|known| known == name))
    };
    let axes = |name: &str| input(name).map(|name| tensor(&name).0);
    let first = ["images", "tokens", "source", "mel"].into_iter().find_map(axes).expect("an input");
    let mut call = Call::whole(first[0]).tokens(first[1]);
    if let Some(tokens) = axes("tokens") {
        call = call.tokens(tokens[1]);
    }
    if let Some(target) = axes("target") {
        call = call.target(target[1]);
    }
    let mut graph = Graph::for_inference();
    let outputs = model.architecture.build(&mut graph, &call)?;
    let values: Vec<Value> = outputs.iter().map(|(_, value)| value).collect();
    let device = Device::Cpu { threads: 2 };
    let plan = device.plan_with_fixed_weights(&graph, &values)?;
    let lend = |parameter: &Parameter| Ok::<_, Failed>(model.parameter(&parameter.name)?);
    let mut executor = Executor::with_weights(plan, &device, lend)?;
    let mut fed = BTreeSet::new();
    for (name, value) in graph.inputs() {
        let theirs = input(name).unwrap_or_else(|| panic!("{}: no input `{name}`", path.display()));
        let (_, numbers) = tensor(&theirs);
        match graph.type_of(value).dtype {
            DType::I32 => {
                let to = executor.input_i32(name)?;
                to.iter_mut().zip(&numbers).for_each(|(to, &number)| *to = number as i32);
            }
            _ => executor.input(name)?.copy_from_slice(&numbers),
        }
        fed.insert(theirs);
    }
    executor.infer()?;
    let mut differences = BTreeMap::new();
    for name in expected.names().filter(|name| !fed.contains(*name)) {
        let value = outputs.get(name).unwrap_or_else(|| panic!("{}: it gives no `{name}`", path.display()));
        let (_, theirs) = tensor(name);
        let ours = executor.output(value)?;
        assert_eq!(ours.len(), theirs.len(), "{}: {name}", path.display());
        // What the peer computes of padding is left out as NaN.
        let compared: Vec<f32> =
            ours.iter().zip(&theirs).filter(|(_, t)| !t.is_nan()).map(|(o, t)| (o - t).abs()).collect();
        assert!(!compared.is_empty());
        let worst = compared.iter().fold(0f32, |most, &d| if d > most || d.is_nan() { d } else { most });
        differences.insert(name.to_string(), worst);
    }
    Ok(differences)
}

#[test]
fn every_family_computes_what_its_peer_does() {
    for family in FAMILIES {
        for path in fixtures(family) {
            let differences = compare(&path).unwrap_or_else(|error| panic!("{}: {}", path.display(), error.0));
            assert!(!differences.is_empty(), "{}: nothing is compared", path.display());
            for (name, difference) in differences {
                assert!(difference < LIMIT, "{}: {name} differs by {difference:e}", path.display());
            }
        }
    }
}

/// A graph made ready with a model's weights.
fn ready(model: &Model, graph: &Graph, outputs: &[Value]) -> Result<Executor, Failed> {
    let device = Device::Cpu { threads: 2 };
    let plan = device.plan_with_fixed_weights(graph, outputs)?;
    let lend = |parameter: &Parameter| Ok::<_, Failed>(model.parameter(&parameter.name)?);
    Executor::with_weights(plan, &device, lend)
}

/// Decodes a target token by token with KV caches: the largest difference to the logits of teacher forcing.
fn decode_stepwise(model: &Model, source: &[i32], target: &[i32]) -> Result<f32, Failed> {
    let architecture = model.architecture.as_ref();
    let (length, written) = (source.len(), target.len());
    let give_source = |executor: &mut Executor| -> Result<(), Failed> {
        executor.input_i32("source")?.copy_from_slice(source);
        executor.input_i32("source_lengths")?.fill(length as i32);
        Ok(())
    };
    let mut graph = Graph::for_inference();
    let whole = architecture.build(&mut graph, &Call::whole(1).tokens(length).target(written))?.need("logits")?;
    let mut teacher = ready(model, &graph, &[whole])?;
    give_source(&mut teacher)?;
    teacher.input_i32("target")?.copy_from_slice(target);
    teacher.infer()?;
    let expected = teacher.output(whole)?;

    let mut graph = Graph::for_inference();
    let results = architecture.build(&mut graph, &Call::whole(1).tokens(length).part(Part::Encode))?;
    let results: Vec<(Value, String)> = results.iter().map(|(name, value)| (value, name.to_string())).collect();
    let mut encoder = ready(model, &graph, &results.iter().map(|(value, _)| *value).collect::<Vec<_>>())?;
    give_source(&mut encoder)?;
    encoder.infer()?;

    let mut graph = Graph::for_inference();
    let shape = StepShape { batch: 1, source: length, capacity: written, cache: CacheFormat::F32 };
    let logits = architecture.build(&mut graph, &shape.into())?.need("logits")?;
    let mut decoder = ready(model, &graph, &[logits])?;
    let mut caches = Caches::new(&[&graph], &Device::Cpu { threads: 2 })?;
    caches.copy_results(&mut encoder, &results, &[ResultCopy { sample: 0, slot: 0, rows: length }])?;
    let mut worst = 0f32;
    for (place, (&token, expected)) in target.iter().zip(expected.chunks_exact(expected.len() / written)).enumerate() {
        for (name, number) in [("token", token), ("place", place as i32), ("length", place as i32 + 1)] {
            decoder.input_i32(name)?.fill(number);
        }
        decoder.input_i32("source_lengths")?.fill(length as i32);
        if graph.inputs().any(|(name, _)| name == "distances") {
            let distances = decoder.input_i32("distances")?;
            distances.iter_mut().enumerate().for_each(|(key, to)| *to = place.saturating_sub(key) as i32);
        }
        decoder.infer_with(&mut caches)?;
        let differences = decoder.output(logits)?;
        let differences = differences.iter().zip(expected).map(|(got, expected)| (got - expected).abs());
        worst = differences.fold(worst, |most, d| if d > most || d.is_nan() { d } else { most });
    }
    Ok(worst)
}

/// Continues three sequences with KV caches, some tokens at a time: the largest difference to the logits of the whole.
fn continue_stepwise(model: &Model, chunk: usize) -> Result<f32, Failed> {
    const SEQUENCES: [[i32; 7]; 3] = [[3, 5, 1, 4, 2, 6, 0], [1, 1, 2, 0, 5, 3, 4], [6, 0, 3, 3, 1, 2, 5]];
    const LENGTHS: [usize; 3] = [7, 5, 6];
    let architecture = model.architecture.as_ref();
    let mut graph = Graph::for_inference();
    let whole = architecture.build(&mut graph, &Call::whole(3).tokens(7))?.need("logits")?;
    let mut all_at_once = ready(model, &graph, &[whole])?;
    all_at_once.input_i32("tokens")?.copy_from_slice(SEQUENCES.as_flattened());
    all_at_once.input_i32("lengths")?.iter_mut().zip(LENGTHS).for_each(|(to, length)| *to = length as i32);
    all_at_once.infer()?;
    let expected = all_at_once.output(whole)?;

    let mut graph = Graph::for_inference();
    // Room for the last, partly empty chunk.
    let capacity = 7usize.next_multiple_of(chunk);
    let call = Call::whole(3).tokens(chunk).target(capacity).part(Part::Step);
    let logits = architecture.build(&mut graph, &call)?.need("logits")?;
    let mut decoder = ready(model, &graph, &[logits])?;
    let mut caches = Caches::new(&[&graph], &Device::Cpu { threads: 2 })?;
    let inputs: Vec<String> = graph.inputs().map(|(name, _)| name.to_string()).collect();
    let (mut worst, mut compared) = (0f32, 0);
    for first in (0..7).step_by(chunk) {
        for name in &inputs {
            let to = decoder.input_i32(name)?;
            let (count, chunked) = (to.len(), to.len() == 3 * chunk && name != "last");
            for (index, to) in to.iter_mut().enumerate() {
                let row = if chunked { index / chunk } else { index };
                let known = LENGTHS[row].clamp(first, first + chunk);
                let place = first + if chunked { index % chunk } else { 0 };
                *to = match name.as_str() {
                    "tokens" => SEQUENCES[row].get(place).copied().unwrap_or(0),
                    "positions" => place.min(6) as i32,
                    "place" | "row" => first as i32,
                    "length" => known.max(1) as i32,
                    "last" => (row * chunk + known.max(first + 1) - 1 - first) as i32,
                    other => panic!("{count} values of an unknown input {other}"),
                };
            }
        }
        decoder.infer_with(&mut caches)?;
        let got = decoder.output(logits)?;
        let vocabulary = got.len() / 3;
        for row in (0..3).filter(|&row| LENGTHS[row] > first) {
            let last = LENGTHS[row].min(first + chunk) - 1;
            let expected = &expected[(row * 7 + last) * vocabulary..][..vocabulary];
            let differences =
                got[row * vocabulary..].iter().zip(expected).map(|(got, expected)| (got - expected).abs());
            worst = differences.fold(worst, |most, d| if d > most || d.is_nan() { d } else { most });
            compared += 1;
        }
    }
    assert!(compared >= 3);
    Ok(worst)
}

#[test]
fn decoding_with_a_cache_is_computing_everything_at_once() {
    let (mut decoders, mut language_models) = (0, 0);
    for family in FAMILIES {
        for path in fixtures(family) {
            let model = open(&path);
            let gives = model.architecture.signature().gives;
            let compare = |difference: Result<f32, Failed>| {
                let difference = difference.unwrap_or_else(|error| panic!("{}: {}", path.display(), error.0));
                assert!(difference < LIMIT, "{}: logits differ by {difference:e}", path.display());
            };
            let listens = model.architecture.signature().audio().is_some();
            if gives.iter().any(|gives| matches!(gives, Gives::Sequence(_))) && !listens {
                compare(decode_stepwise(&model, &[3, 5, 1, 4], &[1, 6, 2, 5, 3]));
                decoders += 1;
            }
            if gives.iter().any(|gives| matches!(gives, Gives::NextToken(_))) {
                // Token by token, in chunks of which the last is partly empty, and all at once.
                [1, 4, 7].into_iter().for_each(|chunk| compare(continue_stepwise(&model, chunk)));
                language_models += 1;
            }
        }
    }
    assert!(decoders > 0 && language_models > 0);
}

/// A configuration can ask for more than any machine has. Its graph is built without memory, and what would take some is refused
/// before it does: with what is needed, and what there is.
#[cfg(target_os = "linux")] // where the system tells what is available
#[test]
fn a_model_beyond_memory_is_refused_before_any_is_taken() {
    let available = vitreous_engine::machine::available_memory().expect("Linux tells");
    for family in FAMILIES {
        let (name, model) = models(family).swap_remove(0);
        // A dim at which one matrix of a layer alone takes more than there is.
        let dim = (1 << 16) * ((available as f64).sqrt() / f64::from(1 << 15)).ceil() as usize;
        let mut changes = OpenOptions::default().with("dim", dim).with("heads", 1).settings;
        for key in ["kv_heads", "decoder_heads"].into_iter().filter(|key| model.settings().contains_key(*key)) {
            changes.insert(key.to_string(), 1.into());
        }
        let large = model.with_settings(&changes).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let mut graph = Graph::for_inference();
        large.build(&mut graph, &Call::whole(1)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let said = State::new(&graph).expect_err(&name).to_string();
        assert!(
            said.contains(" parameters needs ") && said.contains(" are available; take a smaller"),
            "{name}: {said}"
        );
    }
}

/// Without weights nothing else bounds their number, and each takes time to build and plan.
#[test]
fn no_family_builds_more_layers_than_any_model_has() {
    for family in FAMILIES {
        let (name, model) = models(family).swap_remove(0);
        let layers = ["depth", "encoder_layers"].into_iter().find(|key| model.settings().contains_key(*key));
        let key = layers.unwrap_or_else(|| panic!("{name} says its layers in another way"));
        let of = |layers: usize| model.with_settings(&OpenOptions::default().with(key, layers).settings);
        assert!(of(1000).is_ok(), "{name}");
        let said = of(1001).expect_err(&name).to_string();
        assert!(said.contains("1000"), "{name}: {said}");
    }
}
