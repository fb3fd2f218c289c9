//! The learning rate schedule: the rate as a function of the step.
//!
//! Steps count from 0. In the warm-up of `w` steps the rate is `lr (s + 1) / w`; then, with `p = (s - w) / (steps - w)`:
//!
//! | kind | rate |
//! |---|---|
//! | cosine | `end + (lr - end) (1 + cos πp) / 2` |
//! | linear | `end + (lr - end) (1 - p)` |
//! | constant | `lr` |
//! | inverse_sqrt | `lr √(w / (s + 1))`, the rate of "Attention is all you need" (w = 1 without a warm-up) |

use crate::recipe::{ScheduleKind, ScheduleSettings};

/// The learning rate of every step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The form of the schedule after the warm-up.
    pub kind: ScheduleKind,
    /// The rate after the warm-up.
    pub lr: f64,
    /// The rate at the end.
    pub final_lr: f64,
    /// Steps of the warm-up.
    pub warmup: u64,
    /// All steps.
    pub steps: u64,
}

impl Schedule {
    /// The schedule of a recipe with this learning rate, for epochs of this many steps.
    pub fn new(settings: &ScheduleSettings, lr: f64, epochs: u64, steps_per_epoch: u64) -> Schedule {
        let steps = epochs.saturating_mul(steps_per_epoch);
        let warmup = match settings.warmup_steps {
            0 => (settings.warmup_epochs * steps_per_epoch as f64).round() as u64,
            steps => steps,
        };
        let final_lr = settings.final_lr;
        // The paper's rate does not depend on the length of the run; a schedule with an end must reach it.
        let warmup = if settings.kind == ScheduleKind::InverseSqrt { warmup } else { warmup.min(steps) };
        Schedule { kind: settings.kind, lr, final_lr, warmup, steps }
    }

    /// The rate of a step.
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.lr * (step + 1) as f64 / self.warmup as f64;
        }
        let progress = (step - self.warmup) as f64 / self.steps.saturating_sub(self.warmup).max(1) as f64;
        let falling = self.lr - self.final_lr;
        match self.kind {
            ScheduleKind::Cosine => self.final_lr + falling * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
            ScheduleKind::Linear => self.final_lr + falling * (1.0 - progress),
            ScheduleKind::Constant => self.lr,
            ScheduleKind::InverseSqrt => self.lr * (self.warmup.max(1) as f64 / (step + 1) as f64).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 5.3 of the paper: `dim^-0.5 min(step^-0.5, step warmup^-1.5)`, steps counted from 1.
    #[test]
    fn the_papers_rate_is_the_same_however_soon_a_run_ends() {
        let (dim, warmup) = (256.0f64, 1500.0f64);
        let settings =
            ScheduleSettings { kind: ScheduleKind::InverseSqrt, warmup_epochs: 0.0, warmup_steps: 1500, final_lr: 0.0 };
        for epochs in [1, 100] {
            let schedule = Schedule::new(&settings, 1.0 / (dim * warmup).sqrt(), epochs, 100);
            for step in [1, 2, 57, 100, 1499, 1500, 1501, 9000].into_iter().filter(|&step| step <= 100 * epochs) {
                let number = step as f64;
                let expected = dim.powf(-0.5) * number.powf(-0.5).min(number * warmup.powf(-1.5));
                let rate = schedule.rate(step - 1);
                assert!((rate / expected - 1.0).abs() < 1e-12, "step {step} of {epochs} epochs: {rate}, {expected}");
            }
        }
        // A schedule with an end reaches it.
        let cosine = ScheduleSettings { kind: ScheduleKind::Cosine, ..settings };
        assert_eq!(Schedule::new(&cosine, 1.0, 1, 100).warmup, 100);
    }
}
