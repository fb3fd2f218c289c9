//! Counter-based random numbers: every number is a pure function of (seed, step, place, position).
//!
//! No generator state has to be saved to resume, the numbers do not depend on the device or the number of threads, and
//! the backward pass draws the mask of the forward pass again instead of storing it. The generator is Philox4x32-10
//! (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

pub(crate) const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
pub(crate) const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// One block of Philox4x32-10: four random words from a counter and a key.
#[inline]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// A 64-bit hash of a path such as `blocks.3.mlp.dropout`: the `place` of its random numbers.
pub fn place_of(path: &str) -> u64 {
    // FNV-1a, then mixed so that short paths fill all bits.
    let hash =
        path.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    mix(hash)
}

fn mix(value: u64) -> u64 {
    // The finaliser of SplitMix64.
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The seed and step of a run, which determine everything random in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The seed of the training run.
    pub seed: u64,
    /// The step number, from 0.
    pub step: u64,
}

/// The random numbers of one place in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
}

impl Stream {
    /// The stream of (seed, step, place).
    pub fn new(seed: u64, step: u64, place: u64) -> Self {
        let key = mix(mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ step).wrapping_add(place));
        Stream { key: [key as u32, (key >> 32) as u32] }
    }

    /// The stream whose Philox blocks have this key.
    pub fn of_key(key: [u32; 2]) -> Self {
        Stream { key }
    }

    /// The key of its Philox blocks.
    pub fn key(&self) -> [u32; 2] {
        self.key
    }

    /// Eight 16-bit numbers: those of columns `8 * block ..` of `row`.
    #[inline]
    pub fn eight(&self, row: u64, block: u32) -> [u16; 8] {
        let words = philox([block, row as u32, (row >> 32) as u32, 0], self.key);
        std::array::from_fn(|i| (words[i / 2] >> (16 * (i % 2))) as u16)
    }

    /// Four 32-bit numbers, for initial values and everything that is not a mask.
    pub fn four(&self, index: u64) -> [u32; 4] {
        philox([index as u32, (index >> 32) as u32, 0, 1], self.key)
    }
}

/// A dropout mask: a value is kept, and scaled by 1/(1-rate), if its 16-bit random number reaches a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mask {
    /// The random numbers.
    pub stream: Stream,
    threshold: u32,
    scale: f32,
}

impl Mask {
    /// A mask that drops with probability `rate` (rounded to 1/65536).
    pub fn new(stream: Stream, rate: f32) -> Self {
        let threshold = (f64::from(rate) * 65_536.0).round() as u32;
        let scale = if threshold >= 65_536 { 0.0 } else { (1.0 / (1.0 - f64::from(rate))) as f32 };
        Mask { stream, threshold, scale }
    }

    /// A value is kept if its 16-bit number is at least this.
    pub(crate) fn threshold(&self) -> u32 {
        self.threshold
    }

    /// The factor of kept values.
    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    /// The factor of one value: 0 or 1/(1-rate).
    pub fn factor(&self, row: u64, column: usize) -> f32 {
        let number = self.stream.eight(row, (column / 8) as u32)[column % 8];
        if u32::from(number) >= self.threshold { self.scale } else { 0.0 }
    }

    /// The factors of columns `first_column ..` of a row: the reference for `cpu::rows::mask_factors`.
    pub fn factors(&self, row: u64, first_column: usize, out: &mut [f32]) {
        let mut column = first_column;
        let mut done = 0;
        while done < out.len() {
            let numbers = self.stream.eight(row, (column / 8) as u32);
            let start = column % 8;
            let count = (8 - start).min(out.len() - done);
            for (out, number) in out[done..done + count].iter_mut().zip(&numbers[start..]) {
                *out = if u32::from(*number) >= self.threshold { self.scale } else { 0.0 };
            }
            column += count;
            done += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_test_vectors() {
        // From the Random123 distribution's known-answer tests for philox4x32-10.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_mask_drops_its_rate_and_keeps_the_mean() {
        for rate in [0.0, 0.1, 0.5, 0.9] {
            let mask = Mask::new(Stream::new(1, 2, place_of("blocks.0.dropout")), rate);
            let mut factors = vec![0.0f32; 100_003];
            mask.factors(7, 5, &mut factors);
            let dropped = factors.iter().filter(|&&f| f == 0.0).count() as f32 / factors.len() as f32;
            assert!((dropped - rate).abs() < 0.005, "{rate}: {dropped}");
            let mean = factors.iter().sum::<f32>() / factors.len() as f32;
            assert!((mean - 1.0).abs() < 0.04, "{rate}: {mean}");
            for column in [0, 1, 8, 1000] {
                assert_eq!(factors[column], mask.factor(7, column + 5));
            }
        }
    }

    #[test]
    fn places_steps_and_seeds_differ() {
        let base = Stream::new(1, 1, place_of("a"));
        for other in
            [Stream::new(2, 1, place_of("a")), Stream::new(1, 2, place_of("a")), Stream::new(1, 1, place_of("b"))]
        {
            assert_ne!(base.eight(0, 0), other.eight(0, 0));
        }
    }
}
