//! `vitreous embed`: texts or images as vectors, and the texts or images nearest to one.

mod image_text;
mod rows;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde_json::json;
use vitreous_models::OpenOptions;
use vitreous_pages::format;
use vitreous_runtime::locate::{open_model, unsuitable};
use vitreous_runtime::text::{EmbedOptions, Embedder, Pooling, Purpose, TextInput, TextModel, cosine};
use vitreous_runtime::{ImageModel, OutputName, architecture};

use super::parse_count;
use super::predict::write_failure;
use crate::device_options::ComputeOptions;
use crate::failure::Failure;
use crate::image_answers::{Answers, ImageQuestion, ask};
use crate::intervention_options::InterventionOptions;
use crate::shared_out::{Chunk, ShareOptions, SharedOut, Task, key_of};
use crate::texts::{AT_ONCE, TextFiles, TextTally, read_standard_input, take_texts, text_input};
use crate::vectors::VectorFile;
use rows::Row;

/// Compute embeddings of texts or images, or search for the most similar ones
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous embed MODEL 'A man is eating.' 'Someone has a meal.' --json
  vitreous embed MODEL --file sentences.txt --out vectors.npy
  mpirun -n 8 vitreous embed MODEL --file sentences.txt --out vectors.npy
  vitreous embed MODEL --file sentences.txt --search 'a meal' --top 3
  vitreous embed DINOV2 photos/ --search query.jpg
  vitreous embed CLIP photos/ --search 'two dogs on a beach'

A model of images and texts takes both: an argument that is a file or a folder is an image, any other a text.")]
pub struct Embed {
    /// A model directory
    model: PathBuf,
    /// Texts, or images and folders of images, depending on the model; without any, and without --file, texts are read from standard input
    #[arg(value_name = "INPUT", conflicts_with = "files")]
    inputs: Vec<OsString>,
    #[command(flatten)]
    files: TextFiles,
    /// How token vectors are pooled into one [default: as the model directory says; otherwise mean]
    #[arg(long, value_enum)]
    pooling: Option<PoolingName>,
    /// Scale vectors to length 1 [default: as the model directory says; otherwise not]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    normalize: Option<bool>,
    /// Rank the inputs by their cosine similarity to this text or image, the most similar first
    #[arg(long, value_name = "QUERY", conflicts_with = "out")]
    search: Option<OsString>,
    /// With --search, how many to show
    #[arg(long, value_name = "K", default_value = "10", value_parser = parse_count, allow_negative_numbers = true)]
    top: usize,
    /// Write vectors to a file: .npy or .parquet
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite the file of --out
    #[arg(long, requires = "out")]
    force: bool,
    /// Print one JSON object per line: text (or path) and embedding; with --search, rank, score, line (or image) and text (or path)
    #[arg(long, conflicts_with = "out")]
    json: bool,
    #[command(flatten)]
    compute: ComputeOptions,
    #[command(flatten)]
    interventions: InterventionOptions,
    #[command(flatten)]
    share: ShareOptions,
}

/// A way of pooling, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PoolingName {
    /// The vector of the first token
    Cls,
    /// The mean over all tokens
    Mean,
    /// The maximum over all tokens
    Max,
    /// The vector of the last token
    Last,
}

impl From<PoolingName> for Pooling {
    fn from(name: PoolingName) -> Pooling {
        match name {
            PoolingName::Cls => Pooling::Cls,
            PoolingName::Mean => Pooling::Mean,
            PoolingName::Max => Pooling::Max,
            PoolingName::Last => Pooling::Last,
        }
    }
}

impl Embed {
    pub fn run(self) -> Result<(), Failure> {
        let name = self.model.to_string_lossy();
        if !self.model.exists() {
            // A preset has no weights.
            open_model(&self.model, &OpenOptions::default())?;
        }
        let (model, _) = architecture(&name, &OpenOptions::default())?;
        match model.signature() {
            both if both.images_and_texts().is_some() => self.embed_images_and_texts(),
            one if one.images().is_some() => self.embed_images(),
            _ => self.embed_texts(),
        }
    }

