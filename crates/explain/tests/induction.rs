//! A model of two layers that is trained on repeated random tokens grows an induction head; its score finds it; without it, the model cannot
//! repeat any more.

use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Edit, Executor, GradientOptions, Graph, Group, Mode, Optimizer, Parameter,
    Precision, Run, State, StepOptions,
};
use vitreous_explain::inside::{Given, Inside};
use vitreous_explain::language;
use vitreous_models::{Call, Initialisation, Model, OpenOptions, SaveOptions, Settings, family, initialise};

const VOCABULARY: usize = 24;
const LENGTH: usize = 24;
const BATCH: usize = 48;
/// At most; it is trained until it knows what follows.
const STEPS: u64 = 2000;

/// Tokens in an order that is drawn, repeated with a period of 6 to 12: only who looks for what followed a token before can go on.
fn repeated(step: u64, sample: u64) -> Vec<u32> {
    let stream = Stream::new(5, step, place_of("repeated"));
    let mut drawn = (0u64..).map(|at| stream.four(sample * 4096 + at)[0]);
    let mut below = |limit: usize| drawn.next().map_or(0, |word| ((u64::from(word) * limit as u64) >> 32) as usize);
    let mut order: Vec<u32> = (0..VOCABULARY as u32).collect();
    for at in (1..VOCABULARY).rev() {
        order.swap(at, below(at + 1));
    }
    let period = 6 + below(7);
    (0..LENGTH).map(|at| order[at % period]).collect()
}

fn settings() -> Settings {
    let settings = serde_json::json!({
        "vocabulary": VOCABULARY, "max_length": LENGTH, "dim": 32, "depth": 2, "heads": 4, "kv_heads": 4, "mlp_dim": 32, "tied": false,
    });
    settings.as_object().expect("an object").clone()
}

/// Trains, saves and opens the model.
fn trained(folder: &std::path::Path) -> Model {
    let architecture = family("llama").expect("a family").from_settings(&settings()).expect("settings");
    let mut graph = Graph::new(Mode::Training, Precision::F32);
    let logits =
        architecture.build(&mut graph, &Call::whole(BATCH).tokens(LENGTH)).and_then(|built| built.need("logits"));
    let targets = graph.input("targets", [BATCH, LENGTH], DType::I32).expect("an input");
    let options = CrossEntropyOptions { ignored_index: Some(-1), ..CrossEntropyOptions::default() };
    let loss = graph.cross_entropy(logits.expect("logits"), targets, options).expect("a loss");
    let step = StepOptions {
        optimizer: Optimizer::AdamW { beta1: 0.9, beta2: 0.98, eps: 1e-8 },
        group: &|_: &Parameter| Some(Group { decay: 0.01, rate_factor: 1.0 }),
        clip: Some(1.0),
        ema: false,
        gradient: GradientOptions::default(),
    };
    graph.training_step(loss, &step).expect("a step");
    let device = Device::Cpu { threads: 2 };
    let plan = device.plan(&graph, &[loss]).expect("a plan");
    let mut executor = Executor::new(plan, &device).expect("an executor");
    let mut state = State::new(&graph).expect("a state");
    initialise(&mut state, Initialisation::TruncatedNormal, 3, &|_| true).expect("values");
    executor.input_i32("lengths").expect("lengths").fill(LENGTH as i32);
    for step in 0..STEPS {
        let texts: Vec<Vec<u32>> = (0..BATCH as u64).map(|sample| repeated(step, sample)).collect();
        let tokens = executor.input_i32("tokens").expect("tokens");
        tokens.iter_mut().zip(texts.iter().flatten()).for_each(|(to, token)| *to = *token as i32);
        let targets = executor.input_i32("targets").expect("targets");
        for (row, text) in targets.chunks_exact_mut(LENGTH).zip(&texts) {
            // The first half cannot be known.
            let next = |at: usize| if at + 1 < LENGTH && at >= LENGTH / 2 { text[at + 1] as i32 } else { -1 };
            row.iter_mut().enumerate().for_each(|(at, to)| *to = next(at));
        }
        executor.input("learning_rate").expect("a rate")[0] = 3e-3 * (step as f32 / 100.0).min(1.0);
        executor.run(&mut state, Run { seed: 0, step }).expect("a step");
        if executor.number(loss).expect("a loss") < 0.03 {
            println!("trained for {step} steps");
            break;
        }
    }
    let model = Model::new(architecture, Vec::new()).expect("a model");
    let options = SaveOptions { state: Some(&state), ..SaveOptions::default() };
    model.save(folder, &options).expect("saved");
    Model::open(folder, &OpenOptions::default()).expect("opened")
}

/// The mean probability of the right next token in the second half of texts that it was not trained on.
fn sureness(model: &Model, device: &Device) -> f64 {
    let mut sum = 0.0;
    for sample in 0..8 {
        let text = repeated(u64::MAX / 2, sample);
        let asked: Vec<Option<u32>> = text.iter().skip(1).map(|&token| Some(token)).chain([None]).collect();
        let mut inside = Inside::read(model, Given::Tokens(text), device).expect("read");
        let said = inside.lens(1, &asked).expect("a lens").pop().expect("the last layer").said;
        let second = said[LENGTH / 2..LENGTH - 1].iter().filter_map(|said| said.asked);
        sum += second.map(|(share, _)| f64::from(share)).sum::<f64>() / (LENGTH / 2 - 1) as f64;
    }
    sum / 8.0
}

#[test]
fn an_induction_head_grows_is_found_and_is_what_repeats() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = Device::Cpu { threads: 2 };
    let model = trained(&folder.path().join("model"));
    let whole = sureness(&model, &device);
    let scores = language::scores_on_repeated_tokens(&model, None, &device).expect("scores");
    assert!(whole > 0.8, "it learned to repeat: {whole}");
    let heads = || (0..2).flat_map(|layer| (0..4).map(move |head| (layer, head)));
    let best = heads().max_by(|&(a, b), &(c, d)| scores[a][b].induction.total_cmp(&scores[c][d].induction));
    let (layer, head) = best.expect("a head");
    assert_eq!(layer, 1, "an induction head needs a layer before it");
    assert!(scores[layer][head].induction > 0.4, "{scores:?}");
    let finds = |(layer, head): &(usize, usize)| scores[*layer][*head].induction > 0.25;
    let without = |chosen: Vec<(usize, usize)>| {
        let model = Model::open(&folder.path().join("model"), &OpenOptions::default()).expect("opened");
        let edit = |model: Model, (layer, head): (usize, usize)| {
            model.with(&format!("blocks.{layer}.attention.heads.{head}"), Edit::Zero).expect("a head")
        };
        sureness(&chosen.into_iter().fold(model, edit), &device)
    };
    let lost = without(heads().filter(finds).collect());
    assert!(lost < 0.2, "without its induction heads it cannot repeat: {lost}");
    // It is not that any head would do: without some head of the first layer it still can.
    let kept = (0..4).map(|head| without(vec![(0, head)])).fold(0.0, f64::max);
    println!("sureness {whole}, without induction heads {lost}, without the least of the first layer's {kept}");
    assert!(kept > 0.6, "{kept}");
}
