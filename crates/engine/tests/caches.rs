//! Caches: rows written by runs, copied between slots and taken from results, on the CPU and on a GPU where there is one, against the
//! f64 reference and naive copies.

mod common;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use common::{cases, random_values, relative_error};
use half::bf16;
use proptest::prelude::*;
use vitreous_engine::reference::Reference;
use vitreous_engine::{
    AttentionInputs, AttentionOptions, Caches, DType, Device, Executor, Graph, Mode, Padding, Parameter, Precision,
    Result, ResultCopy, Run, SharedWeights, SlotCopy, State, Value,
};

const RUN: Run = Run { seed: 1, step: 0 };

/// The CPU with one and with two threads, and the GPU if there is one.
fn devices() -> Vec<Device> {
    let gpu = common::gpu().map(|gpu| Device::Cuda(Arc::clone(gpu)));
    [1, 2].map(|threads| Device::Cpu { threads }).into_iter().chain(gpu).collect()
}

fn floats(name: &str, count: usize) -> Vec<f32> {
    random_values(name, count).into_iter().map(|value| value as f32).collect()
}

/// What a format keeps of a number.
fn stored(value: f32, dtype: DType) -> f32 {
    if dtype == DType::Bf16 { bf16::from_f32(value).to_f32() } else { value }
}

fn fill(executor: &mut Executor, name: &str, numbers: &[i32]) {
    executor.input_i32(name).expect("an input").copy_from_slice(numbers);
}

/// Writes all of a cache.
fn fill_cache(caches: &mut Caches, name: &str, values: &[f32]) {
    let slots = caches.type_of(name).expect("known").shape.axes()[0];
    for (slot, values) in values.chunks_exact(values.len() / slots).enumerate() {
        caches.write(name, slot, 0, values).expect("room");
    }
}

/// Rows that are scaled and written into a cache, which is scaled in turn.
struct Writing {
    graph: Graph,
    result: Value,
}

impl Writing {
    fn new(slots: usize, capacity: usize, dim: usize, count: usize, [rows, cache]: [DType; 2]) -> Result<Writing> {
        let mut graph = Graph::for_inference();
        let given = graph.input("rows", [slots, count, dim], DType::F32)?;
        let scaled = graph.scale(given, 2.0)?;
        let scaled = graph.cast(scaled, rows)?;
        let offsets = graph.input("offsets", [slots], DType::I32)?;
        let kept = graph.cache("kept", [slots, capacity, dim], cache)?;
        let kept = graph.write_rows(kept, scaled, offsets)?;
        let kept = graph.cast(kept, DType::F32)?;
        let result = graph.scale(kept, 0.5)?;
        Ok(Writing { graph, result })
    }
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn rows_are_written_at_offsets_and_stay_for_the_next_run(
        slots in 1usize..5,
        capacity in 1usize..9,
        dim in prop_oneof![Just(1usize), Just(3), Just(17), Just(64)],
        count in 1usize..9,
        bf16_rows: bool,
        bf16_cache: bool,
    ) {
        let count = count.min(capacity);
        let format = |narrow: bool| if narrow { DType::Bf16 } else { DType::F32 };
        let formats = [format(bf16_rows), format(bf16_cache)];
        let Writing { graph, result } = Writing::new(slots, capacity, dim, count, formats).unwrap();
        let before: Vec<f32> =
            floats("before", slots * capacity * dim).into_iter().map(|value| stored(value, formats[1])).collect();
        for device in devices() {
            let mut reference = Reference::new(&graph);
            reference.caches.insert("kept".to_string(), before.iter().map(|&value| value.into()).collect());
            let mut caches = Caches::new(&[&graph], &device).unwrap();
            fill_cache(&mut caches, "kept", &before);
            let plan = device.plan(&graph, &[result]).unwrap();
            let mut executor = Executor::new(plan, &device).unwrap();
            let mut state = State::new(&graph).unwrap();
            // Started one by one, recorded, and started from the record.
            for round in 0..4 {
                let rows: Vec<f32> = floats(&format!("rows {round}"), slots * count * dim)
                    .into_iter()
                    .map(|value| stored(value, DType::Bf16))
                    .collect();
                let offsets: Vec<i32> =
                    (0..slots).map(|slot| ((slot * 3 + round) % (capacity - count + 1)) as i32).collect();
                executor.input("rows").unwrap().copy_from_slice(&rows);
                fill(&mut executor, "offsets", &offsets);
                executor.run_with(&mut state, &mut caches, RUN).unwrap();
                let as_f64 = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<_>>();
                reference.inputs = HashMap::from([
                    ("rows".to_string(), as_f64(&rows)),
                    ("offsets".to_string(), offsets.iter().map(|&offset| offset.into()).collect()),
                ]);
                let expected = reference.run(&graph, RUN).unwrap();
                let got = executor.output(result).unwrap();
                prop_assert_eq!(relative_error(&got, &expected.get(result).data, 1e-30), 0.0, "{:?}", device);
                let kept = caches.read("kept").unwrap();
                prop_assert_eq!(relative_error(&kept, &reference.caches["kept"], 1e-30), 0.0, "{:?}", device);
            }
        }
    }

