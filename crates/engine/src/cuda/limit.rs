//! The peak of the GPU: a large matrix multiplication by cuBLASLt.

use std::sync::Arc;

use super::cublaslt::{Library, WORKSPACE_BYTES};
use super::device::Device;
use super::launch::{Address, Buffer};
use super::memory::DeviceBuffer;
use super::products::{Epilogue, Operand, Product};
use crate::error::Result;
use crate::precision::Precision;
use crate::types::DType;

/// Sizes of the multiplication: the largest that fits into half of the free memory. Smaller ones do not reach the peak,
/// but a run on a nearly full GPU must not fail because of this measurement.
const SIDES: [usize; 3] = [8192, 4096, 2048];

/// Floating-point operations per second of a large matrix multiplication. Measured once and cached.
pub fn measured_limit(device: &Arc<Device>, precision: Precision) -> Result<f64> {
    let operands = if precision == Precision::Bf16 { DType::Bf16 } else { DType::F32 };
    // The measurement uses its own addresses.
    let place = Address { buffer: Buffer::Arena, byte: 0 };
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
