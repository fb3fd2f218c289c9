//! Weights that an executor takes in once give the same bits as those that a state has.

mod common;

use std::borrow::Cow;

use common::encoder::{encoder, options, training, values};
use half::{bf16, f16};
use vitreous_engine::cpu::Executor;
use vitreous_engine::{
    DType, Device, Error, Graph, Mode, Optimizer, Parameter, Plan, Precision, Result, Run, SharedWeights, State, Value,
    WeightView,
};

fn check(graph: &Graph, output: Value) {
    let values = values(graph);
    let mut state = State::new(graph).unwrap();
    let mut with_state = Executor::new(Plan::for_cpu(graph, &[output]).unwrap(), 2).unwrap();
    common::fill(&mut with_state, &mut state, graph, &values);
    with_state.run(&mut state, Run { seed: 0, step: 0 }).unwrap();
    let expected = with_state.output(output).unwrap();
    assert!(expected.iter().any(|&x| x != 0.0));

    let plan = Plan::for_cpu_with_fixed_weights(graph, &[output]).unwrap();
    let predicted = plan.peak_bytes(2);
    let lend = |parameter: &Parameter| -> Result<Cow<[f32]>> { Ok(Cow::Borrowed(state.parameter(&parameter.name)?)) };
    let mut executor = Executor::with_weights(plan, 2, lend).unwrap();
    assert_eq!(executor.memory_bytes(), predicted);
    let inputs: Vec<String> = executor.plan().graph().inputs().map(|(name, _)| name.to_string()).collect();
    for name in inputs {
        let value = graph.find(&name).unwrap();
        if graph.type_of(value).dtype == DType::I32 {
            executor.input_i32(&name).unwrap().copy_from_slice(with_state.input_i32(&name).unwrap());
        } else {
            executor.input(&name).unwrap().copy_from_slice(with_state.input(&name).unwrap());
        }
    }
    for _ in 0..2 {
        executor.poison();
        executor.infer().unwrap();
        assert_eq!(executor.output(output).unwrap(), expected);
    }
}

#[test]
fn an_encoder_computes_the_same_bits_with_weights_taken_in_once() {
    for precision in [Precision::F32, Precision::Bf16] {
        // One sample: the head reads its weight as it is. Sixty-four: chains.
        for batch in [1, 5, 64] {
            let mut g = Graph::new(Mode::Inference, precision);
            encoder(&mut g, batch, 2, 32).unwrap();
            let logits = g.find("logits").unwrap();
            check(&g, logits);
        }
    }
}

#[test]
fn an_executor_goes_on_with_batches_of_other_sizes() {
    let planned = |batch: usize| {
        let mut g = Graph::for_inference();
        encoder(&mut g, batch, 2, 32).unwrap();
        let logits = g.find("logits").unwrap();
        (Plan::for_cpu_with_fixed_weights(&g, &[logits]).unwrap(), g, logits)
    };
    let (plan, graph, _) = planned(6);
    let all = values(&graph);
    let lend = |parameter: &Parameter| -> Result<Cow<[f32]>> {
        Ok(Cow::Owned(all[&parameter.name].iter().map(|&x| x as f32).collect()))
    };
    let mut one = Executor::with_weights(plan, 2, lend).unwrap();
    // Smaller, larger than ever, and back.
    for batch in [5, 40, 6] {
        let (plan, _, logits) = planned(batch);
        let mut fresh = Executor::with_weights(plan.clone(), 2, lend).unwrap();
        one.change_to(plan).unwrap();
        one.poison();
        for executor in [&mut fresh, &mut one] {
            let images = executor.input("images").unwrap().iter_mut();
            images.enumerate().for_each(|(i, pixel)| *pixel = ((i * 37 % 101) as f32 - 50.0) / 40.0);
            executor.infer().unwrap();
        }
        assert_eq!(one.output(logits).unwrap(), fresh.output(logits).unwrap(), "a batch of {batch}");
    }
    // A single sample's head reads its weight as it is, which is kept nowhere.
    let (plan, ..) = planned(1);
    assert!(!one.can_change_to(&plan));
    assert!(one.change_to(plan).unwrap_err().to_string().contains("other weights"));
}

