//! `vitreous explain MODEL --text ..` of encoders: what a model does inside with a text, a pair of texts, or a question and its context.

mod arrays;
mod options;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use serde_json::json;
use vitreous_engine::Device;
use vitreous_explain::encoder::{EncoderSettings, Steps};
use vitreous_explain::live::LiveInput;
use vitreous_explain::{Choice, Structure};
use vitreous_models::OpenOptions;
use vitreous_pages::explain_encoder::{KIND, TextPage, page};
use vitreous_pages::explained::encoder::{
    EncoderTexts, ReadText, fields, gives_vectors, object, read_question, read_text,
};
use vitreous_pages::{format, write};
use vitreous_runtime::locate::no_head;
use vitreous_runtime::text::TextModel;
use vitreous_runtime::{Intervene, described};

use super::Explain;
use super::files::{self, ARRAYS, PAGE};
use super::names::Names;
use super::taken::{check_at, check_length, taken_over};
use super::text::folder_name;
use crate::failure::Failure;

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
    let asked = options::asked(explain, &model, &texts)?;
    let mut explained = EncoderTexts::new(&model, settings, &device)?;
    if let Some(pair) = explain.pair.as_ref().filter(|_| gives_vectors(&model)) {
        explained.compare_with(pair)?;
    }
    files::create_folder(&explain.out)?;
    let mut names = Names::default();
    let mut out = BufWriter::new(crate::say::stdout());
    for text in &texts {
        let directory = explain.out.join(names.unique(folder_name(text.first())));
        files::create_folder(&directory)?;
        let file = directory.join(PAGE);
        files::check_page(&file, KIND)?;
        let (shown, logits) = explained.explain(text, &asked)?;
        write_files(explain, &directory, &shown, &logits)?;
        if explain.json {
            let mut object = object(&shown, &logits, &text.encoding);
            object["page"] = json!(file.to_string_lossy());
            writeln!(out, "{object}")?;
        } else {
            let fields = [file.to_string_lossy().into_owned()].into_iter().chain(fields(&shown));
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
        check_at(explain)?;
        let beside = |own: &Option<String>| explain.patch_pair.clone().or(own.clone());
        let other = match beside(&explain.context).filter(|_| explain.question.is_some()) {
            Some(context) => read_question(&model, other, &context)?,
            None => read_text(&model, "--patch-from", other, pair_of(beside(&explain.pair).as_deref(), &model))?,
        };
        let (ids, types) = (other.encoding.ids, other.encoding.token_types);
        texts.iter().try_for_each(|text| check_length(text.encoding.len(), ids.len()))?;
        let other = LiveInput::Text { ids, types, masked: Vec::new() };
        edits.extend(taken_over(explain, &model.model, &other, device)?);
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

/// The texts that were asked for, as tokens.
fn texts(explain: &Explain, model: &TextModel) -> Result<Vec<ReadText>, Failure> {
    let name = explain.model.to_string_lossy();
    let signature = model.model.architecture.signature();
    if let (Some(question), Some(context)) = (&explain.question, &explain.context) {
        if !signature.is_span() {
            return Err(no_head(&name, &signature, "head for questions", &[]).into());
        }
        return Ok(vec![read_question(model, question, context)?]);
    }
    if signature.is_span() {
        let usage = format!("vitreous explain {name} --question Q --context C");
        return Err(Failure::input(anyhow!("{name}: this model answers questions about a text: `{usage}`")));
    }
    let pair = pair_of(explain.pair.as_deref(), model);
    explain.texts.iter().map(|text| Ok(read_text(model, "Text", text, pair)?)).collect()
}

/// The second text of what a model reads; embedding models read one at a time.
fn pair_of<'t>(pair: Option<&'t str>, model: &TextModel) -> Option<&'t str> {
    pair.filter(|_| !gives_vectors(model))
}

fn write_files(explain: &Explain, directory: &Path, shown: &TextPage, logits: &[f32]) -> Result<(), Failure> {
    files::remove_earlier(directory)?;
    write::write_page(&directory.join(PAGE), &page(shown))?;
    if explain.arrays {
        arrays::write(&directory.join(ARRAYS), shown, logits).map_err(Failure::work)?;
    }
    Ok(())
}
