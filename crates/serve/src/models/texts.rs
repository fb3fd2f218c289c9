//! Models of texts: classes, entities, answers to questions, fillings of masks, vectors.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::sync::OnceCell;
use vitreous_data::text::Encoding;
use vitreous_engine::{Device, Precision};
use vitreous_models::{Gives, OpenOptions};
use vitreous_runtime::Error;
use vitreous_runtime::text::{
    Aggregation, EmbedOptions, Embedder, EncoderOutput, Filler, Purpose, Question, TextInput, TextModel, TextRunner,
    answer_all, answers_json, fillings_json,
};

use super::{Surroundings, TensorShape, Tensors};
use crate::work::{BatchWork, Collector, WorkError};

/// The most texts of a batch; the runner splits them by length.
const MOST_TEXTS: usize = 512;
/// Texts of more bytes are tokenised by a thread that may take its time.
const LONG: usize = 1 << 13;
/// A text of more bytes per token that the model reads is truncated before it is tokenised: tokens are rarely that long.
const BYTES_PER_TOKEN: usize = 64;

/// The most bytes of a question's context: at about four bytes per token, two hundred windows of 512 tokens.
const MOST_CONTEXT: usize = 256 << 10;
/// Bytes of a context that are about one window.
const WINDOW_BYTES: usize = 1 << 10;

/// A text as tokens.
pub type TokenizedText = Encoding;

/// A model of texts.
pub struct TextService {
    /// The model.
    pub model: Arc<TextModel>,
    name: String,
    around: Surroundings,
    vectors: OnceCell<Collector<Vec<Encoding>, Vec<Vec<f32>>>>,
    logits: OnceCell<Collector<Vec<Encoding>, Vec<Vec<f32>>>>,
    answers: OnceCell<Collector<AskedText, Json>>,
}

/// A text whose masks are filled, or a question and its context.
pub struct AskedText {
    input: TextInput,
    top: usize,
}

impl TextService {
    pub(super) fn open(name: &str, path: &Path, around: &Surroundings) -> Result<TextService, Error> {
        let model = Arc::new(TextModel::open(path, &OpenOptions::default())?);
        let service = TextService {
            model,
            name: name.to_string(),
            around: around.clone(),
            vectors: OnceCell::new(),
            logits: OnceCell::new(),
            answers: OnceCell::new(),
        };
        // What is asked for most is ready before the first request.
        match service.model.head() {
            Some(Gives::Span) => drop(service.answers.set(service.start_answers()?)),
            Some(_) => drop(service.logits.set(service.start_logits()?)),
            None if service.fills() => drop(service.answers.set(service.start_answers()?)),
            None => drop(service.vectors.set(service.start_vectors()?)),
        }
        Ok(service)
    }

    /// Whether it has something to say of texts: classes, numbers, entities, answers or fillings.
    pub fn classifies(&self) -> bool {
        self.model.head().is_some() || self.fills()
    }

    /// Whether it gives vectors.
    pub fn embeds(&self) -> bool {
        self.model.model.architecture.signature().token_vectors().is_some()
    }

    /// Whether it answers questions about a text.
    pub fn answers_questions(&self) -> bool {
        self.model.head() == Some(Gives::Span)
    }

    /// Whether it fills masks.
    pub fn fills(&self) -> bool {
        self.model.head().is_none() && self.model.model.architecture.signature().masked_tokens().is_some()
    }

    /// The tokens of texts, with what the model wants in front of them.
    pub async fn tokenize(
        &self,
        texts: Vec<TextInput>,
        purpose: Option<Purpose>,
    ) -> Result<Vec<TokenizedText>, WorkError> {
        // Batches of what these tokens are for wait a moment for them.
        let batches = if purpose.is_some() { &self.vectors } else { &self.logits };
        let _arrival = batches.get().map(Collector::arrive);
        let model = self.model.clone();
        let bytes: usize = texts.iter().map(|text| text.text.len()).sum();
        let work = move || {
            let one = |text: &TextInput| {
                let text = purpose.map_or_else(|| text.clone(), |purpose| model.sentence.prepared(text, purpose));
                model.encode(&bounded(text, model.longest))
            };
            texts.iter().map(one).collect::<Result<Vec<Encoding>, Error>>().map_err(WorkError::from)
        };
        if bytes <= LONG {
            return work();
        }
        tokio::task::spawn_blocking(work).await.map_err(|error| WorkError::Failed(error.to_string()))?
    }

    /// Tokens that a client has made itself, if the model has them.
    pub fn given_tokens(&self, ids: Vec<u32>) -> Result<TokenizedText, WorkError> {
        let longest = self.model.longest;
        if ids.len() > longest {
            return Err(WorkError::Input(format!("a text has {} tokens, but the model reads {longest}", ids.len())));
        }
        let count = ids.len();
        let encoding = Encoding { token_types: vec![0; count], ids, ..Encoding::default() };
        self.model.check(&encoding)?;
        Ok(encoding)
    }

