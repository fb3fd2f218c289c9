//! Which values make sense.

use std::fmt::Display;

use vitreous_data::text::{Languages, MOST_VOCABULARY, SMALLEST_VOCABULARY, padded_length};

use super::{
    DataSettings, FinetuneSettings, Fit, OptimizerSettings, OutputSettings, PreprocessSettings, Recipe, RecipeError,
    ScheduleSettings, TrainSettings, TranslationRecipe,
};

const POSITIVE: &str = "it must be above 0";
const NOT_NEGATIVE: &str = "it must be 0 or above";
const SHARE: &str = "it must be at least 0 and under 1";
const MOST_THREADS: usize = 1024;

type Checked = Result<(), RecipeError>;

fn rule(key: &'static str, value: &dyn Display, rule: &'static str) -> Checked {
    Err(RecipeError::Rule { key, value: value.to_string(), rule })
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn not_negative(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn share(value: f64) -> bool {
    (0.0..1.0).contains(&value)
}

pub(super) fn check_images(recipe: &Recipe) -> Checked {
    let TrainSettings { epochs, batch, accumulate, ema, .. } = &recipe.train;
    let DataSettings { validation_share, threads, .. } = &recipe.data;
    match () {
        () if *epochs == 0 => rule("train.epochs", epochs, POSITIVE),
        () if *batch == 0 => rule("train.batch", batch, POSITIVE),
        () if *accumulate == 0 => rule("train.accumulate", accumulate, POSITIVE),
        () if !share(*ema) => rule("train.ema", ema, SHARE),
        () if !share(*validation_share) => rule("data.validation_share", validation_share, SHARE),
        () if *threads > MOST_THREADS => rule("data.threads", threads, "it must be at most 1024"),
        () => Ok(()),
    }?;
    check_optimizer(&recipe.optimizer)?;
    check_schedule(&recipe.schedule, recipe.optimizer.lr)?;
    check_smoothing(recipe.loss.label_smoothing)?;
    check_preprocess(&recipe.preprocess)?;
    check_finetune(&recipe.finetune)?;
    check_output(&recipe.output)?;
    // A model that is taken up replaces this one, and is checked when it is opened.
    match recipe.finetune.init.is_empty() {
        true => recipe.model.check().map_err(|refusal| RecipeError::Model(refusal.0)),
        false => Ok(()),
    }
}

pub(super) fn check_translation(recipe: &TranslationRecipe) -> Checked {
    let TranslationRecipe { train, data, text, test, .. } = recipe;
    match () {
        () if train.epochs == 0 => rule("train.epochs", &train.epochs, POSITIVE),
        () if train.tokens == 0 => rule("train.tokens", &train.tokens, POSITIVE),
        () if train.accumulate == 0 => rule("train.accumulate", &train.accumulate, POSITIVE),
        () if train.average == 0 => rule("train.average", &train.average, "it must be 1 for no average, or more"),
        () if train.average > recipe.output.keep => {
            rule("train.average", &train.average, "it must be at most output.keep: no more checkpoints are kept")
        }
        () if !data.languages.is_empty() && data.languages.parse::<Languages>().is_err() => {
            rule("data.languages", &data.languages, Languages::RULE)
        }
        () if !share(data.validation_share) => rule("data.validation_share", &data.validation_share, SHARE),
        () if text.vocabulary < SMALLEST_VOCABULARY => {
            rule("text.vocabulary", &text.vocabulary, "it must be at least 260: every byte is a word of its own")
        }
        () if text.vocabulary > MOST_VOCABULARY => {
            rule("text.vocabulary", &text.vocabulary, "it must be at most 1048576")
        }
        () if text.max_tokens == 0 => rule("text.max_tokens", &text.max_tokens, POSITIVE),
        () if !positive(text.max_ratio) => rule("text.max_ratio", &text.max_ratio, POSITIVE),
        () if test.beam == 0 => rule("test.beam", &test.beam, POSITIVE),
        () if !test.length_penalty.is_finite() => {
            rule("test.length_penalty", &test.length_penalty, "it must be a number")
        }
        // Compared first by itself: a length that no model has is not rounded up.
        () if text.max_tokens >= recipe.model.max_length
            || padded_length(text.max_tokens + 1) > recipe.model.max_length =>
        {
            let what = "with its end, and rounded up as batches are, it must be at most model.max_length";
            rule("text.max_tokens", &text.max_tokens, what)
        }
        () => Ok(()),
    }?;
    check_optimizer(&recipe.optimizer)?;
    check_schedule(&recipe.schedule, recipe.optimizer.lr)?;
    check_smoothing(recipe.loss.label_smoothing)?;
    check_output(&recipe.output)?;
    recipe.model.check().map_err(|refusal| RecipeError::Model(refusal.0))
}

fn check_optimizer(settings: &OptimizerSettings) -> Checked {
    let OptimizerSettings { lr, betas, eps, momentum, weight_decay, clip, layer_decay, .. } = settings;
    match () {
        () if !positive(*lr) => rule("optimizer.lr", lr, POSITIVE),
        () if !betas.iter().all(|&beta| share(beta)) => rule("optimizer.betas", &format!("{betas:?}"), SHARE),
        () if !positive(*eps) => rule("optimizer.eps", eps, POSITIVE),
        () if !share(*momentum) => rule("optimizer.momentum", momentum, SHARE),
        () if !not_negative(*weight_decay) => rule("optimizer.weight_decay", weight_decay, NOT_NEGATIVE),
        () if !not_negative(*clip) => rule("optimizer.clip", clip, NOT_NEGATIVE),
        () if !(positive(*layer_decay) && *layer_decay <= 1.0) => {
            rule("optimizer.layer_decay", layer_decay, "it must be above 0 and at most 1")
        }
        () => Ok(()),
    }
}

fn check_schedule(settings: &ScheduleSettings, lr: f64) -> Checked {
    let ScheduleSettings { warmup_epochs, final_lr, .. } = settings;
    match () {
        () if !not_negative(*warmup_epochs) => rule("schedule.warmup_epochs", warmup_epochs, NOT_NEGATIVE),
        () if !(not_negative(*final_lr) && *final_lr <= lr) => {
            rule("schedule.final_lr", final_lr, "it must be 0 or above, and at most optimizer.lr")
        }
        () => Ok(()),
    }
}

fn check_smoothing(smoothing: f32) -> Checked {
    if share(f64::from(smoothing)) { Ok(()) } else { rule("loss.label_smoothing", &smoothing, SHARE) }
}

fn check_preprocess(settings: &PreprocessSettings) -> Checked {
    let PreprocessSettings { fit, crop_share, mean, std, .. } = settings;
    match () {
        () if *fit == Fit::Crop && !(positive(*crop_share) && *crop_share <= 1.0) => {
            rule("preprocess.crop_share", crop_share, "it must be above 0 and at most 1")
        }
        () if !matches!(mean.len(), 1 | 3) || mean.len() != std.len() => {
            let value = format!("{mean:?} with std {std:?}");
            rule("preprocess.mean", &value, "both need one number, or three for colour")
        }
        () if !std.iter().all(|&value| positive(f64::from(value))) => {
            rule("preprocess.std", &format!("{std:?}"), POSITIVE)
        }
        () => Ok(()),
    }
}

fn check_finetune(settings: &FinetuneSettings) -> Checked {
    let FinetuneSettings { lora_alpha, head_lr, backbone_lr, freeze, lora_rank, .. } = settings;
    match () {
        () if *freeze && *lora_rank > 0 => {
            rule("finetune.freeze", freeze, "LoRA freezes the backbone itself: set one of the two")
        }
        () if !positive(*lora_alpha) => rule("finetune.lora_alpha", lora_alpha, POSITIVE),
        () if !not_negative(*head_lr) => rule("finetune.head_lr", head_lr, NOT_NEGATIVE),
        () if !not_negative(*backbone_lr) => rule("finetune.backbone_lr", backbone_lr, NOT_NEGATIVE),
        () if *head_lr == 0.0 && (*backbone_lr == 0.0 || *freeze) => {
            rule("finetune.head_lr", head_lr, "nothing would learn, for the backbone does not either")
        }
        () => Ok(()),
    }
}

fn check_output(settings: &OutputSettings) -> Checked {
    let OutputSettings { log_steps, eval_epochs, checkpoint_minutes, keep, .. } = settings;
    match () {
        () if *log_steps == 0 => rule("output.log_steps", log_steps, POSITIVE),
        () if *eval_epochs == 0 => rule("output.eval_epochs", eval_epochs, POSITIVE),
        () if !not_negative(*checkpoint_minutes) => rule("output.checkpoint_minutes", checkpoint_minutes, NOT_NEGATIVE),
        () if *keep == 0 => rule("output.keep", keep, "at least one checkpoint is needed to resume"),
        () => Ok(()),
    }
}
