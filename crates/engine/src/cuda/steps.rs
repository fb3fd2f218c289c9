//! Elementwise steps as CUDA source: a node's steps become a function of its kernel.
//!
//! A kernel calls `apply_steps(values, row, column, run STEP_ARGUMENTS)` with adjacent values of a row in registers,
//! and has `STEP_PARAMETERS` at the end of its own parameters. Operands can be loaded earlier, by `read_operands`, to
//! overlap with other work of the kernel.

use std::fmt::Write;

use super::launch::{Argument, Building, c_type};
use crate::ops::{Activation, Drop, Step};
use crate::random::{Mask, Stream};
use crate::types::DType;

/// The steps of a node: source, and the arguments of a launch after the kernel's own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Steps {
    pub text: String,
    pub arguments: Vec<Argument>,
}

/// The source of no steps.
pub(super) const NONE: &str = "#define STEP_PARAMETERS\n#define STEP_ARGUMENTS\n\
    template <int N> __device__ __forceinline__ void apply_steps(float (&)[N], uint64, int, const Run*) {}\n";

/// The steps of a node whose running value has the shape of its first output.
pub(super) fn of(building: &Building) -> Steps {
    from(building, 0)
}

/// A node's steps except for the first few, which were done elsewhere.
pub(super) fn from(building: &Building, first: usize) -> Steps {
    written(building, &building.node().steps[first..])
}

/// A node's steps without intermediate rounding, for values that were never rounded: the result is more exact.
pub(super) fn unrounded(building: &Building) -> Steps {
    let steps: Vec<Step> = building.node().steps.iter().filter(|step| !matches!(step, Step::Round)).cloned().collect();
    written(building, &steps)
}

fn written(building: &Building, steps: &[Step]) -> Steps {
    let shape = &building.output_type(0).shape;
    let samples = shape.axes().first().copied().unwrap_or(1);
    let rows_per_sample = (shape.rows() / samples.min(shape.rows()).max(1)).max(1);
    let mut writer = Writer {
        building,
        columns: shape.columns(),
        rows_per_sample,
        members: String::new(),
        reads: String::new(),
        body: String::new(),
        arguments: Vec::new(),
    };
    for step in steps {
        writer.step(step);
    }
    let Writer { members, reads, body, arguments, .. } = writer;
    let parameters: String = (0..arguments.len()).map(|index| format!(", void* step_{index}")).collect();
    let passed: String = (0..arguments.len()).map(|index| format!(", step_{index}")).collect();
    let text = format!(
        "#define STEP_PARAMETERS {parameters}\n#define STEP_ARGUMENTS {passed}\n\
         template <int N> struct StepOperands {{\n{members}}};\n\
         template <int N> __device__ __forceinline__ void read_operands(StepOperands<N>& operands, uint64 row, int column STEP_PARAMETERS) {{\n\
         {reads}}}\n\
         template <int N> __device__ __forceinline__ void apply_steps(float (&v)[N], const StepOperands<N>& operands, uint64 row, int column, const Run* run STEP_PARAMETERS) {{\n\
         {body}}}\n\
         template <int N> __device__ __forceinline__ void apply_steps(float (&v)[N], uint64 row, int column, const Run* run STEP_PARAMETERS) {{\n    \
         StepOperands<N> operands;\n    read_operands<N>(operands, row, column STEP_ARGUMENTS);\n    \
         apply_steps<N>(v, operands, row, column, run STEP_ARGUMENTS);\n}}\n"
    );
    Steps { text, arguments }
}

/// The names of an activation's function and derivative.
fn functions(activation: Activation) -> (&'static str, &'static str) {
    match activation {
        Activation::Gelu => ("gelu", "gelu_slope"),
        Activation::GeluTanh => ("gelu_tanh", "gelu_tanh_slope"),
        Activation::QuickGelu => ("quick_gelu", "quick_gelu_slope"),
        Activation::Relu => ("relu", "relu_slope"),
        Activation::Silu => ("silu", "silu_slope"),
        Activation::Tanh => ("tanh_", "tanh_slope"),
        Activation::Exp => ("expf", "expf"),
    }
}

/// A float literal that the compiler reads back exactly.
pub(super) fn float(value: f32) -> String {
    format!("__uint_as_float(0x{:08x}u)", value.to_bits())
}

