//! One sequence that a language model writes: which token comes next, and when it is over.

use std::cmp::Ordering;

use vitreous_engine::{Error, Result, SlotCopy};

use super::request::{Ended, Request, RequestId, Stop, Update, WrittenToken};
use super::sample::{Choosing, Sampler, SeenTokens, draw_at, largest, log_sum, logprobs, penalise};
use super::search::{Candidate, Search, SearchOptions};
use super::slots::Slots;

/// A sequence that has slots.
pub(super) struct Sequence {
    pub id: RequestId,
    pub request: Request,
    /// One, or one per beam.
    pub slots: Vec<usize>,
    /// The tokens that the model sees: prompt, and what was written.
    view: Vec<u32>,
    /// How many were written.
    written: usize,
    /// The most tokens of a view.
    context: usize,
    seen: Option<SeenTokens>,
    beams: Option<Beams>,
}

/// The hypotheses of a search.
struct Beams {
    search: Search,
    /// Whether the first step is done: until then there is one hypothesis, the prompt.
    has_started: bool,
    /// Memory for a row of logarithmic probabilities.
    spare: Vec<f32>,
}

/// What a run gave for a sequence's slots.
pub(super) enum Rows<'r> {
    /// The likeliest token of each, below 0 if the logits are no numbers.
    Best(Vec<i32>),
    /// The logits of each.
    Logits(Vec<&'r [f32]>),
}

impl Sequence {
    pub fn new(id: RequestId, request: Request, vocabulary: usize, context: usize) -> Sequence {
        let mut view = request.prompt.clone();
        if let Some(kept) = request.shift.filter(|_| view.len() > context) {
            shift(&mut view, context, kept);
        }
        let seen = (request.sampling.repetition_penalty != 1.0).then(|| {
            let mut seen = SeenTokens::new(vocabulary);
            seen.extend(&request.prompt);
            seen
        });
        let beams = request.beams.map(|options| {
            // The last token that is written need not be read.
            let most = request.max_tokens.min(context + 1 - view.len()).max(1);
            let options = SearchOptions { beam: options.beam.max(1), ..options };
            Beams { search: Search::by_length(options, &request.ends, most), has_started: false, spare: Vec::new() }
        });
        Sequence { id, slots: Vec::new(), view, written: 0, context, seen, beams, request }
    }

    /// The tokens that the model sees.
    pub fn view(&self) -> &[u32] {
        &self.view
    }

    /// Whether nothing was written yet.
    pub fn is_prompt(&self) -> bool {
        self.written == 0 && self.beams.as_ref().is_none_or(|beams| !beams.has_started)
    }

    /// Tokens whose keys and values its slot does not have. One is left between steps.
    pub fn left_to_read(&self, slots: &Slots) -> usize {
        match &self.beams {
            Some(beams) if beams.has_started => 1,
            _ => self.view.len() - slots.tokens(self.slots[0]).len(),
        }
    }

    /// The slots that a step continues, each with its last token.
    pub fn stepping_tokens(&self) -> impl Iterator<Item = (usize, u32)> {
        let last = |tokens: &[u32]| tokens.last().or(self.view.last()).copied().unwrap_or(0);
        let beams = self.beams.as_ref().filter(|beams| beams.has_started);
        let tokens: Vec<u32> = match beams {
            Some(beams) => beams.search.living().map(|(tokens, _)| last(tokens)).collect(),
            None => vec![last(&[])],
        };
        self.slots.iter().copied().zip(tokens)
    }

    /// The slots that a step continues.
    pub fn stepping_slots(&self) -> impl Iterator<Item = usize> {
        self.stepping_tokens().map(|(slot, _)| slot)
    }

    /// Takes what a run gave, and says what is new. Beams go on from others' slots: `copies` gets what is to be copied.
    pub fn take(
        &mut self,
        rows: Rows,
        sampler: &mut Sampler,
        slots: &mut Slots,
        copies: &mut Vec<SlotCopy>,
    ) -> Result<Option<Update>> {
        if self.beams.is_some() {
            return self.search_on(&rows, slots, copies);
        }
        let token = match self.choose(&rows, sampler)? {
            Some(token) if !self.request.ends.contains(&token) => token,
            found => {
                let fulfilled = found.is_some() || self.request.constraint.as_ref().is_none_or(|rule| rule.may_end());
                let stop = if fulfilled { Stop::End } else { Stop::Constraint };
                return Ok(Some(self.over(None, stop)));
            }
        };
        let written = match (&rows, self.request.logprobs) {
            (Rows::Logits(rows), Some(count)) => {
                let (logprob, top) = logprobs(rows[0], token, count);
                WrittenToken { token, logprob: Some(logprob), top }
            }
            _ => WrittenToken { token, logprob: None, top: Vec::new() },
        };
        self.view.push(token);
        self.written += 1;
        if let Some(seen) = &mut self.seen {
            seen.extend(&[token]);
        }
        if let Some(constraint) = &mut self.request.constraint {
            constraint.accept(token);
        }
        if self.written >= self.request.max_tokens {
            return Ok(Some(self.over(Some(written), Stop::Length)));
        }
        if self.view.len() > self.context {
            let Some(kept) = self.request.shift else { return Ok(Some(self.over(Some(written), Stop::Context))) };
            let same = shift(&mut self.view, self.context, kept);
            slots.keep(self.slots[0], same);
        }
        Ok(Some(Update { id: self.id, token: Some(written), ended: None }))
    }

