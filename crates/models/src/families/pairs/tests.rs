//! What the walk over all families does not see of encoder-decoders: gradients, refusals, and left-over tensors.

use serde_json::{Value as Json, json};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Edit, EditValues, Executor, GradientOptions, Graph, Mode, Plan, Precision,
    Role, Run, State, Value,
};

use crate::archive::Archive;
use crate::generate::{EarlyStopping, Hypothesis, SearchOptions, TargetRules, TranslateOptions, Translator};
use crate::testing::{fixture, largest_difference, tensor};
use crate::{Call, Model, OpenOptions, Part, SpecialTokens, Takes};

fn open(family: &str, name: &str) -> Model {
    let path = fixture(family, name);
    Model::open(&path, &OpenOptions::default()).unwrap_or_else(|error| panic!("{family}, {name}: {error}"))
}

fn feed(executor: &mut Executor, graph: &Graph, archive: &Archive) {
    for (name, value) in graph.inputs() {
        let (_, numbers) = tensor(archive, name);
        if graph.type_of(value).dtype == DType::F32 {
            executor.input(name).expect("an input").copy_from_slice(&numbers);
            continue;
        }
        let to = executor.input_i32(name).expect("an input");
        to.iter_mut().zip(&numbers).for_each(|(to, &number)| *to = number as i32);
    }
}

/// Gradients of the mean cross-entropy of all tokens of the targets.
fn compare_gradients(family: &str, name: &str) {
    let gradients_name = format!("{name}_gradients");
    let (model, expected) = (open(family, name), open(family, &gradients_name));
    let archive = Archive::open(&fixture(family, &gradients_name).join("expected.safetensors")).expect("opens");
    let ((source, _), (target, _)) = (tensor(&archive, "source"), tensor(&archive, "target"));
    let call = Call::whole(source[0]).tokens(source[1]).target(target[1]);
    // The fixtures were computed without dropout, which only training has.
    let mut g = Graph::new(Mode::Inference, Precision::F32);
    let logits = model.architecture.build(&mut g, &call).expect("builds").need("logits").expect("logits");
    let (tokens, vocabulary) = (target[0] * target[1], g.shape_of(logits).columns());
    let logits = g.reshape(logits, [tokens, vocabulary]).expect("rows");
    let targets = g.input("targets", [tokens], DType::I32).expect("an input");
    let loss = g.cross_entropy(logits, targets, CrossEntropyOptions::default()).expect("a loss");
    let trained = g.parameters().iter().filter(|parameter| parameter.role() != Role::Constant);
    let names: Vec<String> = trained.map(|parameter| parameter.name.clone()).collect();
    let wanted: Vec<Value> = names.iter().map(|name| g.find(name).expect("a parameter")).collect();
    let gradients = g.gradients(loss, &wanted, GradientOptions::default()).expect("gradients");
    let values: Vec<Value> = gradients.iter().copied().chain([loss]).collect();
    let device = Device::Cpu { threads: 2 };
    let mut executor = Executor::new(Plan::for_cpu(&g, &values).expect("plans"), &device).expect("runs");
    let mut state = State::new(&g).expect("memory");
    model.load(&mut state).expect("loads");
    feed(&mut executor, &g, &archive);
    executor.run(&mut state, Run::default()).expect("a run");
    let (_, expected_loss) = tensor(&archive, "loss");
    assert!((executor.number(loss).expect("a loss") - expected_loss[0]).abs() < 1e-5, "{family}, {name}");
    for (parameter, &gradient) in names.iter().zip(&gradients) {
        let theirs = expected.parameter(parameter).expect(parameter);
        let can_vanish = parameter.ends_with("key.bias") || parameter.ends_with("qkv.bias");
        assert!(theirs.iter().any(|number| number.abs() > 1e-5) || can_vanish, "{parameter}");
        let difference = largest_difference(&executor.output(gradient).expect("a result"), &theirs);
        assert!(difference < 1e-5, "{family}, {name}: gradient of {parameter} differs by {difference:e}");
    }
}

#[test]
fn gradients_are_pytorchs() {
    for (family, names) in [("t5", ["model", "gated", "mt5"]), ("bart", ["model", "mbart", "marian"])] {
        names.iter().for_each(|name| compare_gradients(family, name));
    }
}

