//! The sums of gradients over GPUs, bucket by bucket, while the backward pass goes on.
//!
//! A bucket is a part of the flat buffer of gradients. As soon as its last gradient is written, a stream of its own adds it up over all
//! GPUs, in place; the end of the run waits for that. All ranks send the buckets in the same order.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result as driver;
use cudarc::driver::sys;

use super::communicator::Communicator;
use super::library::{Kind, version};
use super::start::{Meeting, meet};
use crate::collective::{Wire, World};
use crate::cuda::compile::Kernels;
use crate::cuda::device::{Device, failed};
use crate::cuda::launch::{Address, Argument, Buffer, Launch, blocks, source};
use crate::cuda::memory::DeviceBuffer;
use crate::cuda::start::{Begin, start_kernel};
use crate::cuda::stream::{Event, Stream};
use crate::error::{Error, Result};
use crate::parameter::Parameter;
use crate::state::State;

const KERNEL: &str = include_str!("../kernels/wire.cu");
const BLOCK: usize = 256;

/// The gradients of a model, in buckets that GPUs add up.
pub struct Reduction {
    /// Ranges of the flat buffer of gradients, in the order in which they travel.
    buckets: Vec<Range<usize>>,
    /// By parameter: its bucket.
    bucket_of: Vec<Option<usize>>,
    /// How many gradients each bucket has.
    gradients_of: Vec<usize>,
    library: String,
    device: Arc<Device>,
    inner: Mutex<Inner>,
}

/// What one thread uses at a time.
struct Inner {
    /// By bucket: all its gradients are written.
    ready: Vec<Event>,
    /// All sums of a run are there. What a recorded run notes, nobody else can wait for.
    joined: Event,
    /// All sums without a run are there.
    done: Arc<Event>,
    stream: Stream,
    way: Way,
    communicator: Communicator,
}

/// How gradients travel.
enum Way {
    /// Where they are.
    InPlace,
    /// Rounded to bf16.
    Narrow(Narrow),
    /// To other memory, so many times, and back: for one GPU, which would have nothing to do otherwise.
    There { landing: DeviceBuffer, times: usize },
}

struct Narrow {
    wire: DeviceBuffer,
    to_wire: sys::CUfunction,
    from_wire: sys::CUfunction,
    /// Behind what is loaded from them.
    _kernels: Kernels,
}

// SAFETY: functions are handles that any thread with the context can use.
unsafe impl Send for Narrow {}

impl std::fmt::Debug for Reduction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reduction").field("buckets", &self.buckets.len()).field("library", &self.library).finish()
    }
}

impl Reduction {
    /// For the trained parameters of a table, in buckets of about so many floats, over the GPUs of all ranks; or why they cannot work
    /// together, which all ranks say alike. All ranks call this.
    pub fn start(
        world: &World,
        device: &Arc<Device>,
        table: &[Parameter],
        floats: usize,
        wire: Wire,
    ) -> Result<Result<Arc<Reduction>, String>> {
        let communicator = match meet(world, device)? {
            Meeting::Begun(communicator) => communicator,
            Meeting::Not(why) => return Ok(Err(why)),
        };
        let way = match wire {
            Wire::F32 if world.size() == 1 => Way::there(device, table, 1)?,
            Wire::F32 => Way::InPlace,
            Wire::Bf16 => Way::Narrow(Narrow::new(device, end_of(table))?),
        };
        Reduction::of(device, communicator, way, buckets(table, floats)).map(|reduction| Ok(Arc::new(reduction)))
    }

    /// As [`Reduction::start`], for one GPU alone, which adds nothing up. To see that the way works, and how long it takes, each bucket is
    /// sent to other memory so many times and copied back; rounded to bf16, once and in place.
    pub fn alone(
        device: &Arc<Device>,
        table: &[Parameter],
        floats: usize,
        wire: Wire,
        times: usize,
    ) -> Result<Arc<Reduction>> {
        device.bind()?;
        let communicator = Communicator::begin(device, Communicator::new_id()?, 0, 1, &mut || Ok(()))?;
        let way = match wire {
            Wire::F32 => Way::there(device, table, times)?,
            Wire::Bf16 => Way::Narrow(Narrow::new(device, end_of(table))?),
        };
        Reduction::of(device, communicator, way, buckets(table, floats)).map(Arc::new)
    }

