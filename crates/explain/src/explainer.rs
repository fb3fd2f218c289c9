//! Takes images through a model and says what happened inside.

use std::ops::Range;

use vitreous_engine::machine::check_memory;
use vitreous_engine::{Device, Graph, State, Value};
use vitreous_models::{Call, ImageInput, Model};

use crate::backward::{Backward, Objective, SEED};
use crate::distance::{distance, entropy};
use crate::error::ExplainError;
use crate::explanation::{Explanation, LayerAttention, Relevance, Rollout};
use crate::forward::Forward;
use crate::heads::Heads;
use crate::inputs::InputValues::Floats;
use crate::parallel::pieces;
use crate::patches::patch_features;
use crate::relevance::through_layers;
use crate::rollout::{Fused, least_kept, through_layer};
use crate::settings::{Choice, Classes, Settings, Structure};
use crate::spread::Spread;
use crate::taps::Tap;
use crate::token_grid::TokenGrid;

/// A model made ready to be explained, one image after the other.
pub struct Explainer<'m> {
    model: &'m Model,
    device: Device,
    settings: Settings,
    layout: TokenGrid,
    images: ImageInput,
    forward: Forward,
    outputs: ImageOutputs,
    heads: Heads,
    /// Made when it is first needed: it has the model's weights once more.
    backward: Option<(Backward, State)>,
}

/// What is asked of a model besides what its attention reads.
#[derive(Clone, Copy)]
struct ImageOutputs {
    logits: Option<Value>,
    features: Value,
    /// All tokens after the last layer, where the model has no head.
    tokens: Option<Value>,
}

/// The matrices of tokens by tokens that are held at once, besides the model: those that are kept, one for each way of joining heads and
/// a copy of it to sort for each rollout at work, and the heads that are looked at.
fn bytes_needed(settings: &Settings, layout: &TokenGrid) -> usize {
    let Settings { choice, fusions, discards, threads, memory, .. } = settings;
    let rollouts = fusions.len().saturating_mul(discards.len()).min(*threads);
    let matrices = choice.layers.len().saturating_mul(choice.heads.len()).saturating_add(fusions.len() + rollouts);
    layout.tokens().saturating_pow(2).saturating_mul(4).saturating_mul(matrices).saturating_add(*memory)
}

