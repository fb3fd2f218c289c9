//! The page of a run: how it went, what it gets wrong, where it looks. For several runs: how they differ.

pub mod attention;
pub mod classes;
pub mod comparison;
pub mod curves;
pub mod epoch;
pub mod gradients;
pub mod headline;
pub mod mistakes;
pub mod settings;
pub mod translations;
pub mod validation;

use vitreous_data::Image;
use vitreous_train::{Fault, RunRecord, Tested, TestedScores};

use crate::chart::{CURVES_SCRIPT, CURVES_STYLE};
use crate::{Document, escape};
use attention::AttentionExamples;
use headline::Headline;

/// The page's name in a run directory.
pub const FILE: &str = "report.html";
const STYLE: &str = include_str!("style.css");

/// The pictures of a run's page, which are not in the run directory. Where something is missing, the reason.
pub struct RunPictures {
    /// The images of the most confident mistakes, in the order of [`Tested::mistakes`].
    pub mistakes: Result<Vec<Result<Image, String>>, String>,
    /// Attention in some images; `None` for a model that sees no images.
    pub attention: Option<Result<AttentionExamples, String>>,
}

/// The page of one run.
pub fn page(run: &RunRecord, pictures: &RunPictures) -> String {
    let headline = Headline::of(run);
    let mut document = Document::new(&format!("Run {}", name_of(run)));
    document.kind("report").style(STYLE).style(CURVES_STYLE).lead(&lead(run, &headline));
    document.section("curves", "Curves", &curves::html(run));
    match &run.tested {
        None => {
            document.section("test", "Validation", &no_evaluation(run));
        }
        Some(tested @ Tested { scores: TestedScores::Translation(report), .. }) => {
            document.section("translations", "Translations", &translations::html(tested, report));
        }
        Some(tested) => {
            if let Some(html) = classes::confusion(tested) {
                document.section("confusion", "Confusion matrix", &html);
            }
            document.section("classes", "Classes", &classes::scores(tested));
            if let Some(html) = classes::calibration(tested) {
                document.section("calibration", "Calibration", &html);
            }
            if let TestedScores::One(_) = tested.scores {
                document.section("mistakes", "Most confident mistakes", &mistakes::html(tested, &pictures.mistakes));
            }
        }
    }
    if let Some(examples) = &pictures.attention {
        document.section("attention", "Attention", &attention::html(examples));
    }
    document
        .section("gradients", "Gradients", &gradients::html(run))
        .section("recipe", "Recipe", &settings::recipe(run))
        .section("machine", "Machine and time", &settings::machine(run));
    document.script(CURVES_SCRIPT);
    document.finish()
}

/// A run's name: that of its directory.
fn name_of(run: &RunRecord) -> String {
    let whole = std::path::absolute(&run.path).unwrap_or_else(|_| run.path.clone());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}

/// Whether the run is on text, by what it logged: then nothing speaks of images.
fn is_text(run: &RunRecord) -> bool {
    let counts_tokens = run.history.learned.last().is_some_and(|line| line.tokens_per_second.is_some());
    let translates = matches!(&run.tested, Some(Tested { scores: TestedScores::Translation(_), .. }));
    counts_tokens || translates || run.history.tested.iter().any(|line| line.val_bleu.is_some())
}

fn lead(run: &RunRecord, headline: &Headline) -> String {
    format!("<p>{}</p>{}{}{}", headline.standing(run), faults(run), headline.tiles(), in_words(run, headline))
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
    let evaluations: Vec<(f64, f64)> =
        run.history.tested.iter().filter_map(|line| Some((line.epoch, 100.0 * line.val_top1?))).collect();
    let mut words = Vec::new();
    if let [(first_epoch, first), .., (last_epoch, last)] = evaluations[..] {
        words.push(format!(
            "Validation accuracy went from {first:.1} % after epoch {first_epoch} to {last:.1} % after epoch {last_epoch}."
        ));
        if let [.., (_, before), (_, last)] = evaluations[..] {
            words.push(match last - before {
                change if change.abs() < 0.05 => "The last evaluation did not change it.".to_string(),
                change => format!("The last evaluation changed it by {change:+.1} points."),
            });
        }
    }
    if let (Some(training), Some(top1)) = (headline.training_top1, headline.top1) {
        let gap = 100.0 * (training.mean - top1);
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