    fn of(
        device: &Arc<Device>,
        communicator: Communicator,
        way: Way,
        (buckets, bucket_of): (Vec<Range<usize>>, Vec<Option<usize>>),
    ) -> Result<Reduction> {
        device.bind()?;
        let mut gradients_of = vec![0; buckets.len()];
        bucket_of.iter().flatten().for_each(|&bucket| gradients_of[bucket] += 1);
        let ready: Result<Vec<Event>> = buckets.iter().map(|_| Event::new()).collect();
        let (joined, done, stream) = (Event::new()?, Arc::new(Event::new()?), Stream::urgent()?);
        Ok(Reduction {
            inner: Mutex::new(Inner { ready: ready?, joined, done, stream, way, communicator }),
            library: format!("NCCL {}", version().map_err(Error::Machine)?),
            device: Arc::clone(device),
            buckets,
            bucket_of,
            gradients_of,
        })
    }

    /// The library that adds up, and its version.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// The parts of the flat buffer of gradients that travel together, in their order.
    pub fn buckets(&self) -> &[Range<usize>] {
        &self.buckets
    }

    /// What has arrived in the other memory, of one GPU alone; nothing otherwise. The gradients lie as in a state.
    pub fn landed(&self) -> Result<Vec<f32>> {
        self.device.wait()?;
        match &self.inner().way {
            Way::There { landing, .. } => {
                let mut floats = vec![0.0; landing.bytes() / 4];
                landing.read(0, &mut floats)?;
                Ok(floats)
            }
            Way::InPlace | Way::Narrow(_) => Ok(Vec::new()),
        }
    }

    /// Adds up the gradients of a state as they are; with `none`, this rank has none, and zeros in their place. It goes on after this
    /// returns: see [`Reduction::finish`].
    pub fn reduce(&self, state: &mut State, none: bool) -> Result<()> {
        self.device.bind()?;
        let resident = state.gradients_on_device(&self.device)?;
        let inner = self.inner();
        if let Some(last) = &resident.last_run {
            inner.stream.wait_for(last)?;
        }
        let gradients = resident.start(Buffer::Gradients);
        for range in &self.buckets {
            if none {
                let (start, bytes) = (gradients + 4 * range.start as u64, 4 * range.len());
                // SAFETY: the range lies inside the buffer of gradients, which nothing uses before the sums are there.
                unsafe { driver::memset_d8_async(start, 0, bytes, inner.stream.handle()) }
                    .map_err(|error| failed("clearing gradients", error))?;
            }
            inner.send(gradients, range)?;
        }
        inner.done.record(&inner.stream)?;
        resident.last_run = Some(Arc::clone(&inner.done));
        Ok(())
    }

    /// Waits for what [`Reduction::reduce`] has begun.
    pub fn finish(&self) -> Result<()> {
        let done = Arc::clone(&self.inner().done);
        done.wait()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to follow a run whose gradients lie there.
    pub(in crate::cuda) fn follow(&self, gradients: u64) -> Progress<'_> {
        Progress { reduction: self, inner: self.inner(), missing: self.gradients_of.clone(), next: 0, gradients }
    }

    pub(in crate::cuda) fn is_on(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }
}

/// How far the gradients of a run are.
pub(in crate::cuda) struct Progress<'r> {
    reduction: &'r Reduction,
    inner: MutexGuard<'r, Inner>,
    /// By bucket: how many gradients are not written yet.
    missing: Vec<usize>,
    /// The next bucket to send.
    next: usize,
    gradients: u64,
}