    #[test]
    fn slots_are_copied_as_they_were_before(
        slots in 1usize..7,
        capacity in 1usize..6,
        dim in prop_oneof![Just(1usize), Just(6), Just(16)],
        narrow: bool,
        seed in 0u64..1000,
    ) {
        let dtype = if narrow { DType::Bf16 } else { DType::F32 };
        let mut graph = Graph::for_inference();
        for name in ["a", "b"] {
            graph.cache(name, [slots, capacity, dim], dtype).unwrap();
        }
        graph.cache("c", [slots, capacity + 1, dim], DType::F32).unwrap();
        let draw = |place: u64| vitreous_engine::random::Stream::new(seed, 0, place).four(0)[0] as usize;
        let copies: Vec<SlotCopy> = (0..slots)
            .filter(|slot| draw(*slot as u64) % 5 != 0)
            .map(|to| SlotCopy { to, from: draw(100 + to as u64) % slots, rows: draw(200 + to as u64) % (capacity + 1) })
            .collect();
        for device in devices() {
            let mut caches = Caches::new(&[&graph], &device).unwrap();
            for name in ["a", "b", "c"] {
                let value_type = caches.type_of(name).unwrap().clone();
                let before: Vec<f32> = floats(name, value_type.shape.elements())
                    .into_iter()
                    .map(|value| stored(value, value_type.dtype))
                    .collect();
                fill_cache(&mut caches, name, &before);
                let slot_floats = before.len() / slots;
                let mut expected = before.clone();
                for SlotCopy { to, from, rows } in &copies {
                    let count = rows * dim;
                    expected[to * slot_floats..][..count].copy_from_slice(&before[from * slot_floats..][..count]);
                }
                prop_assert_eq!(caches.read(name).unwrap(), before);
                if name == "c" {
                    caches.copy_slots(&["a", "b", "c"], &copies).unwrap();
                    prop_assert_eq!(caches.read("c").unwrap(), expected, "{:?}, {:?}", device, copies);
                }
            }
            for name in ["a", "b"] {
                let before: Vec<f32> =
                    floats(name, slots * capacity * dim).into_iter().map(|value| stored(value, dtype)).collect();
                let mut expected = before.clone();
                for SlotCopy { to, from, rows } in &copies {
                    let count = rows * dim;
                    let slot_floats = capacity * dim;
                    expected[to * slot_floats..][..count].copy_from_slice(&before[from * slot_floats..][..count]);
                }
                prop_assert_eq!(caches.read(name).unwrap(), expected, "{:?}, {:?}", device, copies);
            }
        }
    }

