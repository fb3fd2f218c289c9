//! A configuration from nothing but the shapes of tensors, for files that come without one.
//!
//! Shapes tell nearly everything. They do not tell the number of heads, which is taken from the usual width of one; the
//! epsilon of norms; the activation; or whether the image was square, which it is taken to be unless one
//! is named whose grid fits.

use crate::config::{FeedForward, FinalNorm, Pooling, PositionScope, Positions, Qkv, Size, VitConfig};

use super::json::Fault;
use super::table::Inventory;
use super::torch::{QkvNames, SwiGluNames, Torch};

/// What shapes do not tell, where it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Number of heads.
    pub heads: Option<usize>,
    /// Height and width of images.
    pub image: Option<Size>,
    /// Which tokens have a position.
    pub scope: Option<PositionScope>,
}

/// The usual number of heads for a width: those of the published sizes, and otherwise heads of 64.
pub fn usual_heads(dim: usize) -> usize {
    match dim {
        1152 | 1280 | 1408 | 1664 => 16,
        _ => (dim / 64).max(1),
    }
}

/// The configuration of a model in a dialect of PyTorch.
pub fn infer(dialect: &Torch, inventory: &Inventory, hints: Hints) -> Result<VitConfig, Fault> {
    let names = &dialect.names;
    let shape = |name: &str| inventory.get(name).map(Vec::as_slice);
    let has = |name: &str| inventory.contains_key(&dialect.name(name));
    let has_layer = |name: &str| inventory.contains_key(&dialect.layer_name(0, name));

    let patch_name = dialect.name(&format!("{}.weight", names.patch));
    let Some(&[dim, channels, height, width]) = shape(&patch_name) else {
        let got = shape(&patch_name).unwrap_or_default();
        return Err(Fault::of(patch_name, format!("should be [dim, channels, height, width], not {got:?}")));
    };
    let (feed_forward, mlp_dim) = feed_forward(dialect, inventory)?;
    let registers = match shape(&dialect.name(names.registers)) {
        Some(&[1, count, _]) | Some(&[count, _]) => count,
        Some(got) => {
            return Err(Fault::of(dialect.name(names.registers), format!("should be [1, count, dim], not {got:?}")));
        }
        None => 0,
    };
    let qkv = match names.qkv {
        QkvNames::Fused(name) | QkvNames::Separate([name, ..]) | QkvNames::Either(name, _) => name,
    };
    let final_norm = if names.pooled_norm != names.norm && has(&format!("{}.weight", names.pooled_norm)) {
        FinalNorm::Pooled
    } else if has(&format!("{}.weight", names.norm)) {
        FinalNorm::Tokens
    } else {
        FinalNorm::None
    };
    let class_token = has(names.class);
    let mut config = VitConfig {
        patch: Size { height, width },
        channels,
        dim,
        depth: depth(dialect, inventory)?,
        heads: hints.heads.unwrap_or_else(|| usual_heads(dim)),
        mlp_dim,
        feed_forward,
        class_token,
        distillation_token: has(names.distillation),
        registers,
        // timm pools patches when it norms what it pooled.
        pooling: if final_norm == FinalNorm::Pooled || !class_token { Pooling::Mean } else { Pooling::Class },
        final_norm,
        qkv: Qkv::Fused,
        qkv_bias: has_layer(&format!("{qkv}.bias")),
        layer_scale: has_layer(names.scale1).then_some(1e-5),
        ..VitConfig::default()
    };
    heads_and_logits(dialect, inventory, &mut config);
    place(dialect, inventory, hints, &mut config)?;
    Ok(config)
}

