//! A model's encoder: from sources to the keys and values that the decoder's layers attend to.

use vitreous_engine::{Executor, Graph, Mode, Precision, Result, Value};

use crate::call::{CacheFormat, Call, Part};
use crate::family::Architecture;
use crate::on_device::OnDevice;

/// Encoders that are kept on a GPU, where making one takes longer than running it.
const MOST_KEPT: usize = 8;

/// An encoder for sources of one shape.
pub(super) struct Encoder {
    /// Sources at once, and the length of each, with padding.
    shape: (usize, usize),
    executor: Executor,
    /// The keys and values of every decoder layer by the names of the caches that they are for: `[batch, length, dim]`. They stay on
    /// the device.
    keys_and_values: Vec<(String, Value)>,
}

/// Encoders by shape: on the CPU the last one, on a GPU several.
#[derive(Default)]
pub(super) struct Encoders {
    kept: Vec<Encoder>,
}

impl Encoders {
    /// The encoder for a shape. `cache` is the format that its keys and values are kept in.
    pub fn prepare(
        &mut self,
        source: &mut OnDevice,
        model: &dyn Architecture,
        precision: Precision,
        cache: CacheFormat,
        shape: (usize, usize),
    ) -> Result<()> {
        let on_gpu = source.device().is_gpu();
        let suiting = self.kept.iter().enumerate().filter(|(_, encoder)| suits(encoder.shape, shape, on_gpu));
        if let Some((ready, _)) = suiting.min_by_key(|(_, encoder)| encoder.shape.0 * encoder.shape.1) {
            let encoder = self.kept.remove(ready);
            self.kept.push(encoder);
            return Ok(());
        }
        let mut graph = Graph::new(Mode::Inference, precision);
        let mut keys_and_values = Vec::new();
        let call = Call::whole(shape.0).tokens(shape.1).part(Part::Encode);
        for (name, value) in model.build(&mut graph, &call)?.iter() {
            keys_and_values.push((name.to_string(), graph.cast(value, cache.into())?));
        }
        let results: Vec<Value> = keys_and_values.iter().map(|(_, value)| *value).collect();
        let plan = source.plan(&mut graph, &results)?;
        let plan = plan.leaving_on_device(&results)?;
        let there = if on_gpu { None } else { self.kept.pop().map(|encoder| encoder.executor) };
        if self.kept.len() == MOST_KEPT {
            self.kept.remove(0);
        }
        let executor = source.executor("generating", there, plan)?;
        self.kept.push(Encoder { shape, executor, keys_and_values });
        Ok(())
    }

    /// The encoder that was prepared last.
    pub fn last(&mut self) -> Option<&mut Encoder> {
        self.kept.last_mut()
    }
}

/// Whether an encoder is run for sources of a shape: on a GPU also a larger one, which is sooner done than making another.
fn suits(there: (usize, usize), wanted: (usize, usize), on_gpu: bool) -> bool {
    if on_gpu { there.0 >= wanted.0 && there.1 >= wanted.1 } else { there == wanted }
}

impl Encoder {
    /// What runs it.
    pub fn executor(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Its results, by the names of the caches that they are for.
    pub fn keys_and_values(&self) -> &[(String, Value)] {
        &self.keys_and_values
    }

    /// Encodes windows of audio, each all frames of a log-mel spectrogram; the shape's windows behind them are whatever was there.
    pub fn run_audio(&mut self, windows: &[&[f32]]) -> Result<()> {
        let to = self.executor.input("mel")?;
        let length = to.len() / self.shape.0.max(1);
        to.chunks_exact_mut(length).zip(windows).for_each(|(to, window)| to.copy_from_slice(window));
        self.executor.infer()
    }

    /// Encodes sources, given with their end; the shape's rows behind them are padding.
    pub fn run(&mut self, sources: &[&[u32]], padding: u32) -> Result<()> {
        let length = self.shape.1;
        let rows = self.executor.input_i32("source")?;
        rows.fill(padding as i32);
        for (row, source) in rows.chunks_exact_mut(length).zip(sources) {
            row.iter_mut().zip(*source).for_each(|(to, &token)| *to = token as i32);
        }
        let lengths = self.executor.input_i32("source_lengths")?;
        lengths.fill(1);
        lengths.iter_mut().zip(sources).for_each(|(to, source)| *to = source.len() as i32);
        self.executor.infer()
    }
}
