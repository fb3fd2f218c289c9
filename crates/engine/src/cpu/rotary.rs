//! Rotary positions: cosines and sines of a token once for all heads, then one pass over its row.

use super::kernel::{Kernel, rows_per_tile, tile_rows};
use super::memory::FloatShared;
use super::simd::{Lanes, simd_fn};
use super::team::Team;
use crate::ops::Rotary;
use crate::ops::rotary::RotaryPairing;

/// Floats of scratch memory per thread: a row, and the cosines and sines of a token.
pub(super) fn scratch_floats(columns: usize, op: &Rotary) -> usize {
    columns.next_multiple_of(16) + 2 * op.frequencies.len().next_multiple_of(16)
}

/// Rotates each token's heads by its position.
pub(super) fn rotary(kernel: &Kernel, team: &mut Team, op: &Rotary) {
    let shape = &kernel.output_type(0).shape;
    let &[_, tokens, columns] = shape.axes() else { return };
    let (rows, pairs) = (shape.rows(), op.frequencies.len());
    let (x, output) = (kernel.input(0), kernel.output(0));
    let offsets = op.offsets.then(|| kernel.input_i32(1));
    let per_tile = rows_per_tile(rows, columns);
    team.run(rows.div_ceil(per_tile), &|tile, scratch| {
        let (copy, scratch) = scratch.split_at_mut(columns.next_multiple_of(16));
        let (cosines, sines) = scratch.split_at_mut(pairs.next_multiple_of(16));
        let angles = Angles { cosines: &mut cosines[..pairs], sines: &mut sines[..pairs] };
        for row in tile_rows(tile, per_tile, rows) {
            let offset = offsets.map_or(0, |offsets| i64::from(offsets[row / tokens]));
            fill(op, offset + (row % tokens) as i64, angles.cosines, angles.sines);
            let range = row * columns..(row + 1) * columns;
            let values = match &output {
                // SAFETY: each row is written by one tile only.
                FloatShared::F32(output) => unsafe { output.range(range.clone()) },
                FloatShared::Bf16(_) => &mut copy[..columns],
            };
            x.copy_to(range.clone(), values);
            for head in values.chunks_exact_mut(columns / op.heads) {
                match op.pairing {
                    RotaryPairing::Halves => rotate_halves(head, angles.cosines, angles.sines),
                    RotaryPairing::Pairs => rotate_pairs(head, angles.cosines, angles.sines),
                }
            }
            // SAFETY: as above; a row that was computed in its place is not written again.
            unsafe { output.write(range.start, values) };
        }
    });
}

/// The cosines and sines of a token.
struct Angles<'s> {
    cosines: &'s mut [f32],
    sines: &'s mut [f32],
}

fn fill(op: &Rotary, position: i64, cosines: &mut [f32], sines: &mut [f32]) {
    let factor = f64::from(op.factor);
    for (pair, (cosine, sine)) in cosines.iter_mut().zip(sines).enumerate() {
        // Angles of long sequences are too large for a reduction in f32.
        let (s, c) = f64::from(op.angle(position, pair)).sin_cos();
        (*cosine, *sine) = ((factor * c) as f32, (factor * s) as f32);
    }
}

simd_fn! {
    /// Rotates value k with value k + n, for the n pairs of a head.
    fn rotate_halves(head: &mut [f32], cosines: &[f32], sines: &[f32]) = rotate_halves_body;
}

simd_fn! {
    /// Rotates value 2k with value 2k + 1.
    fn rotate_pairs(head: &mut [f32], cosines: &[f32], sines: &[f32]) = rotate_pairs_body;
}

#[inline(always)]
unsafe fn rotate_halves_body<V: Lanes>(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let pairs = cosines.len();
    let (first, rest) = head.split_at_mut(pairs);
    let second = &mut rest[..pairs];
    assert_eq!(sines.len(), pairs);
    let whole = pairs / V::COUNT * V::COUNT;
    let mut k = 0;
    while k < whole {
        // SAFETY: k + COUNT <= pairs, the length of all four.
        unsafe {
            let (a, b) = (V::load(first.as_ptr().add(k)), V::load(second.as_ptr().add(k)));
            let (c, s) = (V::load(cosines.as_ptr().add(k)), V::load(sines.as_ptr().add(k)));
            a.mul(c).sub(b.mul(s)).store(first.as_mut_ptr().add(k));
            b.mul(c).add(a.mul(s)).store(second.as_mut_ptr().add(k));
        }
        k += V::COUNT;
    }
    let rest = first[whole..].iter_mut().zip(&mut second[whole..]);
    for ((a, b), (c, s)) in rest.zip(cosines[whole..].iter().zip(&sines[whole..])) {
        (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
    }
}

#[inline(always)]
unsafe fn rotate_pairs_body<V: Lanes>(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    // Neighbours within a vector: left to the compiler.
    for (pair, (c, s)) in head.chunks_exact_mut(2).zip(cosines.iter().zip(sines)) {
        let (a, b) = (pair[0], pair[1]);
        pair[0] = a * c - b * s;
        pair[1] = b * c + a * s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_every_length_agree_with_a_loop() {
        for pairs in [1, 2, 3, 4, 7, 8, 15, 16, 17, 33, 64] {
            let value = |i: usize| ((i * 7919) % 31) as f32 - 15.0;
            let x: Vec<f32> = (0..2 * pairs + 3).map(value).collect();
            let (cosines, sines): (Vec<f32>, Vec<f32>) = (0..pairs).map(|k| (value(k + 40), value(k + 90))).unzip();
            for pairing in [RotaryPairing::Halves, RotaryPairing::Pairs] {
                let mut got = x.clone();
                let mut expected = x.clone();
                for k in 0..pairs {
                    let [first, second] =
                        if pairing == RotaryPairing::Halves { [k, k + pairs] } else { [2 * k, 2 * k + 1] };
                    expected[first] = x[first] * cosines[k] - x[second] * sines[k];
                    expected[second] = x[second] * cosines[k] + x[first] * sines[k];
                }
                match pairing {
                    RotaryPairing::Halves => rotate_halves(&mut got, &cosines, &sines),
                    RotaryPairing::Pairs => rotate_pairs(&mut got, &cosines, &sines),
                }
                // Whole numbers: every product and sum is exact.
                assert_eq!(got, expected, "{pairs} {pairing:?}");
            }
        }
    }
}
