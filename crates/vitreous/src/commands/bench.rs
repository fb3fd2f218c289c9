//! `vitreous bench`: how fast a model runs or trains here, with random weights and data.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde_json::json;
use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{Device, Executor, GradientOptions, Graph, Mode, Node, Parameter, Plan, Precision, Run, State};
use vitreous_models::{Size, VitConfig, vit};

use super::{PrecisionName, parse_count, parse_size, parse_threads};
use crate::device::{DeviceOptions, described};
use crate::failure::Failure;
use crate::format;
use crate::runner::{check_batch, usual_batch};
use crate::source;
use crate::step::training_graph;

/// Measure how fast a model runs or trains on this machine, with random weights and data
#[derive(Args)]
pub struct Bench {
    /// A model directory, a checkpoint file, or a preset such as vit_base_patch16_224
    model: String,
    /// Answers to images, or whole training steps: forward, backward, clipping, AdamW
    #[arg(long, value_enum, default_value = "infer", ignore_case = true)]
    mode: ModeName,
    /// Numbers to compute with
    #[arg(long, value_enum, default_value = "f32", ignore_case = true)]
    precision: PrecisionName,
    /// Images at a time; by default as many as keep the machine busy
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    batch: Option<usize>,
    /// The size of the images, if not the model's own
    #[arg(long, value_name = "HxW", value_parser = parse_size, allow_negative_numbers = true)]
    image: Option<Size>,
    /// Threads that compute, unless a GPU does; by default one a core
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceOptions,
    /// On a GPU, also say where the time of a run goes
    #[arg(long)]
    profile: bool,
    /// How long to measure, in seconds; at least three runs are measured whatever they take
    #[arg(long, value_name = "S", default_value = "5", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// Forward, backward, clipping, AdamW
    Train,
    /// Forward only
    Infer,
}

/// The fewest runs that have a median worth the name.
const FEWEST_RUNS: usize = 3;
const MOST_RUNS: usize = 100_000;
/// The share of the time that goes to warming up, before.
const WARM_UP: f64 = 0.2;

