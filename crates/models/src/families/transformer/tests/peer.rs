//! The encoder-decoder Transformer against PyTorch's layers (`make.py`), and tests of its masks.

use vitreous_engine::random::Run;
use vitreous_engine::{
    Caches, CrossEntropyOptions, DType, Device, Executor, GradientOptions, Graph, Mode, Parameter, Precision,
    ResultCopy, State, Value, WeightView, cuda,
};

use crate::archive::Archive;
use crate::families::transformer::{
    PairShape, TextPositions, TransformerConfig, decoder_step, encoder_for_decoding, transformer,
};
use crate::generate::{Hypothesis, SearchOptions, SpecialTokens, TranslateOptions, Translator};
use crate::settings::{Activation, NormOrder};
use crate::testing::{fixture, largest_difference, tensor};
use crate::{Architecture, CacheFormat, Initialisation, Model, OpenOptions, SaveOptions, StepShape, initialise};

const SHAPE: PairShape = PairShape { batch: 3, source: 5, target: 4 };
const PADDING: i32 = 0;
const CPU: Device = Device::Cpu { threads: 2 };

/// The CPU, and the GPU if there is one; that there is none is said.
fn devices() -> Vec<Device> {
    let gpu = cuda::Device::open(0);
    if let Err(error) = &gpu {
        eprintln!("skipped on the GPU: {error}");
    }
    [CPU].into_iter().chain(gpu.ok().map(Device::Cuda)).collect()
}

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
    graph: Graph,
}

impl Case {
    fn new(name: &'static str, config: &TransformerConfig) -> Case {
        let archive = Archive::open(&fixture("transformer", "transformer.safetensors")).expect("opens");
        let mut graph = Graph::for_training();
        let logits = transformer(&mut graph, config, SHAPE).expect("builds").logits;
        let wanted = graph.input("wanted", [SHAPE.batch, SHAPE.target], DType::I32).expect("an input");
        let options = CrossEntropyOptions { label_smoothing: 0.1, ignored_index: Some(PADDING), ..Default::default() };
        let loss = graph.cross_entropy(logits, wanted, options).expect("a loss");
        let parameters: Vec<Value> =
            graph.parameters().iter().map(|parameter| graph.find(&parameter.name).expect("known")).collect();
        graph.parameter_gradients(loss, &parameters, GradientOptions::default()).expect("gradients");
        let gradient = |name: &String| graph.parameter_gradient(name).expect("a gradient");
        let names = graph.parameters().iter().map(|parameter| parameter.name.clone());
        let gradients: Vec<(String, Value)> = names.map(|name| (name.clone(), gradient(&name))).collect();
        let mut outputs = vec![logits, loss];
        outputs.extend(gradients.iter().map(|(_, value)| *value));
        let plan = CPU.plan(&graph, &outputs).expect("plans");
        let executor = Executor::new(plan, &CPU).expect("runs");
        let mut state = State::new(&graph).expect("memory");
        for parameter in graph.parameters() {
            let values = tensor(&archive, &format!("{name}.parameter.{}", parameter.name));
            assert_eq!(values.0, parameter.shape.axes(), "{}", parameter.name);
            state.parameter_mut(&parameter.name).expect("known").copy_from_slice(&values.1);
        }
        Case { archive, name, executor, state, logits, loss, gradients, graph }
    }

    fn expected(&self, name: &str) -> Vec<f32> {
        tensor(&self.archive, &format!("{}.{name}", self.name)).1
    }

    fn tokens(&self, name: &str) -> Vec<i32> {
        self.expected(name).into_iter().map(|token| token as i32).collect()
    }

