//! The augmentation parameters of one image for [`PrepareImages`](super::PrepareImages), encoded as a row of integers.
//!
//! | words | contents |
//! |---|---|
//! | 0, 1 | row and column of the result at which the stored image begins |
//! | 2 | 1 if flipped horizontally, plus 2 if flipped vertically |
//! | 3 | mixing: 0 none, 1 Mixup, 2 CutMix |
//! | 4 to 7 | Mixup: weights of the image and its partner (the bits of an f32 each); CutMix: the box |
//! | 8, 9 | key of the random numbers, low half first |
//! | 10 | number of erased boxes |
//! | 11 .. | each erased box and its fill: the bits of an f32 per channel or, for noise, its offset in the random numbers |
//!
//! A box is four words: top, left, height, width. Noise begins at an even offset, because each draw takes two words.

use crate::random::Stream;

const TOP: usize = 0;
const LEFT: usize = 1;
const FLIPS: usize = 2;
const MIXING: usize = 3;
const MIXED: usize = 4;
const KEY: usize = 8;
const BOXES: usize = 10;
const FIRST_BOX: usize = 11;

const MIRRORED: i32 = 1;
const UPSIDE_DOWN: i32 = 2;

const BLENDED: i32 = 1;
const PASTED: i32 = 2;

/// Offsets of the fields in a row, as macros for the CUDA kernels.
pub(crate) const PLACES: [(&str, usize); 8] = [
    ("TOP", TOP),
    ("LEFT", LEFT),
    ("FLIPS", FLIPS),
    ("MIXING", MIXING),
    ("MIXED", MIXED),
    ("KEY", KEY),
    ("BOXES", BOXES),
    ("FIRST_BOX", FIRST_BOX),
];

/// A rectangle of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// Its first row.
    pub top: i32,
    /// Its first column.
    pub left: i32,
    /// Number of rows.
    pub height: i32,
    /// Number of columns.
    pub width: i32,
}

impl Area {
    /// Whether it contains a pixel.
    pub fn contains(&self, row: usize, column: usize) -> bool {
        let inside =
            |at: usize, start: i32, length: i32| (0..i64::from(length)).contains(&(at as i64 - i64::from(start)));
        inside(row, self.top, self.height) && inside(column, self.left, self.width)
    }

    fn words(self) -> [i32; 4] {
        [self.top, self.left, self.height, self.width]
    }
}

/// How a stored image is placed in the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Laying {
    /// The row of the result at which it begins; what it does not cover is black.
    pub top: i32,
    /// The column.
    pub left: i32,
    /// Flipped horizontally after that.
    pub mirrored: bool,
    /// Flipped vertically.
    pub upside_down: bool,
}

/// How an image is mixed with its partner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Mixing {
    /// Not at all.
    #[default]
    Nothing,
    /// The weighted sum of both (Mixup).
    Blend {
        /// Weight of the image.
        own: f32,
        /// Weight of its partner.
        partner: f32,
    },
    /// A box of the partner is pasted in (CutMix).
    Paste(Area),
}

/// Words per row for images with at most `most_boxes` erased boxes.
pub fn draws_length(channels: usize, most_boxes: usize) -> usize {
    FIRST_BOX + most_boxes * box_length(channels)
}

/// Words per erased box.
pub(crate) fn box_length(channels: usize) -> usize {
    4 + channels
}

/// A row, for reading.
#[derive(Clone, Copy, Debug)]
pub struct ImageDraws<'a> {
    words: &'a [i32],
    channels: usize,
}

impl<'a> ImageDraws<'a> {
    /// A row of [`draws_length`] words.
    pub fn new(words: &'a [i32], channels: usize) -> ImageDraws<'a> {
        ImageDraws { words, channels }
    }

    /// How the image is placed in the result.
    pub fn laying(&self) -> Laying {
        let flips = self.words[FLIPS];
        Laying {
            top: self.words[TOP],
            left: self.words[LEFT],
            mirrored: flips & MIRRORED != 0,
            upside_down: flips & UPSIDE_DOWN != 0,
        }
    }

    /// How it is mixed with its partner.
    pub fn mixing(&self) -> Mixing {
        match self.words[MIXING] {
            BLENDED => Mixing::Blend { own: self.float(MIXED), partner: self.float(MIXED + 1) },
            PASTED => Mixing::Paste(self.area_at(MIXED)),
            _ => Mixing::Nothing,
        }
    }

    /// Its random numbers.
    pub fn stream(&self) -> Stream {
        Stream::of_key([self.words[KEY] as u32, self.words[KEY + 1] as u32])
    }

    /// Number of erased boxes, clamped to the capacity of the row.
    pub fn boxes(&self) -> usize {
        let room = (self.words.len() - FIRST_BOX) / box_length(self.channels);
        usize::try_from(self.words[BOXES]).unwrap_or(0).min(room)
    }

    /// The area of an erased box.
    pub fn area(&self, index: usize) -> Area {
        self.area_at(self.place(index))
    }

    /// The fill value of a channel of an erased box.
    pub fn colour(&self, index: usize, channel: usize) -> f32 {
        self.float(self.place(index) + 4 + channel)
    }

    /// Offset of an erased box's noise in the random numbers.
    pub fn noise_start(&self, index: usize) -> u64 {
        u64::from(self.words[self.place(index) + 4] as u32)
    }

    fn place(&self, index: usize) -> usize {
        FIRST_BOX + index * box_length(self.channels)
    }

    fn float(&self, word: usize) -> f32 {
        f32::from_bits(self.words[word] as u32)
    }

    fn area_at(&self, word: usize) -> Area {
        let &[top, left, height, width] = self.words[word..].first_chunk().expect("a row has its length");
        Area { top, left, height, width }
    }
}

/// A row, for writing.
#[derive(Debug)]
pub struct ImageDrawsMut<'a> {
    words: &'a mut [i32],
    channels: usize,
}

