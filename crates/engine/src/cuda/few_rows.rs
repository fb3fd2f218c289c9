//! Matrix multiplication with few rows, as in decoding, where reading the weights takes all the time: each is read once, by
//! whole lines, straight into the registers of the tensor cores, and while the previous kernel is still running. All of a
//! node's steps are the epilogue. Weights are bf16, or stay quantised.

use std::fmt::Write;

use super::launch::{Address, Argument, Buffer, Building, Launch, c_type, source};
use super::products::{Sizes, place_as};
use super::quantised::Layout;
use super::steps::{self, Steps, float};
use crate::graph::{Graph, Node, Value};
use crate::ops::{Op, Step};
use crate::precision::Precision;
use crate::types::DType;

const KERNEL: &str = include_str!("kernels/few_rows.cu");
const QUANTISED_PRODUCTS: &str = include_str!("kernels/quantised_products.cu");
/// The most rows. Beyond, a multiplication reads the left operand too often for this kernel, and cuBLASLt is faster; quantised
/// weights would have to be expanded for it, which takes longer.
const MOST_ROWS: usize = 16;
pub(super) const MOST_QUANTISED_ROWS: usize = 32;
/// The most rows that each block normalises for itself.
const MOST_NORMALISED: usize = 4;
/// Columns per warp, as in the kernel: the height of a tile of the tensor cores.
const TILE: usize = 16;
/// Values of a span, as in the kernel: what a warp loads of each row at once.
const SPAN: usize = 128;
/// The most warps of a block.
const MOST_WARPS: usize = 8;
/// The left operand is staged in shared memory up to this many bytes: more would take longer than to read it where it is, again
/// and again.
const MOST_STAGED: usize = 72 << 10;

/// A launch of the kernel: one matrix, or several that are multiplied with the same rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FewRows {
    rows: usize,
    depth: usize,
    x: Address,
    x_type: DType,
    /// The weight and epsilon of an RMSNorm of X that is part of it.
    norm: Option<(Address, f32)>,
    to_type: DType,
    quantised: Option<Layout>,
    fixed: bool,
    parts: Vec<Part>,
    /// The steps of each phase of its only part; none, if there are several parts.
    steps: Vec<Option<Steps>>,
    run: Argument,
}

/// A matrix and its result, for each phase.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    phases: Vec<(Address, Address)>,
    columns: usize,
}

/// Whether the kernel multiplies a linear layer, whose weight is quantised or, with products in bf16, is not. Its rows must be
/// whole pieces.
fn suits(graph: &Graph, node: &Node) -> bool {
    if !matches!(node.op, Op::Linear(_)) {
        return false;
    }
    let Sizes { m: rows, n: columns, k: depth, precision, .. } = Sizes::of(graph, node);
    let most = match (Layout::of(graph, node), precision) {
        (Some(_), _) => MOST_QUANTISED_ROWS,
        (None, Precision::Bf16) => MOST_ROWS,
        (None, Precision::F32) => 0,
    };
    rows <= most && depth.is_multiple_of(32) && rows * columns * depth > 0
}

/// Whether all that read an RMSNorm's result are products of this kernel, which then normalise by themselves: a launch less.
/// What is normalised must stay in memory until then, as a residual stream does.
pub(super) fn absorbs_norm(building: &Building) -> bool {
    let (graph, node) = (building.graph(), building.node());
    let (Op::RmsNorm(_), [x, _]) = (&node.op, node.inputs.as_slice()) else { return false };
    let results = [0, 1].map(|output| Value::new(building.index, output));
    let readers_of = |value: Value| {
        let reads = move |(_, node): &(usize, &Node)| node.inputs.contains(&value);
        graph.nodes().iter().enumerate().filter(reads)
    };
    let multiplies = |(_, reader): (usize, &Node)| {
        suits(graph, reader)
            && reader.inputs[0] == results[0]
            && reader.inputs[1..].iter().all(|&input| input != results[0])
    };
    let last = readers_of(results[0]).map(|(index, _)| index).max();
    let input = graph.type_of(*x);
    let (rows, depth) = (input.shape.rows(), input.shape.columns());
    node.steps.is_empty()
        && input.dtype == DType::F32
        && rows <= MOST_NORMALISED
        && rows * staged_bytes(depth) <= MOST_STAGED
        && readers_of(results[0]).all(multiplies)
        && readers_of(results[1]).next().is_none()
        && results.iter().all(|result| !building.plan.outputs().contains(result))
        && last.is_some_and(|last| readers_of(*x).any(|(index, _)| index > last))
}

