//! What can be said of a run in a line.

use serde_json::{Value as Json, json};
use vitreous_pages::report::headline::Headline;
use vitreous_train::RunRecord;

/// A run in a line.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Its name: that of its directory.
    pub name: String,
    /// What it learns, how far it is, and how good; see [`RunSummary::json`].
    values: Json,
}

impl RunSummary {
    /// Of a run.
    pub fn of(name: &str, run: &RunRecord) -> RunSummary {
        let headline = Headline::of(run);
        let score = headline.deciding().map(|score| {
            json!({ "label": score.metric.label, "value": score.value, "text": score.metric.text(score.value) })
        });
        let mut values = headline.json(run);
        values["name"] = json!(name);
        values["task"] = json!(run.recipe.as_ref().ok().map(|recipe| recipe.task.name()));
        values["score"] = json!(score);
        // Where the server keeps its files is nobody's business.
        if let Some(values) = values.as_object_mut() {
            values.remove("run");
        }
        RunSummary { name: name.to_string(), values }
    }

    /// `name`, `task`, `state`, `epoch` of `epochs`, `step` of `steps`, `score`, and what `vitreous report --json` has.
    pub fn json(&self) -> &Json {
        &self.values
    }
}
