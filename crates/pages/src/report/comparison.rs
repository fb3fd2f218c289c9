//! The comparison of several runs.

use std::collections::{BTreeMap, BTreeSet};

use vitreous_train::tasks::classify::{ClassifyReport, LabelMetrics};
use vitreous_train::{Direction, Format, Metric, RunRecord, Score};

use super::curves::{Curve, Division, SMOOTHING, axis, chart, metrics, points};
use super::headline::{Headline, speed_unit};
use super::{STYLE, faults, figure, is_text, name_of, percent_or_dash, validation};
use crate::chart::{CURVES_SCRIPT, CURVES_STYLE};
use crate::{Document, Section, escape, format};

/// With more classes than this, only those that differ most are shown at first.
const SHOWN_CLASSES: usize = 40;

/// The page.
pub fn page(runs: &[RunRecord]) -> String {
    let names = names(runs);
    let mut document = Document::new(&format!("Comparison of {} runs", runs.len()));
    document.kind("comparison").style(STYLE).style(CURVES_STYLE).lead(&lead(runs, &names));
    document.sections(sections(runs)).script(CURVES_SCRIPT);
    document.finish()
}

/// The sections of the page.
pub fn sections(runs: &[RunRecord]) -> Vec<Section> {
    let names = names(runs);
    let differences = validation::differences(runs);
    let mut all = vec![
        Section::new("numbers", "Numbers", numbers(runs, &names, &differences)),
        Section::new("curves", "Curves", curves(runs, &names)),
        Section::new("recipes", "Differences between the recipes", recipes(runs, &names)),
    ];
    if !runs.iter().all(is_text) {
        all.push(Section::new("classes", "Recall per class", classes(runs, &names)));
    }
    all
}

/// Directory names; whole paths where two have the same name.
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
            html.push_str(&format!("<p>{} is running; write this page again for newer numbers.</p>", escape(name)));
        }
        if !run.faults.is_empty() {
            html.push_str(&format!("<p>{}:</p>{}", escape(name), faults(run)));
        }
    }
    html
}

/// The value of a row in one run.
type RowValue = Box<dyn Fn(&Headline) -> Option<f64>>;

/// A row of the table of numbers: its name, its values, how they are written, and which is best.
struct Row {
    name: String,
    value: RowValue,
    text: Box<dyn Fn(f64) -> String>,
    better: Better,
    /// A share of samples, whose confidence intervals follow in a row of their own.
    share: Option<&'static Metric>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    More,
    Less,
    /// Between runs that have done the same work, else neither.
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
        Row { name: name.into(), value: Box::new(value), text: Box::new(text), better, share: None }
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
        let share = Some(metric).filter(|metric| metric.format == Format::Percent);
        if !metric.decides {
            return vec![Row { share, ..Row::new(format!("validation {label}"), last, text, better) }];
        }
        let best = |headline: &Headline| headline.best;
        let best =
            move |headline: &Headline| best(headline).filter(|best| best.metric == metric).map(|best| best.value);
        vec![
            Row::new(format!("best validation {label}"), best, text, better),
            Row { share, ..Row::new(format!("last validation {label}"), last, text, better) },
        ]
    }
}

/// All rows, for runs with these metrics and this speed.
fn rows(metrics: Vec<&'static Metric>, speed: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = metrics.into_iter().flat_map(Row::of_metric).collect();
    let loss = |headline: &Headline| headline.training.map(|means| means.loss);
    rows.extend([
        Row::new("training loss (mean over the last whole epoch)", loss, four, Better::Neither),
        Row::new("epochs", |h| h.epoch, |epochs| format!("{epochs:.1}"), Better::Neither),
        Row::new("steps", |h| Some(h.step as f64), whole, Better::Neither),
        Row::new("time", |h| Some(h.seconds), format::seconds, Better::LessForTheSameWork),
        Row::new(format!("{speed} per second"), |h| h.speed, whole, Better::MoreForTheSameWork),
        Row::new("parameters", |h| h.parameters.map(|count| count as f64), whole, Better::Neither),
    ]);
    rows
}

fn four(value: f64) -> String {
    format!("{value:.4}")
}

fn whole(value: f64) -> String {
    format::thousands(value as u64)
}

/// The table of numbers. Where the validation sets differ, it says so and stars nothing.
fn numbers(runs: &[RunRecord], names: &[String], differences: &[String]) -> String {
    let headlines: Vec<Headline> = runs.iter().map(Headline::of).collect();
    let same_work = headlines.windows(2).all(|pair| pair[0].step == pair[1].step && pair[0].state == pair[1].state);
    let all: Vec<&RunRecord> = runs.iter().collect();
    let cells = |texts: Vec<String>| -> String {
        texts.iter().map(|text| format!("<td class=\"number marked\">{text}</td>")).collect()
    };
    let states = headlines.iter().map(|headline| headline.state.name().to_string()).collect();
    let mut html = format!("<tr><th>state</th>{}</tr>", cells(states));
    for row in rows(metrics(&all), unit_of(runs)) {
        let values: Vec<Option<f64>> = headlines.iter().map(&row.value).collect();
        if values.iter().flatten().next().is_none() {
            continue;
        }
        // What reads the same is no better.
        let texts: BTreeSet<String> = values.iter().flatten().map(|&value| (row.text)(value)).collect();
        let stars = differences.is_empty() && (texts.len() > 1 || values.len() == 1);
        let best = best(row.better, &values, same_work).filter(|_| stars);
        let cell = |value: &Option<f64>| {
            let class = if value.is_some() && *value == best { "number marked best" } else { "number marked" };
            format!("<td class=\"{class}\">{}</td>", value.map_or("–".to_string(), &row.text))
        };
        html.push_str(&format!("<tr><th>{}</th>{}</tr>", row.name, values.iter().map(cell).collect::<String>()));
        let Some(metric) = row.share else { continue };
        let interval =
            |(headline, value): (&Headline, &Option<f64>)| headline.interval(Score { metric, value: (*value)? });
        let intervals: Vec<Option<[f64; 2]>> = headlines.iter().zip(&values).map(interval).collect();
        if intervals.iter().any(Option::is_some) {
            let range = |[low, high]: [f64; 2]| format!("{:.2} to {}", 100.0 * low, format::percent(high));
            let ranges = intervals.into_iter().map(|interval| interval.map_or("–".to_string(), range)).collect();
            html.push_str(&format!("<tr><th>its 95 % confidence interval</th>{}</tr>", cells(ranges)));
        }
    }
    format!(
        "{}<div class=\"scroll\"><table><tr><th></th>{}</tr>{html}</table></div>{}",
        warning(differences),
        heads(names),
        legend(differences, same_work)
    )
}