/// Bytes from one row of X to the next in shared memory: 64 off a multiple of 128, so that eight rows are read without conflicts.
fn staged_bytes(values: usize) -> usize {
    2 * values.next_multiple_of(SPAN) + 64
}

impl FewRows {
    /// A matrix multiplication node, if the kernel supports it.
    pub fn new(building: &Building) -> Option<FewRows> {
        let (graph, node) = (building.graph(), building.node());
        if !suits(graph, node) {
            return None;
        }
        let Sizes { m: rows, n: columns, k: depth, .. } = Sizes::of(graph, node);
        let quantised = Layout::of(graph, node);
        // Rounded, if that value exists; the kernel rounds otherwise.
        let (mut x, mut x_type) = match place_as(building, node.inputs[0], DType::Bf16) {
            Some(place) => (place, DType::Bf16),
            None => (building.place(node.inputs[0]), building.input_type(0).dtype),
        };
        let producer = Building { index: node.inputs[0].node(), ..*building };
        let mut norm = None;
        if let Op::RmsNorm(op) = &producer.node().op
            && absorbs_norm(&producer)
        {
            (x, x_type) = (producer.place(producer.node().inputs[0]), DType::F32);
            norm = Some((producer.place(producer.node().inputs[1]), op.eps));
        }
        let weight = match &quantised {
            Some(_) => Address { buffer: Buffer::QuantisedParameters, ..building.place(node.inputs[1]) },
            None => place_as(building, node.inputs[1], DType::Bf16)?,
        };
        assert!(x.byte.is_multiple_of(16) && weight.byte.is_multiple_of(16), "values begin at multiples of 64 bytes");
        Some(FewRows {
            rows,
            depth,
            x,
            x_type,
            norm,
            to_type: building.output_type(0).dtype,
            quantised,
            fixed: weights_are_fixed(graph),
            parts: vec![Part { phases: vec![(weight, building.place(Value::new(building.index, 0)))], columns }],
            steps: vec![(!node.steps.iter().all(is_round)).then(|| steps::unrounded(building))],
            run: building.run(),
        })
    }

    /// Both in one launch, if they multiply the same rows with matrices of one form, and if the second can be computed
    /// sooner: nothing that the first reads lies where it writes. They become parts or, if they have steps and as many columns,
    /// phases.
    pub fn join(&self, next: &FewRows) -> Option<FewRows> {
        let same = |one: &FewRows| {
            (one.rows, one.depth, one.x, one.norm, one.x_type, one.to_type, one.quantised.map(Layout::form))
        };
        let is_apart = |part: &Part| {
            let bytes = next.rows * part.columns * next.to_type.bytes();
            let x_bytes = self.rows * self.depth * self.x_type.bytes();
            part.phases.iter().all(|(_, to)| !to.overlaps(bytes, self.x, x_bytes))
        };
        if same(self) != same(next) || !next.parts.iter().all(is_apart) {
            return None;
        }
        let have_no_steps = [self, next].iter().all(|one| one.steps == [None]);
        match (self.parts.as_slice(), next.parts.as_slice()) {
            (parts, next_parts) if have_no_steps => {
                Some(FewRows { parts: [parts, next_parts].concat(), ..self.clone() })
            }
            ([part], [next_part]) if part.columns == next_part.columns && self.steps.len() == 1 => {
                let phases = [part.phases.as_slice(), &next_part.phases].concat();
                let steps = [self.steps.as_slice(), &next.steps].concat();
                Some(FewRows { parts: vec![Part { phases, columns: part.columns }], steps, ..self.clone() })
            }
            _ => None,
        }
    }

