//! A model's inputs and outputs, which commands, the trainer and the explainer check instead of a family's name.

use crate::settings::Size;

/// What a model takes as input, and everything it can output.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Its input.
    pub takes: Takes,
    /// Its outputs.
    pub gives: Vec<Gives>,
}

/// The input of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Takes {
    /// Images: input `images [batch, channels, height, width]`.
    Images(ImageInput),
    /// One sequence of tokens: input `tokens [batch, length]`.
    Tokens(TokenInput),
    /// A source and a target sequence: inputs `source`, `source_lengths`, `target`.
    Pairs {
        /// The source.
        source: TokenInput,
        /// The target.
        target: TokenInput,
        /// Whether both share one vocabulary.
        shared: bool,
    },
}

/// The input images of a model, and their grid of patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInput {
    /// Colour channels.
    pub channels: usize,
    /// Height and width.
    pub size: Size,
    /// Rows and columns of patches.
    pub grid: Size,
    /// Names of the tokens in front of the patches: class token, distillation token, registers.
    pub prefix: Vec<String>,
    /// Which tokens the feature vector of an image comes from.
    pub pooled_from: PooledFrom,
}

/// The tokens that the feature vector of an image is pooled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledFrom {
    /// The class token, which comes first; possibly concatenated with the mean of the patches.
    ClassToken,
    /// All patches.
    Patches,
}

impl ImageInput {
    /// Floats per preprocessed image.
    pub fn floats(&self) -> usize {
        self.channels.saturating_mul(self.size.area())
    }

    /// Tokens per image.
    pub fn tokens(&self) -> usize {
        self.prefix.len() + self.grid.area()
    }
}

/// The input tokens of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenInput {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Maximum sequence length.
    pub longest: usize,
}

/// The outputs, by name of the value in [`Outputs`](crate::Outputs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// `logits [batch, classes]`.
    Classes(usize),
    /// `features [batch, width]`: one vector per sample.
    Vector(usize),
    /// `tokens [batch, length, width]`: one vector per token.
    TokenVectors(usize),
    /// `logits [batch, length, vocabulary]` for masked tokens.
    MaskedTokens(usize),
    /// `logits [batch, length, vocabulary]` for the next token at every position.
    NextToken(usize),
    /// A sequence, generated token by token: `logits [batch, length, vocabulary]`.
    Sequence(usize),
}

impl Signature {
    /// Its image input, if it takes images.
    pub fn images(&self) -> Option<&ImageInput> {
        match &self.takes {
            Takes::Images(images) => Some(images),
            Takes::Tokens(_) | Takes::Pairs { .. } => None,
        }
    }

    /// Its source and target, if it takes pairs.
    pub fn pairs(&self) -> Option<(TokenInput, TokenInput)> {
        match &self.takes {
            Takes::Pairs { source, target, .. } => Some((*source, *target)),
            Takes::Images(_) | Takes::Tokens(_) => None,
        }
    }

    /// Number of classes, if it has a classification head.
    pub fn classes(&self) -> Option<usize> {
        self.gives.iter().find_map(|gives| match gives {
            Gives::Classes(classes) => Some(*classes),
            _ => None,
        })
    }

    /// The width of its vector per sample, if it outputs one.
    pub fn vector(&self) -> Option<usize> {
        self.gives.iter().find_map(|gives| match gives {
            Gives::Vector(width) => Some(*width),
            _ => None,
        })
    }

    /// A description of the model: "an image classifier".
    pub fn what(&self) -> &'static str {
        let gives = |wanted: fn(&Gives) -> bool| self.gives.iter().any(wanted);
        match &self.takes {
            Takes::Images(_) if self.classes().is_some() => "an image classifier",
            Takes::Images(_) => "an image encoder",
            Takes::Pairs { .. } => "a translator",
            Takes::Tokens(_) if gives(|gives| matches!(gives, Gives::NextToken(_))) => "a language model",
            Takes::Tokens(_) if gives(|gives| matches!(gives, Gives::MaskedTokens(_))) => "a masked language model",
            Takes::Tokens(_) if self.classes().is_some() => "a text classifier",
            Takes::Tokens(_) => "a text encoder",
        }
    }

    /// The commands that apply to it, as typed after `vitreous`, with `MODEL` for its path.
    pub fn commands(&self) -> &'static [&'static str] {
        match &self.takes {
            Takes::Images(_) if self.classes().is_some() => {
                &["predict MODEL IMAGE", "eval MODEL --data DIR", "explain MODEL IMAGE", "summary MODEL"]
            }
            Takes::Images(_) => &["predict MODEL IMAGE --features", "explain MODEL IMAGE", "summary MODEL"],
            Takes::Pairs { .. } => {
                &["translate MODEL TEXT", "eval MODEL --data FILE", "explain MODEL --text TEXT", "summary MODEL"]
            }
            Takes::Tokens(_) => &["summary MODEL", "convert MODEL DIR"],
        }
    }
}
