//! How a quantised matrix `[outputs, inputs]` is kept for its kernels: as many bits as in the file, in another order.
//!
//! Sixteen outputs are a panel. Of each panel come first the integers, 32 inputs after another (a slice); then the scales.
//! Within a slice, sixteen outputs with four neighbouring inputs each are one vector of 64 bytes, what an instruction for dot
//! products of bytes takes:
//!
//! ```text
//! bits   a slice
//! 4      4 vectors: vector v has inputs 4 v .. in the lower halves of its bytes, inputs 16 + 4 v .. in the upper ones
//! 5      the same, and 8 masks of 64 bits: the fifth bits
//! 6      the same as 4, and 2 vectors: vector v has the upper two bits of inputs 16 v .., two bits for every four inputs
//! 8      8 vectors: vector v has inputs 4 v ..
//! ```
//!
//! Scales of a block, each of all sixteen outputs: f16 scale; f16 offset if there are offsets; of blocks of several groups for each
//! group a byte, its factor, and a byte, its shift, if there are offsets.

use crate::blocks::{BlockFormat, Unpacked};
use crate::cpu::memory::Shared;
use crate::cpu::team::Team;
use crate::weights::WeightView;

/// Outputs of a panel.
pub(super) const PANEL: usize = 16;
/// Inputs of a slice.
pub(super) const SLICE: usize = 32;

/// The order of a matrix in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub format: BlockFormat,
    pub outputs: usize,
    pub inputs: usize,
}

impl Layout {
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    pub fn slices(&self) -> usize {
        self.inputs / SLICE
    }

    fn blocks(&self) -> usize {
        self.inputs / self.format.values()
    }

    /// Slices of a block.
    pub fn block_slices(&self) -> usize {
        self.format.values() / SLICE
    }

    fn bits(&self) -> usize {
        match self.format {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q4K => 4,
            BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q5K => 5,
            BlockFormat::Q6K => 6,
            BlockFormat::Q8_0 => 8,
        }
    }

    /// Bytes of a slice of a panel.
    pub fn slice_bytes(&self) -> usize {
        PANEL * SLICE * self.bits() / 8
    }

    fn has_offsets(&self) -> bool {
        match self.format {
            BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => true,
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 | BlockFormat::Q6K => false,
        }
    }

    /// Groups of a block that have factors of their own.
    fn groups(&self) -> usize {
        match self.format {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q8_0 => 0,
            BlockFormat::Q4K | BlockFormat::Q5K | BlockFormat::Q6K => self.format.values() / self.format.group(),
        }
    }

    /// Bytes of the scales of a block of a panel.
    pub fn scale_bytes(&self) -> usize {
        PANEL * (2 + self.groups()) * (1 + usize::from(self.has_offsets()))
    }

    /// Bytes of a panel's integers, and of all of it; whole cache lines.
    pub fn integer_bytes(&self) -> usize {
        self.slices() * self.slice_bytes()
    }

    pub fn panel_bytes(&self) -> usize {
        (self.integer_bytes() + self.blocks() * self.scale_bytes()).next_multiple_of(64)
    }

    /// Floats of the whole matrix: memory is counted in them.
    pub fn floats(&self) -> usize {
        self.panels() * self.panel_bytes() / 4
    }

    /// Brings a matrix into this order.
    pub fn pack(&self, team: &mut Team, view: &WeightView, to: &mut [f32]) {
        let WeightView::Blocks(format, bytes) = view else {
            unreachable!("the graph says that these weights are stored as blocks")
        };
        assert!(*format == self.format && view.len() == self.outputs * self.inputs);
        let to: &mut [u8] = bytemuck::cast_slice_mut(to);
        let to = Shared::new(&mut to[..self.panels() * self.panel_bytes()]);
        let row_bytes = self.blocks() * self.format.bytes();
        team.run(self.panels(), &|panel, _| {
            // SAFETY: each tile writes its own panel.
            let to = unsafe { to.range(panel * self.panel_bytes()..(panel + 1) * self.panel_bytes()) };
            to.fill(0);
            for lane in 0..PANEL.min(self.outputs - panel * PANEL) {
                let row = &bytes[(panel * PANEL + lane) * row_bytes..][..row_bytes];
                for (block, bytes) in row.chunks_exact(self.format.bytes()).enumerate() {
                    self.pack_block(&self.format.unpack(bytes), block, lane, to);
                }
            }
        });
    }

