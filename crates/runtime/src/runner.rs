//! Runs a model on batches of images.

use std::time::{Duration, Instant};

use vitreous_engine::{DType, Device, Executor, Graph, Mode, Parameter, Plan, Precision, Value};
use vitreous_models::{Architecture, Call};
use vitreous_train::memory::{self, MemoryRequest};

use crate::error::Error;
use crate::image_model::ImageModel;

/// The work that a batch should have, so that splitting it among threads costs little; and the most images.
const USUAL_WORK: (u64, usize) = (140_000_000_000, 128);
/// The same for a GPU, whose many processors all want some.
const USUAL_WORK_OF_GPU: (u64, usize) = (4_500_000_000_000, 1024);

/// The output that is asked of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputName {
    /// Logits, one per class.
    Logits,
    /// The vector that the head sees.
    Features,
}

impl OutputName {
    fn name(self) -> &'static str {
        match self {
            OutputName::Logits => "logits",
            OutputName::Features => "features",
        }
    }
}

/// A model made ready for batches of one size at a time: weights are kept once, not for each size. `M` is the model, or a reference to one.
pub struct Runner<M> {
    model: M,
    output: OutputName,
    precision: Precision,
    device: Device,
    batch: usize,
    /// Whether somebody asked for this batch: then it is that or an error.
    batch_is_asked_for: bool,
    ready: Option<Ready>,
    results: Vec<f32>,
    output_floats: usize,
    /// Time spent computing.
    pub computing: Duration,
}

struct Ready {
    batch: usize,
    executor: Executor,
    output: Value,
}

/// A batch large enough to keep a device busy.
pub fn usual_batch(model: &dyn Architecture, device: &Device) -> Result<usize, Error> {
    let mut graph = Graph::for_inference();
    model.plain().build(&mut graph, &Call::whole(1))?;
    let (flops, most) = if device.is_gpu() { USUAL_WORK_OF_GPU } else { USUAL_WORK };
    Ok(((flops / graph.flops().max(1)) as usize).clamp(1, most))
}

/// Refuses a batch that would not fit into memory, and says which would.
pub fn check_batch(
    purpose: &str,
    batch: usize,
    bytes: usize,
    device: &Device,
    smaller: impl Fn(usize) -> Option<usize>,
) -> vitreous_engine::Result<()> {
    let purpose = purpose.to_string();
    let request =
        MemoryRequest { purpose, setting: "--batch ", size: batch, least: 1, bytes, recompute: None, other: None };
    memory::check(device, &request, |batch, _| smaller(batch))
}

impl<M: std::borrow::Borrow<ImageModel>> Runner<M> {
    /// Without a batch that is asked for, it is as large as keeps the device busy and fits into its memory.
    pub fn new(
        model: M,
        output: OutputName,
        precision: Precision,
        device: &Device,
        batch: Option<usize>,
    ) -> Result<Runner<M>, Error> {
        let architecture = model.borrow().model.architecture.as_ref();
        let signature = architecture.signature();
        let output_floats = match output {
            OutputName::Logits => signature.classes(),
            OutputName::Features => signature.vector(),
        };
        let batch_is_asked_for = batch.is_some();
        let batch = batch.map_or_else(|| usual_batch(architecture, device), Ok)?;
        Ok(Runner {
            output,
            precision,
            device: device.clone(),
            batch,
            batch_is_asked_for,
            ready: None,
            results: Vec::new(),
            output_floats: output_floats
                .ok_or_else(|| Error::input(format!("this model gives no {}", output.name())))?,
            computing: Duration::ZERO,
            model,
        })
    }

    /// The model.
    pub fn model(&self) -> &ImageModel {
        self.model.borrow()
    }

    /// How many images it likes to be given at a time. It takes more, too.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// What it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Floats of one prepared image.
    pub fn input_floats(&self) -> usize {
        self.model().input.floats()
    }

