//! Matrix multiplications by cuBLASLt, and which of a node's steps become its epilogue; or by our own kernel, which
//! does all of them.
//!
//! cuBLASLt is column-major, we are row-major: a row-major `[rows, columns]` is its `columns x rows`. So `Y = X Wᵀ` is
//! computed as `Yᵀ = W Xᵀ`, with W transposed and X as it is.

use super::chip::Chip;
use super::few_rows::{self, FewRows};
use super::launch::{Address, Argument, Buffer, Building, Launch};
use super::quantised::{self, Layout};
use super::{hopper, pointwise, pools};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Value};
use crate::ops::{Activation, Op, Step};
use crate::precision::Precision;
use crate::types::{DType, Type};

/// One operand: its address, and its cuBLASLt layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Operand {
    pub place: Address,
    pub transposed: bool,
    /// Rows and columns in column-major order, before transposition; the leading dimension is the rows.
    pub rows: usize,
    pub columns: usize,
    /// Batch stride in values.
    pub stride: usize,
}

/// The epilogue of cuBLASLt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Epilogue {
    Nothing,
    /// Adds a bias to each row.
    Bias,
    /// Adds a bias, optionally stores the sum, and applies GELU with the tanh approximation.
    BiasGelu,
    /// Multiplies by that GELU's derivative at the stored sum.
    GeluGradient,
    /// Also sums the rows of the left operand.
    BiasGradient,
}

/// A matrix multiplication: `D = epilogue(A B + C)`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Product {
    pub operands: DType,
    pub result: DType,
    pub a: Operand,
    pub b: Operand,
    pub d: Operand,
    pub batch: usize,
    pub epilogue: Epilogue,
    /// C, with D's layout and dtype.
    pub added: Option<Address>,
    /// The bias, or the destination of its gradient; in D's dtype.
    pub bias: Option<Address>,
    /// The auxiliary buffer of GELU or its gradient, with D's layout.
    pub auxiliary: Option<Address>,
}

/// Decides how much of a node a multiplication does.
pub(super) trait Choice {
    /// Whether a multiplication is supported as it is.
    fn can_do(&self, product: &Product) -> bool;
    /// Whether a multiplication with an epilogue is faster than one without and a pass over this many bytes.
    fn is_faster(&self, product: &Product, other: &Product, bytes: usize) -> bool;
    /// The properties of the GPU.
    fn chip(&self) -> Chip;
    /// Whether our own kernel for the whole node is faster than a multiplication and the launches after it. None of the
    /// values that they read and write has more bytes than `largest`.
    fn kernel_is_faster(&self, kernel: &Launch, product: &Product, after: &[Launch], largest: usize) -> bool;
}

/// What computes a matrix multiplication node.
pub(super) enum Work {
    /// A multiplication, and launches before and after it.
    Product { before: Vec<Launch>, product: Box<Product>, after: Vec<Launch> },
    /// A single kernel.
    Kernel(Launch),
    /// The kernel for few rows.
    FewRows(FewRows),
}

/// Sizes of a multiplication in our order: `[m, k] · [k, n]`, and whether the stored operands are transposed.
pub(super) struct Sizes {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    pub transposed: [bool; 2],
    pub precision: Precision,
}

impl Sizes {
    pub fn of(graph: &Graph, node: &Node) -> Sizes {
        let shape = |index: usize| graph.shape_of(node.inputs[index]);
        let (rows, columns) = (shape(0).rows(), shape(0).columns());
        match &node.op {
            Op::Linear(op) => {
                let (n, k) = (shape(1).rows(), shape(1).columns());
                Sizes { m: rows, n, k, batch: 1, transposed: [false, true], precision: op.precision }
            }
            Op::LinearInputGradient(op) => {
                let (k, n) = (shape(1).rows(), shape(1).columns());
                Sizes { m: rows, n, k, batch: 1, transposed: [false, false], precision: op.precision }
            }
            Op::LinearWeightGradient(op) => {
                let n = shape(1).columns();
                Sizes { m: columns, n, k: rows, batch: 1, transposed: [true, false], precision: op.precision }
            }
            Op::MatMul(op) => {
                let (batch, m, n, k) = op.sizes(shape(0), shape(1)).expect("checked when the graph was built");
                Sizes { m, n, k, batch, transposed: [op.transpose_a, op.transpose_b], precision: op.precision }
            }
            _ => unreachable!("a product"),
        }
    }
}

