//! Attention of an encoder and a decoder against PyTorch's (`fixtures/make_text.py`), and that asking for it changes nothing.

mod common;

use common::{CPU, bits, fixture, gpu, near, wide};
use vitreous_engine::cpu::Executor;
use vitreous_engine::{Device, Graph, Op, Parameter, Plan, Value};
use vitreous_explain::text::{TextAttention, TextChoice, TextExplanation, TextStructure, explain_text};
use vitreous_models::archive::Archive;
use vitreous_models::families::transformer::{PairShape, TextPositions, TransformerConfig, transformer};
use vitreous_models::generate::{SpecialTokens, Weights};
use vitreous_models::{Activation, NormOrder};

const SPECIAL: SpecialTokens = SpecialTokens { padding: 0, start: 1, end: 2, forced_end: None };
const SHAPE: PairShape = PairShape { batch: 3, source: 5, target: 4 };
const LAYERS: usize = 2;
const HEADS: usize = 3;

/// A model of the fixture.
struct Case {
    name: &'static str,
    config: TransformerConfig,
    archive: Archive,
}

impl Case {
    fn all() -> [Case; 2] {
        let post = TransformerConfig {
            source_vocabulary: 9,
            target_vocabulary: 7,
            dim: 12,
            heads: HEADS,
            encoder_layers: LAYERS,
            decoder_layers: LAYERS,
            mlp_dim: 20,
            max_length: 6,
            ..TransformerConfig::default()
        };
        let pre = TransformerConfig {
            norm_order: NormOrder::Pre,
            activation: Activation::Gelu,
            positions: TextPositions::Learned,
            ..post.clone()
        };
        [("post", post), ("pre", pre)].map(|(name, config)| {
            let archive = Archive::open(&fixture("text.safetensors")).expect("a fixture");
            Case { name, config, archive }
        })
    }

    fn structure(&self) -> TextStructure {
        TextStructure::of(&self.config).expect("a graph")
    }

    fn tensor(&self, name: &str) -> Vec<f32> {
        let name = format!("{}.{name}", self.name);
        let tensor = self.archive.tensor(&name).unwrap_or_else(|error| panic!("{error}"));
        tensor.to_f32().expect("numbers").into_owned()
    }

    fn tokens(&self, name: &str) -> Vec<u32> {
        self.tensor(name).into_iter().map(|token| token as u32).collect()
    }

    fn weights(&self) -> Weights<'_> {
        Box::new(|name: &str| Ok(self.tensor(&format!("parameter.{name}")).into()))
    }

    /// Source and target of one pair, without padding, start and end.
    fn pair(&self, index: usize) -> [Vec<u32>; 2] {
        let length = self.tokens("lengths")[index] as usize;
        let source = self.tokens("source")[index * SHAPE.source..][..length - 1].to_vec();
        [source, self.tokens("target")[index * SHAPE.target + 1..][..SHAPE.target - 1].to_vec()]
    }

    fn explain(&self, index: usize, choice: &TextChoice) -> TextExplanation {
        self.explain_on(&CPU, index, choice)
    }

    fn explain_on(&self, device: &Device, index: usize, choice: &TextChoice) -> TextExplanation {
        let [source, target] = self.pair(index);
        let pair = [&source[..], &target];
        explain_text(&self.config, &self.weights(), SPECIAL, pair, choice, device).expect("an explanation")
    }

    /// Runs the padded batch, or one pair alone.
    fn run(&self, graph: &Graph, outputs: &[Value], pair: Option<usize>) -> Vec<Vec<f32>> {
        let plan = Plan::for_cpu_with_fixed_weights(graph, outputs).expect("a plan");
        let weights = self.weights();
        let mut executor = Executor::with_weights(plan, 2, |parameter: &Parameter| weights.weight(&parameter.name))
            .expect("an executor");
        let [source, target, lengths] = match pair {
            None => ["source", "target", "lengths"].map(|name| self.tokens(name)),
            Some(index) => {
                let [mut source, mut target] = self.pair(index);
                source.push(SPECIAL.end);
                target.insert(0, SPECIAL.start);
                let lengths = vec![source.len() as u32];
                [source, target, lengths]
            }
        };
        for (name, tokens) in [("source", source), ("target", target), ("source_lengths", lengths)] {
            let tokens: Vec<i32> = tokens.into_iter().map(|token| token as i32).collect();
            executor.input_i32(name).expect("an input").copy_from_slice(&tokens);
        }
        executor.infer().expect("a run");
        outputs.iter().map(|&output| executor.output(output).expect("an output")).collect()
    }
}