    /// Puts a block of one output into its panel, which is zero there.
    fn pack_block(&self, unpacked: &Unpacked, block: usize, lane: usize, panel: &mut [u8]) {
        let (integers, scales) = panel.split_at_mut(self.integer_bytes());
        for slice in 0..self.block_slices() {
            let from = &unpacked.integers[slice * SLICE..][..SLICE];
            let to = &mut integers[(block * self.block_slices() + slice) * self.slice_bytes()..][..self.slice_bytes()];
            self.pack_slice(from, lane, to);
        }
        let scales = &mut scales[block * self.scale_bytes()..][..self.scale_bytes()];
        let halves = 2 * PANEL;
        scales[2 * lane..2 * lane + 2].copy_from_slice(&unpacked.scale.to_le_bytes());
        if self.has_offsets() {
            scales[halves + 2 * lane..halves + 2 * lane + 2].copy_from_slice(&unpacked.offset.to_le_bytes());
        }
        let factors = if self.has_offsets() { 2 * halves } else { halves };
        for group in 0..self.groups() {
            scales[factors + group * PANEL + lane] = unpacked.factors[group];
            if self.has_offsets() {
                scales[factors + (self.groups() + group) * PANEL + lane] = unpacked.shifts[group];
            }
        }
    }

    fn pack_slice(&self, from: &[u8], lane: usize, to: &mut [u8]) {
        for (input, &integer) in from.iter().enumerate() {
            let (quad, within) = (input / 4, 4 * lane + input % 4);
            if self.bits() == 8 {
                to[64 * quad + within] = integer;
                continue;
            }
            to[64 * (quad % 4) + within] |= (integer & 15) << (4 * (quad / 4));
            match self.bits() {
                5 => to[256 + 8 * quad + within / 8] |= (integer >> 4) << (within % 8),
                6 => to[256 + 64 * (quad / 4) + within] |= (integer >> 4) << (2 * (quad % 4)),
                _ => {}
            }
        }
    }

    /// The values of one output, as f32: a row of an embedding table.
    pub fn read_row(&self, packed: &[f32], output: usize, to: &mut [f32]) {
        let (panel, lane) = (output / PANEL, output % PANEL);
        let packed: &[u8] = bytemuck::cast_slice(packed);
        let panel = &packed[panel * self.panel_bytes()..][..self.panel_bytes()];
        let (integers, scales) = panel.split_at(self.integer_bytes());
        let (zero, group) = (i32::from(self.format.zero()), self.format.group());
        for (index, to) in to[..self.inputs].chunks_exact_mut(group).enumerate() {
            let (block, within) = (index * group / self.format.values(), index * group % self.format.values() / group);
            let (scale, offset) = self.scale(&scales[block * self.scale_bytes()..], within, lane);
            for (input, to) in to.iter_mut().enumerate() {
                let input = index * group + input;
                let slice = &integers[input / SLICE * self.slice_bytes()..][..self.slice_bytes()];
                *to = scale * (i32::from(self.integer(slice, input % SLICE, lane)) - zero) as f32 + offset;
            }
        }
    }

    fn integer(&self, slice: &[u8], input: usize, lane: usize) -> u8 {
        let (quad, within) = (input / 4, 4 * lane + input % 4);
        if self.bits() == 8 {
            return slice[64 * quad + within];
        }
        let low = slice[64 * (quad % 4) + within] >> (4 * (quad / 4)) & 15;
        match self.bits() {
            5 => low | (slice[256 + 8 * quad + within / 8] >> (within % 8) & 1) << 4,
            6 => low | (slice[256 + 64 * (quad / 4) + within] >> (2 * (quad % 4)) & 3) << 4,
            _ => low,
        }
    }

    /// Scale and offset of a group of a block.
    fn scale(&self, scales: &[u8], group: usize, lane: usize) -> (f32, f32) {
        let half = |at: usize| half::f16::from_le_bytes([scales[at + 2 * lane], scales[at + 2 * lane + 1]]).to_f32();
        let scale = half(0);
        let offset = if self.has_offsets() { half(2 * PANEL) } else { 0.0 };
        let factors = 2 * PANEL * (1 + usize::from(self.has_offsets()));
        match self.format {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q8_0 => {
                (scale, offset)
            }
            BlockFormat::Q4K | BlockFormat::Q5K => {
                let (factor, shift) =
                    (scales[factors + group * PANEL + lane], scales[factors + (8 + group) * PANEL + lane]);
                (scale * f32::from(factor), -(offset * f32::from(shift)))
            }
            BlockFormat::Q6K => (scale * f32::from(scales[factors + group * PANEL + lane] as i8), 0.0),
        }
    }
}
