//! Launches kernels: converts a launch's arguments to the driver's form.

use std::ffi::c_void;

use cudarc::driver::result as driver;
use cudarc::driver::sys;

use super::device::failed;
use super::launch::{Address, Argument, Launch, Matrix};
use super::stream::Stream;
use crate::error::Result;

/// Room for any argument, with the alignment of the largest.
#[repr(C, align(64))]
struct Words([u64; 16]);

impl Words {
    fn of(number: u64) -> Words {
        let mut words = [0; 16];
        words[0] = number;
        Words(words)
    }
}

/// Launches a kernel on a stream, with `address` giving the addresses of its arguments.
///
/// # Safety
/// The kernel's parameters must match the launch's arguments, and the addresses be those of buffers on the device that
/// are as large as it needs.
pub(super) unsafe fn start_kernel(
    function: sys::CUfunction,
    launch: &Launch,
    address: impl Fn(Address) -> u64,
    stream: &Stream,
) -> Result<()> {
    let read = |argument: &Argument| match *argument {
        Argument::Address(place) => Ok(Words::of(address(place))),
        Argument::Nothing => Ok(Words::of(0)),
        Argument::U32(value) => Ok(Words::of(u64::from(value))),
        Argument::U64(value) => Ok(Words::of(value)),
        Argument::Matrix(matrix) => describe(&matrix, address(matrix.place)),
    };
    let values: Vec<Words> = launch.arguments.iter().map(read).collect::<Result<_>>()?;
    let mut pointers: Vec<*mut c_void> =
        values.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast()).collect();
    let [x, y, z] = launch.grid;
    let (grid, block) = ((x, y, z), (launch.block, 1, 1));
    // SAFETY: guaranteed by the caller.
    let result =
        unsafe { driver::launch_kernel(function, grid, block, launch.shared_bytes, stream.handle(), &mut pointers) };
    result.map_err(|error| failed(&format!("starting {}", launch.entry), error))
}

/// The tensor map (TMA descriptor) of a bf16 matrix, swizzled by eight rows of 128 bytes.
fn describe(matrix: &Matrix, address: u64) -> Result<Words> {
    let mut words = Words([0; 16]);
    let axes = matrix.axes();
    let sizes: Vec<u64> = axes.iter().map(|axis| axis.size as u64).collect();
    let strides: Vec<u64> = axes[1..].iter().map(|axis| 2 * axis.stride as u64).collect();
    let piece: Vec<u32> = axes.iter().map(|axis| axis.piece as u32).collect();
    let every = vec![1u32; axes.len()];
    // SAFETY: the words have the size and alignment of the descriptor; everything else is read at once.
    let described = unsafe {
        sys::cuTensorMapEncodeTiled(
            std::ptr::from_mut(&mut words).cast(),
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            axes.len() as u32,
            address as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            piece.as_ptr(),
            every.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    described.result().map_err(|error| failed("describing a matrix", error))?;
    Ok(words)
}
