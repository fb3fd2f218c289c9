//! A model's answers to images, in their order. Images are decoded and prepared by threads of their own while the model runs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use vitreous_data::ordered::{NotYet, OrderedMap};
use vitreous_engine::{Device, Precision};
use vitreous_pages::format;
use vitreous_runtime::{ImageModel, OutputName, Runner, described};

use crate::failure::Failure;
use crate::images::{Images, ListedImage};
use crate::prepared::{self, Prepared};
use crate::shared_out::{Chunk, SharedOut, key_of};

/// How long images that are ready wait for others of their batch, where these are still to be named on standard input.
const PATIENCE: Duration = Duration::from_millis(100);

/// A chunk of images that are shared out has as many whole batches as have about so many.
const USUAL_CHUNK: usize = 256;

/// What is asked of a model.
pub struct ImageQuestion<'d> {
    pub output: OutputName,
    pub precision: Precision,
    pub batch: Option<usize>,
    pub threads: usize,
    pub device: &'d Device,
}

/// Whoever gets the answers: of each image the numbers, or why there are none; `None` when all of a batch were told.
pub trait Answers {
    fn answer(&mut self, path: &Path, answer: Result<&[f32], &str>) -> Result<(), Failure>;
    fn batch_ends(&mut self) -> Result<(), Failure>;
    /// All of a chunk were told, of which so many have no answer. Called only where chunks are kept.
    fn chunk_ends(&mut self, _shared: &mut SharedOut, _chunk: &Chunk, _failed: usize) -> Result<(), Failure> {
        Ok(())
    }
}

/// Asks a model about images, those that are this rank's, and tells how it went.
pub fn ask(
    model: &ImageModel,
    paths: &[OsString],
    question: &ImageQuestion,
    shared: &mut SharedOut,
    answers: &mut impl Answers,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut runner = Runner::new(model, question.output, question.precision, question.device, question.batch)?;
    let mut batch = runner.batch();
    let images = Images::new(paths.to_vec());
    let patience = (!images.are_known()).then_some(PATIENCE);
    let mut chunks = VecDeque::new();
    let images: Box<dyn Iterator<Item = ListedImage> + Send> = if images.are_known() {
        let mut all: Vec<ListedImage> = images.collect();
        if !shared.is_direct() {
            let whole = batch * USUAL_CHUNK.div_ceil(batch);
            (all, chunks) = own_chunks(all, shared.chunk_size(whole), shared);
            if all.is_empty() {
                return Ok(());
            }
        }
        batch = batch.min(all.len()).max(1);
        Box::new(all.into_iter())
    } else {
        Box::new(images)
    };
    let floats = runner.input_floats();
    let (preprocess, channels) = (model.preprocess.clone(), model.input.channels);
    let prepared = OrderedMap::new(images, question.threads, batch.saturating_mul(2), move || {
        prepared::worker(preprocess.clone(), channels, floats)
    });
    let tally = answer_all(prepared, patience, &mut runner, (chunks, shared), answers)?;
    let seconds = start.elapsed().as_secs_f64();
    let computing = runner.computing.as_secs_f64();
    say!(
        "{} in {seconds:.2} s: {:.1} images/s; the model took {computing:.2} s on {}, {:.1} images/s",
        format::count(tally.answered, "image", "images"),
        tally.answered as f64 / seconds,
        described(runner.device()),
        tally.answered as f64 / computing.max(1e-9),
    );
    if tally.answered + tally.failed == 0 {
        return Err(Failure::input(anyhow!("no image was named: the list on standard input is empty")));
    }
    // Of what is shared out, whoever puts it together knows how many.
    if tally.failed > 0 && shared.is_direct() {
        say!("{} gave no image", format::count(tally.failed, "path", "paths"));
        return Err(Failure::Reported);
    }
    Ok(())
}

/// The images that are this rank's, and their chunks.
fn own_chunks(all: Vec<ListedImage>, size: usize, shared: &mut SharedOut) -> (Vec<ListedImage>, VecDeque<Chunk>) {
    let (mut own, mut chunks) = (Vec::new(), VecDeque::new());
    let mut all = all.into_iter().peekable();
    while all.peek().is_some() {
        let some: Vec<ListedImage> = all.by_ref().take(size).collect();
        let path = |image: &ListedImage| match image {
            Ok(path) => path.clone(),
            Err(missing) => missing.path.clone(),
        };
        let paths: Vec<PathBuf> = some.iter().map(path).collect();
        if let Some(chunk) = shared.next(some.len(), key_of(&paths)) {
            own.extend(some);
            chunks.push_back(chunk);
        }
    }
    (own, chunks)
}

/// Counts for the last line.
#[derive(Default)]
struct Tally {
    answered: usize,
    failed: usize,
}

fn answer_all(
    mut prepared: OrderedMap<Prepared>,
    patience: Option<Duration>,
    runner: &mut Runner<&ImageModel>,
    (mut chunks, shared): (VecDeque<Chunk>, &mut SharedOut),
    answers: &mut impl Answers,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    // Images of the first chunk that are taken, and failures before it.
    let (mut taken, mut failed_before) = (0, 0);
    // In the order of the arguments: failures wait for their turn, too.
    let mut waiting: Vec<Prepared> = Vec::new();
    let mut good = 0;
    loop {
        let next = match patience.filter(|_| !waiting.is_empty()) {
            Some(patience) => prepared.next_within(patience),
            None => Ok(prepared.next()),
        };
        let mut ends = false;
        let enough = match next {
            Ok(Some(image)) => {
                good += usize::from(image.pixels.is_ok());
                waiting.push(image);
                taken += 1;
                // A batch is of one chunk.
                ends = chunks.front().is_some_and(|chunk| chunk.count == taken);
                good >= runner.batch() || ends
            }
            Ok(None) => break,
            Err(NotYet) => true,
        };
        if enough {
            answer_batch(std::mem::take(&mut waiting), runner, &mut tally, answers)?;
            good = 0;
        }
        if ends {
            let Some(chunk) = chunks.pop_front() else { continue };
            answers.chunk_ends(shared, &chunk, tally.failed - failed_before)?;
            (taken, failed_before) = (0, tally.failed);
        }
    }
    answer_batch(waiting, runner, &mut tally, answers)?;
    Ok(tally)
}

fn answer_batch(
    waiting: Vec<Prepared>,
    runner: &mut Runner<&ImageModel>,
    tally: &mut Tally,
    answers: &mut impl Answers,
) -> Result<(), Failure> {
    let mut images = Vec::new();
    let mut failures = Vec::new();
    let mut paths = Vec::new();
    for prepared in waiting {
        paths.push(prepared.path);
        match prepared.pixels {
            Ok(pixels) => {
                images.push(pixels.numbers);
                failures.push(None);
            }
            Err(error) => failures.push(Some(error)),
        }
    }
    let floats = runner.output_floats();
    let found = if images.is_empty() { &[] } else { runner.run(&images)? };
    let mut found = found.chunks_exact(floats.max(1));
    for (path, failure) in paths.iter().zip(failures) {
        match failure {
            Some(error) => {
                tally.failed += 1;
                answers.answer(path, Err(&error))?;
            }
            None => {
                tally.answered += 1;
                let answer = found.next().context("an answer for each image").map_err(Failure::work)?;
                answers.answer(path, Ok(answer))?;
            }
        }
    }
    answers.batch_ends()
}
