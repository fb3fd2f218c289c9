//! A model's inputs and outputs, which commands, the trainer and the explainer check instead of a family's name.

use serde::{Deserialize, Serialize};

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
    /// One sequence of tokens: inputs `tokens [batch, length]` and `lengths [batch]`, beyond which a sequence is padding.
    Tokens(TokenInput),
    /// A source and a target sequence: inputs `source`, `source_lengths`, `target`.
    Pairs {
        /// The source.
        source: TokenInput,
        /// The target.
        target: TokenInput,
        /// Whether both share one vocabulary.
        shared: bool,
        /// Its special tokens, if its configuration states them; otherwise its tokenizer does.
        special: Option<SpecialTokens>,
    },
    /// Images and texts, whose vectors are compared: inputs `images`, `tokens` and, of some, `pooled [batch]`.
    ImagesAndTexts {
        /// The images.
        images: ImageInput,
        /// The texts.
        texts: CaptionInput,
    },
    /// Windows of audio and a target sequence: inputs `mel [batch, frames, bins]`, `target`.
    Audio(AudioInput),
}

/// The texts of a model of images and texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptionInput {
    /// The tokens.
    pub tokens: TokenInput,
    /// The token whose vector is the text's.
    pub pooled: CaptionToken,
}

/// The token of a text whose vector is the text's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptionToken {
    /// The first with this number, which ends a text. What follows it is not seen.
    End(u32),
    /// The first of those with the largest number, which ends a text: the tokenizer numbers it last.
    Largest,
    /// The last of the longest text: every text is filled up to there.
    Last {
        /// The token that fills it up.
        padding: u32,
    },
}

impl CaptionInput {
    /// The place of the token whose vector is the text's, in a text with its special tokens.
    pub fn place(&self, ids: &[u32]) -> usize {
        match self.pooled {
            // As `transformers`: without an end, the first token.
            CaptionToken::End(end) => ids.iter().position(|&id| id == end).unwrap_or(0),
            CaptionToken::Largest => {
                let largest = ids.iter().max();
                ids.iter().position(|id| Some(id) == largest).unwrap_or(0)
            }
            CaptionToken::Last { .. } => self.tokens.longest - 1,
        }
    }

    /// How many tokens texts of these lengths are padded to.
    pub fn padded_length(&self, longest: usize) -> usize {
        match self.pooled {
            CaptionToken::End(_) | CaptionToken::Largest => longest.max(1),
            CaptionToken::Last { .. } => self.tokens.longest,
        }
    }

    /// What fills up texts. Where it is not seen, any token will do.
    pub fn padding(&self) -> u32 {
        match self.pooled {
            CaptionToken::End(_) | CaptionToken::Largest => 0,
            CaptionToken::Last { padding } => padding,
        }
    }

    /// Whether the model has the input [`POOLED`](crate::POOLED).
    pub fn has_pooled(&self) -> bool {
        !matches!(self.pooled, CaptionToken::Last { .. })
    }
}

/// The audio that a model takes, and the text that it writes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioInput {
    /// Mel bins of a frame.
    pub bins: usize,
    /// Frames of a window.
    pub frames: usize,
    /// Positions of the encoder's result.
    pub positions: usize,
    /// The text.
    pub target: TokenInput,
}

/// The special tokens of a model of pairs, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialTokens {
    /// What fills up a batch.
    pub padding: u32,
    /// What a target begins with.
    pub start: u32,
    /// What sources and targets end with.
    pub end: u32,
    /// The last token of a target that has become as long as it may, if it is given.
    pub forced_end: Option<u32>,
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
    /// How many tokens a token attends to, itself included, in every layer of a language model with a sliding window.
    pub window: Option<usize>,
    /// Number of token types; the input `token_types [batch, length]` exists from 2 on.
    pub token_types: usize,
}

/// The outputs, by name of the value in [`Outputs`](crate::Outputs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// `logits [batch, classes]`, one of which applies: softmax over all.
    Classes(usize),
    /// `logits [batch, labels]`, several of which may apply: sigmoid of each.
    Labels(usize),
    /// `logits [batch, numbers]`, which are the predicted numbers themselves.
    Numbers(usize),
    /// `logits [batch, length, classes]`: the class of each token.
    TokenClasses(usize),
    /// `logits [batch, length, 2]`: whether an answer starts, and ends, at each token.
    Span,
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

