//! Weights quantised in blocks, as GGUF files store them: some values of a row share a scale (and an offset), each is a small integer.
//!
//! A block's bytes are those of ggml (little-endian); its values are `scale * integer`, or `scale * integer + offset`.

mod quantise;
mod super_blocks;

use half::f16;

/// A format of quantised blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockFormat {
    /// 32 values of 4 bits, `d (q - 8)`.
    Q4_0,
    /// 32 values of 4 bits, `d q + m`.
    Q4_1,
    /// 32 values of 5 bits, `d (q - 16)`.
    Q5_0,
    /// 32 values of 5 bits, `d q + m`.
    Q5_1,
    /// 32 values of 8 bits, `d q`.
    Q8_0,
    /// 256 values of 4 bits; every 32 of them have a scale and an offset of 6 bits.
    Q4K,
    /// 256 values of 5 bits; every 32 of them have a scale and an offset of 6 bits.
    Q5K,
    /// 256 values of 6 bits; every 16 of them have a scale of 8 bits.
    Q6K,
}

impl BlockFormat {
    /// All formats.
    pub const ALL: [BlockFormat; 8] = [
        BlockFormat::Q4_0,
        BlockFormat::Q4_1,
        BlockFormat::Q5_0,
        BlockFormat::Q5_1,
        BlockFormat::Q8_0,
        BlockFormat::Q4K,
        BlockFormat::Q5K,
        BlockFormat::Q6K,
    ];

