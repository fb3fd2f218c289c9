//! What is asked of a model that is watched.

use serde::Deserialize;

/// An edit of a value inside the model, as the command line has it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditAsked {
    /// The value's path.
    pub path: String,
    /// `zero`, `scale`, `clamp` or `from`.
    #[serde(rename = "do")]
    pub change: ChangeAsked,
    /// Of `scale`.
    pub factor: Option<f32>,
    /// Of `clamp`.
    pub low: Option<f32>,
    /// Of `clamp`.
    pub high: Option<f32>,
    /// Of `from`: whose value is taken over.
    pub input: Option<String>,
    /// For which tokens; absent: all.
    pub tokens: Option<Vec<usize>>,
}

/// What is done with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeAsked {
    /// It is zero.
    Zero,
    /// It is multiplied.
    Scale,
    /// Its numbers are limited.
    Clamp,
    /// It is that of another input.
    From,
}

/// What is to be seen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Want {
    /// The model's answer.
    pub answer: Option<AnswerAsked>,
    /// Values by their paths.
    pub values: Vec<ValueAsked>,
    /// A small picture of every stage.
    pub stages: Option<StagesAsked>,
    /// Maps of attention.
    pub attention: Option<AttentionAsked>,
    /// To whom a token attends, in all heads.
    pub attention_row: Option<AttentionRowAsked>,
    /// What each layer would say.
    pub lens: Option<LensAsked>,
    /// What each part adds to a logit.
    pub attribution: Option<TargetAsked>,
    /// What happens without each head and MLP.
    pub effects: Option<EffectsAsked>,
    /// What kind of head each head is.
    pub scores: Option<ScoresAsked>,
    /// How much each patch or token speaks for the answer.
    pub relevance: Option<TargetAsked>,
    /// What each vector of another input does here.
    pub patching: Option<PatchingAsked>,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerAsked {
    /// How many of the most probable.
    pub top: Option<usize>,
    /// Behind which token.
    pub token: Option<usize>,
    /// Of a language model: whether every token of the text has its probability.
    pub tokens: bool,
    /// Of a model that writes a text from a text or from speech: whether it is written anew, with the edits.
    pub write: bool,
    /// Of a model of images and texts: the classes.
    pub labels: Option<Vec<String>>,
    /// The sentence that classes are put into, in place of `{}`.
    pub template: Option<String>,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueAsked {
    /// Its path.
    pub path: String,
    /// Of attention: one head.
    pub head: Option<usize>,
    /// From which row to before which.
    pub rows: Option<[usize; 2]>,
    /// At most so many rows and columns.
    pub fit: Option<[usize; 2]>,
}

/// Pictures of all stages.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagesAsked {
    /// At most so many rows and columns.
    #[serde(default = "usual_fit")]
    pub fit: [usize; 2],
}

fn usual_fit() -> [usize; 2] {
    [64, 64]
}

/// Maps of attention.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionAsked {
    /// `self`, `encoder`, `decoder` or `cross`; absent: the first that the model has.
    pub group: Option<String>,
    /// At most so many rows and columns of a map.
    pub fit: Option<usize>,
    /// Which layers; absent: all.
    pub layers: Option<Vec<usize>>,
    /// Which heads; absent: all.
    pub heads: Option<Vec<usize>>,
}

/// A row of attention.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionRowAsked {
    /// See [`AttentionAsked::group`].
    pub group: Option<String>,
    /// The token that attends.
    pub query: usize,
}

/// A token, or all.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum TokenAsked {
    /// One.
    One(usize),
    /// `all`.
    Named(String),
}

/// What each layer would say.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LensAsked {
    /// Behind which token.
    pub token: Option<TokenAsked>,
    /// How many of the most probable.
    pub top: Option<usize>,
    /// An output whose probability and rank are told as well.
    pub target: Option<usize>,
    /// Behind one token: how many outputs are followed through all layers.
    pub follow: usize,
}

/// A logit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetAsked {
    /// Behind which token.
    pub token: Option<usize>,
    /// Of which output; absent: the most probable.
    pub target: Option<usize>,
    /// Of relevance: whether integrated gradients are computed as well.
    pub integrated: bool,
}

/// What happens without each head and MLP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EffectsAsked {
    /// See [`AttentionAsked::group`].
    pub group: Option<String>,
    /// Of models with one stack of layers and logits: behind which token.
    pub token: Option<usize>,
    /// Of the same: of which output; absent: the most probable.
    pub target: Option<usize>,
}

/// Scores of heads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScoresAsked {}

/// Another input whose vectors are tried here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchingAsked {
    /// Which.
    pub other: String,
    /// Behind which token.
    pub token: Option<usize>,
    /// Of which output; absent: the most probable.
    pub target: Option<usize>,
}
