//! What generating takes of a device's memory, known before anything is taken: weights, caches and plans.

use vitreous_engine::machine::refusal;
use vitreous_engine::{Device, Precision, Result};

use super::decoder::{Decoder, PlanShape, Planned, StepOutput};
use crate::call::StepShape;
use crate::family::Architecture;
use crate::on_device::OnDevice;

/// Bytes that generating takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationMemory {
    /// Weights, and the memory of plans for reading a chunk and for a step of all sequences.
    pub model: usize,
    /// As `model`, with one sequence.
    pub model_for_one: usize,
    /// Keys and values of all sequences, as far as there is memory for them at the same time.
    pub caches: usize,
    /// Keys and values of one token.
    pub per_token: usize,
}

impl GenerationMemory {
    /// What caches of a shape, of which at most `tokens` rows are used at the same time, and chunks of so many tokens take.
    pub(super) fn new(
        source: &OnDevice,
        model: &dyn Architecture,
        precision: Precision,
        room: StepShape,
        tokens: usize,
        chunk: usize,
    ) -> Result<GenerationMemory> {
        let plan = |slots: usize, tokens: usize| {
            let shape = PlanShape { slots, tokens, output: StepOutput::Logits };
            Planned::new(source, model, precision, room, shape).map(|planned| planned.plan)
        };
        let (step, read, one) = (plan(room.batch, 1)?, plan(1, chunk.min(room.capacity))?, plan(1, 1)?);
        let whole = Decoder::cache_bytes(model, precision, room)?;
        let per_token = whole / (room.batch * room.capacity).max(1);
        let caches = whole.min(tokens.saturating_mul(per_token));
        let device = source.device();
        let model = device.bytes_needed_together(&[&step, &read]);
        // Few rows may want weights in another form than many.
        let model_for_one = device.bytes_needed_together(&[&one, &read]).min(model);
        Ok(GenerationMemory { model, model_for_one, caches, per_token })
    }

    /// Refuses what does not fit, with what would.
    pub(super) fn check(&self, device: &Device, room: StepShape) -> Result<()> {
        match device.available_memory()? {
            Some(available) => self.fits(available, room),
            None => Ok(()),
        }
    }

    fn fits(&self, available: u64, room: StepShape) -> Result<()> {
        let needed = (self.model as u64).saturating_add(self.caches as u64);
        if needed <= available {
            return Ok(());
        }
        let sequences = |count: usize| if count == 1 { "1 sequence".to_string() } else { format!("{count} sequences") };
        let what = format!("a context of {} tokens for {}", room.capacity, sequences(room.batch));
        let tokens = |model: usize| (available.saturating_sub(model as u64) / (self.per_token as u64).max(1)) as usize;
        let more = (self.model - self.model_for_one) / room.batch.saturating_sub(1).max(1);
        let per_sequence = (room.capacity * self.per_token + more).max(1) as u64;
        let whole = (available.saturating_sub(self.model_for_one as u64) / per_sequence) as usize;
        let advice = match (tokens(self.model_for_one), whole, tokens(self.model) / room.batch) {
            (0, ..) => "take a smaller or quantised model".to_string(),
            (most, 0, _) => format!("a context of {most} tokens for 1 sequence would fit"),
            (_, whole, 0) => format!("{} of such a context would fit", sequences(whole)),
            (_, whole, each) => format!(
                "{} of such a context would fit, or a context of {each} tokens for {}",
                sequences(whole),
                sequences(room.batch)
            ),
        };
        Err(refusal(&what, needed, available, &advice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::CacheFormat;

    #[test]
    fn a_refusal_says_what_would_fit() {
        let memory = GenerationMemory { model: 1000, model_for_one: 1000, caches: 4 * 100 * 10, per_token: 10 };
        let room = StepShape { batch: 4, source: 1, capacity: 100, cache: CacheFormat::F32 };
        assert!(memory.fits(5000, room).is_ok());
        let refused = |available: u64| memory.fits(available, room).expect_err("too little").to_string();
        let what = "a context of 100 tokens for 4 sequences needs";
        for (available, says) in [
            (4999, "3 sequences of such a context would fit, or a context of 99 tokens for 4 sequences"),
            (1999, "a context of 99 tokens for 1 sequence would fit"),
            (1000, "take a smaller or quantised model"),
        ] {
            let refusal = refused(available);
            assert!(refusal.contains(what) && refusal.contains(says), "{refusal}");
        }
        // Where the plan for all of them is too large, fewer are advised.
        let memory = GenerationMemory { model: 7000, ..memory };
        let refusal = memory.fits(6000, room).expect_err("too little").to_string();
        assert!(refusal.ends_with("1 sequence of such a context would fit"), "{refusal}");
    }
}