impl<'a> ImageDrawsMut<'a> {
    /// A row of [`draws_length`] words, unchanged.
    pub fn new(words: &'a mut [i32], channels: usize) -> ImageDrawsMut<'a> {
        ImageDrawsMut { words, channels }
    }

    /// Resets the row: the image stays as it is stored.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Sets how the image is placed in the result.
    pub fn lay(&mut self, laying: Laying) {
        (self.words[TOP], self.words[LEFT]) = (laying.top, laying.left);
        self.words[FLIPS] =
            if laying.mirrored { MIRRORED } else { 0 } + if laying.upside_down { UPSIDE_DOWN } else { 0 };
    }

    /// Sets how it is mixed with its partner.
    pub fn mix(&mut self, mixing: Mixing) {
        let mixed = &mut self.words[MIXED..MIXED + 4];
        self.words[MIXING] = match mixing {
            Mixing::Nothing => 0,
            Mixing::Blend { own, partner } => {
                mixed[..2].copy_from_slice(&[own, partner].map(|share| share.to_bits() as i32));
                BLENDED
            }
            Mixing::Paste(area) => {
                mixed.copy_from_slice(&area.words());
                PASTED
            }
        };
    }

    /// Sets its random numbers.
    pub fn set_stream(&mut self, stream: Stream) {
        let [low, high] = stream.key();
        (self.words[KEY], self.words[KEY + 1]) = (low as i32, high as i32);
    }

    /// Erases another box, and fills each channel with its colour.
    pub fn erase(&mut self, area: Area, colours: &[f32]) {
        let colours = colours.iter().map(|colour| colour.to_bits() as i32);
        self.add_box(area).iter_mut().zip(colours).for_each(|(word, colour)| *word = colour);
    }

    /// Erases another box, and fills it with noise that begins at an even offset of the random numbers.
    pub fn erase_with_noise(&mut self, area: Area, start: u32) {
        debug_assert!(start.is_multiple_of(2), "each draw takes two words, but the offset is {start}");
        self.add_box(area)[0] = start as i32;
    }

    /// Adds a box, and returns the words of its fill.
    fn add_box(&mut self, area: Area) -> &mut [i32] {
        let place = FIRST_BOX + self.words[BOXES] as usize * box_length(self.channels);
        self.words[BOXES] += 1;
        let (box_words, fill) = self.words[place..].split_at_mut(4);
        box_words.copy_from_slice(&area.words());
        &mut fill[..self.channels]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let channels = 3;
        let mut words = vec![-1; draws_length(channels, 2)];
        let mut row = ImageDrawsMut::new(&mut words, channels);
        row.clear();
        let laying = Laying { top: -3, left: 4, mirrored: false, upside_down: true };
        let area = Area { top: 1, left: 2, height: 3, width: 4 };
        let other = Area { top: 5, left: 6, height: 7, width: 8 };
        let stream = Stream::new(1, 2, 3);
        row.lay(laying);
        row.set_stream(stream);
        row.erase(area, &[0.5, -0.25, 3.0]);
        row.erase_with_noise(other, u32::MAX - 1);
        for mixing in [Mixing::Blend { own: 0.3, partner: 0.7 }, Mixing::Paste(other), Mixing::Nothing] {
            ImageDrawsMut::new(&mut words, channels).mix(mixing);
            let row = ImageDraws::new(&words, channels);
            assert_eq!((row.laying(), row.mixing(), row.stream(), row.boxes()), (laying, mixing, stream, 2));
            assert_eq!((row.area(0), row.area(1)), (area, other));
            assert_eq!([0, 1, 2].map(|channel| row.colour(0, channel)), [0.5, -0.25, 3.0]);
            assert_eq!(row.noise_start(1), u64::from(u32::MAX) - 1);
        }
        words[BOXES] = i32::MAX;
        assert_eq!(ImageDraws::new(&words, channels).boxes(), 2, "no more than there is room for");
    }

    #[test]
    fn areas_contain_their_pixels() {
        let area = Area { top: 1, left: -1, height: 2, width: 3 };
        let inside: Vec<(usize, usize)> =
            (0..16).map(|at| (at / 4, at % 4)).filter(|&(row, column)| area.contains(row, column)).collect();
        assert_eq!(inside, [(1, 0), (1, 1), (2, 0), (2, 1)]);
    }
}
