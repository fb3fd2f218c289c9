//! What is served: models by name, and what each can do, which follows from its signature.

mod image_text;
mod images;
mod language;
mod sequences;
mod set;
mod speech;
mod texts;
pub mod watched;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use vitreous_models::model::is_there;
use vitreous_models::{OpenOptions, Signature, Takes};
use vitreous_runtime::Error;

use crate::log::Log;
use crate::metrics::{Gauge, Metrics};
use crate::options::{Limits, ModelSettings, NamedModel};
use crate::work::{CollectorSettings, WorkError};

pub use image_text::ImageTextService;
pub use images::{ImageService, PreparedImage};
pub use language::{LanguageService, TextRequest};
pub use sequences::{SequenceFields, SequenceService, WrittenSequence};
pub use set::{LoadError, ModelSet, Models};
pub use speech::{Recording, Speech, Transcribe, TranscribeOptions, Transcribing};
pub use texts::{TextService, TokenizedText};
pub use watched::Watched;

/// How long a batch waits for requests that are on their way.
const PATIENCE: Duration = Duration::from_millis(2);

/// A model that is served.
pub struct Served {
    /// The name that clients call it by.
    pub name: String,
    /// What it is: "an image classifier".
    pub what: &'static str,
    /// What it can do.
    pub service: Service,
    /// Where it was opened from, if it was.
    pub path: Option<PathBuf>,
    /// When it was loaded, in seconds since 1970.
    pub loaded: u64,
    queue: Arc<Semaphore>,
    room: usize,
    watched: Option<Watched>,
    /// Explanations take memory, so that they are computed one after the other.
    explaining: Arc<Semaphore>,
}

/// What a model can do.
pub enum Service {
    /// Classes or vectors of images.
    Images(ImageService),
    /// Classes, entities, answers, fillings or vectors of texts.
    Texts(TextService),
    /// Texts from prompts.
    Language(LanguageService),
    /// Texts from texts: encoder-decoders and translators.
    Sequences(SequenceService),
    /// Classes of images that the request names.
    ImagesAndTexts(ImageTextService),
    /// Texts from recordings.
    Speech(Speech),
}

/// What models share while they are opened.
#[derive(Clone)]
pub struct Surroundings {
    /// How models are made ready.
    pub settings: ModelSettings,
    /// Limits.
    pub limits: Limits,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Log,
}

impl Surroundings {
    /// The settings of a thread that batches a model's jobs.
    fn collector(&self, model: &str, task: &str, most: usize) -> CollectorSettings {
        let (observe, complain) = (self.observe(model), self.complain(model));
        CollectorSettings { name: format!("{task} {model}"), most, patience: PATIENCE, observe, complain }
    }

    fn observe(&self, model: &str) -> Arc<dyn Fn(usize, f64) + Send + Sync> {
        let (metrics, model) = (self.metrics.clone(), model.to_string());
        Arc::new(move |size: usize, seconds: f64| metrics.batch(&model, size, seconds))
    }

    fn complain(&self, model: &str) -> Arc<dyn Fn(&str) + Send + Sync> {
        let (log, model) = (self.log, model.to_string());
        Arc::new(move |what: &str| log.error(&format!("{model}: {what}")))
    }
}

