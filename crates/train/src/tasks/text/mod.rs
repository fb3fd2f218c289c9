//! What the tasks of texts have in common: an encoder with its tokenizer, fine-tuned with a new head.

use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use vitreous_data::text::{Encoding, TextTokenizer};
use vitreous_engine::{Graph, Group, Parameter, Role, State};
use vitreous_models::adapters::merged;
use vitreous_models::{
    Adapters, Call, Head, Initialisation, Model, OpenOptions, SaveOptions, Settings, TokenInput, initialise,
};

use crate::error::TrainError;
use crate::groups::{TrainedParts, block_count, group_of};
use crate::recipe::rules::{Checked, NOT_NEGATIVE, POSITIVE, is_not_negative, is_positive, refuse};
use crate::recipe::{OptimizerSettings, Recipe};

/// The settings of a recipe's `model` that are those of the run also where a pretrained model has others.
const KEPT_SETTINGS: [&str; 2] = ["dropout", "attention_dropout"];

/// Fine-tuning of a pretrained encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextFinetuneSettings {
    /// The pretrained model: a directory. It replaces `model`, but for dropout.
    pub init: String,
    /// Whether only the head is trained.
    pub freeze: bool,
    /// Rank of LoRA on the projections of attention, with the rest frozen; 0 for none.
    pub lora_rank: usize,
    /// LoRA's scale is this over the rank.
    pub lora_alpha: f64,
    /// Factor of the learning rate of the head.
    pub head_lr: f64,
    /// Factor of the learning rate of everything but the head.
    pub backbone_lr: f64,
}

impl Default for TextFinetuneSettings {
    fn default() -> Self {
        TextFinetuneSettings {
            init: String::new(),
            freeze: false,
            lora_rank: 0,
            lora_alpha: 16.0,
            head_lr: 1.0,
            backbone_lr: 1.0,
        }
    }
}

impl TextFinetuneSettings {
    /// Refuses values that make no sense.
    pub(crate) fn check(&self) -> Checked {
        match () {
            () if !is_positive(self.lora_alpha) => refuse("finetune.lora_alpha", &self.lora_alpha, POSITIVE),
            () if !is_not_negative(self.head_lr) => refuse("finetune.head_lr", &self.head_lr, NOT_NEGATIVE),
            () if !is_not_negative(self.backbone_lr) => refuse("finetune.backbone_lr", &self.backbone_lr, NOT_NEGATIVE),
            () => Ok(()),
        }
    }

    /// LoRA's adapters, if there are some.
    pub(crate) fn adapters(&self) -> Option<Adapters> {
        let (rank, alpha) = (self.lora_rank, self.lora_alpha as f32);
        (rank > 0).then_some(Adapters { rank, alpha, mlp: false })
    }

    /// Weight decay and learning rate of a parameter of a model with so many blocks; `None` freezes it.
    pub(crate) fn group(&self, optimizer: &OptimizerSettings, blocks: usize, parameter: &Parameter) -> Option<Group> {
        let backbone = if self.freeze { 0.0 } else { self.backbone_lr };
        let parts = TrainedParts { head: self.head_lr, backbone, adapters_only: self.lora_rank > 0 };
        group_of(optimizer, parts, blocks, parameter)
    }
}

/// An encoder that is fine-tuned, with its tokenizer.
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
    /// A pretrained encoder with a new head. The recipe's model becomes the one that is trained.
    pub fn open(recipe: &mut Recipe, init: &str, head: Head, labels: &[String]) -> Result<TrainedEncoder, TrainError> {
        if init.is_empty() {
            let what =
                "no pretrained model was named: `--init MODEL` names a directory with an encoder and its tokenizer";
            return Err(TrainError::Data(what.to_string()));
        }
        let path = Path::new(init);
        let own = Model::open(path, &OpenOptions::default())?.architecture;
        recipe.task.check_model(own.as_ref()).map_err(TrainError::Data)?;
        let own = own.settings();
        let kept = KEPT_SETTINGS.iter().filter(|key| own.contains_key(**key));
        let kept = kept.filter_map(|key| Some((key.to_string(), recipe.model_setting(key)?.clone())));
        let options = OpenOptions { settings: kept.collect::<Settings>(), replace_head: Some(head) };
        let mut model = Model::open(path, &options)?;
        model.assets.labels = labels.to_vec();
        recipe.set_architecture(model.architecture.as_ref());
        recipe.check()?;
        let tokenizer = TextTokenizer::open(path)?;
        let input = model.architecture.signature().tokens();
        let input = input.ok_or_else(|| TrainError::Data("this model takes no single texts".to_string()))?;
        if tokenizer.vocabulary_size() > input.vocabulary {
            return Err(TrainError::Data(format!(
                "{init}: its tokenizer has {} tokens, but the model's vocabulary has {}: they do not belong to one model",
                tokenizer.vocabulary_size(),
                input.vocabulary
            )));
        }
        let blocks = block_count(model.parameters());
        Ok(TrainedEncoder { model, tokenizer, input, blocks })
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

    /// The token that fills up the shorter texts of a batch.
    pub fn padding(&self) -> u32 {
        self.tokenizer.special().padding.unwrap_or(0)
    }

    /// Sets initial values: those of the pretrained model, and random ones for what is new.
    pub fn initialise(&self, seed: u64, state: &mut State) -> Result<(), TrainError> {
        self.model.load(state)?;
        let is_new = |parameter: &Parameter| parameter.role() == Role::Adapter || self.model.is_new(&parameter.name);
        initialise(state, Initialisation::TruncatedNormal, seed, &is_new)?;
        state.start_average();
        Ok(())
    }

    /// The parameters of an ordinary model, with LoRA's adapters merged; `None` without adapters.
    pub fn without_adapters(&self, adapters: Option<Adapters>, state: &State) -> Result<Option<State>, TrainError> {
        let Some(adapters) = adapters else { return Ok(None) };
        let mut graph = Graph::for_inference();
        self.model.architecture.build(&mut graph, &Call::whole(1))?;
        let mut plain = State::new(&graph)?;
        let names: Vec<String> = plain.table().iter().map(|parameter| parameter.name.clone()).collect();
        for name in names {
            let values = merged(state, &adapters, &name)?;
            plain.parameter_mut(&name)?.copy_from_slice(&values);
        }
        Ok(Some(plain))
    }

    /// Writes a model directory with the tokenizer.
    pub fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        let files = self.tokenizer.files()?;
        let options = SaveOptions { state: Some(state), widen: true, files: &files, ..SaveOptions::default() };
        self.model.save(directory, &options).map(|_| ()).map_err(TrainError::of_saving)
    }
}

/// The first words of a text, for messages and pages.
pub(crate) fn beginning(text: &str, characters: usize) -> String {
    let mut short: String = text.chars().take(characters).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
