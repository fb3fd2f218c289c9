//! Training steps: optimisers, clipping, groups, averages, recomputation; and what a plan says of itself.

mod common;

use common::encoder::{Training, encoder, group, group_without_embedding, options, training, values};
use common::reference_for;
use vitreous_engine::cpu::Executor;
use vitreous_engine::{
    AttentionInputs, AttentionOptions, DType, Error, GradientOptions, Graph, Group, Mode, MuonScale, Op, Optimizer,
    Padding, Parameter, Plan, Precision, Result, Run, State, StepOptions, Value,
};

fn error_of(got: &[f32], expected: &[f64]) -> f64 {
    let difference: f64 = got.iter().zip(expected).map(|(g, e)| (f64::from(*g) - e).powi(2)).sum();
    (difference / expected.iter().map(|e| e * e).sum::<f64>().max(1e-12)).sqrt()
}

/// Four whole steps on the CPU follow the reference: loss, gradient norm, parameters, average.
fn follows_reference(optimizer: Optimizer, group: &dyn Fn(&Parameter) -> Option<Group>, batch: usize) {
    let options = StepOptions { group, ..options(optimizer) };
    let Training { graph, loss, step } = training(batch, 2, 8, Precision::F32, &options);
    let values = values(&graph);
    let mut reference = reference_for(&graph, &values);
    let plan = Plan::for_cpu(&graph, &[loss, step.gradient_norm]).unwrap();
    // Larger batches are taken through the forward pass, attention and all, tile by tile.
    let is_attention = |node: usize| matches!(plan.graph().nodes()[node].op, Op::Attention(_));
    let attends = plan.chains().iter().any(|chain| (chain.first..=chain.last).any(is_attention));
    assert_eq!(attends, batch >= 32, "{plan}");
    let mut executor = Executor::new(plan, 2).unwrap();
    let mut state = State::new(&graph).unwrap();
    common::fill(&mut executor, &mut state, &graph, &values);
    for number in 0..4 {
        let run = Run { seed: 3, step: number };
        let truth = reference.run(&graph, run).unwrap();
        executor.poison();
        state.gradients_mut().fill(f32::NAN);
        executor.run(&mut state, run).unwrap();
        for value in [loss, step.gradient_norm] {
            let (got, expected) = (f64::from(executor.number(value).unwrap()), truth.get(value).data[0]);
            assert!((got - expected).abs() < 1e-5 * expected.abs(), "step {number}: {got} for {expected}");
        }
        for (index, parameter) in graph.parameters().iter().enumerate() {
            let error = error_of(state.parameter(&parameter.name).unwrap(), &reference.parameters[index]);
            assert!(error < 1e-5, "step {number}, {}: {error:e}", parameter.name);
            let error = error_of(state.average(&parameter.name).unwrap(), &reference.ema[index]);
            assert!(error < 1e-5, "step {number}, average of {}: {error:e}", parameter.name);
        }
    }
}

#[test]
fn adamw_follows_the_reference() {
    // With the usual 1e-8 Adam blows the rounding errors of gradients that are zero (a key's bias) up to whole steps.
    follows_reference(Optimizer::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-3 }, &group, 3);
    follows_reference(Optimizer::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-3 }, &group, 32);
}

#[test]
fn sgd_follows_the_reference() {
    follows_reference(Optimizer::Sgd { momentum: 0.9, nesterov: false }, &group, 3);
    follows_reference(Optimizer::Sgd { momentum: 0.9, nesterov: true }, &group_without_embedding, 32);
}

#[test]
fn muon_follows_the_reference() {
    let muon =
        |nesterov, scale| Optimizer::Muon { momentum: 0.9, nesterov, scale, beta1: 0.9, beta2: 0.999, eps: 1e-3 };
    follows_reference(muon(true, MuonScale::MatchAdamW), &group, 3);
    follows_reference(muon(false, MuonScale::Original), &group_without_embedding, 32);
}

#[test]
fn lamb_follows_the_reference() {
    let lamb = Optimizer::Lamb { beta1: 0.9, beta2: 0.999, eps: 1e-3, trust_clip: false };
    follows_reference(lamb, &group, 3);
    follows_reference(lamb, &group_without_embedding, 32);
}

