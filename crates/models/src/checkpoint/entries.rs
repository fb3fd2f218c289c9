//! Entries: the tensors of a checkpoint in some dialect, described by our own names. The same entries are used for
//! reading, writing and checking.
//!
//! An *atom* is the smallest named piece of a model, `blocks.0.attention.query.weight`, with fused projections always
//! separated. Our own fused `blocks.0.attention.qkv.weight` is three consecutive atoms, and so is timm's; a stacked
//! tensor of Flax has one per layer.

use std::fmt;

use vitreous_engine::WeightView;

use super::Inventory;
use super::resize::Filter;
use crate::settings::Size;

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name in the file.
    pub name: String,
    /// Its shape in the file.
    pub shape: Vec<usize>,
    /// Its contents: one or more consecutive atoms of the same size.
    pub atoms: Vec<String>,
    /// The order of each atom's elements.
    pub storage: Storage,
    /// Whether the tensor is required.
    pub presence: Presence,
    /// Set for a position table over a grid of patches, which can be resized to another grid.
    pub grid: Option<GridTable>,
}

/// A position table: some rows for other tokens, then one row per patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridTable {
    /// Number of rows before the patches.
    pub prefix: usize,
    /// Rows and columns of patches.
    pub size: Size,
    /// How the checkpoint's library resizes it.
    pub filter: Filter,
}

/// Whether a tensor is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Required: the model computes with it.
    Needed,
    /// Optional, and no result depends on it: kept, to be written back.
    Kept,
    /// Optional and without information: a copy of a tied parameter, or a constant of the library.
    Redundant,
}

/// The order of an atom's elements in a file. Shapes may differ from ours beyond that: `[out, heads, width]` is still
/// `[out, in]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// The same as ours.
    Same,
    /// Ours is `[rows, columns]`, theirs `[columns, rows]`.
    Transposed {
        /// Our rows: outputs.
        rows: usize,
        /// Our columns: inputs.
        columns: usize,
    },
    /// Ours is `[outputs, inputs, height, width]`, theirs `[height, width, inputs, outputs]`.
    Hwio {
        /// Height times width.
        pixels: usize,
        /// Input channels.
        inputs: usize,
        /// Output channels.
        outputs: usize,
    },
    /// The rows of a head that are rotated together lie halves of a head apart in ours, and are neighbours in theirs: our rows 0, 1, 2, 3
    /// of a head of four are their rows 0, 2, 1, 3.
    RotaryPairs {
        /// All rows.
        rows: usize,
        /// Rows of a head.
        head_dim: usize,
    },
    /// The same order as ours, but every value is ours plus 1: the weight of a norm that multiplies by 1 + weight, as a file has it whose
    /// norms multiply by what they are given.
    PlusOne,
}

