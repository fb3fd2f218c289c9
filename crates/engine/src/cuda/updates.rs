//! The end of a training step, on the flat buffers: gradient norm, AdamW, SGD, LAMB, Muon, EMA; and gradient accumulation.

use super::launch::{Address, Argument, Buffer, Building, Launch, blocks, c_type, source};
use crate::graph::{Graph, Node, Parameter};
use crate::ops::{Group, Op};

const KERNEL: &str = include_str!("kernels/update.cu");
const BLOCK: usize = 256;
/// Values per piece, which one block processes.
const PIECE: usize = 16_384;
/// Bytes per piece in its table: `struct Piece` of the kernel.
const PIECE_BYTES: usize = 40;

/// Lookup tables of kernels, in one buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub bytes: Vec<u8>,
}

impl Tables {
    /// Appends a table, or finds an equal one.
    fn add(&mut self, table: &[u8]) -> Argument {
        let there = self.bytes.windows(table.len().max(1)).step_by(16).position(|part| part == table);
        let byte = there.map_or(self.bytes.len(), |place| 16 * place);
        if there.is_none() {
            self.bytes.extend_from_slice(table);
            self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        }
        Argument::Address(Address { buffer: Buffer::Tables, byte })
    }
}

/// Bytes of workspace of a node: partial sums, in f64.
pub(super) fn workspace_bytes(graph: &Graph, node: &Node) -> usize {
    match &node.op {
        Op::GradientNorm(_) => 8 * piece_count(graph.parameters()),
        Op::Lamb(_) => 16 * piece_count(graph.parameters()),
        Op::MuonDirection(op) => {
            let length = node.outputs[0].shape.elements() / op.matrices.max(1);
            8 * op.matrices * length.div_ceil(PIECE)
        }
        _ => 0,
    }
}

fn piece_count(table: &[Parameter]) -> usize {
    let trained = table.iter().filter(|parameter| parameter.gradient_offset.is_some());
    trained.map(|parameter| parameter.shape.elements().div_ceil(PIECE)).sum()
}

/// The trained parameters, or those of them that have a group, split into pieces, as bytes of the kernel's struct.
fn pieces(table: &[Parameter], groups: Option<&[Option<Group>]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, parameter) in table.iter().enumerate() {
        let Some(gradient) = parameter.gradient_offset else { continue };
        let group = match groups {
            None => Group { decay: 0.0, rate_factor: 1.0 },
            Some(groups) => match groups[index] {
                Some(group) => group,
                None => continue,
            },
        };
        let elements = parameter.shape.elements();
        for start in (0..elements).step_by(PIECE) {
            bytes.extend(((parameter.offset + start) as u64).to_le_bytes());
            bytes.extend(((gradient + start) as u64).to_le_bytes());
            bytes.extend((PIECE.min(elements - start) as u32).to_le_bytes());
            bytes.extend((index as u32).to_le_bytes());
            bytes.extend(group.decay.to_le_bytes());
            bytes.extend(group.rate_factor.to_le_bytes());
        }
    }
    debug_assert!(bytes.len().is_multiple_of(PIECE_BYTES));
    bytes
}

fn whole(buffer: Buffer) -> Argument {
    Argument::Address(Address { buffer, byte: 0 })
}

/// A parameter's part of a buffer that is as long as that of the gradients.
fn flat(parameter: &Parameter, buffer: Buffer) -> Argument {
    let float = parameter.gradient_offset.expect("a trained parameter has a gradient");
    Argument::Address(Address { buffer, byte: 4 * float })
}

/// A double literal that C reads back exactly.
fn double(value: f64) -> String {
    format!("__longlong_as_double(0x{:016x}ll)", value.to_bits())
}

