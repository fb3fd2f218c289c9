//! The thread that holds a model ready: one look after the other, each with what it wants of one run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value as Json, json};
use vitreous_engine::Device;
use vitreous_explain::ExplainError;
use vitreous_explain::live::{AttentionGroup, Live, LiveChange, LiveEdit, LiveRange, LiveValue, Pass};

use super::request::{AttentionAsked, AttentionRowAsked, ChangeAsked, EditAsked, StagesAsked, ValueAsked};
use super::{Look, WatchedInput, WatchedModel, command};
use crate::work::{BatchWork, WorkError};

/// Bytes of one answer.
const MOST_BYTES: usize = 64 << 20;
/// Edits, and values, of one look.
const MOST_LISTED: usize = 512;

/// What the thread is asked.
pub enum LookJob {
    /// A look, with the other inputs that it names.
    Look {
        /// The look.
        look: Box<Look>,
        /// By their ids.
        others: HashMap<String, Arc<WatchedInput>>,
    },
    /// The stages for an input.
    Graph(Arc<WatchedInput>),
}

/// How the numbers of an array are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayKind {
    /// 32-bit floats.
    F32,
    /// Bytes: 255 is the largest of its map.
    U8,
}

/// An array of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// What is said of it besides.
    pub about: Json,
    /// How numbers are stored.
    pub kind: ArrayKind,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its numbers, little-endian.
    pub bytes: Vec<u8>,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// Everything but arrays.
    pub header: Json,
    /// The arrays.
    pub arrays: Vec<Array>,
}

impl Looked {
    /// The vector of an answer.
    pub(super) fn vector(&self) -> Vec<f32> {
        let of_answer = self.arrays.iter().find(|array| array.about["from"] == "answer");
        let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        of_answer.map(|array| array.bytes.chunks_exact(4).map(number).collect()).unwrap_or_default()
    }

    fn push(&mut self, array: Array) -> Result<(), WorkError> {
        self.arrays.push(array);
        let bytes: usize = self.arrays.iter().map(|array| array.bytes.len()).sum();
        match bytes > MOST_BYTES {
            true => Err(WorkError::TooLarge(format!(
                "what was asked for has more than {MOST_BYTES} bytes: ask for less, or for smaller pictures by `fit`"
            ))),
            false => Ok(()),
        }
    }

    fn push_value(
        &mut self,
        from: &str,
        name: &str,
        value: LiveValue,
        range: Option<LiveRange>,
        more: Json,
    ) -> Result<(), WorkError> {
        let mut about = json!({"name": name, "from": from});
        if let Some(LiveRange { low, high, mean, deviation }) = range {
            about["low"] = json!(low);
            about["high"] = json!(high);
            about["mean"] = json!(mean);
            about["std"] = json!(deviation);
        }
        if let (Some(about), Json::Object(more)) = (about.as_object_mut(), more) {
            about.extend(more);
        }
        let bytes = floats(&value.numbers);
        self.push(Array { about, kind: ArrayKind::F32, shape: value.shape, bytes })
    }
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A model that is held ready.
pub struct LookWork<'m> {
    pub model: &'m WatchedModel,
    pub name: &'m str,
    pub device: &'m Device,
    pub live: Live<'m>,
}

impl BatchWork for LookWork<'_> {
    type Job = LookJob;
    type Answer = Looked;

    fn cost(_: &LookJob) -> usize {
        1
    }

    fn run(&mut self, jobs: &[LookJob]) -> Result<Vec<Looked>, WorkError> {
        jobs.iter()
            .map(|job| match job {
                LookJob::Look { look, others } => self.look(look, others),
                LookJob::Graph(input) => {
                    let header = super::described::graph(self.model, input)?;
                    Ok(Looked { header, arrays: Vec::new() })
                }
            })
            .collect()
    }
}

/// What other input would mend is told to whoever sent it.
pub(super) fn failed(error: ExplainError) -> WorkError {
    use vitreous_engine::Error;
    match error {
        ExplainError::Engine(Error::Intervention { .. } | Error::Unknown { .. } | Error::Memory(_)) => {
            WorkError::Input(error.to_string())
        }
        ExplainError::Engine(_) | ExplainError::Model(_) => WorkError::Failed(error.to_string()),
        error => WorkError::Input(error.to_string()),
    }
}

