//! Low-rank adapters against PyTorch (`make_adapters.py`), what is computed for frozen weights, and merging.

use super::common::{Configured, LIMIT, fixture, largest_difference, open, tensor};
use crate::adapters::{Adapters, merge_adapters, merged};
use crate::archive::Archive;
use crate::families::vit::vit;
use crate::initial::{Initialisation, initialise};
use crate::{Call, Model};
use vitreous_engine::cpu::Executor;
use vitreous_engine::random::Run;
use vitreous_engine::{
    CrossEntropyOptions, DType, GradientOptions, Graph, Group, Op, Optimizer, Parameter, Plan, Role, State,
    StepOptions, Value,
};

const ADAPTERS: Adapters = Adapters { rank: 3, alpha: 7.5, mlp: false };

struct Tuning {
    graph: Graph,
    logits: Value,
    loss: Value,
}

/// A training step of the adapters and the head.
fn tuning(model: &Model, adapters: &Adapters) -> Tuning {
    let mut graph = Graph::for_training();
    let logits = vit(&mut graph, model.config(), &Call::whole(2).adapters(Some(adapters)))
        .expect("builds")
        .need("logits")
        .expect("a head");
    let targets = graph.input("targets", [2], DType::I32).expect("an input");
    let loss = graph.cross_entropy(logits, targets, CrossEntropyOptions::default()).expect("a loss");
    let trained = |parameter: &Parameter| parameter.role() == Role::Adapter || parameter.head;
    let options = StepOptions {
        optimizer: Optimizer::adamw(),
        group: &|parameter| trained(parameter).then_some(Group { decay: 0.0, rate_factor: 1.0 }),
        clip: None,
        ema: false,
        gradient: GradientOptions::default(),
    };
    graph.training_step(loss, &options).expect("a step");
    Tuning { graph, logits, loss }
}

fn for_both(check: impl Fn(&Model, &Archive, Adapters, &str)) {
    let archive = Archive::open(&fixture("adapters.safetensors")).expect("opens");
    let model = open("timm_token");
    for (mlp, prefix) in [(false, ""), (true, "mlp.")] {
        check(&model, &archive, Adapters { mlp, ..ADAPTERS }, prefix);
    }
}

/// Sets the model's weights, and the fixture's adapters and head.
fn fill(state: &mut State, model: &Model, archive: &Archive, prefix: &str) {
    state.parameters_mut().fill(f32::NAN);
    model.load(state).expect("loads");
    let adapters = state.table().iter().filter(|parameter| parameter.role() == Role::Adapter);
    let names: Vec<String> = adapters.map(|parameter| parameter.name.clone()).collect();
    for name in &names {
        state.parameter_mut(name).expect("known").copy_from_slice(&tensor(archive, &format!("{prefix}{name}")).1);
    }
}

#[test]
fn adapters_and_their_gradients_are_those_of_pytorch() {
    for_both(|model, archive, adapters, prefix| {
        let Tuning { graph, logits, loss } = tuning(model, &adapters);
        let mut executor = Executor::new(Plan::for_cpu(&graph, &[logits, loss]).expect("plans"), 2).expect("runs");
        let mut state = State::new(&graph).expect("memory");
        fill(&mut state, model, archive, prefix);
        let before = state.parameters().to_vec();
        let expected = |name: &str| tensor(archive, &format!("{prefix}{name}")).1;
        executor.input("images").expect("an input").copy_from_slice(&expected("images"));
        executor.input_i32("targets").expect("an input").copy_from_slice(&[2, 0]);
        executor.input("learning_rate").expect("an input")[0] = 1e-2;
        executor.run(&mut state, Run::default()).expect("a run");
        let difference = largest_difference(&executor.output(logits).expect("logits"), &expected("logits"));
        assert!(difference < LIMIT, "logits differ by {difference:e}");
        assert!((executor.number(loss).expect("a loss") - expected("loss")[0]).abs() < 1e-5);
        let (mut worst, mut trained) = (0f32, 0);
        for parameter in state.table() {
            let range = parameter.offset..parameter.offset + parameter.shape.elements();
            let moved = state.parameters()[range.clone()] != before[range];
            assert_eq!(moved, parameter.gradient_offset.is_some(), "{}", parameter.name);
            if moved {
                let gradient = state.gradient(&parameter.name).expect("trained");
                let difference = largest_difference(gradient, &expected(&format!("gradient.{}", parameter.name)));
                assert!(difference < 1e-5, "gradient of {} differs by {difference:e}", parameter.name);
                (worst, trained) = (worst.max(difference), trained + 1);
            }
        }
        // Two layers of two or four adapters of two matrices, and the head's weight and bias.
        assert_eq!(trained, 2 * if adapters.mlp { 8 } else { 4 } + 2);
        println!("gradients differ by {worst:.1e} at most");
    });
}

