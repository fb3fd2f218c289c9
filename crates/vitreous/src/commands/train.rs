//! `vitreous train`: from a recipe to a model.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use serde_json::json;
use vitreous_data::dataset::{self, DatasetError, OpenDataset, Splits};
use vitreous_data::download::KNOWN_NAMES;
use vitreous_data::loader::{BatchSource, BrokenSample};
use vitreous_data::text::{self, Tokenisers};
use vitreous_train::recipe::{DataSettings, nearest, shipped};
use vitreous_train::translation::PairData;
use vitreous_train::{AnyRecipe, Orders, Outcome, Place, Recipe, RunDirectory, TrainError, TranslationRecipe, Work};

use super::parse_threads;
use crate::device::DeviceOptions;
use crate::failure::Failure;
use crate::pages::report::{self, LiveReport};
use crate::progress::TrainProgress;
use crate::{format, source};

/// Where runs go unless another place is named.
const RUNS: &str = "runs";
/// What `data.path` calls the data inside the binary.
const BUILT_IN: &str = "builtin";

/// Train a model; without arguments, a small one on the data inside the binary
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous train                                        the small ViT on the built-in images, two minutes
  vitreous train cifar10 model.patch=4 optimizer.lr=5e-4
  vitreous train small --data photos/                   the small ViT on your own images
  vitreous train finetune --init MODEL --data photos/   from a model that was trained before
  vitreous train translation --data pairs/              a translator from pairs of sentences
  vitreous train --resume runs/small-1                  go on with a run that was stopped

Ctrl-C saves and stops (exit code 130); a second one stops at once.")]
pub struct Train {
    /// A recipe: its name (see --list) or a TOML file. Then changes to it, as in `optimizer.lr=5e-4`
    #[arg(value_name = "RECIPE | KEY=VALUE")]
    words: Vec<String>,
    /// What to learn from. Images: a folder, CIFAR or IDX files, a manifest, tar shards. Pairs of sentences: a folder or a file
    #[arg(long, value_name = "PATH")]
    data: Option<String>,
    /// Source and target language of pairs, as their files or keys are called: en-de
    #[arg(long, value_name = "LANGUAGES")]
    languages: Option<String>,
    /// A model to start from: a directory or a file
    #[arg(long, value_name = "MODEL")]
    init: Option<String>,
    /// The run directory to make [default: runs/RECIPE-1, -2 ..]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run of this directory from its last checkpoint
    #[arg(long, value_name = "DIR", conflicts_with_all = ["data", "languages", "init", "out", "words"])]
    resume: Option<PathBuf>,
    /// List the recipes
    #[arg(long)]
    list: bool,
    /// Print a recipe, with changes if there are some
    #[arg(long, value_name = "RECIPE")]
    show: Option<String>,
    #[command(flatten)]
    device: DeviceOptions,
    /// Threads that compute [default: one a core]
    #[arg(long, value_parser = parse_threads)]
    threads: Option<usize>,
    /// Write more with each line of metrics: the length of each parameter's gradient
    #[arg(long, value_name = "WHAT", value_enum)]
    watch: Vec<Watch>,
    /// End with the result as one line of JSON on stdout
    #[arg(long)]
    json: bool,
}

/// What can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Watch {
    Gradients,
}

impl Train {
    pub fn run(&self) -> Result<(), Failure> {
        if self.list {
            return list();
        }
        if let Some(name) = &self.show {
            return self.show(name);
        }
        let (recipe, place) = match &self.resume {
            Some(path) => {
                let (directory, recipe) = RunDirectory::open(path).map_err(of_training)?;
                if !has_checkpoint(path) {
                    say!("note: {} has no checkpoint: the run begins anew", path.display());
                }
                (recipe, Place::Resumed(directory))
            }
            None => self.new_run()?,
        };
        match recipe {
            AnyRecipe::Images(recipe) => self.train_images(recipe, place),
            AnyRecipe::Translation(recipe) => self.train_translation(recipe, place),
        }
    }

    fn train_images(&self, recipe: Box<Recipe>, place: Place) -> Result<(), Failure> {
        let splits = open_data(&recipe)?;
        let count = |number: usize| format::thousands(number as u64);
        let about = format!(
            "{}: {} images to learn from, {} to test with, {} classes",
            splits.kind,
            count(splits.train.len()),
            count(splits.validation.len()),
            splits.classes.len()
        );
        let orders = self.orders(place)?;
        let report = LiveReport::new(&splits, orders.threads);
        let mut progress = TrainProgress::new(recipe.train.epochs, about, &orders, report);
        let data = recipe.data.clone();
        let tested = !splits.validation.is_empty();
        let outcome = vitreous_train::train(Work::Images { recipe, splits }, orders, &mut progress);
        progress.finish();
        let outcome = outcome.map_err(of_training)?;
        self.tell(&outcome, Some((&data, tested)))
    }

