//! Recipes: all that decides what a training run computes, as a TOML file.
//!
//! A recipe is read in layers: the defaults below, a file, then `key=value` from the command line. What was run is written
//! into the run directory with every key.

use serde::{Deserialize, Serialize};
use vitreous_data::dataset::ValidationRule;
use vitreous_data::image::augment::AugmentSettings;
use vitreous_data::image::{Channels, Crop, Interpolation, Placement, Preprocess, Resize};
use vitreous_models::{VitConfig, preset, presets};

use layers::Layered;

pub use any::AnyRecipe;
pub(crate) use layers::written_keys;
pub use layers::{Difference, RecipeError, nearest};
pub use shipped::{Shipped, shipped};
pub use translation::{
    PairSettings, TextSettings, TokeniserChoice, TranslationRecipe, TranslationTask, TranslationTestSettings,
    TranslationTrainSettings,
};

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }
    };
}

mod any;
mod layers;
mod rules;
mod shipped;
mod translation;

/// All that decides what a training run computes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recipe {
    /// Length, batch, precision.
    pub train: TrainSettings,
    /// What is learned from.
    pub data: DataSettings,
    /// How images are prepared.
    pub preprocess: PreprocessSettings,
    /// How images are changed while learning.
    pub augment: AugmentSettings,
    /// What is made small.
    pub loss: LossSettings,
    /// By which rule.
    pub optimizer: OptimizerSettings,
    /// How the learning rate goes.
    pub schedule: ScheduleSettings,
    /// How a model that was trained before is taken up.
    pub finetune: FinetuneSettings,
    /// What is written, and when.
    pub output: OutputSettings,
    /// The model. `classes` is taken from the data.
    pub model: VitConfig,
}

/// Length, batch, precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainSettings {
    /// Decides everything random: initial values, order, augmentation, dropout.
    pub seed: u64,
    /// How often all images are seen.
    pub epochs: u64,
    /// Images that go through the model at once.
    pub batch: usize,
    /// Batches whose gradients are added before an update.
    pub accumulate: usize,
    /// "f32", or "bf16" for products (weights stay f32).
    pub precision: PrecisionChoice,
    /// Compute the insides of layers again in the backward pass: less memory, a third more time.
    pub recompute: bool,
    /// Decay of an average of the parameters, which is then tested and saved; 0 for none.
    pub ema: f64,
    /// Whether the average starts with a small decay: at most (1 + step) / (10 + step).
    pub ema_warmup: bool,
    /// How initial values are drawn.
    pub init: InitChoice,
}

choice! {
    /// What products are computed in.
    PrecisionChoice {
        /// 32-bit floats.
        F32,
        /// 16-bit brain floats, sums in f32.
        Bf16,
    }
}

choice! {
    /// How initial values are drawn.
    InitChoice {
        /// Matrices uniform by Xavier's rule, biases zero.
        Xavier,
        /// Normal with a deviation of 0.02, cut off at two; as timm's Vision Transformers.
        TruncatedNormal,
        /// As PyTorch's layers start.
        Pytorch,
        /// As the original Vision Transformers in JAX start.
        Jax,
    }
}

/// What is learned from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings {
    /// "builtin", or a path.
    pub path: String,
    /// The share of the training images that is drawn for validation where the data has no validation part.
    pub validation_share: f64,
    /// How these images are drawn: "stratified" by class, or "by_name". The latter is left out where it is written: a run whose recipe does
    /// not have the key was made when there was no other rule ([`AnyRecipe::read_run`]).
    #[serde(skip_serializing_if = "is_by_name")]
    pub validation_rule: ValidationRule,
    /// Which labels, where the data has several sorts: "coarse" of CIFAR-100, a column of a table; "" for the usual ones.
    pub labels: String,
    /// Threads that prepare images; 0 for as many as there are cores.
    pub threads: usize,
    /// The most memory, in MiB, for images that are kept decoded.
    pub keep_mib: u64,
}

