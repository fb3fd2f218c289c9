//! Language models: texts from prompts and conversations.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OnceCell, mpsc};
use vitreous_models::generate::{GenerateOptions, TokenConstraint, WrittenToken};
use vitreous_runtime::Error;
use vitreous_runtime::chat_template::ChatMessage;
use vitreous_runtime::language::{
    ChatFormat, ChatPrompt, Constrainer, Continuation, FormatConstraint, LanguageEvaluator, LanguageModel,
    OutputFormat, StopReason, TextGenerator, TextOptions,
};

use super::Surroundings;
use crate::work::{BatchWork, Collector, WorkError, WriteEvent, WriteRequest, Writer, WriterSettings};

/// Texts that are written at once, if nobody asks for another number.
const USUAL_SLOTS: usize = 8;
const USUAL_SLOTS_ON_GPU: usize = 64;
/// Tokens of a text, prompt included, if nobody asks for another number.
const USUAL_CONTEXT: usize = 4096;
/// Tokens of a prompt that are read before others go on with theirs.
const CHUNK: usize = 128;
const CHUNK_ON_GPU: usize = 1024;
/// A prompt with more bytes for each token of the context is refused before it is tokenised.
const BYTES_PER_TOKEN: usize = 64;
/// Formats whose constraints are kept.
const KEPT_FORMATS: usize = 32;

/// A language model.
pub struct LanguageService {
    /// The model.
    pub model: Arc<LanguageModel>,
    /// What writes.
    pub writer: Writer,
    /// The most tokens of a text, prompt included.
    pub context: usize,
    chat: Result<ChatFormat, String>,
    scores: OnceCell<Collector<ScoreJob, Vec<WrittenToken>>>,
    name: String,
    around: Surroundings,
    formats: Arc<Mutex<Formats>>,
}

/// Constraints that were made, the last one last.
#[derive(Default)]
struct Formats {
    constrainer: Option<Constrainer>,
    kept: Vec<(OutputFormat, FormatConstraint)>,
}

/// A text to write.
pub struct TextRequest {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// How.
    pub options: TextOptions,
    /// How many.
    pub count: usize,
    /// What they must be.
    pub format: Option<OutputFormat>,
}

/// A prompt whose tokens are scored.
pub struct ScoreJob {
    prompt: Vec<u32>,
    top: usize,
}

struct ScoreWork<'m>(LanguageEvaluator<'m>);

impl BatchWork for ScoreWork<'_> {
    type Job = ScoreJob;
    type Answer = Vec<WrittenToken>;

    fn cost(_: &ScoreJob) -> usize {
        1
    }

    fn run(&mut self, jobs: &[ScoreJob]) -> Result<Vec<Vec<WrittenToken>>, WorkError> {
        jobs.iter().map(|job| Ok(self.0.prompt(&job.prompt, job.top)?)).collect()
    }
}

impl LanguageService {
    pub(super) fn open(name: &str, path: &Path, around: &Surroundings) -> Result<LanguageService, Error> {
        let model = Arc::new(LanguageModel::open(path)?);
        let settings = &around.settings;
        let on_gpu = settings.device.is_gpu();
        let chunk = if on_gpu { CHUNK_ON_GPU } else { CHUNK };
        let mut options = GenerateOptions {
            slots: settings.slots.unwrap_or(if on_gpu { USUAL_SLOTS_ON_GPU } else { USUAL_SLOTS }),
            context: settings.context.unwrap_or(USUAL_CONTEXT).min(model.longest),
            precision: settings.precision,
            cache_tokens: settings.cache_tokens,
            chunk: Some(chunk),
            read_between_steps: Some(chunk),
            ..GenerateOptions::default()
        };
        if settings.slots.is_none() {
            options = TextGenerator::fitting(&model, &options, 1, &settings.device)?;
        }
        let chat = ChatFormat::of(&model).map_err(|error| error.to_string());
        let writer = Writer::start(
            model.clone(),
            WriterSettings {
                name: format!("write {name}"),
                options,
                device: settings.device.clone(),
                observe: around.observe(name),
                complain: around.complain(name),
            },
        )?;
        Ok(LanguageService {
            model,
            writer,
            context: options.context,
            chat,
            scores: OnceCell::new(),
            name: name.to_string(),
            around: around.clone(),
            formats: Arc::default(),
        })
    }

    /// Whether it was trained for conversations.
    pub fn chats(&self) -> bool {
        self.chat.is_ok()
    }

    /// The tokens of a prompt.
    pub async fn prompt(&self, text: String) -> Result<Vec<u32>, WorkError> {
        self.check_bytes(text.len())?;
        let model = self.model.clone();
        blocking(move || Ok(model.encode(&text)?)).await
    }