struct Writer<'b, 'p> {
    building: &'b Building<'p>,
    columns: usize,
    rows_per_sample: usize,
    /// Operands of more than one value: their declarations, and the code that loads them.
    members: String,
    reads: String,
    body: String,
    arguments: Vec<Argument>,
}

impl Writer<'_, '_> {
    fn each(&mut self, statement: &str) {
        let _ = writeln!(self.body, "#pragma unroll\n    for (int i = 0; i < N; i++) {statement}");
    }

    /// A pointer of the launch, as an expression of a type.
    fn pointer(&mut self, argument: Argument, dtype: DType) -> String {
        self.arguments.push(argument);
        format!("(({}*)step_{})", c_type(dtype), self.arguments.len() - 1)
    }

    /// Loads an additional input into `name`: it is broadcast over the leading axes.
    fn operand(&mut self, name: &str, input: usize) {
        let input_type = self.building.input_type(input);
        let pointer = self.pointer(self.building.input(input), input_type.dtype);
        let values = input_type.shape.elements();
        let columns = self.columns;
        let _ = if values < columns {
            writeln!(
                self.body,
                "    float {name}[N];\n#pragma unroll\n    for (int i = 0; i < N; i++) {name}[i] = widen({pointer}[0]);"
            )
        } else {
            let row = match values / columns {
                1 => "0".to_string(),
                rows if rows == self.building.output_type(0).shape.rows() => "row".to_string(),
                rows => format!("(row % {rows}ull)"),
            };
            let member = format!("operand_{}", self.arguments.len() - 1);
            let _ = writeln!(self.members, "    float {member}[N];");
            let _ = writeln!(self.reads, "    load<N>({pointer} + {row} * {columns}ull + column, operands.{member});");
            writeln!(self.body, "    const float (&{name})[N] = operands.{member};")
        };
    }

    /// A number of the launch: what differs between layers is an argument, so that they share a kernel.
    fn number(&mut self, number: u64) -> String {
        self.arguments.push(Argument::U64(number));
        format!("(uint64)step_{}", self.arguments.len() - 1)
    }

    fn factors(&mut self, name: &str, drop: &Drop, row: &str, column: &str) {
        let place = self.number(drop.place);
        // Threshold and scale do not depend on the stream.
        let mask = Mask::new(Stream::new(0, 0, 0), drop.rate);
        let _ = writeln!(
            self.body,
            "    float {name}[N];\n    mask_factors<N>(stream_key(run, {place}), {row}, {column}, {}u, {}, {name});",
            mask.threshold(),
            float(mask.scale())
        );
    }

    fn store(&mut self, output: usize, name: &str) {
        let pointer = self.pointer(self.building.output(output), self.building.output_type(output).dtype);
        let columns = self.columns;
        let _ = writeln!(self.body, "    store<N>({pointer} + row * {columns}ull + column, {name});");
    }

    fn step(&mut self, step: &Step) {
        self.body.push_str("    {\n");
        match *step {
            Step::Add { input } => {
                self.operand("other", input);
                self.each("v[i] += other[i];");
            }
            Step::Multiply { input } => {
                self.operand("other", input);
                self.each("v[i] *= other[i];");
            }
            Step::Scale(factor) => self.each(&format!("v[i] *= {};", float(factor))),
            Step::Activation(activation) => self.each(&format!("v[i] = {}(v[i]);", functions(activation).0)),
            Step::ActivationGradient { activation, input } => {
                self.operand("other", input);
                self.each(&format!("v[i] *= {}(other[i]);", functions(activation).1));
            }
            Step::Dropout(ref drop) => {
                self.factors("factors", drop, "row", "column");
                self.each("v[i] *= factors[i];");
            }
            Step::DroppedActivation { activation, ref drop, slope } => {
                let (function, derivative) = functions(activation);
                self.factors("slopes", drop, "row", "column");
                self.each(&format!(
                    "{{ float x = v[i], f = slopes[i]; v[i] = {function}(x) * f; slopes[i] = {derivative}(x) * f; }}"
                ));
                self.store(slope, "slopes");
            }
            Step::StochasticDepth(ref drop) => {
                let sample = format!("row / {}ull", self.rows_per_sample);
                self.factors("factors", drop, &sample, "0");
                self.each("v[i] *= factors[0];");
            }
            Step::Round => self.each("v[i] = rounded(v[i]);"),
            Step::Store { output } => self.store(output, "v"),
        }
        self.body.push_str("    }\n");
    }
}