    /// Runs with modified tokens of the fixture.
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
        // Beyond the lengths 5, 3 and 1 a source is padding.
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

/// A graph that runs on a device with the weights of a case.
fn with_weights(case: &Case, graph: &Graph, outputs: &[Value], device: &Device) -> Executor {
    let plan = device.plan_with_fixed_weights(graph, outputs).expect("plans");
    let weights = |parameter: &Parameter| case.state.parameter(&parameter.name).map(std::borrow::Cow::Borrowed);
    Executor::with_weights(plan, device, weights).expect("runs")
}

#[test]
fn decoding_word_by_word_is_computing_all_at_once() {
    for device in devices() {
        for (name, config) in cases() {
            let limit = if device.is_gpu() { 1e-4 } else { 1e-5 };
            decode_word_by_word(name, &config, &device, (Precision::F32, CacheFormat::F32), limit);
        }
    }
    // Computed in bf16 and kept in bf16, answers are as near as that is.
    for device in devices() {
        let (name, config) = cases().into_iter().next().expect("a case");
        decode_word_by_word(name, &config, &device, (Precision::Bf16, CacheFormat::Bf16), 0.1);
    }
}

fn decode_word_by_word(
    name: &'static str,
    config: &TransformerConfig,
    device: &Device,
    (precision, cache): (Precision, CacheFormat),
    limit: f32,
) {
    let mut case = Case::new(name, config);
    let whole = case.run(|_, _| {});

    let mut graph = Graph::new(Mode::Inference, precision);
    let pairs = encoder_for_decoding(&mut graph, config, SHAPE.batch, SHAPE.source).expect("builds");
    let outputs: Vec<Value> = pairs.iter().map(|(_, value)| value).collect();
    let mut encoder = with_weights(&case, &graph, &outputs, device);
    encoder.input_i32("source").expect("an input").copy_from_slice(&case.tokens("source"));
    encoder.input_i32("source_lengths").expect("an input").copy_from_slice(&case.tokens("lengths"));
    encoder.infer().expect("a run");

    let mut graph = Graph::new(Mode::Inference, precision);
    let shape = StepShape { batch: SHAPE.batch, source: SHAPE.source, capacity: 6, cache };
    let logits = decoder_step(&mut graph, config, shape).expect("builds");
    let logits = graph.cast(logits, DType::F32).expect("f32");
    let mut decoder = with_weights(&case, &graph, &[logits], device);
    if let Executor::Cpu(decoder) = &mut decoder {
        decoder.poison();
    }
    let mut caches = Caches::new(&[&graph], device).expect("memory");
    let names = graph.caches().map(|(name, _)| name.to_string()).filter(|name| name.contains(".source_"));
    let of_sources: Vec<(Value, String)> = outputs.into_iter().zip(names).collect();
    let copies: Vec<ResultCopy> =
        (0..SHAPE.batch).map(|sample| ResultCopy { sample, slot: sample, rows: SHAPE.source }).collect();
    caches.copy_results(&mut encoder, &of_sources, &copies).expect("copied");
    decoder.input_i32("source_lengths").expect("an input").copy_from_slice(&case.tokens("lengths"));
    let target = case.tokens("target");
    for place in 0..SHAPE.target {
        let tokens: Vec<i32> = target.chunks_exact(SHAPE.target).map(|row| row[place]).collect();
        decoder.input_i32("token").expect("an input").copy_from_slice(&tokens);
        decoder.input_i32("place").expect("an input").fill(place as i32);
        decoder.input_i32("length").expect("an input").fill(place as i32 + 1);
        decoder.infer_with(&mut caches).expect("a run");
        let words = config.target_vocabulary;
        for (pair, got) in decoder.output(logits).expect("logits").chunks_exact(words).enumerate() {
            let expected = &whole[(pair * SHAPE.target + place) * words..][..words];
            let difference = largest_difference(got, expected);
            assert!(difference < limit, "{device:?}, {name}: pair {pair}, place {place}: {difference:e}");
        }
    }
    // A place behind the end is refused, not written.
    decoder.input_i32("place").expect("an input").fill(6);
    let ran = decoder.infer_with(&mut caches).and_then(|()| decoder.finish());
    let error = ran.expect_err("no room").to_string();
    assert!(device.is_gpu() || error.contains('6'), "{error}");
}

const SPECIAL: SpecialTokens = SpecialTokens { padding: 0, start: 1, end: 2, forced_end: None };

fn translate(
    case: &Case,
    config: &TransformerConfig,
    sources: &[Vec<u32>],
    options: TranslateOptions,
) -> Vec<Vec<Hypothesis>> {
    translate_on(&CPU, case, config, sources, options)
}

fn translate_on(
    device: &Device,
    case: &Case,
    config: &TransformerConfig,
    sources: &[Vec<u32>],
    options: TranslateOptions,
) -> Vec<Vec<Hypothesis>> {
    let weights = Box::new(|name: &str| case.state.parameter(name).map(WeightView::from));
    Translator::new(config, SPECIAL, options, device, weights).expect("pairs").translate(sources).expect("translates")
}

fn options(beam: usize, slots: usize) -> TranslateOptions {
    let search = SearchOptions { beam, length_penalty: 0.6 };
    TranslateOptions { search, slots: Some(slots), extra_tokens: 1, precision: Precision::F32 }
}

/// `ln p` of every next token after a prefix, recomputed from scratch.
fn opinions(case: &Case, config: &TransformerConfig, source: &[u32], beginning: &[u32]) -> Vec<f64> {
    let mut graph = Graph::for_inference();
    let shape = PairShape { batch: 1, source: source.len() + 1, target: beginning.len() + 1 };
    let logits = transformer(&mut graph, config, shape).expect("builds").logits;
    let mut executor = with_weights(case, &graph, &[logits], &CPU);
    let numbers = |tokens: &[u32]| tokens.iter().map(|&token| token as i32).collect::<Vec<_>>();
    let source = numbers(&[source, &[SPECIAL.end]].concat());
    executor.input_i32("source_lengths").expect("an input")[0] = source.len() as i32;
    executor.input_i32("source").expect("an input").copy_from_slice(&source);
    let target = numbers(&[&[SPECIAL.start], beginning].concat());
    executor.input_i32("target").expect("an input").copy_from_slice(&target);
    executor.infer().expect("a run");
    let all = executor.output(logits).expect("logits");
    let row: Vec<f64> = all[all.len() - config.target_vocabulary..].iter().map(|&x| f64::from(x)).collect();
    let sum = row.iter().map(|x| x.exp()).sum::<f64>().ln();
    row.iter().map(|x| x - sum).collect()
}

/// Sources of different lengths, one of them empty.
fn sources() -> Vec<Vec<u32>> {
    vec![vec![3, 4], vec![], vec![6, 5, 4, 3, 3], vec![5], vec![4, 4, 6], vec![6, 3, 5, 3], vec![3, 5, 4, 6, 5]]
}

#[test]
fn greedy_translations_are_those_of_computing_everything_anew() {
    for (name, config) in cases() {
        // Room for the start token and at most five tokens.
        let config = TransformerConfig { max_length: 6, ..config };
        let case = Case::new(name, &config);
        let found = translate(&case, &config, &sources(), options(1, 3));
        for (source, found) in sources().iter().zip(&found) {
            let mut tokens = Vec::new();
            let mut sum = 0.0;
            let most = (source.len() + 2).min(6);
            let ended = loop {
                let row = opinions(&case, &config, source, &tokens);
                let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("words") as u32;
                sum += row[best as usize];
                if best == SPECIAL.end {
                    break true;
                }
                tokens.push(best);
                if tokens.len() == most {
                    break false;
                }
            };
            assert_eq!((&found[0].tokens, found[0].ended), (&tokens, ended), "{name}: {source:?}");
            assert!((found[0].log_probability - sum).abs() < 1e-4, "{name}: {source:?}");
        }
        // Neither the number of slots nor the other sentences matter.
        for slots in [1, 2, 64] {
            let others = translate(&case, &config, &sources(), options(1, slots));
            let tokens = |all: &[Vec<Hypothesis>]| all.iter().map(|h| h[0].tokens.clone()).collect::<Vec<_>>();
            assert_eq!(tokens(&found), tokens(&others), "{name}: {slots} slots");
        }
    }
}

#[test]
fn sentences_that_are_left_move_together_and_go_on_as_they_were() {
    // Learned positions end where the fixture's do.
    for (name, config) in cases().into_iter().filter(|(_, config)| config.positions == TextPositions::Sinusoidal) {
        let config = TransformerConfig { max_length: 30, ..config };
        let case = Case::new(name, &config);
        let many: Vec<Vec<u32>> = (0..40).map(|n| (0..n * 7 % 23).map(|i| 3 + (i * 5 + n) % 4).collect()).collect();
        for (beam, slots) in [(1, 32), (3, 60)] {
            let together =
                translate(&case, &config, &many, TranslateOptions { extra_tokens: 9, ..options(beam, slots) });
            for (source, together) in many.iter().zip(together) {
                let alone = TranslateOptions { extra_tokens: 9, ..options(beam, beam) };
                let alone = translate(&case, &config, std::slice::from_ref(source), alone).remove(0);
                assert!(together.len() == alone.len() && !alone.is_empty(), "{name}, {beam}: {source:?}");
                for (together, alone) in together.iter().zip(&alone) {
                    assert_eq!(together.tokens, alone.tokens, "{name}, {beam}: {source:?}");
                    assert!((together.score - alone.score).abs() < 1e-4, "{name}, {beam}: {source:?}");
                }
            }
        }
    }
}

/// Greedy and with a beam, in f32 a GPU finds what the CPU does, however many sentences it has at once.
#[test]
fn a_gpu_translates_as_the_cpu_does() {
    for device in devices().into_iter().filter(Device::is_gpu) {
        for (name, config) in cases().into_iter().filter(|(_, config)| config.positions == TextPositions::Sinusoidal) {
            let config = TransformerConfig { max_length: 30, ..config };
            let case = Case::new(name, &config);
            let many: Vec<Vec<u32>> = (0..40).map(|n| (0..n * 7 % 23).map(|i| 3 + (i * 5 + n) % 4).collect()).collect();
            for (beam, slots) in [(1, None), (1, Some(5)), (3, None), (4, Some(20))] {
                let options = TranslateOptions { extra_tokens: 9, slots, ..options(beam, 64) };
                let expected = translate_on(&CPU, &case, &config, &many, options);
                let got = translate_on(&device, &case, &config, &many, options);
                for ((got, expected), source) in got.iter().zip(&expected).zip(&many) {
                    assert_eq!(got.len(), expected.len(), "{name}, beam {beam}: {source:?}");
                    assert_eq!(got[0].tokens, expected[0].tokens, "{name}, beam {beam}: {source:?}");
                    assert!((got[0].score - expected[0].score).abs() < 1e-3, "{name}, beam {beam}: {source:?}");
                }
            }
            // In bf16 the caches are bf16, too.
            let narrow = TranslateOptions { precision: Precision::Bf16, extra_tokens: 9, ..options(1, 64) };
            for (source, found) in many.iter().zip(translate_on(&device, &case, &config, &many, narrow)) {
                let words = [&found[0].tokens[..], if found[0].ended { &[SPECIAL.end] } else { &[] }].concat();
                let likelihoods = (0..words.len())
                    .map(|place| opinions(&case, &config, source, &words[..place])[words[place] as usize]);
                let sum: f64 = likelihoods.sum();
                let apart = (sum - found[0].log_probability).abs();
                assert!(apart < 0.02 * words.len() as f64, "{name}: {source:?}: {sum} {found:?}");
            }
        }
    }
}

#[test]
fn in_bf16_a_translation_is_as_likely_as_f32_finds_it() {
    for (name, config) in cases() {
        let config = TransformerConfig { max_length: 6, ..config };
        let case = Case::new(name, &config);
        let narrow = TranslateOptions { precision: Precision::Bf16, ..options(1, 3) };
        for (source, found) in sources().iter().zip(translate(&case, &config, &sources(), narrow)) {
            let words = [&found[0].tokens[..], if found[0].ended { &[SPECIAL.end] } else { &[] }].concat();
            let likelihoods =
                (0..words.len()).map(|place| opinions(&case, &config, source, &words[..place])[words[place] as usize]);
            let sum: f64 = likelihoods.sum();
            assert!((sum - found[0].log_probability).abs() < 0.05, "{name}: {source:?}: {sum} {found:?}");
        }
    }
}

#[test]
fn weights_that_are_no_numbers_are_an_error_and_no_empty_translation() {
    let (name, config) = cases().into_iter().next().expect("a case");
    let case = Case::new(name, &config);
    for beam in [1, 2] {
        let weights: crate::generate::Weights = Box::new(|name: &str| {
            let values = case.state.parameter(name)?.iter();
            let values = values.map(|&value| if name.ends_with("norm1.bias") { f32::NAN } else { value });
            Ok(values.collect::<Vec<f32>>().into())
        });
        let mut translator = Translator::new(&config, SPECIAL, options(beam, beam), &CPU, weights).expect("pairs");
        let result = translator.translate(&sources()[..1]);
        assert!(result.unwrap_err().to_string().contains("NaN"), "beam {beam}");
    }
}

#[test]
fn a_wide_beam_finds_the_best_of_all_translations() {
    for (name, config) in cases() {
        let case = Case::new(name, &config);
        for source in [vec![3], vec![5, 4]] {
            let most = source.len() + 2;
            let beam = config.target_vocabulary.pow(3);
            let found = translate(&case, &config, std::slice::from_ref(&source), options(beam, beam));
            // All possible translations.
            let mut all: Vec<(Vec<u32>, f64, f64)> = Vec::new();
            let mut beginnings = vec![(Vec::new(), 0.0)];
            let score = |sum: f64, length: usize| sum / ((5.0 + length as f64) / 6.0).powf(0.6f32.into());
            while let Some((tokens, sum)) = beginnings.pop() {
                for (token, own) in opinions(&case, &config, &source, &tokens).into_iter().enumerate() {
                    let mut longer = tokens.clone();
                    longer.push(token as u32);
                    match () {
                        () if token as u32 == SPECIAL.end => {
                            all.push((tokens.clone(), sum + own, score(sum + own, tokens.len() + 1)));
                        }
                        () if longer.len() == most => all.push((longer, sum + own, score(sum + own, most))),
                        () => beginnings.push((longer, sum + own)),
                    }
                }
            }
            all.sort_by(|a, b| b.2.total_cmp(&a.2));
            assert_eq!(found[0].len(), beam.min(all.len()), "{name}: {source:?}");
            for (found, expected) in found[0].iter().zip(&all).take(10) {
                assert_eq!(found.tokens, expected.0, "{name}: {source:?}");
                assert!((found.log_probability - expected.1).abs() < 1e-4 && (found.score - expected.2).abs() < 1e-4);
            }
            // A narrow beam, among other sentences, gives valid translations with their scores.
            let narrow = translate(&case, &config, &[source.clone(), vec![6, 6, 3], source.clone()], options(3, 6));
            let tokens = |found: &[Hypothesis]| found.iter().map(|h| h.tokens.clone()).collect::<Vec<_>>();
            assert_eq!(tokens(&narrow[0]), tokens(&narrow[2]), "{name}");
            for hypothesis in &narrow[0] {
                let there = all.iter().find(|(tokens, ..)| *tokens == hypothesis.tokens).expect("a translation");
                assert!((there.1 - hypothesis.log_probability).abs() < 1e-4, "{name}");
            }
        }
    }
}

#[test]
fn a_saved_model_is_opened_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, config) in cases() {
        let case = Case::new(name, &config);
        let path = directory.path().join(name);
        let files = [("tokenizer.json".to_string(), b"{}".to_vec())];
        let options = SaveOptions { state: Some(&case.state), files: &files, ..SaveOptions::default() };
        let new = Model::new(Box::new(config.clone()), Vec::new()).expect("builds");
        new.save(&path, &options).expect("saved");
        let model = Model::open(&path, &OpenOptions::default()).expect("opens");
        let again: &dyn Architecture = model.architecture.as_ref();
        assert_eq!(again.downcast_ref(), Some(&config));
        let mut state = State::new(&case.graph).expect("memory");
        model.load(&mut state).expect("loads");
        assert_eq!(state.parameters(), case.state.parameters(), "{name}");
        assert_eq!(std::fs::read(path.join("tokenizer.json")).expect("there"), b"{}");
    }
    // The weights of one under the configuration of another give an error that names the tensor.
    let from = |name: &str| directory.path().join(name).join("model.safetensors");
    std::fs::copy(from("pre"), from("post")).expect("copied");
    let error = Model::open(&directory.path().join("post"), &OpenOptions::default()).expect_err("refused").to_string();
    assert!(error.contains("encoder.positions") && error.contains("model.safetensors"), "{error}");
}

#[test]
fn initial_values_follow_xaviers_rule() {
    for (name, config) in cases() {
        let mut state = State::new(&Case::new(name, &config).graph).expect("memory");
        state.parameters_mut().fill(f32::NAN);
        initialise(&mut state, Initialisation::Xavier, 5, &|_| true).expect("known");
        for parameter in state.table() {
            let values = state.parameter(&parameter.name).expect("known");
            match *parameter.shape.axes() {
                [out, into] => {
                    let bound = (6.0 / (into + out) as f32).sqrt();
                    let largest = values.iter().fold(0f32, |most, x| most.max(x.abs()));
                    assert!(largest <= bound && largest > 0.8 * bound, "{}: {largest} of {bound}", parameter.name);
                }
                _ => {
                    let norm = parameter.name.contains("norm") && parameter.name.ends_with("weight");
                    assert!(values.iter().all(|&x| x == f32::from(norm)), "{}", parameter.name);
                }
            }
        }
    }
}
