//! Dropout's factors, many at a time: the same numbers as [`Mask::factors`], bit for bit.

use super::super::simd::{Lanes, simd_fn};
use crate::random::{KEY_STEPS, MULTIPLIERS, Mask};

/// Philox blocks that are computed side by side.
const BLOCKS: usize = 8;
/// Columns of one block: eight 16-bit numbers.
const BLOCK_COLUMNS: usize = 8;
/// Columns of so many blocks.
const COLUMNS: usize = BLOCKS * BLOCK_COLUMNS;

simd_fn! {
    /// The factors (0 or 1/(1-rate)) of columns `first_column ..` of a row.
    pub fn mask_factors(mask: &Mask, row: u64, first_column: usize, out: &mut [f32]) = mask_factors_body;
}

#[inline(always)]
unsafe fn mask_factors_body<V: Lanes>(mask: &Mask, row: u64, first_column: usize, out: &mut [f32]) {
    let mut block = (first_column / BLOCK_COLUMNS) as u32;
    // Columns of the first block that lie before `first_column`.
    let mut skip = first_column % BLOCK_COLUMNS;
    let mut rest = out;
    while !rest.is_empty() {
        if skip == 0 && rest.len() >= COLUMNS {
            let (now, later) = rest.split_at_mut(COLUMNS);
            // SAFETY: `now` is COLUMNS long.
            unsafe { factors_of_blocks::<V>(mask, row, block, now.as_mut_ptr()) };
            rest = later;
        } else {
            let mut whole = [0.0; COLUMNS];
            // SAFETY: `whole` is COLUMNS long.
            unsafe { factors_of_blocks::<V>(mask, row, block, whole.as_mut_ptr()) };
            let count = rest.len().min(COLUMNS - skip);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&whole[skip..skip + count]);
            rest = later;
            skip = 0;
        }
        block = block.wrapping_add(BLOCKS as u32);
    }
}

/// The factors of `BLOCKS` whole blocks.
///
/// # Safety
/// `out` must be valid for `COLUMNS` values.
#[inline(always)]
unsafe fn factors_of_blocks<V: Lanes>(mask: &Mask, row: u64, first_block: u32, out: *mut f32) {
    let words = philox_blocks(first_block, row, mask.stream.key());
    let (threshold, scale) = (mask.threshold(), mask.scale());
    let mut numbers = [0u16; COLUMNS];
    let mut block = 0;
    while block < BLOCKS {
        let mut word = 0;
        while word < 4 {
            numbers[block * 8 + 2 * word] = words[word][block] as u16;
            numbers[block * 8 + 2 * word + 1] = (words[word][block] >> 16) as u16;
            word += 1;
        }
        block += 1;
    }
    let mut column = 0;
    while column < COLUMNS {
        let factor = if u32::from(numbers[column]) >= threshold { scale } else { 0.0 };
        // SAFETY: the caller vouches for COLUMNS values.
        unsafe { *out.add(column) = factor };
        column += 1;
    }
}

/// The four words of `BLOCKS` consecutive Philox4x32-10 blocks, each word in the low half of 64 bits. The high halves
/// carry rubbish through the rounds: the multiplication of vectors (32 by 32 bits to 64) does not look at them, and so
/// a round is two multiplications, two shifts and two exclusive ors.
#[inline(always)]
fn philox_blocks(first_block: u32, row: u64, mut key: [u32; 2]) -> [[u64; BLOCKS]; 4] {
    const LOW: u64 = 0xffff_ffff;
    let mut counter = [[0; BLOCKS], [row & LOW; BLOCKS], [row >> 32; BLOCKS], [0; BLOCKS]];
    let mut block = 0;
    while block < BLOCKS {
        counter[0][block] = u64::from(first_block.wrapping_add(block as u32));
        block += 1;
    }
    let mut round = 0;
    while round < 10 {
        let mut block = 0;
        while block < BLOCKS {
            let a = u64::from(MULTIPLIERS[0]) * (counter[0][block] & LOW);
            let b = u64::from(MULTIPLIERS[1]) * (counter[2][block] & LOW);
            counter[0][block] = (b >> 32) ^ counter[1][block] ^ u64::from(key[0]);
            counter[1][block] = b;
            counter[2][block] = (a >> 32) ^ counter[3][block] ^ u64::from(key[1]);
            counter[3][block] = a;
            block += 1;
        }
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
        round += 1;
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::super::testing::LENGTHS;
    use super::*;
    use crate::random::{Stream, place_of};

    #[test]
    fn the_factors_are_those_of_the_plain_mask_bit_for_bit() {
        for rate in [0.0, 0.1, 0.5, 1.0] {
            let mask = Mask::new(Stream::new(3, 4, place_of("blocks.1.dropout")), rate);
            for length in LENGTHS.into_iter().chain([0, 64, 4099]) {
                // Columns past 2^35 wrap the block's number.
                for first_column in [0, 1, 7, 8, 61, 64, 100_003, (1 << 35) - 24] {
                    for row in [0, 9, u64::MAX - 1, 1 << 32] {
                        let (mut fast, mut plain) = (vec![f32::NAN; length], vec![f32::NAN; length]);
                        mask_factors(&mask, row, first_column, &mut fast);
                        mask.factors(row, first_column, &mut plain);
                        assert!(fast == plain, "rate {rate}, {length} from {first_column} of row {row}");
                    }
                }
            }
        }
    }
}
