//! Matrix products by cuBLASLt.
//!
//! cuBLASLt counts columns first, we rows: a row-major `[rows, columns]` is its `columns x rows`. So `Y = X Wᵀ` is computed as
//! `Yᵀ = W Xᵀ`, W transposed and X as it lies.

use std::ffi::c_void;
use std::ptr::null;

use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::sys;

use super::launch::{Argument, Building, Launch, Place, blocks, c_type, source};
use super::{pointwise, pools};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::ops::Op;
use crate::precision::Precision;
use crate::types::{DType, Type};

/// Bytes that cuBLASLt may use while it computes; one buffer serves all products, which run one after the other.
pub(super) const WORKSPACE_BYTES: usize = 64 << 20;

/// One operand: where it lies, and how cuBLASLt sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Operand {
    pub place: Place,
    pub transposed: bool,
    /// Rows and columns as cuBLASLt counts them, before transposing; the leading dimension is the rows.
    pub rows: usize,
    pub columns: usize,
    /// Values from one product of a batch to the next.
    pub stride: usize,
}

/// A product that is run: `D = A B`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Product {
    pub operands: DType,
    pub result: DType,
    pub a: Operand,
    pub b: Operand,
    pub d: Operand,
    pub batch: usize,
}

/// What computes a product's node, in order: operands that are rounded first, the product, what follows it.
pub(super) struct Work {
    pub before: Vec<Launch>,
    pub product: Product,
    pub after: Vec<Launch>,
}

/// Sizes of a product as we see it: `[m, k] · [k, n]`, and whether the stored operands are transposed.
struct Sizes {
    m: usize,
    n: usize,
    k: usize,
    batch: usize,
    transposed: [bool; 2],
    precision: Precision,
}

impl Sizes {
    fn of(graph: &Graph, node: &Node) -> Sizes {
        let shape = |index: usize| graph.shape_of(node.inputs[index]);
        let (rows, columns) = (shape(0).rows(), shape(0).columns());
        match &node.op {
            Op::Linear(op) => {
                let (n, k) = (shape(1).rows(), shape(1).columns());
                Sizes { m: rows, n, k, batch: 1, transposed: [false, true], precision: op.precision }
            }
            Op::LinearInputGradient(op) => {
                let (k, n) = (shape(1).rows(), shape(1).columns());
                Sizes { m: rows, n, k, batch: 1, transposed: [false, false], precision: op.precision }
            }
            Op::LinearWeightGradient(op) => {
                let n = shape(1).columns();
                Sizes { m: columns, n, k: rows, batch: 1, transposed: [true, false], precision: op.precision }
            }
            Op::MatMul(op) => {
                let (batch, m, n, k) = op.sizes(shape(0), shape(1)).expect("checked when the graph was built");
                Sizes { m, n, k, batch, transposed: [op.transpose_a, op.transpose_b], precision: op.precision }
            }
            _ => unreachable!("a product"),
        }
    }
}

/// Whether an operand must be rounded before: it is stored as f32, but the product is one of bf16. Parameters have a rounded copy.
fn is_rounded_before(precision: Precision, operand: &Type, is_parameter: bool) -> bool {
    precision == Precision::Bf16 && operand.dtype == DType::F32 && !is_parameter
}

fn is_parameter(graph: &Graph, node: &Node, input: usize) -> bool {
    matches!(graph.nodes()[graph.root_of(node.inputs[input]).node()].op, Op::Parameter(_))
}

/// Bytes for operands that are rounded before.
pub(super) fn workspace_bytes(graph: &Graph, node: &Node) -> usize {
    rounded_bytes(graph, node) + bias_bytes(graph, node)
}

/// Bytes for the bias gradient, which a weight gradient's node computes beside.
fn bias_bytes(graph: &Graph, node: &Node) -> usize {
    match node.op {
        Op::LinearWeightGradient(_) if node.outputs.len() > 1 => {
            pools::row_sum_bytes(graph, node, graph.shape_of(node.inputs[0]).columns())
        }
        _ => 0,
    }
}

fn rounded_bytes(graph: &Graph, node: &Node) -> usize {
    let precision = Sizes::of(graph, node).precision;
    (0..2)
        .filter(|&input| {
            is_rounded_before(precision, graph.type_of(node.inputs[input]), is_parameter(graph, node, input))
        })
        .map(|input| (2 * graph.shape_of(node.inputs[input]).elements()).next_multiple_of(256))
        .sum()
}

