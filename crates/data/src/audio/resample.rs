//! Other sampling rates, by the Fourier transform (the crate `rubato`).

use rubato::audioadapter_buffers::direct::SequentialSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler as _, WindowFunction};

use super::SAMPLE_RATE;
use super::error::AudioError;

/// Samples of its output that a filter spans, at least: the longer, the sharper it cuts at half the lower rate.
const SPAN: usize = 2048;

/// Samples of one rate to those of [`SAMPLE_RATE`], piece by piece.
pub(super) struct Resampler {
    inner: Fft<f32>,
    rate: u32,
    waiting: Vec<f32>,
    piece: Vec<f32>,
    /// Samples of silence that the filter begins with and that are still to be left out.
    delay: usize,
    taken: u64,
    given: u64,
}

impl Resampler {
    pub fn new(rate: u32) -> Result<Resampler, AudioError> {
        let chunk = SPAN * (rate as usize).div_ceil(SAMPLE_RATE as usize);
        // An even number of the smallest steps that are whole in both rates: the filter's middle is then a sample of both.
        let step = 2 * rate as usize / greatest_common_divisor(rate, SAMPLE_RATE) as usize;
        let chunk = chunk.next_multiple_of(step.max(1));
        let window = WindowFunction::BlackmanHarris2;
        let inner = Fft::new_custom(rate as usize, SAMPLE_RATE as usize, chunk, 1, 1, window, FixedSync::Input);
        let inner = inner.map_err(|error| AudioError::Unsupported(format!("resampling from {rate} Hz: {error}")))?;
        let (delay, piece) = (inner.output_delay(), vec![0.0; inner.output_frames_max()]);
        Ok(Resampler { inner, rate, waiting: Vec::new(), piece, delay, taken: 0, given: 0 })
    }

    /// Adds samples, and what comes of them to `to`.
    pub fn push(&mut self, samples: &[f32], to: &mut Vec<f32>) -> Result<(), AudioError> {
        self.taken += samples.len() as u64;
        self.waiting.extend_from_slice(samples);
        let mut from = 0;
        while self.waiting.len() - from >= self.inner.input_frames_next() {
            from += self.run(from, None, to)?;
        }
        self.waiting.drain(..from);
        Ok(())
    }

    /// Adds what is left to `to`: in all as many samples as the audio lasts.
    pub fn finish(&mut self, to: &mut Vec<f32>) -> Result<(), AudioError> {
        let all = (self.taken * u64::from(SAMPLE_RATE)).div_ceil(u64::from(self.rate));
        while self.given < all {
            let before = self.given;
            let left = self.waiting.len();
            self.run(0, Some(left), to)?;
            self.waiting.clear();
            if self.given > all {
                to.truncate(to.len() - (self.given - all) as usize);
                self.given = all;
            } else if self.given == before && self.delay == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Runs a chunk of what waits, from a place on; gives how many samples it took.
    fn run(&mut self, from: usize, partial: Option<usize>, to: &mut Vec<f32>) -> Result<usize, AudioError> {
        let failed = |error: String| AudioError::Unsupported(format!("resampling: {error}"));
        let waiting = &self.waiting[from..];
        let (length, room) = (waiting.len(), self.piece.len());
        let input = SequentialSlice::new(waiting, 1, length).map_err(|error| failed(error.to_string()))?;
        let mut output =
            SequentialSlice::new_mut(&mut self.piece, 1, room).map_err(|error| failed(error.to_string()))?;
        let indexing = partial.map(|frames| Indexing::new().partial_len(frames));
        let (taken, given) = self
            .inner
            .process_into_buffer(&input, &mut output, indexing.as_ref())
            .map_err(|error| failed(error.to_string()))?;
        let skipped = self.delay.min(given);
        self.delay -= skipped;
        to.extend_from_slice(&self.piece[skipped..given]);
        self.given += (given - skipped) as u64;
        Ok(taken)
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a.max(1) } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, hertz: f64, seconds: f64) -> Vec<f32> {
        let samples = (f64::from(rate) * seconds) as usize;
        let angle = |place: usize| 2.0 * std::f64::consts::PI * hertz * place as f64 / f64::from(rate);
        (0..samples).map(|place| (0.5 * angle(place).sin()) as f32).collect()
    }

    fn resampled(rate: u32, samples: &[f32], piece: usize) -> Vec<f32> {
        let mut resampler = Resampler::new(rate).expect("a resampler");
        let mut to = Vec::new();
        samples.chunks(piece).for_each(|chunk| resampler.push(chunk, &mut to).expect("resamples"));
        resampler.finish(&mut to).expect("ends");
        to
    }

    #[test]
    fn a_tone_is_the_same_tone_at_the_same_time() {
        for rate in [8000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000, 44_101] {
            let found = resampled(rate, &tone(rate, 440.0, 1.5), 1000);
            let expected = tone(SAMPLE_RATE, 440.0, 1.5);
            assert!(found.len().abs_diff(expected.len()) <= 1, "{rate}: {} samples", found.len());
            // At both ends a tone that is cut off has other frequencies, too.
            let inner = 2000..expected.len() - 2000;
            let difference = inner.map(|place| (found[place] - expected[place]).abs()).fold(0.0, f32::max);
            assert!(difference < 1e-3, "{rate}: {difference}");
        }
    }

    #[test]
    fn what_the_lower_rate_cannot_have_is_left_out() {
        let found = resampled(48_000, &tone(48_000, 10_000.0, 1.0), 4096);
        let loudest = found[2000..14_000].iter().fold(0f32, |loudest, sample| loudest.max(sample.abs()));
        assert!(loudest < 1e-3, "{loudest}");
    }

    #[test]
    fn pieces_change_nothing() {
        let samples = tone(44_100, 300.0, 0.7);
        let whole = resampled(44_100, &samples, samples.len());
        for piece in [1, 7, 1152, 40_000] {
            assert_eq!(resampled(44_100, &samples, piece), whole, "pieces of {piece}");
        }
        assert!(resampled(8000, &[], 1).is_empty());
        assert_eq!(resampled(8000, &[0.5; 3], 1).len(), 6);
    }
}