#[test]
fn untrained_parameters_stay() {
    let options = StepOptions { group: &group_without_embedding, ..options(Optimizer::adamw()) };
    let Training { graph, loss, .. } = training(2, 1, 8, Precision::F32, &options);
    let values = values(&graph);
    let mut executor = Executor::new(Plan::for_cpu(&graph, &[loss]).unwrap(), 1).unwrap();
    let mut state = State::new(&graph).unwrap();
    common::fill(&mut executor, &mut state, &graph, &values);
    let before = state.parameter("embed.weight").unwrap().to_vec();
    let head = state.parameter("head.weight").unwrap().to_vec();
    executor.run(&mut state, Run::default()).unwrap();
    assert_eq!(state.parameter("embed.weight").unwrap(), before);
    assert_ne!(state.parameter("head.weight").unwrap(), head);
    assert!(matches!(state.gradient("embed.weight"), Err(Error::Unknown { .. })));
    // Gradients and moments are as large as what is trained.
    let trained: usize = state.table().iter().filter(|p| p.gradient_offset.is_some()).map(|p| p.shape.elements()).sum();
    assert!(state.gradients().len() < trained + 16 * graph.parameters().len());
}

fn run_steps(training: &Training, threads: usize, steps: u64) -> (Vec<u32>, f32, usize) {
    let values = values(&training.graph);
    let plan = Plan::for_cpu(&training.graph, &[training.loss]).unwrap();
    let arena = plan.arena_bytes();
    let mut executor = Executor::new(plan, threads).unwrap();
    let mut state = State::new(&training.graph).unwrap();
    common::fill(&mut executor, &mut state, &training.graph, &values);
    for step in 0..steps {
        executor.poison();
        executor.run(&mut state, Run { seed: 1, step }).unwrap();
    }
    let bits = state.parameters().iter().map(|x| x.to_bits()).collect();
    (bits, executor.number(training.loss).unwrap(), arena)
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for precision in [Precision::F32, Precision::Bf16] {
        for optimizer in [Optimizer::adamw(), Optimizer::lamb(), Optimizer::muon()] {
            let training = training(32, 2, 32, precision, &options(optimizer));
            let (one, loss, _) = run_steps(&training, 1, 3);
            assert!(loss.is_finite());
            for threads in [2, 4] {
                assert!(run_steps(&training, threads, 3).0 == one, "{precision:?}, {threads} threads");
            }
        }
    }
}

/// Recomputation gives the same bits, in less memory.
#[test]
fn recomputation_saves_memory_and_changes_no_bit() {
    for precision in [Precision::F32, Precision::Bf16] {
        let plain = options(Optimizer::adamw());
        let again = StepOptions { gradient: GradientOptions { recompute: true }, ..options(Optimizer::adamw()) };
        let kept = run_steps(&training(32, 8, 32, precision, &plain), 2, 3);
        let recomputed = run_steps(&training(32, 8, 32, precision, &again), 2, 3);
        assert!(kept.0 == recomputed.0 && kept.1 == recomputed.1, "{precision:?}");
        assert!(recomputed.2 * 5 < kept.2 * 2, "{precision:?}: {} bytes against {}", recomputed.2, kept.2);
    }
}

/// A model four times as deep fits where the shallow one did without recomputation.
#[test]
fn four_times_the_model_fits_with_recomputation() {
    let again = StepOptions { gradient: GradientOptions { recompute: true }, ..options(Optimizer::adamw()) };
    let arena = |layers: usize, options: &StepOptions| {
        let training = training(16, layers, 32, Precision::F32, options);
        Plan::for_cpu(&training.graph, &[training.loss]).unwrap().arena_bytes()
    };
    let shallow = arena(6, &options(Optimizer::adamw()));
    let deep = arena(24, &again);
    assert!(deep <= shallow, "24 layers take {deep} bytes, 6 layers took {shallow}");
}