/// Whether a value is a parameter, which has a bf16 copy if multiplications are in bf16.
fn is_parameter(graph: &Graph, value: Value) -> bool {
    matches!(graph.nodes()[graph.root_of(value).node()].op, Op::Parameter(_))
}

/// Bytes for the bias gradient, which the node of a weight gradient also computes, or for a quantised weight's values.
pub(super) fn workspace_bytes(graph: &Graph, node: &Node) -> usize {
    match node.op {
        Op::LinearWeightGradient(_) if node.outputs.len() > 1 => {
            pools::row_sum_bytes(graph, node, graph.shape_of(node.inputs[0]).columns())
        }
        Op::Linear(_)
            if Layout::of(graph, node).is_some() && Sizes::of(graph, node).m > few_rows::MOST_QUANTISED_ROWS =>
        {
            quantised::workspace_bytes(graph, node)
        }
        _ => 0,
    }
}

/// The address of a value in a dtype: parameters exist in both.
pub(super) fn place_as(building: &Building, value: Value, dtype: DType) -> Option<Address> {
    let (graph, place) = (building.graph(), building.place(value));
    if graph.type_of(value).dtype == dtype {
        return Some(place);
    }
    let rounded = dtype == DType::Bf16 && graph.precision() == Precision::Bf16 && is_parameter(graph, value);
    rounded.then_some(Address { buffer: Buffer::NarrowParameters, byte: place.byte / 2 })
}

/// A matrix multiplication node, and the launches after it.
pub(super) fn build(building: &Building, choice: &dyn Choice) -> Result<Work> {
    if let Some(few) = FewRows::new(building) {
        return Ok(Work::FewRows(few));
    }
    let (plain, before) = plain(building);
    if matches!(building.node().op, Op::LinearWeightGradient(_)) {
        return Ok(with_bias_gradient(building, plain, choice));
    }
    let fused = fusions(building, plain).into_iter().find(|fused| choice.can_do(&fused.product));
    let Some(Fused { product, steps }) = fused else {
        let path = &building.node().path;
        return Err(Error::Machine(format!("cuBLASLt has no way to compute the product `{path}` on this GPU")));
    };
    let after = match steps < building.node().steps.len() {
        true => vec![pointwise::apply(building, steps, Argument::Address(product.d.place), product.result)],
        false => Vec::new(),
    };
    // Its operands are where they always are.
    let kernel = if before.is_empty() { hopper::build(building, choice.chip()) } else { None };
    let (graph, node) = (building.graph(), building.node());
    let types = node.inputs.iter().map(|input| graph.type_of(*input)).chain(&node.outputs);
    let largest = types.map(Type::bytes).max().unwrap_or(0);
    Ok(match kernel.filter(|kernel| choice.kernel_is_faster(kernel, &product, &after, largest)) {
        Some(kernel) => Work::Kernel(kernel),
        None => Work::Product { before, product: Box::new(product), after },
    })
}

/// A multiplication, and the number of the node's first steps that it does.
#[derive(Clone)]
struct Fused {
    product: Product,
    steps: usize,
}

/// The multiplication without an epilogue, into the node's first output, and what must be launched before it: a quantised
/// weight is expanded.
fn plain(building: &Building) -> (Product, Vec<Launch>) {
    let (graph, node) = (building.graph(), building.node());
    let Sizes { m, n, k, batch, transposed: [first, second], precision } = Sizes::of(graph, node);
    let quantised = Layout::of(graph, node);
    let in_bf16 = precision == Precision::Bf16 || quantised.is_some();
    let operands = if in_bf16 { DType::Bf16 } else { DType::F32 };
    let mut before = Vec::new();
    let mut places = [0, 1].map(|input| place_as(building, node.inputs[input], operands));
    if let Some(layout) = quantised {
        let [weight, x] = quantised::expanded(building);
        before.push(quantised::expand(building, &layout));
        places[1] = Some(weight);
        if places[0].is_none() {
            before.push(pointwise::round(building, x));
            places[0] = Some(x);
        }
    }
    let place = |input: usize| places[input].expect("plans for the GPU round operands before products");
    let shared = |input: usize, values: usize| {
        // One matrix for the whole batch has stride 0.
        if batch > 1 && graph.shape_of(node.inputs[input]).elements() == values { 0 } else { values }
    };
    // cuBLASLt's left operand is our right one.
    let a = match second {
        false => Operand { place: place(1), transposed: false, rows: n, columns: k, stride: shared(1, n * k) },
        true => Operand { place: place(1), transposed: true, rows: k, columns: n, stride: shared(1, n * k) },
    };
    let b = match first {
        false => Operand { place: place(0), transposed: false, rows: k, columns: m, stride: shared(0, m * k) },
        true => Operand { place: place(0), transposed: true, rows: m, columns: k, stride: shared(0, m * k) },
    };
    let d = building.place(Value::new(building.index, 0));
    let product = Product {
        operands,
        result: building.output_type(0).dtype,
        a,
        b,
        d: Operand { place: d, transposed: false, rows: n, columns: m, stride: m * n },
        batch,
        epilogue: Epilogue::Nothing,
        added: None,
        bias: None,
        auxiliary: None,
    };
    (product, before)
}

