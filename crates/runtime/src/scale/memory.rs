//! Bytes that a rank needs for each parameter.

use super::layout::Sharding;

/// Bytes per parameter that training keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateBytes {
    /// Weights, in all forms that every rank has unless weights are sharded.
    pub weights: f64,
    /// Gradients.
    pub gradients: f64,
    /// What only the update reads: moments, and weights in a higher precision.
    pub optimizer: f64,
    /// Weights of a layer that was gathered to be computed with.
    pub gathered: f64,
}

impl StateBytes {
    /// Ours in f32: weights, gradients, two moments of AdamW.
    pub const F32: StateBytes = StateBytes { weights: 4.0, gradients: 4.0, optimizer: 8.0, gathered: 4.0 };

    /// Ours in bf16 on a GPU: the same, and weights rounded for matrix multiplications.
    pub const BF16: StateBytes = StateBytes { weights: 6.0, gradients: 4.0, optimizer: 8.0, gathered: 6.0 };

    /// Mixed precision of the ZeRO paper (section 3.1): weights and gradients in 16 bits, and in 32 bits weights and moments.
    pub const ZERO_PAPER: StateBytes = StateBytes { weights: 2.0, gradients: 2.0, optimizer: 12.0, gathered: 2.0 };
}

/// Bytes that each of `ranks` needs for a parameter. ZeRO, section 5: what is sharded is divided by the number of ranks.
pub fn bytes_per_parameter(state: &StateBytes, sharding: Sharding, ranks: usize) -> f64 {
    let divided = |is_sharded: bool, bytes: f64| if is_sharded { bytes / ranks as f64 } else { bytes };
    divided(sharding >= Sharding::Optimizer, state.optimizer)
        + divided(sharding >= Sharding::Gradients, state.gradients)
        + divided(sharding >= Sharding::All, state.weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 1 of the ZeRO paper: 7.5 billion parameters on 64 GPUs, in GB.
    #[test]
    fn stages_take_what_the_paper_says() {
        let gigabytes = |sharding| 7.5e9 * bytes_per_parameter(&StateBytes::ZERO_PAPER, sharding, 64) / 1e9;
        for (sharding, published) in
            [(Sharding::None, 120.0), (Sharding::Optimizer, 31.4), (Sharding::Gradients, 16.6), (Sharding::All, 1.9)]
        {
            let ours = gigabytes(sharding);
            assert!((ours - published).abs() < 0.05, "{sharding:?}: {ours} GB, not {published}");
        }
    }

    #[test]
    fn ours_keeps_weights_in_full() {
        assert_eq!(bytes_per_parameter(&StateBytes::F32, Sharding::None, 8), 16.0);
        assert_eq!(bytes_per_parameter(&StateBytes::F32, Sharding::Optimizer, 8), 9.0);
        assert_eq!(bytes_per_parameter(&StateBytes::F32, Sharding::All, 8), 2.0);
        assert_eq!(bytes_per_parameter(&StateBytes::BF16, Sharding::None, 8), 18.0);
    }
}
