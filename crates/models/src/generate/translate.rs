//! Translating: sentences through the encoder, then token by token through the decoder, many at once.
//!
//! The decoder has a fixed number of slots, each with its own keys and values. When a sentence has ended, the next one takes its
//! slots, so that no slot waits for the longest sentence of a batch.

use std::collections::VecDeque;
use std::sync::Arc;

use vitreous_engine::{Device, Error, Precision, Result, ResultCopy, SlotCopy};

use super::decoder::{Decoder, PlanShape, SlotInput, StepOutput, cache_format};
use super::encoder::Encoders;
use super::rules::TargetRules;
use super::search::{Candidate, Hypothesis, Next, NextTokens, Search, SearchOptions};

use crate::call::StepShape;
use crate::family::Architecture;
use crate::on_device::{OnDevice, Weights};
use crate::signature::SpecialTokens;

/// Slots that a decoder has at least, if sentences become fewer: products of hardly any rows want their weights otherwise.
const LEAST_SLOTS: usize = 8;
/// Hypotheses that are computed at once, if nobody asks for another number: enough to keep a device busy.
const USUAL_SLOTS: usize = 64;
const USUAL_SLOTS_OF_GPU: usize = 1024;

/// Plans that are kept on the CPU: sentences become fewer, and do not become more again.
const KEPT_PLANS: usize = 1;

/// How to translate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TranslateOptions {
    /// How tokens are chosen.
    pub search: SearchOptions,
    /// Hypotheses that are computed at once; at least a sentence's beam. `None`: as many as keep the device busy.
    pub slots: Option<usize>,
    /// The most tokens of a translation, beyond the number of its source's.
    pub extra_tokens: usize,
    /// The precision to compute in.
    pub precision: Precision,
}

/// How shapes follow from sentences. On a GPU, where kernels are compiled and algorithms measured for each shape, there are few shapes,
/// and what is computed for nothing costs little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shapes {
    /// Caches have room for lengths up to a multiple of this, so that they serve sentences that are hardly longer, too.
    length_step: usize,
    /// Tokens that all slots together have room for: where one sentence is very long, fewer are decoded at once.
    most_kept_tokens: usize,
    /// The encoder's lengths are multiples of this.
    encoder_step: usize,
    /// Tokens that are encoded at once.
    most_encoded_tokens: usize,
    /// Whether numbers of sentences are rounded up to powers of two, and the decoder keeps its slots when sentences become fewer.
    is_rounded: bool,
}

impl Shapes {
    fn of(device: &Device) -> Shapes {
        match device.is_gpu() {
            false => Shapes {
                length_step: 8,
                most_kept_tokens: 1 << 16,
                encoder_step: 1,
                most_encoded_tokens: usize::MAX,
                is_rounded: false,
            },
            true => Shapes {
                length_step: 64,
                most_kept_tokens: 1 << 18,
                encoder_step: 16,
                most_encoded_tokens: 1 << 15,
                is_rounded: true,
            },
        }
    }

    /// A number of sentences as a shape has it.
    fn count(&self, sentences: usize, most: usize) -> usize {
        let rounded = if self.is_rounded { sentences.next_power_of_two() } else { sentences };
        rounded.min(most).max(1)
    }
}

/// A model made ready to translate on a device.
pub struct Translator<'w> {
    model: &'w dyn Architecture,
    /// The longest source and target.
    longest: usize,
    special: SpecialTokens,
    options: TranslateOptions,
    /// How `transformers` would choose the tokens; otherwise as the paper.
    rules: Option<Arc<TargetRules>>,
    vocabulary: usize,
    shapes: Shapes,
    source: OnDevice<'w>,
    encoders: Encoders,
    decoder: Option<Decoder<'w>>,
}

/// A sentence that is being written.
struct Sentence {
    index: usize,
    search: Search,
    /// The last token of each hypothesis.
    tokens: Vec<u32>,
    /// Tokens so far.
    place: usize,
    source_length: usize,
}

/// A source whose keys and values the encoder has.
struct Encoded {
    index: usize,
    /// Its place among those that were encoded together.
    row: usize,
    /// Its tokens, with the end.
    length: usize,
}