impl<'m> Explainer<'m> {
    /// Takes the model's weights to a device, on which the model runs. Refuses settings that are not for this model.
    pub fn new(model: &'m Model, settings: Settings, device: &Device) -> Result<Explainer<'m>, ExplainError> {
        let structure = Structure::of(model.architecture.as_ref())?;
        settings.check(structure)?;
        let signature = model.architecture.signature();
        let images = signature.images().ok_or(ExplainError::NoImages { what: signature.what() })?.clone();
        let Choice { layers, heads } = &settings.choice;
        let choice = Choice::of(structure, Some(layers), Some(heads))?;
        let settings = Settings { choice, threads: settings.threads.max(1), ..settings };
        let layout = TokenGrid::of(&images);
        check_memory(&format!("explaining {} tokens an image", layout.tokens()), bytes_needed(&settings, &layout))?;
        let (forward, outputs) = forward(model, device)?;
        // A model has a layer at least, and all are alike.
        let heads = Heads::new(&forward.taps[0], layout.tokens(), settings.memory, device)?;
        let device = device.clone();
        Ok(Explainer { model, device, settings, layout, images, forward, outputs, heads, backward: None })
    }

    /// Where the model's tokens lie.
    pub fn layout(&self) -> TokenGrid {
        self.layout
    }

    /// Explains one prepared image, `[channels, height, width]`.
    pub fn explain(&mut self, pixels: &[f32]) -> Result<Explanation, ExplainError> {
        self.run(pixels)?;
        let ImageOutputs { logits, features, tokens } = self.outputs;
        let logits = logits.map(|logits| self.forward.output(logits)).transpose()?;
        let features = self.forward.output(features)?;
        let patches = match tokens {
            Some(tokens) => {
                let tokens = self.forward.output(tokens)?;
                let dim = tokens.len() / self.layout.tokens();
                Some(patch_features(tokens[self.layout.prefix * dim..].to_vec(), dim)?)
            }
            None => None,
        };
        let (attention, rollout) = self.look()?;
        let mut relevance = Vec::new();
        for class in self.classes(logits.as_deref()) {
            relevance.push(self.relevance(pixels, class)?);
        }
        Ok(Explanation { layout: self.layout, logits, features, attention, rollout, relevance, patches })
    }

    /// Adds how far and how widely all heads of all layers look in one image, whatever the settings choose. No weights are kept.
    pub fn spread(&mut self, pixels: &[f32], spread: &mut Spread) -> Result<(), ExplainError> {
        self.run(pixels)?;
        let (layout, threads) = (self.layout, self.settings.threads);
        for layer in 0..self.forward.taps.len() {
            let (mut distances, mut entropies) = (Vec::new(), Vec::new());
            self.heads.of_layer(&self.forward, layer, |heads, weights| {
                for (distance, entropy) in measure(&layout, weights, &(0..heads.len()).collect::<Vec<_>>(), threads) {
                    distances.push(distance);
                    entropies.push(entropy);
                }
                Ok(())
            })?;
            spread.add_layer(layer, &(0..distances.len()).collect::<Vec<_>>(), &distances, &entropies);
        }
        spread.count_image();
        Ok(())
    }

    fn run(&mut self, pixels: &[f32]) -> Result<(), ExplainError> {
        let (got, channels, image) = (pixels.len(), self.images.channels, self.images.size);
        let expected = self.images.floats();
        if got != expected {
            return Err(ExplainError::Pixels { got, channels, image, expected });
        }
        self.forward.run(&[("images", Floats(pixels))])
    }

    /// The weights that are kept, and all rollouts, from the last layer to the first.
    fn look(&mut self) -> Result<(Vec<LayerAttention>, Vec<Rollout>), ExplainError> {
        let Explainer { settings, layout, forward, heads, .. } = self;
        let reading: Vec<f64> = layout.reading().into_iter().map(f64::from).collect();
        let fusions = if settings.discards.is_empty() { &[] } else { &settings.fusions[..] };
        let mut fused: Vec<Fused> = fusions.iter().map(|&fusion| Fused::new(fusion)).collect();
        let mut rows = vec![reading; fused.len() * settings.discards.len()];
        let mut kept = Vec::new();
        for layer in (0..forward.taps.len()).rev() {
            let mut keeper = settings.choice.layers.contains(&layer).then(|| Keeper::new(layer, layout, settings));
            if keeper.is_none() && fused.is_empty() {
                continue;
            }
            heads.of_layer(forward, layer, |heads, weights| {
                if let Some(keeper) = &mut keeper {
                    keeper.add(heads, weights);
                }
                for fused in &mut fused {
                    weights.chunks_exact(layout.tokens().pow(2)).for_each(|head| fused.add(head));
                }
                Ok(())
            })?;
            kept.extend(keeper.map(|keeper| keeper.attention));
            rows = through_all(&rows, &mut fused, settings);
        }
        kept.reverse();
        let pairs =
            settings.fusions.iter().flat_map(|fusion| settings.discards.iter().map(move |discard| (fusion, discard)));
        let rollout = |((&fusion, &discard), row): ((&_, &_), &Vec<f64>)| Rollout {
            fusion,
            discard,
            patches: patches(layout, row),
        };
        let rollouts = pairs.zip(&rows).map(rollout).collect();
        Ok((kept, rollouts))
    }

    /// The classes that relevance is computed for; `None` is for the features of a model without a head.
    fn classes(&self, logits: Option<&[f32]>) -> Vec<Option<usize>> {
        let (count, named) = match &self.settings.classes {
            Classes::Top(count) => (*count, &[][..]),
            Classes::These(classes) => (0, classes.as_slice()),
            Classes::TopAnd(count, classes) => (*count, classes.as_slice()),
        };
        let mut chosen: Vec<Option<usize>> = match logits {
            None => vec![None; count.min(1)],
            Some(logits) => {
                let mut order: Vec<usize> = (0..logits.len()).collect();
                order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
                order.into_iter().take(count).map(Some).collect()
            }
        };
        let likeliest = chosen.clone();
        chosen.extend(named.iter().map(|&class| Some(class)).filter(|class| !likeliest.contains(class)));
        chosen
    }

    fn relevance(&mut self, pixels: &[f32], class: Option<usize>) -> Result<Relevance, ExplainError> {
        let Explainer { model, device, settings, layout, forward, heads, backward, .. } = self;
        let (backward, state) = match backward {
            Some(there) => there,
            None => backward.insert(backward_pass(model, device)?),
        };
        let mut seed = vec![0.0; model.architecture.signature().classes().unwrap_or(0)];
        if let Some(class) = class {
            seed[class] = 1.0;
        }
        backward.run(state, &[("images", Floats(pixels)), (SEED, Floats(&seed))])?;
        let reading = layout.reading().into_iter().map(f64::from).collect();
        let row = through_layers(reading, forward, backward, heads, settings.threads)?;
        Ok(Relevance { class, patches: patches(layout, &row) })
    }
}

fn forward(model: &Model, device: &Device) -> Result<(Forward, ImageOutputs), ExplainError> {
    let mut graph = Graph::for_inference();
    let built = model.architecture.build(&mut graph, &Call::whole(1))?;
    let (features, logits) = (built.need("features")?, built.get("logits"));
    let tokens = if logits.is_none() { Some(built.need("tokens")?) } else { None };
    let outputs: Vec<Value> = [features].into_iter().chain(logits).chain(tokens).collect();
    let taps = Tap::all(&graph)?;
    let forward = Forward::new(model, &graph, taps, &outputs, "explaining an image", device)?;
    Ok((forward, ImageOutputs { logits, features, tokens }))
}

/// Gradients with respect to the output of every layer's attention.
fn backward_pass(model: &Model, device: &Device) -> Result<(Backward, State), ExplainError> {
    let mut graph = Graph::for_inference();
    let built = model.architecture.build(&mut graph, &Call::whole(1))?;
    let objective = match built.get("logits") {
        Some(logits) => Objective::Seeded(logits),
        None => Objective::HalfSquaredLength(built.need("features")?),
    };
    let outputs: Vec<Value> = Tap::all(&graph)?.iter().map(|tap| tap.output).collect();
    let backward = Backward::new(&mut graph, objective, &outputs, "relevance for a class", device)?;
    let state = Backward::state(model, &graph, device)?;
    Ok((backward, state))
}

/// The rows of all rollouts, by fusion and then by share that is left out, each times its layer's matrix.
fn through_all(rows: &[Vec<f64>], fused: &mut [Fused], settings: &Settings) -> Vec<Vec<f64>> {
    let joined: Vec<&[f32]> = fused.iter_mut().map(Fused::finish).collect();
    pieces(rows.len(), settings.threads, |index| {
        let (fusion, discard) = (index / settings.discards.len(), index % settings.discards.len());
        let least = least_kept(joined[fusion], settings.discards[discard]);
        through_layer(&rows[index], joined[fusion], least)
    })
}

/// Keeps the chosen heads of one layer.
struct Keeper<'s> {
    layout: &'s TokenGrid,
    threads: usize,
    attention: LayerAttention,
}

