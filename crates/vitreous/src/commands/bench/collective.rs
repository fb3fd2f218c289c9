//! How much of the time that gradients take to travel between GPUs is hidden behind the backward pass: measured on one GPU.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::ValueEnum;
use serde_json::{Value, json};
use vitreous_engine::collective::Wire;
use vitreous_engine::{Device, Executor, GradientOptions, Precision, Run, State, cuda};
use vitreous_pages::format;
use vitreous_runtime::training_graph::training_graphs;

use super::{Benched, FEWEST_RUNS, MOST_RUNS, PreparedModel, WARM_UP, fill_parameter, inputs, quantile};
use crate::failure::Failure;

/// MiB of gradients that travel together, as a recipe has it.
const BUCKET: usize = 25;

/// What adds up gradients.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CollectiveName {
    /// NVIDIA's library
    Nccl,
}

/// A training step in two parts, as ranks run it, and what adds up its gradients.
struct Step {
    pass: Executor,
    update: Executor,
    state: State,
    reduction: Arc<cuda::Reduction>,
    number: u64,
}

/// Seconds, each the shortest first.
pub struct Hidden {
    /// Of steps that add up nothing.
    without: Vec<f64>,
    /// Of steps that do.
    with: Vec<f64>,
    /// Of adding up alone.
    alone: Vec<f64>,
    bytes: usize,
    buckets: usize,
    times: usize,
    library: String,
}

/// Measures for so many seconds. Each bucket is moved so many times.
pub fn measure(
    model: &Benched,
    precision: Precision,
    device: &Device,
    times: usize,
    seconds: f64,
) -> Result<Hidden, Failure> {
    let Device::Cuda(gpu) = device else {
        return Err(Failure::input(anyhow!("--collective nccl is for GPUs, and this runs on the CPU")));
    };
    let mut step = Step::new(model, precision, (device, gpu), times)?;
    let [mut without, mut with, mut alone] = [const { Vec::new() }; 3];
    let until = |share: f64| Instant::now() + Duration::from_secs_f64(share * seconds);
    let mut round = |kept: bool| -> Result<(), Failure> {
        // In turns, so that clocks that rise or fall change all alike.
        let times = [step.time(false)?, step.time(true)?, step.time_alone()?];
        for (all, time) in [&mut without, &mut with, &mut alone].into_iter().zip(times) {
            all.extend(kept.then_some(time));
        }
        Ok(())
    };
    let end = until(WARM_UP);
    let mut rounds = 0;
    // Recorded at the second run.
    while rounds < FEWEST_RUNS || Instant::now() < end {
        round(false)?;
        rounds += 1;
    }
    let end = until(1.0);
    let mut rounds = 0;
    while rounds < FEWEST_RUNS || (Instant::now() < end && rounds < MOST_RUNS) {
        round(true)?;
        rounds += 1;
    }
    [&mut without, &mut with, &mut alone].into_iter().for_each(|times| times.sort_by(f64::total_cmp));
    let buckets = step.reduction.buckets();
    Ok(Hidden {
        without,
        with,
        alone,
        bytes: 4 * buckets.iter().map(ExactSizeIterator::len).sum::<usize>(),
        buckets: buckets.len(),
        times,
        library: step.reduction.library().to_string(),
    })
}

