//! Caches in the processor's memory: copies between slots, and from results of runs.

use half::bf16;

use super::bind::CacheStart;
use super::{Executor, convert};
use crate::buffer::Floats;
use crate::cache::{Axes, ResultCopy, SlotCopy};
use crate::error::Result;
use crate::graph::Value;
use crate::types::{DType, Type};

/// The memory of caches, in their order.
pub(crate) struct CacheMemory {
    buffers: Vec<Floats>,
}

/// Where a move goes or comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Slot(usize),
    /// Memory beside the cache, with room for one slot.
    Aside,
}

/// Rows that are copied when it is their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    from: End,
    to: End,
    rows: usize,
}

impl CacheMemory {
    /// Zeros for caches of these types.
    pub fn new(types: &[&Type]) -> Result<CacheMemory> {
        let buffers = types.iter().map(|value| Floats::zeroed_in_parts(value.bytes().div_ceil(4)));
        Ok(CacheMemory { buffers: buffers.collect::<Result<_>>()? })
    }

    /// Where a run begins to work on a cache: so many bytes behind its start.
    pub fn start(&mut self, index: usize, offset: usize) -> CacheStart {
        CacheStart(self.bytes(index)[offset..].as_mut_ptr())
    }

    fn bytes(&mut self, index: usize) -> &mut [u8] {
        bytemuck::cast_slice_mut(self.buffers[index].as_mut_slice())
    }

    /// Copies rows between slots; every copy reads its source as it was before.
    pub fn copy_slots(&mut self, caches: &[(usize, Axes)], copies: &[SlotCopy]) -> Result<()> {
        let moves = in_order(copies);
        let mut aside = Vec::new();
        for &(index, axes) in caches {
            let slot_start = |slot: usize| slot * axes.slot_bytes();
            let bytes = self.bytes(index);
            for Move { from, to, rows } in &moves {
                let count = rows * axes.row_bytes();
                match (*from, *to) {
                    (End::Slot(from), End::Slot(to)) => {
                        bytes.copy_within(slot_start(from)..slot_start(from) + count, slot_start(to));
                    }
                    (End::Slot(from), End::Aside) => {
                        aside.clear();
                        aside.extend_from_slice(&bytes[slot_start(from)..][..count]);
                    }
                    (End::Aside, End::Slot(to)) => bytes[slot_start(to)..][..count].copy_from_slice(&aside[..count]),
                    (End::Aside, End::Aside) => {}
                }
            }
        }
        Ok(())
    }

    /// Copies rows of results into slots.
    pub fn copy_results(
        &mut self,
        executor: &Executor,
        pairs: &[(Value, usize, Axes)],
        copies: &[ResultCopy],
    ) -> Result<()> {
        for &(value, index, axes) in pairs {
            let (floats, result) = executor.result_memory(value)?;
            let sample_values = result.shape.axes()[1] * axes.dim;
            for ResultCopy { sample, slot, rows } in copies {
                let (first, count) = (sample * sample_values, rows * axes.dim);
                let byte = slot * axes.slot_bytes();
                match result.dtype {
                    DType::Bf16 => {
                        let values = &bytemuck::cast_slice::<f32, bf16>(floats)[first..first + count];
                        self.put_bf16(index, axes, byte, values);
                    }
                    _ => self.write(index, axes, byte, &floats[first..first + count]),
                }
            }
        }
        Ok(())
    }

    /// Moves rows of a slot to its front.
    pub fn drop_rows(&mut self, caches: &[(usize, Axes)], slot: usize, by: usize, rows: usize) {
        for &(index, axes) in caches {
            let start = slot * axes.slot_bytes();
            let from = start + by * axes.row_bytes();
            self.bytes(index).copy_within(from..from + rows * axes.row_bytes(), start);
        }
    }

    /// Gives back the memory of the rows of a slot from one on.
    pub fn give_back(&mut self, caches: &[(usize, Axes)], slot: usize, row: usize) {
        for &(index, axes) in caches {
            let start = slot * axes.slot_bytes();
            self.buffers[index].give_back(start + row * axes.row_bytes()..start + axes.slot_bytes());
        }
    }

    /// Sets caches to zero.
    pub fn zero(&mut self, indices: &[usize]) {
        indices.iter().for_each(|&index| self.buffers[index].as_mut_slice().fill(0.0));
    }

    /// All of a cache as f32.
    pub fn read(&self, index: usize, axes: Axes) -> Vec<f32> {
        let floats = self.buffers[index].as_slice();
        let count = axes.slots * axes.capacity * axes.dim;
        match axes.dtype {
            DType::Bf16 => {
                let mut values = vec![0.0; count];
                convert::widen(&bytemuck::cast_slice(floats)[..count], &mut values);
                values
            }
            _ => floats[..count].to_vec(),
        }
    }

