//! A plan of a model for inputs of some lengths, whose runs keep what is to be looked at.

use std::collections::HashMap;

use vitreous_engine::{DType, Executor, Graph, Intervention, Value};
use vitreous_models::{Model, OnDevice, stages};

use super::attention::{LiveAttention, attentions};
use super::edits::{LiveChange, LiveEdit, Place, Switch, set};
use super::input::{Lengths, LiveInput};
use crate::error::ExplainError;

/// What a plan is made for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanKey {
    pub lengths: Lengths,
    /// Values with inputs for their edits, besides those that every plan has.
    pub switched: Vec<String>,
    /// Edits that are ops of their own.
    pub clamps: Vec<Intervention>,
    /// Values that are kept, besides those that every plan keeps.
    pub kept: Vec<String>,
}

impl PlanKey {
    /// Whether a plan of this key does for `asked`, too.
    fn covers(&self, asked: &PlanKey) -> bool {
        let has = |own: &[String], asked: &[String]| asked.iter().all(|path| own.contains(path));
        self.lengths == asked.lengths
            && self.clamps == asked.clamps
            && has(&self.switched, &asked.switched)
            && has(&self.kept, &asked.kept)
    }
}

/// A value that a run keeps.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub value: Value,
    pub shape: Vec<usize>,
}

/// What a model is made of, as far as plans need it.
pub(crate) struct Skeleton {
    /// Values with inputs for their edits in every plan.
    pub switched: Vec<String>,
    /// Stages, in order, and where their result is found.
    pub stages: Vec<(String, String)>,
    /// The streams: before the first layer, where that has a name, and after each.
    pub streams: Vec<(Option<usize>, String)>,
    /// What stands behind the last stream.
    pub tail: Vec<String>,
    /// The path of the logits, among those of stages.
    pub logits: Option<String>,
    pub attentions: Vec<LiveAttention>,
    /// The paths of all values that can be edited, sorted.
    pub editable: Vec<String>,
    pub graph: Graph,
}

impl Skeleton {
    pub fn of(model: &Model, lengths: Lengths) -> Result<Skeleton, ExplainError> {
        let mut graph = Graph::for_inference();
        let built = model.architecture.build(&mut graph, &lengths.call())?;
        let attentions = attentions(&graph)?;
        let editable = graph.editable_paths();
        let is_editable = |path: &str| editable.binary_search_by(|known| known.as_str().cmp(path)).is_ok();
        let stack = if is_editable("blocks.0") { "blocks" } else { "decoder" };
        let layers: Vec<String> =
            (0..).map(|layer| format!("{stack}.{layer}")).take_while(|path| is_editable(path)).collect();
        let mut streams: Vec<(Option<usize>, String)> =
            layers.iter().enumerate().map(|(layer, path)| (Some(layer), path.clone())).collect();
        if stack == "blocks" && is_editable("embedding") && !layers.is_empty() {
            streams.insert(0, (None, "embedding".to_string()));
        }
        let has_tokens = |path: &str| graph.find(path).is_ok_and(|value| graph.shape_of(value).rank() == 3);
        let parts = attentions.iter().flat_map(|one| [format!("{}.heads", one.scope), one.scope.clone()]);
        let of_layers = editable.iter().filter(|path| {
            let (rest, last) = path.rsplit_once('.').unwrap_or(("", path));
            last == "mlp" || (last.bytes().all(|byte| byte.is_ascii_digit()) && !rest.contains('.'))
        });
        let mut switched: Vec<String> = parts.chain(of_layers.cloned()).filter(|path| has_tokens(path)).collect();
        switched.extend(is_editable("embedding").then(|| "embedding".to_string()).filter(|path| has_tokens(path)));
        switched.sort();
        switched.dedup();
        let tail = match streams.last() {
            Some((_, last)) => behind(&graph, last, &editable)?,
            None => Vec::new(),
        };
        // What has a name is found by it after edits, too.
        let results =
            stages::steps(&graph, None).into_iter().map(|step| (step.own.name, step.result)).map(|(stage, path)| {
                let is_same =
                    |name: &str| graph.find(name).is_ok_and(|value| graph.find(&path).is_ok_and(|of| of == value));
                let named = is_same(&stage) && is_editable(&stage);
                let path = if named { stage.clone() } else { path };
                (stage, path)
            });
        let stages: Vec<(String, String)> = results.collect();
        let is_logits = |path: &&String| built.get("logits").is_some_and(|logits| graph.find(path) == Ok(logits));
        let logits = stages.iter().map(|(_, path)| path).find(is_logits).cloned();
        Ok(Skeleton { switched, stages, streams, tail, logits, attentions, editable, graph })
    }
}

/// The editable values that are computed of the last stream.
fn behind(graph: &Graph, last: &str, editable: &[String]) -> Result<Vec<String>, ExplainError> {
    let stream = graph.find(last)?;
    let order: HashMap<&str, usize> =
        graph.nodes().iter().enumerate().map(|(index, node)| (node.path.as_str(), index)).collect();
    let place = |value: Value| order.get(graph.path(value)).copied();
    let is_behind = |path: &&String| {
        let value = graph.find(path).ok();
        value.and_then(place) > place(stream)
    };
    Ok(editable.iter().filter(is_behind).cloned().collect())
}

