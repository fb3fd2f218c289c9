//! Recipes of any kind.

use std::collections::BTreeMap;

use super::layers;
use super::{Difference, Recipe, RecipeError, TranslationRecipe};

/// A recipe of any kind. A file says by `task = "translation"` that it is one for translators; otherwise it is for images.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyRecipe {
    /// For classes of images.
    Images(Box<Recipe>),
    /// For translations of sentences.
    Translation(Box<TranslationRecipe>),
}

impl AnyRecipe {
    /// Reads a recipe file (its name and text) with overrides.
    pub fn read(origin: &str, text: &str, overrides: &[String]) -> Result<AnyRecipe, RecipeError> {
        let translates = layers::parse(origin, text)?.contains_key("task");
        Ok(match translates {
            true => AnyRecipe::Translation(Box::new(TranslationRecipe::read(origin, text, overrides)?)),
            false => AnyRecipe::Images(Box::new(Recipe::read(origin, text, overrides)?)),
        })
    }

    /// The whole recipe as TOML, with every key.
    pub fn to_toml(&self) -> String {
        match self {
            AnyRecipe::Images(recipe) => recipe.to_toml(),
            AnyRecipe::Translation(recipe) => recipe.to_toml(),
        }
    }

    /// Every value by its whole key, as TOML writes it.
    pub fn values(&self) -> BTreeMap<String, String> {
        match self {
            AnyRecipe::Images(recipe) => layers::values(recipe),
            AnyRecipe::Translation(recipe) => layers::values(recipe),
        }
    }

    /// The keys in which another recipe differs from this one.
    pub fn differences(&self, other: &AnyRecipe) -> Vec<Difference> {
        layers::differences(&self.values(), &other.values())
    }

    /// How often everything is seen.
    pub fn epochs(&self) -> u64 {
        match self {
            AnyRecipe::Images(recipe) => recipe.train.epochs,
            AnyRecipe::Translation(recipe) => recipe.train.epochs,
        }
    }
}
