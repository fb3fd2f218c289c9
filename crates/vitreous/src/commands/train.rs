//! `vitreous train`: from a recipe to a model.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use serde_json::json;
use vitreous_data::loader::BrokenSample;
use vitreous_engine::collective::Launch;
use vitreous_engine::{Device, cuda};
use vitreous_models::OpenOptions;
use vitreous_pages::{format, report};
use vitreous_train::checkpoint::Checkpoints;
use vitreous_train::metrics::TrainingMetrics;
use vitreous_train::recipe::{nearest, shipped};
use vitreous_train::{
    EpochSummary, Observer, Outcome, Ranks, Recipe, RunDirectory, RunOptions, RunPlan, RunTarget, Score, StepResult,
    Task, TaskContext, TrainError, train,
};

use super::parse_threads;
use crate::device_options::DeviceOptions;
use crate::failure::Failure;
use crate::live_report::LiveReport;
use crate::progress::TrainProgress;

/// Where runs go unless another place is named.
const RUNS: &str = "runs";
/// The recipe for pretrained image models.
const FINETUNE: &str = "finetune";
/// The recipe for pretrained encoder-decoders.
const SEQ2SEQ: &str = "seq2seq";
/// The recipe for pretrained text encoders.
const CLASSIFY_TEXT: &str = "classify-text";
/// The recipe for pretrained speech models.
const TRANSCRIBE: &str = "transcribe";
/// The recipe for pretrained language models.
const FINETUNE_LANGUAGE: &str = "finetune-language";