impl<'w> Translator<'w> {
    /// A translator on a device, with the parameters that `weights` gives by name. An error if the model takes no pairs.
    pub fn new(
        model: &'w dyn Architecture,
        special: SpecialTokens,
        options: TranslateOptions,
        device: &Device,
        weights: Weights<'w>,
    ) -> Result<Translator<'w>> {
        let signature = model.signature();
        let Some((of_source, of_target)) = signature.pairs() else {
            return Err(Error::Machine(format!("this is {}, which does not translate", signature.what())));
        };
        let longest = of_source.longest.min(of_target.longest);
        let mut options = options;
        options.search.beam = options.search.beam.max(1);
        let source = OnDevice::new(device, weights);
        let shapes = Shapes::of(device);
        let encoders = Encoders::default();
        let vocabulary = of_target.vocabulary;
        let (rules, decoder) = (None, None);
        Ok(Translator { model, longest, special, options, rules, vocabulary, shapes, source, encoders, decoder })
    }

    /// With the rules of `transformers`' `generate`. They can change between calls.
    pub fn set_rules(&mut self, rules: TargetRules) {
        self.rules = Some(Arc::new(rules));
    }

    /// The token that targets begin with, as for another language. It can change between calls.
    pub fn set_start(&mut self, start: u32) {
        self.special.start = start;
    }

    /// Makes itself ready anew for the next sentences, whatever came before, so that they give the same bits again. Weights stay.
    pub fn forget(&mut self) {
        self.decoder = None;
        self.encoders = Encoders::default();
    }

    /// The longest source and target, with special tokens.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Translates sources, given without start and end: of each its hypotheses, the best first. What is longer than the model can read is cut.
    pub fn translate(&mut self, sources: &[Vec<u32>]) -> Result<Vec<Vec<Hypothesis>>> {
        let with_end = |source: &Vec<u32>| -> Vec<u32> {
            let kept = source.len().min(self.longest.saturating_sub(1));
            source[..kept].iter().copied().chain([self.special.end]).collect()
        };
        let sources: Vec<Vec<u32>> = sources.iter().map(with_end).collect();
        self.write(&sources)
    }

    /// Writes a target for each source, given as the encoder reads it, with its special tokens: of each the hypotheses, the best first.
    pub fn write(&mut self, sources: &[Vec<u32>]) -> Result<Vec<Vec<Hypothesis>>> {
        if let Some(source) = sources.iter().find(|source| source.is_empty() || source.len() > self.longest) {
            let (tokens, longest) = (source.len(), self.longest);
            return Err(Error::Machine(format!("a source has {tokens} tokens; a model reads from 1 to {longest}")));
        }
        let mut found = vec![Vec::new(); sources.len()];
        // The longest first: a long one that began last would be decoded alone.
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(sources[index].len()));
        let Some(&longest) = order.first() else { return Ok(found) };
        let groups = self.prepare_decoder(&sources[longest], sources.len())?;

        let mut waiting: VecDeque<usize> = order.into();
        let mut ready: VecDeque<Encoded> = VecDeque::new();
        let mut writing: Vec<Option<Sentence>> = (0..groups).map(|_| None).collect();
        loop {
            self.fill_groups(sources, &mut waiting, &mut ready, &mut writing)?;
            match writing.iter().flatten().count() {
                0 => return Ok(found),
                // More slots than sentences: no other waits, or there would be none.
                left if 2 * left <= writing.len() => self.move_together(&mut writing)?,
                _ => {}
            }
            self.step(&mut writing, &mut found)?;
        }
    }

    fn most_tokens(&self, source: &[u32]) -> usize {
        let most = self.rules.as_ref().and_then(|rules| rules.max_tokens);
        most.unwrap_or(source.len() + self.options.extra_tokens).clamp(1, self.longest)
    }

    /// What is wanted of the logits of a step.
    fn output(&self) -> StepOutput {
        match &self.rules {
            None => StepOutput::Likeliest(self.options.search.candidates()),
            Some(rules) if rules.needs_all() => StepOutput::Logits,
            Some(rules) => StepOutput::Likeliest(self.candidates(rules) + rules.usual_forbidden()),
        }
    }

    /// How many of the best continuations a search by rules needs: as many live on if all ends are among them.
    fn candidates(&self, rules: &TargetRules) -> usize {
        self.options.search.beam * (1 + rules.ends.len()).max(2)
    }

    /// Makes a decoder for so many sentences, unless the one that is there can do it; gives how many of them it takes at once.
    fn prepare_decoder(&mut self, longest: &[u32], sentences: usize) -> Result<usize> {
        let beam = self.options.search.beam;
        let room = |length: usize| length.next_multiple_of(self.shapes.length_step).min(self.longest);
        let source = room(longest.len());
        let capacity = room(self.most_tokens(longest));
        let usual = if self.source.device().is_gpu() { USUAL_SLOTS_OF_GPU } else { USUAL_SLOTS };
        let slots = self.options.slots.unwrap_or(usual.max(beam));
        let slots = slots.min(self.shapes.most_kept_tokens / (source + capacity));
        let mut groups = self.shapes.count(sentences, slots / beam);
        let cache = cache_format(self.source.device(), self.options.precision);
        let mut shape = StepShape { batch: groups * beam, source, capacity, cache };
        if !self.decoder.as_ref().is_some_and(|decoder| decoder.has_room_for(shape)) {
            // The old one's memory goes before the new one's comes.
            self.decoder = None;
            let precision = self.options.precision;
            while self.source.device().is_gpu() && groups > 1 && !self.fits(shape)? {
                groups /= 2;
                shape.batch = groups * beam;
            }
            let plan = self.plan_shape(shape);
            self.decoder = Some(Decoder::new(&mut self.source, self.model, precision, shape, plan, KEPT_PLANS, None)?);
        }
        self.use_slots(shape.batch)?;
        Ok(groups)
    }

    /// Whether a decoder takes at most half of the memory that a GPU has left.
    fn fits(&self, shape: StepShape) -> Result<bool> {
        let (device, options) = (self.source.device(), &self.options);
        let needed = Decoder::bytes_needed(&self.source, self.model, options.precision, shape, self.plan_shape(shape))?;
        Ok(device.available_memory()?.is_none_or(|available| needed as u64 <= available / 2))
    }

    /// The plan for all slots of caches of a shape.
    fn plan_shape(&self, room: StepShape) -> PlanShape {
        PlanShape { slots: room.batch, tokens: room.source, output: self.output() }
    }

    /// Makes ready for steps of the first so many slots.
    fn use_slots(&mut self, slots: usize) -> Result<()> {
        let output = self.output();
        self.use_output(slots, output)
    }

    /// Makes ready for steps of the first so many slots that give something else of their logits than usual.
    fn use_output(&mut self, slots: usize, output: StepOutput) -> Result<()> {
        let (decoder, source) = self.decoder()?;
        decoder.use_plan(source, PlanShape { slots, tokens: decoder.room().source, output })
    }

    /// The decoder, and what it is made of.
    fn decoder(&mut self) -> Result<(&mut Decoder<'w>, &mut OnDevice<'w>)> {
        match &mut self.decoder {
            Some(decoder) => Ok((decoder, &mut self.source)),
            None => Err(Error::Machine("the decoder was not prepared".to_string())),
        }
    }

    /// Gives sentences that wait to groups of slots that nobody has.
    fn fill_groups(
        &mut self,
        sources: &[Vec<u32>],
        waiting: &mut VecDeque<usize>,
        ready: &mut VecDeque<Encoded>,
        writing: &mut [Option<Sentence>],
    ) -> Result<()> {
        let beam = self.options.search.beam;
        let groups = writing.len();
        let mut copies = Vec::new();
        for (group, slot) in writing.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
            if ready.is_empty() {
                // What the encoder has is taken before it computes something else.
                self.take_sources(&copies)?;
                copies.clear();
                ready.extend(self.encode(sources, waiting, groups)?);
            }
            let Some(Encoded { index, row, length }) = ready.pop_front() else { break };
            let slots = group * beam..(group + 1) * beam;
            copies.extend(slots.map(|slot| ResultCopy { sample: row, slot, rows: length }));
            let most_tokens = self.most_tokens(&sources[index]);
            let search = match &self.rules {
                Some(rules) => Search::by_rules(self.options.search, rules, most_tokens),
                None => Search::new(self.options.search, self.special.end, most_tokens),
            };
            let tokens = vec![self.special.start; beam];
            *slot = Some(Sentence { index, search, tokens, place: 0, source_length: length });
        }
        self.take_sources(&copies)
    }

    fn take_sources(&mut self, copies: &[ResultCopy]) -> Result<()> {
        match (&mut self.decoder, self.encoders.last()) {
            (Some(decoder), Some(encoder)) if !copies.is_empty() => decoder.take_sources(encoder, copies),
            _ => Ok(()),
        }
    }

    /// Encodes some of the sources that wait, at most so many. What it computes stays in the encoder until the next are encoded.
    fn encode(&mut self, sources: &[Vec<u32>], waiting: &mut VecDeque<usize>, most: usize) -> Result<Vec<Encoded>> {
        let Some(&first) = waiting.front() else { return Ok(Vec::new()) };
        // The longest wait first.
        let longest = sources[first].len();
        let length = longest.next_multiple_of(self.shapes.encoder_step).min(self.longest).max(longest);
        let most = (self.shapes.most_encoded_tokens / length).clamp(1, most);
        let batch: Vec<usize> = waiting.drain(..most.min(waiting.len())).collect();
        let shape = (self.shapes.count(batch.len(), most), length);
        let cache = cache_format(self.source.device(), self.options.precision);
        self.encoders.prepare(&mut self.source, self.model, self.options.precision, cache, shape)?;
        let tokens: Vec<&[u32]> = batch.iter().map(|&index| sources[index].as_slice()).collect();
        if let Some(encoder) = self.encoders.last() {
            encoder.run(&tokens, self.special.padding)?;
        }
        let encoded = batch.into_iter().enumerate();
        Ok(encoded.map(|(row, index)| Encoded { index, row, length: sources[index].len() }).collect())
    }

    /// Moves the sentences that are left into the first slots, and goes on with hardly more slots than they need.
    fn move_together(&mut self, writing: &mut Vec<Option<Sentence>>) -> Result<()> {
        let beam = self.options.search.beam;
        let left = writing.iter().flatten().count();
        let groups = left.next_power_of_two().max(LEAST_SLOTS.div_ceil(beam));
        if groups >= writing.len() || self.shapes.is_rounded {
            return Ok(());
        }
        let (mut own, mut sources) = (Vec::new(), Vec::new());
        let there = writing.iter().enumerate().filter_map(|(group, sentence)| Some((group, sentence.as_ref()?)));
        for (to, (from, sentence)) in there.enumerate() {
            for slot in 0..beam {
                let (to, from) = (to * beam + slot, from * beam + slot);
                own.push(SlotCopy { to, from, rows: sentence.place });
                sources.push(SlotCopy { to, from, rows: sentence.source_length });
            }
        }
        *writing = std::mem::take(writing).into_iter().filter(Option::is_some).collect();
        writing.resize_with(groups, || None);
        let (decoder, _) = self.decoder()?;
        decoder.copy_own(&own)?;
        decoder.copy_sources(&sources)?;
        self.use_slots(groups * beam)
    }

    /// One token for every sentence.
    fn step(&mut self, writing: &mut [Option<Sentence>], found: &mut [Vec<Hypothesis>]) -> Result<()> {
        let beam = self.options.search.beam;
        // Slots that nobody has compute something, too: the shortest there is.
        let idle = SlotInput { token: self.special.start, place: 0, source_length: 1 };
        let mut inputs = vec![idle; writing.len() * beam];
        for (slots, sentence) in inputs.chunks_exact_mut(beam).zip(writing.iter()) {
            let Some(Sentence { tokens, place, source_length, .. }) = sentence else { continue };
            for (slot, &token) in slots.iter_mut().zip(tokens) {
                *slot = SlotInput { token, place: *place, source_length: *source_length };
            }
        }
        let (decoder, _) = self.decoder()?;
        decoder.step_pairs(&inputs)?;
        let all = self.continue_all(writing, &inputs)?;
        let mut copies = Vec::new();
        for (group, (slot, next)) in writing.iter_mut().zip(all).enumerate() {
            let (Some(sentence), Some(next)) = (slot.as_mut(), next) else { continue };
            if next.is_empty() {
                let Some(Sentence { index, search, .. }) = slot.take() else { continue };
                found[index] = search.finish();
                if found[index].is_empty() {
                    let what = "no token can follow: the model's probabilities are no numbers (NaN), as its weights are damaged or too \
                                large, or every token is forbidden";
                    return Err(Error::Machine(what.to_string()));
                }
                continue;
            }
            sentence.place += 1;
            for (which, next) in next.iter().enumerate() {
                sentence.tokens[which] = next.token;
                let (to, from) = (group * beam + which, group * beam + next.parent);
                copies.push(SlotCopy { to, from, rows: sentence.place });
            }
        }
        let (decoder, _) = self.decoder()?;
        decoder.copy_own(&copies)
    }

    /// How each sentence goes on after a step; nothing if it is over.
    fn continue_all(
        &mut self,
        writing: &mut [Option<Sentence>],
        inputs: &[SlotInput],
    ) -> Result<Vec<Option<Vec<Next>>>> {
        let beam = self.options.search.beam;
        match self.rules.clone() {
            None => {
                let (decoder, _) = self.decoder()?;
                let next_tokens = decoder.next_tokens()?;
                let rows = next_tokens.chunks_exact(beam).zip(writing);
                let next = |(rows, sentence): (&[NextTokens], &mut Option<Sentence>)| {
                    Some(sentence.as_mut()?.search.advance(rows.iter().copied()))
                };
                Ok(rows.map(next).collect())
            }
            Some(rules) => self.continue_by(&rules, writing, inputs),
        }
    }

    /// As [`Translator::continue_all`], by rules.
    fn continue_by(
        &mut self,
        rules: &TargetRules,
        writing: &mut [Option<Sentence>],
        inputs: &[SlotInput],
    ) -> Result<Vec<Option<Vec<Next>>>> {
        let (beam, count, vocabulary) = (self.options.search.beam, self.candidates(rules), self.vocabulary);
        let start = self.special.start;
        let (decoder, _) = self.decoder()?;
        let mut known = match rules.needs_all() {
            true => writing.iter().map(|_| None).collect(),
            false => {
                let rows = decoder.next_tokens()?;
                let of = |(group, sentence): (usize, &Option<Sentence>)| {
                    let rows = &rows[group * beam..(group + 1) * beam];
                    sentence.as_ref()?.candidates(rules, start, |living, slot| {
                        rules.of_likeliest(living, rows[slot], count, vocabulary)
                    })
                };
                writing.iter().enumerate().map(of).collect::<Vec<Option<Vec<Candidate>>>>()
            }
        };
        let is_unknown =
            |(sentence, found): (&Option<Sentence>, &Option<Vec<Candidate>>)| sentence.is_some() && found.is_none();
        if writing.iter().zip(&known).any(is_unknown) {
            if !rules.needs_all() {
                // More of the likeliest tokens are forbidden than were asked for: the same step again, with all logits.
                self.use_output(inputs.len(), StepOutput::Logits)?;
                let (decoder, _) = self.decoder()?;
                decoder.step_pairs(inputs)?;
            }
            let (decoder, _) = self.decoder()?;
            let logits = decoder.logits()?;
            for (group, (sentence, found)) in writing.iter().zip(&mut known).enumerate() {
                let (Some(sentence), None) = (sentence, &found) else { continue };
                *found = sentence.candidates(rules, start, |living, slot| {
                    let row = (group * beam + slot) * vocabulary;
                    Some(rules.of_logits(living, &logits[row..row + vocabulary], count, beam == 1))
                });
            }
            if !rules.needs_all() {
                self.use_slots(inputs.len())?;
            }
        }
        let go_on = |(sentence, found): (&mut Option<Sentence>, Option<Vec<Candidate>>)| {
            sentence.as_mut().map(|sentence| sentence.search.go_on_with(found.unwrap_or_default()))
        };
        Ok(writing.iter_mut().zip(known).map(go_on).collect())
    }
}

