//! `vitreous explain MODEL --text ..`: what a translator does inside with a sentence.

pub(super) mod arrays;
mod json;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use vitreous_engine::Precision;
use vitreous_explain::text::{TextChoice, TextStructure, explain_text};
use vitreous_models::generate::SearchOptions;
use vitreous_pages::chart::standalone;
use vitreous_pages::format;
use vitreous_runtime::{TextTranslator, TranslatorModel, described};
use vitreous_train::tasks::translate::SPECIAL;

use super::choose::Numbers;
use super::files::{self, ARRAYS, PAGE};
use super::names::{Names, safe};
use crate::device_options::DeviceOptions;
use crate::failure::Failure;
use vitreous_pages::explain_text::words::Words;
use vitreous_pages::explain_text::{KIND, SentencePage, drawings, page};
use vitreous_pages::write;

/// The most tokens of a sentence: a page of more could not be read, and what attention takes grows with their square.
pub const MOST_TOKENS: usize = 256;
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
}

/// A sentence as tokens, with its translation if that was given.
struct Sentence {
    text: String,
    source: Vec<u32>,
    target: Option<Vec<u32>>,
}

/// Explains all texts. Nothing is written before all of them are known to be right.
pub fn run(model: &Path, request: &Request) -> Result<(), Failure> {
    let start = Instant::now();
    let model = TranslatorModel::open(model)?;
    let architecture = model.model.architecture.as_ref();
    let structure = TextStructure::of(architecture).map_err(Failure::work)?;
    let choice = choice(structure, request)?;
    let sentences = sentences(&model, request)?;
    let device = request.device.open(request.threads)?;
    let search = SearchOptions { beam: 1, ..SearchOptions::default() };
    let mut translator = TextTranslator::new(&model, search, Precision::F32, &device)?;
    let path = model.model.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    files::create_folder(request.out)?;
    let mut names = Names::default();
    let mut out = BufWriter::new(crate::say::stdout());
    for sentence in &sentences {
        let directory = request.out.join(names.unique(folder_name(&sentence.text)));
        files::create_folder(&directory)?;
        files::check_page(&directory.join(PAGE), KIND)?;
        let target = match &sentence.target {
            Some(target) => target.clone(),
            None => own_translation(&model, &mut translator, &sentence.text)?,
        };
        let pair = [&sentence.source[..], &target];
        let explanation =
            explain_text(architecture, &model.weights(), SPECIAL, pair, &choice, &device).map_err(Failure::work)?;
        let words = Words::of(&model.tokenizers, &explanation).map_err(Failure::work)?;
        let translation = model.text(&target)?;
        let shown = SentencePage {
            text: &sentence.text,
            translation: &translation,
            is_given: sentence.target.is_some(),
            model: &path,
            layers: [structure.encoder_layers, structure.decoder_layers],
            heads: structure.heads,
            tokenisers: &model.tokenizers,
            explanation: &explanation,
            words: &words,
        };
        let file = write_files(&directory, &shown, request)?;
        if request.json {
            writeln!(out, "{}", json::object(&shown, &file))?;
        } else {
            let file = format::one_line(&file.to_string_lossy());
            writeln!(out, "{file}\t{}", format::one_line(&translation))?;
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

fn sentences(model: &TranslatorModel, request: &Request) -> Result<Vec<Sentence>, Failure> {
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
        let source = tokens(model, "--text", text)?;
        let target = targets.get(index).map(|target| tokens(model, "--target", target)).transpose()?;
        Ok(Sentence { text: text.trim().to_string(), source, target })
    };
    texts.iter().enumerate().map(sentence).collect()
}

/// The tokens of a sentence, if there are some and not too many.
fn tokens(model: &TranslatorModel, option: &str, text: &str) -> Result<Vec<u32>, Failure> {
    let refused = |what: String| Err(Failure::input(anyhow!("{option} {what}")));
    if text.trim().is_empty() {
        return refused("is empty; give a sentence".to_string());
    }
    let tokenisers = &model.tokenizers;
    let tokeniser = if option == "--text" { &tokenisers.source } else { &tokenisers.target };
    let tokens = tokeniser.encode(text.trim()).map_err(Failure::work)?;
    // A start or an end comes to them.
    let most = MOST_TOKENS.min(model.source.longest.saturating_sub(1));
    match tokens.len() {
        count if count > most => {
            refused(format!("has {count} tokens, and at most {most} can be explained: give a sentence at a time"))
        }
        _ => Ok(tokens),
    }
}

/// What the model writes by itself.
fn own_translation(model: &TranslatorModel, translator: &mut TextTranslator, text: &str) -> Result<Vec<u32>, Failure> {
    let found = translator.translate(&[text.to_string()])?;
    let best = found.into_iter().flatten().next();
    let mut tokens = best.map(|hypothesis| hypothesis.tokens).unwrap_or_default();
    // One that did not end is as long as may be, and the decoder also reads the start.
    tokens.truncate(model.target.longest.saturating_sub(1));
    Ok(tokens)
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
