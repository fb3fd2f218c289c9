//! What may be written next, by OpenAI's rules, and how likely it is.

use vitreous_data::audio::SpeechVocabulary;

/// The rules of a text.
#[derive(Clone, Debug)]
pub struct TextRules {
    /// The token that ends a text.
    pub end: u32,
    /// The first timestamp.
    pub first_timestamp: u32,
    /// The token that says that no timestamps follow.
    pub no_timestamps: u32,
    /// Tokens that are never written.
    pub suppressed: Vec<u32>,
    /// Tokens that no text begins with.
    pub blank: Vec<u32>,
    /// Whether timestamps are written.
    pub timestamps: bool,
    /// The largest timestamp that a text may begin with, counted from the first.
    pub largest_first: Option<u32>,
}

impl TextRules {
    /// Sets the logits of what must not come next to -∞, behind tokens that were written so far.
    pub fn apply(&self, logits: &mut [f32], written: &[u32]) {
        let forbid = |logits: &mut [f32], tokens: &[u32]| {
            for &token in tokens {
                if let Some(logit) = logits.get_mut(token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        };
        if written.is_empty() {
            forbid(logits, &self.blank);
        }
        forbid(logits, &self.suppressed);
        if self.timestamps {
            forbid(logits, &[self.no_timestamps]);
            self.apply_timestamps(logits, written);
        }
    }

    /// Timestamps come in pairs, but at the beginning and before the end; they do not go back; and where they are likelier together than
    /// any text, one of them comes.
    fn apply_timestamps(&self, logits: &mut [f32], written: &[u32]) {
        let first = (self.first_timestamp as usize).min(logits.len());
        let end = (self.end as usize).min(first);
        let is_timestamp = |token: &u32| *token >= self.first_timestamp;
        let last_was = written.last().is_some_and(is_timestamp);
        let one_before_was = written.len() < 2 || is_timestamp(&written[written.len() - 2]);
        if last_was && one_before_was {
            logits[first..].fill(f32::NEG_INFINITY);
        } else if last_was {
            logits[..end].fill(f32::NEG_INFINITY);
        }
        if let Some(&latest) = written.iter().rev().find(|token| is_timestamp(token)) {
            // A segment has some length, so that nothing goes on forever.
            let least = if last_was && !one_before_was { latest } else { latest + 1 };
            let least = (least as usize).clamp(first, logits.len());
            logits[first..least].fill(f32::NEG_INFINITY);
        }
        if written.is_empty() {
            logits[..first].fill(f32::NEG_INFINITY);
            if let Some(largest) = self.largest_first {
                let behind = (first + largest as usize + 1).min(logits.len());
                logits[behind..].fill(f32::NEG_INFINITY);
            }
        }
        let (text, times) = logits.split_at_mut(first);
        let likeliest = text.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if log_sum_exp(times) > f64::from(likeliest) {
            text.fill(f32::NEG_INFINITY);
        }
    }
}

impl TextRules {
    /// The rules of a vocabulary.
    pub fn new(
        vocabulary: &SpeechVocabulary,
        timestamps: bool,
        largest_first: Option<u32>,
    ) -> Result<TextRules, crate::Error> {
        Ok(TextRules {
            end: vocabulary.end,
            first_timestamp: vocabulary.first_timestamp,
            no_timestamps: vocabulary.no_timestamps,
            suppressed: vocabulary.suppressed()?,
            blank: vocabulary.blank()?,
            timestamps,
            largest_first,
        })
    }
}

/// The logarithm of the sum of exponentials; -∞ if all are.
pub(super) fn log_sum_exp(values: &[f32]) -> f64 {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !largest.is_finite() {
        return f64::from(largest);
    }
    // Partial sums of a few hundred values in f32 lose nothing that matters, and can be computed side by side.
    let sum: f64 = values
        .chunks(256)
        .map(|part| f64::from(part.iter().map(|&value| exponential(value - largest)).sum::<f32>()))
        .sum();
    f64::from(largest) + sum.ln()
}

/// e^x for x ≤ 0, to about 1e-7; written so that the compiler computes several at once, as the library's function does not allow.
fn exponential(x: f32) -> f32 {
    let x = x.max(-87.0);
    let whole = (x * std::f32::consts::LOG2_E + 0.5).floor();
    // ln 2 in two parts, so that the difference is exact.
    let rest = (x - whole * 0.693_359_4) + whole * 2.121_944_4e-4;
    let series = rest
        * (1.0
            + rest
                * (0.5 + rest * (0.166_666_55 + rest * (0.041_665_795 + rest * (0.008_333_452 + rest * 0.001_393_2)))));
    let power = f32::from_bits((((whole as i32) + 127) << 23) as u32);
    (1.0 + series) * power
}

/// The token with the largest logit; `None` if there is none.
pub(super) fn best(logits: &[f32]) -> Option<u32> {
    let mut found = (f32::NEG_INFINITY, None);
    for (token, &logit) in logits.iter().enumerate() {
        if logit > found.0 {
            found = (logit, Some(token as u32));
        }
    }
    found.1
}

/// The `count` tokens with the largest logits, the best first, with their logarithmic probabilities.
pub(super) fn best_several(logits: &[f32], count: usize) -> Vec<(u32, f64)> {
    let all = log_sum_exp(logits);
    let mut order: Vec<u32> =
        (0..logits.len() as u32).filter(|&token| logits[token as usize] > f32::NEG_INFINITY).collect();
    let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if order.len() > count && count > 0 {
        order.select_nth_unstable_by(count - 1, by_logit);
        order.truncate(count);
    }
    order.sort_by(by_logit);
    order.into_iter().map(|token| (token, f64::from(logits[token as usize]) - all)).collect()
}

/// A token drawn by the softmax of logits divided by a temperature; `draw` is from 0 to 1.
pub(super) fn drawn(logits: &[f32], temperature: f32, draw: f64) -> Option<u32> {
    let scaled: Vec<f32> = logits.iter().map(|&logit| logit / temperature).collect();
    let all = log_sum_exp(&scaled);
    let mut left = draw;
    let mut last = None;
    for (token, &logit) in scaled.iter().enumerate().filter(|(_, logit)| **logit > f32::NEG_INFINITY) {
        left -= (f64::from(logit) - all).exp();
        last = Some(token as u32);
        if left <= 0.0 {
            break;
        }
    }
    last
}

/// Bytes of a text over those of the text compressed: repetitions have large ratios.
pub fn compression_ratio(text: &str) -> f64 {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    compressed.map_or(1.0, |compressed| text.len() as f64 / compressed.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_and_their_sums_are_those_of_the_library() {
        for step in 0..2000 {
            let x = -0.04 * step as f32;
            let expected = f64::from(x).exp();
            assert!((f64::from(exponential(x)) - expected).abs() <= 2.5e-7 * expected + 1e-37, "{x}");
        }
        let values: Vec<f32> = (0..5000).map(|index| ((index * 37 % 1000) as f32) * 0.02 - 10.0).collect();
        let expected = values.iter().map(|&value| f64::from(value).exp()).sum::<f64>().ln();
        assert!((log_sum_exp(&values) - expected).abs() < 1e-6);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 3]), f64::NEG_INFINITY);
    }

    #[test]
    fn tokens_are_drawn_by_their_share() {
        let logits = [0.5f32.ln(), f32::NEG_INFINITY, 0.25f32.ln(), 0.25f32.ln()];
        assert_eq!(
            [0.0, 0.49, 0.51, 0.74, 0.76, 1.0].map(|draw| drawn(&logits, 1.0, draw)),
            [0, 0, 2, 2, 3, 3].map(Some)
        );
        assert_eq!(drawn(&[f32::NEG_INFINITY; 2], 1.0, 0.5), None);
        assert_eq!(best_several(&logits, 2).iter().map(|(token, _)| *token).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(best(&logits), Some(0));
    }
}