/// Training works at all: the loss of a batch that is seen again and again falls.
#[test]
fn a_batch_is_learned() {
    for precision in [Precision::F32, Precision::Bf16] {
        let mut graph = Graph::new(Mode::Training, precision);
        let loss = encoder(&mut graph, 8, 2, 32).unwrap();
        graph.training_step(loss, &options(Optimizer::adamw())).unwrap();
        let mut values = values(&graph);
        values.insert("learning_rate".to_string(), vec![3e-3]);
        let mut executor = Executor::new(Plan::for_cpu(&graph, &[loss]).unwrap(), 2).unwrap();
        let mut state = State::new(&graph).unwrap();
        common::fill(&mut executor, &mut state, &graph, &values);
        let mut losses = Vec::new();
        for step in 0..60 {
            executor.run(&mut state, Run { seed: 1, step }).unwrap();
            losses.push(executor.number(loss).unwrap());
        }
        // Smoothing of 0.1 over seven classes leaves 0.49 at best.
        assert!(losses[0] > 1.7 && losses[59] < 0.9, "{precision:?}: from {} to {}", losses[0], losses[59]);
    }
}

#[test]
fn a_plan_prints_its_kernels_and_its_peak() {
    // Of the last layer, only a token is computed.
    let training = training(2, 2, 8, Precision::F32, &options(Optimizer::adamw()));
    let plan = Plan::for_cpu(&training.graph, &[training.loss]).unwrap();
    let text = plan.to_string();
    let (unfused, fused) = (training.graph.nodes().len(), plan.graph().nodes().len());
    assert!(fused < unfused * 3 / 4, "{fused} nodes of {unfused}");
    // What the update looks at is the loss that the gradients are of.
    let losses = plan.graph().nodes().iter().filter(|node| matches!(node.op, Op::CrossEntropy(_)));
    assert_eq!(losses.count(), 1, "{text}");
    for part in [
        "linear+add+dropped_activation",
        "linear+add+dropout+stochastic_depth+add",
        "linear_input_gradient+multiply",
        "layer_norm_gradient+add",
        "`blocks.0.attention.attention`",
        "adamw",
        &format!("peak {} bytes on one thread", plan.peak_bytes(1)),
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    // Effects are run whatever is asked for.
    assert!(Plan::for_cpu(&training.graph, &[]).unwrap().to_string().contains("adamw"));
    let mut graph = Graph::new(Mode::Inference, Precision::F32);
    encoder(&mut graph, 2, 1, 8).unwrap();
    let logits = graph.find("logits").unwrap();
    let plan = Plan::for_cpu(&graph, &[logits]).unwrap();
    assert!(!plan.to_string().contains("cross_entropy"), "the loss is dead code");
}

/// The slope of an activation takes the place of its input, unless somebody asks for that; with bf16 it never does.
#[test]
fn what_an_activation_read_is_there_if_asked_for() {
    for precision in [Precision::F32, Precision::Bf16] {
        let training = training(3, 2, 8, precision, &options(Optimizer::adamw()));
        let read = training.graph.nodes().iter().find(|node| node.path == "blocks.0.gelu").unwrap().inputs[0];
        let without = Plan::for_cpu(&training.graph, &[training.loss]).unwrap();
        assert_eq!(without.value(read).is_none(), precision == Precision::F32);
        let with = Plan::for_cpu(&training.graph, &[training.loss, read]).unwrap();
        // The first layer keeps the activation's input, the second still has a slope.
        let slopes = |plan: &Plan| plan.to_string().matches("dropped_activation").count();
        assert_eq!((slopes(&without), slopes(&with)), if precision == Precision::F32 { (2, 1) } else { (0, 0) });
        let values = values(&training.graph);
        let mut losses = Vec::new();
        for plan in [without, with] {
            let mut executor = Executor::new(plan, 2).unwrap();
            let mut state = State::new(&training.graph).unwrap();
            common::fill(&mut executor, &mut state, &training.graph, &values);
            executor.run(&mut state, Run { seed: 1, step: 0 }).unwrap();
            losses.push((executor.number(training.loss).unwrap(), executor));
        }
        assert_eq!(losses[0].0, losses[1].0);
        let truth = reference_for(&training.graph, &values).run(&training.graph, Run { seed: 1, step: 0 }).unwrap();
        let got = losses[1].1.output(read).unwrap();
        let tolerance = if precision == Precision::F32 { 1e-5 } else { 2e-2 };
        assert!(error_of(&got, &truth.get(read).data) < tolerance, "{precision:?}");
    }
}

/// A chain in inference: the values between its ends never exist for the whole batch, and every tile finds its own
/// samples, lengths and biases.
#[test]
fn a_chain_gives_what_single_kernels_give() {
    let build = |g: &mut Graph, batch: usize| -> Result<Value> {
        let x = g.input("x", [batch, 24, 48], DType::F32)?;
        let lengths = g.input("lengths", [batch], DType::I32)?;
        let bias = g.parameter("bias", [1, 4, 24, 24])?;
        let (up, down) = (g.parameter("up", [144, 48])?, g.parameter("down", [48, 48])?);
        let qkv = g.linear(x, up, None)?;
        let padding = Padding::Lengths(lengths);
        let options = AttentionOptions { heads: 4, causal: true, padding, bias: Some(bias), ..Default::default() };
        let mixed = g.attention(AttentionInputs::Packed(qkv), &options)?;
        let part = g.slice(mixed, 1, 3, 23)?;
        let turned = g.transpose(part, &[0, 2, 1])?;
        let turned = g.transpose(turned, &[0, 2, 1])?;
        let joined = g.concat(&[turned, part], 1)?;
        let flat = g.reshape(joined, [batch, 40, 48])?;
        let hidden = g.linear(flat, down, None)?;
        let pooled = g.max_tokens(hidden)?;
        g.softmax(pooled)
    };
    for precision in [Precision::F32, Precision::Bf16] {
        let mut graph = Graph::new(Mode::Inference, precision);
        let y = build(&mut graph, 64).unwrap();
        let values = common::leaf_values(&graph, &|_, sample| (sample * 5 % 25) as i32);
        let plan = Plan::for_cpu(&graph, &[y]).unwrap();
        assert_eq!(plan.chains().len(), 1);
        let whole = common::run_cpu(&graph, &[y], &values, 2).remove(0);
        // The same, four samples at a time: too few for a chain.
        let mut graph = Graph::new(Mode::Inference, precision);
        let y = build(&mut graph, 4).unwrap();
        assert!(Plan::for_cpu(&graph, &[y]).unwrap().chains().is_empty());
        for part in 0..16 {
            let mut some = values.clone();
            for (name, per_sample) in [("x", 24 * 48), ("lengths", 1)] {
                some.insert(
                    name.to_string(),
                    values[name][part * 4 * per_sample..(part + 1) * 4 * per_sample].to_vec(),
                );
            }
            let expected = common::run_cpu(&graph, &[y], &some, 1).remove(0);
            assert_eq!(whole[part * 4 * 48..(part + 1) * 4 * 48], expected, "{precision:?}, part {part}");
        }
    }
}

/// Texts, whose tokens are looked up before the chain begins: what was looked up belongs to samples, too.
#[test]
fn a_chain_begins_behind_an_embedding() {
    let build = |g: &mut Graph, batch: usize| -> Result<Value> {
        let tokens = g.input("tokens", [batch, 24], DType::I32)?;
        let (words, places) = (g.parameter("words", [64, 48])?, g.parameter("places", [24, 48])?);
        let (up, down) = (g.parameter("up", [96, 48])?, g.parameter("down", [48, 96])?);
        let words = g.embedding(words, tokens)?;
        let x = g.add(words, places)?;
        let hidden = g.linear(x, up, None)?;
        let hidden = g.linear(hidden, down, None)?;
        let sum = g.add(x, hidden)?;
        g.max_tokens(sum)
    };
    for precision in [Precision::F32, Precision::Bf16] {
        let mut graph = Graph::new(Mode::Inference, precision);
        let y = build(&mut graph, 64).unwrap();
        let values = common::leaf_values(&graph, &|_, position| (position * 7 % 64) as i32);
        let plan = Plan::for_cpu(&graph, &[y]).unwrap();
        let is_linear = |node: usize| matches!(plan.graph().nodes()[node].op, Op::Linear(_));
        assert!(plan.chains().iter().any(|chain| (chain.first..=chain.last).any(is_linear)), "{plan}");
        let whole = common::run_cpu(&graph, &[y], &values, 2).remove(0);
        let truth = reference_for(&graph, &values).run(&graph, Run { seed: 1, step: 0 }).unwrap();
        let tolerance = if precision == Precision::F32 { 1e-5 } else { 2e-2 };
        assert!(error_of(&whole, &truth.get(y).data) < tolerance, "{precision:?}");
        // Four samples at a time: too few for a chain.
        let mut graph = Graph::new(Mode::Inference, precision);
        let y = build(&mut graph, 4).unwrap();
        assert!(Plan::for_cpu(&graph, &[y]).unwrap().chains().is_empty());
        for part in 0..16 {
            let mut some = values.clone();
            some.insert("tokens".to_string(), values["tokens"][part * 4 * 24..(part + 1) * 4 * 24].to_vec());
            let expected = common::run_cpu(&graph, &[y], &some, 1).remove(0);
            assert_eq!(whole[part * 4 * 48..(part + 1) * 4 * 48], expected, "{precision:?}, part {part}");
        }
    }
}

/// A small graph of a loss over `values`, whose gradients are easy to follow.
fn loss_over(g: &mut Graph, sum: Value, classes: usize) -> Value {
    let targets = g.input("targets", [g.shape_of(sum).rows()], DType::I32).unwrap();
    assert_eq!(g.shape_of(sum).columns(), classes);
    g.cross_entropy(sum, targets, vitreous_engine::CrossEntropyOptions::default()).unwrap()
}

/// Runs two steps on the CPU and in the reference and compares parameters and moments.
fn same_as_reference(graph: &Graph) {
    let mut values = common::leaf_values(graph, &|_, position| (position % 3) as i32);
    values.insert("learning_rate".to_string(), vec![f64::from(0.01f32)]);
    let mut reference = reference_for(graph, &values);
    let mut executor = Executor::new(Plan::for_cpu(graph, &[]).unwrap(), 2).unwrap();
    let mut state = State::new(graph).unwrap();
    common::fill(&mut executor, &mut state, graph, &values);
    for step in 0..2 {
        state.gradients_mut().fill(f32::NAN);
        executor.run(&mut state, Run { seed: 1, step }).unwrap();
        reference.run(graph, Run { seed: 1, step }).unwrap();
    }
    for (index, parameter) in graph.parameters().iter().enumerate() {
        let error = error_of(state.parameter(&parameter.name).unwrap(), &reference.parameters[index]);
        assert!(error < 1e-5, "{}: {error:e}", parameter.name);
    }
}

fn plain(optimizer: Optimizer) -> StepOptions<'static> {
    let group = &|_: &Parameter| Some(Group { decay: 0.1, rate_factor: 1.0 });
    StepOptions { optimizer, group, clip: Some(1.0), ema: false, gradient: GradientOptions::default() }
}