/// A place in a model's queue.
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Served {
    /// Opens a model, and makes it ready to answer.
    pub fn open(named: &NamedModel, around: &Surroundings) -> Result<Served, Error> {
        let NamedModel { name, path } = named;
        if !is_there(path) {
            // Says what is wrong with the path; a preset has no weights.
            vitreous_runtime::open_model(path, &OpenOptions::default())?;
        }
        let signature = signature_of(path)?;
        let mut speech = None;
        let service = match &signature.takes {
            Takes::Images(_) => Service::Images(ImageService::open(name, path, around)?),
            Takes::Tokens(_) if signature.next_token().is_some() => {
                Service::Language(LanguageService::open(name, path, around)?)
            }
            Takes::Tokens(_) => Service::Texts(TextService::open(name, path, around)?),
            Takes::Pairs { .. } => Service::Sequences(SequenceService::open(name, path, around)?),
            Takes::Audio(_) => {
                let (service, model) = Speech::open(name, path, around)?;
                speech = Some(model);
                Service::Speech(service)
            }
            Takes::ImagesAndTexts { .. } => Service::ImagesAndTexts(ImageTextService::open(name, path, around)?),
        };
        let watched = watched::of_service(&service, speech).map(|model| Watched::new(name, model, around));
        let served = Served::new(name, signature.what(), service, &around.limits);
        Ok(Served { watched, path: Some(path.clone()), ..served })
    }

    /// A model that can do something, under a name.
    pub fn new(name: &str, what: &'static str, service: Service, limits: &Limits) -> Served {
        let loaded = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (name, room) = (name.to_string(), limits.queue.max(1));
        let queue = Arc::new(Semaphore::new(room));
        Served {
            name,
            what,
            service,
            path: None,
            loaded,
            queue,
            room,
            watched: None,
            explaining: Arc::new(Semaphore::new(1)),
        }
    }

    /// A place for a request, if the queue is not full.
    pub fn place(&self) -> Result<Place, WorkError> {
        let permit = self.queue.clone().try_acquire_owned().map_err(|_| WorkError::Busy)?;
        Ok(Place { _permit: permit })
    }

    /// Does something that takes much memory, alone. It goes on when nobody waits for it any more, and others wait until it is done.
    pub async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, WorkError> + Send + 'static,
    ) -> Result<T, WorkError> {
        let permit = self.explaining.clone().acquire_owned().await.map_err(|_| WorkError::Busy)?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        done.await.map_err(|error| WorkError::Failed(error.to_string()))?
    }

    /// The endpoints that it answers, each with what to send.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let name = &self.name;
        let of = |method, path: String, example: String| Endpoint { method, path, example };
        let json = |path: &str, body: String| {
            of("POST", path.to_string(), format!("{path} -H 'Content-Type: application/json' -d '{body}'"))
        };
        let plain = |path: String, more: &str| of("POST", path.clone(), format!("{path} {more}"));
        let mut all = match &self.service {
            Service::Images(images) => {
                let mut all = vec![plain(format!("/explain/{name}"), "--data-binary @photo.jpg > page.html")];
                if images.classes().is_some() {
                    all.insert(0, plain(format!("/classify/{name}"), "--data-binary @photo.jpg"));
                }
                all
            }
            Service::Texts(texts) => {
                let body = match texts.answers_questions() {
                    true => "-F 'question=Who wrote it?' -F 'context=It was written by Ada Lovelace.'",
                    false if texts.fills() => "--data-binary 'Paris is the [MASK] of France.'",
                    false => "--data-binary 'A text.'",
                };
                let mut all = vec![plain(format!("/explain/{name}"), &format!("{body} > page.html"))];
                if texts.classifies() {
                    all.insert(0, plain(format!("/classify/{name}"), body));
                }
                if texts.embeds() {
                    all.push(json("/v1/embeddings", format!("{{\"model\": \"{name}\", \"input\": \"A text.\"}}")));
                }
                all
            }
            Service::Language(language) => {
                let prompt = format!("{{\"model\": \"{name}\", \"prompt\": \"Once upon a time\"}}");
                let mut all = vec![json("/v1/completions", prompt)];
                if language.chats() {
                    let messages = "[{\"role\": \"user\", \"content\": \"Hello!\"}]";
                    let body = format!("{{\"model\": \"{name}\", \"messages\": {messages}}}");
                    all.push(json("/v1/chat/completions", body));
                }
                all.push(plain(format!("/explain/{name}"), "--data-binary 'Once upon a time' > page.html"));
                all
            }
            Service::Sequences(_) => {
                vec![
                    json("/v1/completions", format!("{{\"model\": \"{name}\", \"prompt\": \"A text.\"}}")),
                    plain(format!("/explain/{name}"), "--data-binary 'A text.' > page.html"),
                ]
            }
            Service::ImagesAndTexts(_) => {
                let form = "-F image=@photo.jpg -F 'labels=a cat,a dog' -F 'template=a photo of {}'";
                let texts = format!("{{\"model\": \"{name}\", \"input\": \"A text.\"}}");
                let captions = "-F image=@photo.jpg -F 'text=a cat on a sofa' > page.html";
                vec![
                    plain(format!("/classify/{name}"), form),
                    plain(format!("/explain/{name}"), captions),
                    json("/v1/embeddings", texts),
                ]
            }
            Service::Speech(_) => {
                vec![
                    plain("/v1/audio/transcriptions".to_string(), &format!("-F model={name} -F file=@speech.wav")),
                    plain(format!("/explain/{name}"), "--data-binary @speech.wav > page.html"),
                ]
            }
        };
        if self.tensors().is_some() {
            all.push(of("GET", format!("/v2/models/{name}"), format!("/v2/models/{name}")));
        }
        all
    }

    /// The tensors of the Open Inference Protocol that it takes and gives; `None` if it is not served by it.
    pub fn tensors(&self) -> Option<Tensors> {
        match &self.service {
            Service::Images(images) => Some(images.tensors()),
            Service::Texts(texts) => texts.tensors(),
            Service::Language(_) | Service::Sequences(_) => Some(Tensors {
                inputs: vec![TensorShape::new("text", "BYTES", vec![-1])],
                outputs: vec![TensorShape::new("text", "BYTES", vec![-1])],
            }),
            Service::ImagesAndTexts(both) => Some(both.images.tensors()),
            Service::Speech(_) => Some(Tensors {
                inputs: vec![TensorShape::new("audio", "BYTES", vec![-1])],
                outputs: vec![TensorShape::new("text", "BYTES", vec![-1])],
            }),
        }
    }

    /// What it is and what it answers, for whoever asked it for something else.
    pub fn what_it_does(&self) -> String {
        let endpoints: Vec<String> = self.endpoints().into_iter().map(|endpoint| endpoint.path).collect();
        format!("`{}` is {}; it answers {}", self.name, self.what, endpoints.join(", "))
    }

    /// Its numbers.
    pub(crate) fn gauges(&self) -> Vec<Gauge> {
        let gauge = |name, help, kind, value| Gauge { name, help, kind, model: self.name.clone(), value };
        let waiting = self.room - self.queue.available_permits();
        let mut all = vec![
            gauge("queue", "Requests that a model works on or that wait for it.", "gauge", waiting as f64),
            gauge("queue_limit", "The most requests of a queue.", "gauge", self.room as f64),
        ];
        if let Service::Language(language) = &self.service {
            let of = language.writer.gauges();
            let count = |value: &AtomicUsize| value.load(Ordering::Relaxed) as f64;
            let total = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed) as f64;
            all.extend([
                gauge("texts", "Texts that are being written, or wait for it.", "gauge", count(&of.texts)),
                gauge("cache_tokens", "Tokens of these texts in the KV cache.", "gauge", count(&of.cached)),
                gauge("cache_room_tokens", "Tokens that the KV cache has room for.", "gauge", count(&of.room)),
                gauge("prompt_tokens_total", "Tokens of prompts that were read.", "counter", total(&of.prompt)),
                gauge("reused_tokens_total", "Tokens of prompts found in the cache.", "counter", total(&of.reused)),
                gauge("written_tokens_total", "Tokens that were written.", "counter", total(&of.written)),
                gauge("steps_total", "Steps of continuous batching.", "counter", total(&of.steps)),
                gauge("paused_total", "How often a text made room for others.", "counter", total(&of.paused)),
            ]);
        }
        all
    }
}

