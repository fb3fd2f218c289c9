//! `vitreous bench`: how fast a model runs or trains here, with random weights and data.

mod collective;
mod generate;
mod sequences;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde_json::json;
use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{
    BlockFormat, DType, Device, Executor, GradientOptions, Graph, Mode, Node, Parameter, Plan, Precision, Run, State,
    Value,
};
use vitreous_models::{Architecture, Call, Gives, OpenOptions, POOLED, Signature, Size, Takes};
use vitreous_pages::format;
use vitreous_runtime::described;
use vitreous_runtime::runner::{check_batch, usual_batch};
use vitreous_runtime::training_graph::training_graph;

use super::{PrecisionName, parse_count, parse_size, parse_threads};
use crate::device_options::DeviceOptions;
use crate::failure::Failure;
use collective::CollectiveName;
use generate::Generation;

/// Measure how fast a model runs or trains on this machine, with random weights and data
#[derive(Args)]
pub struct Bench {
    /// A model directory, a checkpoint file, or a preset such as vit_base_patch16_224 or bert_base
    model: String,
    /// Inference, whole training steps (forward, backward, clipping, AdamW), or generating text
    #[arg(long, value_enum, default_value = "infer", ignore_case = true)]
    mode: ModeName,
    /// Precision of matrix multiplications
    #[arg(long, value_enum, default_value = "f32", ignore_case = true)]
    precision: PrecisionName,
    /// Batch size [default: as large as keeps the machine busy]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    batch: Option<usize>,
    /// The image size, if not the model's own
    #[arg(long, value_name = "HxW", value_parser = parse_size, allow_negative_numbers = true)]
    image: Option<Size>,
    /// Tokens of each sequence, for models of text, at most the model's longest; in mode `generate`, tokens to write
    #[arg(long, value_name = "N", default_value = "128", value_parser = parse_count, allow_negative_numbers = true)]
    tokens: usize,
    /// Tokens of each prompt or source, in mode `generate`
    #[arg(long, value_name = "N", default_value = "512", value_parser = parse_count, allow_negative_numbers = true)]
    prompt: usize,
    /// Quantise a preset's random weights, in mode `generate`: q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k or q6_k
    #[arg(long, value_name = "FORMAT", value_parser = generate::parse_format)]
    weights: Option<BlockFormat>,
    /// Threads that compute, unless a GPU does [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceOptions,
    /// One tower of a model of images and texts, or the encoder of an encoder-decoder [default: both]
    #[arg(long, value_enum)]
    tower: Option<TowerName>,
    /// On a GPU, also say where the time of a run goes
    #[arg(long)]
    profile: bool,
    /// In mode `train` on one GPU, measure how much of the time that gradients take to travel is hidden behind the backward pass: steps
    /// without adding them up, steps that do so in buckets of 25 MiB meanwhile, and adding up alone. There is one GPU, so nothing goes over
    /// a link and nothing is added: NCCL copies every bucket to other memory of this GPU
    #[arg(long, value_name = "LIBRARY", value_enum, ignore_case = true)]
    collective: Option<CollectiveName>,
    /// With `--collective`, how often each bucket is copied, so that it takes about as long as over a network
    #[arg(long, value_name = "N", default_value = "16", value_parser = parse_count, allow_negative_numbers = true, requires = "collective")]
    repeat: usize,
    /// How long to measure, in seconds; at least three runs are measured whatever they take
    #[arg(long, value_name = "S", default_value = "5", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A part of a model that has two.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TowerName {
    /// The image tower of a model of images and texts
    Image,
    /// The text tower of a model of images and texts
    Text,
    /// The encoder of an encoder-decoder
    Encoder,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// Forward, backward, clipping, AdamW
    Train,
    /// Forward only
    Infer,
    /// Read prompts, sources or windows of audio, and write tokens, with a KV cache; a model's own weights, or random ones of a preset
    Generate,
}

/// The fewest runs that have a median worth the name.
const FEWEST_RUNS: usize = 3;
const MOST_RUNS: usize = 100_000;
/// The share of the time that goes to warming up, before.
const WARM_UP: f64 = 0.2;

