//! From values to memory: what a kernel reads and writes.

use std::marker::PhantomData;

use half::bf16;

use super::memory::{FloatShared, FloatSlice, Shared};
use super::updates::Buffers;
use super::weights::{Form, Weights};
use crate::buffer::Floats;
use crate::graph::{Graph, Value};
use crate::plan::{Chain, Location, Plan};
use crate::types::{DType, Type};

/// Where a cache's slots begin that a run works on.
#[derive(Clone, Copy)]
pub(crate) struct CacheStart(pub *mut u8);

// SAFETY: a pointer into memory that whoever runs has borrowed for as long as it runs; disjoint use is the plan's guarantee.
unsafe impl Send for CacheStart {}
// SAFETY: as above.
unsafe impl Sync for CacheStart {}

/// All memory of one run. Kernels get parts of it; the plan guarantees that a value's part is used for nothing else
/// while the value is alive.
#[derive(Clone, Copy)]
pub(super) struct Memory<'a> {
    plan: &'a Plan,
    /// The graph as the kernel sees it: the plan's, or a tile's.
    graph: &'a Graph,
    /// The tile's own memory, if this is a tile's view.
    tile: *mut u8,
    /// The tile's first sample, and how many it has.
    first_sample: usize,
    samples: usize,
    arena: *mut u8,
    constants: *mut u8,
    parameters: *mut u8,
    gradients: *mut u8,
    weights: &'a [Form],
    caches: &'a [CacheStart],
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointers are to buffers borrowed for 'a; disjoint use is the plan's guarantee.
unsafe impl Send for Memory<'_> {}
// SAFETY: as above.
unsafe impl Sync for Memory<'_> {}

impl<'a> Memory<'a> {
    /// Binds a plan to its buffers, and to the caches that it works on, in the order of [`Plan::caches`].
    pub fn new(
        plan: &'a Plan,
        [arena, constants]: [&'a mut Floats; 2],
        weights: &'a Weights,
        state: Option<&Buffers<'a>>,
        caches: &'a [CacheStart],
    ) -> Self {
        let start = |floats: &mut Floats| floats.as_mut_slice().as_mut_ptr().cast::<u8>();
        // A plan that keeps its weights has nothing in a state's buffers.
        let nowhere = std::ptr::null_mut();
        Memory {
            plan,
            graph: plan.graph(),
            tile: std::ptr::null_mut(),
            first_sample: 0,
            samples: 1,
            arena: start(arena),
            constants: start(constants),
            parameters: state.map_or(nowhere, |state| state.parameters.as_ptr().cast()),
            gradients: state.map_or(nowhere, |state| state.gradients.as_ptr().cast()),
            weights: weights.forms(),
            caches,
            owner: PhantomData,
        }
    }

    /// The same memory as one tile of a chain sees it: of values that belong to samples, the tile's samples; of values that
    /// only the chain reads, `own`, the thread's memory for them.
    pub fn of_tile(&self, chain: &'a Chain, tile: usize, own: &mut [f32]) -> Self {
        assert!(4 * own.len() >= chain.bytes);
        Memory {
            graph: &chain.graph,
            tile: own.as_mut_ptr().cast(),
            first_sample: tile * chain.samples,
            samples: chain.samples,
            ..*self
        }
    }

    /// Bytes before the tile's first sample.
    fn shift(&self, value: Value) -> usize {
        if self.first_sample == 0 {
            return 0;
        }
        let (whole, seen) = (self.plan.type_of(value).bytes(), self.type_of(value).bytes());
        // Values that do not belong to samples look the same to every tile.
        if whole == seen { 0 } else { self.first_sample * (seen / self.samples) }
    }

    fn type_of(&self, value: Value) -> &'a Type {
        self.graph.type_of(value)
    }