impl Progress<'_> {
    /// The gradient of a parameter is written, by what was asked of the stream so far. Buckets that are full go on their way.
    pub fn written(&mut self, parameter: usize, stream: &Stream) -> Result<()> {
        let Some(bucket) = self.reduction.bucket_of.get(parameter).copied().flatten() else { return Ok(()) };
        self.missing[bucket] = self.missing[bucket].saturating_sub(1);
        while self.missing.get(self.next) == Some(&0) {
            self.send_next(stream)?;
        }
        Ok(())
    }

    /// All that is left goes on its way, and what is asked of the stream from now on waits for the sums.
    pub fn finish(mut self, stream: &Stream) -> Result<()> {
        while self.next < self.reduction.buckets.len() {
            self.send_next(stream)?;
        }
        let Inner { joined, stream: own, .. } = &*self.inner;
        if !self.reduction.buckets.is_empty() {
            joined.record(own)?;
            stream.wait_for(joined)?;
        }
        Ok(())
    }

    fn send_next(&mut self, stream: &Stream) -> Result<()> {
        let (inner, index) = (&*self.inner, self.next);
        inner.ready[index].record(stream)?;
        inner.stream.wait_for(&inner.ready[index])?;
        inner.send(self.gradients, &self.reduction.buckets[index])?;
        self.next += 1;
        Ok(())
    }
}

impl Inner {
    /// Asks the stream to add up a bucket of the gradients that begin there.
    fn send(&self, gradients: u64, range: &Range<usize>) -> Result<()> {
        let Inner { stream, communicator, way, .. } = self;
        let (from, count) = (gradients + 4 * range.start as u64, range.len());
        match way {
            // SAFETY: the range lies inside the buffer of gradients, which nothing uses before the sums are there.
            Way::InPlace => unsafe { communicator.all_reduce(from, from, count, Kind::F32, stream) },
            Way::Narrow(narrow) => {
                let wire = narrow.wire.start() + 2 * range.start as u64;
                narrow.run(narrow.to_wire, "to_wire", [from, wire], count, stream)?;
                // SAFETY: as above; what travels has its own memory, as large in values.
                unsafe { communicator.all_reduce(wire, wire, count, Kind::Bf16, stream)? };
                narrow.run(narrow.from_wire, "from_wire", [wire, from], count, stream)
            }
            Way::There { landing, times } => {
                let to = landing.start() + 4 * range.start as u64;
                for _ in 0..*times {
                    // SAFETY: as above; the other memory is as large.
                    unsafe { communicator.all_reduce(from, to, count, Kind::F32, stream)? };
                }
                // SAFETY: as above.
                unsafe { driver::memcpy_dtod_async(from, to, 4 * count, stream.handle()) }
                    .map_err(|error| failed("copying gradients", error))
            }
        }
    }
}

impl Way {
    fn there(device: &Arc<Device>, table: &[Parameter], times: usize) -> Result<Way> {
        Ok(Way::There { landing: DeviceBuffer::zeroed(device, 4 * end_of(table))?, times: times.max(1) })
    }
}

impl Narrow {
    fn new(device: &Arc<Device>, floats: usize) -> Result<Narrow> {
        let mut kernels = Kernels::new(Arc::clone(device));
        let text = source(&[], "", KERNEL);
        kernels.load_all(std::iter::once(text.as_str()))?;
        Ok(Narrow {
            wire: DeviceBuffer::zeroed(device, 2 * floats)?,
            to_wire: kernels.function(&text, "to_wire", 0)?,
            from_wire: kernels.function(&text, "from_wire", 0)?,
            _kernels: kernels,
        })
    }

    fn run(
        &self,
        function: sys::CUfunction,
        entry: &'static str,
        addresses: [u64; 2],
        count: usize,
        stream: &Stream,
    ) -> Result<()> {
        let at = |index: usize| Argument::Address(Address { buffer: Buffer::Cache(index as u32), byte: 0 });
        let launch = Launch {
            source: String::new(),
            entry,
            grid: [blocks(count, BLOCK), 1, 1],
            block: BLOCK as u32,
            shared_bytes: 0,
            arguments: vec![at(0), at(1), Argument::U64(count as u64)],
        };
        let address = |place: Address| match place.buffer {
            Buffer::Cache(index) => addresses[index as usize],
            _ => 0,
        };
        // SAFETY: the kernels take two addresses of so many values, and their number.
        unsafe { start_kernel(function, &launch, address, Begin::After, stream) }
    }
}

