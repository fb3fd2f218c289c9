//! A model that is held ready to be watched: given an input and edits, any of its values, and what follows from them, fast enough to follow a
//! hand.
//!
//! One plan serves all inputs of one length and nearly all edits (see `edits.rs`); plans of a model share its weights on the device. A
//! [`Pass`] is a run of a plan, from which is read what is asked for. Whatever has no place in a pass (what parts add to a logit,
//! what happens without them) is computed by [`crate::inside`], on the same weights.

mod attention;
mod edits;
mod effects;
mod input;
mod pass;
mod plan;
mod tail;
mod values;

use std::sync::Arc;

use vitreous_engine::{Device, Intervention};
use vitreous_models::{Gives, Model, OnDevice, Takes};

use crate::error::ExplainError;
use crate::inside::Inside;
use attention::{LiveAttention, LiveWeights};
use edits::Place;
use plan::{PlanKey, Ready, Skeleton};
use tail::Tail;

pub use attention::{AttentionGroup, MASKED};
pub use edits::{LiveChange, LiveEdit};
pub use effects::PartEffects;
pub use input::{Lengths, LiveInput};
pub use pass::{LayerEnds, LayerLogits, LayerSays, Pass};
pub use values::{LiveRange, LiveValue};

/// Plans that are kept, of each kind.
const MOST_PLANS: usize = 6;
/// Values of other inputs that are kept.
const MOST_TAKEN: usize = 32;

/// One group of a model's layers: what has attention of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerGroup {
    /// Whose attention.
    pub group: AttentionGroup,
    /// Layers.
    pub layers: usize,
    /// Heads of each.
    pub heads: usize,
    /// The path of a layer, with `#` for its number: `blocks.#`.
    pub block: String,
    /// The path of its attention: `blocks.#.attention`.
    pub attention: String,
}

/// The groups of a model's layers, read off its graph.
pub fn layer_groups(model: &Model) -> Result<Vec<LayerGroup>, ExplainError> {
    let lengths = Lengths { tokens: 1, target: 1, masked: 0 };
    Ok(groups_of(&Skeleton::of(model, lengths)?.attentions))
}

fn groups_of(attentions: &[LiveAttention]) -> Vec<LayerGroup> {
    let mut groups: Vec<LayerGroup> = Vec::new();
    for one in attentions {
        match groups.iter_mut().find(|known| known.group == one.group) {
            Some(known) => known.layers += 1,
            None => {
                let numbered = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
                let parts = one.scope.split('.').map(|part| if numbered(part) { "#" } else { part });
                let attention: Vec<&str> = parts.collect();
                let block = attention.iter().position(|part| *part == "#").map_or(attention.len(), |at| at + 1);
                groups.push(LayerGroup {
                    group: one.group,
                    layers: 1,
                    heads: one.tap.op.heads,
                    block: attention[..block].join("."),
                    attention: attention.join("."),
                });
            }
        }
    }
    groups
}

/// Refuses a value that is clamped and taken from another run as well: the command would clamp it before, and a plan does so behind.
fn check_order(edits: &[LiveEdit], places: &[Place]) -> Result<(), ExplainError> {
    let of = |is_kind: fn(&LiveChange) -> bool| {
        edits.iter().zip(places).filter(move |(edit, _)| is_kind(&edit.change)).map(|(_, place)| &place.whole)
    };
    let mut clamped = of(|change| matches!(change, LiveChange::Clamp { .. }));
    match clamped.find(|path| of(|change| matches!(change, LiveChange::From(_))).any(|taken| taken == *path)) {
        None => Ok(()),
        Some(path) => {
            let rule = "a value is either clamped or taken from another input".to_string();
            Err(vitreous_engine::Error::Intervention { path: path.clone(), rule }.into())
        }
    }
}

/// A model that is held ready. It computes in f32.
pub struct Live<'m> {
    model: &'m Model,
    device: Device,
    /// The weights; lent while something else computes with them.
    source: Option<OnDevice<'m>>,
    /// The last used one last.
    plans: Vec<(Ready, Arc<Skeleton>)>,
    skeletons: Vec<(Lengths, Arc<Skeleton>)>,
    tails: Vec<Tail>,
    weights: Vec<LiveWeights>,
    taken: Vec<(LiveInput, String, Arc<[f32]>)>,
}

