//! Caches in a GPU's memory: copies between slots and from results of runs, all caches by one kernel.

use std::sync::Arc;

use cudarc::driver::result as driver;
use half::bf16;

use super::compile::Kernels;
use super::device::{Device, failed};
use super::executor::Executor;
use super::launch::{Argument, Launch, c_type, source, vector};
use super::memory::{DeviceBuffer, HostBuffer};
use super::start::{Begin, start_kernel};
use super::stream::{Event, Stream};
use crate::cache::{Axes, ResultCopy, SlotCopy};
use crate::error::{Error, Result};
use crate::graph::Value;
use crate::types::{DType, Type};

const COPY_SLOTS: &str = include_str!("kernels/copy_slots.cu");
const COPY_RESULTS: &str = include_str!("kernels/copy_results.cu");
/// Shared memory that copies between slots use if they can do with it.
const USUAL_SHARED_BYTES: usize = 48 << 10;
/// The most that a launch can have in its second and third dimension.
const MOST_BLOCKS: usize = 65_535;

/// The memory of caches, in their order.
pub(crate) struct CacheMemory {
    /// What was started last with them, a run or a copy: whatever comes next waits for it. First, because it must not outlive the device,
    /// which the others may be the last to hold.
    last_use: Option<Arc<Event>>,
    /// The last copy. Its tables may be overwritten behind it.
    copied: Arc<Event>,
    buffers: Vec<DeviceBuffer>,
    /// What kernels are told: addresses, and which rows go where.
    tables: DeviceBuffer,
    host_tables: HostBuffer,
    stream: Stream,
    kernels: Kernels,
    device: Arc<Device>,
}

impl CacheMemory {
    /// Kernels load so many bytes at once: slots that a run begins with must start at a multiple of it.
    pub const ALIGNMENT: usize = 16;

    /// Zeros for caches of these types.
    pub fn new(types: &[&Type], device: &Arc<Device>) -> Result<CacheMemory> {
        device.bind()?;
        let buffers = types.iter().map(|value| DeviceBuffer::zeroed(device, value.bytes()));
        Ok(CacheMemory {
            last_use: None,
            copied: Arc::new(Event::new()?),
            buffers: buffers.collect::<Result<_>>()?,
            tables: DeviceBuffer::new(device, 0)?,
            host_tables: HostBuffer::zeroed(device, 0)?,
            stream: Stream::new()?,
            kernels: Kernels::new(Arc::clone(device)),
            device: Arc::clone(device),
        })
    }

    /// Where a cache starts.
    pub fn start(&self, index: usize) -> u64 {
        self.buffers[index].start()
    }

    pub(super) fn is_on(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Has a stream wait for what was started with the caches before.
    pub(super) fn wait_on(&self, stream: &Stream) -> Result<()> {
        self.last_use.as_ref().map_or(Ok(()), |event| stream.wait_for(event))
    }

    /// Notes what was started with them.
    pub(super) fn is_used_until(&mut self, event: &Arc<Event>) {
        self.last_use = Some(Arc::clone(event));
    }

    /// Copies rows between slots, of caches of one type at once.
    pub fn copy_slots(&mut self, caches: &[(usize, Axes)], copies: &[SlotCopy]) -> Result<()> {
        self.device.bind()?;
        let copies: Vec<[i32; 4]> =
            copies.iter().map(|copy| [copy.to as i32, copy.from as i32, copy.rows as i32, 0]).collect();
        let mut left = caches.to_vec();
        while let Some(&(_, axes)) = left.first() {
            let is_alike = |other: &Axes| other.row_bytes() == axes.row_bytes() && other.capacity == axes.capacity;
            let (alike, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, other)| is_alike(other));
            left = others;
            for some in alike.chunks(MOST_BLOCKS) {
                let addresses: Vec<u64> = some.iter().map(|&(index, _)| self.start(index)).collect();
                self.copy_alike(&addresses, axes, &copies)?;
            }
        }
        Ok(())
    }

