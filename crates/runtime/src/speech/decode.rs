//! The text of a window of audio: greedy, drawn, or the best of several beams.

use vitreous_data::audio::SpeechVocabulary;
use vitreous_engine::random::Stream;
use vitreous_models::generate::{SpeechWriter, TextSlot};

use super::rules::{TextRules, best, best_several, compression_ratio, drawn, log_sum_exp};
use crate::error::Error;

/// What a window's text goes on from.
#[derive(Clone, Debug)]
pub(super) struct WindowPrompt {
    /// Earlier text, the start, language and task.
    pub tokens: Vec<u32>,
    /// Where the start is.
    pub start: usize,
}

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choosing {
    /// 0 takes the likeliest.
    pub temperature: f32,
    /// Texts of a window that are written at once: beams, or drawn ones of which the best is taken.
    pub texts: usize,
    /// Of beams: how many finished ones are waited for, times their number.
    pub patience: f32,
    /// Of several texts: their logarithmic probabilities are divided by ((5 + length) / 6) to this power; `None`: by their length.
    pub length_penalty: Option<f32>,
    /// The seed of what is drawn.
    pub seed: u64,
}

/// The text of a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WindowText {
    pub tokens: Vec<u32>,
    pub text: String,
    /// The mean logarithmic probability of its tokens, its end included.
    pub mean_log_probability: f64,
    pub no_speech: f64,
    pub temperature: f32,
    pub compression_ratio: f64,
}

/// A text that is being written.
#[derive(Clone, Debug, Default)]
struct Draft {
    tokens: Vec<u32>,
    log_probability: f64,
    ended: bool,
}

/// The texts of one window.
struct WindowDrafts {
    prompt: usize,
    no_speech: f64,
    drafts: Vec<Draft>,
    /// Of beams: those that have ended.
    finished: Vec<Draft>,
    done: bool,
}

/// What texts are written with.
pub(super) struct Writing<'a, 'w> {
    pub writer: &'a mut SpeechWriter<'w>,
    pub vocabulary: &'a SpeechVocabulary,
    pub rules: &'a TextRules,
    /// The most tokens of a text.
    pub most_tokens: usize,
}

impl Writing<'_, '_> {
    /// Writes the texts of windows that were listened to, in the slots from one on: each window has `slots` of them.
    pub fn write(
        &mut self,
        first: usize,
        slots: usize,
        prompts: &[WindowPrompt],
        choosing: Choosing,
    ) -> Result<Vec<WindowText>, Error> {
        let count = self.vocabulary.size();
        let texts = choosing.texts.clamp(1, slots);
        let mut windows = Vec::new();
        let mut rows: Vec<f32> = Vec::new();
        for (index, prompt) in prompts.iter().enumerate() {
            let slot = first + index * slots;
            let (no_speech, logits) = self.read_prompt(slot, prompt)?;
            (0..slots).for_each(|_| rows.extend_from_slice(&logits));
            let copies: Vec<(usize, usize)> = (1..texts).map(|other| (slot + other, slot)).collect();
            self.writer.go_on(&copies, prompt.tokens.len())?;
            let drafts = vec![Draft::default(); texts];
            windows.push(WindowDrafts {
                prompt: prompt.tokens.len(),
                no_speech,
                drafts,
                finished: Vec::new(),
                done: false,
            });
        }
        let longest = self.writer.input().target.longest;
        for step in 0..self.most_tokens {
            for (index, window) in windows.iter_mut().enumerate().filter(|(_, window)| !window.done) {
                let own = &mut rows[index * slots * count..][..texts * count];
                match choosing.temperature == 0.0 && texts > 1 {
                    true => self.continue_beams(window, own, first + index * slots, step, choosing)?,
                    false => self.continue_drafts(window, own, index, step, choosing),
                }
                window.done |= window.prompt + step + 1 > longest;
            }
            // The last token is not read any more.
            if windows.iter().all(|window| window.done) || step + 1 == self.most_tokens {
                break;
            }
            let last: Vec<(u32, usize)> = windows
                .iter()
                .flat_map(|window| {
                    let place = (window.prompt + step).min(longest - 1);
                    (0..slots).map(move |slot| {
                        let draft = window.drafts.get(slot).filter(|draft| !draft.ended);
                        (draft.and_then(|draft| draft.tokens.last().copied()).unwrap_or(0), place)
                    })
                })
                .collect();
            let inputs: Vec<TextSlot> = last
                .iter()
                .map(|(token, place)| TextSlot { tokens: std::slice::from_ref(token), place: *place })
                .collect();
            rows.clear();
            rows.extend_from_slice(self.writer.read(first, &inputs)?);
        }
        windows.into_iter().map(|window| self.finish(window, choosing)).collect()
    }

    /// Reads a prompt: how likely there is no speech, and the logits of the first token.
    fn read_prompt(&mut self, slot: usize, prompt: &WindowPrompt) -> Result<(f64, Vec<f32>), Error> {
        let (before, after) = prompt.tokens.split_at(prompt.start + 1);
        let logits = self.writer.read(slot, &[TextSlot { tokens: before, place: 0 }])?;
        let no_speech = self
            .vocabulary
            .no_speech
            .map_or(0.0, |token| (f64::from(logits[token as usize]) - log_sum_exp(logits)).exp());
        if after.is_empty() {
            return Ok((no_speech, logits.to_vec()));
        }
        let logits = self.writer.read(slot, &[TextSlot { tokens: after, place: before.len() }])?;
        Ok((no_speech, logits.to_vec()))
    }

