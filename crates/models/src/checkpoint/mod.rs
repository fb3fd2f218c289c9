//! Checkpoint dialects: how Hugging Face, timm, the original DINOv2 and Google name and lay out the tensors of the same models,
//! and how they describe them. Each is a table ([`table::Entry`]) that is used both ways.
//!
//! [`Dialect::find`] tells a file's dialect by the names of its tensors. [`Description::parse`] reads a `config.json` of any
//! of them.

pub mod flax;
pub mod hugging_face;
pub mod infer;
pub mod json;
pub mod resize;
pub mod table;
pub mod timm;
pub mod torch;

use serde_json::Value;

use crate::config::{PositionScope, Size, VitConfig};

use flax::Flax;
use hugging_face::Kind;
use infer::{Hints, infer};
use json::{Fault, Object};
use resize::Filter;
use table::{Entry, Inventory};
use torch::{OWN, TIMM, Torch};

pub use hugging_face::hugging_face_kind;

/// `model_type` of our own configurations, for models that no other library's classes can say.
pub const OWN_MODEL_TYPE: &str = "vitreous_vit";

/// Whose names a file uses.
#[derive(Clone, Debug, PartialEq)]
pub enum Dialect {
    /// Hugging Face's.
    HuggingFace(Kind, Torch),
    /// timm's, and the original DINOv2's, which are alike.
    Timm(Torch),
    /// Google's.
    Google(Flax),
    /// Our own.
    Own(Torch),
}

/// What training tools put before the names of a model's tensors. Where a file has several models, the one with the earlier
/// word is taken: the teacher rather than the student, the model rather than its average.
const WRAPPERS: [&str; 14] = [
    "model",
    "state_dict",
    "module",
    "_orig_mod",
    "timm_model",
    "net",
    "network",
    "teacher",
    "backbone",
    "encoder",
    "model_ema",
    "state_dict_ema",
    "ema",
    "student",
];

/// What stands before a name of the model, by the most telling tensor.
fn prefix<'a>(inventory: &'a Inventory, anchor: &str) -> Option<&'a str> {
    let known = |prefix: &&str| {
        let words = prefix.strip_suffix('.').map(|words| words.split('.'));
        prefix.is_empty() || words.is_some_and(|mut words| words.all(|word| rank(word).is_some()))
    };
    let prefixes = inventory.keys().filter_map(|name| name.strip_suffix(anchor)).filter(known);
    prefixes.min_by_key(|prefix| (prefix.split('.').filter_map(rank).max(), prefix.len()))
}

/// The place of a word among [`WRAPPERS`]; the families of Hugging Face come before all.
fn rank(word: &str) -> Option<usize> {
    let family = Kind::ALL.iter().any(|kind| kind.model_type() == word);
    if family { Some(0) } else { WRAPPERS.iter().position(|known| *known == word).map(|place| place + 1) }
}

impl Dialect {
    /// The dialect of a file with these tensors, if it is a known one.
    pub fn find(inventory: &Inventory) -> Option<Dialect> {
        let torch = |names: torch::Names| {
            let wrapper = prefix(inventory, &format!("{}.weight", names.patch))?.to_string();
            Some(Torch { names, wrapper, backbone: String::new() })
        };
        if let Some(mut found) = torch(torch::HUGGING_FACE_VIT) {
            let family = Kind::ALL.iter().map(|kind| format!("{}.", kind.model_type()));
            if let Some(family) =
                family.into_iter().filter(|family| found.wrapper.ends_with(family)).max_by_key(String::len)
            {
                found.wrapper.truncate(found.wrapper.len() - family.len());
                found.backbone = family;
            }
            let kind = family_of(&found, inventory);
            found.names = kind.names();
            return Some(Dialect::HuggingFace(kind, found.as_in(inventory)));
        }
        if let Some(found) = torch(TIMM) {
            return Some(Dialect::Timm(found.as_in(inventory)));
        }
        if let Some(found) = Flax::find(inventory) {
            return Some(Dialect::Google(found));
        }
        torch(OWN).map(Dialect::Own)
    }

    /// All tensors of a model in this dialect.
    pub fn tensors(&self, config: &VitConfig) -> Vec<Entry> {
        match self {
            Dialect::HuggingFace(_, torch) | Dialect::Timm(torch) | Dialect::Own(torch) => torch.tensors(config),
            Dialect::Google(flax) => flax.tensors(config),
        }
    }

    /// Whether a tensor that is not in the table is any of the model's business: what lies beside a wrapped model is not.
    pub fn concerns(&self, name: &str) -> bool {
        match self {
            Dialect::HuggingFace(_, torch) | Dialect::Timm(torch) | Dialect::Own(torch) => {
                name.starts_with(&torch.wrapper)
            }
            Dialect::Google(flax) => flax.concerns(name),
        }
    }

