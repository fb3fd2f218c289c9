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

/// When a kernel may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// When everything before it in the stream has ended.
    After,
    /// As soon as the previous kernel lets it: it waits itself.
    Early,
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
    begin: Begin,
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
    let result = match begin {
        // SAFETY: guaranteed by the caller.
        Begin::After => unsafe {
            let block = (launch.block, 1, 1);
            driver::launch_kernel(function, (x, y, z), block, launch.shared_bytes, stream.handle(), &mut pointers)
        },
        Begin::Early => {
            let mut early = sys::CUlaunchAttribute {
                id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                pad: [0; 4],
                value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            };
            let configuration = sys::CUlaunchConfig {
                gridDimX: x,
                gridDimY: y,
                gridDimZ: z,
                blockDimX: launch.block,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: launch.shared_bytes,
                hStream: stream.handle(),
                attrs: &raw mut early,
                numAttrs: 1,
            };
            let pointers = pointers.as_mut_ptr();
            // SAFETY: guaranteed by the caller; the driver reads the configuration at once.
            unsafe { sys::cuLaunchKernelEx(&raw const configuration, function, pointers, std::ptr::null_mut()) }
                .result()
        }
    };
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
