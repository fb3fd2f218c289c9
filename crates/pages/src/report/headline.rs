//! The numbers of a run that say at a glance how it went.

use serde_json::{Value, json};
use vitreous_models::archive::Archive;
use vitreous_train::RunRecord;
use vitreous_train::metrics::{EvaluationMetrics, StepMetrics};

use super::epoch::{EpochMean, last_epoch_mean};
use super::is_text;
use super::validation::samples;
use crate::interval::{self, wilson};
use crate::{escape, format};

/// The numbers of a run.
pub struct Headline {
    /// Steps so far.
    pub step: u64,
    /// Steps in all, where that is known.
    pub steps: Option<u64>,
    /// Epochs so far, where that is known.
    pub epoch: Option<f64>,
    /// Epochs in all, where that is known.
    pub epochs: Option<u64>,
    /// Whether it is running.
    pub state: State,
    /// Validation accuracy of the last evaluation.
    pub top1: Option<f64>,
    /// Its 95 % confidence interval, by Wilson.
    pub top1_interval: Option<[f64; 2]>,
    /// Top-5 accuracy of the last evaluation.
    pub top5: Option<f64>,
    /// Number of classes, where there was an evaluation.
    pub classes: Option<usize>,
    /// Mean average precision of the last evaluation.
    pub map: Option<f64>,
    /// BLEU of the last evaluation.
    pub bleu: Option<f64>,
    /// What speed is measured in: `images`, `tokens`.
    unit: &'static str,
    /// The best score of an evaluation.
    pub best: Option<f64>,
    /// After how many epochs that was.
    pub best_epoch: Option<f64>,
    /// Validation loss of the last evaluation.
    pub validation_loss: Option<f64>,
    /// Training loss, the mean over the steps of the last whole epoch.
    pub training_loss: Option<EpochMean>,
    /// Accuracy on training batches, the mean over the same steps.
    pub training_top1: Option<EpochMean>,
    /// Seconds of training.
    pub seconds: f64,
    /// Median speed, in units per second.
    pub speed: Option<f64>,
    /// Parameters of the model.
    pub parameters: Option<usize>,
}

/// Whether a run is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A process trains it now.
    Running,
    /// All of its steps are done.
    Finished,
    /// It can be resumed.
    Stopped,
}

impl State {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Finished => "finished",
            State::Stopped => "stopped",
        }
    }
}

impl Headline {
    /// Reads them from a run.
    pub fn of(run: &RunRecord) -> Headline {
        let history = &run.history;
        let tested = history.tested.last();
        let per_epoch = run.steps_per_epoch();
        let epoch_of = |step: u64| per_epoch.map(|steps| step as f64 / steps as f64);
        let mut speeds: Vec<f64> = history.learned.iter().map(StepMetrics::speed).collect();
        speeds.sort_by(f64::total_cmp);
        let written = run.sittings.last().map(|sitting| sitting.parameters).filter(|&count| count > 0);
        let state = match (run.goes_on, run.finished()) {
            (true, _) => State::Running,
            (false, true) => State::Finished,
            (false, false) => State::Stopped,
        };
        Headline {
            step: run.step(),
            steps: run.steps(),
            epoch: epoch_of(run.step()),
            epochs: run.epochs(),
            state,
            top1: tested.and_then(|line| line.val_top1),
            top1_interval: tested.and_then(|line| interval(run, line)),
            top5: tested.and_then(|line| line.val_top5),
            classes: run.tested.as_ref().map(|tested| tested.names.len()),
            map: tested.and_then(|line| line.val_map),
            bleu: tested.and_then(|line| line.val_bleu),
            unit: if is_text(run) { "tokens" } else { "images" },
            best: run.best().map(|best| best.0),
            best_epoch: run.best().and_then(|best| epoch_of(best.1)),
            validation_loss: tested.map(|line| line.val_loss).filter(|loss| !loss.is_nan()),
            training_loss: last_epoch_mean(run, |line| Some(line.loss)),
            training_top1: last_epoch_mean(run, |line| line.top1),
            seconds: run.seconds(),
            speed: speeds.get(speeds.len() / 2).copied(),
            parameters: written.or_else(|| saved_parameters(run)),
        }
    }

    /// The last score: accuracy, mean average precision or BLEU.
    pub fn score(&self) -> Option<f64> {
        self.top1.or(self.map).or(self.bleu)
    }

    /// As `vitreous report --json` prints them.
    pub fn json(&self, run: &RunRecord) -> Value {
        json!({
            "run": run.path.to_string_lossy(),
            "state": self.state.name(),
            "step": self.step,
            "steps": self.steps,
            "epoch": self.epoch,
            "epochs": self.epochs,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "val_loss": self.validation_loss,
            "val_top1": self.top1,
            "val_top1_interval": self.top1_interval,
            "val_top5": self.top5,
            "val_map": self.map,
            "val_bleu": self.bleu,
            "loss": self.training_loss.map(|loss| loss.mean),
            "seconds": self.seconds,
            "speed": self.speed,
            "speed_unit": self.unit,
            "parameters": self.parameters,
        })
    }

