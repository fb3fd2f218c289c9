//! The shortest way from a picture to its classes.

use std::path::Path;

use vitreous_data::image::{self, Image, Scratch};
use vitreous_engine::Precision;
use vitreous_models::OpenOptions;

use crate::device::DeviceChoice;
use crate::error::Error;
use crate::image_model::ImageModel;
use crate::locate::unsuitable;
use crate::runner::{OutputName, Runner};
use crate::scores::{best, softmax};

/// How a classifier is opened.
#[derive(Clone, Debug, Default)]
pub struct ClassifierOptions {
    /// What to compute on.
    pub device: DeviceChoice,
    /// Precision of matrix multiplications.
    pub precision: Precision,
    /// Threads; one per core if it is not said.
    pub threads: Option<usize>,
    /// How to open the model, e.g. at another image size.
    pub open: OpenOptions,
}

/// A model that tells what is in a picture.
pub struct Classifier {
    runner: Runner<ImageModel>,
    scratch: Scratch,
}

/// What a classifier says of one picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// One number per class.
    pub logits: Vec<f32>,
    labels: Vec<String>,
}

/// One class of a prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The class.
    pub class: usize,
    /// Its name.
    pub label: String,
    /// Its probability.
    pub score: f64,
}

impl Classifier {
    /// Opens a model directory, a run directory or a checkpoint file.
    pub fn open(path: &Path, options: &ClassifierOptions) -> Result<Classifier, Error> {
        let model = ImageModel::open(path, &options.open)?;
        let signature = model.model.architecture.signature();
        if signature.classes().is_none() {
            return Err(unsuitable(&path.to_string_lossy(), &signature, "a classifier"));
        }
        let device = options.device.open(options.threads.unwrap_or_else(crate::threads))?;
        let runner = Runner::new(model, OutputName::Logits, options.precision, &device, None)?;
        Ok(Classifier { runner, scratch: Scratch::default() })
    }

    /// Classifies an image file.
    pub fn classify_file(&mut self, path: &Path) -> Result<Prediction, Error> {
        let image = image::open(path, self.runner.model().preprocess.channels)?;
        self.classify(&[image]).map(|mut predictions| predictions.remove(0))
    }

    /// Classifies decoded images.
    pub fn classify(&mut self, images: &[Image]) -> Result<Vec<Prediction>, Error> {
        let model = self.runner.model();
        let mut prepared = Vec::with_capacity(images.len());
        for image in images {
            let mut pixels = vec![0.0; model.input.floats()];
            model.preprocess.apply(image, &mut self.scratch, &mut pixels)?;
            prepared.push(pixels);
        }
        let labels: Vec<String> = (0..self.runner.output_floats()).map(|class| model.label(class)).collect();
        let classes = self.runner.output_floats();
        let logits = self.runner.run(&prepared)?.chunks_exact(classes);
        Ok(logits.map(|logits| Prediction { logits: logits.to_vec(), labels: labels.clone() }).collect())
    }
}

impl Prediction {
    /// The most probable classes, the most probable first.
    pub fn top(&self, count: usize) -> Vec<Answer> {
        let scores = softmax(&self.logits);
        let answer = |class: usize| Answer { class, label: self.labels[class].clone(), score: scores[class] };
        best(&scores, count).into_iter().map(answer).collect()
    }
}
