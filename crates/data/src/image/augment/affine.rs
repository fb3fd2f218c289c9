//! Pillow's `Image.transform(..., AFFINE)` and `Image.rotate`, bit for bit.
//!
//! The centre of the output pixel (x, y) is sampled at `(a x + b y + c, d x + e y + f)`, all in f64. Outside of the picture is the fill
//! colour; near the border, pixels at the border are repeated. Results are truncated, not rounded.

use super::picture::Picture;

/// How values between pixels are interpolated. `timm` chooses one at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampling {
    /// Linear between 2 x 2 pixels.
    Bilinear,
    /// Cubic convolution of 4 x 4 pixels with a = -1, sharper than the one for resizing.
    Bicubic,
}

/// `[a, b, c, d, e, f]`.
pub(super) type Matrix = [f64; 6];

impl Picture {
    /// Rotates counterclockwise around the centre.
    pub(super) fn rotate(&mut self, degrees: f64, sampling: Sampling, fill: &[u8]) {
        let degrees = degrees.rem_euclid(360.0);
        if degrees == 0.0 {
            return;
        }
        let angle = -degrees.to_radians();
        let (cosine, sine) = (to_15_places(angle.cos()), to_15_places(angle.sin()));
        let (x, y) = (self.width as f64 / 2.0, self.height as f64 / 2.0);
        let mut matrix = [cosine, sine, 0.0, to_15_places(-angle.sin()), cosine, 0.0];
        matrix[2] = matrix[0] * -x + matrix[1] * -y + 0.0 + x;
        matrix[5] = matrix[3] * -x + matrix[4] * -y + 0.0 + y;
        self.affine(matrix, sampling, fill);
    }

    /// Samples each pixel where `matrix` maps it.
    pub(super) fn affine(&mut self, matrix: Matrix, sampling: Sampling, fill: &[u8]) {
        self.prepare_spare();
        match (self.channels, sampling) {
            (1, Sampling::Bilinear) => self.sample_all(matrix, fill, bilinear::<1>),
            (1, Sampling::Bicubic) => self.sample_all(matrix, fill, bicubic::<1>),
            (_, Sampling::Bilinear) => self.sample_all(matrix, fill, bilinear::<3>),
            (_, Sampling::Bicubic) => self.sample_all(matrix, fill, bicubic::<3>),
        }
        self.take_spare();
    }

    #[inline(always)]
    fn sample_all<const CHANNELS: usize>(
        &mut self,
        [a, b, c, d, e, f]: Matrix,
        fill: &[u8],
        sample: impl Fn(&Pixels<CHANNELS>, f64, f64) -> [u8; CHANNELS],
    ) {
        let Picture { height, width, .. } = *self;
        let (pixels, _) = self.bytes.as_chunks::<CHANNELS>();
        let pixels = Pixels { pixels, width: width as isize, height: height as isize };
        let (out, _) = self.spare.as_chunks_mut::<CHANNELS>();
        let fill: [u8; CHANNELS] = std::array::from_fn(|channel| fill.get(channel).copied().unwrap_or(0));
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let y = row as f64 + 0.5;
            for (column, out) in out.iter_mut().enumerate() {
                let x = column as f64 + 0.5;
                let (from_x, from_y) = (a * x + b * y + c, d * x + e * y + f);
                let inside = from_x >= 0.0 && from_x < width as f64 && from_y >= 0.0 && from_y < height as f64;
                *out = if inside { sample(&pixels, from_x - 0.5, from_y - 0.5) } else { fill };
            }
        }
    }
}

/// Python's `round(value, 15)`: the double nearest to the decimal number, halves to even.
fn to_15_places(value: f64) -> f64 {
    format!("{value:.15}").parse().unwrap_or(value)
}

struct Pixels<'a, const CHANNELS: usize> {
    pixels: &'a [[u8; CHANNELS]],
    width: isize,
    height: isize,
}

impl<const CHANNELS: usize> Pixels<'_, CHANNELS> {
    #[inline(always)]
    fn at(&self, x: isize, y: isize) -> [f64; CHANNELS] {
        let (x, y) = (x.clamp(0, self.width - 1), y.clamp(0, self.height - 1));
        self.pixels[(y * self.width + x) as usize].map(f64::from)
    }
}

#[inline(always)]
fn bilinear<const CHANNELS: usize>(pixels: &Pixels<CHANNELS>, x: f64, y: f64) -> [u8; CHANNELS] {
    let (left, top) = (x.floor(), y.floor());
    let (along, down) = (x - left, y - top);
    let (left, top) = (left as isize, top as isize);
    let between = |from: f64, to: f64, share: f64| from + (to - from) * share;
    let line = |y: isize| {
        let (from, to) = (pixels.at(left, y), pixels.at(left + 1, y));
        std::array::from_fn(|channel| between(from[channel], to[channel], along))
    };
    let upper: [f64; CHANNELS] = line(top);
    if down == 0.0 {
        return upper.map(|value| value as u8);
    }
    let lower: [f64; CHANNELS] = line(top + 1);
    std::array::from_fn(|channel| between(upper[channel], lower[channel], down) as u8)
}

#[inline(always)]
fn bicubic<const CHANNELS: usize>(pixels: &Pixels<CHANNELS>, x: f64, y: f64) -> [u8; CHANNELS] {
    let (left, top) = (x.floor(), y.floor());
    let (along, down) = (x - left, y - top);
    let (left, top) = (left as isize, top as isize);
    // A fraction of 0 gives the second value exactly: shears and translations interpolate in one direction only.
    let line = |y: isize| -> [f64; CHANNELS] {
        if along == 0.0 {
            return pixels.at(left, y);
        }
        let four = [-1, 0, 1, 2].map(|offset| pixels.at(left + offset, y));
        std::array::from_fn(|channel| cubic(four.map(|pixel| pixel[channel]), along))
    };
    let values = if down == 0.0 {
        line(top)
    } else {
        let four = [-1, 0, 1, 2].map(|offset| line(top + offset));
        std::array::from_fn(|channel| cubic(four.map(|pixel| pixel[channel]), down))
    };
    values.map(|value| value as u8)
}

/// In Pillow's order of operations, on which the last bit depends.
#[inline(always)]
fn cubic([v1, v2, v3, v4]: [f64; 4], share: f64) -> f64 {
    let first = -v1 + v3;
    let second = 2.0 * (v1 - v2) + v3 - v4;
    let third = -v1 + v2 - v3 + v4;
    v2 + share * (first + share * (second + share * third))
}