/// How images are prepared for testing; learning adds augmentation to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreprocessSettings {
    /// How an image comes to the model's size.
    pub fit: Fit,
    /// For "crop": the share of the shorter side that the model sees.
    pub crop_share: f64,
    /// The filter that images are resized by.
    pub interpolation: Filter,
    /// What is subtracted from each channel, 0 to 1.
    pub mean: Vec<f32>,
    /// What each channel is divided by.
    pub std: Vec<f32>,
}

choice! {
    /// How an image comes to the model's size.
    Fit {
        /// Resized until the shorter side fits, the middle cut out.
        Crop,
        /// Resized to the model's size, whatever its form.
        Stretch,
        /// Not resized: the middle, with black around where it is too small.
        Pad,
    }
}

choice! {
    /// A filter to resize by.
    Filter {
        /// The mean of neighbours by distance.
        Bilinear,
        /// Cubic pieces.
        Bicubic,
    }
}

/// What is made small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossSettings {
    /// "cross_entropy" for one class an image, "binary_cross_entropy" for several; "auto" as the data is.
    pub kind: LossKind,
    /// The share of a target that is spread over all classes.
    pub label_smoothing: f32,
}

choice! {
    /// What is made small.
    LossKind {
        /// As the data is.
        Auto,
        /// One class an image.
        CrossEntropy,
        /// Each class is a question of its own.
        BinaryCrossEntropy,
    }
}

/// By which rule parameters move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerSettings {
    /// "adamw", "sgd" or "lamb".
    pub name: OptimizerName,
    /// The learning rate after warm-up.
    pub lr: f64,
    /// Decay of the two moments (AdamW and LAMB).
    pub betas: [f64; 2],
    /// Added to the root of the second moment (AdamW and LAMB).
    pub eps: f64,
    /// Momentum (SGD).
    pub momentum: f64,
    /// Nesterov's variant (SGD).
    pub nesterov: bool,
    /// Weight decay.
    pub weight_decay: f64,
    /// Whether biases, norms, tokens and positions decay, too.
    pub decay_all: bool,
    /// The longest that the gradient of all parameters together may be; 0 for no limit.
    pub clip: f64,
    /// What the rate of each layer is multiplied by for each layer above it; 1 for the same rate everywhere.
    pub layer_decay: f64,
}

choice! {
    /// A rule that moves parameters.
    OptimizerName {
        /// Adam with decoupled weight decay.
        Adamw,
        /// Gradient descent with momentum.
        Sgd,
        /// Adam with a rate for each layer by its norm, for large batches.
        Lamb,
    }
}

/// How the learning rate goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleSettings {
    /// "cosine", "linear", "constant" or "inverse_sqrt", after the warm-up.
    pub kind: ScheduleKind,
    /// Epochs in which the rate rises.
    pub warmup_epochs: f64,
    /// Steps in which the rate rises, if not 0: in place of epochs.
    pub warmup_steps: u64,
    /// Where the rate of "cosine" and "linear" ends.
    pub final_lr: f64,
}

choice! {
    /// How the learning rate goes after the warm-up.
    ScheduleKind {
        /// Half a cosine down to the final rate.
        Cosine,
        /// A line down to the final rate.
        Linear,
        /// As it is.
        Constant,
        /// One over the root of the step.
        InverseSqrt,
    }
}

/// How a model that was trained before is taken up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FinetuneSettings {
    /// The model to start from: a directory or a file; "" to start from nothing. It replaces what `model` says, but for image
    /// size and dropout.
    pub init: String,
    /// Whether to use the preprocessing that this model comes with, at the recipe's image size, in place of `preprocess`.
    pub own_preprocess: bool,
    /// Whether only the head learns.
    pub freeze: bool,
    /// Rank of LoRA on the projections of attention, the rest frozen; 0 for none.
    pub lora_rank: usize,
    /// LoRA's scale is this over the rank.
    pub lora_alpha: f64,
    /// What the learning rate of the head is multiplied by.
    pub head_lr: f64,
    /// What the learning rate of everything but the head is multiplied by.
    pub backbone_lr: f64,
}