/// A product's node.
pub(super) fn build(building: &Building) -> Work {
    let (graph, node) = (building.graph(), building.node());
    let sizes = Sizes::of(graph, node);
    let operands = if sizes.precision == Precision::Bf16 { DType::Bf16 } else { DType::F32 };
    let mut before = Vec::new();
    let mut used = 0;
    let mut places = [0, 1].map(|input| {
        let place = building.place(node.inputs[input]);
        let of_parameter = is_parameter(graph, node, input);
        match sizes.precision {
            Precision::Bf16 if of_parameter => {
                Place { buffer: super::launch::Buffer::NarrowParameters, byte: place.byte / 2 }
            }
            _ => place,
        }
    });
    for input in 0..2 {
        let operand = building.input_type(input);
        if is_rounded_before(sizes.precision, operand, is_parameter(graph, node, input)) {
            let Argument::Place(workspace) = building.workspace() else { unreachable!("a workspace has a place") };
            places[input] = workspace.plus(used);
            used += (2 * operand.shape.elements()).next_multiple_of(256);
            before.push(rounding(building.input(input), places[input], operand.shape.elements()));
        }
    }
    let Sizes { m, n, k, batch, transposed: [first, second], .. } = sizes;
    let shared = |input: usize, values: usize| {
        // One matrix for all products of a batch is not repeated.
        if batch > 1 && graph.shape_of(node.inputs[input]).elements() == values { 0 } else { values }
    };
    // As cuBLASLt sees it the right operand comes first.
    let a = match second {
        false => Operand { place: places[1], transposed: false, rows: n, columns: k, stride: shared(1, n * k) },
        true => Operand { place: places[1], transposed: true, rows: k, columns: n, stride: shared(1, n * k) },
    };
    let b = match first {
        false => Operand { place: places[0], transposed: false, rows: k, columns: m, stride: shared(0, m * k) },
        true => Operand { place: places[0], transposed: true, rows: m, columns: k, stride: shared(0, m * k) },
    };
    let Argument::Place(result) = building.output(0) else { unreachable!("results have places") };
    let d = Operand { place: result, transposed: false, rows: n, columns: m, stride: m * n };
    let output = building.output_type(0);
    let product = Product { operands, result: output.dtype, a, b, d, batch };
    let mut after = Vec::new();
    if !node.steps.is_empty() {
        after.push(pointwise::apply(building, building.output(0), output.dtype));
    }
    if matches!(node.op, Op::LinearWeightGradient(_)) && node.outputs.len() > 1 {
        let Argument::Place(workspace) = building.workspace() else { unreachable!("a workspace has a place") };
        let free = Argument::Place(workspace.plus(rounded_bytes(graph, node)));
        let columns = building.input_type(0).shape.columns();
        after.extend(pools::row_sum(building, columns, building.output(1), free));
    }
    Work { before, product, after }
}

/// Rounds values to bf16.
fn rounding(from: Argument, to: Place, elements: usize) -> Launch {
    let constants = [
        ("FROM", c_type(DType::F32)),
        ("TO", c_type(DType::Bf16)),
        ("VECTOR", super::launch::vector(elements).to_string()),
        ("COUNT", format!("{}ull", elements / super::launch::vector(elements))),
        ("SOURCE_OF(i)", "(long long)(i)".to_string()),
        ("TARGET_OF(i)", "(uint64)(i)".to_string()),
    ];
    Launch {
        source: source(&constants, "", include_str!("kernels/move.cu")),
        entry: "move",
        grid: [blocks(elements / super::launch::vector(elements), 256), 1, 1],
        block: 256,
        shared_bytes: 0,
        arguments: vec![from, Argument::Place(to)],
    }
}

/// cuBLASLt, opened.
pub(super) struct Library {
    handle: sys::cublasLtHandle_t,
}

// SAFETY: a handle may be used by any thread, one at a time.
unsafe impl Send for Library {}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: created in `open`, destroyed once.
        let _ = unsafe { lt::destroy_handle(self.handle) };
    }
}