    #[test]
    fn results_become_rows_of_slots(
        samples in 1usize..4,
        length in 1usize..6,
        dim in prop_oneof![Just(1usize), Just(6), Just(16)],
        narrow_result: bool,
        narrow_cache: bool,
    ) {
        let format = |narrow: bool| if narrow { DType::Bf16 } else { DType::F32 };
        let (slots, capacity) = (5, 7);
        let mut graph = Graph::for_inference();
        let x = graph.input("x", [samples, length, dim], DType::F32).unwrap();
        let scaled = graph.scale(x, 3.0).unwrap();
        let results = [1.0, 2.0].map(|factor| {
            let y = graph.scale(scaled, factor).unwrap();
            graph.cast(y, format(narrow_result)).unwrap()
        });
        let mut declaring = Graph::for_inference();
        for name in ["a", "b"] {
            declaring.cache(name, [slots, capacity, dim], format(narrow_cache)).unwrap();
        }
        let copies = [(0, 3, length), (samples - 1, 0, length.min(2)), (0, 4, 0)]
            .map(|(sample, slot, rows)| ResultCopy { sample, slot, rows });
        for device in devices() {
            let mut caches = Caches::new(&[&declaring], &device).unwrap();
            let plan = device.plan(&graph, &results).unwrap().leaving_on_device(&results).unwrap();
            let mut executor = Executor::new(plan, &device).unwrap();
            let mut state = State::new(&graph).unwrap();
            executor.input("x").unwrap().copy_from_slice(&floats("x", samples * length * dim));
            executor.run(&mut state, RUN).unwrap();
            let pairs = [(results[0], "a"), (results[1], "b")];
            caches.copy_results(&mut executor, &pairs, &copies).unwrap();
            // The next run must not overwrite what is still being copied.
            executor.input("x").unwrap().fill(0.0);
            executor.run(&mut state, RUN).unwrap();
            for (name, factor) in [("a", 1.0), ("b", 2.0)] {
                let mut expected = vec![0.0; slots * capacity * dim];
                let x = floats("x", samples * length * dim);
                for ResultCopy { sample, slot, rows } in copies {
                    for i in 0..rows * dim {
                        let value = stored(factor * (3.0 * x[sample * length * dim + i]), format(narrow_result));
                        expected[slot * capacity * dim + i] = stored(value, format(narrow_cache));
                    }
                }
                prop_assert_eq!(caches.read(name).unwrap(), expected, "{:?}", device);
            }
            prop_assert!(executor.output(results[0]).unwrap().iter().all(|&value| value == 0.0));
            caches.zero(&["b"]).unwrap();
            prop_assert!(caches.read("b").unwrap().iter().all(|&value| value == 0.0));
            prop_assert!(caches.read("a").unwrap().iter().any(|&value| value != 0.0));
        }
    }
}

const DIM: usize = 16;
const CAPACITY: usize = 12;

/// Self-attention of tokens with those that a cache has: `count` new ones in each of `slots` sequences.
fn attend(slots: usize, count: usize, precision: Precision, cache: DType) -> (Graph, Value) {
    let build = || -> Result<(Graph, Value)> {
        let mut g = Graph::new(Mode::Inference, precision);
        let x = g.input("x", [slots, count, DIM], DType::F32)?;
        let offsets = g.input("offsets", [slots], DType::I32)?;
        let lengths = g.input("lengths", [slots], DType::I32)?;
        let mut project = |name: &str| {
            let weight = g.parameter(name, [DIM, DIM])?;
            g.linear(x, weight, None)
        };
        let (q, k, v) = (project("query")?, project("key")?, project("value")?);
        let keys = g.cache("keys", [slots, CAPACITY, DIM], cache)?;
        let values = g.cache("values", [slots, CAPACITY, DIM], cache)?;
        let (k, v) = (g.write_rows(keys, k, offsets)?, g.write_rows(values, v, offsets)?);
        let options = AttentionOptions { heads: 2, padding: Padding::Lengths(lengths), ..AttentionOptions::default() };
        let y = g.attention(AttentionInputs::Separate { q, k, v }, &options)?;
        let y = g.cast(y, DType::F32)?;
        Ok((g, y))
    };
    build().expect("a graph")
}

