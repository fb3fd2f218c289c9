//! How matrix multiplications are computed: by cuBLASLt, with or without an epilogue, or by our own kernel. Unknown
//! cases are measured.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::chip::Chip;
use super::compile::Kernels;
use super::cublaslt::Library;
use super::device::Device;
use super::hopper;
use super::launch::{Address, Buffer, Building, Launch};
use super::libraries::{compiler_version, driver_version};
use super::products::{Choice, Product};
use super::remembered::{Measured, recall, remember};
use super::start::{Begin, start_kernel};
use super::stream::{Event, Stream};
use super::target::is_product;
use crate::error::{Error, Result};
use crate::graph::Node;
use crate::plan::Plan;

/// Seconds to launch one or two more kernels.
const LAUNCHES: f64 = 7e-6;
/// The least advantage of our kernel, in seconds. It takes most of an SM's shared memory, so that the kernels before
/// and after it cannot overlap with it: within a step of many small kernels, this is how much slower it is than alone.
const ALONE: f64 = 6e-6;
/// Smallest result (in elements) for which our kernel may have that advantage; below, it is not even compiled.
const LEAST_VALUES: usize = 1 << 24;
/// Rounds for each of the two alternatives (the first is a warm-up), and runs per round.
const TURNS: usize = 4;
const RUNS: usize = 8;

/// Chooses by measured time.
pub(super) struct Fastest<'l> {
    library: &'l Library,
    device: &'l Device,
    kernels: RefCell<&'l mut Kernels>,
}

impl<'l> Fastest<'l> {
    /// For the matrix multiplications of a plan. Kernels that have to be measured are compiled, several in parallel.
    pub fn new(plan: &Plan, device: &'l Device, library: &'l Library, kernels: &'l mut Kernels) -> Fastest<'l> {
        let chooser = Fastest { library, device, kernels: RefCell::new(kernels) };
        let is_candidate = |node: &Node| is_product(&node.op) && is_worth_trying(node.outputs[0].shape.elements());
        let nodes = plan.graph().nodes().iter().enumerate().filter(|(_, node)| is_candidate(node));
        let candidates = nodes.filter_map(|(index, _)| hopper::build(&Building { plan, index }, chooser.chip()));
        let unknown: Vec<Launch> = candidates.filter(|launch| recall(&chooser.key(launch)).is_none()).collect();
        // A kernel that does not compile is skipped: cuBLASLt can do everything.
        let _ = chooser.kernels.borrow_mut().load_all(unknown.iter().map(|launch| launch.source.as_str()));
        chooser
    }

    /// The key of a kernel's measurement.
    fn key(&self, kernel: &Launch) -> String {
        let mut hasher = DefaultHasher::new();
        (&kernel.source, kernel.grid).hash(&mut hasher);
        let (driver, compiler) = (driver_version().unwrap_or(0), compiler_version().unwrap_or_default());
        format!("{}/{driver}/{compiler}/{}/{:016x}", self.library.setting(), kernel.entry, hasher.finish())
    }

    /// Seconds of a kernel, and of a multiplication with the launches after it. This overwrites the arena; values in
    /// other buffers, which do not exist yet, are read and written there, too: none is larger than `largest`.
    pub fn measured(&self, kernel: &Launch, product: &Product, after: &[Launch], largest: usize) -> Result<[f64; 2]> {
        let arena = self.library.arena();
        if arena.bytes() < largest {
            return Err(Error::Machine("there is no memory to measure a kernel in".to_string()));
        }
        self.library.fill_arena()?;
        let function =
            |launch: &Launch| self.kernels.borrow_mut().function(&launch.source, launch.entry, launch.shared_bytes);
        let address = |place: Address| match place.buffer {
            Buffer::Arena => arena.start() + place.byte as u64,
            _ => arena.start(),
        };
        let ours = function(kernel)?;
        let prepared = self.library.prepare(product)?;
        let behind = after.iter().map(|launch| Ok((function(launch)?, launch))).collect::<Result<Vec<_>>>()?;
        // SAFETY: values in the arena exist, and it has room for everything else.
        let kernel = |stream: &Stream| unsafe { start_kernel(ours, kernel, address, Begin::After, stream) };
        let others = |stream: &Stream| {
            // SAFETY: as above.
            unsafe { self.library.run(&prepared, product, address, stream) }?;
            // SAFETY: as above.
            behind.iter().try_for_each(|(function, launch)| unsafe {
                start_kernel(*function, launch, address, Begin::After, stream)
            })
        };
        // Nothing else of this process may interfere.
        self.device.wait()?;
        let stream = Stream::new()?;
        let seconds = in_turns(&stream, [&kernel, &others]);
        // Even after a failure, nothing may be running in the arena.
        self.device.wait()?;
        seconds
    }
}

fn is_worth_trying(values: usize) -> bool {
    values >= LEAST_VALUES
}

/// Launches what computes a node.
type Way<'w> = &'w dyn Fn(&Stream) -> Result<()>;

/// Seconds per run of each of two alternatives. They alternate, with several consecutive runs each time: then clocks
/// and caches are as within a step.
fn in_turns(stream: &Stream, ways: [Way; 2]) -> Result<[f64; 2]> {
    let mut shortest = [f64::INFINITY; 2];
    for turn in 0..TURNS {
        for (way, shortest) in ways.iter().zip(&mut shortest) {
            let (before, after) = (Event::timed()?, Event::timed()?);
            before.record(stream)?;
            for _ in 0..RUNS {
                way(stream)?;
            }
            after.record(stream)?;
            after.wait()?;
            if turn > 0 {
                *shortest = shortest.min(after.seconds_since(&before)? / RUNS as f64);
            }
        }
    }
    Ok(shortest)
}

impl Choice for Fastest<'_> {
    fn can_do(&self, product: &Product) -> bool {
        self.library.can_do(product)
    }

    fn is_faster(&self, product: &Product, other: &Product, bytes: usize) -> bool {
        let seconds = |product: &Product| self.library.prepare(product).map(|prepared| prepared.seconds());
        match (self.can_do(product), seconds(product), seconds(other)) {
            (true, Ok(with), Ok(without)) => with <= without + bytes as f64 / self.device.gpu().bandwidth + LAUNCHES,
            _ => false,
        }
    }

    fn chip(&self) -> Chip {
        Chip::of(self.device.gpu())
    }

    fn kernel_is_faster(&self, kernel: &Launch, product: &Product, after: &[Launch], largest: usize) -> bool {
        #[cfg(test)]
        if testing::ALWAYS_OURS.get() {
            return true;
        }
        if !is_worth_trying(product.d.rows * product.d.columns) {
            return false;
        }
        let key = self.key(kernel);
        let measured = recall(&key).or_else(|| {
            let [ours, others] = self.measured(kernel, product, after, largest).ok()?;
            Some(remember(key, Measured::of_kernel(ours, others)))
        });
        measured.is_some_and(|measured| measured.gain_of_kernel() > ALONE)
    }
}

/// For tests that use a kernel wherever it applies.
#[cfg(test)]
pub(super) mod testing {
    use std::cell::Cell;

    thread_local! {
        pub static ALWAYS_OURS: Cell<bool> = const { Cell::new(false) };
    }
}