    /// Tokens that a client has made itself, if the model has them.
    pub fn given_prompt(&self, tokens: Vec<u32>) -> Result<Vec<u32>, WorkError> {
        match tokens.iter().find(|&&token| token as usize >= self.model.vocabulary) {
            Some(token) => Err(WorkError::Input(format!(
                "token {token} is not in the model's vocabulary of {}",
                self.model.vocabulary
            ))),
            None => Ok(tokens),
        }
    }

    /// The tokens of a conversation, up to where an answer begins.
    pub async fn chat_prompt(&self, messages: Vec<ChatMessage>) -> Result<ChatPrompt, WorkError> {
        self.check_bytes(messages.iter().map(|message| message.content.len()).sum())?;
        let format = match &self.chat {
            Ok(format) => format.clone(),
            Err(why) => return Err(WorkError::Input(why.clone())),
        };
        let model = self.model.clone();
        blocking(move || Ok(format.prompt(&model, &messages)?)).await
    }

    /// What a text is worth of memory and time is known by its length, before any work is done.
    fn check_bytes(&self, bytes: usize) -> Result<(), WorkError> {
        let most = self.context.saturating_mul(BYTES_PER_TOKEN);
        match bytes > most {
            true => Err(WorkError::Input(format!(
                "the prompt has {bytes} bytes, which is more than {most}; the context has room for {} tokens",
                self.context
            ))),
            false => Ok(()),
        }
    }

    fn check_prompt(&self, prompt: &[u32]) -> Result<(), WorkError> {
        let (tokens, context) = (prompt.len(), self.context);
        match tokens {
            0 => Err(WorkError::Input("the prompt is empty".to_string())),
            tokens if tokens > context => Err(WorkError::Input(format!(
                "the prompt has {tokens} tokens, but the context has room for {context}: shorten it"
            ))),
            _ => Ok(()),
        }
    }

    /// How probable each token of a prompt is behind those before it, with the `top` likeliest in its place. Made ready when it is asked
    /// for first.
    pub async fn prompt_logprobs(&self, prompt: Vec<u32>, top: usize) -> Result<Vec<WrittenToken>, WorkError> {
        self.check_prompt(&prompt)?;
        let start = || async { tokio::task::block_in_place(|| self.start_scores()) };
        let collector = self.scores.get_or_try_init(start).await?;
        collector.ask(ScoreJob { prompt, top }, collector.arrive()).await
    }

    fn start_scores(&self) -> Result<Collector<ScoreJob, Vec<WrittenToken>>, Error> {
        let (model, settings) = (self.model.clone(), self.around.settings.clone());
        Collector::start(self.around.collector(&self.name, "score", 1), move |jobs| {
            jobs.work(|| Ok(ScoreWork(LanguageEvaluator::new(&model, settings.precision, &settings.device)?)));
        })
    }

    /// Writes texts. What is new of each comes to its own channel; whoever drops that is not written for any more.
    pub async fn write(&self, request: TextRequest) -> Result<Vec<mpsc::UnboundedReceiver<WriteEvent>>, WorkError> {
        let TextRequest { prompt, options, count, format } = request;
        self.check_prompt(&prompt)?;
        options.sampling.check().map_err(WorkError::Input)?;
        let constraint = match format {
            Some(format) => Some(self.constraint(format).await?),
            None => None,
        };
        let mut receivers = Vec::with_capacity(count);
        for sequence in 0..count as u64 {
            let (events, receive) = mpsc::unbounded_channel();
            receivers.push(receive);
            if options.max_tokens == 0 {
                let nothing =
                    Continuation { text: String::new(), tokens: Vec::new(), stop: StopReason::Length, score: None };
                let _ = events.send(WriteEvent::Finished(nothing));
                continue;
            }
            let constraint = constraint.as_ref().map(|first| Box::new(first.again()) as Box<dyn TokenConstraint>);
            self.writer.write(WriteRequest {
                prompt: prompt.clone(),
                options: options.clone(),
                sequence,
                constraint,
                events,
            })?;
        }
        Ok(receivers)
    }

    /// The constraint of a format; those that are asked for again are kept.
    async fn constraint(&self, format: OutputFormat) -> Result<FormatConstraint, WorkError> {
        let (model, formats) = (self.model.clone(), self.formats.clone());
        blocking(move || {
            let mut formats = formats.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, kept)) = formats.kept.iter().find(|(known, _)| *known == format) {
                return Ok(kept.again());
            }
            if formats.constrainer.is_none() {
                formats.constrainer = Some(model.constrainer()?);
            }
            let Some(constrainer) = &formats.constrainer else { return Err(WorkError::Busy) };
            let made = constrainer.constraint(&format).map_err(|error| WorkError::Input(error.to_string()))?;
            if formats.kept.len() == KEPT_FORMATS {
                formats.kept.remove(0);
            }
            let again = made.again();
            formats.kept.push((format, made));
            Ok(again)
        })
        .await
    }
}

/// Work that takes longer than a request should hold up others.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkError> + Send + 'static,
) -> Result<T, WorkError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| WorkError::Failed(error.to_string()))?
}
