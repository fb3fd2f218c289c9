//! Log-mel spectrograms as OpenAI's Whisper defines them.
//!
//! A frame is the power spectrum of 400 samples under a Hann window, 160 samples after the one before, with the first one around sample 0
//! (samples before it mirror those behind it). Its power is summed up under triangles that are equally wide on Slaney's mel scale
//! (linear below 1,000 Hz, logarithmic above) and of equal area, and its logarithm to base 10 is taken.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

use super::SAMPLE_RATE;
use super::error::AudioError;

/// Samples of a frame's window.
pub const FRAME_SAMPLES: usize = 400;
/// Samples from one frame to the next.
pub const HOP: usize = 160;
/// More bins than any model has.
const MOST_BINS: usize = 256;
/// Frequencies of a power spectrum.
const FREQUENCIES: usize = FRAME_SAMPLES / 2 + 1;
/// The least power of a bin.
const LEAST_POWER: f64 = 1e-10;
/// The logarithm of [`LEAST_POWER`], which silence has.
pub(super) const SILENCE: f32 = -10.0;

/// The weights of the frequencies of each bin: `[bins, 201]`, as `librosa.filters.mel` computes them.
pub fn mel_filters(bins: usize) -> Vec<f32> {
    let highest = f64::from(SAMPLE_RATE) / 2.0;
    let top = to_mel(highest);
    let edges: Vec<f64> = (0..bins + 2).map(|edge| to_hertz(top * edge as f64 / (bins + 1) as f64)).collect();
    let mut filters = Vec::with_capacity(bins * FREQUENCIES);
    for bin in 0..bins {
        let (low, middle, high) = (edges[bin], edges[bin + 1], edges[bin + 2]);
        let area = (2.0 / (high - low)) as f32;
        for frequency in 0..FREQUENCIES {
            let hertz = highest * frequency as f64 / (FREQUENCIES - 1) as f64;
            let triangle = ((hertz - low) / (middle - low)).min((high - hertz) / (high - middle)).max(0.0);
            filters.push(triangle as f32 * area);
        }
    }
    filters
}

/// Slaney's scale: 15 mels are 1,000 Hz.
fn to_mel(hertz: f64) -> f64 {
    if hertz < 1000.0 { hertz * 3.0 / 200.0 } else { 15.0 + (hertz / 1000.0).ln() / (6.4f64.ln() / 27.0) }
}

fn to_hertz(mel: f64) -> f64 {
    if mel < 15.0 { mel * 200.0 / 3.0 } else { 1000.0 * ((mel - 15.0) * (6.4f64.ln() / 27.0)).exp() }
}

/// Computes the logarithms of frames, in f64: quiet bins beside loud ones lose digits otherwise.
pub(super) struct LogMel {
    window: Vec<f64>,
    fft: Arc<dyn RealToComplex<f64>>,
    /// The frequencies that each bin begins with, and their weights.
    filters: Vec<(usize, Vec<f64>)>,
    samples: Vec<f64>,
    spectrum: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    power: Vec<f64>,
}

impl LogMel {
    pub fn new(bins: usize) -> Result<LogMel, AudioError> {
        if !(1..=MOST_BINS).contains(&bins) {
            return Err(AudioError::Bins { bins, most: MOST_BINS });
        }
        let fft = RealFftPlanner::<f64>::new().plan_fft_forward(FRAME_SAMPLES);
        let angle = |place: usize| 2.0 * std::f64::consts::PI * place as f64 / FRAME_SAMPLES as f64;
        let window = (0..FRAME_SAMPLES).map(|place| 0.5 - 0.5 * angle(place).cos()).collect();
        let dense = mel_filters(bins);
        let sparse = |row: &[f32]| {
            let first = row.iter().position(|&weight| weight > 0.0).unwrap_or(0);
            let end = row.iter().rposition(|&weight| weight > 0.0).map_or(first, |last| last + 1);
            (first, row[first..end].iter().map(|&weight| f64::from(weight)).collect())
        };
        Ok(LogMel {
            window,
            filters: dense.chunks_exact(FREQUENCIES).map(sparse).collect(),
            samples: fft.make_input_vec(),
            spectrum: fft.make_output_vec(),
            scratch: fft.make_scratch_vec(),
            power: vec![0.0; FREQUENCIES],
            fft,
        })
    }

    pub fn bins(&self) -> usize {
        self.filters.len()
    }

    /// Adds the logarithms of a frame of [`FRAME_SAMPLES`] samples to `to`.
    pub fn push_frame(&mut self, samples: &[f32], to: &mut Vec<f32>) {
        for ((to, sample), weight) in self.samples.iter_mut().zip(samples).zip(&self.window) {
            *to = f64::from(*sample) * weight;
        }
        let transformed = self.fft.process_with_scratch(&mut self.samples, &mut self.spectrum, &mut self.scratch);
        debug_assert!(transformed.is_ok(), "the buffers have the transform's lengths");
        for (power, value) in self.power.iter_mut().zip(&self.spectrum) {
            *power = value.norm_sqr();
        }
        for (first, weights) in &self.filters {
            let sum: f64 = self.power[*first..].iter().zip(weights).map(|(power, weight)| power * weight).sum();
            to.push(sum.max(LEAST_POWER).log10() as f32);
        }
    }
}

/// A logarithm as models take it: at most 8 below the loudest bin of the recording, and about from -1 to 1.
pub(super) fn normalised(logarithm: f32, loudest: f32) -> f32 {
    (logarithm.max(loudest - 8.0) + 4.0) / 4.0
}