/// All attention of a graph by the fixture's names, with taps.
fn taps(graph: &mut Graph) -> Vec<(String, Value)> {
    let paths: Vec<String> =
        graph.nodes().iter().filter(|node| matches!(node.op, Op::Attention(_))).map(|node| node.path.clone()).collect();
    let tap = |path: &String| {
        let part: Vec<&str> = path.split('.').collect();
        let kind = if part[2] == "cross_attention" { "cross" } else { part[0] };
        let attention = graph.find(path).expect("known");
        (format!("{kind}.{}", part[1]), graph.attention_weights(attention).expect("weights"))
    };
    paths.iter().map(tap).collect()
}

#[test]
fn weights_of_a_padded_batch_are_those_of_pytorch_and_hidden_places_have_none() {
    for case in Case::all() {
        let mut graph = Graph::for_inference();
        transformer(&mut graph, &case.config, SHAPE).expect("a model");
        let taps = taps(&mut graph);
        assert_eq!(taps.len(), 3 * LAYERS);
        let values: Vec<Value> = taps.iter().map(|tap| tap.1).collect();
        let lengths = case.tokens("lengths");
        for ((name, _), weights) in taps.iter().zip(case.run(&graph, &values, None)) {
            near(&format!("{}, {name}", case.name), wide(&weights), &case.tensor(name), 1e-5);
            let (queries, keys) = match &name[..2] {
                "en" => (SHAPE.source, SHAPE.source),
                "de" => (SHAPE.target, SHAPE.target),
                _ => (SHAPE.target, SHAPE.source),
            };
            for (index, row) in weights.chunks_exact(keys).enumerate() {
                let (pair, query) = (index / (HEADS * queries), index % queries);
                let seen = if name.starts_with("de") { query + 1 } else { lengths[pair] as usize };
                assert!(row[seen..].iter().all(|weight| weight.to_bits() == 0), "{name}, row {index}: {row:?}");
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{name}, row {index}");
            }
        }
    }
}

#[test]
fn an_explanation_has_the_weights_and_probabilities_of_pytorch() {
    for case in Case::all() {
        for (index, &length) in case.tokens("lengths").iter().enumerate() {
            let length = length as usize;
            let found = case.explain(index, &TextChoice::all(case.structure()));
            assert_eq!((found.source.len(), found.read.len(), found.written.len()), (length, 4, 4));
            assert_eq!((found.source[length - 1], found.read[0], found.written[3]), (2, 1, 2));
            assert_eq!(found.read[1..], found.written[..3]);
            let kinds = [
                ("encoder", &found.encoder, [SHAPE.source; 2], [length; 2]),
                ("decoder", &found.decoder, [SHAPE.target; 2], [SHAPE.target; 2]),
                ("cross", &found.cross, [SHAPE.target, SHAPE.source], [SHAPE.target, length]),
            ];
            for (kind, layers, padded, own) in kinds {
                assert_eq!(layers.len(), LAYERS);
                for TextAttention { layer, heads, weights, mean } in layers {
                    assert_eq!(heads, &[0, 1, 2]);
                    let all = case.tensor(&format!("{kind}.{layer}"));
                    let all = &all[index * HEADS * padded[0] * padded[1]..][..HEADS * padded[0] * padded[1]];
                    let rows = all.chunks_exact(padded[0] * padded[1]);
                    let rows = rows.flat_map(|head| head.chunks_exact(padded[1]).take(own[0]));
                    let expected: Vec<f32> = rows.flat_map(|row| row[..own[1]].iter().copied()).collect();
                    let what = format!("{}, pair {index}, {kind} {layer}", case.name);
                    near(&what, wide(weights), &expected, 1e-5);
                    let one_head = own[0] * own[1];
                    let mean_of =
                        |at: usize| (0..HEADS).map(|head| f64::from(weights[head * one_head + at])).sum::<f64>();
                    let expected: Vec<f32> = (0..one_head).map(|at| (mean_of(at) / HEADS as f64) as f32).collect();
                    near(&what, wide(mean), &expected, 1e-7);
                }
            }
            let means: Vec<&Vec<f32>> = found.cross.iter().map(|layer| &layer.mean).collect();
            assert_eq!(means, found.cross_means.iter().collect::<Vec<_>>());

            let logits = case.tensor("logits");
            let words = case.config.target_vocabulary;
            for (place, row) in logits[index * 4 * words..][..4 * words].chunks_exact(words).enumerate() {
                let exponents: Vec<f64> = row.iter().map(|&logit| f64::from(logit).exp()).collect();
                let share = |token: usize| (exponents[token] / exponents.iter().sum::<f64>()) as f32;
                let best = (0..words).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("words");
                let expected = [share(found.written[place] as usize), share(best)];
                let got = [found.probabilities[place], found.likeliest[place].1];
                near("probabilities", wide(&got), &expected, 1e-5);
                assert_eq!(found.likeliest[place].0 as usize, best);
            }
        }
    }
}

