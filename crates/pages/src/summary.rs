//! The page of `vitreous summary --html`: the data flow as a drawing, and what the command prints as text.

use std::fmt::Write;

use crate::chart::Bars;
use crate::{Document, escape};
use vitreous_models::stages::Stage;

use super::flow;
use crate::folding::{Fold, fold, name_inside};
use crate::format;

/// The kind of this page.
pub const KIND: &str = "summary";

/// What is known about a model without running it.
pub struct ModelSummary<'a> {
    /// The model, as the user named it.
    pub model: &'a str,
    /// The batch, in words: `2 images`.
    pub batch: &'a str,
    /// Facts for the top of the page, by name.
    pub facts: &'a [(&'static str, String)],
    /// Shapes of the inputs, by name.
    pub inputs: &'a [(String, Vec<usize>)],
    /// The drawing of the data flow; `None` for models with an encoder and a decoder.
    pub drawing: Option<&'a str>,
    /// Its stages.
    pub stages: &'a [Stage],
    /// Parameters and cost of one layer, in sentences.
    pub layer: &'a [String],
    /// Memory, in sentences.
    pub memory: &'a [String],
}

const STYLE: &str = "
.stages .number { white-space: nowrap; }
.stages tr.inside td:first-child { padding-left: 1.8rem; }
.stages tr.inside td { color: var(--soft); }
.stages tr.total td { font-weight: 700; border-top: 2px solid var(--soft); border-bottom: 0; }
.reading { flex: 1 1 22rem; max-width: 30rem; }
.drawn { flex: 1 1 26rem; max-width: 600px; }
@media print {
  header dl.facts { display: flex; flex-wrap: wrap; gap: 0 .4rem; font-size: .8rem; }
  header dl.facts dd { margin-right: 1rem; }
  #flow { border: 0; padding: 0; margin: 0; break-after: page; }
  #flow h2 { display: none; }
  #flow .columns { flex-wrap: nowrap; }
  #flow .reading { flex: 1 1 0; font-size: .75rem; }
  #flow .reading .note { font-size: inherit; }
  #flow .drawn { flex: 0 0 auto; }
  #flow .drawn svg { width: auto; max-height: 23cm; }
}
";

/// The page.
pub fn page(summary: &ModelSummary) -> String {
    let mut page = Document::new(summary.model);
    page.kind(KIND).style(flow::STYLE).style(STYLE);
    page.lead(&lead(summary));
    match summary.drawing {
        Some(drawing) => {
            let reading =
                format!("<div class=\"reading\">\n{}{}</div>", how_to_read(summary.batch), all_shares(summary));
            let body = format!("<div class=\"columns\">\n<figure class=\"drawn\">{drawing}</figure>\n{reading}</div>");
            page.section("flow", "Data flow", &body);
        }
        None => {
            let body = format!("{}<p class=\"note\">{NOT_DRAWN}</p>", all_shares(summary));
            page.section("shares", "Parameters and FLOPs", &body);
        }
    }
    page.section("stages", "Stages", &stages_html(summary));
    page.section("layer", "One layer", &paragraphs(summary.layer));
    page.section("memory", "Memory", &paragraphs(summary.memory));
    page.finish()
}

fn sums(stages: &[Stage]) -> (usize, u64, usize) {
    let parameters = stages.iter().map(|stage| stage.parameters).sum();
    let flops = stages.iter().map(|stage| stage.flops).sum();
    (parameters, flops, stages.iter().map(|stage| stage.activation_bytes).sum())
}

fn lead(summary: &ModelSummary) -> String {
    let (parameters, flops, _) = sums(summary.stages);
    let sums = [
        ("Parameters", format::thousands(parameters as u128)),
        ("FLOPs", format!("{} for {}", format::thousands(flops), summary.batch)),
    ];
    let rows: String = sums
        .iter()
        .chain(summary.facts)
        .map(|(name, text)| format!("<dt>{name}</dt><dd>{}</dd>", escape(text)))
        .collect();
    format!("<dl class=\"facts\">{rows}</dl>")
}

const NOT_DRAWN: &str =
    "The data flow of a model with an encoder and a decoder is not drawn; the table below has every stage.";

fn how_to_read(batch: &str) -> String {
    format!(
        "<h3>How to read it</h3>\n\
         <p>Data flows from top to bottom. Beside each arrow is the shape of the value; its first axis is the batch, here {batch}. \
         Lines around some steps that join again are residual connections.</p>\n\
         <p>The frame is drawn once for all equal layers. Inside it, numbers are per layer, times the number of layers; bars and \
         percentages are the share of all these layers in the whole model.</p>\n\
         <p>Learned tokens and position embeddings join from the right.</p>\n\
         <p class=\"note\">FLOPs are floating-point operations of one forward pass; a multiply-add counts as two. k, M, G and T are \
         10<sup>3</sup>, 10<sup>6</sup>, 10<sup>9</sup> and 10<sup>12</sup>. Exact numbers are in the table below.</p>\n"
    )
}

