//! `vitreous explain`: attention, relevance and more of image models, translators, text encoders and speech models, as pages, pictures and arrays.

mod arrays;
mod choose;
mod encoder;
mod files;
mod image_parts;
mod image_text;
mod language;
mod names;
mod of_run;
mod speech;
mod taken;
mod text;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use clap::Args;
use vitreous_data::image::Preprocess;
use vitreous_data::ordered::OrderedMap;
use vitreous_engine::{Device, Graph};
use vitreous_explain::{
    Choice, Classes, ExplainError, Explainer, Explanation, ModelPictures, Settings, Spread, Structure, pictures,
};
use vitreous_models::model::is_there;
use vitreous_models::{Call, OpenOptions, Size};
use vitreous_runtime::locate::model_directory;
use vitreous_runtime::scores::{best, softmax};
use vitreous_runtime::speech::is_speech_model;
use vitreous_runtime::{ImageModel, Intervene, described};

use super::{parse_count, parse_size, parse_threads};
use crate::device_options::DeviceOptions;
use crate::failure::Failure;
use crate::images::{Images, ListedImage};
use crate::intervention_options::InterventionOptions;
use crate::prepared::{self, PartSeen, Prepared};
use vitreous_pages::explain::index::{self, Entry, Index};
use vitreous_pages::explain::json;
use vitreous_pages::explain::parts::ImageParts;
use vitreous_pages::explain::weights::WeightPictures;
use vitreous_pages::explain::{self as page, ImageModel as ModelFacts, ImagePage};
use vitreous_pages::facts::{flow_notes, image_model};
use vitreous_pages::format;
use vitreous_pages::{flow, write};

use choose::Numbers;
use names::Names;

/// Look inside a model: attention, rollout, relevance and more, as one HTML page per image (or per text, for translators and text encoders; per recording, for speech models)
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous explain runs/small-1 photos
  vitreous explain runs/small-1 cat.jpg --patch-from dog.jpg --at blocks.3.attention
  vitreous explain CLIP photo.jpg --text 'two dogs on a beach' --text 'a cat'
  vitreous explain tiny.en.pt talk.wav
  vitreous explain runs/translation-1 --text 'Click the button.'
  vitreous explain BERT --text 'The capital of France is [MASK].'
  vitreous explain GPT2 --text 'The capital of France is' --class ' Paris'
  vitreous explain GPT2 --text 'The capital of France is' --patch-from 'The capital of Italy is'
  vitreous explain GPT2 --text 'The capital of France is' --without blocks.3.attention.heads.5
  vitreous explain CLASSIFIER --text 'A wonderful film.' --class negative
  vitreous explain MODEL --question 'Who wrote it?' --context 'It was written by Ada Lovelace.'")]