    pub fn launch(self) -> Launch {
        let FewRows { rows, depth, quantised, .. } = self;
        let (staged, warps) = (staged_bytes(depth), MOST_WARPS.min(depth.div_ceil(SPAN).next_power_of_two()));
        let stages = rows * staged <= MOST_STAGED;
        let tiles = rows.div_ceil(8);
        let by_four = self.parts.iter().all(|part| part.columns.is_multiple_of(4));
        let mut constants = vec![
            ("ROWS", rows.to_string()),
            ("DEPTH", depth.to_string()),
            ("WARPS", warps.to_string()),
            ("NORM", usize::from(self.norm.is_some()).to_string()),
            ("EPS", float(self.norm.map_or(0.0, |(_, eps)| eps))),
            ("SAMPLE_TILES", tiles.to_string()),
            ("X_TYPE", c_type(self.x_type)),
            ("X_SHARED", if stages { staged } else { 0 }.to_string()),
            ("TO", c_type(self.to_type)),
            ("VECTOR", if by_four { 4 } else { 1 }.to_string()),
            ("FIXED", usize::from(self.fixed).to_string()),
            ("QUANTISED", usize::from(quantised.is_some()).to_string()),
            ("WEIGHT_TYPE", if quantised.is_some() { "unsigned char" } else { "bf16" }.to_string()),
        ];
        constants.extend(self.parts_text());
        let gamma = self.norm.map_or(Argument::Nothing, |(gamma, _)| Argument::Address(gamma));
        let mut arguments = vec![Argument::Address(self.x), gamma, self.run];
        let places = self.parts.iter().flat_map(|part| &part.phases).flat_map(|&(weight, to)| [weight, to]);
        arguments.extend(places.map(Argument::Address));
        let (mut generated, mut parameters, mut apply) = (String::new(), String::new(), String::new());
        for (phase, steps) in self.steps.iter().enumerate() {
            generated += &in_phase(steps.as_ref().map_or(steps::NONE, |steps| &steps.text), phase);
            let _ = write!(parameters, " STEP_PARAMETERS_{phase}");
            let call = format!("phase_{phase}::apply_steps<VECTOR>(values, row, column, run STEP_ARGUMENTS_{phase})");
            let _ = write!(apply, "if (phase == {phase}) {call}; ");
            arguments.extend(steps.iter().flat_map(|steps| steps.arguments.clone()));
        }
        constants.extend([
            ("PHASES", self.steps.len().to_string()),
            ("PHASE_PARAMETERS", parameters),
            ("APPLY_STEPS", apply),
        ]);
        if let Some(layout) = quantised {
            constants.extend(layout.constants());
            generated += &[Layout::TEXT, QUANTISED_PRODUCTS].concat();
        }
        let shared = warps * TILE * 8 * tiles * 4 + if stages { rows * staged } else { 0 };
        let blocks: usize = self.parts.iter().map(|part| part.columns.div_ceil(TILE)).sum();
        Launch {
            source: source(&constants, &generated, KERNEL),
            entry: "few_rows",
            grid: [blocks as u32, 1, 1],
            block: 32 * warps as u32,
            shared_bytes: shared as u32,
            arguments,
        }
    }

