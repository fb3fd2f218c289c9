//! A plan as text: every kernel with what it reads, writes and costs.

use std::fmt;

use super::{Location, Plan};
use crate::graph::Value;
use crate::types::Type;

/// `1.5 MiB`.
pub(crate) fn human_bytes(bytes: usize) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// `1.5 GFLOP`.
pub(crate) fn human_flops(flops: u64) -> String {
    let units = ["", "k", "M", "G", "T", "P"];
    let mut value = flops as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{flops} FLOP") } else { format!("{value:.1} {}FLOP", units[unit]) }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kernels = 0;
        for (index, node) in self.graph.nodes().iter().enumerate() {
            if node.op.is_leaf() {
                continue;
            }
            if let Some(chain) = self.chains.iter().find(|chain| chain.first == index) {
                let nodes = &self.graph.nodes()[chain.first..=chain.last];
                let (count, bytes) = (nodes.iter().filter(|node| !node.op.is_leaf()).count(), human_bytes(chain.bytes));
                writeln!(
                    f,
                    "a chain of {count} kernels, in {} tiles of {} samples, {bytes} a thread:",
                    chain.tiles, chain.samples
                )?;
            }
            kernels += 1;
            let inputs: Vec<String> = node.inputs.iter().map(|&input| self.describe(input)).collect();
            let outputs: Vec<String> =
                (0..node.outputs.len()).map(|output| self.describe(Value::new(index, output))).collect();
            let written: usize = node.outputs.iter().map(Type::bytes).sum();
            let label = if node.label().is_empty() { "copy".to_string() } else { node.label() };
            write!(f, "{kernels:>4}  {label}  `{}`\n      {}", node.path, shortened(&inputs))?;
            write!(f, " -> {}\n      writes {}", shortened(&outputs), human_bytes(written))?;
            if self.workspace_bytes[index] > 0 {
                write!(f, ", workspace {}", human_bytes(self.workspace_bytes[index]))?;
            }
            writeln!(f, ", {}", human_flops(self.graph.node_flops(index)))?;
            if self.chains.iter().any(|chain| chain.last == index) {
                writeln!(f, "end of the chain")?;
            }
        }
        writeln!(f, "{kernels} kernels, {}", human_flops(self.flops()))?;
        writeln!(f, "arena {} bytes (values alive at once: {} bytes)", self.arena_bytes, self.lower_bound)?;
        writeln!(f, "constants {} bytes, scratch {} bytes a thread", self.constant_bytes(), self.scratch_bytes)?;
        write!(f, "peak {} bytes on one thread ({})", self.peak_bytes(1), human_bytes(self.peak_bytes(1)))
    }
}

fn shortened(list: &[String]) -> String {
    match list.len() {
        0 => "-".to_string(),
        1..=8 => list.join(", "),
        n => format!("{}, ... ({n} in all)", list[..4].join(", ")),
    }
}

impl Plan {
    fn describe(&self, value: Value) -> String {
        let node = &self.graph.nodes()[value.node()];
        let place = match self.location(value) {
            Location::Arena(offset) => format!("@{offset}"),
            Location::Gradients(_) => "@gradients".to_string(),
            Location::FixedWeights(_) | Location::PackedOnly => "@weights".to_string(),
            Location::Tile(offset) => format!("@tile {offset}"),
            Location::Cache(_) => "@cache".to_string(),
            Location::Parameters(_) | Location::Constants(_) => String::new(),
        };
        let number = if value.output() == 0 { String::new() } else { format!("#{}", value.output()) };
        format!("{}{number} {}{place}", node.path, node.outputs[value.output()])
    }
}
