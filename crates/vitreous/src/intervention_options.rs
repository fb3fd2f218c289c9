//! `--without`, `--scale` and `--clamp`: values inside a model that are edited while it runs.

use anyhow::{Result, anyhow, bail};
use clap::Args;
use vitreous_engine::{Edit, Intervention};
use vitreous_runtime::Intervene;

use crate::failure::Failure;

/// Edits of values inside a model.
#[derive(Args, Clone, Debug, Default)]
pub struct InterventionOptions {
    /// Run without a part of the model: PATH is a head (`blocks.3.attention.heads.5`), an MLP (`blocks.3.mlp`) or any other value, which is set to 0; `PATH@3,5-7` is for these tokens alone; may be repeated
    #[arg(long, value_name = "PATH")]
    without: Vec<String>,
    /// Multiply a value inside the model by a number, as in `blocks.3.mlp=0.5`; may be repeated
    #[arg(long, value_name = "PATH=FACTOR")]
    scale: Vec<String>,
    /// Limit the numbers of a value inside the model, as in `blocks.3=-4,4`; may be repeated
    #[arg(long, value_name = "PATH=LOW,HIGH")]
    clamp: Vec<String>,
}

impl InterventionOptions {
    /// The edits, in the order of the options.
    pub fn list(&self) -> Result<Vec<Intervention>, Failure> {
        let without = self.without.iter().map(|path| edit_at("--without", path, Edit::Zero));
        let scale = self.scale.iter().map(|text| {
            let (path, factor) = split("--scale", text, "a factor")?;
            edit_at("--scale", path, Edit::Scale(number("--scale", factor)?))
        });
        let clamp = self.clamp.iter().map(|text| {
            let (path, limits) = split("--clamp", text, "two numbers")?;
            let Some((low, high)) = limits.split_once(',') else {
                bail!("--clamp {text}: give the least and the greatest number, as in {path}=-4,4");
            };
            edit_at("--clamp", path, Edit::Clamp { low: number("--clamp", low)?, high: number("--clamp", high)? })
        });
        without.chain(scale).chain(clamp).collect::<Result<_>>().map_err(Failure::Input)
    }

    /// The model with these edits.
    pub fn apply<M: Intervene>(&self, model: M) -> Result<M, Failure> {
        Ok(model.with_interventions(self.list()?)?)
    }

    /// What is edited, for pages and JSON: `without blocks.3.mlp`.
    pub fn described(&self) -> Vec<String> {
        let named = |name: &'static str, list: &[String]| -> Vec<String> {
            list.iter().map(|text| format!("{name} {text}")).collect()
        };
        [named("without", &self.without), named("scale", &self.scale), named("clamp", &self.clamp)].concat()
    }
}

fn split<'t>(option: &str, text: &'t str, what: &str) -> Result<(&'t str, &'t str)> {
    text.split_once('=').ok_or_else(|| anyhow!("{option} {text}: give a path and {what}, as in blocks.3.mlp=0.5"))
}

fn number(option: &str, text: &str) -> Result<f32> {
    let number: Option<f32> = text.trim().parse().ok().filter(|number: &f32| number.is_finite());
    number.ok_or_else(|| anyhow!("{option}: `{text}` is no number"))
}

fn edit_at(option: &str, text: &str, edit: Edit) -> Result<Intervention> {
    let (path, tokens) = path_and_tokens(option, text)?;
    Ok(Intervention { path, edit, tokens })
}

/// `PATH`, or `PATH@0,3-5` for some tokens.
pub fn path_and_tokens(option: &str, text: &str) -> Result<(String, Option<Vec<usize>>)> {
    let Some((path, list)) = text.split_once('@') else { return Ok((text.to_string(), None)) };
    let mut tokens = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last - first < 1 << 16 => tokens.extend(first..=last),
            _ => bail!("{option} {text}: `{part}` is no token; count tokens from 0, as in {path}@0,3-5"),
        }
    }
    Ok((path.to_string(), Some(tokens)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_edits() {
        let options = InterventionOptions {
            without: vec!["blocks.3.mlp".to_string(), "blocks.1@0,2-3".to_string()],
            scale: vec!["blocks.0=0.5".to_string()],
            clamp: vec!["norm=-1,2".to_string()],
        };
        let list = options.list().expect("edits");
        assert_eq!(list[0], Intervention::new("blocks.3.mlp", Edit::Zero));
        assert_eq!(list[1], Intervention::new("blocks.1", Edit::Zero).at(vec![0, 2, 3]));
        assert_eq!(list[2], Intervention::new("blocks.0", Edit::Scale(0.5)));
        assert_eq!(list[3], Intervention::new("norm", Edit::Clamp { low: -1.0, high: 2.0 }));
        for wrong in ["blocks.0", "blocks.0=x", "blocks.0=inf", "blocks.0@x=1"] {
            let options = InterventionOptions { scale: vec![wrong.to_string()], ..InterventionOptions::default() };
            assert!(options.list().is_err(), "{wrong}");
        }
    }
}
