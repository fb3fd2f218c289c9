//! An encoder-decoder with its tokenizer: texts in, texts out. T5, BART, mBART, Marian and their relatives.

mod config;

use std::path::Path;

use vitreous_data::text::{PairSide, PairTokenizer};
use vitreous_engine::{Device, Precision, WeightView};
use vitreous_models::generate::{
    EarlyStopping, Hypothesis, SearchOptions, TargetRules, TranslateOptions, Translator, Weights,
};
use vitreous_models::{Model, OpenOptions, SpecialTokens, Takes, TokenInput};

use crate::error::Error;
use crate::locate::{model_directory, open_model, unsuitable};
pub use config::GenerationConfig;

/// The most tokens of a target beyond those of its source, where neither a file nor the user says a number.
const EXTRA_TOKENS: usize = 50;

/// An encoder-decoder with its tokenizer.
#[derive(Debug)]
pub struct SequenceModel {
    /// The model.
    pub model: Model,
    /// By which texts become tokens.
    pub tokenizer: PairTokenizer,
    /// Its special tokens, with what `generation_config.json` says of them.
    pub special: SpecialTokens,
    /// What its source side takes.
    pub source: TokenInput,
    /// What its target side takes.
    pub target: TokenInput,
    /// What `generation_config.json` says.
    pub config: GenerationConfig,
}

/// Whether a path holds an encoder-decoder whose configuration states its special tokens: not a translator of our own.
pub fn is_sequence_model(path: &Path) -> bool {
    let directory = model_directory(path);
    let described = directory.exists().then(|| Model::describe(&directory, &OpenOptions::default()).ok()).flatten();
    described.is_some_and(|model| matches!(model.architecture.signature().takes, Takes::Pairs { special: Some(_), .. }))
}

impl SequenceModel {
    /// Opens a model directory or a run directory.
    pub fn open(path: &Path) -> Result<SequenceModel, Error> {
        let mut model = open_model(path, &OpenOptions::default())?;
        let signature = model.architecture.signature();
        let name = path.to_string_lossy();
        let Takes::Pairs { source, target, special: Some(mut special), .. } = signature.takes else {
            return Err(unsuitable(&name, &signature, "encoder-decoder with a tokenizer of its own"));
        };
        let directory = model_directory(path);
        let config = GenerationConfig::read(&directory, special, target.vocabulary)?;
        special.start = config.start.unwrap_or(special.start);
        if !config.ignored.is_empty() {
            let said = config.ignored.join(", ");
            model.notes.push(format!("the model's files ask for {said}: this is not done when texts are written"));
        }
        let tokenizer = PairTokenizer::open(&directory, special.end)?;
        for (side, vocabulary) in [(PairSide::Source, source.vocabulary), (PairSide::Target, target.vocabulary)] {
            let tokens = tokenizer.vocabulary_size(side);
            if tokens > vocabulary {
                return Err(Error::input(format!(
                    "{name}: its tokenizer has {tokens} tokens, but the model's vocabulary has {vocabulary}: they do not belong to one model"
                )));
            }
        }
        Ok(SequenceModel { model, tokenizer, special, source, target, config })
    }

    /// The values of a parameter, in the format of their file, as whatever runs the model asks for them.
    pub fn weight(&self, name: &str) -> vitreous_engine::Result<WeightView<'_>> {
        self.model.weight(name).map_err(|error| vitreous_engine::Error::Machine(error.to_string()))
    }

    /// All parameters by name.
    pub fn weights(&self) -> Weights<'_> {
        Box::new(|name: &str| self.weight(name))
    }

    /// Tokens of a target as text.
    pub fn text(&self, tokens: &[u32]) -> Result<String, Error> {
        Ok(self.tokenizer.decode(tokens)?)
    }
}

/// How to write; what is `None` is as the model's files say.
#[derive(Clone, Debug, Default)]
pub struct SequenceOptions {
    /// Beam width; 1 is greedy.
    pub beam: Option<usize>,
    /// Scores of beams are divided by their length to this power.
    pub length_penalty: Option<f32>,
    /// When a beam search ends.
    pub early_stopping: Option<EarlyStopping>,
    /// No sequence of so many tokens comes twice; 0: any may.
    pub no_repeat: Option<usize>,
    /// Makes tokens that have come less likely.
    pub repetition_penalty: Option<f32>,
    /// The most tokens of a target, its end included.
    pub max_tokens: Option<usize>,
    /// The least tokens of a target.
    pub min_tokens: Option<usize>,
    /// The language of sources, of models that have some.
    pub from: Option<String>,
    /// The language of targets.
    pub to: Option<String>,
    /// Whether sources that are longer than the model reads are truncated, and not refused.
    pub truncate: bool,
}

