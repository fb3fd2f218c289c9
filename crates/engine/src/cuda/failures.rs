//! What the driver's errors mean for the user.

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult as Code;

use crate::error::Error;

/// An error of the driver in words; `what` is the operation that failed.
pub(super) fn failed(what: &str, error: DriverError) -> Error {
    Error::Machine(match meaning(error.0) {
        Some(meaning) => format!("{what}: {meaning} ({:?})", error.0),
        None => {
            let text = error.error_string().map_or("?".into(), |text| text.to_string_lossy().into_owned());
            format!("{what}: the GPU says \"{text}\" ({:?}); if it goes on, restart the program", error.0)
        }
    })
}

/// What happened, and what to do about it; `None` for errors that no user should see.
fn meaning(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::CUDA_ERROR_OUT_OF_MEMORY => {
            "the GPU's memory is full; take a smaller batch or model, turn recomputation on (train.recompute=true), or end what else uses it"
        }
        Code::CUDA_ERROR_NO_DEVICE => {
            "there is no GPU that CUDA can use; CUDA_VISIBLE_DEVICES may hide it, or you may not be allowed to open /dev/nvidia0"
        }
        Code::CUDA_ERROR_INVALID_DEVICE => "there is no such GPU",
        Code::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            "the GPU is taken by another program alone, or cannot be used now; wait, or take another one"
        }
        Code::CUDA_ERROR_NOT_PERMITTED | Code::CUDA_ERROR_DEVICE_NOT_LICENSED => {
            "you are not allowed to use the GPU; ask who runs this machine"
        }
        Code::CUDA_ERROR_STUB_LIBRARY => {
            "what was found is a stub of the driver; take the toolkit's `stubs` folder out of LD_LIBRARY_PATH"
        }
        Code::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
        | Code::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
        | Code::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "the driver is too old, or its parts are of different versions; install a newer driver and restart the machine"
        }
        Code::CUDA_ERROR_INVALID_IMAGE
        | Code::CUDA_ERROR_NO_BINARY_FOR_GPU
        | Code::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        | Code::CUDA_ERROR_INVALID_PTX => {
            "the driver does not take what NVRTC compiled; install a newer driver, or an NVRTC of the driver's CUDA"
        }
        Code::CUDA_ERROR_SYSTEM_NOT_READY => {
            "the GPUs are not ready; their services must run first, such as nvidia-fabricmanager"
        }
        Code::CUDA_ERROR_ECC_UNCORRECTABLE
        | Code::CUDA_ERROR_NVLINK_UNCORRECTABLE
        | Code::CUDA_ERROR_CONTAINED
        | Code::CUDA_ERROR_HARDWARE_STACK_ERROR => {
            "the GPU's hardware has failed, and what it computed is lost; if that comes again, it is damaged"
        }
        Code::CUDA_ERROR_ILLEGAL_ADDRESS
        | Code::CUDA_ERROR_LAUNCH_FAILED
        | Code::CUDA_ERROR_MISALIGNED_ADDRESS
        | Code::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | Code::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | Code::CUDA_ERROR_INVALID_PC
        | Code::CUDA_ERROR_ASSERT
        | Code::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => {
            "a kernel failed, which is a fault of this program; please report it, with the command and what `vitreous doctor` says"
        }
        Code::CUDA_ERROR_LAUNCH_TIMEOUT => {
            "a kernel took longer than the system allows on a GPU that also draws the screen; take a smaller batch"
        }
        Code::CUDA_ERROR_UNKNOWN
        | Code::CUDA_ERROR_OPERATING_SYSTEM
        | Code::CUDA_ERROR_EXTERNAL_DEVICE
        | Code::CUDA_ERROR_DEINITIALIZED
        | Code::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            "the GPU does not answer, or was lost; start again, and if `nvidia-smi` does not list it, restart the machine"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without calling the driver, which may not be installed.
    #[test]
    fn errors_say_what_to_do() {
        let said = |code| failed("running a step", DriverError(code)).to_string();
        for (code, parts) in [
            (Code::CUDA_ERROR_OUT_OF_MEMORY, ["running a step: the GPU's memory is full", "train.recompute=true"]),
            (Code::CUDA_ERROR_ILLEGAL_ADDRESS, ["a kernel failed", "please report it"]),
            (Code::CUDA_ERROR_ECC_UNCORRECTABLE, ["hardware has failed", "damaged"]),
            (Code::CUDA_ERROR_UNKNOWN, ["was lost", "CUDA_ERROR_UNKNOWN"]),
            (Code::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, ["too old", "newer driver"]),
            (Code::CUDA_ERROR_NO_DEVICE, ["no GPU", "CUDA_VISIBLE_DEVICES"]),
            (Code::CUDA_ERROR_DEVICE_UNAVAILABLE, ["another program", "wait"]),
            (Code::CUDA_ERROR_NOT_PERMITTED, ["not allowed", "ask"]),
        ] {
            let text = said(code);
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(!text.contains('\n') && !text.contains(". "), "one sentence: {text}");
        }
    }
}