    /// The parts as parameters, as arguments, and the code that finds a block's.
    fn parts_text(&self) -> [(&'static str, String); 3] {
        let (mut parameters, mut arguments, mut pick, mut first) = (String::new(), String::new(), String::new(), 0);
        for (index, part) in self.parts.iter().enumerate() {
            let blocks = part.columns.div_ceil(TILE);
            let names = |what: &str| -> Vec<String> {
                (0..part.phases.len()).map(|phase| format!("{what}_{index}_{phase}")).collect()
            };
            let (weights, results) = (names("weight"), names("to"));
            for (weight, to) in weights.iter().zip(&results) {
                let _ = write!(parameters, ", const WEIGHT_TYPE* {weight}, TO* {to}");
                let _ = write!(arguments, ", {weight}, {to}");
            }
            if index + 1 < self.parts.len() {
                let _ = write!(pick, "if (block < {}) ", first + blocks);
            }
            let (weights, results) = (weights.join(", "), results.join(", "));
            let place = format!("{}, (block - {first}) * TILE", part.columns);
            let _ = write!(pick, "return {{{{{weights}}}, {{{results}}}, {place}}}; ");
            first += blocks;
        }
        [("PART_PARAMETERS", parameters), ("PART_ARGUMENTS", arguments), ("PICK_PART", pick)]
    }
}

/// The source of steps with the names of a phase.
fn in_phase(text: &str, phase: usize) -> String {
    let names = [("STEP_PARAMETERS", "STEP_PARAMETERS_"), ("STEP_ARGUMENTS", "STEP_ARGUMENTS_")];
    let text = names.iter().fold(text.to_string(), |text, (name, own)| text.replace(name, &format!("{own}{phase}")));
    format!("namespace phase_{phase} {{\n{}}}\n", text.replace("step_", &format!("step_{phase}_")))
}

fn is_round(step: &Step) -> bool {
    matches!(step, Step::Round)
}

/// Whether no kernel of a plan changes weights, so that they can be read before previous kernels have ended.
fn weights_are_fixed(graph: &Graph) -> bool {
    !graph.nodes().iter().any(|node| node.op.changes_parameters())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::blocks::BlockFormat;
    use crate::cuda::compile::testing::{ARCHITECTURES, compile_all};
    use crate::cuda::products::testing::All;
    use crate::cuda::target::{Built, work_of};
    use crate::graph::Mode;
    use crate::ops::Activation;
    use crate::plan::Plan;

    #[derive(Clone, Copy)]
    struct Case {
        rows: usize,
        precision: Precision,
        format: Option<BlockFormat>,
    }

    /// The launches of a gated feed-forward block, with its norm and residual.
    fn launches(case: Case) -> Vec<Launch> {
        let mut graph = Graph::new(Mode::Inference, case.precision);
        let x = graph.input("x", [case.rows, 1024], DType::F32).unwrap();
        let shapes = [("gate", [1280, 1024]), ("up", [1280, 1024]), ("down", [1024, 1280])];
        let [gate, up, down] = shapes.map(|(name, shape)| graph.parameter(name, shape).unwrap());
        let gamma = graph.parameter("gamma", [1024]).unwrap();
        let seen = graph.rms_norm(x, gamma, 1e-5).unwrap();
        let gate = graph.linear(seen, gate, None).unwrap();
        let gate = graph.activation(gate, Activation::Silu).unwrap();
        let up = graph.linear(seen, up, None).unwrap();
        let hidden = graph.multiply(gate, up).unwrap();
        let y = graph.linear(hidden, down, None).unwrap();
        let y = graph.add(x, y).unwrap();
        graph.store_weights(|name| case.format.filter(|_| name != "gamma"));
        let plan = Plan::for_cuda(&graph, &[y]).unwrap();
        let work = work_of(&plan, &All).unwrap().0.into_iter();
        work.filter_map(|task| if let Built::Launch(launch) = task.built { Some(launch) } else { None }).collect()
    }

    fn count(launches: &[Launch], entry: &str) -> usize {
        launches.iter().filter(|launch| launch.entry == entry).count()
    }

    #[test]
    fn few_rows_have_a_kernel_with_all_steps() {
        let mut texts = HashSet::new();
        // Gate and up are phases of one launch.
        for (rows, few, norms) in [(1, 2, 0), (4, 2, 0), (5, 2, 1), (9, 2, 1), (16, 2, 1), (17, 0, 1)] {
            let case = Case { rows, precision: Precision::Bf16, format: None };
            let all = launches(case);
            assert_eq!([count(&all, "few_rows"), count(&all, "normalize")], [few, norms], "{rows} rows");
            assert_eq!(all.iter().filter(|launch| launch.source.contains("silu(v[i])")).count(), 1);
            texts.extend(all.into_iter().map(|launch| launch.source));
            assert_eq!(count(&launches(Case { precision: Precision::F32, ..case }), "few_rows"), 0);
        }
        compile_all(&texts, &ARCHITECTURES);
    }

    #[test]
    fn quantised_weights_are_multiplied_as_they_are_or_expanded() {
        let mut texts = HashSet::new();
        for format in BlockFormat::ALL {
            for precision in [Precision::F32, Precision::Bf16] {
                let [few, many] = [3, 40].map(|rows| launches(Case { rows, precision, format: Some(format) }));
                assert_eq!([count(&few, "few_rows"), count(&few, "expand")], [2, 0]);
                assert_eq!([count(&many, "few_rows"), count(&many, "expand")], [0, 3]);
                texts.extend(few.into_iter().chain(many).map(|launch| launch.source));
            }
        }
        compile_all(&texts, &ARCHITECTURES);
    }
}