impl<'m> Live<'m> {
    /// Nothing is computed yet.
    pub fn new(model: &'m Model, device: &Device) -> Live<'m> {
        let source = Some(OnDevice::new(device, Box::new(model)));
        let (plans, skeletons, tails) = (Vec::new(), Vec::new(), Vec::new());
        let (weights, taken) = (Vec::new(), Vec::new());
        Live { model, device: device.clone(), source, plans, skeletons, tails, weights, taken }
    }

    /// The model.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Plans that are held ready.
    pub fn plans(&self) -> usize {
        self.plans.len()
    }

    /// Runs the model on an input with edits, keeping also the values of `paths`.
    pub fn pass(
        &mut self,
        input: &LiveInput,
        edits: &[LiveEdit],
        paths: &[String],
    ) -> Result<Pass<'_, 'm>, ExplainError> {
        self.check(input)?;
        let mut edits = edits.to_vec();
        edits.sort_by_key(LiveEdit::rank);
        let lengths = input.lengths();
        let skeleton = self.skeleton(lengths)?;
        let places = places(&skeleton, &edits)?;
        check_order(&edits, &places)?;
        let key = PlanKey::new(&skeleton, lengths, &edits, &places, paths, self.has_tail_of_rows())?;
        self.ready(key, &skeleton)?;
        if let Some((ready, _)) = self.plans.last_mut() {
            ready.run(input, &edits, &places)?;
        }
        Ok(Pass { live: self, input: input.clone(), edits, places })
    }

    /// The numbers of a value in a run on another input: what an edit takes over.
    pub fn taken(&mut self, from: &LiveInput, path: &str) -> Result<Arc<[f32]>, ExplainError> {
        if let Some((.., numbers)) = self.taken.iter().find(|(known, name, _)| name == path && known == from) {
            return Ok(numbers.clone());
        }
        let numbers: Arc<[f32]> = self.pass(from, &[], &[path.to_string()])?.value(path, None)?.numbers.into();
        self.taken.truncate(MOST_TAKEN - 1);
        self.taken.insert(0, (from.clone(), path.to_string(), numbers.clone()));
        Ok(numbers)
    }

    /// Analyses of a stack of layers, with the weights that are on the device.
    pub fn inside<T>(
        &mut self,
        input: &LiveInput,
        edits: &[LiveEdit],
        work: impl FnOnce(&mut Inside<'m>) -> Result<T, ExplainError>,
    ) -> Result<T, ExplainError> {
        self.check(input)?;
        let what = self.model.architecture.signature().what();
        let given = input.given().ok_or(ExplainError::NoLayers { what })?;
        let edits = self.interventions(input.lengths(), edits)?;
        let source = self.take_source();
        match Inside::read_on(self.model, edits, given, source) {
            Ok(mut inside) => {
                let found = work(&mut inside);
                self.source = Some(inside.into_source());
                found
            }
            Err(failed) => {
                let (error, source) = *failed;
                self.source = Some(source);
                Err(error)
            }
        }
    }

    /// The edits as the command does them, in its order.
    fn interventions(&mut self, lengths: Lengths, edits: &[LiveEdit]) -> Result<Vec<Intervention>, ExplainError> {
        let mut edits = edits.to_vec();
        edits.sort_by_key(LiveEdit::rank);
        let skeleton = self.skeleton(lengths)?;
        places(&skeleton, &edits)?;
        Ok(edits.iter().map(LiveEdit::intervention).collect())
    }

    fn take_source(&mut self) -> OnDevice<'m> {
        let model = self.model;
        self.source.take().unwrap_or_else(|| OnDevice::new(&self.device, Box::new(model)))
    }

    /// Refuses inputs that the model does not take.
    fn check(&self, input: &LiveInput) -> Result<(), ExplainError> {
        let signature = self.model.architecture.signature();
        let what = signature.what();
        let check = |side: &'static str, ids: &[u32], of| match ids.is_empty() {
            true => Err(ExplainError::NoTokens),
            false => crate::tokens::check_tokens(side, ids, of),
        };
        match (input, &signature.takes) {
            (LiveInput::Image(pixels), Takes::Images(images)) if pixels.len() == images.floats() => Ok(()),
            (LiveInput::Image(pixels), Takes::Images(images)) => Err(ExplainError::Pixels {
                got: pixels.len(),
                channels: images.channels,
                image: images.size,
                expected: images.floats(),
            }),
            (LiveInput::Text { ids, .. }, Takes::Tokens(tokens)) => check("text", ids, *tokens),
            (LiveInput::Pair { source, read }, Takes::Pairs { source: of_source, target, .. }) => {
                check("source", source, *of_source)?;
                check("target", read, *target)
            }
            (LiveInput::Audio { mel, read }, Takes::Audio(audio)) if mel.len() == audio.frames * audio.bins => {
                check("target", read, audio.target)
            }
            (LiveInput::Image(_), _) => Err(ExplainError::NoImages { what }),
            (LiveInput::Text { .. }, _) => Err(ExplainError::NoTexts { what }),
            (LiveInput::Pair { .. } | LiveInput::Audio { .. }, _) => Err(ExplainError::NoPairs { what }),
        }
    }

