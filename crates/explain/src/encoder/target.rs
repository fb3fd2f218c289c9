//! The number that a text is explained for: which of the model's outputs, and which tokens it is read from.

use vitreous_engine::{DType, Graph};
use vitreous_models::{Gives, Outputs, Pooling, Signature, pool};

use crate::backward::Objective;
use crate::error::ExplainError;

/// The input of [`Target::Similarity`]: the other vector, scaled.
pub(super) const DIRECTION: &str = "direction";

/// A number that a model computes from a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A logit for the whole text: of a class or a label, or a predicted number.
    Output(usize),
    /// A logit for one token: of its class, or of a token of the vocabulary in its place.
    OfToken {
        /// Which token of the text.
        token: usize,
        /// Which of its outputs.
        output: usize,
    },
    /// The start logit of one token and the end logit of another, added.
    Span {
        /// The first token of an answer.
        start: usize,
        /// The last.
        end: usize,
    },
    /// Half the squared length of the pooled vector, of models without a head.
    HalfSquaredLength,
    /// The cosine of the angle between the pooled vector and this one.
    Similarity(Vec<f32>),
}

impl Target {
    /// Refuses what the model does not compute for a text of so many tokens.
    pub(super) fn check(&self, signature: &Signature, tokens: usize) -> Result<(), ExplainError> {
        let there = |what, asked, count| match asked < count {
            true => Ok(()),
            false => Err(ExplainError::NotThere { what, asked, count }),
        };
        let of_text = signature.classes().or(signature.labels()).or(signature.numbers());
        let of_token = signature.token_classes().or(signature.masked_tokens());
        let none = |target| Err(ExplainError::NoTarget { what: signature.what(), target });
        match self {
            Target::Output(output) => match of_text {
                Some(count) => there("class", *output, count),
                None => none("a class of the text"),
            },
            Target::OfToken { token, output } => match of_token {
                Some(count) => there("token", *token, tokens).and(there("class", *output, count)),
                None => none("a class of a token"),
            },
            Target::Span { start, end } => match signature.is_span() {
                true => there("token", *start, tokens).and(there("token", *end, tokens)),
                false => none("the start and end of an answer"),
            },
            Target::HalfSquaredLength => Ok(()),
            Target::Similarity(other) => match signature.token_vectors() == Some(other.len()) {
                true => Ok(()),
                false => none("the similarity with a vector of that length"),
            },
        }
    }

    /// Whether the model computes it for the tokens alone that its input `masked` names.
    pub(super) fn is_masked(&self, signature: &Signature) -> bool {
        matches!(self, Target::OfToken { .. }) && signature.masked_tokens().is_some()
    }

    /// The number in a model's graph.
    pub(super) fn objective(
        &self,
        graph: &mut Graph,
        built: &Outputs,
        pooling: Pooling,
    ) -> Result<Objective, ExplainError> {
        let pooled = |graph: &mut Graph| -> Result<_, ExplainError> {
            let lengths = graph.find("lengths")?;
            Ok(pool(graph, pooling, built.need("tokens")?, lengths)?)
        };
        Ok(match self {
            Target::Output(_) | Target::OfToken { .. } | Target::Span { .. } => {
                Objective::Seeded(built.need("logits")?)
            }
            Target::HalfSquaredLength => Objective::HalfSquaredLength(pooled(graph)?),
            Target::Similarity(other) => {
                let vector = pooled(graph)?;
                let direction = graph.input(DIRECTION, [other.len()], DType::F32)?;
                // v / √(mean v²), times u / (|u| √dim), adds up to the cosine.
                Objective::Seeded(graph.rms_norm(vector, direction, 0.0)?)
            }
        })
    }

    /// The seed of the objective's gradient, for `batch` samples of `tokens` tokens whose outputs are rows of `columns`.
    pub(super) fn seed(&self, signature: &Signature, [batch, tokens]: [usize; 2]) -> Vec<f32> {
        let outputs = |gives: &Gives| match *gives {
            Gives::Classes(count) | Gives::Labels(count) | Gives::Numbers(count) => Some((1, count)),
            Gives::TokenClasses(count) => Some((tokens, count)),
            Gives::Span => Some((tokens, 2)),
            // Of the token that is named alone.
            Gives::MaskedTokens(count) => Some((1, count)),
            Gives::Vector(_) | Gives::TokenVectors(_) | Gives::NextToken(_) | Gives::Sequence(_) => None,
        };
        let (rows, columns) = match self {
            Target::Similarity(other) => (1, other.len()),
            _ => signature.gives.iter().find_map(outputs).unwrap_or((0, 0)),
        };
        let ones: Vec<usize> = match self {
            Target::Output(output) => vec![*output],
            Target::OfToken { output, .. } if self.is_masked(signature) => vec![*output],
            Target::OfToken { token, output } => vec![token * columns + output],
            Target::Span { start, end } => vec![2 * start, 2 * end + 1],
            Target::HalfSquaredLength => return Vec::new(),
            Target::Similarity(other) => (0..other.len()).collect(),
        };
        let mut seed = vec![0.0; batch * rows * columns];
        for sample in seed.chunks_exact_mut((rows * columns).max(1)) {
            ones.iter().for_each(|&one| sample[one] = 1.0);
        }
        seed
    }

    /// The input [`DIRECTION`]; empty where there is none.
    pub(super) fn direction(&self) -> Vec<f32> {
        let Target::Similarity(other) = self else { return Vec::new() };
        let squares: f64 = other.iter().map(|&number| f64::from(number).powi(2)).sum();
        let scale = (squares * other.len() as f64).sqrt().max(f64::MIN_POSITIVE);
        other.iter().map(|&number| (f64::from(number) / scale) as f32).collect()
    }

    /// How much of the number is read from each token: weights that sum to 1. `vectors` are the tokens' after the last layer.
    pub(super) fn reading(&self, pooling: Pooling, vectors: &[f32], tokens: usize) -> Vec<f64> {
        let mut reading = vec![0.0; tokens];
        match self {
            // Classes of texts are read from the first token.
            Target::Output(_) => reading[0] = 1.0,
            Target::OfToken { token, .. } => reading[*token] = 1.0,
            Target::Span { start, end } => [*start, *end].into_iter().for_each(|token| reading[token] += 0.5),
            Target::HalfSquaredLength | Target::Similarity(_) => match pooling {
                Pooling::Cls => reading[0] = 1.0,
                Pooling::Last => reading[tokens - 1] = 1.0,
                Pooling::Mean => reading.fill(1.0 / tokens as f64),
                Pooling::Max => {
                    // Each number of the vector is some token's.
                    let dim = vectors.len() / tokens;
                    for column in 0..dim {
                        let number = |token: usize| vectors[token * dim + column];
                        let largest =
                            (1..tokens).fold(0, |best, token| if number(token) > number(best) { token } else { best });
                        reading[largest] += 1.0 / dim as f64;
                    }
                }
            },
        }
        reading
    }
}
