//! `vitreous explain MODEL --text ..` of language models: what a model does inside with a text.

pub mod arrays;
pub mod json;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use vitreous_engine::{Device, Edit, EditValues, Intervention};
use vitreous_explain::inside::{Given, Inside, NearestTokens, Reading, value_of};
use vitreous_explain::{Choice, Structure, language};
use vitreous_models::Model;
use vitreous_pages::explain_encoder::{NamedFillings, TextPage, TextPrediction};
use vitreous_pages::explain_language::{KIND, LanguagePage, NamedToken, NearestWords, Patching, page};
use vitreous_pages::{format, write};
use vitreous_runtime::language::LanguageModel;
use vitreous_runtime::{Intervene, described};

use super::files::{self, ARRAYS, PAGE};
use super::names::Names;
use super::text::folder_name;
use super::{Explain, failure};
use crate::failure::Failure;
use crate::intervention_options::path_and_tokens;

/// The most tokens of a text: what attention takes grows with their square, and a page of more could hardly be read.
const MOST_TOKENS: usize = 512;

/// What stays the same from text to text.
struct Setting<'m> {
    model: &'m LanguageModel,
    structure: Structure,
    choice: Choice,
    device: Device,
    /// The tokens of `--patch-from`.
    other: Option<Vec<u32>>,
    repeated_scores: Vec<Vec<vitreous_explain::inside::HeadScores>>,
}

/// Explains all texts.
pub fn run(explain: &Explain) -> Result<(), Failure> {
    let start = Instant::now();
    check_options(explain)?;
    let plain = LanguageModel::open(&explain.model)?;
    plain.model.notes.iter().for_each(|note| say!("note: {note}"));
    let threads = explain.threads.unwrap_or_else(vitreous_runtime::threads);
    let device = explain.device.open(threads)?;
    let other = explain.patch_from.as_ref().map(|text| tokens(&plain, "--patch-from", text)).transpose()?;
    let texts: Vec<Vec<u32>> =
        explain.texts.iter().map(|text| tokens(&plain, "--text", text)).collect::<Result<_, Failure>>()?;
    for text in &texts {
        check_length(text, other.as_deref())?;
    }
    let mut edits = explain.interventions.list()?;
    if let Some(other) = &other {
        edits.extend(taken_over(explain, &plain.model, other, &device)?);
    }
    let model = plain.with_interventions(edits)?;
    let structure = Structure::of(model.model.architecture.as_ref()).map_err(Failure::work)?;
    let list = |numbers: &Option<super::Numbers>, what: &str, count: usize| {
        numbers.as_ref().map(|numbers| numbers.resolve(what, count)).transpose().map_err(Failure::Input)
    };
    let layers = list(&explain.layers, "layer", structure.layers)?;
    let heads = list(&explain.heads, "head", structure.heads)?;
    let choice = Choice::of(structure, layers.as_deref(), heads.as_deref()).map_err(Failure::input)?;
    let first = model.tokenizer.special().begin.filter(|&first| (first as usize) < model.vocabulary);
    // An edit of single tokens has no meaning in another text.
    let scored = if explain.edits_tokens() { Ok(Vec::new()) } else { scores(&model, first, &device) };
    let setting = Setting { model: &model, structure, choice, device, other, repeated_scores: scored? };
    files::create_folder(&explain.out)?;
    let mut names = Names::default();
    let mut out = BufWriter::new(crate::say::stdout());
    for (text, ids) in explain.texts.iter().zip(&texts) {
        let directory = explain.out.join(names.unique(folder_name(text)));
        files::create_folder(&directory)?;
        let file = directory.join(PAGE);
        files::check_page(&file, KIND)?;
        let shown = one(explain, &setting, text, ids)?;
        write_files(explain, &directory, &shown)?;
        if explain.json {
            writeln!(out, "{}", json::object(&shown, &file))?;
        } else {
            let share = 100.0 * shown.effects.log_probability.exp();
            let name = format::one_line(&shown.target.name);
            writeln!(out, "{}\t{name}\t{share:.1} %", format::one_line(&file.to_string_lossy()))?;
        }
        out.flush()?;
    }
    let count = format::count(texts.len(), "text", "texts");
    let (time, pages) = (start.elapsed().as_secs_f64(), format::count(texts.len(), "page", "pages"));
    say!("{count} in {time:.1} s on {}; {pages} in {}", described(&setting.device), explain.out.display());
    Ok(())
}

