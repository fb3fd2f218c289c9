//! Weights on a device that do not change: each parameter in the formats that kernels read, once for all executors that share it.

use std::collections::HashMap;
use std::sync::Arc;

use half::bf16;

use super::device::Device;
use super::launch::{Address, Argument, Buffer, Launch};
use super::memory::DeviceBuffer;
use super::products::Product;
use crate::error::{Error, Result};
use crate::graph::{Graph, Parameter};
use crate::types::DType;
use crate::weights::WeightView;

/// Values that are converted at once on their way to the device.
const PIECE: usize = 1 << 20;

/// Parameters on a device by name and format.
pub(crate) struct SharedWeights {
    known: HashMap<(String, DType), Arc<DeviceBuffer>>,
    device: Arc<Device>,
}

impl SharedWeights {
    /// None yet.
    pub fn new(device: &Arc<Device>) -> SharedWeights {
        SharedWeights { known: HashMap::new(), device: Arc::clone(device) }
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.known.values().map(|buffer| buffer.bytes()).sum()
    }

    /// Whether they are on a device.
    pub fn is_on(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// What a graph's kernels read, all of it; `values` gives the parameters that are not there yet in a format that is wanted.
    pub(super) fn weights_for<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        &mut self,
        graph: &Graph,
        needs: &Needs,
        mut values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<Weights, E> {
        let offsets = graph.parameters().iter().map(|parameter| parameter.offset).collect();
        let mut weights = Weights { offsets, wide: Vec::new(), narrow: Vec::new() };
        for (index, parameter) in graph.parameters().iter().enumerate() {
            let mut given: Option<WeightView> = None;
            let mut buffer = |dtype: DType| -> Result<Option<Arc<DeviceBuffer>>, E> {
                if !needs.contains(index, dtype) {
                    return Ok(None);
                }
                let key = (parameter.name.clone(), dtype);
                if let Some(buffer) = self.known.get(&key) {
                    return Ok(Some(Arc::clone(buffer)));
                }
                let view = match given.take() {
                    Some(view) => view,
                    None => values(parameter)?.into(),
                };
                parameter.check_count(view.len())?;
                let buffer = Arc::new(upload(&self.device, &view, dtype)?);
                given = Some(view);
                self.known.insert(key, Arc::clone(&buffer));
                Ok(Some(buffer))
            };
            let (wide, narrow) = (buffer(DType::F32)?, buffer(DType::Bf16)?);
            weights.wide.push(wide);
            weights.narrow.push(narrow);
        }
        Ok(weights)
    }
}

/// Copies values to the device in a format, converting piece by piece where they are stored in another.
fn upload(device: &Arc<Device>, view: &WeightView, dtype: DType) -> Result<DeviceBuffer> {
    let mut buffer = DeviceBuffer::new(device, view.len() * dtype.bytes())?;
    match (view, dtype) {
        (WeightView::F32(values), DType::F32) => buffer.write(0, values)?,
        (WeightView::Bf16(values), DType::Bf16) => buffer.write(0, values)?,
        _ => {
            let mut wide = vec![0.0f32; PIECE.min(view.len())];
            for start in (0..view.len()).step_by(PIECE) {
                let piece = &mut wide[..PIECE.min(view.len() - start)];
                view.read_into(start, piece);
                match dtype {
                    DType::Bf16 => {
                        let narrow: Vec<bf16> = piece.iter().map(|&value| bf16::from_f32(value)).collect();
                        buffer.write(2 * start, &narrow)?;
                    }
                    _ => buffer.write(4 * start, piece)?,
                }
            }
        }
    }
    Ok(buffer)
}

/// Which parameters kernels read, and in which formats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    wide: Vec<bool>,
    narrow: Vec<bool>,
}

impl Needs {
    /// None of a graph's parameters yet.
    pub fn new(graph: &Graph) -> Needs {
        let count = graph.parameters().len();
        Needs { wide: vec![false; count], narrow: vec![false; count] }
    }

    fn contains(&self, parameter: usize, dtype: DType) -> bool {
        if dtype == DType::Bf16 { self.narrow[parameter] } else { self.wide[parameter] }
    }

    /// Notes what a kernel is given.
    pub fn add_launch(&mut self, graph: &Graph, launch: &Launch) {
        for argument in &launch.arguments {
            match argument {
                Argument::Address(place) => self.add(graph, *place),
                Argument::Matrix(matrix) => self.add(graph, matrix.place),
                Argument::Nothing | Argument::U32(_) | Argument::U64(_) => {}
            }
        }
    }

    /// Notes what a product reads.
    pub fn add_product(&mut self, graph: &Graph, product: &Product) {
        let places = [Some(product.a.place), Some(product.b.place), product.added, product.bias, product.auxiliary];
        places.into_iter().flatten().for_each(|place| self.add(graph, place));
    }

    fn add(&mut self, graph: &Graph, place: Address) {
        let offsets: Vec<usize> = graph.parameters().iter().map(|parameter| parameter.offset).collect();
        match place.buffer {
            Buffer::Parameters => self.wide[parameter_at(&offsets, place.byte / 4)] = true,
            Buffer::NarrowParameters => self.narrow[parameter_at(&offsets, place.byte / 2)] = true,
            _ => {}
        }
    }
}

/// The parameter whose values include the one at a place of the flat buffer.
fn parameter_at(offsets: &[usize], float: usize) -> usize {
    offsets.partition_point(|&offset| offset <= float) - 1
}

/// The weights of one executor: a buffer for each parameter and format that its kernels read.
pub(super) struct Weights {
    /// Where parameters start in the flat buffer that a plan's places mean.
    offsets: Vec<usize>,
    wide: Vec<Option<Arc<DeviceBuffer>>>,
    narrow: Vec<Option<Arc<DeviceBuffer>>>,
}

impl Weights {
    /// The address of what a plan has at a place of its flat buffer of parameters.
    pub fn address(&self, place: Address) -> u64 {
        let (buffers, bytes) = match place.buffer {
            Buffer::Parameters => (&self.wide, 4),
            Buffer::NarrowParameters => (&self.narrow, 2),
            buffer => unreachable!("{buffer:?} has no weights"),
        };
        let index = parameter_at(&self.offsets, place.byte / bytes);
        let buffer = buffers[index].as_ref().expect("every format that is read was noted when the work was built");
        buffer.start() + (place.byte - self.offsets[index] * bytes) as u64
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.wide.iter().chain(&self.narrow).flatten().map(|buffer| buffer.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_belongs_to_the_parameter_that_it_lies_in() {
        let mut graph = Graph::for_inference();
        for (name, values) in [("a", 3), ("b", 40), ("c", 16)] {
            graph.parameter(name, [values]).unwrap();
        }
        let offsets: Vec<usize> = graph.parameters().iter().map(|parameter| parameter.offset).collect();
        assert_eq!(offsets, [0, 16, 64]);
        let found: Vec<usize> = [0, 2, 16, 55, 64, 79].map(|float| parameter_at(&offsets, float)).to_vec();
        assert_eq!(found, [0, 0, 1, 1, 2, 2]);
        let mut needs = Needs::new(&graph);
        needs.add(&graph, Address { buffer: Buffer::Parameters, byte: 4 * 20 });
        needs.add(&graph, Address { buffer: Buffer::NarrowParameters, byte: 2 * 64 });
        needs.add(&graph, Address { buffer: Buffer::Arena, byte: 0 });
        assert_eq!(needs, Needs { wide: vec![false, true, false], narrow: vec![false, false, true] });
    }
}