    fn embed_texts(&self) -> Result<(), Failure> {
        let model = self.interventions.apply(TextModel::open(&self.model, &OpenOptions::default())?)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        if self.pooling.is_none() && model.sentence.pooling.is_none() {
            say!(
                "note: the model directory does not say how token vectors are pooled: taking their mean; --pooling chooses another way"
            );
        }
        let text = |text: &OsString| {
            let text = text.to_str().map(str::to_string);
            text.ok_or_else(|| Failure::input(anyhow!("an argument is not UTF-8: save the text in a file as UTF-8")))
        };
        let mut texts: Vec<String> = self.inputs.iter().map(text).collect::<Result<_, _>>()?;
        if texts == ["-"] {
            texts.clear();
        }
        if let Some(file) = texts.iter().find(|text| Path::new(text).is_file()) {
            say!("note: {file:?} is taken as a text; `--file {file}` reads the texts of that file");
        }
        let mut shared = self.shared_out(read_standard_input(&texts, &self.files.files))?;
        let device = self.compute.device_of(&shared)?;
        let options = EmbedOptions {
            pooling: self.pooling.map(Pooling::from),
            normalise: self.normalize,
            precision: self.compute.precision(),
        };
        let mut embedder = Embedder::new(&model, &options, &device)?;
        let width = embedder.width();
        let mut tally = TextTally::new();
        let query = match &self.search {
            Some(query) => Some(embedder.embed(&[TextInput { text: text(query)?, pair: None }], Purpose::Query)?),
            None => None,
        };
        let purpose = if query.is_some() { Purpose::Document } else { Purpose::Any };
        let mut answers = Vectors::new(self, query, "text", width, &shared)?;
        let at_once = shared.chunk_size(AT_ONCE);
        take_texts(&texts, &self.files.files, at_once, text_input, |inputs| {
            let Some(chunk) = shared.next(inputs.len(), key_of(inputs)) else { return Ok(()) };
            let vectors = embedder.embed(inputs, purpose)?;
            tally.texts += inputs.len();
            for (input, vector) in inputs.iter().zip(vectors.chunks_exact(width)) {
                answers.take(&input.text, vector)?;
            }
            answers.end_chunk(&mut shared, &chunk, 0)
        })?;
        answers.finish(shared)?;
        tally.truncated = embedder.truncated();
        tally.tell(model.longest, embedder.runner().computing(), &device);
        Ok(())
    }

    fn embed_images(&self) -> Result<(), Failure> {
        let name = self.model.to_string_lossy();
        if !self.files.files.is_empty() || self.pooling.is_some() {
            return Err(Failure::input(anyhow!("{name}: this model takes images: --file and --pooling are for texts")));
        }
        if self.inputs.is_empty() {
            return Err(Failure::input(anyhow!("name images, or folders of them, after the model; `-` reads a list")));
        }
        let model = self.interventions.apply(ImageModel::open(&self.model, &OpenOptions::default())?)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let signature = model.model.architecture.signature();
        let Some(width) = signature.vector() else {
            return Err(unsuitable(&name, &signature, "model with features").into());
        };
        let mut shared = self.shared_out(self.inputs.iter().any(|input| input == "-"))?;
        let threads = self.compute.threads_of(&shared);
        let device = self.compute.device_of(&shared)?;
        let precision = self.compute.precision();
        let question = ImageQuestion { output: OutputName::Features, precision, batch: None, threads, device: &device };
        let query = match &self.search {
            Some(query) => {
                let mut one = One(None);
                ask(&model, std::slice::from_ref(query), &question, &mut SharedOut::alone(), &mut one)?;
                one.0
            }
            None => None,
        };
        let mut answers = Vectors::new(self, query, "path", width, &shared)?;
        let asked = ask(&model, &self.inputs, &question, &mut shared, &mut answers);
        match asked {
            Ok(()) | Err(Failure::Reported) => answers.finish(shared).and(asked),
            Err(failure) => Err(failure),
        }
    }

    fn shared_out(&self, reads_standard_input: bool) -> Result<SharedOut, Failure> {
        let query = self.search.as_deref().map(Path::new).filter(|query| query.is_file());
        let files = query.into_iter().collect();
        let task = Task { model: &self.model, files, out: self.out.as_deref(), reads_standard_input };
        SharedOut::begin(&self.share, &task)
    }
}

/// The vector of the image that is searched for.
struct One(Option<Vec<f32>>);

impl Answers for One {
    fn answer(&mut self, path: &Path, answer: Result<&[f32], &str>) -> Result<(), Failure> {
        let failed = |error: &str| Failure::input(anyhow!("{}: {error}", path.display()));
        self.0.get_or_insert(answer.map_err(failed)?.to_vec());
        Ok(())
    }

    fn batch_ends(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// The least number of inputs that are ranked at a time.
const MANY: usize = 64;

/// An input with its similarity to the query.
struct Ranked {
    score: f64,
    place: usize,
    input: String,
    kind: &'static str,
}

/// Where vectors go: to a file, to standard output, or into a ranking; where they are shared out, first into parts.
struct Vectors<'e> {
    of: &'e Embed,
    width: usize,
    /// What the inputs of a file are called.
    kind_of_file: &'static str,
    /// The answers of a chunk that becomes a part; `None` if they go where they belong at once.
    part: Option<Vec<u8>>,
    query: Option<Vec<f32>>,
    /// What an input is called: text or path.
    kind: &'static str,
    normalise: bool,
    file: Option<VectorFile>,
    ranking: Vec<Ranked>,
    count: usize,
}

impl<'e> Vectors<'e> {
    fn new(
        of: &'e Embed,
        query: Option<Vec<f32>>,
        kind: &'static str,
        width: usize,
        shared: &SharedOut,
    ) -> Result<Vectors<'e>, Failure> {
        // Of texts it is done before.
        let normalise = kind == "path" && of.normalize == Some(true);
        let part = (!shared.is_direct()).then(Vec::new);
        let mut vectors = Vectors {
            of,
            width,
            kind_of_file: kind,
            part,
            query,
            kind,
            normalise,
            file: None,
            ranking: Vec::new(),
            count: 0,
        };
        if shared.is_direct() {
            vectors.begin_file()?;
        } else if let Some(path) = &of.out {
            VectorFile::check(path, of.force)?;
        }
        Ok(vectors)
    }

