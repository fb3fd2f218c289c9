//! The last evaluation of a classifier: confusion matrix, scores per class, calibration.

use crate::chart::{Cell, ConfidenceBin, Matrix, Reliability};
use crate::escape;
use vitreous_train::Evaluation;
use vitreous_train::tasks::classify::metrics::{ClassScores, SingleLabelReport};
use vitreous_train::tasks::classify::{ClassifyReport, LabelMetrics};

use super::{figure, of_evaluation, percent_or_dash};
use crate::format;

/// At most so many confusions are listed.
const CONFUSIONS: usize = 12;
/// With more classes than this, only the worst are shown at first.
const SHOWN_CLASSES: usize = 40;

/// The confusion matrix; `None` where images have several labels.
pub fn confusion(evaluation: &Evaluation, report: &ClassifyReport) -> Option<String> {
    let ClassifyReport { names, metrics: LabelMetrics::Single(report), .. } = report else { return None };
    let mut html = of_evaluation(evaluation);
    html.push_str("<div class=\"columns\">");
    if let Some(matrix) = &report.confusion {
        let mut chart = Matrix::new("Confusion matrix")
            .describe(&described(report, names))
            .axes("true class", "prediction")
            .columns(names)
            .scale("0 %", "100 % of the row");
        for (row, name) in matrix.iter().zip(names) {
            let all = row.iter().sum::<u64>();
            let cells = row.iter().zip(names).map(|(&count, answer)| {
                // The square root, so that rare confusions show beside the diagonal.
                let share = if all > 0 { (count as f32 / all as f32).sqrt() } else { f32::NAN };
                let text = if count > 0 { count.to_string() } else { String::new() };
                Cell::new(share).text(&text).note(&format!("{name} predicted as {answer}: {count} of {all}"))
            });
            chart = chart.row(name, cells.collect());
        }
        html.push_str(&figure(
            "Confusion matrix",
            &chart.svg(),
            "Rows are true classes, columns are predictions. Colours follow the square root of the share of a row, so that rare confusions show.",
        ));
    }
    if !report.most_confused.is_empty() {
        html.push_str("<div><h3>Most frequent confusions</h3><table class=\"pairs\"><tr><th>true class</th><th>predicted as</th><th class=\"number\">images</th></tr>");
        for pair in report.most_confused.iter().take(CONFUSIONS) {
            let [label, answer] = [pair.label, pair.answer].map(|class| escape(&names[class as usize]));
            html.push_str(&format!(
                "<tr><td>{label}</td><td>{answer}</td><td class=\"number\">{}</td></tr>",
                pair.samples
            ));
        }
        html.push_str("</table></div>");
    }
    html.push_str("</div>");
    Some(html)
}

/// The matrix in words: its most frequent confusions.
fn described(report: &SingleLabelReport, names: &[String]) -> String {
    let worst = report.most_confused.iter().take(5).map(|pair| {
        format!("{} predicted as {}: {}", names[pair.label as usize], names[pair.answer as usize], pair.samples)
    });
    format!(
        "{} of {} images lie on the diagonal. {}.",
        format::percent(report.top1),
        report.samples,
        worst.collect::<Vec<_>>().join("; ")
    )
}