/// The logits of a fixture's pairs by a model with one value edited.
fn edited_logits(family: &str, name: &str, path: &str, edit: Edit) -> Vec<f32> {
    let model = open(family, name).with(path, edit).unwrap_or_else(|error| panic!("{family}, {name}: {error}"));
    let archive = Archive::open(&fixture(family, name).join("expected.safetensors")).expect("opens");
    let (target, _) = tensor(&archive, "target");
    let call = Call::whole(target[0]).target(target[1]);
    let has_source = archive.names().any(|name| name == "source");
    let call = if has_source { call.tokens(tensor(&archive, "source").0[1]) } else { call };
    let mut g = Graph::for_inference();
    let logits = model.architecture.build(&mut g, &call).expect("builds").need("logits").expect("logits");
    let device = Device::Cpu { threads: 2 };
    let plan = device.plan_with_fixed_weights(&g, &[logits]).expect("plans");
    let mut executor = Executor::with_weights(plan, &device, |parameter| model.weight(&parameter.name)).expect("runs");
    feed(&mut executor, &g, &archive);
    executor.infer().expect("a run");
    executor.output(logits).expect("logits")
}

/// `edits.safetensors` has what PyTorch's hooks in `transformers`' own models give (`make_edits.py`).
#[test]
fn an_edit_is_the_peers_hook() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/families/pairs/edits.safetensors");
    let archive = Archive::open(&path).expect("opens");
    let mut seen = 0;
    for name in archive.names() {
        let words: Vec<&str> = name.split([' ', '/']).collect();
        let [family, model, path, edit] = words[..] else { panic!("{name}") };
        let edit = match edit {
            "zero" => Edit::Zero,
            "scale" => Edit::Scale(-1.5),
            "clamp" => Edit::Clamp { low: -0.3, high: 0.3 },
            "add" => Edit::Add(EditValues::Numbers(vec![0.5].into())),
            other => panic!("{other}"),
        };
        let (_, expected) = tensor(&archive, name);
        let close = |got: Vec<f32>| {
            let difference = largest_difference(&got, &expected);
            let size = expected.iter().fold(1f32, |most, x| most.max(x.abs()));
            assert!(difference < 1e-4 * size, "{name}: differs by {difference:e}");
        };
        close(edited_logits(family, model, path, edit.clone()));
        // A head is linear in its attention weights.
        if path.contains("heads.") {
            close(edited_logits(family, model, &format!("{path}.weights"), edit));
        }
        seen += 1;
    }
    assert_eq!(seen, 63);
}