/// The head on an encoder: the layers between its vectors and `logits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// None.
    #[default]
    None,
    /// One of this many classes.
    Classes(usize),
    /// Any of this many labels.
    Labels(usize),
    /// This many numbers.
    Numbers(usize),
    /// One of this many classes for each token.
    TokenClasses(usize),
    /// The start and the end of an answer.
    Span,
    /// The words of masked tokens.
    MaskedTokens,
}

impl Head {
    /// The output of the head, for a model with this vocabulary.
    pub fn gives(self, vocabulary: usize) -> Option<Gives> {
        Some(match self {
            Head::None => return None,
            Head::Classes(classes) => Gives::Classes(classes),
            Head::Labels(labels) => Gives::Labels(labels),
            Head::Numbers(numbers) => Gives::Numbers(numbers),
            Head::TokenClasses(classes) => Gives::TokenClasses(classes),
            Head::Span => Gives::Span,
            Head::MaskedTokens => Gives::MaskedTokens(vocabulary),
        })
    }

    /// The number of its outputs per text or token, if the head has a setting for it.
    pub fn size(self) -> Option<usize> {
        match self {
            Head::Classes(size) | Head::Labels(size) | Head::Numbers(size) | Head::TokenClasses(size) => Some(size),
            Head::None | Head::Span | Head::MaskedTokens => None,
        }
    }

    /// The command that trains such a head on a model, as typed after `vitreous`, if there is one.
    pub fn trained_by(self) -> Option<&'static str> {
        match self {
            Head::Classes(_) | Head::Labels(_) | Head::Numbers(_) => {
                Some("train classify-text --init MODEL --data DIR")
            }
            Head::TokenClasses(_) => Some("train classify-tokens --init MODEL --data DIR"),
            Head::MaskedTokens => Some("train bert --init MODEL --data FILES"),
            Head::None | Head::Span => None,
        }
    }

    /// What it is for, in messages: "a head for {..}".
    pub fn purpose(self) -> &'static str {
        match self {
            Head::None => "nothing",
            Head::Classes(_) => "classes",
            Head::Labels(_) => "several labels",
            Head::Numbers(_) => "numbers",
            Head::TokenClasses(_) => "classes of tokens",
            Head::Span => "answers to questions",
            Head::MaskedTokens => "masked tokens",
        }
    }
}

impl Signature {
    /// Its image input, if it takes images.
    pub fn images(&self) -> Option<&ImageInput> {
        match &self.takes {
            Takes::Images(images) => Some(images),
            Takes::Tokens(_) | Takes::Pairs { .. } | Takes::ImagesAndTexts { .. } | Takes::Audio(_) => None,
        }
    }

    /// Its images, beside texts or alone.
    pub fn image_input(&self) -> Option<&ImageInput> {
        self.images().or(self.images_and_texts().map(|(images, _)| images))
    }

    /// Its images and texts, if it compares them.
    pub fn images_and_texts(&self) -> Option<(&ImageInput, CaptionInput)> {
        match &self.takes {
            Takes::ImagesAndTexts { images, texts } => Some((images, *texts)),
            Takes::Images(_) | Takes::Tokens(_) | Takes::Pairs { .. } | Takes::Audio(_) => None,
        }
    }

    /// Its source and target, if it takes pairs.
    pub fn pairs(&self) -> Option<(TokenInput, TokenInput)> {
        match &self.takes {
            Takes::Pairs { source, target, .. } => Some((*source, *target)),
            Takes::Images(_) | Takes::Tokens(_) | Takes::ImagesAndTexts { .. } | Takes::Audio(_) => None,
        }
    }

    /// Its audio, if it takes some.
    pub fn audio(&self) -> Option<AudioInput> {
        match &self.takes {
            Takes::Audio(audio) => Some(*audio),
            Takes::Images(_) | Takes::Tokens(_) | Takes::Pairs { .. } | Takes::ImagesAndTexts { .. } => None,
        }
    }

    /// Its tokens, if it takes one sequence of them.
    pub fn tokens(&self) -> Option<TokenInput> {
        match &self.takes {
            Takes::Tokens(tokens) => Some(*tokens),
            Takes::Images(_) | Takes::Pairs { .. } | Takes::ImagesAndTexts { .. } | Takes::Audio(_) => None,
        }
    }

