//! What the GPU can do at best: a large product, which its library computes as fast as anything is computed there.

use std::sync::Arc;

use super::cublaslt::{Library, WORKSPACE_BYTES};
use super::device::Device;
use super::launch::{Buffer, Place};
use super::memory::DeviceBuffer;
use super::products::{Epilogue, Operand, Product};
use crate::error::Result;
use crate::precision::Precision;
use crate::types::DType;

/// Rows, columns and depth of the product: the largest for which half of the free memory is enough. Smaller ones do not come to all that a GPU can
/// do, but a run on one that is nearly full shall not fail for want of this number.
const SIDES: [usize; 3] = [8192, 4096, 2048];

/// Floating-point operations a second of a large product. It is measured once and remembered.
pub fn measured_limit(device: &Arc<Device>, precision: Precision) -> Result<f64> {
    let operands = if precision == Precision::Bf16 { DType::Bf16 } else { DType::F32 };
    // Where it is measured is decided by who measures.
    let place = Place { buffer: Buffer::Arena, byte: 0 };
    let product = |side: usize| {
        let matrix = Operand { place, transposed: false, rows: side, columns: side, stride: side * side };
        Product {
            operands,
            result: operands,
            a: Operand { transposed: true, ..matrix },
            b: matrix,
            d: matrix,
            batch: 1,
            epilogue: Epilogue::Nothing,
            added: None,
            bias: None,
            auxiliary: None,
        }
    };
    let in_memory = |bytes: usize, workspace: usize| {
        let memory = Arc::new(DeviceBuffer::new(device, bytes)?);
        Library::open(device, &memory, &Arc::new(DeviceBuffer::new(device, workspace)?))
    };
    let [largest, ..] = SIDES;
    let (side, seconds) = match in_memory(0, 0)?.known_seconds(&product(largest)) {
        Some(seconds) => (largest, seconds),
        None => {
            let side = side_for(operands, device.free_memory()?);
            let bytes = bytes_of(operands, side);
            (side, in_memory(bytes, WORKSPACE_BYTES)?.prepare(&product(side))?.seconds())
        }
    };
    Ok(2.0 * (side as f64).powi(3) / seconds)
}

fn bytes_of(operands: DType, side: usize) -> usize {
    3 * operands.bytes() * side * side
}

fn side_for(operands: DType, free: u64) -> usize {
    let fits = |side: &usize| (bytes_of(operands, *side) + WORKSPACE_BYTES) as u64 <= free / 2;
    SIDES.into_iter().find(fits).unwrap_or(SIDES[SIDES.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_measured_in_the_memory_that_is_there() {
        const MIB: u64 = 1 << 20;
        let sides = |operands| [140_000, 1800, 600, 10].map(|free| side_for(operands, free * MIB));
        assert_eq!(sides(DType::F32), [8192, 8192, 4096, 2048]);
        assert_eq!(sides(DType::Bf16), [8192, 8192, 4096, 2048]);
        assert_eq!([890, 900].map(|free| side_for(DType::Bf16, free * MIB)), [4096, 8192]);
    }
}
