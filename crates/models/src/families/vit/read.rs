//! Reads checkpoints of Vision Transformers: identifies the library by the tensor names, and combines configuration and
//! shapes.

use super::config::{PositionScope, VitConfig};
use super::flax::Flax;
use super::hugging_face::{self, ModelType};
use super::infer::{Hints, infer};
use super::{names, timm};
use crate::checkpoint::json::Fault;
use crate::checkpoint::{Dialect, Inventory, prefix_of};
use crate::family::{Checkpoint, Reading};
use crate::settings::Size;

/// The library whose names a file uses.
enum Library {
    HuggingFace(ModelType, TorchNames),
    Timm(TorchNames),
    Google(Flax),
}

/// The tensor names of a file from a PyTorch library: their prefixes, and how to look them up.
pub(super) struct TorchNames {
    /// Prefix of all names: `module.`.
    pub prefix: String,
    /// Prefix of all names but the heads': `vit.`.
    pub backbone: String,
    /// The rules, for looking up names; their shapes are not this model's yet.
    pub lookup: Dialect,
    model_type: Option<ModelType>,
}

impl TorchNames {
    /// The full name of a tensor outside the heads.
    pub fn name(&self, name: &str) -> String {
        format!("{}{}{name}", self.prefix, self.backbone)
    }

    pub fn is_hugging_face(&self) -> bool {
        self.model_type.is_some()
    }

    /// Prefixes of layer names.
    pub fn layers(&self) -> &'static [&'static str] {
        if self.is_hugging_face() { &["encoder.layer.", "layers."] } else { &["blocks."] }
    }

    /// The rules for a model.
    fn dialect(&self, config: &VitConfig) -> Dialect {
        let dialect = match self.model_type {
            Some(model_type) => names::hugging_face(model_type, &self.backbone, config),
            None => names::timm(config),
        };
        dialect.with_prefix(&self.prefix)
    }

    fn new(model_type: Option<ModelType>, prefix: &str, backbone: &str) -> TorchNames {
        let (prefix, backbone) = (prefix.to_string(), backbone.to_string());
        let mut names = TorchNames { prefix, backbone, lookup: Dialect::default(), model_type };
        names.lookup = names.dialect(&VitConfig { pre_logits: Some(1), ..VitConfig::default() });
        names
    }
}

/// Reads a checkpoint; `None` if it is not a Vision Transformer.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let description = match (checkpoint.model_type()?, checkpoint.config) {
        // timm's models in Hugging Face's wrapper class.
        (Some("timm_wrapper"), Some(config)) => Some(Description::Timm(timm::read(&config)?)),
        (Some(name), Some(config)) => match ModelType::ALL.into_iter().find(|known| known.name() == name) {
            Some(model_type) => Some(Description::HuggingFace(hugging_face::read(model_type, &config)?)),
            None => return Ok(None),
        },
        (None, Some(config)) if config.get("architecture").is_some() => Some(Description::Timm(timm::read(&config)?)),
        (None, Some(_)) => return Ok(None),
        (_, None) => None,
    };
    let Some(tensors) = checkpoint.tensors else { return described(description).map(Some) };
    let Some(library) = Library::of(tensors) else { return Ok(None) };
    settle(library, description, tensors, checkpoint).map(Some)
}

/// The contents of a `config.json`.
enum Description {
    HuggingFace(hugging_face::Described),
    Timm(timm::Described),
}

impl Description {
    fn library(&self) -> &'static str {
        match self {
            Description::HuggingFace(_) => "Hugging Face",
            Description::Timm(_) => "timm",
        }
    }
}

/// The model from the configuration alone.
fn described(description: Option<Description>) -> Result<Reading, Fault> {
    let (config, labels) = match description {
        Some(Description::HuggingFace(described)) => (described.config, described.labels),
        Some(Description::Timm(described)) => (described.without_tensors()?, described.labels),
        None => return Err(Fault::whole("there is neither a configuration nor a file of weights")),
    };
    Ok(Reading { architecture: Box::new(config), dialect: Dialect::own(), labels, notes: Vec::new() })
}

impl Library {
    /// The library of a file with these tensors, if it is known.
    fn of(tensors: &Inventory) -> Option<Library> {
        let base_models = ModelType::ALL.map(ModelType::name);
        let anchor = "embeddings.patch_embeddings.projection.weight";
        if let Some(prefix) = prefix_of(tensors, anchor, &base_models) {
            let base = base_models.iter().map(|name| format!("{name}."));
            let backbone = base.filter(|base| prefix.ends_with(base)).max_by_key(String::len).unwrap_or_default();
            let prefix = &prefix[..prefix.len() - backbone.len()];
            let model_type = model_type_of(&format!("{prefix}{backbone}"), tensors);
            let names = TorchNames::new(Some(model_type), prefix, &backbone);
            return Some(Library::HuggingFace(model_type, names));
        }
        if let Some(prefix) = prefix_of(tensors, "patch_embed.proj.weight", &base_models) {
            return Some(Library::Timm(TorchNames::new(None, prefix, "")));
        }
        Flax::find(tensors).map(Library::Google)
    }