fn weight(parameter: &Parameter) -> Result<Cow<'static, [f32]>> {
    Ok(Cow::Owned(floats(&parameter.name, parameter.shape.elements()).iter().map(|value| 0.3 * value).collect()))
}

/// Attention of the token at a place of a sequence to all tokens up to `seen`, computed at once without a cache, in f64.
fn at_once(x: &[f32], place: usize, seen: usize) -> Vec<f64> {
    let mut g = Graph::for_inference();
    let input = g.input("x", [1, seen, DIM], DType::F32).unwrap();
    let mut project = |name: &str| {
        let weight = g.parameter(name, [DIM, DIM]).unwrap();
        g.linear(input, weight, None).unwrap()
    };
    let (q, k, v) = (project("query"), project("key"), project("value"));
    let options = AttentionOptions { heads: 2, ..AttentionOptions::default() };
    let y = g.attention(AttentionInputs::Separate { q, k, v }, &options).unwrap();
    let mut reference = Reference::new(&g);
    reference.inputs.insert("x".to_string(), x[..seen * DIM].iter().map(|&value| value.into()).collect());
    for (index, parameter) in g.parameters().iter().enumerate() {
        reference.parameters[index] = weight(parameter).unwrap().iter().map(|&value| value.into()).collect();
    }
    reference.run(&g, RUN).unwrap().get(y).data[place * DIM..(place + 1) * DIM].to_vec()
}

#[test]
fn prefill_and_steps_of_other_batch_sizes_share_caches_and_weights() {
    let sequence = |slot: usize| floats(&format!("sequence {slot}"), CAPACITY * DIM);
    for (precision, cache, limit) in
        [(Precision::F32, DType::F32, 1e-5), (Precision::F32, DType::Bf16, 2e-2), (Precision::Bf16, DType::Bf16, 3e-2)]
    {
        for device in devices() {
            let (prefill, after_prefill) = attend(1, 4, precision, cache);
            let (step, after_step) = attend(3, 1, precision, cache);
            let (small, after_small) = attend(2, 1, precision, cache);
            let mut caches = Caches::new(&[&prefill, &step, &small], &device).unwrap();
            assert_eq!(caches.type_of("keys").unwrap().shape.axes(), [3, CAPACITY, DIM]);
            assert_eq!(caches.bytes(), Caches::bytes_needed(&[&step]).unwrap());
            let mut shared = SharedWeights::new(&device);
            let asked = std::cell::Cell::new(0);
            let mut executor = |graph: &Graph, output: Value| {
                let plan = device.plan_with_fixed_weights(graph, &[output]).unwrap();
                let values = |parameter: &Parameter| {
                    asked.set(asked.get() + 1);
                    weight(parameter)
                };
                Executor::with_shared_weights(plan, &device, &mut shared, values).unwrap()
            };
            let mut prefill = executor(&prefill, after_prefill);
            let (mut step, mut small) = (executor(&step, after_step), executor(&small, after_small));
            assert!(asked.get() <= 6, "each of three parameters once, in each form: {}", asked.get());
            // The prompts of the three slots, one after the other.
            for slot in 0..3 {
                prefill.input("x").unwrap().copy_from_slice(&sequence(slot)[..4 * DIM]);
                fill(&mut prefill, "offsets", &[0]);
                fill(&mut prefill, "lengths", &[4]);
                prefill.infer_with(caches.slots_from(slot)).unwrap();
                let got = prefill.output(after_prefill).unwrap();
                let expected: Vec<f64> = (0..4).flat_map(|place| at_once(&sequence(slot), place, 4)).collect();
                let error = relative_error(&got, &expected, 1e-3);
                assert!(error < limit, "{device:?}, {cache}, prefill of slot {slot}: {error:e}");
            }
            let check = |executor: &mut Executor, caches: &mut Caches, output: Value, places: &[usize]| {
                let x: Vec<f32> = places
                    .iter()
                    .enumerate()
                    .flat_map(|(s, &p)| sequence(s)[p * DIM..(p + 1) * DIM].to_vec())
                    .collect();
                executor.input("x").unwrap().copy_from_slice(&x);
                let numbers = |more: usize| places.iter().map(|&place| (place + more) as i32).collect::<Vec<_>>();
                fill(executor, "offsets", &numbers(0));
                fill(executor, "lengths", &numbers(1));
                executor.infer_with(&mut *caches).unwrap();
                let got = executor.output(output).unwrap();
                for (slot, (&place, got)) in places.iter().zip(got.chunks_exact(DIM)).enumerate() {
                    let error = relative_error(got, &at_once(&sequence(slot), place, place + 1), 1e-3);
                    assert!(error < limit, "{device:?}, {cache}, slot {slot}, place {place}: {error:e}");
                }
            };
            for place in 4..8 {
                check(&mut step, &mut caches, after_step, &[place; 3]);
            }
            // Fewer slots go on, each at its own place.
            check(&mut small, &mut caches, after_small, &[8, 3]);
            check(&mut small, &mut caches, after_small, &[9, 4]);
        }
    }
}