    /// Puts values at a byte of a cache.
    pub fn write(&mut self, index: usize, axes: Axes, byte: usize, values: &[f32]) {
        let floats = self.buffers[index].as_mut_slice();
        match axes.dtype {
            DType::Bf16 => {
                let to = &mut bytemuck::cast_slice_mut::<f32, bf16>(floats)[byte / 2..][..values.len()];
                convert::narrow(values, to);
            }
            _ => floats[byte / 4..][..values.len()].copy_from_slice(values),
        }
    }

    fn put_bf16(&mut self, index: usize, axes: Axes, byte: usize, values: &[bf16]) {
        let floats = self.buffers[index].as_mut_slice();
        match axes.dtype {
            DType::Bf16 => {
                bytemuck::cast_slice_mut::<f32, bf16>(floats)[byte / 2..][..values.len()].copy_from_slice(values);
            }
            _ => convert::widen(values, &mut floats[byte / 4..][..values.len()]),
        }
    }
}

/// Copies in an order in which no source is overwritten before it was read. Where slots are exchanged in a circle, one of them is
/// put aside first.
fn in_order(copies: &[SlotCopy]) -> Vec<Move> {
    let slots = copies.iter().map(|copy| copy.to.max(copy.from) + 1).max().unwrap_or(0);
    let mut order = Order { readers: vec![0; slots], into: vec![None; slots], aside: None, moves: Vec::new() };
    for copy in copies {
        order.readers[copy.from] += 1;
        order.into[copy.to] = Some(*copy);
    }
    for slot in 0..slots {
        order.follow(slot);
    }
    // What is left are circles: each slot in them has one reader.
    for slot in 0..slots {
        if order.into[slot].is_some() {
            order.open_circle(slot);
        }
    }
    order.moves
}

/// Copies that are being put in order.
struct Order {
    /// By slot: copies that still have to read it.
    readers: Vec<usize>,
    /// By slot: the copy that overwrites it.
    into: Vec<Option<SlotCopy>>,
    /// The slot that was put aside.
    aside: Option<usize>,
    moves: Vec<Move>,
}

impl Order {
    /// Overwrites a slot if nobody reads it any more, then the slot that this was the last to read, and so on.
    fn follow(&mut self, mut slot: usize) {
        while let (0, Some(SlotCopy { to, from, rows })) = (self.readers[slot], self.into[slot]) {
            self.into[slot] = None;
            let source = if self.aside == Some(from) { End::Aside } else { End::Slot(from) };
            self.moves.push(Move { from: source, to: End::Slot(to), rows });
            if source == End::Aside {
                return;
            }
            self.readers[from] -= 1;
            slot = from;
        }
    }

    fn open_circle(&mut self, slot: usize) {
        let reader = self.into.iter().flatten().find(|copy| copy.from == slot);
        let rows = reader.map_or(0, |copy| copy.rows);
        self.moves.push(Move { from: End::Slot(slot), to: End::Aside, rows });
        self.aside = Some(slot);
        self.readers[slot] = 0;
        self.follow(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    /// What slots hold after moves, one row each.
    fn after(moves: &[Move], slots: usize) -> Vec<usize> {
        let (mut held, mut aside) = ((0..slots).collect::<Vec<_>>(), usize::MAX);
        for Move { from, to, .. } in moves {
            let value = match from {
                End::Slot(slot) => held[*slot],
                End::Aside => aside,
            };
            match to {
                End::Slot(slot) => held[*slot] = value,
                End::Aside => aside = value,
            }
        }
        held
    }

    #[test]
    fn every_copy_reads_what_was_there_before() {
        for seed in 0..2000 {
            let words = |place: u64| Stream::new(seed, 0, place).four(0);
            let slots = 1 + (words(0)[0] % 9) as usize;
            let parents: Vec<usize> = (0..slots).map(|slot| (words(slot as u64 + 1)[1] as usize) % slots).collect();
            let copies = parents.iter().enumerate().filter(|(to, from)| to != *from);
            let copies: Vec<SlotCopy> = copies.map(|(to, &from)| SlotCopy { to, from, rows: 1 }).collect();
            let moves = in_order(&copies);
            assert_eq!(after(&moves, slots), parents, "{moves:?}");
            let aside = moves.iter().filter(|moved| moved.to == End::Aside).count();
            assert_eq!(moves.len(), copies.len() + aside);
        }
    }

    #[test]
    fn only_circles_put_a_slot_aside() {
        let copies = |list: &[(usize, usize)]| -> Vec<SlotCopy> {
            list.iter().map(|&(to, from)| SlotCopy { to, from, rows: 3 }).collect()
        };
        let aside = |list| in_order(&copies(list)).iter().filter(|moved| moved.to == End::Aside).count();
        assert_eq!(aside(&[(0, 1), (1, 2), (3, 1)]), 0);
        assert_eq!(aside(&[(0, 1), (1, 0)]), 1);
        assert_eq!(aside(&[(0, 1), (1, 0), (2, 3), (3, 2), (4, 0)]), 2);
    }
}
