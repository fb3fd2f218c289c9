//! The page of a run: how it went, what it finds hard, where it looks. Of several runs: what differs.

pub mod attention;
mod classes;
pub mod comparison;
mod curves;
mod gradients;
pub mod headline;
mod mistakes;
mod settings;
mod translations;

use crate::{Document, escape};
use vitreous_data::image::Image;
use vitreous_train::{Fault, RunRecord, Tested, TestedScores};

use attention::AttentionExamples;
use headline::Headline;

/// The page's name in a run directory.
pub const FILE: &str = "report.html";
const STYLE: &str = include_str!("style.css");

/// The pictures of a run's page, which are not in the run directory. In place of what is missing stands why.
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
    document.kind("report").style(STYLE).lead(&lead(run, &headline));
    document.section("curves", "Curves", &curves::html(run));
    match &run.tested {
        None => {
            document.section("test", "Test", &no_test(run));
        }
        Some(tested @ Tested { scores: TestedScores::Translation(report), .. }) => {
            document.section("translations", "Translations", &translations::html(tested, report));
        }
        Some(tested) => {
            if let Some(html) = classes::confusion(tested) {
                document.section("confusion", "Confusion", &html);
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
    document.finish()
}

/// What a run is called: its directory's name.
fn name_of(run: &RunRecord) -> String {
    let whole = std::path::absolute(&run.path).unwrap_or_else(|_| run.path.clone());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
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
    let tests: Vec<(f64, f64)> =
        run.history.tested.iter().filter_map(|line| Some((line.epoch, 100.0 * line.val_top1?))).collect();
    let mut words = Vec::new();
    if let [(first_epoch, first), .., (last_epoch, last)] = tests[..] {
        words.push(format!(
            "Test accuracy went from {first:.1} % after epoch {first_epoch} to {last:.1} % after epoch {last_epoch}."
        ));
        if let [.., (_, before), (_, last)] = tests[..] {
            words.push(match last - before {
                change if change.abs() < 0.05 => "The last test changed nothing.".to_string(),
                change => format!("The last test changed it by {change:+.1} points."),
            });
        }
    }
    if let (Some(learned), Some(top1)) = (headline.learned_top1, headline.top1) {
        let gap = 100.0 * (learned - top1);
        words.push(match gap {
            gap if gap.abs() < 0.5 => "Images that it learns from, and test images, are about as hard for it.".to_string(),
            gap if gap > 0.0 => format!("Images that it learns from are {gap:.1} points easier for it than test images."),
            gap => format!("Images that it learns from, changed as they are while learning, are {:.1} points harder for it than test images.", -gap),
        });
    }
    if words.is_empty() { String::new() } else { format!("<p>{}</p>", words.join(" ")) }
}

fn no_test(run: &RunRecord) -> String {
    match run.fault_of("evaluation.json") {
        Some(fault) => {
            format!("<p>{} <code>vitreous eval</code> finds its scores again.</p>", escape(&fault.to_string()))
        }
        None => {
            "<p>No test was made yet, or the data has nothing to test with: so there are no scores.</p>".to_string()
        }
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
