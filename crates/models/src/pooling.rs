//! One vector per text from the vectors of its tokens.

use serde::{Deserialize, Serialize};
use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Graph, Padding, Result, Shape, Value};

/// How the vectors of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The vector of the first token.
    Cls,
    /// The mean over all tokens.
    Mean,
    /// The maximum of each number over all tokens.
    Max,
    /// The vector of the last token.
    Last,
}

/// The additional input of [`Pooling::Last`] and [`Pooling::Max`]: indices of tokens in `batch * length`; see [`Pooling::indices`].
pub const POOLED: &str = "pooled";

impl Pooling {
    /// The values of the input [`POOLED`] for texts of these lengths, padded to `length`; `None` if there is no such input.
    pub fn indices(self, lengths: &[usize], length: usize) -> Option<Vec<i32>> {
        let index = |text: usize, token: usize| (text * length + token) as i32;
        match self {
            Pooling::Cls | Pooling::Mean => None,
            Pooling::Last => Some(lengths.iter().enumerate().map(|(text, &own)| index(text, own.max(1) - 1)).collect()),
            // Padding repeats the first token, which changes no maximum.
            Pooling::Max => Some(
                (lengths.iter().enumerate())
                    .flat_map(|(text, &own)| (0..length).map(move |t| index(text, if t < own { t } else { 0 })))
                    .collect(),
            ),
        }
    }
}

/// Pools `tokens [batch, length, dim]` to `[batch, dim]`, without the padding behind `lengths [batch]`.
///
/// [`Pooling::Last`] and [`Pooling::Max`] declare the input [`POOLED`] (i32, `[batch]` or `[batch, length]`).
pub fn pool(graph: &mut Graph, pooling: Pooling, tokens: Value, lengths: Value) -> Result<Value> {
    let axes = graph.shape_of(tokens).axes().to_vec();
    let (batch, length, dim) = (axes[0], axes[1], axes[2]);
    match pooling {
        Pooling::Cls => {
            let first = graph.slice(tokens, 1, 0, 1)?;
            graph.reshape(first, [batch, dim])
        }
        Pooling::Mean => {
            // Attention whose scores are all 0 has equal weights for all tokens but padding.
            let any = graph.slice(tokens, 1, 0, 1)?;
            let heads = (1..=dim).find(|heads| dim.is_multiple_of(*heads) && dim / heads <= 64).unwrap_or(dim);
            let padding = Padding::Lengths(lengths);
            let options = AttentionOptions { heads, scale: Some(0.0), padding, ..AttentionOptions::default() };
            let mean = graph.attention(AttentionInputs::Separate { q: any, k: tokens, v: tokens }, &options)?;
            graph.reshape(mean, [batch, dim])
        }
        Pooling::Last | Pooling::Max => {
            let shape = if pooling == Pooling::Last { vec![batch] } else { vec![batch, length] };
            let indices = graph.input(POOLED, Shape::new(shape), DType::I32)?;
            let all = graph.reshape(tokens, [batch * length, dim])?;
            let chosen = graph.embedding(all, indices)?;
            if pooling == Pooling::Last { Ok(chosen) } else { graph.max_tokens(chosen) }
        }
    }
}

#[cfg(test)]
mod tests {
    use vitreous_engine::{Device, Executor, Parameter};

    use super::*;

    /// Two texts of 3 and 1 tokens, padded to 3 with large numbers that must not be seen.
    #[test]
    fn padding_is_not_pooled() {
        let tokens = [1.0, -2.0, 3.0, 4.0, 5.0, -9.0, 7.0, 8.0, 99.0, 99.0, 99.0, 99.0];
        let pooled = |pooling: Pooling| {
            let mut graph = Graph::for_inference();
            let x = graph.input("x", [2, 3, 2], DType::F32).expect("an input");
            let lengths = graph.input("lengths", [2], DType::I32).expect("an input");
            let y = pool(&mut graph, pooling, x, lengths).expect("a graph");
            let device = Device::Cpu { threads: 1 };
            let plan = device.plan_with_fixed_weights(&graph, &[y]).expect("a plan");
            let none = |_: &Parameter| Err::<&[f32], _>(vitreous_engine::Error::Machine("no weights".into()));
            let mut executor = Executor::with_weights(plan, &device, none).expect("memory");
            executor.input("x").expect("x").copy_from_slice(&tokens);
            // Only the mean needs them.
            if pooling == Pooling::Mean {
                executor.input_i32("lengths").expect("lengths").copy_from_slice(&[3, 1]);
            }
            if let Some(indices) = pooling.indices(&[3, 1], 3) {
                executor.input_i32(POOLED).expect("indices").copy_from_slice(&indices);
            }
            executor.infer().expect("a run");
            executor.output_slice(y).expect("the result").to_vec()
        };
        assert_eq!(pooled(Pooling::Cls), [1.0, -2.0, 7.0, 8.0]);
        assert_eq!(pooled(Pooling::Last), [5.0, -9.0, 7.0, 8.0]);
        assert_eq!(pooled(Pooling::Max), [5.0, 4.0, 7.0, 8.0]);
        let mean = pooled(Pooling::Mean);
        let far = |(a, b): (&f32, f32)| (a - b).abs() > 1e-6;
        assert!(!mean.iter().zip([3.0, -7.0 / 3.0, 7.0, 8.0]).any(far), "{mean:?}");
    }
}
