//! Models of images and texts: classes of an image that the request names.

use std::path::Path;
use std::sync::Arc;

use vitreous_models::OpenOptions;
use vitreous_runtime::image_text::{CaptionRunner, ImageTextModel, LabelSet, ZeroShot};
use vitreous_runtime::text::TextInput;
use vitreous_runtime::{Error, OutputName};

use super::{ImageService, Surroundings};
use crate::work::{BatchWork, Collector, WorkError};

/// Lists of labels or texts that are read at once.
const MOST_AT_ONCE: usize = 16;

/// A model of images and texts.
pub struct ImageTextService {
    /// The image tower.
    pub images: ImageService,
    /// Both towers, with their file mapped.
    pub model: Arc<ImageTextModel>,
    captions: Collector<Asked, Result<Read, WorkError>>,
}

/// What the text tower is asked for.
pub enum Asked {
    /// Labels, to compare images with.
    Labels(LabelSet),
    /// Texts, for their vectors.
    Texts(Vec<TextInput>),
}

/// What it has read.
pub enum Read {
    /// Labels.
    Labels(ZeroShot),
    /// Texts.
    Texts(EmbeddedTexts),
}

/// Vectors of texts.
pub struct EmbeddedTexts {
    /// One of each.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all of them.
    pub tokens: usize,
}

impl ImageTextService {
    pub(super) fn open(name: &str, path: &Path, around: &Surroundings) -> Result<ImageTextService, Error> {
        // Each tower belongs to a thread. The file is mapped, so that it is in memory once.
        let open = || ImageTextModel::open(path, &OpenOptions::default());
        let images = ImageService::of(name, Arc::new(open()?.images), around)?;
        let (model, settings) = (Arc::new(open()?), around.settings.clone());
        let whole = model.clone();
        let captions = Collector::start(around.collector(name, "captions", MOST_AT_ONCE), move |jobs| {
            jobs.work(|| {
                let runner = model.caption_runner(settings.precision, &settings.device)?;
                Ok(CaptionWork { model: &model, runner })
            });
        })?;
        Ok(ImageTextService { images, model: whole, captions })
    }

    /// One vector per text, of the space that images' vectors are in.
    pub async fn embed(&self, texts: Vec<TextInput>) -> Result<EmbeddedTexts, WorkError> {
        match self.captions.ask(Asked::Texts(texts), self.captions.arrive()).await?? {
            Read::Texts(embedded) => Ok(embedded),
            Read::Labels(_) => Err(other_answer()),
        }
    }

    async fn read_labels(&self, labels: LabelSet) -> Result<ZeroShot, WorkError> {
        match self.captions.ask(Asked::Labels(labels), self.captions.arrive()).await?? {
            Read::Labels(labels) => Ok(labels),
            Read::Texts(_) => Err(other_answer()),
        }
    }

    /// The logits and scores of a prepared image, one per label.
    pub async fn classify(&self, image: Vec<f32>, labels: LabelSet) -> Result<(Vec<f32>, Vec<f64>), WorkError> {
        let vectors = self.images.run(OutputName::Features, vec![image]);
        let (vectors, labels) = tokio::join!(vectors, self.read_labels(labels));
        let (vector, labels) = (vectors?.pop().unwrap_or_default(), labels?);
        Ok(compared(&vector, &labels))
    }

    /// The same of an image's vector.
    pub async fn scores(&self, vector: &[f32], labels: LabelSet) -> Result<(Vec<f32>, Vec<f64>), WorkError> {
        Ok(compared(vector, &self.read_labels(labels).await?))
    }
}

fn compared(vector: &[f32], labels: &ZeroShot) -> (Vec<f32>, Vec<f64>) {
    let logits = labels.logits(vector);
    let scores = labels.scores(&logits);
    (logits, scores)
}

fn other_answer() -> WorkError {
    WorkError::Failed("the text tower answered something else".to_string())
}

struct CaptionWork<'m> {
    model: &'m ImageTextModel,
    runner: CaptionRunner<'m>,
}

impl CaptionWork<'_> {
    fn embed(&mut self, texts: &[TextInput]) -> Result<EmbeddedTexts, WorkError> {
        let mut tokens = 0;
        for text in texts {
            tokens += self.model.texts.encode(text)?.len();
        }
        let width = self.runner.width().max(1);
        let vectors = self.runner.embed(texts)?.chunks_exact(width).map(<[f32]>::to_vec).collect();
        Ok(EmbeddedTexts { vectors, tokens })
    }
}

impl BatchWork for CaptionWork<'_> {
    type Job = Asked;
    type Answer = Result<Read, WorkError>;

    fn cost(_: &Asked) -> usize {
        1
    }

    fn run(&mut self, jobs: &[Asked]) -> Result<Vec<Self::Answer>, WorkError> {
        let read = |job: &Asked| -> Self::Answer {
            Ok(match job {
                Asked::Labels(labels) => Read::Labels(ZeroShot::new(labels, &mut self.runner)?),
                Asked::Texts(texts) => Read::Texts(self.embed(texts)?),
            })
        };
        Ok(jobs.iter().map(read).collect())
    }
}
