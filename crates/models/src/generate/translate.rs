//! Translating: sentences through the encoder, then word by word through the decoder, many at once.
//!
//! The decoder has a fixed number of slots, each with its own keys and values. When a sentence has ended, the next one takes its
//! slots, so that no slot waits for the longest sentence of a batch.

use std::borrow::Cow;
use std::collections::VecDeque;

use vitreous_engine::cpu::Executor;
use vitreous_engine::machine::check_memory;
use vitreous_engine::{DType, Error, Graph, Mode, Parameter, Plan, Precision, Result, Value};

use crate::transformer::{StepShape, TransformerConfig, decoder_step, encoder_for_decoding};
use super::search::{Hypothesis, Search, SearchOptions};

/// A decoder has room for lengths up to a multiple of this, so that it serves sentences that are hardly longer, too.
const LENGTH_STEP: usize = 8;
/// Tokens that all slots together have room for: where one sentence is very long, fewer are written at once.
const MOST_KEPT_TOKENS: usize = 1 << 16;
/// Slots that a decoder has at least, if sentences become fewer: products of hardly any rows want their weights otherwise.
const LEAST_SLOTS: usize = 8;
/// What a decoder's layer keeps of the source, and of its own words.
const SOURCE_ROWS: [&str; 2] = ["source_keys", "source_values"];
const OWN_ROWS: [&str; 2] = ["kept_keys", "kept_values"];

/// What special tokens are called by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialTokens {
    /// What fills up a batch.
    pub padding: u32,
    /// What a target begins with.
    pub start: u32,
    /// What sources and targets end with.
    pub end: u32,
}

/// How to translate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TranslateOptions {
    /// How words are chosen.
    pub search: SearchOptions,
    /// Hypotheses that are computed at once; at least a sentence's beam.
    pub slots: usize,
    /// The most words of a translation, beyond the number of its source's.
    pub extra_tokens: usize,
    /// Threads to compute with.
    pub threads: usize,
    /// Numbers to compute with.
    pub precision: Precision,
}

/// Where a model's parameters are.
pub type Weights<'w> = Box<dyn Fn(&str) -> Result<Cow<'w, [f32]>> + 'w>;

/// A model made ready to translate.
pub struct Translator<'w> {
    config: TransformerConfig,
    special: SpecialTokens,
    options: TranslateOptions,
    weights: Weights<'w>,
    encoder: Option<Encoder>,
    decoder: Option<Decoder>,
}

struct Encoder {
    /// Sources at once, and the length of each, with padding.
    shape: (usize, usize),
    executor: Executor,
    /// Of each layer of the decoder.
    keys_and_values: Vec<[Value; 2]>,
}

struct Decoder {
    shape: StepShape,
    executor: Executor,
    probabilities: Value,
}

/// A sentence that is being written.
struct Sentence {
    index: usize,
    search: Search,
    /// Words so far.
    place: usize,
    source_length: usize,
}