fn all_shares(summary: &ModelSummary) -> String {
    format!(
        "<h3>Parameters by stage</h3>\n{}\n<h3>FLOPs by stage</h3>\n{}\n",
        shares(summary.stages, "Share of the parameters", |stage| stage.parameters as f64),
        shares(summary.stages, "Share of the FLOPs", |stage| stage.flops as f64)
    )
}

/// The share of each stage, summed over all blocks, in a number of the model; the largest first.
fn shares(stages: &[Stage], title: &str, number: impl Fn(&Stage) -> f64) -> String {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for stage in stages {
        let name = name_inside(&stage.name);
        match sums.iter_mut().find(|sum| sum.0 == name) {
            Some(sum) => sum.1 += number(stage),
            None => sums.push((name, number(stage))),
        }
    }
    let total: f64 = sums.iter().map(|sum| sum.1).sum();
    sums.retain(|sum| sum.1 > 0.0);
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    let bars = sums.iter().fold(Bars::new(title), |bars, (name, sum)| {
        bars.bar(name, *sum, &format!("{} ({})", format::short(*sum), format::share(sum / total)))
    });
    bars.full(total).svg()
}

fn stages_html(summary: &ModelSummary) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of stages\">{}</div>\n\
         <p class=\"note\">Activations are the bytes that kernels write, after fusion. Tokens that nothing reads are not computed, so the \
         last layer may write less.</p>",
        table(summary)
    )
}

fn table(summary: &ModelSummary) -> String {
    let mut html = String::from("<table class=\"stages\">\n<thead><tr><th>stage</th>");
    for name in ["shape", "parameters", "FLOPs", "activations"] {
        let _ = write!(html, "<th class=\"number\">{name}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (name, shape) in summary.inputs {
        html.push_str(&row("", name, &shape_text(shape), (0, 0, 0)));
    }
    // Stages of blocks are compared without their names, as in the printed table.
    let inside = |stage: &Stage| (name_inside(&stage.name).to_string(), Stage { name: String::new(), ..stage.clone() });
    for fold in fold(summary.stages, |stage| &stage.name, inside) {
        html.push_str(&fold_rows(&fold));
    }
    html.push_str(&row("total", "total", "", sums(summary.stages)));
    html.push_str("</tbody>\n</table>");
    html
}

/// A single stage, or a block with its sums and its stages.
fn fold_rows(fold: &Fold<Stage>) -> String {
    let shape = |stage: &Stage| shape_text(stage.shape.axes());
    let Some(block) = fold.block else {
        let rows =
            fold.first().iter().map(|stage| row("", &stage.name, &shape(stage), sums(std::slice::from_ref(stage))));
        return rows.collect();
    };
    let name = match fold.repeats.last().and_then(|last| crate::folding::block_of(&last.first()?.name)) {
        Some(last) if last != block => format!("{block} to {last}, each ({} times)", fold.repeats.len()),
        _ => block.to_string(),
    };
    let last_shape = fold.first().last().map(shape).unwrap_or_default();
    let mut html = row("block", &name, &last_shape, sums(fold.first()));
    for stage in fold.first() {
        html.push_str(&row("inside", name_inside(&stage.name), &shape(stage), sums(std::slice::from_ref(stage))));
    }
    html
}

fn row(class: &str, name: &str, shape: &str, (parameters, flops, activations): (usize, u64, usize)) -> String {
    let or_none = |text: String, number: u128| if number == 0 { "-".to_string() } else { text };
    let cells = [
        escape(shape),
        or_none(format::thousands(parameters as u128), parameters as u128),
        or_none(format::thousands(flops), u128::from(flops)),
        or_none(format::bytes(activations), activations as u128),
    ];
    let cells = cells.map(|cell| format!("<td class=\"number\">{cell}</td>")).concat();
    format!("<tr class=\"{class}\"><td>{}</td>{cells}</tr>\n", escape(name))
}

fn shape_text(axes: &[usize]) -> String {
    axes.iter().map(usize::to_string).collect::<Vec<_>>().join(" \u{d7} ")
}

fn paragraphs(sentences: &[String]) -> String {
    sentences.iter().map(|sentence| format!("<p>{}</p>", escape(sentence))).collect()
}
