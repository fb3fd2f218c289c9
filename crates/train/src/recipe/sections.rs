//! The sections that recipes of all tasks have.

use serde::{Deserialize, Serialize};
use vitreous_engine::Precision;

/// Seed, epochs, accumulation, precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainSettings {
    /// The seed of everything random: initial values, order, augmentation, dropout.
    pub seed: u64,
    /// Passes over the training data.
    pub epochs: u64,
    /// Batches whose gradients are accumulated before an update.
    pub accumulate: usize,
    /// "f32", or "bf16" for matrix products (weights stay f32).
    pub precision: PrecisionChoice,
    /// Recompute activations in the backward pass: less memory, a third more time.
    pub recompute: bool,
    /// What several processes divide among them: "none", or "optimizer" for its moments: less memory, the same numbers.
    pub shard: ShardChoice,
    /// How gradients travel between processes: "f32", or "bf16" for half the bytes.
    pub wire: PrecisionChoice,
    /// Gradients that travel together, in MiB.
    pub bucket: f64,
}

choice! {
    /// What several processes divide among them.
    ShardChoice {
        /// Nothing: each has all.
        None,
        /// The moments of the optimizer.
        Optimizer,
    }
}

choice! {
    /// The data type of matrix products.
    PrecisionChoice {
        /// 32-bit floats.
        F32,
        /// bfloat16, accumulated in f32.
        Bf16,
    }
}

/// The data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataSettings {
    /// A directory or a file; for images also "builtin".
    pub path: String,
    /// The fraction that is split off for validation where the data has no validation split.
    pub validation_share: f64,
}

/// The optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OptimizerSettings {
    /// "adamw", "sgd", "lamb" or "muon".
    pub name: OptimizerName,
    /// The learning rate after warm-up.
    pub lr: f64,
    /// Decay of the two moments (AdamW and LAMB, and what Muon leaves to AdamW).
    pub betas: [f64; 2],
    /// Added to the root of the second moment (AdamW and LAMB).
    pub eps: f64,
    /// Momentum (SGD and Muon).
    pub momentum: f64,
    /// Nesterov momentum (SGD and Muon).
    pub nesterov: bool,
    /// Weight decay.
    pub weight_decay: f64,
    /// Whether biases, norms, tokens and positions decay, too.
    pub decay_all: bool,
    /// The largest norm of the gradient of all parameters; larger ones are clipped. 0 for no clipping.
    pub clip: f64,
    /// The factor by which the learning rate falls from each layer to the one below; 1 for the same rate everywhere.
    pub layer_decay: f64,
}

choice! {
    /// An optimizer.
    OptimizerName {
        /// Adam with decoupled weight decay.
        Adamw,
        /// Gradient descent with momentum.
        Sgd,
        /// Adam with layer-wise rates by norm, for large batches.
        Lamb,
        /// Orthogonal updates of hidden matrices; AdamW for everything else.
        Muon,
    }
}

/// The learning rate schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduleSettings {
    /// "cosine", "linear", "constant" or "inverse_sqrt", after the warm-up.
    pub kind: ScheduleKind,
    /// Epochs of warm-up.
    pub warmup_epochs: f64,
    /// Steps of warm-up, if not 0: in place of epochs.
    pub warmup_steps: u64,
    /// The learning rate at the end of "cosine" and "linear".
    pub final_lr: f64,
}

choice! {
    /// The learning rate after the warm-up.
    ScheduleKind {
        /// Half a cosine down to the final rate.
        Cosine,
        /// A line down to the final rate.
        Linear,
        /// The same for all steps.
        Constant,
        /// Proportional to one over the root of the step.
        InverseSqrt,
    }
}

/// Logging, evaluation and checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputSettings {
    /// Steps between lines of metrics.
    pub log_steps: u64,
    /// Epochs between evaluations. The last epoch is always evaluated.
    pub eval_epochs: u64,
    /// Steps between checkpoints besides those after each epoch; 0 for none.
    pub checkpoint_steps: u64,
    /// Minutes after which a further checkpoint is saved; 0 for none.
    pub checkpoint_minutes: f64,
    /// How many checkpoints are kept.
    pub keep: usize,
}

/// The loss. Not all tasks have one, and their defaults differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossSettings {
    /// "cross_entropy" for one class per sample, "binary_cross_entropy" for several; "auto" as the data has it.
    pub kind: LossKind,
    /// The fraction of the target distribution that is spread over all classes.
    pub label_smoothing: f32,
}

choice! {
    /// A loss.
    LossKind {
        /// As the data has it.
        Auto,
        /// One class per sample.
        CrossEntropy,
        /// Any number of classes per sample.
        BinaryCrossEntropy,
    }
}

impl Default for LossSettings {
    fn default() -> Self {
        LossSettings { kind: LossKind::Auto, label_smoothing: 0.0 }
    }
}

impl Default for TrainSettings {
    fn default() -> Self {
        TrainSettings {
            seed: 1,
            epochs: 100,
            accumulate: 1,
            precision: PrecisionChoice::F32,
            recompute: false,
            shard: ShardChoice::None,
            wire: PrecisionChoice::F32,
            bucket: 25.0,
        }
    }
}

impl Default for DataSettings {
    fn default() -> Self {
        DataSettings { path: String::new(), validation_share: 0.1 }
    }
}

impl Default for OptimizerSettings {
    fn default() -> Self {
        OptimizerSettings {
            name: OptimizerName::Adamw,
            lr: 1e-3,
            betas: [0.9, 0.999],
            eps: 1e-8,
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.1,
            decay_all: false,
            clip: 1.0,
            layer_decay: 1.0,
        }
    }
}

impl Default for ScheduleSettings {
    fn default() -> Self {
        ScheduleSettings { kind: ScheduleKind::Cosine, warmup_epochs: 5.0, warmup_steps: 0, final_lr: 0.0 }
    }
}

impl Default for OutputSettings {
    fn default() -> Self {
        OutputSettings { log_steps: 10, eval_epochs: 1, checkpoint_steps: 0, checkpoint_minutes: 10.0, keep: 2 }
    }
}

impl PrecisionChoice {
    /// As recipes write it.
    pub fn name(self) -> &'static str {
        match self {
            PrecisionChoice::F32 => "f32",
            PrecisionChoice::Bf16 => "bf16",
        }
    }
}

impl From<PrecisionChoice> for Precision {
    fn from(choice: PrecisionChoice) -> Precision {
        match choice {
            PrecisionChoice::F32 => Precision::F32,
            PrecisionChoice::Bf16 => Precision::Bf16,
        }
    }
}