    /// Adds a token to each text: the likeliest, or a drawn one.
    fn continue_drafts(
        &self,
        window: &mut WindowDrafts,
        rows: &mut [f32],
        index: usize,
        step: usize,
        choosing: Choosing,
    ) {
        let vocabulary = self.vocabulary.size();
        for (number, (draft, logits)) in window.drafts.iter_mut().zip(rows.chunks_exact_mut(vocabulary)).enumerate() {
            if draft.ended {
                continue;
            }
            self.rules.apply(logits, &draft.tokens);
            let token = match choosing.temperature > 0.0 {
                false => best(logits),
                true => {
                    let place = (index as u64) << 32 | number as u64;
                    let [bits, ..] =
                        Stream::new(choosing.seed, step as u64, place).four(u64::from(choosing.temperature.to_bits()));
                    drawn(logits, choosing.temperature, f64::from(bits) / f64::from(u32::MAX))
                }
            };
            // Logits that are no numbers end a text.
            let token = token.unwrap_or(self.vocabulary.end);
            let own = f64::from(logits[token as usize]) - log_sum_exp(logits);
            draft.log_probability += if own.is_finite() { own } else { 0.0 };
            draft.ended = token == self.vocabulary.end;
            if !draft.ended {
                draft.tokens.push(token);
            }
        }
        window.done = window.drafts.iter().all(|draft| draft.ended);
    }

    /// A step of beam search, as OpenAI has it: the best continuations that do not end live on.
    fn continue_beams(
        &mut self,
        window: &mut WindowDrafts,
        rows: &mut [f32],
        first: usize,
        step: usize,
        choosing: Choosing,
    ) -> Result<(), Error> {
        let (beams, vocabulary) = (window.drafts.len(), self.vocabulary.size());
        let mut found: Vec<(Vec<u32>, f64, usize)> = Vec::new();
        for (number, (draft, logits)) in window.drafts.iter().zip(rows.chunks_exact_mut(vocabulary)).enumerate() {
            self.rules.apply(logits, &draft.tokens);
            for (token, log_probability) in best_several(logits, beams + 1) {
                let tokens: Vec<u32> = draft.tokens.iter().copied().chain([token]).collect();
                // At first all beams are the same.
                if !found.iter().any(|(known, _, _)| *known == tokens) {
                    found.push((tokens, draft.log_probability + log_probability, number));
                }
            }
        }
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (mut next, mut parents, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        for (mut tokens, log_probability, parent) in found {
            if tokens.last() == Some(&self.vocabulary.end) {
                tokens.pop();
                ended.push(Draft { tokens, log_probability, ended: true });
                continue;
            }
            next.push(Draft { tokens, log_probability, ended: false });
            parents.push((first + parents.len(), first + parent));
            if next.len() == beams {
                break;
            }
        }
        let most = ((beams as f32 * choosing.patience).round() as usize).max(1);
        let room = most.saturating_sub(window.finished.len());
        window.finished.extend(ended.into_iter().take(room));
        window.done = window.finished.len() >= most || next.is_empty();
        self.writer.go_on(&parents, window.prompt + step)?;
        if !next.is_empty() {
            // Fewer candidates than beams: the last one again.
            while next.len() < beams {
                next.push(Draft { log_probability: f64::NEG_INFINITY, ..next[next.len() - 1].clone() });
            }
            window.drafts = next;
        }
        Ok(())
    }

    /// The best text of a window.
    fn finish(&self, window: WindowDrafts, choosing: Choosing) -> Result<WindowText, Error> {
        let WindowDrafts { mut drafts, mut finished, no_speech, .. } = window;
        let is_beam = choosing.temperature == 0.0 && drafts.len() > 1;
        if is_beam && finished.len() < drafts.len() {
            let beams = drafts.len();
            drafts.sort_by(|a, b| b.log_probability.total_cmp(&a.log_probability));
            finished.extend(drafts.iter().take(beams - finished.len()).cloned());
        }
        let all = if is_beam { finished } else { drafts };
        let score = |draft: &Draft| {
            let length = draft.tokens.len() as f64;
            let divisor =
                choosing.length_penalty.map_or(length.max(1e-9), |power| ((5.0 + length) / 6.0).powf(f64::from(power)));
            draft.log_probability / divisor
        };
        // Of equal ones the first.
        let mut chosen: Option<(f64, Draft)> = None;
        for draft in all {
            let own = score(&draft);
            if chosen.as_ref().is_none_or(|(best, _)| own > *best) {
                chosen = Some((own, draft));
            }
        }
        let Draft { tokens, log_probability, .. } = chosen.map(|(_, draft)| draft).unwrap_or_default();
        let text = self.vocabulary.decode(&tokens)?.trim().to_string();
        Ok(WindowText {
            mean_log_probability: log_probability / (tokens.len() + 1) as f64,
            compression_ratio: compression_ratio(&text),
            no_speech,
            temperature: choosing.temperature,
            tokens,
            text,
        })
    }
}