    fn copy_alike(&mut self, addresses: &[u64], axes: Axes, copies: &[[i32; 4]]) -> Result<()> {
        self.wait_on(&self.stream)?;
        let [first, second] = send_tables(self, None, addresses, copies)?;
        let launch = slots_launch(axes, copies, addresses.len(), self.device.gpu().shared_bytes, [first, second])?;
        let function = self.kernels.function(&launch.source, launch.entry, launch.shared_bytes)?;
        // SAFETY: slots and rows were checked, and the tables were sent before on the same stream.
        unsafe { start_kernel(function, &launch, |_| 0, Begin::After, &self.stream)? };
        self.copied.record(&self.stream)?;
        self.last_use = Some(Arc::clone(&self.copied));
        Ok(())
    }

    /// Moves rows of a slot to its front, in pieces that do not overlap with where they go.
    pub fn drop_rows(&mut self, caches: &[(usize, Axes)], slot: usize, by: usize, rows: usize) -> Result<()> {
        self.device.bind()?;
        self.wait_on(&self.stream)?;
        for &(index, axes) in caches {
            let start = self.start(index) + (slot * axes.slot_bytes()) as u64;
            for first in (0..rows).step_by(by.max(1)) {
                let at = |row: usize| start + (row * axes.row_bytes()) as u64;
                let bytes = by.min(rows - first) * axes.row_bytes();
                // SAFETY: rows of the slot, which were checked; whatever uses the cache next waits for this stream.
                unsafe { driver::memcpy_dtod_async(at(first), at(first + by), bytes, self.stream.handle()) }
                    .map_err(|error| failed("moving rows of a cache", error))?;
            }
        }
        self.copied.record(&self.stream)?;
        self.last_use = Some(Arc::clone(&self.copied));
        Ok(())
    }

    /// Copies rows of results into slots, on the executor's stream: its next run comes behind.
    pub fn copy_results(
        &mut self,
        executor: &mut Executor,
        pairs: &[(Value, usize, Axes)],
        copies: &[ResultCopy],
    ) -> Result<()> {
        if !self.is_on(executor.device()) {
            return Err(Error::Machine("these caches are on another GPU than what has run".to_string()));
        }
        self.device.bind()?;
        let copies: Vec<[i32; 4]> =
            copies.iter().map(|copy| [copy.sample as i32, copy.slot as i32, copy.rows as i32, 0]).collect();
        let mut left = Vec::new();
        for &(value, index, axes) in pairs {
            let (from, result) = executor.result_address(value)?;
            left.push((Rows::of(result, axes), [from, self.start(index)]));
        }
        while let Some(&(rows, _)) = left.first() {
            let (alike, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|(other, _)| *other == rows);
            left = others;
            let addresses: Vec<u64> = alike.iter().flat_map(|(_, pair)| *pair).collect();
            for addresses in addresses.chunks(2 * MOST_BLOCKS) {
                for copies in copies.chunks(MOST_BLOCKS) {
                    self.copy_rows(executor.stream(), rows, addresses, copies)?;
                }
            }
        }
        Ok(())
    }

    fn copy_rows(&mut self, stream: &Stream, rows: Rows, addresses: &[u64], copies: &[[i32; 4]]) -> Result<()> {
        self.wait_on(stream)?;
        let tables = send_tables(self, Some(stream), addresses, copies)?;
        let launch = results_launch(rows, copies, addresses.len() / 2, tables);
        let function = self.kernels.function(&launch.source, launch.entry, launch.shared_bytes)?;
        // SAFETY: samples, slots and rows were checked, and the tables were sent before on the same stream.
        unsafe { start_kernel(function, &launch, |_| 0, Begin::After, stream)? };
        self.copied.record(stream)?;
        self.last_use = Some(Arc::clone(&self.copied));
        Ok(())
    }

