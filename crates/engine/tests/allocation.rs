//! Running a plan allocates nothing, and an executor takes exactly the memory that the plan said. This is a test binary of its own
//! because its allocator counts what the whole process does.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::encoder::{options, training, values};
use vitreous_engine::cpu::Executor;
use vitreous_engine::{Optimizer, Plan, Precision, Run, State};

/// Counts allocations, and the bytes of those at least a page large, of the whole process.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(layout: Layout) {
    ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    // Engine buffers are aligned to cache lines; nothing else in this process is.
    if layout.align() >= 64 {
        LARGE_BYTES.fetch_add(layout.size(), Ordering::SeqCst);
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn running_allocates_nothing_and_takes_what_the_plan_said() {
    for precision in [Precision::F32, Precision::Bf16] {
        let training = training(16, 2, 32, precision, &options(Optimizer::adamw()));
        let values = values(&training.graph);
        let plan = Plan::for_cpu(&training.graph, &[training.loss]).unwrap();
        let mut state = State::new(&training.graph).unwrap();
        for threads in [1, 2] {
            let plan = plan.clone();
            let predicted = plan.peak_bytes(threads);
            let before = LARGE_BYTES.load(Ordering::SeqCst);
            let mut executor = Executor::new(plan, threads).unwrap();
            common::fill(&mut executor, &mut state, &training.graph, &values);
            let allocations = ALLOCATIONS.load(Ordering::SeqCst);
            for step in 0..3 {
                executor.run(&mut state, Run { seed: 1, step }).unwrap();
            }
            assert_eq!(
                ALLOCATIONS.load(Ordering::SeqCst),
                allocations,
                "running allocated ({precision:?}, {threads} threads)"
            );
            assert_eq!(LARGE_BYTES.load(Ordering::SeqCst) - before, predicted, "{precision:?}, {threads} threads");
            assert_eq!(executor.memory_bytes(), predicted);
        }
    }
}
