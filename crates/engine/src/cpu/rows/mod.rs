//! Row-wise kernels: functions on plain f32 slices, on one thread. A row fits into the L1 cache, so several passes over
//! it are cheap; what matters is a single pass over memory.

mod lamb;
mod mask;
mod norm;
mod optimizer;
mod pointwise;
mod reduce;
mod softmax;
#[cfg(test)]
mod testing;

pub use lamb::{LambStep, lamb_moments, lamb_move};
pub use mask::{drop, mask_factors};
pub use norm::{layer_norm, layer_norm_gradient, rms_norm, rms_norm_gradient};
pub use optimizer::{AdamwStep, SgdStep, adamw, ema, sgd};
pub use pointwise::{activation, activation_gradient, add, add_scaled, dropped_activation, multiply, scale};
pub use reduce::{add_rows, max_rows, sum_squares};
pub use softmax::{
    cross_entropy_hard, cross_entropy_hard_gradient, cross_entropy_soft, cross_entropy_soft_gradient, log_sum_exp,
    softmax, softmax_gradient,
};

use super::simd::Lanes;

/// The part of a row in one vector: all lanes, or fewer at the row's end.
///
/// # Safety
/// Pointers must be valid for as many values as the part has, and the CPU must support the instruction set.
#[allow(clippy::missing_safety_doc)] // the Safety section of the trait applies to each function
unsafe trait Part: Copy {
    /// Reads the part; lanes past its end are zero.
    unsafe fn load<V: Lanes>(self, from: *const f32) -> V;
    /// Reads the part; lanes past its end are those of `filler`.
    unsafe fn load_or<V: Lanes>(self, from: *const f32, filler: V) -> V;
    unsafe fn store<V: Lanes>(self, value: V, to: *mut f32);
}

/// A whole vector.
#[derive(Clone, Copy)]
struct Whole;

/// The first n lanes, fewer than a vector has.
#[derive(Clone, Copy)]
struct Rest(usize);

// SAFETY: reads and writes one vector.
#[allow(clippy::undocumented_unsafe_blocks)] // covered by the SAFETY line above
unsafe impl Part for Whole {
    #[inline(always)]
    unsafe fn load<V: Lanes>(self, from: *const f32) -> V {
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn load_or<V: Lanes>(self, from: *const f32, _filler: V) -> V {
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn store<V: Lanes>(self, value: V, to: *mut f32) {
        unsafe { value.store(to) }
    }
}

// SAFETY: reads and writes as many values as it says.
#[allow(clippy::undocumented_unsafe_blocks)] // covered by the SAFETY line above
unsafe impl Part for Rest {
    #[inline(always)]
    unsafe fn load<V: Lanes>(self, from: *const f32) -> V {
        unsafe { V::load_partial(from, self.0) }
    }
    #[inline(always)]
    unsafe fn load_or<V: Lanes>(self, from: *const f32, filler: V) -> V {
        unsafe { V::load_partial_or(from, self.0, filler) }
    }
    #[inline(always)]
    unsafe fn store<V: Lanes>(self, value: V, to: *mut f32) {
        unsafe { value.store_partial(to, self.0) }
    }
}

/// Runs a body once per vector of a row: `at` is its offset, `part` its size. A macro, because a closure would be a
/// function without the wrapper's target features (see `simd.rs`).
macro_rules! each_vector {
    ($lanes:ident, $length:expr, $at:ident, $part:ident => $body:block) => {{
        let length: usize = $length;
        let mut $at = 0;
        while $at + $lanes::COUNT <= length {
            let $part = $crate::cpu::rows::Whole;
            $body
            $at += $lanes::COUNT;
        }
        if $at < length {
            let $part = $crate::cpu::rows::Rest(length - $at);
            $body
        }
    }};
}
use each_vector;

/// Like [`each_vector`], four vectors at a time; `turn` (0 to 3) is the index among them. Four partial sums hide the
/// latency of additions.
macro_rules! each_vector_in_turn {
    ($lanes:ident, $length:expr, $at:ident, $part:ident, $turn:ident => $body:block) => {{
        let length: usize = $length;
        let mut start = 0;
        while start + 4 * $lanes::COUNT <= length {
            let $part = $crate::cpu::rows::Whole;
            {
                let ($at, $turn) = (start, 0);
                $body
            }
            {
                let ($at, $turn) = (start + $lanes::COUNT, 1);
                $body
            }
            {
                let ($at, $turn) = (start + 2 * $lanes::COUNT, 2);
                $body
            }
            {
                let ($at, $turn) = (start + 3 * $lanes::COUNT, 3);
                $body
            }
            start += 4 * $lanes::COUNT;
        }
        while start + $lanes::COUNT <= length {
            let ($at, $turn, $part) = (start, 0, $crate::cpu::rows::Whole);
            $body
            start += $lanes::COUNT;
        }
        if start < length {
            let ($at, $turn, $part) = (start, 1, $crate::cpu::rows::Rest(length - start));
            $body
        }
    }};
}
use each_vector_in_turn;

/// The sum of all lanes of four partial sums.
#[inline(always)]
unsafe fn sum_of_parts<V: Lanes>(parts: [V; 4]) -> f32 {
    // SAFETY: arithmetic only; the caller guarantees the instruction set.
    unsafe { parts[0].add(parts[2]).add(parts[1].add(parts[3])).sum() }
}
