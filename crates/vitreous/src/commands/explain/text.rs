//! `vitreous explain MODEL --text ..`: what a translator does inside with a sentence.

pub(super) mod arrays;
mod json;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use vitreous_engine::{Device, Precision};
use vitreous_explain::text::{TextChoice, TextStructure, explain_tokens};
use vitreous_models::Architecture;
use vitreous_models::generate::{SearchOptions, Weights};
use vitreous_pages::chart::standalone;
use vitreous_pages::format;
use vitreous_runtime::sequences::{SequenceModel, SequenceOptions, SequenceWriter, is_sequence_model};
use vitreous_runtime::{TextTranslator, TranslatorModel, described};
use vitreous_train::tasks::translate::SPECIAL;

use super::choose::Numbers;
use super::files::{self, ARRAYS, PAGE};
use super::names::{Names, safe};
use crate::device_options::DeviceOptions;
use crate::failure::Failure;
use crate::intervention_options::InterventionOptions;
use vitreous_pages::explain_text::words::{PairPieces, Words};
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
    /// Edits of the model.
    pub interventions: &'a InterventionOptions,
    /// Languages of text and target, of models that have some.
    pub languages: [Option<String>; 2],
}

/// A model of pairs: one that we trained with tokenizers of its own, or one of the ecosystem.
enum PairModel {
    Own(Box<TranslatorModel>),
    Sequence(Box<SequenceModel>),
}

/// What writes with it.
enum PairWriter<'m> {
    Own(Box<TextTranslator<'m>>),
    Sequence(Box<SequenceWriter<'m>>),
}

impl PairModel {
    fn open(path: &Path, request: &Request) -> Result<PairModel, Failure> {
        if is_sequence_model(path) {
            return Ok(PairModel::Sequence(Box::new(request.interventions.apply(SequenceModel::open(path)?)?)));
        }
        if request.languages.iter().any(Option::is_some) {
            let what = "--from and --to are for models with several languages (mBART, Marian); this one has none";
            return Err(Failure::input(anyhow!(what)));
        }
        Ok(PairModel::Own(Box::new(request.interventions.apply(TranslatorModel::open(path)?)?)))
    }

    fn architecture(&self) -> &dyn Architecture {
        match self {
            PairModel::Own(model) => model.model.architecture.as_ref(),
            PairModel::Sequence(model) => model.model.architecture.as_ref(),
        }
    }

    fn path(&self) -> Option<&PathBuf> {
        match self {
            PairModel::Own(model) => model.model.path.as_ref(),
            PairModel::Sequence(model) => model.model.path.as_ref(),
        }
    }

    fn weights(&self) -> Weights<'_> {
        match self {
            PairModel::Own(model) => model.weights(),
            PairModel::Sequence(model) => model.weights(),
        }
    }

    fn pieces(&self) -> &dyn PairPieces {
        match self {
            PairModel::Own(model) => &model.tokenizers,
            PairModel::Sequence(model) => &model.tokenizer,
        }
    }

    /// The most tokens of a side, with special ones.
    fn longest(&self) -> usize {
        match self {
            PairModel::Own(model) => model.source.longest.min(model.target.longest),
            PairModel::Sequence(model) => model.source.longest.min(model.target.longest),
        }
    }

    /// What the decoder reads first.
    fn start(&self, to: Option<&str>) -> Result<u32, Failure> {
        match self {
            PairModel::Own(_) => Ok(SPECIAL.start),
            PairModel::Sequence(model) => {
                Ok(model.tokenizer.start(to).map_err(Failure::input)?.unwrap_or(model.special.start))
            }
        }
    }

    fn end(&self) -> u32 {
        match self {
            PairModel::Own(_) => SPECIAL.end,
            PairModel::Sequence(model) => model.special.end,
        }
    }

    /// The tokens of a text with its special ones.
    fn encode(&self, text: &str, is_target: bool, [from, to]: &[Option<String>; 2]) -> Result<Vec<u32>, Failure> {
        match self {
            PairModel::Own(model) => {
                let tokenizers = &model.tokenizers;
                let tokenizer = if is_target { &tokenizers.target } else { &tokenizers.source };
                let tokens = tokenizer.encode(text).map_err(Failure::work)?;
                Ok(tokens.into_iter().chain([SPECIAL.end]).collect())
            }
            PairModel::Sequence(model) if is_target => {
                model.tokenizer.encode_target(text, to.as_deref()).map_err(Failure::input)
            }
            PairModel::Sequence(model) => {
                model.tokenizer.encode_source(text, from.as_deref(), to.as_deref()).map_err(Failure::input)
            }
        }
    }

    fn text(&self, tokens: &[u32]) -> Result<String, Failure> {
        let text = match self {
            PairModel::Own(model) => model.text(tokens),
            PairModel::Sequence(model) => model.text(tokens),
        };
        text.map_err(Failure::work)
    }

    fn writer(&self, request: &Request, device: &Device) -> Result<PairWriter<'_>, Failure> {
        Ok(match self {
            PairModel::Own(model) => {
                let search = SearchOptions { beam: 1, ..SearchOptions::default() };
                PairWriter::Own(Box::new(TextTranslator::new(model, search, Precision::F32, device)?))
            }
            PairModel::Sequence(model) => {
                let [from, to] = request.languages.clone();
                let max_tokens = Some(MOST_TOKENS.min(self.longest()));
                let options = SequenceOptions { from, to, max_tokens, ..SequenceOptions::default() };
                PairWriter::Sequence(Box::new(SequenceWriter::new(model, &options, Precision::F32, device)?))
            }
        })
    }
}