pub struct Explain {
    /// A model directory, a checkpoint file or a run directory
    model: PathBuf,
    /// Images, folders of images, or patterns such as 'photos/*.jpg'; `-` reads a list of them from standard input [default for a run: validation images of its data]; of a speech model, recordings
    #[arg(value_name = "IMAGE")]
    paths: Vec<OsString>,
    /// Without IMAGE, how many validation images of a run's data to explain, spread over the classes
    #[arg(long, value_name = "N", default_value = "4", value_parser = parse_count, conflicts_with = "paths", allow_negative_numbers = true)]
    samples: usize,
    /// A text, for a translator, a text encoder or a language model; a caption, beside images, for a model of images and texts; may be repeated. Translators decode it on the CPU, and compute its explanation on the device
    #[arg(long = "text", value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(conflicts_with = "discard")]
    texts: Vec<String>,
    /// The second text of a pair, for a model that compares two; for an embedding model, explain the similarity of the two
    #[arg(long, value_name = "TEXT", requires = "texts", allow_hyphen_values = true)]
    pair: Option<String>,
    /// A question, for a question answering model, which looks for the answer in `--context`
    #[arg(long, value_name = "Q", requires = "context", allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["paths", "texts", "discard", "pages", "image", "head_count"])]
    question: Option<String>,
    /// The text in which the answer to `--question` is looked for
    #[arg(long, value_name = "C", requires = "question", allow_hyphen_values = true)]
    context: Option<String>,
    /// The token of a text whose class or filling is explained, counted from 0 [default: the first mask, or the entity with the highest score]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    token: Option<usize>,
    /// Steps of integrated gradients, for text encoders [default: 32, and more until their sum is accurate]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    steps: Option<usize>,
    /// The translation to explain, one for each `--text` [default: the model's own]
    #[arg(long = "target", value_name = "TEXT", requires = "texts", allow_hyphen_values = true)]
    targets: Vec<String>,
    /// The language of the texts, of an encoder-decoder that has several: en_XX, or en
    #[arg(long, value_name = "CODE", requires = "texts")]
    from: Option<String>,
    /// The language that it writes: de_DE, or de
    #[arg(long, value_name = "CODE", requires = "texts")]
    to: Option<String>,
    /// Where to write pages and pictures, one folder per image or text
    #[arg(long, value_name = "DIR", default_value = "explain")]
    out: PathBuf,
    /// Layers whose attention is shown, counted from 0, as in `0,3-5,last` [default: all]
    #[arg(long, value_name = "LIST", value_parser = Numbers::parse, allow_hyphen_values = true)]
    layers: Option<Numbers>,
    /// Heads whose attention is shown, counted from 0, as in `0-2` [default: all]
    #[arg(long, value_name = "LIST", value_parser = Numbers::parse, allow_hyphen_values = true)]
    heads: Option<Numbers>,
    /// A class, by name or index, whose relevance is shown besides that of the most probable ones; for a masked language model, a token; may be repeated
    #[arg(long = "class", value_name = "CLASS", allow_hyphen_values = true)]
    classes: Vec<String>,
    /// How many of the most probable classes are shown, with their relevance; for texts, relevance is shown for the most probable alone [default: 5]
    #[arg(long, value_name = "K", value_parser = parse_count, allow_negative_numbers = true)]
    top: Option<usize>,
    /// The fraction of the smallest attention weights that the second rollout discards in each layer
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = choose::parse_share, allow_negative_numbers = true)]
    discard: f32,
    /// How many images get a page; the charts over all images count every image
    #[arg(long, value_name = "N", default_value = "20", allow_negative_numbers = true)]
    pages: usize,
    /// For how many images, the first ones, the effect of switching off each head is computed: for each, the model runs about half as often as it has heads
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "texts", allow_negative_numbers = true)]
    effects: usize,
    /// Print one JSON object per line: path, page, top, logits, layers, rollout, relevance; or path and error
    #[arg(long)]
    json: bool,
    /// Write arrays.npz next to each page, with all values
    #[arg(long)]
    arrays: bool,
    /// The image size, if not the model's own: position embeddings are resized
    #[arg(long, value_name = "HxW", value_parser = parse_size, allow_negative_numbers = true)]
    image: Option<Size>,
    /// The number of attention heads, for files that do not contain it
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    head_count: Option<usize>,
    /// Threads that compute on the CPU and prepare images [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Another text (or image, of a model of images): with `--at`, values of its run are put in place of this one's; without, a language model's page maps what each of its vectors does here
    #[arg(long, value_name = "OTHER", allow_hyphen_values = true)]
    patch_from: Option<String>,
    /// The text that stands beside that of `--patch-from`, as `--pair`, `--context` or `--target` do beside the text that is explained [default: the same]
    #[arg(long, value_name = "TEXT", requires = "patch_from", allow_hyphen_values = true)]
    patch_pair: Option<String>,
    /// The value that `--patch-from` replaces, as in `blocks.3.mlp`, or `blocks.3@5` for token 5 alone; may be repeated
    #[arg(long, value_name = "PATH", requires = "patch_from")]
    at: Vec<String>,
    /// The words nearest to a vector inside a language model, as in `blocks.3@5` for token 5; may be repeated [default token: the last]
    #[arg(long, value_name = "PATH", requires = "texts")]
    nearest: Vec<String>,
    #[command(flatten)]
    interventions: InterventionOptions,
    #[command(flatten)]
    device: DeviceOptions,
}

/// A model that sees less of an image than this share is hardly asked about that image.
const MUCH_OF_AN_IMAGE: f64 = 0.25;

/// What stays the same from image to image.
struct Setting<'a> {
    model: &'a ImageModel,
    /// What pages say about it.
    facts: ModelFacts,
    preprocess: &'a Preprocess,
    choice: Choice,
    pictures: ModelPictures,
    weights: WeightPictures,
    /// The drawing of the data flow.
    flow: String,
    device: Device,
}

