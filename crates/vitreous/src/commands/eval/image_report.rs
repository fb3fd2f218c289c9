//! What `vitreous eval` prints for people.

use vitreous_pages::format::{self, percent};
use vitreous_train::tasks::classify::LabelMetrics;
use vitreous_train::tasks::classify::metrics::{ClassScores, MultiLabelReport, SingleLabelReport};

use super::images::{About, samples};

/// With more classes than this, only the worst are shown.
const MOST_CLASSES: usize = 25;
/// How many that is then.
const WORST_CLASSES: usize = 10;
/// With more classes than this there is no confusion matrix.
const MOST_COLUMNS: usize = 20;
/// How many confusions are named.
const CONFUSIONS: usize = 8;

/// The whole report.
pub fn lines(metrics: &LabelMetrics, about: &About, all: bool) -> Vec<String> {
    let mut lines = vec![format!(
        "{}, {}: {} in {:.2} s, {:.0} images/s",
        about.data,
        about.split,
        format::count(samples(metrics) as usize, "image", "images"),
        about.seconds,
        samples(metrics) as f64 / about.seconds
    )];
    match metrics {
        LabelMetrics::Single(report) => one_label(report, &about.names, all, &mut lines),
        LabelMetrics::Multi(report) => several_labels(report, &about.names, all, &mut lines),
    }
    lines
}

fn one_label(report: &SingleLabelReport, names: &[String], all: bool, lines: &mut Vec<String>) {
    let top5 = report.top5.map(|top5| format!("   top-5 {}", percent(top5))).unwrap_or_default();
    lines.push(format!("top-1 {}{top5}   loss {:.4}", percent(report.top1), report.loss));
    lines.push(format!(
        "macro F1 {}   expected calibration error {} (at most {} in a bin)",
        percent(report.macro_f1),
        percent(report.expected_calibration_error),
        percent(report.max_calibration_error)
    ));
    if report.undecided > 0 {
        let count = format::count(report.undecided as usize, "image has", "images have");
        lines.push(format!("warning: {count} logits that are NaN; they count as wrong"));
    }
    let classes: Vec<(String, Option<f64>, &ClassScores)> =
        names.iter().zip(&report.classes).map(|(name, class)| (format::one_line(name), None, class)).collect();
    lines.push(String::new());
    lines.extend(class_table(classes, all));
    if !report.most_confused.is_empty() {
        lines.extend([String::new(), "most frequent confusions".to_string()]);
    }
    for confusion in report.most_confused.iter().take(CONFUSIONS) {
        let [label, answer] = [confusion.label, confusion.answer].map(|class| format::one_line(&names[class as usize]));
        let share = confusion.samples as f64 / report.classes[confusion.label as usize].support as f64;
        lines.push(format!("  {label} taken for {answer}: {} ({} of its images)", confusion.samples, percent(share)));
    }
    if let Some(matrix) = report.confusion.as_ref().filter(|_| names.len() <= MOST_COLUMNS) {
        lines.extend([
            String::new(),
            "confusion matrix: rows are true classes, columns are predictions, in the same order".to_string(),
        ]);
        let row = |(name, counts): (&String, &Vec<u64>)| {
            let counts = counts.iter().map(|count| if *count == 0 { ".".to_string() } else { count.to_string() });
            std::iter::once(format!("  {}", format::one_line(name))).chain(counts).collect()
        };
        lines.extend(format::table(&names.iter().zip(matrix).map(row).collect::<Vec<_>>()));
    }
}

fn several_labels(report: &MultiLabelReport, names: &[String], all: bool, lines: &mut Vec<String>) {
    lines.push(format!(
        "mean average precision {}   loss {:.4}   micro F1 {}   macro F1 {}",
        percent(report.mean_average_precision),
        report.loss,
        percent(report.micro_f1),
        percent(report.macro_f1)
    ));
    let classes = names
        .iter()
        .zip(&report.classes)
        .map(|(name, class)| (format::one_line(name), class.average_precision, &class.at_half))
        .collect();
    lines.push(String::new());
    lines.extend(class_table(classes, all));
}

/// One row per class that occurs; the worst, by recall, where there are many.
fn class_table(mut classes: Vec<(String, Option<f64>, &ClassScores)>, all: bool) -> Vec<String> {
    // The model may know more classes than the data has.
    classes.retain(|(_, _, class)| class.support > 0 || class.precision.is_some());
    let count = classes.len();
    let folded = count > MOST_CLASSES && !all;
    if folded {
        let recall = |class: &ClassScores| class.recall.unwrap_or(f64::INFINITY);
        classes.sort_by(|a, b| recall(a.2).total_cmp(&recall(b.2)));
        classes.truncate(WORST_CLASSES);
    }
    let averaged = classes.iter().any(|(_, average, _)| average.is_some());
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_string(), percent);
    let mut head = vec!["class", "precision", "recall", "F1", "images"];
    if averaged {
        head.insert(1, "average precision");
    }
    let mut rows = vec![head.into_iter().map(str::to_string).collect::<Vec<_>>()];
    for (name, average, class) in classes {
        let mut row =
            vec![share(class.precision), share(class.recall), share(class.f1), format::thousands(class.support)];
        if averaged {
            row.insert(0, share(average));
        }
        row.insert(0, name);
        rows.push(row);
    }
    let mut lines = format::table(&rows);
    if folded {
        let shown = WORST_CLASSES;
        lines.push(format!("these {shown} of {count} classes are found least often; --all shows every class"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(count: usize) -> Vec<ClassScores> {
        let class = |class: usize| ClassScores {
            precision: Some(0.5),
            recall: Some((class * 7 % count) as f64 / count as f64),
            f1: None,
            support: 1000,
        };
        (0..count).map(class).collect()
    }

    fn table(count: usize, all: bool) -> Vec<String> {
        let classes = classes(count);
        let rows = classes.iter().enumerate().map(|(index, class)| (format!("c{index}"), None, class)).collect();
        class_table(rows, all)
    }

    #[test]
    fn many_classes_are_folded_to_the_worst() {
        assert_eq!(table(25, false).len(), 1 + 25);
        let folded = table(30, false);
        assert_eq!(folded.len(), 1 + WORST_CLASSES + 1);
        // 7 times 13 is 91, 1 above three times 30.
        assert!(folded[1].starts_with("c0 ") && folded[2].starts_with("c13"), "{folded:?}");
        assert!(folded[11].contains("10 of 30"), "{folded:?}");
        assert_eq!(table(30, true).len(), 1 + 30);
    }

    #[test]
    fn classes_that_neither_occur_nor_were_said_are_left_out() {
        let (absent, there) = (ClassScores { precision: None, recall: None, f1: None, support: 0 }, &classes(1)[0]);
        let rows = vec![("absent".to_string(), None, &absent), ("there".to_string(), None, there)];
        let lines = class_table(rows, false);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["there", "50.00", "%", "0.00", "%", "-", "1,000"]);
    }
}
