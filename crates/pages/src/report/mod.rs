//! The page of a run: how it went, what it gets wrong, where it looks. For several runs: how they differ.

pub mod attention;
pub mod classes;
pub mod comparison;
mod curves;
mod gradients;
pub mod headline;
pub mod language;
pub mod mistakes;
pub mod pictures;
pub mod settings;
pub mod translations;
pub mod validation;
mod watch;

use vitreous_train::tasks::classify::{ClassifyReport, LabelMetrics};
use vitreous_train::tasks::language::LanguageReport;
use vitreous_train::tasks::translate::TranslationReport;
use vitreous_train::{Evaluation, Fault, Metric, RunRecord};

use crate::chart::{CURVES_SCRIPT, CURVES_STYLE};
use crate::{Document, Section, escape};
use headline::Headline;
pub use pictures::RunPictures;

/// The page's name in a run directory.
pub const FILE: &str = "report.html";
const STYLE: &str = include_str!("style.css");

/// The page of one run.
pub fn page(run: &RunRecord, pictures: &RunPictures) -> String {
    let headline = Headline::of(run);
    let mut document = Document::new(&format!("Run {}", name_of(run)));
    document.kind("report").style(STYLE).style(CURVES_STYLE).lead(&lead(run, &headline));
    document.sections(sections(run, Some(pictures))).script(CURVES_SCRIPT);
    document.finish()
}

/// The sections of a run's page; without pictures, those that have none.
pub fn sections(run: &RunRecord, pictures: Option<&RunPictures>) -> Vec<Section> {
    let mut all = vec![Section::new("curves", "Curves", curves::html(run))];
    match &run.evaluation {
        None => all.push(Section::new("validation", "Validation", no_evaluation(run))),
        Some(evaluation) => all.extend(evaluation_sections(evaluation, pictures)),
    }
    if let Some(examples) = pictures.and_then(|pictures| pictures.attention.as_ref()) {
        all.push(Section::new("attention", "Attention", attention::html(examples)));
    }
    all.extend(watch::html(run).map(|html| Section::new("watch", "Inside the model", html)));
    all.push(Section::new("gradients", "Gradients", gradients::html(run)));
    all.push(Section::new("recipe", "Recipe", settings::recipe(run)));
    all.push(Section::new("machine", "Machine and time", settings::machine(run)));
    all
}

/// The sections of a run's page that need pictures.
pub fn sections_of_pictures(run: &RunRecord, pictures: &RunPictures) -> Vec<Section> {
    let without: Vec<String> = sections(run, None).into_iter().map(|section| section.id).collect();
    sections(run, Some(pictures)).into_iter().filter(|section| !without.contains(&section.id)).collect()
}

/// The style of a run's page for a part of another page: of the elements inside of what the selector names.
pub fn style_within(selector: &str) -> String {
    format!("{selector} {{\n{}{STYLE}{CURVES_STYLE}}}\n", crate::document::STYLE)
}

/// The sections of an evaluation, by the report that its task has made: for a task without a section of its own, its numbers.
fn evaluation_sections(evaluation: &Evaluation, pictures: Option<&RunPictures>) -> Vec<Section> {
    let mut all = Vec::new();
    let mut add = |id: &str, heading: &str, html: String| all.push(Section::new(id, heading, html));
    if let Some(report) = evaluation.scores.report::<TranslationReport>() {
        add("translations", "Translations", translations::html(evaluation, report));
    } else if let Some(report) = evaluation.scores.report::<LanguageReport>() {
        add("text", "Validation and a sample", language::html(evaluation, report));
    } else if let Some(report) = evaluation.scores.report::<ClassifyReport>() {
        if let Some(html) = classes::confusion(evaluation, report) {
            add("confusion", "Confusion matrix", html);
        }
        add("classes", "Classes", classes::scores(evaluation, report));
        if let Some(html) = classes::calibration(evaluation, report) {
            add("calibration", "Calibration", html);
        }
        if let (LabelMetrics::Single(_), Some(pictures)) = (&report.metrics, pictures) {
            let html = mistakes::html(evaluation, report, &pictures.mistakes);
            add("mistakes", "Most confident mistakes", html);
        }
    } else {
        let rows = evaluation.scores.numbers().iter();
        let rows =
            rows.map(|score| format!("<dt>{}</dt><dd>{}</dd>", title(score.metric), score.metric.text(score.value)));
        let html = format!("{}<dl class=\"facts\">{}</dl>", of_evaluation(evaluation), rows.collect::<String>());
        add("validation", "Validation", html);
    }
    all
}

