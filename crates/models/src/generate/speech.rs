//! Writing what is said: windows of audio through the encoder, then tokens through the decoder, several texts at once.
//!
//! Each text has a slot with the keys and values of its window and of its tokens. What tokens are chosen is the caller's business: this
//! gives logits.

use vitreous_engine::{Device, Error, Precision, Result, ResultCopy, SlotCopy};

use super::decoder::{Decoder, PlanShape, SlotTokens, StepOutput, cache_format};
use super::encoder::Encoders;
use crate::call::StepShape;
use crate::family::Architecture;
use crate::on_device::{OnDevice, Weights};
use crate::signature::AudioInput;

/// Plans that are kept on the CPU: steps of several numbers of texts, and prompts of several lengths.
const KEPT_PLANS: usize = 8;
/// Windows that are encoded at once. A window alone keeps a CPU busy.
const ENCODED_AT_ONCE: usize = 1;
const ENCODED_AT_ONCE_ON_GPU: usize = 16;

/// A speech model made ready to listen and write on a device.
pub struct SpeechWriter<'w> {
    model: &'w dyn Architecture,
    input: AudioInput,
    precision: Precision,
    source: OnDevice<'w>,
    encoders: Encoders,
    decoder: Option<Decoder<'w>>,
}

/// The next tokens of a text.
#[derive(Clone, Copy, Debug)]
pub struct TextSlot<'t> {
    /// The tokens.
    pub tokens: &'t [u32],
    /// How many came before them.
    pub place: usize,
}

impl<'w> SpeechWriter<'w> {
    /// A writer on a device, with the parameters that `weights` gives by name. An error if the model takes no audio.
    pub fn new(
        model: &'w dyn Architecture,
        precision: Precision,
        device: &Device,
        weights: Weights<'w>,
    ) -> Result<SpeechWriter<'w>> {
        let signature = model.signature();
        let input = signature
            .audio()
            .ok_or_else(|| Error::Machine(format!("this is {}, which does not listen", signature.what())))?;
        let (source, encoders) = (OnDevice::new(device, weights), Encoders::default());
        Ok(SpeechWriter { model, input, precision, source, encoders, decoder: None })
    }

    /// What the model takes.
    pub fn input(&self) -> AudioInput {
        self.input
    }

    /// Makes room for so many texts at once. What slots had is lost if there was less.
    pub fn make_room(&mut self, slots: usize) -> Result<()> {
        let cache = cache_format(self.source.device(), self.precision);
        let room = StepShape { batch: slots, source: 1, capacity: self.input.target.longest, cache };
        if self.decoder.as_ref().is_some_and(|decoder| decoder.has_room_for(room)) {
            return Ok(());
        }
        // The old one's memory goes before the new one's comes.
        self.decoder = None;
        let plan = PlanShape { slots, tokens: 1, output: StepOutput::Logits };
        let (model, precision) = (self.model, self.precision);
        self.decoder = Some(Decoder::new(&mut self.source, model, precision, room, plan, KEPT_PLANS, None)?);
        Ok(())
    }

    /// Encodes windows, each all frames of a log-mel spectrogram, and gives them to slots: the first window to the first
    /// `slots_each` slots, and so on.
    pub fn listen(&mut self, windows: &[&[f32]], slots_each: usize) -> Result<()> {
        self.make_room(windows.len() * slots_each)?;
        let AudioInput { bins, frames, positions, .. } = self.input;
        if let Some(window) = windows.iter().find(|window| window.len() != bins * frames) {
            let (got, wanted) = (window.len(), bins * frames);
            return Err(Error::Machine(format!("a window has {got} values; the model takes {wanted}")));
        }
        let cache = cache_format(self.source.device(), self.precision);
        let most = if self.source.device().is_gpu() { ENCODED_AT_ONCE_ON_GPU } else { ENCODED_AT_ONCE };
        for (group, windows) in windows.chunks(most).enumerate() {
            // Few shapes on a GPU, where each is compiled.
            let count = if most > 1 { windows.len().next_power_of_two() } else { 1 };
            self.encoders.prepare(&mut self.source, self.model, self.precision, cache, (count, positions))?;
            let (Some(encoder), Some(decoder)) = (self.encoders.last(), &mut self.decoder) else { return Ok(()) };
            encoder.run_audio(windows)?;
            let copies = (0..windows.len()).flat_map(|sample| {
                let first = (group * most + sample) * slots_each;
                (first..first + slots_each).map(move |slot| ResultCopy { sample, slot, rows: positions })
            });
            decoder.take_sources(encoder, &copies.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Reads tokens of the texts in the slots from one on; gives the logits behind the last token of each, `[texts, vocabulary]`.
    pub fn read(&mut self, first: usize, texts: &[TextSlot]) -> Result<&[f32]> {
        let Some(decoder) = &mut self.decoder else {
            return Err(Error::Machine("nothing was listened to".to_string()));
        };
        let longest = texts.iter().map(|text| text.tokens.len()).max().unwrap_or(1);
        let furthest = texts.iter().map(|text| text.place).max().unwrap_or(0);
        let width = width_of(longest, self.input.target.longest - furthest);
        decoder
            .use_plan(&mut self.source, PlanShape { slots: texts.len(), tokens: width, output: StepOutput::Logits })?;
        let inputs: Vec<SlotTokens> =
            texts.iter().map(|text| SlotTokens { tokens: text.tokens, place: text.place, row: text.place }).collect();
        decoder.step(first, &inputs)?;
        let logits = decoder.logits()?;
        Ok(&logits[..texts.len() * self.input.target.vocabulary])
    }

    /// Lets slots go on from what others have read and written: pairs of a slot and the one it takes over from, of so many tokens.
    pub fn go_on(&mut self, from: &[(usize, usize)], tokens: usize) -> Result<()> {
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let copies: Vec<SlotCopy> = from
            .iter()
            .filter(|(to, from)| to != from)
            .map(|&(to, from)| SlotCopy { to, from, rows: tokens })
            .collect();
        if copies.is_empty() { Ok(()) } else { decoder.copy_own(&copies) }
    }
}

/// Tokens of the plan that reads so many, with room for `room`: there are few lengths, so that plans are used again.
fn width_of(count: usize, room: usize) -> usize {
    let rounded = match count {
        0..=4 => count.max(1),
        5..=16 => count.next_multiple_of(4),
        _ => count.next_multiple_of(32),
    };
    if rounded <= room { rounded } else { count }
}