/// What a model on disk takes and gives.
fn signature_of(path: &Path) -> Result<Signature, Error> {
    Ok(vitreous_runtime::architecture(&path.to_string_lossy(), &OpenOptions::default())?.0.signature())
}

/// An endpoint of a model.
pub struct Endpoint {
    /// The method.
    pub method: &'static str,
    /// The path.
    pub path: String,
    /// What comes behind `curl http://host`.
    pub example: String,
}

/// The tensors that a model takes and gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensors {
    /// What it takes.
    pub inputs: Vec<TensorShape>,
    /// What it gives.
    pub outputs: Vec<TensorShape>,
}

/// A tensor of the Open Inference Protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorShape {
    /// Its name.
    pub name: &'static str,
    /// `FP32`, `BYTES` ..
    pub datatype: &'static str,
    /// Its sizes; -1 is any.
    pub shape: Vec<i64>,
}

impl TensorShape {
    fn new(name: &'static str, datatype: &'static str, shape: Vec<i64>) -> TensorShape {
        TensorShape { name, datatype, shape }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Deaf;

    impl Transcribe for Deaf {
        fn transcribe(&self, _: Recording, _: TranscribeOptions) -> Transcribing<'_> {
            Box::pin(async { Err(WorkError::Busy) })
        }
    }

    #[test]
    fn what_takes_much_memory_is_alone_also_after_its_client_has_left() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("a runtime");
        let served = Served::new("ear", "a model", Service::Speech(Speech(Arc::new(Deaf))), &Limits::default());
        let (go_on, told) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        runtime.block_on(async {
            let begun_too = begun.clone();
            let first = served.alone(move || {
                let _ = begun.send("first");
                let _ = told.recv();
                Ok(())
            });
            let left = tokio::time::timeout(Duration::from_millis(100), first).await;
            assert!(left.is_err() && begins.recv() == Ok("first"));
            let second = served.alone(move || {
                let _ = begun_too.send("second");
                Ok(())
            });
            let mut second = Box::pin(second);
            assert!(tokio::time::timeout(Duration::from_millis(300), &mut second).await.is_err());
            assert!(begins.try_recv().is_err(), "it began beside the other");
            go_on.send(()).expect("it waits");
            assert_eq!((second.await, begins.recv()), (Ok(()), Ok("second")));
        });
    }
}