/// Train a model; without arguments, a small one on the built-in images
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous train                                        the small ViT on the built-in images, two minutes
  vitreous train cifar10 model.patch=4 optimizer.lr=5e-4
  vitreous train small --data photos/                   the small ViT on your own images
  vitreous train finetune --init MODEL --data photos/   fine-tune a pretrained model
  vitreous train classify-text --init MODEL --data reviews/   fine-tune a text encoder
  vitreous train translation --data pairs/              a translator from sentence pairs
  vitreous train seq2seq --init T5 --data pairs/        fine-tune T5, BART and their relatives on pairs
  vitreous train transcribe --init tiny.en.pt --data recordings.csv   fine-tune Whisper on recordings and texts
  vitreous train characters --data book.txt             a small GPT that writes like a text, ten minutes
  vitreous train gpt --data corpus/*.txt more/          a GPT from several files and folders
  vitreous train finetune-language --init MODEL --data chats.jsonl   teach a language model with text or chats
  vitreous train --resume runs/small-1                  resume a run that was stopped

Ctrl-C saves and stops (exit code 130); a second one stops at once.")]
pub struct Train {
    /// A recipe: its name (see --list) or a TOML file; then overrides, as in `optimizer.lr=5e-4`
    #[arg(value_name = "RECIPE | KEY=VALUE")]
    words: Vec<String>,
    /// The training data. Images: a folder, CIFAR or IDX files, a manifest, tar shards. Texts (labelled, tagged, plain), chats and sentence pairs: a folder or a file, for language models several. Recordings with texts: a CSV, TSV or JSON lines file
    #[arg(long, value_name = "PATH")]
    data: Option<String>,
    /// Source and target language of sentence pairs, as in the names of their files or keys: en-de
    #[arg(long, value_name = "LANGUAGES")]
    languages: Option<String>,
    /// A pretrained model to fine-tune: a directory or a file (with the recipes finetune, classify-text, classify-tokens, embeddings, seq2seq, transcribe, bert, t5, bart, finetune-language, gpt, llama)
    #[arg(long, value_name = "MODEL")]
    init: Option<String>,
    /// The run directory to create [default: runs/RECIPE-1, -2 ..]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Resume the run in this directory from its last checkpoint
    #[arg(long, value_name = "DIR", conflicts_with_all = ["data", "languages", "init", "out", "words"])]
    resume: Option<PathBuf>,
    /// Resume although recipe or data differ from those of the checkpoint; what differs is written into machine.json
    #[arg(long)]
    accept_changes: bool,
    /// List the recipes
    #[arg(long)]
    list: bool,
    /// Print a recipe, with overrides if there are some
    #[arg(long, value_name = "RECIPE")]
    show: Option<String>,
    #[command(flatten)]
    device: DeviceOptions,
    /// Threads that compute [default: one per core]
    #[arg(long, value_parser = parse_threads)]
    threads: Option<usize>,
    /// Write more with each line of metrics, and show it in the terminal and in the report: attention, units, updates and losses of the model (`inside`, which `--watch` alone means), or the gradient norm of every parameter
    #[arg(long, value_name = "WHAT", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "inside")]
    watch: Vec<Watch>,
    /// Print the result as one line of JSON on stdout
    #[arg(long)]
    json: bool,
}

/// What can be written with each line of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Watch {
    Gradients,
    Inside,
}

impl Train {
    pub fn run(&self) -> Result<(), Failure> {
        if self.list {
            return list();
        }
        if let Some(name) = &self.show {
            return self.show(name);
        }
        let ranks = crate::ranks::join_with(|launch| self.gpu_of(launch))?;
        let (recipe, target) = match &self.resume {
            Some(path) if !ranks.is_first() => (Recipe::of_run(path).map_err(of_training)?, RunTarget::Nowhere),
            Some(path) => {
                let (directory, recipe) = RunDirectory::open(path).map_err(of_training)?;
                if !directory.has_checkpoint() {
                    say!("note: {} has no checkpoint: the run starts from the beginning", path.display());
                }
                (recipe, RunTarget::Resume(directory))
            }
            None if self.accept_changes => {
                return Err(Failure::input(anyhow!("--accept-changes is for runs that are resumed: --resume RUN")));
            }
            None => self.new_run(&ranks)?,
        };
        self.train(recipe, target, ranks)
    }

    /// The GPU of a process that finds the others with it.
    fn gpu_of(&self, launch: &Launch) -> Result<Option<Arc<cuda::Device>>, Failure> {
        let threads = self.threads.unwrap_or_else(vitreous_runtime::threads);
        match self.device.open_for(threads, launch.local_rank.unwrap_or(0))? {
            Device::Cuda(gpu) => Ok(Some(gpu)),
            Device::Cpu { .. } => Ok(None),
        }
    }

    fn train(&self, recipe: Recipe, target: RunTarget, ranks: Ranks) -> Result<(), Failure> {
        let threads = self.threads.unwrap_or_else(|| crate::ranks::threads(&ranks));
        let device = self.device.open_for(threads, ranks.world().map_or(0, |world| world.local_rank()))?;
        let resumed = match &target {
            RunTarget::Resume(directory) => directory.has_checkpoint(),
            _ => false,
        };
        // Rank 0 alone has locked the directory, and knows what it has.
        let resumed = ranks.from_first(ranks.is_first().then_some(resumed)).map_err(of_training)?;
        let resumed = self.resume.clone().filter(|_| resumed);
        let context = TaskContext { device: &device, threads, resumed: resumed.as_deref() };
        let task = recipe.task.open(recipe, &context).map_err(of_training)?;
        task.facts().notes.iter().for_each(|note| say!("note: {note}"));
        let options = RunOptions {
            target,
            device,
            threads,
            watch_gradients: self.watch.contains(&Watch::Gradients),
            watch_inside: self.watch.contains(&Watch::Inside),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            stop: stop_on_signals(&ranks).map_err(Failure::work)?,
            ranks,
            accept_changes: self.accept_changes,
        };
        if !options.ranks.is_first() {
            return match train(task, options, &mut Silent).map_err(of_training)?.stopped {
                true => Err(Failure::Interrupted),
                false => Ok(()),
            };
        }
        let report = LiveReport::new(task.images(), threads);
        let mut progress = TrainProgress::new(task.as_ref(), &options, report);
        let next = NextSteps::of(task.as_ref());
        let outcome = train(task, options, &mut progress);
        progress.finish();
        let outcome = outcome.map_err(|error| match (error.is_full_disk(), progress.directory()) {
            (true, Some(directory)) => full_disk(&error, directory),
            _ => of_training(error),
        });
        self.tell(&outcome?, &next)
    }

    /// The recipe and the place of a new run.
    fn new_run(&self, ranks: &Ranks) -> Result<(Recipe, RunTarget), Failure> {
        let (name, overrides) = self.name_and_overrides();
        if let Some(init) = &self.init {
            self.check_init(init, name.as_deref())?;
        }
        let recipe_name = name.as_deref().unwrap_or(shipped()[0].name);
        if let Some(path) = self.more_data().next() {
            let (recipe, _) = read(recipe_name, &[])?;
            if !recipe.values().contains_key("data.more") {
                return Err(Failure::input(anyhow!(
                    "{path}: the recipe `{recipe_name}` takes one file or folder with --data; several are for language models"
                )));
            }
        }
        let (mut recipe, name) = read(recipe_name, &overrides)?;
        if is_for_finetuning(&name) && recipe.values().get("finetune.init").is_none_or(|init| init == "\"\"") {
            let hint = format!("no pretrained model was named: vitreous train {name} --init MODEL --data DIR");
            return Err(Failure::input(anyhow!(hint)));
        }
        // The batches of an update of all ranks together: what a checkpoint has, so that any number of ranks can go on with it.
        recipe.train.accumulate = recipe.train.accumulate.saturating_mul(ranks.size());
        recipe.task.complete(&mut recipe, &overrides).map_err(of_training)?;
        let target = match &self.out {
            _ if !ranks.is_first() => RunTarget::Nowhere,
            Some(path) => RunTarget::New(path.clone()),
            None => RunTarget::Numbered { parent: PathBuf::from(RUNS), name },
        };
        Ok((recipe, target))
    }

    /// Refuses `--init` where it has no meaning, and suggests the recipe for it.
    fn check_init(&self, init: &str, name: Option<&str>) -> Result<(), Failure> {
        let data = self.data.as_deref().unwrap_or("DIR");
        let model = vitreous_runtime::architecture(init, &OpenOptions::default());
        let fits = match model {
            Ok((model, _)) if model.signature().next_token().is_some() => FINETUNE_LANGUAGE,
            Ok((model, _)) if model.signature().tokens().is_some() => CLASSIFY_TEXT,
            Ok((model, _)) if model.signature().pairs().is_some() => SEQ2SEQ,
            Ok((model, _)) if model.signature().audio().is_some() => TRANSCRIBE,
            _ => FINETUNE,
        };
        let suggestion = format!("vitreous train {fits} --init {init} --data {data}");
        let Some(name) = name else {
            return Err(Failure::input(anyhow!("--init needs a recipe for fine-tuning: {suggestion}")));
        };
        if is_for_finetuning(name) {
            return Ok(());
        }
        let (recipe, _) = read(name, &[])?;
        if !recipe.values().contains_key("finetune.init") {
            return Err(Failure::input(anyhow!(
                "--init is for fine-tuning, but the recipe `{name}` trains from random weights; use {suggestion}"
            )));
        }
        if shipped().iter().any(|recipe| recipe.name == name) {
            say!("note: the recipe `{name}` is made for training from scratch; for fine-tuning, use {suggestion}");
        }
        Ok(())
    }

    fn name_and_overrides(&self) -> (Option<String>, Vec<String>) {
        let (mut name, mut overrides) = (None, Vec::new());
        for word in self.words.iter().filter(|word| !self.more_data().any(|path| path == *word)) {
            match word.contains('=') || name.is_some() {
                true => overrides.push(word.clone()),
                false => name = Some(word.clone()),
            }
        }
        let quoted = |text: &str| toml_string(text);
        let more: Vec<String> = self.more_data().map(quoted).collect();
        if !more.is_empty() {
            overrides.push(format!("data.more=[{}]", more.join(", ")));
        }
        overrides.extend(self.data.iter().map(|path| format!("data.path={}", quoted(path))));
        overrides.extend(self.languages.iter().map(|pair| format!("data.languages={}", quoted(pair))));
        overrides.extend(self.init.iter().map(|path| format!("finetune.init={}", quoted(path))));
        (name, overrides)
    }

    /// Files and folders behind the recipe's name: `train gpt --data corpus/*.txt` has the first behind `--data`.
    fn more_data(&self) -> impl Iterator<Item = &str> {
        let words = self.words.iter().map(String::as_str).skip_while(|word| word.contains('=')).skip(1);
        words.filter(move |word| self.data.is_some() && !word.contains('=') && Path::new(word).exists())
    }

    fn show(&self, name: &str) -> Result<(), Failure> {
        let (_, overrides) = self.name_and_overrides();
        let mut overrides: Vec<String> = overrides;
        overrides.extend(self.words.iter().filter(|word| !word.contains('=')).cloned());
        let mut out = crate::say::stdout();
        match shipped().iter().find(|recipe| recipe.name == name) {
            Some(recipe) if overrides.is_empty() => out.write_all(recipe.text.as_bytes())?,
            _ => out.write_all(read(name, &overrides)?.0.to_toml().as_bytes())?,
        }
        Ok(())
    }

    /// Says how it ended, and what to try next.
    fn tell(&self, outcome: &Outcome, next: &NextSteps) -> Result<(), Failure> {
        tell_unreadable(outcome);
        let directory = outcome.directory.display();
        let command = command_name();
        if self.json {
            let mut result = json!({
                "directory": outcome.directory.to_string_lossy(),
                "stopped": outcome.stopped,
                "step": outcome.step,
                "val_loss": null,
                "best": outcome.best.map(|(score, _)| score.value),
                "seconds": outcome.time.as_secs_f64(),
                "broken_images": outcome.unreadable.len(),
            });
            for Score { metric, value } in outcome.last.iter().flat_map(|last| &last.scores) {
                result[format!("val_{}", metric.key)] = json!(value);
            }
            writeln!(crate::say::stdout(), "{result}")?;
        }
        if outcome.stopped {
            say!("stopped after step {}, saved. To resume: {command} train --resume {directory}", outcome.step);
            return Err(Failure::Interrupted);
        }
        if self.json {
            return Ok(());
        }
        let mut out = crate::say::stdout();
        if let Some(last) = &outcome.last {
            let scores: Vec<String> = last.scores.iter().map(Score::to_string).collect();
            write!(out, "Validation: {} ", scores.join(", "))?;
        }
        let steps = format::count(outcome.step as usize, "step", "steps");
        writeln!(out, "after {steps} in {}", format::duration(outcome.time))?;
        if let Some((score, step)) = outcome.best.filter(|(_, step)| *step != outcome.step) {
            writeln!(out, "The best was {score} after step {step}: {directory}/best")?;
        }
        writeln!(
            out,
            "\nThe model is in {directory}/model; metrics and checkpoints are beside it. The report of the run:"
        )?;
        writeln!(out, "  {directory}/{}\n\nTry next:", report::FILE)?;
        let tries = next.commands(&directory.to_string(), outcome.best_model());
        let width = tries.iter().map(|(arguments, _)| arguments.len()).max().unwrap_or(0);
        for (arguments, why) in tries {
            writeln!(out, "{}", format!("  {command} {arguments:width$}  {why}").trim_end())?;
        }
        Ok(())
    }
}

/// The observer of a rank that prints nothing.
struct Silent;

impl Observer for Silent {
    fn started(&mut self, _plan: &RunPlan) {}
    fn stepped(&mut self, _step: u64, _result: &StepResult, _lr: f64) {}
    fn logged(&mut self, _metrics: &TrainingMetrics) {}
    fn evaluating(&mut self, _done: usize, _all: usize) {}
    fn epoch_ended(&mut self, _summary: &EpochSummary) {}
}

/// What can be done with the model of a run.
struct NextSteps {
    /// Of images: where they are, the share that validation has if it is not the usual one, and whether there are any for it.
    images: Option<(String, Option<f64>, bool)>,
    /// The commands that use such a model, with `MODEL` for its path.
    commands: &'static [&'static str],
}

impl NextSteps {
    fn of(task: &dyn Task) -> NextSteps {
        let recipe = task.recipe();
        let commands = recipe.architecture().map_or(&[][..], |architecture| architecture.signature().commands());
        let share = recipe.data.validation_share;
        // The same images must be left for validation, and not some that it was trained on.
        let share = Some(share).filter(|share| *share != recipe.task.defaults().data.validation_share);
        let images = task.images().map(|splits| (recipe.data.path.clone(), share, !splits.validation.is_empty()));
        NextSteps { images, commands }
    }

    /// Commands and what they show, for the best model of a run.
    fn commands(&self, run: &str, best: &str) -> Vec<(String, &'static str)> {
        let model = format!("{run}/{best}");
        let Some((path, share, validated)) = &self.images else {
            return self.commands.iter().map(|command| (command.replace("MODEL", &model), "")).collect();
        };
        let share = share.map(|share| format!(" --validation-share {share}")).unwrap_or_default();
        let mut tries = vec![(format!("summary {model}"), "every shape inside it")];
        if path == vitreous_train::tasks::classify::BUILTIN {
            tries.insert(0, (format!("eval {model}"), "which classes it confuses"));
            tries.insert(1, (format!("explain {run}"), "where it looks in a few validation images"));
            tries.push(("data --preview seen.png --recipe small".to_string(), "the training images as augmented"));
        } else {
            tries.push((format!("predict {model} IMAGE"), "what it sees in an image of yours"));
            tries.push((format!("explain {model} IMAGE"), "where it looks in it"));
            let first = match validated {
                true => (format!("eval {model} --data {path}{share}"), "which classes it confuses"),
                false => (format!("data {path} --preview seen.png"), "the training images as augmented"),
            };
            tries.insert(0, first);
        }
        tries
    }
}

/// A recipe by its name or file, and the name of its runs.
pub(super) fn read(name: &str, overrides: &[String]) -> Result<(Recipe, String), Failure> {
    if let Some(recipe) = shipped().iter().find(|recipe| recipe.name == name) {
        return Ok((recipe.read(overrides).map_err(Failure::input)?, name.to_string()));
    }
    let path = Path::new(name);
    if !path.is_file() {
        let hint = match nearest(name, shipped().iter().map(|recipe| recipe.name)) {
            Some(close) => format!("did you mean `{close}`?"),
            None => format!("recipes are {}", shipped().iter().map(|r| r.name).collect::<Vec<_>>().join(", ")),
        };
        return Err(Failure::input(anyhow!("`{name}` is neither a recipe nor a file; {hint}")));
    }
    let text = std::fs::read_to_string(path).with_context(|| name.to_string()).map_err(Failure::Input)?;
    let recipe = Recipe::read(name, &text, overrides).map_err(Failure::input)?;
    let stem = path.file_stem().map_or("run".into(), |stem| stem.to_string_lossy().into_owned());
    Ok((recipe, stem))
}

fn list() -> Result<(), Failure> {
    let mut out = crate::say::stdout();
    let width = shipped().iter().map(|recipe| recipe.name.len()).max().unwrap_or(0);
    for recipe in shipped() {
        writeln!(out, "{:width$}  {}", recipe.name, recipe.title())?;
    }
    Ok(())
}

fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The first Ctrl-C (or a request to end, or a lost connection) sets a flag; the second ends the process.
fn stop_on_signals(ranks: &Ranks) -> anyhow::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the second looks at what the first has set, before it is set again. Launchers send several signals for one
        // Ctrl-C, and end a run that does not stop themselves.
        if ranks.size() == 1 {
            signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        }
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// The name that this program was called by, so that suggestions can be copied.
fn command_name() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).unwrap_or_else(|| "vitreous".to_string())
}

/// Names the samples that could not be read.
fn tell_unreadable(outcome: &Outcome) {
    const SHOWN: usize = 10;
    let count = outcome.unreadable.len();
    if count == 0 {
        return;
    }
    let images = format::count(count, "image", "images");
    say!("{images} could not be read and {} left out:", if count == 1 { "was" } else { "were" });
    for BrokenSample { name, reason } in outcome.unreadable.iter().take(SHOWN) {
        say!("  {}: {reason}", format::one_line(name));
    }
    if count > SHOWN {
        say!("  and {} more; `vitreous data PATH` lists them all", count - SHOWN);
    }
}

/// A run that had no room to write: how to go on when there is some.
fn full_disk(error: &TrainError, run: &Path) -> Failure {
    let (command, run_name) = (command_name(), run.display());
    let saved = Checkpoints::of_run(run).all().is_ok_and(|all| !all.is_empty());
    let then = match saved {
        true => format!("then resume with {command} train --resume {run_name}"),
        false => "then start again: no checkpoint was saved yet".to_string(),
    };
    Failure::work(anyhow!("{error}, {then}"))
}

/// What the user can mend by other arguments is bad input; the rest is failed work.
fn of_training(error: TrainError) -> Failure {
    match error {
        TrainError::NoRun { .. }
        | TrainError::Changed { .. }
        | TrainError::Recipe(_)
        | TrainError::Data(_)
        | TrainError::Model(_)
        | TrainError::TooLarge(_)
        | TrainError::Settings(_)
        | TrainError::Tokeniser(_)
        | TrainError::Config(_) => Failure::input(error),
        other => Failure::work(other),
    }
}

/// Whether a shipped recipe starts from a pretrained model: its header then says so.
fn is_for_finetuning(name: &str) -> bool {
    shipped().iter().any(|recipe| recipe.name == name && recipe.text.contains(&format!("train {name} --init MODEL")))
}
