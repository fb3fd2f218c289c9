//! What is run on the device: kernels and where their arguments lie.

use crate::graph::{Graph, Node, Value};
use crate::plan::{Location, Plan};
use crate::types::{DType, Type};

/// A buffer on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Buffer {
    /// Inputs, results and what lies between them.
    Arena,
    /// The plan's constants.
    Constants,
    /// The parameters in f32.
    Parameters,
    /// The parameters rounded to bf16, at the same places (in values).
    NarrowParameters,
    /// Quantised parameters, each at its place among those in f32.
    QuantisedParameters,
    /// Gradients of parameters.
    Gradients,
    /// The optimiser's first moments.
    First,
    /// Its second ones.
    Second,
    /// The parameters' average.
    Average,
    /// What a run is given: `struct Run` of the prelude.
    Run,
    /// Tables of a plan: numbers that kernels look up.
    Tables,
    /// A cache, by its place among the plan's.
    Cache(u32),
}

/// A byte of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub buffer: Buffer,
    pub byte: usize,
}

impl Address {
    /// So many bytes behind.
    pub fn plus(self, bytes: usize) -> Address {
        Address { byte: self.byte + bytes, ..self }
    }

    /// Whether so many bytes from here on and others have some in common.
    pub fn overlaps(self, bytes: usize, other: Address, other_bytes: usize) -> bool {
        self.buffer == other.buffer && self.byte < other.byte + other_bytes && other.byte < self.byte + bytes
    }
}

/// A way through a matrix of bf16: how many steps it has, values from one to the next, and how many of them a kernel fetches at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    pub size: usize,
    pub stride: usize,
    pub piece: usize,
}

/// A matrix of bf16 that a kernel fetches pieces of: in rows of 64 values, which are 128 bytes, through its axes in this order. The first
/// axis goes from value to value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Matrix {
    pub place: Address,
    axes: [Axis; 5],
    used: usize,
}

impl Matrix {
    /// With two to five axes.
    pub fn new(place: Address, axes: &[Axis]) -> Matrix {
        let mut all = [Axis { size: 1, stride: 8, piece: 1 }; 5];
        all[..axes.len()].copy_from_slice(axes);
        Matrix { place, axes: all, used: axes.len() }
    }

    pub fn axes(&self) -> &[Axis] {
        &self.axes[..self.used]
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Argument {
    /// A pointer.
    Address(Address),
    /// A pointer to nothing.
    Nothing,
    /// A matrix of which pieces are fetched.
    Matrix(Matrix),
    U32(u32),
    U64(u64),
}

/// A kernel that is run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Launch {
    /// All of its text, the prelude included. Launches of one text share what is compiled of it.
    pub source: String,
    /// The kernel's name in the text.
    pub entry: &'static str,
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of shared memory that the launch asks for, beyond what the kernel has by itself.
    pub shared_bytes: u32,
    pub arguments: Vec<Argument>,
}

impl Launch {
    /// Whether the kernel itself waits for the previous one, so that it may be started before that has ended: all kernels of its
    /// text must.
    pub fn waits_itself(&self) -> bool {
        let count = |text: &str| self.source.matches(text).count();
        count("wait_for_previous();") > 0 && count("wait_for_previous();") == count("__global__")
    }
}

/// What every kernel's text begins with.
pub(super) const PRELUDE: &str = include_str!("kernels/prelude.cu");

/// The text of a kernel: constants, the prelude, what was generated, the kernel itself.
pub(super) fn source(constants: &[(&str, String)], generated: &str, kernel: &str) -> String {
    let constants: String = constants.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
    format!("{constants}{PRELUDE}{generated}{kernel}")
}

/// A storage format in CUDA's words.
pub(super) fn c_type(dtype: DType) -> String {
    match dtype {
        DType::F32 => "float",
        DType::Bf16 => "bf16",
        DType::I32 => "int",
    }
    .to_string()
}

/// A node that becomes work, with its values' places.
#[derive(Clone, Copy)]
pub(super) struct Building<'p> {
    pub plan: &'p Plan,
    pub index: usize,
}

impl<'p> Building<'p> {
    pub fn graph(&self) -> &'p Graph {
        self.plan.graph()
    }

    pub fn node(&self) -> &'p Node {
        &self.graph().nodes()[self.index]
    }

    /// A value's place.
    pub fn place(&self, value: Value) -> Address {
        let (buffer, byte) = match self.plan.location(value) {
            Location::Arena(byte) => (Buffer::Arena, byte),
            Location::Constants(float) => (Buffer::Constants, 4 * float),
            Location::Parameters(float) => (Buffer::Parameters, 4 * float),
            Location::Gradients(float) => (Buffer::Gradients, 4 * float),
            Location::Cache(index) => (Buffer::Cache(index as u32), 0),
            Location::Tile(_) | Location::FixedWeights(_) | Location::PackedOnly => {
                unreachable!("plans for the GPU have no chains and no packed weights")
            }
        };
        Address { buffer, byte }
    }

    pub fn input(&self, index: usize) -> Argument {
        Argument::Address(self.place(self.node().inputs[index]))
    }

    pub fn input_type(&self, index: usize) -> &'p Type {
        self.graph().type_of(self.node().inputs[index])
    }

    pub fn output(&self, index: usize) -> Argument {
        Argument::Address(self.place(Value::new(self.index, index)))
    }

    pub fn output_type(&self, index: usize) -> &'p Type {
        &self.node().outputs[index]
    }

    /// The node's workspace.
    pub fn workspace(&self) -> Argument {
        Argument::Address(Address { buffer: Buffer::Arena, byte: self.plan.workspace(self.index) })
    }

    /// What the run is given.
    pub fn run(&self) -> Argument {
        Argument::Address(Address { buffer: Buffer::Run, byte: 0 })
    }
}

/// Values that a thread takes at once: as many of a row as 16 bytes of bf16, if rows can be divided so.
pub(super) fn vector(columns: usize) -> usize {
    [8, 4, 2].into_iter().find(|&width| columns.is_multiple_of(width)).unwrap_or(1)
}

/// Blocks for so many threads' work, each thread going on in strides where there is more.
pub(super) fn blocks(work: usize, block: usize) -> u32 {
    work.div_ceil(block).clamp(1, 132 * 32) as u32
}