/// That results cannot be compared, and why.
fn warning(differences: &[String]) -> String {
    match differences.is_empty() {
        true => String::new(),
        false => format!(
            "<p class=\"note warn\"><strong>The validation sets differ, so these results cannot be compared, and no best is \
             marked.</strong> {}</p>",
            escape(&differences.join(" "))
        ),
    }
}

fn legend(differences: &[String], same_work: bool) -> String {
    match (differences.is_empty(), same_work) {
        (false, _) => String::new(),
        (true, true) => "<p class=\"note\">A star marks the best of a row.</p>".to_string(),
        (true, false) => {
            "<p class=\"note\">A star marks the best of a row. Time and speed have none: the runs differ in their \
                          steps or state.</p>"
                .to_string()
        }
    }
}

/// The best value of a row.
fn best(better: Better, values: &[Option<f64>], same_work: bool) -> Option<f64> {
    let known = values.iter().flatten().copied();
    match better {
        Better::MoreForTheSameWork | Better::LessForTheSameWork if !same_work => None,
        Better::More | Better::MoreForTheSameWork => Some(known.fold(f64::NEG_INFINITY, f64::max)),
        Better::Less | Better::LessForTheSameWork => Some(known.fold(f64::INFINITY, f64::min)),
        Better::Neither => None,
    }
}

/// What speed is measured in, if all runs measure the same.
fn unit_of(runs: &[RunRecord]) -> &str {
    let units: BTreeSet<&str> = runs.iter().filter_map(speed_unit).collect();
    match units.len() {
        1 => units.first().copied().unwrap_or_default(),
        _ => "units",
    }
}

fn heads(names: &[String]) -> String {
    names.iter().map(|name| format!("<th class=\"number\">{}</th>", escape(name))).collect()
}

fn curves(runs: &[RunRecord], names: &[String]) -> String {
    let all: Vec<&RunRecord> = runs.iter().collect();
    let of_metric = |metric: &'static Metric| {
        (format!("Validation {}", metric.label), axis(metric), Division::Tight, Curve::Validation(metric))
    };
    let other = |title: &str, axis: &str, division, curve| (title.to_string(), axis.to_string(), division, curve);
    let speed = format!("{}/s", unit_of(runs));
    let others = [
        other("Training loss", "loss", Division::Tight, Curve::Loss),
        other("Learning rate", "learning rate", Division::FromZero, Curve::LearningRate),
        other("Speed", &speed, Division::FromZero, Curve::Speed),
        other("Gradient norm", "norm, logarithmic", Division::Log, Curve::GradientNorm),
    ];
    let mut html = String::new();
    for (title, axis, division, curve) in metrics(&all).into_iter().map(of_metric).chain(others) {
        let mut lines = chart(&title, &axis, division);
        let mut empty = true;
        for (run, name) in runs.iter().zip(names) {
            let points = points(run, curve);
            empty &= points.is_empty();
            // Also without points, so that a run has the same colour in every chart.
            lines = lines.series(name, &points);
        }
        if !empty {
            html.push_str(&figure(&title, &lines.interactive(), ""));
        }
    }
    match html.is_empty() {
        true => "<p>Nothing has been logged yet.</p>".to_string(),
        false => format!("{SMOOTHING}<div class=\"charts\">{html}</div>"),
    }
}

/// Only the keys that differ.
fn recipes(runs: &[RunRecord], names: &[String]) -> String {
    // Recipes that are not completely known are left out.
    let known = |run: &'_ RunRecord| run.missing_keys.is_empty();
    let recipes: Vec<_> = runs.iter().map(|run| run.recipe.as_ref().ok().filter(|_| known(run))).collect();
    let Some(first) = recipes.iter().flatten().next() else {
        return "<p>None of the recipes is complete and readable.</p>".to_string();
    };
    let keys: BTreeSet<String> = recipes
        .iter()
        .flatten()
        .flat_map(|recipe| first.differences(recipe))
        .map(|difference| difference.key)
        .collect();
    if keys.is_empty() {
        return match recipes.iter().all(Option::is_some) {
            true => "<p>None: the recipes are the same.</p>".to_string(),
            false => "<p>None, as far as the recipes are complete and readable.</p>".to_string(),
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
        return "<p>No run has an evaluation with classes.</p>".to_string();
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
        "<p>Recall in the last evaluation of each run: the share of a class's images that are predicted as this class. Classes in which the runs differ most come first.</p>{}{rest}",
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