/// A model, and the sizes that it is run with.
struct Benched<'m> {
    model: &'m dyn Architecture,
    call: Call<'m>,
    /// Only the encoder of an encoder-decoder, without the keys and values that a decoder takes of it.
    is_encoder: bool,
}

/// The names and types of a graph's inputs that are data.
fn inputs(graph: &Graph) -> Vec<(String, DType)> {
    let data = graph.inputs().filter(|(name, _)| !matches!(*name, "learning_rate" | "ema_decay" | "accumulate"));
    data.map(|(name, value)| (name.to_string(), graph.type_of(value).dtype)).collect()
}

/// A model made ready to be run again and again.
struct PreparedModel {
    executor: Executor,
    inputs: Vec<(String, DType)>,
    /// What training changes; `None` at inference.
    state: Option<State>,
    step: u64,
}

/// What was measured.
struct Measured {
    /// Seconds of each run, the shortest first.
    runs: Vec<f64>,
    flops: u64,
    peak_bytes: usize,
    /// The machine's limit in FLOP/s.
    limit: f64,
    /// What a run's time goes to, in seconds, the most first; empty if that was not asked.
    profile: Vec<(String, f64)>,
}

impl Bench {
    pub fn run(self) -> Result<(), Failure> {
        if self.mode == ModeName::Generate {
            return self.run_generation();
        }
        let options = OpenOptions::default().with_some("image", self.image);
        let (mut model, notes) = vitreous_runtime::architecture(&self.model, &options)?;
        notes.iter().for_each(|note| say!("note: {note}"));
        if let Some(tower) = self.tower {
            self.check_tower(tower, &model.signature())?;
        }
        if let Some(towers) = self.tower.and_then(TowerName::setting) {
            let one = OpenOptions::default().with("towers", towers);
            model = model.with_settings(&one.settings).map_err(Failure::input)?;
        }
        let signature = model.signature();
        if self.mode == ModeName::Train && signature.images().is_some() && signature.classes().is_none() {
            return Err(Failure::input(anyhow!(
                "{}: this model has no head, so there is nothing to train it on; hint: --mode infer",
                self.model
            )));
        }
        let threads = self.threads.unwrap_or_else(vitreous_runtime::threads);
        let device = self.device.open(threads)?;
        let batch = match self.batch {
            Some(batch) => batch,
            None => usual_batch(model.as_ref(), &device)?,
        };
        let is_encoder = self.tower == Some(TowerName::Encoder);
        let model = Benched { call: self.call(model.as_ref(), batch), model: model.as_ref(), is_encoder };
        if self.collective.is_some() {
            return self.measure_collective(&model, batch, &device);
        }
        let measured = self.measure(&model, batch, &device)?;
        let mut out = crate::say::stdout();
        if self.json {
            writeln!(out, "{}", self.json_of(&measured, &model, batch, &device))?;
        } else {
            for line in self.lines(&measured, &model, batch, &device) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    /// Refuses a part that a model does not have.
    fn check_tower(&self, tower: TowerName, signature: &Signature) -> Result<(), Failure> {
        let is_encoder = tower == TowerName::Encoder;
        let fits = match &signature.takes {
            Takes::ImagesAndTexts { .. } => !is_encoder,
            Takes::Pairs { .. } | Takes::Audio(_) => is_encoder,
            Takes::Images(_) | Takes::Tokens(_) => false,
        };
        if !fits {
            return Err(Failure::input(anyhow!(
                "--tower image and text are for models of images and texts, --tower encoder is for encoder-decoders, but {} is {}",
                self.model,
                signature.what()
            )));
        }
        match is_encoder && self.mode != ModeName::Infer {
            true => Err(Failure::input(anyhow!("--tower encoder is for --mode infer: an encoder alone has no loss"))),
            false => Ok(()),
        }
    }

    fn measure_collective(&self, model: &Benched, batch: usize, device: &Device) -> Result<(), Failure> {
        if self.mode != ModeName::Train {
            return Err(Failure::input(anyhow!("--collective is about gradients: use it with --mode train")));
        }
        let hidden = collective::measure(model, self.precision.into(), device, self.repeat, self.seconds)?;
        let mut out = crate::say::stdout();
        if self.json {
            let json =
                json!({"model": self.model, "batch": batch, "device": device.name(), "collective": hidden.json()});
            writeln!(out, "{json}")?;
            return Ok(());
        }
        let [mode, precision] = self.names();
        writeln!(
            out,
            "{}, {mode}, {precision}, batch {batch} of {}, on {}",
            self.model,
            model.size(),
            described(device)
        )?;
        hidden.lines().iter().try_for_each(|line| writeln!(out, "{line}"))?;
        Ok(())
    }

    fn run_generation(&self) -> Result<(), Failure> {
        if self.tower.is_some() {
            return Err(Failure::input(anyhow!(
                "--tower is for --mode infer and train: generating takes a whole model"
            )));
        }
        let device = self.device.open(self.threads.unwrap_or_else(vitreous_runtime::threads))?;
        let generation = Generation {
            batch: self.batch.unwrap_or(1),
            prompt: self.prompt,
            tokens: self.tokens,
            precision: self.precision.into(),
            weights: self.weights,
            seconds: self.seconds,
        };
        let rates = generation.measure(&self.model, &device)?;
        let mut out = crate::say::stdout();
        match self.json {
            true => writeln!(out, "{}", rates.json(&self.model, &generation, &device))?,
            false => {
                rates.lines(&self.model, &generation, &device).iter().try_for_each(|line| writeln!(out, "{line}"))?
            }
        }
        Ok(())
    }

    fn measure(&self, model: &Benched, batch: usize, device: &Device) -> Result<Measured, Failure> {
        let precision = self.precision.into();
        let limit = || device.measured_limit(precision).map_err(Failure::work);
        // Before and after: clocks rise and fall, and the share should be of the better hour. A GPU's takes memory the first time.
        let before = limit()?;
        let what = format!("{} with batch {batch}", if self.mode == ModeName::Train { "training" } else { "running" });
        let mut subject = match self.mode {
            ModeName::Train => PreparedModel::training(&what, model, precision, device)?,
            ModeName::Infer | ModeName::Generate => PreparedModel::inference(&what, model, precision, device)?,
        };
        subject.fill_inputs(model)?;
        let runs = subject.runs(self.seconds)?;
        let state = subject.state.as_ref().map_or(0, State::bytes);
        let profile = if self.profile { subject.profile()? } else { Vec::new() };
        Ok(Measured {
            runs,
            flops: subject.executor.plan().flops(),
            peak_bytes: subject.executor.memory_bytes() + state,
            limit: before.max(limit()?),
            profile,
        })
    }

    fn call(&self, model: &dyn Architecture, batch: usize) -> Call<'static> {
        let longest = match &model.signature().takes {
            Takes::Images(_) => 1,
            Takes::Tokens(tokens) => tokens.longest,
            Takes::ImagesAndTexts { texts, .. } => texts.tokens.longest,
            Takes::Pairs { source, target, .. } => source.longest.min(target.longest),
            Takes::Audio(audio) => audio.target.longest,
        };
        let tokens = self.tokens.min(longest);
        Call::whole(batch).tokens(tokens).target(tokens)
    }

    fn names(&self) -> [&'static str; 2] {
        let mode = if self.mode == ModeName::Train { "train" } else { "infer" };
        let precision = if self.precision == PrecisionName::F32 { "f32" } else { "bf16" };
        [mode, precision]
    }

    fn json_of(&self, measured: &Measured, model: &Benched, batch: usize, device: &Device) -> serde_json::Value {
        let [mode, precision] = self.names();
        json!({
            "model": self.model,
            "mode": mode,
            "precision": precision,
            "device": device.name(),
            "batch": batch,
            "image": model.image().map(|size| [size.height, size.width]),
            "tokens": if model.image().is_none() { Some(model.call.tokens) } else { None },
            "threads": if let Device::Cpu { threads } = device { Some(threads) } else { None },
            "gpu": if let Device::Cuda(gpu) = device { Some(gpu.gpu().name.clone()) } else { None },
            "runs": measured.runs.len(),
            "median_ms": 1e3 * measured.at(0.5),
            "quartiles_ms": [1e3 * measured.at(0.25), 1e3 * measured.at(0.75)],
            model.rate_key(): batch as f64 / measured.at(0.5),
            "gflops": measured.rate() / 1e9,
            "limit_gflops": measured.limit / 1e9,
            "peak_share": measured.rate() / measured.limit,
            "peak_bytes": measured.peak_bytes,
            "profile_ms": measured.profile.iter().map(|(what, seconds)| (what.clone(), json!(1e3 * seconds))).collect::<serde_json::Map<_, _>>(),
        })
    }

    fn lines(&self, measured: &Measured, model: &Benched, batch: usize, device: &Device) -> Vec<String> {
        let [mode, precision] = self.names();
        let median = measured.at(0.5);
        let milliseconds = |seconds: f64| format!("{:.*}", if seconds < 0.1 { 2 } else { 0 }, 1e3 * seconds);
        let per_second = batch as f64 / median;
        let mut lines = vec![
            format!("{}, {mode}, {precision}, batch {batch} of {}, on {}", self.model, model.size(), described(device)),
            format!(
                "{} ms, the median of {} (half of them {} to {} ms)",
                milliseconds(median),
                format::count(measured.runs.len(), "run", "runs"),
                milliseconds(measured.at(0.25)),
                milliseconds(measured.at(0.75))
            ),
            format!("{per_second:.*} {}/s", if per_second < 100.0 { 2 } else { 0 }, model.unit()),
            format!(
                "{:.1} GFLOP/s, {:.0} % of the machine's limit, which was measured as {:.1}",
                measured.rate() / 1e9,
                100.0 * measured.rate() / measured.limit,
                measured.limit / 1e9
            ),
            format!("{} of memory at most", format::bytes(measured.peak_bytes)),
        ];
        let whole: f64 = measured.profile.iter().map(|(_, seconds)| seconds).sum();
        for (what, seconds) in &measured.profile {
            lines.push(format!("  {:8.3} ms {:5.1} %  {what}", 1e3 * seconds, 100.0 * seconds / whole));
        }
        lines
    }
}

impl Measured {
    /// Seconds of the run that this share of the runs is not slower than.
    fn at(&self, share: f64) -> f64 {
        quantile(&self.runs, share)
    }

