//! The comparison of several runs.

use std::collections::{BTreeMap, BTreeSet};

use vitreous_train::{RunRecord, TestedScores};

use super::curves::{Curve, Division, SMOOTHING, chart, points, speed_unit};
use super::headline::Headline;
use super::{STYLE, faults, figure, is_text, name_of, percent_or_dash, validation};
use crate::chart::{CURVES_SCRIPT, CURVES_STYLE};
use crate::{Document, escape, format};

/// With more classes than this, only those that differ most are shown at first.
const SHOWN_CLASSES: usize = 40;

/// The page.
pub fn page(runs: &[RunRecord]) -> String {
    let names = names(runs);
    let differences = validation::differences(runs);
    let mut document = Document::new(&format!("Comparison of {} runs", runs.len()));
    document.kind("comparison").style(STYLE).style(CURVES_STYLE).lead(&lead(runs, &names));
    document
        .section("numbers", "Numbers", &numbers(runs, &names, &differences))
        .section("curves", "Curves", &curves(runs, &names))
        .section("recipes", "Differences between the recipes", &recipes(runs, &names));
    if !runs.iter().all(is_text) {
        document.section("classes", "Recall per class", &classes(runs, &names));
    }
    document.script(CURVES_SCRIPT);
    document.finish()
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
        if run.goes_on {
            html.push_str(&format!("<p>{} is running; write this page again for newer numbers.</p>", escape(name)));
        }
        if !run.faults.is_empty() {
            html.push_str(&format!("<p>{}:</p>{}", escape(name), faults(run)));
        }
    }
    html
}

/// A row of the table of numbers: its name, its values, how they are written, and which is best.
struct Row {
    name: &'static str,
    value: fn(&Headline) -> Option<f64>,
    text: fn(f64) -> String,
    better: Better,
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

/// The row that is named after the unit of speed.
const SPEED: &str = "speed";

const ROWS: [Row; 13] = [
    Row {
        name: "best validation accuracy",
        value: |h| h.top1.and(h.best),
        text: format::percent,
        better: Better::More,
    },
    Row { name: LAST_ACCURACY, value: |h| h.top1, text: format::percent, better: Better::More },
    Row { name: "best mean average precision", value: |h| h.map.and(h.best), text: four, better: Better::More },
    Row { name: "last mean average precision", value: |h| h.map, text: four, better: Better::More },
    Row { name: "best BLEU", value: |h| h.bleu.and(h.best), text: two, better: Better::More },
    Row { name: "last BLEU", value: |h| h.bleu, text: two, better: Better::More },
    Row { name: "validation loss", value: |h| h.validation_loss, text: four, better: Better::Less },
    Row {
        name: "training loss (mean over the last whole epoch)",
        value: |h| h.training_loss.map(|loss| loss.mean),
        text: four,
        better: Better::Neither,
    },
    Row { name: "epochs", value: |h| h.epoch, text: |epochs| format!("{epochs:.1}"), better: Better::Neither },
    Row { name: "steps", value: |h| Some(h.step as f64), text: whole, better: Better::Neither },
    Row { name: "time", value: |h| Some(h.seconds), text: format::seconds, better: Better::LessForTheSameWork },
    Row { name: SPEED, value: |h| h.speed, text: whole, better: Better::MoreForTheSameWork },
    Row { name: "parameters", value: |h| h.parameters.map(|count| count as f64), text: whole, better: Better::Neither },
];

/// The row that is followed by its confidence intervals.
const LAST_ACCURACY: &str = "last validation accuracy";

fn two(value: f64) -> String {
    format!("{value:.2}")
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
    let cells = |texts: Vec<String>| -> String {
        texts.iter().map(|text| format!("<td class=\"number marked\">{text}</td>")).collect()
    };
    let states = headlines.iter().map(|headline| headline.state.name().to_string()).collect();
    let mut rows = format!("<tr><th>state</th>{}</tr>", cells(states));
    for row in &ROWS {
        let values: Vec<Option<f64>> = headlines.iter().map(row.value).collect();
        if values.iter().flatten().next().is_none() {
            continue;
        }
        let best = best(row.better, &values, same_work).filter(|_| differences.is_empty());
        let cell = |value: &Option<f64>| {
            let class = if value.is_some() && *value == best { "number marked best" } else { "number marked" };
            format!("<td class=\"{class}\">{}</td>", value.map_or("–".to_string(), row.text))
        };
        let name = if row.name == SPEED { speed_of(runs).replace("/s", " per second") } else { row.name.to_string() };
        rows.push_str(&format!("<tr><th>{name}</th>{}</tr>", values.iter().map(cell).collect::<String>()));
        if row.name == LAST_ACCURACY && headlines.iter().any(|headline| headline.top1_interval.is_some()) {
            let range = |[low, high]: [f64; 2]| format!("{:.2} to {}", 100.0 * low, format::percent(high));
            let ranges =
                headlines.iter().map(|headline| headline.top1_interval.map_or("–".to_string(), range)).collect();
            rows.push_str(&format!("<tr><th>its 95 % confidence interval</th>{}</tr>", cells(ranges)));
        }
    }
    format!(
        "{}<div class=\"scroll\"><table><tr><th></th>{}</tr>{rows}</table></div>{}",
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

/// What speed is measured in: the runs are of one kind, or their speed cannot be compared anyway.
fn speed_of(runs: &[RunRecord]) -> &'static str {
    runs.first().map_or("images/s", speed_unit)
}

fn heads(names: &[String]) -> String {
    names.iter().map(|name| format!("<th class=\"number\">{}</th>", escape(name))).collect()
}

fn curves(runs: &[RunRecord], names: &[String]) -> String {
    let speed = speed_of(runs);
    let charts = [
        ("Validation accuracy", "accuracy, %", Curve::ValidationAccuracy, Division::Tight),
        ("Mean average precision", "mean average precision", Curve::ValidationPrecision, Division::Tight),
        ("BLEU", "BLEU", Curve::ValidationBleu, Division::Tight),
        ("Validation loss", "loss", Curve::ValidationLoss, Division::Tight),
        ("Training loss", "loss", Curve::Loss, Division::Tight),
        ("Learning rate", "learning rate", Curve::LearningRate, Division::FromZero),
        ("Speed", speed, Curve::Speed, Division::FromZero),
        ("Gradient norm", "norm, logarithmic", Curve::GradientNorm, Division::Log),
    ];
    let mut html = String::new();
    for (title, axis, curve, division) in charts {
        let mut lines = chart(title, axis, division);
        let mut empty = true;
        for (run, name) in runs.iter().zip(names) {
            let points = points(run, curve);
            empty &= points.is_empty();
            // Also without points, so that a run has the same colour in every chart.
            lines = lines.series(name, &points);
        }
        if !empty {
            html.push_str(&figure(title, &lines.interactive(), ""));
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
    let Some(tested) = &run.tested else { return Vec::new() };
    let recalls: Vec<Option<f64>> = match &tested.scores {
        TestedScores::One(report) => report.classes.iter().map(|class| class.recall).collect(),
        TestedScores::Several(report) => report.classes.iter().map(|class| class.at_half.recall).collect(),
        TestedScores::Translation(_) => Vec::new(),
    };
    tested.names.iter().map(String::as_str).zip(recalls).collect()
}
