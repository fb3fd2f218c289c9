//! What happens without each head and each MLP.

use serde_json::json;
use vitreous_explain::ExplainError;
use vitreous_explain::live::{AttentionGroup, LiveEdit, PartEffects, Pass};
use vitreous_pages::inside::json as parts_json;
use vitreous_runtime::text::cosine;

use super::answer::vector_of;
use super::described::is_of_vectors;
use super::request::{EffectsAsked, TargetAsked};
use super::work::{LookWork, failed, group};
use super::{WatchedInput, WatchedModel};
use crate::work::WorkError;

impl LookWork<'_> {
    /// Puts `effects` into the header: changes of the log-probability of an output, or of the whole text that is written, or how far a vector
    /// turns.
    pub(super) fn effects(
        &mut self,
        input: &WatchedInput,
        edits: &[LiveEdit],
        asked: &EffectsAsked,
        header: &mut serde_json::Value,
    ) -> Result<(), WorkError> {
        let pass = self.live.pass(&input.live, edits, &[]).map_err(failed)?;
        let (group, ..) = group(&pass, asked.group.as_deref())?;
        let writes =
            matches!(self.model, WatchedModel::Translator(_) | WatchedModel::Sequence(_) | WatchedModel::Speech(_));
        let is_of_vectors = is_of_vectors(self.model);
        if !writes && !is_of_vectors {
            let of = TargetAsked { token: asked.token, target: asked.target, integrated: false };
            let (token, target) = self.target(input, edits, &of)?;
            let effects = self.live.inside(&input.live, edits, |inside| inside.head_effects(token, target));
            header["effects"] = parts_json::effects(&effects.map_err(failed)?);
            header["effects_of"] = self.named_target(token, target);
            return Ok(());
        }
        if asked.token.is_some() || asked.target.is_some() {
            let of = if writes { "the whole text that is written" } else { "the vector" };
            let what = format!("effects of this model are on {of}: they have no `token` and no `target`");
            return Err(WorkError::Input(what));
        }
        let measured = match writes {
            true => self.log_probabilities(input, edits, group),
            false => self.turns(input, edits, group),
        };
        let PartEffects { whole, heads, mlps } = measured.map_err(failed)?;
        header["effects"] = json!({"group": group.name(), "heads": heads, "mlps": mlps});
        if writes {
            header["effects"]["log_probability"] = json!(whole);
        }
        Ok(())
    }

    /// Of the text that the input holds, every token given those before it.
    fn log_probabilities(
        &mut self,
        input: &WatchedInput,
        edits: &[LiveEdit],
        group: AttentionGroup,
    ) -> Result<PartEffects, ExplainError> {
        self.live.without_each(&input.live, edits, group, |pass| pass.log_probability(&input.written))
    }

    /// How far the vector turns: 1 less the cosine with the vector as it is.
    fn turns(
        &mut self,
        input: &WatchedInput,
        edits: &[LiveEdit],
        group: AttentionGroup,
    ) -> Result<PartEffects, ExplainError> {
        let model = self.model;
        let mut whole: Option<Vec<f32>> = None;
        let turn = |pass: &mut Pass| {
            let vector = vector_of(model, pass);
            // The first run is that with all parts.
            let whole = whole.get_or_insert_with(|| vector.clone());
            Ok((1.0 - cosine(&vector, whole)).max(0.0))
        };
        self.live.without_each(&input.live, edits, group, turn)
    }
}