/// Scores per class, the worst first.
pub fn scores(evaluation: &Evaluation, report: &ClassifyReport) -> String {
    let names = report.names.iter().map(String::as_str);
    let mut rows: Vec<(&str, Option<Option<f64>>, &ClassScores)> = match &report.metrics {
        LabelMetrics::Single(report) => names.zip(&report.classes).map(|(name, class)| (name, None, class)).collect(),
        LabelMetrics::Multi(report) => {
            let pairs = names.zip(&report.classes);
            pairs.map(|(name, class)| (name, Some(class.average_precision), &class.at_half)).collect()
        }
    };
    let key = |row: &(&str, Option<Option<f64>>, &ClassScores)| row.1.unwrap_or(row.2.f1).unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let several = matches!(report.metrics, LabelMetrics::Multi(_));
    let mut head = "<tr><th>class</th>".to_string();
    let columns = ["precision", "recall", "F1"];
    for column in several.then_some("average precision").into_iter().chain(columns).chain(["images"]) {
        head.push_str(&format!("<th class=\"number\">{column}</th>"));
    }
    head.push_str("</tr>");
    let row = |(name, average, class): &(&str, Option<Option<f64>>, &ClassScores)| {
        let cell = |share: Option<f64>| {
            let width = 100.0 * share.unwrap_or(0.0);
            format!("<td class=\"number share\" style=\"--share:{width:.1}%\">{}</td>", percent_or_dash(share))
        };
        let average = average.map(&cell).unwrap_or_default();
        let shares: String = [class.precision, class.recall, class.f1].into_iter().map(&cell).collect();
        format!(
            "<tr><td>{}</td>{average}{shares}<td class=\"number\">{}</td></tr>",
            escape(name),
            format::thousands(class.support)
        )
    };
    let table = |rows: &[(&str, Option<Option<f64>>, &ClassScores)]| {
        format!(
            "<div class=\"scroll\"><table class=\"scores\">{head}{}</table></div>",
            rows.iter().map(row).collect::<String>()
        )
    };
    let shown = rows.len().min(SHOWN_CLASSES);
    let mut html = of_evaluation(evaluation);
    html.push_str(&summary(&report.metrics));
    html.push_str(&table(&rows[..shown]));
    if rows.len() > shown {
        let rest = format::count(rows.len() - shown, "class", "classes");
        html.push_str(&format!("<details><summary>{rest} more</summary>{}</details>", table(&rows[shown..])));
    }
    html
}

fn summary(metrics: &LabelMetrics) -> String {
    match metrics {
        LabelMetrics::Single(report) => {
            let undecided = match report.undecided {
                0 => String::new(),
                count => format!(" {count} predictions have logits that are not finite and count as wrong."),
            };
            format!("<p>The worst first. Macro F1 is {}.{undecided}</p>", format::percent(report.macro_f1))
        }
        LabelMetrics::Multi(report) => format!(
            "<p>Images have several labels, so there is no confusion matrix, no calibration and no list of mistakes.</p>\
             <p>The worst first. Mean average precision is {:.4}; at a threshold of 0.5, micro F1 is {} and macro F1 {}.</p>",
            report.mean_average_precision,
            format::percent(report.micro_f1),
            format::percent(report.macro_f1)
        ),
    }
}

/// Confidence against accuracy; `None` where images have several labels.
pub fn calibration(evaluation: &Evaluation, report: &ClassifyReport) -> Option<String> {
    let LabelMetrics::Single(report) = &report.metrics else { return None };
    let mut chart = Reliability::new("Calibration");
    let (mut said, mut right, mut all) = (0.0, 0.0, 0);
    for bin in &report.reliability {
        let (Some(confidence), Some(accuracy)) = (bin.confidence, bin.accuracy) else { continue };
        chart = chart.bin(ConfidenceBin { low: bin.above, high: bin.up_to, confidence, accuracy, count: bin.samples });
        said += confidence * bin.samples as f64;
        right += accuracy * bin.samples as f64;
        all += bin.samples;
    }
    let mut html = of_evaluation(evaluation);
    if all == 0 {
        html.push_str("<p>No prediction has finite logits, so there is nothing to compare.</p>");
        return Some(html);
    }
    let gap = 100.0 * (said - right) / all as f64;
    let verdict = match gap {
        gap if gap.abs() < 0.5 => "on average, confidence equals accuracy".to_string(),
        gap if gap > 0.0 => format!("on average, confidence is {gap:.1} points above accuracy"),
        gap => format!("on average, confidence is {:.1} points below accuracy", -gap),
    };
    html.push_str(&format!(
        "<p>The expected calibration error is {} (at most {} in a bin): {verdict}.</p>",
        format::percent(report.expected_calibration_error),
        format::percent(report.max_calibration_error)
    ));
    html.push_str(&figure("Reliability", &chart.svg(), "Accuracy of the predictions, by their confidence."));
    Some(html)
}