/// The message for a fixture's configuration with some keys changed.
fn refusal(family: &str, name: &str, changes: &[(&str, Json)], with_weights: bool) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let source = fixture(family, name);
    let mut config: Json =
        serde_json::from_slice(&std::fs::read(source.join("config.json")).expect("a file")).expect("JSON");
    changes.iter().for_each(|(key, value)| config[*key] = value.clone());
    std::fs::write(directory.path().join("config.json"), config.to_string()).expect("written");
    if with_weights {
        let weights = "model.safetensors";
        std::fs::copy(source.join(weights), directory.path().join(weights)).expect("copied");
    }
    match Model::describe(directory.path(), &OpenOptions::default()) {
        Ok(_) => panic!("{family}, {name}: {changes:?} is opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn hostile_configurations_get_a_sentence() {
    let sizes_of_t5 = ["vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads"];
    let sizes_of_bart = [
        "vocab_size",
        "d_model",
        "encoder_layers",
        "decoder_layers",
        "encoder_attention_heads",
        "encoder_ffn_dim",
        "max_position_embeddings",
    ];
    for (family, name, keys) in [
        ("t5", "model", sizes_of_t5),
        ("t5", "mt5", sizes_of_t5),
        ("bart", "model", sizes_of_bart),
        ("bart", "marian", sizes_of_bart),
    ] {
        for key in keys {
            for with_weights in [false, true] {
                for value in [json!(0), json!(-1), json!("many"), json!(1.5)] {
                    // Marian's positions are no tensor: without them in the file any number of them builds.
                    let said = refusal(family, name, &[(key, value)], with_weights);
                    assert!(said.len() < 2000, "{said}");
                }
            }
            if !(name == "marian" && key == "max_position_embeddings") {
                refusal(family, name, &[(key, json!(1u64 << 32))], true);
            }
        }
    }
    let said = |family: &str, key: &str, value: Json| refusal(family, "model", &[(key, value)], false);
    assert!(said("t5", "relative_attention_num_buckets", json!(0)).contains("buckets must be"));
    assert!(said("t5", "relative_attention_num_buckets", json!(7)).contains("even"));
    assert!(said("t5", "relative_attention_num_buckets", json!(1u64 << 31)).contains("65536"));
    assert!(said("t5", "relative_attention_max_distance", json!(0)).contains("max_distance"));
    assert!(said("t5", "relative_attention_max_distance", json!(4)).contains("above 4"));
    assert!(said("t5", "feed_forward_proj", json!("gated-mish")).contains("mish"));
    assert!(said("t5", "num_layers", json!(2000)).contains("1000"));
    assert!(said("t5", "dropout_rate", json!(1.0)).contains("dropout"));
    assert!(said("t5", "layer_norm_epsilon", json!(0.0)).contains("norm_eps"));
    assert!(said("bart", "activation_function", json!("mish")).contains("mish"));
    assert!(said("bart", "decoder_layers", json!(2000)).contains("1000"));
    assert!(said("bart", "decoder_attention_heads", json!(5)).contains("5 heads"));
    for family in ["t5", "bart"] {
        for key in ["decoder_start_token_id", "pad_token_id", "eos_token_id"] {
            let said = said(family, key, json!(31));
            assert!(said.contains(key) && said.contains("31 tokens"), "{said}");
        }
        assert!(said(family, "eos_token_id", json!([])).contains("eos_token_id"));
    }
}

#[test]
fn sequences_beyond_the_positions_are_refused() {
    for (family, call) in [
        ("bart", Call::whole(1).tokens(14)),
        ("bart", Call::whole(1).target(14)),
        ("bart", Call::whole(1).tokens(14).part(Part::Encode)),
        ("bart", Call::whole(1).target(14).part(Part::Step)),
        ("t5", Call::whole(1).tokens(1 << 15)),
    ] {
        let model = open(family, "model");
        let error = model.architecture.build(&mut Graph::for_inference(), &call).expect_err("too long").to_string();
        assert!(error.contains("longer than max_length"), "{error}");
    }
    // The encoder's graph does not depend on how long targets may be.
    let long = Call::whole(1).tokens(13).target(99).part(Part::Encode);
    assert!(open("bart", "model").architecture.build(&mut Graph::for_inference(), &long).is_ok());
}

#[test]
fn a_file_without_the_output_is_told_from_one_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = fixture("bart", "model");
    std::fs::copy(source.join("config.json"), directory.path().join("config.json")).expect("copied");
    let archive = Archive::open(&source.join("model.safetensors")).expect("opens");
    let tensors: Vec<(String, Vec<usize>, Vec<f32>)> = archive
        .names()
        .filter_map(|name| {
            Some((name.strip_prefix("model.")?.to_string(), tensor(&archive, name).0, tensor(&archive, name).1))
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, values)| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        (name.clone(), shape.clone(), bytes)
    });
    let views: Vec<(String, Vec<usize>, Vec<u8>)> = views.collect();
    let views = views.iter().map(|(name, shape, bytes)| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
        (name.as_str(), view.expect("a tensor"))
    });
    let file = directory.path().join("model.safetensors");
    std::fs::write(&file, safetensors::serialize(views, None).expect("written")).expect("written");
    let error = Model::open(directory.path(), &OpenOptions::default()).expect_err("no output").to_string();
    assert!(error.contains("ForConditionalGeneration"), "{error}");
}

fn special(model: &Model) -> SpecialTokens {
    match model.architecture.signature().takes {
        Takes::Pairs { special: Some(special), .. } => special,
        other => panic!("{other:?}"),
    }
}

/// Rules and search by the names of `generate`.
fn rules_of(options: &Json, special: SpecialTokens) -> (SearchOptions, TargetRules) {
    let size = |key: &str| options.get(key).and_then(Json::as_u64).map(|number| number as usize);
    let number = |key: &str, usual: f64| options.get(key).and_then(Json::as_f64).unwrap_or(usual) as f32;
    let search = SearchOptions { beam: size("num_beams").unwrap_or(1), length_penalty: number("length_penalty", 1.0) };
    let token = |key: &str| size(key).map(|token| token as u32);
    let rules = TargetRules {
        // A length counts the start token.
        max_tokens: size("max_new_tokens").or(size("max_length").map(|length| length - 1)),
        min_tokens: size("min_new_tokens").or(size("min_length").map(|length| length - 1)).unwrap_or(0),
        early_stopping: match options.get("early_stopping") {
            Some(Json::Bool(true)) => EarlyStopping::WhenFull,
            Some(Json::String(_)) => EarlyStopping::Never,
            _ => EarlyStopping::WhenUnlikely,
        },
        forced_first: token("forced_bos_token_id"),
        forced_last: token("forced_eos_token_id").or(special.forced_end),
        no_repeat: size("no_repeat_ngram_size").unwrap_or(0),
        repetition_penalty: number("repetition_penalty", 1.0),
        ..TargetRules::ending_with(vec![special.end])
    };
    (search, rules)
}

