//! A scan's header, and the order in which its blocks come (T.81, B.2.3 and A.2).

use super::bits::{Bits, Fault};
use super::damaged;
use super::frame::Frame;
use super::huffman::Table;
use super::tables::Tables;
use crate::image::error::ImageError;

/// The header of a scan.
pub(super) struct Scan {
    pub(super) parts: Vec<Part>,
    /// The coefficients that it has, in zigzag order: from the first to the last.
    pub(super) first: usize,
    pub(super) last: usize,
    /// Successive approximation: the lowest bit of earlier scans, or 0 if there were none, and of this one.
    pub(super) earlier_bit: u32,
    pub(super) bit: u32,
}

/// A component in a scan.
pub(super) struct Part {
    /// Its index in the frame.
    pub(super) component: usize,
    dc: usize,
    ac: usize,
}

/// The maximum number of blocks in an MCU (T.81, B.2.3).
const MOST_BLOCKS: usize = 10;

impl Scan {
    pub(super) fn new(segment: &[u8], frame: &Frame) -> Result<Scan, ImageError> {
        let wrong = || damaged("a scan's header does not have the length it says");
        let (&count, rest) = segment.split_first().ok_or_else(wrong)?;
        let (parts, end) = rest.split_at_checked(2 * usize::from(count)).ok_or_else(wrong)?;
        let &[first, last, bits] = end else { return Err(wrong()) };
        let mut scan = Scan {
            parts: Vec::new(),
            first: first.into(),
            last: last.into(),
            earlier_bit: u32::from(bits >> 4),
            bit: u32::from(bits & 15),
        };
        for &[id, tables] in parts.as_chunks::<2>().0 {
            let taken = |component: usize| scan.parts.iter().any(|part| part.component == component);
            let mut components = frame.components.iter().enumerate();
            let (component, _) = components
                .find(|&(index, component)| component.id == id && !taken(index))
                .ok_or_else(|| damaged(format!("a scan has a component {id} that the frame does not have")))?;
            scan.parts.push(Part { component, dc: usize::from(tables >> 4), ac: usize::from(tables & 15) });
        }
        let blocks = |part: &Part| frame.components[part.component].across * frame.components[part.component].down;
        if scan.parts.is_empty() || scan.parts.len() > 1 && scan.parts.iter().map(blocks).sum::<usize>() > MOST_BLOCKS {
            return Err(damaged("a scan has no component, or too many blocks in an MCU"));
        }
        if frame.progressive {
            scan.check_progression()?
        }
        Ok(scan)
    }

    fn check_progression(&self) -> Result<(), ImageError> {
        let band = match self.first {
            0 => self.last == 0,
            first => first <= self.last && self.last < 64 && self.parts.len() == 1,
        };
        let bits = self.bit <= 13 && (self.earlier_bit == 0 || self.earlier_bit == self.bit + 1);
        if band && bits { Ok(()) } else { Err(damaged("a scan has an invalid range of coefficients or bits")) }
    }

    /// The table for DC coefficients of a component.
    pub(super) fn dc<'a>(&self, part: usize, tables: &'a Tables) -> Result<&'a Table, ImageError> {
        defined(&tables.dc, self.parts[part].dc)
    }

    /// The table for AC coefficients of a component.
    pub(super) fn ac<'a>(&self, part: usize, tables: &'a Tables) -> Result<&'a Table, ImageError> {
        defined(&tables.ac, self.parts[part].ac)
    }

    /// MCUs per row, and rows of MCUs.
    pub(super) fn units(&self, frame: &Frame) -> (usize, usize) {
        match self.parts.as_slice() {
            [part] => frame.components[part.component].own_blocks(),
            _ => (frame.units_across, frame.units_down),
        }
    }

    /// Blocks of a component in one MCU, horizontally and vertically.
    pub(super) fn unit_of(&self, part: usize, frame: &Frame) -> (usize, usize) {
        if self.parts.len() == 1 {
            return (1, 1);
        }
        let component = &frame.components[self.parts[part].component];
        (component.across, component.down)
    }
}

fn defined(tables: &[Option<Table>; 4], index: usize) -> Result<&Table, ImageError> {
    tables.get(index).and_then(Option::as_ref).ok_or_else(|| damaged("a scan uses a Huffman table that is not defined"))
}

/// Counts MCUs between restarts.
pub(super) struct Restarts {
    interval: usize,
    left: usize,
    number: u8,
}

impl Restarts {
    pub(super) fn new(interval: usize) -> Restarts {
        Restarts { interval, left: interval, number: 0 }
    }

    /// To be called before each MCU: whether a restart was read.
    #[inline(always)]
    pub(super) fn passed(&mut self, bits: &mut Bits) -> Result<bool, Fault> {
        if self.interval == 0 {
            return Ok(false);
        }
        let due = self.left == 0;
        if due {
            *bits = bits.restarted(self.number)?;
            self.number = (self.number + 1) % 8;
            self.left = self.interval;
        }
        self.left -= 1;
        Ok(due)
    }
}
