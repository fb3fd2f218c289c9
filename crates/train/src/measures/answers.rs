//! Answers to questions, as the official evaluation of SQuAD 1.1 compares them.

use std::collections::HashMap;

/// An answer in lower case, without ASCII punctuation, the words a, an and the, and more than one space.
pub fn normalized_answer(answer: &str) -> String {
    let answer: String = answer.to_lowercase().chars().filter(|letter| !letter.is_ascii_punctuation()).collect();
    let mut without = String::with_capacity(answer.len());
    let mut rest = answer.as_str();
    // Articles are words of letters and digits between other characters, which need not be spaces.
    while let Some(first) = rest.chars().next() {
        let is_word = first.is_alphanumeric();
        let end = rest.find(|letter: char| letter.is_alphanumeric() != is_word).unwrap_or(rest.len());
        let (part, others) = rest.split_at(end);
        without.push_str(if matches!(part, "a" | "an" | "the") { " " } else { part });
        rest = others;
    }
    let words: Vec<&str> = without.split(is_space).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// What Python's `split` takes for white space.
fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// Whether an answer is the expected one, after both are normalised.
pub fn exact_match(expected: &str, answer: &str) -> bool {
    normalized_answer(expected) == normalized_answer(answer)
}

/// F1 of the words of an answer, after both are normalised; 0 if they have no word in common, even if both have none.
pub fn token_f1(expected: &str, answer: &str) -> f64 {
    let (expected, answer) = (normalized_answer(expected), normalized_answer(answer));
    let words = |text: &str| text.split(is_space).filter(|word| !word.is_empty()).count();
    let mut left: HashMap<&str, usize> = HashMap::new();
    expected.split(is_space).filter(|word| !word.is_empty()).for_each(|word| *left.entry(word).or_insert(0) += 1);
    let mut common = 0;
    for word in answer.split(is_space).filter(|word| !word.is_empty()) {
        if let Some(count) = left.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    if common == 0 {
        return 0.0;
    }
    let (precision, recall) = (common as f64 / words(&answer) as f64, common as f64 / words(&expected) as f64);
    2.0 * precision * recall / (precision + recall)
}

/// Exact matches and F1 as the evaluation of SQuAD 2.0 has them, whose questions need not have an answer: expected answers of which
/// nothing is left after they are normalised do not count, and where none is left, no words at all are the right answer.
pub fn squad2<E: AsRef<str>, A: AsRef<str>>(expected: &[Vec<E>], answers: &[A]) -> (f64, f64) {
    assert_eq!(expected.len(), answers.len(), "as many answers as questions");
    let (mut exact, mut f1) = (0.0, 0.0);
    for (expected, answer) in expected.iter().zip(answers) {
        let answer = answer.as_ref();
        let counts = |expected: &&E| !normalized_answer(expected.as_ref()).is_empty();
        let expected: Vec<&E> = expected.iter().filter(counts).collect();
        if expected.is_empty() {
            let is_right = f64::from(u8::from(normalized_answer(answer).is_empty()));
            (exact, f1) = (exact + is_right, f1 + is_right);
            continue;
        }
        let (own_exact, own_f1) = best_of(&expected, answer);
        (exact, f1) = (exact + own_exact, f1 + own_f1);
    }
    (exact / answers.len() as f64, f1 / answers.len() as f64)
}

/// Exact match and F1 with the expected answer that suits best.
fn best_of<E: AsRef<str>>(expected: &[E], answer: &str) -> (f64, f64) {
    let is_exact = expected.iter().any(|expected| exact_match(expected.as_ref(), answer));
    let f1 = expected.iter().map(|expected| token_f1(expected.as_ref(), answer)).fold(0.0, f64::max);
    (f64::from(u8::from(is_exact)), f1)
}

/// The shares of exact matches and the mean F1 of answers, each compared with the expected answer that suits it best. NaN if there are
/// no answers; a question without expected answers counts 0.
pub fn squad<E: AsRef<str>, A: AsRef<str>>(expected: &[Vec<E>], answers: &[A]) -> (f64, f64) {
    assert_eq!(expected.len(), answers.len(), "as many answers as questions");
    let (mut exact, mut f1) = (0.0, 0.0);
    for (expected, answer) in expected.iter().zip(answers) {
        let (own_exact, own_f1) = best_of(expected, answer.as_ref());
        (exact, f1) = (exact + own_exact, f1 + own_f1);
    }
    (exact / answers.len() as f64, f1 / answers.len() as f64)
}
