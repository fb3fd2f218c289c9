//! Operations that map each byte by a table: Pillow's `ImageOps`, and `timm`'s `solarize_add`.

use super::picture::Picture;

type Tones = [u8; 256];

impl Picture {
    /// Autocontrast: the darkest value of each channel becomes 0, the lightest 255, linear in between.
    pub(super) fn auto_contrast(&mut self) {
        self.map_channels(|counts| {
            let lowest = counts.iter().position(|&count| count > 0)?;
            let highest = counts.iter().rposition(|&count| count > 0)?;
            if highest <= lowest {
                return None;
            }
            let scale = 255.0 / (highest - lowest) as f64;
            let offset = -(lowest as f64) * scale;
            // `as u8` truncates, and clamps to 0..255.
            Some(std::array::from_fn(|value| (value as f64 * scale + offset) as u8))
        });
    }

    /// Equalises the histogram of each channel.
    pub(super) fn equalize(&mut self) {
        self.map_channels(|counts| {
            let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
            let last = counts.iter().rev().find(|&&count| count > 0)?;
            let step = (total - u64::from(*last)) / 255;
            if step == 0 {
                return None;
            }
            let mut below = step / 2;
            Some(std::array::from_fn(|value| {
                let tone = (below / step).min(255) as u8;
                below += u64::from(counts[value]);
                tone
            }))
        });
    }

    /// Inverts.
    pub(super) fn invert(&mut self) {
        self.bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }

    /// Posterises: keeps the highest bits. 0 bits or fewer give black (Pillow 13 refuses 0 bits, earlier versions gave
    /// black; `timm` reaches 0 at the highest magnitude).
    pub(super) fn posterize(&mut self, bits: i64) {
        let mask = if bits >= 8 { 255 } else { !(255u16 >> bits.max(0)) as u8 };
        self.bytes.iter_mut().for_each(|byte| *byte &= mask);
    }

    /// Solarises: inverts values from the threshold on.
    pub(super) fn solarize(&mut self, threshold: i64) {
        self.map(&std::array::from_fn(
            |value| if (value as i64) < threshold { value as u8 } else { 255 - value as u8 },
        ));
    }

    /// Adds to values under 128.
    pub(super) fn solarize_add(&mut self, add: i64) {
        let lighter = |value: usize| (value as i64 + add).clamp(0, 255) as u8;
        self.map(&std::array::from_fn(|value| if value < 128 { lighter(value) } else { value as u8 }));
    }

    pub(super) fn map(&mut self, tones: &Tones) {
        self.bytes.iter_mut().for_each(|byte| *byte = tones[usize::from(*byte)]);
    }

    /// Maps each channel by the table that `tones` makes of its histogram; unchanged if it makes none.
    fn map_channels(&mut self, tones: impl Fn(&[u32; 256]) -> Option<Tones>) {
        let channels = self.channels;
        // All channels in one pass each: 3 x 256 counters fit into the L1 cache.
        let mut counts = [[0u32; 256]; 3];
        for pixel in self.bytes.chunks_exact(channels) {
            for (counts, &byte) in counts.iter_mut().zip(pixel) {
                counts[usize::from(byte)] += 1;
            }
        }
        let identity: Tones = std::array::from_fn(|value| value as u8);
        let tables: [Tones; 3] = std::array::from_fn(|channel| tones(&counts[channel]).unwrap_or(identity));
        for pixel in self.bytes.chunks_exact_mut(channels) {
            for (tones, byte) in tables.iter().zip(pixel) {
                *byte = tones[usize::from(*byte)];
            }
        }
    }
}