/// A parameter that takes several tiles of the update.
#[test]
fn large_parameters_are_updated_whole() {
    for optimizer in [
        Optimizer::AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-3 },
        Optimizer::Sgd { momentum: 0.9, nesterov: true },
        Optimizer::Lamb { beta1: 0.9, beta2: 0.99, eps: 1e-3, trust_clip: false },
        Optimizer::muon(),
    ] {
        let mut g = Graph::for_training();
        let x = g.input("x", [4, 1000], DType::F32).unwrap();
        let weight = g.parameter("weight", [300, 1000]).unwrap();
        let bias = g.parameter("bias", [300]).unwrap();
        let y = g.linear(x, weight, Some(bias)).unwrap();
        let y = g.scale(y, 0.05).unwrap();
        let loss = loss_over(&mut g, y, 300);
        g.training_step(loss, &plain(optimizer)).unwrap();
        same_as_reference(&g);
    }
}

/// Two parameters whose gradients are one value, and one that is the sum of both.
#[test]
fn parameters_that_share_a_gradient() {
    let mut g = Graph::for_training();
    let x = g.input("x", [5, 40], DType::F32).unwrap();
    let (a, b) = (g.parameter("a", [5, 40]).unwrap(), g.parameter("b", [5, 40]).unwrap());
    let sum = g.add(x, a).unwrap();
    let sum = g.add(sum, b).unwrap();
    let sum = g.add(sum, a).unwrap();
    let loss = loss_over(&mut g, sum, 40);
    g.training_step(loss, &plain(Optimizer::Sgd { momentum: 0.0, nesterov: false })).unwrap();
    same_as_reference(&g);
}

