//! `vitreous explain MODEL IMAGE.. --text ..` of models of images and texts: where a picture supports each word of a caption.

use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::anyhow;
use serde_json::{Value as Json, json};
use vitreous_data::image::{Channels, Image, Scratch};
use vitreous_data::text::Encoding;
use vitreous_engine::{Device, Precision};
use vitreous_explain::image_text::ImageTextExplainer;
use vitreous_models::OpenOptions;
use vitreous_pages::explain_image_text::{CaptionShown, ImageTextPage, KIND, WordShown, page};
use vitreous_pages::{format, write};
use vitreous_runtime::image_text::CaptionRunner;
use vitreous_runtime::text::{TextInput, cosine};
use vitreous_runtime::{ImageTextModel, Intervene, OutputName, Runner, described};

use super::files::{self, PAGE};
use super::names::Names;
use super::{Explain, failure, taken};
use crate::failure::Failure;

/// A caption with what does not depend on pictures.
struct Caption {
    text: String,
    encoding: Encoding,
    vector: Vec<f32>,
    /// Each word, and the vector of the caption without it.
    words: Vec<(String, Vec<f32>)>,
}

/// A picture that the model has seen.
struct Picture {
    path: PathBuf,
    seen: Image,
    numbers: Vec<f32>,
    vector: Vec<f32>,
}

/// Explains all pictures.
pub fn run(explain: &Explain) -> Result<(), Failure> {
    let start = Instant::now();
    check_options(explain)?;
    let options = OpenOptions::default().with_some("image", explain.image).with_some("heads", explain.head_count);
    let model = ImageTextModel::open(&explain.model, &options)?;
    model.images.model.notes.iter().for_each(|note| say!("note: {note}"));
    let threads = explain.threads.unwrap_or_else(vitreous_runtime::threads);
    let device = explain.device.open(threads)?;
    let edits = taken::edits_with_image(explain, &model.images, &device)?;
    let model = model.with_interventions(edits)?;
    let captions = captions(explain, &model, &device)?;
    let (pictures, failed) = pictures(explain, &model, &device)?;
    let similarity: Vec<(String, Vec<f64>)> = pictures
        .iter()
        .map(|picture| {
            let name = picture.path.file_name().unwrap_or(picture.path.as_os_str()).to_string_lossy().into_owned();
            (name, captions.iter().map(|caption| cosine(&picture.vector, &caption.vector)).collect())
        })
        .collect();
    let towers = (&model.images.model, &model.texts.model);
    let mut explainer =
        ImageTextExplainer::new(towers.0, towers.1, model.captions, threads, &device).map_err(failure)?;
    files::create_folder(&explain.out)?;
    let mut names = Names::default();
    let mut out = BufWriter::new(crate::say::stdout());
    let name = explain.model.to_string_lossy();
    let shown_pictures = pictures.iter().zip(&similarity).take(explain.pages);
    for (picture, (_, cosines)) in shown_pictures {
        let path = picture.path.to_string_lossy();
        let directory = explain.out.join(names.take(&path));
        files::create_folder(&directory)?;
        let file = directory.join(PAGE);
        files::check_page(&file, KIND)?;
        let shown = one(&model, &mut explainer, picture, &captions, cosines)?;
        let html = page(&ImageTextPage {
            path: &path,
            model: &name,
            seen: &picture.seen,
            grid: explainer.layout().grid,
            captions: &shown,
            is_sigmoid: model.scores.bias.is_some(),
            similarity: &similarity,
        });
        write::write_page(&file, &html.map_err(Failure::work)?)?;
        if explain.json {
            writeln!(out, "{}", object(&path, &file.to_string_lossy(), &shown))?;
        } else {
            let best = shown.iter().max_by(|a, b| a.cosine.total_cmp(&b.cosine));
            let best = best.map(|caption| format!("{}\t{:.4}", format::one_line(&caption.text), caption.cosine));
            writeln!(out, "{}\t{}", format::one_line(&file.to_string_lossy()), best.unwrap_or_default())?;
        }
        out.flush()?;
    }
    drop(out);
    let pages = pictures.len().min(explain.pages);
    say!(
        "{} and {} in {:.1} s on {}; {} in {}",
        format::count(pictures.len(), "picture", "pictures"),
        format::count(captions.len(), "caption", "captions"),
        start.elapsed().as_secs_f64(),
        described(&device),
        format::count(pages, "page", "pages"),
        explain.out.display()
    );
    if failed { Err(Failure::Reported) } else { Ok(()) }
}

/// Refuses what is for other models.
fn check_options(explain: &Explain) -> Result<(), Failure> {
    let model = explain.model.to_string_lossy();
    if explain.paths.is_empty() || explain.texts.is_empty() {
        return Err(Failure::input(anyhow!(
            "{model}: a model of images and texts is explained with both: vitreous explain {model} photo.jpg --text 'a dog on a beach'"
        )));
    }
    let given = [
        ("--class", !explain.classes.is_empty()),
        ("--pair", explain.pair.is_some()),
        ("--question", explain.question.is_some()),
        ("--token", explain.token.is_some()),
        ("--steps", explain.steps.is_some()),
        ("--target", !explain.targets.is_empty()),
        ("--layers", explain.layers.is_some()),
        ("--heads", explain.heads.is_some()),
        ("--arrays", explain.arrays),
        ("--patch-pair", explain.patch_pair.is_some()),
        ("--nearest", !explain.nearest.is_empty()),
    ];
    if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
        return Err(Failure::input(anyhow!("{option} cannot be used with a model of images and texts")));
    }
    match explain.texts.iter().find(|text| text.trim().is_empty()) {
        Some(_) => Err(Failure::input(anyhow!("--text: a caption has no words"))),
        None => Ok(()),
    }
}

