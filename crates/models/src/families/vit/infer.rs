//! Infers a configuration from the shapes of tensors, for files without one.
//!
//! Shapes determine almost everything, except the number of heads, which is taken from the usual width of one; the
//! epsilon of norms; the activation; and whether the image was square, which is assumed unless the given image size
//! fits the grid.

use super::config::{FeedForward, FinalNorm, Pooling, PositionScope, Positions, Qkv, VitConfig};
use super::read::TorchNames;
use crate::checkpoint::Inventory;
use crate::checkpoint::json::Fault;
use crate::settings::Size;

/// Properties that shapes do not determine, if known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Number of heads.
    pub heads: Option<usize>,
    /// Height and width of images.
    pub image: Option<Size>,
    /// Which tokens have a position.
    pub scope: Option<PositionScope>,
}

/// The usual number of heads for a width: those of the published sizes, and otherwise heads of width 64.
pub fn usual_heads(dim: usize) -> usize {
    match dim {
        1152 | 1280 | 1408 | 1664 => 16,
        _ => (dim / 64).max(1),
    }
}

/// The tensors of a file by our names.
struct Shapes<'a> {
    names: &'a TorchNames,
    tensors: &'a Inventory,
}

impl<'a> Shapes<'a> {
    fn of(&self, ours: &str) -> Option<&'a [usize]> {
        self.names.lookup.shape_of(ours, self.tensors)
    }

    fn has(&self, ours: &str) -> bool {
        self.of(ours).is_some()
    }

    fn rows(&self, ours: &str) -> Option<usize> {
        self.of(ours).and_then(|shape| shape.first().copied())
    }

    /// The error for a tensor that is missing or has another shape.
    fn wrong(&self, ours: &str, form: &str) -> Fault {
        let name = self.names.lookup.name_of(ours, self.tensors).unwrap_or_else(|| ours.to_string());
        match self.of(ours) {
            Some(got) => Fault::of(name, format!("should be {form}, not {got:?}")),
            None => Fault::of(name, format!("is missing; it should be {form}")),
        }
    }
}

/// The configuration of a model in a PyTorch dialect.
pub fn infer(names: &TorchNames, tensors: &Inventory, hints: Hints) -> Result<VitConfig, Fault> {
    let shapes = Shapes { names, tensors };
    let Some(&[dim, channels, height, width]) = shapes.of("patch_embedding.weight") else {
        return Err(shapes.wrong("patch_embedding.weight", "[dim, channels, height, width]"));
    };
    let (feed_forward, mlp_dim) = feed_forward(&shapes)?;
    let registers = match shapes.of("register_tokens") {
        Some(&[1, count, _] | &[count, _]) => count,
        Some(_) => return Err(shapes.wrong("register_tokens", "[1, count, dim]")),
        None => 0,
    };
    // timm has a separate name for the norm after pooling.
    let final_norm = match (tensors.contains_key(&names.name("fc_norm.weight")), shapes.has("norm.weight")) {
        (true, _) => FinalNorm::Pooled,
        (false, true) => FinalNorm::Tokens,
        (false, false) => FinalNorm::None,
    };
    let class_token = shapes.has("class_token");
    let mut config = VitConfig {
        patch: Size { height, width },
        channels,
        dim,
        depth: depth(names, tensors)?,
        heads: hints.heads.unwrap_or_else(|| usual_heads(dim)),
        mlp_dim,
        feed_forward,
        class_token,
        distillation_token: shapes.has("distillation_token"),
        registers,
        pooling: if final_norm == FinalNorm::Pooled || !class_token { Pooling::Mean } else { Pooling::Class },
        final_norm,
        qkv: Qkv::Fused,
        qkv_bias: shapes.has("blocks.0.attention.query.bias"),
        layer_scale: shapes.has("blocks.0.layer_scale1").then_some(1e-5),
        ..VitConfig::default()
    };
    heads_and_logits(&shapes, &mut config);
    positions(&shapes, hints, &mut config)?;
    Ok(config)
}

fn depth(names: &TorchNames, tensors: &Inventory) -> Result<usize, Fault> {
    let starts: Vec<String> = names.layers().iter().map(|layers| names.name(layers)).collect();
    let number = |name: &String| {
        let rest = starts.iter().find_map(|start| name.strip_prefix(start))?;
        rest.split_once('.')?.0.parse::<usize>().ok()
    };
    match tensors.keys().filter_map(number).max().map_or(0, |last| last.saturating_add(1)) {
        0 => Err(Fault::whole(format!("there are no layers: no tensor's name begins with `{}0.`", starts[0]))),
        // A layer has more than one tensor, so this bounds what a hostile file can make us build.
        depth if depth > tensors.len() => Err(Fault::whole(format!(
            "layers are numbered up to {}, but there are only {} tensors",
            depth - 1,
            tensors.len()
        ))),
        depth => Ok(depth),
    }
}

