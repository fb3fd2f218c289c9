//! What the machine could do at best: multiply-adds on registers alone, with the instructions and threads that products use.
//!
//! Nothing is loaded and nothing waits for the one before, so no kernel is faster; how near one comes is told as a share of this.

use std::time::{Duration, Instant};

use super::gemm::micro::{Kernel, Kind, kernel_fn};
use super::simd::Lanes;
use super::team::Team;
use crate::error::Result;
use crate::precision::Precision;

/// How long one try takes, about: long beside the hand-over to threads, short beside what else a machine does.
const TRY: Duration = Duration::from_millis(2);
/// Tries of which the best counts: others may have had to share their core.
const TRIES: usize = 16;
/// The most sums of any kernel.
const MOST_SUMS: usize = 24;
/// Floats of the widest vector.
const WIDEST: usize = 16;

/// Floating-point operations a second that this machine's best product kernel of a precision could do at most, on so many
/// threads. It measures for some tens of milliseconds; other work on the machine meanwhile makes it less.
pub fn measured_limit(precision: Precision, threads: usize) -> Result<f64> {
    let kind = Kind::best(precision);
    let mut team = Team::new(threads, WIDEST)?;
    let mut seconds = |rounds: usize| {
        let start = Instant::now();
        team.run(threads, &|_, scratch| {
            scratch.fill(1.0);
            // SAFETY: the kind is this machine's best, and the scratch memory has room for a vector.
            unsafe { multiply_add_rounds(kind, rounds, scratch.as_mut_ptr()) };
        });
        start.elapsed().as_secs_f64()
    };
    // Doubled until it is long enough to be believed; this also wakes threads and clocks up.
    let mut rounds = 1 << 12;
    let mut taken = seconds(rounds);
    while taken < TRY.as_secs_f64() / 2.0 {
        rounds *= 2;
        taken = seconds(rounds);
    }
    let best = (0..TRIES).map(|_| seconds(rounds)).fold(f64::INFINITY, f64::min);
    Ok(threads as f64 * rounds as f64 * flops_a_round(kind) as f64 / best)
}

/// A multiplication and an addition for each value of each lane of each sum.
fn flops_a_round(kind: Kind) -> usize {
    let sizes = kind.sizes();
    2 * sizes.rows * sizes.columns * sizes.values
}

kernel_fn! {
    /// Adds `1 * 1` to each sum of a register tile, again and again.
    ///
    /// # Safety
    /// `values` has room for a vector.
    unsafe fn multiply_add_rounds(kind, rounds: usize, values: *mut f32) = rounds_body;
}

#[inline(always)]
unsafe fn rounds_body<K: Kernel>(rounds: usize, values: *mut f32) {
    const { assert!(K::ROWS * K::VECTORS <= MOST_SUMS && K::Vector::COUNT <= WIDEST) };
    // SAFETY: the caller vouches for the instruction set and for `values`.
    unsafe {
        let (a, b) = (K::Vector::load(values), K::Vector::load(std::hint::black_box(values)));
        let mut sums = [K::Vector::splat(0.0); MOST_SUMS];
        for _ in 0..rounds {
            for sum in 0..K::ROWS * K::VECTORS {
                sums[sum] = K::multiply_add(a, b, sums[sum]);
            }
        }
        // Read, so that none is left out.
        let mut total = sums[0];
        for sum in 1..K::ROWS * K::VECTORS {
            total = total.add(sums[sum]);
        }
        total.store(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_adds_one_product_to_every_sum() {
        for precision in [Precision::F32, Precision::Bf16] {
            let kind = Kind::best(precision);
            let mut values = [1.0; WIDEST];
            if kind.rounds() {
                // Two ones of bf16 in each lane.
                values.fill(f32::from_bits(0x3f80_3f80));
            }
            // SAFETY: the kind is this machine's best, and there is room for its vector.
            unsafe { multiply_add_rounds(kind, 5, values.as_mut_ptr()) };
            let sizes = kind.sizes();
            let operations = 2.0 * values[..sizes.lanes].iter().sum::<f32>();
            assert_eq!(operations as usize, 5 * flops_a_round(kind));
        }
    }

    #[test]
    fn the_limit_is_a_number_for_any_count_of_threads() {
        for threads in [1, 3] {
            let limit = measured_limit(Precision::F32, threads).expect("threads");
            assert!(limit.is_finite() && limit > 1e6, "{limit}");
        }
    }
}
