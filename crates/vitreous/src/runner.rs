//! Runs a model on batches of images.

use std::time::{Duration, Instant};

use anyhow::Context;
use vitreous_engine::{Device, Executor, Graph, Mode, Parameter, Precision, Value};
use vitreous_models::{Model, VitConfig, vit};

/// The work that a batch should have, so that splitting it among threads costs little; and the most images.
const USUAL_WORK: (u64, usize) = (140_000_000_000, 128);
/// The same for a GPU, whose many processors all want some.
const USUAL_WORK_OF_GPU: (u64, usize) = (4_500_000_000_000, 1024);

/// What is asked of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A number a class.
    Logits,
    /// The vector that the head sees.
    Features,
}

/// A model made ready for batches of one size at a time: weights are kept once, not for each size.
pub struct Runner<'m> {
    model: &'m Model,
    answer: Answer,
    precision: Precision,
    device: Device,
    ready: Option<Ready>,
    /// Time spent computing.
    pub computing: Duration,
}

struct Ready {
    batch: usize,
    executor: Executor,
    output: Value,
}

/// A batch large enough to keep a device busy.
pub fn usual_batch(config: &VitConfig, device: &Device) -> anyhow::Result<usize> {
    let mut graph = Graph::for_inference();
    vit(&mut graph, config, 1)?;
    let (flops, most) = if device.is_gpu() { USUAL_WORK_OF_GPU } else { USUAL_WORK };
    Ok(((flops / graph.flops().max(1)) as usize).clamp(1, most))
}

impl<'m> Runner<'m> {
    pub fn new(model: &'m Model, answer: Answer, precision: Precision, device: &Device) -> Runner<'m> {
        Runner { model, answer, precision, device: device.clone(), ready: None, computing: Duration::ZERO }
    }

    /// What it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Numbers of one prepared image.
    pub fn input_floats(&self) -> usize {
        let config = &self.model.config;
        config.channels * config.image.height * config.image.width
    }

    /// Numbers of one answer.
    pub fn output_floats(&self) -> usize {
        match self.answer {
            Answer::Logits => self.model.config.classes,
            Answer::Features => self.model.config.features(),
        }
    }

    /// The answers for some images, one behind the other.
    pub fn run(&mut self, images: &[Vec<f32>]) -> anyhow::Result<&[f32]> {
        if self.ready.as_ref().is_none_or(|ready| ready.batch != images.len()) {
            // The old one's weights go before the new one's come.
            self.ready = None;
            self.ready = Some(self.prepare(images.len())?);
        }
        let ready = self.ready.as_mut().context("just prepared")?;
        let start = Instant::now();
        let input = ready.executor.input("images")?;
        for (to, image) in input.chunks_exact_mut(input.len() / images.len()).zip(images) {
            to.copy_from_slice(image);
        }
        ready.executor.infer()?;
        ready.executor.finish()?;
        self.computing += start.elapsed();
        Ok(ready.executor.output_slice(ready.output)?)
    }

    fn prepare(&self, batch: usize) -> anyhow::Result<Ready> {
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let built = vit(&mut graph, &self.model.config, batch)?;
        let output = match self.answer {
            Answer::Logits => built.logits.context("this model has no head")?,
            Answer::Features => built.features,
        };
        let output = graph.cast(output, vitreous_engine::DType::F32)?;
        let plan = self.device.plan_with_fixed_weights(&graph, &[output])?;
        let bytes = self.device.bytes_needed_with_weights(&plan);
        self.device.check_memory(&format!("running with batch {batch}"), bytes)?;
        let lend = |parameter: &Parameter| self.model.parameter(&parameter.name).map_err(anyhow::Error::new);
        Ok(Ready { batch, executor: Executor::with_weights(plan, &self.device, lend)?, output })
    }
}
