//! Where a model's tokens lie in the image.

use vitreous_models::{ImageInput, PooledFrom, Size};

/// Whose attention stands for the whole image's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The class token's.
    ClassToken,
    /// The mean over patches', for models whose answer is pooled from them.
    MeanOfPatches,
}

/// The tokens of a model, over an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenGrid {
    /// The image, in pixels.
    pub image: Size,
    /// A patch, in pixels.
    pub patch: Size,
    /// Rows and columns of patches.
    pub grid: Size,
    /// Tokens in front of the patches: class, distillation, registers, in this order.
    pub prefix: usize,
    /// Whose attention stands for the whole image's.
    pub reader: Reader,
}

impl TokenGrid {
    /// That of a model of images.
    pub fn of(images: &ImageInput) -> TokenGrid {
        let (image, grid) = (images.size, images.grid);
        TokenGrid {
            image,
            patch: Size { height: image.height / grid.height, width: image.width / grid.width },
            grid,
            prefix: images.prefix.len(),
            reader: match images.pooled_from {
                PooledFrom::ClassToken => Reader::ClassToken,
                PooledFrom::Patches => Reader::MeanOfPatches,
            },
        }
    }

    /// Number of patches.
    pub fn patches(&self) -> usize {
        self.grid.height * self.grid.width
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.prefix + self.patches()
    }

    /// How much each token's row counts when many are read as one: all of the class token's, or an equal share of every patch's.
    pub fn reading(&self) -> Vec<f32> {
        let mut shares = vec![0.0; self.tokens()];
        match self.reader {
            Reader::ClassToken => shares[0] = 1.0,
            Reader::MeanOfPatches => shares[self.prefix..].fill(1.0 / self.patches() as f32),
        }
        shares
    }
}
