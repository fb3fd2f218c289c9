//! Writing with a language model: many prompts at once, token by token.
//!
//! Prompts are read in chunks into a slot of the KV cache: on the CPU chunk by chunk in turns, so that a short prompt does not wait for all
//! of a long one, on a GPU several at once; but those which begin alike one after the other, so that they find what the first one has
//! read. All sequences that have been read are continued together, one token each per step; one that ends makes room for the next at
//! once.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use vitreous_engine::{Caches, Device, Error, Precision, Result};

mod blocks;
mod memory;

use blocks::{BLOCK, Blocks};

use super::decoder::{Decoder, PlanShape, SlotTokens, StepOutput, cache_format};
use super::request::{Request, RequestId, Tally, Update};
use super::room::GenerationMemory;
use super::sample::Sampler;
use super::sequence::{Rows, Sequence};
use super::slots::{READ_ANEW, Slots};
use crate::call::{CacheFormat, StepShape};
use crate::family::Architecture;
use crate::on_device::{OnDevice, Weights};

/// Plans that are kept on the CPU: steps of several numbers of slots, and chunks of several lengths. Those that [`TokenGenerator::prepare`]
/// makes for a server's chunks and some slots are fewer.
const KEPT_PLANS: usize = 24;
/// Tokens of prompts that are read before sequences that are being written go on, if nobody asks for another number; on a GPU, which needs
/// more to be busy, also at once.
const MOST_READ: usize = 2048;
const MOST_READ_ON_GPU: usize = 8192;
/// Prompts that begin with so many common tokens are not read at once: the later one takes over what the first has read.
const ALIKE: usize = 32;

/// How a language model is made ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Sequences that are written at once; a beam counts as many.
    pub slots: usize,
    /// The most tokens of a sequence, prompt included.
    pub context: usize,
    /// Tokens of all sequences together whose keys and values there is memory for, at least one context; `None`: a whole context for
    /// every slot. Where they do not suffice, sequences wait for others to end. A GPU's caches always have whole contexts.
    pub cache_tokens: Option<usize>,
    /// The format of keys and values; `None`: bf16 on a GPU that computes in bf16, f32 otherwise.
    pub cache: Option<CacheFormat>,
    /// The precision to compute in.
    pub precision: Precision,
    /// Tokens of a prompt that are read at once; `None`: 512, on a GPU 2048.
    pub chunk: Option<usize>,
    /// Tokens of prompts that are read before sequences that are being written go on; `None`: 2048, on a GPU 8192, which is best where
    /// all are waited for. Fewer let those who read along wait less.
    pub read_between_steps: Option<usize>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            slots: 1,
            context: 2048,
            cache_tokens: None,
            cache: None,
            precision: Precision::F32,
            chunk: None,
            read_between_steps: None,
        }
    }
}

/// What waits for slots and for memory.
enum Waiting {
    /// A request that was not begun.
    New(RequestId, Request),
    /// A sequence that had to make room for older ones. It is read again, and goes on.
    Paused(Box<Sequence>),
}

/// A language model that writes.
pub struct TokenGenerator<'w> {
    source: OnDevice<'w>,
    decoder: Decoder<'w>,
    options: GenerateOptions,
    /// Tokens of a prompt that are read at once.
    chunk: usize,
    vocabulary: usize,
    /// How far back a token attends, itself included, if that is limited.
    window: Option<usize>,
    slots: Slots,
    blocks: Blocks,
    waiting: VecDeque<Waiting>,
    sequences: Vec<Sequence>,
    sampler: Sampler,
    next_id: u64,
    /// Chunks that were read, by which prompts take turns.
    chunks_read: u64,
    tally: Tally,
}