impl Sentence {
    /// The continuations of all living hypotheses: of one where a token is forced that token, otherwise what `of` finds for it and its
    /// slot; `None` if it does not know.
    fn candidates(
        &self,
        rules: &TargetRules,
        start: u32,
        of: impl Fn((usize, &[u32], f64), usize) -> Option<Vec<Candidate>>,
    ) -> Option<Vec<Candidate>> {
        let mut all = Vec::new();
        for (parent, (tokens, log_probability)) in self.search.living().enumerate() {
            if let Some(token) = rules.forced(tokens.len(), self.search.most_tokens()) {
                all.push(Candidate { parent, token, log_probability });
                continue;
            }
            let target: Vec<u32> = [start].into_iter().chain(tokens.iter().copied()).collect();
            all.extend(of((parent, &target, log_probability), parent)?);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_has_few_shapes() {
        let gpu = Shapes { is_rounded: true, ..Shapes::of(&Device::Cpu { threads: 1 }) };
        assert_eq!([1, 3, 650, 1024, 5000].map(|count| gpu.count(count, 1024)), [1, 4, 1024, 1024, 1024]);
        let cpu = Shapes::of(&Device::Cpu { threads: 1 });
        assert_eq!([1, 3, 650].map(|count| cpu.count(count, 64)), [1, 3, 64]);
        // A beam that is wider than all slots is one sentence at a time.
        assert_eq!(cpu.count(10, 0), 1);
    }
}
