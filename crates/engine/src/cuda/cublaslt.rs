//! cuBLASLt: selects an algorithm for a matrix multiplication, and runs it.
//!
//! The library proposes several algorithms; the fastest is measured once and cached on disk by the multiplication, the
//! GPU and the library's version.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::sys;

use super::device::Device;
use super::launch::Address;
use super::memory::DeviceBuffer;
use super::products::{Epilogue, Operand, Product};
use super::remembered::{Measured, recall, remember};
use super::stream::{Event, Stream};
use crate::error::{Error, Result};
use crate::types::DType;

/// Workspace of cuBLASLt in bytes; one buffer serves all multiplications, which run one after the other.
pub(super) const WORKSPACE_BYTES: usize = 64 << 20;
/// Number of algorithms to measure.
const MOST_TRIED: usize = 24;
/// Timed runs per algorithm, after one warm-up.
const TIMED_RUNS: usize = 5;
/// An algorithm whose first timed run takes this many times the shortest so far is not timed again.
const HOPELESS: f64 = 1.5;
/// Random values that fill the arena, repeated, for measurements.
const NUMBERS: usize = 1 << 20;

/// A handle of cuBLASLt.
pub(super) struct Library {
    handle: sys::cublasLtHandle_t,
    device: Arc<Device>,
    stream: Stream,
    /// The memory for measurements: the arena, whose contents do not matter before the first run.
    arena: Arc<DeviceBuffer>,
    workspace: Arc<DeviceBuffer>,
    /// Whether the arena was filled with realistic values.
    has_numbers: Cell<bool>,
}

// SAFETY: a handle may be used by any thread, one at a time.
unsafe impl Send for Library {}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: created in `open`, destroyed once.
        let _ = unsafe { lt::destroy_handle(self.handle) };
    }
}

/// cuBLASLt's descriptors of a multiplication.
struct Description {
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: created in `describe`, destroyed once.
        unsafe {
            let _ = lt::destroy_matmul_desc(self.description);
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                let _ = lt::destroy_matrix_layout(layout);
            }
        }
    }
}

/// A multiplication that is ready to run.
pub(super) struct Prepared {
    description: Description,
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Measured seconds per run.
    seconds: f64,
}

impl Prepared {
    /// Measured seconds per run.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}

// SAFETY: descriptors are plain data behind pointers, used by one thread at a time.
unsafe impl Send for Prepared {}

fn failed(what: &str, error: lt::CublasError) -> Error {
    use sys::cublasStatus_t as Status;
    let advice = match error.0 {
        Status::CUBLAS_STATUS_NOT_INITIALIZED => {
            "it does not go with the driver, or the GPU's memory is full; `vitreous doctor` names their versions, and `nvidia-smi` what else uses it"
        }
        Status::CUBLAS_STATUS_ALLOC_FAILED => "memory is full; take a smaller batch or model, or end what else uses it",
        Status::CUBLAS_STATUS_EXECUTION_FAILED | Status::CUBLAS_STATUS_INTERNAL_ERROR => {
            "the GPU failed, or was lost; start again, and if `nvidia-smi` does not list it, restart the machine"
        }
        Status::CUBLAS_STATUS_ARCH_MISMATCH => "it does not know this GPU; install a newer one",
        _ => "please report it, with the command and what `vitreous doctor` says",
    };
    Error::Machine(format!("cuBLASLt, {what}: {advice} ({:?})", error.0))
}

fn data_type(dtype: DType) -> sys::cudaDataType {
    match dtype {
        DType::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    }
}

impl Description {
    fn set<T>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<()> {
        // SAFETY: the description is alive, and the value is read at once.
        let set = unsafe {
            lt::set_matmul_desc_attribute(self.description, attribute, std::ptr::from_ref(value).cast(), size_of::<T>())
        };
        set.map_err(|error| failed("describing a product", error))
    }

