//! What happens without each head and each MLP of a group of layers. They are switches of every plan: each costs a run, and none a plan.

use super::attention::AttentionGroup;
use super::edits::{LiveChange, LiveEdit};
use super::input::LiveInput;
use super::pass::Pass;
use super::{LayerGroup, Live, groups_of};
use crate::error::ExplainError;

/// One number of a run, and how it changes without each part of a group of layers.
#[derive(Clone, Debug, PartialEq)]
pub struct PartEffects {
    /// The number with all parts.
    pub whole: f64,
    /// By layer and head: the number without that head, less the number with all parts.
    pub heads: Vec<Vec<f64>>,
    /// By layer: the same without its MLP. Attention to the source has none of its own.
    pub mlps: Vec<f64>,
}

impl<'m> Live<'m> {
    /// Runs the model without each head and each MLP of a group, one after the other, on top of `edits`, and measures each run; the first is
    /// that with all parts. An edit of a part gives way where this part is switched off.
    pub fn without_each(
        &mut self,
        input: &LiveInput,
        edits: &[LiveEdit],
        group: AttentionGroup,
        mut measure: impl FnMut(&mut Pass<'_, 'm>) -> Result<f64, ExplainError>,
    ) -> Result<PartEffects, ExplainError> {
        let groups = groups_of(&self.skeleton(input.lengths())?.attentions);
        let what = self.model.architecture.signature().what();
        let layers = groups.into_iter().find(|known| known.group == group).ok_or(ExplainError::NoLayers { what })?;
        let whole = measure(&mut self.pass(input, edits, &[])?)?;
        let mut without = |path: String| {
            let mut with_zero: Vec<LiveEdit> = edits.iter().filter(|edit| edit.path != path).cloned().collect();
            with_zero.push(LiveEdit { path, change: LiveChange::Zero, tokens: None });
            Ok::<f64, ExplainError>(measure(&mut self.pass(input, &with_zero, &[])?)? - whole)
        };
        let LayerGroup { layers: count, heads: of_each, block, attention, .. } = layers;
        let (mut heads, mut mlps) = (Vec::with_capacity(count), Vec::new());
        for layer in 0..count {
            let numbered = |pattern: &str| pattern.replacen('#', &layer.to_string(), 1);
            let scope = numbered(&attention);
            heads.push((0..of_each).map(|head| without(format!("{scope}.heads.{head}"))).collect::<Result<_, _>>()?);
            if group != AttentionGroup::Cross {
                mlps.push(without(format!("{}.mlp", numbered(&block)))?);
            }
        }
        Ok(PartEffects { whole, heads, mlps })
    }
}
