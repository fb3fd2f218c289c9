//! What a MODEL argument names: a directory, a checkpoint file, or a preset.

use std::path::Path;

use anyhow::anyhow;
use vitreous_models::{Size, VitConfig, preset, presets};

use crate::failure::Failure;

/// The configuration of a model on disk or of a preset, at another image size if one is given.
pub fn configuration(model: &str, image: Option<Size>) -> Result<VitConfig, Failure> {
    let mut config = match preset(model) {
        Some(config) if !Path::new(model).exists() => config,
        _ => return Err(unknown(model)),
    };
    if let Some(image) = image {
        config.image = image;
    }
    config.check().map_err(Failure::input)?;
    Ok(config)
}

/// Neither a path nor a preset.
fn unknown(model: &str) -> Failure {
    let names = presets::names();
    let close = names.iter().min_by_key(|name| distance(name, model)).filter(|name| distance(name, model) <= 4);
    let hint = match close {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("presets are, for example, {}", names[..4].join(", ")),
    };
    Failure::input(anyhow!("`{model}` is neither a file or directory nor a preset; {hint}"))
}

/// How many letters must be changed, left out or put in to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (above + 1).min(row[j] + 1).min(corner + usize::from(letter != *other));
            corner = above;
        }
    }
    row[b.len()]
}

/// As many threads as the machine has cores.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
