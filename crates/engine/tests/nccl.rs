//! NCCL on one GPU: what travels arrives, and a step whose gradients travel is the step without that, to the bit. Skipped, visibly, where
//! there is no GPU or no NCCL.

mod common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::encoder::{encoder, options, values};
use vitreous_engine::collective::{World, nccl};
use vitreous_engine::{DType, Device, Executor, Graph, Mode, Optimizer, Precision, Run, State, collective::Wire, cuda};

/// Updates of a run: the first starts kernels one by one, the second records them, the others are started from the record.
const STEPS: u64 = 5;
/// Batches of an update.
const BATCHES: u64 = 2;
/// Few gradients, so that there are many buckets.
const BUCKET: usize = 500;

/// One test at a time: what one records, the memory of another would spoil.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU with NCCL, or a line that says why not.
fn gpu() -> Option<Arc<cuda::Device>> {
    let device = match cuda::Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("skipped on the GPU: {error}");
            return None;
        }
    };
    match &cuda::Libraries::others()[0].fault {
        None => Some(device),
        Some(fault) => {
            eprintln!("skipped: {fault}");
            None
        }
    }
}

/// What a run leaves.
#[derive(PartialEq)]
struct Left {
    parameters: Vec<u32>,
    moments: Vec<u32>,
    gradients: Vec<f32>,
    losses: Vec<u32>,
}

fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|float| float.to_bits()).collect()
}

/// A model, the two parts of its step, and its state.
struct Ready {
    pass: Executor,
    update: Executor,
    loss: vitreous_engine::Value,
    state: State,
}

fn ready(gpu: &Arc<cuda::Device>, precision: Precision) -> Ready {
    let device = Device::Cuda(gpu.clone());
    let mut graph = Graph::new(Mode::Training, precision);
    let loss = encoder(&mut graph, 16, 3, 32).expect("a graph");
    let (update, _) = graph.update_step(&options(Optimizer::adamw())).expect("an update");
    graph.accumulation_step(loss, &options(Optimizer::adamw())).expect("a step");
    let mut given = values(&graph);
    given.insert("accumulate".to_string(), vec![0.0]);
    given.insert("gradient_scale".to_string(), vec![0.5]);
    let mut state = State::new(&update).expect("memory");
    for parameter in update.parameters() {
        let values = state.parameter_mut(&parameter.name).expect("a parameter").iter_mut();
        values.zip(&given[&parameter.name]).for_each(|(to, from)| *to = *from as f32);
    }
    state.start_average();
    let executor = |graph: &Graph, outputs: &[vitreous_engine::Value]| {
        let plan = device.plan(graph, outputs).expect("a plan");
        let mut executor = Executor::new(plan, &device).expect("an executor");
        for (name, value) in graph.inputs() {
            match graph.type_of(value).dtype {
                DType::I32 => {
                    let input = executor.input_i32(name).expect("an input").iter_mut();
                    input.zip(&given[name]).for_each(|(to, from)| *to = *from as i32);
                }
                _ => {
                    let input = executor.input(name).expect("an input").iter_mut();
                    input.zip(&given[name]).for_each(|(to, from)| *to = *from as f32);
                }
            }
        }
        executor
    };
    Ready { pass: executor(&graph, &[loss]), update: executor(&update, &[]), loss, state }
}

/// Some updates. The gradients of the last batch of each travel, if there is something that they travel with.
fn run(
    gpu: &Arc<cuda::Device>,
    precision: Precision,
    with: impl FnOnce(&State) -> Option<Arc<cuda::Reduction>>,
) -> Left {
    let Ready { mut pass, mut update, loss, mut state } = ready(gpu, precision);
    let reduction = with(&state);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        for batch in 0..BATCHES {
            pass.input("accumulate").expect("an input")[0] = if batch == 0 { 0.0 } else { 1.0 };
            let run = Run { seed: 3, step: 16 * step + batch };
            match reduction.as_ref().filter(|_| batch + 1 == BATCHES) {
                Some(reduction) => pass.run_reducing(&mut state, run, reduction).expect("a run"),
                None => pass.run(&mut state, run).expect("a run"),
            }
            losses.push(pass.number(loss).expect("a loss").to_bits());
        }
        update.run(&mut state, Run { seed: 3, step }).expect("an update");
    }
    state.bring_home().expect("comes home");
    if let Some(reduction) = &reduction {
        assert!(reduction.buckets().len() > 3, "{reduction:?}");
        let landed = reduction.landed().expect("what arrived");
        for range in reduction.buckets().iter().filter(|_| !landed.is_empty()) {
            assert!(
                bits(&landed[range.clone()]) == bits(&state.gradients()[range.clone()]),
                "{range:?} did not travel"
            );
        }
    }
    let (first, second) = state.moments();
    let moments = bits(&[first, second, state.averages()].concat());
    Left { parameters: bits(state.parameters()), moments, gradients: state.gradients().to_vec(), losses }
}