impl<'w> TokenGenerator<'w> {
    /// A model on a device, with the parameters that `weights` gives by name. An error if it predicts no next token, or if the memory
    /// does not suffice.
    pub fn new(
        model: &'w dyn Architecture,
        options: GenerateOptions,
        device: &Device,
        weights: Weights<'w>,
    ) -> Result<TokenGenerator<'w>> {
        let Shape { vocabulary, window, context, room, blocks } = shape_of(model, &options, device)?;
        let mut source = OnDevice::new(device, weights);
        let chunk = chunk_of(&options, device);
        let memory = GenerationMemory::new(&source, model, options.precision, room, blocks * BLOCK, chunk)?;
        memory.check(device, room)?;
        let first = PlanShape { slots: 1, tokens: 1, output: output_for(device, true) };
        let caches = Some(memory.caches);
        let decoder = Decoder::new(&mut source, model, options.precision, room, first, KEPT_PLANS, caches)?;
        Ok(TokenGenerator {
            source,
            decoder,
            options: GenerateOptions { slots: room.batch, context, ..options },
            chunk,
            vocabulary,
            window,
            slots: Slots::new(room.batch),
            blocks: Blocks::new(blocks, room.batch),
            waiting: VecDeque::new(),
            sequences: Vec::new(),
            sampler: Sampler::new(vocabulary),
            next_id: 0,
            chunks_read: 0,
            tally: Tally::default(),
        })
    }

    /// Makes the plans that requests will need, and runs each once, so that nobody waits for a plan or for memory that nobody has touched
    /// yet. On a GPU nothing is done: there, steps of fewer slots are run by plans for more.
    pub fn prepare(&mut self) -> Result<()> {
        let device = self.source.device();
        if device.is_gpu() {
            return Ok(());
        }
        let output = output_for(device, true);
        for (slots, tokens) in plans_ahead(self.options.slots, self.chunk.min(self.decoder.room().capacity)) {
            self.decoder.use_plan(&mut self.source, PlanShape { slots, tokens, output })?;
            // What this writes is behind the tokens that slots have, none, and is overwritten by what comes next.
            self.decoder.step(0, &vec![SlotTokens { tokens: &[0], place: 0, row: 0 }; slots])?;
        }
        (0..self.slots.len()).try_for_each(|slot| self.decoder.give_back(slot, 0))
    }

    /// Bytes that [`TokenGenerator::new`] would take, without taking them.
    pub fn memory(
        model: &'w dyn Architecture,
        options: &GenerateOptions,
        device: &Device,
        weights: Weights<'w>,
    ) -> Result<GenerationMemory> {
        let Shape { room, blocks, .. } = shape_of(model, options, device)?;
        let chunk = chunk_of(options, device);
        let source = OnDevice::new(device, weights);
        GenerationMemory::new(&source, model, options.precision, room, blocks * BLOCK, chunk)
    }

    /// The most tokens of a sequence, prompt included.
    pub fn context(&self) -> usize {
        self.options.context
    }

    /// Sequences that can be written at once.
    pub fn slots(&self) -> usize {
        self.options.slots
    }

    /// Tokens whose keys and values are in the cache for sequences that are being read or written.
    pub fn cached_tokens(&self) -> usize {
        let slots = self.sequences.iter().flat_map(|sequence| &sequence.slots);
        slots.map(|&slot| self.slots.rows(slot)).sum()
    }

    /// Tokens whose keys and values there is memory for.
    pub fn cache_room(&self) -> usize {
        (self.blocks.total() * BLOCK).min(self.options.slots * self.options.context)
    }

    /// What was done so far, and how long it took.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Adds a text to go on with. It begins when there is room for it, in the order in which texts were added.
    pub fn add(&mut self, request: Request) -> Result<RequestId> {
        self.check(&request)?;
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.waiting.push_back(Waiting::New(id, request));
        Ok(id)
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sequences.is_empty()
    }

    /// Forgets all texts that are over, so that what comes next is as if nothing had been before. Nothing is done while there is work.
    pub fn forget(&mut self) {
        if self.is_idle() {
            self.slots = Slots::new(self.options.slots);
            self.chunks_read = 0;
        }
    }

    /// Ends a request early. What was read and written of it stays for prompts that begin alike.
    pub fn end(&mut self, id: RequestId) {
        self.end_all(&HashSet::from([id]));
    }

    /// As [`TokenGenerator::end`], of many requests: those that wait are looked through once.
    pub fn end_all(&mut self, ids: &HashSet<RequestId>) {
        self.waiting.retain(|waiting| !ids.contains(&waiting.id()));
        while let Some(place) = self.sequences.iter().position(|sequence| ids.contains(&sequence.id)) {
            self.release(place);
        }
    }

    /// Goes on: reads prompts that have room, and writes one token of every sequence. Gives what is new.
    pub fn advance(&mut self) -> Result<Vec<Update>> {
        let (mut told, mut updates) = (Vec::new(), Vec::new());
        let mut read = 0;
        while read < self.options.read_between_steps.unwrap_or_else(|| most_read(self.source.device())) {
            self.admit()?;
            let Some(group) = self.next_to_read() else { break };
            read += self.read_chunks(&group, &mut updates)?;
            self.note(&updates);
            told.append(&mut updates);
        }
        self.tally.stepped_tokens += self.step(&mut updates)?;
        self.note(&updates);
        told.append(&mut updates);
        Ok(told)
    }

    /// Counts what is new, and gives the slots of what is over back.
    fn note(&mut self, updates: &[Update]) {
        for update in updates {
            self.tally.written_tokens += usize::from(update.token.is_some());
            let Some(ended) = &update.ended else { continue };
            self.tally.written_tokens += ended.hypotheses.first().map_or(0, |best| best.tokens.len());
            if let Some(place) = self.sequences.iter().position(|sequence| sequence.id == update.id) {
                self.release(place);
            }
        }
    }

    fn check(&self, request: &Request) -> Result<()> {
        let refused = |what: String| Err(Error::Machine(what));
        let context = self.options.context;
        if let Some(token) = request.prompt.iter().find(|&&token| token as usize >= self.vocabulary) {
            return refused(format!("token {token} is not in the vocabulary of {}", self.vocabulary));
        }
        match request.prompt.len() {
            0 => return refused("a prompt needs at least one token".to_string()),
            tokens if tokens > context && request.shift.is_none() => {
                return refused(format!("the prompt has {tokens} tokens, but the context has {context}"));
            }
            _ => {}
        }
        if request.beams.is_some() && request.slots() * Blocks::needed(self.most_rows(request)) > self.blocks.total() {
            let (beams, rows, room) = (request.slots(), self.most_rows(request), self.cache_room());
            return refused(format!("{beams} beams of {rows} tokens are more than the {room} tokens of the cache"));
        }
        if request.slots() > self.options.slots {
            let slots = self.options.slots;
            return refused(format!("{} beams need as many slots; there are {slots}", request.slots()));
        }
        if request.beams.is_some() && request.constraint.is_some() {
            return refused("a constraint follows one sequence; it cannot follow beams".to_string());
        }
        request.sampling.check().map_err(Error::Machine)
    }

    /// The next chunk to read: on a GPU of the oldest prompt and of those in the slots behind it; on the CPU in turns of the oldest
    /// prompt, so that it comes to its end, and of the one that is done soonest, so that it does not wait for long ones. Prompts of which
    /// only the ends are missing are read together there, too: one after the other, each would take as long as all.
    fn next_to_read(&self) -> Option<ChunkGroup> {
        let is_reading = |sequence: &Sequence| sequence.left_to_read(&self.slots) > 1;
        let on_gpu = self.source.device().is_gpu();
        let reading = (0..self.sequences.len()).filter(|&place| is_reading(&self.sequences[place]));
        let first = match on_gpu || self.chunks_read % 2 == 1 {
            true => reading.min()?,
            false => reading.min_by_key(|&place| self.sequences[place].left_to_read(&self.slots))?,
        };
        let mut group = ChunkGroup { width: self.width_of(first), places: vec![first] };
        let mut slot = self.sequences[first].slots[0];
        let joins = |width: usize| on_gpu || width <= READ_ANEW;
        while joins(group.width) && self.window.is_none() {
            slot += 1;
            let is_next = |sequence: &Sequence| sequence.slots[0] == slot && is_reading(sequence);
            let Some(place) = self.sequences.iter().position(is_next) else { break };
            let width = group.width.max(self.width_of(place));
            if !joins(width) {
                break;
            }
            // All of them must have room for the widest chunk.
            let has_room = |&place: &usize| width <= self.room_of(place);
            let fits = width * (group.places.len() + 1) <= MOST_READ_ON_GPU;
            if !fits || !group.places.iter().chain([&place]).all(has_room) {
                break;
            }
            group = ChunkGroup { width, places: [group.places, vec![place]].concat() };
        }
        // There are few sizes, so that plans are used again.
        group.places.truncate(1 << group.places.len().ilog2());
        Some(group)
    }

    /// Rows of the cache that a sequence's next chunk can fill.
    fn room_of(&self, place: usize) -> usize {
        let rows = self.slots.rows(self.sequences[place].slots[0]);
        self.decoder.room().capacity - self.window.map_or(rows, |window| rows.min(window - 1))
    }

    /// Tokens of the plan that reads a sequence's next chunk.
    fn width_of(&self, place: usize) -> usize {
        let count = chunk_tokens(self.sequences[place].left_to_read(&self.slots), self.chunk);
        chunk_width(count, self.room_of(place), self.source.device().is_gpu())
    }

    /// Reads the next chunks of some prompts; gives how many tokens they had.
    fn read_chunks(&mut self, group: &ChunkGroup, updates: &mut Vec<Update>) -> Result<usize> {
        let ChunkGroup { width, places } = group;
        let slots: Vec<usize> = places.iter().map(|&place| self.sequences[place].slots[0]).collect();
        let needs_logits = places.iter().any(|&place| self.sequences[place].request.needs_logits());
        let output = output_for(self.source.device(), needs_logits);
        slots.iter().try_for_each(|&slot| self.make_room(slot, *width))?;
        let shape = PlanShape { slots: slots.len(), tokens: *width, output };
        self.decoder.use_plan(&mut self.source, shape)?;
        let start = Instant::now();
        let input = |(&place, &slot): (&usize, &usize)| {
            let known = self.slots.tokens(slot).len();
            let count = chunk_tokens(self.sequences[place].view().len() - known, self.chunk.min(*width));
            let tokens = &self.sequences[place].view()[known..known + count];
            SlotTokens { tokens, place: known, row: self.slots.rows(slot) }
        };
        let inputs: Vec<SlotTokens> = places.iter().zip(&slots).map(input).collect();
        self.decoder.step(slots[0], &inputs)?;
        let tokens: Vec<Vec<u32>> = inputs.iter().map(|input| input.tokens.to_vec()).collect();
        let mut copies = Vec::new();
        for (index, (&place, tokens)) in places.iter().zip(&tokens).enumerate() {
            self.slots.add(slots[index], tokens);
            let sequence = &mut self.sequences[place];
            if sequence.view().len() == self.slots.tokens(slots[index]).len() {
                let rows = rows_of(&self.decoder, self.vocabulary, index..index + 1)?;
                updates.extend(sequence.take(rows, &mut self.sampler, &mut self.slots, &mut copies)?);
            }
        }
        self.decoder.copy_own(&copies)?;
        self.chunks_read += 1;
        let count = tokens.iter().map(Vec::len).sum();
        self.tally.prompt_tokens += count;
        self.tally.reading += start.elapsed().as_secs_f64();
        Ok(count)
    }

    /// One token of every sequence that was read; gives how many there are.
    fn step(&mut self, updates: &mut Vec<Update>) -> Result<usize> {
        self.make_memory()?;
        let is_ready = |sequence: &Sequence, slots: &Slots| sequence.left_to_read(slots) == 1;
        if self.waiting.is_empty() {
            self.move_together()?;
        }
        let active = |sequence: &&Sequence| is_ready(sequence, &self.slots);
        let taken: Vec<usize> = self.sequences.iter().filter(active).flat_map(Sequence::stepping_slots).collect();
        let (Some(&first), Some(&last)) = (taken.iter().min(), taken.iter().max()) else { return Ok(0) };
        let count = (last - first + 1).next_power_of_two().min(self.slots.len());
        let first = first.min(self.slots.len() - count);
        let needs_logits = self.sequences.iter().filter(active).any(|sequence| sequence.request.needs_logits());
        let output = output_for(self.source.device(), needs_logits);
        self.decoder.use_plan(&mut self.source, PlanShape { slots: count, tokens: 1, output })?;
        // On a GPU the plan may be one for more slots.
        let count = self.decoder.planned_slots();
        let first = first.min(self.slots.len() - count);
        let start = Instant::now();
        self.step_slots(first, count)?;

        let (mut copies, mut stepped) = (Vec::new(), 0);
        for sequence in &mut self.sequences {
            if !is_ready(sequence, &self.slots) {
                continue;
            }
            stepped += 1;
            if sequence.is_prompt() {
                self.tally.prompt_tokens += 1;
            }
            let last: Vec<(usize, u32)> = sequence.stepping_tokens().collect();
            last.iter().for_each(|&(slot, token)| self.slots.add(slot, &[token]));
            let rows = last.iter().map(|(slot, _)| slot - first);
            let rows = rows_of(&self.decoder, self.vocabulary, rows)?;
            updates.extend(sequence.take(rows, &mut self.sampler, &mut self.slots, &mut copies)?);
        }
        self.decoder.copy_own(&copies)?;
        self.tally.writing += start.elapsed().as_secs_f64();
        Ok(stepped)
    }

    /// Runs a step of slots. Those that nobody writes in compute something, too: it goes behind the tokens that they have.
    fn step_slots(&mut self, first: usize, count: usize) -> Result<()> {
        let capacity = self.decoder.room().capacity;
        let mut tokens = vec![0u32; count];
        for slot in first..first + count {
            self.make_room(slot, 1)?;
            if self.slots.rows(slot) == capacity {
                self.slots.forget_last(slot);
            }
        }
        for sequence in self.sequences.iter().filter(|sequence| sequence.left_to_read(&self.slots) == 1) {
            sequence.stepping_tokens().for_each(|(slot, token)| tokens[slot - first] = token);
        }
        let input = |(token, slot)| {
            let (place, row) = (self.slots.tokens(slot).len(), self.slots.rows(slot));
            SlotTokens { tokens: std::slice::from_ref(token), place, row }
        };
        let inputs: Vec<SlotTokens> = tokens.iter().zip(first..).map(input).collect();
        self.decoder.step(first, &inputs)
    }

    /// Drops rows that no token behind them attends to any more, if there is no room for so many others.
    fn make_room(&mut self, slot: usize, wanted: usize) -> Result<()> {
        let rows = self.slots.rows(slot);
        let Some(window) = self.window.filter(|_| rows + wanted > self.decoder.room().capacity) else { return Ok(()) };
        let kept = rows.min(window - 1);
        self.decoder.drop_rows(slot, rows - kept, kept)?;
        self.slots.drop_rows(slot, rows - kept);
        Ok(())
    }
}

