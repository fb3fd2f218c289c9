//! Weights on a device that do not change: each parameter in the formats that kernels read, once for all executors that share it.

use std::collections::HashMap;
use std::sync::Arc;

use half::bf16;

use super::device::Device;
use super::launch::{Address, Argument, Buffer, Launch};
use super::memory::DeviceBuffer;
use super::products::Product;
use super::quantised::Layout;
use super::target::is_product;
use crate::error::{Error, Result};
use crate::graph::{Graph, Parameter};
use crate::ops::Op;
use crate::precision::Precision;
use crate::types::DType;
use crate::weights::WeightView;

/// Values that are converted at once on their way to the device.
const PIECE: usize = 1 << 20;

/// A format in which kernels read a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Format {
    Wide,
    Narrow,
    /// As it is stored, in the order of a [`Layout`].
    Quantised,
}

impl Format {
    const ALL: [Format; 3] = [Format::Wide, Format::Narrow, Format::Quantised];

    /// The format that a buffer of a plan's addresses has, and bytes from one value to the next in these addresses.
    fn of(buffer: Buffer) -> Option<(Format, usize)> {
        match buffer {
            Buffer::Parameters => Some((Format::Wide, 4)),
            Buffer::NarrowParameters => Some((Format::Narrow, 2)),
            Buffer::QuantisedParameters => Some((Format::Quantised, 4)),
            _ => None,
        }
    }
}

/// Parameters on a device by name and format.
pub(crate) struct SharedWeights {
    known: HashMap<(String, Format), Arc<DeviceBuffer>>,
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
        let mut weights = Weights { offsets, buffers: Default::default() };
        for (index, parameter) in graph.parameters().iter().enumerate() {
            let mut given: Option<WeightView> = None;
            for format in Format::ALL {
                let buffers = &mut weights.buffers[format as usize];
                if !needs.of[format as usize][index] {
                    buffers.push(None);
                    continue;
                }
                let key = (parameter.name.clone(), format);
                if let Some(buffer) = self.known.get(&key) {
                    buffers.push(Some(Arc::clone(buffer)));
                    continue;
                }
                let view = match given.take() {
                    Some(view) => view,
                    None => values(parameter)?.into(),
                };
                parameter.check_count(view.len())?;
                let buffer = Arc::new(match format {
                    Format::Wide => upload(&self.device, &view, DType::F32)?,
                    Format::Narrow => upload(&self.device, &view, DType::Bf16)?,
                    Format::Quantised => upload_blocks(&self.device, parameter, &view)?,
                });
                given = Some(view);
                self.known.insert(key, Arc::clone(&buffer));
                buffers.push(Some(buffer));
            }
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

/// Copies quantised blocks to the device, in the order in which kernels read them.
fn upload_blocks(device: &Arc<Device>, parameter: &Parameter, view: &WeightView) -> Result<DeviceBuffer> {
    let Some(format) = parameter.blocks else { unreachable!("only such weights are read as blocks") };
    let layout = Layout::new(format, parameter.shape.rows(), parameter.shape.columns());
    let packed = layout.pack(parameter.blocks_of(format, view)?);
    let mut buffer = DeviceBuffer::new(device, layout.bytes())?;
    buffer.write(0, &packed)?;
    Ok(buffer)
}

/// Bytes of the weights that a plan's kernels read, each in its formats. (Vectors are counted in both: which of them a bias is
/// read in depends on what computes its product.)
pub(crate) fn weight_bytes(graph: &Graph) -> usize {
    let mut bytes: HashMap<(usize, Format), usize> = HashMap::new();
    for node in graph.nodes() {
        for (input, value) in node.inputs.iter().enumerate() {
            let Op::Parameter(op) = &graph.nodes()[graph.root_of(*value).node()].op else { continue };
            let values = op.shape.elements();
            let mut needs = |format, size| bytes.insert((op.index, format), size);
            let layout = Layout::of(graph, node).filter(|_| input == usize::from(matches!(node.op, Op::Linear(_))));
            let rounds = is_product(&node.op) && input < 2 && graph.precision() == Precision::Bf16;
            match layout {
                Some(layout) => needs(Format::Quantised, layout.bytes()),
                None if op.shape.rank() < 2 => needs(Format::Wide, 6 * values),
                None if rounds => needs(Format::Narrow, 2 * values),
                None => needs(Format::Wide, 4 * values),
            };
        }
    }
    bytes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// Which parameters kernels read, by format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    of: [Vec<bool>; 3],
}

impl Needs {
    /// None of a graph's parameters yet.
    pub fn new(graph: &Graph) -> Needs {
        let count = graph.parameters().len();
        Needs { of: Format::ALL.map(|_| vec![false; count]) }
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
        let Some((format, bytes)) = Format::of(place.buffer) else { return };
        let offsets: Vec<usize> = graph.parameters().iter().map(|parameter| parameter.offset).collect();
        self.of[format as usize][parameter_at(&offsets, place.byte / bytes)] = true;
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
    /// By format and parameter.
    buffers: [Vec<Option<Arc<DeviceBuffer>>>; 3],
}

impl Weights {
    /// The address of what a plan has at a place of its flat buffer of parameters.
    pub fn address(&self, place: Address) -> u64 {
        let Some((format, bytes)) = Format::of(place.buffer) else { unreachable!("{:?} has no weights", place.buffer) };
        let index = parameter_at(&self.offsets, place.byte / bytes);
        let buffer = self.buffers[format as usize][index]
            .as_ref()
            .expect("every format that is read was noted when the work was built");
        buffer.start() + (place.byte - self.offsets[index] * bytes) as u64
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.buffers.iter().flatten().flatten().map(|buffer| buffer.bytes()).sum()
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
        needs.add(&graph, Address { buffer: Buffer::QuantisedParameters, byte: 0 });
        let expected = [vec![false, true, false], vec![false, false, true], vec![true, false, false]];
        assert_eq!(needs, Needs { of: expected });
    }
}
