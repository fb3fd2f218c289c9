//! The numbers of a run that say at a glance how it went.

use crate::escape;
use serde_json::{Value, json};
use vitreous_models::archive::Archive;
use vitreous_train::RunRecord;
use vitreous_train::metrics::StepMetrics;

use crate::format;

/// The numbers of a run.
pub struct Headline {
    /// Updates so far, and in all.
    pub step: u64,
    /// Updates in all, where that is known.
    pub steps: Option<u64>,
    /// Epochs so far, where that is known.
    pub epoch: Option<f64>,
    /// Epochs in all, where that is known.
    pub epochs: Option<u64>,
    /// How it stands.
    pub state: State,
    /// The last test's share of right answers.
    pub top1: Option<f64>,
    /// The last test's share of images whose class is among the first five.
    pub top5: Option<f64>,
    /// The last test's mean average precision.
    pub map: Option<f64>,
    /// The last BLEU of a translator.
    pub bleu: Option<f64>,
    /// What its speed is counted in.
    unit: &'static str,
    /// The best score.
    pub best: Option<f64>,
    /// After how many epochs that was.
    pub best_epoch: Option<f64>,
    /// The last test's loss.
    pub test_loss: Option<f64>,
    /// The mean loss while learning, over the last epoch.
    pub loss: Option<f64>,
    /// The share of right answers while learning, over the last epoch.
    pub learned_top1: Option<f64>,
    /// Seconds trained.
    pub seconds: f64,
    /// Images a second, as it was most of the time.
    pub speed: Option<f64>,
    /// Parameters of the model.
    pub parameters: Option<usize>,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A process trains it now.
    GoesOn,
    /// All of its steps are done.
    Finished,
    /// It can be taken up.
    Stopped,
}

impl State {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            State::GoesOn => "goes on",
            State::Finished => "finished",
            State::Stopped => "stopped",
        }
    }
}

impl Headline {
    /// Those of a run.
    pub fn of(run: &RunRecord) -> Headline {
        let history = &run.history;
        let tested = history.tested.last();
        let per_epoch = run.steps_per_epoch();
        let epoch_of = |step: u64| per_epoch.map(|steps| step as f64 / steps as f64);
        let mut speeds: Vec<f64> = history.learned.iter().map(StepMetrics::speed).collect();
        speeds.sort_by(f64::total_cmp);
        let written = run.sittings.last().map(|sitting| sitting.parameters).filter(|&count| count > 0);
        let state = match (run.goes_on, run.finished()) {
            (true, _) => State::GoesOn,
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
            top5: tested.and_then(|line| line.val_top5),
            map: tested.and_then(|line| line.val_map),
            bleu: tested.and_then(|line| line.val_bleu),
            unit: match history.learned.last() {
                Some(line) if line.tokens_per_second.is_some() => "tokens",
                _ => "images",
            },
            best: run.best().map(|best| best.0),
            best_epoch: run.best().and_then(|best| epoch_of(best.1)),
            test_loss: tested.map(|line| line.val_loss).filter(|loss| !loss.is_nan()),
            loss: last_epoch_mean(run, |line| Some(line.loss)),
            learned_top1: last_epoch_mean(run, |line| line.top1),
            seconds: run.seconds(),
            speed: speeds.get(speeds.len() / 2).copied(),
            parameters: written.or_else(|| saved_parameters(run)),
        }
    }

    /// The last score: of right answers, or the mean average precision.
    pub fn score(&self) -> Option<f64> {
        self.top1.or(self.map).or(self.bleu)
    }

