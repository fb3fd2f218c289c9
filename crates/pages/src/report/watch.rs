//! What `--watch` saw while a model learned.

use std::collections::BTreeMap;

use vitreous_train::RunRecord;
use vitreous_train::watch::WatchMetrics;

use super::figure;
use crate::chart::{Cell, Lines, Matrix};

/// More columns than this are thinned out.
const COLUMNS: usize = 48;

/// The section; `None` for a run that was not watched.
pub fn html(run: &RunRecord) -> Option<String> {
    let all = &run.history.watched;
    let last = all.last()?;
    let columns: Vec<&WatchMetrics> = match all.len() {
        few if few <= COLUMNS => all.iter().collect(),
        many => (0..COLUMNS).map(|column| &all[column * (many - 1) / (COLUMNS - 1)]).collect(),
    };
    let mut html = format!("<p>At step {}: {}.</p>", last.step, crate::escape(&last.excerpt()));
    let rows: Vec<String> = last.update_ratios.keys().cloned().collect();
    html.push_str(&map(
        &columns,
        &rows,
        "Update-to-weight ratio",
        "The length of an update over the length of the weights, on a logarithmic colour scale. About 1e-3 is usual; parts much above learn in \
         leaps, parts much below hardly learn.",
        true,
        |metrics, row| metrics.update_ratios.get(row).copied(),
    ));
    let rows: Vec<String> = last.dead_units.keys().cloned().collect();
    html.push_str(&map(
        &columns,
        &rows,
        "Dead units",
        "The share of an MLP's hidden units that are above 0 for no token of the samples looked at.",
        false,
        |metrics, row| metrics.dead_units.get(row).copied(),
    ));
    let entropy = "In nats: 0 for a head that attends to one token, more the wider it looks.";
    html.push_str(&by_head(&columns, "Attention entropy by head", entropy, entropies));
    let induction = "The share of attention on what followed earlier copies of the current token, on training text.";
    html.push_str(&by_head(&columns, "Induction score by head", induction, inductions));
    if !last.loss_by_position.is_empty() {
        html.push_str(&positions(all));
    }
    Some(html)
}

type ByHead = BTreeMap<String, Vec<f64>>;

fn entropies(metrics: &WatchMetrics) -> &ByHead {
    &metrics.attention_entropy
}

fn inductions(metrics: &WatchMetrics) -> &ByHead {
    &metrics.induction
}

/// A number of every head over time.
fn by_head(columns: &[&WatchMetrics], title: &str, note: &str, values: fn(&WatchMetrics) -> &ByHead) -> String {
    let of_last = columns.last().into_iter().flat_map(|last| values(last));
    let rows: Vec<String> =
        of_last.flat_map(|(name, heads)| (0..heads.len()).map(move |head| format!("{name}.heads.{head}"))).collect();
    map(columns, &rows, title, note, false, |metrics, row| {
        let (name, head) = row.rsplit_once(".heads.")?;
        values(metrics).get(name)?.get(head.parse::<usize>().ok()?).copied()
    })
}

/// Rows over time.
fn map(
    columns: &[&WatchMetrics],
    rows: &[String],
    title: &str,
    note: &str,
    logarithmic: bool,
    value: impl Fn(&WatchMetrics, &str) -> Option<f64>,
) -> String {
    let scale = |x: f64| if logarithmic { x.max(1e-12).log10() } else { x };
    let known = || columns.iter().flat_map(|column| rows.iter().filter_map(|row| value(column, row)));
    let known = || known().filter(|x| x.is_finite() && (!logarithmic || *x > 0.0));
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
    if rows.is_empty() || low > high {
        return String::new();
    }
    let names: Vec<String> = columns.iter().map(|column| column.step.to_string()).collect();
    let text = |x: f64| if logarithmic { format!("{x:.0e}") } else { format!("{x:.2}") };
    let mut chart = Matrix::new(title)
        .describe(&format!("From {} to {}.", text(low), text(high)))
        .axes("part", "step")
        .columns(&names)
        .scale(&text(low), &text(high))
        .flat();
    for row in rows {
        let cells = columns.iter().map(|column| {
            let x = value(column, row).unwrap_or(f64::NAN);
            let share = if high > low { (scale(x) - scale(low)) / (scale(high) - scale(low)) } else { 0.5 };
            let text = if x.is_nan() { String::new() } else { text(x) };
            Cell::new(share as f32).text(&text).note(&format!("{row}, step {}: {x:.3e}", column.step))
        });
        chart = chart.row(row, cells.collect());
    }
    figure(title, &chart.svg(), note)
}

/// Loss by position, at the beginning, in the middle and at the end.
fn positions(all: &[WatchMetrics]) -> String {
    let mut chart = Lines::new("Loss by position").x("position").y("loss").whole_x();
    let mut shown = vec![0, all.len() / 2, all.len() - 1];
    shown.dedup();
    for index in shown {
        // Positions at which nothing was to be learned have no loss.
        let losses = all[index].loss_by_position.iter().enumerate();
        let points: Vec<(f64, f64)> = losses.filter_map(|(at, loss)| Some((at as f64, (*loss)?))).collect();
        chart = chart.series(&format!("step {}", all[index].step), &points);
    }
    let note = "The mean loss of the next token at each position. A model that learns from what it has read falls to the right.";
    figure("Loss by position", &chart.svg(), note)
}
