//! Models that are watched: the inputs that they were given, and a thread that holds the model ready and is asked for its values.
//!
//! The thread is started by the first look: whoever only uses the model pays nothing.

mod analyses;
mod answer;
mod command;
mod described;
mod effects;
mod inputs;
mod lens;
mod prepare;
mod request;
mod rewrite;
mod seen;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::{Value as Json, json};
use tokio::sync::OnceCell;
use vitreous_data::text::PairSide;
use vitreous_explain::live::Live;
use vitreous_models::Model;
use vitreous_runtime::image_text::LabelSet;
use vitreous_runtime::language::LanguageModel;
use vitreous_runtime::scores::top_json;
use vitreous_runtime::sequences::SequenceModel;
use vitreous_runtime::speech::SpeechModel;
use vitreous_runtime::text::TextModel;
use vitreous_runtime::{Error, ImageModel, TranslatorModel};

use super::{Served, Service, Surroundings};
use crate::work::{Collector, WorkError};
use inputs::InputStore;
pub use inputs::{SpokenWords, TokenSeen, WatchedInput};
pub use prepare::GivenInput;
pub use request::{ChangeAsked, EditAsked, Want};
pub use work::{Array, ArrayKind, Looked};
use work::{LookJob, LookWork};

/// A model of any kind, to be watched.
#[derive(Clone)]
pub enum WatchedModel {
    /// Of images.
    Image(Arc<ImageModel>),
    /// Of images and texts: its image tower.
    ImageText(Arc<ImageModel>),
    /// An encoder of texts.
    Text(Arc<TextModel>),
    /// A language model.
    Language(Arc<LanguageModel>),
    /// A translator of our own.
    Translator(Arc<TranslatorModel>),
    /// An encoder-decoder.
    Sequence(Arc<SequenceModel>),
    /// Of speech.
    Speech(Arc<SpeechModel>),
}

impl WatchedModel {
    /// The model itself.
    pub fn model(&self) -> &Model {
        match self {
            WatchedModel::Image(model) | WatchedModel::ImageText(model) => &model.model,
            WatchedModel::Text(model) => &model.model,
            WatchedModel::Language(model) => &model.model,
            WatchedModel::Translator(model) => &model.model,
            WatchedModel::Sequence(model) => &model.model,
            WatchedModel::Speech(model) => &model.model,
        }
    }

    /// How a token is written: of the source, or of what the decoder writes.
    fn piece(&self, id: u32, of_source: bool) -> String {
        let written = match self {
            WatchedModel::Image(_) | WatchedModel::ImageText(_) => None,
            WatchedModel::Text(model) => model.tokenizer.token(id),
            WatchedModel::Language(model) => model.tokenizer.token(id),
            WatchedModel::Translator(model) => {
                let tokenizers = &model.tokenizers;
                Some(if of_source { &tokenizers.source } else { &tokenizers.target }.piece(id))
            }
            WatchedModel::Sequence(model) => {
                let side = if of_source { PairSide::Source } else { PairSide::Target };
                Some(model.tokenizer.piece(side, id))
            }
            WatchedModel::Speech(model) => match model.vocabulary.is_timestamp(id) {
                true => Some(format!("<|{:.2}|>", f64::from(id - model.vocabulary.first_timestamp) * 0.02)),
                false => model.vocabulary.tokenizer().token(id),
            },
        };
        written.unwrap_or_else(|| id.to_string())
    }

    /// The name of an output: a class, or a token.
    fn label(&self, output: usize) -> String {
        match self {
            WatchedModel::Image(model) | WatchedModel::ImageText(model) => model.label(output),
            WatchedModel::Text(model) if model.model.architecture.signature().masked_tokens().is_none() => {
                model.label(output)
            }
            _ => self.piece(output as u32, false),
        }
    }
}

/// A model that is watched.
pub struct Watched {
    /// The model.
    pub model: WatchedModel,
    name: String,
    around: Surroundings,
    inputs: Mutex<InputStore>,
    worker: OnceCell<Collector<LookJob, Looked>>,
    described: OnceLock<Json>,
}

/// What a look is about.
pub struct Look {
    /// The input.
    pub input: Arc<WatchedInput>,
    /// Edits of the model.
    pub edits: Vec<EditAsked>,
    /// What is to be seen.
    pub want: Want,
}

