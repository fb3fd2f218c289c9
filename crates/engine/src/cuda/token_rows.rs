//! Rows of tokens: rotary positions, and rows written into a cache. In decoding, where a launch takes longer than what it does,
//! the queries, keys and values of a layer are parts of one launch, and keys are rotated on their way into the cache.

use std::fmt::Write;

use super::launch::{Address, Argument, Building, Launch, c_type, source, vector};
use super::steps::float;
use super::tables::fault;
use crate::graph::{Graph, Value};
use crate::ops::rotary::RotaryPairing;
use crate::ops::{Op, Rotary};
use crate::types::DType;

const KERNEL: &str = include_str!("kernels/token_rows.cu");
const MOST_THREADS: usize = 256;

/// A launch of the kernel.
#[derive(Clone, Debug)]
pub(super) struct TokenRows {
    rows: usize,
    /// Tokens per sample.
    tokens: usize,
    parts: Vec<Part>,
}

/// A value whose rows are rotated, written into a cache, or both.
#[derive(Clone, Debug)]
struct Part {
    columns: usize,
    from: Place,
    to: Place,
    /// The rotation, and the positions of samples' first tokens.
    rotation: Option<(Rotary, Option<Address>)>,
    /// Rows of a cache that it is written into, and where samples' tokens begin in it.
    cache: Option<(usize, Address)>,
    /// The result, if only the next node may read it.
    passed_on: Option<Value>,
}

/// Where values are, and in which format.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    address: Address,
    dtype: DType,
}

impl Place {
    fn of(building: &Building, value: Value) -> Place {
        Place { address: building.place(value), dtype: building.graph().type_of(value).dtype }
    }

    fn overlaps(&self, other: &Place, values: [usize; 2]) -> bool {
        let [own, others] = [values[0] * self.dtype.bytes(), values[1] * other.dtype.bytes()];
        self.address.overlaps(own, other.address, others)
    }
}

impl TokenRows {
    /// A node of rotary positions, or one that writes into a cache.
    pub fn new(building: &Building) -> TokenRows {
        let (graph, node) = (building.graph(), building.node());
        let input = |index: usize| building.place(node.inputs[index]);
        let to = Value::new(building.index, 0);
        let (from, rotation, cache) = match &node.op {
            Op::Rotary(op) => (node.inputs[0], Some((op.clone(), op.offsets.then(|| input(1)))), None),
            Op::WriteRows(_) => (node.inputs[1], None, Some((graph.shape_of(node.inputs[0]).axes()[1], input(2)))),
            op => unreachable!("{} has no rows of tokens", op.name()),
        };
        let shape = graph.shape_of(from);
        let &[_, tokens, columns] = shape.axes() else { unreachable!("checked when the graph was built") };
        let passed_on = Some(to).filter(|&to| cache.is_none() && has_one_reader(graph, building, to));
        let (from, to) = (Place::of(building, from), Place::of(building, to));
        TokenRows { rows: shape.rows(), tokens, parts: vec![Part { columns, from, to, rotation, cache, passed_on }] }
    }

    /// Both in one, if the second does not need the first, or if it only writes a result of it into a cache: one launch, if they
    /// then [can be one](TokenRows::can_be_one).
    pub fn join(&self, next: &TokenRows, building: &Building) -> Option<TokenRows> {
        let [new] = next.parts.as_slice() else { return None };
        if (self.rows, self.tokens) != (next.rows, next.tokens) {
            return None;
        }
        let mut joined = self.clone();
        let from = building.node().inputs[usize::from(new.cache.is_some())];
        if let Some(part) = joined.parts.iter_mut().find(|part| part.passed_on == Some(from)) {
            // Rounded once, either way.
            let same = new.rotation.is_none() && part.to.dtype == new.to.dtype;
            (part.to, part.cache, part.passed_on) = (new.to, new.cache, None);
            return same.then_some(joined);
        }
        joined.parts.push(new.clone());
        joined.shares_rotation().then_some(joined)
    }

    /// Whether its parts need not wait for each other: none writes where another reads. (A plan gives a result the memory of what
    /// was read for the last time before, which may be another part's.)
    pub fn can_be_one(&self) -> bool {
        let values = |part: &Part| self.rows * part.columns;
        let conflicts = |writer: usize, reader: usize| {
            let (writer_part, part) = (&self.parts[writer], &self.parts[reader]);
            let integers = [part.rotation.as_ref().and_then(|rotation| rotation.1), part.cache.map(|cache| cache.1)];
            let reads_integers = integers.into_iter().flatten().any(|address| {
                let bytes = values(writer_part) * writer_part.to.dtype.bytes();
                writer_part.to.address.overlaps(bytes, address, 4 * self.rows)
            });
            writer_part.cache.is_none()
                && (writer_part.to.overlaps(&part.from, [values(writer_part), values(part)]) || reads_integers)
        };
        let all = 0..self.parts.len();
        self.shares_rotation()
            && all.clone().all(|writer| all.clone().all(|reader| writer == reader || !conflicts(writer, reader)))
    }