    fn new(product: &Product, tf32: bool) -> Result<Description> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let of = |error| failed("describing a product", error);
        // Accumulates in f32; f32 operands are used unrounded, unless TF32 was requested.
        let compute = match tf32 && product.operands == DType::F32 {
            true => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let description = lt::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F).map_err(of)?;
        let mut made = Description { description, layouts: [std::ptr::null_mut(); 3] };
        made.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &u32::from(product.a.transposed))?;
        made.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &u32::from(product.b.transposed))?;
        made.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue(product))?;
        if product.auxiliary.is_some() {
            made.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &(product.d.rows as i64))?;
        }
        let operands = [(&product.a, product.operands), (&product.b, product.operands), (&product.d, product.result)];
        for (index, (operand, dtype)) in operands.into_iter().enumerate() {
            made.layouts[index] = layout(operand, dtype, product.batch)?;
        }
        Ok(made)
    }
}

fn layout(operand: &Operand, dtype: DType, batch: usize) -> Result<sys::cublasLtMatrixLayout_t> {
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    let of = |error| failed("describing a matrix", error);
    let (rows, columns) = (operand.rows as u64, operand.columns as u64);
    let layout = lt::create_matrix_layout(data_type(dtype), rows, columns, operand.rows as i64).map_err(of)?;
    if batch > 1 {
        let (count, stride) = (batch as i32, operand.stride as i64);
        // SAFETY: the layout is alive, and the values are read at once.
        unsafe {
            let count = std::ptr::from_ref(&count).cast::<c_void>();
            let stride = std::ptr::from_ref(&stride).cast::<c_void>();
            let which = Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
            lt::set_matrix_layout_attribute(layout, which, count, 4).map_err(of)?;
            let which = Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
            lt::set_matrix_layout_attribute(layout, which, stride, 8).map_err(of)?;
        }
    }
    Ok(layout)
}

fn epilogue(product: &Product) -> sys::cublasLtEpilogue_t {
    use sys::cublasLtEpilogue_t as E;
    match (product.epilogue, product.auxiliary.is_some()) {
        (Epilogue::Nothing, _) => E::CUBLASLT_EPILOGUE_DEFAULT,
        (Epilogue::Bias, _) => E::CUBLASLT_EPILOGUE_BIAS,
        (Epilogue::BiasGelu, false) => E::CUBLASLT_EPILOGUE_GELU_BIAS,
        (Epilogue::BiasGelu, true) => E::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        (Epilogue::GeluGradient, _) => E::CUBLASLT_EPILOGUE_DGELU,
        (Epilogue::BiasGradient, _) => E::CUBLASLT_EPILOGUE_BGRADB,
    }
}

impl Library {
    /// Opens it for a device. Measurements use the arena, and a workspace of [`WORKSPACE_BYTES`].
    pub fn open(device: &Arc<Device>, arena: &Arc<DeviceBuffer>, workspace: &Arc<DeviceBuffer>) -> Result<Library> {
        device.bind()?;
        let handle = lt::create_handle().map_err(|error| failed("opening it", error))?;
        let (arena, workspace, has_numbers) = (Arc::clone(arena), Arc::clone(workspace), Cell::new(false));
        Ok(Library { handle, device: Arc::clone(device), stream: Stream::new()?, arena, workspace, has_numbers })
    }

    /// The memory for measurements.
    pub fn arena(&self) -> &DeviceBuffer {
        &self.arena
    }

    /// Whether it supports a multiplication as it is.
    pub fn can_do(&self, product: &Product) -> bool {
        self.describe(product).and_then(|description| self.proposals(product, &description, 1)).is_ok()
    }

    fn describe(&self, product: &Product) -> Result<Description> {
        Description::new(product, self.device.allows_tf32())
    }

