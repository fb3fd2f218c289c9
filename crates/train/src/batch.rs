//! A batch as a model takes it: named arrays.

use vitreous_engine::Executor;

use crate::error::TrainError;

/// The shape of a batch: how many samples, and how long the sequences in it are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Samples.
    pub rows: usize,
    /// Lengths of the sequences of a sample, in the task's order; none for samples of one fixed size.
    pub lengths: Vec<usize>,
}

impl BatchShape {
    /// A batch of samples of one fixed size.
    pub fn of_rows(rows: usize) -> BatchShape {
        BatchShape { rows, lengths: Vec::new() }
    }

    /// Elements of a sample's longest sequence; 1 without sequences.
    pub fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(1)
    }

    /// The same lengths in a batch of another size, counted in samples or, for sequences, in elements of the longest.
    pub fn with_size(&self, size: usize) -> BatchShape {
        BatchShape { rows: (size / self.longest()).max(1), lengths: self.lengths.clone() }
    }
}

/// How much a batch counts in an update of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// All the same: the gradient is the mean over batches.
    Equal,
    /// By its units: the gradient is the mean over all units of all batches, as if they were one batch.
    ByUnits,
}

/// The values of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// f32.
    F32(Vec<f32>),
    /// i32.
    I32(Vec<i32>),
}

/// Some samples, ready for the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Its shape, which is one of the task's.
    pub shape: BatchShape,
    /// The inputs of the task's graph, by name.
    pub inputs: Vec<(&'static str, Array)>,
    /// How many units it has: images, or target tokens that count.
    pub units: u64,
}

impl Batch {
    /// The values of an input of i32.
    pub fn i32(&self, name: &str) -> Option<&[i32]> {
        self.inputs.iter().find_map(|(own, array)| match array {
            Array::I32(values) if *own == name => Some(values.as_slice()),
            _ => None,
        })
    }

    /// Copies its arrays to the inputs of an executor.
    pub fn fill(&self, executor: &mut Executor) -> Result<(), TrainError> {
        for (name, array) in &self.inputs {
            match array {
                Array::F32(values) => executor.input(name)?.copy_from_slice(values),
                Array::I32(values) => executor.input_i32(name)?.copy_from_slice(values),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_batch_is_in_samples_or_in_elements_of_the_longest_sequence() {
        assert_eq!(BatchShape::of_rows(7).with_size(3), BatchShape::of_rows(3));
        let pairs = BatchShape { rows: 10, lengths: vec![8, 12] };
        assert_eq!((pairs.longest(), pairs.with_size(59).rows, pairs.with_size(3).rows), (12, 4, 1));
    }
}