    /// FLOP/s of the median run.
    fn rate(&self) -> f64 {
        self.flops as f64 / self.at(0.5)
    }
}

impl TowerName {
    /// As the setting of models of images and texts.
    fn setting(self) -> Option<&'static str> {
        match self {
            TowerName::Image => Some("image"),
            TowerName::Text => Some("text"),
            TowerName::Encoder => None,
        }
    }
}

impl Benched<'_> {
    /// What is computed at inference.
    fn result(&self, graph: &mut Graph, batch: usize) -> vitreous_engine::Result<Value> {
        let outputs = self.model.build(graph, &Call { batch, ..self.call })?;
        if self.is_encoder { outputs.need("memory") } else { outputs.result() }
    }

    fn image(&self) -> Option<Size> {
        self.model.signature().images().map(|images| images.size)
    }

    /// What a batch has.
    fn unit(&self) -> &'static str {
        match self.model.signature().takes {
            Takes::Images(_) => "images",
            Takes::Tokens(_) => "sequences",
            Takes::ImagesAndTexts { .. } => "pairs",
            Takes::Pairs { .. } if self.is_encoder => "texts",
            Takes::Pairs { .. } => "pairs",
            Takes::Audio(_) => "windows of audio",
        }
    }

    fn rate_key(&self) -> String {
        format!("{}_per_second", self.unit())
    }

    /// The size of one sample.
    fn size(&self) -> String {
        match (self.image(), self.model.signature().pairs()) {
            (Some(image), _) => image.to_string(),
            (None, Some(_)) if !self.is_encoder => format!("{} and {} tokens", self.call.tokens, self.call.target),
            _ => format!("{} tokens", self.call.tokens),
        }
    }
}

