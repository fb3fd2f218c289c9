//! The numbers of a run that say at a glance how it went.

use serde_json::{Value, json};
use vitreous_models::archive::Archive;
use vitreous_train::metrics::{EpochMeans, EvaluationMetrics};
use vitreous_train::{Format, LOSS, RunRecord, Score};

use super::has_metric;
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
    /// The last evaluation on the validation data.
    pub evaluation: Option<EvaluationMetrics>,
    /// How many samples it had, where that is known.
    samples: Option<u64>,
    /// The best evaluation: the number that decides.
    pub best: Option<Score>,
    /// After how many epochs that was.
    pub best_epoch: Option<f64>,
    /// The means over the steps of the last whole epoch of training; in the first epoch, over the steps so far.
    pub training: Option<EpochMeans>,
    /// The last whole epoch, from 1.
    training_epoch: Option<u64>,
    /// What speed is measured in: "images", "tokens".
    pub unit: String,
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
        let per_epoch = run.steps_per_epoch();
        let epoch_of = |step: u64| per_epoch.map(|steps| step as f64 / steps as f64);
        let mut speeds: Vec<f64> = history.training.iter().map(|line| line.speed).collect();
        speeds.sort_by(f64::total_cmp);
        let written = run.sessions.last().map(|session| session.parameters).filter(|&count| count > 0);
        let state = match (run.in_progress, run.finished()) {
            (true, _) => State::Running,
            (false, true) => State::Finished,
            (false, false) => State::Stopped,
        };
        let last = history.evaluations.last();
        let evaluated = run.evaluation.as_ref().filter(|kept| last.is_some_and(|line| line.step == kept.about.step));
        Headline {
            step: run.step(),
            steps: run.steps(),
            epoch: epoch_of(run.step()),
            epochs: run.epochs(),
            state,
            evaluation: last.cloned(),
            samples: evaluated.map(samples),
            best: run.best().map(|best| best.0),
            best_epoch: run.best().and_then(|best| epoch_of(best.1)),
            training: per_epoch.and_then(|steps| history.last_epoch(steps)),
            training_epoch: per_epoch
                .and_then(|steps| Some(history.training.last()?.step / steps))
                .filter(|&whole| whole > 0),
            unit: speed_unit(run),
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

    /// The 95 % confidence interval, by Wilson, of a share of the samples of the last evaluation.
    pub fn interval(&self, score: Score) -> Option<[f64; 2]> {
        self.samples.filter(|_| score.metric.format == Format::Percent).and_then(|samples| wilson(score.value, samples))
    }

    /// As `vitreous report --json` prints them.
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
        for &score in self.evaluation.iter().flat_map(|line| &line.scores) {
            let key = format!("val_{}", score.metric.key);
            if let Some(interval) = self.interval(score) {
                object[format!("{key}_interval")] = json!(interval);
            }
            object[key] = json!(score.value);
        }
        object
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
    pub fn tiles(&self, run: &RunRecord) -> String {
        let mut tiles = Vec::new();
        match self.deciding() {
            Some(score) => {
                let name = format!("Validation {}", score.metric.label);
                let interval = self.interval(score).map(interval::in_words);
                let notes: Vec<String> = interval.into_iter().chain(self.about_best(score)).collect();
                tiles.push(tile(&name, &score.metric.text(score.value), &notes.join("; ")));
            }
            None => tiles.push(tile(&expected_score(run), self.none(), "no evaluation")),
        }
        let loss = |loss: Option<f64>| loss.map_or(self.none().to_string(), |loss| LOSS.text(loss));
        let others = self.evaluation.iter().flat_map(|line| &line.scores);
        let others =
            others.filter(|score| *score.metric != LOSS && !score.metric.decides && has_metric(run, score.metric));
        let others: Vec<String> = others.map(Score::to_string).collect();
        tiles.push(tile("Validation loss", &loss(self.score(LOSS.key)), &others.join(", ")));
        let accuracy = self.training.and_then(|means| means.top1);
        let accuracy = accuracy.map(|top1| format!("training accuracy {}", format::percent(top1)));
        let over = self.training.map(|_| match self.training_epoch {
            Some(epoch) => format!("mean over the steps of epoch {epoch}"),
            None => "mean over the steps so far".to_string(),
        });
        let notes: Vec<String> = over.into_iter().chain(accuracy).collect();
        tiles.push(tile("Training loss", &loss(self.training.map(|means| means.loss)), &notes.join("; ")));
        let speed =
            self.speed.map(|speed| format!("{} {}/s", format::thousands(speed as u64), self.unit)).unwrap_or_default();
        tiles.push(tile("Time", &format::seconds(self.seconds), &speed));
        let parameters = self.parameters.map_or("unknown".to_string(), |count| format::thousands(count as u64));
        tiles.push(tile("Parameters", &parameters, ""));
        format!("<div class=\"headline\">{}</div>", tiles.concat())
    }

    /// How the last evaluation compares with the best.
    fn about_best(&self, last: Score) -> Option<String> {
        let (best, epoch) = (self.best?, self.best_epoch?);
        Some(match best.value == last.value {
            true => {
                let so_far = if self.state == State::Running { " so far" } else { "" };
                format!("the best{so_far}, after epoch {epoch:.0}")
            }
            false => format!("best {} after epoch {epoch:.0}", best.metric.text(best.value)),
        })
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

/// What the speed of a run is measured in.
pub fn speed_unit(run: &RunRecord) -> String {
    run.history.training.last().map_or("samples".to_string(), |line| line.unit.clone())
}

/// The name of the number that will decide, for a run without an evaluation.
fn expected_score(run: &RunRecord) -> String {
    let metrics = run.recipe.as_ref().map_or(&[][..], |recipe| recipe.task.metrics());
    metrics
        .iter()
        .find(|metric| metric.decides)
        .map_or("Validation".to_string(), |metric| format!("Validation {}", metric.label))
}

/// The size of the saved model, for runs that did not record it.
fn saved_parameters(run: &RunRecord) -> Option<usize> {
    let archive = Archive::open(&run.path.join("model/model.safetensors")).ok()?;
    Some(archive.tensors().map(|tensor| tensor.shape.iter().product::<usize>()).sum())
}
