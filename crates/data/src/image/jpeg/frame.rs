//! The frame header: the size, and how each component is stored (T.81, B.2.2).

use super::colour::Colour;
use super::{damaged, unsupported};
use crate::image::decode::check_size;
use crate::image::error::ImageError;

/// The image, and where its components' blocks are.
pub(super) struct Frame {
    pub(super) progressive: bool,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) components: Vec<Component>,
    /// MCUs (units with blocks of all components) per row.
    pub(super) units_across: usize,
    /// Rows of MCUs.
    pub(super) units_down: usize,
    /// The largest sampling factors of a component.
    pub(super) most_across: usize,
    pub(super) most_down: usize,
}

/// One component, and its part of the image.
pub(super) struct Component {
    pub(super) id: u8,
    /// The sampling factors: blocks in an MCU, horizontally and vertically.
    pub(super) across: usize,
    pub(super) down: usize,
    pub(super) quantisation: usize,
    /// Samples that belong to the image.
    pub(super) width: usize,
    pub(super) height: usize,
    /// Blocks per row, those included that only complete MCUs.
    pub(super) blocks_across: usize,
    pub(super) blocks_down: usize,
}

impl Frame {
    /// From the segment of a frame whose marker is `SOF0`, `SOF1` or `SOF2`.
    pub(super) fn new(segment: &[u8], progressive: bool, most_pixels: u64) -> Result<Frame, ImageError> {
        let (&[bits, height_0, height_1, width_0, width_1, count], components) =
            segment.split_first_chunk().ok_or_else(|| damaged("its frame header is too short"))?;
        let height = usize::from(u16::from_be_bytes([height_0, height_1]));
        let width = usize::from(u16::from_be_bytes([width_0, width_1]));
        if bits != 8 {
            return Err(unsupported(format!("{bits} bits per sample; 8 are supported")));
        }
        if width == 0 || height == 0 {
            return Err(damaged(format!("its size is {width} x {height}")));
        }
        check_size(width as u64, height as u64, most_pixels)?;
        if !matches!(count, 1 | 3 | 4) {
            return Err(unsupported(format!("{count} components; 1, 3 or 4 are supported")));
        }
        if components.len() != 3 * usize::from(count) {
            return Err(damaged("its frame header has another length than it says"));
        }
        let mut frame = Frame {
            progressive,
            width,
            height,
            components: components.as_chunks::<3>().0.iter().map(Component::new).collect::<Result<_, _>>()?,
            units_across: 0,
            units_down: 0,
            most_across: 1,
            most_down: 1,
        };
        frame.place_blocks()?;
        Ok(frame)
    }

    fn place_blocks(&mut self) -> Result<(), ImageError> {
        // A single component is not interleaved with others: its factors have no effect.
        if let [component] = self.components.as_mut_slice() {
            (component.across, component.down) = (1, 1);
        }
        for component in &self.components {
            self.most_across = self.most_across.max(component.across);
            self.most_down = self.most_down.max(component.down);
        }
        self.units_across = self.width.div_ceil(8 * self.most_across);
        self.units_down = self.height.div_ceil(8 * self.most_down);
        for component in &mut self.components {
            let Component { across, down, .. } = *component;
            if !self.most_across.is_multiple_of(across) || !self.most_down.is_multiple_of(down) {
                let most = format!("{} x {}", self.most_across, self.most_down);
                return Err(unsupported(format!("a component's resolution is {across} x {down} of {most}")));
            }
            component.width = (self.width * across).div_ceil(self.most_across);
            component.height = (self.height * down).div_ceil(self.most_down);
            component.blocks_across = self.units_across * across;
            component.blocks_down = self.units_down * down;
        }
        Ok(())
    }

    /// Blocks of all components.
    pub(super) fn blocks(&self) -> usize {
        self.components.iter().map(Component::blocks).sum()
    }

    /// The colour space, by libjpeg's rules: JFIF is YCbCr, Adobe's marker says which, else the components' names may.
    pub(super) fn colour(&self, jfif: bool, adobe_transform: Option<u8>) -> Colour {
        let ids: Vec<u8> = self.components.iter().map(|component| component.id).collect();
        match (ids.len(), adobe_transform) {
            (1, _) => Colour::Grey,
            (3, Some(0)) if !jfif => Colour::Rgb,
            (3, None) if !jfif && ids == *b"RGB" => Colour::Rgb,
            (3, _) => Colour::Ycc,
            (_, None | Some(0)) => Colour::Cmyk,
            _ => Colour::Ycck,
        }
    }
}

impl Component {
    fn new(&[id, factors, quantisation]: &[u8; 3]) -> Result<Component, ImageError> {
        let (across, down) = (usize::from(factors >> 4), usize::from(factors & 15));
        if !(1..=4).contains(&across) || !(1..=4).contains(&down) || quantisation > 3 {
            return Err(damaged(format!("component {id} has an invalid sampling factor or table")));
        }
        let quantisation = quantisation.into();
        Ok(Component { id, across, down, quantisation, width: 0, height: 0, blocks_across: 0, blocks_down: 0 })
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks_across * self.blocks_down
    }

    /// The blocks in a scan of this component alone, which has no blocks that only complete MCUs.
    pub(super) fn own_blocks(&self) -> (usize, usize) {
        (self.width.div_ceil(8), self.height.div_ceil(8))
    }
}