struct Builder {
    constants: Vec<(&'static str, String)>,
}

impl Builder {
    fn launch(&self, entry: &'static str, blocks: u32, arguments: Vec<Argument>) -> Launch {
        let source = source(&self.constants, "", KERNEL);
        Launch { source, entry, grid: [blocks, 1, 1], block: BLOCK as u32, shared_bytes: 0, arguments }
    }
}

/// A node of the end of a step. `narrow` says whether there is a bf16 copy of the parameters, which updates maintain.
pub(super) fn build(building: &Building, tables: &mut Tables, narrow: bool) -> Vec<Launch> {
    let parameters = building.graph().parameters();
    let count = match &building.node().op {
        // Muon's matrices are none of AdamW's.
        Op::AdamW(op) => pieces(parameters, Some(&op.groups)).len() / PIECE_BYTES,
        _ => piece_count(parameters),
    } as u32;
    let narrow = if narrow { whole(Buffer::NarrowParameters) } else { Argument::Nothing };
    let mut constants = vec![("PIECES", format!("{count}u"))];
    let usual =
        [("RULE", "0"), ("SCALED", "0"), ("CLIPS", "0"), ("CLIP", "0.0"), ("VALUES", "0ull"), ("GRADIENT", "float")];
    let mut set = |pairs: &[(&'static str, String)]| {
        constants.extend_from_slice(pairs);
        let given: Vec<&str> = constants.iter().map(|(name, _)| *name).collect();
        let others = usual.iter().filter(|(name, _)| !given.contains(name));
        let others: Vec<(&'static str, String)> = others.map(|(name, value)| (*name, value.to_string())).collect();
        constants.extend(others);
    };
    let rates = [building.input(0), building.input(1)];
    match &building.node().op {
        Op::GradientNorm(op) => {
            set(&[
                ("SCALED", u8::from(op.scaled).to_string()),
                ("CLIPS", u8::from(op.clip.is_some()).to_string()),
                ("CLIP", double(op.clip.unwrap_or(0.0))),
            ]);
            let builder = Builder { constants };
            let (pieces, sums) = (tables.add(&pieces(parameters, None)), building.workspace());
            let results = vec![sums, building.input(0), building.output(0), building.output(1)];
            vec![
                builder.launch("square_sums", count, vec![pieces, whole(Buffer::Gradients), sums]),
                builder.launch("gradient_norm", 1, results),
            ]
        }
        Op::AdamW(op) => {
            set(&[
                ("RULE", "1".into()),
                ("BETA1", double(op.beta1)),
                ("BETA2", double(op.beta2)),
                ("EPS", double(op.eps)),
            ]);
            let builder = Builder { constants };
            let buffers = [Buffer::Gradients, Buffer::First, Buffer::Second].map(whole);
            let mut arguments =
                vec![tables.add(&pieces(parameters, Some(&op.groups))), whole(Buffer::Parameters), narrow];
            arguments.extend(buffers.into_iter().chain(rates).chain([building.run()]));
            vec![builder.launch("adamw", count, arguments)]
        }
        Op::Sgd(op) => {
            set(&[
                ("RULE", "2".into()),
                ("MOMENTUM", double(op.momentum)),
                ("HAS_MOMENTUM", u8::from(op.momentum != 0.0).to_string()),
                ("NESTEROV", u8::from(op.nesterov).to_string()),
            ]);
            let builder = Builder { constants };
            let mut arguments =
                vec![tables.add(&pieces(parameters, Some(&op.groups))), whole(Buffer::Parameters), narrow];
            arguments
                .extend([Buffer::Gradients, Buffer::First].map(whole).into_iter().chain(rates).chain([building.run()]));
            vec![builder.launch("sgd", count, arguments)]
        }
        Op::Lamb(op) => {
            set(&[
                ("RULE", "3".into()),
                ("TRUST_CLIP", u8::from(op.trust_clip).to_string()),
                ("BETA1", double(op.beta1)),
                ("BETA2", double(op.beta2)),
                ("EPS", double(op.eps)),
            ]);
            let builder = Builder { constants };
            let (table, sums) = (tables.add(&pieces(parameters, Some(&op.groups))), building.workspace());
            let [gradients, first, second] = [Buffer::Gradients, Buffer::First, Buffer::Second].map(whole);
            let p = whole(Buffer::Parameters);
            let moments = vec![table, p, gradients, first, second, sums, rates[1], building.run()];
            let moves = vec![table, p, narrow, first, second, sums, rates[0], rates[1], building.run()];
            vec![builder.launch("lamb_moments", count, moments), builder.launch("lamb_move", count, moves)]
        }
        Op::MuonDirection(op) => {
            let length = building.node().outputs[0].shape.elements() / op.matrices;
            let pieces = length.div_ceil(PIECE);
            let (new, old) = (double(1.0 - op.momentum), double(op.momentum));
            set(&[
                ("RULE", "4".into()),
                ("NEW", new),
                ("OLD", old),
                ("NESTEROV", u8::from(op.nesterov).to_string()),
                ("MATRIX", format!("{length}ull")),
                ("MATRIX_PIECES", format!("{pieces}u")),
            ]);
            let builder = Builder { constants };
            let at = flat(&parameters[op.parameter], Buffer::Gradients);
            let first = flat(&parameters[op.parameter], Buffer::First);
            let (direction, sums) = (building.output(0), building.workspace());
            let blocks = (op.matrices * pieces) as u32;
            vec![
                builder.launch("muon_direction", blocks, vec![at, first, direction, sums, building.input(0)]),
                builder.launch("muon_normalise", blocks, vec![direction, sums]),
            ]
        }
        Op::MuonUpdate(op) => {
            let parameter = &parameters[op.parameter];
            let values = parameter.shape.elements();
            set(&[
                ("RULE", "5".into()),
                ("NEW", double(1.0 - op.momentum)),
                ("DECAY", double(op.group.decay)),
                ("RATE_FACTOR", double(op.group.rate_factor)),
                ("SCALE", double(op.scale)),
                ("VALUES", format!("{values}ull")),
            ]);
            let builder = Builder { constants };
            let offset =
                |buffer: Buffer, bytes: usize| Argument::Address(Address { buffer, byte: bytes * parameter.offset });
            let narrow = match narrow {
                Argument::Nothing => Argument::Nothing,
                _ => offset(Buffer::NarrowParameters, 2),
            };
            let mut arguments = vec![offset(Buffer::Parameters, 4), narrow];
            arguments.extend([Buffer::Gradients, Buffer::First].map(|buffer| flat(parameter, buffer)));
            arguments.extend([building.input(2), rates[0], rates[1]]);
            vec![builder.launch("muon", blocks(values, BLOCK), arguments)]
        }
        Op::Ema(_) => {
            let values = building.graph().parameter_floats();
            set(&[("VALUES", format!("{values}ull"))]);
            let builder = Builder { constants };
            let arguments = vec![whole(Buffer::Parameters), whole(Buffer::Average), rates[0], rates[1]];
            vec![builder.launch("average", blocks(values / 4, BLOCK), arguments)]
        }
        Op::AccumulateGradient(op) => {
            let gradient = building.input_type(1);
            let values = gradient.shape.elements();
            set(&[("VALUES", format!("{values}ull")), ("GRADIENT", c_type(gradient.dtype))]);
            let builder = Builder { constants };
            let float = parameters[op.parameter].gradient_offset.expect("an accumulated gradient has a place");
            let sum = Argument::Address(Address { buffer: Buffer::Gradients, byte: 4 * float });
            vec![builder.launch("accumulate", blocks(values, BLOCK), vec![building.input(0), building.input(1), sum])]
        }
        _ => unreachable!("an op that ends a step"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::cuda::norms::testing::check;
    use crate::graph::Mode;
    use crate::{DType, GradientOptions, Optimizer, Precision, StepOptions};

    #[test]
    fn every_update_compiles() {
        let lamb = |trust_clip| Optimizer::Lamb { beta1: 0.9, beta2: 0.99, eps: 1e-6, trust_clip };
        let sgd = |momentum| Optimizer::Sgd { momentum, nesterov: momentum > 0.0 };
        for optimizer in [Optimizer::adamw(), sgd(0.0), sgd(0.9), lamb(false), lamb(true), Optimizer::muon()] {
            for precision in [Precision::F32, Precision::Bf16] {
                let mut graph = Graph::new(Mode::Training, precision);
                let x = graph.input("x", [4, 8], DType::F32).unwrap();
                let weight = graph.parameter("weight", [8, 8]).unwrap();
                let y = graph.linear(x, weight, None).unwrap();
                let loss = graph.sum_leading(y, &[][..]).unwrap();
                let options = StepOptions {
                    optimizer,
                    group: &|_| Some(Group { decay: 0.1, rate_factor: 1.0 }),
                    clip: Some(1.0),
                    ema: true,
                    gradient: GradientOptions::default(),
                };
                graph.accumulation_step(loss, &options).unwrap();
                let (update, _) = graph.update_step(&options).unwrap();
                let tables = RefCell::new(Tables::default());
                for graph in [&graph, &update] {
                    let own = |op: &Op| op.has_effect() || matches!(op, Op::GradientNorm(_) | Op::MuonDirection(_));
                    let launches =
                        |building: &Building| build(building, &mut tables.borrow_mut(), precision == Precision::Bf16);
                    assert!(check(graph, &[], &own, &workspace_bytes, &launches).launches > 0);
                }
            }
        }
    }
}