impl Step {
    fn new(
        model: &Benched,
        precision: Precision,
        (device, gpu): (&Device, &Arc<cuda::Device>),
        times: usize,
    ) -> Result<Step, Failure> {
        let built = training_graphs(model.model, &model.call, precision, GradientOptions::default());
        let ([graph, update], loss) = built.map_err(Failure::input)?;
        let plans = (device.plan(&graph, &[loss]), device.plan(&update, &[]));
        let (pass, update_plan) = (plans.0.map_err(Failure::input)?, plans.1.map_err(Failure::input)?);
        let needed =
            device.bytes_needed(&pass) + device.bytes_needed(&update_plan) + device.state_bytes_needed(&update);
        let landing = 4 * graph.parameters().iter().map(|parameter| parameter.shape.elements()).sum::<usize>();
        device.check_memory("training with this batch", needed + landing).map_err(Failure::input)?;
        let mut state = State::new(&update).map_err(Failure::work)?;
        for parameter in update.parameters() {
            fill_parameter(parameter, state.parameter_mut(&parameter.name).map_err(Failure::work)?);
        }
        let executor = Executor::new(pass, device).map_err(Failure::work)?;
        let mut prepared = PreparedModel { executor, inputs: inputs(&graph), state: None, step: 0 };
        prepared.fill_inputs(model)?;
        let mut update = Executor::new(update_plan, device).map_err(Failure::work)?;
        update.input("learning_rate").map_err(Failure::work)?[0] = 1e-5;
        update.input("gradient_scale").map_err(Failure::work)?[0] = 1.0;
        let floats = BUCKET << 18;
        let reduction = cuda::Reduction::alone(gpu, state.table(), floats, Wire::F32, times).map_err(Failure::work)?;
        Ok(Step { pass: prepared.executor, update, state, reduction, number: 0 })
    }

    /// Seconds of a step.
    fn time(&mut self, reduces: bool) -> Result<f64, Failure> {
        let Step { pass, update, state, reduction, number } = self;
        let run = Run { seed: 1, step: *number };
        *number += 1;
        let start = Instant::now();
        match reduces {
            true => pass.run_reducing(state, run, reduction),
            false => pass.run(state, run),
        }
        .and_then(|()| update.run(state, run))
        .and_then(|()| update.finish())
        .map_err(Failure::work)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Seconds of adding up, with nothing else going on.
    fn time_alone(&mut self) -> Result<f64, Failure> {
        let start = Instant::now();
        self.reduction.reduce(&mut self.state, false).and_then(|()| self.reduction.finish()).map_err(Failure::work)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

impl Hidden {
    fn medians(&self) -> [f64; 3] {
        [&self.without, &self.with, &self.alone].map(|times| quantile(times, 0.5))
    }

    /// The fraction of the time of adding up that a step does not take longer for.
    fn share(&self) -> f64 {
        let [without, with, alone] = self.medians();
        1.0 - (with - without) / alone
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let [without, with, alone] = self.medians().map(|seconds| 1e3 * seconds);
        let times = if self.times > 1 { format!(", each moved {} times", self.times) } else { String::new() };
        vec![
            format!("{without:.2} ms a step without adding up gradients, the median of {}", self.without.len()),
            format!("{with:.2} ms a step that adds them up while the backward pass goes on"),
            format!(
                "{alone:.2} ms for adding up alone: {} in {}{times}, by {} on this GPU alone",
                format::bytes(self.bytes),
                format::count(self.buckets, "bucket", "buckets"),
                self.library
            ),
            format!("{:.1} % of it hidden behind the backward pass", 100.0 * self.share()),
        ]
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let [without, with, alone] = self.medians().map(|seconds| 1e3 * seconds);
        json!({
            "library": self.library,
            "runs": self.without.len(),
            "step_ms": without,
            "step_with_reduction_ms": with,
            "reduction_ms": alone,
            "hidden_share": self.share(),
            "gradient_bytes": self.bytes,
            "buckets": self.buckets,
            "times": self.times,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_does_not_take_longer_for_is_hidden() {
        let hidden = Hidden {
            without: vec![0.060],
            with: vec![0.061],
            alone: vec![0.010],
            bytes: 4 << 20,
            buckets: 2,
            times: 16,
            library: "NCCL 2.28.3".to_string(),
        };
        assert!((hidden.share() - 0.9).abs() < 1e-9);
        let lines = hidden.lines();
        assert_eq!(
            lines[2],
            "10.00 ms for adding up alone: 4.0 MiB in 2 buckets, each moved 16 times, by NCCL 2.28.3 on this GPU alone"
        );
        assert_eq!(lines[3], "90.0 % of it hidden behind the backward pass");
        assert_eq!(hidden.json()["runs"], 1);
    }
}
