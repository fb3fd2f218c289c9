//! Fine-tuning of a pretrained model: opening it with a new head, which of its parameters are trained, and LoRA.

use std::path::Path;

use serde::{Deserialize, Serialize};
use vitreous_engine::{Group, Parameter, Role, State};
use vitreous_models::adapters::without_adapters;
use vitreous_models::{Adapters, Architecture, Head, Model, OpenOptions, Settings};

use crate::error::TrainError;
use crate::groups::{TrainedParts, group_of};
use crate::recipe::rules::{Checked, NOT_NEGATIVE, POSITIVE, is_not_negative, is_positive, refuse};
use crate::recipe::{OptimizerSettings, Recipe};

/// Which parameters of a pretrained model are trained, and how fast: what the `finetune` sections of all tasks have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finetuning {
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

impl Default for Finetuning {
    /// Everything, at the same rate.
    fn default() -> Self {
        Finetuning { freeze: false, lora_rank: 0, lora_alpha: 16.0, head_lr: 1.0, backbone_lr: 1.0 }
    }
}

impl Finetuning {
    /// Refuses values that make no sense.
    pub fn check(&self) -> Checked {
        let Finetuning { freeze, lora_rank, lora_alpha, head_lr, backbone_lr } = *self;
        match () {
            () if freeze && lora_rank > 0 => {
                refuse("finetune.freeze", &freeze, "LoRA freezes the backbone itself: set one of the two")
            }
            () if !is_positive(lora_alpha) => refuse("finetune.lora_alpha", &lora_alpha, POSITIVE),
            () if !is_not_negative(head_lr) => refuse("finetune.head_lr", &head_lr, NOT_NEGATIVE),
            () if !is_not_negative(backbone_lr) => refuse("finetune.backbone_lr", &backbone_lr, NOT_NEGATIVE),
            () if head_lr == 0.0 && (backbone_lr == 0.0 || freeze) => {
                refuse("finetune.head_lr", &head_lr, "nothing would learn, because the backbone is frozen, too")
            }
            () => Ok(()),
        }
    }

    /// LoRA's adapters, if there are some.
    pub fn adapters(&self) -> Option<Adapters> {
        let (rank, alpha) = (self.lora_rank, self.lora_alpha as f32);
        (rank > 0).then_some(Adapters { rank, alpha, mlp: false })
    }

    /// Weight decay and learning rate of a parameter of a model with so many blocks; `None` freezes it.
    pub fn group(&self, optimizer: &OptimizerSettings, blocks: usize, parameter: &Parameter) -> Option<Group> {
        let backbone = if self.freeze { 0.0 } else { self.backbone_lr };
        let parts = TrainedParts { head: self.head_lr, backbone, adapters_only: self.lora_rank > 0 };
        group_of(optimizer, parts, blocks, parameter)
    }

    /// The same for a model that keeps its head: with LoRA, its output matrix stays as it is, too.
    pub fn group_with_own_head(
        &self,
        optimizer: &OptimizerSettings,
        blocks: usize,
        parameter: &Parameter,
    ) -> Option<Group> {
        match self.lora_rank > 0 && parameter.role() != Role::Adapter {
            true => None,
            false => self.group(optimizer, blocks, parameter),
        }
    }

    /// The parameters of an ordinary model, with LoRA's adapters merged; `None` without adapters.
    pub fn merged(&self, architecture: &dyn Architecture, state: &State) -> Result<Option<State>, TrainError> {
        let adapters = self.adapters();
        Ok(adapters.map(|adapters| without_adapters(architecture, state, &adapters)).transpose()?)
    }
}

/// A pretrained model to go on from, all of it or by LoRA: the `finetune` section of tasks that keep the model's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PretrainedSettings {
    /// A model with its tokenizer: a directory, or a GGUF file of a language model; "" for a new model. It replaces `model`, but for dropout.
    pub init: String,
    /// Rank of LoRA on the projections of attention, with the rest frozen; 0 for none.
    pub lora_rank: usize,
    /// LoRA's scale is this over the rank.
    pub lora_alpha: f64,
}

impl Default for PretrainedSettings {
    fn default() -> Self {
        let Finetuning { lora_rank, lora_alpha, .. } = Finetuning::default();
        PretrainedSettings { init: String::new(), lora_rank, lora_alpha }
    }
}

impl PretrainedSettings {
    /// Refuses values that make no sense.
    pub(crate) fn check(&self) -> Checked {
        match self.lora_rank > 0 && self.init.is_empty() {
            true => {
                let what = "LoRA changes a pretrained model: name one with --init MODEL";
                refuse("finetune.lora_rank", &self.lora_rank, what)
            }
            false => self.parts().check(),
        }
    }

    /// What is trained of it.
    pub(crate) fn parts(&self) -> Finetuning {
        Finetuning { lora_rank: self.lora_rank, lora_alpha: self.lora_alpha, ..Finetuning::default() }
    }
}

/// A pretrained model with its head replaced, if a new one is given: its own settings, then those of the recipe that are kept, then one
/// check of all of them together.
pub(crate) fn open_pretrained(
    init: &Path,
    recipe: &Recipe,
    kept: &[&str],
    head: impl FnOnce(&dyn Architecture) -> Option<Head>,
) -> Result<Model, TrainError> {
    let own = Model::open(init, &OpenOptions::default())?.architecture;
    recipe.task.check_model(own.as_ref()).map_err(TrainError::Data)?;
    let known = own.settings();
    let kept = kept.iter().filter(|key| known.contains_key(**key));
    let kept = kept.filter_map(|key| Some((key.to_string(), recipe.model_setting(key)?.clone())));
    let options = OpenOptions { settings: kept.collect::<Settings>(), replace_head: head(own.as_ref()) };
    Ok(Model::open(init, &options)?)
}