impl PreparedModel {
    fn training(what: &str, model: &Benched, precision: Precision, device: &Device) -> Result<PreparedModel, Failure> {
        let step = |call: &Call| training_graph(model.model, call, precision, GradientOptions::default());
        let (graph, loss) = step(&model.call).map_err(Failure::input)?;
        let plan = device.plan(&graph, &[loss]).map_err(Failure::input)?;
        let needed =
            |graph: &Graph, plan: &Plan| device.bytes_needed(plan).saturating_add(device.state_bytes_needed(graph));
        let smaller = |batch| {
            let (graph, loss) = step(&Call { batch, ..model.call }).ok()?;
            Some(needed(&graph, &device.plan(&graph, &[loss]).ok()?))
        };
        check_batch(what, model.call.batch, needed(&graph, &plan), device, smaller).map_err(Failure::input)?;
        let mut state = State::new(&graph).map_err(Failure::work)?;
        for parameter in graph.parameters() {
            fill_parameter(parameter, state.parameter_mut(&parameter.name).map_err(Failure::work)?);
        }
        let executor = Executor::new(plan, device).map_err(Failure::work)?;
        Ok(PreparedModel { executor, inputs: inputs(&graph), state: Some(state), step: 0 })
    }

    fn inference(what: &str, model: &Benched, precision: Precision, device: &Device) -> Result<PreparedModel, Failure> {
        let planned = |batch| {
            let mut graph = Graph::new(Mode::Inference, precision);
            let output = model.result(&mut graph, batch)?;
            let plan = device.plan_with_fixed_weights(&graph, &[output])?;
            // What only the rest of the model reads is no input of the plan.
            let inputs = inputs(plan.graph());
            Ok::<_, vitreous_engine::Error>((plan, inputs))
        };
        let (plan, inputs) = planned(model.call.batch).map_err(Failure::input)?;
        let smaller = |batch| planned(batch).ok().map(|(plan, _)| device.bytes_needed_with_weights(&plan));
        let bytes = device.bytes_needed_with_weights(&plan);
        check_batch(what, model.call.batch, bytes, device, smaller).map_err(Failure::input)?;
        let lend = |parameter: &Parameter| {
            let mut values = vec![0.0; parameter.shape.elements()];
            fill_parameter(parameter, &mut values);
            Ok::<_, vitreous_engine::Error>(Cow::Owned(values))
        };
        let executor = Executor::with_weights(plan, device, lend).map_err(Failure::work)?;
        Ok(PreparedModel { executor, inputs, state: None, step: 0 })
    }

