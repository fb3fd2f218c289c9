//! Inputs that several processes share out: chunk after chunk, each a file when it is done, and all of them put together in the end.
//!
//! A chunk is what is computed together, by its inputs alone, so that its answers are the same bits whichever rank computes it and
//! however many there are: chunk `i` is that of rank `i mod N`. Its answers are kept in a directory that all ranks see ([`parts`]); what
//! is there already is not computed again. Where one launcher has started all ranks, rank 0 waits for the others and puts the parts
//! together; otherwise, in a job array, whoever comes last does. Nothing is sent from rank to rank, so no MPI library is needed: the
//! launcher says which rank this is ([`ranks`]).

mod alive;
mod key;
mod output;
mod parts;
mod ranks;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use vitreous_pages::format;

pub use key::key_of;
pub use output::Output;
pub use parts::Chunk;

use crate::commands::parse_count;
use crate::failure::Failure;
use alive::{Heart, Watch};
use key::Key;
use parts::{Job, Parts};
use ranks::Ranks;

/// The file whose lock whoever puts parts together has, where ranks do not wait for each other.
const JOINING: &str = "joining";
/// How often it is looked whether a part has come.
const GLANCE: Duration = Duration::from_millis(200);

/// Options of commands whose inputs can be shared out.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "On many ranks")]
pub struct ShareOptions {
    /// Keep finished chunks in this directory until all are done, so that a run that was stopped goes on; all ranks must see it
    /// [default with several ranks: beside the file of --out, or in the working directory]
    #[arg(long, value_name = "DIR")]
    parts: Option<PathBuf>,
    /// Inputs of a chunk, which is computed together [default: as suits the model]
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    chunk: Option<usize>,
}

/// Options that do not change answers, and whether a value follows.
const FREE: [(&str, bool); 7] = [
    ("--parts", true),
    ("--out", true),
    ("--force", false),
    ("--threads", true),
    ("--device", true),
    ("--quiet", false),
    ("-q", false),
];

/// What is computed, by which its parts are known.
pub struct Task<'t> {
    /// The model.
    pub model: &'t Path,
    /// Files that options name, other than inputs.
    pub files: Vec<&'t Path>,
    /// Where the answers go, if not to standard output.
    pub out: Option<&'t Path>,
    /// Whether inputs come through standard input.
    pub reads_standard_input: bool,
}

/// Inputs that are shared out, or not.
pub struct SharedOut {
    /// `None` for a process that is alone and keeps no parts.
    kept: Option<Kept>,
    chunk: Option<usize>,
    chunks: Vec<Chunk>,
    inputs: usize,
}

/// A directory of parts, and who works on them.
struct Kept {
    parts: Parts,
    ranks: Ranks,
    heart: Heart,
    watch: Watch,
    /// Chunks that were there.
    found: usize,
    computed: usize,
}

impl SharedOut {
    /// Inputs of a command that shares out nothing.
    pub fn alone() -> SharedOut {
        SharedOut { kept: None, chunk: None, chunks: Vec::new(), inputs: 0 }
    }

    /// Looks who shares out these inputs, and where parts are.
    pub fn begin(options: &ShareOptions, task: &Task) -> Result<SharedOut, Failure> {
        let ranks = Ranks::from_environment()?;
        let alone = SharedOut { chunk: options.chunk, ..SharedOut::alone() };
        if ranks.is_none() && options.parts.is_none() {
            return Ok(alone);
        }
        let ranks = ranks.unwrap_or(Ranks::ALONE);
        if task.reads_standard_input {
            let what = "standard input is one process's: name files, which several ranks (or a later run, with --parts) can read";
            return Err(Failure::input(anyhow!(what)));
        }
        if ranks.together && ranks.rank > 0 {
            // What it would say, rank 0 says.
            crate::say::be_quiet();
        }
        let job = job(task)?;
        let directory = options.parts.clone().unwrap_or_else(|| directory_for(task, &job));
        let parts = Parts::open(&directory, &job)?;
        let heart = Heart::new(parts.directory(), ranks.rank);
        Ok(SharedOut { kept: Some(Kept { parts, ranks, heart, watch: Watch::new(), found: 0, computed: 0 }), ..alone })
    }

    /// Whether answers go where they belong at once, because nobody shares them and nothing is kept.
    pub fn is_direct(&self) -> bool {
        self.kept.is_none()
    }

