//! Comparison with naive loops in f64.

use std::sync::atomic::{AtomicU32, Ordering};

use half::bf16;

use super::*;
use crate::buffer::Floats;

/// Values in one of the dtypes.
#[derive(Clone)]
enum Values {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

impl Values {
    fn random(len: usize, in_bf16: bool, seed: u32) -> Self {
        let mut state = seed.wrapping_mul(747_796_405).wrapping_add(12_345);
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        if in_bf16 {
            Values::Bf16((0..len).map(|_| bf16::from_f32(next())).collect())
        } else {
            Values::F32((0..len).map(|_| next()).collect())
        }
    }

    fn slice(&self) -> FloatSlice<'_> {
        match self {
            Values::F32(values) => FloatSlice::F32(values),
            Values::Bf16(values) => FloatSlice::Bf16(values),
        }
    }

    fn get(&self, index: usize, rounded: bool) -> f64 {
        match self {
            Values::F32(values) if rounded => bf16::from_f32(values[index]).to_f64(),
            Values::F32(values) => f64::from(values[index]),
            Values::Bf16(values) => values[index].to_f64(),
        }
    }
}

/// One multiplication to test.
#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    columns: usize,
    depth: usize,
    batch: usize,
    shared_b: bool,
    prepacked: bool,
    /// A's depth, or B's columns, are not the contiguous direction.
    a_turned: bool,
    b_turned: bool,
    a_bf16: bool,
    b_bf16: bool,
    output_bf16: bool,
    precision: Precision,
    /// Unused values between matrix rows.
    gap: usize,
}

const PLAIN: Case = Case {
    rows: 1,
    columns: 1,
    depth: 1,
    batch: 1,
    shared_b: false,
    prepacked: false,
    a_turned: false,
    b_turned: false,
    a_bf16: false,
    b_bf16: false,
    output_bf16: false,
    precision: Precision::F32,
    gap: 0,
};

const OFFSET: usize = 3;

/// Row stride, column stride and length of a matrix.
fn strides(rows: usize, columns: usize, turned: bool, gap: usize) -> (usize, usize, usize) {
    if turned { (1, rows + gap, columns * (rows + gap)) } else { (columns + gap, 1, rows * (columns + gap)) }
}

/// A case's operands and their strides.
struct Inputs {
    case: Case,
    a: Values,
    b: Values,
    a_strides: (usize, usize, usize),
    b_strides: (usize, usize, usize),
}

impl Inputs {
    fn new(case: Case) -> Self {
        let a_strides = strides(case.rows, case.depth, case.a_turned, case.gap);
        let b_strides = strides(case.depth, case.columns, case.b_turned, case.gap);
        let a = Values::random(OFFSET + a_strides.2 * case.batch, case.a_bf16, 1);
        let b = Values::random(OFFSET + b_strides.2 * if case.shared_b { 1 } else { case.batch }, case.b_bf16, 2);
        Inputs { case, a, b, a_strides, b_strides }
    }

    fn b_batch_stride(&self) -> usize {
        if self.case.shared_b { 0 } else { self.b_strides.2 }
    }

    /// The result in f64, optionally of operands rounded to bf16.
    fn expected(&self, rounded: bool) -> Vec<f64> {
        let case = self.case;
        let mut out = vec![0.0; case.batch * case.rows * case.columns];
        for batch in 0..case.batch {
            let matrix = |values: &Values, skip: usize, rows, columns, (row_stride, column_stride, _)| -> Vec<f64> {
                let at = |i: usize| OFFSET + skip + i / columns * row_stride + i % columns * column_stride;
                (0..rows * columns).map(|i| values.get(at(i), rounded)).collect()
            };
            let a = matrix(&self.a, batch * self.a_strides.2, case.rows, case.depth, self.a_strides);
            let b = matrix(&self.b, batch * self.b_batch_stride(), case.depth, case.columns, self.b_strides);
            for i in 0..case.rows {
                let row = &mut out[(batch * case.rows + i) * case.columns..][..case.columns];
                for k in 0..case.depth {
                    for (sum, b) in row.iter_mut().zip(&b[k * case.columns..][..case.columns]) {
                        *sum += a[i * case.depth + k] * b;
                    }
                }
            }
        }
        out
    }