#[test]
fn a_step_whose_gradients_travel_is_the_step_without_that_to_the_bit() {
    let _alone = alone();
    let Some(gpu) = gpu() else { return };
    for precision in [Precision::F32, Precision::Bf16] {
        let expected = run(&gpu, precision, |_| None);
        assert!(expected.gradients.iter().any(|gradient| *gradient != 0.0) && expected.losses[0] != expected.losses[9]);
        for times in [1, 3, 1] {
            let got = run(&gpu, precision, |state| {
                Some(cuda::Reduction::alone(&gpu, state.table(), BUCKET, Wire::F32, times).expect("a communicator"))
            });
            assert!(got == expected, "{precision:?}, moved {times} times");
        }
    }
}

#[test]
fn gradients_that_travel_as_bf16_are_rounded_once_and_the_same_on_every_repetition() {
    let _alone = alone();
    let Some(gpu) = gpu() else { return };
    let narrow = |state: &State| {
        Some(cuda::Reduction::alone(&gpu, state.table(), BUCKET, Wire::Bf16, 1).expect("a communicator"))
    };
    let exact = run(&gpu, Precision::F32, |_| None);
    let rounded = run(&gpu, Precision::F32, narrow);
    assert!(rounded.gradients.iter().all(|gradient| gradient.to_bits() & 0xffff == 0), "some are not rounded");
    assert!(rounded.gradients.iter().any(|gradient| *gradient != 0.0) && rounded.parameters != exact.parameters);
    assert_eq!(rounded.losses[..2], exact.losses[..2], "before the first update");
    assert!(run(&gpu, Precision::F32, narrow) == rounded, "another run");
}

/// A rank without a batch gives zeros, and what is added up without a run stays as it is.
#[test]
fn gradients_travel_without_a_run() {
    let _alone = alone();
    let Some(gpu) = gpu() else { return };
    let Ready { mut pass, mut state, .. } = ready(&gpu, Precision::F32);
    let reduction = cuda::Reduction::alone(&gpu, state.table(), BUCKET, Wire::F32, 1).expect("a communicator");
    pass.run(&mut state, Run { seed: 1, step: 1 }).expect("a run");
    state.bring_home().expect("comes home");
    let before = state.gradients().to_vec();
    assert!(before.iter().any(|gradient| *gradient != 0.0));
    reduction.reduce(&mut state, false).expect("sums");
    reduction.finish().expect("sums");
    state.bring_home().expect("comes home");
    assert!(bits(state.gradients()) == bits(&before));
    reduction.reduce(&mut state, true).expect("sums");
    state.bring_home().expect("comes home");
    assert!(state.gradients().iter().all(|gradient| *gradient == 0.0));
    // A run after that begins with what it finds.
    pass.input("accumulate").expect("an input")[0] = 1.0;
    pass.run_reducing(&mut state, Run { seed: 1, step: 1 }, &reduction).expect("a run");
    state.bring_home().expect("comes home");
    assert!(bits(state.gradients()) == bits(&before));
}

/// A rank that sends to itself: short and long messages, and several at once of which some are empty.
#[test]
fn bytes_go_through_nccl_as_they_are() {
    let _alone = alone();
    let Some(gpu) = gpu() else { return };
    let mut link = nccl::alone(&gpu).expect("a communicator");
    assert!(link.name().starts_with("NCCL 2.") && (link.rank(), link.size()) == (0, 1));
    for length in [0usize, 1, 7, 255, 256, 257, 100_000, 40_000_001] {
        let sent: Vec<u8> = (0..length).map(|place| (place * 31 % 251) as u8).collect();
        let mut received = vec![0; length];
        link.exchange(&[(0, &sent)], &mut [(0, &mut received)]).expect("an exchange");
        assert!(sent == received, "{length} bytes");
    }
    let (first, second) = (vec![1u8; 1000], vec![2u8; 20_000_000]);
    let (mut one, mut other, mut none) = (vec![0; 1000], vec![0; 20_000_000], Vec::new());
    let sends: [(usize, &[u8]); 3] = [(0, &first), (0, &[]), (0, &second)];
    link.exchange(&sends, &mut [(0, &mut one), (0, &mut none), (0, &mut other)]).expect("an exchange");
    assert!(one == first && other == second);
    link.watch().expect("nobody else is there");
    link.finish().expect("nobody else is there");
}

#[test]
fn a_world_of_one_rank_talks_to_itself() {
    let _alone = alone();
    let Some(gpu) = gpu() else { return };
    let own = gpu.clone();
    let world =
        World::with(move || nccl::alone(&own), Box::new(|sentence| eprintln!("FAULT {sentence}"))).expect("a world");
    assert_eq!((world.rank(), world.size(), world.local_rank()), (0, 1, 0));
    assert_eq!(world.gather(b"alone".to_vec()).expect("an exchange"), [b"alone"]);
    assert_eq!(world.from_first(b"first".to_vec()).expect("an exchange"), b"first");
    world.barrier().expect("all are here");
    world.finish().expect("goodbye");
}

/// Where there is no GPU, an address in place of MPI is refused with a way out.
#[test]
fn an_address_without_a_gpu_is_refused() {
    use vitreous_engine::collective::{Launch, Launcher};
    let launcher = Launcher::Rendezvous { address: "127.0.0.1".to_string(), port: 9 };
    let launch = Launch { rank: 1, size: 2, local_rank: None, local_size: None, launcher };
    let said = World::join(&launch, Box::new(|_| ())).map(drop).expect_err("no GPU was given").to_string();
    assert!(said.contains("are for GPUs") && said.contains("mpirun"), "{said}");
}
