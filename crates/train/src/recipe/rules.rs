//! Which values of the common sections make sense, and what tasks need to say the same of their own.

use std::fmt::Display;

use super::{OptimizerSettings, OutputSettings, Recipe, RecipeError, ScheduleSettings};

pub(crate) const POSITIVE: &str = "it must be above 0";
pub(crate) const NOT_NEGATIVE: &str = "it must be 0 or above";
pub(crate) const FRACTION: &str = "it must be at least 0 and under 1";

pub(crate) type Checked = Result<(), RecipeError>;

/// Refuses a value because of a rule.
pub(crate) fn refuse(key: &'static str, value: &dyn Display, rule: &'static str) -> Checked {
    Err(RecipeError::Rule { key, value: value.to_string(), rule })
}

pub(crate) fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

pub(crate) fn is_not_negative(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

pub(crate) fn is_fraction(value: f64) -> bool {
    (0.0..1.0).contains(&value)
}

/// Label smoothing, which several tasks have.
pub(crate) fn check_smoothing(smoothing: f32) -> Checked {
    match is_fraction(f64::from(smoothing)) {
        true => Ok(()),
        false => refuse("loss.label_smoothing", &smoothing, FRACTION),
    }
}

pub(super) fn check_common(recipe: &Recipe) -> Checked {
    let Recipe { train, data, .. } = recipe;
    match () {
        () if train.epochs == 0 => refuse("train.epochs", &train.epochs, POSITIVE),
        () if train.accumulate == 0 => refuse("train.accumulate", &train.accumulate, POSITIVE),
        () if !is_positive(train.bucket) => refuse("train.bucket", &train.bucket, POSITIVE),
        () if !is_fraction(data.validation_share) => refuse("data.validation_share", &data.validation_share, FRACTION),
        () => Ok(()),
    }?;
    check_optimizer(&recipe.optimizer)?;
    check_schedule(&recipe.schedule, recipe.optimizer.lr)?;
    check_output(&recipe.output)
}

fn check_optimizer(settings: &OptimizerSettings) -> Checked {
    let OptimizerSettings { lr, betas, eps, momentum, weight_decay, clip, layer_decay, .. } = settings;
    match () {
        () if !is_positive(*lr) => refuse("optimizer.lr", lr, POSITIVE),
        () if !betas.iter().all(|&beta| is_fraction(beta)) => {
            refuse("optimizer.betas", &format!("{betas:?}"), FRACTION)
        }
        () if !is_positive(*eps) => refuse("optimizer.eps", eps, POSITIVE),
        () if !is_fraction(*momentum) => refuse("optimizer.momentum", momentum, FRACTION),
        () if !is_not_negative(*weight_decay) => refuse("optimizer.weight_decay", weight_decay, NOT_NEGATIVE),
        () if !is_not_negative(*clip) => refuse("optimizer.clip", clip, NOT_NEGATIVE),
        () if !(is_positive(*layer_decay) && *layer_decay <= 1.0) => {
            refuse("optimizer.layer_decay", layer_decay, "it must be above 0 and at most 1")
        }
        () => Ok(()),
    }
}

fn check_schedule(settings: &ScheduleSettings, lr: f64) -> Checked {
    let ScheduleSettings { warmup_epochs, final_lr, .. } = settings;
    match () {
        () if !is_not_negative(*warmup_epochs) => refuse("schedule.warmup_epochs", warmup_epochs, NOT_NEGATIVE),
        () if !(is_not_negative(*final_lr) && *final_lr <= lr) => {
            refuse("schedule.final_lr", final_lr, "it must be 0 or above, and at most optimizer.lr")
        }
        () => Ok(()),
    }
}

fn check_output(settings: &OutputSettings) -> Checked {
    let OutputSettings { log_steps, eval_epochs, checkpoint_minutes, keep, .. } = settings;
    match () {
        () if *log_steps == 0 => refuse("output.log_steps", log_steps, POSITIVE),
        () if *eval_epochs == 0 => refuse("output.eval_epochs", eval_epochs, POSITIVE),
        () if !is_not_negative(*checkpoint_minutes) => {
            refuse("output.checkpoint_minutes", checkpoint_minutes, NOT_NEGATIVE)
        }
        () if *keep == 0 => refuse("output.keep", keep, "at least one checkpoint is needed to resume"),
        () => Ok(()),
    }
}