    /// The result of `multiply`; with `finished`, the epilogue adds a number that identifies the element.
    fn multiply(&self, threads: usize, finished: bool) -> Vec<f32> {
        const GUARD: f32 = 77.5;
        let case = self.case;
        let outputs = case.batch * case.rows * case.columns;
        let mut wide = vec![f32::NAN; outputs + 16];
        let mut narrow = vec![bf16::NAN; outputs + 16];
        wide[outputs..].fill(GUARD);
        narrow[outputs..].fill(bf16::from_f32(GUARD));
        let output = if case.output_bf16 {
            FloatShared::Bf16(Shared::new(&mut narrow[..outputs]))
        } else {
            FloatShared::F32(Shared::new(&mut wide[..outputs]))
        };
        let operand =
            |values, (row_stride, column_stride, _)| Operand { values, offset: OFFSET, row_stride, column_stride };
        let product = Product {
            rows: case.rows,
            columns: case.columns,
            depth: case.depth,
            a: operand(self.a.slice(), self.a_strides),
            b: operand(self.b.slice(), self.b_strides),
            precision: case.precision,
            output,
            batch: case.batch,
            a_batch_stride: self.a_strides.2,
            b_batch_stride: self.b_batch_stride(),
            prepacked: case.prepacked,
        };
        let shape = product.shape();
        let scratch = scratch_floats(&shape, case.precision);
        let needed = workspace_floats(&shape, case.precision);
        const SPARE: usize = 5;
        let mut team = Team::new(threads, scratch + SPARE).unwrap();
        let mut workspace = Floats::zeroed(needed + 32).unwrap();
        let workspace = workspace.as_mut_slice();
        workspace[..needed].fill(f32::NAN);
        workspace[needed..].fill(GUARD);
        let seen: Vec<AtomicU32> = (0..outputs).map(|_| AtomicU32::new(0)).collect();
        let finish = |row: usize, first: usize, values: &mut [f32], spare: &mut [f32]| {
            assert_eq!(spare.len(), SPARE);
            spare.fill(f32::NAN);
            for (i, value) in values.iter_mut().enumerate() {
                seen[row * case.columns + first + i].fetch_add(1, Ordering::Relaxed);
                *value += addend(row, first + i);
            }
        };
        multiply(&mut team, &product, &mut workspace[..needed], if finished { Some(&finish) } else { None });
        assert!(workspace[needed..].iter().all(|value| *value == GUARD), "{case:?} wrote behind the workspace");
        if finished {
            assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{case:?}: finish not once each");
        }
        assert!(wide[outputs..].iter().all(|value| *value == GUARD), "{case:?} wrote behind the output");
        assert!(narrow[outputs..].iter().all(|value| value.to_f32() == GUARD), "{case:?} wrote behind the output");
        if case.output_bf16 { narrow[..outputs].iter().map(|v| v.to_f32()).collect() } else { wide[..outputs].to_vec() }
    }

    fn rounds(&self) -> bool {
        let shape = self.case;
        let shape = Shape {
            rows: shape.rows,
            columns: shape.columns,
            depth: shape.depth,
            batch: shape.batch,
            shared_b: shape.shared_b || shape.batch == 1,
            prepacked: shape.prepacked,
        };
        let kind = MicroKernel::best(self.case.precision);
        kind.rounds() && shape.route(kind) != Route::FewRows
    }
}

fn addend(row: usize, column: usize) -> f32 {
    ((row * 7 + column * 3) % 32) as f32 / 32.0
}

/// The norm of the difference over the norm of `expected`, or over the typical norm of sums of `depth` products: the
/// few values of a small result may cancel.
fn relative_error(values: &[f32], expected: &[f64], depth: usize) -> f64 {
    assert_eq!(values.len(), expected.len());
    let difference: f64 =
        values.iter().zip(expected).map(|(value, expected)| (f64::from(*value) - expected).powi(2)).sum();
    let norm: f64 = expected.iter().map(|value| value * value).sum();
    (difference / norm.max((depth * values.len()) as f64 / 9.0)).sqrt()
}

fn check(case: Case) {
    let inputs = Inputs::new(case);
    let exact = inputs.expected(false);
    let rounded = if inputs.rounds() { inputs.expected(true) } else { exact.clone() };
    let with_addend = |values: &[f64]| -> Vec<f64> {
        let place = |(i, value): (usize, &f64)| value + f64::from(addend(i / case.columns, i % case.columns));
        values.iter().enumerate().map(place).collect()
    };
    let (tight, loose) = match (case.output_bf16, inputs.rounds()) {
        (false, false) => (1e-6, 1e-6),
        (false, true) => (1e-5, 1e-2),
        (true, _) => (4e-3, 1e-2),
    };
    for finished in [false, true] {
        let values = inputs.multiply(2, finished);
        let (exact, rounded) =
            if finished { (with_addend(&exact), with_addend(&rounded)) } else { (exact.clone(), rounded.clone()) };
        let error = relative_error(&values, &rounded, case.depth);
        assert!(error < tight, "{case:?}, finish {finished}: error {error}");
        // Single values may cancel; the bound is for many.
        if values.len() > 100 {
            let error = relative_error(&values, &exact, case.depth);
            assert!(error < loose, "{case:?}, finish {finished}: error {error} against unrounded operands");
        }
    }
}

/// Calls `test` with all layouts and dtypes of the operands.
fn for_all_variants(case: Case, test: impl Fn(Case)) {
    for variant in 0..64 {
        let bit = |bit: u32| variant >> bit & 1 == 1;
        test(Case {
            a_turned: bit(0),
            b_turned: bit(1),
            a_bf16: bit(2),
            b_bf16: bit(3),
            output_bf16: bit(4),
            precision: if bit(5) { Precision::Bf16 } else { Precision::F32 },
            ..case
        });
    }
}

