//! Models of images and texts: classes of an image that the request names.

use std::path::Path;
use std::sync::Arc;

use vitreous_models::OpenOptions;
use vitreous_runtime::image_text::{CaptionRunner, ImageTextModel, LabelSet, ZeroShot};
use vitreous_runtime::{Error, OutputName};

use super::{ImageService, Surroundings};
use crate::work::{BatchWork, Collector, WorkError};

/// Lists of labels that are read at once.
const MOST_AT_ONCE: usize = 16;

/// A model of images and texts.
pub struct ImageTextService {
    /// The image tower.
    pub images: ImageService,
    labels: Collector<LabelSet, Result<ZeroShot, WorkError>>,
}

impl ImageTextService {
    pub(super) fn open(name: &str, path: &Path, around: &Surroundings) -> Result<ImageTextService, Error> {
        // Each tower belongs to a thread. The file is mapped, so that it is in memory once.
        let open = || ImageTextModel::open(path, &OpenOptions::default());
        let images = ImageService::of(name, Arc::new(open()?.images), around)?;
        let (model, settings) = (open()?, around.settings.clone());
        let labels = Collector::start(around.collector(name, "labels", MOST_AT_ONCE), move |jobs| {
            jobs.work(|| Ok(LabelWork(model.caption_runner(settings.precision, &settings.device)?)));
        })?;
        Ok(ImageTextService { images, labels })
    }

    /// The logits and scores of a prepared image, one per label.
    pub async fn classify(&self, image: Vec<f32>, labels: LabelSet) -> Result<(Vec<f32>, Vec<f64>), WorkError> {
        let asked = self.labels.ask(labels, self.labels.arrive());
        let (vectors, labels) = tokio::join!(self.images.run(OutputName::Features, vec![image]), asked);
        let (vector, labels) = (vectors?.pop().unwrap_or_default(), labels??);
        Ok(compared(&vector, &labels))
    }

    /// The same of an image's vector.
    pub async fn scores(&self, vector: &[f32], labels: LabelSet) -> Result<(Vec<f32>, Vec<f64>), WorkError> {
        let labels = self.labels.ask(labels, self.labels.arrive()).await??;
        Ok(compared(vector, &labels))
    }
}

fn compared(vector: &[f32], labels: &ZeroShot) -> (Vec<f32>, Vec<f64>) {
    let logits = labels.logits(vector);
    let scores = labels.scores(&logits);
    (logits, scores)
}

struct LabelWork<'m>(CaptionRunner<'m>);

impl BatchWork for LabelWork<'_> {
    type Job = LabelSet;
    type Answer = Result<ZeroShot, WorkError>;

    fn cost(_: &LabelSet) -> usize {
        1
    }

    fn run(&mut self, jobs: &[LabelSet]) -> Result<Vec<Self::Answer>, WorkError> {
        Ok(jobs.iter().map(|labels| Ok(ZeroShot::new(labels, &mut self.0)?)).collect())
    }
}