/// A weight gradient, and the bias gradient if the node has it.
fn with_bias_gradient(building: &Building, product: Product, choice: &dyn Choice) -> Work {
    let alone = |product: Product| Work::Product { before: Vec::new(), product: Box::new(product), after: Vec::new() };
    if building.node().outputs.len() < 2 {
        return alone(product);
    }
    let bias = Some(building.place(Value::new(building.index, 1)));
    let fused = Product { epilogue: Epilogue::BiasGradient, bias, ..product.clone() };
    if choice.is_faster(&fused, &product, building.input_type(0).bytes()) {
        return alone(fused);
    }
    let columns = building.input_type(0).shape.columns();
    let after = pools::row_sum(building, columns, building.output(1), building.workspace());
    Work::Product { before: Vec::new(), product: Box::new(product), after }
}

/// The ways to compute a node, those with the fewest remaining steps first; the last is the multiplication alone.
fn fusions(building: &Building, plain: Product) -> Vec<Fused> {
    let mut found = vec![Fused { product: plain, steps: 0 }];
    let last = |found: &Vec<Fused>| found[found.len() - 1].clone();
    found.extend(with_bias(building, last(&found)));
    found.extend(with_gelu(building, last(&found)));
    found.extend(with_gelu_gradient(building, last(&found)));
    found.extend(with_addition(building, last(&found)));
    // If a step stores the value, the multiplication can write there, and the remaining steps read it.
    let stored = found.iter().filter_map(|fused| into_stored(building, fused.clone())).collect::<Vec<_>>();
    found.extend(stored);
    found.sort_by_key(|fused| std::cmp::Reverse(fused.steps));
    found
}

/// Whether an additional input has one value per column.
fn is_row(building: &Building, input: usize) -> bool {
    building.input_type(input).shape.elements() == building.output_type(0).shape.columns()
}

/// The first step adds a bias.
fn with_bias(building: &Building, before: Fused) -> Option<Fused> {
    let Some(&Step::Add { input }) = building.node().steps.get(before.steps) else { return None };
    let bias = place_as(building, building.node().inputs[input], before.product.result)?;
    let simple = before.product.batch == 1 && is_row(building, input);
    let product = Product { epilogue: Epilogue::Bias, bias: Some(bias), ..before.product };
    simple.then_some(Fused { product, steps: before.steps + 1 })
}

/// The bias is followed by GELU with the tanh approximation, possibly after storing its input.
fn with_gelu(building: &Building, before: Fused) -> Option<Fused> {
    if before.product.epilogue != Epilogue::Bias {
        return None;
    }
    let steps = &building.node().steps[before.steps..];
    let (auxiliary, used) = match *steps {
        [Step::Activation(Activation::GeluTanh), ..] => (None, 1),
        [Step::Round, Step::Activation(Activation::GeluTanh), ..] => (None, 2),
        [Step::Store { output }, Step::Round, Step::Activation(Activation::GeluTanh), ..]
            if building.output_type(output).dtype == before.product.result =>
        {
            (Some(building.place(Value::new(building.index, output))), 3)
        }
        _ => return None,
    };
    let product = Product { epilogue: Epilogue::BiasGelu, auxiliary, ..before.product };
    Some(Fused { product, steps: before.steps + used })
}

