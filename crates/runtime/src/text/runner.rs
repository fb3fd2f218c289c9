//! Runs a model on texts of any length.

use std::time::{Duration, Instant};

use vitreous_data::text::Encoding;
use vitreous_engine::{DType, Device, Executor, Graph, Mode, Plan, Precision, Value};
use vitreous_models::{Call, OnDevice, POOLED, Pooling, pool};

use super::batches::{Shape, TextBatch, batches};
use super::model::TextModel;
use crate::error::Error;

/// Executors that are kept on a GPU, where making one takes longer than running it.
const MOST_KEPT: usize = 24;

/// What is asked of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOutput {
    /// One vector per text, pooled from its tokens.
    Pooled(Pooling),
    /// The logits of a head: one row per text, or one per token.
    Logits,
    /// The logits of masked tokens: one row for each that a text has.
    Masked,
}

/// A model made ready for texts: weights are kept once for all shapes.
pub struct TextRunner<'m> {
    model: &'m TextModel,
    output: TextOutput,
    precision: Precision,
    source: OnDevice<'m>,
    kept: Vec<Ready>,
    /// Time spent computing.
    pub computing: Duration,
}

struct Ready {
    shape: Shape,
    masked: usize,
    executor: Executor,
    output: Value,
    row: usize,
    by_token: bool,
}

struct Planned {
    plan: Plan,
    output: Value,
    /// Floats of a row of the output.
    row: usize,
    /// Whether there is a row for each token, and not for each text.
    by_token: bool,
}