#[test]
fn beam_search_continues_from_parents() {
    for device in devices() {
        let (graph, output) = attend(3, 1, Precision::F32, DType::F32);
        let mut caches = Caches::new(&[&graph], &device).unwrap();
        let plan = device.plan_with_fixed_weights(&graph, &[output]).unwrap();
        let mut executor = Executor::with_weights(plan, &device, weight).unwrap();
        // Which tokens each hypothesis has seen, kept by hand.
        let mut seen: Vec<Vec<f32>> = vec![Vec::new(); 3];
        for (place, parents) in [[0, 1, 2], [2, 0, 0], [1, 0, 2], [1, 2, 0], [0, 0, 0], [2, 1, 0]].iter().enumerate() {
            caches.reorder(&["keys", "values"], parents, place).unwrap();
            seen = parents.iter().map(|&parent| seen[parent].clone()).collect();
            let x = floats(&format!("tokens {place}"), 3 * DIM);
            for (seen, token) in seen.iter_mut().zip(x.chunks_exact(DIM)) {
                seen.extend_from_slice(token);
            }
            executor.input("x").unwrap().copy_from_slice(&x);
            fill(&mut executor, "offsets", &[place as i32; 3]);
            fill(&mut executor, "lengths", &[place as i32 + 1; 3]);
            executor.infer_with(&mut caches).unwrap();
            let got = executor.output(output).unwrap();
            for (slot, (seen, got)) in seen.iter().zip(got.chunks_exact(DIM)).enumerate() {
                let error = relative_error(got, &at_once(seen, place, place + 1), 1e-3);
                assert!(error < 1e-5, "{device:?}, place {place}, slot {slot}: {error:e}");
            }
        }
    }
}