/// Chunks of prompts that are read at once, in adjacent slots.
struct ChunkGroup {
    /// Tokens of the plan that reads them.
    width: usize,
    /// The sequences, by their place among all.
    places: Vec<usize>,
}

/// What a run gave for some of its slots.
fn rows_of<'d>(decoder: &'d Decoder, vocabulary: usize, slots: impl Iterator<Item = usize>) -> Result<Rows<'d>> {
    if let Some(best) = decoder.best_tokens()? {
        return Ok(Rows::Best(slots.map(|slot| best[slot]).collect()));
    }
    let logits = decoder.logits()?;
    Ok(Rows::Logits(slots.map(|slot| &logits[slot * vocabulary..(slot + 1) * vocabulary]).collect()))
}

/// What is asked of a run. On the CPU, logits lie where they can be read; from a GPU only the likeliest token comes, if that is enough.
fn output_for(device: &Device, needs_logits: bool) -> StepOutput {
    if needs_logits || !device.is_gpu() { StepOutput::Logits } else { StepOutput::Best }
}

/// The sizes of a language model and its caches.
struct Shape {
    vocabulary: usize,
    window: Option<usize>,
    /// The most tokens of a sequence.
    context: usize,
    /// The shape of the caches, which with a window have fewer rows than a sequence has tokens.
    room: StepShape,
    /// How much of the caches there is memory for.
    blocks: usize,
}

