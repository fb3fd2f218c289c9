//! Texts that a language model goes on with, many at once: prompts in, pieces of text out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vitreous_data::text::TextStream;
use vitreous_engine::{Caches, Device};
use vitreous_models::generate::{
    GenerateOptions, Hypothesis, Request, RequestId, SamplingOptions, SearchOptions, Stop, Tally, TokenConstraint,
    TokenGenerator, Update, WrittenToken,
};

use super::model::LanguageModel;
use super::stop_strings::StopStrings;
use crate::error::Error;

/// The first tokens that stay when the oldest are dropped: what comes first holds attention ("Efficient Streaming Language Models with
/// Attention Sinks").
const KEPT_FIRST: usize = 4;

/// How a text is written.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// The most tokens.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Beam search in place of choosing token by token.
    pub beams: Option<SearchOptions>,
    /// Strings that end a text, and are not part of it.
    pub stop: Vec<String>,
    /// Tokens that end a text besides the model's own.
    pub more_ends: Vec<u32>,
    /// Whether tokens that end a text are written like others.
    pub ignore_end: bool,
    /// With each token its logarithmic probability, and those of so many of the likeliest.
    pub logprobs: Option<usize>,
    /// Whether the oldest tokens are dropped when the context is full.
    pub shift: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions {
            max_tokens: 256,
            sampling: SamplingOptions::default(),
            beams: None,
            stop: Vec::new(),
            more_ends: Vec::new(),
            ignore_end: false,
            logprobs: None,
            shift: false,
        }
    }
}

/// A text that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Continuation {
    /// What comes behind the prompt.
    pub text: String,
    /// The tokens that were written, with those of a stop string.
    pub tokens: Vec<WrittenToken>,
    /// Why it ended.
    pub stop: StopReason,
    /// By which hypotheses of beams are compared.
    pub score: Option<f64>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model ended it, or a constraint was fulfilled.
    End,
    /// The most tokens were written.
    Length,
    /// The context is full.
    Context,
    /// A stop string was written.
    StopString,
    /// A constraint allows no token, and is not fulfilled.
    Constraint,
}

impl StopReason {
    /// As it is written in JSON.
    pub fn name(self) -> &'static str {
        match self {
            StopReason::End => "end",
            StopReason::Length => "length",
            StopReason::Context => "context",
            StopReason::StopString => "stop string",
            StopReason::Constraint => "constraint",
        }
    }
}

/// What is new of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextUpdate {
    /// Whose.
    pub id: RequestId,
    /// The text that has come, which may be empty.
    pub piece: String,
    /// The token that has come, if one has; of a piece that is held back, its text comes later.
    pub token: Option<WrittenToken>,
    /// When it is over: the text, or of beams all of them, the best first.
    pub finished: Option<Vec<Continuation>>,
}

/// A text that is being written.
struct Writing {
    prompt: Vec<u32>,
    pieces: TextStream,
    stops: StopStrings,
    text: String,
    tokens: Vec<WrittenToken>,
}

/// A language model that writes texts on a device.
pub struct TextGenerator<'m> {
    model: &'m LanguageModel,
    generator: TokenGenerator<'m>,
    writing: HashMap<RequestId, Writing>,
}

