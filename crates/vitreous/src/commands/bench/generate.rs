//! `vitreous bench --mode generate`: how fast prompts are read and tokens are written.

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde_json::json;
use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{Device, Precision, WeightView};
use vitreous_models::generate::{GenerateOptions, Request, Tally, TokenGenerator};
use vitreous_models::{Architecture, Model, OpenOptions, Weights};
use vitreous_runtime::locate::unsuitable;
use vitreous_runtime::{described, open_model};

use super::{FEWEST_RUNS, MOST_RUNS, fill_parameter, quantile};
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
    pub seconds: f64,
}

/// Tokens per second of each run, the slowest first.
pub(super) struct Rates {
    reading: Vec<f64>,
    writing: Vec<f64>,
}

impl Generation {
    /// Measures a model directory or file with its own weights, or a preset with random ones.
    pub fn measure(&self, name: &str, device: &Device) -> Result<Rates, Failure> {
        let options = OpenOptions::default();
        if Path::new(name).exists() {
            let model = open_model(Path::new(name), &options)?;
            return self.run(name, model.architecture.as_ref(), device, Box::new(&model));
        }
        let (architecture, _) = vitreous_runtime::architecture(name, &options)?;
        let model = Model::new(architecture, Vec::new()).map_err(Failure::input)?;
        self.run(name, model.architecture.as_ref(), device, Box::new(|name: &str| random_weight(&model, name)))
    }

    fn run<'m>(
        &self,
        name: &str,
        model: &'m dyn Architecture,
        device: &Device,
        weights: Weights<'m>,
    ) -> Result<Rates, Failure> {
        let signature = model.signature();
        let (Some(vocabulary), Some(input)) = (signature.next_token(), signature.tokens()) else {
            return Err(unsuitable(name, &signature, "language model").into());
        };
        let context = self.prompt + self.tokens;
        if context > input.longest {
            return Err(Failure::input(anyhow!(
                "{name}: {} tokens of prompt and {} to write are more than this model reads, {}: give a smaller --prompt or --tokens",
                self.prompt,
                self.tokens,
                input.longest
            )));
        }
        let options =
            GenerateOptions { slots: self.batch, context, precision: self.precision, ..GenerateOptions::default() };
        let mut generator = TokenGenerator::new(model, options, device, weights).map_err(Failure::work)?;
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
        Ok(rates)
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
        json!({
            "model": model,
            "mode": "generate",
            "precision": if generation.precision == Precision::F32 { "f32" } else { "bf16" },
            "device": device.name(),
            "batch": generation.batch,
            "prompt": generation.prompt,
            "tokens": generation.tokens,
            "runs": self.reading.len(),
            "prompt_tokens_per_second": quantile(&self.reading, 0.5),
            "generated_tokens_per_second": quantile(&self.writing, 0.5),
        })
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

fn random_weight<'w>(model: &Model, name: &str) -> vitreous_engine::Result<WeightView<'w>> {
    let parameter = model.parameters().iter().find(|parameter| parameter.name == name);
    let parameter = parameter.ok_or_else(|| vitreous_engine::Error::Machine(format!("there is no weight `{name}`")))?;
    let mut values = vec![0.0; parameter.shape.elements()];
    fill_parameter(parameter, &mut values);
    Ok(WeightView::F32(Cow::Owned(values)))
}
