//! `vitreous bench --mode generate`: how fast prompts are read and tokens are written.

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use half::bf16;
use serde_json::json;
use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{BlockFormat, Device, Parameter, Precision, WeightView};
use vitreous_models::generate::{GenerateOptions, Request, Tally, TokenGenerator};
use vitreous_models::{Architecture, Model, OpenOptions, Weights, WeightsByName};
use vitreous_runtime::locate::unsuitable;
use vitreous_runtime::{described, open_model};

use super::sequences::{self, Seconds};
use super::{FEWEST_RUNS, MOST_RUNS, fill_parameter, fill_uniform, quantile};
use crate::failure::Failure;

/// What is generated.
pub(super) struct Generation {
    /// Prompts at once.
    pub batch: usize,
    /// Tokens of each prompt.
    pub prompt: usize,
    /// Tokens that are written after each.
    pub tokens: usize,
    pub precision: Precision,
    /// How a preset's random weights are stored; `None`: as they are multiplied.
    pub weights: Option<BlockFormat>,
    pub seconds: f64,
}

/// Random numbers that fill a preset's weights, again and again: drawing billions of them takes longer than the measurement.
const DRAWN: usize = 1 << 20;

/// Tokens per second of each run, the slowest first.
pub(super) struct Rates {
    reading: Vec<f64>,
    writing: Vec<f64>,
}

/// What was measured.
pub(super) enum Measured {
    /// Of a language model.
    Rates(Rates),
    /// Of an encoder-decoder.
    Seconds(Seconds),
}

impl Measured {
    pub fn json(&self, model: &str, asked: &Generation, device: &Device) -> serde_json::Value {
        match self {
            Measured::Rates(rates) => rates.json(model, asked, device),
            Measured::Seconds(seconds) => seconds.json(model, asked, device),
        }
    }

    pub fn lines(&self, model: &str, asked: &Generation, device: &Device) -> Vec<String> {
        match self {
            Measured::Rates(rates) => rates.lines(model, asked, device),
            Measured::Seconds(seconds) => seconds.lines(model, asked, device),
        }
    }
}

/// Why so many tokens cannot be.
pub(super) fn too_long(name: &str, asked: &Generation, longest: usize) -> Failure {
    Failure::input(anyhow!(
        "{name}: {} tokens of prompt and {} to write are more than this model reads, {longest}: give a smaller --prompt or --tokens",
        asked.prompt,
        asked.tokens
    ))
}

impl Generation {
    /// Measures a model directory or file with its own weights, or a preset with random ones.
    pub fn measure(&self, name: &str, device: &Device) -> Result<Measured, Failure> {
        let options = OpenOptions::default();
        if Path::new(name).exists() {
            let model = open_model(Path::new(name), &options)?;
            return self.run(name, model.architecture.as_ref(), device, Box::new(&model));
        }
        let (architecture, _) = vitreous_runtime::architecture(name, &options)?;
        let model = Model::new(architecture, Vec::new()).map_err(Failure::input)?;
        let weights = RandomWeights::new(&model, self.weights, self.precision);
        self.run(name, model.architecture.as_ref(), device, Box::new(weights))
    }

    fn run<'m>(
        &self,
        name: &str,
        model: &'m dyn Architecture,
        device: &Device,
        weights: Weights<'m>,
    ) -> Result<Measured, Failure> {
        let signature = model.signature();
        if signature.pairs().is_some() {
            return sequences::of_pairs(self, name, model, device, weights).map(Measured::Seconds);
        }
        if signature.audio().is_some() {
            return sequences::of_audio(self, name, model, device, weights).map(Measured::Seconds);
        }
        let (Some(vocabulary), Some(input)) = (signature.next_token(), signature.tokens()) else {
            return Err(unsuitable(name, &signature, "language model").into());
        };
        let context = self.prompt + self.tokens;
        if context > input.longest {
            return Err(too_long(name, self, input.longest));
        }
        let options =
            GenerateOptions { slots: self.batch, context, precision: self.precision, ..GenerateOptions::default() };
        let mut generator = TokenGenerator::new(model, options, device, weights).map_err(Failure::input)?;
        let mut rates = Rates { reading: Vec::new(), writing: Vec::new() };
        // The first run makes plans ready and is not counted.
        self.run_once(&mut generator, vocabulary, 0)?;
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        while rates.reading.len() < FEWEST_RUNS || (Instant::now() < end && rates.reading.len() < MOST_RUNS) {
            let before = generator.tally();
            self.run_once(&mut generator, vocabulary, 1 + rates.reading.len())?;
            rates.add(before, generator.tally());
        }
        rates.reading.sort_by(f64::total_cmp);
        rates.writing.sort_by(f64::total_cmp);
        Ok(Measured::Rates(rates))
    }

    /// What was asked for.
    pub fn json(&self, model: &str, device: &Device) -> serde_json::Value {
        json!({
            "model": model,
            "mode": "generate",
            "precision": if self.precision == Precision::F32 { "f32" } else { "bf16" },
            "device": device.name(),
            "weights": self.weights.map(BlockFormat::name),
            "batch": self.batch,
            "prompt": self.prompt,
            "tokens": self.tokens,
        })
    }

    /// Prompts that no other run has, so that nothing of them is known yet.
    fn run_once(&self, generator: &mut TokenGenerator, vocabulary: usize, run: usize) -> Result<(), Failure> {
        for sequence in 0..self.batch {
            let stream = Stream::new(run as u64, sequence as u64, place_of("prompt"));
            let token = |place: usize| stream.four(place as u64)[0] % vocabulary as u32;
            let prompt = (0..self.prompt).map(token).collect();
            generator.add(Request::greedy(prompt, self.tokens)).map_err(Failure::work)?;
        }
        while !generator.is_idle() {
            generator.advance().map_err(Failure::work)?;
        }
        Ok(())
    }
}