    /// The first of its outputs for which `of` has an answer.
    fn given<T>(&self, of: impl Fn(Gives) -> Option<T>) -> Option<T> {
        self.gives.iter().copied().find_map(of)
    }

    /// Number of classes, if it has a classification head.
    pub fn classes(&self) -> Option<usize> {
        self.given(|gives| if let Gives::Classes(classes) = gives { Some(classes) } else { None })
    }

    /// Number of labels, if several may apply.
    pub fn labels(&self) -> Option<usize> {
        self.given(|gives| if let Gives::Labels(labels) = gives { Some(labels) } else { None })
    }

    /// How many numbers it predicts, if it has a regression head.
    pub fn numbers(&self) -> Option<usize> {
        self.given(|gives| if let Gives::Numbers(numbers) = gives { Some(numbers) } else { None })
    }

    /// Number of classes of a token, if it classifies tokens.
    pub fn token_classes(&self) -> Option<usize> {
        self.given(|gives| if let Gives::TokenClasses(classes) = gives { Some(classes) } else { None })
    }

    /// Whether it finds the answer to a question in a text.
    pub fn is_span(&self) -> bool {
        self.gives.contains(&Gives::Span)
    }

    /// The vocabulary of its masked-token head, if it has one.
    pub fn masked_tokens(&self) -> Option<usize> {
        self.given(|gives| if let Gives::MaskedTokens(vocabulary) = gives { Some(vocabulary) } else { None })
    }

    /// The vocabulary of the next token that it predicts, if it is a language model.
    pub fn next_token(&self) -> Option<usize> {
        self.given(|gives| if let Gives::NextToken(vocabulary) = gives { Some(vocabulary) } else { None })
    }

    /// The tokens and the vocabulary of a language model; an error if it is none.
    pub fn language(&self) -> vitreous_engine::Result<(TokenInput, usize)> {
        match (self.tokens(), self.next_token()) {
            (Some(input), Some(vocabulary)) => Ok((input, vocabulary)),
            _ => {
                let what = format!("this is {}, which predicts no next token", self.what());
                Err(vitreous_engine::Error::Machine(what))
            }
        }
    }

    /// The width of its vector per token, if it outputs them.
    pub fn token_vectors(&self) -> Option<usize> {
        self.given(|gives| if let Gives::TokenVectors(width) = gives { Some(width) } else { None })
    }

    /// The width of its vector per sample, if it outputs one.
    pub fn vector(&self) -> Option<usize> {
        self.given(|gives| if let Gives::Vector(width) = gives { Some(width) } else { None })
    }

    /// How many outputs have names: classes, labels, numbers, or classes of tokens. 0 without such a head.
    pub fn named_outputs(&self) -> usize {
        self.classes().or(self.labels()).or(self.numbers()).or(self.token_classes()).unwrap_or(0)
    }

