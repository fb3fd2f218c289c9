//! `vitreous explain MODEL --text ..` of language models: what a model does inside with a text.

pub mod arrays;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use serde_json::json;
use vitreous_engine::Device;
use vitreous_explain::inside::{Given, NearestTokens, value_of};
use vitreous_explain::live::LiveInput;
use vitreous_explain::{Choice, Structure};
use vitreous_pages::explain_language::{KIND, LanguagePage, NamedToken, NearestWords, page};
use vitreous_pages::explained::language::{LanguageAsked, LanguageTexts, object, read_text, single_token, token_name};
use vitreous_pages::{format, write};
use vitreous_runtime::language::LanguageModel;
use vitreous_runtime::{Intervene, described};

use super::files::{self, ARRAYS, PAGE};
use super::names::Names;
use super::taken::{check_length, taken_over};
use super::text::folder_name;
use super::{Explain, failure};
use crate::failure::Failure;
use crate::intervention_options::path_and_tokens;

/// Explains all texts.
pub fn run(explain: &Explain) -> Result<(), Failure> {
    let start = Instant::now();
    check_options(explain)?;
    let plain = LanguageModel::open(&explain.model)?;
    plain.model.notes.iter().for_each(|note| say!("note: {note}"));
    let threads = explain.threads.unwrap_or_else(vitreous_runtime::threads);
    let device = explain.device.open(threads)?;
    let other = explain.patch_from.as_ref().map(|text| read_text(&plain, "--patch-from", text)).transpose()?;
    let texts: Vec<Vec<u32>> =
        explain.texts.iter().map(|text| read_text(&plain, "--text", text)).collect::<Result<_, _>>()?;
    let mut edits = explain.interventions.list()?;
    if let Some(other) = &other {
        texts.iter().try_for_each(|text| check_length(text.len(), other.len()))?;
        let other = LiveInput::Text { ids: other.clone(), types: Vec::new(), masked: Vec::new() };
        edits.extend(taken_over(explain, &plain.model, &other, &device)?);
    }
    let model = plain.with_interventions(edits)?;
    let structure = Structure::of(model.model.architecture.as_ref()).map_err(Failure::work)?;
    let list = |numbers: &Option<super::Numbers>, what: &str, count: usize| {
        numbers.as_ref().map(|numbers| numbers.resolve(what, count)).transpose().map_err(Failure::Input)
    };
    let layers = list(&explain.layers, "layer", structure.layers)?;
    let heads = list(&explain.heads, "head", structure.heads)?;
    let choice = Choice::of(structure, layers.as_deref(), heads.as_deref()).map_err(Failure::input)?;
    // An edit of single tokens has no meaning in another text.
    let explained = LanguageTexts::new(&model, choice, explain.edits_tokens(), &device)?;
    let asked = LanguageAsked {
        top: explain.top(),
        token: explain.token,
        target: explain.classes.first().map(|text| chosen_token(&model, text)).transpose()?,
        patched_from: explain.patch_from.clone().zip(other).filter(|_| explain.at.is_empty()),
        edits: explain.edits(),
    };
    files::create_folder(&explain.out)?;
    let mut names = Names::default();
    let mut out = BufWriter::new(crate::say::stdout());
    for (text, ids) in explain.texts.iter().zip(&texts) {
        let directory = explain.out.join(names.unique(folder_name(text)));
        files::create_folder(&directory)?;
        let file = directory.join(PAGE);
        files::check_page(&file, KIND)?;
        if let Some(token) = explain.token.filter(|&token| token >= ids.len()) {
            let what = format!("--token {token}: the text has {} tokens, counted from 0", ids.len());
            return Err(Failure::input(anyhow!(what)));
        }
        let mut shown = explained.explain(text, ids, &asked)?;
        shown.nearest = nearest(explain, &model, ids, &device)?;
        write_files(explain, &directory, &shown)?;
        if explain.json {
            let mut object = object(&shown);
            object["page"] = json!(file.to_string_lossy());
            writeln!(out, "{object}")?;
        } else {
            let share = 100.0 * shown.effects.log_probability.exp();
            let name = format::one_line(&shown.target.name);
            writeln!(out, "{}\t{name}\t{share:.1} %", format::one_line(&file.to_string_lossy()))?;
        }
        out.flush()?;
    }
    let count = format::count(texts.len(), "text", "texts");
    let (time, pages) = (start.elapsed().as_secs_f64(), format::count(texts.len(), "page", "pages"));
    say!("{count} in {time:.1} s on {}; {pages} in {}", described(&device), explain.out.display());
    Ok(())
}

/// Refuses what is for other models.
fn check_options(explain: &Explain) -> Result<(), Failure> {
    let given = [
        ("--target", !explain.targets.is_empty()),
        ("--pair", explain.pair.is_some()),
        ("--question", explain.question.is_some()),
        ("--steps", explain.steps.is_some()),
        ("--patch-pair", explain.patch_pair.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::input(anyhow!("{option} cannot be used with a language model"))),
        None if explain.classes.len() > 1 => {
            Err(Failure::input(anyhow!("--class: give one token; it is the next token that is explained")))
        }
        None => Ok(()),
    }
}

/// The token that is meant by `--class`.
fn chosen_token(model: &LanguageModel, text: &str) -> Result<u32, Failure> {
    single_token(model, text)?.map_err(|count| {
        Failure::input(anyhow!(
            "--class {text}: this is no single token of the model (it is {}); a word after a space is written with that space: ' {text}'",
            format::count(count, "token", "tokens")
        ))
    })
}

/// The words nearest to the vectors that were asked for.
fn nearest(
    explain: &Explain,
    model: &LanguageModel,
    ids: &[u32],
    device: &Device,
) -> Result<Vec<NearestWords>, Failure> {
    if explain.nearest.is_empty() {
        return Ok(Vec::new());
    }
    let table = NearestTokens::of(&model.model).map_err(failure)?;
    let mut found = Vec::new();
    for text in &explain.nearest {
        let (path, at) = path_and_tokens("--nearest", text).map_err(Failure::Input)?;
        let (shape, values) = value_of(&model.model, &Given::Tokens(ids.to_vec()), &path, device).map_err(failure)?;
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
            let named = |(id, cosine)| (NamedToken { id, name: token_name(model, id) }, cosine);
            let near = near.into_iter().map(named).collect();
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