    /// The kernel has one rotation for all parts.
    fn shares_rotation(&self) -> bool {
        let form = |rotary: &Rotary, columns: usize| (Rotary { heads: 0, ..rotary.clone() }, columns / rotary.heads);
        let mut rotations =
            self.parts.iter().filter_map(|part| part.rotation.as_ref().map(|(rotary, _)| form(rotary, part.columns)));
        let first = rotations.next();
        rotations.all(|rotation| Some(rotation) == first)
    }

    /// Its parts as launches of their own.
    pub fn separate(self) -> Vec<TokenRows> {
        let TokenRows { rows, tokens, parts } = self;
        parts.into_iter().map(|part| TokenRows { rows, tokens, parts: vec![part] }).collect()
    }

    pub fn launch(&self) -> Launch {
        let rotated = self.parts.iter().find_map(|part| Some((&part.rotation.as_ref()?.0, part.columns)));
        let mut constants = vec![("TOKENS", self.tokens.to_string())];
        constants
            .extend(rotated.map_or(vec![("PAIRS", "0".to_string())], |(op, columns)| rotation_constants(op, columns)));
        let units = |part: &Part| part.columns / vector(part.columns).min(4);
        let threads = self.parts.iter().map(units).max().unwrap_or(1).next_multiple_of(32).min(MOST_THREADS);
        constants.push(("THREADS", threads.to_string()));
        let (mut parameters, mut code) = (String::new(), String::new());
        let mut arguments = vec![fault(), Argument::U32(self.rows as u32)];
        for (index, part) in self.parts.iter().enumerate() {
            let (from, to, columns) = (c_type(part.from.dtype), c_type(part.to.dtype), part.columns);
            let _ = write!(
                parameters,
                ", const {from}* from_{index}, {to}* to_{index}, const int* positions_{index}, const int* offsets_{index}"
            );
            let target = match part.cache {
                Some((capacity, _)) => {
                    format!("cache_row<{columns}, {capacity}>(to_{index}, offsets_{index}, row, fault)")
                }
                None => format!("to_{index} + (uint64)row * {columns}"),
            };
            let source = format!("from_{index} + (uint64)row * {columns}");
            let call = match &part.rotation {
                Some((_, None)) => format!("rotate_row<{columns}>({source}, target, row % TOKENS)"),
                Some(_) => {
                    format!("rotate_row<{columns}>({source}, target, positions_{index}[row / TOKENS] + row % TOKENS)")
                }
                None => format!("copy_row<{columns}, {}>({source}, target)", vector(columns)),
            };
            let _ = write!(code, "if (part == {index}) {{ {to}* target = {target}; if (target) {call}; }} ");
            let optional = |address: Option<Address>| address.map_or(Argument::Nothing, Argument::Address);
            arguments.extend([part.from, part.to].map(|place| Argument::Address(place.address)));
            arguments.push(optional(part.rotation.as_ref().and_then(|rotation| rotation.1)));
            arguments.push(optional(part.cache.map(|cache| cache.1)));
        }
        constants.extend([("ROW_PARAMETERS", parameters), ("ROW_PARTS", code)]);
        Launch {
            source: source(&constants, "", KERNEL),
            entry: "token_rows",
            grid: [(self.rows * self.parts.len()) as u32, 1, 1],
            block: threads as u32,
            shared_bytes: 0,
            arguments,
        }
    }
}

fn rotation_constants(op: &Rotary, columns: usize) -> Vec<(&'static str, String)> {
    let (head_dim, pairs) = (columns / op.heads, op.frequencies.len());
    let halves = op.pairing == RotaryPairing::Halves;
    // Adjacent values form pairs: at least two at once.
    let width = vector(head_dim).min(if halves { vector(pairs) } else { vector(2 * pairs) });
    let width = if halves { width } else { width.max(2) };
    let bits: Vec<String> = op.frequencies.iter().map(|frequency| format!("0x{:08x}u", frequency.to_bits())).collect();
    vec![
        ("HEAD_DIM", head_dim.to_string()),
        ("PAIRS", pairs.to_string()),
        ("VECTOR", width.to_string()),
        ("HALVES", usize::from(halves).to_string()),
        ("SIGN", if op.inverse { "-" } else { "" }.to_string()),
        ("FACTOR", float(op.factor)),
        ("FREQUENCY_BITS", bits.join(", ")),
    ]
}