fn depth(dialect: &Torch, inventory: &Inventory) -> Result<usize, Fault> {
    let start = dialect.name(dialect.names.block);
    let numbers =
        inventory.keys().filter_map(|name| name.strip_prefix(&start)?.split_once('.')?.0.parse::<usize>().ok());
    let depth = numbers.max().map_or(0, |last| last.saturating_add(1));
    match depth {
        0 => Err(Fault::whole(format!("there are no layers: no tensor's name begins with `{start}0.`"))),
        // A layer is more than one tensor, so that this bounds what the table of a hostile file can take.
        depth if depth > inventory.len() => Err(Fault::whole(format!(
            "layers are numbered up to {}, but there are only {} tensors",
            depth - 1,
            inventory.len()
        ))),
        depth => Ok(depth),
    }
}

fn feed_forward(dialect: &Torch, inventory: &Inventory) -> Result<(FeedForward, usize), Fault> {
    let shape = |name: &str| inventory.get(&dialect.layer_name(0, &format!("{name}.weight"))).map(Vec::as_slice);
    let [fc1, fc2] = dialect.names.mlp;
    let (first, last) = match dialect.names.swiglu {
        SwiGluNames::Packed(names) => (names[0], names[1]),
        SwiGluNames::Separate([gate, _, down]) => (gate, down),
    };
    let packed = matches!(dialect.names.swiglu, SwiGluNames::Packed(_));
    match (shape(first), shape(last), shape(fc1), shape(fc2)) {
        // Twice as wide going in as coming out: a gate and what it gates.
        (Some(&[rows, _]), Some(&[_, columns]), ..) if packed && rows == columns.saturating_mul(2) => {
            Ok((FeedForward::SwiGlu, columns))
        }
        (Some(&[rows, _]), Some(_), ..) if !packed => Ok((FeedForward::SwiGlu, rows)),
        (_, _, Some(&[rows, _]), Some(_)) => Ok((FeedForward::Mlp, rows)),
        _ => Err(Fault::of(dialect.layer_name(0, &format!("{fc1}.weight")), "is missing, or not of two axes")),
    }
}

fn heads_and_logits(dialect: &Torch, inventory: &Inventory, config: &mut VitConfig) {
    let names = &dialect.names;
    let rows = |name: &str| inventory.get(&format!("{name}.weight")).and_then(|shape| shape.first().copied());
    config.distillation_head = config.distillation_token && rows(&dialect.head_name(names.distillation_head)).is_some();
    let head = dialect.head_name(names.head[usize::from(config.distillation_head)]);
    config.classes = rows(&head).unwrap_or(0);
    config.distillation_head &= config.classes > 0;
    let pre_logits = rows(&dialect.name(names.pre_logits));
    config.pre_logits = pre_logits.filter(|_| !names.spare_pre_logits || config.classes == 0);
    let columns = inventory.get(&format!("{head}.weight")).and_then(|shape| shape.get(1).copied());
    if config.pre_logits.is_none() && config.class_token && columns == Some(config.dim.saturating_mul(2)) {
        config.pooling = Pooling::ClassAndMean;
    }
}

/// The image, and which tokens have a position, from the number of positions.
fn place(dialect: &Torch, inventory: &Inventory, hints: Hints, config: &mut VitConfig) -> Result<(), Fault> {
    let name = dialect.name(dialect.names.positions);
    let known = hints.image;
    if let Some(image) = known {
        config.image = image;
    }
    let rows = match inventory.get(&name).map(Vec::as_slice) {
        Some(&[1, rows, _]) | Some(&[rows, _]) => rows,
        Some(got) => return Err(Fault::of(name, format!("should be [1, positions, dim], not {got:?}"))),
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
        // Where there are no registers, two scopes are one.
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
        "{rows} positions {is}, with or without its {prefix} other tokens: the file does not tell the image's sides; a config.json or --image HxW must say them"
    );
    Err(Fault::of(name, what))
}

/// The image of a square grid.
pub fn square(patches: usize, patch: Size) -> Option<Size> {
    let side = patches.isqrt();
    (side * side == patches)
        .then(|| Size { height: side.saturating_mul(patch.height), width: side.saturating_mul(patch.width) })
}