    /// Algorithms for a multiplication, the most promising first.
    fn proposals(
        &self,
        product: &Product,
        description: &Description,
        most: usize,
    ) -> Result<Vec<sys::cublasLtMatmulAlgo_t>> {
        let of = |error| failed("looking for an algorithm", error);
        if product.bias.is_some() || product.auxiliary.is_some() {
            // Any pointers, so that their alignment is known.
            self.set_pointers(product, description, |_| 256)?;
        }
        let preference = lt::create_matmul_pref().map_err(of)?;
        let most_bytes = WORKSPACE_BYTES;
        let which = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let [a, b, d] = description.layouts;
        // SAFETY: plain numbers, all of which may be zero.
        let nothing: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut found = vec![nothing; most];
        let mut count = 0;
        // SAFETY: all descriptors are alive, and there is room for the requested number of results.
        let status = unsafe {
            let bytes = std::ptr::from_ref(&most_bytes).cast();
            lt::set_matmul_pref_attribute(preference, which, bytes, size_of::<usize>()).map_err(of)?;
            let status = sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                description.description,
                a,
                b,
                d,
                d,
                preference,
                most as i32,
                found.as_mut_ptr(),
                &mut count,
            );
            let _ = lt::destroy_matmul_pref(preference);
            status
        };
        status.result().map_err(of)?;
        let usable = |result: &sys::cublasLtMatmulHeuristicResult_t| result.state.result().is_ok();
        let found: Vec<_> = found[..count as usize].iter().filter(|result| usable(result)).map(|r| r.algo).collect();
        if found.is_empty() {
            return Err(Error::Machine(format!("cuBLASLt has no algorithm for {product:?}")));
        }
        Ok(found)
    }

    /// Selects the algorithm of a multiplication: from the cache, or by measuring, which overwrites the arena.
    pub fn prepare(&self, product: &Product) -> Result<Prepared> {
        let key = self.key(product);
        let description = self.describe(product)?;
        if let Some(Measured { algorithm: data, seconds }) = recall(&key) {
            return Ok(Prepared { description, algorithm: sys::cublasLtMatmulAlgo_t { data }, seconds });
        }
        let proposals = self.proposals(product, &description, MOST_TRIED)?;
        let mut prepared = Prepared { description, algorithm: proposals[0], seconds: f64::INFINITY };
        let mut best = proposals[0];
        let places = places_to_try(product);
        let own = match places.bytes > self.arena.bytes() {
            true => match DeviceBuffer::new(&self.device, places.bytes) {
                Ok(memory) => Some(self.with_numbers(memory)?),
                // No memory to measure in: takes the library's first choice.
                Err(_) => return Ok(prepared),
            },
            false => None,
        };
        if own.is_none() {
            self.fill_arena()?;
        }
        let start = own.as_ref().unwrap_or(&self.arena).start();
        let addresses = places.starts.map(|byte| start + byte as u64);
        for algorithm in proposals {
            prepared.algorithm = algorithm;
            // An algorithm that fails is skipped.
            if let Ok(seconds) = self.time(&prepared, product, addresses, HOPELESS * prepared.seconds)
                && seconds < prepared.seconds
            {
                (best, prepared.seconds) = (algorithm, seconds);
            }
        }
        prepared.algorithm = best;
        if prepared.seconds.is_finite() {
            let settled = remember(key, Measured { algorithm: best.data, seconds: prepared.seconds });
            prepared.algorithm.data = settled.algorithm;
            prepared.seconds = settled.seconds;
        }
        Ok(prepared)
    }

    /// The measured seconds of a multiplication, if known.
    pub fn known_seconds(&self, product: &Product) -> Option<f64> {
        recall(&self.key(product)).map(|measured| measured.seconds)
    }

    /// Fills the arena before the first measurement.
    pub fn fill_arena(&self) -> Result<()> {
        match self.has_numbers.replace(true) {
            true => Ok(()),
            false => self.put_numbers(&self.arena),
        }
    }

    fn with_numbers(&self, memory: DeviceBuffer) -> Result<DeviceBuffer> {
        self.put_numbers(&memory)?;
        Ok(memory)
    }

    /// Fills memory with random values: zeros are multiplied faster than anything else.
    fn put_numbers(&self, memory: &DeviceBuffer) -> Result<()> {
        let mut state = 1u32;
        let numbers: Vec<u16> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            half::bf16::from_f32((state >> 8) as f32 / (1 << 23) as f32 - 1.0).to_bits()
        })
        .take(NUMBERS.min(memory.bytes() / 2))
        .collect();
        memory.fill_with(&numbers)
    }

    /// The shortest time of a few runs with A, B and D at these addresses; of one run, if that takes longer than a limit.
    fn time(&self, prepared: &Prepared, product: &Product, [a, b, d]: [u64; 3], limit: f64) -> Result<f64> {
        let stream = &self.stream;
        let mut shortest = f64::INFINITY;
        for run in 0..=TIMED_RUNS {
            let (before, after) = (Event::timed()?, Event::timed()?);
            before.record(stream)?;
            self.set_pointers(product, &prepared.description, |_| d)?;
            // SAFETY: the caller's buffers are as large as the operands, and the workspace has its size.
            unsafe { self.multiply(prepared, product, [a, b, d, d], stream)? };
            after.record(stream)?;
            after.wait()?;
            if run > 0 {
                shortest = shortest.min(after.seconds_since(&before)?);
            }
            if run > 0 && shortest > limit {
                break;
            }
        }
        Ok(shortest)
    }

    /// What all measurements depend on: the GPU and the library.
    pub fn setting(&self) -> String {
        // SAFETY: the library is there.
        let version = unsafe { sys::cublasLtGetVersion() };
        format!("{}/{version}", self.device.gpu().name.replace(' ', "_"))
    }

    /// The key of an algorithm's measurement.
    fn key(&self, product: &Product) -> String {
        let Product { operands, result, a, b, d, batch, epilogue, .. } = product;
        let matrix =
            |m: &Operand| format!("{}x{}{}s{}", m.rows, m.columns, if m.transposed { "t" } else { "" }, m.stride);
        let (added, kept) = (product.added.is_some(), product.auxiliary.is_some());
        let matrices = [a, b, d].map(matrix).join(",");
        let rounding = if self.device.allows_tf32() { "tf32" } else { "" };
        let setting = self.setting();
        format!("{setting}/{operands}{rounding}-{result}/{matrices}/{batch}/{epilogue:?}/{added}/{kept}")
    }

    /// Sets the pointers of bias, auxiliary output and bias gradient of the epilogue.
    fn set_pointers(
        &self,
        product: &Product,
        description: &Description,
        address: impl Fn(Address) -> u64,
    ) -> Result<()> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        if let Some(bias) = product.bias {
            description.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address(bias))?;
        }
        if let Some(auxiliary) = product.auxiliary {
            description.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &address(auxiliary))?;
        }
        Ok(())
    }

    /// Runs a multiplication on a stream, with `address` giving the addresses of its operands.
    ///
    /// # Safety
    /// The addresses must be those of buffers on the device that are as large as the multiplication needs.
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        product: &Product,
        address: impl Fn(Address) -> u64,
        stream: &Stream,
    ) -> Result<()> {
        self.set_pointers(product, &prepared.description, &address)?;
        let c = product.added.unwrap_or(product.d.place);
        let addresses = [product.a.place, product.b.place, c, product.d.place].map(address);
        // SAFETY: guaranteed by the caller.
        unsafe { self.multiply(prepared, product, addresses, stream) }
    }

    /// # Safety
    /// As [`Library::run`].
    unsafe fn multiply(
        &self,
        prepared: &Prepared,
        product: &Product,
        [a, b, c, d]: [u64; 4],
        stream: &Stream,
    ) -> Result<()> {
        let (one, old) = (1.0f32, if product.added.is_some() { 1.0f32 } else { 0.0 });
        let [a_layout, b_layout, d_layout] = prepared.description.layouts;
        // SAFETY: guaranteed by the caller; the descriptions are alive.
        let result = unsafe {
            sys::cublasLtMatmul(
                self.handle,
                prepared.description.description,
                std::ptr::from_ref(&one).cast(),
                a as *const c_void,
                a_layout,
                b as *const c_void,
                b_layout,
                std::ptr::from_ref(&old).cast(),
                c as *const c_void,
                d_layout,
                d as *mut c_void,
                d_layout,
                &raw const prepared.algorithm,
                self.workspace.start() as *mut c_void,
                WORKSPACE_BYTES,
                stream.handle().cast(),
            )
        };
        result.result().map_err(|error| failed("a product", error))
    }
}

/// Offsets of A, B and D during a measurement: one after the other.
struct Tried {
    starts: [usize; 3],
    bytes: usize,
}

fn places_to_try(product: &Product) -> Tried {
    let operands = [(&product.a, product.operands), (&product.b, product.operands), (&product.d, product.result)];
    let mut bytes = 0;
    let starts = operands.map(|(operand, dtype)| {
        let start = bytes;
        let values = operand.rows * operand.columns + (product.batch - 1) * operand.stride;
        bytes += (dtype.bytes() * values).next_multiple_of(256);
        start
    });
    Tried { starts, bytes }
}
