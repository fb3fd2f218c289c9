//! The pictures of runs: images of what a model gets wrong, and where it looks. They need the data and the model, and are kept.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::Value as Json;
use vitreous_pages::Section;
use vitreous_pages::report::pictures::{Effort, data};
use vitreous_pages::report::{RunPictures, sections_of_pictures};
use vitreous_train::RunRecord;

/// Runs whose pictures are kept.
const MOST_KEPT: usize = 8;

/// The sections with pictures of the runs that were asked for last. They are made one after the other: each takes the CPU for a moment.
#[derive(Default)]
pub struct RunPictureStore(Mutex<VecDeque<(Key, Vec<Json>)>>);

/// A run, whether it has finished, and its last evaluation, whose pictures they are.
type Key = (String, bool, Option<String>);

impl RunPictureStore {
    /// The sections of a run.
    pub fn sections(&self, name: &str, run: &RunRecord) -> Vec<Json> {
        let evaluation = run.evaluation.as_ref().map(|evaluation| format!("{:?}", evaluation.about));
        let key: Key = (name.to_string(), run.finished(), evaluation);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = kept.iter().find(|(known, _)| *known == key) {
            return known.clone();
        }
        // Without an evaluation there is no model yet.
        let sections: Vec<Json> = match key.2 {
            None => Vec::new(),
            Some(_) => {
                // A run that goes on needs the CPU itself.
                let effort = if run.finished() { Effort::Usual } else { Effort::Little };
                let mut pictures = RunPictures::of(run, &data(run), vitreous_runtime::threads(), effort);
                // Where the server keeps its files is nobody's business.
                if let Some(Ok(examples)) = &mut pictures.attention {
                    examples.model = format!("{name}/model");
                }
                sections_of_pictures(run, &pictures).iter().map(Section::json).collect()
            }
        };
        kept.retain(|((known, ..), _)| known != name);
        kept.push_back((key, sections.clone()));
        if kept.len() > MOST_KEPT {
            kept.pop_front();
        }
        sections
    }
}