    /// One vector per text.
    pub async fn embed(&self, texts: Vec<TokenizedText>) -> Result<Vec<Vec<f32>>, WorkError> {
        let start = || async { tokio::task::block_in_place(|| self.start_vectors()) };
        let collector = self.vectors.get_or_try_init(start).await?;
        collector.ask(texts, collector.arrive()).await
    }

    /// The logits of texts: one row per text, or one per token.
    pub async fn logits(&self, texts: Vec<TokenizedText>) -> Result<Vec<Vec<f32>>, WorkError> {
        let start = || async { tokio::task::block_in_place(|| self.start_logits()) };
        let collector = self.logits.get_or_try_init(start).await?;
        collector.ask(texts, collector.arrive()).await
    }

    /// What the model says of a text, as `vitreous predict --json` and `fill --json` print it. Of a question the pair is its context.
    pub async fn answer(&self, input: TextInput, top: usize) -> Result<Json, WorkError> {
        let Some(head) = self.model.head().filter(|head| *head != Gives::Span) else {
            self.check_length(&input)?;
            let start = || async { tokio::task::block_in_place(|| self.start_answers()) };
            let collector = self.answers.get_or_try_init(start).await?;
            let arrival = collector.arrive();
            self.check_mask(&input).await?;
            return collector.ask(AskedText { input, top }, arrival).await;
        };
        let mut encoded = self.tokenize(vec![input.clone()], None).await?;
        let logits = self.logits(encoded.clone()).await?;
        let (Some(encoding), Some(logits)) = (encoded.pop(), logits.first()) else {
            return Err(WorkError::Failed("the model gave no answer".to_string()));
        };
        let answer = self.model.answer_json(head, &input, &encoding, logits, top, Aggregation::default())?;
        Ok(Json::Object(answer))
    }

    /// Refuses what would be read in very many windows, or is too long for the one window that there is.
    fn check_length(&self, input: &TextInput) -> Result<(), WorkError> {
        let one_window = self.model.longest.saturating_mul(BYTES_PER_TOKEN);
        let context = input.pair.as_ref().map_or(0, String::len);
        for (what, bytes, most) in [("text", input.text.len(), one_window), ("context", context, MOST_CONTEXT)] {
            if bytes > most {
                let what =
                    format!("the {what} has {bytes} bytes; {most} are the most that are taken: send a part of it");
                return Err(WorkError::TooLarge(what));
            }
        }
        Ok(())
    }

    /// Refuses a text without a mask, for a model that fills masks.
    async fn check_mask(&self, input: &TextInput) -> Result<(), WorkError> {
        let Some((mask, written)) = self.model.mask().filter(|_| self.fills()) else { return Ok(()) };
        let own = TextInput { text: self.model.with_own_mask(&input.text), pair: input.pair.clone() };
        let encoded = self.tokenize(vec![own], None).await?;
        match encoded.iter().any(|text| text.ids.contains(&mask)) {
            true => Ok(()),
            false => Err(WorkError::Input(format!("the text has no {written}: write it where a word is missing"))),
        }
    }

    fn start_vectors(&self) -> Result<Collector<Vec<Encoding>, Vec<Vec<f32>>>, Error> {
        let (model, settings) = (self.model.clone(), self.around.settings.clone());
        Collector::start(self.around.collector(&self.name, "embed", self.most()), move |jobs| {
            let options = EmbedOptions { precision: settings.precision, ..EmbedOptions::default() };
            jobs.work(|| Ok(EmbedWork(Embedder::new(&model, &options, &settings.device)?)));
        })
    }

    fn start_logits(&self) -> Result<Collector<Vec<Encoding>, Vec<Vec<f32>>>, Error> {
        let (model, settings) = (self.model.clone(), self.around.settings.clone());
        Collector::start(self.around.collector(&self.name, "classify", self.most()), move |jobs| {
            let (precision, device) = (settings.precision, &settings.device);
            jobs.work(|| Ok(LogitsWork(TextRunner::new(&model, EncoderOutput::Logits, precision, device)?)));
        })
    }

    fn start_answers(&self) -> Result<Collector<AskedText, Json>, Error> {
        let (model, settings, name) = (self.model.clone(), self.around.settings.clone(), self.name.clone());
        Collector::start(self.around.collector(&self.name, "answer", self.most()), move |jobs| {
            jobs.work(|| AnswerWork::new(&model, &name, settings.precision, &settings.device));
        })
    }

    fn most(&self) -> usize {
        self.around.settings.batch.unwrap_or(MOST_TEXTS)
    }