#[test]
fn sizes_that_are_not_round() {
    for rows in [1, 3, 5, 17, 48, 197] {
        for columns in [1, 3, 16, 17, 31, 64, 197] {
            for depth in [1, 3, 64, 197] {
                for_all_variants(Case { rows, columns, depth, ..PLAIN }, check);
            }
        }
    }
}

#[test]
fn few_rows_with_a_packed_operand() {
    for rows in [1, 2, 4, 7] {
        for (columns, depth) in [(1, 3), (40, 64), (401, 1101)] {
            for_all_variants(Case { rows, columns, depth, prepacked: true, ..PLAIN }, check);
        }
    }
}

#[test]
fn several_blocks_of_depth_and_several_tiles() {
    for (rows, columns, depth) in [(130, 401, 1101), (9, 800, 513), (300, 49, 2049)] {
        for_all_variants(Case { rows, columns, depth, ..PLAIN }, check);
    }
}

#[test]
fn batches() {
    for shared_b in [false, true] {
        for (batch, gap) in [(5, 0), (5, 3), (9, 0), (9, 1)] {
            for (rows, columns, depth) in [(1, 40, 33), (2, 7, 20), (17, 19, 33), (50, 70, 31)] {
                for_all_variants(Case { rows, columns, depth, batch, shared_b, gap, ..PLAIN }, check);
            }
        }
    }
    for_all_variants(Case { rows: 16, columns: 16, depth: 32, batch: 70, ..PLAIN }, check);
    for_all_variants(Case { rows: 40, columns: 50, depth: 1100, batch: 8, ..PLAIN }, check);
}

#[test]
fn operands_without_a_contiguous_direction() {
    let values = Values::random(4 * 300 * 40, false, 3);
    for rows in [3, 20] {
        let (columns, depth) = (37, 19);
        let mut out = vec![f32::NAN; rows * columns];
        let operand =
            |row_stride, column_stride| Operand { values: values.slice(), offset: 5, row_stride, column_stride };
        let product = Product {
            rows,
            columns,
            depth,
            a: operand(41, 2),
            b: operand(3, 77),
            precision: Precision::F32,
            output: FloatShared::F32(Shared::new(&mut out)),
            batch: 1,
            a_batch_stride: 0,
            b_batch_stride: 0,
            prepacked: false,
        };
        let shape = product.shape();
        let mut team = Team::new(2, scratch_floats(&shape, Precision::F32)).unwrap();
        let mut workspace = vec![f32::NAN; workspace_floats(&shape, Precision::F32)];
        multiply(&mut team, &product, &mut workspace, None);
        let expected: Vec<f64> = (0..rows * columns)
            .map(|at| {
                let (i, j) = (at / columns, at % columns);
                let term = |k| values.get(5 + i * 41 + k * 2, false) * values.get(5 + k * 3 + j * 77, false);
                (0..depth).map(term).sum()
            })
            .collect();
        assert!(relative_error(&out, &expected, depth) < 1e-6);
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for (rows, columns, depth, batch) in [(128, 128, 2048, 1), (300, 500, 700, 1), (2, 3000, 100, 1), (17, 33, 65, 40)]
    {
        for precision in [Precision::F32, Precision::Bf16] {
            for a_turned in [false, true] {
                let inputs = Inputs::new(Case { rows, columns, depth, batch, precision, a_turned, ..PLAIN });
                let one = bits(inputs.multiply(1, true));
                assert!(one == bits(inputs.multiply(2, true)), "{:?}", inputs.case);
                assert!(one == bits(inputs.multiply(4, true)), "{:?}", inputs.case);
            }
        }
    }
}

#[test]
fn nothing_to_sum_and_nothing_to_write() {
    for (rows, columns, depth) in [(2, 20, 0), (20, 20, 0), (0, 5, 5), (5, 0, 5)] {
        let inputs = Inputs::new(Case { rows, columns, depth, ..PLAIN });
        assert!(inputs.multiply(2, false).iter().all(|value| *value == 0.0));
        assert_eq!(inputs.multiply(2, true).len(), rows * columns);
    }
}

#[test]
fn what_is_not_a_number_stays_in_its_row_and_column() {
    for precision in [Precision::F32, Precision::Bf16] {
        for rows in [3, 20] {
            let mut inputs = Inputs::new(Case { rows, columns: 50, depth: 33, precision, ..PLAIN });
            let Values::F32(a) = &mut inputs.a else { unreachable!() };
            a[OFFSET + 33 + 4] = f32::NAN;
            a[OFFSET + 2 * 33 + 32] = f32::INFINITY;
            let values = inputs.multiply(2, false);
            for (i, value) in values.iter().enumerate() {
                assert_eq!(value.is_nan(), i / 50 == 1, "row {}", i / 50);
                assert_eq!(value.is_infinite(), i / 50 == 2, "row {}", i / 50);
            }
        }
    }
}

#[test]
#[should_panic(expected = "values are not")]
fn an_operand_that_is_too_short_is_refused() {
    let mut inputs = Inputs::new(Case { rows: 8, columns: 8, depth: 8, ..PLAIN });
    inputs.case.depth = 9;
    inputs.multiply(1, false);
}
