//! When each word is said: where the decoder listens while it writes the word, made monotonic by dynamic time warping.

use vitreous_data::audio::SpeechVocabulary;

use super::segments::{Segment, Word};

/// Positions of the encoder per second.
const POSITIONS_PER_SECOND: f64 = 50.0;
/// Positions that attention is smoothed over.
const SMOOTHED: usize = 7;
/// Marks that belong to the word behind them, and to the word before them.
const BEFORE_WORDS: &str = "\"'“¿([{-";
const BEHIND_WORDS: &str = "\"'.。,，!！?？:：”)]}、";
const SENTENCE_ENDS: &str = ".。!！?？";

/// A word with its tokens and its time within a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AlignedWord {
    pub text: String,
    pub tokens: Vec<u32>,
    pub start: f64,
    pub end: f64,
    pub probability: f64,
}

/// Attention of one head to the audio: `[tokens, positions]`.
pub(super) type HeadWeights = Vec<f32>;

/// The matrix that time warping follows, of some heads' attention `[tokens, positions]` each: relative to the other tokens, smoothed,
/// and the mean of all heads.
pub(super) fn relative_attention(heads: &mut [HeadWeights], tokens: usize, positions: usize) -> Vec<f32> {
    let mut mean = vec![0f32; tokens * positions];
    for weights in heads.iter_mut() {
        for position in 0..positions {
            let column = |token: usize| token * positions + position;
            let values = (0..tokens).map(|token| f64::from(weights[column(token)]));
            let average = values.clone().sum::<f64>() / tokens as f64;
            let deviation = (values.map(|value| (value - average).powi(2)).sum::<f64>() / tokens as f64).sqrt();
            for token in 0..tokens {
                let value = &mut weights[column(token)];
                *value = ((f64::from(*value) - average) / deviation) as f32;
            }
        }
        for row in weights.chunks_exact_mut(positions) {
            let smoothed = median_filter(row, SMOOTHED);
            row.copy_from_slice(&smoothed);
        }
        mean.iter_mut().zip(weights.iter()).for_each(|(sum, &value)| *sum += value);
    }
    let count = heads.len().max(1) as f32;
    mean.iter_mut().for_each(|value| *value /= count);
    mean
}

/// The median of each value and those around it; behind both ends values are mirrored.
pub(super) fn median_filter(values: &[f32], width: usize) -> Vec<f32> {
    let half = width / 2;
    if values.len() <= half {
        return values.to_vec();
    }
    let last = values.len() as isize - 1;
    let mirrored = |place: isize| {
        let place = place.abs();
        values[if place > last { 2 * last - place } else { place } as usize]
    };
    let mut around = vec![0f32; width];
    (0..values.len() as isize)
        .map(|place| {
            around.iter_mut().zip(place - half as isize..).for_each(|(to, from)| *to = mirrored(from));
            around.sort_by(f32::total_cmp);
            around[half]
        })
        .collect()
}

/// The cheapest way through `cost [rows, columns]` from the first corner to the last, by steps down, right or both: the row and column of
/// each step.
pub(super) fn time_warp(cost: &[f32], rows: usize, columns: usize) -> Vec<(usize, usize)> {
    let at = |row: usize, column: usize| row * (columns + 1) + column;
    let mut sums = vec![f32::INFINITY; (rows + 1) * (columns + 1)];
    let mut steps = vec![0u8; (rows + 1) * (columns + 1)];
    sums[0] = 0.0;
    for column in 1..=columns {
        for row in 1..=rows {
            let [both, down, right] =
                [sums[at(row - 1, column - 1)], sums[at(row - 1, column)], sums[at(row, column - 1)]];
            let (sum, step) = match () {
                () if both < down && both < right => (both, 0),
                () if down < both && down < right => (down, 1),
                () => (right, 2),
            };
            sums[at(row, column)] = (f64::from(cost[(row - 1) * columns + column - 1]) + f64::from(sum)) as f32;
            steps[at(row, column)] = step;
        }
    }
    let (mut row, mut column) = (rows, columns);
    let mut path = Vec::new();
    while row > 0 || column > 0 {
        path.push((row.saturating_sub(1), column.saturating_sub(1)));
        match if row == 0 {
            2
        } else if column == 0 {
            1
        } else {
            steps[at(row, column)]
        } {
            0 => (row, column) = (row - 1, column - 1),
            1 => row -= 1,
            _ => column -= 1,
        }
    }
    path.reverse();
    path
}

/// The words of a window's text tokens with their times. `matrix [tokens + 1, positions]` is the attention while each token, and the end,
/// is written.
pub(super) fn align(
    vocabulary: &SpeechVocabulary,
    language: Option<&str>,
    tokens: &[u32],
    matrix: &[f32],
    positions: usize,
    probabilities: &[f64],
) -> Vec<AlignedWord> {
    let with_end: Vec<u32> = tokens.iter().copied().chain([vocabulary.end]).collect();
    let mut words = vocabulary.words(&with_end, language);
    words.pop();
    if words.is_empty() || positions == 0 {
        return Vec::new();
    }
    let cost: Vec<f32> = matrix.iter().map(|value| -value).collect();
    let path = time_warp(&cost, tokens.len() + 1, positions);
    // When each token begins.
    let mut times = Vec::with_capacity(tokens.len() + 1);
    let mut row_before = None;
    for (row, position) in path {
        if row_before != Some(row) {
            times.push(position as f64 / POSITIONS_PER_SECOND);
            row_before = Some(row);
        }
    }
    let time = |place: usize| times.get(place).or(times.last()).copied().unwrap_or(0.0);
    let mut first = 0;
    let mut aligned = Vec::with_capacity(words.len());
    for (text, tokens) in words {
        let end = first + tokens.len();
        let own = &probabilities[first.min(probabilities.len())..end.min(probabilities.len())];
        let probability = own.iter().sum::<f64>() / own.len().max(1) as f64;
        aligned.push(AlignedWord { text, start: time(first), end: time(end), probability, tokens });
        first = end;
    }
    aligned
}