/// What grows from image to image.
#[derive(Default)]
struct Tally {
    names: Names,
    entries: Vec<Entry>,
    spread: Spread,
    /// Paths that gave no image, and why.
    failed: Vec<(String, String)>,
    /// Whether it was said that little of an image is seen.
    told_part: bool,
}

impl Explain {
    pub fn run(self) -> Result<(), Failure> {
        if self.compares_images_and_texts() {
            return image_text::run(&self);
        }
        if is_speech_model(&self.model) {
            return speech::run(&self);
        }
        if !self.texts.is_empty() || self.question.is_some() {
            self.refuse_images()?;
            return self.explain_texts();
        }
        self.check_images()?;
        let start = Instant::now();
        let options = OpenOptions::default().with_some("image", self.image).with_some("heads", self.head_count);
        let model = ImageModel::open(&self.model, &options)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let threads = self.threads.unwrap_or_else(vitreous_runtime::threads);
        let device = self.device.open(threads)?;
        let edits = taken::edits_with_image(&self, &model, &device)?;
        let model = model.with_interventions(edits)?;
        let preprocess = model.preprocess.clone();
        let settings = self.settings(&model, threads)?;
        let choice = settings.choice.clone();
        let mut explainer = Explainer::new(&model.model, settings, &device).map_err(failure)?;
        let pictures = pictures(&model.model).map_err(Failure::work)?;
        let weights = WeightPictures::draw(&pictures, model.input.channels).map_err(Failure::work)?;
        let mut graph = Graph::for_inference();
        let architecture = model.model.architecture.as_ref();
        architecture.build(&mut graph, &Call::whole(1)).map_err(Failure::work)?;
        let flow = flow::drawing(&graph, &flow_notes(architecture));
        let facts = image_model(&model.model).map_err(Failure::work)?;
        let setting =
            Setting { model: &model, facts, preprocess: &preprocess, choice, pictures, weights, flow, device };
        let floats = model.input.floats();
        let images: Box<dyn Iterator<Item = Prepared>> = if self.paths.is_empty() {
            let images = of_run::images(&self.model, self.samples, &preprocess, floats)?;
            self.check_places(images.iter().map(|image| image.path.as_path()), page::KIND)?;
            Box::new(images.into_iter())
        } else {
            let (to_prepare, channels) = (preprocess.clone(), model.input.channels);
            Box::new(OrderedMap::new(self.images(page::KIND)?, threads, 2 * threads, move || {
                prepared::worker(to_prepare.clone(), channels, floats)
            }))
        };
        let mut tally = Tally { names: Names::reserving(files::OF_ALL), ..Tally::default() };
        let mut out = BufWriter::new(crate::say::stdout());
        for image in images {
            self.one(image, &mut explainer, &setting, &mut tally, &mut out)?;
            // Whoever reads along sees each image when it is done.
            out.flush()?;
        }
        drop(out);
        let images = tally.spread.images();
        if images == 0 && tally.failed.is_empty() {
            return Err(Failure::input(anyhow!("no image was named: the list on standard input is empty")));
        }
        if images > 0 {
            self.finish(&setting, &tally)?;
        }
        say!(
            "{} in {:.1} s on {}; {} in {}",
            format::count(images, "image", "images"),
            start.elapsed().as_secs_f64(),
            described(&setting.device),
            format::count(tally.entries.len(), "page", "pages"),
            self.out.display()
        );
        if tally.entries.len() < images {
            say!(
                "note: --pages {} leaves {} without pages",
                self.pages,
                format::count(images - tally.entries.len(), "image", "images")
            );
        }
        if !tally.failed.is_empty() {
            say!("{} gave no image", format::count(tally.failed.len(), "path", "paths"));
            return Err(Failure::Reported);
        }
        Ok(())
    }

    /// Whether the model is one of images and texts; of one that is not there, whoever opens it says so.
    fn compares_images_and_texts(&self) -> bool {
        let options = OpenOptions::default().with_some("heads", self.head_count);
        let described =
            is_there(&self.model).then(|| vitreous_runtime::architecture(&self.model.to_string_lossy(), &options));
        matches!(described, Some(Ok((model, _))) if model.signature().images_and_texts().is_some())
    }