/// A model made ready to be run again and again.
struct Subject {
    executor: Executor,
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
        let config = source::configuration(&self.model, self.image, None)?;
        if self.mode == ModeName::Train && config.classes == 0 {
            return Err(Failure::input(anyhow!(
                "{}: this model has no head, so there is nothing to train it on; hint: --mode infer",
                self.model
            )));
        }
        let threads = self.threads.unwrap_or_else(source::threads);
        let device = self.device.open(threads)?;
        let batch = match self.batch {
            Some(batch) => batch,
            None => usual_batch(&config, &device).map_err(Failure::input)?,
        };
        let measured = self.measure(&config, batch, &device)?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", self.json_of(&measured, &config, batch, &device))?;
        } else {
            for line in self.lines(&measured, &config, batch, &device) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    fn measure(&self, config: &VitConfig, batch: usize, device: &Device) -> Result<Measured, Failure> {
        let precision = self.precision.into();
        let limit = || device.measured_limit(precision).map_err(Failure::work);
        // Before and after: clocks rise and fall, and the share should be of the better hour. A GPU's takes memory the first time.
        let before = limit()?;
        let what = format!("{} with batch {batch}", if self.mode == ModeName::Train { "training" } else { "running" });
        let mut subject = match self.mode {
            ModeName::Train => Subject::training(&what, config, batch, precision, device)?,
            ModeName::Infer => Subject::inference(&what, config, batch, precision, device)?,
        };
        subject.fill_inputs(config)?;
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

    fn names(&self) -> [&'static str; 2] {
        let mode = if self.mode == ModeName::Train { "train" } else { "infer" };
        let precision = if self.precision == PrecisionName::F32 { "f32" } else { "bf16" };
        [mode, precision]
    }

    fn json_of(&self, measured: &Measured, config: &VitConfig, batch: usize, device: &Device) -> serde_json::Value {
        let [mode, precision] = self.names();
        json!({
            "model": self.model,
            "mode": mode,
            "precision": precision,
            "device": device.name(),
            "batch": batch,
            "image": [config.image.height, config.image.width],
            "threads": if let Device::Cpu { threads } = device { Some(threads) } else { None },
            "gpu": if let Device::Cuda(gpu) = device { Some(gpu.gpu().name.clone()) } else { None },
            "runs": measured.runs.len(),
            "median_ms": 1e3 * measured.at(0.5),
            "quartiles_ms": [1e3 * measured.at(0.25), 1e3 * measured.at(0.75)],
            "images_per_second": batch as f64 / measured.at(0.5),
            "gflops": measured.rate() / 1e9,
            "limit_gflops": measured.limit / 1e9,
            "peak_share": measured.rate() / measured.limit,
            "peak_bytes": measured.peak_bytes,
            "profile_ms": measured.profile.iter().map(|(what, seconds)| (what.clone(), json!(1e3 * seconds))).collect::<serde_json::Map<_, _>>(),
        })
    }

    fn lines(&self, measured: &Measured, config: &VitConfig, batch: usize, device: &Device) -> Vec<String> {
        let [mode, precision] = self.names();
        let median = measured.at(0.5);
        let milliseconds = |seconds: f64| format!("{:.*}", if seconds < 0.1 { 2 } else { 0 }, 1e3 * seconds);
        let per_second = batch as f64 / median;
        let mut lines = vec![
            format!(
                "{}, {mode}, {precision}, batch {batch} of {}x{}, on {}",
                self.model,
                config.image.height,
                config.image.width,
                described(device)
            ),
            format!(
                "{} ms, the median of {} (half of them {} to {} ms)",
                milliseconds(median),
                format::count(measured.runs.len(), "run", "runs"),
                milliseconds(measured.at(0.25)),
                milliseconds(measured.at(0.75))
            ),
            format!("{per_second:.*} images/s", if per_second < 100.0 { 2 } else { 0 }),
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

impl Subject {
    fn training(
        what: &str,
        config: &VitConfig,
        batch: usize,
        precision: Precision,
        device: &Device,
    ) -> Result<Subject, Failure> {
        let (graph, loss) =
            training_graph(config, batch, precision, GradientOptions::default()).map_err(Failure::input)?;
        let plan = device.plan(&graph, &[loss]).map_err(Failure::input)?;
        let needed =
            |graph: &Graph, plan: &Plan| device.bytes_needed(plan).saturating_add(device.state_bytes_needed(graph));
        let smaller = |batch| {
            let (graph, loss) = training_graph(config, batch, precision, GradientOptions::default()).ok()?;
            Some(needed(&graph, &device.plan(&graph, &[loss]).ok()?))
        };
        check_batch(what, batch, needed(&graph, &plan), device, smaller).map_err(Failure::input)?;
        let mut state = State::new(&graph).map_err(Failure::work)?;
        for parameter in graph.parameters() {
            fill_parameter(parameter, state.parameter_mut(&parameter.name).map_err(Failure::work)?);
        }
        let executor = Executor::new(plan, device).map_err(Failure::work)?;
        Ok(Subject { executor, state: Some(state), step: 0 })
    }

    fn inference(
        what: &str,
        config: &VitConfig,
        batch: usize,
        precision: Precision,
        device: &Device,
    ) -> Result<Subject, Failure> {
        let planned = |batch| {
            let mut graph = Graph::new(Mode::Inference, precision);
            let model = vit(&mut graph, config, batch)?;
            device.plan_with_fixed_weights(&graph, &[model.logits.unwrap_or(model.features)])
        };
        let plan = planned(batch).map_err(Failure::input)?;
        let smaller = |batch| planned(batch).ok().map(|plan| device.bytes_needed_with_weights(&plan));
        let bytes = device.bytes_needed_with_weights(&plan);
        check_batch(what, batch, bytes, device, smaller).map_err(Failure::input)?;
        let lend = |parameter: &Parameter| {
            let mut values = vec![0.0; parameter.shape.elements()];
            fill_parameter(parameter, &mut values);
            Ok::<_, vitreous_engine::Error>(Cow::Owned(values))
        };
        let executor = Executor::with_weights(plan, device, lend).map_err(Failure::work)?;
        Ok(Subject { executor, state: None, step: 0 })
    }

    fn fill_inputs(&mut self, config: &VitConfig) -> Result<(), Failure> {
        fill_uniform("images", 1.0, self.executor.input("images").map_err(Failure::work)?);
        if self.state.is_some() {
            let stream = Stream::new(1, 0, place_of("labels"));
            let labels = self.executor.input_i32("labels").map_err(Failure::work)?;
            for (index, label) in labels.iter_mut().enumerate() {
                *label = (stream.four(index as u64)[0] as usize % config.classes) as i32;
            }
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