    fn over(&self, token: Option<WrittenToken>, stop: Stop) -> Update {
        Update { id: self.id, token, ended: Some(Ended { stop, hypotheses: Vec::new() }) }
    }

    /// The next token; `None` where a constraint allows none. An error if logits are no numbers.
    fn choose(&mut self, rows: &Rows, sampler: &mut Sampler) -> Result<Option<u32>> {
        let logits = match rows {
            Rows::Best(tokens) => return u32::try_from(tokens[0]).map(Some).map_err(|_| no_numbers()),
            Rows::Logits(rows) => rows[0],
        };
        let Request { sampling, sequence, ends, constraint, .. } = &mut self.request;
        let is_constrained = constraint.is_some();
        let constraint = constraint.as_mut().map(|constraint| constraint.as_mut() as _);
        let choosing = Choosing { options: sampling, seen: self.seen.as_ref(), constraint, ends };
        let draw = if sampling.is_greedy() { 0.0 } else { draw_at(sampling.seed, *sequence, self.written) };
        match sampler.choose(logits, choosing, draw) {
            None if !is_constrained || largest(logits).is_none() => Err(no_numbers()),
            found => Ok(found),
        }
    }

    /// A step of beam search.
    fn search_on(&mut self, rows: &Rows, slots: &mut Slots, copies: &mut Vec<SlotCopy>) -> Result<Option<Update>> {
        let (Rows::Logits(rows), Some(beams)) = (rows, &mut self.beams) else { return Err(no_numbers()) };
        let candidates = beams.candidates(rows, &self.view, self.request.sampling.repetition_penalty);
        let next = beams.search.go_on_with(candidates);
        beams.has_started = true;
        if next.is_empty() {
            let hypotheses = beams.search.clone().finish();
            let stop = match hypotheses.first() {
                Some(best) if best.ended => Stop::End,
                Some(best) if best.tokens.len() >= self.request.max_tokens => Stop::Length,
                Some(_) => Stop::Context,
                None => return Err(no_numbers()),
            };
            return Ok(Some(Update { id: self.id, token: None, ended: Some(Ended { stop, hypotheses }) }));
        }
        let moves = next.iter().enumerate().map(|(which, next)| (self.slots[next.parent], self.slots[which]));
        let moves: Vec<(usize, usize)> = moves.collect();
        for &(from, to) in &moves {
            copies.push(SlotCopy { to, from, rows: slots.rows(from) });
        }
        slots.copy_all(&moves);
        Ok(None)
    }
}

impl Beams {
    /// The best continuations of all hypotheses. A repetition penalty changes logarithmic probabilities here, as in `transformers`.
    fn candidates(&mut self, rows: &[&[f32]], prompt: &[u32], penalty: f32) -> Vec<Candidate> {
        let wanted = self.search.candidates();
        let mut best: Vec<Candidate> = Vec::new();
        for (parent, (row, (tokens, before))) in rows.iter().zip(self.search.living()).enumerate() {
            let sum = log_sum(row) as f32;
            self.spare.clear();
            self.spare.extend(row.iter().map(|logit| logit - sum));
            if penalty != 1.0 {
                let mut seen = SeenTokens::new(row.len());
                seen.extend(prompt);
                seen.extend(tokens);
                penalise(&mut self.spare, penalty, Some(&seen));
            }
            let order = |a: &Candidate, b: &Candidate| {
                b.log_probability.partial_cmp(&a.log_probability).unwrap_or(Ordering::Equal)
            };
            let all = (0u32..).zip(&self.spare).filter(|(_, log)| log.is_finite());
            let of = |(token, &log): (u32, &f32)| Candidate { parent, token, log_probability: before + f64::from(log) };
            for candidate in all.map(of) {
                let is_full = best.len() == wanted;
                if is_full && best[wanted - 1].log_probability >= candidate.log_probability {
                    continue;
                }
                let place = best.partition_point(|other| order(other, &candidate) != Ordering::Greater);
                if is_full {
                    best.pop();
                }
                best.insert(place, candidate);
            }
        }
        best
    }
}

/// Drops the oldest tokens of a view behind the first `kept`, so that half of the context is free; gives how many stay where they were.
fn shift(view: &mut Vec<u32>, context: usize, kept: usize) -> usize {
    let kept = kept.min(context / 4);
    let last = (context / 2).max(1).min(view.len() - kept);
    view.drain(kept..view.len() - last);
    kept
}

fn no_numbers() -> Error {
    let what = "the model's probabilities are no numbers (NaN): its weights are damaged or too large";
    Error::Machine(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_keeps_the_first_and_the_last_tokens() {
        let mut view: Vec<u32> = (0..17).collect();
        assert_eq!(shift(&mut view, 16, 2), 2);
        assert_eq!(view, [0, 1, 9, 10, 11, 12, 13, 14, 15, 16]);
        let mut view: Vec<u32> = (0..100).collect();
        shift(&mut view, 8, 50);
        assert_eq!(view, [0, 1, 96, 97, 98, 99]);
        let mut view = vec![1, 2];
        shift(&mut view, 1, 4);
        assert_eq!(view, [2]);
    }
}
