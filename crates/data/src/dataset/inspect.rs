//! Statistics of a data set: sizes of images, mean and standard deviation of the channels, and which images are broken.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Dataset;
use crate::image::{Channels, Image};
use crate::loader::BrokenSample;
use crate::ordered::OrderedMap;
use crate::random::Random;

/// Statistics of images.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// How many images were decoded: all, or as many as asked for.
    pub looked_at: usize,
    /// Images that could not be decoded.
    pub broken: Vec<BrokenSample>,
    /// The sizes of the others.
    pub sizes: Sizes,
    /// Whether all images are greyscale, even if stored in colour.
    pub grey: bool,
    /// The mean of each channel over all pixels, from 0 (black) to 1 (white): one number if all images are grey, else three.
    pub mean: Vec<f64>,
    /// The standard deviation of each channel over all pixels.
    pub deviation: Vec<f64>,
}

/// Sizes of images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// How many images have each size, `[height, width]`.
    pub counts: BTreeMap<[usize; 2], usize>,
}

impl Sizes {
    /// The minimum, median (the lower of two) and maximum of heights (axis 0) or widths (axis 1). None without images.
    pub fn range(&self, axis: usize) -> Option<[usize; 3]> {
        let mut sides: BTreeMap<usize, usize> = BTreeMap::new();
        for (size, count) in &self.counts {
            *sides.entry(size[axis]).or_default() += count;
        }
        let half = sides.values().sum::<usize>().div_ceil(2);
        let mut seen = 0;
        let (&median, _) = sides.iter().find(|&(_, count)| {
            seen += count;
            seen >= half
        })?;
        Some([*sides.first_key_value()?.0, median, *sides.last_key_value()?.0])
    }
}

/// The sums over one image. They are integers, so that the order of addition does not change the result.
struct Seen {
    size: [usize; 2],
    grey: bool,
    sums: [u64; 3],
    squares: [u64; 3],
}

impl Seen {
    fn of(image: &Image) -> Seen {
        let (mut sums, mut squares, mut grey) = ([0; 3], [0; 3], true);
        let channels = image.channels().count();
        for pixel in image.pixels().chunks_exact(channels) {
            let colour = [pixel[0], pixel[channels / 2], pixel[channels - 1]];
            grey &= colour[0] == colour[1] && colour[1] == colour[2];
            for channel in 0..3 {
                let value = u64::from(colour[channel]);
                sums[channel] += value;
                squares[channel] += value * value;
            }
        }
        Seen { size: [image.height(), image.width()], grey, sums, squares }
    }
}

/// Decodes the images of a data set with several threads; at most `most` of them, drawn at random. `progress` is called with the number
/// of images so far.
pub fn inspect(
    dataset: &Arc<dyn Dataset>,
    threads: usize,
    most: Option<usize>,
    mut progress: impl FnMut(usize),
) -> Inspection {
    let mut indices: Vec<usize> = (0..dataset.len()).collect();
    if let Some(most) = most.filter(|&most| most < indices.len()) {
        Random::new(0, 0, 0).shuffle(&mut indices);
        indices.truncate(most);
        indices.sort_unstable();
    }
    let looked_at = indices.len();
    let channels = dataset.channels();
    let seen = OrderedMap::new(indices.into_iter(), threads, 64 * threads, || {
        let dataset = dataset.clone();
        move |index: usize| match dataset.image(index, channels) {
            Ok(image) => Ok(Seen::of(&image)),
            Err(error) => Err(BrokenSample { name: dataset.name(index), reason: error.to_string() }),
        }
    });
    let (mut broken, mut sizes, mut grey) = (Vec::new(), Sizes::default(), true);
    let (mut pixels, mut sums, mut squares) = (0u128, [0u128; 3], [0u128; 3]);
    for (done, seen) in seen.enumerate() {
        match seen {
            Err(one) => broken.push(one),
            Ok(seen) => {
                *sizes.counts.entry(seen.size).or_default() += 1;
                grey &= seen.grey;
                pixels += (seen.size[0] * seen.size[1]) as u128;
                for channel in 0..3 {
                    sums[channel] += u128::from(seen.sums[channel]);
                    squares[channel] += u128::from(seen.squares[channel]);
                }
            }
        }
        progress(done + 1);
    }
    let shown = if pixels == 0 {
        0
    } else if grey {
        1
    } else {
        3
    };
    let mean = |channel: usize| sums[channel] as f64 / pixels as f64 / 255.0;
    let deviation = |channel: usize| {
        // n^2 times the variance, as an integer: the subtraction is exact.
        let scaled = pixels * squares[channel] - sums[channel] * sums[channel];
        (scaled as f64).sqrt() / pixels as f64 / 255.0
    };
    Inspection {
        looked_at,
        broken,
        sizes,
        grey: grey && pixels > 0 || channels == Channels::Grey,
        mean: (0..shown).map(mean).collect(),
        deviation: (0..shown).map(deviation).collect(),
    }
}

/// Number of samples per class.
pub fn count_labels(dataset: &dyn Dataset, classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    for index in 0..dataset.len() {
        for &label in dataset.labels(index) {
            counts[label as usize] += 1;
        }
    }
    counts
}