fn shape_of(model: &dyn Architecture, options: &GenerateOptions, device: &Device) -> Result<Shape> {
    let signature = model.signature();
    let (input, vocabulary) = signature.language()?;
    let context = options.context.clamp(1, input.longest);
    // Room for the window and a chunk: the rows of the window move to the front when it is full.
    let widest = chunk_width(chunk_of(options, device), usize::MAX, device.is_gpu());
    let capacity = input.window.map_or(context, |window| context.min(window.saturating_add(widest)));
    let cache = options.cache.unwrap_or_else(|| cache_format(device, options.precision));
    let room = StepShape { batch: options.slots.max(1), source: 1, capacity, cache };
    let whole = room.batch.saturating_mul(Blocks::needed(capacity));
    let blocks = match options.cache_tokens {
        Some(tokens) if Caches::give_memory_back(device) => tokens.max(capacity).div_ceil(BLOCK).min(whole),
        _ => whole,
    };
    Ok(Shape { vocabulary, window: input.window, context, room, blocks })
}

/// Tokens of a prompt that are read at once. Plans of a GPU for one token are those of steps, and may have more slots.
fn chunk_of(options: &GenerateOptions, device: &Device) -> usize {
    let (usual, least) = if device.is_gpu() { (2048, 16) } else { (512, 1) };
    options.chunk.unwrap_or(usual).max(least)
}