#[test]
fn asking_changes_no_bit() {
    for case in Case::all() {
        for pair in [None, Some(0), Some(1), Some(2)] {
            let shape = match pair {
                None => SHAPE,
                Some(index) => PairShape { batch: 1, source: case.tokens("lengths")[index] as usize, target: 4 },
            };
            let mut graph = Graph::for_inference();
            let built = transformer(&mut graph, &case.config, shape).expect("a model");
            let scores = graph.softmax(built.logits).expect("probabilities");
            let answers = [built.memory, built.logits, scores];
            let plain = case.run(&graph, &answers, pair);
            assert_eq!(bits(&case.run(&graph, &[built.logits], pair)[0]), bits(&plain[1]));
            let taps: Vec<Value> = taps(&mut graph).into_iter().map(|tap| tap.1).collect();
            let asked = case.run(&graph, &[&answers[..], &taps].concat(), pair);
            for (plain, asked) in plain.iter().zip(&asked) {
                assert_eq!(bits(plain), bits(asked), "{}, {pair:?}", case.name);
            }
            let Some(index) = pair else { continue };
            let found = case.explain(index, &TextChoice::all(case.structure()));
            let words = case.config.target_vocabulary;
            let own = found.written.iter().enumerate().map(|(place, &token)| plain[2][place * words + token as usize]);
            assert_eq!(bits(&found.probabilities), bits(&own.collect::<Vec<f32>>()));
        }
    }
}

/// Skipped, visibly, where there is no GPU.
#[test]
fn a_gpu_says_the_same() {
    let Some(gpu) = gpu() else { return };
    for case in Case::all() {
        for pair in 0..SHAPE.batch {
            let choice = TextChoice::all(case.structure());
            let [on_cpu, on_gpu] = [&CPU, &gpu].map(|device| case.explain_on(device, pair, &choice));
            let compare = |what: &str, got: &[f32], expected: &[f32]| {
                near(&format!("{}, pair {pair}: {what}", case.name), wide(got), expected, 1e-4);
            };
            compare("probabilities", &on_gpu.probabilities, &on_cpu.probabilities);
            let all = |of: &TextExplanation| [of.encoder.clone(), of.decoder.clone(), of.cross.clone()].concat();
            let (on_gpu, on_cpu) = (all(&on_gpu), all(&on_cpu));
            assert_eq!(on_gpu.len(), on_cpu.len());
            for (got, expected) in on_gpu.iter().zip(&on_cpu) {
                compare(&format!("weights of layer {}", got.layer), &got.weights, &expected.weights);
                compare(&format!("mean of layer {}", got.layer), &got.mean, &expected.mean);
            }
        }
    }
}

#[test]
fn only_what_is_asked_for_is_kept() {
    let [case, _] = Case::all();
    let choice = TextChoice { encoder_layers: vec![], decoder_layers: vec![1], heads: vec![0, 2] };
    let (some, all) = (case.explain(0, &choice), case.explain(0, &TextChoice::all(case.structure())));
    assert!(some.encoder.is_empty());
    assert_eq!((some.decoder.len(), some.cross.len(), some.cross[0].layer), (1, 1, 1));
    let one_head = all.cross[1].weights.len() / HEADS;
    assert_eq!(some.cross[0].weights[..one_head], all.cross[1].weights[..one_head]);
    assert_eq!(some.cross[0].weights[one_head..], all.cross[1].weights[2 * one_head..]);
    assert_eq!((&some.cross[0].mean, &some.cross_means), (&all.cross[1].mean, &all.cross_means));
    assert_eq!(bits(&some.probabilities), bits(&all.probabilities));
}

#[test]
fn what_the_model_has_not_is_refused() {
    let [case, _] = Case::all();
    let refusal = |pair: [&[u32]; 2], change: fn(&mut TextChoice)| {
        let mut choice = TextChoice::all(case.structure());
        change(&mut choice);
        explain_text(&case.config, &case.weights(), SPECIAL, pair, &choice, &CPU).expect_err("refused").to_string()
    };
    let pair: [&[u32]; 2] = [&[3, 4], &[5]];
    assert_eq!(
        refusal(pair, |choice| choice.decoder_layers.push(2)),
        "there is no layer of the decoder 2: the model has 2 layers of the decoder, 0 to 1"
    );
    assert!(refusal(pair, |choice| choice.heads.push(7)).contains("no head 7"));
    assert!(refusal([&[3; 6], &[5]], |_| ()).contains("the source has 7 tokens"));
    assert!(refusal([&[3], &[5; 6]], |_| ()).contains("the target has 7 tokens"));
    assert!(refusal([&[9], &[5]], |_| ()).contains("token 9, but the model knows 9"));
    assert!(
        explain_text(&case.config, &case.weights(), SPECIAL, [&[], &[]], &TextChoice::all(case.structure()), &CPU)
            .is_ok()
    );
}
