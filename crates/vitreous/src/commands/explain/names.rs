//! Names for folders and files, made of what users call things.

use std::collections::HashSet;

/// Longer ones are cut; file systems stop at 255 bytes.
const LONGEST: usize = 80;

/// Names that were given away. Systems differ in whether capitals matter: here they do not.
#[derive(Debug, Default)]
pub struct Names {
    taken: HashSet<String>,
}

impl Names {
    /// None but these are taken.
    pub fn reserving(names: &[&str]) -> Names {
        Names { taken: names.iter().map(ToString::to_string).collect() }
    }

    /// A name for an image's folder, from its path.
    pub fn take(&mut self, path: &str) -> String {
        let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        self.unique(safe(stem))
    }

    /// The name itself, or with `-2`, `-3` .. behind it.
    pub fn unique(&mut self, name: String) -> String {
        let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
        let free =
            std::iter::once(name.clone()).chain(numbered).find(|name| !self.taken.contains(&name.to_lowercase()));
        let free = free.unwrap_or(name);
        self.taken.insert(free.to_lowercase());
        free
    }
}

/// A name that every file system takes: letters, digits, dashes, underscores and dots, others as underscores; no dot in front.
pub fn safe(name: &str) -> String {
    let plain = |letter: char| match letter {
        letter if letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.') => letter,
        _ => '_',
    };
    let mut safe: String = name.trim().chars().map(plain).take(LONGEST).collect();
    while safe.len() > 2 * LONGEST {
        safe.pop();
    }
    let safe = safe.trim_matches('.');
    if safe.is_empty() { "image".to_string() } else { safe.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_names_of_their_own() {
        let mut names = Names::reserving(&["index.html"]);
        let taken: Vec<String> = [
            "a/cat.png",
            "b/Cat.jpg",
            "cat-2.png",
            "index.html.png",
            "..",
            ".png",
            "a<script>.png",
            "t\u{fc}te.png",
            "x/",
        ]
        .map(|path| names.take(path))
        .into();
        assert_eq!(
            taken,
            ["cat", "Cat-2", "cat-2-2", "index.html-2", "image", "image-2", "a_script_", "t\u{fc}te", "image-3"]
        );
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(safe(&"a".repeat(300)).len(), LONGEST);
        assert!(safe(&"\u{1f600}\u{8a9e}".repeat(300)).len() <= 2 * LONGEST);
    }
}