/// A gradient through that GELU.
fn with_gelu_gradient(building: &Building, before: Fused) -> Option<Fused> {
    if before.product.epilogue != Epilogue::Nothing || before.product.batch > 1 {
        return None;
    }
    let (input, used) = match building.node().steps[before.steps..] {
        [Step::ActivationGradient { activation: Activation::GeluTanh, input }, ..] => (input, 1),
        [Step::Round, Step::ActivationGradient { activation: Activation::GeluTanh, input }, ..] => (input, 2),
        _ => return None,
    };
    let kept = place_as(building, building.node().inputs[input], before.product.result)?;
    let product = Product { epilogue: Epilogue::GeluGradient, auxiliary: Some(kept), ..before.product };
    Some(Fused { product, steps: before.steps + used })
}

/// Adds a value of the result's shape, such as the residual. A rounding step before it is skipped: the sum is more
/// exact.
fn with_addition(building: &Building, before: Fused) -> Option<Fused> {
    if !matches!(before.product.epilogue, Epilogue::Nothing | Epilogue::Bias) {
        return None;
    }
    let (input, used) = match building.node().steps[before.steps..] {
        [Step::Add { input }, ..] => (input, 1),
        [Step::Round, Step::Add { input }, ..] => (input, 2),
        _ => return None,
    };
    let value = building.node().inputs[input];
    let same = building.input_type(input).shape.elements() == building.output_type(0).shape.elements();
    let added = Some(building.place(value)).filter(|_| building.input_type(input).dtype == before.product.result);
    let product = Product { added, ..before.product };
    (same && added.is_some()).then_some(Fused { product, steps: before.steps + used })
}

