//! Images and texts as vectors of one space.

use std::ffi::OsString;
use std::path::Path;

use anyhow::anyhow;
use vitreous_models::OpenOptions;
use vitreous_runtime::image_text::{CaptionRunner, is_of_text_tower};
use vitreous_runtime::text::TextInput;
use vitreous_runtime::{ImageTextModel, OutputName};

use super::{Embed, One, Vectors};
use crate::failure::Failure;
use crate::image_answers::{ImageQuestion, ask};
use crate::shared_out::{SharedOut, key_of};
use crate::texts::{AT_ONCE, read_standard_input, take_texts, text_input};

/// Endings by which a missing file is told from a text.
const IMAGE_ENDINGS: [&str; 10] = ["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "jfif", "avif"];

/// Neighbouring arguments of one kind.
enum Run {
    Images(Vec<OsString>),
    Texts(Vec<String>),
}

impl Embed {
    pub(super) fn embed_images_and_texts(&self) -> Result<(), Failure> {
        let name = self.model.to_string_lossy();
        if self.pooling.is_some() || self.normalize == Some(false) {
            return Err(Failure::input(anyhow!(
                "{name}: this model pools tokens in one way, and its vectors have length 1: --pooling and --normalize false are for others"
            )));
        }
        if self.inputs.is_empty() && self.files.files.is_empty() {
            return Err(Failure::input(anyhow!(
                "name images, folders of them, or texts after the model; `--file FILE` reads texts"
            )));
        }
        let has_standard_input = self.inputs.iter().any(|input| input == "-")
            || (!self.files.files.is_empty() && read_standard_input(&[], &self.files.files));
        let runs = runs(&self.inputs)?;
        let has_images = runs.iter().any(|run| matches!(run, Run::Images(_)));
        self.check_edits(&runs)?;
        let mut shared = self.shared_out(has_standard_input)?;
        let model = ImageTextModel::open(&self.model, &OpenOptions::default())?;
        let model = self.interventions.apply(model)?;
        model.images.model.notes.iter().for_each(|note| say!("note: {note}"));
        let (device, precision) = (self.compute.device_of(&shared)?, self.compute.precision());
        let threads = self.compute.threads_of(&shared);
        let question = ImageQuestion { output: OutputName::Features, precision, batch: None, threads, device: &device };
        let mut captions = model.caption_runner(precision, &device)?;
        let width = captions.width();
        let query = self.search.as_ref().map(|query| match kind_of(query)? {
            Kind::Image => {
                let mut one = One(None);
                ask(&model.images, std::slice::from_ref(query), &question, &mut SharedOut::alone(), &mut one)?;
                Ok(one.0)
            }
            Kind::Text(text) => captions.embed(&[TextInput { text, pair: None }]).map(Some).map_err(Failure::from),
        });
        let query = query.transpose()?.flatten();
        let mut answers = Vectors::new(self, query, if has_images { "path" } else { "text" }, width, &shared)?;
        let mut failed = false;
        for run in runs {
            match run {
                Run::Images(paths) => {
                    answers.kind = "path";
                    match ask(&model.images, &paths, &question, &mut shared, &mut answers) {
                        Ok(()) => {}
                        // Some images could not be read, which was told; the others count.
                        Err(Failure::Reported) => failed = true,
                        Err(failure) => return Err(failure),
                    }
                }
                Run::Texts(texts) => {
                    answers.kind = "text";
                    let inputs: Vec<TextInput> = texts.into_iter().map(|text| TextInput { text, pair: None }).collect();
                    embed_texts(&mut captions, &inputs, &mut shared, &mut answers)?;
                }
            }
        }
        if !self.files.files.is_empty() {
            answers.kind = "text";
            let at_once = shared.chunk_size(AT_ONCE);
            take_texts(&[], &self.files.files, at_once, text_input, |inputs| {
                embed_texts(&mut captions, inputs, &mut shared, &mut answers)
            })?;
        }
        answers.finish(shared)?;
        if captions.truncated() > 0 {
            say!(
                "note: {} texts are longer than the {} tokens that the model reads; the rest was not read",
                captions.truncated(),
                model.texts.longest
            );
        }
        if failed { Err(Failure::Reported) } else { Ok(()) }
    }

    /// Refuses edits of a tower that has nothing to read: they would change nothing.
    fn check_edits(&self, runs: &[Run]) -> Result<(), Failure> {
        let query = self.search.as_ref().map(kind_of).transpose()?;
        let has_images = runs.iter().any(|run| matches!(run, Run::Images(_))) || matches!(query, Some(Kind::Image));
        let has_texts = runs.iter().any(|run| matches!(run, Run::Texts(_)))
            || matches!(query, Some(Kind::Text(_)))
            || !self.files.files.is_empty();
        for edit in self.interventions.list()? {
            let (is_used, tower, other) = match is_of_text_tower(&edit.path) {
                true => (has_texts, "text", "image"),
                false => (has_images, "image", "text"),
            };
            if !is_used {
                return Err(Failure::input(anyhow!(
                    "{}: this is a value of the {tower} tower, and there is no {tower} to embed; paths of the {other} tower begin with \
                     `{other}.`",
                    edit.path
                )));
            }
        }
        Ok(())
    }
}

fn embed_texts(
    captions: &mut CaptionRunner,
    inputs: &[TextInput],
    shared: &mut SharedOut,
    answers: &mut Vectors,
) -> Result<(), Failure> {
    let Some(chunk) = shared.next(inputs.len(), key_of(inputs)) else { return Ok(()) };
    let vectors = captions.embed(inputs)?;
    for (input, vector) in inputs.iter().zip(vectors.chunks_exact(captions.width())) {
        answers.take(&input.text, vector)?;
    }
    answers.end_chunk(shared, &chunk, 0)
}

/// What an argument is.
enum Kind {
    Image,
    Text(String),
}

/// An image if it is a file, a folder, a pattern or standard input; otherwise a text. What looks like the name of an image that is not
/// there is an error: nobody means the words of a file name.
fn kind_of(input: &OsString) -> Result<Kind, Failure> {
    let path = Path::new(input);
    let Some(text) = input.to_str() else { return Ok(Kind::Image) };
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_lowercase();
    let is_named_as_image = IMAGE_ENDINGS.contains(&ending.as_str());
    if path.exists() || text == "-" || (is_named_as_image && text.contains('*')) {
        return Ok(Kind::Image);
    }
    if is_named_as_image && !text.contains(' ') {
        return Err(Failure::input(anyhow!("{text}: no such file")));
    }
    if text.trim().is_empty() {
        return Err(Failure::input(anyhow!("a text has no words")));
    }
    Ok(Kind::Text(text.to_string()))
}

fn runs(inputs: &[OsString]) -> Result<Vec<Run>, Failure> {
    let mut runs: Vec<Run> = Vec::new();
    for input in inputs {
        match (kind_of(input)?, runs.last_mut()) {
            (Kind::Image, Some(Run::Images(images))) => images.push(input.clone()),
            (Kind::Text(text), Some(Run::Texts(texts))) => texts.push(text),
            (Kind::Image, _) => runs.push(Run::Images(vec![input.clone()])),
            (Kind::Text(text), _) => runs.push(Run::Texts(vec![text])),
        }
    }
    Ok(runs)
}