    /// Random images and tokens, full lengths, random targets.
    fn fill_inputs(&mut self, model: &Benched) -> Result<(), Failure> {
        let signature = model.model.signature();
        let vocabulary = match &signature.takes {
            Takes::Images(_) => 1,
            Takes::Tokens(tokens) => tokens.vocabulary,
            Takes::ImagesAndTexts { texts, .. } => texts.tokens.vocabulary,
            Takes::Pairs { source, target, .. } => source.vocabulary.min(target.vocabulary),
            Takes::Audio(audio) => audio.target.vocabulary,
        };
        for (name, dtype) in &self.inputs {
            if *dtype == DType::F32 {
                fill_uniform(name, 1.0, self.executor.input(name).map_err(Failure::work)?);
                continue;
            }
            let bound = match name.as_str() {
                // Each text is of one image.
                "targets" if signature.images_and_texts().is_some() => model.call.batch,
                // Classes of the head; without one, of the vector or of the tokens, as `training_graph` takes them.
                "targets" => targets_of(&signature).unwrap_or(vocabulary),
                "token_types" => 1,
                POOLED => model.call.batch * model.call.tokens,
                _ => vocabulary,
            };
            let length = if name.ends_with("lengths") { Some(model.call.tokens as i32) } else { None };
            let stream = Stream::new(1, 0, place_of(name));
            for (index, number) in self.executor.input_i32(name).map_err(Failure::work)?.iter_mut().enumerate() {
                *number = length.unwrap_or_else(|| (stream.four(index as u64)[0] as usize % bound) as i32);
            }
        }
        if self.state.is_some() {
            // Small enough that nothing runs off in a thousand steps.
            self.executor.input("learning_rate").map_err(Failure::work)?[0] = 1e-5;
        }
        Ok(())
    }

