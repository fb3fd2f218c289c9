//! The memory behind a cache's slots, counted in blocks of tokens.
//!
//! Every slot has room for a whole context in address space, so that kernels find its rows one behind the other; but memory is taken for
//! the rows that are written and given back when they are not needed, which the processor's page tables do (as vAttention has it, Prabhu
//! et al. 2025, in place of tables of blocks that kernels look things up in). What is counted here is how much of it all slots together
//! may have.

/// Tokens of a block: enough that blocks are few, and few enough that a text's last one is no waste. Chunks of prompts are padded by less.
pub(super) const BLOCK: usize = 32;

/// How many blocks each slot has.
#[derive(Debug)]
pub(super) struct Blocks {
    total: usize,
    held: Vec<usize>,
}

impl Blocks {
    /// So many for so many slots.
    pub fn new(total: usize, slots: usize) -> Blocks {
        Blocks { total, held: vec![0; slots] }
    }

    /// Blocks that rows of a cache lie in.
    pub fn needed(rows: usize) -> usize {
        rows.div_ceil(BLOCK)
    }

    /// All that there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Those of a slot.
    pub fn held(&self, slot: usize) -> usize {
        self.held[slot]
    }

    /// Those of all slots.
    pub fn taken(&self) -> usize {
        self.held.iter().sum()
    }

    /// A slot has so many from now on.
    pub fn set(&mut self, slot: usize, count: usize) {
        self.held[slot] = count;
    }
}