/// No gradient is computed for frozen weights, nor for anything before the first adapter.
#[test]
fn frozen_weights_cost_no_backward_pass() {
    for_both(|model, _, adapters, _| {
        let Tuning { graph, .. } = tuning(model, &adapters);
        let count = |is: &dyn Fn(&Op) -> bool| graph.nodes().iter().filter(|node| is(&node.op)).count();
        let matrices = 2 * if adapters.mlp { 8 } else { 4 };
        assert_eq!(count(&|op| matches!(op, Op::LinearWeightGradient(_))), matrices + 1);
        assert!(!graph.nodes().iter().any(|node| node.path.starts_with("gradient.patch_embedding")));
        assert!(!graph.nodes().iter().any(|node| node.path.starts_with("gradient.blocks.0.norm1")));
        assert!(graph.nodes().iter().any(|node| node.path.starts_with("gradient.blocks.1.norm1")));
        // Gradients and moments have the size of the trained parameters.
        let trained: usize =
            graph.parameters().iter().filter(|p| p.gradient_offset.is_some()).map(|p| p.shape.elements()).sum();
        assert!(graph.gradient_floats() < trained + 16 * graph.parameters().len());
    });
}

#[test]
fn merged_weights_are_an_ordinary_model_with_the_same_results() {
    for_both(|model, archive, adapters, prefix| {
        let Tuning { graph, .. } = tuning(model, &adapters);
        let mut state = State::new(&graph).expect("memory");
        fill(&mut state, model, archive, prefix);
        let mut plain = Graph::for_inference();
        let logits = vit(&mut plain, model.config(), &Call::whole(2)).expect("builds").need("logits").expect("a head");
        let mut ordinary = State::new(&plain).expect("memory");
        for parameter in plain.parameters() {
            let values = merged(&state, &adapters, &parameter.name).expect("known");
            ordinary.parameter_mut(&parameter.name).expect("known").copy_from_slice(&values);
        }
        let expected = |name: &str| tensor(archive, &format!("{prefix}{name}")).1;
        let mut executor = Executor::new(Plan::for_cpu(&plain, &[logits]).expect("plans"), 1).expect("runs");
        executor.input("images").expect("an input").copy_from_slice(&expected("images"));
        executor.run(&mut ordinary, Run::default()).expect("a run");
        let difference = largest_difference(&executor.output(logits).expect("logits"), &expected("logits"));
        assert!(difference < LIMIT, "logits differ by {difference:e}");

        merge_adapters(&mut state, &adapters).expect("merges");
        for parameter in plain.parameters() {
            let same = state.parameter(&parameter.name).unwrap() == ordinary.parameter(&parameter.name).unwrap();
            assert!(same, "{}", parameter.name);
        }
        // Compared as bits: the padding between parameters is NaN.
        let bits = |state: &State| state.parameters().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let merged_once = bits(&state);
        merge_adapters(&mut state, &adapters).expect("merges");
        assert!(bits(&state) == merged_once, "a second time changes something");
        let other = Adapters { rank: 2, ..adapters };
        assert!(merged(&state, &other, "blocks.0.attention.qkv.weight").unwrap_err().to_string().contains("rank"));
    });
}

#[test]
fn adapters_start_as_the_model_itself() {
    let model = open("timm_token");
    let Tuning { graph, .. } = tuning(&model, &ADAPTERS);
    let mut state = State::new(&graph).expect("memory");
    model.load(&mut state).expect("loads");
    let before = merged(&state, &ADAPTERS, "blocks.1.attention.qkv.weight").expect("known");
    initialise(&mut state, Initialisation::Zeros, 1, &|parameter| parameter.role() == Role::Adapter).expect("known");
    let a = state.parameter("blocks.1.attention.qkv.lora_a").expect("known");
    assert!(a.iter().all(|x| x.abs() < 0.25) && a.iter().any(|x| x.abs() > 0.15), "uniform up to 1/√16: {a:?}");
    assert!(state.parameter("blocks.1.attention.qkv.lora_b").expect("known").iter().all(|&x| x == 0.0));
    assert_eq!(merged(&state, &ADAPTERS, "blocks.1.attention.qkv.weight").expect("known"), before);
}

#[test]
fn adapters_of_no_size_are_refused() {
    let model = open("timm_token");
    let refused = |adapters: Adapters| {
        vit(&mut Graph::for_training(), model.config(), &Call::whole(1).adapters(Some(&adapters)))
            .unwrap_err()
            .to_string()
    };
    assert!(refused(Adapters { rank: 0, ..ADAPTERS }).contains("rank of adapters"));
    assert!(refused(Adapters { alpha: f32::NAN, ..ADAPTERS }).contains("alpha of adapters"));
}
