//! Random numbers for shuffling and augmentation: sequences that are pure functions of (seed, epoch, position).
//!
//! Nothing has to be saved to resume, and neither the number of threads nor their order changes a number.

use vitreous_engine::random::Stream;

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    stream: Stream,
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Random {
    /// The sequence of one position (the index of a sample, say) in one epoch.
    pub fn new(seed: u64, epoch: u64, position: u64) -> Random {
        Random { stream: Stream::new(seed, epoch, position), block: 0, words: [0; 4], used: 4 }
    }

    /// The underlying stream.
    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// How many words of the stream were drawn: word `i` is word `i mod 4` of the stream's block `i / 4`.
    pub(crate) fn position(&self) -> u64 {
        4 * self.block + self.used as u64 - 4
    }

    /// Skips words.
    pub(crate) fn skip(&mut self, words: u64) {
        let position = self.position() + words;
        (self.block, self.used) = (position / 4, 4);
        for _ in 0..position % 4 {
            self.bits();
        }
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        if self.used == self.words.len() {
            self.words = self.stream.four(self.block);
            (self.block, self.used) = (self.block + 1, 0);
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// Uniform in [0, 1), in steps of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        let (high, low) = (u64::from(self.bits() >> 5), u64::from(self.bits() >> 6));
        (high * (1 << 26) + low) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [`low`, `high`).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A uniform integer below `end`, which must not be 0; the bias is below 2^-32.
    pub fn below(&mut self, end: usize) -> usize {
        debug_assert!(end > 0);
        let wide = (u64::from(self.bits()) << 32) | u64::from(self.bits());
        ((u128::from(wide) * end as u128) >> 64) as usize
    }

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Fills a slice with standard normal numbers: two per draw, in single precision, for speed.
    pub fn normals(&mut self, out: &mut [f32]) {
        // 24 bits, at least 2^-24 and at most 1, so that the logarithm is finite.
        let unit = |bits: u32| ((bits >> 8) + 1) as f32 / (1u32 << 24) as f32;
        for two in out.chunks_mut(2) {
            let radius = (-2.0 * unit(self.bits()).ln()).sqrt();
            let (sine, cosine) = (std::f32::consts::TAU * unit(self.bits())).sin_cos();
            two.iter_mut().zip([radius * cosine, radius * sine]).for_each(|(out, number)| *out = number);
        }
    }

    /// Distributed as Beta(alpha, alpha), between 0 and 1; `alpha` must be positive.
    ///
    /// It is x / (x + y) for two independent x and y distributed as Gamma(alpha). Their logarithms are used, because small
    /// `alpha` make numbers too small for an f64.
    pub fn beta(&mut self, alpha: f64) -> f64 {
        let (x, y) = (self.log_gamma_distributed(alpha), self.log_gamma_distributed(alpha));
        1.0 / (1.0 + (y - x).exp())
    }

    /// The logarithm of a number distributed as Gamma(shape) (Marsaglia and Tsang, "A simple method for generating gamma
    /// variables", 2000). Theirs is for shapes from 1 on: smaller ones are drawn with a shape larger by 1, times `u^(1/shape)`.
    fn log_gamma_distributed(&mut self, shape: f64) -> f64 {
        let smaller = (1.0 - self.uniform()).ln() / shape;
        let d = shape + 1.0 - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            let u = 1.0 - self.uniform();
            if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return (d * v).ln() + smaller;
            }
        }
    }

    /// Shuffles a slice (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.below(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance.
    fn moments(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64)
    }

    #[test]
    fn beta_has_its_moments() {
        for alpha in [0.1, 0.2, 0.8, 1.0, 2.5, 30.0] {
            let mut random = Random::new(5, 0, 0);
            let draws: Vec<f64> = (0..20_000).map(|_| random.beta(alpha)).collect();
            assert!(draws.iter().all(|draw| (0.0..=1.0).contains(draw)));
            let (mean, variance) = moments(&draws);
            // Beta(a, a) has mean 1/2, variance 1 / (4 (2 a + 1)), and fourth central moment 3 / (16 (2a + 1) (2a + 3)).
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            let fourth = draws.iter().map(|draw| (draw - 0.5).powi(4)).sum::<f64>() / draws.len() as f64;
            let expected_fourth = 3.0 / (16.0 * (2.0 * alpha + 1.0) * (2.0 * alpha + 3.0));
            assert!((mean - 0.5).abs() < 0.012, "alpha {alpha}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.04, "alpha {alpha}: variance {variance}, not {expected}");
            assert!((fourth / expected_fourth - 1.0).abs() < 0.07, "alpha {alpha}: {fourth}, not {expected_fourth}");
        }
        // So small that the draws are 0 or 1, but numbers.
        let mut random = Random::new(5, 0, 0);
        assert!((0..1000).all(|_| (0.0..=1.0).contains(&random.beta(1e-5))));
    }

    #[test]
    fn skipping_is_drawing_and_forgetting() {
        for drawn in 0..9 {
            for skipped in 0..12 {
                let mut random = Random::new(3, 1, 4);
                (0..drawn).for_each(|_| _ = random.bits());
                let mut other = random.clone();
                other.skip(skipped);
                (0..skipped).for_each(|_| _ = random.bits());
                assert_eq!((random.position(), other.position()), (drawn + skipped, drawn + skipped));
                assert_eq!(random.bits(), other.bits(), "{skipped} after {drawn}");
            }
        }
    }

    #[test]
    fn many_normal_numbers_have_their_moments() {
        let mut numbers = vec![0.0; 40_001];
        Random::new(6, 0, 0).normals(&mut numbers);
        let numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
        let (mean, variance) = moments(&numbers);
        let fourth = numbers.iter().map(|number| number.powi(4)).sum::<f64>() / numbers.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02 && (fourth - 3.0).abs() < 0.15);
        // Neighbours, which are made from the same two draws, do not depend on each other.
        let products: Vec<f64> = numbers.windows(2).map(|two| two[0] * two[1]).collect();
        assert!(moments(&products).0.abs() < 0.02);
    }
}
