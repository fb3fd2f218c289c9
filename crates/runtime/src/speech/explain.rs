//! Where the decoder listens while it writes each word of a transcript.

use vitreous_data::audio::Spectrogram;

use super::segments::{Segment, Window, Word};
use super::{SpeechSettings, Transcriber, Transcript};
use crate::error::Error;

/// Positions of the encoder per second.
pub const POSITIONS_PER_SECOND: usize = 50;

/// A window of a recording, and the words that were heard in it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeardWindow {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Its log-mel spectrogram without padding: `[frames, bins]`.
    pub mel: Vec<f32>,
    /// Its words.
    pub words: Vec<HeardWord>,
}

/// A word, and where the decoder listened while it wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeardWord {
    /// The word with its times.
    pub word: Word,
    /// The mean attention of the alignment heads at each position of the window, 1 in all: two frames each.
    pub attention: Vec<f32>,
}

impl Transcriber<'_> {
    /// Transcribes a recording, and tells where the decoder listened while it wrote each word.
    pub fn explain(
        &mut self,
        recording: Spectrogram,
        settings: &SpeechSettings,
    ) -> Result<(Transcript, Vec<HeardWindow>), Error> {
        let settings = SpeechSettings { words: true, ..settings.clone() };
        self.heard = Some(Vec::new());
        let transcript = self.transcribe(recording, &settings);
        let heard = self.heard.take().unwrap_or_default();
        Ok((transcript?, heard))
    }
}

/// The words of a window's segments, with the attention of each: the mean over heads `[text tokens, positions]` and over its tokens.
pub(super) fn heard_window(
    window: Window,
    mel: &[f32],
    segments: &[Segment],
    heads: &[Vec<f32>],
    positions: usize,
) -> HeardWindow {
    let mut first = 0;
    let mut words = Vec::new();
    for word in segments.iter().flat_map(|segment| &segment.words) {
        let mut attention = vec![0f32; positions];
        for head in heads {
            let rows = head.chunks_exact(positions).skip(first).take(word.tokens);
            rows.for_each(|row| attention.iter_mut().zip(row).for_each(|(sum, &weight)| *sum += weight));
        }
        let sum = attention.iter().sum::<f32>().max(f32::MIN_POSITIVE);
        attention.iter_mut().for_each(|weight| *weight /= sum);
        words.push(HeardWord { word: word.clone(), attention });
        first += word.tokens;
    }
    HeardWindow { start: window.start(), mel: mel.to_vec(), words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_attention_of_their_tokens() {
        let word = |tokens: usize| Word { start: 0.0, end: 0.1, text: "a".to_string(), probability: 1.0, tokens };
        let segments = [
            Segment { words: vec![word(1)], ..Segment::default() },
            Segment { words: vec![word(2)], ..Segment::default() },
        ];
        // Two heads, three tokens, two positions.
        let heads = [vec![1.0, 0.0, 0.5, 0.5, 0.0, 1.0], vec![0.0, 1.0, 0.5, 0.5, 0.5, 0.5]];
        let heard = heard_window(Window { seek: 300, frames: 4 }, &[0.0; 8], &segments, &heads, 2);
        let attention: Vec<&[f32]> = heard.words.iter().map(|word| word.attention.as_slice()).collect();
        assert_eq!(attention, [&[0.5, 0.5][..], &[0.375, 0.625]]);
        assert_eq!(heard.start, 3.0);
    }
}
