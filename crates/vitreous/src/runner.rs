//! Runs a model on batches of images.

use std::time::{Duration, Instant};

use anyhow::Context;
use vitreous_engine::{Device, Executor, Graph, Mode, Parameter, Plan, Precision, Value};
use vitreous_models::{Model, VitConfig, vit};
use vitreous_train::fits::{self, Order};

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
    batch: usize,
    /// Whether somebody asked for this batch: then it is that or an error.
    batch_is_asked_for: bool,
    ready: Option<Ready>,
    answers: Vec<f32>,
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

/// Refuses a batch that would not fit into memory, and says which would.
pub fn check_batch(
    what: &str,
    batch: usize,
    bytes: usize,
    device: &Device,
    smaller: impl Fn(usize) -> Option<usize>,
) -> vitreous_engine::Result<()> {
    let order = Order { what: what.to_string(), setting: "--batch ", size: batch, least: 1, bytes, recompute: None };
    fits::check(device, &order, |batch, _| smaller(batch))
}

impl<'m> Runner<'m> {
    /// Without a batch that is asked for, it is as large as keeps the device busy and fits into its memory.
    pub fn new(
        model: &'m Model,
        answer: Answer,
        precision: Precision,
        device: &Device,
        batch: Option<usize>,
    ) -> anyhow::Result<Runner<'m>> {
        Ok(Runner {
            model,
            answer,
            precision,
            device: device.clone(),
            batch: batch.map_or_else(|| usual_batch(&model.config, device), Ok)?,
            batch_is_asked_for: batch.is_some(),
            ready: None,
            answers: Vec::new(),
            computing: Duration::ZERO,
        })
    }

    /// How many images it likes to be given at a time. It takes more, too.
    pub fn batch(&self) -> usize {
        self.batch
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
        self.answers.clear();
        let mut rest = images;
        while !rest.is_empty() {
            self.make_ready(rest.len().min(self.batch))?;
            let output_floats = self.output_floats();
            let ready = self.ready.as_mut().context("just made ready")?;
            let (now, later) = rest.split_at(rest.len().min(ready.batch));
            let start = Instant::now();
            let input = ready.executor.input("images")?;
            // Where it is ready for more, what is behind them is computed for nothing.
            for (to, image) in input.chunks_exact_mut(input.len() / ready.batch).zip(now) {
                to.copy_from_slice(image);
            }
            ready.executor.infer()?;
            ready.executor.finish()?;
            self.computing += start.elapsed();
            self.answers.extend_from_slice(&ready.executor.output_slice(ready.output)?[..now.len() * output_floats]);
            rest = later;
        }
        Ok(&self.answers)
    }

    /// Makes it ready for so many images, or for as many of them as fit into memory.
    fn make_ready(&mut self, count: usize) -> anyhow::Result<()> {
        let on_gpu = self.device.is_gpu();
        if self.ready.as_ref().is_some_and(|ready| suits(ready.batch, count, on_gpu)) {
            return Ok(());
        }
        // The old one's weights go before the new one's come.
        self.ready = None;
        let needed = |plan: &Plan| self.device.bytes_needed_with_weights(plan);
        let (size, (plan, output)) = fitting(
            size_for(count, self.batch, on_gpu),
            |size| self.plan(size),
            |(plan, _)| Ok(self.batch_is_asked_for || fits::fits_well(&self.device, needed(plan))?),
        )?;
        let smaller = |size| self.plan(size).ok().map(|(plan, _)| needed(&plan));
        check_batch(&format!("running with batch {size}"), size, needed(&plan), &self.device, smaller)?;
        let lend = |parameter: &Parameter| self.model.parameter(&parameter.name).map_err(anyhow::Error::new);
        let executor = Executor::with_weights(plan, &self.device, lend)?;
        self.ready = Some(Ready { batch: size, executor, output });
        if size < count {
            self.batch = size;
        }
        Ok(())
    }

    /// What a batch of a size becomes, and its answers.
    fn plan(&self, batch: usize) -> anyhow::Result<(Plan, Value)> {
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let built = vit(&mut graph, &self.model.config, batch)?;
        let output = match self.answer {
            Answer::Logits => built.logits.context("this model has no head")?,
            Answer::Features => built.features,
        };
        let output = graph.cast(output, vitreous_engine::DType::F32)?;
        Ok((self.device.plan_with_fixed_weights(&graph, &[output])?, output))
    }
}

