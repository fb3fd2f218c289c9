//! Progressive scans: some coefficients of each block, or some bits of them (T.81, G.2).

use super::bits::{Bits, Fault};
use super::damaged_data;
use super::frame::{Component, Frame};
use super::huffman::Table;
use super::idct::inverse;
use super::scan::{Restarts, Scan};
use super::sequential::write;
use super::tables::{Tables, ZIGZAG};
use super::upsample::Plane;
use crate::image::error::ImageError;

/// A component's blocks, row by row, filled by one scan after the other.
pub(super) type Blocks = Vec<[i16; 64]>;

/// Reads a scan. Returns a position in the file that is not after the next marker.
pub(super) fn read(
    file: &[u8],
    at: usize,
    frame: &Frame,
    scan: &Scan,
    tables: &Tables,
    blocks: &mut [Blocks],
) -> Result<usize, ImageError> {
    let mut bits = Bits::new(file, at);
    let refines = scan.earlier_bit > 0;
    if scan.first == 0 {
        let huffman =
            (0..scan.parts.len()).map(|part| if refines { Ok(None) } else { scan.dc(part, tables).map(Some) });
        let huffman = huffman.collect::<Result<Vec<_>, _>>()?;
        read_means(&mut bits, frame, scan, &huffman, tables.restart_interval, blocks).map_err(damaged_data)?;
    } else {
        let component = scan.parts[0].component;
        let band =
            Band { huffman: scan.ac(0, tables)?, first: scan.first, last: scan.last, bit: scan.bit, blocks_to_skip: 0 };
        let restarts = Restarts::new(tables.restart_interval);
        band.read(&mut bits, restarts, &frame.components[component], refines, &mut blocks[component])
            .map_err(damaged_data)?;
    }
    Ok(bits.place())
}

/// DC coefficients: differences to the previous block, or, without tables, one more bit of each.
fn read_means(
    bits: &mut Bits,
    frame: &Frame,
    scan: &Scan,
    huffman: &[Option<&Table>],
    restart_interval: usize,
    blocks: &mut [Blocks],
) -> Result<(), Fault> {
    let mut before = [0_i32; 4];
    let mut restarts = Restarts::new(restart_interval);
    let (units_across, units_down) = scan.units(frame);
    for unit in 0..units_across * units_down {
        if restarts.passed(bits)? {
            before = [0; 4];
        }
        for (index, part) in scan.parts.iter().enumerate() {
            let (across, down) = scan.unit_of(index, frame);
            for block in 0..across * down {
                let row = unit / units_across * down + block / across;
                let column = unit % units_across * across + block % across;
                let place = row * frame.components[part.component].blocks_across + column;
                let mean = &mut blocks[part.component][place][0];
                match huffman[index] {
                    Some(table) => {
                        before[index] = before[index].wrapping_add(table.coded(bits)?.value);
                        *mean = (before[index] << scan.bit) as i16;
                    }
                    None if bits.take_bit() => *mean |= 1 << scan.bit,
                    None => {}
                }
            }
        }
        bits.check()?;
    }
    Ok(())
}

/// Coefficients from `first` to `last` of one component.
struct Band<'a> {
    huffman: &'a Table,
    first: usize,
    last: usize,
    bit: u32,
    /// The number of blocks, this one included, without further new coefficients.
    blocks_to_skip: u32,
}

