//! Who gets slots and memory of the cache, and who waits.
//!
//! Requests begin in the order in which they came, as soon as there is a slot and memory for their prompts. Texts take another block
//! whenever their last one is full. If none is left, first what ended texts have left behind for prompts that begin alike is forgotten,
//! the oldest first; then the youngest text is paused: it gives its memory back, waits before all others, and is read again.

use vitreous_engine::{Result, SlotCopy};

use super::super::request::{Request, RequestId};
use super::super::sequence::Sequence;
use super::blocks::{BLOCK, Blocks};
use super::{ALIKE, TokenGenerator, Waiting};

impl Waiting {
    /// Whose it is.
    pub(super) fn id(&self) -> RequestId {
        match self {
            Waiting::New(id, _) => *id,
            Waiting::Paused(sequence) => sequence.id,
        }
    }

    fn request(&self) -> &Request {
        match self {
            Waiting::New(_, request) => request,
            Waiting::Paused(sequence) => &sequence.request,
        }
    }

    /// The tokens to read.
    fn tokens(&self) -> &[u32] {
        match self {
            Waiting::New(_, request) => &request.prompt,
            Waiting::Paused(sequence) => sequence.view(),
        }
    }
}

impl TokenGenerator<'_> {
    /// Gives slots to requests that wait, until one of them must wait for others.
    pub(super) fn admit(&mut self) -> Result<()> {
        while let Some(next) = self.waiting.front() {
            let wanted = next.request().slots();
            let blocks = Blocks::needed(self.first_rows(next));
            // Those who write get a block each before anyone is let in, so that they are not paused at once.
            let reserved = self.blocks_in_use() + self.sequences.len();
            let has_memory = self.sequences.is_empty() || reserved + wanted * blocks <= self.blocks.total();
            if wanted > self.slots.free() || !has_memory || self.waits_for_others(next.tokens()) {
                return Ok(());
            }
            let mut sequence = match self.waiting.pop_front() {
                Some(Waiting::New(id, request)) => Sequence::new(id, request, self.vocabulary, self.options.context),
                Some(Waiting::Paused(sequence)) => *sequence,
                None => return Ok(()),
            };
            for which in 0..wanted {
                // Only the first slot of a beam reads; the others take over what it has read.
                let prompt = if which == 0 { sequence.view() } else { &[] };
                let Some(start) = self.slots.take(prompt) else { break };
                if let Some(from) = start.copied_from {
                    let rows = self.slots.rows(start.slot);
                    self.decoder.copy_own(&[SlotCopy { to: start.slot, from, rows }])?;
                }
                self.tally.reused_tokens += start.reused;
                self.resize(start.slot, blocks)?;
                sequence.slots.push(start.slot);
            }
            self.sequences.push(sequence);
            self.forget_until(0)?;
        }
        Ok(())
    }

    /// Whether a prompt is read after those that are being read now: if it begins like one of them.
    fn waits_for_others(&self, prompt: &[u32]) -> bool {
        let common = |view: &[u32]| view.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let mut reading = self.sequences.iter().filter(|sequence| sequence.left_to_read(&self.slots) > 1);
        reading.any(|sequence| common(sequence.view()) >= ALIKE)
    }

    /// Rows of the cache that a request can come to have in each of its slots.
    pub(super) fn most_rows(&self, request: &Request) -> usize {
        request.prompt.len().saturating_add(request.max_tokens).min(self.decoder.room().capacity)
    }

    /// Rows for which each slot of a request gets memory when it begins: those of its prompt and of its first token. The hypotheses of
    /// beam search go on in each other's slots and cannot be read again: they get all that they can come to need.
    fn first_rows(&self, next: &Waiting) -> usize {
        match next.request().beams {
            Some(_) => self.most_rows(next.request()),
            None => (next.tokens().len() + 1).min(self.decoder.room().capacity),
        }
    }

    /// Gives the slots of a sequence back.
    pub(super) fn release(&mut self, place: usize) {
        let sequence = self.sequences.remove(place);
        sequence.slots.iter().for_each(|&slot| self.slots.give_back(slot));
    }

    /// Sees to it that all who will write in the next step have memory for it; the oldest come first.
    pub(super) fn make_memory(&mut self) -> Result<()> {
        self.sequences.sort_by_key(|sequence| sequence.id);
        let mut place = 0;
        while let Some(sequence) = self.sequences.get(place) {
            let is_written = sequence.left_to_read(&self.slots) == 1;
            let wanting = sequence.stepping_slots().filter(|_| is_written).find(|&slot| {
                let rows = (self.slots.rows(slot) + 1).min(self.decoder.room().capacity);
                Blocks::needed(rows) > self.blocks.held(slot)
            });
            match wanting {
                None => place += 1,
                Some(slot) if self.forget_until(1)? => self.blocks.set(slot, self.blocks.held(slot) + 1),
                // There is always one behind or at this place, since beams have all that they need.
                Some(_) => match self.sequences.iter().rposition(|sequence| sequence.request.beams.is_none()) {
                    Some(youngest) => self.pause(youngest)?,
                    None => place += 1,
                },
            }
        }
        Ok(())
    }

    /// A sequence gives all its memory back and waits.
    fn pause(&mut self, place: usize) -> Result<()> {
        let mut sequence = self.sequences.remove(place);
        for slot in sequence.slots.drain(..) {
            self.slots.give_back(slot);
            self.forget_slot(slot)?;
        }
        self.tally.paused += 1;
        self.waiting.push_front(Waiting::Paused(Box::new(sequence)));
        Ok(())
    }

    /// Blocks of the slots that somebody has.
    fn blocks_in_use(&self) -> usize {
        let slots = self.sequences.iter().flat_map(|sequence| &sequence.slots);
        slots.map(|&slot| self.blocks.held(slot)).sum()
    }

    /// Forgets what ended texts have left until so many blocks are free, the oldest first; whether there are so many then.
    fn forget_until(&mut self, free: usize) -> Result<bool> {
        while self.blocks.taken() + free > self.blocks.total() {
            let Some(slot) = self.slots.longest_at_rest(|slot| self.blocks.held(slot) > 0) else { return Ok(false) };
            self.forget_slot(slot)?;
        }
        Ok(true)
    }

    /// Forgets a slot's tokens and gives its memory back.
    fn forget_slot(&mut self, slot: usize) -> Result<()> {
        self.slots.keep(slot, 0);
        self.resize(slot, 0)
    }

    /// A slot has so many blocks from now on.
    fn resize(&mut self, slot: usize, blocks: usize) -> Result<()> {
        if blocks < self.blocks.held(slot) {
            self.decoder.give_back(slot, (blocks * BLOCK).min(self.decoder.room().capacity))?;
        }
        self.blocks.set(slot, blocks);
        Ok(())
    }

    /// Moves sequences into the first slots, if fewer slots have to be computed then.
    pub(super) fn move_together(&mut self) -> Result<()> {
        let mut taken: Vec<usize> = self.sequences.iter().flat_map(|sequence| sequence.slots.clone()).collect();
        taken.sort_unstable();
        let (Some(first), Some(last)) = (taken.first(), taken.last()) else { return Ok(()) };
        if (last - first + 1).next_power_of_two() <= taken.len().next_power_of_two() {
            return Ok(());
        }
        let mut free = (0..taken.len()).filter(|slot| !taken.contains(slot)).collect::<Vec<usize>>().into_iter();
        let mut copies = Vec::new();
        for sequence in &mut self.sequences {
            for slot in &mut sequence.slots {
                if *slot < taken.len() {
                    continue;
                }
                let Some(to) = free.next() else { continue };
                copies.push(SlotCopy { to, from: *slot, rows: self.slots.rows(*slot) });
                self.slots.hand_over(*slot, to);
                *slot = to;
            }
        }
        self.decoder.copy_own(&copies)?;
        for SlotCopy { to, from, .. } in copies {
            self.resize(to, self.blocks.held(from))?;
            self.forget_slot(from)?;
        }
        Ok(())
    }
}
