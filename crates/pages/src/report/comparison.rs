//! Several runs side by side.

use std::collections::{BTreeMap, BTreeSet};

use crate::chart::Lines;
use crate::{Document, escape};
use vitreous_train::tasks::classify::{ClassifyReport, LabelMetrics};
use vitreous_train::{Direction, Metric, RunRecord};

use super::curves::{Curve, Scale, axis, metrics, points};
use super::headline::Headline;
use super::{STYLE, faults, figure, name_of, percent_or_dash};
use crate::format;

/// With more classes than this, only those that differ most are shown at first.
const SHOWN_CLASSES: usize = 40;

/// The page.
pub fn page(runs: &[RunRecord]) -> String {
    let names = names(runs);
    let mut document = Document::new(&format!("{} runs side by side", runs.len()));
    document.kind("comparison").style(STYLE).lead(&lead(runs, &names));
    document
        .section("numbers", "Numbers", &numbers(runs, &names))
        .section("curves", "Curves", &curves(runs, &names))
        .section("recipes", "What differs in their recipes", &recipes(runs, &names))
        .section("classes", "Recall by class", &classes(runs, &names));
    document.finish()
}

/// Directory names; whole paths where two are called the same.
fn names(runs: &[RunRecord]) -> Vec<String> {
    let short: Vec<String> = runs.iter().map(name_of).collect();
    let distinct: BTreeSet<&String> = short.iter().collect();
    match distinct.len() == short.len() {
        true => short,
        false => runs.iter().map(|run| run.path.display().to_string()).collect(),
    }
}

fn lead(runs: &[RunRecord], names: &[String]) -> String {
    let mut html = String::new();
    for (run, name) in runs.iter().zip(names) {
        if run.in_progress {
            html.push_str(&format!("<p>{} goes on; write this page again for more.</p>", escape(name)));
        }
        if !run.faults.is_empty() {
            html.push_str(&format!("<p>{}:</p>{}", escape(name), faults(run)));
        }
    }
    html
}

/// A row of the table of numbers: what it is, the numbers, how they are written, and whether more is better.
struct Row {
    name: String,
    value: Box<dyn Fn(&Headline) -> Option<f64>>,
    text: Box<dyn Fn(f64) -> String>,
    better: Better,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    More,
    Less,
    /// Of runs that have done the same work, else neither.
    MoreForTheSameWork,
    LessForTheSameWork,
    Neither,
}

impl Row {
    fn new(
        name: impl Into<String>,
        value: impl Fn(&Headline) -> Option<f64> + 'static,
        text: impl Fn(f64) -> String + 'static,
        better: Better,
    ) -> Row {
        Row { name: name.into(), value: Box::new(value), text: Box::new(text), better }
    }

    /// The rows of a metric of evaluations: the last one and, where it decides, the best.
    fn of_metric(metric: &'static Metric) -> Vec<Row> {
        let better = match metric.direction {
            Direction::HigherIsBetter => Better::More,
            Direction::LowerIsBetter => Better::Less,
        };
        let label = metric.label;
        let last = move |headline: &Headline| headline.score(metric.key);
        let text = move |value: f64| metric.text(value);
        if !metric.decides {
            return vec![Row::new(format!("validation {label}"), last, text, better)];
        }
        let best = |headline: &Headline| headline.best;
        let best =
            move |headline: &Headline| best(headline).filter(|best| best.metric == metric).map(|best| best.value);
        vec![
            Row::new(format!("best validation {label}"), best, text, better),
            Row::new(format!("last validation {label}"), last, text, better),
        ]
    }
}

/// All rows, for runs with these metrics.
fn rows(metrics: Vec<&'static Metric>) -> Vec<Row> {
    let mut rows: Vec<Row> = metrics.into_iter().flat_map(Row::of_metric).collect();
    let loss = |headline: &Headline| headline.training.map(|means| means.loss);
    rows.extend([
        Row::new("training loss", loss, |loss| format!("{loss:.4}"), Better::Neither),
        Row::new("epochs", |h| h.epoch, |epochs| format!("{epochs:.1}"), Better::Neither),
        Row::new("steps", |h| Some(h.step as f64), whole, Better::Neither),
        Row::new("time", |h| Some(h.seconds), format::seconds, Better::LessForTheSameWork),
        Row::new("images a second", |h| h.speed, whole, Better::MoreForTheSameWork),
        Row::new("parameters", |h| h.parameters.map(|count| count as f64), whole, Better::Neither),
    ]);
    rows
}

