//! Running encoders on texts of any length: texts of similar length are computed together, and weights are kept once for all shapes.

pub(crate) mod batches;

use std::time::{Duration, Instant};

use vitreous_engine::{DType, Device, Error, Executor, Graph, Mode, Plan, Precision, Result, Value};

use crate::call::Call;
use crate::family::Architecture;
use crate::on_device::{OnDevice, Weights};
use crate::pooling::{POOLED, Pooling, pool};
use crate::signature::{CaptionInput, TokenInput};
use batches::{Shape, TextBatch, batches};

/// Executors that are kept on a GPU, where making one takes longer than running it.
const MOST_KEPT: usize = 24;

/// What is asked of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderOutput {
    /// One vector per text, pooled from its tokens.
    Pooled(Pooling),
    /// The logits of a head: one row per text, or one per token.
    Logits,
    /// The logits of masked tokens: one row for each that a text has.
    Masked,
    /// One vector per caption of the text tower of a model of images and texts.
    Caption(CaptionInput),
}

/// The tokens of a text.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextTokens<'t> {
    /// The tokens.
    pub ids: &'t [u32],
    /// Their types, for models that tell them apart.
    pub types: &'t [u32],
    /// Which of them are masked, for [`EncoderOutput::Masked`].
    pub masked: &'t [usize],
}

/// An encoder made ready for texts.
pub struct EncoderRunner<'m> {
    architecture: &'m dyn Architecture,
    input: TokenInput,
    output: EncoderOutput,
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

impl<'m> EncoderRunner<'m> {
    /// Makes a model ready on a device.
    pub fn new(
        architecture: &'m dyn Architecture,
        output: EncoderOutput,
        precision: Precision,
        device: &Device,
        weights: Weights<'m>,
    ) -> Result<EncoderRunner<'m>> {
        let signature = architecture.signature();
        let Some(input) = signature.tokens() else {
            return Err(Error::Machine(format!("this is {}, which takes no single texts", signature.what())));
        };
        let source = OnDevice::new(device, weights);
        Ok(EncoderRunner {
            architecture,
            input,
            output,
            precision,
            source,
            kept: Vec::new(),
            computing: Duration::ZERO,
        })
    }

    /// What it runs on.
    pub fn device(&self) -> &Device {
        self.source.device()
    }

    /// Runs it on texts. `answer` is told the index of a text and its rows, one after the other, not in the order of the texts.
    pub fn run<E: From<Error>>(
        &mut self,
        texts: &[TextTokens],
        mut answer: impl FnMut(usize, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let lengths: Vec<usize> = texts.iter().map(|text| text.ids.len()).collect();
        let (longest, most) = (lengths.iter().copied().max().unwrap_or(0), self.input.longest);
        if longest > most {
            return Err(Error::Machine(format!("a text has {longest} tokens, but the model reads {most}")).into());
        }
        let lengths: Vec<usize> = match self.output {
            EncoderOutput::Caption(input) => lengths.into_iter().map(|length| input.padded_length(length)).collect(),
            _ => lengths,
        };
        for batch in batches(&lengths, most, self.device().is_gpu()) {
            let start = Instant::now();
            self.run_batch(&batch, texts, &mut answer)?;
            self.computing += start.elapsed();
        }
        Ok(())
    }

    fn run_batch<E: From<Error>>(
        &mut self,
        TextBatch { shape, texts: chosen }: &TextBatch,
        texts: &[TextTokens],
        answer: &mut impl FnMut(usize, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_masked = self.output == EncoderOutput::Masked;
        let masked = chosen.iter().map(|&text| texts[text].masked.len()).sum::<usize>();
        if is_masked && masked == 0 {
            return chosen.iter().try_for_each(|&text| answer(text, &[]));
        }
        let masked = match (is_masked, self.device().is_gpu()) {
            (false, _) => 0,
            // A few sizes: the rest of the rows are computed for nothing.
            (true, true) => masked.next_power_of_two(),
            (true, false) => masked,
        };
        let has_types = self.input.token_types > 1;
        let output = self.output;
        let ready = self.make_ready(*shape, masked)?;
        let length = shape.length;
        let executor = &mut ready.executor;
        // Padding is never looked at, but by models that say what it is.
        let padding = if let EncoderOutput::Caption(input) = output { input.padding() } else { 0 };
        let to = executor.input_i32("tokens")?;
        fill_rows(to, length, padding, chosen.iter().map(|&text| texts[text].ids));
        if has_types {
            fill_rows(executor.input_i32("token_types")?, length, 0, chosen.iter().map(|&text| texts[text].types));
        }
        // A row without a text has one token, so that attention has one to go to.
        let mut lengths: Vec<usize> = chosen.iter().map(|&text| texts[text].ids.len().max(1)).collect();
        lengths.resize(shape.batch, 1);
        match output {
            EncoderOutput::Caption(input) => {
                if input.has_pooled() {
                    let to = executor.input_i32(POOLED)?;
                    to.fill(0);
                    let places = chosen.iter().map(|&text| input.place(texts[text].ids)).enumerate();
                    to.iter_mut().zip(places).for_each(|(to, (row, place))| *to = (row * length + place) as i32);
                }
            }
            _ => {
                let to = executor.input_i32("lengths")?;
                to.iter_mut().zip(&lengths).for_each(|(to, &length)| *to = length as i32);
            }
        }
        if let EncoderOutput::Pooled(pooling) = output
            && let Some(indices) = pooling.indices(&lengths, length)
        {
            executor.input_i32(POOLED)?.copy_from_slice(&indices);
        }
        if is_masked {
            let rows = chosen.iter().enumerate();
            let flat = rows.flat_map(|(row, &text)| texts[text].masked.iter().map(move |at| row * length + at));
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
                EncoderOutput::Masked => (at, texts[text].masked.len()),
                _ if ready.by_token => (index * length, texts[text].ids.len()),
                _ => (index, 1),
            };
            at = from + rows;
            answer(text, &all[from * ready.row..][..rows * ready.row])?;
        }
        Ok(())
    }

    /// What is ready for a shape.
    fn make_ready(&mut self, shape: Shape, masked: usize) -> Result<&mut Ready> {
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
        self.kept.last_mut().ok_or_else(|| Error::Machine("no executor was made".to_string()))
    }

    fn plan(&self, shape: Shape, masked: usize) -> Result<Planned> {
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let call = Call::whole(shape.batch).tokens(shape.length).masked(masked);
        let built = self.architecture.build(&mut graph, &call)?;
        let output = match self.output {
            EncoderOutput::Pooled(pooling) => {
                let lengths = graph.find("lengths")?;
                pool(&mut graph, pooling, built.need("tokens")?, lengths)?
            }
            EncoderOutput::Logits | EncoderOutput::Masked => built.need("logits")?,
            EncoderOutput::Caption(_) => built.need("features")?,
        };
        let output = graph.cast(output, DType::F32)?;
        let shape = graph.shape_of(output);
        let (row, by_token) = (shape.columns(), shape.axes().len() == 3);
        let plan = self.source.plan(&mut graph, &[output])?;
        Ok(Planned { plan, output, row, by_token })
    }
}

/// Writes rows, filled up with a token.
pub(crate) fn fill_rows<'t>(matrix: &mut [i32], width: usize, padding: u32, rows: impl Iterator<Item = &'t [u32]>) {
    matrix.fill(padding as i32);
    for (to, row) in matrix.chunks_exact_mut(width).zip(rows) {
        to.iter_mut().zip(row).for_each(|(to, &id)| *to = id as i32);
    }
}