/// Where the gradients of a table end.
fn end_of(table: &[Parameter]) -> usize {
    let ends = table.iter().filter_map(|p| Some(p.gradient_offset? + p.shape.elements()));
    ends.max().unwrap_or(0)
}

/// The part of a bucket that the last one has at most: nothing is left to compute while it travels.
const LAST: usize = 8;

/// Cuts the gradients of the trained parameters, whose order is that of their places, into buckets of about so many floats: those of the last
/// ones come first, as the backward pass does, and a small bucket comes last. What lies between two of them is zero, and travels along.
fn buckets(table: &[Parameter], floats: usize) -> (Vec<Range<usize>>, Vec<Option<usize>>) {
    let mut trained: Vec<(usize, Range<usize>)> = table
        .iter()
        .enumerate()
        .filter_map(|(index, parameter)| {
            let start = parameter.gradient_offset?;
            Some((index, start..start + parameter.shape.elements()))
        })
        .collect();
    trained.sort_by_key(|(_, range)| std::cmp::Reverse(range.start));
    let (mut buckets, mut bucket_of) = (Vec::<Range<usize>>::new(), vec![None; table.len()]);
    for (index, range) in trained {
        let is_of_last = |end: usize| end <= floats / LAST;
        match buckets.last_mut() {
            Some(bucket)
                if bucket.end - range.start <= floats.max(1) && is_of_last(bucket.end) == is_of_last(range.end) =>
            {
                bucket.start = range.start;
            }
            _ => buckets.push(range),
        }
        bucket_of[index] = Some(buckets.len() - 1);
    }
    (buckets, bucket_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, Mode};
    use crate::ops::{Group, Optimizer, StepOptions};
    use crate::precision::Precision;
    use crate::{DType, GradientOptions};

    /// The table of a model of some matrices, of which one is not trained.
    fn table() -> Vec<Parameter> {
        let mut graph = Graph::new(Mode::Training, Precision::F32);
        let mut x = graph.input("x", [4, 8], DType::F32).unwrap();
        for (index, rows) in [8usize, 3, 8, 5].into_iter().enumerate() {
            let weight = graph.parameter(&format!("w{index}"), [rows, graph.shape_of(x).axes()[1]]).unwrap();
            x = graph.linear(x, weight, None).unwrap();
        }
        let loss = graph.sum_leading(x, &[][..]).unwrap();
        let options = StepOptions {
            optimizer: Optimizer::adamw(),
            group: &|p| (p.name != "w1").then_some(Group { decay: 0.0, rate_factor: 1.0 }),
            clip: None,
            ema: false,
            gradient: GradientOptions::default(),
        };
        graph.accumulation_step(loss, &options).unwrap();
        graph.parameters().to_vec()
    }

    #[test]
    fn every_gradient_is_in_one_bucket_and_the_last_ones_come_first() {
        let table = table();
        let all = end_of(&table);
        for floats in [0, 1, 40, 70, 1000] {
            let (buckets, bucket_of) = buckets(&table, floats);
            assert_eq!(bucket_of[1], None, "it is not trained");
            for (parameter, bucket) in table.iter().zip(&bucket_of) {
                let Some(start) = parameter.gradient_offset else { continue };
                let range = &buckets[bucket.expect("trained")];
                assert!(range.start <= start && start + parameter.shape.elements() <= range.end, "{floats}");
            }
            assert!(buckets.windows(2).all(|pair| pair[1].end <= pair[0].start), "{floats}: {buckets:?}");
            assert_eq!((buckets[0].end, buckets[buckets.len() - 1].start), (all, 0));
            let largest = table.iter().map(|p| p.shape.elements()).max().unwrap();
            assert!(buckets.iter().all(|range| range.len() <= floats.max(largest)), "{floats}: {buckets:?}");
        }
        assert_eq!(buckets(&table, 1).0.len(), 3);
        // The last is small, so that little travels when nothing is left to compute.
        let of = |floats: usize| buckets(&table, floats).0.iter().map(ExactSizeIterator::len).collect::<Vec<_>>();
        assert_eq!((of(10 * all).len(), of(8 * 64)[1..].to_vec()), (1, vec![64]));
    }
}