    /// Its name in ggml: `Q4_K`.
    pub fn name(self) -> &'static str {
        match self {
            BlockFormat::Q4_0 => "Q4_0",
            BlockFormat::Q4_1 => "Q4_1",
            BlockFormat::Q5_0 => "Q5_0",
            BlockFormat::Q5_1 => "Q5_1",
            BlockFormat::Q8_0 => "Q8_0",
            BlockFormat::Q4K => "Q4_K",
            BlockFormat::Q5K => "Q5_K",
            BlockFormat::Q6K => "Q6_K",
        }
    }

    /// Values of a block.
    pub fn values(self) -> usize {
        match self {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q8_0 => 32,
            BlockFormat::Q4K | BlockFormat::Q5K | BlockFormat::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            BlockFormat::Q4_0 => 2 + 16,
            BlockFormat::Q4_1 => 4 + 16,
            BlockFormat::Q5_0 => 2 + 4 + 16,
            BlockFormat::Q5_1 => 4 + 4 + 16,
            BlockFormat::Q8_0 => 2 + 32,
            BlockFormat::Q4K => 4 + 12 + 128,
            BlockFormat::Q5K => 4 + 12 + 32 + 128,
            BlockFormat::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Bytes of so many values; `None` if they are no whole blocks.
    pub fn bytes_of(self, values: usize) -> Option<usize> {
        (values.is_multiple_of(self.values())).then(|| values / self.values() * self.bytes())
    }
}

/// A block taken apart: value `i` is `scale(i / group) * (integers[i] - zero) + offset(i / group)`.
#[derive(Clone, Debug)]
pub(crate) struct Unpacked {
    format: BlockFormat,
    /// Of every value.
    pub integers: [u8; 256],
    /// The scale of the whole block, and its offset where the format has one.
    pub scale: f16,
    pub offset: f16,
    /// What groups' scales are of the block's: whole numbers, of Q6_K with a sign; unused by blocks of one group.
    pub factors: [u8; 16],
    /// What groups' offsets are of the block's.
    pub shifts: [u8; 16],
}

impl Unpacked {
    /// The scale of a group.
    pub fn scale(&self, group: usize) -> f32 {
        let scale = self.scale.to_f32();
        match self.format {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q8_0 => scale,
            BlockFormat::Q4K | BlockFormat::Q5K => scale * f32::from(self.factors[group]),
            BlockFormat::Q6K => scale * f32::from(self.factors[group] as i8),
        }
    }

    /// The offset of a group.
    pub fn offset(&self, group: usize) -> f32 {
        match self.format {
            BlockFormat::Q4_1 | BlockFormat::Q5_1 => self.offset.to_f32(),
            BlockFormat::Q4K | BlockFormat::Q5K => -(self.offset.to_f32() * f32::from(self.shifts[group])),
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 | BlockFormat::Q6K => 0.0,
        }
    }
}

impl BlockFormat {
    /// How many neighbouring values share a scale.
    pub(crate) fn group(self) -> usize {
        if self == BlockFormat::Q6K { 16 } else { 32 }
    }

    /// The integer that stands for zero.
    pub(crate) fn zero(self) -> u8 {
        match self {
            BlockFormat::Q4_0 => 8,
            BlockFormat::Q5_0 => 16,
            BlockFormat::Q6K => 32,
            BlockFormat::Q8_0 => 128,
            BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => 0,
        }
    }

    /// Takes a block apart.
    ///
    /// # Panics
    /// Panics if it has another number of bytes.
    pub(crate) fn unpack(self, block: &[u8]) -> Unpacked {
        assert_eq!(block.len(), self.bytes());
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
        let (mut integers, mut factors, mut shifts) = ([0; 256], [1; 16], [0; 16]);
        match self {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 => split(&block[self.bytes() - 16..], &mut integers[..32]),
            BlockFormat::Q5_0 | BlockFormat::Q5_1 => {
                let start = self.bytes() - 20;
                split(&block[start + 4..], &mut integers[..32]);
                for (index, integer) in integers[..32].iter_mut().enumerate() {
                    *integer |= (block[start + index / 8] >> (index % 8) & 1) << 4;
                }
            }
            BlockFormat::Q8_0 => {
                integers[..32].iter_mut().zip(&block[2..]).for_each(|(to, byte)| *to = byte.wrapping_add(128));
            }
            BlockFormat::Q4K | BlockFormat::Q5K => {
                for group in 0..8 {
                    (factors[group], shifts[group]) = six_bits(&block[4..16], group);
                }
                let low = &block[self.bytes() - 128..];
                for (to, from) in integers.chunks_exact_mut(64).zip(low.chunks_exact(32)) {
                    split(from, to);
                }
                if self == BlockFormat::Q5K {
                    for (index, integer) in integers.iter_mut().enumerate() {
                        *integer |= (block[16 + index % 32] >> (index / 32) & 1) << 4;
                    }
                }
            }
            BlockFormat::Q6K => {
                let (low, high) = (&block[..128], &block[128..192]);
                for (index, integer) in integers.iter_mut().enumerate() {
                    // 128 values share 64 bytes of their lower four bits, and 32 of their upper two.
                    let (part, quarter, lane) = (index / 128, index % 128 / 32, index % 32);
                    let four = low[64 * part + 32 * (quarter % 2) + lane] >> (4 * (quarter / 2)) & 15;
                    let two = high[32 * part + lane] >> (2 * quarter) & 3;
                    *integer = four | two << 4;
                }
                factors.copy_from_slice(&block[192..208]);
            }
        }
        let scale = half(if self == BlockFormat::Q6K { 208 } else { 0 });
        let offset = match self {
            BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => half(2),
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 | BlockFormat::Q6K => f16::ZERO,
        };
        Unpacked { format: self, integers, scale, offset, factors, shifts }
    }

    /// The values of some blocks.
    ///
    /// # Panics
    /// Panics if the bytes are not those of as many values as there is room for.
    pub fn dequantise(self, blocks: &[u8], to: &mut [f32]) {
        assert_eq!(Some(blocks.len()), self.bytes_of(to.len()));
        let zero = i32::from(self.zero());
        for (block, to) in blocks.chunks_exact(self.bytes()).zip(to.chunks_exact_mut(self.values())) {
            let unpacked = self.unpack(block);
            let groups = unpacked.integers.chunks_exact(self.group()).zip(to.chunks_exact_mut(self.group()));
            for (group, (integers, to)) in groups.enumerate() {
                let (scale, offset) = (unpacked.scale(group), unpacked.offset(group));
                for (to, &integer) in to.iter_mut().zip(integers) {
                    *to = scale * (i32::from(integer) - zero) as f32 + offset;
                }
            }
        }
    }
}

/// The lower halves of some bytes, then the upper ones.
fn split(bytes: &[u8], to: &mut [u8]) {
    let (low, high) = to.split_at_mut(bytes.len());
    low.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte & 15);
    high.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte >> 4);
}

/// The factors of a group's scale and offset, of six bits each.
fn six_bits(packed: &[u8], group: usize) -> (u8, u8) {
    match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        _ => {
            let (low, scale, offset) = (packed[group + 4], packed[group - 4] >> 6, packed[group] >> 6);
            (low & 15 | scale << 4, low >> 4 | offset << 4)
        }
    }
}