    /// Refuses what is for images beside a text.
    fn refuse_images(&self) -> Result<(), Failure> {
        let usual_pages = 20;
        let given = [
            ("IMAGE", !self.paths.is_empty()),
            ("--pages", self.pages != usual_pages),
            ("--image", self.image.is_some()),
            ("--head-count", self.head_count.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::input(anyhow!(
                "{option} cannot be used with --text: only a model of images and texts takes both, and {} is none",
                self.model.display()
            ))),
            None => Ok(()),
        }
    }

    /// Explains texts, as the model is a translator or an encoder.
    fn explain_texts(&self) -> Result<(), Failure> {
        let model = self.model.to_string_lossy();
        // Of a model that is not there, whoever opens it says so.
        if is_there(&self.model) {
            let signature = vitreous_runtime::architecture(&model, &OpenOptions::default())?.0.signature();
            if signature.images().is_some() {
                return Err(Failure::input(anyhow!(
                    "{model}: this is no translator but {}, which reads no text; give it images: vitreous explain {model} photo.jpg",
                    signature.what()
                )));
            }
            if signature.next_token().is_some() {
                return language::run(self);
            }
            if signature.tokens().is_some() {
                return encoder::run(self);
            }
        }
        self.check_translator_options()?;
        text::run(self)
    }

    /// Refuses what is for encoders of texts alone.
    fn check_translator_options(&self) -> Result<(), Failure> {
        let given = [
            ("--class", !self.classes.is_empty()),
            ("--top", self.top.is_some()),
            ("--pair", self.pair.is_some()),
            ("--question", self.question.is_some()),
            ("--token", self.token.is_some()),
            ("--steps", self.steps.is_some()),
            ("--nearest", !self.nearest.is_empty()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::input(anyhow!("{option} cannot be used with a translator"))),
            None => Ok(()),
        }
    }

    /// The edits that the model is run with, in words.
    fn edits(&self) -> Vec<String> {
        let taken = self.at.iter().map(|at| format!("{at} from “{}”", self.patch_from.as_deref().unwrap_or_default()));
        self.interventions.described().into_iter().chain(taken).collect()
    }

    /// Whether an edit is of some tokens alone, or has numbers for each.
    fn edits_tokens(&self) -> bool {
        !self.at.is_empty() || self.interventions.described().iter().any(|edit| edit.contains('@'))
    }

    /// How many classes are shown.
    fn top(&self) -> usize {
        self.top.unwrap_or(5)
    }

    /// Refuses to look for images where there can be none.
    fn check_images(&self) -> Result<(), Failure> {
        let model = self.model.to_string_lossy();
        if !model_directory(&self.model).join("config.json").is_file() {
            return Ok(());
        }
        let signature = vitreous_runtime::architecture(&model, &OpenOptions::default())?.0.signature();
        match (signature.images(), signature.pairs()) {
            (Some(_), _) => Ok(()),
            (None, Some(_)) if self.paths.is_empty() => {
                Err(Failure::input(anyhow!("{model}: this is a translator; give it a sentence: --text '..'")))
            }
            (None, Some(_)) => Err(Failure::input(anyhow!(
                "{model}: this is a translator, which sees no images; give it a sentence: --text '..'"
            ))),
            (None, None) => Err(Failure::input(anyhow!(
                "{model}: this is {}, which sees no images; give it a text: --text '..'",
                signature.what()
            ))),
        }
    }

    /// The images that were asked for, whose pages are of this kind.
    fn images(&self, kind: &str) -> Result<Box<dyn Iterator<Item = ListedImage> + Send>, Failure> {
        let images = Images::new(self.paths.clone());
        if !images.are_known() {
            return Ok(Box::new(images));
        }
        let mut all: Vec<ListedImage> = images.collect();
        files::refuse_overwriting(&self.out, all.iter().flatten().map(PathBuf::as_path))?;
        let before = all.len();
        all.retain(|found| !found.as_ref().is_ok_and(|path| files::is_generated(&self.out, path)));
        if all.len() < before {
            let count = format::count(before - all.len(), "picture", "pictures");
            say!("note: {count} of an earlier explanation in {} left out", self.out.display());
        }
        self.check_places(all.iter().flatten().map(PathBuf::as_path), kind)?;
        Ok(Box::new(all.into_iter()))
    }