fn scores(
    model: &LanguageModel,
    first: Option<u32>,
    device: &Device,
) -> Result<Vec<Vec<vitreous_explain::inside::HeadScores>>, Failure> {
    language::scores_on_repeated_tokens(&model.model, first, device).map_err(failure)
}

/// Refuses what is for other models.
fn check_options(explain: &Explain) -> Result<(), Failure> {
    let given = [
        ("--target", !explain.targets.is_empty()),
        ("--pair", explain.pair.is_some()),
        ("--question", explain.question.is_some()),
        ("--steps", explain.steps.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::input(anyhow!("{option} cannot be used with a language model"))),
        None if explain.classes.len() > 1 => {
            Err(Failure::input(anyhow!("--class: give one token; it is the next token that is explained")))
        }
        None => Ok(()),
    }
}

/// The tokens of a text.
fn tokens(model: &LanguageModel, option: &str, text: &str) -> Result<Vec<u32>, Failure> {
    let ids = model.encode(text)?;
    let most = MOST_TOKENS.min(model.longest);
    match ids.len() > most {
        true => Err(Failure::input(anyhow!(
            "{option}: this text has {} tokens, and at most {most} can be explained: give a shorter one",
            ids.len()
        ))),
        false => Ok(ids),
    }
}

fn check_length(text: &[u32], other: Option<&[u32]>) -> Result<(), Failure> {
    match other {
        Some(other) if other.len() != text.len() => {
            let (own, other) = (text.len(), other.len());
            Err(failure(vitreous_explain::ExplainError::OtherLength { own, other }))
        }
        _ => Ok(()),
    }
}

/// The values at `--at` in a run with `--patch-from`, as edits.
pub(super) fn taken_over(
    explain: &Explain,
    model: &Model,
    other: &[u32],
    device: &Device,
) -> Result<Vec<Intervention>, Failure> {
    let mut edits = Vec::new();
    for text in &explain.at {
        let (path, at) = path_and_tokens("--at", text).map_err(Failure::Input)?;
        let given = Given::Tokens(other.to_vec());
        let (_, values) = value_of(model, &given, &path, device).map_err(failure)?;
        let edit = Edit::Replace(EditValues::Numbers(values.into()));
        edits.push(Intervention { path, edit, tokens: at });
    }
    Ok(edits)
}

/// Everything about one text.
fn one(explain: &Explain, setting: &Setting, text: &str, ids: &[u32]) -> Result<LanguagePage, Failure> {
    let Setting { model, device, .. } = setting;
    let name = |&id: &u32| model.tokenizer.token(id).unwrap_or_else(|| id.to_string());
    let named = |id: u32| NamedToken { id, name: name(&id) };
    let position = match explain.token {
        None => ids.len() - 1,
        Some(token) if token < ids.len() => token,
        Some(token) => {
            let what = format!("--token {token}: the text has {} tokens, counted from 0", ids.len());
            return Err(Failure::input(anyhow!(what)));
        }
    };
    let (attention, scores) = language::attention(&model.model, ids, &setting.choice, device).map_err(failure)?;
    let mut inside = Inside::read(&model.model, Given::Tokens(ids.to_vec()), device).map_err(failure)?;
    let following: Vec<Option<u32>> = ids.iter().skip(1).map(|&id| Some(id)).chain([None]).collect();
    let readings = inside.lens(explain.top(), &following).map_err(failure)?;
    let likeliest = readings.last().and_then(|last| last.said[position].top.first()).map_or(0, |(id, _)| *id);
    let target = match explain.classes.first() {
        Some(text) => chosen_token(model, text)?,
        None => likeliest,
    };
    let effects = inside.head_effects(position, target as usize).map_err(failure)?;
    let attribution = inside.attribution(position, target as usize).map_err(|error| error.to_string());
    let patching = match (&setting.other, explain.at.is_empty()) {
        (Some(other), true) => Some(patch(explain, setting, &mut inside, other, position, target)?),
        _ => None,
    };
    let nearest = nearest(explain, setting, ids)?;
    let last = readings.last().map_or(Vec::new(), |last| last.said.iter().map(|said| said.asked).collect());
    let actual = [None].into_iter().chain(last).take(ids.len()).collect();
    let text = TextPage {
        texts: vec![("Text", text.to_string())],
        model: model.model.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        layers: setting.structure.layers,
        heads: setting.structure.heads,
        tokens: ids.iter().map(name).collect(),
        ids: ids.to_vec(),
        special: vec![false; ids.len()],
        prediction: TextPrediction::Masked,
        attention,
        relevance: Vec::new(),
        relevance_note: None,
        fillings: readings.iter().map(|reading| fillings(reading, &name)).collect(),
        masked: Vec::new(),
    };
    Ok(LanguagePage {
        text,
        actual,
        position,
        target: named(target),
        attribution,
        effects,
        scores,
        repeated_scores: setting.repeated_scores.clone(),
        patching,
        nearest,
        edits: explain.edits(),
    })
}

