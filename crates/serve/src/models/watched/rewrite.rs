//! The text that a model writes with edits: the likeliest token after the other.
//!
//! A decoder sees nothing behind a place. So one run of the whole model tells of every place what it would write there, if all before it
//! stays: the text as it was is kept up to the first token that is another one now, which costs a run for each such token, not for each
//! token.

use serde_json::{Value as Json, json};
use vitreous_explain::live::{LiveChange, LiveEdit, LiveInput};
use vitreous_runtime::speech::{SpeechSettings, TextRules};

use super::work::{LookWork, failed};
use super::{TokenSeen, WatchedInput, WatchedModel};
use crate::work::WorkError;

/// Targets have a multiple of so many places, so that one plan serves many texts.
const PLACES: usize = 16;
/// Tokens that may be written beyond those that were.
const MORE: usize = 16;
/// Runs of the model: what was written until then is told.
const MOST_RUNS: usize = 48;

/// What may be written.
enum Rules<'m> {
    /// Texts of texts.
    Target { ends: Vec<u32>, forced_first: Option<u32>, forbidden: &'m [Vec<u32>] },
    /// What is said in a recording.
    Speech(TextRules),
}

impl Rules<'_> {
    /// The token that is written behind others; `None` at the end.
    fn next(&self, logits: &mut [f32], written: &[u32]) -> Option<u32> {
        let ends = match self {
            Rules::Target { forced_first: Some(first), .. } if written.is_empty() => return Some(*first),
            Rules::Target { ends, forbidden, .. } => {
                for token in forbidden.iter().filter_map(|sequence| <[u32; 1]>::try_from(&sequence[..]).ok()) {
                    if let Some(logit) = logits.get_mut(token[0] as usize) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
                &ends[..]
            }
            Rules::Speech(rules) => {
                rules.apply(logits, written);
                std::slice::from_ref(&rules.end)
            }
        };
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)))? as u32;
        (!ends.contains(&best)).then_some(best)
    }
}

impl LookWork<'_> {
    /// Writes anew.
    pub(super) fn rewritten(&mut self, input: &WatchedInput, edits: &[LiveEdit]) -> Result<Json, WorkError> {
        let (LiveInput::Pair { read, .. } | LiveInput::Audio { read, .. }) = &input.live else {
            return Err(WorkError::Input("`write` is for models that write a text".to_string()));
        };
        let is_placed = |edit: &LiveEdit| edit.tokens.is_some() || matches!(edit.change, LiveChange::From(_));
        if edits.iter().any(is_placed) {
            let what = "a text is not written anew with edits of single tokens or with values of another input: it may have another length";
            return Err(WorkError::Input(what.to_string()));
        }
        let model = self.model;
        let (end, longest, start, rules) = match model {
            WatchedModel::Translator(model) => {
                let end = model.special().end;
                let rules = Rules::Target { ends: vec![end], forced_first: None, forbidden: &[] };
                (end, model.target.longest, 1, rules)
            }
            WatchedModel::Sequence(model) => {
                let of = &model.config.rules;
                let (ends, forbidden) = (of.ends.clone(), &of.forbidden[..]);
                let rules = Rules::Target { ends, forced_first: of.forced_first, forbidden };
                (model.special.end, model.target.longest, 1, rules)
            }
            WatchedModel::Speech(model) => {
                let rules = Rules::Speech(SpeechSettings::default().rules(&model.vocabulary)?);
                let is_beginning = |token: &&TokenSeen| token.special && !model.vocabulary.is_timestamp(token.id);
                let beginning = input.tokens.iter().take_while(is_beginning).count();
                let start = beginning.max(1);
                // As in a transcript: half of the places are for what was said before.
                (model.vocabulary.end, start + model.input.target.longest / 2, start, rules)
            }
            WatchedModel::Image(_) | WatchedModel::ImageText(_) | WatchedModel::Text(_) | WatchedModel::Language(_) => {
                return Ok(Json::Null);
            }
        };
        let places = (read.len() + MORE).next_multiple_of(PLACES).min(longest).max(start + 1);
        let mut draft = read[start..].to_vec();
        draft.truncate(places - start);
        // So many tokens of the draft are what the model writes.
        let mut written = 0;
        let mut ended = false;
        for _ in 0..MOST_RUNS {
            let mut padded = [&read[..start], &draft[..]].concat();
            padded.resize(places, end);
            let step = with_read(&input.live, padded);
            let mut pass = self.live.pass(&step, edits, &[]).map_err(failed)?;
            let rows: Vec<usize> = (start - 1 + written..(start + draft.len()).min(places)).collect();
            let (mut logits, outputs) = pass.logits(&rows).map_err(failed)?;
            for logits in logits.chunks_exact_mut(outputs.max(1)) {
                let Some(next) = rules.next(logits, &draft[..written]) else {
                    ended = true;
                    break;
                };
                let is_same = draft.get(written) == Some(&next);
                match draft.get_mut(written) {
                    Some(token) => *token = next,
                    None => draft.push(next),
                }
                written += 1;
                // What was computed behind it was of another token.
                if !is_same {
                    break;
                }
            }
            if ended || written >= places - start {
                break;
            }
        }
        draft.truncate(written);
        let text = match model {
            WatchedModel::Translator(model) => model.text(&draft)?,
            WatchedModel::Sequence(model) => model.text(&draft)?,
            WatchedModel::Speech(model) => {
                model.vocabulary.decode(&draft).map_err(vitreous_runtime::Error::from)?.trim().to_string()
            }
            WatchedModel::Image(_) | WatchedModel::ImageText(_) | WatchedModel::Text(_) | WatchedModel::Language(_) => {
                String::new()
            }
        };
        let token = |&id: &u32| json!({"id": id, "text": model.piece(id, false)});
        Ok(json!({"text": text, "tokens": draft.iter().map(token).collect::<Vec<_>>(), "ended": ended}))
    }
}

/// The same source with another target.
fn with_read(live: &LiveInput, read: Vec<u32>) -> LiveInput {
    match live {
        LiveInput::Audio { mel, .. } => LiveInput::Audio { mel: mel.clone(), read },
        LiveInput::Pair { source, .. } => LiveInput::Pair { source: source.clone(), read },
        LiveInput::Image(_) | LiveInput::Text { .. } => live.clone(),
    }
}