/// Writes texts with a model on a device.
pub struct SequenceWriter<'m> {
    model: &'m SequenceModel,
    translator: Translator<'m>,
    rules: TargetRules,
    options: SequenceOptions,
    beam: usize,
    truncated: usize,
}

impl<'m> SequenceWriter<'m> {
    /// Makes a model ready. An error if it has several languages and `options` do not say which to write.
    pub fn new(
        model: &'m SequenceModel,
        options: &SequenceOptions,
        precision: Precision,
        device: &Device,
    ) -> Result<SequenceWriter<'m>, Error> {
        let mut writer = SequenceWriter::without_language(model, options, precision, device)?;
        writer.set_languages(options.from.as_deref(), options.to.as_deref())?;
        Ok(writer)
    }

    /// Makes a model ready whose languages are said later, by [`SequenceWriter::set_languages`].
    pub fn without_language(
        model: &'m SequenceModel,
        options: &SequenceOptions,
        precision: Precision,
        device: &Device,
    ) -> Result<SequenceWriter<'m>, Error> {
        let GenerationConfig { beam, length_penalty, .. } = model.config;
        let search = SearchOptions {
            beam: options.beam.unwrap_or(beam),
            length_penalty: options.length_penalty.unwrap_or(length_penalty),
        };
        let translate = TranslateOptions { search, slots: None, extra_tokens: EXTRA_TOKENS, precision };
        let architecture = model.model.architecture.as_ref();
        let mut translator = Translator::new(architecture, model.special, translate, device, model.weights())?;
        let rules = &model.config.rules;
        let rules = TargetRules {
            max_tokens: options.max_tokens.or(rules.max_tokens),
            min_tokens: options.min_tokens.unwrap_or(rules.min_tokens),
            early_stopping: options.early_stopping.unwrap_or(rules.early_stopping),
            no_repeat: options.no_repeat.unwrap_or(rules.no_repeat),
            repetition_penalty: options.repetition_penalty.unwrap_or(rules.repetition_penalty),
            ..rules.clone()
        };
        translator.set_rules(rules.clone());
        Ok(SequenceWriter { model, translator, rules, options: options.clone(), beam: search.beam, truncated: 0 })
    }

    /// From now on sources are in one language and targets in another; an error if the model does not have them, or needs to be told.
    pub fn set_languages(&mut self, from: Option<&str>, to: Option<&str>) -> Result<(), Error> {
        let SequenceModel { tokenizer, special, config, .. } = self.model;
        // A language that sources name is seen here already, and not at the first text.
        tokenizer.encode_source("", from, to)?;
        let (start, forced) = (tokenizer.start(to)?, tokenizer.forced_first(to)?);
        self.translator.set_start(start.unwrap_or(special.start));
        self.rules.forced_first = forced.or(config.rules.forced_first);
        self.translator.set_rules(self.rules.clone());
        (self.options.from, self.options.to) = (from.map(str::to_string), to.map(str::to_string));
        Ok(())
    }

    /// From now on targets have at most so many tokens; `None`: as the options or the model's files say.
    pub fn set_max_tokens(&mut self, most: Option<usize>) {
        let max_tokens = most.or(self.rules.max_tokens);
        self.translator.set_rules(TargetRules { max_tokens, ..self.rules.clone() });
    }

    /// The beam width.
    pub fn beam(&self) -> usize {
        self.beam
    }

    /// How many texts had more tokens than the model can read, and were truncated.
    pub fn truncated(&self) -> usize {
        self.truncated
    }

    /// The tokens of a source, truncated if that was asked for; an error if it is too long otherwise.
    pub fn source(&mut self, text: &str) -> Result<Vec<u32>, Error> {
        let SequenceOptions { from, to, truncate, .. } = &self.options;
        let mut tokens = self.model.tokenizer.encode_source(text, from.as_deref(), to.as_deref())?;
        let longest = self.translator.longest();
        if tokens.len() <= longest {
            return Ok(tokens);
        }
        if !truncate {
            let shown: String = text.chars().take(40).collect();
            return Err(Error::input(format!(
                "a text has {} tokens, but the model reads {longest}: {shown:?}..; shorten it, or take --truncate",
                tokens.len()
            )));
        }
        self.truncated += 1;
        self.model.tokenizer.truncate(&mut tokens, longest);
        Ok(tokens)
    }

    /// Makes itself ready anew for the next texts: the same texts then give the same bits, whatever came before.
    pub fn forget_texts(&mut self) {
        self.translator.forget();
    }

    /// What the model writes for texts, of each the best first.
    pub fn write(&mut self, texts: &[String]) -> Result<Vec<Vec<Hypothesis>>, Error> {
        let mut sources = Vec::new();
        for text in texts {
            sources.push(self.source(text)?);
        }
        Ok(self.translator.write(&sources)?)
    }
}