impl LookWork<'_> {
    fn look(&mut self, look: &Look, others: &HashMap<String, Arc<WatchedInput>>) -> Result<Looked, WorkError> {
        let start = Instant::now();
        let Look { input, edits: asked, want } = look;
        if asked.len() > MOST_LISTED || want.values.len() > MOST_LISTED {
            let what = format!("a look has at most {MOST_LISTED} edits, and as many values");
            return Err(WorkError::Input(what));
        }
        let edits: Vec<LiveEdit> = asked.iter().map(|edit| self.edit(edit, input, others)).collect::<Result<_, _>>()?;
        let paths: Vec<String> = want.values.iter().map(|value| value.path.clone()).collect();
        let mut looked = Looked { header: json!({}), arrays: Vec::new() };
        {
            let mut pass = self.live.pass(&input.live, &edits, &paths).map_err(failed)?;
            if let Some(asked) = &want.answer {
                let (answer, vector) = super::answer::answer(self.model, input, &mut pass, asked)?;
                looked.header["answer"] = answer;
                if let Some(vector) = vector {
                    let value = LiveValue { shape: vec![vector.len()], numbers: vector };
                    looked.push_value("answer", "vector", value, None, json!({}))?;
                }
            }
            for (place, asked) in want.values.iter().enumerate() {
                value(&mut pass, &mut looked, place, asked)?;
            }
            if let Some(asked) = &want.stages {
                stages(&pass, super::described::given_value(self.model, input), &mut looked, asked)?;
            }
            if let Some(asked) = &want.attention {
                attention(&mut pass, &mut looked, asked)?;
            }
            if let Some(asked) = &want.attention_row {
                attention_row(&mut pass, &mut looked, asked)?;
            }
            if let Some(asked) = &want.lens {
                super::lens::lens(self.model, input, &mut pass, asked, &mut looked.header)?;
            }
        }
        if want.answer.as_ref().is_some_and(|asked| asked.write) {
            looked.header["answer"]["rewritten"] = self.rewritten(input, &edits)?;
        }
        self.analyses(look, &edits, others, &mut looked.header)?;
        let labels = want.answer.as_ref().and_then(|asked| asked.labels.as_deref());
        looked.header["command"] = json!(command::of(self.name, self.model, input, asked, others, labels));
        looked.header["milliseconds"] = json!((start.elapsed().as_secs_f64() * 1e5).round() / 100.0);
        Ok(looked)
    }

    fn edit(
        &mut self,
        asked: &EditAsked,
        input: &WatchedInput,
        others: &HashMap<String, Arc<WatchedInput>>,
    ) -> Result<LiveEdit, WorkError> {
        let path = asked.path.clone();
        let shown: String = path.chars().take(100).collect();
        let number = |name: &str, number: Option<f32>| {
            let known = number.filter(|number| number.is_finite());
            known.ok_or_else(|| WorkError::Input(format!("the edit of {shown} needs `{name}`, a number")))
        };
        let change = match asked.change {
            ChangeAsked::Zero => LiveChange::Zero,
            ChangeAsked::Scale => LiveChange::Scale(number("factor", asked.factor)?),
            ChangeAsked::Clamp => {
                LiveChange::Clamp { low: number("low", asked.low)?, high: number("high", asked.high)? }
            }
            ChangeAsked::From => {
                let id = asked.input.as_ref();
                let missing = || WorkError::Input(format!("the edit of {shown} needs `input`, whose value is taken"));
                let other = id.and_then(|id| others.get(id)).ok_or_else(missing)?;
                check_alike(input, other)?;
                LiveChange::From(self.live.taken(&other.live, &path).map_err(failed)?)
            }
        };
        Ok(LiveEdit { path, change, tokens: asked.tokens.clone() })
    }
}

/// Values are taken over token by token.
pub(super) fn check_alike(input: &WatchedInput, other: &WatchedInput) -> Result<(), WorkError> {
    let (own, others) = (input.live.lengths(), other.live.lengths());
    match (own.tokens, own.target) == (others.tokens, others.target) {
        true => Ok(()),
        false => {
            let (own, other) = (own.tokens.max(own.target), others.tokens.max(others.target));
            Err(failed(ExplainError::OtherLength { own, other }))
        }
    }
}

fn value(pass: &mut Pass, looked: &mut Looked, place: usize, asked: &ValueAsked) -> Result<(), WorkError> {
    let mut value = pass.value(&asked.path, asked.head).map_err(failed)?;
    if let Some(rows) = asked.rows {
        value = value.rows(rows).map_err(failed)?;
    }
    let range = LiveRange::of(&value.numbers);
    let whole = value.shape.clone();
    if let Some(fit) = asked.fit {
        value = value.fit(fit);
    }
    let more = json!({"value": place, "head": asked.head, "whole": whole});
    looked.push_value("values", &asked.path, value, Some(range), more)
}

