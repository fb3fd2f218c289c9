//! What can be wrong with what is asked for, said so that the reader knows what there is.

use vitreous_models::{ModelError, Size};

/// An error of explaining.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// A layer or a head that the model has not.
    #[error("there is no {what} {asked}: the model has {}", counted(*.count, .what))]
    NotThere {
        /// `layer`, `layer of the encoder`, `head`, `class` or `token`.
        what: &'static str,
        /// What was asked for.
        asked: usize,
        /// How many there are.
        count: usize,
    },
    /// Classes of a model that has none.
    #[error(
        "class {asked} was asked for, but this model has no head: ask for no class, and relevance is for its features"
    )]
    NoHead {
        /// What was asked for.
        asked: usize,
    },
    /// A model that takes no images.
    #[error("this is {what}, which takes no images")]
    NoImages {
        /// What it is.
        what: &'static str,
    },
    /// A model that takes no pairs of sentences.
    #[error("this is {what}, which takes no source and target sentences")]
    NoPairs {
        /// What it is.
        what: &'static str,
    },
    /// A model that takes no single texts.
    #[error("this is {what}, which takes no single texts")]
    NoTexts {
        /// What it is.
        what: &'static str,
    },
    /// A model whose layers have other names.
    #[error("this is {what}, whose layers are not one stack of blocks: this cannot be looked at")]
    NoLayers {
        /// What it is.
        what: &'static str,
    },
    /// A logit that is no sum of parts.
    #[error("no attribution: {why}")]
    NotAttributable {
        /// Why not.
        why: &'static str,
    },
    /// Two texts to be patched that have different lengths.
    #[error(
        "the text has {own} tokens, but the one to patch from has {other}: values are taken over token by token, so give texts with as many tokens"
    )]
    OtherLength {
        /// Tokens of this one.
        own: usize,
        /// Tokens of the other.
        other: usize,
    },
    /// A text without a token.
    #[error("the text has no token: there is nothing to explain")]
    NoTokens,
    /// A number to explain that the model does not compute.
    #[error("this is {what}: {target} is none of its outputs")]
    NoTarget {
        /// What it is.
        what: &'static str,
        /// What was asked for.
        target: &'static str,
    },
    /// A baseline of another length than the text.
    #[error("the baseline has {got} tokens, but the text has {expected}: give one for each")]
    Baseline {
        /// How many came.
        got: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A share of weights to leave out that is none.
    #[error("a share of {0} of the weights cannot be left out of a rollout: take one from 0 on and below 1")]
    Discard(f32),
    /// An image of another size than the model's.
    #[error(
        "{got} numbers were passed as an image, but the model sees {channels} channels of {image}: {expected} numbers"
    )]
    Pixels {
        /// How many came.
        got: usize,
        /// Channels of the model's images.
        channels: usize,
        /// Height and width of the model's images.
        image: Size,
        /// How many there should be.
        expected: usize,
    },
    /// A sentence of more tokens than the model has places for.
    #[error(
        "the {side} has {got} tokens with its start or end, but the model reads at most {most}: give a shorter one"
    )]
    TooLong {
        /// `source`, `target` or `text`.
        side: &'static str,
        /// How many there are.
        got: usize,
        /// How many there may be.
        most: usize,
    },
    /// A token that the model has no row for.
    #[error("the {side} has token {token}, but the model knows {vocabulary}: its tokeniser is of another model")]
    NoToken {
        /// `source`, `target` or `text`.
        side: &'static str,
        /// What came.
        token: u32,
        /// How many there are.
        vocabulary: usize,
    },
    /// The graph or the machine refused.
    #[error(transparent)]
    Engine(#[from] vitreous_engine::Error),
    /// The model's values cannot be read.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// `12 layers, 0 to 11`.
fn counted(count: usize, what: &str) -> String {
    let many = match what.split_once(' ') {
        _ if what == "class" => "classes".to_string(),
        Some((one, rest)) => format!("{one}s {rest}"),
        None => format!("{what}s"),
    };
    match count {
        0 => format!("no {many}"),
        1 => format!("one {what}, 0"),
        _ => format!("{count} {many}, 0 to {}", count - 1),
    }
}