    /// A description of the model: "an image classifier".
    pub fn what(&self) -> &'static str {
        match &self.takes {
            Takes::Images(_) if self.classes().is_some() => "an image classifier",
            Takes::Images(_) => "an image encoder",
            Takes::ImagesAndTexts { .. } => "a model of images and texts",
            Takes::Pairs { special: Some(_), .. } => "an encoder-decoder",
            Takes::Pairs { special: None, .. } => "a translator",
            Takes::Audio(_) => "a speech recognition model",
            Takes::Tokens(_) => {
                let of = |gives| match gives {
                    Gives::NextToken(_) | Gives::Sequence(_) => Some("a language model"),
                    Gives::MaskedTokens(_) => Some("a masked language model"),
                    Gives::Classes(_) => Some("a text classifier"),
                    Gives::Labels(_) => Some("a text classifier for several labels"),
                    Gives::Numbers(_) => Some("a regression model for texts"),
                    Gives::TokenClasses(_) => Some("a token classifier"),
                    Gives::Span => Some("a question answering model"),
                    Gives::Vector(_) | Gives::TokenVectors(_) => None,
                };
                self.given(of).unwrap_or("a text encoder")
            }
        }
    }

    /// The commands that apply to it, as typed after `vitreous`, with `MODEL` for its path.
    pub fn commands(&self) -> &'static [&'static str] {
        match &self.takes {
            Takes::Images(_) if self.classes().is_some() => {
                &["predict MODEL IMAGE", "eval MODEL --data DIR", "explain MODEL IMAGE", "summary MODEL"]
            }
            Takes::Images(_) => &["predict MODEL IMAGE --features", "explain MODEL IMAGE", "summary MODEL"],
            Takes::ImagesAndTexts { .. } => &[
                "predict MODEL IMAGE --labels 'a cat,a dog'",
                "embed MODEL IMAGE",
                "embed MODEL FOLDER --search TEXT",
                "explain MODEL IMAGE --text TEXT",
                "train clip --init MODEL --data PAIRS",
                "summary MODEL",
            ],
            Takes::Pairs { special: Some(_), .. } => &[
                "generate MODEL TEXT",
                "translate MODEL TEXT",
                "train seq2seq --init MODEL --data PAIRS",
                "eval MODEL --data FILE",
                "explain MODEL --text TEXT",
                "summary MODEL",
            ],
            Takes::Pairs { .. } => {
                &["translate MODEL TEXT", "eval MODEL --data FILE", "explain MODEL --text TEXT", "summary MODEL"]
            }
            Takes::Audio(_) => &["transcribe MODEL FILE", "eval MODEL --data FILE", "summary MODEL"],
            Takes::Tokens(_) if self.next_token().is_some() => {
                &["generate MODEL PROMPT", "chat MODEL", "summary MODEL"]
            }
            Takes::Tokens(_) if self.masked_tokens().is_some() => &[
                "fill MODEL TEXT",
                "embed MODEL TEXT",
                "eval MODEL --data FILE",
                "explain MODEL --text TEXT",
                "summary MODEL",
            ],
            Takes::Tokens(_) if self.named_outputs() > 0 => &[
                "predict MODEL --text TEXT",
                "embed MODEL TEXT",
                "eval MODEL --data FILE",
                "explain MODEL --text TEXT",
                "summary MODEL",
            ],
            Takes::Tokens(_) if self.is_span() => &[
                "predict MODEL --question Q --context C",
                "embed MODEL TEXT",
                "explain MODEL --question Q --context C",
                "summary MODEL",
            ],
            Takes::Tokens(_) if self.token_vectors().is_some() => {
                &["embed MODEL TEXT", "explain MODEL --text TEXT", "summary MODEL"]
            }
            Takes::Tokens(_) => &["summary MODEL"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(head: Head) -> Signature {
        let takes = Takes::Tokens(TokenInput { vocabulary: 31, longest: 9, token_types: 2, window: None });
        let gives = [Gives::TokenVectors(16)].into_iter().chain(head.gives(31)).collect();
        Signature { takes, gives }
    }

    #[test]
    fn a_text_model_is_told_the_commands_of_its_head() {
        let first = |head: Head| (of_text(head).what(), of_text(head).commands()[0]);
        let by_text = "predict MODEL --text TEXT";
        assert_eq!(first(Head::None), ("a text encoder", "embed MODEL TEXT"));
        assert_eq!(first(Head::Classes(3)), ("a text classifier", by_text));
        assert_eq!(first(Head::Labels(3)), ("a text classifier for several labels", by_text));
        assert_eq!(first(Head::Numbers(1)), ("a regression model for texts", by_text));
        assert_eq!(first(Head::TokenClasses(5)), ("a token classifier", by_text));
        assert_eq!(first(Head::Span), ("a question answering model", "predict MODEL --question Q --context C"));
        assert_eq!(first(Head::MaskedTokens), ("a masked language model", "fill MODEL TEXT"));
    }

    #[test]
    fn an_output_is_found_by_its_kind_alone() {
        let sizes = |head: Head| {
            let s = of_text(head);
            [s.classes(), s.labels(), s.numbers(), s.token_classes(), s.masked_tokens()]
        };
        assert_eq!(sizes(Head::None), [None; 5]);
        assert_eq!(sizes(Head::Classes(3)), [Some(3), None, None, None, None]);
        assert_eq!(sizes(Head::Labels(3)), [None, Some(3), None, None, None]);
        assert_eq!(sizes(Head::Numbers(1)), [None, None, Some(1), None, None]);
        assert_eq!(sizes(Head::TokenClasses(5)), [None, None, None, Some(5), None]);
        assert_eq!(sizes(Head::MaskedTokens), [None, None, None, None, Some(31)]);
        assert!(of_text(Head::Span).is_span() && !of_text(Head::Classes(2)).is_span());
        assert_eq!(of_text(Head::TokenClasses(5)).named_outputs(), 5);
        assert_eq!(of_text(Head::Span).named_outputs(), 0);
    }
}