/// Tokens of prompts that are read before sequences that are being written go on.
fn most_read(device: &Device) -> usize {
    if device.is_gpu() { MOST_READ_ON_GPU } else { MOST_READ }
}

/// How many of the tokens that are left to read are read next. One is never left over alone: a step would read it, which sums in another
/// order than what reads several. So a prompt gives the same bits however much of it was in the cache, and quantised models, which round
/// every difference up, the same text.
fn chunk_tokens(left: usize, most: usize) -> usize {
    let count = left.min(most);
    if left == count + 1 && count > 2 { count - 1 } else { count }
}

/// How many tokens a plan reads that is run for `count` of them, with room for `room`: there are few lengths, so that plans are used
/// again.
fn chunk_width(count: usize, room: usize, on_gpu: bool) -> usize {
    let rounded = match (count, on_gpu) {
        (1, _) => 1,
        (_, true) => count.next_power_of_two().max(16),
        (READ_ANEW, false) => READ_ANEW,
        (3..=8, false) => 8,
        (9..=128, false) => count.next_multiple_of(16),
        (_, false) => count.next_multiple_of(32),
    };
    if rounded <= room { rounded } else { count }
}

/// The shapes of plans on the CPU that requests need, `(slots, tokens)`: chunks of all lengths, and steps; those for all slots last, so that
/// they are the last to be dropped.
fn plans_ahead(slots: usize, chunk: usize) -> Vec<(usize, usize)> {
    let mut widths: Vec<usize> = (2..=chunk).map(|count| chunk_width(count, chunk, false)).collect();
    widths.dedup();
    // Counts at the end of the room are lengths of their own, which only full contexts need.
    let chunks = widths.into_iter().filter(|width| width % 8 == 0 || *width == chunk).map(|width| (1, width));
    let powers = || (0..).map(|power| 1 << power).take_while(|&count| count <= slots);
    // The ends of prompts whose beginnings are there already.
    let ends = powers().filter(|_| chunk >= READ_ANEW).map(|count| (count, READ_ANEW));
    let steps = powers().filter(|&count| count < slots).chain([slots]).map(|count| (count, 1));
    let mut shapes: Vec<(usize, usize)> = chunks.chain(ends).chain(steps).collect();
    shapes.drain(..shapes.len().saturating_sub(KEPT_PLANS));
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_plans_are_made_ahead() {
        let shapes = plans_ahead(8, 128);
        assert_eq!(shapes[..3], [(1, 8), (1, 16), (1, 32)]);
        assert_eq!(shapes[9 - 1..][..5], [(1, 128), (1, 2), (2, 2), (4, 2), (8, 2)]);
        assert_eq!(shapes[9 + 4..], [(1, 1), (2, 1), (4, 1), (8, 1)]);
        // A number of slots that is no power of two; a context shorter than a chunk; more chunks than are kept.
        assert_eq!(plans_ahead(3, 8), [(1, 8), (1, 2), (2, 2), (1, 1), (2, 1), (3, 1)]);
        assert_eq!(plans_ahead(1, 5), [(1, 5), (1, 2), (1, 1)]);
        assert_eq!(plans_ahead(1, 1), [(1, 1)]);
        assert_eq!(plans_ahead(2, 1024).len(), KEPT_PLANS);
    }

    #[test]
    fn no_chunk_leaves_a_single_token() {
        assert_eq!([1, 2, 7, 8, 9, 10, 16, 17].map(|left| chunk_tokens(left, 8)), [1, 2, 7, 8, 7, 8, 8, 8]);
        // Chunks of one or two tokens cannot do otherwise.
        assert_eq!([chunk_tokens(3, 2), chunk_tokens(2, 1)], [2, 1]);
    }

    #[test]
    fn chunks_have_few_lengths_and_fit_the_room() {
        assert_eq!(
            [1, 2, 3, 9, 17, 128, 129, 480, 512].map(|count| chunk_width(count, 1000, false)),
            [1, 2, 8, 16, 32, 128, 160, 480, 512]
        );
        assert_eq!([1, 2, 17, 480].map(|count| chunk_width(count, 1000, true)), [1, 16, 32, 512]);
        // At the end of the context nothing is padded.
        assert_eq!([chunk_width(9, 15, false), chunk_width(9, 16, false)], [9, 16]);
    }
}
