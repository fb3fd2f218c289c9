//! Classes that are only named: an image belongs to the class whose description it is nearest to.

use vitreous_data::text::Encoding;

use super::CaptionRunner;
use crate::error::Error;
use crate::text::TextInput;

/// What stands for a label in a template.
const PLACE: &str = "{}";

/// How the cosine of an image and a text becomes a logit and a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageScores {
    /// The factor of cosines.
    pub scale: f32,
    /// What is added to them, of models that judge each text by itself.
    pub bias: Option<f32>,
}

impl ImageScores {
    /// The logit of a cosine.
    pub fn logit(&self, cosine: f64) -> f32 {
        (f64::from(self.scale) * cosine) as f32 + self.bias.unwrap_or(0.0)
    }

    /// Scores of all texts of an image: probabilities that sum to 1, or one for each.
    pub fn of(&self, logits: &[f32]) -> Vec<f64> {
        match self.bias {
            None => crate::scores::softmax(logits),
            Some(_) => logits.iter().map(|&logit| 1.0 / (1.0 + (-f64::from(logit)).exp())).collect(),
        }
    }
}

/// Labels, and the sentences that they are put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSet {
    labels: Vec<String>,
    templates: Vec<String>,
}

impl LabelSet {
    /// Labels as they are. `source` is where they come from, in errors: `--labels`.
    pub fn new(labels: Vec<String>, templates: Vec<String>, source: &str) -> Result<LabelSet, Error> {
        let labels: Vec<String> = labels.into_iter().map(|label| label.trim().to_string()).collect();
        if labels.is_empty() {
            return Err(Error::input(format!("{source}: there are no labels")));
        }
        if let Some(place) = labels.iter().position(String::is_empty) {
            return Err(Error::input(format!("{source}: label {} has no words", place + 1)));
        }
        for (place, label) in labels.iter().enumerate() {
            if labels[..place].contains(label) {
                return Err(Error::input(format!("{source}: the label {label:?} is given twice")));
            }
        }
        if let Some(template) = templates.iter().find(|template| !template.contains(PLACE)) {
            let what = format!(
                "the template {template:?} has no {PLACE} where the label belongs, as in 'a photo of a {PLACE}'"
            );
            return Err(Error::input(what));
        }
        let templates = if templates.is_empty() { vec![PLACE.to_string()] } else { templates };
        Ok(LabelSet { labels, templates })
    }

    /// Labels between commas.
    pub fn from_list(list: &str, templates: Vec<String>) -> Result<LabelSet, Error> {
        LabelSet::new(list.split(',').map(str::to_string).collect(), templates, "--labels")
    }

    /// Labels of a file, one per line; empty lines do not count.
    pub fn from_lines(text: &str, templates: Vec<String>, source: &str) -> Result<LabelSet, Error> {
        let lines = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_string).collect::<Vec<_>>();
        if lines.is_empty() {
            return Err(Error::input(format!("{source}: there are no labels in this file: write one per line")));
        }
        LabelSet::new(lines, templates, source)
    }

    /// The labels.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    fn sentences(&self) -> Vec<TextInput> {
        let of_label = |label: &String| {
            let put = |template: &String| TextInput { text: template.replace(PLACE, label), pair: None };
            self.templates.iter().map(put).collect::<Vec<_>>()
        };
        self.labels.iter().flat_map(of_label).collect()
    }
}

/// Vectors of labels.
#[derive(Clone, Debug)]
pub struct ZeroShot {
    /// The labels.
    pub labels: Vec<String>,
    vectors: Vec<f32>,
    width: usize,
    scores: ImageScores,
}

impl ZeroShot {
    /// The vector of each label: the mean over its templates of vectors of length 1, itself of length 1 (section 3.1.4 of CLIP).
    pub fn new(set: &LabelSet, runner: &mut CaptionRunner) -> Result<ZeroShot, Error> {
        for label in &set.labels {
            let encoding = runner.model.texts.encode(&TextInput { text: label.clone(), pair: None })?;
            if !has_words(&encoding) {
                return Err(Error::input(format!("the label {label:?} has no words for this model's tokenizer")));
            }
        }
        let width = runner.width();
        let all = runner.embed(&set.sentences())?;
        let mut vectors = Vec::with_capacity(set.labels.len() * width);
        for of_label in all.chunks_exact(set.templates.len() * width) {
            let mut sum = vec![0.0_f64; width];
            for vector in of_label.chunks_exact(width) {
                sum.iter_mut().zip(vector).for_each(|(sum, &number)| *sum += f64::from(number));
            }
            let length = sum.iter().map(|number| number * number).sum::<f64>().sqrt().max(1e-12);
            vectors.extend(sum.iter().map(|number| (number / length) as f32));
        }
        Ok(ZeroShot { labels: set.labels.clone(), vectors, width, scores: runner.model.scores })
    }

    /// The logits of an image's vector, which has length 1: one per label.
    pub fn logits(&self, image: &[f32]) -> Vec<f32> {
        let cosine = |label: &[f32]| label.iter().zip(image).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        self.vectors.chunks_exact(self.width).map(|label| self.scores.logit(cosine(label))).collect()
    }

    /// The scores of logits.
    pub fn scores(&self, logits: &[f32]) -> Vec<f64> {
        self.scores.of(logits)
    }
}

/// Whether a text has any token besides those that the tokenizer puts around it.
fn has_words(encoding: &Encoding) -> bool {
    encoding.special.iter().any(|special| !special)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(labels: &[&str], templates: &[&str]) -> String {
        let own = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        LabelSet::new(own(labels), own(templates), "--labels").expect_err("refused").to_string()
    }

    #[test]
    fn labels_without_words_are_refused() {
        assert_eq!(said(&["a cat", " "], &[]), "--labels: label 2 has no words");
        assert_eq!(said(&[], &[]), "--labels: there are no labels");
        assert_eq!(said(&["a", "b", "a"], &[]), "--labels: the label \"a\" is given twice");
        assert!(said(&["a"], &["a photo"]).contains("no {} where the label belongs"));
        let empty = LabelSet::from_lines(" \n\n", Vec::new(), "labels.txt").expect_err("refused").to_string();
        assert_eq!(empty, "labels.txt: there are no labels in this file: write one per line");
    }

    #[test]
    fn each_label_is_put_into_each_template() {
        let set = LabelSet::from_list("cat, dog", vec!["a {}".to_string(), "{} or {}".to_string()]).expect("labels");
        let texts: Vec<String> = set.sentences().into_iter().map(|input| input.text).collect();
        assert_eq!(texts, ["a cat", "cat or cat", "a dog", "dog or dog"]);
        let plain = LabelSet::from_list("cat", Vec::new()).expect("labels");
        assert_eq!(plain.sentences()[0].text, "cat");
    }

    #[test]
    fn scores_are_a_softmax_or_a_sigmoid_of_each() {
        let softmax = ImageScores { scale: 2.0, bias: None };
        let scores = softmax.of(&[softmax.logit(1.0), softmax.logit(0.0)]);
        assert!(
            (scores[0] - 1.0 / (1.0 + (-2.0f64).exp())).abs() < 1e-9 && (scores.iter().sum::<f64>() - 1.0).abs() < 1e-9
        );
        let sigmoid = ImageScores { scale: 2.0, bias: Some(-2.0) };
        assert_eq!(sigmoid.of(&[sigmoid.logit(1.0)]), [0.5]);
    }
}