    pub(super) fn tensors(&self) -> Option<Tensors> {
        let signature = self.model.model.architecture.signature();
        let output = match self.model.head() {
            Some(Gives::Classes(width) | Gives::Labels(width) | Gives::Numbers(width)) => {
                TensorShape::new("logits", "FP32", vec![-1, width as i64])
            }
            None => TensorShape::new("embedding", "FP32", vec![-1, signature.token_vectors()? as i64]),
            // What was found in each text, as JSON.
            Some(_) => TensorShape::new("answer", "BYTES", vec![-1]),
        };
        let inputs: &[&str] = if self.answers_questions() { &["question", "context"] } else { &["text"] };
        let text = |&name: &&'static str| TensorShape::new(name, "BYTES", vec![-1]);
        Some(Tensors { inputs: inputs.iter().map(text).collect(), outputs: vec![output] })
    }
}

/// A text that is much longer than the model reads, without most of what is not read anyway.
fn bounded(mut input: TextInput, longest: usize) -> TextInput {
    let most = longest.saturating_mul(BYTES_PER_TOKEN);
    for text in std::iter::once(&mut input.text).chain(&mut input.pair) {
        if text.len() > most {
            let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
            text.truncate(end);
        }
    }
    input
}

struct EmbedWork<'m>(Embedder<'m>);

impl BatchWork for EmbedWork<'_> {
    type Job = Vec<Encoding>;
    type Answer = Vec<Vec<f32>>;

    fn cost(job: &Vec<Encoding>) -> usize {
        job.len()
    }

    fn run(&mut self, jobs: &[Vec<Encoding>]) -> Result<Vec<Vec<Vec<f32>>>, WorkError> {
        let texts = jobs.concat();
        let vectors = self.0.embed_encoded(&texts)?;
        let mut vectors = vectors.chunks_exact(self.0.width().max(1)).map(<[f32]>::to_vec);
        Ok(jobs.iter().map(|job| vectors.by_ref().take(job.len()).collect()).collect())
    }
}

struct LogitsWork<'m>(TextRunner<'m>);

impl BatchWork for LogitsWork<'_> {
    type Job = Vec<Encoding>;
    type Answer = Vec<Vec<f32>>;

    fn cost(job: &Vec<Encoding>) -> usize {
        job.len()
    }

    fn run(&mut self, jobs: &[Vec<Encoding>]) -> Result<Vec<Vec<Vec<f32>>>, WorkError> {
        let texts = jobs.concat();
        let mut rows = vec![Vec::new(); texts.len()];
        self.0.run(&texts, |text, logits| {
            rows[text] = logits.to_vec();
            Ok(())
        })?;
        let mut rows = rows.into_iter();
        Ok(jobs.iter().map(|job| rows.by_ref().take(job.len()).collect()).collect())
    }
}

/// Answers questions or fills masks.
enum AnswerWork<'m> {
    Questions(&'m TextModel, TextRunner<'m>),
    Masks(Filler<'m>),
}

impl<'m> AnswerWork<'m> {
    fn new(model: &'m TextModel, name: &str, precision: Precision, device: &Device) -> Result<AnswerWork<'m>, Error> {
        Ok(match model.head() {
            Some(Gives::Span) => {
                AnswerWork::Questions(model, TextRunner::new(model, EncoderOutput::Logits, precision, device)?)
            }
            _ => AnswerWork::Masks(Filler::new(model, name, precision, device)?),
        })
    }
}

impl BatchWork for AnswerWork<'_> {
    type Job = AskedText;
    type Answer = Json;

    fn cost(job: &AskedText) -> usize {
        1 + job.input.pair.as_ref().map_or(0, String::len) / WINDOW_BYTES
    }

    fn run(&mut self, jobs: &[AskedText]) -> Result<Vec<Json>, WorkError> {
        let most = jobs.iter().map(|job| job.top).max().unwrap_or(1);
        match self {
            AnswerWork::Questions(model, runner) => {
                let asked = jobs.iter().map(|AskedText { input, .. }| Question {
                    question: &input.text,
                    context: input.pair.as_deref().unwrap_or_default(),
                });
                let asked: Vec<Question> = asked.collect();
                let found = answer_all(model, runner, &asked, most, false)?;
                let answers = jobs.iter().zip(&asked).zip(found);
                Ok(answers
                    .map(|((job, asked), found)| {
                        answers_json(asked.question, asked.context, &found[..found.len().min(job.top)])
                    })
                    .collect())
            }
            AnswerWork::Masks(filler) => {
                let inputs: Vec<TextInput> = jobs.iter().map(|job| job.input.clone()).collect();
                let mut filled = filler.fill(&inputs, most)?;
                for (job, masks) in jobs.iter().zip(&mut filled) {
                    masks.iter_mut().for_each(|top| top.truncate(job.top));
                }
                Ok(inputs.iter().zip(&filled).map(|(input, masks)| fillings_json(&input.text, masks)).collect())
            }
        }
    }
}
