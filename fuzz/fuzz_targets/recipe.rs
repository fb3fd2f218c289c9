//! A recipe: an error, or settings that are read back as they were written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_train::Recipe;

fuzz_target!(|text: &str| {
    let _ = Recipe::read_run("recipe.toml", text);
    // A value on the command line is parsed, too. Similar keys are looked for, which is slow for a long one.
    if text.len() < 64 {
        let _ = Recipe::read("recipe.toml", "", &[text.to_string()]);
    }
    let Ok(recipe) = Recipe::read("recipe.toml", text, &[]) else { return };
    let written = recipe.to_toml();
    let again = Recipe::read("recipe.toml", &written, &[]).expect("what was written is read");
    assert_eq!(again.to_toml(), written);
});