impl Storage {
    /// From their order to ours. Both slices are one atom.
    pub fn read(self, theirs: &[f32], ours: &mut [f32]) {
        match self {
            Storage::Same => ours.copy_from_slice(theirs),
            Storage::PlusOne => ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours = theirs - 1.0),
            moved => moved.each(ours.len(), |our, their| ours[our] = theirs[their]),
        }
    }

    /// From our order to theirs. Both slices are one atom.
    pub fn write(self, ours: &[f32], theirs: &mut [f32]) {
        match self {
            Storage::Same => theirs.copy_from_slice(ours),
            Storage::PlusOne => theirs.iter_mut().zip(ours).for_each(|(theirs, ours)| *theirs = ours + 1.0),
            moved => moved.each(ours.len(), |our, their| theirs[their] = ours[our]),
        }
    }

    /// From their order to ours, in the format that the values have, if that can be: rows of quantised blocks can be moved, but not taken
    /// apart.
    pub fn read_weight(self, theirs: WeightView<'_>) -> Option<WeightView<'_>> {
        self.move_rows(theirs, |pairs, ours| pairs.their_row(ours))
    }

    /// From our order to theirs, in the format that the values have, if that can be.
    pub fn write_weight(self, ours: WeightView<'_>) -> Option<WeightView<'_>> {
        self.move_rows(ours, |pairs, theirs| pairs.our_row(theirs))
    }

    fn move_rows<'w>(
        self,
        from: WeightView<'w>,
        source: impl Fn(RotaryPairs, usize) -> usize,
    ) -> Option<WeightView<'w>> {
        let (rows, pairs) = match self {
            Storage::Same => return Some(from),
            Storage::RotaryPairs { rows, head_dim } => (rows, RotaryPairs { head_dim }),
            Storage::Transposed { .. } | Storage::Hwio { .. } | Storage::PlusOne => return None,
        };
        fn moved<T: Copy>(from: &[T], rows: usize, source: impl Fn(usize) -> usize) -> Vec<T> {
            let width = from.len() / rows.max(1);
            (0..rows).flat_map(|row| from[source(row) * width..][..width].iter().copied()).collect()
        }
        let source = |row| source(pairs, row);
        Some(match from {
            WeightView::F32(values) => WeightView::F32(moved(&values, rows, source).into()),
            WeightView::F16(values) => WeightView::F16(moved(&values, rows, source).into()),
            WeightView::Bf16(values) => WeightView::Bf16(moved(&values, rows, source).into()),
            WeightView::Blocks(format, bytes) => WeightView::Blocks(format, moved(&bytes, rows, source).into()),
            _ => return None,
        })
    }

    /// Calls `pair(our index, their index)` for every element of so many.
    fn each(self, elements: usize, mut pair: impl FnMut(usize, usize)) {
        match self {
            Storage::Same | Storage::PlusOne => (0..elements).for_each(|element| pair(element, element)),
            Storage::Transposed { rows, columns } => {
                // In tiles, so that neither side is accessed with strides that exceed the cache.
                const TILE: usize = 32;
                for row in (0..rows).step_by(TILE) {
                    for column in (0..columns).step_by(TILE) {
                        for r in row..rows.min(row + TILE) {
                            for c in column..columns.min(column + TILE) {
                                pair(r * columns + c, c * rows + r);
                            }
                        }
                    }
                }
            }
            Storage::Hwio { pixels, inputs, outputs } => {
                for output in 0..outputs {
                    for input in 0..inputs {
                        for pixel in 0..pixels {
                            pair(
                                (output * inputs + input) * pixels + pixel,
                                (pixel * inputs + input) * outputs + output,
                            );
                        }
                    }
                }
            }
            Storage::RotaryPairs { rows, head_dim } => {
                let columns = elements / rows.max(1);
                for row in 0..rows {
                    let their_row = RotaryPairs { head_dim }.their_row(row);
                    (0..columns).for_each(|column| pair(row * columns + column, their_row * columns + column));
                }
            }
        }
    }
}

/// Where the rows of a head lie: see [`Storage::RotaryPairs`].
#[derive(Clone, Copy)]
struct RotaryPairs {
    head_dim: usize,
}

impl RotaryPairs {
    fn their_row(self, ours: usize) -> usize {
        let (head, row, half) = (ours / self.head_dim, ours % self.head_dim, self.head_dim / 2);
        head * self.head_dim + row % half * 2 + row / half
    }

    fn our_row(self, theirs: usize) -> usize {
        let (head, row, half) = (theirs / self.head_dim, theirs % self.head_dim, self.head_dim / 2);
        head * self.head_dim + row % 2 * half + row / 2
    }
}

/// What is wrong with one tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is missing.
    Missing {
        /// Its name.
        name: String,
        /// The expected shape.
        expected: Vec<usize>,
    },
    /// The model has no such tensor.
    Surplus {
        /// Its name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Its shape differs from the model's.
    Misshapen {
        /// Its name.
        name: String,
        /// The expected shape.
        expected: Vec<usize>,
        /// The shape in the file.
        got: Vec<usize>,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Missing { name, expected } => write!(f, "`{name}` {expected:?} is missing"),
            Problem::Surplus { name, shape } => write!(f, "`{name}` {shape:?} has no place in this model"),
            Problem::Misshapen { name, expected, got } => {
                write!(f, "`{name}` is {got:?}, but should be {expected:?}")
            }
        }
    }
}