fn fillings(reading: &Reading, name: &impl Fn(&u32) -> String) -> NamedFillings {
    let top = |top: &[(u32, f32)]| top.iter().map(|(id, share)| (*id, name(id), *share)).collect();
    NamedFillings { layer: reading.layer, tokens: reading.said.iter().map(|said| top(&said.top)).collect() }
}

/// The token that is meant: one of the vocabulary as the tokenizer writes it, a text that is one token, or its number.
fn chosen_token(model: &LanguageModel, text: &str) -> Result<u32, Failure> {
    let known = |id: &u32| (*id as usize) < model.vocabulary;
    if let Some(id) = model.tokenizer.id(text).filter(known) {
        return Ok(id);
    }
    let ids = model.tokenizer.encode_plain(text).map_err(Failure::input)?;
    match ids[..] {
        [id] if known(&id) => Ok(id),
        _ => match text.parse::<u32>().ok().filter(known) {
            Some(id) => Ok(id),
            None => Err(Failure::input(anyhow!(
                "--class {text}: this is no single token of the model (it is {}); a word after a space is written with that space: ' {text}'",
                format::count(ids.len(), "token", "tokens")
            ))),
        },
    }
}

fn patch(
    explain: &Explain,
    setting: &Setting,
    inside: &mut Inside,
    other: &[u32],
    position: usize,
    target: u32,
) -> Result<Patching, Failure> {
    let model = setting.model;
    let name = |&id: &u32| model.tokenizer.token(id).unwrap_or_else(|| id.to_string());
    let mut there = Inside::read(&model.model, Given::Tokens(other.to_vec()), &setting.device).map_err(failure)?;
    let mut against = 0;
    let likeliest = |logits: &[f32]| {
        let others = (0..logits.len()).filter(|&id| id != target as usize);
        against = others.max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0) as u32;
    };
    there.with_own_logits(position, likeliest).map_err(failure)?;
    let outputs = [target as usize, against as usize];
    let effects = inside.patch_effects(&mut there, position, outputs).map_err(failure)?;
    Ok(Patching {
        text: explain.patch_from.clone().unwrap_or_default(),
        tokens: other.iter().map(name).collect(),
        against: NamedToken { id: against, name: name(&against) },
        effects,
    })
}

/// The words nearest to the vectors that were asked for.
fn nearest(explain: &Explain, setting: &Setting, ids: &[u32]) -> Result<Vec<NearestWords>, Failure> {
    if explain.nearest.is_empty() {
        return Ok(Vec::new());
    }
    let model = &setting.model.model;
    let table = NearestTokens::of(model).map_err(failure)?;
    let mut found = Vec::new();
    for text in &explain.nearest {
        let (path, at) = path_and_tokens("--nearest", text).map_err(Failure::Input)?;
        let (shape, values) = value_of(model, &Given::Tokens(ids.to_vec()), &path, &setting.device).map_err(failure)?;
        let width = shape.last().copied().unwrap_or(1);
        for token in at.unwrap_or_else(|| vec![ids.len() - 1]) {
            let vector = values.chunks_exact(width).nth(token).filter(|_| token < ids.len());
            let vector =
                vector.ok_or_else(|| Failure::input(anyhow!("--nearest {text}: there is no token {token}")))?;
            let near = table.of_vector(vector, explain.top()).ok_or_else(|| {
                let what = format!(
                    "--nearest {text}: a vector of {width} numbers has no nearest words: embeddings have another width"
                );
                Failure::input(anyhow!(what))
            })?;
            let name = |id: u32| setting.model.tokenizer.token(id).unwrap_or_else(|| id.to_string());
            let near = near.into_iter().map(|(id, cosine)| (NamedToken { id, name: name(id) }, cosine)).collect();
            found.push((format!("{path}@{token}"), near));
        }
    }
    Ok(found)
}

fn write_files(explain: &Explain, directory: &Path, shown: &LanguagePage) -> Result<(), Failure> {
    files::remove_earlier(directory)?;
    write::write_page(&directory.join(PAGE), &page(shown))?;
    if explain.arrays {
        arrays::write(&directory.join(ARRAYS), shown).map_err(Failure::work)?;
    }
    Ok(())
}
