//! `evaluation.json`: the full result of a run's last evaluation, with the keys that `vitreous eval --json` has.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use vitreous_files::open::read_bounded;

use crate::error::TrainError;
use crate::run_directory::{MOST_JSON, write_whole};
use crate::scores::Scores;
use crate::tasks::TASKS;

/// An evaluation of a run on its validation data.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// When, and of what data.
    pub about: EvaluationAbout,
    /// The result.
    pub scores: Scores,
}

/// When an evaluation was made, and of what data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationAbout {
    /// Updates before it.
    pub step: u64,
    /// Epochs before it.
    pub epoch: f64,
    /// What the data is, in a few words.
    pub data: String,
}

impl Evaluation {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        let mut object = serde_json::to_value(&self.about).expect("plain data");
        if let (Value::Object(object), Value::Object(report)) = (&mut object, self.scores.any_report().to_json()) {
            object.insert("split".to_string(), Value::from("validation"));
            object.extend(report);
        }
        object
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), TrainError> {
        write_whole(path, format!("{}\n", self.to_json()).as_bytes())
    }

    /// Reads the file; `None` if there is none. Parts that do not fit together are refused, so that pages can rely on them.
    pub fn read(path: &Path) -> Result<Option<Evaluation>, String> {
        let bytes = match read_bounded(path, MOST_JSON) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| error.to_string())?,
        };
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        Evaluation::of_json(&value).map(Some)
    }

    pub(crate) fn of_json(value: &Value) -> Result<Evaluation, String> {
        let scores = TASKS.iter().find_map(|task| task.read_scores(value));
        let scores = scores.ok_or("it has no scores of a task that is known")??;
        let about = EvaluationAbout::deserialize(value).map_err(|error| error.to_string())?;
        Ok(Evaluation { about, scores })
    }
}
