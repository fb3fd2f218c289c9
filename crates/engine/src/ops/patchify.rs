//! Patchify: cuts images into patches and flattens each to a vector, channel by channel.
//!
//! `(N, C, gh·ph, gw·pw) -> (N, C, gh, ph, gw, pw) -> permute (N, gh, gw, C, ph, pw) -> (N, gh·gw, C·ph·pw)`. Followed
//! by a linear layer, this is a convolution with kernel and stride `ph x pw`.
//!
//! | | |
//! |---|---|
//! | shapes | `[n, channels, height, width]` gives `[n, gh·gw, channels·ph·pw]` |
//! | FLOPs | 0 |
//! | gradients | unpatchify, the inverse, and vice versa |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value, check_sizes};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{Shape, Type};

/// Images to patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patchify {
    /// A patch's height and width.
    pub patch: [usize; 2],
}

/// Patches to images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpatchify {
    /// A patch's height and width.
    pub patch: [usize; 2],
    /// The images' shape.
    pub images: Shape,
}

fn patches_shape(images: &Shape, [height, width]: [usize; 2]) -> Option<Shape> {
    let &[n, channels, h, w] = images.axes() else { return None };
    let divides = height > 0 && width > 0 && h % height == 0 && w % width == 0;
    divides.then(|| Shape::from([n, (h / height) * (w / width), channels * height * width]))
}

impl Rules for Patchify {
    fn name(&self) -> &'static str {
        "patchify"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        expect_float(x)?;
        let [height, width] = self.patch;
        let rule = || format!("images must be [n, channels, height, width], divisible by the patch {height}x{width}");
        Ok(vec![Type::new(patches_shape(&x.shape, self.patch).ok_or_else(rule)?, x.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let unpatchify = Unpatchify { patch: self.patch, images: backward.input_type(0).shape.clone() };
        backward.map_gradient(|graph, dy| graph.push(unpatchify, &[dy]))
    }
}

impl Rules for Unpatchify {
    fn name(&self) -> &'static str {
        "unpatchify"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        expect_float(x)?;
        check_sizes(&[Type::f32(self.images.clone())])?;
        if patches_shape(&self.images, self.patch).as_ref() != Some(&x.shape) {
            return Err(format!("the patches must be those of images {}", self.images));
        }
        Ok(vec![Type::new(self.images.clone(), x.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let patch = self.patch;
        backward.map_gradient(|graph, dy| graph.patchify(dy, patch))
    }
}

impl Graph {
    /// Images `[n, channels, height, width]` to patches `[n, patches, channels·ph·pw]`, in row-major order.
    pub fn patchify(&mut self, images: Value, patch: [usize; 2]) -> Result<Value> {
        self.push(Patchify { patch }, &[images])
    }

    /// The inverse of [`Graph::patchify`].
    pub fn unpatchify(&mut self, patches: Value, patch: [usize; 2], images: impl Into<Shape>) -> Result<Value> {
        self.push(Unpatchify { patch, images: images.into() }, &[patches])
    }
}
