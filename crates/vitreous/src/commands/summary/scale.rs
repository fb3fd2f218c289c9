//! `vitreous summary --ranks N`: a training run on many ranks, predicted.

use std::io::Write;

use anyhow::anyhow;
use clap::Args;
use serde_json::{Value as Json, json};
use vitreous_engine::Precision;
use vitreous_models::{Architecture, Takes};
use vitreous_pages::format;
use vitreous_runtime::scale::{Cluster, Device, Measured, Prediction, Proposal, StateBytes, Step, Workload, propose};

use crate::commands::{PrecisionName, parse_count};
use crate::failure::Failure;

/// Tokens of a sequence, where none are named: as long as models are usually trained with.
const USUAL_TOKENS: usize = 2048;
/// Tokens that a rank computes together, where no batch is named.
const USUAL_BATCH_TOKENS: usize = 16_384;

/// What a run on many ranks is predicted from.
#[derive(Args)]
#[command(next_help_heading = "On many ranks")]
pub struct ScaleOptions {
    /// Predict training on so many ranks: step time, memory per rank, communication, and the layout that is best
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, conflicts_with = "html")]
    ranks: Option<usize>,
    /// What a rank sends to another host, in GB/s: 400 Gb/s are 50
    #[arg(long, value_name = "GB/s", default_value = "50", value_parser = parse_positive, allow_negative_numbers = true, requires = "ranks")]
    link: f64,
    /// Ranks on a host
    #[arg(long, value_name = "N", default_value = "8", value_parser = parse_count, allow_negative_numbers = true, requires = "ranks")]
    ranks_per_host: usize,
    /// What a rank sends to another one on its host, in GB/s: NVLink of an H200 has 450 each way
    #[arg(long, value_name = "GB/s", default_value = "450", value_parser = parse_positive, allow_negative_numbers = true, requires = "ranks")]
    host_link: f64,
    /// Time until a message arrives, in microseconds
    #[arg(long, value_name = "US", default_value = "10", value_parser = parse_positive, allow_negative_numbers = true, requires = "ranks")]
    latency: f64,
    /// Batches of a rank until weights are updated
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count, allow_negative_numbers = true, requires = "ranks")]
    accumulate: usize,
    /// Samples of all ranks until weights are updated, in place of ranks x --batch x --accumulate
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, requires = "ranks", conflicts_with = "accumulate")]
    global_batch: Option<usize>,
    /// Precision of matrix multiplications
    #[arg(long, value_enum, default_value = "bf16", ignore_case = true, requires = "ranks")]
    precision: PrecisionName,
    /// Precision of gradients on the wire, as train.wire
    #[arg(long, value_enum, default_value = "f32", ignore_case = true, requires = "ranks")]
    wire: PrecisionName,
    /// Gradients that are reduced together, in MiB, as train.bucket
    #[arg(long, value_name = "MiB", default_value = "25", value_parser = parse_positive, allow_negative_numbers = true, requires = "ranks")]
    bucket: f64,
    /// What a rank computes in training, in TFLOP/s [default: as measured on an H200 with the most similar model]
    #[arg(long, value_name = "TFLOP/s", value_parser = parse_positive, allow_negative_numbers = true, requires = "ranks")]
    flops: Option<f64>,
    /// Memory of a rank, in GiB [default: 139.8, an H200's]
    #[arg(long, value_name = "GiB", value_parser = parse_positive, allow_negative_numbers = true, requires = "ranks")]
    memory: Option<f64>,
    /// What a rank's update reads and writes, in TB/s [default: 4.2, as measured on an H200]
    #[arg(long, value_name = "TB/s", value_parser = parse_positive, allow_negative_numbers = true, requires = "ranks")]
    bandwidth: Option<f64>,
}

/// Reads a number above 0 that is no infinity.
fn parse_positive(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|&number: &f64| number > 0.0 && number < 1e12);
    number.ok_or_else(|| format!("`{text}` is not a number above 0"))
}

/// A prediction with what it was made from.
struct Plan<'s> {
    options: &'s ScaleOptions,
    model: &'s str,
    work: Workload,
    device: Device,
    /// The model whose speed was taken; `None` if a speed was given.
    measured: Option<Measured>,
    cluster: Cluster,
    step: Step,
    proposal: Proposal,
}

impl ScaleOptions {
    /// Whether a run on many ranks is asked for.
    pub fn is_asked(&self) -> bool {
        self.ranks.is_some()
    }

    /// Predicts and prints.
    pub fn run(
        &self,
        (name, model): (&str, &dyn Architecture),
        batch: Option<usize>,
        tokens: Option<usize>,
        json: bool,
    ) -> Result<(), Failure> {
        let plan = self.plan((name, model), batch, tokens)?;
        let mut out = crate::say::stdout();
        match json {
            true => writeln!(out, "{}", plan.json())?,
            false => {
                for line in plan.lines() {
                    writeln!(out, "{line}")?;
                }
            }
        }
        Ok(())
    }

