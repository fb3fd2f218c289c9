//! Caches: memory on a device that outlives runs, executors and plans.
//!
//! A graph declares a cache by [`Graph::cache`] and writes rows into it by [`Graph::write_rows`]; a [`Caches`] owns the memory and is
//! lent to each run (`infer_with`, `run_with`). Plans that declare caches of the same names share them: prefill and single-token
//! steps, or steps of several batch sizes. Between runs slots are copied, reordered and zeroed where they are, and take rows from the
//! results of other plans, such as an encoder's keys and values.

use std::collections::HashMap;

use crate::cpu;
use crate::cuda;
use crate::error::{Error, Result};
use crate::executor::{Device, Executor};
use crate::graph::{Graph, Value};
use crate::plan::Plan;
use crate::types::{DType, Type};

/// Caches on a device, by name, each `[slots, capacity, dim]`.
pub struct Caches {
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    memory: Memory,
}

struct Entry {
    name: String,
    value: Type,
}

enum Memory {
    Cpu(cpu::CacheMemory),
    Cuda(cuda::CacheMemory),
}

/// The slots of caches that a run works on: sample `i` of the run has slot `first + i`.
pub struct CacheSlots<'c> {
    caches: &'c mut Caches,
    first: usize,
}

impl<'c> From<&'c mut Caches> for CacheSlots<'c> {
    fn from(caches: &'c mut Caches) -> Self {
        CacheSlots { caches, first: 0 }
    }
}

/// Rows that one slot takes from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCopy {
    /// The slot that is overwritten.
    pub to: usize,
    /// The slot whose rows it gets.
    pub from: usize,
    /// How many rows, from the first on. Rows behind them stay as they are.
    pub rows: usize,
}

/// Rows that a slot takes from a result `[samples, length, dim]` of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultCopy {
    /// The sample whose rows are taken.
    pub sample: usize,
    /// The slot that gets them.
    pub slot: usize,
    /// How many rows, from the first on.
    pub rows: usize,
}

/// The axes of a cache.
#[derive(Clone, Copy)]
pub(crate) struct Axes {
    pub slots: usize,
    pub capacity: usize,
    pub dim: usize,
    pub dtype: DType,
}

impl Axes {
    fn of(value: &Type) -> Axes {
        let axes = value.shape.axes();
        Axes { slots: axes[0], capacity: axes[1], dim: axes[2], dtype: value.dtype }
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.dim * self.dtype.bytes()
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.capacity * self.row_bytes()
    }
}

impl Caches {
    /// Zeroed memory on a device for all caches that graphs declare. What several declare is one cache with as many slots as the one
    /// that wants most.
    pub fn new(graphs: &[&Graph], device: &Device) -> Result<Caches> {
        let (entries, by_name) = declared(graphs)?;
        let types: Vec<&Type> = entries.iter().map(|entry| &entry.value).collect();
        let memory = match device {
            Device::Cpu { .. } => Memory::Cpu(cpu::CacheMemory::new(&types)?),
            Device::Cuda(device) => Memory::Cuda(cuda::CacheMemory::new(&types, device)?),
        };
        Ok(Caches { entries, by_name, memory })
    }

    /// Bytes that [`Caches::new`] would take, without taking them.
    pub fn bytes_needed(graphs: &[&Graph]) -> Result<usize> {
        Ok(declared(graphs)?.0.iter().map(|entry| entry.value.bytes()).sum())
    }