/// What is written, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutputSettings {
    /// Steps between lines of metrics.
    pub log_steps: u64,
    /// Epochs between evaluations. The last epoch is always evaluated.
    pub eval_epochs: u64,
    /// Steps between checkpoints besides those after each epoch; 0 for none.
    pub checkpoint_steps: u64,
    /// Minutes after which a checkpoint is due besides; 0 for none.
    pub checkpoint_minutes: f64,
    /// How many checkpoints are kept.
    pub keep: usize,
}

impl Default for TrainSettings {
    fn default() -> Self {
        TrainSettings {
            seed: 1,
            epochs: 100,
            batch: 128,
            accumulate: 1,
            precision: PrecisionChoice::F32,
            recompute: false,
            ema: 0.0,
            ema_warmup: true,
            init: InitChoice::TruncatedNormal,
        }
    }
}

impl Default for DataSettings {
    fn default() -> Self {
        let (path, labels) = ("builtin".to_string(), String::new());
        let validation_rule = ValidationRule::Stratified;
        DataSettings { path, validation_share: 0.1, validation_rule, labels, threads: 0, keep_mib: 1024 }
    }
}

fn is_by_name(rule: &ValidationRule) -> bool {
    *rule == ValidationRule::ByName
}

impl Default for PreprocessSettings {
    fn default() -> Self {
        let half = vec![0.5; 3];
        let (mean, std) = (half.clone(), half);
        PreprocessSettings { fit: Fit::Crop, crop_share: 0.875, interpolation: Filter::Bicubic, mean, std }
    }
}

impl Default for LossSettings {
    fn default() -> Self {
        LossSettings { kind: LossKind::Auto, label_smoothing: 0.0 }
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

impl Default for FinetuneSettings {
    fn default() -> Self {
        FinetuneSettings {
            init: String::new(),
            own_preprocess: true,
            freeze: false,
            lora_rank: 0,
            lora_alpha: 16.0,
            head_lr: 1.0,
            backbone_lr: 1.0,
        }
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

impl PreprocessSettings {
    /// What is done with an image before a model of this input sees it.
    pub fn preprocess(&self, [height, width]: [usize; 2], channels: Channels) -> Preprocess {
        let size = [height, width];
        let middle = Crop { size, placement: Placement::HuggingFace, fill: vec![0; channels.count()] };
        let (resize, crop) = match self.fit {
            // The longer side, so that an oblong input is covered: `transformers` has no closer way of saying it.
            Fit::Crop => {
                let side = height.max(width);
                let covered = ((side as f64 / self.crop_share).floor() as usize).max(side);
                (Resize::ShorterSide(covered), Some(middle))
            }
            Fit::Stretch => (Resize::Exact(size), None),
            Fit::Pad => (Resize::None, Some(middle)),
        };
        let interpolation = match self.interpolation {
            Filter::Bilinear => Interpolation::Bilinear,
            Filter::Bicubic => Interpolation::Bicubic,
        };
        let rgb = Preprocess {
            resize,
            interpolation,
            crop,
            rescale_factor: 1.0 / 255.0,
            rescale_offset: 0.0,
            mean: self.mean.clone(),
            std: self.std.clone(),
            channels: Channels::from_count(self.mean.len()).unwrap_or(channels),
        };
        rgb.with_channels(channels)
    }
}

impl Layered for Recipe {
    fn specimen() -> Self {
        let model = VitConfig { layer_scale: Some(1.0), pre_logits: Some(1), ..VitConfig::default() };
        Recipe { model, ..Recipe::default() }
    }

    fn preset(name: &str) -> Option<toml::Table> {
        preset(name).map(|config| layers::to_table(&config))
    }

    fn preset_names() -> Vec<String> {
        presets::names()
    }

    fn check(&self) -> Result<(), RecipeError> {
        rules::check_images(self)
    }
}

impl Recipe {
    /// Reads a recipe file (its name and text) with overrides.
    pub fn read(origin: &str, text: &str, overrides: &[String]) -> Result<Recipe, RecipeError> {
        layers::read(origin, text, overrides)
    }

    /// Refuses values that make no sense.
    pub fn check(&self) -> Result<(), RecipeError> {
        rules::check_images(self)
    }

    /// The whole recipe as TOML, with every key.
    pub fn to_toml(&self) -> String {
        layers::to_toml(self)
    }
}