/// A plan with its memory.
pub(crate) struct Ready {
    pub key: PlanKey,
    pub executor: Executor,
    pub attentions: Vec<LiveAttention>,
    kept: HashMap<String, Kept>,
    switches: Vec<Switch>,
    /// What the last run was of.
    done: Option<(LiveInput, Vec<LiveEdit>)>,
}

impl Ready {
    /// Plans for a key, with weights that are there already. `logits` says whether all of them are kept.
    pub fn new(
        model: &Model,
        skeleton: &Skeleton,
        key: PlanKey,
        logits: bool,
        source: &mut OnDevice,
    ) -> Result<Ready, ExplainError> {
        let switches: Vec<Switch> =
            skeleton.switched.iter().chain(&key.switched).map(|path| Switch::new(path)).collect();
        let mut interventions: Vec<Intervention> = switches.iter().flat_map(Switch::interventions).collect();
        interventions.extend_from_slice(&key.clamps);
        let mut graph = Graph::for_inference();
        let call = key.lengths.call();
        let built = graph.with_interventions(&interventions, |graph| model.architecture.build(graph, &call))?;
        let attentions = attentions(&graph)?;
        let mut kept: HashMap<String, Kept> = HashMap::new();
        let mut keep = |graph: &Graph, path: &str, value: Value| {
            let node = graph.node(value);
            let is_number = graph.type_of(value).dtype == DType::F32;
            if is_number && !node.op.is_leaf() {
                kept.insert(path.to_string(), Kept { value, shape: graph.shape_of(value).axes().to_vec() });
            }
        };
        let is_left_out = |path: &String| !logits && skeleton.logits.as_ref() == Some(path);
        let of_stages = skeleton.stages.iter().map(|(_, path)| path);
        let of_streams = skeleton.streams.iter().map(|(_, path)| path);
        for path in of_stages.chain(of_streams).chain(&skeleton.switched).chain(&key.kept) {
            if !is_left_out(path) || key.kept.contains(path) {
                keep(&graph, path, graph.find(path)?);
            }
        }
        for (name, value) in built.iter().filter(|(name, _)| logits || *name != "logits") {
            keep(&graph, &format!("output {name}"), value);
        }
        let of_attention = attentions.iter().flat_map(|one| one.tap.inputs.iter().chain(&one.bias)).copied();
        let mut outputs: Vec<Value> = kept.values().map(|kept| kept.value).chain(of_attention).collect();
        outputs.sort_unstable();
        outputs.dedup();
        let plan = source.plan(&mut graph, &outputs)?;
        let executor = source.executor("watching a model", None, plan)?;
        Ok(Ready { key, executor, attentions, kept, switches, done: None })
    }

    /// Whether it does for a key.
    pub fn covers(&self, key: &PlanKey) -> bool {
        self.key.covers(key)
    }

    /// Runs it, unless the last run was the same.
    pub fn run(&mut self, input: &LiveInput, edits: &[LiveEdit], places: &[Place]) -> Result<(), ExplainError> {
        if self.done.as_ref().is_some_and(|(known, done)| done == edits && known == input) {
            return Ok(());
        }
        self.done = None;
        input.fill(&mut self.executor)?;
        for at in 0..self.switches.len() {
            self.turn(at, edits, places)?;
        }
        self.executor.infer()?;
        self.done = Some((input.clone(), edits.to_vec()));
        Ok(())
    }

    /// Sets the inputs of a switch.
    fn turn(&mut self, at: usize, edits: &[LiveEdit], places: &[Place]) -> Result<(), ExplainError> {
        let switch = &self.switches[at];
        let own = || edits.iter().zip(places).filter(|(_, place)| place.whole == switch.path);
        let is_edited = own().any(|(edit, _)| !matches!(edit.change, LiveChange::Clamp { .. }));
        if !is_edited && !switch.is_set {
            return Ok(());
        }
        let shape = self.executor.plan().graph().inputs().find(|(name, _)| *name == switch.factor());
        // Nobody reads it, where what it would change is not computed.
        let Some(shape) = shape.map(|(_, value)| self.executor.plan().graph().shape_of(value).axes().to_vec()) else {
            return Ok(());
        };
        let count = shape.iter().product();
        // What is added to a number and changes none of its bits is −0.
        let (mut factor, mut offset) = (vec![1.0; count], vec![-0.0; count]);
        for (edit, place) in own() {
            let tokens = edit.tokens.as_deref();
            place.each(&edit.path, &shape, tokens, |at, part| {
                set(&mut factor[at], &mut offset[at], &edit.change, part);
            })?;
        }
        let names = [switch.factor(), switch.offset()];
        self.executor.input(&names[0])?.copy_from_slice(&factor);
        self.executor.input(&names[1])?.copy_from_slice(&offset);
        self.switches[at].is_set = is_edited;
        Ok(())
    }

    /// A value of the last run.
    pub fn value(&self, path: &str) -> Option<(&[f32], &[usize])> {
        let kept = self.kept.get(path)?;
        Some((self.executor.output_slice(kept.value).ok()?, &kept.shape))
    }
}
