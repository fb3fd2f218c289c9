//! Unfold: lays the values under each position of a sliding kernel side by side. With a linear layer behind it this is a
//! convolution over time ([`Graph::conv1d`]).
//!
//! `y[b, t, c·kernel + k] = x[b, t·stride + k - padding, c]`, and 0 where that is outside of x. The columns have the order of
//! PyTorch's convolution weight `[out, in, kernel]`, which is the matrix `[out, in·kernel]` here.
//!
//! | | |
//! |---|---|
//! | shapes | `[batch, time, channels]` gives `[batch, (time + 2·padding - kernel) / stride + 1, channels·kernel]` |
//! | FLOPs | 0; the gradient one addition per value of dy |
//! | gradients | fold, which adds every value up where it came from; fold's gradient is unfold |

use crate::error::{Error, Result};
use crate::gradient::Backward;
use crate::graph::{Graph, Value, check_sizes};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{Shape, Type};

/// How a kernel slides over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliding {
    /// Values of time that it covers.
    pub kernel: usize,
    /// Values of time from one position to the next.
    pub stride: usize,
    /// Zeros before the first value and after the last.
    pub padding: usize,
}

impl Default for Sliding {
    fn default() -> Self {
        Sliding { kernel: 1, stride: 1, padding: 0 }
    }
}

impl Sliding {
    /// The number of positions over so many values of time; none if the kernel does not fit.
    pub fn positions(self, time: usize) -> Option<usize> {
        let padded = self.padding.checked_mul(2)?.checked_add(time)?;
        let steps = padded.checked_sub(self.kernel)?.checked_div(self.stride)?;
        (self.kernel > 0).then_some(steps + 1)
    }

    /// The value of time under column k of a position, if it is not padding.
    pub(crate) fn source(self, position: usize, k: usize, time: usize) -> Option<usize> {
        (position * self.stride + k).checked_sub(self.padding).filter(|&source| source < time)
    }

    /// The position at which column k is over a value of time.
    pub(crate) fn position(self, source: usize, k: usize, positions: usize) -> Option<usize> {
        let start = (source + self.padding).checked_sub(k)?;
        (start.is_multiple_of(self.stride) && start / self.stride < positions).then_some(start / self.stride)
    }
}

/// Lays the values under each position side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfold {
    /// How the kernel slides.
    pub sliding: Sliding,
}

/// Adds values up where [`Unfold`] took them from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// How the kernel slides.
    pub sliding: Sliding,
    /// Values of time of the result.
    pub time: usize,
}

fn unfolded(x: &Shape, sliding: Sliding) -> Option<Shape> {
    let &[batch, time, channels] = x.axes() else { return None };
    Some(Shape::from([batch, sliding.positions(time)?, channels.checked_mul(sliding.kernel)?]))
}

impl Rules for Unfold {
    fn name(&self) -> &'static str {
        "unfold"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        expect_float(x)?;
        let Sliding { kernel, stride, padding } = self.sliding;
        let rule = || {
            format!(
                "x must be [batch, time, channels] with a kernel of {kernel} that fits into time and twice the padding of \
                 {padding}; kernel and stride (here {stride}) must be at least 1"
            )
        };
        Ok(vec![Type::new(unfolded(&x.shape, self.sliding).ok_or_else(rule)?, x.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let fold = Fold { sliding: self.sliding, time: backward.input_type(0).shape.axes()[1] };
        backward.map_gradient(|graph, dy| graph.push(fold, &[dy]))
    }
}

impl Rules for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [y] = expect_inputs(inputs)?;
        expect_float(y)?;
        let rule = || format!("takes what unfold gives of {} values of time", self.time);
        let &[batch, _, columns] = y.shape.axes() else { return Err(rule()) };
        let channels = columns.checked_div(self.sliding.kernel).ok_or_else(rule)?;
        let x = Type::new([batch, self.time, channels], y.dtype);
        check_sizes(std::slice::from_ref(&x))?;
        if unfolded(&x.shape, self.sliding).as_ref() != Some(&y.shape) {
            return Err(rule());
        }
        Ok(vec![x])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        inputs[0].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let sliding = self.sliding;
        backward.map_gradient(|graph, dy| graph.unfold(dy, sliding))
    }
}

impl Graph {
    /// The values of `x [batch, time, channels]` under each position of a sliding kernel: `[batch, positions, channels·kernel]`.
    pub fn unfold(&mut self, x: Value, sliding: Sliding) -> Result<Value> {
        self.push(Unfold { sliding }, &[x])
    }

    /// A convolution over time: `x [batch, time, channels]`, `weight [out, channels·kernel]` in the order of PyTorch's
    /// `[out, channels, kernel]`, `bias [out]`. The result is `[batch, positions, out]`.
    pub fn conv1d(&mut self, x: Value, weight: Value, bias: Option<Value>, sliding: Sliding) -> Result<Value> {
        let of = |value: Value| self.nodes().get(value.node()).and_then(|node| node.outputs.get(value.output()));
        if let (Some(x), Some(weight)) = (of(x), of(weight)) {
            let columns = x.shape.columns().checked_mul(sliding.kernel);
            if weight.shape.rank() != 2 || Some(weight.shape.columns()) != columns {
                let inputs = vec![x.clone(), weight.clone()];
                let rule = format!("the weight must be [out, channels·{}], with the channels of x", sliding.kernel);
                return Err(Error::Rule { op: "conv1d", path: self.next_path("conv1d"), inputs, rule });
            }
        }
        let x = if sliding == Sliding::default() { x } else { self.unfold(x, sliding)? };
        self.linear(x, weight, bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_and_positions_are_each_other_s_inverse() {
        for kernel in 1..5 {
            for stride in 1..4 {
                for padding in 0..4 {
                    for time in 1..9 {
                        let sliding = Sliding { kernel, stride, padding };
                        let positions = sliding.positions(time).unwrap_or(0);
                        for k in 0..kernel {
                            let there: Vec<_> =
                                (0..positions).filter(|&p| sliding.source(p, k, time).is_some()).collect();
                            let back: Vec<_> = (0..time).filter_map(|s| sliding.position(s, k, positions)).collect();
                            assert_eq!(there, back, "{sliding:?}, {time} values, column {k}");
                            for position in there {
                                let source = sliding.source(position, k, time).unwrap();
                                assert_eq!(sliding.position(source, k, positions), Some(position));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn kernels_that_do_not_fit_have_no_position() {
        let of = |kernel, stride, padding| Sliding { kernel, stride, padding }.positions(4);
        assert_eq!([of(3, 1, 1), of(3, 2, 1), of(6, 1, 1), of(4, 9, 0)], [Some(4), Some(2), Some(1), Some(1)]);
        assert_eq!([of(5, 1, 0), of(0, 1, 0), of(1, 0, 0), of(1, 1, usize::MAX)], [None; 4]);
    }
}