impl<'w> Translator<'w> {
    /// A translator with the parameters that `weights` gives by name.
    pub fn new(
        config: &TransformerConfig,
        special: SpecialTokens,
        options: TranslateOptions,
        weights: Weights<'w>,
    ) -> Translator<'w> {
        let (config, mut options) = (config.clone(), options);
        options.search.beam = options.search.beam.max(1);
        Translator { config, special, options, weights, encoder: None, decoder: None }
    }

    /// Translates sources, given without start and end: of each its hypotheses, the best first. What is longer than the model can read is cut.
    pub fn translate(&mut self, sources: &[Vec<u32>]) -> Result<Vec<Vec<Hypothesis>>> {
        let mut found = vec![Vec::new(); sources.len()];
        // The longest first: a long one that began last would be written alone.
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(sources[index].len()));
        let Some(&longest) = order.first() else { return Ok(found) };
        let beam = self.options.search.beam;
        let room = |length: usize| length.next_multiple_of(LENGTH_STEP).min(self.config.max_length);
        let source = room(self.source_length(&sources[longest]));
        let capacity = room(self.most_tokens(&sources[longest]));
        let slots = self.options.slots.min(MOST_KEPT_TOKENS / (source + capacity));
        let groups = (slots / beam).clamp(1, sources.len());
        self.prepare_decoder(StepShape { batch: groups * beam, source, capacity })?;

        let mut waiting: VecDeque<usize> = order.into();
        let mut ready: VecDeque<Encoded> = VecDeque::new();
        let mut writing: Vec<Option<Sentence>> = (0..groups).map(|_| None).collect();
        loop {
            for group in 0..writing.len() {
                if writing[group].is_some() {
                    continue;
                }
                if ready.is_empty() {
                    let batch: Vec<usize> = waiting.drain(..groups.min(waiting.len())).collect();
                    ready.extend(self.encode(sources, &batch)?);
                }
                let Some(encoded) = ready.pop_front() else { break };
                self.take_up(group, beam, &encoded)?;
                let most_tokens = self.most_tokens(&sources[encoded.index]);
                let search = Search::new(self.options.search, self.special.end, most_tokens);
                let Encoded { index, length, .. } = encoded;
                writing[group] = Some(Sentence { index, search, place: 0, source_length: length });
            }
            match writing.iter().flatten().count() {
                0 => return Ok(found),
                // More slots than sentences: no other waits, or there would be none.
                left if 2 * left <= writing.len() => self.move_together(&mut writing, beam)?,
                _ => {}
            }
            self.step(&mut writing, beam, &mut found)?;
        }
    }

    /// Tokens of a source as the encoder sees it, with its end.
    fn source_length(&self, source: &[u32]) -> usize {
        (source.len() + 1).min(self.config.max_length)
    }

    fn most_tokens(&self, source: &[u32]) -> usize {
        (self.source_length(source) + self.options.extra_tokens).min(self.config.max_length)
    }

    /// Makes a decoder, unless the one that is there can do it.
    fn prepare_decoder(&mut self, shape: StepShape) -> Result<()> {
        let fits = |there: &StepShape| {
            there.batch == shape.batch && there.source >= shape.source && there.capacity >= shape.capacity
        };
        if self.decoder.as_ref().is_some_and(|decoder| fits(&decoder.shape)) {
            return Ok(());
        }
        let mut graph = Graph::new(Mode::Inference, self.options.precision);
        let logits = decoder_step(&mut graph, &self.config, shape)?;
        let probabilities = graph.softmax(logits)?;
        let plan = Plan::for_cpu_with_fixed_weights(&graph, &[probabilities])?;
        let there = self.decoder.take().map(|decoder| decoder.executor);
        self.decoder = Some(Decoder { shape, executor: self.executor(there, plan)?, probabilities });
        Ok(())
    }

    /// Makes an encoder for so many sources of a length, with padding.
    fn prepare_encoder(&mut self, shape: (usize, usize)) -> Result<()> {
        if self.encoder.as_ref().is_some_and(|encoder| encoder.shape == shape) {
            return Ok(());
        }
        let mut graph = Graph::new(Mode::Inference, self.options.precision);
        let mut keys_and_values = Vec::new();
        for (keys, values) in encoder_for_decoding(&mut graph, &self.config, shape.0, shape.1)? {
            keys_and_values.push([graph.cast(keys, DType::F32)?, graph.cast(values, DType::F32)?]);
        }
        let plan = Plan::for_cpu_with_fixed_weights(&graph, &keys_and_values.concat())?;
        let there = self.encoder.take().map(|encoder| encoder.executor);
        self.encoder = Some(Encoder { shape, executor: self.executor(there, plan)?, keys_and_values });
        Ok(())
    }

    /// What runs a plan: the executor that is there, if it can change, which spares taking in the weights.
    fn executor(&self, there: Option<Executor>, plan: Plan) -> Result<Executor> {
        match there {
            Some(mut executor) if executor.can_change_to(&plan) => {
                executor.change_to(plan)?;
                Ok(executor)
            }
            there => {
                // Its memory goes back before the new one takes its own.
                drop(there);
                check_memory("translating", plan.peak_bytes(self.options.threads))?;
                let weights = |parameter: &Parameter| (self.weights)(&parameter.name);
                Executor::with_weights(plan, self.options.threads, weights)
            }
        }
    }

    /// Computes what the decoder asks of some sources. It stays in the encoder until the next are encoded.
    fn encode(&mut self, sources: &[Vec<u32>], batch: &[usize]) -> Result<Vec<Encoded>> {
        let lengths: Vec<usize> = batch.iter().map(|&index| self.source_length(&sources[index])).collect();
        let Some(&longest) = lengths.iter().max() else { return Ok(Vec::new()) };
        self.prepare_encoder((batch.len(), longest))?;
        let executor = &mut self.encoder.as_mut().expect("prepared").executor;
        let rows = executor.input_i32("source")?;
        rows.fill(self.special.padding as i32);
        for ((row, &index), &length) in rows.chunks_exact_mut(longest).zip(batch).zip(&lengths) {
            for (to, &token) in row.iter_mut().zip(&sources[index][..length - 1]) {
                *to = token as i32;
            }
            row[length - 1] = self.special.end as i32;
        }
        for (to, &length) in executor.input_i32("source_lengths")?.iter_mut().zip(&lengths) {
            *to = length as i32;
        }
        executor.infer()?;
        let encoded = batch.iter().zip(lengths).enumerate();
        Ok(encoded.map(|(row, (&index, length))| Encoded { index, row, length }).collect())
    }

    /// Gives a sentence the slots of its group.
    fn take_up(&mut self, group: usize, beam: usize, encoded: &Encoded) -> Result<()> {
        let Decoder { shape, executor: decoder, .. } = self.decoder.as_mut().expect("prepared");
        let Encoder { shape: (_, length), executor: encoder, keys_and_values } =
            self.encoder.as_ref().expect("prepared");
        let dim = self.config.dim;
        for (layer, pair) in keys_and_values.iter().enumerate() {
            for (name, &value) in SOURCE_ROWS.iter().zip(pair) {
                let from = &encoder.output_slice(value)?[encoded.row * length * dim..][..encoded.length * dim];
                let to = decoder.input(&format!("decoder.{layer}.{name}"))?;
                for slot in group * beam..(group + 1) * beam {
                    to[slot * shape.source * dim..][..from.len()].copy_from_slice(from);
                }
            }
        }
        Ok(())
    }

    /// Moves the sentences that are left into a decoder with hardly more slots than they need.
    fn move_together(&mut self, writing: &mut Vec<Option<Sentence>>, beam: usize) -> Result<()> {
        let left = writing.iter().flatten().count();
        let groups = left.next_power_of_two().max(LEAST_SLOTS.div_ceil(beam));
        if groups >= writing.len() {
            return Ok(());
        }
        let Decoder { shape, executor, .. } = self.decoder.as_mut().expect("prepared");
        let (shape, dim, layers) = (*shape, self.config.dim, self.config.decoder_layers);
        let old: Vec<usize> = (0..writing.len()).filter(|&group| writing[group].is_some()).collect();
        *writing = std::mem::take(writing).into_iter().filter(Option::is_some).collect();
        let mut tokens = Vec::new();
        for &group in &old {
            tokens.extend_from_slice(&executor.input_i32("token")?[group * beam..(group + 1) * beam]);
        }
        // Of every input what the sentences' slots have, as much of it as is written.
        let parts = |sentence: &Sentence| {
            let own = OWN_ROWS.map(|name| (name, shape.capacity, sentence.place));
            let source = SOURCE_ROWS.map(|name| (name, shape.source, sentence.source_length));
            own.into_iter().chain(source)
        };
        let mut rows = Vec::new();
        for (sentence, &group) in writing.iter().flatten().zip(&old) {
            for layer in 0..layers {
                for (name, capacity, count) in parts(sentence) {
                    let from = executor.input(&format!("decoder.{layer}.{name}"))?;
                    for slot in group * beam..(group + 1) * beam {
                        rows.extend_from_slice(&from[slot * capacity * dim..][..count * dim]);
                    }
                }
            }
        }
        self.prepare_decoder(StepShape { batch: groups * beam, ..shape })?;
        let executor = &mut self.decoder.as_mut().expect("prepared").executor;
        executor.input_i32("token")?[..tokens.len()].copy_from_slice(&tokens);
        let mut rows = &rows[..];
        for (group, sentence) in writing.iter().flatten().enumerate() {
            for layer in 0..layers {
                for (name, capacity, count) in parts(sentence) {
                    let to = executor.input(&format!("decoder.{layer}.{name}"))?;
                    for slot in group * beam..(group + 1) * beam {
                        let (own, others) = rows.split_at(count * dim);
                        to[slot * capacity * dim..][..own.len()].copy_from_slice(own);
                        rows = others;
                    }
                }
            }
        }
        writing.resize_with(groups, || None);
        Ok(())
    }

    /// One word for every sentence.
    fn step(&mut self, writing: &mut [Option<Sentence>], beam: usize, found: &mut [Vec<Hypothesis>]) -> Result<()> {
        let Decoder { shape, executor, probabilities } = self.decoder.as_mut().expect("prepared");
        let mut fill = |name: &str, number: &dyn Fn(&Option<Sentence>) -> Option<usize>| -> Result<()> {
            for (slots, sentence) in executor.input_i32(name)?.chunks_exact_mut(beam).zip(writing.iter()) {
                if let Some(number) = number(sentence) {
                    slots.fill(number as i32);
                }
            }
            Ok(())
        };
        // Slots that nobody has compute something, too: the shortest there is.
        let place = |sentence: &Option<Sentence>| sentence.as_ref().map_or(0, |sentence| sentence.place);
        fill("token", &|sentence| (place(sentence) == 0).then_some(self.special.start as usize))?;
        fill("place", &|sentence| Some(place(sentence)))?;
        fill("length", &|sentence| Some(place(sentence) + 1))?;
        fill("source_lengths", &|sentence| Some(sentence.as_ref().map_or(1, |sentence| sentence.source_length)))?;
        executor.infer()?;
        let words = self.config.target_vocabulary;
        let mut tokens = executor.input_i32("token")?.to_vec();
        for (group, slot) in writing.iter_mut().enumerate() {
            let Some(sentence) = slot else { continue };
            let rows = executor.output_slice(*probabilities)?[group * beam * words..].chunks_exact(words);
            let next = sentence.search.advance(rows.take(beam));
            if next.is_empty() {
                let Sentence { index, search, .. } = slot.take().expect("writing");
                found[index] = search.finish();
                if found[index].is_empty() {
                    let what = "the model's probabilities are no numbers (NaN): its weights are damaged or too large";
                    return Err(Error::Machine(what.to_string()));
                }
                continue;
            }
            sentence.place += 1;
            for (to, next) in tokens[group * beam..].iter_mut().zip(&next) {
                *to = next.token as i32;
            }
            let parents: Vec<usize> = next.iter().map(|next| next.parent).collect();
            let kept = Rows { first_slot: group * beam, capacity: shape.capacity, dim: self.config.dim };
            kept.inherit(executor, self.config.decoder_layers, &parents, sentence.place)?;
        }
        executor.input_i32("token")?.copy_from_slice(&tokens);
        Ok(())
    }
}