    fn plan<'s>(
        &'s self,
        (name, model): (&'s str, &dyn Architecture),
        batch: Option<usize>,
        tokens: Option<usize>,
    ) -> Result<Plan<'s>, Failure> {
        let cluster = self.cluster()?;
        let precision = Precision::from(self.precision);
        let (longest, own) = match &model.signature().takes {
            Takes::Images(images) => (usize::MAX, Some(images.tokens())),
            Takes::Tokens(of) => (of.longest, None),
            Takes::ImagesAndTexts { .. } | Takes::Pairs { .. } | Takes::Audio(_) => {
                return Err(Failure::input(anyhow!(
                    "--ranks predicts the training of models of images or of texts; {name} is {}",
                    model.signature().what()
                )));
            }
        };
        let tokens = tokens.unwrap_or(USUAL_TOKENS.min(longest));
        let usual = || {
            let fitting = (USUAL_BATCH_TOKENS / own.unwrap_or(tokens).max(1)).max(1);
            // A power of two, so that it can be halved.
            1 << fitting.ilog2()
        };
        let batch = batch.unwrap_or_else(usual);
        let work = Workload::of(model, batch, tokens, precision)?;
        let (h200, measured) = Device::h200(&work);
        if precision == Precision::F32 && self.flops.is_none() {
            let what = "training in f32 was not measured on an H200: say with --flops how many TFLOP/s a rank computes";
            return Err(Failure::input(anyhow!(what)));
        }
        let device = Device {
            flops: self.flops.map_or(h200.flops, |tera| tera * 1e12),
            memory: self.memory.map_or(h200.memory, |gib| gib * (1u64 << 30) as f64),
            bandwidth: self.bandwidth.map_or(h200.bandwidth, |tera| tera * 1e12),
        };
        let each = batch.checked_mul(self.accumulate).and_then(|each| each.checked_mul(cluster.ranks));
        let each = each.ok_or_else(|| Failure::input(anyhow!("that many samples in a step are too many")))?;
        let step = Step {
            samples: self.global_batch.unwrap_or(each),
            batch,
            wire: if self.wire == PrecisionName::Bf16 { 2.0 } else { 4.0 },
            bucket: self.bucket * f64::from(1 << 20),
            state: if precision == Precision::Bf16 { StateBytes::BF16 } else { StateBytes::F32 },
        };
        let proposal = propose(&work, &device, &cluster, &step);
        let measured = self.flops.is_none().then_some(measured);
        Ok(Plan { options: self, model: name, work, device, measured, cluster, step, proposal })
    }

    fn cluster(&self) -> Result<Cluster, Failure> {
        const MOST_RANKS: usize = 1 << 20;
        let (ranks, per_host) = (self.ranks.unwrap_or(1), self.ranks_per_host);
        if ranks > MOST_RANKS {
            return Err(Failure::input(anyhow!("--ranks {ranks}: at most {MOST_RANKS} ranks are planned")));
        }
        if ranks > per_host && !ranks.is_multiple_of(per_host) {
            return Err(Failure::input(anyhow!(
                "{ranks} ranks do not fill hosts of {per_host}: take a multiple, or say --ranks-per-host"
            )));
        }
        Ok(Cluster {
            ranks,
            ranks_per_host: per_host,
            host_link: self.host_link * 1e9,
            link: self.link * 1e9,
            latency: self.latency * 1e-6,
        })
    }
}

/// Milliseconds, with as many digits as matter.
fn time(seconds: f64) -> String {
    let milliseconds = 1000.0 * seconds;
    match milliseconds {
        0.0 => "-".to_string(),
        1000.0.. => format!("{seconds:.2} s"),
        100.0.. => format!("{milliseconds:.0} ms"),
        10.0.. => format!("{milliseconds:.1} ms"),
        _ => format!("{milliseconds:.2} ms"),
    }
}

