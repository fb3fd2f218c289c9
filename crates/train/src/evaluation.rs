//! `evaluation.json`: all that the last test of a run found, as `vitreous eval --json` tells it, and the most confident mistakes.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::TrainError;
use crate::evaluation::{LabelReport, Mistake, Report, named};
use crate::run_directory::write_whole;
use crate::translation::TranslationReport;

/// What a test found.
#[derive(Clone, Debug)]
pub struct Tested {
    /// After which step, and of what.
    pub about: TestedAbout,
    /// The names of the classes.
    pub names: Vec<String>,
    /// The scores.
    pub scores: TestedScores,
    /// The most confident mistakes; none where images have several labels.
    pub mistakes: Vec<Mistake>,
}

/// After which step, and of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestedAbout {
    /// Updates before it.
    pub step: u64,
    /// Epochs before it.
    pub epoch: f64,
    /// What the data was found to be, in words.
    pub data: String,
}

/// The scores of a test.
#[derive(Clone, Debug)]
pub enum TestedScores {
    /// One class an image.
    One(Box<Report>),
    /// Several.
    Several(LabelReport),
    /// Translations.
    Translation(Box<TranslationReport>),
}

impl From<TranslationReport> for TestedScores {
    fn from(report: TranslationReport) -> TestedScores {
        TestedScores::Translation(Box::new(report))
    }
}

impl TestedScores {
    /// The mean loss.
    pub fn loss(&self) -> f64 {
        match self {
            TestedScores::One(report) => report.loss,
            TestedScores::Several(report) => report.loss,
            TestedScores::Translation(report) => report.loss,
        }
    }

    /// The number by which the best is chosen: the share of right answers, for several labels the mean average
    /// precision, for translations BLEU.
    pub fn number(&self) -> f64 {
        match self {
            TestedScores::One(report) => report.top1,
            TestedScores::Several(report) => report.mean_average_precision,
            TestedScores::Translation(report) => report.bleu,
        }
    }
}

impl Tested {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        let mut object = serde_json::to_value(&self.about).expect("plain data");
        let report = match &self.scores {
            TestedScores::One(report) => named(report, &self.names),
            TestedScores::Several(report) => named(report, &self.names),
            TestedScores::Translation(report) => named(report, &self.names),
        };
        if let (Value::Object(object), Value::Object(report)) = (&mut object, report) {
            object.insert("split".to_string(), Value::from("validation"));
            object.extend(report);
            object.insert("mistakes".to_string(), serde_json::to_value(&self.mistakes).expect("plain data"));
        }
        object
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), TrainError> {
        write_whole(path, format!("{}\n", self.to_json()).as_bytes())
    }

    /// Reads the file; `None` if there is none. What does not fit together is refused, so that whoever shows it need not look.
    pub fn read(path: &Path) -> Result<Option<Tested>, String> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| error.to_string())?,
        };
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        Tested::from_json(value).map(Some)
    }

    fn from_json(value: Value) -> Result<Tested, String> {
        fn part<T: for<'de> Deserialize<'de>>(value: &Value) -> Result<T, String> {
            T::deserialize(value).map_err(|error| error.to_string())
        }
        if value.get("bleu").is_some() {
            let scores = TestedScores::Translation(Box::new(part(&value)?));
            return Ok(Tested { about: part(&value)?, names: Vec::new(), scores, mistakes: Vec::new() });
        }
        let mistakes: Vec<Mistake> = part(&value["mistakes"])?;
        let classes = value["classes"].as_array().ok_or("it has no classes")?;
        let name = |(number, class): (usize, &Value)| match class["name"].as_str() {
            Some(name) => name.to_string(),
            None => format!("class {number}"),
        };
        let names: Vec<String> = classes.iter().enumerate().map(name).collect();
        let scores = match value.get("mean_average_precision") {
            Some(_) => TestedScores::Several(part(&value)?),
            None => TestedScores::One(Box::new(part(&value)?)),
        };
        let is_class = |class: u32| (class as usize) < names.len();
        let mut sound = mistakes.iter().all(|mistake| is_class(mistake.label) && is_class(mistake.answer));
        if let TestedScores::One(report) = &scores {
            let square =
                |rows: &Vec<Vec<u64>>| rows.len() == names.len() && rows.iter().all(|r| r.len() == names.len());
            sound &= report.confusion.as_ref().is_none_or(square);
            sound &= report.most_confused.iter().all(|pair| is_class(pair.label) && is_class(pair.answer));
        }
        match sound {
            true => Ok(Tested { about: part(&value)?, names, scores, mistakes }),
            false => Err("its parts are not of the same classes".to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::{Answer, LabelScores, Mistakes, Scores};

    fn about() -> TestedAbout {
        TestedAbout { step: 7, epoch: 0.5, data: "numbers".to_string() }
    }

    fn names() -> Vec<String> {
        ["a", "<b>"].map(str::to_string).to_vec()
    }

    fn one() -> Tested {
        let mut scores = Scores::new(2);
        scores.add(&[0.0, 1.0 / 3.0], 0);
        scores.add(&[f32::NAN, 1.0], 1);
        let mut mistakes = Mistakes::default();
        mistakes.add(5, 0, Answer { class: 1, confidence: 0.1 + 0.2 }, || "no. 5".to_string());
        let scores = TestedScores::One(Box::new(scores.report()));
        Tested { about: about(), names: names(), scores, mistakes: mistakes.into_vec() }
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let mut several = LabelScores::new(2);
        several.add(&[0.3, -0.1], &[0]);
        let scores = TestedScores::Several(several.report());
        for tested in [one(), Tested { about: about(), names: names(), scores, mistakes: Vec::new() }] {
            let json = tested.to_json();
            let text: Value = serde_json::from_str(&json.to_string()).expect("JSON");
            let read = Tested::from_json(text).expect("reads");
            assert_eq!((&read.about, &read.names, &read.mistakes), (&tested.about, &tested.names, &tested.mistakes));
            assert_eq!(read.to_json(), json);
        }
        // A loss that is not a number stays none.
        assert_eq!(one().to_json()["loss"], Value::Null);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let spoil = |key: &str, with: Value| {
            let mut value = one().to_json();
            value[key] = with;
            Tested::from_json(value).map(|_| ()).expect_err(key)
        };
        assert!(spoil("confusion", serde_json::json!([[1]])).contains("same classes"));
        assert!(spoil("most_confused", serde_json::json!([{"label": 2, "answer": 0, "samples": 1}])).contains("same"));
        let mistake = serde_json::json!([{"sample": 0, "name": "", "label": 0, "answer": 9, "confidence": 1.0}]);
        assert!(spoil("mistakes", mistake).contains("same"));
        for key in ["classes", "top1", "step", "mistakes"] {
            spoil(key, Value::from("text"));
        }
    }
}