    fn name(&self) -> &'static str {
        match self {
            Library::HuggingFace(..) => "Hugging Face",
            Library::Timm(_) => "timm",
            Library::Google(_) => "Google",
        }
    }
}

/// The model type of a file with Hugging Face's names, from the tensors that only it has.
fn model_type_of(start: &str, tensors: &Inventory) -> ModelType {
    let has = |name: &str| tensors.contains_key(&format!("{start}{name}"));
    let layer_scale = has("encoder.layer.0.layer_scale1.lambda1") || has("layers.0.layer_scale1.lambda1");
    match (has("embeddings.register_tokens"), layer_scale, has("embeddings.distillation_token")) {
        (true, ..) => ModelType::Dinov2WithRegisters,
        (false, true, _) => ModelType::Dinov2,
        (false, false, true) => ModelType::Deit,
        (false, false, false) => ModelType::Vit,
    }
}

/// Combines configuration and tensors.
fn settle(
    library: Library,
    description: Option<Description>,
    tensors: &Inventory,
    checkpoint: &Checkpoint,
) -> Result<Reading, Fault> {
    let options = checkpoint.options;
    let (heads, image): (Option<usize>, Option<Size>) = (options.get("heads"), options.get("image"));
    let head_is_used = options.replace_head.is_none();
    let mut guessed_heads = false;
    let (mut config, labels, library) = match (description, library) {
        (Some(Description::HuggingFace(described)), Library::HuggingFace(_, names)) => {
            // The configuration takes precedence over the tensors, which may have nothing specific to the model type.
            let model_type = described.model_type;
            let names = TorchNames::new(Some(model_type), &names.prefix, &names.backbone);
            let settled = described.settle(&names.prefix, &names.backbone, tensors, head_is_used)?;
            (settled.config, settled.labels, Library::HuggingFace(model_type, names))
        }
        (Some(Description::Timm(described)), Library::Timm(names)) => {
            let config = described.settle(&names, tensors, head_is_used)?;
            guessed_heads = !described.tells_heads(&config);
            (config, described.labels, Library::Timm(names))
        }
        // These files have no configuration, but some directories contain one with class names.
        (Some(description), Library::Google(flax)) => {
            let config = flax.infer(tensors, heads)?;
            let mut labels = match description {
                Description::HuggingFace(described) => described.labels,
                Description::Timm(described) => described.labels,
            };
            labels.truncate(if labels.len() == config.classes { config.classes } else { 0 });
            (config, labels, Library::Google(flax))
        }
        (Some(description), library) => {
            let what = format!(
                "it is {}'s configuration, but the tensors beside it have {}'s names",
                description.library(),
                library.name()
            );
            return Err(Fault::whole(what));
        }
        (None, Library::HuggingFace(model_type, names)) => {
            guessed_heads = true;
            (inferred(model_type, &names, tensors, heads, image)?, Vec::new(), Library::HuggingFace(model_type, names))
        }
        (None, Library::Timm(names)) => {
            guessed_heads = true;
            let config = infer(&names, tensors, Hints { heads, image, scope: None })?;
            (config, Vec::new(), Library::Timm(names))
        }
        // Google's tensors have an axis of heads.
        (None, Library::Google(flax)) => (flax.infer(tensors, heads)?, Vec::new(), Library::Google(flax)),
    };
    if let Some(heads) = heads {
        config.heads = heads;
        guessed_heads = false;
    }
    let stacked = matches!(&library, Library::Google(flax) if flax.stacked);
    if !stacked {
        checkpoint.check_layers(config.depth)?;
    }
    let dialect = match &library {
        Library::HuggingFace(_, names) | Library::Timm(names) => names.dialect(&config),
        Library::Google(flax) => flax.dialect(&config),
    };
    let notes = guessed_heads.then(|| {
        format!(
            "the file does not tell the number of heads; {} is taken from its width; --heads (of `explain`: --head-count) \
             says otherwise",
            config.heads
        )
    });
    Ok(Reading { architecture: Box::new(config), dialect, labels, notes: notes.into_iter().collect() })
}

/// The configuration of a file with Hugging Face's names and no `config.json`.
fn inferred(
    model_type: ModelType,
    names: &TorchNames,
    tensors: &Inventory,
    heads: Option<usize>,
    image: Option<Size>,
) -> Result<VitConfig, Fault> {
    let scope = Some(match model_type {
        ModelType::Dinov2WithRegisters => PositionScope::Class,
        ModelType::Vit | ModelType::Deit | ModelType::Dinov2 => PositionScope::All,
    });
    let mut config = infer(names, tensors, Hints { heads, scope, image })?;
    if matches!(model_type, ModelType::Vit | ModelType::Deit) {
        config.norm_eps = 1e-12;
    }
    Ok(config)
}
