//! The last evaluation of a translator: its scores, and some translations beside their references.

use crate::escape;
use vitreous_train::Evaluation;
use vitreous_train::tasks::translate::TranslationReport;

use super::of_evaluation;
use crate::format;

/// The section.
pub fn html(evaluation: &Evaluation, report: &TranslationReport) -> String {
    let mut html = of_evaluation(evaluation);
    let precisions = report.precisions.map(|precision| format!("{precision:.1}")).join(" / ");
    let facts = [
        ("BLEU", format!("{:.2}", report.bleu)),
        ("chrF", format!("{:.2}", report.chrf)),
        ("1- to 4-gram precision, %", precisions),
        ("Brevity penalty", format!("{:.3}", report.brevity_penalty)),
        ("Perplexity", format!("{:.2} over {} tokens", report.perplexity, format::thousands(report.tokens))),
        ("Signatures", format!("{}; {}", report.bleu_signature, report.chrf_signature)),
    ];
    let fact = |(name, value): (&str, String)| format!("<dt>{name}</dt><dd>{}</dd>", escape(&value));
    html.push_str(&format!("<dl class=\"facts\">{}</dl>", facts.into_iter().map(fact).collect::<String>()));
    if !report.shown.is_empty() {
        html.push_str("<h3>Examples</h3><dl class=\"sentences\">");
        for shown in &report.shown {
            html.push_str(&format!(
                "<dt>{}</dt><dd>{}</dd><dd class=\"note\">reference: {}</dd>",
                escape(&shown.source),
                escape(&shown.translation),
                escape(&shown.reference)
            ));
        }
        html.push_str("</dl>");
    }
    html
}
