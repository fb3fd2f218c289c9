//! The tensors of a test case, in either storage format.

use half::bf16;

use super::super::{Heads, HeadsOut};
use super::{Case, Values};
use crate::cpu::memory::{FloatShared, FloatSlice, Shared};

pub enum Stored {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

impl Stored {
    pub fn new(values: &[f64], narrow: bool) -> Self {
        if narrow {
            Stored::Bf16(values.iter().map(|&x| bf16::from_f64(x)).collect())
        } else {
            Stored::F32(values.iter().map(|&x| x as f32).collect())
        }
    }

    pub fn read(&self) -> FloatSlice<'_> {
        match self {
            Stored::F32(values) => FloatSlice::F32(values),
            Stored::Bf16(values) => FloatSlice::Bf16(values),
        }
    }

    pub fn write(&mut self) -> FloatShared<'_> {
        match self {
            Stored::F32(values) => FloatShared::F32(Shared::new(values)),
            Stored::Bf16(values) => FloatShared::Bf16(Shared::new(values)),
        }
    }

    pub fn get(&self, at: usize) -> f64 {
        match self {
            Stored::F32(values) => f64::from(values[at]),
            Stored::Bf16(values) => values[at].to_f64(),
        }
    }
}

/// The tensors of a case: one fused tensor, or several with gaps between the rows and before the first.
pub struct Tensors {
    fused: bool,
    batch: usize,
    tokens: [usize; 3],
    /// Values of a row of q, k and v.
    dims: [usize; 3],
}

const GAP: usize = 3;

impl Tensors {
    pub fn new(case: &Case) -> Self {
        let dims = [case.heads, case.kv_heads(), case.kv_heads()].map(|heads| heads * case.head_dim);
        assert!(!case.fused || case.queries == case.keys && dims[0] == dims[1]);
        let tokens = [case.queries, case.keys, case.keys];
        Tensors { fused: case.fused, batch: case.batch, tokens, dims }
    }

    pub fn place(&self, which: usize) -> (usize, usize) {
        if self.fused { (which * self.dims[0], 3 * self.dims[0]) } else { (2, self.dims[which] + GAP) }
    }

    pub fn lengths(&self) -> Vec<usize> {
        if self.fused {
            return vec![self.batch * self.tokens[0] * 3 * self.dims[0]];
        }
        (0..3).map(|which| 2 + self.batch * self.tokens[which] * (self.dims[which] + GAP)).collect()
    }

    pub fn fill(&self, values: &[&[f64]; 3], narrow: bool) -> Vec<Stored> {
        let mut wide: Vec<Values> = self.lengths().iter().map(|&len| vec![f64::NAN; len]).collect();
        for which in 0..3 {
            let (offset, stride) = self.place(which);
            let to = &mut wide[if self.fused { 0 } else { which }];
            for (row, values) in values[which].chunks_exact(self.dims[which]).enumerate() {
                to[offset + row * stride..][..self.dims[which]].copy_from_slice(values);
            }
        }
        wide.iter().map(|values| Stored::new(values, narrow)).collect()
    }

    pub fn fill_one(&self, values: &[f64], tokens: usize, narrow: bool) -> Stored {
        assert_eq!(values.len(), self.batch * tokens * self.dims[0]);
        Stored::new(values, narrow)
    }

    pub fn poison(&self, narrow: bool) -> Vec<Stored> {
        self.lengths().iter().map(|&len| Stored::new(&vec![f64::NAN; len], narrow)).collect()
    }

    pub fn poison_one(&self, narrow: bool) -> Stored {
        Stored::new(&vec![f64::NAN; self.batch * self.tokens[0] * self.dims[0]], narrow)
    }

    pub fn heads<'a>(&self, stored: &'a [Stored]) -> [Heads<'a>; 3] {
        std::array::from_fn(|which| {
            let (offset, row_stride) = self.place(which);
            Heads { values: stored[if self.fused { 0 } else { which }].read(), offset, row_stride }
        })
    }

    pub fn heads_out<'a>(&self, stored: &'a mut [Stored]) -> [HeadsOut<'a>; 3] {
        let shared: Vec<FloatShared<'a>> = stored.iter_mut().map(Stored::write).collect();
        std::array::from_fn(|which| {
            let (offset, row_stride) = self.place(which);
            HeadsOut { values: shared[if self.fused { 0 } else { which }], offset, row_stride }
        })
    }

    pub fn one<'a>(&self, stored: &'a Stored) -> Heads<'a> {
        Heads { values: stored.read(), offset: 0, row_stride: self.dims[0] }
    }

    pub fn one_out<'a>(&self, stored: &'a mut Stored) -> HeadsOut<'a> {
        HeadsOut { values: stored.write(), offset: 0, row_stride: self.dims[0] }
    }

    pub fn read_one(&self, stored: &Stored) -> Values {
        (0..self.batch * self.tokens[0] * self.dims[0]).map(|at| stored.get(at)).collect()
    }

    /// The values without their gaps, which must be as they were.
    pub fn read_back(&self, stored: &[Stored]) -> [Values; 3] {
        std::array::from_fn(|which| {
            let (offset, stride) = self.place(which);
            let from = &stored[if self.fused { 0 } else { which }];
            let mut values = Values::new();
            for row in 0..self.batch * self.tokens[which] {
                values.extend((0..self.dims[which]).map(|i| from.get(offset + row * stride + i)));
                if !self.fused {
                    assert!(
                        (self.dims[which]..stride).all(|i| from.get(offset + row * stride + i).is_nan()),
                        "gap written"
                    );
                }
            }
            values
        })
    }
}
