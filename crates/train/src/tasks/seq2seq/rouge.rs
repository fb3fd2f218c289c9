//! ROUGE-1, ROUGE-2 and ROUGE-L as `rouge-score` computes them, without its stemmer: F1 of n-grams, and of the longest common
//! subsequence, of lower-case words of ASCII letters and digits; the mean over texts, in percent.

use std::collections::HashMap;

/// The scores of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rouge {
    /// Of words.
    pub rouge1: f64,
    /// Of pairs of words.
    pub rouge2: f64,
    /// Of the longest common subsequence.
    pub rouge_l: f64,
}

/// ROUGE of texts against their references.
pub fn rouge<A: AsRef<str>, B: AsRef<str>>(texts: &[A], references: &[B]) -> Rouge {
    let mut sum = Rouge::default();
    for (text, reference) in texts.iter().zip(references) {
        let one = of_text(text.as_ref(), reference.as_ref());
        sum = Rouge {
            rouge1: sum.rouge1 + one.rouge1,
            rouge2: sum.rouge2 + one.rouge2,
            rouge_l: sum.rouge_l + one.rouge_l,
        };
    }
    let mean = |sum: f64| 100.0 * sum / texts.len().max(1) as f64;
    Rouge { rouge1: mean(sum.rouge1), rouge2: mean(sum.rouge2), rouge_l: mean(sum.rouge_l) }
}

/// The F1 scores of one text, as fractions.
fn of_text(text: &str, reference: &str) -> Rouge {
    let (text, reference) = (words(text), words(reference));
    Rouge {
        rouge1: n_grams(&text, &reference, 1),
        rouge2: n_grams(&text, &reference, 2),
        rouge_l: f1(common_subsequence(&text, &reference), text.len(), reference.len()),
    }
}

fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let is_word = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    lower.split(|letter| !is_word(letter)).filter(|word| !word.is_empty()).map(str::to_string).collect()
}

fn n_grams(text: &[String], reference: &[String], n: usize) -> f64 {
    let count = |words: &[String]| {
        let mut counts: HashMap<Vec<String>, usize> = HashMap::new();
        words.windows(n).for_each(|gram| *counts.entry(gram.to_vec()).or_insert(0) += 1);
        counts
    };
    let (of_text, of_reference) = (count(text), count(reference));
    let common = of_text.iter().map(|(gram, &count)| count.min(of_reference.get(gram).copied().unwrap_or(0))).sum();
    let total = |words: &[String]| (words.len() + 1).saturating_sub(n);
    f1(common, total(text), total(reference))
}

/// The harmonic mean of precision and recall.
fn f1(common: usize, text: usize, reference: usize) -> f64 {
    let precision = common as f64 / text.max(1) as f64;
    let recall = common as f64 / reference.max(1) as f64;
    if precision + recall > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 }
}

/// The length of the longest common subsequence, with one row of the table at a time.
fn common_subsequence(a: &[String], b: &[String]) -> usize {
    let mut row = vec![0usize; b.len() + 1];
    for word in a {
        let mut diagonal = 0;
        for (place, other) in b.iter().enumerate() {
            let above = row[place + 1];
            row[place + 1] = if word == other { diagonal + 1 } else { above.max(row[place]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_rouge_score() {
        let text = include_str!("../../../tests/fixtures/rouge/expected.json");
        let cases: Vec<serde_json::Value> = serde_json::from_str(text).expect("JSON");
        assert!(cases.len() > 50);
        for case in &cases {
            let string = |key: &str| case[key].as_str().expect("a text");
            let got = of_text(string("text"), string("reference"));
            for (key, got) in [("rouge1", got.rouge1), ("rouge2", got.rouge2), ("rougeL", got.rouge_l)] {
                let expected = case[key].as_f64().expect("a number");
                assert!((got - expected).abs() < 1e-12, "{key} of {case}: {got}");
            }
        }
    }
}