impl Band<'_> {
    fn read(
        mut self,
        bits: &mut Bits,
        mut restarts: Restarts,
        component: &Component,
        refines: bool,
        blocks: &mut Blocks,
    ) -> Result<(), Fault> {
        let (across, down) = component.own_blocks();
        let mut own_bits = *bits;
        for row in 0..down {
            for block in &mut blocks[row * component.blocks_across..][..across] {
                if restarts.passed(&mut own_bits)? {
                    self.blocks_to_skip = 0;
                }
                if refines {
                    self.refine(&mut own_bits, block)?;
                } else {
                    self.begin(&mut own_bits, block)?;
                }
                own_bits.check()?;
            }
        }
        *bits = own_bits;
        Ok(())
    }

    // The bit reader stays in registers if everything is inlined.

    /// A symbol without a number that is not a run of 16 zeros: this block, and perhaps following ones, end here.
    #[inline(always)]
    fn end_of_blocks(&mut self, bits: &mut Bits, exponent: u8) {
        let exponent = u32::from(exponent);
        bits.refill();
        self.blocks_to_skip = 1 << exponent;
        if exponent > 0 {
            self.blocks_to_skip += bits.take(exponent);
        }
    }

    /// The upper bits of a block's coefficients.
    #[inline(always)]
    fn begin(&mut self, bits: &mut Bits, block: &mut [i16; 64]) -> Result<(), Fault> {
        if self.blocks_to_skip > 0 {
            self.blocks_to_skip -= 1;
            return Ok(());
        }
        let mut place = self.first;
        while place <= self.last {
            // A symbol is not followed by a number if its lower half is 0.
            let coded = self.huffman.coded(bits)?;
            let zeros = coded.symbol >> 4;
            if coded.symbol & 15 == 0 {
                if zeros != 15 {
                    self.end_of_blocks(bits, zeros);
                    self.blocks_to_skip -= 1;
                    break;
                }
                place += 16;
                continue;
            }
            place += usize::from(zeros);
            block[usize::from(ZIGZAG[place])] = (coded.value << self.bit) as i16;
            place += 1;
        }
        Ok(())
    }

    /// One more bit of each non-zero coefficient, and new coefficients of this bit between them.
    #[inline(always)]
    fn refine(&mut self, bits: &mut Bits, block: &mut [i16; 64]) -> Result<(), Fault> {
        let one = 1_i16 << self.bit;
        let mut place = self.first;
        while self.blocks_to_skip == 0 && place <= self.last {
            let symbol = self.huffman.symbol(bits)?;
            let zeros = symbol >> 4;
            let mut new = 0;
            if symbol & 15 != 0 {
                new = if bits.take_bit() { one } else { -one };
            } else if zeros != 15 {
                self.end_of_blocks(bits, zeros);
                break;
            }
            place = self.pass_zeros(bits, block, place, zeros);
            if new != 0 {
                block[usize::from(ZIGZAG[place])] = new;
            }
            place += 1;
        }
        if self.blocks_to_skip > 0 {
            // Most blocks end here, and most of them have nothing to refine, so this is checked first.
            if block[1..].iter().any(|&coefficient| coefficient != 0) {
                self.pass_zeros(bits, block, place, u8::MAX);
            }
            self.blocks_to_skip -= 1;
        }
        Ok(())
    }

    /// Refines coefficients up to the zero after so many zeros, and gives its position; or the position after the last.
    #[inline(always)]
    fn pass_zeros(&self, bits: &mut Bits, block: &mut [i16; 64], mut place: usize, mut zeros: u8) -> usize {
        while place <= self.last {
            let coefficient = &mut block[usize::from(ZIGZAG[place])];
            if *coefficient == 0 {
                if zeros == 0 {
                    break;
                }
                zeros -= 1;
            } else if bits.take_bit() && *coefficient & (1 << self.bit) == 0 {
                let one = 1 << self.bit;
                *coefficient = coefficient.wrapping_add(if *coefficient > 0 { one } else { -one });
            }
            place += 1;
        }
        place
    }
}

/// Turns one row of a component's blocks into samples.
pub(super) fn finish(component: &Component, blocks: &Blocks, quantisation: &[i16; 64], row: usize, plane: &mut Plane) {
    let blocks = &blocks[row * component.blocks_across..][..component.blocks_across];
    for (column, block) in blocks.iter().enumerate() {
        let stride = plane.stride;
        write(plane.block(row, column), stride, &inverse(block, quantisation));
    }
}
