//! Upsampling of components that are stored at a lower resolution, as libjpeg does by default.
//!
//! Where a side is halved, a sample lies between two pixels: each takes 3/4 of the nearer sample and 1/4 of the one beyond, at
//! the image's edges the nearest one alone. Rounding alternates so that it has no direction. Other ratios repeat samples, and
//! so do components of fewer than three columns where their width is halved.

/// The samples of a component, at its own resolution: all, or the last few rows that were decoded.
pub(super) struct Plane {
    pub(super) samples: Vec<u8>,
    /// Rows in memory. Row `n` is at `n % rows`.
    pub(super) rows: usize,
    /// Samples from one row to the next: a multiple of the block size.
    pub(super) stride: usize,
    /// Samples of a row that belong to the image.
    pub(super) width: usize,
    /// Rows that belong to the image.
    pub(super) height: usize,
}

impl Plane {
    fn row(&self, row: usize) -> &[u8] {
        &self.samples[row % self.rows * self.stride..][..self.width]
    }

    /// The samples from a block's first one on, given by its row and column among all blocks.
    #[inline(always)]
    pub(super) fn block(&mut self, row: usize, column: usize) -> &mut [u8] {
        &mut self.samples[8 * row % self.rows * self.stride + 8 * column..]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    None,
    Across,
    Down,
    Both,
    Repeat,
}

/// Upsamples the rows of one component to the image's resolution.
pub(super) struct Upsampler {
    method: Method,
    across: usize,
    down: usize,
    /// Sums of two rows.
    sums: Vec<u16>,
    row: Vec<u8>,
}

impl Upsampler {
    /// For a component of this width that has one sample for `across` times `down` pixels.
    pub(super) fn new(width: usize, across: usize, down: usize) -> Upsampler {
        let method = match (across, down) {
            (1, 1) => Method::None,
            (2, 1) if width > 2 => Method::Across,
            (1, 2) => Method::Down,
            (2, 2) if width > 2 => Method::Both,
            _ => Method::Repeat,
        };
        let sums = vec![0; if method == Method::Both { width } else { 0 }];
        let row = vec![0; if method == Method::None { 0 } else { width * across }];
        Upsampler { method, across, down, sums, row }
    }

    /// The row of the image, at least as long as the image is wide.
    pub(super) fn row<'a>(&'a mut self, plane: &'a Plane, row: usize) -> &'a [u8] {
        let near = plane.row(row / self.down);
        // The neighbour of the upper of two pixels is above, that of the lower one is below.
        let lower = row % 2 == 1;
        let far = |row: usize| plane.row(if lower { (row + 1).min(plane.height - 1) } else { row.saturating_sub(1) });
        match self.method {
            Method::None => return near,
            Method::Across => across(near, &mut self.row),
            Method::Down => down(near, far(row / 2), if lower { 2 } else { 1 }, &mut self.row),
            Method::Both => both(near, far(row / 2), &mut self.sums, &mut self.row),
            Method::Repeat => {
                for (out, &sample) in self.row.chunks_exact_mut(self.across).zip(near) {
                    out.fill(sample);
                }
            }
        }
        &self.row
    }
}

fn across(near: &[u8], out: &mut [u8]) {
    let last = near.len() - 1;
    let mixed = |a: u8, b: u8, bias: u16| ((3 * u16::from(a) + u16::from(b) + bias) >> 2) as u8;
    let (pairs, _) = out.as_chunks_mut::<2>();
    pairs[0] = [near[0], mixed(near[0], near[1], 2)];
    for (pair, three) in pairs[1..last].iter_mut().zip(near.windows(3)) {
        *pair = [mixed(three[1], three[0], 1), mixed(three[1], three[2], 2)];
    }
    pairs[last] = [mixed(near[last], near[last - 1], 1), near[last]];
}

fn down(near: &[u8], far: &[u8], bias: u16, out: &mut [u8]) {
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + bias) >> 2) as u8;
    }
}

fn both(near: &[u8], far: &[u8], sums: &mut [u16], out: &mut [u8]) {
    for ((sum, &near), &far) in sums.iter_mut().zip(near).zip(far) {
        *sum = 3 * u16::from(near) + u16::from(far);
    }
    let last = sums.len() - 1;
    let mixed = |a: u16, b: u16, bias: u16| ((3 * a + b + bias) >> 4) as u8;
    let (pairs, _) = out.as_chunks_mut::<2>();
    pairs[0] = [mixed(sums[0], sums[0], 8), mixed(sums[0], sums[1], 7)];
    for (pair, three) in pairs[1..last].iter_mut().zip(sums.windows(3)) {
        *pair = [mixed(three[1], three[0], 8), mixed(three[1], three[2], 7)];
    }
    pairs[last] = [mixed(sums[last], sums[last - 1], 8), mixed(sums[last], sums[last], 7)];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(width: usize, height: usize, samples: &[u8]) -> Plane {
        // One column more than belongs to the image, which must not be seen.
        let samples = samples.chunks(width).flat_map(|row| row.iter().copied().chain([255])).collect();
        Plane { samples, rows: height, stride: width + 1, width, height }
    }

    #[test]
    fn halved_sides_are_interpolated_and_narrow_ones_repeated() {
        let wide = plane(3, 2, &[0, 10, 200, 100, 100, 40]);
        let rows = |across, down, count| {
            let mut upsampler = Upsampler::new(wide.width, across, down);
            (0..count).map(|row| upsampler.row(&wide, row).to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(rows(1, 1, 2), [[0, 10, 200], [100, 100, 40]]);
        assert_eq!(rows(2, 1, 2), [[0, 3, 7, 58, 152, 200], [100, 100, 100, 85, 55, 40]]);
        assert_eq!(rows(1, 2, 4), [[0, 10, 200], [25, 33, 160], [75, 77, 80], [100, 100, 40]]);
        let both = rows(2, 2, 4);
        assert_eq!(both[0], [0, 2, 8, 57, 153, 200]);
        assert_eq!(both[1], [25, 27, 31, 64, 128, 160]);
        assert_eq!(rows(3, 1, 1), [[0, 0, 0, 10, 10, 10, 200, 200, 200]]);
        let narrow = plane(2, 1, &[7, 90]);
        assert_eq!(Upsampler::new(2, 2, 1).row(&narrow, 0), [7, 7, 90, 90]);
        assert_eq!(Upsampler::new(2, 2, 2).row(&narrow, 1), [7, 7, 90, 90]);
    }
}
