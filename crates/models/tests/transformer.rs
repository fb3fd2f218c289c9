//! The Transformer of encoder and decoder against PyTorch's layers (`fixtures/make_transformer.py`), and what masks hide.

mod common;

use common::{fixture, largest_difference, tensor};
use vitreous_engine::cpu::Executor;
use vitreous_engine::random::Run;
use vitreous_engine::{CrossEntropyOptions, DType, GradientOptions, Graph, Plan, State, Value};
use vitreous_models::archive::Archive;
use vitreous_models::config::{Activation, NormOrder};
use vitreous_models::transformer::{
    PairShape, StepShape, TextPositions, TransformerConfig, decoder_step, encoder_for_decoding, transformer,
};

const SHAPE: PairShape = PairShape { batch: 3, source: 5, target: 4 };
const PADDING: i32 = 0;

fn small() -> TransformerConfig {
    TransformerConfig {
        source_vocabulary: 9,
        target_vocabulary: 7,
        dim: 12,
        heads: 3,
        encoder_layers: 2,
        decoder_layers: 2,
        mlp_dim: 20,
        max_length: 6,
        dropout: 0.0,
        attention_dropout: 0.0,
        ..TransformerConfig::default()
    }
}

fn cases() -> [(&'static str, TransformerConfig); 3] {
    let pre = TransformerConfig {
        norm_order: NormOrder::Pre,
        activation: Activation::Gelu,
        positions: TextPositions::Learned,
        ..small()
    };
    let shared = TransformerConfig { source_vocabulary: 7, shared_vocabulary: true, tied_output: true, ..small() };
    [("post", small()), ("pre", pre), ("shared", shared)]
}

/// A case of the fixture, ready to run.
struct Case {
    archive: Archive,
    name: &'static str,
    executor: Executor,
    state: State,
    logits: Value,
    loss: Value,
    gradients: Vec<(String, Value)>,
}

impl Case {
    fn new(name: &'static str, config: &TransformerConfig) -> Case {
        let archive = Archive::open(&fixture("transformer.safetensors")).expect("opens");
        let mut graph = Graph::for_training();
        let logits = transformer(&mut graph, config, SHAPE).expect("builds").logits;
        let wanted = graph.input("wanted", [SHAPE.batch, SHAPE.target], DType::I32).expect("an input");
        let options = CrossEntropyOptions { label_smoothing: 0.1, ignored_index: Some(PADDING) };
        let loss = graph.cross_entropy(logits, wanted, options).expect("a loss");
        let parameters: Vec<Value> =
            graph.parameters().iter().map(|parameter| graph.find(&parameter.name).expect("known")).collect();
        graph.parameter_gradients(loss, &parameters, GradientOptions::default()).expect("gradients");
        let gradient = |name: &String| graph.parameter_gradient(name).expect("a gradient");
        let names = graph.parameters().iter().map(|parameter| parameter.name.clone());
        let gradients: Vec<(String, Value)> = names.map(|name| (name.clone(), gradient(&name))).collect();
        let mut outputs = vec![logits, loss];
        outputs.extend(gradients.iter().map(|(_, value)| *value));
        let plan = Plan::for_cpu(&graph, &outputs).expect("plans");
        let executor = Executor::new(plan, 2).expect("runs");
        let mut state = State::new(&graph).expect("memory");
        for parameter in graph.parameters() {
            let values = tensor(&archive, &format!("{name}.parameter.{}", parameter.name));
            assert_eq!(values.0, parameter.shape.axes(), "{}", parameter.name);
            state.parameter_mut(&parameter.name).expect("known").copy_from_slice(&values.1);
        }
        Case { archive, name, executor, state, logits, loss, gradients }
    }

    fn expected(&self, name: &str) -> Vec<f32> {
        tensor(&self.archive, &format!("{}.{name}", self.name)).1
    }

    fn tokens(&self, name: &str) -> Vec<i32> {
        self.expected(name).into_iter().map(|token| token as i32).collect()
    }

    /// Runs with the fixture's tokens, changed.
    fn run(&mut self, change: impl FnOnce(&mut [i32], &mut [i32])) -> Vec<f32> {
        let (mut source, mut target) = (self.tokens("source"), self.tokens("target"));
        change(&mut source, &mut target);
        let (lengths, wanted) = (self.tokens("lengths"), self.tokens("wanted"));
        for (name, values) in [("source", source), ("target", target), ("source_lengths", lengths), ("wanted", wanted)]
        {
            self.executor.input_i32(name).expect("an input").copy_from_slice(&values);
        }
        self.executor.run(&mut self.state, Run::default()).expect("a run");
        self.executor.output(self.logits).expect("logits")
    }
}

#[test]
fn logits_loss_and_every_gradient_are_those_of_pytorch() {
    for (name, config) in cases() {
        let mut case = Case::new(name, &config);
        let logits = case.run(|_, _| {});
        let difference = largest_difference(&logits, &case.expected("logits"));
        assert!(difference < 1e-5, "{name}: logits differ by {difference:e}");
        assert!((case.executor.number(case.loss).expect("a loss") - case.expected("loss")[0]).abs() < 1e-5);
        for (parameter, gradient) in &case.gradients {
            let got = case.executor.output(*gradient).expect("a result");
            let difference = largest_difference(&got, &case.expected(&format!("gradient.{parameter}")));
            assert!(difference < 1e-5, "{name}: the gradient of {parameter} differs by {difference:e}");
        }
        let theirs = case.archive.names().filter(|n| n.starts_with(&format!("{name}.gradient."))).count();
        assert_eq!(case.gradients.len(), theirs, "{name}");
    }
}

#[test]
fn what_is_hidden_changes_no_bit() {
    let words = 7;
    for (name, config) in cases() {
        let mut case = Case::new(name, &config);
        let before = case.run(|_, _| {});
        // Behind the lengths 5, 3 and 1 a source is padding.
        let padding = case.run(|source, _| {
            for place in [8, 9, 11, 12, 13, 14] {
                source[place] = (source[place] + 3) % words;
            }
        });
        assert_eq!(before, padding, "{name}: padding");
        let last = case.run(|_, target| {
            for row in target.chunks_exact_mut(SHAPE.target) {
                row[SHAPE.target - 1] = (row[SHAPE.target - 1] + 1) % words;
            }
        });
        let row = config.target_vocabulary;
        for (pair, (was, is)) in
            before.chunks_exact(SHAPE.target * row).zip(last.chunks_exact(SHAPE.target * row)).enumerate()
        {
            let earlier = (SHAPE.target - 1) * row;
            assert_eq!(was[..earlier], is[..earlier], "{name}: pair {pair}");
            assert_ne!(was[earlier..], is[earlier..], "{name}: pair {pair}");
        }
        let seen = case.run(|source, _| source[0] = (source[0] + 1) % words);
        assert_ne!(before[..row], seen[..row], "{name}: a word that is seen");
    }
}

/// A graph that runs with the weights of a case.
fn with_weights(case: &Case, graph: &Graph, outputs: &[Value]) -> Executor {
    let plan = Plan::for_cpu_with_fixed_weights(graph, outputs).expect("plans");
    Executor::with_weights(plan, 2, |parameter| case.state.parameter(&parameter.name).map(std::borrow::Cow::Borrowed))
        .expect("runs")
}

#[test]
fn decoding_word_by_word_is_computing_all_at_once() {
    for (name, config) in cases() {
        let mut case = Case::new(name, &config);
        let whole = case.run(|_, _| {});

        let mut graph = Graph::for_inference();
        let pairs = encoder_for_decoding(&mut graph, &config, SHAPE.batch, SHAPE.source).expect("builds");
        let outputs: Vec<Value> = pairs.iter().flat_map(|&(k, v)| [k, v]).collect();
        let mut encoder = with_weights(&case, &graph, &outputs);
        encoder.input_i32("source").expect("an input").copy_from_slice(&case.tokens("source"));
        encoder.input_i32("source_lengths").expect("an input").copy_from_slice(&case.tokens("lengths"));
        encoder.infer().expect("a run");

        let mut graph = Graph::for_inference();
        let shape = StepShape { batch: SHAPE.batch, source: SHAPE.source, capacity: 6 };
        let step = decoder_step(&mut graph, &config, shape).expect("builds");
        let mut decoder = with_weights(&case, &graph, &[step.logits]);
        decoder.poison();
        for (layer, (keys, values)) in pairs.iter().enumerate() {
            for (name, value) in [("source_keys", keys), ("source_values", values)] {
                let from = encoder.output_slice(*value).expect("a result");
                decoder.input(&format!("decoder.{layer}.{name}")).expect("an input").copy_from_slice(from);
            }
        }
        decoder.input_i32("source_lengths").expect("an input").copy_from_slice(&case.tokens("lengths"));
        let target = case.tokens("target");
        for place in 0..SHAPE.target {
            let tokens: Vec<i32> = target.chunks_exact(SHAPE.target).map(|row| row[place]).collect();
            decoder.input_i32("token").expect("an input").copy_from_slice(&tokens);
            decoder.input_i32("place").expect("an input").fill(place as i32);
            decoder.input_i32("length").expect("an input").fill(place as i32 + 1);
            decoder.infer().expect("a run");
            let words = config.target_vocabulary;
            for (pair, got) in decoder.output(step.logits).expect("logits").chunks_exact(words).enumerate() {
                let expected = &whole[(pair * SHAPE.target + place) * words..][..words];
                let difference = largest_difference(got, expected);
                assert!(difference < 1e-5, "{name}: pair {pair}, place {place}: {difference:e}");
            }
        }
        // A place behind the end is refused, not written.
        decoder.input_i32("place").expect("an input").fill(6);
        assert!(decoder.infer().expect_err("no room").to_string().contains('6'));
    }
}