    fn begin_file(&mut self) -> Result<(), Failure> {
        if let Some(path) = self.of.out.as_ref().filter(|_| self.file.is_none()) {
            self.file = Some(VectorFile::create(path, self.kind_of_file, self.width, self.of.force)?);
        }
        Ok(())
    }

    fn take(&mut self, input: &str, vector: &[f32]) -> Result<(), Failure> {
        if let Some(part) = &mut self.part {
            rows::add_vector(part, self.kind, input, vector);
            return Ok(());
        }
        self.count += 1;
        let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt().max(1e-12);
        let scaled: Vec<f32>;
        let vector = match self.normalise {
            true => {
                scaled = vector.iter().map(|number| number / length).collect();
                &scaled[..]
            }
            false => vector,
        };
        if let Some(query) = &self.query {
            let (score, place, kind) = (cosine(query, vector), self.count, self.kind);
            self.ranking.push(Ranked { score, place, input: input.to_string(), kind });
            // Few are kept: a text may be as long as a line.
            if self.ranking.len() >= self.of.top.max(MANY).saturating_mul(2) {
                self.rank();
            }
            return Ok(());
        }
        if let Some(file) = &mut self.file {
            return file.push(input, vector);
        }
        let mut out = crate::say::stdout();
        match self.of.json {
            true => writeln!(out, "{}", json!({self.kind: input, "embedding": vector}))?,
            false => {
                let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
                writeln!(out, "{}\t{}", format::one_line(input), numbers.join(" "))?;
            }
        }
        Ok(())
    }

    /// Keeps the nearest; of equal ones, the first.
    fn rank(&mut self) {
        self.ranking.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
        self.ranking.truncate(self.of.top);
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(crate::say::stdout().flush()?)
    }

    /// The answers of a chunk are complete.
    fn end_chunk(&mut self, shared: &mut SharedOut, chunk: &Chunk, failed: usize) -> Result<(), Failure> {
        match self.part.as_mut().map(std::mem::take) {
            Some(part) => shared.put(chunk, &part, failed),
            None => self.flush(),
        }
    }

    /// Completes what was asked for, once all chunks are there; with the parts of all ranks, if they were shared out.
    fn finish(mut self, shared: SharedOut) -> Result<(), Failure> {
        if self.part.take().is_none() {
            return self.complete();
        }
        let Some(finished) = shared.finish(|part| self.take_part(part))? else { return Ok(()) };
        // Without inputs, too, there is a file.
        self.begin_file()?;
        self.complete()?;
        finished.clean_up()
    }

    fn take_part(&mut self, part: &[u8]) -> Result<(), Failure> {
        self.begin_file()?;
        for row in rows::rows(part) {
            match row? {
                Row::Vector { kind, input, vector } => {
                    self.kind = kind;
                    self.take(&input, &vector)?;
                }
                Row::Failure { path, error } => {
                    write_failure(Path::new(&path), &error, self.of.json, &mut crate::say::stdout())?;
                }
            }
        }
        Ok(())
    }

    fn complete(mut self) -> Result<(), Failure> {
        self.rank();
        let mut out = crate::say::stdout();
        for (rank, Ranked { score, place, input, kind }) in self.ranking.iter().enumerate() {
            match self.of.json {
                true => {
                    let place_name = if *kind == "text" { "line" } else { "image" };
                    let entry = json!({"rank": rank + 1, "score": score, place_name: place, *kind: input});
                    writeln!(out, "{entry}")?;
                }
                false => writeln!(out, "{score:7.4}  {}", format::one_line(input))?,
            }
        }
        out.flush()?;
        match self.file {
            Some(file) => file.finish(),
            None => Ok(()),
        }
    }
}

impl Answers for Vectors<'_> {
    fn answer(&mut self, path: &Path, answer: Result<&[f32], &str>) -> Result<(), Failure> {
        match answer {
            Ok(vector) => self.take(&path.to_string_lossy(), vector),
            Err(error) => match &mut self.part {
                Some(part) => {
                    rows::add_failure(part, &path.to_string_lossy(), error);
                    Ok(())
                }
                None => write_failure(path, error, self.of.json, &mut crate::say::stdout()),
            },
        }
    }

    fn batch_ends(&mut self) -> Result<(), Failure> {
        self.flush()
    }

    fn chunk_ends(&mut self, shared: &mut SharedOut, chunk: &Chunk, failed: usize) -> Result<(), Failure> {
        self.end_chunk(shared, chunk, failed)
    }
}