fn feed_forward(shapes: &Shapes) -> Result<(FeedForward, usize), Fault> {
    let of = |part: &str| shapes.of(&format!("blocks.0.mlp.{part}.weight"));
    let packed = shapes.names.lookup.joins("blocks.0.mlp.gate.weight", shapes.tensors) > 1;
    match (of("gate"), of("down"), of("fc1"), of("fc2")) {
        // The first matrix is twice as wide as the second: a gate and the gated values.
        (Some(&[rows, _]), Some(&[_, columns]), ..) if packed && rows == columns.saturating_mul(2) => {
            Ok((FeedForward::SwiGlu, columns))
        }
        (Some(&[rows, _]), Some(_), ..) if !packed => Ok((FeedForward::SwiGlu, rows)),
        (_, _, Some(&[rows, _]), Some(_)) => Ok((FeedForward::Mlp, rows)),
        _ => Err(shapes.wrong("blocks.0.mlp.fc1.weight", "[mlp_dim, dim], with a second layer behind it")),
    }
}

fn heads_and_logits(shapes: &Shapes, config: &mut VitConfig) {
    config.distillation_head = config.distillation_token && shapes.has("distillation_head.weight");
    config.classes = shapes.rows("head.weight").unwrap_or(0);
    config.distillation_head &= config.classes > 0;
    // Hugging Face's classifiers may contain this layer, unused.
    let used = !shapes.names.is_hugging_face() || config.classes == 0;
    config.pre_logits = shapes.rows("pre_logits.weight").filter(|_| used);
    let columns = shapes.of("head.weight").and_then(|shape| shape.get(1).copied());
    if config.pre_logits.is_none() && config.class_token && columns == Some(config.dim.saturating_mul(2)) {
        config.pooling = Pooling::ClassAndMean;
    }
}

/// The image size, and which tokens have a position, from the number of positions.
fn positions(shapes: &Shapes, hints: Hints, config: &mut VitConfig) -> Result<(), Fault> {
    let name = shapes.names.lookup.name_of("positions", shapes.tensors).unwrap_or_default();
    let known = hints.image;
    if let Some(image) = known {
        config.image = image;
    }
    let rows = match shapes.of("positions") {
        Some(&[1, rows, _] | &[rows, _]) => rows,
        Some(_) => return Err(shapes.wrong("positions", "[1, positions, dim]")),
        None if known.is_some() => {
            config.positions = Positions::None;
            return Ok(());
        }
        None => {
            return Err(Fault::of(name, "is missing, and nothing else tells the size of images: --image HxW can"));
        }
    };
    let scopes = [PositionScope::All, PositionScope::Class, PositionScope::Patches];
    let mut readings: Vec<(PositionScope, usize)> = Vec::new();
    for scope in scopes.into_iter().filter(|scope| hints.scope.is_none_or(|hint| hint == *scope)) {
        config.position_scope = scope;
        let patches = rows.checked_sub(config.positioned_prefix()).filter(|patches| *patches > 0);
        // Without registers, two scopes coincide.
        if let Some(patches) = patches.filter(|patches| readings.iter().all(|(_, known)| known != patches)) {
            readings.push((scope, patches));
        }
    }
    if let Some((scope, _)) = readings.iter().find(|(_, patches)| known.is_some() && config.patches() == *patches) {
        config.position_scope = *scope;
        return Ok(());
    }
    let squares: Vec<_> = readings.iter().filter_map(|&(scope, n)| Some((scope, square(n, config.patch)?))).collect();
    if let [(scope, image)] = squares[..] {
        (config.position_scope, config.image) = (scope, image);
        return Ok(());
    }
    let prefix = config.prefix_tokens();
    let is = match (squares.as_slice(), known) {
        ([], Some(image)) => format!("are neither a square grid nor that of {image} images"),
        ([], None) => "are no square grid".to_string(),
        (several, _) => {
            let images: Vec<String> = several.iter().map(|(_, image)| image.to_string()).collect();
            format!("are those of {} images", images.join(" or of "))
        }
    };
    let what = format!(
        "{rows} positions {is}, with or without its {prefix} other tokens: the file does not tell the image's size; \
         a config.json or --image HxW must"
    );
    Err(Fault::of(name, what))
}

/// The image size of a square grid.
pub fn square(patches: usize, patch: Size) -> Option<Size> {
    let side = patches.isqrt();
    (side * side == patches)
        .then(|| Size { height: side.saturating_mul(patch.height), width: side.saturating_mul(patch.width) })
}