impl Plan<'_> {
    fn lines(&self) -> Vec<String> {
        let Plan { work, step, proposal, .. } = self;
        let mut lines = self.head();
        lines.push(String::new());
        let names =
            ["layout", "micro-batch", "memory", "step", "computing", "in layers", "bubble", "hidden", "exposed"];
        let mut rows = vec![names.into_iter().chain(["update", "efficiency"]).map(str::to_string).collect::<Vec<_>>()];
        rows.extend(proposal.rows.iter().map(row));
        lines.extend(format::table(&rows));
        lines.push(String::new());
        if let Some(prediction) = proposal.chosen.map(|index| proposal.rows[index]) {
            let samples = step.samples as f64 / prediction.seconds();
            let speed = match work.images {
                true => format!("{} images/s", format::short(samples)),
                false => format!("{} tokens/s", format::short(samples * work.tokens as f64)),
            };
            lines.push(format!("Proposed: {}, {speed}: {}", prediction.layout, proposal.why));
        } else {
            lines.push(format!("No proposal: {}", proposal.why));
        }
        lines.push(
            "hidden, exposed: gradients and weights that are sent behind work, and that are waited for; in layers: sums and \
             activations of divided layers; efficiency: the share of forward and backward passes, without what is computed again"
                .to_string(),
        );
        lines
    }

    /// What the prediction was made from.
    fn head(&self) -> Vec<String> {
        let Plan { model, work, device, cluster, step, options, .. } = self;
        let samples = match work.images {
            true => format!("{} of {} tokens", format::count(step.batch, "image", "images"), work.tokens),
            false => format!("{} of {} tokens", format::count(step.batch, "sequence", "sequences"), work.tokens),
        };
        let hosts = cluster.all().hosts;
        let source = match &self.measured {
            Some(measured) => format!("as {} on an H200", measured.model),
            None => "as given".to_string(),
        };
        let gb = |bytes: f64| format!("{} GB/s", bytes / 1e9);
        vec![
            format!(
                "{model}: {} parameters, {}FLOP to train on a sample; at most {samples} at a time on a rank, {} in a step",
                format::short(work.parameters),
                spaced(work.flops),
                format::thousands(step.samples as u128)
            ),
            format!(
                "{} on {}: {} within a host, {} between, {} us",
                format::count(cluster.ranks, "rank", "ranks"),
                format::count(hosts, "host", "hosts"),
                gb(cluster.host_link),
                gb(cluster.link),
                options.latency
            ),
            format!(
                "a rank computes {:.0} TFLOP/s ({source}), has {:.1} GiB of memory and reads and writes {:.1} TB/s",
                device.flops / 1e12,
                device.memory / (1u64 << 30) as f64,
                device.bandwidth / 1e12
            ),
        ]
    }

    fn json(&self) -> Json {
        let Plan { model, work, device, measured, cluster, step, proposal, .. } = self;
        json!({
            "model": model,
            "batch": step.batch,
            "global_batch": step.samples,
            "tokens": work.tokens,
            "total_parameters": work.parameters,
            "training_flops_per_sample": work.flops,
            "ranks": cluster.ranks,
            "ranks_per_host": cluster.ranks_per_host,
            "host_link_bytes_per_s": cluster.host_link,
            "link_bytes_per_s": cluster.link,
            "latency_s": cluster.latency,
            "device": {
                "flops_per_s": device.flops,
                "memory_bytes": device.memory,
                "bandwidth_bytes_per_s": device.bandwidth,
                "measured_with": measured.map(|measured| measured.model),
            },
            "layouts": proposal.rows.iter().map(row_json).collect::<Vec<_>>(),
            "proposed": proposal.chosen,
            "why": proposal.why,
        })
    }
}

/// `86.6 M`, with a space where there is no unit, too.
fn spaced(number: f64) -> String {
    let text = format::short(number);
    if text.ends_with(|last: char| last.is_ascii_digit()) { format!("{text} ") } else { text }
}

fn row(prediction: &Prediction) -> Vec<String> {
    let memory = format::bytes(prediction.memory() as usize);
    let layout = &prediction.layout;
    vec![
        layout.to_string(),
        format!("{} x {}", layout.micro_batches, layout.micro_batch),
        if prediction.fits { memory } else { format!("{memory}: too much") },
        time(prediction.seconds()),
        time(prediction.computing),
        time(prediction.in_layers),
        time(prediction.bubble),
        time(prediction.hidden),
        time(prediction.exposed),
        time(prediction.update),
        format!("{:.1} %", 100.0 * prediction.efficiency),
    ]
}

fn row_json(prediction: &Prediction) -> Json {
    let layout = &prediction.layout;
    json!({
        "layout": layout.to_string(),
        "done_here": layout.is_done_here(),
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "data": layout.data,
        "micro_batch": layout.micro_batch,
        "micro_batches": layout.micro_batches,
        "recompute": layout.recompute,
        "fits": prediction.fits,
        "memory_bytes": {
            "state": prediction.state,
            "activations": prediction.activations,
            "gathered": prediction.gathered,
            "total": prediction.memory(),
        },
        "seconds": {
            "step": prediction.seconds(),
            "computing": prediction.computing,
            "in_layers": prediction.in_layers,
            "bubble": prediction.bubble,
            "hidden": prediction.hidden,
            "exposed": prediction.exposed,
            "update": prediction.update,
        },
        "efficiency": prediction.efficiency,
    })
}
