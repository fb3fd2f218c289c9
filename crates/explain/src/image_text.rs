//! Where a picture and a text support each other, in models of images and texts.
//!
//! The two towers meet only in the cosine of their vectors, so relevance goes through each tower by itself
//! ([`relevance`](crate::relevance)): through the image tower with the text's vector as the gradient of the image's, and through the text
//! tower with the image's vector as that of the text's. For a single word the gradient is the difference that the word makes to the text's
//! vector: what of the picture supports that the word is there.

use vitreous_engine::{Device, Graph, State, Value};
use vitreous_models::{Call, CaptionInput, Model, POOLED};

use crate::backward::{Backward, Objective, SEED};
use crate::error::ExplainError;
use crate::forward::Forward;
use crate::heads::Heads;
use crate::inputs::InputValues::{self, Floats, Integers};
use crate::relevance::through_layers;
use crate::taps::Tap;
use crate::token_grid::TokenGrid;

/// Memory for the weights of some heads.
const MEMORY: usize = 64 << 20;

/// A tower made ready for relevance.
struct Tower {
    forward: Forward,
    backward: Backward,
    heads: Heads,
    tokens: usize,
    threads: usize,
}

impl Tower {
    fn new(
        model: &Model,
        call: &Call,
        tokens: usize,
        threads: usize,
        device: &Device,
    ) -> Result<(Tower, State), ExplainError> {
        let mut graph = Graph::for_inference();
        let features = model.architecture.build(&mut graph, call)?.need("features")?;
        let taps = layers(&graph, tokens)?;
        let outputs: Vec<Value> = taps.iter().map(|tap| tap.output).collect();
        let first =
            taps.first().ok_or_else(|| ExplainError::NoImages { what: model.architecture.signature().what() })?;
        let heads = Heads::new(first, tokens, MEMORY, device)?;
        let forward = Forward::new(model, &graph, taps.clone(), &[], "explaining a picture and a text", device)?;
        let purpose = "relevance through a tower";
        let backward = Backward::new(&mut graph, Objective::Seeded(features), &outputs, purpose, device)?;
        let state = Backward::state(model, &graph, device)?;
        Ok((Tower { forward, backward, heads, tokens, threads: threads.max(1) }, state))
    }

    /// The relevance of each token for a direction of the shared space.
    fn relevance(
        &mut self,
        state: &mut State,
        inputs: &[(&str, InputValues)],
        direction: &[f32],
        reading: Vec<f64>,
    ) -> Result<Vec<f32>, ExplainError> {
        self.forward.run(inputs)?;
        let mut all = inputs.to_vec();
        all.push((SEED, Floats(direction)));
        self.backward.run(state, &all)?;
        let row = through_layers(reading, &self.forward, &self.backward, &mut self.heads, self.threads)?;
        debug_assert_eq!(row.len(), self.tokens);
        Ok(row.into_iter().map(|share| share as f32).collect())
    }
}

/// The attention of all layers; a head that pools tokens has one query alone, and is none of them.
fn layers(graph: &Graph, tokens: usize) -> Result<Vec<Tap>, ExplainError> {
    let mut taps = Tap::all(graph)?;
    taps.retain(|tap| graph.shape_of(tap.output).axes().get(1) == Some(&tokens));
    Ok(taps)
}

/// Both towers of a model of images and texts.
pub struct ImageTextExplainer<'m> {
    image_model: &'m Model,
    text_model: &'m Model,
    captions: CaptionInput,
    layout: TokenGrid,
    device: Device,
    threads: usize,
    images: Option<(Tower, State)>,
    /// For texts of one length.
    texts: Option<(usize, Tower, State)>,
}

impl<'m> ImageTextExplainer<'m> {
    /// Of the two towers, each as a model of its own.
    pub fn new(
        image_model: &'m Model,
        text_model: &'m Model,
        captions: CaptionInput,
        threads: usize,
        device: &Device,
    ) -> Result<ImageTextExplainer<'m>, ExplainError> {
        let signature = image_model.architecture.signature();
        let images = signature.images().ok_or(ExplainError::NoImages { what: signature.what() })?;
        let layout = TokenGrid::of(images);
        let device = device.clone();
        Ok(ImageTextExplainer { image_model, text_model, captions, layout, device, threads, images: None, texts: None })
    }

    /// Where the image tower's tokens lie.
    pub fn layout(&self) -> TokenGrid {
        self.layout
    }

    /// How much each patch of a prepared image speaks for a direction of the shared space: the vector of a text, or the difference that a
    /// word makes to it.
    pub fn patches(&mut self, pixels: &[f32], direction: &[f32]) -> Result<Vec<f32>, ExplainError> {
        let tokens = self.layout.tokens();
        if self.images.is_none() {
            self.images = Some(Tower::new(self.image_model, &Call::whole(1), tokens, self.threads, &self.device)?);
        }
        let Some((tower, state)) = &mut self.images else { return Ok(Vec::new()) };
        let reading = self.layout.reading().into_iter().map(f64::from).collect();
        let row = tower.relevance(state, &[("images", Floats(pixels))], direction, reading)?;
        Ok(row[self.layout.prefix..].to_vec())
    }

    /// How much each token of a text, with its special tokens, speaks for a direction of the shared space: the vector of an image.
    pub fn tokens(&mut self, ids: &[u32], direction: &[f32]) -> Result<Vec<f32>, ExplainError> {
        let length = self.captions.padded_length(ids.len());
        if self.texts.as_ref().is_none_or(|(ready, ..)| *ready != length) {
            let call = Call::whole(1).tokens(length);
            let (tower, state) = Tower::new(self.text_model, &call, length, self.threads, &self.device)?;
            self.texts = Some((length, tower, state));
        }
        let Some((_, tower, state)) = &mut self.texts else { return Ok(Vec::new()) };
        let mut tokens: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
        tokens.resize(length, self.captions.padding() as i32);
        let place = self.captions.place(ids);
        let mut reading = vec![0.0; length];
        reading[place] = 1.0;
        let pooled = [place as i32];
        let inputs = [("tokens", Integers(&tokens)), (POOLED, Integers(&pooled))];
        let mut row = tower.relevance(state, &inputs, direction, reading)?;
        row.truncate(ids.len());
        Ok(row)
    }
}