/// What is computed before the update uses the parameters before the update, wherever its last step stands.
#[test]
fn nothing_moves_across_the_update() {
    let mut g = Graph::for_training();
    let x = g.input("x", [4, 40], DType::F32).unwrap();
    let weight = g.parameter("weight", [40, 40]).unwrap();
    let y = g.linear(x, weight, None).unwrap();
    let before = g.linear(y, weight, None).unwrap();
    let loss = loss_over(&mut g, y, 40);
    g.training_step(loss, &plain(Optimizer::Sgd { momentum: 0.0, nesterov: false })).unwrap();
    let doubled = g.scale(before, 2.0).unwrap();
    let mut values = common::leaf_values(&g, &|_, position| (position % 3) as i32);
    values.insert("learning_rate".to_string(), vec![1.0]);
    let truth = reference_for(&g, &values).run(&g, common::RUN).unwrap();
    let got = common::run_cpu(&g, &[doubled], &values, 2);
    assert!(error_of(&got[0], &truth.get(doubled).data) < 1e-5);
}

#[test]
fn a_state_made_for_other_training_is_refused() {
    let build = |trains: &'static dyn Fn(&Parameter) -> Option<Group>, steps: bool| {
        let mut g = Graph::for_training();
        let x = g.input("x", [4, 8], DType::F32).unwrap();
        let (a, b) = (g.parameter("a", [8, 8]).unwrap(), g.parameter("b", [8, 8]).unwrap());
        let y = g.linear(x, a, None).unwrap();
        let y = g.linear(y, b, None).unwrap();
        let loss = loss_over(&mut g, y, 8);
        if steps {
            g.training_step(loss, &StepOptions { group: trains, ..plain(Optimizer::adamw()) }).unwrap();
        }
        (g, loss)
    };
    let all = build(&|_| Some(Group { decay: 0.0, rate_factor: 1.0 }), true);
    let one = build(&|p| (p.name == "b").then_some(Group { decay: 0.0, rate_factor: 1.0 }), true);
    let none = build(&|_| None, false);
    let run = |(graph, loss): &(Graph, Value), state: &mut State| {
        Executor::new(Plan::for_cpu(graph, &[*loss]).unwrap(), 1).unwrap().run(state, Run::default())
    };
    assert!(run(&all, &mut State::new(&all.0).unwrap()).is_ok());
    assert!(run(&one, &mut State::new(&all.0).unwrap()).is_err(), "b's gradient lies elsewhere");
    assert!(run(&all, &mut State::new(&none.0).unwrap()).is_err(), "there are no gradients and moments");
    assert!(run(&none, &mut State::new(&all.0).unwrap()).is_ok(), "parameters can be shared");
}

#[test]
fn settings_of_a_step_are_checked() {
    let try_with = |change: &dyn Fn(&mut StepOptions)| {
        let mut g = Graph::for_training();
        let x = g.input("x", [4, 8], DType::F32).unwrap();
        let a = g.parameter("a", [8, 8]).unwrap();
        let y = g.linear(x, a, None).unwrap();
        let loss = loss_over(&mut g, y, 8);
        let mut options = plain(Optimizer::adamw());
        change(&mut options);
        g.training_step(loss, &options).unwrap_err().to_string()
    };
    assert!(try_with(&|o| o.clip = Some(-1.0)).contains("must be above 0"));
    assert!(try_with(&|o| o.optimizer = Optimizer::AdamW { beta1: 1.0, beta2: 0.9, eps: 1e-8 }).contains("beta1 1"));
    assert!(try_with(&|o| o.optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.9, eps: 0.0 }).contains("eps"));
    assert!(try_with(&|o| o.optimizer = Optimizer::Sgd { momentum: 1.5, nesterov: false }).contains("momentum"));
}

#[test]
fn other_instruction_sets() {
    common::run_on_other_instruction_sets("other_instruction_sets");
}