/// A product that is ready to run.
pub(super) struct Prepared {
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

// SAFETY: descriptions are plain data behind pointers, read by one thread at a time.
unsafe impl Send for Prepared {}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: created in `prepare`, destroyed once.
        unsafe {
            let _ = lt::destroy_matmul_desc(self.description);
            for layout in self.layouts {
                let _ = lt::destroy_matrix_layout(layout);
            }
        }
    }
}

fn failed(what: &str, error: lt::CublasError) -> Error {
    Error::Machine(format!("cuBLASLt, {what}: {error}"))
}

fn data_type(dtype: DType) -> sys::cudaDataType {
    match dtype {
        DType::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    }
}

impl Library {
    /// Opens it for the device of the calling thread.
    pub fn open() -> Result<Library> {
        Ok(Library { handle: lt::create_handle().map_err(|error| failed("opening it", error))? })
    }

    /// Chooses how a product is computed.
    pub fn prepare(&self, product: &Product) -> Result<Prepared> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let of = |error| failed("describing a product", error);
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let description = lt::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F).map_err(of)?;
        let set = |attribute: Attribute, value: u32| {
            let value = std::ptr::from_ref(&value).cast::<c_void>();
            // SAFETY: the description is alive, and the value is read at once.
            unsafe { lt::set_matmul_desc_attribute(description, attribute, value, size_of::<u32>()) }.map_err(of)
        };
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, u32::from(product.a.transposed))?;
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, u32::from(product.b.transposed))?;
        let layout = |operand: &Operand, dtype: DType| -> Result<sys::cublasLtMatrixLayout_t> {
            let (rows, columns) = (operand.rows as u64, operand.columns as u64);
            let layout = lt::create_matrix_layout(data_type(dtype), rows, columns, operand.rows as i64).map_err(of)?;
            if product.batch > 1 {
                use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
                let (count, stride) = (product.batch as i32, operand.stride as i64);
                // SAFETY: the layout is alive, and the values are read at once.
                unsafe {
                    let count = std::ptr::from_ref(&count).cast::<c_void>();
                    let stride = std::ptr::from_ref(&stride).cast::<c_void>();
                    lt::set_matrix_layout_attribute(layout, Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count, 4)
                        .map_err(of)?;
                    let which = Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
                    lt::set_matrix_layout_attribute(layout, which, stride, 8).map_err(of)?;
                }
            }
            Ok(layout)
        };
        let layouts = [
            layout(&product.a, product.operands)?,
            layout(&product.b, product.operands)?,
            layout(&product.d, product.result)?,
        ];
        let preference = lt::create_matmul_pref().map_err(of)?;
        let most = WORKSPACE_BYTES;
        let which = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: all descriptions are alive.
        let found = unsafe {
            lt::set_matmul_pref_attribute(preference, which, std::ptr::from_ref(&most).cast(), size_of::<usize>())
                .map_err(of)?;
            let [a, b, d] = layouts;
            let found = lt::get_matmul_algo_heuristic(self.handle, description, a, b, d, d, preference);
            let _ = lt::destroy_matmul_pref(preference);
            found.map_err(|error| failed("looking for an algorithm", error))?
        };
        Ok(Prepared { description, layouts, algorithm: found.algo })
    }

    /// Computes a product on a stream, with what `address` says of places.
    ///
    /// # Safety
    /// The addresses must be those of buffers on the device that are as large as the product needs, and the workspace must have
    /// [`WORKSPACE_BYTES`].
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        product: &Product,
        address: impl Fn(Place) -> u64,
        workspace: u64,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<()> {
        let (one, zero) = (1.0f32, 0.0f32);
        let pointer = |place: Place| address(place) as *const c_void;
        let d = address(product.d.place) as *mut c_void;
        let [a_layout, b_layout, d_layout] = prepared.layouts;
        // SAFETY: the caller's promise; the descriptions are alive.
        let result = unsafe {
            sys::cublasLtMatmul(
                self.handle,
                prepared.description,
                std::ptr::from_ref(&one).cast(),
                pointer(product.a.place),
                a_layout,
                pointer(product.b.place),
                b_layout,
                std::ptr::from_ref(&zero).cast(),
                d.cast_const(),
                d_layout,
                d,
                d_layout,
                if prepared.algorithm.data == [0; 8] { null() } else { &raw const prepared.algorithm },
                workspace as *mut c_void,
                WORKSPACE_BYTES,
                stream.cast(),
            )
        };
        result.result().map_err(|error| failed("a product", error))
    }
}
