//! Sequential scans, which have whole blocks (T.81, F.2): baseline and extended.

use super::bits::{Bits, Fault};
use super::frame::Frame;
use super::huffman::Table;
use super::idct::{inverse, inverse_of_mean};
use super::output::Output;
use super::scan::{Restarts, Scan};
use super::tables::{Tables, ZIGZAG};
use super::upsample::Plane;
use super::{damaged_data, missing_quantisation};
use crate::image::error::ImageError;

/// One component of a scan: its tables, and where its blocks go.
struct Lane<'a> {
    component: usize,
    dc: &'a Table,
    ac: &'a Table,
    quantisation: &'a [i16; 64],
    /// Blocks in an MCU.
    across: usize,
    down: usize,
    /// The DC coefficient of the previous block.
    before: i32,
}

/// Reads a scan into the planes of its components, and rows into the output if there is one. Returns a position in the file that is not
/// after the next marker.
pub(super) fn read(
    file: &[u8],
    at: usize,
    frame: &Frame,
    scan: &Scan,
    tables: &Tables,
    quantisation: &[Option<[i16; 64]>; 4],
    planes: &mut [Plane],
    mut output: Option<&mut Output>,
) -> Result<usize, ImageError> {
    let mut lanes = Vec::new();
    for (index, part) in scan.parts.iter().enumerate() {
        let (across, down) = scan.unit_of(index, frame);
        lanes.push(Lane {
            component: part.component,
            dc: scan.dc(index, tables)?,
            ac: scan.ac(index, tables)?,
            quantisation: quantisation[part.component].as_ref().ok_or_else(missing_quantisation)?,
            across,
            down,
            before: 0,
        });
    }
    let (units_across, units_down) = scan.units(frame);
    let mut bits = Bits::new(file, at);
    let mut restarts = Restarts::new(tables.restart_interval);
    for row in 0..units_down {
        read_row(&mut bits, &mut restarts, &mut lanes, planes, row, units_across).map_err(damaged_data)?;
        if let Some(output) = &mut output {
            output.write_units(planes, row + 1);
        }
    }
    Ok(bits.place())
}

fn read_row(
    bits: &mut Bits,
    restarts: &mut Restarts,
    lanes: &mut [Lane],
    planes: &mut [Plane],
    row: usize,
    units: usize,
) -> Result<(), Fault> {
    let mut own_bits = *bits;
    for unit in 0..units {
        if restarts.passed(&mut own_bits)? {
            lanes.iter_mut().for_each(|lane| lane.before = 0);
        }
        for lane in &mut *lanes {
            let plane = &mut planes[lane.component];
            for block in 0..lane.across * lane.down {
                let (down, across) = (block / lane.across, block % lane.across);
                let stride = plane.stride;
                let out = plane.block(row * lane.down + down, unit * lane.across + across);
                read_block(&mut own_bits, lane, out, stride)?;
            }
        }
        own_bits.check()?;
    }
    *bits = own_bits;
    Ok(())
}

#[inline(always)]
fn read_block(bits: &mut Bits, lane: &mut Lane, out: &mut [u8], stride: usize) -> Result<(), Fault> {
    let mut block = [0_i16; 64];
    // The sum may wrap in damaged data only.
    lane.before = lane.before.wrapping_add(lane.dc.coded(bits)?.value);
    block[0] = lane.before as i16;
    let mut place = 1;
    while place < 64 {
        let coded = lane.ac.coded(bits)?;
        let zeros = usize::from(coded.symbol >> 4);
        if coded.symbol & 15 == 0 {
            if zeros != 15 {
                break;
            }
            place += 16;
            continue;
        }
        place += zeros;
        block[usize::from(ZIGZAG[place]) & 63] = coded.value as i16;
        place += 1;
    }
    let only_mean = place == 1;
    if only_mean {
        let sample = inverse_of_mean(block[0], lane.quantisation[0]);
        write(out, stride, &[[sample; 8]; 8]);
    } else {
        write(out, stride, &inverse(&block, lane.quantisation));
    }
    Ok(())
}

/// Writes a block's samples to the beginning of eight rows.
#[inline(always)]
pub(super) fn write(out: &mut [u8], stride: usize, samples: &[[u8; 8]; 8]) {
    let out = &mut out[..7 * stride + 8];
    for (row, samples) in samples.iter().enumerate() {
        out[row * stride..][..8].copy_from_slice(samples);
    }
}
