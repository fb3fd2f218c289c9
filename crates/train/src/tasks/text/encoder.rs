//! An encoder that is trained, with its tokenizer.

use std::path::Path;

use rayon::prelude::*;
use vitreous_data::text::{Encoding, TextRows, TextTokenizer};
use vitreous_engine::{Parameter, Role, State};
use vitreous_models::encode::{EncoderRunner, TextTokens};
use vitreous_models::{Head, Initialisation, Model, SaveOptions, TokenInput, WeightType, initialise};

use crate::error::TrainError;
use crate::finetuning::open_pretrained;
use crate::groups::block_count;
use crate::ranks::{Parcel, Ranks};
use crate::recipe::Recipe;

/// The settings of a recipe's `model` that are those of the run also where a pretrained model has others.
pub(crate) const KEPT_SETTINGS: [&str; 2] = ["dropout", "attention_dropout"];

/// An encoder that is trained, with its tokenizer.
pub(crate) struct TrainedEncoder {
    /// The architecture, and the values to start from.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: TextTokenizer,
    /// What it takes.
    pub input: TokenInput,
    /// Blocks of the model, for layer-wise learning rates.
    pub blocks: usize,
}

impl TrainedEncoder {
    /// A model with its tokenizer. The recipe's model becomes this one.
    pub fn new(recipe: &mut Recipe, model: Model, tokenizer: TextTokenizer) -> Result<TrainedEncoder, TrainError> {
        recipe.set_architecture(model.architecture.as_ref());
        recipe.check()?;
        let input = model.architecture.signature().tokens();
        let input = input.ok_or_else(|| TrainError::Data("this model takes no single texts".to_string()))?;
        if tokenizer.vocabulary_size() > input.vocabulary {
            return Err(TrainError::Data(format!(
                "{}: its tokenizer has {} tokens, but the model's vocabulary has {}: they do not belong to one model",
                model.path.as_deref().unwrap_or(Path::new("the model")).display(),
                tokenizer.vocabulary_size(),
                input.vocabulary
            )));
        }
        check_token_types(&tokenizer, &input)?;
        let blocks = block_count(model.parameters());
        Ok(TrainedEncoder { model, tokenizer, input, blocks })
    }

    /// A pretrained encoder with a new head.
    pub fn open(recipe: &mut Recipe, init: &str, head: Head, labels: &[String]) -> Result<TrainedEncoder, TrainError> {
        if init.is_empty() {
            let what =
                "no pretrained model was named: `--init MODEL` names a directory with an encoder and its tokenizer";
            return Err(TrainError::Data(what.to_string()));
        }
        let path = Path::new(init);
        let mut model = open_pretrained(path, recipe, &KEPT_SETTINGS, |_| Some(head))?;
        model.assets.labels = labels.to_vec();
        TrainedEncoder::new(recipe, model, TextTokenizer::open(path)?)
    }

    /// How texts of at most so many tokens become rows of its batches.
    pub fn rows(&self, max_tokens: usize) -> TextRows {
        TextRows {
            longest: max_tokens.min(self.input.longest),
            has_types: self.input.token_types > 1,
            padding: self.tokenizer.special().padding.unwrap_or(0),
        }
    }

    /// The tokens of texts with their pairs, by all threads; at most so many of each.
    pub fn encode<'t>(
        &self,
        texts: impl IntoParallelIterator<Item = (&'t str, Option<&'t str>)>,
        longest: usize,
    ) -> Result<Vec<Encoding>, TrainError> {
        let encode = |(text, pair): (&str, Option<&str>)| self.tokenizer.encode(text, pair, longest);
        Ok(texts.into_par_iter().map(encode).collect::<Result<Vec<_>, _>>()?)
    }

    /// Sets initial values: those of a pretrained model, and random ones for what is new.
    pub fn initialise(&self, seed: u64, state: &mut State) -> Result<(), TrainError> {
        if self.model.path.is_some() {
            self.model.load(state)?;
        }
        let is_new = |parameter: &Parameter| parameter.role() == Role::Adapter || self.model.is_new(&parameter.name);
        initialise(state, Initialisation::TruncatedNormal, seed, &is_new)?;
        state.start_average();
        Ok(())
    }

    /// Writes a model directory with the tokenizer.
    pub fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let files = self.tokenizer.files()?;
        let options =
            SaveOptions { state: Some(state), weights: Some(WeightType::F32), files: &files, ..SaveOptions::default() };
        self.model.save(directory, &options).map(|_| ()).map_err(TrainError::of_saving)
    }
}

/// Refuses a template with token types that the model has no embedding for. They are the same for every text, and for every pair.
fn check_token_types(tokenizer: &TextTokenizer, input: &TokenInput) -> Result<(), TrainError> {
    // A model with one type, or none, does not look at them.
    if input.token_types < 2 {
        return Ok(());
    }
    for pair in [None, Some("a")] {
        let types = tokenizer.encode("a", pair, input.longest)?.token_types;
        if let Some(unknown) = types.into_iter().find(|&id| id as usize >= input.token_types) {
            return Err(TrainError::Data(format!(
                "the tokenizer gives token type {unknown}, but the model has {}: they do not belong to one model",
                input.token_types
            )));
        }
    }
    Ok(())
}

/// Texts that go through an encoder at a time. Ranks share them out in such parts, so that the same texts are computed together whatever
/// the number of ranks.
const TEXTS_AT_ONCE: usize = 128;

/// Runs an encoder on texts, which ranks share out. `answer` is told the index of a text and the rows of its output, not in the order of the
/// texts; `progress` how many of them are done, of how many.
pub(crate) fn run_texts<'t>(
    runner: &mut EncoderRunner,
    ranks: &Ranks,
    texts: impl IntoIterator<Item = &'t Encoding>,
    progress: &mut dyn FnMut(usize, usize),
    mut answer: impl FnMut(usize, &[f32]),
) -> Result<(), TrainError> {
    let tokens = |text: &'t Encoding| TextTokens { ids: &text.ids, types: &text.token_types, masked: &[] };
    let texts: Vec<TextTokens> = texts.into_iter().map(tokens).collect();
    let parts: Vec<&[TextTokens]> = texts.chunks(TEXTS_AT_ONCE).collect();
    // Of each text its index and the length of its rows.
    let work = |part: usize| {
        let mut parcel = Parcel::default();
        runner.run(parts[part], |text, rows| {
            parcel.counts.extend([(part * TEXTS_AT_ONCE + text) as u64, rows.len() as u64]);
            parcel.floats.extend_from_slice(rows);
            Ok::<(), TrainError>(())
        })?;
        Ok(parcel)
    };
    let mut done = 0;
    let take = |_: usize, parcel: &Parcel| {
        let mut start = 0;
        for text in parcel.counts.chunks_exact(2) {
            let (index, length) = (text[0] as usize, text[1] as usize);
            answer(index, &parcel.floats[start..start + length]);
            start += length;
            done += 1;
        }
        progress(done, texts.len());
        Ok(())
    };
    ranks.share_out(parts.len(), work, take)
}
