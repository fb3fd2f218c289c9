//! The metrics of a run for TensorBoard.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::TrainError;
use crate::metrics::{EvaluationMetrics, GradientMetrics, TrainingMetrics};
use crate::tensorboard::EventWriter;
use crate::watch::WatchMetrics;

/// An event file of a run. A resumed run begins another file, and TensorBoard reads all of them as one run.
pub(crate) struct Events {
    /// None on a rank that does not write.
    writer: Option<EventWriter>,
}

impl Events {
    pub fn open(directory: &Path, recipe: &str, step: u64) -> Result<Events, TrainError> {
        let failed = TrainError::io(directory, "the file for TensorBoard");
        let mut writer = EventWriter::create(directory, "vitreous").map_err(failed)?;
        let begin = |writer: &mut EventWriter| match step {
            0 => writer.text(0, now(), "recipe", &format!("```\n{recipe}```")),
            // TensorBoard forgets what was written of later steps, which are run again.
            step => writer.start(step + 1, now()),
        };
        begin(&mut writer).map_err(TrainError::io(directory, "the file for TensorBoard"))?;
        Ok(Events { writer: Some(writer) })
    }

    /// Those of a rank that does not write.
    pub fn nowhere() -> Events {
        Events { writer: None }
    }

    pub fn training(&mut self, metrics: &TrainingMetrics) -> Result<(), TrainError> {
        let speed = format!("speed/{}_per_second", metrics.unit);
        let mut values = vec![
            ("loss/train", metrics.loss as f32),
            ("learning_rate", metrics.lr as f32),
            ("gradient_norm", metrics.grad_norm as f32),
            ("speed/data_wait", metrics.data_wait as f32),
            ("speed/peak_share", metrics.peak_share as f32),
            (&speed, metrics.speed as f32),
        ];
        values.extend(metrics.rank_wait.map(|share| ("speed/rank_wait", share as f32)));
        values.extend(metrics.top1.map(|top1| ("accuracy/train", top1 as f32)));
        if let Some(means) = &metrics.of_epoch {
            values.push(("loss/train_epoch", means.loss as f32));
            values.extend(means.top1.map(|top1| ("accuracy/train_epoch", top1 as f32)));
        }
        self.write(metrics.step, &values)
    }

    pub fn evaluation(&mut self, metrics: &EvaluationMetrics) -> Result<(), TrainError> {
        let tag = |label: &str| format!("{}/validation", label.to_lowercase().replace([' ', '-'], "_"));
        let scores: Vec<(String, f32)> =
            metrics.scores.iter().map(|score| (tag(score.metric.label), score.value as f32)).collect();
        let values: Vec<(&str, f32)> = scores.iter().map(|(tag, value)| (tag.as_str(), *value)).collect();
        self.write(metrics.step, &values)
    }

    pub fn gradients(&mut self, metrics: &GradientMetrics) -> Result<(), TrainError> {
        let tags: Vec<(String, f32)> =
            metrics.gradient_norms.iter().map(|(name, norm)| (format!("gradients/{name}"), *norm as f32)).collect();
        let values: Vec<(&str, f32)> = tags.iter().map(|(tag, norm)| (tag.as_str(), *norm)).collect();
        self.write(metrics.step, &values)
    }

    pub fn watched(&mut self, metrics: &WatchMetrics) -> Result<(), TrainError> {
        let mut tags: Vec<(String, f32)> = Vec::new();
        let of = |kind: &str, values: &std::collections::BTreeMap<String, f64>| -> Vec<(String, f32)> {
            values.iter().map(|(name, value)| (format!("{kind}/{name}"), *value as f32)).collect()
        };
        tags.extend(of("update_ratio", &metrics.update_ratios));
        tags.extend(of("dead_units", &metrics.dead_units));
        for (kind, all) in [("attention_entropy", &metrics.attention_entropy), ("induction", &metrics.induction)] {
            for (name, heads) in all {
                let head = |(head, value): (usize, &f64)| (format!("{kind}/{name}.heads.{head}"), *value as f32);
                tags.extend(heads.iter().enumerate().map(head));
            }
        }
        let values: Vec<(&str, f32)> = tags.iter().map(|(tag, value)| (tag.as_str(), *value)).collect();
        self.write(metrics.step, &values)
    }

    fn write(&mut self, step: u64, values: &[(&str, f32)]) -> Result<(), TrainError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let written = writer.scalars(step, now(), values).and_then(|()| writer.flush());
        written.map_err(TrainError::io(writer.path(), "cannot be written"))
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
