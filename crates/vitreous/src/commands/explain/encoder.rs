//! `vitreous explain MODEL --text ..` of encoders: what a model does inside with a text, a pair of texts, or a question and its context.

mod arrays;
mod json;
mod prediction;
mod target;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use vitreous_data::text::Encoding;
use vitreous_engine::Device;
use vitreous_explain::encoder::{EncoderExplainer, EncoderSettings, LayerFillings, Steps};
use vitreous_explain::{Choice, Structure};
use vitreous_models::encode::TextTokens;
use vitreous_models::{OpenOptions, Pooling};
use vitreous_pages::explain_encoder::{KIND, NamedFillings, TextPage, page};
use vitreous_pages::{format, write};
use vitreous_runtime::locate::no_head;
use vitreous_runtime::text::{Purpose, TextInput, TextModel};
use vitreous_runtime::{Intervene, described};

use super::files::{self, ARRAYS, PAGE};
use super::names::Names;
use super::text::folder_name;
use super::{Explain, failure};
use crate::failure::Failure;

/// The most tokens of a text: what attention takes grows with their square, and a page of more could hardly be read.
const MOST_TOKENS: usize = 512;

/// A text as the model reads it.
struct ReadText {
    /// What was given, for the page: `Text`, `Second text`, `Question`, `Context`.
    shown: Vec<(&'static str, String)>,
    encoding: Encoding,
    /// Tokens that are masked.
    masked: Vec<usize>,
}

/// What stays the same from text to text.
struct Setting<'m> {
    model: &'m TextModel,
    device: &'m Device,
    structure: Structure,
    pooling: Pooling,
    /// Of a model of embeddings with `--pair`: that text and its vector.
    other: Option<(String, Vec<f32>)>,
}

/// Explains all texts. Nothing is written before all of them are known to be right.
pub fn run(explain: &Explain) -> Result<(), Failure> {
    let start = Instant::now();
    if !explain.targets.is_empty() {
        return Err(Failure::input(anyhow!("--target is the translation of a sentence, for translators alone")));
    }
    let plain = TextModel::open(&explain.model, &OpenOptions::default())?;
    plain.model.notes.iter().for_each(|note| say!("note: {note}"));
    let texts = texts(explain, &plain)?;
    let threads = explain.threads.unwrap_or_else(vitreous_runtime::threads);
    let device = explain.device.open(threads)?;
    let model = edited(explain, plain, &texts, &device)?;
    let structure = Structure::of(model.model.architecture.as_ref()).map_err(Failure::work)?;
    let settings = settings(explain, &model, structure, threads)?;
    let pooling = settings.pooling;
    target::check_options(explain, &model, &texts)?;
    let mut explainer = EncoderExplainer::new(&model.model, settings, &device).map_err(failure)?;
    let other = other_vector(explain, &model, &mut explainer)?;
    let setting = Setting { model: &model, device: &device, structure, pooling, other };
    files::create_folder(&explain.out)?;
    let mut names = Names::default();
    let mut out = BufWriter::new(crate::say::stdout());
    for text in &texts {
        let name = text.shown.first().map_or("", |(_, text)| text);
        let directory = explain.out.join(names.unique(folder_name(name)));
        files::create_folder(&directory)?;
        let file = directory.join(PAGE);
        files::check_page(&file, KIND)?;
        let (shown, logits) = one(explain, &setting, &mut explainer, text)?;
        write_files(explain, &directory, &shown, &logits)?;
        if explain.json {
            writeln!(out, "{}", json::object(&shown, &logits, &text.encoding, &file))?;
        } else {
            let fields = [file.to_string_lossy().into_owned()].into_iter().chain(prediction::fields(&shown));
            writeln!(out, "{}", fields.map(|field| format::one_line(&field)).collect::<Vec<_>>().join("\t"))?;
        }
        // Whoever reads along sees each text when it is done.
        out.flush()?;
    }
    say!(
        "{} in {:.1} s on {}; {} in {}",
        format::count(texts.len(), "text", "texts"),
        start.elapsed().as_secs_f64(),
        described(&device),
        format::count(texts.len(), "page", "pages"),
        explain.out.display()
    );
    Ok(())
}

