//! Random crops: `torchvision`'s `RandomResizedCrop` and `RandomCrop`.

use vitreous_engine::ops::image_draws::Area;

use crate::random::Random;

/// A rectangle in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rectangle {
    pub top: usize,
    pub left: usize,
    pub height: usize,
    pub width: usize,
}

impl Rectangle {
    /// The same for [`ImageDraws`](vitreous_engine::ops::ImageDraws).
    pub fn area(self) -> Area {
        let [top, left, height, width] = [self.top, self.left, self.height, self.width].map(|number| number as i32);
        Area { top, left, height, width }
    }
}

/// Python's `int(round(value))`: halves go to the even neighbour.
pub(super) fn rounded(value: f64) -> usize {
    value.round_ties_even() as usize
}

/// A random part of `size` whose share of the area is within `scale` and whose aspect ratio is within `ratio` (uniform in its logarithm).
/// After ten attempts that do not fit into the image it is the centre.
pub(super) fn random_part(size: [usize; 2], scale: [f64; 2], ratio: [f64; 2], random: &mut Random) -> Rectangle {
    for _ in 0..10 {
        let share = random.between(scale[0], scale[1]);
        let log_ratio = random.between(ratio[0].ln(), ratio[1].ln());
        if let Some([height, width]) = part_size(size, share, log_ratio) {
            let (top, left) = (random.below(size[0] - height + 1), random.below(size[1] - width + 1));
            return Rectangle { top, left, height, width };
        }
    }
    middle_part(size, ratio)
}

/// Height and width of a part with this share of the area, if it fits; at least one pixel.
pub(super) fn part_size(size: [usize; 2], share: f64, log_ratio: f64) -> Option<[usize; 2]> {
    let (area, ratio) = (share * (size[0] * size[1]) as f64, log_ratio.exp());
    let (height, width) = (rounded((area / ratio).sqrt()).max(1), rounded((area * ratio).sqrt()).max(1));
    (height <= size[0] && width <= size[1]).then_some([height, width])
}

/// The largest central part whose aspect ratio is within `ratio`.
pub(super) fn middle_part([height, width]: [usize; 2], ratio: [f64; 2]) -> Rectangle {
    let whole = width as f64 / height as f64;
    let [part_height, part_width] = if whole < ratio[0] {
        [rounded(width as f64 / ratio[0]).clamp(1, height), width]
    } else if whole > ratio[1] {
        [height, rounded(height as f64 * ratio[1]).clamp(1, width)]
    } else {
        [height, width]
    };
    let (top, left) = ((height - part_height) / 2, (width - part_width) / 2);
    Rectangle { top, left, height: part_height, width: part_width }
}

/// Row and column of a picture after padding it by `padding` pixels and taking a random crop of its own size.
pub(super) fn random_shift(padding: usize, random: &mut Random) -> (isize, isize) {
    let mut shift = || padding as isize - random.below(2 * padding + 1) as isize;
    (shift(), shift())
}
