//! The numbers of a run that say at a glance how it went.

use crate::escape;
use serde_json::{Value, json};
use vitreous_models::archive::Archive;
use vitreous_train::metrics::{EpochMeans, EvaluationMetrics};
use vitreous_train::{LOSS, RunRecord, Score};

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
    /// The last evaluation on the validation data.
    pub evaluation: Option<EvaluationMetrics>,
    /// The best evaluation: the number that decides.
    pub best: Option<Score>,
    /// After how many epochs that was.
    pub best_epoch: Option<f64>,
    /// The means over the last epoch of training.
    pub training: Option<EpochMeans>,
    /// The unit of its speed: "images", "tokens".
    unit: String,
    /// Seconds trained.
    pub seconds: f64,
    /// Units per second: the median over the run.
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
    /// It can be resumed.
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
        let per_epoch = run.steps_per_epoch();
        let epoch_of = |step: u64| per_epoch.map(|steps| step as f64 / steps as f64);
        let mut speeds: Vec<f64> = history.training.iter().map(|line| line.speed).collect();
        speeds.sort_by(f64::total_cmp);
        let written = run.sessions.last().map(|session| session.parameters).filter(|&count| count > 0);
        let state = match (run.in_progress, run.finished()) {
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
            evaluation: history.evaluations.last().cloned(),
            best: run.best().map(|best| best.0),
            best_epoch: run.best().and_then(|best| epoch_of(best.1)),
            training: per_epoch.and_then(|steps| history.last_epoch(steps)),
            unit: history.training.last().map_or("images".to_string(), |line| line.unit.clone()),
            seconds: run.seconds(),
            speed: speeds.get(speeds.len() / 2).copied(),
            parameters: written.or_else(|| saved_parameters(run)),
        }
    }

    /// A number of the last evaluation, unless it is NaN.
    pub fn score(&self, key: &str) -> Option<f64> {
        self.evaluation.as_ref().and_then(|line| line.get(key)).filter(|value| !value.is_nan())
    }

    /// The number of the last evaluation that decides which checkpoint is the best.
    pub fn deciding(&self) -> Option<Score> {
        self.evaluation.as_ref().and_then(EvaluationMetrics::deciding)
    }

    /// As `vitreous report --json` writes them.
    pub fn json(&self, run: &RunRecord) -> Value {
        let mut object = json!({
            "run": run.path.to_string_lossy(),
            "state": self.state.name(),
            "step": self.step,
            "steps": self.steps,
            "epoch": self.epoch,
            "epochs": self.epochs,
            "best": self.best.map(|best| best.value),
            "best_epoch": self.best_epoch,
            "val_loss": self.score(LOSS.key),
            "loss": self.training.map(|means| means.loss),
            "seconds": self.seconds,
            "speed": self.speed,
            "speed_unit": self.unit,
            "parameters": self.parameters,
        });
        for Score { metric, value } in self.evaluation.iter().flat_map(|line| &line.scores) {
            object[format!("val_{}", metric.key)] = json!(value);
        }
        object
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
                    "<strong>Stopped</strong> at step {step}{steps}{}. To resume: <code>vitreous train --resume {}</code>",
                    after.unwrap_or_default(),
                    escape(&run.path.display().to_string())
                )
            }
        }
    }

    /// The tiles under the title.
    pub fn tiles(&self) -> String {
        let mut tiles = Vec::new();
        match self.deciding() {
            Some(score) => {
                let name = format!("Validation {}", score.metric.label);
                tiles.push(tile(&name, &score.metric.text(score.value), &self.about_best(score)));
            }
            None => tiles.push(tile("Validation", self.none(), "no evaluation")),
        }
        let loss = |loss: Option<f64>| loss.map_or(self.none().to_string(), |loss| LOSS.text(loss));
        let others = self.evaluation.iter().flat_map(|line| &line.scores);
        let others = others.filter(|score| *score.metric != LOSS && !score.metric.decides);
        let others: Vec<String> = others.map(Score::to_string).collect();
        tiles.push(tile("Validation loss", &loss(self.score(LOSS.key)), &others.join(", ")));
        let accuracy = self.training.and_then(|means| means.top1);
        let accuracy = accuracy.map(|top1| format!("; accuracy {}", format::percent(top1)));
        let mean = self.training.map(|_| format!("mean over the last epoch{}", accuracy.unwrap_or_default()));
        tiles.push(tile("Training loss", &loss(self.training.map(|means| means.loss)), &mean.unwrap_or_default()));
        let speed =
            self.speed.map(|speed| format!("{} {}/s", format::thousands(speed as u64), self.unit)).unwrap_or_default();
        tiles.push(tile("Time", &format::seconds(self.seconds), &speed));
        let parameters = self.parameters.map_or("unknown".to_string(), |count| format::thousands(count as u64));
        tiles.push(tile("Parameters", &parameters, ""));
        format!("<div class=\"headline\">{}</div>", tiles.concat())
    }

    /// How the last evaluation compares with the best.
    fn about_best(&self, last: Score) -> String {
        match (self.best, self.best_epoch) {
            (Some(best), Some(epoch)) if best.value == last.value => {
                let so_far = if self.state == State::GoesOn { " so far" } else { "" };
                format!("the best{so_far}, after epoch {epoch:.0}")
            }
            (Some(best), Some(epoch)) => {
                format!("best {} after epoch {epoch:.0}", best.metric.text(best.value))
            }
            _ => String::new(),
        }
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

/// The size of the saved model, for runs that did not record it.
fn saved_parameters(run: &RunRecord) -> Option<usize> {
    let archive = Archive::open(&run.path.join("model/model.safetensors")).ok()?;
    Some(archive.tensors().map(|tensor| tensor.shape.iter().product::<usize>()).sum())
}