    /// Where all images are known, so are the places of their pages: what lies there and is not ours is refused before any work
    /// is done.
    fn check_places<'a>(&self, paths: impl Iterator<Item = &'a Path> + Clone, kind: &str) -> Result<(), Failure> {
        if kind == page::KIND && paths.clone().nth(1).is_some() {
            files::check_page(&self.out.join(files::INDEX), index::KIND)?;
        }
        let mut names = Names::reserving(files::OF_ALL);
        for path in paths.take(self.pages) {
            files::check_page(&self.out.join(names.take(&path.to_string_lossy())).join(files::PAGE), kind)?;
        }
        Ok(())
    }

    fn settings(&self, model: &ImageModel, threads: usize) -> Result<Settings, Failure> {
        let list = |numbers: &Option<Numbers>, what: &str, count: usize| {
            numbers.as_ref().map(|numbers| numbers.resolve(what, count)).transpose().map_err(Failure::Input)
        };
        let structure = Structure::of(model.model.architecture.as_ref()).map_err(Failure::work)?;
        let layers = list(&self.layers, "layer", structure.layers)?;
        let heads = list(&self.heads, "head", structure.heads)?;
        let choice = Choice::of(structure, layers.as_deref(), heads.as_deref()).map_err(Failure::input)?;
        let named = choose::classes(&self.classes, &model.model).map_err(Failure::Input)?;
        let mut discards = vec![0.0, self.discard];
        discards.dedup();
        let classes = Classes::TopAnd(self.top(), named);
        Ok(Settings { choice, discards, classes, ..Settings::usual(structure, threads) })
    }

    fn one(
        &self,
        image: Prepared,
        explainer: &mut Explainer,
        setting: &Setting,
        tally: &mut Tally,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let path = image.path.to_string_lossy().into_owned();
        let pixels = match image.pixels {
            Ok(pixels) => pixels,
            Err(error) => {
                if self.json {
                    writeln!(out, "{}", serde_json::json!({"path": path, "error": error}))?;
                } else {
                    out.flush()?;
                    complain!("error: {}: {error}", format::one_line(&path));
                }
                tally.failed.push((path, error));
                return Ok(());
            }
        };
        match tally.spread.images() {
            // Only now: where no image can be read, nothing is written.
            0 => {
                files::create_folder(&self.out)?;
                files::write_weights(&self.out, &setting.weights)?;
            }
            // From the second image on there will be an index.
            1 => files::check_page(&self.out.join(files::INDEX), index::KIND)?,
            _ => {}
        }
        self.tell_part(&path, pixels.part, tally);
        let (part, pixels) = (pixels.part, pixels.numbers);
        let has_page = tally.entries.len() < self.pages;
        if !has_page && !self.json {
            return explainer.spread(&pixels, &mut tally.spread).map_err(Failure::work);
        }
        let folder = has_page.then(|| tally.names.take(&path));
        if let Some(folder) = &folder {
            let directory = self.out.join(folder);
            files::create_folder(&directory)?;
            files::check_page(&directory.join(files::PAGE), page::KIND)?;
        }
        let explanation = explainer.explain(&pixels).map_err(Failure::work)?;
        let with_effects = tally.spread.images() < self.effects;
        let (of, top) = (&setting.model.model, self.top());
        let parts = image_parts::of(of, &pixels, &explanation, top, with_effects, &setting.device)?;
        tally.spread.add(&explanation);
        let page = match folder {
            Some(folder) => {
                Some(self.write_page(&path, folder, &pixels, part, (&explanation, parts.as_ref()), setting, tally)?)
            }
            None => None,
        };
        if self.json {
            let mut object = json::object(&path, page.as_deref(), &explanation, setting.model, self.top());
            if let Some(parts) = &parts {
                image_parts::add_to(&mut object, parts, |class| setting.model.label(class));
            }
            writeln!(out, "{object}")?;
        } else if let Some(page) = page {
            let page = format::one_line(&page.to_string_lossy());
            match answer(&explanation, setting.model) {
                Some((name, score)) => writeln!(out, "{page}\t{}\t{:.1} %", format::one_line(&name), 100.0 * score)?,
                None => writeln!(out, "{page}")?,
            }
        }
        Ok(())
    }

    /// Says, of the first such image, that the model sees little of it.
    fn tell_part(&self, path: &str, part: PartSeen, tally: &mut Tally) {
        if part.share() >= MUCH_OF_AN_IMAGE || tally.told_part {
            return;
        }
        tally.told_part = true;
        say!(
            "note: {}: the model sees only the middle {} of {} pixels, {:.1} % of the image; \
             pages say what is seen of each",
            format::one_line(path),
            part.seen,
            part.image,
            100.0 * part.share()
        );
    }

    /// Writes all files of one image, and gives the page's path.
    fn write_page(
        &self,
        path: &str,
        folder: String,
        pixels: &[f32],
        part: PartSeen,
        (explanation, parts): (&Explanation, Option<&ImageParts>),
        setting: &Setting,
        tally: &mut Tally,
    ) -> Result<PathBuf, Failure> {
        let directory = self.out.join(&folder);
        let size = explanation.layout.image;
        let seen = setting.preprocess.undo(pixels, [size.height, size.width]).map_err(Failure::work)?;
        let shown = ImagePage {
            path,
            model: &setting.facts,
            seen: &seen,
            part,
            explanation,
            parts,
            weights: &setting.weights,
            flow: &setting.flow,
            top: self.top(),
        };
        let file = directory.join(files::PAGE);
        files::remove_earlier(&directory)?;
        write::write_page(&file, &page::page(&shown).map_err(Failure::work)?)?;
        files::write_pictures(&directory, &shown)?;
        if self.arrays {
            let more = parts.map(image_parts::arrays_of).unwrap_or_default();
            arrays::write(&directory.join(files::ARRAYS), pixels, explanation, setting.model, &setting.pictures, &more)
                .map_err(Failure::work)?;
        }
        let thumbnail = index::thumbnail(&seen).map_err(Failure::work)?;
        let answer = answer(explanation, setting.model);
        tally.entries.push(Entry { path: path.to_string(), folder, thumbnail, answer });
        Ok(file)
    }

    /// What is over all images.
    fn finish(&self, setting: &Setting, tally: &Tally) -> Result<(), Failure> {
        if tally.spread.images() < 2 {
            return files::remove_index(&self.out);
        }
        let spread = of_choice(&tally.spread, &setting.choice);
        let index = Index {
            model: &setting.facts,
            layout: setting.pictures.layout,
            entries: &tally.entries,
            images: tally.spread.images(),
            failed: &tally.failed,
            spread: &spread,
            weights: &setting.weights,
            flow: &setting.flow,
        };
        let file = self.out.join(files::INDEX);
        write::write_page(&file, &index::page(&index).map_err(Failure::work)?)?;
        files::write_charts(&self.out, &index::spread_charts(&spread))?;
        say!("{}: all images", file.display());
        Ok(())
    }
}

