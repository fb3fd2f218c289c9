//! Sizes after resizing, and positions of crops.

/// The size to which an image is resized before it is cropped. Sizes are `[height, width]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resize {
    /// No resizing.
    None,
    /// Exactly this size; the aspect ratio is not kept.
    Exact([usize; 2]),
    /// The shorter side to this length; the longer in proportion, rounded down (`torchvision`, `transformers`).
    ShorterSide(usize),
    /// The shorter side to `shorter`, but the longer to no more than `longer` (`transformers`).
    ShorterSideWithin {
        /// The length of the shorter side, unless the longer would be too long.
        shorter: usize,
        /// The maximum length of the longer side.
        longer: usize,
    },
    /// As large as fits into this size, sides rounded down (`transformers`' `max_height` and `max_width`).
    Within([usize; 2]),
    /// As small as covers this size, sides rounded (`timm`'s crop mode "center" where the target is not square).
    Cover([usize; 2]),
    /// As large as fits into this size, sides rounded (`timm`'s crop mode "border").
    Fit([usize; 2]),
}

/// A centre crop, padded where the image is smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crop {
    /// Height and width.
    pub size: [usize; 2],
    /// How the position is rounded.
    pub placement: Placement,
    /// The colour of the padding, one byte per channel.
    pub fill: Vec<u8>,
}

/// How a centre crop is placed when an odd number of pixels is left over. The peers differ by one pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// `transformers`: the smaller half is cut at the beginning; the larger half of padding goes there.
    HuggingFace,
    /// `torchvision` and `timm`: halves are rounded to even when cutting; the smaller half of padding goes to the beginning.
    Torchvision,
}

impl Placement {
    /// Where the central `wanted` of `length` pixels begin; negative if there are fewer.
    pub(crate) fn start(self, length: usize, wanted: usize) -> isize {
        let surplus = length as isize - wanted as isize;
        match self {
            Placement::HuggingFace => surplus.div_euclid(2),
            Placement::Torchvision if surplus < 0 => surplus / 2,
            Placement::Torchvision => (surplus as f64 / 2.0).round_ties_even() as isize,
        }
    }
}

impl Resize {
    /// The size of an image of this height and width after resizing; each side has at least one pixel.
    pub fn size_for(self, [height, width]: [usize; 2]) -> [usize; 2] {
        let [new_height, new_width] = match self {
            Resize::None => [height, width],
            Resize::Exact(size) => size,
            Resize::ShorterSide(shorter) if width <= height => [proportional(shorter, height, width), shorter],
            Resize::ShorterSide(shorter) => [shorter, proportional(shorter, width, height)],
            Resize::ShorterSideWithin { shorter, longer } => shorter_within([height, width], shorter, longer),
            Resize::Within([most_height, most_width]) => {
                let scale = (most_height as f64 / height as f64).min(most_width as f64 / width as f64);
                [(height as f64 * scale) as usize, (width as f64 * scale) as usize]
            }
            Resize::Cover(target) => keep_ratio([height, width], target, f64::min),
            Resize::Fit(target) => keep_ratio([height, width], target, f64::max),
        };
        [new_height.max(1), new_width.max(1)]
    }

    /// The same resize at another scale, for a model that runs at another image size.
    pub(crate) fn scaled(self, by: impl Fn([usize; 2]) -> [usize; 2]) -> Resize {
        let one = |side: usize| by([side, side])[0];
        match self {
            Resize::None => Resize::None,
            Resize::Exact(size) => Resize::Exact(by(size)),
            Resize::ShorterSide(side) => Resize::ShorterSide(one(side)),
            Resize::ShorterSideWithin { shorter, longer } => {
                Resize::ShorterSideWithin { shorter: one(shorter), longer: one(longer) }
            }
            Resize::Within(size) => Resize::Within(by(size)),
            Resize::Cover(size) => Resize::Cover(by(size)),
            Resize::Fit(size) => Resize::Fit(by(size)),
        }
    }
}

fn proportional(shorter: usize, long: usize, short: usize) -> usize {
    shorter.saturating_mul(long) / short.max(1)
}

/// `get_size_with_aspect_ratio` of `transformers`: when the longer side is the limit, the shorter is rounded (half to
/// even), and the longer follows from the shorter before it was rounded.
fn shorter_within([height, width]: [usize; 2], shorter: usize, longer: usize) -> [usize; 2] {
    let (short, long) = (height.min(width) as f64, height.max(width) as f64);
    let limited = long / short * shorter as f64 > longer as f64;
    let exact = longer as f64 * short / long;
    let shorter = if limited { exact.round_ties_even() as usize } else { shorter };
    let raw = if limited { exact } else { shorter as f64 };
    if height.min(width) == shorter {
        [height, width]
    } else if width < height {
        [(raw * height as f64 / width as f64) as usize, shorter]
    } else {
        [shorter, (raw * width as f64 / height as f64) as usize]
    }
}

/// `timm`'s `ResizeKeepRatio`.
fn keep_ratio([height, width]: [usize; 2], target: [usize; 2], choose: fn(f64, f64) -> f64) -> [usize; 2] {
    let ratio = choose(height as f64 / target[0] as f64, width as f64 / target[1] as f64);
    [height, width].map(|side| (side as f64 / ratio).round_ties_even() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_where_each_peer_says() {
        // (length, wanted, transformers, torchvision): 5 of 8 leaves 3, whose half is 1 or 2; 3 of 8 leaves 5: 2 and 2.
        for (length, wanted, hugging_face, torchvision) in
            [(8, 5, 1, 2), (8, 3, 2, 2), (9, 9, 0, 0), (5, 8, -2, -1), (4, 8, -2, -2), (7, 8, -1, 0)]
        {
            assert_eq!(Placement::HuggingFace.start(length, wanted), hugging_face, "{wanted} of {length}");
            assert_eq!(Placement::Torchvision.start(length, wanted), torchvision, "{wanted} of {length}");
        }
    }

    #[test]
    fn no_side_vanishes() {
        for resize in [Resize::Fit([32, 32]), Resize::Within([32, 32])] {
            assert_eq!(resize.size_for([1, 500]), [1, 32]);
        }
        assert_eq!(Resize::ShorterSideWithin { shorter: 8, longer: 16 }.size_for([1, 500]), [1, 16]);
    }

    #[test]
    fn the_longer_side_is_cut() {
        assert_eq!(Resize::ShorterSide(256).size_for([333, 500]), [256, 384]);
        assert_eq!(Resize::ShorterSide(256).size_for([500, 333]), [384, 256]);
    }
}