    fn train_translation(&self, recipe: Box<TranslationRecipe>, place: Place) -> Result<(), Failure> {
        if recipe.data.path.is_empty() {
            let hint = "what is to be learned from? Name pairs: vitreous train translation --data DIR";
            return Err(Failure::input(anyhow!("{hint}")));
        }
        let path = Path::new(&recipe.data.path);
        let splits = text::open(path, &recipe.data.options()).map_err(Failure::input)?;
        splits.notes.iter().for_each(|note| say!("note: {note}"));
        // A run that is taken up goes on with its own words.
        let tokenisers = match &place {
            Place::Resumed(directory) if has_checkpoint(directory.path()) => {
                Some(Tokenisers::open(directory.path()).map_err(Failure::input)?)
            }
            _ => None,
        };
        let kind = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let data = PairData::new(&recipe, splits, kind, tokenisers).map_err(of_training)?;
        let count = |number: usize| format::thousands(number as u64);
        let about = format!(
            "{}: {} pairs to learn from, {} to test with; {} words; {} batches an epoch, {:.1} % of them padding",
            data.kind,
            count(data.train.len()),
            count(data.validation.len()),
            count(data.tokenisers.target.vocabulary_size()),
            count(data.batches.batches_per_epoch()),
            100.0 * data.batches.padding_share()
        );
        if data.dropped.total() > 0 {
            say!("note: {}", data.dropped);
        }
        let orders = self.orders(place)?;
        let report = LiveReport::of_text(orders.threads);
        let progress = TrainProgress::new(recipe.train.epochs, about, &orders, report);
        let mut progress = progress.averaged(recipe.train.average);
        let work = Work::Translation { recipe, data: Box::new(data) };
        let outcome = vitreous_train::train(work, orders, &mut progress);
        progress.finish();
        let outcome = outcome.map_err(of_training)?;
        self.tell(&outcome, None)
    }

    /// How the run is made.
    fn orders(&self, place: Place) -> Result<Orders, Failure> {
        let threads = self.threads.unwrap_or_else(source::threads);
        Ok(Orders {
            place,
            device: self.device.open(threads)?,
            threads,
            watch_gradients: self.watch.contains(&Watch::Gradients),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            stop: stop_on_signals().map_err(Failure::work)?,
        })
    }

    /// The recipe and the place of a run that begins.
    fn new_run(&self) -> Result<(AnyRecipe, Place), Failure> {
        let (name, overrides) = self.name_and_overrides();
        let of_init = |override_: &String| override_.starts_with("finetune.init=");
        if self.init.is_some() && name.is_some() {
            let others: Vec<String> = overrides.iter().filter(|other| !of_init(other)).cloned().collect();
            if let (AnyRecipe::Translation(_), _) = read(name.as_deref().unwrap_or_default(), &others)? {
                return Err(Failure::input(anyhow!("--init is for images: a translator begins with random weights")));
            }
        }
        let (mut recipe, name) = read(name.as_deref().unwrap_or(shipped()[0].name), &overrides)?;
        match &mut recipe {
            AnyRecipe::Images(recipe) => complete(recipe, &name, &overrides)?,
            AnyRecipe::Translation(recipe) if recipe.data.path.is_empty() => {}
            AnyRecipe::Translation(recipe) => recipe.data.path = whole(&recipe.data.path)?,
        }
        let place = match &self.out {
            Some(path) => Place::New(path.clone()),
            None => Place::Numbered { parent: PathBuf::from(RUNS), name },
        };
        Ok((recipe, place))
    }

    fn name_and_overrides(&self) -> (Option<String>, Vec<String>) {
        let (mut name, mut overrides) = (None, Vec::new());
        for word in &self.words {
            match word.contains('=') || name.is_some() {
                true => overrides.push(word.clone()),
                false => name = Some(word.clone()),
            }
        }
        let quoted = |text: &str| toml_string(text);
        overrides.extend(self.data.iter().map(|path| format!("data.path={}", quoted(path))));
        overrides.extend(self.languages.iter().map(|pair| format!("data.languages={}", quoted(pair))));
        overrides.extend(self.init.iter().map(|path| format!("finetune.init={}", quoted(path))));
        (name, overrides)
    }

    fn show(&self, name: &str) -> Result<(), Failure> {
        let (_, overrides) = self.name_and_overrides();
        let mut overrides: Vec<String> = overrides;
        overrides.extend(self.words.iter().filter(|word| !word.contains('=')).cloned());
        let mut out = std::io::stdout().lock();
        match shipped().iter().find(|recipe| recipe.name == name) {
            Some(recipe) if overrides.is_empty() => out.write_all(recipe.text.as_bytes())?,
            _ => out.write_all(read(name, &overrides)?.0.to_toml().as_bytes())?,
        }
        Ok(())
    }

