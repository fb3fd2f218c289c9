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

/// Rows, columns and depth of the product.
const SIDE: usize = 8192;

/// Floating-point operations a second of a large product. It is measured once and remembered.
pub fn measured_limit(device: &Arc<Device>, precision: Precision) -> Result<f64> {
    let operands = if precision == Precision::Bf16 { DType::Bf16 } else { DType::F32 };
    // Where it is measured is decided by who measures.
    let place = Place { buffer: Buffer::Arena, byte: 0 };
    let matrix = Operand { place, transposed: false, rows: SIDE, columns: SIDE, stride: SIDE * SIDE };
    let product = Product {
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
    };
    let in_memory = |bytes: usize, workspace: usize| {
        let memory = Arc::new(DeviceBuffer::new(device, bytes)?);
        Library::open(device, &memory, &Arc::new(DeviceBuffer::new(device, workspace)?))
    };
    let seconds = match in_memory(0, 0)?.known_seconds(&product) {
        Some(seconds) => seconds,
        None => in_memory(3 * operands.bytes() * SIDE * SIDE, WORKSPACE_BYTES)?.prepare(&product)?.seconds(),
    };
    Ok(2.0 * (SIDE as f64).powi(3) / seconds)
}