    fn place(&self, value: Value) -> *mut u8 {
        // SAFETY: the plan's locations lie inside the buffers that `new` and `of_tile` were given, whose sizes were
        // checked, and a tile's samples lie inside the whole value.
        unsafe {
            match self.plan.location(value) {
                Location::Tile(byte) => self.tile.add(byte),
                Location::Arena(byte) => self.arena.add(byte + self.shift(value)),
                Location::Constants(float) => self.constants.add(4 * float),
                Location::Cache(index) => self.caches[index].0.add(self.shift(value)),
                Location::Parameters(float) => self.parameters.add(4 * float),
                Location::Gradients(float) => self.gradients.add(4 * float),
                Location::FixedWeights(form) => self.weights[form].start().cast_mut().cast(),
                Location::PackedOnly => unreachable!("read by products, packed"),
            }
        }
    }

    /// A value to read.
    pub fn read(&self, value: Value) -> FloatSlice<'a> {
        let (start, len) = (self.place(value), self.type_of(value).shape.elements());
        // SAFETY: the value's memory, which nobody writes while it is read.
        unsafe {
            match self.type_of(value).dtype {
                DType::Bf16 => FloatSlice::Bf16(std::slice::from_raw_parts(start.cast::<bf16>(), len)),
                _ => FloatSlice::F32(std::slice::from_raw_parts(start.cast::<f32>(), len)),
            }
        }
    }

    /// An f32 value to read.
    ///
    /// # Panics
    /// Panics if it is stored otherwise: parameters, statistics and log-sums never are.
    pub fn read_f32(&self, value: Value) -> &'a [f32] {
        match self.read(value) {
            FloatSlice::F32(values) => values,
            FloatSlice::Bf16(_) => unreachable!("stored as f32 by its op's rule"),
        }
    }

    /// A value of whole numbers to read.
    pub fn read_i32(&self, value: Value) -> &'a [i32] {
        self.read_raw(value)
    }

    /// A value to read as plain units of its storage size.
    pub fn read_raw<T: bytemuck::Pod>(&self, value: Value) -> &'a [T] {
        let value_type = self.type_of(value);
        assert_eq!(value_type.dtype.bytes(), size_of::<T>());
        // SAFETY: as in `read`; T is plain data of the stored size.
        unsafe { std::slice::from_raw_parts(self.place(value).cast::<T>(), value_type.shape.elements()) }
    }

    /// A value to write.
    pub fn write(&self, value: Value) -> FloatShared<'a> {
        let len = self.type_of(value).shape.elements();
        let start = self.place(value);
        // SAFETY: the value's memory; kernels give disjoint parts to their tiles.
        unsafe {
            match self.type_of(value).dtype {
                DType::Bf16 => FloatShared::Bf16(Shared::from_raw(start.cast(), len)),
                _ => FloatShared::F32(Shared::from_raw(start.cast(), len)),
            }
        }
    }

    /// A value of f32 (or i32) to write.
    pub fn write_raw<T: bytemuck::Pod>(&self, value: Value) -> Shared<'a, T> {
        let value_type = self.type_of(value);
        assert_eq!(value_type.dtype.bytes(), size_of::<T>());
        let start = self.place(value);
        // SAFETY: as in `write`; T is plain data of the stored size.
        unsafe { Shared::from_raw(start.cast(), value_type.shape.elements()) }
    }

    /// A node's weight that was packed when the weights were taken in.
    pub fn packed_weight(&self, node: usize) -> Option<&'a [f32]> {
        let form = self.weights[self.plan.fixed_weights()?.packed[node]?];
        // SAFETY: the executor keeps the form alive, and runs only read it.
        Some(unsafe { std::slice::from_raw_parts(form.start(), form.floats()) })
    }

    /// A node's workspace, to read.
    pub fn read_workspace(&self, node: usize) -> &'a [f32] {
        let workspace = self.workspace(node);
        // SAFETY: whoever reads it so promises that nobody writes it meanwhile.
        unsafe { std::slice::from_raw_parts(workspace.as_ptr(), workspace.len()) }
    }

    /// A node's workspace.
    pub fn workspace(&self, node: usize) -> Shared<'a, f32> {
        let floats = self.plan.workspace_bytes(node) / 4;
        // SAFETY: the plan gave the node this part of the arena while it runs.
        unsafe { Shared::from_raw(self.arena.add(self.plan.workspace(node)).cast(), floats) }
    }
}
