//! The text that a model writes with edits: the likeliest token after the other, each by a run of the whole model.

use serde_json::{Value as Json, json};
use vitreous_explain::live::{LiveChange, LiveEdit, LiveInput};

use super::work::{LookWork, failed};
use super::{WatchedInput, WatchedModel};
use crate::work::WorkError;

/// Targets have a multiple of so many places, so that one plan serves every step of many texts.
const PLACES: usize = 16;
/// Tokens that may be written beyond those that were.
const MORE: usize = 16;

impl LookWork<'_> {
    /// Writes anew. A decoder sees nothing behind a place, so that what stands there until it is written does not matter.
    pub(super) fn rewritten(&mut self, input: &WatchedInput, edits: &[LiveEdit]) -> Result<Json, WorkError> {
        let LiveInput::Pair { source, read } = &input.live else {
            return Err(WorkError::Input("`write` is for models that write a text from a text".to_string()));
        };
        let is_placed = |edit: &LiveEdit| edit.tokens.is_some() || matches!(edit.change, LiveChange::From(_));
        if edits.iter().any(is_placed) {
            let what = "a text is not written anew with edits of single tokens or with values of another input: it may have another length";
            return Err(WorkError::Input(what.to_string()));
        }
        let (end, longest) = match self.model {
            WatchedModel::Translator(model) => (model.special().end, model.target.longest),
            WatchedModel::Sequence(model) => (model.special.end, model.target.longest),
            _ => return Ok(Json::Null),
        };
        let places = (read.len() + MORE).next_multiple_of(PLACES).min(longest).max(1);
        let mut written: Vec<u32> = Vec::new();
        while written.len() < places {
            let mut padded = vec![end; places];
            padded[0] = read[0];
            let known = written.len().min(places - 1);
            padded[1..=known].copy_from_slice(&written[..known]);
            let step = LiveInput::Pair { source: source.clone(), read: padded };
            let mut pass = self.live.pass(&step, edits, &[]).map_err(failed)?;
            let (logits, _) = pass.logits(&[written.len()]).map_err(failed)?;
            let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
            let next = best.unwrap_or(0) as u32;
            if next == end {
                break;
            }
            written.push(next);
        }
        let text = match self.model {
            WatchedModel::Translator(model) => model.text(&written)?,
            WatchedModel::Sequence(model) => model.text(&written)?,
            _ => String::new(),
        };
        let token = |&id: &u32| json!({"id": id, "text": self.model.piece(id, false)});
        Ok(json!({"text": text, "tokens": written.iter().map(token).collect::<Vec<_>>()}))
    }
}
