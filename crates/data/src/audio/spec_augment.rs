//! SpecAugment ("A Simple Data Augmentation Method for Automatic Speech Recognition"): spans of time and bands of frequency of a
//! spectrogram are masked, so that a model does not depend on any one of them. Settings and their meaning are those of `transformers`.

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// What of a spectrogram is masked in training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpecAugment {
    /// Whether anything is masked.
    pub apply_spec_augment: bool,
    /// About the share of frames that are masked. Masks may overlap: it can be less.
    pub mask_time_prob: f64,
    /// Frames of a mask: 10 are a tenth of a second.
    pub mask_time_length: usize,
    /// At least so many masks.
    pub mask_time_min_masks: usize,
    /// About the share of mel bins that are masked.
    pub mask_feature_prob: f64,
    /// Bins of a mask.
    pub mask_feature_length: usize,
    /// At least so many masks.
    pub mask_feature_min_masks: usize,
}

impl Default for SpecAugment {
    fn default() -> Self {
        SpecAugment {
            apply_spec_augment: false,
            mask_time_prob: 0.05,
            mask_time_length: 10,
            mask_time_min_masks: 2,
            mask_feature_prob: 0.0,
            mask_feature_length: 10,
            mask_feature_min_masks: 0,
        }
    }
}

impl SpecAugment {
    /// Masks parts of a window `[frames, bins]` whose recording has the first `heard` frames: they become 0. Frames behind the recording
    /// are masked in no case.
    pub fn apply(&self, random: &mut Random, window: &mut [f32], bins: usize, heard: usize) {
        if !self.apply_spec_augment {
            return;
        }
        let heard = heard.min(window.len() / bins.max(1));
        for start in spans(random, heard, self.mask_time_prob, self.mask_time_length, self.mask_time_min_masks) {
            window[start * bins..(start + self.mask_time_length) * bins].fill(0.0);
        }
        let (share, width) = (self.mask_feature_prob, self.mask_feature_length);
        for start in spans(random, bins, share, width, self.mask_feature_min_masks) {
            window.chunks_exact_mut(bins).for_each(|frame| frame[start..start + width].fill(0.0));
        }
    }
}

/// Where masks of a width begin among `length` places, all at different ones: as `transformers`' `_compute_mask_indices` draws them.
fn spans(random: &mut Random, length: usize, share: f64, width: usize, least: usize) -> Vec<usize> {
    if share <= 0.0 || width == 0 || width > length {
        return Vec::new();
    }
    // Rounded up or down at random, so that the mean is the share also of short recordings.
    let count = (share * length as f64 / width as f64 + random.uniform()) as usize;
    let places = length - width + 1;
    let count = count.max(least).min(length / width).min(places);
    let mut starts: Vec<usize> = Vec::with_capacity(count);
    while starts.len() < count {
        let start = random.below(places);
        if !starts.contains(&start) {
            starts.push(start);
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINS: usize = 16;
    const FRAMES: usize = 120;

    fn masked(settings: &SpecAugment, seed: u64, heard: usize) -> Vec<f32> {
        let mut window = vec![1.0; FRAMES * BINS];
        settings.apply(&mut Random::new(seed, 3, 5), &mut window, BINS, heard);
        window
    }

    #[test]
    fn masks_have_their_width_and_about_their_share() {
        let time = SpecAugment { apply_spec_augment: true, mask_time_prob: 0.2, ..SpecAugment::default() };
        let mut total = 0;
        for seed in 0..200 {
            let window = masked(&time, seed, FRAMES);
            let frames: Vec<bool> =
                window.chunks_exact(BINS).map(|frame| frame.iter().all(|&value| value == 0.0)).collect();
            assert!(window.chunks_exact(BINS).zip(&frames).all(|(frame, &is)| is || !frame.contains(&0.0)));
            // No run of masked frames is shorter than a mask.
            assert!(frames.split(|&is| !is).all(|run| run.is_empty() || run.len() >= 10), "seed {seed}");
            let count = frames.iter().filter(|&&is| is).count();
            assert!((10..=30).contains(&count), "seed {seed}: {count}");
            total += count;
        }
        // Two or three masks of 10 frames, some of which overlap.
        assert!((18.0..24.0).contains(&(total as f64 / 200.0)), "{total}");
        assert_eq!(masked(&time, 7, FRAMES), masked(&time, 7, FRAMES));
        assert_ne!(masked(&time, 7, FRAMES), masked(&time, 8, FRAMES));
    }

    #[test]
    fn bands_go_through_all_frames_and_silence_is_left_alone() {
        let both = SpecAugment {
            apply_spec_augment: true,
            mask_feature_prob: 0.3,
            mask_feature_length: 4,
            mask_feature_min_masks: 1,
            mask_time_prob: 0.0,
            ..SpecAugment::default()
        };
        for seed in 0..50 {
            let window = masked(&both, seed, FRAMES);
            let first = &window[..BINS];
            assert!(window.chunks_exact(BINS).all(|frame| frame == first));
            assert!(first.iter().filter(|&&value| value == 0.0).count() >= 4);
        }
        let time = SpecAugment { apply_spec_augment: true, mask_time_prob: 0.9, ..SpecAugment::default() };
        for seed in 0..50 {
            assert!(masked(&time, seed, 40)[40 * BINS..].iter().all(|&value| value == 1.0), "seed {seed}");
            // Too short for one mask.
            assert!(masked(&time, seed, 9).iter().all(|&value| value == 1.0));
        }
        assert!(!masked(&SpecAugment::default(), 1, FRAMES).contains(&0.0));
    }
}
