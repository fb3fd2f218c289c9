//! Words: what separates them, and numbers for them.

use std::collections::HashMap;

/// Python's `str.isspace`, which the scores are defined by: Unicode's white space, and the four separators of ASCII.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// The words between spaces.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_space).filter(|word| !word.is_empty())
}

/// Numbers for words, the same for equal ones.
#[derive(Default)]
pub(super) struct WordNumbers<'a>(HashMap<&'a str, u32>);

impl<'a> WordNumbers<'a> {
    pub(super) fn of(&mut self, words: impl Iterator<Item = &'a str>) -> Vec<u32> {
        let number = |word| {
            let next = self.0.len() as u32;
            *self.0.entry(word).or_insert(next)
        };
        words.map(number).collect()
    }
}
