//! The last evaluation of a language model: its scores, and what it wrote.

use crate::escape;
use vitreous_train::Evaluation;
use vitreous_train::tasks::language::LanguageReport;

use super::of_evaluation;
use crate::format;

/// The section.
pub fn html(evaluation: &Evaluation, report: &LanguageReport) -> String {
    let mut html = of_evaluation(evaluation);
    let facts = [
        (
            "Loss",
            format!("{:.4} nats per token, over {} tokens", report.loss, format::thousands(report.predicted_tokens)),
        ),
        ("Perplexity", format!("{:.3}", report.perplexity)),
        ("Bits per byte", format!("{:.4}", report.bits_per_byte)),
    ];
    let fact = |(name, value): (&str, String)| format!("<dt>{name}</dt><dd>{}</dd>", escape(&value));
    html.push_str(&format!("<dl class=\"facts\">{}</dl>", facts.into_iter().map(fact).collect::<String>()));
    if !report.sample.is_empty() {
        let prompt = match report.prompt.is_empty() {
            true => String::new(),
            false => format!("<b>{}</b>", escape(&report.prompt)),
        };
        html.push_str(&format!("<h3>What it wrote</h3><pre>{prompt}{}</pre>", escape(&report.sample)));
    }
    html
}