#[test]
fn offsets_without_room_are_an_error_of_the_run() {
    for device in devices() {
        let Writing { graph, result } = Writing::new(2, 4, 3, 2, [DType::F32; 2]).unwrap();
        let mut caches = Caches::new(&[&graph], &device).unwrap();
        let mut executor = Executor::new(device.plan(&graph, &[result]).unwrap(), &device).unwrap();
        let mut state = State::new(&graph).unwrap();
        for offsets in [[0, 3], [-1, 0], [i32::MAX, 0], [i32::MIN, 0]] {
            fill(&mut executor, "offsets", &offsets);
            let ran = executor.run_with(&mut state, &mut caches, RUN).and_then(|()| executor.finish());
            assert!(ran.is_err(), "{device:?}: {offsets:?}");
        }
        fill(&mut executor, "offsets", &[2, 0]);
        executor.run_with(&mut state, &mut caches, RUN).and_then(|()| executor.finish()).unwrap();
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let device = Device::Cpu { threads: 1 };
    let said = |result: Result<()>| result.expect_err("refused").to_string();
    let Writing { graph, result } = Writing::new(2, 4, 3, 1, [DType::F32; 2]).unwrap();
    let mut state = State::new(&graph).unwrap();
    let mut executor = Executor::new(device.plan(&graph, &[result]).unwrap(), &device).unwrap();
    let error = said(executor.run(&mut state, RUN));
    assert!(error.contains("`kept`") && error.contains("run_with"), "{error}");
    let of = |axes: [usize; 3], dtype: DType| {
        let mut graph = Graph::for_inference();
        graph.cache("kept", axes, dtype).unwrap();
        Caches::new(&[&graph], &device).unwrap()
    };
    for (axes, dtype) in
        [([1, 4, 3], DType::F32), ([2, 5, 3], DType::F32), ([2, 4, 4], DType::F32), ([2, 4, 3], DType::Bf16)]
    {
        let error = said(executor.run_with(&mut state, &mut of(axes, dtype), RUN));
        assert!(error.contains("`kept`") && error.contains("f32[2, 4, 3]"), "{error}");
    }
    let mut caches = of([3, 4, 3], DType::F32);
    executor.run_with(&mut state, caches.slots_from(1), RUN).unwrap();
    let error = said(executor.run_with(&mut state, caches.slots_from(2), RUN));
    assert!(error.contains("slot 2"), "{error}");

    let copy = |to, from, rows| SlotCopy { to, from, rows };
    for (copies, what) in [
        (vec![copy(3, 0, 1)], "slot 3"),
        (vec![copy(0, 3, 1)], "slot 3"),
        (vec![copy(0, 1, 5)], "row 5"),
        (vec![copy(0, 1, 1), copy(0, 2, 1)], "two copies into slot 0"),
    ] {
        let error = said(caches.copy_slots(&["kept"], &copies));
        assert!(error.contains(what), "{error}");
    }
    assert!(said(caches.copy_slots(&["other"], &[])).contains("there are: kept"));
    assert!(said(caches.write("kept", 0, 3, &[0.0; 6])).contains("4 rows of 3"));
    assert!(said(caches.write("kept", 0, 0, &[0.0; 2])).contains("2 numbers"));

    // Graphs that disagree about a cache.
    let mut other = Graph::for_inference();
    other.cache("kept", [2, 5, 3], DType::F32).unwrap();
    let error = Caches::new(&[&graph, &other], &device).err().expect("refused").to_string();
    assert!(error.contains("`kept`") && error.contains("another graph"), "{error}");
}

#[test]
fn graphs_refuse_what_is_no_cache() {
    let mut g = Graph::for_inference();
    let input = g.input("input", [2, 4, 3], DType::F32).unwrap();
    let rows = g.input("rows", [2, 1, 3], DType::F32).unwrap();
    let offsets = g.input("offsets", [2], DType::I32).unwrap();
    let cache = g.cache("cache", [2, 4, 3], DType::F32).unwrap();
    let said = |result: Result<Value>| result.expect_err("refused").to_string();
    assert!(said(g.write_rows(input, rows, offsets)).contains("into a cache only"));
    assert!(said(g.write_rows(cache, cache, offsets)).contains("another value"));
    assert!(said(g.write_rows(cache, input, input)).contains("offsets [slots]"));
    assert!(said(g.write_rows(cache, rows, rows)).contains("offsets [slots]"));
    assert!(said(g.cache("flat", [2, 4], DType::F32)).contains("[slots, capacity, dim]"));
    assert!(said(g.cache("whole", [2, 4, 3], DType::I32)).contains("floats"));
    g.write_rows(cache, rows, offsets).unwrap();
    assert!(said(g.write_rows(cache, rows, offsets)).contains("already"));
}

#[test]
fn a_write_that_nobody_reads_is_run_all_the_same() {
    for device in devices() {
        let mut g = Graph::for_inference();
        let rows = g.input("rows", [2, 1, 4], DType::F32).unwrap();
        let offsets = g.input("offsets", [2], DType::I32).unwrap();
        let cache = g.cache("cache", [2, 4, 4], DType::F32).unwrap();
        g.write_rows(cache, rows, offsets).unwrap();
        let mut caches = Caches::new(&[&g], &device).unwrap();
        let mut executor = Executor::new(device.plan(&g, &[]).unwrap(), &device).unwrap();
        executor.input("rows").unwrap().fill(1.5);
        fill(&mut executor, "offsets", &[1, 3]);
        executor.run_with(&mut State::new(&g).unwrap(), &mut caches, RUN).unwrap();
        let kept = caches.read("cache").unwrap();
        let written = |row: &[f32]| row.iter().all(|&value| value == 1.5);
        let rows: Vec<bool> = kept.chunks_exact(4).map(written).collect();
        assert_eq!(rows, [false, true, false, false, false, false, false, true], "{device:?}");
    }
}

#[test]
fn first_rows_of_a_slot_are_dropped() {
    let mut graph = Graph::for_inference();
    for name in ["a", "b"] {
        graph.cache(name, [2, 9, 4], DType::F32).unwrap();
    }
    for device in devices() {
        let before: Vec<f32> = (0..72).map(|number| number as f32).collect();
        // Rows that stay reach over where they came from, or not.
        for (by, rows) in [(2, 7), (5, 3), (4, 0), (0, 9)] {
            let mut caches = Caches::new(&[&graph], &device).unwrap();
            for slot in 0..2 {
                caches.write("a", slot, 0, &before[slot * 36..][..36]).unwrap();
            }
            caches.drop_rows(&["a", "b"], 1, by, rows).unwrap();
            let mut expected = before.clone();
            expected.copy_within(36 + 4 * by..36 + 4 * (by + rows), 36);
            assert_eq!(caches.read("a").unwrap(), expected, "{device:?}, {by} and {rows}");
            assert!(caches.drop_rows(&["a"], 1, 3, 7).is_err() && caches.drop_rows(&["a"], 2, 1, 1).is_err());
        }
    }
}

#[test]
fn memory_of_rows_is_given_back_and_taken_again() {
    let device = Device::Cpu { threads: 1 };
    let (slots, capacity, dim) = (3, 8192, 64);
    let mut graph = Graph::for_inference();
    for (name, dtype) in [("f32", DType::F32), ("bf16", DType::Bf16)] {
        graph.cache(name, [slots, capacity, dim], dtype).unwrap();
    }
    let mut caches = Caches::new(&[&graph], &device).unwrap();
    let ones = vec![1.0; capacity * dim];
    for name in ["f32", "bf16"] {
        (0..slots).for_each(|slot| caches.write(name, slot, 0, &ones).unwrap());
    }
    caches.give_back(&["f32", "bf16"], 1, 1024).unwrap();
    let is_written = |value: &f32| *value == 1.0;
    for name in ["f32", "bf16"] {
        let kept = caches.read(name).unwrap();
        let slot = |slot: usize| &kept[slot * capacity * dim..(slot + 1) * capacity * dim];
        assert!([slot(0), slot(2)].iter().all(|rows| rows.iter().all(is_written)), "other slots");
        assert!(slot(1)[..1024 * dim].iter().all(is_written), "rows before");
        if Caches::give_memory_back(&device) {
            assert!(!slot(1)[1024 * dim..].iter().any(is_written), "rows behind");
        }
        caches.write(name, 1, 0, &ones).unwrap();
        assert!(caches.read(name).unwrap().iter().all(is_written));
    }
    assert!(caches.give_back(&["f32"], 3, 0).is_err() && caches.give_back(&["f32"], 0, capacity + 1).is_err());
    caches.give_back(&["f32"], 0, capacity).unwrap();
}