/// Which evaluation the numbers are from.
fn of_evaluation(evaluation: &Evaluation) -> String {
    let (samples, unit) = evaluation.scores.any_report().samples();
    let one = unit.strip_suffix('s').unwrap_or(unit);
    let [one, many] = [one, unit].map(|unit| format!("validation {unit}"));
    format!(
        "<p class=\"note\">Evaluation after epoch {}: {} from {}.</p>",
        evaluation.about.epoch,
        crate::format::count(samples as usize, &one, &many),
        escape(&evaluation.about.data)
    )
}

/// A metric's name with a capital: `Accuracy`.
fn title(metric: &Metric) -> String {
    let mut letters = metric.label.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A run's name: that of its directory.
fn name_of(run: &RunRecord) -> String {
    let whole = std::path::absolute(&run.path).unwrap_or_else(|_| run.path.clone());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}

/// Whether the run is on text, by what it logged: then nothing speaks of images.
fn is_text(run: &RunRecord) -> bool {
    let translates =
        run.evaluation.as_ref().is_some_and(|evaluation| evaluation.scores.report::<TranslationReport>().is_some());
    translates || headline::speed_unit(run) == Some("tokens")
}

/// Whether a metric means something for a run: its last evaluation has it. Top-5 accuracy of five classes, which older versions
/// logged, says nothing.
fn has_metric(run: &RunRecord, metric: &Metric) -> bool {
    run.evaluation.as_ref().is_none_or(|evaluation| evaluation.scores.get(metric.key).is_some())
}

fn lead(run: &RunRecord, headline: &Headline) -> String {
    format!("<p>{}</p>{}{}{}", headline.standing(run), faults(run), headline.tiles(run), in_words(run, headline))
}

/// What could not be read.
fn faults(run: &RunRecord) -> String {
    let fault = |fault: &Fault| format!("<li class=\"note warn\">{}</li>", escape(&fault.to_string()));
    match run.faults.is_empty() {
        true => String::new(),
        false => format!("<ul class=\"faults\">{}</ul>", run.faults.iter().map(fault).collect::<String>()),
    }
}

/// How it went, in a sentence or two.
fn in_words(run: &RunRecord, headline: &Headline) -> String {
    let scores: Vec<(f64, f64)> =
        run.history.evaluations.iter().filter_map(|line| Some((line.epoch, 100.0 * line.get("top1")?))).collect();
    let mut words = Vec::new();
    if let [(first_epoch, first), .., (last_epoch, last)] = scores[..] {
        words.push(format!(
            "Validation accuracy went from {first:.1} % after epoch {first_epoch} to {last:.1} % after epoch {last_epoch}."
        ));
        if let [.., (_, before), (_, last)] = scores[..] {
            words.push(match last - before {
                change if change.abs() < 0.05 => "The last evaluation did not change it.".to_string(),
                change => format!("The last evaluation changed it by {change:+.1} points."),
            });
        }
    }
    let training = headline.training.and_then(|means| means.top1);
    if let (Some(training), Some(validation)) = (training, headline.score("top1")) {
        let gap = 100.0 * (training - validation);
        words.push(match gap {
            gap if gap.abs() < 0.5 => {
                "Accuracy on augmented training images is about equal to validation accuracy.".to_string()
            }
            gap => format!(
                "Accuracy on augmented training images is {:.1} points {} validation accuracy.",
                gap.abs(),
                if gap > 0.0 { "above" } else { "below" }
            ),
        });
    }
    if words.is_empty() { String::new() } else { format!("<p>{}</p>", words.join(" ")) }
}

fn no_evaluation(run: &RunRecord) -> String {
    match run.fault_of("evaluation.json") {
        Some(fault) => {
            format!("<p>{} <code>vitreous eval</code> computes the scores again.</p>", escape(&fault.to_string()))
        }
        None => "<p>There has been no evaluation yet, or the data has no validation set.</p>".to_string(),
    }
}

/// A chart with its heading.
fn figure(title: &str, svg: &str, note: &str) -> String {
    let note = if note.is_empty() { String::new() } else { format!("<figcaption>{}</figcaption>", escape(note)) };
    format!("<figure><h3>{}</h3>{svg}{note}</figure>", escape(title))
}

/// `87.50 %`, or a dash where there is no such share.
fn percent_or_dash(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_string(), crate::format::percent)
}