/// The model with the edits that were asked for.
fn edited(explain: &Explain, model: TextModel, texts: &[ReadText], device: &Device) -> Result<TextModel, Failure> {
    if !explain.nearest.is_empty() {
        return Err(Failure::input(anyhow!("--nearest is for language models")));
    }
    let mut edits = explain.interventions.list()?;
    if let Some(other) = &explain.patch_from {
        if explain.at.is_empty() {
            return Err(Failure::input(anyhow!(
                "--patch-from: say which value is taken over, as in --at blocks.3.mlp"
            )));
        }
        let input = TextInput { text: other.clone(), pair: None };
        let other = read(&model, vec![("--patch-from", other.clone())], input)?.encoding.ids;
        if let Some(text) = texts.iter().find(|text| text.encoding.len() != other.len()) {
            let (own, other) = (text.encoding.len(), other.len());
            return Err(failure(vitreous_explain::ExplainError::OtherLength { own, other }));
        }
        edits.extend(super::language::taken_over(explain, &model.model, &other, device)?);
    }
    Ok(model.with_interventions(edits)?)
}

fn settings(
    explain: &Explain,
    model: &TextModel,
    structure: Structure,
    threads: usize,
) -> Result<EncoderSettings, Failure> {
    let list = |numbers: &Option<super::Numbers>, what: &str, count: usize| {
        numbers.as_ref().map(|numbers| numbers.resolve(what, count)).transpose().map_err(Failure::Input)
    };
    let layers = list(&explain.layers, "layer", structure.layers)?;
    let heads = list(&explain.heads, "head", structure.heads)?;
    let choice = Choice::of(structure, layers.as_deref(), heads.as_deref()).map_err(Failure::input)?;
    let usual = EncoderSettings::usual(structure, threads);
    let steps = explain.steps.map_or(usual.steps, Steps::Exactly);
    Ok(EncoderSettings { choice, pooling: model.sentence.pooling(), steps, ..usual })
}

/// Whether the model gives vectors alone: then a pair is two texts to compare, and not one input.
fn is_embedding(model: &TextModel) -> bool {
    let signature = model.model.architecture.signature();
    signature.named_outputs() == 0 && !signature.is_span() && signature.masked_tokens().is_none()
}

/// The texts that were asked for, as tokens.
fn texts(explain: &Explain, model: &TextModel) -> Result<Vec<ReadText>, Failure> {
    let name = explain.model.to_string_lossy();
    let signature = model.model.architecture.signature();
    if let (Some(question), Some(context)) = (&explain.question, &explain.context) {
        if !signature.is_span() {
            return Err(no_head(&name, &signature, "head for questions", &[]).into());
        }
        let shown = vec![("Question", question.clone()), ("Context", context.clone())];
        let input = TextInput { text: question.clone(), pair: Some(context.clone()) };
        return Ok(vec![read(model, shown, input)?]);
    }
    if signature.is_span() {
        let usage = format!("vitreous explain {name} --question Q --context C");
        return Err(Failure::input(anyhow!("{name}: this model answers questions about a text: `{usage}`")));
    }
    let one = |text: &String| match &explain.pair {
        Some(pair) if !is_embedding(model) => {
            let shown = vec![("Text", text.clone()), ("Second text", pair.clone())];
            read(model, shown, TextInput { text: text.clone(), pair: Some(pair.clone()) })
        }
        _ => read(model, vec![("Text", text.clone())], TextInput { text: text.clone(), pair: None }),
    };
    explain.texts.iter().map(one).collect()
}

