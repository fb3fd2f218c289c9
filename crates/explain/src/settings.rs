//! What is asked for.

use vitreous_engine::Graph;
use vitreous_models::{Architecture, Call};

use crate::error::ExplainError;
use crate::explanation::Fusion;
use crate::taps::Tap;

/// What of a model can be chosen from, read off its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure {
    /// Layers with attention.
    pub layers: usize,
    /// Heads of each.
    pub heads: usize,
    /// Classes of its head; 0 without one.
    pub classes: usize,
}

impl Structure {
    /// That of a model.
    pub fn of(model: &dyn Architecture) -> Result<Structure, ExplainError> {
        let mut graph = Graph::for_inference();
        model.plain().build(&mut graph, &Call::whole(1))?;
        let taps = Tap::all(&graph)?;
        let heads = taps.first().map_or(0, |tap| tap.op.heads);
        Ok(Structure { layers: taps.len(), heads, classes: model.signature().classes().unwrap_or(0) })
    }
}

/// The layers and heads whose weights are kept; all others are forgotten as soon as they were used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Layers from 0, each once, the first first. None keeps no weights.
    pub layers: Vec<usize>,
    /// Heads from 0, each once, the first first: the same ones of every layer.
    pub heads: Vec<usize>,
}

impl Choice {
    /// All of a model's.
    pub fn all(model: Structure) -> Choice {
        Choice { layers: (0..model.layers).collect(), heads: (0..model.heads).collect() }
    }

    /// Some layers and heads, in any order; `None` for all. Refuses what the model has not, and says what it has.
    pub fn of(model: Structure, layers: Option<&[usize]>, heads: Option<&[usize]>) -> Result<Choice, ExplainError> {
        let all = Choice::all(model);
        let chosen = |some: Option<&[usize]>, all: Vec<usize>| some.map_or(all, |some| some.to_vec());
        let mut choice = Choice { layers: chosen(layers, all.layers), heads: chosen(heads, all.heads) };
        choice.check(model)?;
        for numbers in [&mut choice.layers, &mut choice.heads] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        Ok(choice)
    }

    /// Refuses layers and heads that the model does not have.
    pub fn check(&self, model: Structure) -> Result<(), ExplainError> {
        for (what, numbers, count) in [("layer", &self.layers, model.layers), ("head", &self.heads, model.heads)] {
            if let Some(&asked) = numbers.iter().find(|&&number| number >= count) {
                return Err(ExplainError::NotThere { what, asked, count });
            }
        }
        Ok(())
    }
}

/// For which classes relevance is computed. Each takes a pass forward and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Classes {
    /// The most probable ones, this many, the most probable first. For a model without a head, its features, unless it is 0.
    Top(usize),
    /// These, in this order.
    These(Vec<usize>),
    /// The most probable ones, this many, then those of the list that are not among them.
    TopAnd(usize, Vec<usize>),
}

/// What to compute.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The layers and heads whose weights are kept.
    pub choice: Choice,
    /// How heads are fused for rollouts.
    pub fusions: Vec<Fusion>,
    /// Fractions of weights that rollouts discard; there is one rollout for each of these and each of `fusions`.
    pub discards: Vec<f32>,
    /// For which classes relevance is computed.
    pub classes: Classes,
    /// Threads on the CPU, at least 1, whatever device the model runs on. Results do not depend on it.
    pub threads: usize,
    /// Bytes of attention weights that are held at once, besides those that are kept: so many heads of a layer are computed
    /// together as fit, but always one. On the processor it changes no bit.
    pub memory: usize,
}

impl Settings {
    /// What a page shows: everything of attention, all fusions, nothing and nine tenths discarded, the most probable class.
    pub fn usual(model: Structure, threads: usize) -> Settings {
        Settings {
            choice: Choice::all(model),
            fusions: Fusion::ALL.to_vec(),
            discards: vec![0.0, 0.9],
            classes: Classes::Top(1),
            threads,
            memory: 256 << 20,
        }
    }

    /// Refuses what cannot be computed for this model.
    pub fn check(&self, model: Structure) -> Result<(), ExplainError> {
        self.choice.check(model)?;
        if let Some(&discard) = self.discards.iter().find(|discard| !(0.0..1.0).contains(*discard)) {
            return Err(ExplainError::Discard(discard));
        }
        let (Classes::These(classes) | Classes::TopAnd(_, classes)) = &self.classes else { return Ok(()) };
        match classes.iter().find(|&&class| class >= model.classes) {
            None => Ok(()),
            Some(&asked) if model.classes == 0 => Err(ExplainError::NoHead { asked }),
            Some(&asked) => Err(ExplainError::NotThere { what: "class", asked, count: model.classes }),
        }
    }
}