impl Rates {
    fn add(&mut self, before: Tally, after: Tally) {
        let rate = |count: usize, seconds: f64| count as f64 / seconds.max(1e-9);
        self.reading.push(rate(after.prompt_tokens - before.prompt_tokens, after.reading - before.reading));
        self.writing.push(rate(after.stepped_tokens - before.stepped_tokens, after.writing - before.writing));
    }

    pub fn json(&self, model: &str, generation: &Generation, device: &Device) -> serde_json::Value {
        let mut json = generation.json(model, device);
        json["runs"] = json!(self.reading.len());
        json["prompt_tokens_per_second"] = json!(quantile(&self.reading, 0.5));
        json["generated_tokens_per_second"] = json!(quantile(&self.writing, 0.5));
        json
    }

    pub fn lines(&self, model: &str, generation: &Generation, device: &Device) -> Vec<String> {
        let line = |what: &str, rates: &[f64]| {
            let [low, median, high] = [0.25, 0.5, 0.75].map(|share| quantile(rates, share));
            format!("{what}: {median:.1} tokens/s (half of {} runs {low:.1} to {high:.1})", rates.len())
        };
        let Generation { batch, prompt, tokens, .. } = generation;
        vec![
            format!("{model}, {batch} x {prompt} tokens of prompt, {tokens} written, on {}", described(device)),
            line("reading prompts", &self.reading),
            line("writing", &self.writing),
        ]
    }
}

/// A preset's random weights.
struct RandomWeights<'m> {
    model: &'m Model,
    /// What matrices are stored as, and what fills them.
    matrices: Matrices,
}

enum Matrices {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
    Blocks(BlockFormat, Vec<u8>),
}

impl<'m> RandomWeights<'m> {
    fn new(model: &'m Model, format: Option<BlockFormat>, precision: Precision) -> RandomWeights<'m> {
        let mut drawn = vec![0.0; DRAWN];
        fill_uniform("weights", 0.035, &mut drawn);
        let matrices = match (format, precision) {
            (Some(format), _) => {
                let mut bytes = vec![0; format.bytes_of(DRAWN).unwrap_or(0)];
                format.quantise(&drawn, &mut bytes);
                Matrices::Blocks(format, bytes)
            }
            (None, Precision::F32) => Matrices::F32(drawn),
            (None, Precision::Bf16) => Matrices::Bf16(drawn.into_iter().map(bf16::from_f32).collect()),
        };
        RandomWeights { model, matrices }
    }

    fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.model.parameters().iter().find(|parameter| parameter.name == name)
    }
}

/// As many values as are wanted.
fn repeated<T: Copy>(drawn: &[T], count: usize) -> Cow<'static, [T]> {
    let mut values = Vec::with_capacity(count);
    while values.len() < count {
        values.extend_from_slice(&drawn[..drawn.len().min(count - values.len())]);
    }
    Cow::Owned(values)
}

impl<'w> WeightsByName<'w> for RandomWeights<'_> {
    fn weight(&self, name: &str) -> vitreous_engine::Result<WeightView<'w>> {
        let unknown = || vitreous_engine::Error::Machine(format!("there is no weight `{name}`"));
        let parameter = self.parameter(name).ok_or_else(unknown)?;
        let count = parameter.shape.elements();
        Ok(match (&self.matrices, self.blocks(name), parameter.shape.rank()) {
            (Matrices::Blocks(format, bytes), Some(_), _) => {
                let count = format.bytes_of(count).ok_or_else(unknown)?;
                WeightView::Blocks(*format, repeated(bytes, count))
            }
            (Matrices::F32(drawn), _, 2) => WeightView::F32(repeated(drawn, count)),
            (Matrices::Bf16(drawn), _, 2) => WeightView::Bf16(repeated(drawn, count)),
            _ => {
                let mut values = vec![0.0; count];
                fill_parameter(parameter, &mut values);
                WeightView::F32(Cow::Owned(values))
            }
        })
    }

    fn blocks(&self, name: &str) -> Option<BlockFormat> {
        let Matrices::Blocks(format, _) = self.matrices else { return None };
        let shape = &self.parameter(name)?.shape;
        (shape.rank() == 2 && shape.columns().is_multiple_of(format.values())).then_some(format)
    }
}

/// Reads the name of a format of quantised weights.
pub(super) fn parse_format(text: &str) -> Result<BlockFormat, String> {
    let found = BlockFormat::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(text));
    let known = BlockFormat::ALL.map(|format| format.name().to_lowercase()).join(", ");
    found.ok_or_else(|| format!("`{text}` is none of {known}"))
}
