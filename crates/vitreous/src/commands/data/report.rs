//! What `vitreous data` prints.

use std::path::Path;

use serde_json::{Value, json};
use vitreous_data::dataset::{Inspection, Sizes, Splits};

use vitreous_pages::format;

/// Of more classes than this, only the first and the last are listed.
const SHOWN_CLASSES: usize = 20;
/// Of more broken files than this, only the first are listed.
const SHOWN_BROKEN: usize = 20;

/// Statistics of one split.
pub struct SplitStatistics {
    pub name: &'static str,
    pub images: usize,
    /// Number of images per class.
    pub classes: Vec<usize>,
    pub inspection: Inspection,
}

/// Statistics of a data set.
pub struct Report<'a> {
    pub path: Option<&'a Path>,
    pub splits: &'a Splits,
    /// Training, validation and, where there is one, the test part.
    pub parts: Vec<SplitStatistics>,
    pub threads: usize,
}

impl Report<'_> {
    pub fn json(&self) -> Value {
        let part = |part: &SplitStatistics| {
            let Inspection { looked_at, broken, sizes, grey, mean, deviation } = &part.inspection;
            let broken: Vec<Value> =
                broken.iter().map(|broken| json!({"name": broken.name, "error": broken.reason})).collect();
            let range = |axis: usize| {
                sizes.range(axis).map(|[min, median, max]| json!({"min": min, "median": median, "max": max}))
            };
            json!({
                "images": part.images,
                "looked_at": looked_at,
                "broken": broken,
                "height": range(0),
                "width": range(1),
                "distinct_sizes": sizes.counts.len(),
                "grey": grey,
                "mean": mean,
                "deviation": deviation,
            })
        };
        let class = |(index, name): (usize, &String)| {
            let counts = self.parts.iter().map(|part| (part.name.to_string(), part.classes[index].into()));
            let name = ("name".to_string(), Value::from(name.as_str()));
            Value::Object(std::iter::once(name).chain(counts).collect())
        };
        let mut report = json!({
            "path": self.path.map(|path| path.to_string_lossy()),
            "kind": self.splits.kind,
            "several_labels": self.splits.several_labels,
            "classes": self.splits.classes.iter().enumerate().map(class).collect::<Vec<_>>(),
            "notes": self.splits.notes,
            "threads": self.threads,
        });
        self.parts.iter().for_each(|split| report[split.name] = part(split));
        report
    }

    pub fn lines(&self) -> Vec<String> {
        let path = self.path.map(|path| format!("{}: ", format::one_line(&path.to_string_lossy()))).unwrap_or_default();
        let several = if self.splits.several_labels { ", multi-label" } else { "" };
        let classes = format::count(self.splits.classes.len(), "class", "classes");
        let mut lines = vec![format!("{path}{}, {classes}{several}", self.splits.kind), String::new()];
        lines.extend(format::table(&self.part_rows()));
        lines.push(String::new());
        lines.extend(format::table(&self.class_rows()));
        for part in &self.parts {
            lines.extend(broken_lines(part));
        }
        if !self.splits.notes.is_empty() {
            lines.push(String::new());
            lines.extend(self.splits.notes.iter().map(|note| format!("note: {}", format::one_line(note))));
        }
        lines.extend([String::new(), self.sample_note()]);
        lines
    }

    fn part_rows(&self) -> Vec<Vec<String>> {
        let row = |name: &str, cell: &dyn Fn(&SplitStatistics) -> String| -> Vec<String> {
            std::iter::once(name.to_string()).chain(self.parts.iter().map(cell)).collect()
        };
        let numbers = |numbers: &[f64]| match numbers {
            [] => "-".to_string(),
            numbers => numbers.iter().map(|number| format!("{number:.4}")).collect::<Vec<_>>().join(" "),
        };
        vec![
            row("split", &|part| part.name.to_string()),
            row("images", &|part| format::thousands(part.images as u128)),
            row("decoded", &|part| format::thousands(part.inspection.looked_at as u128)),
            row("broken", &|part| format::thousands(part.inspection.broken.len() as u128)),
            row("height", &|part| sides(&part.inspection.sizes, 0)),
            row("width", &|part| sides(&part.inspection.sizes, 1)),
            row("sizes", &|part| format::thousands(part.inspection.sizes.counts.len() as u128)),
            row("colour", &|part| match (part.inspection.mean.len(), part.inspection.grey) {
                (0, _) => "-".to_string(),
                (_, true) => "grey".to_string(),
                (_, false) => "RGB".to_string(),
            }),
            row("mean", &|part| numbers(&part.inspection.mean)),
            row("deviation", &|part| numbers(&part.inspection.deviation)),
        ]
    }

    /// One row per class; of many only the first and the last.
    fn class_rows(&self) -> Vec<Vec<String>> {
        let count = |number: usize| format::thousands(number as u128);
        let with_parts = |first: String, cell: &dyn Fn(&SplitStatistics) -> String| -> Vec<String> {
            std::iter::once(first).chain(self.parts.iter().map(cell)).collect()
        };
        let row = |index: usize| {
            let name = format::one_line(&self.splits.classes[index]);
            with_parts(name, &|part| count(part.classes[index]))
        };
        let mut rows = vec![with_parts("class".to_string(), &|part| part.name.to_string())];
        let total = self.splits.classes.len();
        if total <= SHOWN_CLASSES {
            rows.extend((0..total).map(row));
            return rows;
        }
        let folded = SHOWN_CLASSES - 4..total - 3;
        rows.extend((0..folded.start).map(row));
        let sum = |part: &SplitStatistics| count(part.classes[folded.clone()].iter().sum());
        rows.push(with_parts(format!("... {} more ...", count(folded.len())), &sum));
        rows.extend((folded.end..total).map(row));
        rows
    }

    fn sample_note(&self) -> String {
        let sampled = self.parts.iter().any(|part| part.inspection.looked_at < part.images);
        let threads = format::count(self.threads, "thread", "threads");
        match sampled {
            true => format!("Sizes, means, deviations and broken files are of a random sample; {threads}"),
            false => format!("Every image was decoded; {threads}"),
        }
    }
}

/// `32`, or `200 .. 375 .. 500` for the minimum, the median and the maximum.
fn sides(sizes: &Sizes, axis: usize) -> String {
    match sizes.range(axis) {
        None => "-".to_string(),
        Some([min, _, max]) if min == max => min.to_string(),
        Some([min, median, max]) => format!("{min} .. {median} .. {max}"),
    }
}

fn broken_lines(part: &SplitStatistics) -> Vec<String> {
    let broken = &part.inspection.broken;
    if broken.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), format!("broken in {}:", part.name)];
    let shown = broken.iter().take(SHOWN_BROKEN);
    lines.extend(
        shown.map(|broken| format!("  {}: {}", format::one_line(&broken.name), format::one_line(&broken.reason))),
    );
    if broken.len() > SHOWN_BROKEN {
        lines.push(format!(
            "  ... and {} more; --json lists all",
            format::thousands((broken.len() - SHOWN_BROKEN) as u128)
        ));
    }
    lines
}