fn captions(explain: &Explain, model: &ImageTextModel, device: &Device) -> Result<Vec<Caption>, Failure> {
    let mut runner = model.caption_runner(Precision::F32, device)?;
    let mut found = Vec::new();
    for text in &explain.texts {
        let encoding = model.texts.encode(&TextInput { text: text.clone(), pair: None })?;
        if encoding.truncated {
            say!(
                "note: {text:?} is longer than the {} tokens that the model reads; the rest was not read",
                model.texts.longest
            );
        }
        let vector = embed(&mut runner, text)?;
        let mut words = Vec::new();
        for range in words_of(&encoding) {
            let without = format!("{}{}", &text[..range.start], text[range.end..].trim_start());
            words.push((text[range].to_string(), embed(&mut runner, &without)?));
        }
        found.push(Caption { text: text.clone(), encoding, vector, words });
    }
    Ok(found)
}

fn embed(runner: &mut CaptionRunner, text: &str) -> Result<Vec<f32>, Failure> {
    Ok(runner.embed(&[TextInput { text: text.to_string(), pair: None }])?)
}

/// The bytes of each word of a text: tokens that touch are one word.
fn words_of(encoding: &Encoding) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let tokens = encoding.offsets.iter().zip(&encoding.special).filter(|(_, special)| !**special);
    for (&(start, end), _) in tokens.filter(|((start, end), _)| end > start) {
        match words.last_mut() {
            Some(word) if word.end == start => word.end = end,
            _ => words.push(start..end),
        }
    }
    words
}

/// Pictures that could be read, and whether there were others, which are told.
fn pictures(explain: &Explain, model: &ImageTextModel, device: &Device) -> Result<(Vec<Picture>, bool), Failure> {
    let images = &model.images;
    let channels = Channels::from_count(images.input.channels).unwrap_or(Channels::Rgb);
    let mut runner = Runner::new(images, OutputName::Features, Precision::F32, device, Some(1))?;
    let (mut found, mut failed) = (Vec::new(), false);
    let mut scratch = Scratch::default();
    for listed in explain.images()? {
        let (path, decoded) = match listed {
            Ok(path) => {
                let image = vitreous_data::image::open(&path, channels).map_err(|error| error.to_string());
                (path, image)
            }
            Err(missing) => (missing.path, Err(missing.error)),
        };
        let prepared = decoded.and_then(|image| {
            let mut numbers = vec![0.0; images.input.floats()];
            images.preprocess.apply(&image, &mut scratch, &mut numbers).map_err(|error| error.to_string())?;
            let size = [images.input.size.height, images.input.size.width];
            let seen = images.preprocess.undo(&numbers, size).map_err(|error| error.to_string())?;
            Ok((numbers, seen))
        });
        match prepared {
            Ok((numbers, seen)) => {
                let vector = runner.run(std::slice::from_ref(&numbers))?.to_vec();
                found.push(Picture { path, seen, numbers, vector });
            }
            Err(error) => {
                failed = true;
                complain!("error: {}: {error}", format::one_line(&path.to_string_lossy()));
            }
        }
    }
    match found.is_empty() {
        true if failed => Err(Failure::Reported),
        true => Err(Failure::input(anyhow!("no image was named: the list on standard input is empty"))),
        false => Ok((found, failed)),
    }
}

/// One picture with all captions.
fn one(
    model: &ImageTextModel,
    explainer: &mut ImageTextExplainer,
    picture: &Picture,
    captions: &[Caption],
    cosines: &[f64],
) -> Result<Vec<CaptionShown>, Failure> {
    let logits: Vec<f32> = cosines.iter().map(|&cosine| model.scores.logit(cosine)).collect();
    let scores = model.scores.of(&logits);
    let mut shown = Vec::new();
    for (index, caption) in captions.iter().enumerate() {
        let patches = explainer.patches(&picture.numbers, &caption.vector).map_err(failure)?;
        let relevance = explainer.tokens(&caption.encoding.ids, &picture.vector).map_err(failure)?;
        let tokens = caption.encoding.ids.iter().zip(&relevance).zip(&caption.encoding.special);
        let tokens = tokens.filter(|(_, special)| !**special).map(|((&id, &relevance), _)| {
            let token = model.texts.tokenizer.token(id).unwrap_or_default();
            (token.trim_end_matches("</w>").trim_start_matches('\u{2581}').to_string(), relevance)
        });
        let tokens = tokens.collect();
        let mut words = Vec::new();
        for (word, without) in &caption.words {
            let difference: Vec<f32> =
                caption.vector.iter().zip(without).map(|(with, without)| with - without).collect();
            let effect = cosines[index] - cosine(&picture.vector, without);
            let patches = explainer.patches(&picture.numbers, &difference).map_err(failure)?;
            words.push(WordShown { word: word.clone(), effect, patches });
        }
        let (cosine, score, text) = (cosines[index], scores[index], caption.text.clone());
        shown.push(CaptionShown { text, cosine, score, patches, tokens, words });
    }
    Ok(shown)
}

fn object(path: &str, page: &str, captions: &[CaptionShown]) -> Json {
    let caption = |caption: &CaptionShown| {
        let tokens: Vec<Json> =
            caption.tokens.iter().map(|(token, relevance)| json!({"token": token, "relevance": relevance})).collect();
        let words: Vec<Json> = caption
            .words
            .iter()
            .map(|word| json!({"word": word.word, "effect": word.effect, "patches": word.patches}))
            .collect();
        json!({
            "text": caption.text, "cosine": caption.cosine, "score": caption.score, "patches": caption.patches,
            "tokens": tokens, "words": words
        })
    };
    json!({"path": path, "page": page, "captions": captions.iter().map(caption).collect::<Vec<_>>()})
}
