//! Models of images: classes, vectors, and what happens inside.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use vitreous_data::image::{Channels, Scratch, decode_within};
use vitreous_models::OpenOptions;
use vitreous_runtime::runner::usual_batch;
use vitreous_runtime::{Error, ImageModel, OutputName, Runner};

use super::{Surroundings, TensorShape, Tensors};
use crate::work::{BatchWork, Collector, WorkError};

/// The images of one request, prepared for the model, one after the other; and their logits or features.
type Images = Collector<Vec<Vec<f32>>, Vec<Vec<f32>>>;

/// A model of images.
pub struct ImageService {
    /// The model.
    pub model: Arc<ImageModel>,
    name: String,
    around: Surroundings,
    logits: OnceCell<Images>,
    features: OnceCell<Images>,
    /// Images that may be decoded or wait decoded: compressed ones take little memory.
    decoded: Arc<Semaphore>,
}

/// An image as the model takes it. While it is there, it counts as decoded.
pub struct PreparedImage {
    /// The tensor, channels first.
    pub numbers: Vec<f32>,
    /// The decoded image's width and height, and the rows and columns of it that the model sees.
    pub sizes: [[usize; 2]; 2],
    _permit: Option<OwnedSemaphorePermit>,
}

impl ImageService {
    pub(super) fn open(name: &str, path: &Path, around: &Surroundings) -> Result<ImageService, Error> {
        ImageService::of(name, Arc::new(ImageModel::open(path, &OpenOptions::default())?), around)
    }

    /// Serves a model that is open.
    pub(super) fn of(name: &str, model: Arc<ImageModel>, around: &Surroundings) -> Result<ImageService, Error> {
        let device = &around.settings.device;
        let batch = around.settings.batch.map_or_else(|| usual_batch(model.model.architecture.as_ref(), device), Ok)?;
        let service = ImageService {
            model,
            name: name.to_string(),
            around: around.clone(),
            logits: OnceCell::new(),
            features: OnceCell::new(),
            decoded: Arc::new(Semaphore::new((4 * batch).clamp(16, 1024))),
        };
        // What is asked for most is ready before the first request.
        let (cell, output) = match service.classes() {
            Some(_) => (&service.logits, OutputName::Logits),
            None => (&service.features, OutputName::Features),
        };
        let _ = cell.set(service.start(output, batch)?);
        Ok(service)
    }

    /// Starts a thread; `batch` is how many images are collected, of which as many are computed at once as fit into memory.
    fn start(&self, output: OutputName, batch: usize) -> Result<Images, Error> {
        let (model, settings) = (self.model.clone(), self.around.settings.clone());
        let task = if output == OutputName::Logits { "classify" } else { "features" };
        Collector::start(self.around.collector(&self.name, task, batch), move |jobs| {
            jobs.work(|| {
                let runner = Runner::new(&*model, output, settings.precision, &settings.device, settings.batch)?;
                let mut work = ImageWork(runner);
                // Weights are taken in before the first request.
                let blank = vec![vec![0.0; model.input.floats()]];
                work.0.run(&blank)?;
                Ok(work)
            });
        })
    }

    /// Number of classes, if it has a head.
    pub fn classes(&self) -> Option<usize> {
        self.model.model.architecture.signature().classes()
    }

    /// Numbers of a vector, if it gives one.
    pub fn width(&self) -> Option<usize> {
        self.model.model.architecture.signature().vector()
    }

    /// Decodes an image file and prepares it as the model was trained.
    pub async fn prepare(&self, file: bytes::Bytes) -> Result<PreparedImage, WorkError> {
        let permit = self.decoded.clone().acquire_owned().await.ok();
        let (model, pixels) = (self.model.clone(), self.around.limits.pixels);
        let prepared = tokio::task::spawn_blocking(move || {
            let refused = |error: vitreous_data::image::ImageError| WorkError::Input(format!("the image: {error}"));
            let channels = Channels::from_count(model.input.channels);
            let channels = channels.ok_or_else(|| WorkError::Input("the model takes no images".to_string()))?;
            let image = decode_within(&file, channels, pixels).map_err(refused)?;
            let mut numbers = vec![0.0; model.input.floats()];
            model.preprocess.apply(&image, &mut Scratch::default(), &mut numbers).map_err(refused)?;
            let seen = model.preprocess.rows_and_columns_seen(&image);
            Ok(PreparedImage { numbers, sizes: [[image.height(), image.width()], seen], _permit: permit })
        });
        prepared.await.map_err(|error| WorkError::Failed(error.to_string()))?
    }

    /// Logits or features of images of one request.
    pub async fn run(&self, output: OutputName, images: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, WorkError> {
        let cell = match output {
            OutputName::Logits => &self.logits,
            OutputName::Features => &self.features,
        };
        let device = &self.around.settings.device;
        let batch = self.around.settings.batch;
        let start = || async {
            let batch = batch.map_or_else(|| usual_batch(self.model.model.architecture.as_ref(), device), Ok)?;
            tokio::task::block_in_place(|| self.start(output, batch))
        };
        let collector = cell.get_or_try_init(start).await?;
        let arrival = collector.arrive();
        collector.ask(images, arrival).await
    }

    /// Whether a batch should wait for an image that is being decoded.
    pub fn arrive(&self) -> Option<crate::work::Arrival> {
        self.logits.get().or(self.features.get()).map(Collector::arrive)
    }

    pub(super) fn tensors(&self) -> Tensors {
        let input = &self.model.input;
        let shape = [input.channels, input.size.height, input.size.width].map(|size| size as i64);
        let of = |name, width: Option<usize>| width.map(|width| TensorShape::new(name, "FP32", vec![-1, width as i64]));
        Tensors {
            inputs: vec![TensorShape::new("images", "FP32", [&[-1], &shape[..]].concat())],
            outputs: of("logits", self.classes()).into_iter().chain(of("features", self.width())).collect(),
        }
    }
}

struct ImageWork<'m>(Runner<&'m ImageModel>);

impl BatchWork for ImageWork<'_> {
    type Job = Vec<Vec<f32>>;
    type Answer = Vec<Vec<f32>>;

    fn cost(job: &Vec<Vec<f32>>) -> usize {
        job.len()
    }

    fn run(&mut self, jobs: &[Vec<Vec<f32>>]) -> Result<Vec<Vec<Vec<f32>>>, WorkError> {
        let images: Vec<&Vec<f32>> = jobs.iter().flatten().collect();
        let width = self.0.output_floats().max(1);
        let mut found = self.0.run(&images)?.chunks_exact(width).map(<[f32]>::to_vec);
        Ok(jobs.iter().map(|job| found.by_ref().take(job.len()).collect()).collect())
    }
}
