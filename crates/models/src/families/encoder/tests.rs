//! What holds for every encoder of texts: masked tokens, gradients, dropout in training, and refusals.

use serde_json::{Value as Json, json};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, GradientOptions, Graph, Mode, Op, Parameter, Plan, Precision, Run,
    State, Step, Value,
};

use crate::archive::Archive;
use crate::testing::{fixture, largest_difference, tensor};
use crate::{Call, Format, Head, Model, ModelError, OpenOptions, preset};

fn open(family: &str, name: &str) -> Model {
    Model::open(&fixture(family, name), &OpenOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The numbers of a fixture for every input of a graph but `besides`.
fn feed(executor: &mut Executor, g: &Graph, archive: &Archive, besides: &str) {
    for (name, _) in g.inputs().filter(|(name, _)| *name != besides) {
        let name = name.to_string();
        let known = [format!("{name}.in"), name.clone()];
        let theirs = known.into_iter().find(|name| archive.names().any(|known| known == name)).expect("an input");
        let numbers = tensor(archive, &theirs).1;
        let to = executor.input_i32(&name).expect("an input");
        to.iter_mut().zip(numbers).for_each(|(to, number)| *to = number as i32);
    }
}

fn infer(model: &Model, precision: Precision, call: &Call, archive: &Archive, masked: &[i32]) -> Vec<f32> {
    let mut g = Graph::new(Mode::Inference, precision);
    let logits = model.architecture.build(&mut g, call).expect("builds").need("logits").expect("a head");
    let device = Device::Cpu { threads: 1 };
    let plan = device.plan_with_fixed_weights(&g, &[logits]).expect("plans");
    let lend = |parameter: &Parameter| Ok::<_, Refused>(model.parameter(&parameter.name)?);
    let mut executor = Executor::with_weights(plan, &device, lend).unwrap_or_else(|error| panic!("{}", error.0));
    feed(&mut executor, &g, archive, "masked");
    if !masked.is_empty() {
        executor.input_i32("masked").expect("an input").copy_from_slice(masked);
    }
    executor.infer().expect("runs");
    executor.output(logits).expect("logits").to_vec()
}

struct Refused(String);

impl From<ModelError> for Refused {
    fn from(error: ModelError) -> Refused {
        Refused(error.to_string())
    }
}

impl From<vitreous_engine::Error> for Refused {
    fn from(error: vitreous_engine::Error) -> Refused {
        Refused(error.to_string())
    }
}

#[test]
fn logits_of_masked_tokens_are_rows_of_those_of_all() {
    let masked = [5, 0, 19, 5];
    for (family, name) in [("bert", "masked"), ("bert", "electra_masked"), ("albert", "untied")] {
        let model = open(family, name);
        let archive = Archive::open(&fixture(family, name).join("expected.safetensors")).expect("opens");
        let call = Call::whole(3).tokens(7);
        for precision in [Precision::F32, Precision::Bf16] {
            let all = infer(&model, precision, &call, &archive, &[]);
            let some = infer(&model, precision, &call.masked(masked.len()), &archive, &masked);
            let vocabulary = all.len() / 21;
            let expected: Vec<f32> =
                masked.iter().flat_map(|&row| all[row as usize * vocabulary..][..vocabulary].to_vec()).collect();
            // Fewer rows are summed in another order. In bf16 that may round a logit to its neighbour: a step of 2^-7 of
            // its size at most.
            let largest = expected.iter().fold(0f32, |most, logit| most.max(logit.abs()));
            let limit = if precision == Precision::F32 { 1e-6 } else { largest / 128.0 };
            let difference = largest_difference(&some, &expected);
            assert!(difference <= limit, "{family}, {name}, {precision:?}: {difference:e}");
        }
    }
    let mut g = Graph::for_inference();
    let classifier = open("bert", "classes").architecture;
    let error = classifier.build(&mut g, &Call::whole(1).tokens(3).masked(2)).expect_err("no such head");
    assert!(error.to_string().contains("masked-token head"), "{error}");
}

/// Gradients of the cross-entropy of some tokens, with parameters that are used several times.
fn compare_gradients(family: &str, name: &str) {
    let gradients_name = format!("{name}_gradients");
    let (model, expected) = (open(family, name), open(family, &gradients_name));
    let archive = Archive::open(&fixture(family, &gradients_name).join("expected.safetensors")).expect("opens");
    let (shape, _) = tensor(&archive, "tokens");
    let (masked, _) = tensor(&archive, "masked");
    let call = Call::whole(shape[0]).tokens(shape[1]).masked(masked[0]);
    let mut g = Graph::new(Mode::Training, Precision::F32);
    let logits = model.architecture.build(&mut g, &call).expect("builds").need("logits").expect("a head");
    let targets = g.input("targets", [masked[0]], DType::I32).expect("an input");
    let loss = g.cross_entropy(logits, targets, CrossEntropyOptions::default()).expect("a loss");
    let names: Vec<String> = g.parameters().iter().map(|parameter| parameter.name.clone()).collect();
    let wanted: Vec<Value> = names.iter().map(|name| g.find(name).expect("a parameter")).collect();
    let gradients = g.gradients(loss, &wanted, GradientOptions::default()).expect("gradients");
    let values: Vec<Value> = gradients.iter().copied().chain([loss]).collect();
    let device = Device::Cpu { threads: 1 };
    let mut executor = Executor::new(Plan::for_cpu(&g, &values).expect("plans"), &device).expect("runs");
    let mut state = State::new(&g).expect("memory");
    model.load(&mut state).expect("loads");
    feed(&mut executor, &g, &archive, "");
    executor.run(&mut state, Run::default()).expect("a run");
    let (_, expected_loss) = tensor(&archive, "loss");
    assert!((executor.number(loss).expect("a loss") - expected_loss[0]).abs() < 1e-5, "{family}, {name}");
    for (parameter, &gradient) in names.iter().zip(&gradients) {
        let theirs = expected.parameter(parameter).expect(parameter);
        assert!(theirs.iter().any(|number| number.abs() > 1e-5) || parameter.contains("qkv.bias"), "{parameter}");
        let difference = largest_difference(&executor.output(gradient).expect("a result"), &theirs);
        assert!(difference < 1e-5, "{family}, {name}: gradient of {parameter} differs by {difference:e}");
    }
}

#[test]
fn gradients_of_masked_tokens_are_pytorchs() {
    compare_gradients("bert", "trained");
    compare_gradients("albert", "masked");
}

/// The paths and rates of dropout, without that of embeddings, layers and attention.
fn head_dropouts(family: &str, name: &str) -> Vec<(String, f32)> {
    let mut g = Graph::new(Mode::Training, Precision::F32);
    open(family, name).architecture.build(&mut g, &Call::whole(2).tokens(3)).expect("builds");
    let attention = g.nodes().iter().filter(|node| matches!(&node.op, Op::Attention(op) if op.dropout.is_some()));
    assert_eq!(attention.count() > 0, family == "bert", "{name}");
    let of_node = |node: &vitreous_engine::Node| {
        let rate =
            node.steps.iter().find_map(|step| if let Step::Dropout(drop) = step { Some(drop.rate) } else { None });
        rate.map(|rate| (node.path.rsplit_once('.').map_or("", |(place, _)| place).to_string(), rate))
    };
    let found = g.nodes().iter().filter_map(of_node);
    found.filter(|(place, _)| !place.starts_with("embedding") && !place.starts_with("blocks.")).collect()
}

#[test]
fn heads_drop_what_those_of_transformers_drop() {
    let head = |rates: &[f32]| rates.iter().map(|rate| ("head".to_string(), *rate)).collect::<Vec<_>>();
    assert_eq!(head_dropouts("bert", "classes"), head(&[0.1]));
    assert_eq!(head_dropouts("bert", "numbers"), head(&[0.25]));
    assert_eq!(head_dropouts("bert", "token_classes"), head(&[0.1]));
    assert_eq!(head_dropouts("bert", "span"), []);
    assert_eq!(head_dropouts("bert", "masked"), []);
    // Before and behind the layer over the first token.
    assert_eq!(head_dropouts("bert", "roberta_classes"), head(&[0.1, 0.1]));
    assert_eq!(head_dropouts("bert", "electra_labels"), head(&[0.1, 0.1]));
    assert_eq!(head_dropouts("bert", "distilbert_classes"), head(&[0.2]));
    assert_eq!(head_dropouts("bert", "distilbert_token_classes"), head(&[0.1]));
    assert_eq!(head_dropouts("bert", "distilbert_span"), head(&[0.3]));
    assert_eq!(head_dropouts("albert", "classes"), head(&[0.1]));
}

/// The message for a fixture's configuration with one key changed.
fn refusal(family: &str, name: &str, key: &str, value: Json, with_weights: bool) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let source = fixture(family, name);
    let mut config: Json =
        serde_json::from_slice(&std::fs::read(source.join("config.json")).expect("a file")).expect("JSON");
    config[key] = value.clone();
    std::fs::write(directory.path().join("config.json"), config.to_string()).expect("written");
    if with_weights {
        let weights = "model.safetensors";
        std::fs::copy(source.join(weights), directory.path().join(weights)).expect("copied");
    }
    match Model::describe(directory.path(), &OpenOptions::default()) {
        Ok(_) => panic!("{family}, {name}: {key} = {value} is opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn hostile_configurations_get_a_sentence() {
    let huge = json!(1u64 << 32);
    for (family, name) in [("bert", "masked"), ("bert", "electra"), ("albert", "masked")] {
        for key in ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"] {
            for with_weights in [false, true] {
                for value in [json!(0), json!(-1), json!("many"), json!(1.5)] {
                    let said = refusal(family, name, key, value, with_weights);
                    assert!(said.len() < 2000, "{said}");
                }
            }
            refusal(family, name, key, huge.clone(), true);
        }
        let said = refusal(family, name, "num_hidden_layers", huge.clone(), false);
        assert!(said.contains("layers are more than"), "{said}");
        assert!(refusal(family, name, "max_position_embeddings", json!(0), false).contains("max_"), "{name}");
        assert!(refusal(family, name, "layer_norm_eps", json!(-1.0), false).contains("norm_eps"));
        assert!(refusal(family, name, "hidden_dropout_prob", json!(1.0), false).contains("dropout"));
        assert!(refusal(family, name, "architectures", json!(["GPT2LMHeadModel"]), false).contains("GPT2LMHeadModel"));
        assert!(refusal(family, name, "architectures", json!("BertModel"), false).contains("a list of names"));
        // A vocabulary that is smaller than the table.
        assert!(refusal(family, name, "vocab_size", json!(7), true).contains("word_embeddings"));
    }
    for key in ["num_hidden_groups", "inner_group_num"] {
        for value in [json!(0), json!(-1), huge.clone()] {
            refusal("albert", "model", key, value.clone(), false);
            refusal("albert", "model", key, value, true);
        }
    }
    assert!(refusal("albert", "model", "num_hidden_groups", json!(4), false).contains("4 groups are more than 3"));
    assert!(refusal("albert", "model", "num_hidden_layers", json!(60_000), true).contains("60000 layers"));
    assert!(refusal("bert", "classes", "problem_type", json!("poetry"), true).contains("poetry"));
    assert!(refusal("bert", "labels", "id2label", json!({"0": "a", "1": "b"}), true).contains("has 2 classes"));
    assert!(refusal("bert", "roberta", "pad_token_id", json!(-1), false).contains("pad_token_id"));
    assert!(refusal("bert", "roberta", "pad_token_id", json!(8), false).contains("leave none for tokens"));
    assert!(refusal("bert", "roberta", "pad_token_id", huge, false).contains("leave none for tokens"));
}

#[test]
fn a_head_without_outputs_and_a_pooler_that_a_variant_lacks_are_refused() {
    let bert = preset("bert_tiny").expect("known");
    assert!(bert.with_head(Head::Classes(0)).expect_err("none").0.contains("outputs of the head"));
    assert!(preset("albert_base").expect("known").with_head(Head::TokenClasses(0)).is_err());
    let distilbert = preset("distilbert_base").expect("known");
    let pooled = distilbert.with_settings(&OpenOptions::default().with("pooler", true).settings);
    assert!(pooled.expect_err("none").0.contains("DistilBERT has no pooler"));
}

/// transformers' pipeline gives a probability for one output of which nothing is said, and the number where it is one.
#[test]
fn what_a_configuration_says_of_its_outputs_stays_as_it_was() {
    let written = |model: &Model| {
        let dialect = model.architecture.dialect(Format::HuggingFace).expect("a class");
        dialect.config.and_then(|config| config.get("problem_type").cloned())
    };
    assert_eq!(written(&open("bert", "numbers")), None);
    assert_eq!(written(&open("albert", "numbers")), Some(json!("regression")));
    assert_eq!(written(&open("albert", "labels")), Some(json!("multi_label_classification")));
    let options = OpenOptions { replace_head: Some(Head::Numbers(1)), ..OpenOptions::default() };
    let new = Model::open(&fixture("bert", "numbers"), &options).expect("opens");
    assert_eq!(written(&new), Some(json!("regression")));
}

#[test]
fn every_head_can_be_put_on_every_encoder() {
    let heads = [
        Head::None,
        Head::Classes(3),
        Head::Labels(4),
        Head::Numbers(1),
        Head::TokenClasses(5),
        Head::Span,
        Head::MaskedTokens,
    ];
    for name in ["bert_tiny", "roberta_base", "distilbert_base", "electra_small", "albert_base"] {
        for head in heads {
            let model = preset(name).expect("known").with_head(head).unwrap_or_else(|error| panic!("{name}: {error}"));
            let signature = model.signature();
            let gives = head.gives(signature.tokens().expect("tokens").vocabulary);
            assert!(gives.is_none_or(|gives| signature.gives.contains(&gives)), "{name}, {head:?}");
            let mut g = Graph::for_inference();
            let outputs = model.build(&mut g, &Call::whole(2).tokens(3)).expect("builds");
            let shape = outputs.get("logits").map(|logits| g.shape_of(logits).axes().to_vec());
            let vocabulary = signature.tokens().map_or(0, |tokens| tokens.vocabulary);
            let expected = match head {
                Head::None => None,
                Head::Classes(size) | Head::Labels(size) | Head::Numbers(size) => Some(vec![2, size]),
                Head::TokenClasses(size) => Some(vec![2, 3, size]),
                Head::Span => Some(vec![2, 3, 2]),
                Head::MaskedTokens => Some(vec![2, 3, vocabulary]),
            };
            assert_eq!(shape, expected, "{name}, {head:?}");
        }
    }
}

/// A model that was pretrained without a pooler gets a new one with a head that stands on it.
#[test]
fn a_new_head_brings_the_layers_it_needs() {
    for (family, name) in [("bert", "masked"), ("albert", "masked")] {
        let options = OpenOptions { replace_head: Some(Head::Labels(2)), ..OpenOptions::default() };
        let model = Model::open(&fixture(family, name), &options).expect("opens");
        for parameter in model.parameters() {
            let new = ["head.", "pooler."].iter().any(|start| parameter.name.starts_with(start));
            assert_eq!(model.is_new(&parameter.name), new, "{}", parameter.name);
        }
        let mut g = Graph::for_training();
        model.architecture.build(&mut g, &Call::whole(1)).expect("builds");
        model.load(&mut State::new(&g).expect("memory")).expect("what the file has is loaded");
    }
}

#[test]
fn a_head_that_the_file_lacks_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = fixture("bert", "model");
    std::fs::copy(source.join("model.safetensors"), directory.path().join("model.safetensors")).expect("copied");
    let mut config: Json =
        serde_json::from_slice(&std::fs::read(source.join("config.json")).expect("a file")).expect("JSON");
    let heads = [("ForSequenceClassification", "train classify-text"), ("ForMaskedLM", "train bert")];
    for (class, command) in heads {
        config["architectures"] = json!([format!("Bert{class}")]);
        std::fs::write(directory.path().join("config.json"), config.to_string()).expect("written");
        let model = Model::open(directory.path(), &OpenOptions::default()).expect("opens without");
        assert_eq!(model.architecture.signature().what(), "a text encoder");
        assert!(model.notes.len() == 1 && model.notes[0].contains(command), "{:?}", model.notes);
    }
    assert!(open("bert", "electra_discriminator").notes[0].contains("ElectraForPreTraining"));
}