/// A text as tokens, if there are some and not too many.
fn read(model: &TextModel, shown: Vec<(&'static str, String)>, input: TextInput) -> Result<ReadText, Failure> {
    if let Some((name, _)) = shown.iter().find(|(_, text)| text.trim().is_empty()) {
        return Err(Failure::input(anyhow!("{name}: this text is empty; give one with words")));
    }
    let mut input = match is_embedding(model) {
        true => model.sentence.prepared(&input, Purpose::Any),
        false => input,
    };
    if model.model.architecture.signature().masked_tokens().is_some() {
        input = TextInput {
            text: model.with_own_mask(&input.text),
            pair: input.pair.map(|pair| model.with_own_mask(&pair)),
        };
    }
    let most = MOST_TOKENS.min(model.longest);
    let encoding = model.tokenizer.encode(&input.text, input.pair.as_deref(), most).map_err(Failure::input)?;
    if encoding.truncated {
        let what = "has more than {most} tokens, and at most so many can be explained: give a shorter one";
        let (name, what) = (shown[0].0, what.replace("{most}", &most.to_string()));
        return Err(Failure::input(anyhow!("{name}: this text {what}")));
    }
    model.check(&encoding)?;
    let mask = model.mask().map(|(mask, _)| mask);
    let masked = (0..encoding.len()).filter(|&at| Some(encoding.ids[at]) == mask).collect();
    Ok(ReadText { shown, encoding, masked })
}

/// The vector of `--pair`, for a model of embeddings.
fn other_vector(
    explain: &Explain,
    model: &TextModel,
    explainer: &mut EncoderExplainer,
) -> Result<Option<(String, Vec<f32>)>, Failure> {
    let Some(pair) = explain.pair.as_ref().filter(|_| is_embedding(model)) else { return Ok(None) };
    let other = read(model, vec![("Second text", pair.clone())], TextInput { text: pair.clone(), pair: None })?;
    let pass = explainer.read(tokens(&other)).map_err(failure)?;
    Ok(Some((pair.clone(), pass.vector().map_err(failure)?)))
}

fn tokens(text: &ReadText) -> TextTokens<'_> {
    TextTokens { ids: &text.encoding.ids, types: &text.encoding.token_types, masked: &text.masked }
}

/// Everything about one text, and the logits of its head.
fn one(
    explain: &Explain,
    setting: &Setting,
    explainer: &mut EncoderExplainer,
    text: &ReadText,
) -> Result<(TextPage, Vec<f32>), Failure> {
    let model = setting.model;
    let signature = model.model.architecture.signature();
    let mut pass = explainer.read(tokens(text)).map_err(failure)?;
    let attention = pass.attention().map_err(failure)?;
    let logits = pass.logits().map_err(failure)?.unwrap_or_default();
    let vector = pass.vector().map_err(failure)?;
    let fillings = match signature.masked_tokens() {
        Some(_) => named(model, pass.fillings(explain.top()).map_err(failure)?)?,
        None => Vec::new(),
    };
    let prediction = prediction::of(explain, setting, text, &logits, &vector);
    let (relevance, relevance_note) = target::relevance(explain, setting, text, &mut pass, &logits, &fillings)?;
    let name = |&id: &u32| model.tokenizer.token(id).unwrap_or_else(|| id.to_string());
    let page = TextPage {
        texts: text.shown.clone(),
        model: model.model.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        layers: setting.structure.layers,
        heads: setting.structure.heads,
        tokens: text.encoding.ids.iter().map(name).collect(),
        ids: text.encoding.ids.clone(),
        special: text.encoding.special.clone(),
        prediction,
        attention,
        relevance,
        relevance_note,
        fillings,
        masked: text.masked.clone(),
    };
    Ok((page, logits))
}

/// Fillings with the names of tokens.
fn named(model: &TextModel, layers: Vec<LayerFillings>) -> Result<Vec<NamedFillings>, Failure> {
    let name = |(id, score): (u32, f32)| (id, model.tokenizer.token(id).unwrap_or_else(|| id.to_string()), score);
    let one = |LayerFillings { layer, tokens }: LayerFillings| {
        let tokens = tokens.into_iter().map(|top| top.into_iter().map(name).collect()).collect();
        NamedFillings { layer, tokens }
    };
    Ok(layers.into_iter().map(one).collect())
}

fn write_files(explain: &Explain, directory: &Path, shown: &TextPage, logits: &[f32]) -> Result<(), Failure> {
    files::remove_earlier(directory)?;
    write::write_page(&directory.join(PAGE), &page(shown))?;
    if explain.arrays {
        arrays::write(&directory.join(ARRAYS), shown, logits).map_err(Failure::work)?;
    }
    Ok(())
}