    /// Floats of one result.
    pub fn output_floats(&self) -> usize {
        self.output_floats
    }

    /// The results for some prepared images, one after the other.
    pub fn run(&mut self, images: &[impl AsRef<[f32]>]) -> Result<&[f32], Error> {
        self.results.clear();
        let mut rest = images;
        while !rest.is_empty() {
            let output_floats = self.output_floats;
            let ready = self.make_ready(rest.len().min(self.batch))?;
            let (now, later) = rest.split_at(rest.len().min(ready.batch));
            let start = Instant::now();
            let input = ready.executor.input("images")?;
            // Where it is ready for more, what follows them is computed for nothing.
            for (to, image) in input.chunks_exact_mut(input.len() / ready.batch).zip(now) {
                to.copy_from_slice(image.as_ref());
            }
            ready.executor.infer()?;
            ready.executor.finish()?;
            let elapsed = start.elapsed();
            let results = ready.executor.output_slice(ready.output)?[..now.len() * output_floats].to_vec();
            self.computing += elapsed;
            self.results.extend_from_slice(&results);
            rest = later;
        }
        Ok(&self.results)
    }

    /// Makes it ready for so many images, or for as many of them as fit into memory.
    fn make_ready(&mut self, count: usize) -> Result<&mut Ready, Error> {
        let on_gpu = self.device.is_gpu();
        let ready = match self.ready.take() {
            Some(ready) if suits(ready.batch, count, on_gpu) => ready,
            there => self.prepare(count, there.map(|ready| ready.executor))?,
        };
        if ready.batch < count {
            self.batch = ready.batch;
        }
        Ok(self.ready.insert(ready))
    }

    /// Takes the weights of the executor that is there, if it can change to another batch; otherwise they go before the new ones come.
    fn prepare(&self, count: usize, there: Option<Executor>) -> Result<Ready, Error> {
        // What is there already makes room for the new, or goes on in it.
        let has = there.as_ref().map_or(0, |executor| self.device.bytes_needed_with_weights(executor.plan()));
        let needed = |plan: &Plan| self.device.bytes_needed_with_weights(plan).saturating_sub(has);
        let (size, (plan, output)) = fitting(
            size_for(count, self.batch, self.device.is_gpu()),
            |size| self.plan(size),
            |(plan, _)| Ok(self.batch_is_asked_for || memory::fits_well(&self.device, needed(plan))?),
        )?;
        let smaller = |size| self.plan(size).ok().map(|(plan, _)| needed(&plan));
        check_batch(&format!("running with batch {size}"), size, needed(&plan), &self.device, smaller)?;
        if let Some(mut executor) = there.filter(|executor| executor.can_change_to(&plan)) {
            executor.change_to(plan)?;
            return Ok(Ready { batch: size, executor, output });
        }
        let model = &self.model().model;
        let lend = |parameter: &Parameter| model.weight(&parameter.name).map_err(Error::from);
        let executor = Executor::with_weights(plan, &self.device, lend)?;
        Ok(Ready { batch: size, executor, output })
    }

    /// The plan for a batch, and its result.
    fn plan(&self, batch: usize) -> Result<(Plan, Value), Error> {
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let built = self.model().model.architecture.build(&mut graph, &Call::whole(batch))?;
        let output = graph.cast(built.need(self.output.name())?, DType::F32)?;
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
    plan: impl Fn(usize) -> Result<P, Error>,
    fits: impl Fn(&P) -> Result<bool, Error>,
) -> Result<(usize, P), Error> {
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

    use vitreous_models::OpenOptions;

    use super::*;

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
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vitreous/tests/fixtures/tiny_vit");
        let model = ImageModel::open(&path, &OpenOptions::default()).expect("a model");
        let device = Device::Cpu { threads: 1 };
        let runner = |batch| Runner::new(&model, OutputName::Logits, Precision::F32, &device, batch).expect("a model");
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