#[test]
fn weights_that_change_places_are_no_reason_to_go_on() {
    let plan = |order: [&str; 2]| {
        let mut g = Graph::for_inference();
        let x = g.input("x", [8, 16], DType::F32).unwrap();
        let weights = ["a", "b"].map(|name| (name, g.parameter(name, [16, 16]).unwrap()));
        let of = |name: &str| weights.iter().find(|(other, _)| *other == name).expect("known").1;
        let hidden = g.linear(x, of(order[0]), None).unwrap();
        let y = g.linear(hidden, of(order[1]), None).unwrap();
        Plan::for_cpu_with_fixed_weights(&g, &[y]).unwrap()
    };
    let lend = |_: &Parameter| -> Result<Cow<[f32]>> { Ok(Cow::Owned(vec![0.5; 256])) };
    let executor = Executor::with_weights(plan(["a", "b"]), 1, lend).unwrap();
    assert!(executor.can_change_to(&plan(["a", "b"])));
    assert!(!executor.can_change_to(&plan(["b", "a"])));
    let turns = Executor::for_turns(vec![plan(["a", "b"])], 1);
    assert!(turns.is_err_and(|error| error.to_string().contains("fixed weights")));
}

/// Two layers, wide enough to be packed in several pieces, and a table that is read row by row.
fn wide_layers(g: &mut Graph, rows: usize) -> Result<Value> {
    let table = g.parameter("table", [50, 521])?;
    let places = g.input("places", [rows], DType::I32)?;
    let x = g.embedding(table, places)?;
    let wide = g.parameter("wide", [1043, 521])?;
    let bias = g.parameter("bias", [1043])?;
    let hidden = g.linear(x, wide, Some(bias))?;
    let narrow = g.parameter("narrow", [33, 1043])?;
    let y = g.linear(hidden, narrow, None)?;
    g.cast(y, DType::F32)
}

#[test]
fn weights_are_the_same_whatever_format_they_are_stored_in() {
    let gpu = common::gpu().map(|gpu| Device::Cuda(std::sync::Arc::clone(gpu)));
    for device in [Device::Cpu { threads: 2 }].into_iter().chain(gpu) {
        for precision in [Precision::F32, Precision::Bf16] {
            // One row reads weights as they are, twenty packed.
            for rows in [1, 20] {
                let mut g = Graph::new(Mode::Inference, precision);
                let output = wide_layers(&mut g, rows).unwrap();
                // What f16 and bf16 both hold exactly: few bits, and none too small.
                let numbers = |parameter: &Parameter| -> Vec<f32> {
                    let values = common::random_values(&parameter.name, parameter.shape.elements()).into_iter();
                    values.map(|value| (64.0 * value).round() as f32 / 64.0).collect()
                };
                let run = |store: &dyn Fn(Vec<f32>) -> WeightView<'static>| {
                    let plan = device.plan_with_fixed_weights(&g, &[output]).unwrap();
                    let lend = |parameter: &Parameter| -> Result<_> { Ok(store(numbers(parameter))) };
                    let mut executor = vitreous_engine::Executor::with_weights(plan, &device, lend).unwrap();
                    let places = executor.input_i32("places").unwrap().iter_mut().enumerate();
                    places.for_each(|(row, place)| *place = (row * 7 % 50) as i32);
                    executor.infer().unwrap();
                    executor.output(output).unwrap()
                };
                let expected = run(&|values| values.into());
                assert!(expected.iter().any(|&value| value != 0.0));
                let narrow = |values: Vec<f32>| WeightView::Bf16(values.into_iter().map(bf16::from_f32).collect());
                let half = |values: Vec<f32>| WeightView::F16(values.into_iter().map(f16::from_f32).collect());
                assert_eq!(run(&narrow), expected, "{device:?}, {precision:?}, {rows} rows, from bf16");
                assert_eq!(run(&half), expected, "{device:?}, {precision:?}, {rows} rows, from f16");
            }
        }
    }
}