    /// Bytes of all caches.
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.value.bytes()).sum()
    }

    /// The names of all caches, in the order in which they were declared.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// A cache's type: `[slots, capacity, dim]` and its format.
    pub fn type_of(&self, name: &str) -> Result<&Type> {
        Ok(&self.entries[self.index(name)?].value)
    }

    /// The slots from one on, for a run: a plan with one slot can so work on any of them.
    pub fn slots_from(&mut self, first: usize) -> CacheSlots<'_> {
        CacheSlots { caches: self, first }
    }

    /// Copies rows between slots of each of these caches. Every copy reads its source as it was before the call, so that slots can
    /// be exchanged. No slot may be the target of two copies.
    pub fn copy_slots(&mut self, names: &[impl AsRef<str>], copies: &[SlotCopy]) -> Result<()> {
        let indices = self.indices(names)?;
        for &index in &indices {
            let Entry { name, value } = &self.entries[index];
            let Axes { slots, capacity, .. } = Axes::of(value);
            let mut targets = vec![false; slots];
            for copy in copies {
                check_rows(name, "slot", copy.from, slots)?;
                check_rows(name, "slot", copy.to, slots)?;
                check_rows(name, "row", copy.rows, capacity + 1)?;
                if std::mem::replace(&mut targets[copy.to], true) {
                    let got = format!("two copies into slot {}", copy.to);
                    return Err(refused(name, "one copy into each slot", got));
                }
            }
        }
        let moved: Vec<SlotCopy> =
            copies.iter().copied().filter(|copy| copy.to != copy.from && copy.rows > 0).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let axes = |index: usize| Axes::of(&self.entries[index].value);
        let all: Vec<(usize, Axes)> = indices.iter().map(|&index| (index, axes(index))).collect();
        match &mut self.memory {
            Memory::Cpu(memory) => memory.copy_slots(&all, &moved),
            Memory::Cuda(memory) => memory.copy_slots(&all, &moved),
        }
    }

    /// Lets slot `i` of each of these caches go on from what slot `parents[i]` had before the call, its first `rows` rows: as beam
    /// search continues with the parents of the hypotheses that live on. Slots behind the list stay as they are.
    pub fn reorder(&mut self, names: &[impl AsRef<str>], parents: &[usize], rows: usize) -> Result<()> {
        let copies = parents.iter().enumerate().map(|(to, &from)| SlotCopy { to, from, rows });
        self.copy_slots(names, &copies.collect::<Vec<_>>())
    }

    /// Copies rows from results of an executor's last run into slots: each of `pairs` is a result `[samples, length, dim]` and the
    /// cache that takes its rows. They are converted where the formats differ.
    pub fn copy_results(
        &mut self,
        executor: &mut Executor,
        pairs: &[(Value, impl AsRef<str>)],
        copies: &[ResultCopy],
    ) -> Result<()> {
        let mut all = Vec::new();
        for (value, name) in pairs {
            let index = self.index(name.as_ref())?;
            let Entry { name, value: cache } = &self.entries[index];
            let axes = Axes::of(cache);
            let planned = executor.plan().result(*value)?;
            let result = executor.plan().type_of(planned).clone();
            let (samples, length) = match result.shape.axes() {
                &[samples, length, dim] if dim == axes.dim && result.dtype.is_float() => (samples, length),
                _ => return Err(refused(name, format!("rows of {}", axes.dim), format!("a result of {result}"))),
            };
            for copy in copies {
                check_rows(name, "sample", copy.sample, samples)?;
                check_rows(name, "slot", copy.slot, axes.slots)?;
                check_rows(name, "row", copy.rows, length.min(axes.capacity) + 1)?;
            }
            all.push((*value, index, axes));
        }
        match (&mut self.memory, executor) {
            (Memory::Cpu(memory), Executor::Cpu(executor)) => memory.copy_results(executor, &all, copies),
            (Memory::Cuda(memory), Executor::Cuda { executors, turn }) => {
                memory.copy_results(&mut executors[*turn], &all, copies)
            }
            _ => Err(other_device()),
        }
    }

    /// Drops the first rows of a slot of each of these caches: the `rows` behind the first `by` move to the front. A sequence whose
    /// queries do not look farther back so goes on in a cache that is smaller than it.
    pub fn drop_rows(&mut self, names: &[impl AsRef<str>], slot: usize, by: usize, rows: usize) -> Result<()> {
        let mut all = Vec::new();
        for index in self.indices(names)? {
            let Entry { name, value } = &self.entries[index];
            let axes = Axes::of(value);
            check_rows(name, "slot", slot, axes.slots)?;
            check_rows(name, "row", by.saturating_add(rows), axes.capacity + 1)?;
            all.push((index, axes));
        }
        if by == 0 || rows == 0 {
            return Ok(());
        }
        match &mut self.memory {
            Memory::Cpu(memory) => {
                memory.drop_rows(&all, slot, by, rows);
                Ok(())
            }
            Memory::Cuda(memory) => memory.drop_rows(&all, slot, by, rows),
        }
    }

    /// Whether memory of caches on a device is taken as rows are written, and can be given back. On a GPU all is taken at once and kept.
    pub fn give_memory_back(device: &Device) -> bool {
        matches!(device, Device::Cpu { .. }) && cfg!(all(feature = "mmap", target_os = "linux"))
    }

    /// Gives the memory of a slot's rows from one on back to the system, in each of these caches; it is taken again as they are
    /// written. What they held is lost. Nothing happens where [`Caches::give_memory_back`] says that it cannot be.
    pub fn give_back(&mut self, names: &[impl AsRef<str>], slot: usize, row: usize) -> Result<()> {
        let mut all = Vec::new();
        for index in self.indices(names)? {
            let Entry { name, value } = &self.entries[index];
            let axes = Axes::of(value);
            check_rows(name, "slot", slot, axes.slots)?;
            check_rows(name, "row", row, axes.capacity + 1)?;
            all.push((index, axes));
        }
        match &mut self.memory {
            Memory::Cpu(memory) => memory.give_back(&all, slot, row),
            Memory::Cuda(_) => {}
        }
        Ok(())
    }

    /// Sets all of these caches to zero.
    pub fn zero(&mut self, names: &[impl AsRef<str>]) -> Result<()> {
        let indices = self.indices(names)?;
        match &mut self.memory {
            Memory::Cpu(memory) => {
                memory.zero(&indices);
                Ok(())
            }
            Memory::Cuda(memory) => memory.zero(&indices),
        }
    }

    /// All of a cache as f32, once nothing writes it any more.
    pub fn read(&self, name: &str) -> Result<Vec<f32>> {
        let index = self.index(name)?;
        let axes = Axes::of(&self.entries[index].value);
        match &self.memory {
            Memory::Cpu(memory) => Ok(memory.read(index, axes)),
            Memory::Cuda(memory) => memory.read(index, axes),
        }
    }

    /// Puts rows into a slot, from a row on, from the host.
    pub fn write(&mut self, name: &str, slot: usize, row: usize, values: &[f32]) -> Result<()> {
        let index = self.index(name)?;
        let axes = Axes::of(&self.entries[index].value);
        check_rows(name, "slot", slot, axes.slots)?;
        if !values.len().is_multiple_of(axes.dim) || row + values.len() / axes.dim > axes.capacity {
            let expected = format!("{} rows of {}", axes.capacity, axes.dim);
            return Err(refused(name, expected, format!("{} numbers from row {row} on", values.len())));
        }
        let byte = slot * axes.slot_bytes() + row * axes.row_bytes();
        match &mut self.memory {
            Memory::Cpu(memory) => {
                memory.write(index, axes, byte, values);
                Ok(())
            }
            Memory::Cuda(memory) => memory.write(index, axes, byte, values),
        }
    }

    fn index(&self, name: &str) -> Result<usize> {
        self.by_name.get(name).copied().ok_or_else(|| {
            let known = self.entries.iter().map(|entry| entry.name.clone()).collect();
            Error::Unknown { what: "cache", name: name.to_string(), known }
        })
    }

    fn indices(&self, names: &[impl AsRef<str>]) -> Result<Vec<usize>> {
        names.iter().map(|name| self.index(name.as_ref())).collect()
    }
}