    /// The number of this rank on its host, by which it takes a GPU.
    pub fn local_rank(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.ranks.local_rank())
    }

    /// Threads, if nobody says how many.
    pub fn threads(&self) -> usize {
        self.kept.as_ref().map_or_else(vitreous_runtime::threads, |kept| kept.ranks.threads())
    }

    /// How many inputs are computed together, if the command has no reason for another number.
    pub fn chunk_size(&self, usual: usize) -> usize {
        self.chunk.unwrap_or(usual).max(1)
    }

    /// The next chunk, which every rank names in the same order. `Some` if it is to be computed here.
    pub fn next(&mut self, inputs: usize, key: u64) -> Option<Chunk> {
        let chunk = Chunk { index: self.chunks.len(), first: self.inputs, count: inputs, key };
        self.chunks.push(chunk);
        self.inputs += inputs;
        let Some(Kept { parts, ranks, found, .. }) = &mut self.kept else { return Some(chunk) };
        if chunk.index % ranks.count != ranks.rank {
            return None;
        }
        let is_there = parts.has(&chunk);
        *found += usize::from(is_there);
        (!is_there).then_some(chunk)
    }

    /// Keeps the answers of a chunk of [`SharedOut::next`].
    pub fn put(&mut self, chunk: &Chunk, answers: &[u8], failed: usize) -> Result<(), Failure> {
        if let Some(kept) = &mut self.kept {
            kept.computed += 1;
            kept.parts.write(chunk, answers, failed)?;
        }
        Ok(())
    }

    /// Answers a chunk with what `work` writes: at once where nothing is shared out, otherwise into a part.
    pub fn answer(
        &mut self,
        chunk: &Chunk,
        out: &mut Option<Output>,
        work: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match out {
            Some(out) if self.is_direct() => work(out),
            _ => {
                let mut answers = Vec::new();
                work(&mut answers)?;
                self.put(chunk, &answers, 0)
            }
        }
    }

    /// Puts the parts together, if that is this rank's: `deliver` gets the answers of each chunk in their order. `None` if
    /// another rank does it.
    pub fn finish(self, mut deliver: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<Option<Finished>, Failure> {
        let SharedOut { kept, chunks, .. } = self;
        let Some(kept) = kept else { return Ok(Some(Finished { failed: 0, parts: None })) };
        let Kept { parts, ranks, mut heart, watch, found, computed } = kept;
        heart.succeed();
        let is_mine = match ranks.together {
            true if ranks.rank > 0 => false,
            true => wait_for_all(&parts, &chunks, ranks, watch)?,
            false => is_last(&parts, &chunks),
        };
        if !is_mine {
            if !ranks.together {
                say!(
                    "rank {} of {} has done its part; whoever is last puts all of them together ({})",
                    ranks.rank,
                    ranks.count,
                    parts.directory().display()
                );
            }
            return Ok(None);
        }
        let lock = std::fs::File::create(parts.directory().join(JOINING)).ok();
        if !ranks.together && lock.as_ref().is_some_and(|lock| lock.try_lock().is_err()) {
            return Ok(None);
        }
        let mut failed = 0;
        for chunk in &chunks {
            let (answers, without) = parts.read(chunk)?;
            failed += without;
            deliver(&answers)?;
        }
        say!(
            "{} in {} put together, by {}; here {computed} were computed and {found} were there",
            format::count(chunks.iter().map(|chunk| chunk.count).sum(), "input", "inputs"),
            format::count(chunks.len(), "chunk", "chunks"),
            format::count(ranks.count, "rank", "ranks"),
        );
        Ok(Some(Finished { failed, parts: Some((parts, chunks.len(), heart)) }))
    }

    /// As [`SharedOut::finish`], of answers that were written as they are printed.
    pub fn finish_into(self, path: Option<&Path>, force: bool, out: Option<Output>) -> Result<(), Failure> {
        if self.is_direct() {
            return out.map_or(Ok(()), Output::finish);
        }
        let mut out = None;
        let finished = self.finish(|answers| {
            if out.is_none() {
                out = Some(Output::new(path, force)?);
            }
            Ok(out.as_mut().map_or(Ok(()), |out| out.write_all(answers))?)
        })?;
        let Some(finished) = finished else { return Ok(()) };
        // Without inputs there is nothing to write, but a file that was asked for.
        out.map_or_else(|| Output::new(path, force), Ok)?.finish()?;
        finished.clean_up()
    }

    /// The output of [`SharedOut::answer`], where answers go there at once.
    pub fn output(&self, path: Option<&Path>, force: bool) -> Result<Option<Output>, Failure> {
        match self.is_direct() {
            true => Output::new(path, force).map(Some),
            false => Output::check(path, force).map(|()| None),
        }
    }
}

/// All parts were put together.
pub struct Finished {
    /// Inputs that have no answer.
    failed: usize,
    parts: Option<(Parts, usize, Heart)>,
}