fn stages(
    pass: &Pass,
    given: Option<(String, LiveValue)>,
    looked: &mut Looked,
    asked: &StagesAsked,
) -> Result<(), WorkError> {
    let named = pass.stages().into_iter().filter_map(|name| pass.stage(&name).map(|value| (name, value)));
    for (name, value) in given.into_iter().chain(named) {
        let range = LiveRange::of(&value.numbers);
        let whole = value.shape.clone();
        looked.push_value("stages", &name, value.fit(asked.fit), Some(range), json!({"whole": whole}))?;
    }
    Ok(())
}

/// A group that is asked for, its layers and the heads of each.
pub(super) fn group(pass: &Pass, name: Option<&str>) -> Result<(AttentionGroup, usize, usize), WorkError> {
    use AttentionGroup::{Cross, Decoder, Encoder, Own};
    let known: Vec<(AttentionGroup, usize, usize)> = [Own, Encoder, Decoder, Cross]
        .into_iter()
        .filter_map(|group| pass.layers_of(group).map(|(layers, heads)| (group, layers, heads)))
        .collect();
    let found = known.iter().copied().find(|(group, ..)| name.is_none_or(|name| group.name() == name));
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(group, ..)| group.name()).collect();
        let name: String = name.unwrap_or_default().chars().take(40).collect();
        WorkError::Input(format!("there is no attention of the group `{name}`: there is {}", names.join(", ")))
    })
}

fn attention(pass: &mut Pass, looked: &mut Looked, asked: &AttentionAsked) -> Result<(), WorkError> {
    let (group, layers, heads) = group(pass, asked.group.as_deref())?;
    let chosen = |what: &'static str, list: &Option<Vec<usize>>, count: usize| match list {
        None => Ok((0..count).collect::<Vec<usize>>()),
        Some(list) => match list.iter().find(|&&number| number >= count) {
            Some(&asked) => Err(failed(ExplainError::NotThere { what, asked, count })),
            None if list.len() > count => Err(WorkError::Input(format!("each {what} can be named once"))),
            None => Ok(list.clone()),
        },
    };
    let layers = chosen("layer", &asked.layers, layers)?;
    let heads = chosen("head", &asked.heads, heads)?;
    let (mut bytes, mut largest, mut sizes) = (Vec::new(), Vec::new(), [0, 0]);
    for &layer in &layers {
        let (weights, [queries, keys]) = pass.attention(group, layer).map_err(failed)?;
        for &head in &heads {
            let numbers = weights[head * queries * keys..][..queries * keys].to_vec();
            let mut map = LiveValue { shape: vec![queries, keys], numbers };
            if let Some(fit) = asked.fit {
                map = map.fit([fit, fit]);
            }
            sizes = [map.shape[0], map.shape[1]];
            let most = map.numbers.iter().copied().filter(|x| x.is_finite()).fold(0.0f32, f32::max);
            let scale = if most > 0.0 { 255.0 / most } else { 0.0 };
            bytes.extend(map.numbers.iter().map(|weight| (weight * scale).round().clamp(0.0, 255.0) as u8));
            largest.push(most);
            if bytes.len() > MOST_BYTES {
                let what = format!(
                    "the maps have more than {MOST_BYTES} bytes: ask for smaller ones by `fit`, or for fewer layers"
                );
                return Err(WorkError::TooLarge(what));
            }
        }
    }
    let name = format!("attention {}", group.name());
    let about = json!({
        "name": name, "from": "attention", "group": group.name(), "layers": layers, "heads": heads, "maximum": largest,
    });
    let shape = vec![layers.len(), heads.len(), sizes[0], sizes[1]];
    looked.push(Array { about, kind: ArrayKind::U8, shape, bytes })
}

fn attention_row(pass: &mut Pass, looked: &mut Looked, asked: &AttentionRowAsked) -> Result<(), WorkError> {
    let (group, layers, heads) = group(pass, asked.group.as_deref())?;
    let (mut rows, mut width) = (Vec::new(), 0);
    for layer in 0..layers {
        let (weights, [queries, keys]) = pass.attention(group, layer).map_err(failed)?;
        if asked.query >= queries {
            return Err(failed(ExplainError::NotThere { what: "token", asked: asked.query, count: queries }));
        }
        width = keys;
        for head in 0..heads {
            rows.extend_from_slice(&weights[(head * queries + asked.query) * keys..][..keys]);
        }
    }
    let value = LiveValue { shape: vec![layers, heads, width], numbers: rows };
    let name = format!("attention_row {}", group.name());
    let more = json!({"group": group.name(), "query": asked.query});
    looked.push_value("attention_row", &name, value, None, more)
}
