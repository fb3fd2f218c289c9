//! The peak of this machine: multiply-adds on registers alone, with the instructions and threads that matrix
//! multiplications use.
//!
//! Nothing is loaded and there are no dependencies between them, so no kernel is faster; the efficiency of kernels is
//! reported as a share of this.

use std::time::{Duration, Instant};

use super::gemm::micro::{Kernel, MicroKernel, kernel_fn};
use super::simd::Lanes;
use super::team::Team;
use crate::error::Result;
use crate::precision::Precision;

/// Approximate duration of one trial: long compared to starting the threads, short compared to other activity on the
/// machine.
const TRY: Duration = Duration::from_millis(2);
/// Number of trials, of which the best counts: in others a thread may have shared its core.
const TRIES: usize = 16;
/// Floats of the widest vector.
const WIDEST: usize = 16;

/// Peak floating-point operations per second of the best multiplication kernel of this CPU for a precision, on this
/// many threads. Measuring takes some tens of milliseconds; other load on the machine lowers the result.
pub fn measured_limit(precision: Precision, threads: usize) -> Result<f64> {
    let kind = MicroKernel::best(precision);
    let mut team = Team::new(threads, WIDEST)?;
    let mut seconds = |rounds: usize| {
        let start = Instant::now();
        team.run(threads, &|_, scratch| {
            scratch.fill(1.0);
            // SAFETY: the kernel is supported by this CPU, and the scratch memory has room for a vector.
            unsafe { multiply_add_rounds(kind, rounds, scratch.as_mut_ptr()) };
        });
        start.elapsed().as_secs_f64()
    };
    // Doubled until it is long enough to measure; this also wakes threads and raises clock rates.
    let mut rounds = 1 << 12;
    let mut taken = seconds(rounds);
    while taken < TRY.as_secs_f64() / 2.0 {
        rounds *= 2;
        taken = seconds(rounds);
    }
    let best = (0..TRIES).map(|_| seconds(rounds)).fold(f64::INFINITY, f64::min);
    Ok(threads as f64 * rounds as f64 * flops_a_round(kind) as f64 / best)
}

/// One multiplication and one addition for each value of each lane of each accumulator.
fn flops_a_round(kind: MicroKernel) -> usize {
    let sizes = kind.sizes();
    2 * sizes.rows * sizes.columns * sizes.values
}

kernel_fn! {
    /// Adds `1 * 1` to each accumulator of a register tile, repeatedly.
    ///
    /// # Safety
    /// `values` has room for a vector.
    unsafe fn multiply_add_rounds(kind, rounds: usize, values: *mut f32) = rounds_body;
}

#[inline(always)]
unsafe fn rounds_body<K: Kernel>(rounds: usize, values: *mut f32) {
    const { assert!(K::Vector::COUNT <= WIDEST) };
    // SAFETY: the caller vouches for the instruction set and for `values`.
    unsafe { K::rounds(rounds, values) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_adds_one_product_to_every_sum() {
        for precision in [Precision::F32, Precision::Bf16] {
            let kind = MicroKernel::best(precision);
            let mut values = [1.0; WIDEST];
            if kind.rounds() {
                // Two bf16 ones in each lane.
                values.fill(f32::from_bits(0x3f80_3f80));
            }
            // SAFETY: the kernel is supported by this CPU, and there is room for its vector.
            unsafe { multiply_add_rounds(kind, 32, values.as_mut_ptr()) };
            let sizes = kind.sizes();
            let operations = 2.0 * values[..sizes.lanes].iter().sum::<f32>();
            assert_eq!(operations as usize, 32 * flops_a_round(kind));
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