/// The next step stores the value in the multiplication's dtype: it can write there directly.
fn into_stored(building: &Building, before: Fused) -> Option<Fused> {
    // A later step must write the result itself.
    let [Step::Store { output }, _, ..] = building.node().steps[before.steps..] else { return None };
    if building.output_type(output).dtype != before.product.result || before.product.epilogue == Epilogue::BiasGelu {
        return None;
    }
    let place = building.place(Value::new(building.index, output));
    let product = Product { d: Operand { place, ..before.product.d }, ..before.product };
    Some(Fused { product, steps: before.steps + 1 })
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::cuda::chip::testing::A100;

    /// Everything is supported, and faster.
    pub struct All;

    impl Choice for All {
        fn can_do(&self, _: &Product) -> bool {
            true
        }
        fn is_faster(&self, _: &Product, _: &Product, _: usize) -> bool {
            true
        }
        fn chip(&self) -> Chip {
            A100
        }
        fn kernel_is_faster(&self, _: &Launch, _: &Product, _: &[Launch], _: usize) -> bool {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::All;
    use super::*;
    use crate::cuda::chip::testing::A100;
    use crate::cuda::target::{Built, Task, work_of};
    use crate::graph::Mode;
    use crate::ops::CrossEntropyOptions;
    use crate::plan::Plan;
    use crate::{GradientOptions, Group, Optimizer, StepOptions};

    /// No epilogues.
    struct Plain;

    impl Choice for Plain {
        fn can_do(&self, product: &Product) -> bool {
            product.epilogue == Epilogue::Nothing && product.added.is_none()
        }
        fn is_faster(&self, _: &Product, _: &Product, _: usize) -> bool {
            false
        }
        fn chip(&self) -> Chip {
            A100
        }
        fn kernel_is_faster(&self, _: &Launch, _: &Product, _: &[Launch], _: usize) -> bool {
            false
        }
    }

    fn products(plan: &Plan, choice: &dyn Choice) -> (Vec<Product>, usize) {
        let (tasks, _) = work_of(plan, choice).expect("all can be done");
        let launches = tasks.iter().filter(|task| matches!(task.built, Built::Launch(_))).count();
        let product = |task: Task| match task.built {
            Built::Product(product) => Some(*product),
            Built::Launch(_) => None,
        };
        (tasks.into_iter().filter_map(product).collect(), launches)
    }

    /// A training step of layers whose inputs are multiplied and added, the first one by the same multiplication.
    fn step(activation: Activation) -> Plan {
        let mut graph = Graph::new(Mode::Training, Precision::Bf16);
        let x = graph.input("x", [8, 16, 32], DType::F32).unwrap();
        let shapes = [("square", [32, 32]), ("wide", [64, 32]), ("narrow", [32, 64]), ("last", [64, 32])];
        let [square, wide, narrow, last] = shapes.map(|(name, shape)| {
            let bias = graph.parameter(&format!("{name}.bias"), [shape[0]]).unwrap();
            (graph.parameter(&format!("{name}.weight"), shape).unwrap(), bias)
        });
        let y = graph.linear(x, square.0, Some(square.1)).unwrap();
        let y = graph.add(y, x).unwrap();
        let hidden = graph.linear(y, wide.0, Some(wide.1)).unwrap();
        let hidden = graph.activation(hidden, activation).unwrap();
        let narrowed = graph.linear(hidden, narrow.0, Some(narrow.1)).unwrap();
        let y = graph.add(narrowed, y).unwrap();
        let logits = graph.linear(y, last.0, Some(last.1)).unwrap();
        let labels = graph.input("labels", [8, 16], DType::I32).unwrap();
        let loss = graph.cross_entropy(logits, labels, CrossEntropyOptions::default()).unwrap();
        let options = StepOptions {
            optimizer: Optimizer::adamw(),
            group: &|_| Some(Group { decay: 0.0, rate_factor: 1.0 }),
            clip: Some(1.0),
            ema: false,
            gradient: GradientOptions::default(),
        };
        graph.training_step(loss, &options).unwrap();
        Plan::for_cuda(&graph, &[loss]).unwrap()
    }

    #[test]
    fn operands_are_rounded_once_whatever_else_reads_them() {
        for activation in [Activation::Gelu, Activation::GeluTanh] {
            let plan = step(activation);
            let (found, _) = products(&plan, &Plain);
            assert_eq!(found.len(), 11, "four products forward, and twice as many back but for the input's gradient");
            assert!(found.iter().all(|product| product.operands == DType::Bf16));
            let x = plan.graph().inputs().find(|(name, _)| *name == "x").unwrap().1;
            let readers = plan.graph().nodes().iter().filter(|node| node.inputs.contains(&x));
            let casts = readers.clone().filter(|node| matches!(node.op, Op::Pointwise(_))).count();
            // One node rounds it; the multiplication that reads it also adds the unrounded value.
            assert_eq!((casts, readers.count()), (1, 2));
        }
    }

    #[test]
    fn cublaslt_does_what_it_can() {
        let (plain, more) = products(&step(Activation::GeluTanh), &Plain);
        let (fused, fewer) = products(&step(Activation::GeluTanh), &All);
        assert!(plain.iter().all(|product| product.bias.is_none() && product.auxiliary.is_none()));
        let count = |epilogue: Epilogue| fused.iter().filter(|product| product.epilogue == epilogue).count();
        assert_eq!([Epilogue::BiasGelu, Epilogue::GeluGradient, Epilogue::BiasGradient].map(count), [1, 1, 4]);
        assert!(fused.iter().any(|product| product.added.is_some() && product.epilogue == Epilogue::Bias));
        assert!(fewer < more, "{fewer} and {more} kernels");
        // Exact GELU is not one of its epilogues.
        let (fused, _) = products(&step(Activation::Gelu), &All);
        assert!(fused.iter().all(|product| product.auxiliary.is_none()));
    }

    #[test]
    fn a_norm_that_is_rounded_is_stored_so_and_added_to_the_product_as_it_is() {
        let mut graph = Graph::new(Mode::Inference, Precision::Bf16);
        let x = graph.input("x", [64, 32], DType::F32).unwrap();
        let [scale, shift] = ["scale", "shift"].map(|name| graph.parameter(name, [32]).unwrap());
        let weight = graph.parameter("weight", [32, 32]).unwrap();
        let normed = graph.layer_norm(x, scale, shift, 1e-5).unwrap();
        let rounded = graph.cast(normed, DType::Bf16).unwrap();
        let y = graph.linear(rounded, weight, None).unwrap();
        let sum = graph.add(rounded, y).unwrap();
        let sum = graph.layer_norm(sum, scale, shift, 1e-5).unwrap();
        let plan = Plan::for_cuda(&graph, &[sum]).unwrap();
        let norms = plan.graph().nodes().iter().filter(|node| matches!(node.op, Op::LayerNorm(_)));
        assert_eq!(norms.map(|node| node.outputs[0].dtype).collect::<Vec<_>>(), [DType::Bf16, DType::F32]);
        assert!(!plan.graph().nodes().iter().any(|node| matches!(node.op, Op::Pointwise(_))));
        let (found, _) = products(&plan, &All);
        assert!(found[0].added.is_some() && found[0].result == DType::Bf16);
    }
}
