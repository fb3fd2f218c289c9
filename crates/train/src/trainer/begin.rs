//! Where a run begins: with initial values, or where its last checkpoint was saved.

use vitreous_engine::{Floats, State};

use crate::checkpoint::{Checkpoints, Progress};
use crate::error::TrainError;
use crate::fingerprint::Fingerprint;
use crate::ranks::{Ranks, agree_on_parameters};
use crate::run_directory::RunDirectory;
use crate::stepper::Stepper;
use crate::task::Task;

/// What there may be to resume from.
pub(super) struct Saved<'s> {
    /// The run directory, on rank 0.
    pub directory: Option<&'s RunDirectory>,
    pub checkpoints: &'s Checkpoints,
    /// What the run is trained with now.
    pub fingerprint: &'s Fingerprint,
}

/// Fills a state: with initial values or, on all ranks, with the last checkpoint, which rank 0 reads. Gives the progress, and in what
/// the run now differs from its checkpoint, if that is accepted.
pub(super) fn begin(
    task: &dyn Task,
    stepper: &Stepper,
    state: &mut State,
    ranks: &Ranks,
    saved: Saved,
    accept_changes: bool,
) -> Result<(Progress, Vec<String>), TrainError> {
    let samples = task.facts().samples;
    let (mut restored, mut moments, mut accepted) = (None, None, Vec::new());
    if let Some(directory) = saved.directory {
        // A checkpoint has the moments of all ranks.
        if state.shard().is_some() {
            let [first, second] = state.all_moments();
            moments = Some(state.exchange_moments(Floats::zeroed(first)?, Floats::zeroed(second)?));
        }
        let found = saved.checkpoints.restore(state, saved.fingerprint)?;
        moments = moments.map(|(first, second)| state.exchange_moments(first, second));
        if let Some((progress, fingerprint)) = found {
            accepted = changes(&progress, fingerprint.as_ref(), samples, saved.fingerprint);
            if !accepted.is_empty() && !accept_changes {
                return Err(TrainError::Changed { path: directory.path().to_path_buf(), changes: accepted });
            }
            restored = Some(progress);
        }
    }
    let progress = match ranks.from_first(saved.directory.map(|_| restored))? {
        Some(progress) => {
            take_from_first(ranks, state)?;
            stepper.hand_out_moments(moments.as_ref(), state)?;
            progress
        }
        None => {
            task.initialise(state)?;
            Progress::default()
        }
    };
    agree_on_parameters(ranks, state)?;
    Ok((Progress { samples, ..progress }, accepted))
}

/// All numbers of a state that was restored by rank 0, but for moments that are shared out.
fn take_from_first(ranks: &Ranks, state: &mut State) -> Result<(), TrainError> {
    ranks.numbers_from_first(state.parameters_mut())?;
    if state.shard().is_none() {
        let (first, second) = state.moments_mut();
        ranks.numbers_from_first(first)?;
        ranks.numbers_from_first(second)?;
    }
    ranks.numbers_from_first(state.averages_mut())
}

/// In what a run that is resumed differs from its checkpoint.
fn changes(progress: &Progress, saved: Option<&Fingerprint>, samples: usize, now: &Fingerprint) -> Vec<String> {
    let mut changes = saved.map(|saved| now.differences_from(saved)).unwrap_or_default();
    if progress.samples != samples {
        changes.insert(0, format!("there are {samples} training samples, but there were {}", progress.samples));
    }
    changes
}