impl Finished {
    /// Removes the parts: call it when what was made of them is safe. Inputs without an answer were told, and are a failure.
    pub fn clean_up(self) -> Result<(), Failure> {
        if let Some((parts, chunks, heart)) = self.parts {
            drop(heart);
            parts.remove(chunks);
        }
        if self.failed > 0 {
            say!("{} no answer", format::count(self.failed, "input has", "inputs have"));
            return Err(Failure::Reported);
        }
        Ok(())
    }
}

/// Waits until all chunks are there; an error if the rank that has one is gone.
fn wait_for_all(parts: &Parts, chunks: &[Chunk], ranks: Ranks, mut watch: Watch) -> Result<bool, Failure> {
    for (place, chunk) in chunks.iter().enumerate() {
        let owner = chunk.index % ranks.count;
        while !parts.has(chunk) {
            // Whoever has it may have put it there between the two glances.
            if let Some(why) = watch.lost(parts.directory(), owner).filter(|_| !parts.has(chunk)) {
                let missing = chunks[place..].iter().filter(|chunk| !parts.has(chunk)).count();
                return Err(Failure::work(anyhow!(
                    "{why}, and {} missing in {}; what is there is kept: run the same command again to go on, with any number of ranks. \
                     All hosts must see that directory",
                    format::count(missing, "chunk is", "chunks are"),
                    parts.directory().display()
                )));
            }
            std::thread::sleep(GLANCE);
        }
    }
    Ok(true)
}

fn is_last(parts: &Parts, chunks: &[Chunk]) -> bool {
    chunks.iter().all(|chunk| parts.has(chunk))
}

/// What the parts belong to: the program, the command and the model, as they would be told apart by their answers.
fn job(task: &Task) -> Result<Job, Failure> {
    let failed = |path: &Path| {
        let name = path.display().to_string();
        move |error: std::io::Error| Failure::input(anyhow!("{name}: cannot be read: {error}"))
    };
    let mut key = Key::default();
    key.add(key::key_of_model(task.model).map_err(failed(task.model))?.to_le_bytes());
    for file in &task.files {
        key::add_samples(&mut key, file).map_err(failed(file))?;
    }
    let arguments = std::env::args_os().skip(1).collect();
    Ok(Job {
        version: crate::VERSION.to_string(),
        command: telling(arguments),
        model: format!("{:016x}", key.number()),
    })
}

/// The arguments that may change answers.
fn telling(arguments: Vec<OsString>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut arguments = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        let name = argument.split_once('=').map_or(argument.as_str(), |(name, _)| name);
        match FREE.iter().find(|(free, _)| *free == name) {
            Some((_, true)) if name.len() == argument.len() => drop(arguments.next()),
            Some(_) => {}
            None => kept.push(argument),
        }
    }
    kept
}

/// Where parts are kept if nobody says: `vectors.npy.parts`, or a name in the working directory that is the job's own.
fn directory_for(task: &Task, job: &Job) -> PathBuf {
    match task.out {
        Some(out) => {
            let mut name = out.components().as_path().as_os_str().to_os_string();
            name.push(".parts");
            PathBuf::from(name)
        }
        None => {
            let command = job.command.first().map_or("run", String::as_str);
            PathBuf::from(format!("vitreous-{}-{}.parts", command.trim_start_matches('-'), job.key()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telling_of(line: &str) -> Vec<String> {
        telling(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn options_that_change_no_answer_do_not_count() {
        let plain = telling_of("embed MODEL --file a.txt");
        assert_eq!(telling_of("embed MODEL --threads 3 --file a.txt --parts=p --device cuda:1 --force"), plain);
        assert_eq!(telling_of("-q embed --out x.npy MODEL --file a.txt --threads=1"), plain);
        assert_ne!(telling_of("embed MODEL --file b.txt"), plain);
        assert_ne!(telling_of("embed MODEL --file a.txt --precision bf16"), plain);
    }

    #[test]
    fn parts_lie_beside_what_they_become() {
        let job = Job { version: "1".into(), command: vec!["embed".into()], model: "m".into() };
        let directory = |out: Option<&str>| {
            let out = out.map(Path::new);
            let task = Task { model: Path::new("m"), files: Vec::new(), out, reads_standard_input: false };
            directory_for(&task, &job)
        };
        assert_eq!(directory(Some("out/v.npy")), Path::new("out/v.npy.parts"));
        assert_eq!(directory(Some("texts/")), Path::new("texts.parts"));
        assert!(directory(None).to_string_lossy().starts_with("vitreous-embed-"));
    }
}
