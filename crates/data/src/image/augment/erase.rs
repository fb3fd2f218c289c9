//! Random Erasing (Zhong et al. 2017) as `timm` does it: boxes of a normalised picture are overwritten.

use vitreous_engine::ops::ImageDrawsMut;

use super::crop::{Rectangle, rounded};
use super::settings::EraseMode;
use crate::random::Random;

/// The smallest and largest share of the picture's area that all boxes have together.
const AREA: [f64; 2] = [0.02, 1.0 / 3.0];
/// The smallest height / width; the largest is its inverse.
const RATIO: f64 = 0.3;

/// Random Erasing.
#[derive(Clone, Debug)]
pub(super) struct Erase {
    pub probability: f64,
    pub mode: EraseMode,
    /// The maximum number of boxes.
    pub count: usize,
}

impl Erase {
    /// Erases boxes of a picture of `[channels, height, width]`.
    pub fn apply(&self, out: &mut [f32], [_, height, width]: [usize; 3], random: &mut Random) {
        self.draw([height, width], random, |part, random| overwrite(out, [height, width], part, self.mode, random));
    }

    /// Records what [`apply`](Self::apply) would do, and leaves `random` in the same state.
    pub fn note(&self, [channels, height, width]: [usize; 3], draws: &mut ImageDrawsMut, random: &mut Random) {
        draws.set_stream(random.stream());
        self.draw([height, width], random, |part, random| match self.mode {
            EraseMode::Constant => draws.erase(part.area(), &[0.0; 3][..channels]),
            EraseMode::Random => {
                let mut colours = [0.0; 3];
                colours[..channels].fill_with(|| random.normal() as f32);
                draws.erase(part.area(), &colours[..channels]);
            }
            EraseMode::Pixel => {
                draws.erase_with_noise(part.area(), random.position() as u32);
                // Each two numbers are drawn from two words.
                random.skip((channels * part.height * part.width.div_ceil(2) * 2) as u64);
            }
        });
    }

    /// Calls `each` for every box when it is drawn: its content is drawn before the next box.
    fn draw(&self, size: [usize; 2], random: &mut Random, mut each: impl FnMut(Rectangle, &mut Random)) {
        if !random.chance(self.probability) {
            return;
        }
        let count = 1 + random.below(self.count.max(1));
        for _ in 0..count {
            if let Some(part) = random_box(size, count, random) {
                each(part, random);
            }
        }
    }
}

/// A random box that is smaller than the picture in both directions; none after ten attempts.
pub(super) fn random_box(size: [usize; 2], count: usize, random: &mut Random) -> Option<Rectangle> {
    for _ in 0..10 {
        let share = random.between(AREA[0], AREA[1]) / count as f64;
        let log_ratio = random.between(RATIO.ln(), (1.0 / RATIO).ln());
        if let Some([height, width]) = box_size(size, share, log_ratio) {
            let (top, left) = (random.below(size[0] - height + 1), random.below(size[1] - width + 1));
            return Some(Rectangle { top, left, height, width });
        }
    }
    None
}

/// Height and width of a box of this share of the picture's area, if it fits.
pub(super) fn box_size(size: [usize; 2], share: f64, log_ratio: f64) -> Option<[usize; 2]> {
    let (area, ratio) = (share * (size[0] * size[1]) as f64, log_ratio.exp());
    let (height, width) = (rounded((area * ratio).sqrt()), rounded((area / ratio).sqrt()));
    (height < size[0] && width < size[1]).then_some([height, width])
}

fn overwrite(out: &mut [f32], [height, width]: [usize; 2], part: Rectangle, mode: EraseMode, random: &mut Random) {
    for plane in out.chunks_exact_mut(height * width) {
        let colour = if mode == EraseMode::Random { random.normal() as f32 } else { 0.0 };
        for row in plane.chunks_exact_mut(width).skip(part.top).take(part.height) {
            let row = &mut row[part.left..][..part.width];
            match mode {
                EraseMode::Pixel => random.normals(row),
                EraseMode::Random | EraseMode::Constant => row.fill(colour),
            }
        }
    }
}