/// Whether a hypothesis is a row of the peer's, which has the start before it and is filled up behind it.
fn is_row(hypothesis: &Hypothesis, row: &Json, special: SpecialTokens) -> bool {
    let row: Vec<u32> =
        row.as_array().expect("a row").iter().map(|token| token.as_u64().expect("a token") as u32).collect();
    let end = hypothesis.ended.then_some(special.end);
    let ours: Vec<u32> = [special.start].into_iter().chain(hypothesis.tokens.iter().copied()).chain(end).collect();
    row.starts_with(&ours) && row[ours.len()..].iter().all(|token| [special.end, special.padding].contains(token))
}

fn compare_generated(family: &str, name: &str) -> usize {
    let model = open(family, name);
    let special = special(&model);
    let text = std::fs::read_to_string(fixture(family, name).join("generated.json")).expect("a file");
    let file: Json = serde_json::from_str(&text).expect("JSON");
    let sources: Vec<Vec<u32>> = serde_json::from_value(file["sources"].clone()).expect("sources");
    let mut compared = 0;
    for case in file["cases"].as_array().expect("cases") {
        let (search, rules) = rules_of(&case["options"], special);
        for slots in [search.beam, 64] {
            let options = TranslateOptions { search, slots: Some(slots), extra_tokens: 9, precision: Precision::F32 };
            let weights =
                |name: &str| model.weight(name).map_err(|error| vitreous_engine::Error::Machine(error.to_string()));
            let device = Device::Cpu { threads: 2 };
            let architecture = model.architecture.as_ref();
            let mut translator =
                Translator::new(architecture, special, options, &device, Box::new(weights)).expect("runs");
            translator.set_rules(rules.clone());
            let found = translator.translate(&sources).expect("writes");
            for (which, (found, expected)) in found.iter().zip(case["outputs"].as_array().expect("outputs")).enumerate()
            {
                let context = format!("{family}, {name}, {}, source {which}, {slots} slots", case["options"]);
                let rows = expected["tokens"].as_array().expect("rows");
                assert!(found.len() >= rows.len(), "{context}: {} of {}", found.len(), rows.len());
                for (place, (found, row)) in found.iter().zip(rows).enumerate() {
                    assert!(is_row(found, row, special), "{context}: {found:?} is not {row}");
                    if let Some(score) = expected["scores"].get(place).and_then(Json::as_f64) {
                        assert!((found.score - score).abs() < 1e-4, "{context}: {} is not {score}", found.score);
                    }
                    compared += 1;
                }
            }
        }
    }
    compared
}

/// Greedy, beams with and without length penalty, early stopping, n-grams that do not come twice, forced tokens, lengths.
#[test]
fn generated_tokens_are_the_peers() {
    let cases = [("t5", "model"), ("t5", "gated"), ("bart", "model"), ("bart", "mbart"), ("bart", "marian")];
    let compared: usize = cases.iter().map(|(family, name)| compare_generated(family, name)).sum();
    assert!(compared > 1000, "only {compared}");
}

/// Of the likeliest tokens more are forbidden than usual: all logits are asked for.
#[test]
fn many_forbidden_tokens_change_nothing_else() {
    let model = open("t5", "model");
    let special = special(&model);
    let sources = vec![vec![5, 9, 4, 17, 3], vec![8, 8, 20]];
    let write = |forbidden: Vec<Vec<u32>>, penalty: f32| {
        let search = SearchOptions { beam: 3, length_penalty: 1.0 };
        let options = TranslateOptions { search, slots: None, extra_tokens: 9, precision: Precision::F32 };
        let weights =
            |name: &str| model.weight(name).map_err(|error| vitreous_engine::Error::Machine(error.to_string()));
        let device = Device::Cpu { threads: 1 };
        let mut translator =
            Translator::new(model.architecture.as_ref(), special, options, &device, Box::new(weights)).expect("runs");
        let rules = TargetRules {
            no_repeat: 1,
            max_tokens: Some(20),
            min_tokens: 17,
            forbidden,
            ..TargetRules::ending_with(vec![1])
        };
        translator.set_rules(TargetRules { repetition_penalty: penalty, ..rules });
        translator.translate(&sources).expect("writes")
    };
    // Asked for all logits by a penalty that hardly differs from none.
    let (some, all) = (write(vec![vec![7]], 1.0), write(vec![vec![7]], 1.000_000_1));
    for (some, all) in some.iter().zip(&all) {
        assert_eq!(some[0].tokens, all[0].tokens);
        assert!(some[0].tokens.len() >= 17 && !some[0].tokens.contains(&7));
    }
}