    /// As `vitreous report --json` tells them.
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
            "val_loss": self.test_loss,
            "val_top1": self.top1,
            "val_top5": self.top5,
            "val_map": self.map,
            "val_bleu": self.bleu,
            "loss": self.loss,
            "seconds": self.seconds,
            "speed": self.speed,
            "speed_unit": self.unit,
            "parameters": self.parameters,
        })
    }

    /// How it stands, as a sentence of HTML.
    pub fn standing(&self, run: &RunRecord) -> String {
        let of = |all: Option<u64>| all.map(|all| format!(" of {}", format::thousands(all))).unwrap_or_default();
        let (steps, epochs) = (of(self.steps), of(self.epochs));
        let step = format::thousands(self.step);
        let whole = (self.epoch.unwrap_or(0.0) + 1e-9).floor() as usize;
        match self.state {
            State::GoesOn if whole >= 1 => format!(
                "<strong>Goes on.</strong> Written after epoch {whole}{epochs} (step {step}{steps}); reload the page for more."
            ),
            State::GoesOn => {
                "<strong>Goes on.</strong> The first epoch is not over; reload the page for more.".to_string()
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
                    "<strong>Stopped</strong> at step {step}{steps}{}. To go on: <code>vitreous train --resume {}</code>",
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
                let so_far = if self.state == State::GoesOn { " so far" } else { "" };
                format!("the best{so_far}, after epoch {epoch:.0}")
            }
            (Some(best), Some(epoch)) => format!("best {} after epoch {epoch:.0}", show(best)),
            _ => String::new(),
        };
        if let Some(top1) = self.top1 {
            tiles.push(tile("Test accuracy", &format::percent(top1), &best(format::percent)));
        }
        if let Some(map) = self.map {
            tiles.push(tile("Mean average precision", &format!("{map:.4}"), &best(|score| format!("{score:.4}"))));
        }
        if let Some(bleu) = self.bleu {
            tiles.push(tile("BLEU", &format!("{bleu:.2}"), &best(|score| format!("{score:.2}"))));
        }
        if self.score().is_none() {
            tiles.push(tile("Test accuracy", self.none(), "no test was made"));
        }
        let loss = |loss: Option<f64>| loss.map_or(self.none().to_string(), |loss| format!("{loss:.3}"));
        let among = self.top5.map(|top5| format!("class among the first five: {}", format::percent(top5)));
        tiles.push(tile("Test loss", &loss(self.test_loss), &among.unwrap_or_default()));
        let right = self.learned_top1.map(|top1| format!("; {} right while learning", format::percent(top1)));
        let learned = self.loss.map(|_| format!("over the last epoch{}", right.unwrap_or_default()));
        tiles.push(tile("Training loss", &loss(self.loss), &learned.unwrap_or_default()));
        let speed =
            self.speed.map(|speed| format!("{} {}/s", format::thousands(speed as u64), self.unit)).unwrap_or_default();
        tiles.push(tile("Time", &format::seconds(self.seconds), &speed));
        let parameters = self.parameters.map_or("unknown".to_string(), |count| format::thousands(count as u64));
        tiles.push(tile("Parameters", &parameters, ""));
        format!("<div class=\"headline\">{}</div>", tiles.concat())
    }

    /// In place of a number that there is not, or not yet.
    fn none(&self) -> &'static str {
        if self.state == State::Finished { "none" } else { "none yet" }
    }
}

fn tile(name: &str, value: &str, about: &str) -> String {
    format!(
        "<div><span class=\"name\">{name}</span><span class=\"value\">{value}</span><span class=\"note\">{about}</span></div>"
    )
}

/// The mean over the lines of the last epoch up to now.
fn last_epoch_mean(run: &RunRecord, number: fn(&StepMetrics) -> Option<f64>) -> Option<f64> {
    let last = run.history.learned.last()?.epoch;
    let recent = run.history.learned.iter().rev().take_while(|line| line.epoch > last - 1.0);
    let (sum, count) = recent.filter_map(number).fold((0.0, 0), |(sum, count), number| (sum + number, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The size of the saved model, for runs that did not record it.
fn saved_parameters(run: &RunRecord) -> Option<usize> {
    let archive = Archive::open(&run.path.join("model/model.safetensors")).ok()?;
    Some(archive.tensors().map(|tensor| tensor.shape.iter().product::<usize>()).sum())
}