#[test]
fn executors_share_the_forms_that_they_have_in_common() {
    let device = Device::Cpu { threads: 1 };
    let mut shared = SharedWeights::new(&device);
    let asked = std::cell::RefCell::new(Vec::new());
    let mut executor = |rows: usize| {
        let mut g = Graph::for_inference();
        let output = wide_layers(&mut g, rows).unwrap();
        let plan = device.plan_with_fixed_weights(&g, &[output]).unwrap();
        let lend = |parameter: &Parameter| -> Result<Vec<f32>> {
            asked.borrow_mut().push(parameter.name.clone());
            Ok(vec![0.25; parameter.shape.elements()])
        };
        let mut executor = vitreous_engine::Executor::with_shared_weights(plan, &device, &mut shared, lend).unwrap();
        executor.infer().unwrap();
        (executor, output, shared.bytes())
    };
    let (first, output, bytes) = executor(20);
    let (second, other, still) = executor(40);
    assert_eq!((bytes, asked.borrow().len()), (still, 4), "the second asked for nothing");
    assert_eq!(first.output(output).unwrap()[..33], second.output(other).unwrap()[..33]);
    // One row reads its weights as they are, which nobody had before; table and bias are there.
    let (mut third, _, more) = executor(1);
    assert_eq!(asked.borrow()[4..], ["wide", "narrow"]);
    assert!(more > bytes);
    // Others keep what one replaces for itself.
    third.take_weights(|parameter| -> Result<Vec<f32>> { Ok(vec![0.0; parameter.shape.elements()]) }).unwrap();
    let (again, output, _) = executor(1);
    assert!(again.output(output).unwrap().iter().all(|&value| value != 0.0));
    assert_eq!(asked.borrow().len(), 6);
}

/// A table that is read row by row, and, packed, by two products.
fn shared_matrix(g: &mut Graph) -> Result<Value> {
    let table = g.parameter("table", [40, 24])?;
    let places = g.input("places", [12], DType::I32)?;
    let x = g.embedding(table, places)?;
    let hidden = g.linear(x, table, None)?;
    let back = g.slice(hidden, 1, 0, 24)?;
    g.linear(back, table, None)
}

#[test]
fn a_matrix_of_many_readers_is_kept_in_every_form_they_want_and_in_each_once() {
    let mut g = Graph::for_inference();
    let output = shared_matrix(&mut g).unwrap();
    check(&g, output);
    let plan = Plan::for_cpu_with_fixed_weights(&g, &[output]).unwrap();
    assert!(plan.weight_bytes() < 3 * 40 * 32 * 4, "packed for each product: {} bytes", plan.weight_bytes());
}

#[test]
fn a_matrix_that_is_read_in_two_shapes_of_one_size_is_packed_for_each() {
    let mut g = Graph::for_inference();
    let matrix = g.parameter("matrix", [32, 64]).unwrap();
    let turned = g.reshape(matrix, [64, 32]).unwrap();
    let x = g.input("x", [12, 64], DType::F32).unwrap();
    let hidden = g.linear(x, matrix, None).unwrap();
    let output = g.linear(hidden, turned, None).unwrap();
    check(&g, output);
}

#[test]
fn states_and_weights_are_not_mixed_up() {
    let mut g = Graph::for_inference();
    let output = shared_matrix(&mut g).unwrap();
    let mut state = State::new(&g).unwrap();
    let zeros =
        |parameter: &Parameter| -> Result<Cow<'static, [f32]>> { Ok(vec![0.0; parameter.shape.elements()].into()) };
    let fixed = || Plan::for_cpu_with_fixed_weights(&g, &[output]).unwrap();
    let changing = || Plan::for_cpu(&g, &[output]).unwrap();

    let mut executor = Executor::with_weights(fixed(), 1, zeros).unwrap();
    let error = executor.run(&mut state, Run { seed: 0, step: 0 }).unwrap_err().to_string();
    assert!(error.contains("infer"), "{error}");
    let error = Executor::new(changing(), 1).unwrap().infer().unwrap_err().to_string();
    assert!(error.contains("no weights of its own"), "{error}");
    let error = Executor::new(fixed(), 1).err().unwrap().to_string();
    assert!(error.contains("with_weights"), "{error}");
    let error = Executor::with_weights(changing(), 1, zeros).err().unwrap().to_string();
    assert!(error.contains("for_cpu_with_fixed_weights"), "{error}");

    let short = |_: &Parameter| -> Result<Cow<'static, [f32]>> { Ok(vec![0.0; 3].into()) };
    let error = Executor::with_weights(fixed(), 1, short).err().unwrap().to_string();
    assert_eq!(error, "parameter `table` holds 960 values, but 3 values was asked for or passed");

    let training = training(4, 1, 16, Precision::F32, &options(Optimizer::adamw()));
    let error = Plan::for_cpu_with_fixed_weights(&training.graph, &[training.loss]).unwrap_err();
    assert!(matches!(error, Error::NoGradient { .. }), "{error}");
}