impl<'m> TextGenerator<'m> {
    /// Makes a model ready.
    pub fn new(
        model: &'m LanguageModel,
        options: GenerateOptions,
        device: &Device,
    ) -> Result<TextGenerator<'m>, Error> {
        let architecture = model.model.architecture.as_ref();
        let generator = TokenGenerator::new(architecture, options, device, model.weights())?;
        Ok(TextGenerator { model, generator, writing: HashMap::new() })
    }

    /// Makes all plans that texts will need, so that none waits for one.
    pub fn prepare(&mut self) -> Result<(), Error> {
        Ok(self.generator.prepare()?)
    }

    /// These options or, where they need more memory than there is, less: a cache whose memory the texts share, if it holds at least two
    /// whole contexts, or else half of the slots, and so on; in multiples of `group`, which is the least.
    pub fn fitting(
        model: &LanguageModel,
        options: &GenerateOptions,
        group: usize,
        device: &Device,
    ) -> Result<GenerateOptions, Error> {
        let architecture = model.model.architecture.as_ref();
        let mut options = *options;
        while options.slots > group {
            let memory = TokenGenerator::memory(architecture, &options, device, model.weights())?;
            let Some(available) = device.available_memory()? else { break };
            if (memory.model + memory.caches) as u64 <= available {
                break;
            }
            let left = available.saturating_sub(memory.model as u64) / (memory.per_token as u64).max(1);
            let tokens = usize::try_from(left).unwrap_or(usize::MAX);
            if Caches::give_memory_back(device) && options.cache_tokens.is_none() && tokens / 2 >= options.context {
                options.cache_tokens = Some(tokens);
                break;
            }
            options.slots = (options.slots / group).div_ceil(2) * group;
        }
        Ok(options)
    }

    /// The most tokens of a text, prompt included.
    pub fn context(&self) -> usize {
        self.generator.context()
    }

    /// Texts that can be written at once.
    pub fn slots(&self) -> usize {
        self.generator.slots()
    }

    /// Tokens whose keys and values the KV cache has room for.
    pub fn cache_room(&self) -> usize {
        self.generator.cache_room()
    }

    /// Tokens of unfinished texts in the KV cache.
    pub fn cached_tokens(&self) -> usize {
        self.generator.cached_tokens()
    }

    /// Forgets the prompts of before, which later ones could take over: the same prompts then give the same bits again.
    pub fn forget_prompts(&mut self) {
        self.generator.forget();
    }

    /// What was done so far, and how long it took.
    pub fn tally(&self) -> Tally {
        self.generator.tally()
    }

    /// Adds a prompt, as tokens of [`LanguageModel::encode`]. `sequence` is its number among those with the same seed.
    pub fn add(
        &mut self,
        prompt: Vec<u32>,
        options: &TextOptions,
        sequence: u64,
        constraint: Option<Box<dyn TokenConstraint>>,
    ) -> Result<RequestId, Error> {
        let (tokens, context) = (prompt.len(), self.context());
        if prompt.is_empty() {
            return Err(Error::input("the prompt has no tokens: give at least one"));
        }
        if tokens > context && !options.shift {
            let what = match context < self.model.longest {
                true => "take a larger --context",
                false => "shorten it",
            };
            return Err(Error::input(format!(
                "the prompt has {tokens} tokens, but the context has room for {context}; {what}, or drop its oldest tokens with --shift"
            )));
        }
        options.sampling.check().map_err(Error::input)?;
        let request = Request {
            prompt: prompt.clone(),
            max_tokens: options.max_tokens.max(1),
            ends: self.ends(options),
            sampling: options.sampling,
            sequence,
            beams: options.beams,
            logprobs: options.logprobs,
            constraint,
            shift: options.shift.then_some(KEPT_FIRST),
        };
        let id = self.generator.add(request)?;
        let pieces = TextStream::after(&self.model.tokenizer, &prompt, true)?;
        let stops = StopStrings::new(&options.stop);
        self.writing.insert(id, Writing { prompt, pieces, stops, text: String::new(), tokens: Vec::new() });
        Ok(id)
    }

    /// The tokens that end a text.
    fn ends(&self, options: &TextOptions) -> Arc<[u32]> {
        match (options.ignore_end, &options.more_ends[..]) {
            (true, _) => [].into(),
            (false, []) => self.model.ends.clone(),
            (false, more) => self.model.ends.iter().chain(more).copied().collect(),
        }
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.generator.is_idle()
    }

    /// Ends a text early.
    pub fn end(&mut self, id: RequestId) {
        self.end_all(&HashSet::from([id]));
    }

    /// Ends texts early.
    pub fn end_all(&mut self, ids: &HashSet<RequestId>) {
        self.generator.end_all(ids);
        self.writing.retain(|id, _| !ids.contains(id));
    }

    /// Goes on with all texts, one token each, and gives what is new.
    pub fn advance(&mut self) -> Result<Vec<TextUpdate>, Error> {
        let updates = self.generator.advance()?;
        let mut new = Vec::with_capacity(updates.len());
        for update in updates {
            new.extend(self.take(update)?);
        }
        Ok(new)
    }

    fn take(&mut self, update: Update) -> Result<Option<TextUpdate>, Error> {
        let Update { id, token, ended } = update;
        let Some(writing) = self.writing.get_mut(&id) else { return Ok(None) };
        let tokenizer = &self.model.tokenizer;
        let mut piece = String::new();
        let mut is_stopped = false;
        if let Some(token) = &token {
            let text = writing.pieces.push(tokenizer, token.token)?;
            writing.tokens.push(token.clone());
            (piece, is_stopped) = writing.stops.push(&text);
        }
        let stop = match (&ended, is_stopped) {
            (_, true) => StopReason::StopString,
            (None, false) => {
                writing.text.push_str(&piece);
                return Ok(Some(TextUpdate { id, piece, token, finished: None }));
            }
            (Some(ended), false) => reason(ended.stop),
        };
        let mut stop = stop;
        if !is_stopped {
            let (rest, found) = writing.stops.push(&writing.pieces.finish());
            piece.push_str(&rest);
            match found {
                true => stop = StopReason::StopString,
                false => piece.push_str(&writing.stops.finish()),
            }
        }
        writing.text.push_str(&piece);
        self.generator.end(id);
        let Some(writing) = self.writing.remove(&id) else { return Ok(None) };
        let hypotheses = ended.map(|ended| ended.hypotheses).unwrap_or_default();
        if hypotheses.is_empty() {
            let whole = Continuation { text: writing.text, tokens: writing.tokens, stop, score: None };
            return Ok(Some(TextUpdate { id, piece, token, finished: Some(vec![whole]) }));
        }
        let best = hypotheses.iter().map(|hypothesis| self.of_beam(hypothesis, &writing, stop));
        let best: Vec<Continuation> = best.collect::<Result<_, Error>>()?;
        let piece = best.first().map(|best| best.text.clone()).unwrap_or_default();
        Ok(Some(TextUpdate { id, piece, token: None, finished: Some(best) }))
    }

    /// The text of a hypothesis, up to a stop string.
    fn of_beam(&self, hypothesis: &Hypothesis, writing: &Writing, limit: StopReason) -> Result<Continuation, Error> {
        let mut pieces = TextStream::after(&self.model.tokenizer, &writing.prompt, true)?;
        let mut stops = writing.stops.clone();
        let mut text = String::new();
        for &token in &hypothesis.tokens {
            text.push_str(&pieces.push(&self.model.tokenizer, token)?);
        }
        text.push_str(&pieces.finish());
        let (mut text, is_stopped) = stops.push(&text);
        text.push_str(&stops.finish());
        let stop = match (is_stopped, hypothesis.ended, limit) {
            (true, ..) => StopReason::StopString,
            (false, true, _) => StopReason::End,
            (false, false, StopReason::Context) => StopReason::Context,
            (false, false, _) => StopReason::Length,
        };
        let written = |&token: &u32| WrittenToken { token, logprob: None, top: Vec::new() };
        let tokens = hypothesis.tokens.iter().map(written).collect();
        Ok(Continuation { text, tokens, stop, score: Some(hypothesis.score) })
    }
}

fn reason(stop: Stop) -> StopReason {
    match stop {
        Stop::End => StopReason::End,
        Stop::Length => StopReason::Length,
        Stop::Context => StopReason::Context,
        Stop::Constraint => StopReason::Constraint,
    }
}
