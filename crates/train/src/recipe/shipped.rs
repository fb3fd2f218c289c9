//! The recipes inside the binary.

use super::{Recipe, RecipeError};

/// A recipe inside the binary.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! recipes {
    ($($name:literal),+ $(,)?) => {
        /// All of them; the first is the default.
        pub fn shipped() -> &'static [Shipped] {
            &[$(Shipped { name: $name, text: include_str!(concat!("../../recipes/", $name, ".toml")) }),+]
        }
    };
}

recipes!(
    "small",
    "cifar10",
    "cifar10-strong",
    "imagenet-s16",
    "imagenet-b16",
    "finetune",
    "translation",
    "classify-text",
    "classify-tokens",
    "embeddings",
    "bert",
    "characters",
    "gpt",
    "llama",
    "finetune-language",
    "seq2seq",
    "t5",
    "bart",
    "clip",
    "transcribe"
);

impl Shipped {
    /// The first line of its header: what it is.
    pub fn title(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }

    /// Reads it with overrides.
    pub fn read(&self, overrides: &[String]) -> Result<Recipe, RecipeError> {
        Recipe::read(&format!("recipe `{}`", self.name), self.text, overrides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_sound_complete_and_has_its_header() {
        for recipe in shipped() {
            let read = recipe.read(&[]).unwrap_or_else(|error| panic!("{}: {error}", recipe.name));
            for part in [format!("vitreous train {}", recipe.name), "Time".to_string(), "Accuracy".to_string()] {
                assert!(recipe.text.contains(&part), "{}: no `{part}` in the header", recipe.name);
            }
            if let Some(augmentation) = crate::tasks::classify::augmentation(&read) {
                augmentation.expect(recipe.name);
            }
            let keys = |text: &str| -> std::collections::BTreeSet<String> {
                let table: toml::Table = text.parse().expect("TOML");
                let sections = table.iter().filter_map(|(section, value)| Some((section, value.as_table()?)));
                sections.flat_map(|(section, keys)| keys.keys().map(move |key| format!("{section}.{key}"))).collect()
            };
            let missing: Vec<String> = keys(&read.to_toml()).difference(&keys(recipe.text)).cloned().collect();
            assert!(missing.is_empty(), "{} leaves out {missing:?}", recipe.name);
        }
    }
}