/// A sentence as tokens, with its translation if that was given: both with their special tokens.
struct Sentence {
    text: String,
    source: Vec<u32>,
    target: Option<Vec<u32>>,
}

/// Explains all texts. Nothing is written before all of them are known to be right.
pub fn run(model: &Path, request: &Request) -> Result<(), Failure> {
    let start = Instant::now();
    let model = PairModel::open(model, request)?;
    let architecture = model.architecture();
    let structure = TextStructure::of(architecture).map_err(Failure::work)?;
    let choice = choice(structure, request)?;
    let sentences = sentences(&model, request)?;
    let device = request.device.open(request.threads)?;
    let mut writer = model.writer(request, &device)?;
    let start_token = model.start(request.languages[1].as_deref())?;
    let path = model.path().map(|path| path.display().to_string()).unwrap_or_default();
    files::create_folder(request.out)?;
    let mut names = Names::default();
    let mut out = BufWriter::new(crate::say::stdout());
    for sentence in &sentences {
        let directory = request.out.join(names.unique(folder_name(&sentence.text)));
        files::create_folder(&directory)?;
        files::check_page(&directory.join(PAGE), KIND)?;
        let target = match &sentence.target {
            Some(target) => target.clone(),
            None => own_translation(&model, &mut writer, &sentence.text)?,
        };
        let pair = [sentence.source.clone(), target.clone()];
        let explanation = explain_tokens(architecture, &model.weights(), start_token, pair, &choice, &device);
        let explanation = explanation.map_err(Failure::work)?;
        let words = Words::of(model.pieces(), &explanation).map_err(Failure::work)?;
        let translation = model.text(&target)?;
        let shown = SentencePage {
            text: &sentence.text,
            translation: &translation,
            is_given: sentence.target.is_some(),
            model: &path,
            layers: [structure.encoder_layers, structure.decoder_layers],
            heads: structure.heads,
            pieces: model.pieces(),
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

fn sentences(model: &PairModel, request: &Request) -> Result<Vec<Sentence>, Failure> {
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
        let source = tokens(model, "--text", text, request)?;
        let target = targets.get(index).map(|target| tokens(model, "--target", target, request)).transpose()?;
        Ok(Sentence { text: text.trim().to_string(), source, target })
    };
    texts.iter().enumerate().map(sentence).collect()
}

/// The tokens of a sentence, if there are some and not too many.
fn tokens(model: &PairModel, option: &str, text: &str, request: &Request) -> Result<Vec<u32>, Failure> {
    let refused = |what: String| Err(Failure::input(anyhow!("{option} {what}")));
    if text.trim().is_empty() {
        return refused("is empty; give a sentence".to_string());
    }
    let tokens = model.encode(text.trim(), option == "--target", &request.languages)?;
    // The special tokens of a text are not counted.
    let most = MOST_TOKENS.min(model.longest().saturating_sub(1));
    match tokens.len().saturating_sub(1) {
        count if count > most => {
            refused(format!("has {count} tokens, and at most {most} can be explained: give a sentence at a time"))
        }
        _ => Ok(tokens),
    }
}

/// What the model writes by itself.
fn own_translation(model: &PairModel, writer: &mut PairWriter, text: &str) -> Result<Vec<u32>, Failure> {
    let texts = [text.to_string()];
    let found = match writer {
        PairWriter::Own(translator) => translator.translate(&texts)?,
        PairWriter::Sequence(writer) => writer.write(&texts)?,
    };
    let best = found.into_iter().flatten().next();
    let mut tokens = best.map(|hypothesis| hypothesis.tokens).unwrap_or_default();
    // One that did not end is as long as may be, and the decoder also reads the start.
    tokens.truncate(model.longest().saturating_sub(1));
    tokens.push(model.end());
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
