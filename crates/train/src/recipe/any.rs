//! Recipes of any kind.

use std::collections::BTreeMap;

use vitreous_data::dataset::ValidationRule;

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

    /// Reads the recipe that a run directory holds. Runs that do not say how their validation split was drawn are of version 0.1, which
    /// drew it by name.
    pub fn read_run(origin: &str, text: &str) -> Result<AnyRecipe, RecipeError> {
        let mut recipe = AnyRecipe::read(origin, text, &[])?;
        if let AnyRecipe::Images(recipe) = &mut recipe
            && !layers::written_keys(text).contains("data.validation_rule")
        {
            recipe.data.validation_rule = ValidationRule::ByName;
        }
        Ok(recipe)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(recipe: AnyRecipe) -> ValidationRule {
        let AnyRecipe::Images(recipe) = recipe else { panic!("a recipe for images") };
        recipe.data.validation_rule
    }

    #[test]
    fn a_run_keeps_the_rule_that_drew_its_validation_split() {
        let new = AnyRecipe::read("new", "", &[]).expect("a recipe");
        assert_eq!(rule(new.clone()), ValidationRule::Stratified);
        assert_eq!(rule(AnyRecipe::read_run("run", &new.to_toml()).expect("a recipe")), ValidationRule::Stratified);
        let by_name = AnyRecipe::read("new", "", &["data.validation_rule=by_name".to_string()]).expect("a recipe");
        assert_eq!(rule(AnyRecipe::read_run("run", &by_name.to_toml()).expect("a recipe")), ValidationRule::ByName);
        // As version 0.1 wrote it: nothing is missing, and nothing differs from what it was.
        let old = AnyRecipe::read_run("run", &by_name.to_toml()).expect("a recipe");
        assert!(!old.to_toml().contains("validation_rule") && old.differences(&by_name).is_empty());
    }
}
