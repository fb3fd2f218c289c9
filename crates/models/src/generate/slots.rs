//! Slots of a cache and the tokens whose keys and values each has: what a prompt can take over instead of reading it again.

/// Tokens at the end of a prompt that are read even if the cache has them: the last one for its logits, and another one, so that they are
/// read as every prompt is and not by a step, which sums in another order.
pub(super) const READ_ANEW: usize = 2;

/// The slots of a decoder.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Counts takings, so that the slot that has rested longest is known.
    clock: u64,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// The tokens whose keys and values it has, from the first row on.
    tokens: Vec<u32>,
    /// How many of the first ones it has no more, because they are behind a sliding window.
    dropped: usize,
    is_taken: bool,
    last_taken: u64,
}

/// How a prompt begins in a slot that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The slot.
    pub slot: usize,
    /// How many of its first tokens are there, or are to be copied.
    pub reused: usize,
    /// The slot to copy their keys and values from, if they are not there.
    pub copied_from: Option<usize>,
}

impl Slots {
    /// So many, all empty.
    pub fn new(count: usize) -> Slots {
        Slots { slots: vec![Slot::default(); count], clock: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many nobody has.
    pub fn free(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.is_taken).count()
    }

    /// The tokens of a slot.
    pub fn tokens(&self, slot: usize) -> &[u32] {
        &self.slots[slot].tokens
    }

    /// How many rows of the cache it has: all of its tokens', but for those behind a sliding window.
    pub fn rows(&self, slot: usize) -> usize {
        self.slots[slot].tokens.len() - self.slots[slot].dropped
    }

    /// The first rows of a slot are dropped.
    pub fn drop_rows(&mut self, slot: usize, count: usize) {
        self.slots[slot].dropped += count;
    }

    /// Of the slots that nobody has and that `which` is true of, the one that has rested longest.
    pub fn longest_at_rest(&self, which: impl Fn(usize) -> bool) -> Option<usize> {
        let resting = (0..self.slots.len()).filter(|&slot| !self.slots[slot].is_taken && which(slot));
        resting.min_by_key(|&slot| self.slots[slot].last_taken)
    }

    /// Takes a free slot for a prompt, whose last [`READ_ANEW`] tokens are read in any case: the slot, free or not, whose tokens begin
    /// most like it is where it starts from.
    pub fn take(&mut self, prompt: &[u32]) -> Option<Start> {
        let most = prompt.len().saturating_sub(READ_ANEW);
        let common = |slot: &Slot| {
            let count = slot.tokens.iter().zip(&prompt[..most]).take_while(|(a, b)| a == b).count();
            // Behind a sliding window a text can only be continued at its end.
            if slot.dropped > 0 && count < slot.tokens.len() { 0 } else { count }
        };
        let shared: Vec<usize> = self.slots.iter().map(common).collect();
        let alike = (0..self.slots.len()).max_by_key(|&slot| (shared[slot], !self.slots[slot].is_taken))?;
        let reused = shared[alike];
        // Otherwise the emptiest, then the one that has rested longest.
        let free = (0..self.slots.len()).filter(|&slot| !self.slots[slot].is_taken);
        let key = |&slot: &usize| (!self.slots[slot].tokens.is_empty(), self.slots[slot].last_taken, slot);
        let chosen = match self.slots[alike].is_taken {
            false if reused > 0 && self.is_continued(alike, reused) => alike,
            _ => free.min_by_key(key)?,
        };
        self.clock += 1;
        let copied_from = (shared[chosen] < reused).then_some(alike);
        let dropped = if reused > 0 { self.slots[copied_from.unwrap_or(chosen)].dropped } else { 0 };
        let slot = &mut self.slots[chosen];
        (slot.is_taken, slot.last_taken, slot.dropped) = (true, self.clock, dropped);
        slot.tokens.clear();
        slot.tokens.extend_from_slice(&prompt[..reused]);
        Some(Start { slot: chosen, reused, copied_from })
    }

    /// Whether a free slot is continued rather than copied: all that it has is taken over, or most of it and no slot is empty.
    fn is_continued(&self, slot: usize, reused: usize) -> bool {
        let is_empty = |slot: &Slot| !slot.is_taken && slot.tokens.is_empty();
        match self.slots[slot].tokens.len() {
            all if all == reused => true,
            all => !self.slots.iter().any(is_empty) && (2 * reused >= all || self.free() == 1),
        }
    }

    /// Gives a slot back; its tokens stay for prompts that begin like them.
    pub fn give_back(&mut self, slot: usize) {
        self.slots[slot].is_taken = false;
    }

    /// Adds tokens whose keys and values a slot has got.
    pub fn add(&mut self, slot: usize, tokens: &[u32]) {
        self.slots[slot].tokens.extend_from_slice(tokens);
    }

    /// Forgets all tokens of a slot but the first ones; those too where they are dropped.
    pub fn keep(&mut self, slot: usize, count: usize) {
        let slot = &mut self.slots[slot];
        let count = if slot.dropped > 0 { 0 } else { count };
        slot.tokens.truncate(count);
        slot.dropped = 0;
    }

    /// Forgets the last token of a slot.
    pub fn forget_last(&mut self, slot: usize) {
        self.slots[slot].tokens.pop();
    }

    /// A slot has got the tokens of another.
    pub fn copy(&mut self, from: usize, to: usize) {
        if from != to {
            let Slot { tokens, dropped, .. } = self.slots[from].clone();
            (self.slots[to].tokens, self.slots[to].dropped) = (tokens, dropped);
        }
    }

    /// The tokens that slots have after copies that all read what was there before: `(from, to)` each.
    pub fn copy_all(&mut self, pairs: &[(usize, usize)]) {
        let before: Vec<Slot> = pairs.iter().map(|&(from, _)| self.slots[from].clone()).collect();
        for (&(_, to), Slot { tokens, dropped, .. }) in pairs.iter().zip(before) {
            (self.slots[to].tokens, self.slots[to].dropped) = (tokens, dropped);
        }
    }

    /// What is in a slot and who has it moves to one that nobody has.
    pub fn hand_over(&mut self, from: usize, to: usize) {
        self.copy(from, to);
        self.slots[to].is_taken = true;
        self.slots[to].last_taken = self.slots[from].last_taken;
        self.slots[from].is_taken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(slot: usize, reused: usize, copied_from: Option<usize>) -> Option<Start> {
        Some(Start { slot, reused, copied_from })
    }

    #[test]
    fn a_prompt_starts_where_another_began_alike() {
        let mut slots = Slots::new(3);
        assert_eq!(slots.take(&[1, 2, 3]), start(0, 0, None));
        slots.add(0, &[1, 2, 3, 4]);
        // Another with the same beginning, while the first one is written: copied.
        assert_eq!(slots.take(&[1, 2, 8, 9]), start(1, 2, Some(0)));
        slots.add(1, &[8, 9]);
        assert_eq!((slots.free(), slots.tokens(1)), (1, &[1, 2, 8, 9][..]));
        // The same prompt: its last tokens are read again.
        assert_eq!(slots.take(&[1, 2, 8, 9]), start(2, 2, Some(1)));
        assert_eq!(slots.take(&[5]), None);
        // The next turn of a chat goes on in its slot.
        slots.give_back(0);
        slots.give_back(2);
        assert_eq!(slots.take(&[1, 2, 3, 4, 5, 6]), start(0, 4, None));
        assert_eq!(slots.tokens(0), [1, 2, 3, 4]);
        // Something else takes a slot that is free.
        assert_eq!(slots.take(&[7, 8]), start(2, 0, None));
        assert!(slots.tokens(2).is_empty());
    }

    #[test]
    fn what_was_used_last_is_forgotten_last() {
        let mut slots = Slots::new(2);
        for (prompt, slot) in [([1, 1], 0), ([2, 2], 1), ([3, 3], 0), ([4, 4], 1)] {
            assert_eq!(slots.take(&prompt), start(slot, 0, None));
            slots.add(slot, &prompt);
            slots.give_back(slot);
        }
    }

    #[test]
    fn behind_a_window_a_text_is_continued_at_its_end_only() {
        let mut slots = Slots::new(2);
        slots.take(&[1]);
        slots.add(0, &[1, 2, 3, 4]);
        slots.drop_rows(0, 2);
        assert_eq!(slots.rows(0), 2);
        assert_eq!(slots.take(&[1, 2, 3, 9, 9]), start(1, 0, None));
        slots.give_back(1);
        assert_eq!(slots.take(&[1, 2, 3, 4, 5, 6]), start(1, 4, Some(0)));
        assert_eq!(slots.rows(1), 2);
        slots.keep(0, 1);
        assert_eq!((slots.tokens(0).len(), slots.rows(0)), (0, 0));
    }

    #[test]
    fn a_short_common_beginning_is_copied_while_there_is_room() {
        let mut slots = Slots::new(2);
        slots.take(&[1]);
        slots.add(0, &[1, 2, 3, 4, 5, 6]);
        slots.give_back(0);
        assert_eq!(slots.take(&[1, 9, 9]), start(1, 1, Some(0)));
        assert_eq!(slots.tokens(0).len(), 6);
        assert_eq!(slots.take(&[1, 8, 8]), start(0, 1, None));
    }
}