    /// Sets caches to zero.
    pub fn zero(&mut self, indices: &[usize]) -> Result<()> {
        self.device.bind()?;
        self.wait_on(&self.stream)?;
        for &index in indices {
            let buffer = &self.buffers[index];
            // SAFETY: the buffer has so many bytes.
            unsafe { driver::memset_d8_async(buffer.start(), 0, buffer.bytes(), self.stream.handle()) }
                .map_err(|error| failed("clearing a cache", error))?;
        }
        self.copied.record(&self.stream)?;
        self.last_use = Some(Arc::clone(&self.copied));
        Ok(())
    }

    /// All of a cache as f32.
    pub fn read(&self, index: usize, axes: Axes) -> Result<Vec<f32>> {
        self.device.wait()?;
        let count = axes.slots * axes.capacity * axes.dim;
        match axes.dtype {
            DType::Bf16 => {
                let mut values = vec![bf16::ZERO; count];
                self.buffers[index].read(0, &mut values)?;
                Ok(values.iter().map(|value| value.to_f32()).collect())
            }
            _ => {
                let mut values = vec![0.0f32; count];
                self.buffers[index].read(0, &mut values)?;
                Ok(values)
            }
        }
    }

    /// Puts values at a byte of a cache.
    pub fn write(&mut self, index: usize, axes: Axes, byte: usize, values: &[f32]) -> Result<()> {
        self.device.wait()?;
        match axes.dtype {
            DType::Bf16 => {
                let values: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
                self.buffers[index].write(byte, &values)
            }
            _ => self.buffers[index].write(byte, values),
        }
    }
}

impl Drop for CacheMemory {
    fn drop(&mut self) {
        // A run or a copy may still work on them.
        let _ = self.device.wait();
    }
}

/// Sends addresses and copies to the device, on a stream or on the caches' own; gives where both lie.
fn send_tables(
    memory: &mut CacheMemory,
    stream: Option<&Stream>,
    addresses: &[u64],
    copies: &[[i32; 4]],
) -> Result<[Argument; 2]> {
    // What is there may still be read by the copy before.
    memory.copied.wait()?;
    let second = size_of_val(addresses).next_multiple_of(16);
    let bytes = second + size_of_val(copies);
    if memory.tables.bytes() < bytes {
        memory.tables = DeviceBuffer::new(&memory.device, bytes.next_power_of_two())?;
        memory.host_tables = HostBuffer::zeroed(&memory.device, bytes.next_power_of_two())?;
    }
    let host = memory.host_tables.bytes_mut();
    host[..size_of_val(addresses)].copy_from_slice(bytemuck::cast_slice(addresses));
    host[second..bytes].copy_from_slice(bytemuck::cast_slice(copies));
    let start = memory.tables.start();
    // SAFETY: the host's memory is written again only behind `copied`, and both have so many bytes.
    unsafe { memory.host_tables.send(0, bytes, start, stream.unwrap_or(&memory.stream))? };
    Ok([Argument::U64(start), Argument::U64(start + second as u64)])
}

/// The launch that copies rows between slots of so many caches.
fn slots_launch(
    axes: Axes,
    copies: &[[i32; 4]],
    caches: usize,
    shared_bytes: usize,
    tables: [Argument; 2],
) -> Result<Launch> {
    let units = [("uint4", 16), ("uint32", 4), ("uint16", 2)];
    let suits = |bytes: usize| axes.row_bytes().is_multiple_of(bytes) && copies.len() * bytes <= shared_bytes;
    let Some(&(unit, bytes)) = units.iter().find(|(_, bytes)| suits(*bytes)) else {
        let message = format!("{} slots are more than this GPU can reorder at once; take fewer", copies.len());
        return Err(Error::Machine(message));
    };
    let row_units = axes.row_bytes() / bytes;
    // All columns at once, or as many as the usual memory holds of all copies.
    let chunk = (USUAL_SHARED_BYTES / (copies.len() * bytes)).clamp(1, row_units);
    let chunk = chunk.max(row_units.div_ceil(MOST_BLOCKS));
    let rows = copies.iter().map(|copy| copy[2] as u32).max().unwrap_or(0);
    let number = |number: usize| Argument::U32(number as u32);
    let [addresses, list] = tables;
    Ok(Launch {
        source: source(&[("UNIT", unit.to_string())], "", COPY_SLOTS),
        entry: "copy_slots",
        grid: [rows, row_units.div_ceil(chunk) as u32, caches as u32],
        block: 256,
        shared_bytes: (copies.len() * chunk * bytes) as u32,
        arguments: vec![addresses, list, number(copies.len()), number(row_units), number(axes.capacity), number(chunk)],
    })
}