/// Whether a value is read once, by another node and by nobody outside.
fn has_one_reader(graph: &Graph, building: &Building, value: Value) -> bool {
    let readers = graph.nodes().iter().flat_map(|node| &node.inputs).filter(|&&input| input == value).count();
    readers == 1 && !building.plan.outputs().contains(&value)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cuda::compile::testing::{ARCHITECTURES, compile_all};
    use crate::cuda::products::testing::All;
    use crate::cuda::target::{Built, work_of};
    use crate::gradient::GradientOptions;
    use crate::ops::RotaryOptions;
    use crate::plan::Plan;

    /// The kernel's launches.
    fn launches(graph: &Graph, outputs: &[Value]) -> Vec<Launch> {
        let plan = Plan::for_cuda(graph, outputs).unwrap();
        let launch = |built: Built| if let Built::Launch(launch) = built { Some(launch) } else { None };
        let all = work_of(&plan, &All).unwrap().0.into_iter().filter_map(|task| launch(task.built));
        all.filter(|launch| launch.entry == "token_rows").collect()
    }

    #[test]
    fn rotary_positions_compile() {
        let mut texts = HashSet::new();
        // Wide and narrow vectors, heads of odd sizes, values that are not rotated.
        for (heads, head_dim, pairs) in [(4, 64, 32), (3, 80, 10), (2, 7, 3), (1, 2, 1), (32, 128, 64)] {
            for (dtype, pairing) in [(DType::F32, RotaryPairing::Pairs), (DType::Bf16, RotaryPairing::Halves)] {
                let mut graph = Graph::for_training();
                let x = graph.input("x", [2, 5, heads * head_dim], dtype).unwrap();
                let seed = graph.input("seed", [2, 5, heads * head_dim], dtype).unwrap();
                let offsets = (pairs % 2 == 0).then(|| graph.input("offsets", [2], DType::I32).unwrap());
                let frequencies = (0..pairs).map(|k| 1.0 / (k + 1) as f32).collect();
                let options = RotaryOptions { heads, frequencies, pairing, factor: 1.2, offsets };
                let y = graph.rotary(x, &options).unwrap();
                let mut outputs = vec![y];
                outputs.extend(graph.gradients_from(y, seed, &[x], GradientOptions::default()).unwrap());
                let found = launches(&graph, &outputs);
                assert!(!found.is_empty());
                texts.extend(found.into_iter().map(|launch| launch.source));
            }
        }
        compile_all(&texts, &ARCHITECTURES);
    }

    #[test]
    fn queries_keys_and_values_of_a_step_are_one_launch() {
        for (cache_type, launched) in [(DType::F32, 1), (DType::Bf16, 2)] {
            let mut graph = Graph::for_inference();
            let [q, k, v] = [("q", 64), ("k", 32), ("v", 32)]
                .map(|(name, columns)| graph.input(name, [3, 1, columns], DType::F32).unwrap());
            let place = graph.input("place", [3], DType::I32).unwrap();
            let [keys, values] = ["keys", "values"].map(|name| graph.cache(name, [3, 20, 32], cache_type).unwrap());
            let rotary = |heads| RotaryOptions {
                heads,
                frequencies: vec![1.0, 0.5],
                offsets: Some(place),
                ..RotaryOptions::default()
            };
            let q = graph.rotary(q, &rotary(4)).unwrap();
            let k = graph.rotary(k, &rotary(2)).unwrap();
            let k = graph.cast(k, cache_type).unwrap();
            let v = graph.cast(v, cache_type).unwrap();
            let k = graph.write_rows(keys, k, place).unwrap();
            let v = graph.write_rows(values, v, place).unwrap();
            let inputs = crate::AttentionInputs::Separate { q, k, v };
            let options = crate::AttentionOptions { heads: 4, kv_heads: Some(2), ..Default::default() };
            let y = graph.attention(inputs, &options).unwrap();
            let found = launches(&graph, &[y]);
            // In bf16 a cast stands between rotation and cache here.
            assert!(found.len() <= launched, "{} launches", found.len());
            let rows: u32 = found.iter().map(|launch| launch.grid[0]).sum();
            assert!(rows == 9 || cache_type == DType::Bf16, "{rows} rows");
            compile_all(&found.into_iter().map(|launch| launch.source).collect(), &ARCHITECTURES);
        }
    }
}
