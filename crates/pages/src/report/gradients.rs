//! Gradient norms by layer over time: where gradients vanish or explode.

use std::collections::BTreeMap;

use crate::chart::{Cell, Matrix};
use vitreous_train::RunRecord;
use vitreous_train::metrics::GradientMetrics;

use super::figure;

/// More columns than this are thinned out.
const COLUMNS: usize = 48;

/// The section.
pub fn html(run: &RunRecord) -> String {
    layers(run).unwrap_or_else(|| {
        "<p>Nothing to show yet: gradient norms are logged at the end of each epoch, and no epoch has ended, or the run was made by a \
         version that did not log them.</p>"
            .to_string()
    })
}

/// Rows are layers, columns are epochs.
fn layers(run: &RunRecord) -> Option<String> {
    let columns = columns(run);
    let norms: Vec<BTreeMap<(u8, usize, String), f64>> = columns.iter().map(|column| by_layer(column)).collect();
    let rows: Vec<&(u8, usize, String)> = norms.first()?.keys().collect();
    let logs = || norms.iter().flat_map(|column| column.values()).filter(|norm| **norm > 0.0).map(|norm| norm.ln());
    let (low, high) = (logs().fold(f64::INFINITY, f64::min), logs().fold(f64::NEG_INFINITY, f64::max));
    if low > high {
        return None;
    }
    let per_epoch = run.steps_per_epoch()? as f64;
    let epoch = |column: &GradientMetrics| {
        format!("{:.4}", column.step as f64 / per_epoch).trim_end_matches('0').trim_end_matches('.').to_string()
    };
    let names: Vec<String> = columns.iter().map(|column| epoch(column)).collect();
    let mut chart = Matrix::new("Gradient norm by layer")
        .describe(&described(&norms))
        .axes("layer", "epoch")
        .columns(&names)
        .scale(&short(low.exp()), &short(high.exp()))
        .flat();
    for row in rows {
        let cells = norms.iter().zip(&names).map(|(column, epoch)| {
            let norm = column.get(row).copied().unwrap_or(f64::NAN);
            let share = if high > low { (norm.ln() - low) / (high - low) } else { 0.5 };
            Cell::new(share as f32).text(&short(norm)).note(&format!("{}, epoch {epoch}: {norm:.3e}", row.2))
        });
        chart = chart.row(&row.2, cells.collect());
    }
    Some(figure(
        "Gradient norm by layer",
        &chart.svg(),
        "On a logarithmic colour scale. A layer whose row is much darker than the others gets little gradient.",
    ))
}

/// A norm, short enough for a cell.
fn short(norm: f64) -> String {
    match norm {
        norm if norm.is_nan() => String::new(),
        norm if (0.01..100.0).contains(&norm) => format!("{norm:.2}"),
        norm => format!("{norm:.0e}"),
    }
}

/// What was logged at the ends of epochs; of many, some at even distances, with the first and the last.
fn columns(run: &RunRecord) -> Vec<&GradientMetrics> {
    let per_epoch = run.steps_per_epoch().unwrap_or(1);
    let all: Vec<&GradientMetrics> =
        run.history.gradients.iter().filter(|line| line.step.is_multiple_of(per_epoch)).collect();
    match all.len() {
        few if few <= COLUMNS => all,
        many => (0..COLUMNS).map(|column| all[column * (many - 1) / (COLUMNS - 1)]).collect(),
    }
}

/// The gradient norm of each layer's parameters together, in the order of the forward pass.
fn by_layer(line: &GradientMetrics) -> BTreeMap<(u8, usize, String), f64> {
    let mut squares = BTreeMap::new();
    for (name, norm) in &line.gradient_norms {
        *squares.entry(layer_of(name)).or_insert(0.0) += norm * norm;
    }
    squares.into_iter().map(|(layer, sum): (_, f64)| (layer, sum.sqrt())).collect()
}

/// `blocks.3.mlp.fc1.weight` belongs to layer 3; parameters before and behind the layers are named by their first word.
fn layer_of(parameter: &str) -> (u8, usize, String) {
    let mut words = parameter.split('.');
    let first = words.next().unwrap_or_default();
    let plain = |rank: u8| (rank, 0, first.replace('_', " "));
    match (first, words.next().and_then(|word| word.parse::<usize>().ok())) {
        ("blocks", Some(number)) => (1, number, format!("layer {number}")),
        ("decoder", Some(number)) => (3, number, format!("decoder layer {number}")),
        (stack, Some(number)) => (1, number, format!("{stack} layer {number}")),
        ("encoder_norm", None) => plain(2),
        ("norm" | "decoder_norm", None) => plain(4),
        ("pre_logits", None) => plain(5),
        ("head" | "output", None) => plain(6),
        ("distillation_head", None) => plain(7),
        (_, None) => plain(0),
    }
}

fn described(norms: &[BTreeMap<(u8, usize, String), f64>]) -> String {
    let last = norms.last().into_iter().flatten().take(40).map(|(layer, norm)| format!("{} {norm:.2e}", layer.2));
    format!("Gradient norm by layer and epoch. In the last column: {}.", last.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_in_the_order_of_the_data() {
        let names = [
            "head.weight",
            "blocks.10.mlp.fc1.bias",
            "blocks.2.norm1.weight",
            "patch_embedding.weight",
            "norm.bias",
            "blocks.2.mlp.fc1.bias",
        ];
        let line = GradientMetrics { step: 1, gradient_norms: names.map(|name| (name.to_string(), 3.0)).into() };
        let layers: Vec<(String, f64)> = by_layer(&line).into_iter().map(|(layer, norm)| (layer.2, norm)).collect();
        let expected =
            [("patch embedding", 3.0), ("layer 2", 18f64.sqrt()), ("layer 10", 3.0), ("norm", 3.0), ("head", 3.0)];
        assert_eq!(layers, expected.map(|(name, norm)| (name.to_string(), norm)));
        let names =
            ["output.bias", "decoder.0.mlp.fc1.bias", "encoder.1.norm1.bias", "encoder_norm.bias", "embedding.weight"];
        let mut layers = names.map(layer_of);
        layers.sort();
        let expected = ["embedding", "encoder layer 1", "encoder norm", "decoder layer 0", "output"];
        assert_eq!(layers.map(|layer| layer.2), expected);
    }
}