/// Compares a file with the expected entries. `concerns` says whether a tensor without an entry belongs to the model at
/// all.
pub fn problems(entries: &[Entry], inventory: &Inventory, concerns: impl Fn(&str) -> bool) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut known = std::collections::HashSet::with_capacity(entries.len());
    for Entry { name, shape, presence, .. } in entries {
        known.insert(name.as_str());
        match inventory.get(name) {
            _ if *presence == Presence::Redundant => {}
            Some(got) if same_shape(got, shape) => {}
            Some(got) => {
                found.push(Problem::Misshapen { name: name.clone(), expected: shape.clone(), got: got.clone() });
            }
            None if *presence == Presence::Kept => {}
            None => found.push(Problem::Missing { name: name.clone(), expected: shape.clone() }),
        }
    }
    for (name, shape) in inventory {
        if !known.contains(name.as_str()) && concerns(name) {
            found.push(Problem::Surplus { name: name.clone(), shape: shape.clone() });
        }
    }
    found
}

/// Whether two shapes are equal up to axes of size 1: tokens are `[1, 1, dim]` here and `[1, dim]` there.
fn same_shape(a: &[usize], b: &[usize]) -> bool {
    let longer = |shape: &[usize]| shape.iter().copied().filter(|&axis| axis != 1).collect::<Vec<_>>();
    a == b || longer(a) == longer(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| i as f32).collect()
    }

    #[test]
    fn every_storage_order_reads_what_it_wrote() {
        let storages = [
            Storage::Same,
            Storage::Transposed { rows: 40, columns: 36 },
            Storage::Hwio { pixels: 12, inputs: 3, outputs: 40 },
            Storage::RotaryPairs { rows: 36, head_dim: 12 },
            Storage::PlusOne,
        ];
        for storage in storages {
            let ours = numbers(1440);
            let (mut theirs, mut again) = (vec![0.0; 1440], vec![0.0; 1440]);
            storage.write(&ours, &mut theirs);
            storage.read(&theirs, &mut again);
            assert_eq!(again, ours, "{storage:?}");
            assert_eq!(theirs == ours, storage == Storage::Same);
            if let Some(moved) = storage.write_weight(ours.clone().into()) {
                assert_eq!(moved, theirs.into(), "{storage:?}");
                assert_eq!(storage.read_weight(moved).expect("the same way back"), ours.into(), "{storage:?}");
            }
        }
    }

    #[test]
    fn rows_of_quantised_blocks_are_moved_whole() {
        let format = vitreous_engine::BlockFormat::Q8_0;
        let bytes: Vec<u8> = (0..8 * format.bytes()).map(|byte| (byte / format.bytes()) as u8).collect();
        // Two heads of four rows, a block each.
        let storage = Storage::RotaryPairs { rows: 8, head_dim: 4 };
        let moved = storage.read_weight(WeightView::Blocks(format, bytes.clone().into())).expect("moved");
        let WeightView::Blocks(_, moved_bytes) = &moved else { panic!("still blocks") };
        let rows: Vec<u8> = moved_bytes.iter().step_by(format.bytes()).copied().collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(storage.write_weight(moved).expect("back"), WeightView::Blocks(format, bytes.into()));
        let transposed = Storage::Transposed { rows: 8, columns: 32 };
        assert!(transposed.read_weight(WeightView::Blocks(format, vec![0; 8 * format.bytes()].into())).is_none());
    }

    #[test]
    fn storage_orders_put_numbers_where_they_belong() {
        let mut ours = vec![0.0; 6];
        Storage::Transposed { rows: 2, columns: 3 }.read(&numbers(6), &mut ours);
        assert_eq!(ours, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
        let mut ours = vec![0.0; 12];
        // Theirs is [2 pixels, 2 inputs, 3 outputs]; ours [3 outputs, 2 inputs, 2 pixels].
        Storage::Hwio { pixels: 2, inputs: 2, outputs: 3 }.read(&numbers(12), &mut ours);
        assert_eq!(ours, [0.0, 6.0, 3.0, 9.0, 1.0, 7.0, 4.0, 10.0, 2.0, 8.0, 5.0, 11.0]);
    }

    #[test]
    fn a_shape_may_differ_by_axes_of_one_only() {
        assert!(same_shape(&[1, 1, 8], &[1, 8]) && same_shape(&[8], &[1, 8]));
        assert!(!same_shape(&[8, 2], &[2, 8]) && !same_shape(&[16], &[2, 8]));
    }
}
