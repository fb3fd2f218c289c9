//! Tables that are defined before a scan, for it and all that follow.

use super::damaged;
use super::huffman::{Class, Table, standard};
use crate::image::error::ImageError;

/// The zigzag order of the coefficients, from the lowest frequency to the highest (T.81, figure A.6). Damaged data may go
/// up to 15 positions beyond the last one: all of them are the last.
pub(super) const ZIGZAG: [u8; 80] = zigzag();

const fn zigzag() -> [u8; 80] {
    let mut order = [63; 80];
    let (mut row, mut column, mut place) = (0_usize, 0_usize, 0);
    while place < 64 {
        order[place] = (8 * row + column) as u8;
        place += 1;
        // Diagonals are walked upwards and downwards in turn, along the edges to the next.
        if (row + column) % 2 == 0 {
            if column == 7 {
                row += 1;
            } else {
                column += 1;
                row = row.saturating_sub(1);
            }
        } else if row == 7 {
            column += 1;
        } else {
            row += 1;
            column = column.saturating_sub(1);
        }
    }
    order
}

/// Tables as they were last defined.
pub(super) struct Tables {
    pub(super) dc: [Option<Table>; 4],
    pub(super) ac: [Option<Table>; 4],
    /// In rows, not in zigzag order.
    pub(super) quantisation: [Option<[i16; 64]>; 4],
    /// MCUs between restarts; 0 for no restarts.
    pub(super) restart_interval: usize,
}

impl Tables {
    pub(super) fn new() -> Tables {
        Tables { dc: [const { None }; 4], ac: [const { None }; 4], quantisation: [None; 4], restart_interval: 0 }
    }

    /// Uses the standard tables where none is defined.
    pub(super) fn add_standard(&mut self) {
        for (index, colour) in [(0, false), (1, true)] {
            for (class, tables) in [(Class::Dc, &mut self.dc), (Class::Ac, &mut self.ac)] {
                if tables[index].is_none() {
                    tables[index] = standard(class, colour);
                }
            }
        }
    }

    /// `DHT`: any number of Huffman tables (T.81, B.2.4.2).
    pub(super) fn define_huffman(&mut self, mut segment: &[u8]) -> Result<(), ImageError> {
        while let Some((&[place, ref counts @ ..], rest)) = segment.split_first_chunk::<17>() {
            let total = counts.iter().map(|&count| usize::from(count)).sum();
            let (symbols, rest) = rest.split_at_checked(total).ok_or_else(|| damaged("a Huffman table is cut off"))?;
            let (class, tables) = match place >> 4 {
                0 => (Class::Dc, &mut self.dc),
                1 => (Class::Ac, &mut self.ac),
                _ => return Err(damaged("a Huffman table is of no known class")),
            };
            let table =
                tables.get_mut(usize::from(place & 15)).ok_or_else(|| damaged("there is a fifth Huffman table"))?;
            *table = Some(Table::new(class, counts, symbols).map_err(damaged)?);
            segment = rest;
        }
        if segment.is_empty() { Ok(()) } else { Err(damaged("a Huffman table is cut off")) }
    }

    /// `DQT`: any number of quantisation tables, of 8 or 16 bits (T.81, B.2.4.1).
    pub(super) fn define_quantisation(&mut self, mut segment: &[u8]) -> Result<(), ImageError> {
        while let Some((&place, rest)) = segment.split_first() {
            let bytes = if place >> 4 == 0 { 1 } else { 2 };
            let cut_off = || damaged("a quantisation table is cut off");
            let (values, rest) = rest.split_at_checked(64 * bytes).ok_or_else(cut_off)?;
            let mut table = [0; 64];
            for (value, &at) in values.chunks_exact(bytes).zip(&ZIGZAG) {
                let value = value.iter().fold(0, |value, &byte| value << 8 | u16::from(byte));
                table[usize::from(at)] = value as i16;
            }
            let place = self.quantisation.get_mut(usize::from(place & 15));
            *place.ok_or_else(|| damaged("there is a fifth quantisation table"))? = Some(table);
            segment = rest;
        }
        Ok(())
    }

    /// `DRI` (T.81, B.2.4.4).
    pub(super) fn define_restarts(&mut self, segment: &[u8]) -> Result<(), ImageError> {
        let &[upper, lower] = segment else { return Err(damaged("the restart interval does not have two bytes")) };
        self.restart_interval = usize::from(u16::from_be_bytes([upper, lower]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zigzag_is_that_of_the_standard() {
        assert_eq!(ZIGZAG[..16], [0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5]);
        assert_eq!(ZIGZAG[28..36], [7, 14, 21, 28, 35, 42, 49, 56]);
        assert_eq!(ZIGZAG[56..64], [53, 60, 61, 54, 47, 55, 62, 63]);
        assert_eq!(ZIGZAG[64..], [63; 16]);
        let all: std::collections::BTreeSet<u8> = ZIGZAG.into_iter().collect();
        assert_eq!(all.len(), 64);
    }

    #[test]
    fn tables_of_16_bits_and_several_in_a_segment() {
        let mut tables = Tables::new();
        let mut segment = vec![0x12];
        segment.extend((0..64_u16).flat_map(|value| (300 + value).to_be_bytes()));
        segment.push(0x01);
        segment.extend(1..=64_u8);
        tables.define_quantisation(&segment).unwrap();
        let (wide, narrow) = (tables.quantisation[2].unwrap(), tables.quantisation[1].unwrap());
        assert_eq!((wide[8], wide[63], narrow[8], narrow[63]), (302, 363, 3, 64));
        assert!(tables.define_quantisation(&segment[..segment.len() - 1]).is_err());
        assert!(tables.define_quantisation(&[&[4], [1; 64].as_slice()].concat()).is_err());
    }
}