/// Gives words to the segments of a window, and moves the ends of segments to those of their words where that is plausible.
pub(super) fn add_words(
    segments: &mut [Segment],
    mut words: Vec<AlignedWord>,
    offset: f64,
    end: u32,
    last_speech: f64,
) {
    let mut last_speech = last_speech;
    let mut durations: Vec<f64> =
        words.iter().map(|word| word.end - word.start).filter(|&duration| duration != 0.0).collect();
    durations.sort_by(f64::total_cmp);
    let usual = match durations.len() {
        0 => 0.0,
        count if count % 2 == 1 => durations[count / 2],
        count => (durations[count / 2 - 1] + durations[count / 2]) / 2.0,
    };
    let usual = usual.min(0.7);
    let longest = 2.0 * usual;
    if !durations.is_empty() {
        // Pauses between sentences belong to no word.
        for place in 1..words.len() {
            if words[place].end - words[place].start > longest {
                if is_among(&words[place].text, SENTENCE_ENDS) {
                    words[place].end = words[place].start + longest;
                } else if is_among(&words[place - 1].text, SENTENCE_ENDS) {
                    words[place].start = words[place].end - longest;
                }
            }
        }
    }
    join_punctuation(&mut words);
    let mut words = words.into_iter();
    for segment in segments {
        let tokens = segment.tokens.iter().filter(|&&token| token < end).count();
        let mut taken = 0;
        let mut own: Vec<Word> = Vec::new();
        while taken < tokens {
            let Some(word) = words.next() else { break };
            taken += word.tokens.len();
            if !word.text.is_empty() {
                let rounded = |seconds: f64| ((offset + seconds) * 100.0).round_ties_even() / 100.0;
                let (start, end) = (rounded(word.start), rounded(word.end));
                let (probability, tokens) = (word.probability, word.tokens.len());
                own.push(Word { start, end, text: word.text, probability, tokens });
            }
        }
        if !own.is_empty() {
            fit(segment, &mut own, usual, longest, last_speech);
            last_speech = segment.end;
        }
        segment.words = own;
    }
}

/// Words that are too long at the ends of a segment are shortened; otherwise the segment ends where its words do.
fn fit(segment: &mut Segment, words: &mut [Word], usual: f64, longest: f64, last_speech: f64) {
    let length = |word: &Word| word.end - word.start;
    let second = words.get(1).cloned();
    let is_long = length(&words[0]) > longest
        || second.as_ref().is_some_and(|second| second.end - words[0].start > 2.0 * longest);
    if words[0].end - last_speech > 4.0 * usual && is_long {
        if let Some(second) = second.filter(|second| length(second) > longest) {
            let boundary = (second.end / 2.0).max(second.end - longest);
            words[0].end = boundary;
            words[1].start = boundary;
        }
        words[0].start = (words[0].end - longest).max(0.0);
    }
    if segment.start < words[0].end && segment.start - 0.5 > words[0].start {
        words[0].start = (words[0].end - usual).min(segment.start).max(0.0);
    } else {
        segment.start = words[0].start;
    }
    let last = &mut words[words.len() - 1];
    if segment.end > last.start && segment.end + 0.5 < last.end {
        last.end = (last.start + usual).max(segment.end);
    } else {
        segment.end = last.end;
    }
}

/// Whether a text is one of some marks, or several of them as they stand there; an empty one is, too.
fn is_among(text: &str, marks: &str) -> bool {
    marks.contains(text)
}

/// Joins marks with the words that they belong to; what was joined is left empty.
fn join_punctuation(words: &mut [AlignedWord]) {
    let mut following = words.len().saturating_sub(1);
    for place in (0..words.len().saturating_sub(1)).rev() {
        if words[place].text.starts_with(' ') && is_among(words[place].text.trim(), BEFORE_WORDS) {
            let (text, tokens) = (std::mem::take(&mut words[place].text), std::mem::take(&mut words[place].tokens));
            words[following].text.insert_str(0, &text);
            words[following].tokens.splice(..0, tokens);
        } else {
            following = place;
        }
    }
    let mut previous = 0;
    for place in 1..words.len() {
        if !words[previous].text.ends_with(' ') && is_among(&words[place].text, BEHIND_WORDS) {
            let (text, tokens) = (std::mem::take(&mut words[place].text), std::mem::take(&mut words[place].tokens));
            words[previous].text.push_str(&text);
            words[previous].tokens.extend(tokens);
        } else {
            previous = place;
        }
    }
}
