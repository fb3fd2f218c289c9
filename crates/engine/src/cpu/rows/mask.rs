//! Dropout factors, many at a time: bit-identical to [`Mask::factors`].

#[cfg(target_arch = "x86_64")]
use super::super::simd::{Isa, isa};
use super::super::simd::{Lanes, simd_fn};
use super::multiply;
use crate::random::{KEY_STEPS, MULTIPLIERS, Mask};

/// Philox blocks computed in parallel.
const BLOCKS: usize = 16;
/// Columns of one block: eight 16-bit numbers.
const BLOCK_COLUMNS: usize = 8;
/// Columns of that many blocks.
const COLUMNS: usize = BLOCKS * BLOCK_COLUMNS;

/// The low half of 64 bits.
const LOW: u64 = 0xffff_ffff;

/// The factors (0 or 1/(1-rate)) of columns `first_column ..` of a row.
#[inline]
pub fn mask_factors(mask: &Mask, row: u64, first_column: usize, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if isa() >= Isa::Avx512 {
        // SAFETY: the CPU was detected to have AVX-512.
        return unsafe { avx512::masked::<false>(mask, row, first_column, out) };
    }
    mask_factors_narrow(mask, row, first_column, out);
}

/// Multiplies columns `first_column ..` of a row by their factors.
#[inline]
pub fn drop(mask: &Mask, row: u64, first_column: usize, values: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if isa() >= Isa::Avx512 {
        // SAFETY: the CPU was detected to have AVX-512.
        return unsafe { avx512::masked::<true>(mask, row, first_column, values) };
    }
    let mut factors = [0.0; COLUMNS];
    for (index, values) in values.chunks_mut(COLUMNS).enumerate() {
        let factors = &mut factors[..values.len()];
        mask_factors_narrow(mask, row, first_column + index * COLUMNS, factors);
        multiply(values, factors);
    }
}

simd_fn! {
    /// [`mask_factors`] for machines without AVX-512.
    fn mask_factors_narrow(mask: &Mask, row: u64, first_column: usize, out: &mut [f32]) = mask_factors_body;
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
    // A block's four words in order are its eight numbers in order, low half first.
    let mut pairs = [[0u64; 2]; BLOCKS];
    let mut block = 0;
    while block < BLOCKS {
        pairs[block] = [words[0][block] & LOW | words[1][block] << 32, words[2][block] & LOW | words[3][block] << 32];
        block += 1;
    }
    let numbers: &[u16; COLUMNS] = bytemuck::cast_ref(&pairs);
    let mut column = 0;
    while column < COLUMNS {
        let factor = if u32::from(numbers[column]) >= threshold { scale } else { 0.0 };
        // SAFETY: the caller vouches for COLUMNS values.
        unsafe { *out.add(column) = factor };
        column += 1;
    }
}