/// A device that fails, or has too little memory left, is no fault of what was asked for.
fn failure(error: ExplainError) -> Failure {
    use vitreous_engine::Error;
    match error {
        // Another edit could be done, and another value is there.
        ExplainError::Engine(Error::Intervention { .. } | Error::Unknown { .. }) => Failure::input(error),
        ExplainError::Engine(_) => Failure::work(error),
        _ => Failure::input(error),
    }
}

/// The layers and heads that were asked for: images without a page count all.
fn of_choice(spread: &Spread, choice: &Choice) -> Vec<vitreous_explain::LayerSpread> {
    let mut layers = spread.layers();
    layers.retain(|layer| choice.layers.contains(&layer.layer));
    for layer in &mut layers {
        let asked: Vec<bool> = layer.heads.iter().map(|head| choice.heads.contains(head)).collect();
        let mut numbers = asked.iter();
        layer.heads.retain(|_| *numbers.next().unwrap_or(&false));
        for values in [&mut layer.distance, &mut layer.entropy] {
            let mut numbers = asked.iter();
            values.retain(|_| *numbers.next().unwrap_or(&false));
        }
    }
    layers
}

/// The most probable class and its score.
fn answer(explanation: &Explanation, model: &ImageModel) -> Option<(String, f64)> {
    let scores = softmax(explanation.logits.as_ref()?);
    let class = *best(&scores, 1).first()?;
    Some((model.label(class), scores[class]))
}