    /// Whose it is, for messages.
    pub fn whose(&self) -> &'static str {
        match self {
            Dialect::HuggingFace(..) => "Hugging Face's names",
            Dialect::Timm(_) => "timm's names",
            Dialect::Google(_) => "Google's names",
            Dialect::Own(_) => "our names",
        }
    }

    /// How the library of this dialect resizes positions.
    pub fn filter(&self) -> Filter {
        match self {
            Dialect::HuggingFace(kind, _) => kind.filter(),
            Dialect::Timm(_) => Filter::BicubicAntialiased,
            Dialect::Google(_) => Filter::Bilinear,
            Dialect::Own(_) => Filter::Bicubic,
        }
    }

    /// The configuration of a file that comes without one. An image whose grid the positions fit tells what grid they are of.
    pub fn infer(&self, inventory: &Inventory, heads: Option<usize>, image: Option<Size>) -> Result<VitConfig, Fault> {
        match self {
            Dialect::HuggingFace(kind, torch) => {
                let scope = Some(match kind {
                    Kind::Dinov2WithRegisters => PositionScope::Class,
                    Kind::Vit | Kind::Deit | Kind::Dinov2 => PositionScope::All,
                });
                let mut config = infer(torch, inventory, Hints { heads, scope, image })?;
                if matches!(kind, Kind::Vit | Kind::Deit) {
                    config.norm_eps = 1e-12;
                }
                Ok(config)
            }
            Dialect::Timm(torch) => infer(torch, inventory, Hints { heads, image, scope: None }),
            Dialect::Google(flax) => flax.infer(inventory, heads),
            Dialect::Own(_) => {
                Err(Fault::whole("tensors have our own names, which need the config.json that was written beside them"))
            }
        }
    }
}

/// The family of a file of Hugging Face's names, by what it has that others have not.
fn family_of(dialect: &Torch, inventory: &Inventory) -> Kind {
    let has = |name: &str| inventory.contains_key(&dialect.name(name));
    let layer_scale =
        ["encoder.layer.", "layers."].iter().any(|block| has(&format!("{block}0.{}", dialect.names.scale1)));
    match (has(dialect.names.registers), layer_scale, has(dialect.names.distillation)) {
        (true, ..) => Kind::Dinov2WithRegisters,
        (false, true, _) => Kind::Dinov2,
        (false, false, true) => Kind::Deit,
        (false, false, false) => Kind::Vit,
    }
}

/// What a `config.json` says.
#[derive(Clone, Debug)]
pub enum Description {
    /// One of Hugging Face's families.
    HuggingFace(hugging_face::Described),
    /// timm's.
    Timm(timm::Described),
    /// Our own: all of it, and names of the classes.
    Own(Box<VitConfig>, Vec<String>),
}

impl Description {
    /// Reads a configuration of any dialect.
    pub fn parse(bytes: &[u8]) -> Result<Description, Fault> {
        let value: Value =
            serde_json::from_slice(bytes).map_err(|error| Fault::whole(format!("this is not JSON: {error}")))?;
        let Value::Object(map) = &value else { return Err(Fault::whole("this is not a JSON object")) };
        let object = Object::new(map);
        let known = || {
            let families = Kind::ALL.map(Kind::model_type).join(", ");
            format!("{families}, {OWN_MODEL_TYPE}, and timm's `architecture` are known here")
        };
        match object.text("model_type")? {
            Some(OWN_MODEL_TYPE) => {
                let vit =
                    object.get("vit").ok_or_else(|| Fault::of("vit", "is missing: it holds the configuration"))?;
                let config =
                    serde_json::from_value(vit.clone()).map_err(|error| Fault::of("vit", error.to_string()))?;
                Ok(Description::Own(Box::new(config), object.labels("id2label")?.unwrap_or_default()))
            }
            // timm's models in a class of Hugging Face's.
            Some("timm_wrapper") => Ok(Description::Timm(timm::read(&object)?)),
            Some(name) => match Kind::ALL.into_iter().find(|kind| kind.model_type() == name) {
                Some(kind) => Ok(Description::HuggingFace(hugging_face::read(kind, &object)?)),
                None => Err(Fault::of("model_type", format!("{name:?} is not known; {}", known()))),
            },
            None if object.get("architecture").is_some() => Ok(Description::Timm(timm::read(&object)?)),
            None => Err(Fault::whole(format!("it has neither `model_type` nor `architecture`; {}", known()))),
        }
    }

    /// Names of the classes in order, where there are some.
    pub fn labels(&self) -> &[String] {
        match self {
            Description::HuggingFace(described) => &described.labels,
            Description::Timm(described) => &described.labels,
            Description::Own(_, labels) => labels,
        }
    }

    /// Whose it is, for messages.
    pub fn whose(&self) -> &'static str {
        match self {
            Description::HuggingFace(_) => "a configuration of Hugging Face's",
            Description::Timm(_) => "a configuration of timm's",
            Description::Own(..) => "a configuration of ours",
        }
    }

    /// The model as the configuration alone tells it. timm's does not: it needs the shapes of tensors.
    pub fn config(&self) -> Option<&VitConfig> {
        match self {
            Description::HuggingFace(described) => Some(&described.config),
            Description::Timm(_) => None,
            Description::Own(config, _) => Some(config),
        }
    }
}