    /// What the model is made of, for inputs of these lengths.
    fn skeleton(&mut self, lengths: Lengths) -> Result<Arc<Skeleton>, ExplainError> {
        if let Some((_, known)) = self.skeletons.iter().find(|(known, _)| *known == lengths) {
            return Ok(known.clone());
        }
        let made = Arc::new(Skeleton::of(self.model, lengths)?);
        self.skeletons.truncate(MOST_PLANS - 1);
        self.skeletons.insert(0, (lengths, made.clone()));
        Ok(made)
    }

    /// Makes the plan of a key the last one.
    fn ready(&mut self, key: PlanKey, skeleton: &Arc<Skeleton>) -> Result<(), ExplainError> {
        if let Some(at) = self.plans.iter().position(|(ready, _)| ready.covers(&key)) {
            let plan = self.plans.remove(at);
            self.plans.push(plan);
            return Ok(());
        }
        if self.plans.len() >= MOST_PLANS {
            self.plans.remove(0);
        }
        let logits = !self.has_tail_of_rows();
        let mut source = self.take_source();
        let ready = Ready::new(self.model, skeleton, key, logits, &mut source);
        self.source = Some(source);
        self.plans.push((ready?, skeleton.clone()));
        Ok(())
    }

    /// Whether logits of single tokens are computed from their vectors, because those of all would take long.
    fn has_tail_of_rows(&self) -> bool {
        self.model.architecture.signature().gives.iter().any(|gives| matches!(gives, Gives::NextToken(_)))
    }
}

/// Where edits are.
fn places(skeleton: &Skeleton, edits: &[LiveEdit]) -> Result<Vec<Place>, ExplainError> {
    edits.iter().map(|edit| Place::of(skeleton, &edit.path)).collect()
}

impl PlanKey {
    /// The plan that edits and values need.
    fn new(
        skeleton: &Skeleton,
        lengths: Lengths,
        edits: &[LiveEdit],
        places: &[Place],
        paths: &[String],
        leaves_out_logits: bool,
    ) -> Result<PlanKey, ExplainError> {
        let is_left_out = |path: &String| leaves_out_logits && skeleton.logits.as_ref() == Some(path);
        let is_stage = |path: &String| skeleton.stages.iter().any(|(_, of)| of == path) && !is_left_out(path);
        let is_always = |path: &String| skeleton.switched.contains(path) || is_stage(path);
        let scopes: Vec<String> = skeleton.attentions.iter().map(|one| one.scope.clone()).collect();
        let mut kept = Vec::new();
        for path in paths.iter().filter(|path| !is_always(path) && !values::is_always_kept(path, &scopes)) {
            kept.push(Place::of(skeleton, path)?.whole);
        }
        let mut switched = Vec::new();
        let mut clamps = Vec::new();
        for (edit, place) in edits.iter().zip(places) {
            match edit.change {
                LiveChange::Clamp { .. } => clamps.push(edit.intervention()),
                _ if !skeleton.switched.contains(&place.whole) => switched.push(place.whole.clone()),
                _ => {}
            }
        }
        for list in [&mut kept, &mut switched] {
            list.sort();
            list.dedup();
        }
        Ok(PlanKey { lengths, switched, clamps, kept })
    }
}
