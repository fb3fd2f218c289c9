//! `vitreous explain MODEL --text ..`: what a translator does inside with a sentence.

pub(super) mod arrays;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use serde_json::json;
use vitreous_engine::Device;
use vitreous_explain::text::{TextChoice, TextStructure};
use vitreous_pages::chart::standalone;
use vitreous_pages::explained::pair::{Languages, PairModel, Sentence, Sentences, object, read_sentence};
use vitreous_pages::format;
use vitreous_runtime::sequences::{SequenceModel, is_sequence_model};
use vitreous_runtime::{Intervene, TranslatorModel, described};

use super::Explain;
use super::files::{self, ARRAYS, PAGE};
use super::names::{Names, safe};
use super::taken::{check_at, check_length, taken_over};
use crate::failure::Failure;
use vitreous_pages::explain_text::{KIND, SentencePage, drawings, page};
use vitreous_pages::write;

/// So many words of a text make its folder's name.
const NAME_WORDS: usize = 5;

/// A model of pairs of either kind, as it was opened.
enum OpenModel {
    Own(Box<TranslatorModel>),
    Sequence(Box<SequenceModel>),
}

impl OpenModel {
    fn open(explain: &Explain) -> Result<OpenModel, Failure> {
        let path = &explain.model;
        if is_sequence_model(path) {
            return Ok(OpenModel::Sequence(Box::new(SequenceModel::open(path)?)));
        }
        if explain.from.is_some() || explain.to.is_some() {
            let what = "--from and --to are for models with several languages (mBART, Marian); this one has none";
            return Err(Failure::input(anyhow!(what)));
        }
        Ok(OpenModel::Own(Box::new(TranslatorModel::open(path)?)))
    }

    /// The model with the edits that were asked for.
    fn edited(self, explain: &Explain, sentences: &[Sentence], device: &Device) -> Result<OpenModel, Failure> {
        let mut edits = explain.interventions.list()?;
        if let Some(text) = &explain.patch_from {
            check_at(explain)?;
            let (Some(target), [own]) = (explain.targets.first(), sentences) else {
                let what = "--patch-from: give one --text with its --target, which the decoder reads in both runs";
                return Err(Failure::input(anyhow!(what)));
            };
            let (model, languages) = (self.as_pair(), languages(explain));
            let target = explain.patch_pair.as_ref().unwrap_or(target);
            let other = read_sentence(model, ["--patch-from", "--patch-pair"], text, Some(target), &languages)?;
            let lengths = own.lengths().into_iter().zip(other.lengths());
            lengths.into_iter().try_for_each(|(own, other)| check_length(own, other))?;
            edits.extend(taken_over(explain, model.model(), &other.as_read(model, &languages)?, device)?);
        }
        Ok(match self {
            OpenModel::Own(model) => OpenModel::Own(Box::new(model.with_interventions(edits)?)),
            OpenModel::Sequence(model) => OpenModel::Sequence(Box::new(model.with_interventions(edits)?)),
        })
    }

    fn as_pair(&self) -> PairModel<'_> {
        match self {
            OpenModel::Own(model) => PairModel::Own(model),
            OpenModel::Sequence(model) => PairModel::Sequence(model),
        }
    }
}

/// Explains all texts. Nothing is written before all of them are known to be right.
pub fn run(explain: &Explain) -> Result<(), Failure> {
    let start = Instant::now();
    let plain = OpenModel::open(explain)?;
    let structure = TextStructure::of(plain.as_pair().architecture()).map_err(Failure::work)?;
    let choice = choice(structure, explain)?;
    let sentences = sentences(plain.as_pair(), explain)?;
    let device = explain.device.open(explain.threads.unwrap_or_else(vitreous_runtime::threads))?;
    let model = plain.edited(explain, &sentences, &device)?;
    let mut explained = Sentences::new(model.as_pair(), choice, &languages(explain), &device)?;
    files::create_folder(&explain.out)?;
    let mut names = Names::default();
    let mut out = BufWriter::new(crate::say::stdout());
    for sentence in &sentences {
        let directory = explain.out.join(names.unique(folder_name(&sentence.text)));
        files::create_folder(&directory)?;
        files::check_page(&directory.join(PAGE), KIND)?;
        let one = explained.explain(sentence)?;
        let shown = explained.page(&one, None);
        let file = write_files(&directory, &shown, explain)?;
        if explain.json {
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
        explain.out.display()
    );
    Ok(())
}

fn languages(explain: &Explain) -> Languages {
    [explain.from.clone(), explain.to.clone()]
}

fn choice(model: TextStructure, explain: &Explain) -> Result<TextChoice, Failure> {
    let mut choice = TextChoice::all(model);
    if let Some(layers) = &explain.layers {
        let stacks = [model.encoder_layers, model.decoder_layers];
        [choice.encoder_layers, choice.decoder_layers] =
            layers.resolve_each("layer", stacks).map_err(Failure::Input)?;
    }
    if let Some(heads) = &explain.heads {
        choice.heads = heads.resolve("head", model.heads).map_err(Failure::Input)?;
    }
    Ok(choice)
}

fn sentences(model: PairModel, explain: &Explain) -> Result<Vec<Sentence>, Failure> {
    let (texts, targets) = (&explain.texts, &explain.targets);
    if !targets.is_empty() && targets.len() != texts.len() {
        let what = format!(
            "there are {} --text and {} --target: give a target for each text, or none",
            texts.len(),
            targets.len()
        );
        return Err(Failure::input(anyhow!(what)));
    }
    let languages = languages(explain);
    let sentence = |(index, text): (usize, &String)| {
        let target = targets.get(index).map(String::as_str);
        Ok(read_sentence(model, ["--text", "--target"], text, target, &languages)?)
    };
    texts.iter().enumerate().map(sentence).collect()
}

/// The first words of a text, as a name.
pub(super) fn folder_name(text: &str) -> String {
    safe(&text.split_whitespace().take(NAME_WORDS).collect::<Vec<_>>().join("-"))
}

/// Writes all files of one sentence, and gives the page's path.
fn write_files(directory: &Path, shown: &SentencePage, explain: &Explain) -> Result<PathBuf, Failure> {
    let file = directory.join(PAGE);
    write::write_page(&file, &page(shown))?;
    let svg = |name: String, drawing: String| files::write_text(&directory.join(name), &standalone(&drawing));
    svg("alignment.svg".to_string(), drawings::alignment(shown.words, shown.usual_layer()))?;
    for attention in &shown.explanation.cross {
        let layer = attention.layer;
        svg(format!("cross-attention-{layer}.svg"), drawings::heat_map(shown.words, layer))?;
    }
    if explain.arrays {
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