impl<'m> TextRunner<'m> {
    /// Makes a model ready on a device.
    pub fn new(model: &'m TextModel, output: TextOutput, precision: Precision, device: &Device) -> TextRunner<'m> {
        let source = OnDevice::new(device, model.weights());
        TextRunner { model, output, precision, source, kept: Vec::new(), computing: Duration::ZERO }
    }

    /// What it runs on.
    pub fn device(&self) -> &Device {
        self.source.device()
    }

    /// Runs it on texts. `answer` is told the index of a text and its rows, one after the other; texts of similar length are computed
    /// together, so it is not in their order.
    pub fn run(
        &mut self,
        texts: &[Encoding],
        mut answer: impl FnMut(usize, &[f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let lengths: Vec<usize> = texts.iter().map(Encoding::len).collect();
        if let Some(long) = lengths.iter().find(|&&length| length > self.model.input.longest) {
            let most = self.model.input.longest;
            return Err(Error::input(format!("a text has {long} tokens, but the model reads {most} at most")));
        }
        for batch in batches(&lengths, self.model.input.longest, self.device().is_gpu()) {
            let start = Instant::now();
            self.run_batch(&batch, texts, &mut answer)?;
            self.computing += start.elapsed();
        }
        Ok(())
    }

    fn run_batch(
        &mut self,
        TextBatch { shape, texts: chosen }: &TextBatch,
        texts: &[Encoding],
        answer: &mut impl FnMut(usize, &[f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let masks: Vec<Vec<usize>> = match self.output {
            TextOutput::Masked => chosen.iter().map(|&text| self.masks_of(&texts[text])).collect(),
            _ => Vec::new(),
        };
        let masked = masks.iter().map(Vec::len).sum::<usize>();
        if self.output == TextOutput::Masked && masked == 0 {
            return chosen.iter().try_for_each(|&text| answer(text, &[]));
        }
        // On a GPU a few sizes: the rest of the rows are computed for nothing.
        let masked = if self.device().is_gpu() { masked.next_power_of_two() } else { masked };
        let padding = self.model.tokenizer.special().padding.unwrap_or(0).min(self.model.input.vocabulary as u32 - 1);
        let has_types = self.model.input.token_types > 1;
        let output = self.output;
        let ready = self.make_ready(*shape, masked)?;
        let length = shape.length;
        let executor = &mut ready.executor;
        let mut fill = |name: &str, nothing: u32, values: fn(&Encoding) -> &[u32]| -> Result<(), Error> {
            let rows = executor.input_i32(name)?;
            rows.fill(nothing as i32);
            for (row, &text) in rows.chunks_exact_mut(length).zip(chosen) {
                row.iter_mut().zip(values(&texts[text])).for_each(|(to, &id)| *to = id as i32);
            }
            Ok(())
        };
        fill("tokens", padding, |text| &text.ids)?;
        if has_types {
            fill("token_types", 0, |text| &text.token_types)?;
        }
        // A row without a text has one token, so that attention has one to go to.
        let own = |&text: &usize| texts[text].len().max(1);
        let mut lengths: Vec<usize> = chosen.iter().map(own).collect();
        lengths.resize(shape.batch, 1);
        let to = executor.input_i32("lengths")?;
        to.iter_mut().zip(&lengths).for_each(|(to, &length)| *to = length as i32);
        if let TextOutput::Pooled(pooling) = output
            && let Some(indices) = pooling.indices(&lengths, length)
        {
            executor.input_i32(POOLED)?.copy_from_slice(&indices);
        }
        if output == TextOutput::Masked {
            let flat = masks.iter().enumerate().flat_map(|(row, masks)| masks.iter().map(move |at| row * length + at));
            let to = executor.input_i32("masked")?;
            to.fill(0);
            to.iter_mut().zip(flat).for_each(|(to, index)| *to = index as i32);
        }
        executor.infer()?;
        executor.finish()?;
        let all = executor.output_slice(ready.output)?;
        let mut at = 0;
        for (index, &text) in chosen.iter().enumerate() {
            let (from, rows) = match output {
                TextOutput::Masked => (at, masks[index].len()),
                _ if ready.by_token => (index * length, texts[text].len()),
                _ => (index, 1),
            };
            at = from + rows;
            answer(text, &all[from * ready.row..][..rows * ready.row])?;
        }
        Ok(())
    }

    /// Where a text has masked tokens.
    fn masks_of(&self, text: &Encoding) -> Vec<usize> {
        let Some(mask) = self.model.tokenizer.special().mask else { return Vec::new() };
        text.ids.iter().enumerate().filter(|(_, id)| **id == mask).map(|(index, _)| index).collect()
    }

    /// What is ready for a shape.
    fn make_ready(&mut self, shape: Shape, masked: usize) -> Result<&mut Ready, Error> {
        let on_gpu = self.device().is_gpu();
        let suits = |ready: &Ready| ready.shape == shape && ready.masked == masked;
        if let Some(there) = self.kept.iter().position(suits) {
            let ready = self.kept.remove(there);
            self.kept.push(ready);
        } else {
            let Planned { plan, output, row, by_token } = self.plan(shape, masked)?;
            let there = if on_gpu { None } else { self.kept.pop().map(|ready| ready.executor) };
            if self.kept.len() == MOST_KEPT {
                self.kept.remove(0);
            }
            let executor = self.source.executor("running the model", there, plan)?;
            self.kept.push(Ready { shape, masked, executor, output, row, by_token });
        }
        self.kept.last_mut().ok_or_else(|| Error::input("no executor was made"))
    }

    fn plan(&self, shape: Shape, masked: usize) -> Result<Planned, Error> {
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let call = Call::whole(shape.batch).tokens(shape.length).masked(masked);
        let built = self.model.model.architecture.build(&mut graph, &call)?;
        let output = match self.output {
            TextOutput::Pooled(pooling) => {
                let lengths = graph.find("lengths")?;
                pool(&mut graph, pooling, built.need("tokens")?, lengths)?
            }
            TextOutput::Logits | TextOutput::Masked => built.need("logits")?,
        };
        let output = graph.cast(output, DType::F32)?;
        let shape = graph.shape_of(output);
        let (row, by_token) = (shape.columns(), shape.axes().len() == 3);
        Ok(Planned { plan: self.device().plan_with_fixed_weights(&graph, &[output])?, output, row, by_token })
    }
}
