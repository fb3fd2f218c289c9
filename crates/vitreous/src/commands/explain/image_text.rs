//! `vitreous explain MODEL IMAGE.. --text ..` of models of images and texts: where a picture supports each word of a caption.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::anyhow;
use serde_json::json;
use vitreous_data::image::{Channels, Image, Scratch};
use vitreous_models::OpenOptions;
use vitreous_pages::explain_image_text::{ImageTextPage, KIND, page};
use vitreous_pages::explained::image_text::{PicturesAndCaptions, object};
use vitreous_pages::{format, write};
use vitreous_runtime::{ImageTextModel, Intervene, described};

use super::files::{self, PAGE};
use super::names::Names;
use super::{Explain, taken};
use crate::failure::Failure;

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
    let mut both = PicturesAndCaptions::new(&model, &explain.texts, threads, &device)?;
    for caption in both.captions().iter().filter(|caption| caption.encoding.truncated) {
        let (text, longest) = (&caption.text, model.texts.longest);
        say!("note: {text:?} is longer than the {longest} tokens that the model reads; the rest was not read");
    }
    let (pictures, failed) = pictures(explain, &model, &mut both)?;
    let similarity: Vec<(String, Vec<f64>)> = pictures
        .iter()
        .map(|picture| {
            let name = picture.path.file_name().unwrap_or(picture.path.as_os_str()).to_string_lossy().into_owned();
            (name, both.cosines(&picture.vector))
        })
        .collect();
    files::create_folder(&explain.out)?;
    let mut names = Names::reserving(files::OF_ALL);
    let mut out = BufWriter::new(crate::say::stdout());
    let name = explain.model.to_string_lossy();
    for picture in pictures.iter().take(explain.pages) {
        let path = picture.path.to_string_lossy();
        let directory = explain.out.join(names.take(&path));
        files::create_folder(&directory)?;
        let file = directory.join(PAGE);
        files::check_page(&file, KIND)?;
        let shown = both.explain(&picture.numbers, &picture.vector)?;
        let html = page(&ImageTextPage {
            path: &path,
            model: &name,
            seen: &picture.seen,
            grid: both.grid(),
            captions: &shown,
            is_sigmoid: model.scores.bias.is_some(),
            similarity: &similarity,
        });
        write::write_page(&file, &html.map_err(Failure::work)?)?;
        if explain.json {
            let mut object = object(&path, &shown);
            object["page"] = json!(file.to_string_lossy());
            writeln!(out, "{object}")?;
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
        format::count(explain.texts.len(), "caption", "captions"),
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

/// Pictures that could be read, and whether there were others, which are told.
fn pictures(
    explain: &Explain,
    model: &ImageTextModel,
    both: &mut PicturesAndCaptions,
) -> Result<(Vec<Picture>, bool), Failure> {
    let images = &model.images;
    let channels = Channels::from_count(images.input.channels).unwrap_or(Channels::Rgb);
    let (mut found, mut failed) = (Vec::new(), false);
    let mut scratch = Scratch::default();
    for listed in explain.images(KIND)? {
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
                let vector = both.vector(&numbers)?;
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