    /// Says how it ended; of images, with which data and whether it was tested.
    fn tell(&self, outcome: &Outcome, images: Option<(&DataSettings, bool)>) -> Result<(), Failure> {
        tell_broken(outcome);
        let directory = outcome.directory.display();
        let command = command_name();
        if self.json {
            let last = outcome.last.as_ref();
            let result = json!({
                "directory": outcome.directory.to_string_lossy(),
                "stopped": outcome.stopped,
                "step": outcome.step,
                "val_loss": last.map(|last| last.val_loss),
                "val_top1": last.and_then(|last| last.val_top1),
                "val_top5": last.and_then(|last| last.val_top5),
                "val_map": last.and_then(|last| last.val_map),
                "val_bleu": last.and_then(|last| last.val_bleu),
                "best": outcome.best.map(|(score, _)| score),
                "seconds": outcome.time.as_secs_f64(),
                "broken_images": outcome.broken.len(),
            });
            writeln!(std::io::stdout(), "{result}")?;
        }
        if outcome.stopped {
            say!("stopped after step {}, saved. To go on: {command} train --resume {directory}", outcome.step);
            return Err(Failure::Interrupted);
        }
        if self.json {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        let time = format::duration(outcome.time);
        if let Some(last) = &outcome.last {
            match (last.val_top1, last.val_bleu) {
                (Some(top1), _) => write!(out, "{:.2} % of the test images are right", 100.0 * top1)?,
                (_, Some(bleu)) => write!(out, "BLEU {bleu:.2}")?,
                _ => write!(out, "The mean average precision is {:.4}", last.val_map.unwrap_or(f64::NAN))?,
            }
            write!(out, " (loss {:.3}) ", last.val_loss)?;
        }
        writeln!(out, "after {} in {time}", format::count(outcome.step as usize, "step", "steps"))?;
        if let Some((score, step)) = outcome.best.filter(|(_, step)| *step != outcome.step) {
            match images {
                Some(_) => write!(out, "The best was {:.2} %", 100.0 * score)?,
                None => write!(out, "The best was BLEU {score:.2}")?,
            }
            writeln!(out, " after step {step}: {directory}/best")?;
        }
        writeln!(
            out,
            "\nThe model is in {directory}/model; metrics and checkpoints are beside it. Look at how it went:"
        )?;
        writeln!(out, "  {directory}/{}\n\nTry next:", report::FILE)?;
        let tries = match images {
            Some((data, tested)) => tries_with_images(&directory.to_string(), data, tested),
            None => vec![
                (format!("translate {directory} 'A sentence.'"), "what it makes of a sentence of yours"),
                (format!("translate {directory} --beam 4 --file FILE"), "a file, a sentence a line, with more care"),
            ],
        };
        let width = tries.iter().map(|(arguments, _)| arguments.len()).max().unwrap_or(0);
        for (arguments, why) in tries {
            writeln!(out, "  {command} {arguments:width$}  {why}")?;
        }
        Ok(())
    }
}

/// What to try with a model of images.
fn tries_with_images(directory: &str, data: &DataSettings, tested: bool) -> Vec<(String, &'static str)> {
    let path = &data.path;
    // The same images are tested with, and not some that it learned from.
    let share = match data.validation_share {
        0.1 => String::new(),
        share => format!(" --validation-share {share}"),
    };
    let mut tries = vec![(format!("summary {directory}/model"), "every shape inside it")];
    match path.as_str() {
        BUILT_IN => {
            tries.insert(0, (format!("eval {directory}/model"), "which classes it confuses"));
            tries.insert(1, (format!("explain {directory}"), "where it looks in a few test images"));
            tries.push(("data --preview seen.png --recipe small".to_string(), "what it saw while it learned"));
        }
        _ => {
            tries.push((format!("predict {directory}/model IMAGE"), "what it sees in a picture of yours"));
            tries.push((format!("explain {directory}/model IMAGE"), "where it looks in it"));
            let about = match tested {
                true => (format!("eval {directory}/model --data {path}{share}"), "which classes it confuses"),
                false => (format!("data {path} --preview seen.png"), "images as augmentation shows them"),
            };
            tries.insert(0, about);
        }
    }
    tries
}

/// Whole paths, so that the run can be taken up from anywhere.
fn complete(recipe: &mut Recipe, name: &str, overrides: &[String]) -> Result<(), Failure> {
    if recipe.data.path != BUILT_IN {
        recipe.data.path = whole(&recipe.data.path)?;
    }
    if !recipe.finetune.init.is_empty() {
        refuse_what_is_replaced(overrides)?;
        let model = source::of_run(Path::new(&recipe.finetune.init));
        recipe.finetune.init = whole(&model.to_string_lossy())?;
    } else if name == "finetune" {
        let hint = "what is to be fine-tuned? Name a model: vitreous train finetune --init MODEL --data DIR";
        return Err(Failure::input(anyhow!("{hint}")));
    }
    Ok(())
}

/// A recipe by its name or file, and what to call its runs.
pub(super) fn read(name: &str, overrides: &[String]) -> Result<(AnyRecipe, String), Failure> {
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
    let recipe = AnyRecipe::read(name, &text, overrides).map_err(Failure::input)?;
    let stem = path.file_stem().map_or("run".into(), |stem| stem.to_string_lossy().into_owned());
    Ok((recipe, stem))
}

fn list() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let width = shipped().iter().map(|recipe| recipe.name.len()).max().unwrap_or(0);
    for recipe in shipped() {
        writeln!(out, "{:width$}  {}", recipe.name, recipe.title())?;
    }
    Ok(())
}

