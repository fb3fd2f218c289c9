//! What a model takes and gives: what commands, the trainer and the explainer ask for in place of a family's name.

use crate::settings::Size;

/// What a model takes, and all that it can give.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Its input.
    pub takes: Takes,
    /// Its outputs.
    pub gives: Vec<Gives>,
}

/// What goes in.
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
        /// Whether both have one vocabulary.
        shared: bool,
    },
}

/// The images that a model takes, and the patches that it cuts them into.
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
    /// Where the vector of the whole image comes from.
    pub pooled_from: PooledFrom,
}

/// The tokens that the vector of a whole image is pooled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledFrom {
    /// The class token, which is the first; perhaps with the mean of the patches beside it.
    ClassToken,
    /// All patches.
    Patches,
}

impl ImageInput {
    /// Floats of one prepared image.
    pub fn floats(&self) -> usize {
        self.channels.saturating_mul(self.size.area())
    }

    /// Tokens of one image.
    pub fn tokens(&self) -> usize {
        self.prefix.len() + self.grid.area()
    }
}

/// The tokens that a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenInput {
    /// The vocabulary's size.
    pub vocabulary: usize,
    /// The longest sequence.
    pub longest: usize,
}

/// What comes out, by the name of the value in [`Outputs`](crate::Outputs).
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
    /// `logits [batch, length, vocabulary]` for the token that follows each one.
    NextToken(usize),
    /// A sequence, written token by token: `logits [batch, length, vocabulary]`.
    Sequence(usize),
}

impl Signature {
    /// Its images, if it takes some.
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

    /// How many classes it tells apart, if it has a classification head.
    pub fn classes(&self) -> Option<usize> {
        self.gives.iter().find_map(|gives| match gives {
            Gives::Classes(classes) => Some(*classes),
            _ => None,
        })
    }

    /// The width of its vector per sample, if it gives one.
    pub fn vector(&self) -> Option<usize> {
        self.gives.iter().find_map(|gives| match gives {
            Gives::Vector(width) => Some(*width),
            _ => None,
        })
    }

    /// What it is, in words: "an image classifier".
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

    /// The commands that use it, as they are typed behind `vitreous`, with `MODEL` for its path.
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