/// What copies from results into caches have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rows {
    from: DType,
    to: DType,
    columns: usize,
    /// Rows of a sample, and of a slot.
    length: usize,
    capacity: usize,
}

impl Rows {
    fn of(result: &Type, cache: Axes) -> Rows {
        let length = result.shape.axes()[1];
        Rows { from: result.dtype, to: cache.dtype, columns: cache.dim, length, capacity: cache.capacity }
    }
}

/// The launch that copies rows of so many results into as many caches.
fn results_launch(rows: Rows, copies: &[[i32; 4]], pairs: usize, tables: [Argument; 2]) -> Launch {
    let constants =
        [("FROM", c_type(rows.from)), ("TO", c_type(rows.to)), ("VECTOR", vector(rows.columns).to_string())];
    let most_rows = copies.iter().map(|copy| copy[2] as u32).max().unwrap_or(0).max(1);
    let [addresses, list] = tables;
    let number = |number: usize| Argument::U32(number as u32);
    Launch {
        source: source(&constants, "", COPY_RESULTS),
        entry: "copy_results",
        grid: [most_rows, copies.len() as u32, pairs as u32],
        block: 128,
        shared_bytes: 0,
        arguments: vec![addresses, list, number(rows.columns), number(rows.length), number(rows.capacity)],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cuda::compile::testing::{ARCHITECTURES, compile_all};

    const TABLES: [Argument; 2] = [Argument::U64(0), Argument::U64(0)];

    #[test]
    fn copies_compile_for_every_format() {
        let mut texts = HashSet::new();
        for dtype in [DType::F32, DType::Bf16] {
            for dim in [512, 6, 3] {
                let axes = Axes { slots: 4, capacity: 8, dim, dtype };
                let launch = slots_launch(axes, &[[0, 1, 2, 0]], 3, 48 << 10, TABLES).unwrap();
                texts.insert(launch.source);
                for from in [DType::F32, DType::Bf16] {
                    let rows = Rows { from, to: dtype, columns: dim, length: 5, capacity: 8 };
                    texts.insert(results_launch(rows, &[[0, 1, 2, 0]], 3, TABLES).source);
                }
            }
        }
        compile_all(&texts, &ARCHITECTURES);
    }

    #[test]
    fn every_row_and_column_has_a_block_and_shared_memory_suffices() {
        for (slots, dim, dtype) in
            [(2, 512, DType::F32), (512, 512, DType::F32), (1024, 64, DType::Bf16), (3, 5, DType::Bf16)]
        {
            let axes = Axes { slots, capacity: 100, dim, dtype };
            let copies: Vec<[i32; 4]> = (0..slots as i32).map(|slot| [slot, 0, slot % 7, 0]).collect();
            let Launch { grid, shared_bytes, arguments, .. } =
                slots_launch(axes, &copies, 12, 227 << 10, TABLES).unwrap();
            let [.., Argument::U32(row_units), _, Argument::U32(chunk)] = arguments[..] else {
                panic!("{arguments:?}")
            };
            assert_eq!(grid[0], copies.iter().map(|copy| copy[2] as u32).max().unwrap());
            assert!(grid[1] * chunk >= row_units && (grid[1] - 1) * chunk < row_units && grid[2] == 12);
            assert!(shared_bytes as usize <= USUAL_SHARED_BYTES);
        }
        let axes = Axes { slots: 300_000, capacity: 1, dim: 1, dtype: DType::F32 };
        let many = vec![[0, 1, 1, 0]; 300_000];
        assert!(slots_launch(axes, &many, 1, 227 << 10, TABLES).is_err());
    }
}
