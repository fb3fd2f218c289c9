//! Errors of transcripts, as `jiwer` counts them: the least words, or characters, that have to be replaced, deleted or inserted.

/// Edits that turn a transcript into its reference, and the length of the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Words or characters that have to be replaced, deleted or inserted.
    pub edits: usize,
    /// Words or characters of the reference.
    pub length: usize,
}

impl Edits {
    /// Edits per word or character of the reference. Without any, it is NaN.
    pub fn rate(self) -> f64 {
        self.edits as f64 / self.length as f64
    }
}

impl std::ops::Add for Edits {
    type Output = Edits;

    fn add(self, other: Edits) -> Edits {
        Edits { edits: self.edits + other.edits, length: self.length + other.length }
    }
}

/// Words between spaces, as they are.
pub fn word_edits(reference: &str, found: &str) -> Edits {
    let words = |text: &'_ str| -> Vec<String> {
        text.split(' ')
            .filter(|word| !word.is_empty())
            .map(|word| word.trim_matches(char::is_whitespace).to_string())
            .collect()
    };
    let (reference, found) = (words(reference), words(found));
    Edits { edits: distance(&reference, &found), length: reference.len() }
}

/// Characters, spaces among them, without those at the ends.
pub fn character_edits(reference: &str, found: &str) -> Edits {
    let (reference, found): (Vec<char>, Vec<char>) =
        (reference.trim().chars().collect(), found.trim().chars().collect());
    Edits { edits: distance(&reference, &found), length: reference.len() }
}

/// A text without case and punctuation: what is said, and not how it is written.
pub fn spoken(text: &str) -> String {
    let kept = |letter: char| letter.is_alphanumeric() || letter == '\'';
    let plain: String = text.to_lowercase().chars().map(|letter| if kept(letter) { letter } else { ' ' }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Levenshtein's distance, with memory for one row.
fn distance<T: PartialEq>(reference: &[T], found: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=found.len()).collect();
    for (index, expected) in reference.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (place, got) in found.iter().enumerate() {
            let replaced = diagonal + usize::from(expected != got);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[found.len()]
}