impl<'s> Keeper<'s> {
    fn new(layer: usize, layout: &'s TokenGrid, settings: &Settings) -> Keeper<'s> {
        let heads = settings.choice.heads.clone();
        let weights = Vec::with_capacity(heads.len() * layout.tokens().pow(2));
        let attention = LayerAttention { layer, heads, weights, distance: Vec::new(), entropy: Vec::new() };
        Keeper { layout, threads: settings.threads, attention }
    }

    fn add(&mut self, heads: Range<usize>, weights: &[f32]) {
        let one_head = self.layout.tokens().pow(2);
        let chosen = self.attention.heads.iter().filter(|head| heads.contains(head));
        let chosen: Vec<usize> = chosen.map(|head| head - heads.start).collect();
        for &head in &chosen {
            self.attention.weights.extend_from_slice(&weights[head * one_head..(head + 1) * one_head]);
        }
        for (distance, entropy) in measure(self.layout, weights, &chosen, self.threads) {
            self.attention.distance.push(distance);
            self.attention.entropy.push(entropy);
        }
    }
}

/// How far and how widely some of these heads look.
fn measure(layout: &TokenGrid, weights: &[f32], heads: &[usize], threads: usize) -> Vec<(f64, f64)> {
    let one_head = layout.tokens().pow(2);
    pieces(heads.len(), threads, |index| {
        let weights = &weights[heads[index] * one_head..(heads[index] + 1) * one_head];
        (distance(layout, weights), entropy(layout, weights))
    })
}

/// The patches' part of a row over tokens.
fn patches(layout: &TokenGrid, row: &[f64]) -> Vec<f32> {
    row[layout.prefix..].iter().map(|&share| share as f32).collect()
}