/// The batch to be made ready for some images. On a GPU, where kernels are compiled and algorithms measured for each size, there are few sizes.
fn size_for(count: usize, batch: usize, on_gpu: bool) -> usize {
    if on_gpu { count.next_power_of_two().min(batch) } else { count }
}

/// Whether what is ready for `batch` images is run for `count`: on a GPU also for fewer, which is sooner done than getting ready again.
fn suits(batch: usize, count: usize, on_gpu: bool) -> bool {
    if on_gpu { batch >= count } else { batch == count }
}

/// What is planned for as many images as are wanted or, where that does not fit, for half of them, and so on; one is planned in any case.
fn fitting<P>(
    wanted: usize,
    plan: impl Fn(usize) -> anyhow::Result<P>,
    fits: impl Fn(&P) -> anyhow::Result<bool>,
) -> anyhow::Result<(usize, P)> {
    let mut size = wanted;
    loop {
        let planned = plan(size)?;
        if size == 1 || fits(&planned)? {
            return Ok((size, planned));
        }
        size /= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::source;

    #[test]
    fn a_gpu_is_made_ready_for_few_sizes() {
        let mut ready = Vec::new();
        for count in [3, 4, 2, 7, 100, 1, 99, 60, 100] {
            if !ready.last().is_some_and(|&batch| suits(batch, count, true)) {
                ready.push(size_for(count, 100, true));
            }
        }
        assert_eq!(ready, [4, 8, 100]);
        // On a processor each image costs its time.
        assert_eq!([3, 100].map(|count| size_for(count, 100, false)), [3, 100]);
        assert_eq!([2, 3, 4].map(|count| suits(3, count, false)), [false, true, false]);
    }

    #[test]
    fn a_batch_is_halved_until_it_fits() {
        let within = |most: usize| fitting(37, |size| Ok(10 * size), |&bytes| Ok(bytes <= most)).expect("a plan");
        assert_eq!([370, 369, 100, 20, 0].map(within), [(37, 370), (18, 180), (9, 90), (2, 20), (1, 10)]);
    }

    #[test]
    fn more_images_than_a_batch_are_answered_in_their_order() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny_vit");
        let Ok((model, _)) = source::open(&path, None, None) else { panic!("{} is a model", path.display()) };
        let device = Device::Cpu { threads: 1 };
        let runner = |batch| Runner::new(&model, Answer::Logits, Precision::F32, &device, batch).expect("a model");
        let floats = runner(None).input_floats();
        let image = |which: usize| (0..floats).map(|index| ((index * (which + 3)) % 17) as f32 / 17.0).collect();
        let images: Vec<Vec<f32>> = (0..5).map(image).collect();
        let mut by_two = runner(Some(2));
        let answers = by_two.run(&images).expect("answers").to_vec();
        assert_eq!(by_two.batch(), 2);
        let mut single = runner(Some(1));
        let singles: Vec<f32> = images
            .iter()
            .flat_map(|image| single.run(std::slice::from_ref(image)).expect("an answer").to_vec())
            .collect();
        assert_eq!(answers.len(), 5 * by_two.output_floats());
        let far = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-5;
        assert!(!answers.iter().zip(&singles).any(far), "{answers:?} and {singles:?}");
        assert!(answers[..4].iter().zip(&answers[answers.len() - 4..]).any(far), "images differ");
    }
}