    /// Its state and progress, as a sentence of HTML.
    pub fn standing(&self, run: &RunRecord) -> String {
        let of = |all: Option<u64>| all.map(|all| format!(" of {}", format::thousands(all))).unwrap_or_default();
        let (steps, epochs) = (of(self.steps), of(self.epochs));
        let step = format::thousands(self.step);
        let whole = (self.epoch.unwrap_or(0.0) + 1e-9).floor() as usize;
        match self.state {
            State::Running if whole >= 1 => format!(
                "<strong>Running.</strong> Written after epoch {whole}{epochs} (step {step}{steps}); reload the page for more."
            ),
            State::Running => {
                "<strong>Running.</strong> The first epoch is not over; reload the page for more.".to_string()
            }
            State::Finished => {
                let epochs = self.epoch.map(|_| format!(", {}", format::count(whole, "epoch", "epochs")));
                format!("<strong>Finished</strong> after {step} steps{}.", epochs.unwrap_or_default())
            }
            State::Stopped => {
                let after = self.epoch.map(|epoch| match self.epochs {
                    Some(1) => format!(", after {epoch:.1} of 1 epoch"),
                    _ => format!(", after {epoch:.1}{epochs} epochs"),
                });
                format!(
                    "<strong>Stopped</strong> at step {step}{steps}{}. Resume it with <code>vitreous train --resume {}</code>",
                    after.unwrap_or_default(),
                    escape(&run.path.display().to_string())
                )
            }
        }
    }

    /// The tiles under the title.
    pub fn tiles(&self) -> String {
        let mut tiles = Vec::new();
        let best = |show: fn(f64) -> String| match (self.best, self.best_epoch) {
            (Some(best), Some(epoch)) if self.score() == Some(best) => {
                let so_far = if self.state == State::Running { " so far" } else { "" };
                format!("the best{so_far}, after epoch {epoch:.0}")
            }
            (Some(best), Some(epoch)) => format!("best {} after epoch {epoch:.0}", show(best)),
            _ => String::new(),
        };
        if let Some(top1) = self.top1 {
            let interval = self.top1_interval.map(interval::in_words);
            let notes: Vec<String> =
                interval.into_iter().chain(Some(best(format::percent)).filter(|note| !note.is_empty())).collect();
            tiles.push(tile("Validation accuracy", &format::percent(top1), &notes.join("; ")));
        }
        if let Some(map) = self.map {
            tiles.push(tile("Mean average precision", &format!("{map:.4}"), &best(|score| format!("{score:.4}"))));
        }
        if let Some(bleu) = self.bleu {
            tiles.push(tile("BLEU", &format!("{bleu:.2}"), &best(|score| format!("{score:.2}"))));
        }
        if self.score().is_none() {
            let name = if self.unit == "tokens" { "BLEU" } else { "Validation accuracy" };
            tiles.push(tile(name, self.none(), "no evaluation"));
        }
        let loss = |loss: Option<f64>| loss.map_or(self.none().to_string(), |loss| format!("{loss:.3}"));
        let top5 = self
            .top5
            .filter(|_| self.classes.is_none_or(|classes| classes > 5))
            .map(|top5| format!("top-5 accuracy {}", format::percent(top5)));
        tiles.push(tile("Validation loss", &loss(self.validation_loss), &top5.unwrap_or_default()));
        let over = self.training_loss.map(|loss| match loss.is_whole {
            true => format!("mean over the steps of epoch {}", loss.epoch),
            false => "mean over the steps so far".to_string(),
        });
        let top1 = self.training_top1.map(|top1| format!("training accuracy {}", format::percent(top1.mean)));
        let notes: Vec<String> = over.into_iter().chain(top1).collect();
        tiles.push(tile("Training loss", &loss(self.training_loss.map(|loss| loss.mean)), &notes.join("; ")));
        let speed =
            self.speed.map(|speed| format!("{} {}/s", format::thousands(speed as u64), self.unit)).unwrap_or_default();
        tiles.push(tile("Time", &format::seconds(self.seconds), &speed));
        let parameters = self.parameters.map_or("unknown".to_string(), |count| format::thousands(count as u64));
        tiles.push(tile("Parameters", &parameters, ""));
        format!("<div class=\"headline\">{}</div>", tiles.concat())
    }

    /// In place of a missing number.
    fn none(&self) -> &'static str {
        if self.state == State::Finished { "none" } else { "none yet" }
    }
}

fn tile(name: &str, value: &str, about: &str) -> String {
    format!(
        "<div><span class=\"name\">{name}</span><span class=\"value\">{value}</span><span class=\"note\">{about}</span></div>"
    )
}

/// The confidence interval of a line's accuracy, where the number of samples is known.
fn interval(run: &RunRecord, line: &EvaluationMetrics) -> Option<[f64; 2]> {
    let tested = run.tested.as_ref().filter(|tested| tested.about.step == line.step)?;
    wilson(line.val_top1?, samples(tested))
}

/// The size of the saved model, for runs that did not record it.
fn saved_parameters(run: &RunRecord) -> Option<usize> {
    let archive = Archive::open(&run.path.join("model/model.safetensors")).ok()?;
    Some(archive.tensors().map(|tensor| tensor.shape.iter().product::<usize>()).sum())
}