impl CacheSlots<'_> {
    /// Bytes before the first slot of a cache.
    fn offset(&self, index: usize) -> usize {
        self.first * Axes::of(&self.caches.entries[index].value).slot_bytes()
    }

    /// Where the slots of a cache begin, for a run on the CPU.
    pub(crate) fn cpu_start(&mut self, index: usize) -> Result<cpu::CacheStart> {
        let offset = self.offset(index);
        match &mut self.caches.memory {
            Memory::Cpu(memory) => Ok(memory.start(index, offset)),
            Memory::Cuda(_) => Err(other_device()),
        }
    }

    /// The caches' memory on a GPU.
    pub(crate) fn cuda_memory(&mut self) -> Result<&mut cuda::CacheMemory> {
        match &mut self.caches.memory {
            Memory::Cuda(memory) => Ok(memory),
            Memory::Cpu(_) => Err(other_device()),
        }
    }

    /// Where the slots of a cache begin, for a run on a GPU.
    pub(crate) fn cuda_start(&mut self, index: usize) -> Result<u64> {
        let offset = self.offset(index);
        if !offset.is_multiple_of(cuda::CacheMemory::ALIGNMENT) {
            let Entry { name, value } = &self.caches.entries[index];
            let got = format!("a run from slot {} on", self.first);
            return Err(refused(name, format!("{value}, whose slots do not begin at multiples of 16 bytes"), got));
        }
        Ok(self.cuda_memory()?.start(index) + offset as u64)
    }
}