impl Watched {
    pub(super) fn new(name: &str, model: WatchedModel, around: &Surroundings) -> Watched {
        let (name, around) = (name.to_string(), around.clone());
        Watched { model, name, around, inputs: Mutex::default(), worker: OnceCell::new(), described: OnceLock::new() }
    }

    /// Where it is computed.
    pub fn device(&self) -> &vitreous_engine::Device {
        &self.around.settings.device
    }

    fn store(&self) -> std::sync::MutexGuard<'_, InputStore> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The input of an id, if it is still there.
    pub fn input(&self, id: &str) -> Option<Arc<WatchedInput>> {
        self.store().get(id)
    }

    /// What a look shows.
    pub async fn look(&self, look: Look) -> Result<Looked, WorkError> {
        let mut others = HashMap::new();
        let named = look.edits.iter().filter_map(|edit| edit.input.as_ref());
        for id in named.chain(look.want.patching.iter().map(|patching| &patching.other)) {
            let other = self.input(id).ok_or_else(|| WorkError::Input(forgotten(id)))?;
            others.insert(id.clone(), other);
        }
        self.ask(LookJob::Look { look: Box::new(look), others }).await
    }

    /// The stages of the model for an input, and what each is and costs.
    pub async fn graph(&self, input: Arc<WatchedInput>) -> Result<Json, WorkError> {
        Ok(self.ask(LookJob::Graph(input)).await?.header)
    }

    async fn ask(&self, job: LookJob) -> Result<Looked, WorkError> {
        let start = || async { tokio::task::block_in_place(|| self.start()) };
        let collector = self.worker.get_or_try_init(start).await?;
        collector.ask(job, collector.arrive()).await
    }

    fn start(&self) -> Result<Collector<LookJob, Looked>, Error> {
        let (model, name, device) = (self.model.clone(), self.name.clone(), self.around.settings.device.clone());
        Collector::start(self.around.collector(&self.name, "watch", 1), move |jobs| {
            jobs.work(|| {
                Ok(LookWork { model: &model, name: &name, device: &device, live: Live::new(model.model(), &device) })
            });
        })
    }
}

/// What is said of an input that is not kept any more.
pub fn forgotten(id: &str) -> String {
    let id: String = id.chars().take(64).collect();
    format!("the input `{id}` is not kept any more: give it again")
}

impl Served {
    /// The model as it is watched; `None` of one that was made elsewhere.
    pub fn watched(&self) -> Option<&Watched> {
        self.watched.as_ref()
    }

    /// What a look shows.
    pub async fn look(&self, look: Look) -> Result<Looked, WorkError> {
        let Some(watched) = &self.watched else {
            return Err(WorkError::Input(format!("`{}` cannot be watched", self.name)));
        };
        let named = look
            .want
            .answer
            .as_ref()
            .and_then(|asked| Some((asked.labels.clone()?, asked.template.clone(), asked.top)));
        let mut looked = watched.look(look).await?;
        if let (Some((labels, template, top)), Service::ImagesAndTexts(both)) = (named, &self.service) {
            let set = LabelSet::new(labels, template.into_iter().collect(), "labels")?;
            let names = set.labels().to_vec();
            let (logits, scores) = both.scores(&looked.vector(), set).await?;
            let top = top_json(&scores, top.unwrap_or(names.len()), |class| names[class].clone());
            let entropy: f64 = scores.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
            looked.header["answer"]["top"] = top;
            looked.header["answer"]["logits"] = json!(logits);
            looked.header["answer"]["entropy"] = json!(entropy);
            looked.header["answer"]["of"] = json!(names.len());
        }
        Ok(looked)
    }
}

/// The model of a service, to be watched.
pub(super) fn of_service(service: &Service, speech: Option<Arc<SpeechModel>>) -> Option<WatchedModel> {
    Some(match service {
        Service::Images(images) => WatchedModel::Image(images.model.clone()),
        Service::ImagesAndTexts(both) => WatchedModel::ImageText(both.images.model.clone()),
        Service::Texts(texts) => WatchedModel::Text(texts.model.clone()),
        Service::Language(language) => WatchedModel::Language(language.model.clone()),
        Service::Sequences(sequences) => sequences.model.clone(),
        Service::Speech(_) => WatchedModel::Speech(speech?),
    })
}