fn whole(value: f64) -> String {
    format::thousands(value as u64)
}

fn numbers(runs: &[RunRecord], names: &[String]) -> String {
    let headlines: Vec<Headline> = runs.iter().map(Headline::of).collect();
    let same_work = headlines.windows(2).all(|pair| pair[0].step == pair[1].step && pair[0].state == pair[1].state);
    let all: Vec<&RunRecord> = runs.iter().collect();
    let table = rows(metrics(&all));
    let mut rows = String::new();
    let states: String = headlines
        .iter()
        .map(|headline| format!("<td class=\"number marked\">{}</td>", headline.state.name()))
        .collect();
    rows.push_str(&format!("<tr><th>state</th>{states}</tr>"));
    for row in &table {
        let values: Vec<Option<f64>> = headlines.iter().map(&row.value).collect();
        let known = || values.iter().flatten().copied();
        if known().next().is_none() {
            continue;
        }
        let best = match row.better {
            Better::MoreForTheSameWork | Better::LessForTheSameWork if !same_work => None,
            Better::More | Better::MoreForTheSameWork => Some(known().fold(f64::NEG_INFINITY, f64::max)),
            Better::Less | Better::LessForTheSameWork => Some(known().fold(f64::INFINITY, f64::min)),
            Better::Neither => None,
        };
        let cell = |value: &Option<f64>| {
            let class = if value.is_some() && *value == best { "number marked best" } else { "number marked" };
            format!("<td class=\"{class}\">{}</td>", value.map_or("–".to_string(), &row.text))
        };
        rows.push_str(&format!("<tr><th>{}</th>{}</tr>", row.name, values.iter().map(cell).collect::<String>()));
    }
    format!(
        "<div class=\"scroll\"><table><tr><th></th>{}</tr>{rows}</table></div><p class=\"note\">A star marks the best of a row.{}</p>",
        heads(names),
        if same_work { "" } else { " Time and speed have none: the runs differ in their steps or state." }
    )
}

fn heads(names: &[String]) -> String {
    names.iter().map(|name| format!("<th class=\"number\">{}</th>", escape(name))).collect()
}

fn curves(runs: &[RunRecord], names: &[String]) -> String {
    let all: Vec<&RunRecord> = runs.iter().collect();
    let of_metric = |metric: &'static Metric| {
        (format!("Validation {}", metric.label), axis(metric), Scale::Tight, Curve::Validation(metric))
    };
    let other = |title: &str, axis: &str, scale, curve| (title.to_string(), axis.to_string(), scale, curve);
    let others = [
        other("Training loss", "loss", Scale::Tight, Curve::Loss),
        other("Learning rate", "learning rate", Scale::FromZero, Curve::LearningRate),
        other("Speed", "per second", Scale::FromZero, Curve::Speed),
        other("Gradient norm", "norm, logarithmic", Scale::Log, Curve::GradientNorm),
    ];
    let mut html = String::new();
    for (title, axis, scale, curve) in metrics(&all).into_iter().map(of_metric).chain(others) {
        let mut lines = scale.of(Lines::new(&title).x("epoch").whole_x().y(&axis));
        let mut empty = true;
        for (run, name) in runs.iter().zip(names) {
            let points = points(run, curve);
            empty &= points.is_empty();
            // Also without points, so that a run has the same colour in every chart.
            lines = lines.series(name, &points);
        }
        if !empty {
            html.push_str(&figure(&title, &lines.svg(), ""));
        }
    }
    match html.is_empty() {
        true => "<p>Nothing was measured yet.</p>".to_string(),
        false => format!("<div class=\"charts\">{html}</div>"),
    }
}