/// Looks up what a plan works on, cache by cache in the order of [`Plan::caches`], and hands each to `take`. An error where a cache
/// was not lent, or is another than the plan was made for.
pub(crate) fn lend<'c>(
    plan: &Plan,
    slots: &mut Option<CacheSlots<'c>>,
    mut take: impl FnMut(&mut CacheSlots<'c>, usize) -> Result<()>,
) -> Result<()> {
    for (name, wanted) in plan.caches() {
        let Some(slots) = slots else {
            let message =
                format!("this plan works on caches, such as `{name}`: lend them by `infer_with` or `run_with`");
            return Err(Error::Machine(message));
        };
        let index = slots.caches.index(name)?;
        let there = &slots.caches.entries[index].value;
        let (wanted_axes, axes) = (Axes::of(wanted), Axes::of(there));
        let same = (axes.capacity, axes.dim, axes.dtype) == (wanted_axes.capacity, wanted_axes.dim, wanted_axes.dtype);
        if !same || slots.first.checked_add(wanted_axes.slots).is_none_or(|end| end > axes.slots) {
            let got = format!("{wanted} from slot {} on", slots.first);
            return Err(refused(name, there.to_string(), got));
        }
        take(slots, index)?;
    }
    Ok(())
}

/// The caches that graphs declare, each once, and their places by name.
fn declared(graphs: &[&Graph]) -> Result<(Vec<Entry>, HashMap<String, usize>)> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    for graph in graphs {
        for (name, value) in graph.caches() {
            let value = graph.type_of(value);
            match by_name.get(name) {
                None => {
                    by_name.insert(name.to_string(), entries.len());
                    entries.push(Entry { name: name.to_string(), value: value.clone() });
                }
                Some(&index) => {
                    let there = &mut entries[index].value;
                    if there.shape.axes()[1..] != value.shape.axes()[1..] || there.dtype != value.dtype {
                        return Err(refused(name, there.to_string(), format!("{value}, by another graph,")));
                    }
                    if value.shape.axes()[0] > there.shape.axes()[0] {
                        *there = value.clone();
                    }
                }
            }
        }
    }
    Ok((entries, by_name))
}

fn check_rows(name: &str, what: &str, number: usize, limit: usize) -> Result<()> {
    match number < limit {
        true => Ok(()),
        false => Err(refused(name, format!("{what}s 0 to {}", limit - 1), format!("{what} {number}"))),
    }
}

fn refused(name: &str, expected: impl Into<String>, got: String) -> Error {
    Error::Data { what: "cache", name: name.to_string(), expected: expected.into(), got }
}

fn other_device() -> Error {
    Error::Machine("these caches are on another device than what runs: make them for its device".to_string())
}
