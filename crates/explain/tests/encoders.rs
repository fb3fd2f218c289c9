//! Encoders of texts against transformers and PyTorch (`fixtures/make_encoders.py`): attention, relevance of tokens, integrated gradients, what
//! each layer would fill in.

mod common;

use common::{CPU, bits, fixture, gpu, near, wide};
use vitreous_engine::Device;
use vitreous_explain::encoder::{EncoderExplainer, EncoderSettings, Steps, Target, gauss_legendre};
use vitreous_explain::{Choice, ExplainError, Structure};
use vitreous_models::archive::Archive;
use vitreous_models::encode::TextTokens;
use vitreous_models::{Model, OpenOptions, Pooling};

const ALL: [&str; 9] = [
    "bert_classes",
    "bert_masked",
    "bert_tokens",
    "bert_answers",
    "bert_plain",
    "albert_classes",
    "albert_masked",
    "roberta_classes",
    "distilbert_masked",
];
const STEPS: [usize; 3] = [1, 8, 32];
const LAYERS: usize = 3;
const HEADS: usize = 3;
const LIMIT: f64 = 2e-5;

/// A model with a text and what was expected of it.
struct Case {
    name: &'static str,
    model: Model,
    expected: Archive,
}

impl Case {
    fn open(name: &'static str) -> Case {
        let folder = fixture("encoders").join(name);
        let model = Model::open(&folder, &OpenOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = Archive::open(&folder.join("expected.safetensors")).unwrap_or_else(|error| panic!("{error}"));
        Case { name, model, expected }
    }

    fn has(&self, tensor: &str) -> bool {
        self.expected.names().any(|name| name == tensor)
    }

    fn tensor(&self, name: &str) -> Vec<f32> {
        let view = self.expected.tensor(name).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        view.to_f32().expect("numbers").into_owned()
    }

    fn numbers(&self, name: &str) -> Vec<u32> {
        self.tensor(name).into_iter().map(|number| number as u32).collect()
    }

    fn structure(&self) -> Structure {
        Structure::of(self.model.architecture.as_ref()).expect("a graph")
    }

    fn settings(&self) -> EncoderSettings {
        EncoderSettings { memory: 1 << 20, ..EncoderSettings::usual(self.structure(), 2) }
    }

    fn types(&self) -> Vec<u32> {
        if self.has("types") { self.numbers("types") } else { Vec::new() }
    }

    /// The targets that there are numbers for, with the pooling that they need.
    fn targets(&self) -> Vec<(String, Target, Pooling)> {
        let names = self.expected.names().filter_map(|name| name.strip_suffix(".relevance").map(str::to_string));
        names.map(|name| (name.clone(), self.target(&name), pooling_of(&name))).collect()
    }

    /// A target by its name in the fixture: `2`, `4.17`, `5.6`, `mean.length`, `max.similarity`.
    fn target(&self, name: &str) -> Target {
        let parts: Vec<&str> = name.split('.').collect();
        let number = |at: usize| parts[at].parse::<usize>().expect("a number");
        match parts[..] {
            [_, "length"] => Target::HalfSquaredLength,
            [_, "similarity"] => {
                let width = self.model.architecture.signature().token_vectors().expect("vectors");
                let place = |at: usize| 2.0 * at as f64 / (width as f64 - 1.0) - 1.0;
                Target::Similarity((0..width).map(|at| (place(at).powi(3) + 0.1) as f32).collect())
            }
            [_] => Target::Output(number(0)),
            _ if self.name == "bert_answers" => Target::Span { start: number(0), end: number(1) },
            _ => Target::OfToken { token: number(0), output: number(1) },
        }
    }
}

fn pooling_of(target: &str) -> Pooling {
    match target.split('.').next() {
        Some("cls") => Pooling::Cls,
        Some("max") => Pooling::Max,
        Some("last") => Pooling::Last,
        _ => Pooling::Mean,
    }
}

/// Attention, logits and all relevance of a case, on a device.
fn compare(case: &Case, device: &Device, limit: f64) {
    let (ids, types, baseline) = (case.numbers("ids"), case.types(), case.numbers("baseline"));
    let text = TextTokens { ids: &ids, types: &types, masked: &[] };
    let mut explainer = EncoderExplainer::new(&case.model, case.settings(), device).expect("an encoder");
    let mut pass = explainer.read(text).expect("a text");
    let attention = pass.attention().expect("weights");
    let weights: Vec<f32> = attention.iter().flat_map(|layer| layer.weights.iter().copied()).collect();
    near(&format!("{}: attention", case.name), wide(&weights), &case.tensor("attention"), limit);
    let size = ids.len().pow(2);
    for layer in &attention {
        let mean = |at: usize| (0..HEADS).map(|head| f64::from(layer.weights[head * size + at])).sum::<f64>();
        let expected: Vec<f32> = (0..size).map(|at| (mean(at) / HEADS as f64) as f32).collect();
        near("mean over heads", wide(&layer.mean), &expected, 1e-7);
    }
    let is_masked = case.has("fillings");
    if case.has("logits") && !is_masked {
        let logits = pass.logits().expect("a run").expect("a head");
        near(&format!("{}: logits", case.name), wide(&logits), &case.tensor("logits"), limit);
    }
    let targets = case.targets();
    assert!(!targets.is_empty(), "{}", case.name);
    for (name, target, pooling) in targets {
        let steps = if pooling == Pooling::Max { &STEPS[..1] } else { &STEPS[..] };
        for &steps in steps {
            let settings = EncoderSettings { pooling, steps: Steps::Exactly(steps), ..case.settings() };
            let mut explainer = EncoderExplainer::new(&case.model, settings, device).expect("an encoder");
            let mut pass = explainer.read(text).expect("a text");
            let what = format!("{}, {name}", case.name);
            let expected = case.tensor(&format!("{name}.relevance"));
            let scale = f64::from(expected.iter().copied().fold(1.0, f32::max));
            let found = pass.relevance(&target).expect("relevance");
            near(&format!("{what}: gradient x attention"), wide(&found), &expected, limit * scale);
            let found = pass.attributions(&target, &baseline).expect("attributions");
            let expected = case.tensor(&format!("{name}.integrated.{steps}"));
            let scale = f64::from(expected.iter().fold(1.0f32, |most, value| most.max(value.abs())));
            let what = format!("{what}: integrated gradients, {steps} steps");
            near(&what, wide(&found.tokens), &expected, 4.0 * limit * scale);
            near(&what, [found.baseline, found.value], &case.tensor(&format!("{name}.ends")), limit * scale);
            assert_eq!(found.steps, steps);
        }
    }
}

#[test]
fn attention_and_relevance_are_those_of_pytorch() {
    for name in ALL {
        compare(&Case::open(name), &CPU, LIMIT);
    }
}

/// Skipped, visibly, where there is no GPU.
#[test]
fn a_gpu_says_the_same() {
    let Some(gpu) = gpu() else { return };
    for name in ALL {
        compare(&Case::open(name), &gpu, 10.0 * LIMIT);
    }
}

#[test]
fn the_head_is_applied_to_every_layer() {
    for name in ["bert_masked", "albert_masked", "distilbert_masked"] {
        let case = Case::open(name);
        let (ids, types) = (case.numbers("ids"), case.types());
        let mut explainer = EncoderExplainer::new(&case.model, case.settings(), &CPU).expect("an encoder");
        let pass = explainer.read(TextTokens { ids: &ids, types: &types, masked: &[] }).expect("a text");
        let all = case.tensor("fillings");
        let vocabulary = all.len() / (LAYERS + 1) / ids.len();
        let layers = pass.fillings(vocabulary).expect("fillings");
        let numbers: Vec<Option<usize>> = layers.iter().map(|layer| layer.layer).collect();
        assert_eq!(numbers, [None, Some(0), Some(1), Some(2)]);
        for (layer, expected) in layers.iter().zip(all.chunks_exact(ids.len() * vocabulary)) {
            assert_eq!(layer.tokens.len(), ids.len());
            for (place, (top, expected)) in layer.tokens.iter().zip(expected.chunks_exact(vocabulary)).enumerate() {
                assert!(top.windows(2).all(|pair| pair[0].1 >= pair[1].1), "the most probable first");
                let mut found = vec![f32::NAN; vocabulary];
                top.iter().for_each(|&(id, score)| found[id as usize] = score);
                near(&format!("{name}, {:?}, token {place}", layer.layer), wide(&found), expected, LIMIT);
            }
        }
        // Fewer are the first of these.
        for (few, all) in pass.fillings(2).expect("fillings").iter().zip(&layers) {
            for (few, all) in few.tokens.iter().zip(&all.tokens) {
                assert_eq!(few[..], all[..2]);
            }
        }
    }
}

#[test]
fn contributions_sum_to_the_difference() {
    for name in ALL {
        let case = Case::open(name);
        let (ids, types, baseline) = (case.numbers("ids"), case.types(), case.numbers("baseline"));
        for (target_name, target, pooling) in case.targets() {
            // A maximum has corners, which no rule for smooth functions integrates well.
            if pooling == Pooling::Max {
                continue;
            }
            let settings = EncoderSettings { pooling, steps: Steps::Exactly(64), ..case.settings() };
            let mut explainer = EncoderExplainer::new(&case.model, settings, &CPU).expect("an encoder");
            let mut pass = explainer.read(TextTokens { ids: &ids, types: &types, masked: &[] }).expect("a text");
            let found = pass.attributions(&target, &baseline).expect("attributions");
            let difference = (found.value - found.baseline).abs();
            assert!(found.error() < 1e-3 * difference.max(1.0), "{name}, {target_name}: {}", found.error());
            // What is the same in the baseline contributes nothing.
            for ((contribution, id), other) in found.tokens.iter().zip(&ids).zip(&baseline) {
                assert!(id != other || *contribution == 0.0, "{name}, {target_name}");
            }
        }
    }
}

#[test]
fn as_many_steps_are_taken_as_are_needed() {
    let case = Case::open("bert_plain");
    let (ids, types, baseline) = (case.numbers("ids"), case.types(), case.numbers("baseline"));
    let found = |pooling: Pooling, steps: Steps, baseline: &[u32]| {
        let settings = EncoderSettings { pooling, steps, ..case.settings() };
        let mut explainer = EncoderExplainer::new(&case.model, settings, &CPU).expect("an encoder");
        let mut pass = explainer.read(TextTokens { ids: &ids, types: &types, masked: &[] }).expect("a text");
        pass.attributions(&Target::HalfSquaredLength, baseline).expect("attributions")
    };
    // A mean is smooth, a maximum is not.
    let smooth = found(Pooling::Mean, Steps::AsNeeded, &baseline);
    assert_eq!(smooth, found(Pooling::Mean, Steps::Exactly(32), &baseline));
    assert!(smooth.error_share() < 1e-4, "{}", smooth.error_share());
    let few = found(Pooling::Max, Steps::Exactly(32), &baseline);
    assert!(few.error_share() > 0.01, "{}: this text no longer needs more steps", few.error_share());
    let enough = found(Pooling::Max, Steps::AsNeeded, &baseline);
    assert!(enough.steps > 32 && (enough.error_share() <= 0.01 || enough.steps == 512), "{enough:?}");
    assert_eq!(enough, found(Pooling::Max, Steps::Exactly(enough.steps), &baseline));
    // Where there is no way to go, nothing is contributed and nothing missed.
    let nothing = found(Pooling::Mean, Steps::AsNeeded, &ids);
    assert_eq!((nothing.steps, nothing.error_share()), (32, 0.0));
    assert!(nothing.tokens.iter().all(|&contribution| contribution == 0.0));
}

#[test]
fn layers_heads_memory_and_threads_change_no_bit() {
    let case = Case::open("bert_classes");
    let (ids, types) = (case.numbers("ids"), case.types());
    let text = TextTokens { ids: &ids, types: &types, masked: &[] };
    let explained = |choice: Choice, memory: usize, threads: usize| {
        let settings = EncoderSettings { choice, memory, threads, ..case.settings() };
        let device = Device::Cpu { threads };
        let mut explainer = EncoderExplainer::new(&case.model, settings, &device).expect("an encoder");
        let mut pass = explainer.read(text).expect("a text");
        (pass.attention().expect("weights"), pass.relevance(&Target::Output(1)).expect("relevance"))
    };
    let all = Choice::all(case.structure());
    let (everything, relevance) = explained(all.clone(), 1 << 20, 2);
    for (memory, threads) in [(0, 1), (0, 3), (1 << 20, 3)] {
        let (attention, again) = explained(all.clone(), memory, threads);
        assert_eq!(attention, everything);
        assert_eq!(bits(&again), bits(&relevance));
    }
    let (some, again) = explained(Choice { layers: vec![2, 0], heads: vec![2, 1] }, 0, 2);
    assert_eq!(bits(&again), bits(&relevance));
    let size = ids.len().pow(2);
    assert_eq!(some.iter().map(|layer| layer.layer).collect::<Vec<_>>(), [0, 2]);
    for layer in some {
        let whole = &everything[layer.layer];
        assert_eq!((&layer.heads[..], &layer.mean), (&[1, 2][..], &whole.mean));
        assert_eq!(layer.weights, whole.weights[size..]);
    }
}

#[test]
fn one_explainer_explains_texts_of_any_length_and_any_target() {
    let case = Case::open("bert_classes");
    let (ids, types) = (case.numbers("ids"), case.types());
    let mut explainer = EncoderExplainer::new(&case.model, case.settings(), &CPU).expect("an encoder");
    let whole = TextTokens { ids: &ids, types: &types, masked: &[] };
    let short = TextTokens { ids: &ids[..3], types: &types[..3], masked: &[] };
    let relevance = |explainer: &mut EncoderExplainer, text: TextTokens, class: usize| {
        explainer.read(text).expect("a text").relevance(&Target::Output(class)).expect("relevance")
    };
    let first = relevance(&mut explainer, whole, 2);
    assert_eq!(relevance(&mut explainer, short, 2).len(), 3);
    assert_eq!(bits(&relevance(&mut explainer, whole, 2)), bits(&first));
    // Several targets of one text, one after the other, are as each alone.
    let mut pass = explainer.read(whole).expect("a text");
    let (_, again) =
        (pass.relevance(&Target::Output(0)).expect("one"), pass.relevance(&Target::Output(2)).expect("two"));
    assert_eq!(bits(&again), bits(&first));
    let length = pass.relevance(&Target::HalfSquaredLength).expect("three");
    assert_ne!(bits(&length), bits(&first));
    assert_eq!(bits(&pass.relevance(&Target::Output(2)).expect("four")), bits(&first));
}

#[test]
fn what_the_model_has_not_is_refused() {
    let case = Case::open("bert_classes");
    let ids = case.numbers("ids");
    let text = TextTokens { ids: &ids, types: &[], masked: &[] };
    let settings = |choice: Choice| EncoderSettings { choice, ..case.settings() };
    let refused = |choice: Choice| EncoderExplainer::new(&case.model, settings(choice), &CPU).err().expect("refused");
    assert!(refused(Choice { layers: vec![3], heads: vec![] }).to_string().contains("no layer 3"));
    assert!(refused(Choice { layers: vec![], heads: vec![9] }).to_string().contains("no head 9"));
    let mut explainer = EncoderExplainer::new(&case.model, case.settings(), &CPU).expect("an encoder");
    let mut refusal =
        |ids: &[u32]| explainer.read(TextTokens { ids, types: &[], masked: &[] }).err().expect("refused").to_string();
    assert!(refusal(&[]).contains("no token"));
    assert!(refusal(&[3; 13]).contains("the text has 13 tokens"));
    assert!(refusal(&[99]).contains("token 99"));
    let mut pass = explainer.read(text).expect("a text");
    let mut refusal = |target: Target| pass.relevance(&target).expect_err("refused").to_string();
    assert!(refusal(Target::Output(3)).contains("no class 3"));
    assert!(refusal(Target::OfToken { token: 0, output: 0 }).contains("a text classifier"));
    assert!(refusal(Target::Span { start: 0, end: 1 }).contains("start and end"));
    assert!(refusal(Target::Similarity(vec![1.0])).contains("vector of that length"));
    assert!(matches!(pass.attributions(&Target::Output(0), &[0]), Err(ExplainError::Baseline { got: 1, .. })));
    assert!(pass.fillings(1).is_err());
}

#[test]
fn the_rule_is_that_of_numpy() {
    // numpy.polynomial.legendre.leggauss(5), brought to 0 .. 1.
    let expected = [
        (0.046910077030668, 0.118463442528095),
        (0.230765344947158, 0.239314335249683),
        (0.5, 0.284444444444444),
        (0.769234655052841, 0.239314335249683),
        (0.953089922969332, 0.118463442528095),
    ];
    for ((point, weight), (x, w)) in gauss_legendre(5).into_iter().zip(expected) {
        assert!((point - x).abs() < 1e-14 && (weight - w).abs() < 1e-14, "{point} {weight}");
    }
}
