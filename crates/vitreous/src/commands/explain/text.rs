//! `vitreous explain MODEL --text ..`: what a translator does inside with a sentence.

pub(super) mod arrays;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use serde_json::json;
use vitreous_explain::text::{TextChoice, TextStructure};
use vitreous_pages::chart::standalone;
use vitreous_pages::explained::pair::{PairModel, Sentence, Sentences, object, read_sentence};
use vitreous_pages::format;
use vitreous_runtime::sequences::{SequenceModel, is_sequence_model};
use vitreous_runtime::{TranslatorModel, described};

use super::choose::Numbers;
use super::files::{self, ARRAYS, PAGE};
use super::names::{Names, safe};
use crate::device_options::DeviceOptions;
use crate::failure::Failure;
use crate::intervention_options::InterventionOptions;
use vitreous_pages::explain_text::{KIND, SentencePage, drawings, page};
use vitreous_pages::write;

/// So many words of a text make its folder's name.
const NAME_WORDS: usize = 5;

/// What is asked for.
pub struct Request<'a> {
    pub texts: &'a [String],
    /// As many as texts, or none.
    pub targets: &'a [String],
    pub out: &'a Path,
    pub layers: Option<&'a Numbers>,
    pub heads: Option<&'a Numbers>,
    pub json: bool,
    pub arrays: bool,
    pub threads: usize,
    pub device: DeviceOptions,
    /// Edits of the model.
    pub interventions: &'a InterventionOptions,
    /// Languages of text and target, of models that have some.
    pub languages: [Option<String>; 2],
}

/// A model of pairs of either kind, as it was opened.
enum OpenModel {
    Own(Box<TranslatorModel>),
    Sequence(Box<SequenceModel>),
}

impl OpenModel {
    fn open(path: &Path, request: &Request) -> Result<OpenModel, Failure> {
        if is_sequence_model(path) {
            return Ok(OpenModel::Sequence(Box::new(request.interventions.apply(SequenceModel::open(path)?)?)));
        }
        if request.languages.iter().any(Option::is_some) {
            let what = "--from and --to are for models with several languages (mBART, Marian); this one has none";
            return Err(Failure::input(anyhow!(what)));
        }
        Ok(OpenModel::Own(Box::new(request.interventions.apply(TranslatorModel::open(path)?)?)))
    }

    fn as_pair(&self) -> PairModel<'_> {
        match self {
            OpenModel::Own(model) => PairModel::Own(model),
            OpenModel::Sequence(model) => PairModel::Sequence(model),
        }
    }
}

/// Explains all texts. Nothing is written before all of them are known to be right.
pub fn run(model: &Path, request: &Request) -> Result<(), Failure> {
    let start = Instant::now();
    let model = OpenModel::open(model, request)?;
    let model = model.as_pair();
    let structure = TextStructure::of(model.architecture()).map_err(Failure::work)?;
    let choice = choice(structure, request)?;
    let sentences = sentences(model, request)?;
    let device = request.device.open(request.threads)?;
    let mut explained = Sentences::new(model, choice, &request.languages, &device)?;
    files::create_folder(request.out)?;
    let mut names = Names::default();
    let mut out = BufWriter::new(crate::say::stdout());
    for sentence in &sentences {
        let directory = request.out.join(names.unique(folder_name(&sentence.text)));
        files::create_folder(&directory)?;
        files::check_page(&directory.join(PAGE), KIND)?;
        let one = explained.explain(sentence)?;
        let shown = explained.page(&one, None);
        let file = write_files(&directory, &shown, request)?;
        if request.json {
            let mut object = object(&shown);
            object["page"] = json!(file.to_string_lossy());
            writeln!(out, "{object}")?;
        } else {
            let file = format::one_line(&file.to_string_lossy());
            writeln!(out, "{file}\t{}", format::one_line(shown.translation))?;
        }
        // Whoever reads along sees each sentence when it is done.
        out.flush()?;
    }
    say!(
        "{} in {:.1} s on {}; {} in {}",
        format::count(sentences.len(), "sentence", "sentences"),
        start.elapsed().as_secs_f64(),
        described(&device),
        format::count(sentences.len(), "page", "pages"),
        request.out.display()
    );
    Ok(())
}

fn choice(model: TextStructure, request: &Request) -> Result<TextChoice, Failure> {
    let mut choice = TextChoice::all(model);
    if let Some(layers) = request.layers {
        let stacks = [model.encoder_layers, model.decoder_layers];
        [choice.encoder_layers, choice.decoder_layers] =
            layers.resolve_each("layer", stacks).map_err(Failure::Input)?;
    }
    if let Some(heads) = request.heads {
        choice.heads = heads.resolve("head", model.heads).map_err(Failure::Input)?;
    }
    Ok(choice)
}

fn sentences(model: PairModel, request: &Request) -> Result<Vec<Sentence>, Failure> {
    let (texts, targets) = (request.texts, request.targets);
    if !targets.is_empty() && targets.len() != texts.len() {
        let what = format!(
            "there are {} --text and {} --target: give a target for each text, or none",
            texts.len(),
            targets.len()
        );
        return Err(Failure::input(anyhow!(what)));
    }
    let sentence = |(index, text): (usize, &String)| {
        let target = targets.get(index).map(String::as_str);
        Ok(read_sentence(model, ["--text", "--target"], text, target, &request.languages)?)
    };
    texts.iter().enumerate().map(sentence).collect()
}

/// The first words of a text, as a name.
pub(super) fn folder_name(text: &str) -> String {
    safe(&text.split_whitespace().take(NAME_WORDS).collect::<Vec<_>>().join("-"))
}

/// Writes all files of one sentence, and gives the page's path.
fn write_files(directory: &Path, shown: &SentencePage, request: &Request) -> Result<PathBuf, Failure> {
    let file = directory.join(PAGE);
    write::write_page(&file, &page(shown))?;
    let svg = |name: String, drawing: String| files::write_text(&directory.join(name), &standalone(&drawing));
    svg("alignment.svg".to_string(), drawings::alignment(shown.words, shown.usual_layer()))?;
    for attention in &shown.explanation.cross {
        let layer = attention.layer;
        svg(format!("cross-attention-{layer}.svg"), drawings::heat_map(shown.words, layer))?;
    }
    if request.arrays {
        arrays::write(&directory.join(ARRAYS), shown.explanation).map_err(Failure::work)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_are_the_name() {
        assert_eq!(folder_name("  Click the <b>button</b> to go on now"), "Click-the-_b_button__b_-to-go");
        assert_eq!(folder_name("../../etc"), "_.._etc");
    }
}