/// A source whose keys and values the encoder has.
struct Encoded {
    index: usize,
    /// Its place among those that were encoded together.
    row: usize,
    /// Its tokens.
    length: usize,
}

/// The rows that a group of slots keeps.
struct Rows {
    first_slot: usize,
    capacity: usize,
    dim: usize,
}

impl Rows {
    /// Every slot goes on with what its parent's has kept, of so many words.
    fn inherit(&self, executor: &mut Executor, layers: usize, parents: &[usize], words: usize) -> Result<()> {
        if parents.iter().enumerate().all(|(slot, &parent)| slot == parent) {
            return Ok(());
        }
        let place = |slot: usize| (self.first_slot + slot) * self.capacity * self.dim;
        let floats = words * self.dim;
        for layer in 0..layers {
            for name in OWN_ROWS {
                let kept = executor.input(&format!("decoder.{layer}.{name}"))?;
                // All are read before one is written: a parent may be overwritten by its own heir.
                let of_parents: Vec<f32> =
                    parents.iter().flat_map(|&parent| kept[place(parent)..][..floats].iter().copied()).collect();
                for (slot, rows) in of_parents.chunks_exact(floats).enumerate() {
                    kept[place(slot)..][..floats].copy_from_slice(rows);
                }
            }
        }
        Ok(())
    }
}