/// Only the keys that differ.
fn recipes(runs: &[RunRecord], names: &[String]) -> String {
    // Of what is not wholly known, no difference is claimed.
    let known = |run: &'_ RunRecord| run.missing_keys.is_empty();
    let recipes: Vec<_> = runs.iter().map(|run| run.recipe.as_ref().ok().filter(|_| known(run))).collect();
    let Some(first) = recipes.iter().flatten().next() else {
        return "<p>None of their recipes is whole and can be understood.</p>".to_string();
    };
    let keys: BTreeSet<String> = recipes
        .iter()
        .flatten()
        .flat_map(|recipe| first.differences(recipe))
        .map(|difference| difference.key)
        .collect();
    if keys.is_empty() {
        return match recipes.iter().all(Option::is_some) {
            true => "<p>Nothing: they are the same.</p>".to_string(),
            false => "<p>Nothing, as far as their recipes are whole and can be understood.</p>".to_string(),
        };
    }
    let values: Vec<_> = recipes.iter().map(|recipe| recipe.map(|recipe| recipe.values())).collect();
    let mut rows = String::new();
    for key in keys {
        let cell = |values: &Option<BTreeMap<String, String>>| match values {
            None => "<td>unknown</td>".to_string(),
            Some(values) => match values.get(&key) {
                Some(value) => format!("<td><code>{}</code></td>", escape(value)),
                None => "<td>none</td>".to_string(),
            },
        };
        rows.push_str(&format!(
            "<tr><td><code>{}</code></td>{}</tr>",
            escape(&key),
            values.iter().map(cell).collect::<String>()
        ));
    }
    let heads: String = names.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
    format!("<div class=\"scroll\"><table><tr><th>key</th>{heads}</tr>{rows}</table></div>")
}

/// The recall of each class in each run; the classes in which runs differ most come first.
fn classes(runs: &[RunRecord], names: &[String]) -> String {
    let recalls: Vec<Vec<(&str, Option<f64>)>> = runs.iter().map(recalls).collect();
    let mut classes: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    for (class, _) in recalls.iter().flatten() {
        if seen.insert(*class) {
            classes.push(class);
        }
    }
    if classes.is_empty() {
        return "<p>None of them has kept what its last test found.</p>".to_string();
    }
    let by_name: Vec<BTreeMap<&str, Option<f64>>> = recalls.iter().map(|run| run.iter().copied().collect()).collect();
    let of =
        |class: &str| -> Vec<Option<f64>> { by_name.iter().map(|run| run.get(class).copied().flatten()).collect() };
    let mut rows: Vec<(&str, Vec<Option<f64>>, f64)> = classes
        .into_iter()
        .map(|class| {
            let recalls = of(class);
            let (low, high) =
                recalls.iter().flatten().fold((1.0f64, 0.0f64), |(low, high), &x| (low.min(x), high.max(x)));
            (class, recalls, high - low)
        })
        .collect();
    rows.sort_by(|a, b| b.2.total_cmp(&a.2));
    let row = |(class, recalls, spread): &(&str, Vec<Option<f64>>, f64)| {
        let cell = |recall: &Option<f64>| {
            let width = 100.0 * recall.unwrap_or(0.0);
            format!("<td class=\"number share\" style=\"--share:{width:.1}%\">{}</td>", percent_or_dash(*recall))
        };
        let cells: String = recalls.iter().map(cell).collect();
        format!("<tr><td>{}</td>{cells}<td class=\"number\">{:.1}</td></tr>", escape(class), 100.0 * spread.max(0.0))
    };
    let head = format!("<tr><th>class</th>{}<th class=\"number\">points apart</th></tr>", heads(names));
    let table = |rows: &[(&str, Vec<Option<f64>>, f64)]| {
        format!(
            "<div class=\"scroll\"><table class=\"scores\">{head}{}</table></div>",
            rows.iter().map(row).collect::<String>()
        )
    };
    let shown = rows.len().min(SHOWN_CLASSES);
    let rest = match rows.len() - shown {
        0 => String::new(),
        more => format!(
            "<details><summary>{} more</summary>{}</details>",
            format::count(more, "class", "classes"),
            table(&rows[shown..])
        ),
    };
    format!(
        "<p>Of the images of a class, the share that was found, in the last test of each run. Classes in which the runs differ most come first.</p>{}{rest}",
        table(&rows[..shown])
    )
}

fn recalls(run: &RunRecord) -> Vec<(&str, Option<f64>)> {
    let report = run.evaluation.as_ref().and_then(|evaluation| evaluation.scores.report::<ClassifyReport>());
    let Some(ClassifyReport { names, metrics, .. }) = report else { return Vec::new() };
    let recalls: Vec<Option<f64>> = match metrics {
        LabelMetrics::Single(report) => report.classes.iter().map(|class| class.recall).collect(),
        LabelMetrics::Multi(report) => report.classes.iter().map(|class| class.at_half.recall).collect(),
    };
    names.iter().map(String::as_str).zip(recalls).collect()
}
