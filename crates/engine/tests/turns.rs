//! Plans of several shapes that take turns in one memory, against each in its own.

use vitreous_engine::cpu::Executor;
use vitreous_engine::random::Run;
use vitreous_engine::{
    CrossEntropyOptions, DType, GradientOptions, Graph, Group, Optimizer, Plan, State, StepOptions, Value,
};

/// A training step of a little model for sequences of some length.
fn step(batch: usize, length: usize) -> (Graph, Value) {
    let mut g = Graph::for_training();
    let build = |g: &mut Graph| {
        let tokens = g.input("tokens", [batch, length], DType::I32)?;
        let table = g.parameter("table", [11, 16])?;
        let x = g.embedding(table, tokens)?;
        let places = (0..length * 16).map(|i| (i % 7) as f32 * 0.1).collect();
        let places = g.constant("places", [length, 16], places)?;
        let x = g.add(x, places)?;
        let x = g.dropout(x, 0.1)?;
        let weight = g.parameter("weight", [11, 16])?;
        let logits = g.linear(x, weight, None)?;
        let loss = g.cross_entropy(logits, tokens, CrossEntropyOptions::default())?;
        let options = StepOptions {
            optimizer: Optimizer::adamw(),
            group: &|_| Some(Group { decay: 0.0, rate_factor: 1.0 }),
            clip: None,
            ema: false,
            gradient: GradientOptions::default(),
        };
        g.training_step(loss, &options)?;
        Ok::<_, vitreous_engine::Error>(loss)
    };
    let loss = build(&mut g).expect("a step");
    (g, loss)
}

#[test]
fn plans_that_take_turns_give_the_same_bits() {
    let shapes = [(2, 5), (7, 3), (1, 40)];
    let graphs: Vec<(Graph, Value)> = shapes.iter().map(|&(batch, length)| step(batch, length)).collect();
    let plan = |(graph, loss): &(Graph, Value)| Plan::for_cpu(graph, &[*loss]).expect("plans");
    let mut shared = Executor::for_turns(graphs.iter().map(plan).collect(), 2).expect("memory");
    let mut apart: Vec<Executor> = graphs.iter().map(|graph| Executor::new(plan(graph), 2).expect("memory")).collect();
    let state = || {
        let mut state = State::new(&graphs[0].0).expect("memory");
        state.parameters_mut().iter_mut().enumerate().for_each(|(i, x)| *x = (i % 13) as f32 * 0.05 - 0.3);
        state
    };
    let (mut one, mut other) = (state(), state());
    let mut losses = Vec::new();
    for (number, turn) in [0, 1, 2, 1, 1, 0, 2, 0].into_iter().enumerate() {
        shared.choose(turn);
        let run = Run { seed: 3, step: number as u64 };
        let train = |executor: &mut Executor, state: &mut State| {
            executor.poison();
            let tokens = executor.input_i32("tokens").expect("an input");
            tokens.iter_mut().enumerate().for_each(|(i, token)| *token = ((i * 5 + number) % 11) as i32);
            executor.input("learning_rate").expect("an input")[0] = 0.01;
            executor.run(state, run).expect("a run");
            executor.number(graphs[turn].1).expect("a loss")
        };
        let (a, b) = (train(&mut shared, &mut one), train(&mut apart[turn], &mut other));
        assert_eq!(a.to_bits(), b.to_bits(), "step {number}");
        losses.push(a);
    }
    assert_eq!(one.parameters(), other.parameters());
    assert!(losses.iter().all(|loss| loss.is_finite()) && losses[0] != losses[5]);
    let largest = apart.iter().map(Executor::memory_bytes).max().expect("three");
    assert!(shared.memory_bytes() <= largest + 4096, "it has the memory of the largest");
}