    /// Seconds of one run.
    fn time(&mut self) -> Result<f64, Failure> {
        let start = Instant::now();
        match &mut self.state {
            Some(state) => self.executor.run(state, Run { seed: 1, step: self.step }),
            None => self.executor.infer(),
        }
        .and_then(|()| self.executor.finish())
        .map_err(Failure::work)?;
        self.step += 1;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Seconds of a run by what they are spent on, the most first; nothing on a processor.
    fn profile(&mut self) -> Result<Vec<(String, f64)>, Failure> {
        let Executor::Cuda { executors, turn } = &mut self.executor else { return Ok(Vec::new()) };
        let executor = &mut executors[*turn];
        let run = Run { seed: 1, step: self.step };
        let times = executor.profile(self.state.as_mut(), run).map_err(Failure::work)?;
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (node, kernel, seconds) in times {
            let kind = format!("{kernel} of {}", kind_of(&executor.plan().graph().nodes()[node]));
            *sums.entry(kind).or_default() += seconds;
        }
        let mut sums: Vec<(String, f64)> = sums.into_iter().collect();
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(sums)
    }

    /// Seconds of each run within a time, after a warm-up, the shortest first.
    fn runs(&mut self, seconds: f64) -> Result<Vec<f64>, Failure> {
        let until = |share: f64| Instant::now() + Duration::from_secs_f64(share * seconds);
        let end = until(WARM_UP);
        while self.step == 0 || Instant::now() < end {
            self.time()?;
        }
        let end = until(1.0);
        let mut runs = Vec::new();
        while runs.len() < FEWEST_RUNS || (Instant::now() < end && runs.len() < MOST_RUNS) {
            runs.push(self.time()?);
        }
        runs.sort_by(f64::total_cmp);
        Ok(runs)
    }
}

/// What a node is, of those that a model has many of: `mlp.fc1 linear`.
fn kind_of(node: &Node) -> String {
    let places = node.path.split('.').filter(|place| place.parse::<usize>().is_err());
    format!("{} ({})", node.op.name(), places.collect::<Vec<_>>().join("."))
}

/// The value at a share of the way through sorted values, between two of them as far as need be.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

/// Matrices of small random numbers, norms of one, biases of zero.
fn fill_parameter(parameter: &Parameter, values: &mut [f32]) {
    match parameter.shape.rank() {
        1 if parameter.name.ends_with("bias") => values.fill(0.0),
        1 => values.fill(1.0),
        _ => fill_uniform(&parameter.name, 0.035, values),
    }
}

/// Random numbers up to `limit` and down to minus that.
fn fill_uniform(name: &str, limit: f32, values: &mut [f32]) {
    let stream = Stream::new(1, 0, place_of(name));
    for (index, values) in values.chunks_mut(4).enumerate() {
        for (value, word) in values.iter_mut().zip(stream.four(index as u64)) {
            *value = limit * (word as f32 / (u32::MAX as f32 / 2.0) - 1.0);
        }
    }
}

/// Reads a time in seconds, of at most a day.
fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| format!("`{text}` is no number of seconds between 0 and 86400"))
}

/// Classes that targets are drawn from; `None` for tokens of the vocabulary.
fn targets_of(signature: &Signature) -> Option<usize> {
    let predicts_tokens =
        |gives: &Gives| matches!(gives, Gives::MaskedTokens(_) | Gives::NextToken(_) | Gives::Sequence(_));
    match signature.gives.iter().any(predicts_tokens) {
        true => None,
        false => signature.classes().or(signature.token_classes()).or(signature.vector()).or(signature.token_vectors()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `numpy.quantile`.
    #[test]
    fn quantiles_lie_between_values() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|share| quantile(&values, share)), [1.0, 1.75, 3.0, 5.0, 8.0]);
        assert_eq!(quantile(&[7.0], 0.5), 7.0);
    }

    #[test]
    fn random_numbers_fill_their_range() {
        let mut values = [0.0; 4001];
        fill_uniform("any", 2.0, &mut values);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.1 && values.iter().all(|value| value.abs() <= 2.0), "{mean}");
        assert!(values.iter().any(|&value| value > 1.9) && values.iter().any(|&value| value < -1.9));
    }
}