/// The four words of `BLOCKS` consecutive Philox4x32-10 blocks, each word in the low half of 64 bits. The high halves
/// contain garbage during the rounds: the vector multiplication (32 by 32 bits to 64) ignores them, so a round is two
/// multiplications, two shifts and two XORs.
#[inline(always)]
fn philox_blocks(first_block: u32, row: u64, mut key: [u32; 2]) -> [[u64; BLOCKS]; 4] {
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

/// Written by hand, because the compiler's vectoriser spends a third of the time shuffling lanes.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{BLOCK_COLUMNS, KEY_STEPS, MULTIPLIERS, Mask};
    use std::arch::x86_64::*;

    /// Columns of the eight blocks of one vector.
    const COLUMNS: usize = 8 * BLOCK_COLUMNS;

    /// One Philox word of eight blocks, in the low halves of 64-bit lanes.
    type Word = __m512i;

    /// The keys of the ten rounds, and other values that all blocks of a row share.
    struct Row {
        keys: [[u32; 2]; 10],
        number: u64,
        threshold: __m512i,
    }

    /// The factors of a row's columns or, with `MULTIPLY`, the current values times the factors.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub fn masked<const MULTIPLY: bool>(mask: &Mask, row: u64, first_column: usize, out: &mut [f32]) {
        let mut keys = [mask.stream.key(); 10];
        for round in 1..10 {
            let [first, second] = keys[round - 1];
            keys[round] = [first.wrapping_add(KEY_STEPS[0]), second.wrapping_add(KEY_STEPS[1])];
        }
        // A threshold of 65536 (drop all) does not fit 16 bits, but then the scale is 0.
        let threshold = _mm512_set1_epi16(mask.threshold().min(0xffff) as u16 as i16);
        let row = Row { keys, number: row, threshold };
        let scale = _mm512_set1_ps(mask.scale());
        let mut block = (first_column / BLOCK_COLUMNS) as u32;
        let skip = first_column % BLOCK_COLUMNS;
        let mut rest = out;
        if skip > 0 {
            let count = rest.len().min(COLUMNS - skip);
            let (now, later) = rest.split_at_mut(count);
            store_some::<MULTIPLY>(keep_bits::<1>(&row, block)[0] >> skip, scale, now);
            rest = later;
            block = block.wrapping_add(8);
        }
        // Four sets of eight blocks at a time: they hide each other's latency.
        let mut pieces = rest.chunks_exact_mut(4 * COLUMNS);
        for piece in &mut pieces {
            for (bits, part) in keep_bits::<4>(&row, block).into_iter().zip(piece.chunks_exact_mut(COLUMNS)) {
                store_some::<MULTIPLY>(bits, scale, part);
            }
            block = block.wrapping_add(32);
        }
        for piece in pieces.into_remainder().chunks_mut(2 * COLUMNS) {
            for (bits, part) in keep_bits::<2>(&row, block).into_iter().zip(piece.chunks_mut(COLUMNS)) {
                store_some::<MULTIPLY>(bits, scale, part);
            }
            block = block.wrapping_add(16);
        }
    }

    /// Writes `scale` where a bit is set and 0 elsewhere, lowest bit first, to at most 64 columns; or multiplies by it.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn store_some<const MULTIPLY: bool>(mut bits: u64, scale: __m512, out: &mut [f32]) {
        let mut pieces = out.chunks_exact_mut(16);
        for piece in &mut pieces {
            let mut factors = _mm512_maskz_mov_ps(bits as __mmask16, scale);
            // SAFETY: the piece is 16 values long.
            unsafe {
                if MULTIPLY {
                    factors = _mm512_mul_ps(factors, _mm512_loadu_ps(piece.as_ptr()));
                }
                _mm512_storeu_ps(piece.as_mut_ptr(), factors);
            }
            bits >>= 16;
        }
        let rest = pieces.into_remainder();
        let inside = ((1u32 << rest.len()) - 1) as __mmask16;
        let mut factors = _mm512_maskz_mov_ps(bits as __mmask16, scale);
        // SAFETY: only the lanes inside the rest, fewer than 16, are read and written.
        unsafe {
            if MULTIPLY {
                factors = _mm512_mul_ps(factors, _mm512_maskz_loadu_ps(inside, rest.as_ptr()));
            }
            _mm512_mask_storeu_ps(rest.as_mut_ptr(), inside, factors);
        }
    }

    /// Which of the 64 columns of eight blocks are kept, for `SETS` times eight blocks starting at `first_block`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn keep_bits<const SETS: usize>(row: &Row, first_block: u32) -> [u64; SETS] {
        // The order of blocks in the lanes such that pairing lanes at the end sorts them.
        let order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
        let (low, high) = (_mm512_set1_epi64(row.number as i64), _mm512_set1_epi64((row.number >> 32) as i64));
        let mut words = [[_mm512_setzero_si512(), low, high, _mm512_setzero_si512()]; SETS];
        for set in 0..SETS {
            let first = _mm512_set1_epi64(i64::from(first_block.wrapping_add(8 * set as u32)));
            words[set][0] = _mm512_add_epi64(first, order);
        }
        for round in 0..10 {
            for set in 0..SETS {
                words[set] = philox_round(words[set], row.keys[round]);
            }
        }
        let mut bits = [0; SETS];
        for set in 0..SETS {
            let [a, b, c, d] = words[set];
            // The low halves of two words side by side: four numbers of each block.
            let front = _mm512_mask_shuffle_epi32::<0xA0>(a, 0xAAAA, b);
            let back = _mm512_mask_shuffle_epi32::<0xA0>(c, 0xAAAA, d);
            let blocks_0_to_3 = _mm512_unpacklo_epi64(front, back);
            let blocks_4_to_7 = _mm512_unpackhi_epi64(front, back);
            bits[set] = u64::from(_mm512_cmpge_epu16_mask(blocks_0_to_3, row.threshold))
                | u64::from(_mm512_cmpge_epu16_mask(blocks_4_to_7, row.threshold)) << 32;
        }
        bits
    }

    /// One round, as in [`crate::random::philox`]. The high halves contain garbage: `_mm512_mul_epu32` ignores them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn philox_round([a, b, c, d]: [Word; 4], key: [u32; 2]) -> [Word; 4] {
        /// `x ^ y ^ z` as a truth table.
        const XOR3: i32 = 0x96;
        let first = _mm512_mul_epu32(a, _mm512_set1_epi64(i64::from(MULTIPLIERS[0])));
        let second = _mm512_mul_epu32(c, _mm512_set1_epi64(i64::from(MULTIPLIERS[1])));
        let keys = (_mm512_set1_epi32(key[0] as i32), _mm512_set1_epi32(key[1] as i32));
        [
            _mm512_ternarylogic_epi32::<XOR3>(_mm512_srli_epi64::<32>(second), b, keys.0),
            second,
            _mm512_ternarylogic_epi32::<XOR3>(_mm512_srli_epi64::<32>(first), d, keys.1),
            first,
        ]
    }
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
                        let mut dropped = vec![-2.0; length];
                        drop(&mask, row, first_column, &mut dropped);
                        assert!(dropped.iter().zip(&plain).all(|(value, factor)| *value == -2.0 * factor));
                    }
                }
            }
        }
    }
}