/// Refuses changes to a model that another one replaces: they would do nothing, silently.
fn refuse_what_is_replaced(overrides: &[String]) -> Result<(), Failure> {
    const USED: [&str; 4] = ["image", "dropout", "attention_dropout", "stochastic_depth"];
    let keys = overrides.iter().filter_map(|pair| pair.split_once('=')?.0.trim().strip_prefix("model."));
    match keys.into_iter().find(|key| !USED.contains(key)) {
        None => Ok(()),
        Some(key) => Err(Failure::input(anyhow!(
            "`model.{key}` is what the model to start from says; with --init only {} can be set",
            USED.map(|key| format!("model.{key}")).join(", ")
        ))),
    }
}

/// The data that a recipe names.
pub(super) fn data_of(settings: &DataSettings) -> Result<Splits, DatasetError> {
    if settings.path == BUILT_IN {
        return Ok(dataset::builtin());
    }
    let options = OpenDataset {
        validation_share: settings.validation_share,
        validation_rule: settings.validation_rule,
        labels: Some(settings.labels.clone()).filter(|labels| !labels.is_empty()),
        keep_bytes: settings.keep_mib.saturating_mul(1 << 20),
    };
    dataset::open(Path::new(&settings.path), &options)
}

/// The same, with what a user should know of it.
fn open_data(recipe: &Recipe) -> Result<Splits, Failure> {
    let splits = data_of(&recipe.data).map_err(|error| {
        let name = Path::new(&recipe.data.path).file_name().unwrap_or_default();
        let hint = match KNOWN_NAMES.iter().find(|known| name == **known) {
            Some(name) => format!("; `vitreous data get {name}` downloads it, --data PATH names other data"),
            None => "; --data PATH names the data".to_string(),
        };
        Failure::input(anyhow!("{error}{hint}"))
    })?;
    splits.notes.iter().for_each(|note| say!("note: {note}"));
    Ok(splits)
}

fn whole(path: &str) -> Result<String, Failure> {
    let whole = std::path::absolute(path).with_context(|| path.to_string()).map_err(Failure::Input)?;
    whole.into_os_string().into_string().map_err(|_| Failure::input(anyhow!("{path}: the path is not UTF-8")))
}

fn has_checkpoint(run: &Path) -> bool {
    run.join("checkpoints").read_dir().is_ok_and(|mut entries| entries.next().is_some())
}

fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The first Ctrl-C (or a request to end) sets a flag; the second ends the process.
fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: the second looks at what the first has set, before it is set again.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// How this command was called, so that what is shown can be typed.
fn command_name() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).unwrap_or_else(|| "vitreous".to_string())
}

fn tell_broken(outcome: &Outcome) {
    const SHOWN: usize = 10;
    if outcome.broken.is_empty() {
        return;
    }
    let count = format::count(outcome.broken.len(), "image", "images");
    say!("{count} could not be read and {} left out:", if outcome.broken.len() == 1 { "was" } else { "were" });
    for BrokenSample { name, reason } in outcome.broken.iter().take(SHOWN) {
        say!("  {}: {reason}", format::one_line(name));
    }
    if outcome.broken.len() > SHOWN {
        say!("  and {} more; `vitreous data PATH` names them all", outcome.broken.len() - SHOWN);
    }
}

/// What the user can mend by other arguments is bad input; the rest is failed work.
fn of_training(error: TrainError) -> Failure {
    match error {
        TrainError::NoRun { .. }
        | TrainError::Recipe(_)
        | TrainError::Data(_)
        | TrainError::Model(_)
        | TrainError::Config(_) => Failure::input(error),
        other => Failure::work(other),
    }
}
