//! Checkpoints: everything that is needed to resume a run as if it had never stopped.
//!
//! A checkpoint is one safetensors file: `parameters/NAME`, the optimizer's moments `first/NAME` and `second/NAME`, the moving
//! average `average/NAME`, and in the metadata the progress of the run, what it was trained with, and a checksum of all of that. Random numbers have no state: they are functions of the seed
//! and the step. Files are written under another name, synced and renamed, so a file with a checkpoint's name is complete.

use std::borrow::Cow;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vitreous_engine::{Parameter, State};
use vitreous_models::archive::{Archive, ArchiveError, ElementType, TensorToWrite, write_safetensors};

use crate::error::TrainError;
use crate::fingerprint::{Fingerprint, Mark};
use crate::run_directory::CHECKPOINTS;

const PREFIX: &str = "step-";
const SUFFIX: &str = ".safetensors";
const PROGRESS: &str = "vitreous.progress";
const FINGERPRINT: &str = "vitreous.fingerprint";
/// Of metadata, names, shapes and values.
const CHECKSUM: &str = "vitreous.checksum";
/// Of the values alone: all that version 0.1 has.
const VALUES_CHECKSUM: &str = "vitreous.crc32c";

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Updates so far.
    pub step: u64,
    /// Training samples: the order of an epoch follows from their number.
    #[serde(alias = "images")]
    pub samples: usize,
    /// The best score of an evaluation so far, and its step.
    pub best: Option<(f64, u64)>,
    /// Sum of the losses since the last line of metrics.
    pub loss_sum: f64,
    /// Right answers since then, where an answer can be right.
    pub right: u64,
    /// All answers since then.
    #[serde(default)]
    pub asked: u64,
    /// Updates since then.
    #[serde(default)]
    pub updates: u64,
}

/// How often the values of a checkpoint are read while it is saved: for their checksum, and to be written.
pub(crate) const READS: usize = 2;

/// Gives the first or the second moments of a parameter, by its number.
pub(crate) type MomentsOf<'m> = dyn Fn(usize, bool) -> Result<Vec<f32>, TrainError> + 'm;

/// What a checkpoint has: all values of a state.
pub struct Values<'v> {
    /// The state.
    pub state: &'v State,
    /// Where its moments come from, if it does not have all of them. They are read `READS` times, in the order of the file.
    pub moments: Option<&'v MomentsOf<'v>>,
}

impl<'v> Values<'v> {
    /// The buffers with their parameters, in the order of the file: the buffer, and number and entry of the parameter.
    fn all(&self) -> impl Iterator<Item = (&'static str, usize, &'v Parameter)> + use<'v> {
        let state = self.state;
        let [first, second] = match self.moments {
            Some(_) => state.all_moments(),
            None => [state.moments().0.len(), state.moments().1.len()],
        };
        let sizes = [state.parameters().len(), first, second, state.averages().len()];
        let sections =
            ["parameters", "first", "second", "average"].into_iter().zip(sizes).filter(|(_, size)| *size > 0);
        sections.flat_map(move |(section, _)| {
            let table = state.table().iter().enumerate();
            let there = table.filter(move |(_, parameter)| range_in(section, parameter).is_some());
            there.map(move |(index, parameter)| (section, index, parameter))
        })
    }

    /// The values of a parameter in a buffer.
    fn read(&self, section: &str, index: usize) -> Result<Cow<'v, [f32]>, TrainError> {
        let state = self.state;
        let (first, second) = state.moments();
        let buffer = match (section, self.moments) {
            ("first" | "second", Some(moments)) => return moments(index, section == "second").map(Cow::Owned),
            ("first", None) => first,
            ("second", None) => second,
            ("average", _) => state.averages(),
            _ => state.parameters(),
        };
        Ok(Cow::Borrowed(range_in(section, &state.table()[index]).map_or(&[], |range| &buffer[range])))
    }

    /// CRC-32C of all values, parameter by parameter.
    fn checksum(&self) -> Result<u32, TrainError> {
        let add = |sum: u32, (section, index, _): (&str, usize, &Parameter)| {
            Ok(crc32c::crc32c_append(sum, bytemuck::cast_slice(&self.read(section, index)?)))
        };
        self.all().try_fold(0, add)
    }
}

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    directory: PathBuf,
    keep: usize,
    /// Every run of a recipe saves those of multiples of these steps.
    regular: Vec<u64>,
}

impl Checkpoints {
    /// Those in a directory, of which the last few are kept.
    pub fn new(directory: &Path, keep: usize) -> Checkpoints {
        Checkpoints { directory: directory.to_path_buf(), keep: keep.max(1), regular: vec![1] }
    }

    /// Those of a run, by its directory.
    pub fn of_run(run: &Path) -> Checkpoints {
        Checkpoints::new(&run.join(CHECKPOINTS), 1)
    }

    /// Sets at multiples of which steps every run of the recipe saves one (0: none). Others are saved because a run was stopped or
    /// because time has passed. They are kept only until the next one, and are not averaged: the result of a run must not depend on
    /// them.
    pub fn regular_at(self, steps: [u64; 2]) -> Checkpoints {
        Checkpoints { regular: steps.to_vec(), ..self }
    }

    fn is_regular(&self, step: u64) -> bool {
        self.regular.iter().any(|&every| every > 0 && step.is_multiple_of(every))
    }

    /// Saves a checkpoint into the directory, which must exist, then removes the oldest beyond those that are kept.
    pub fn save(&self, values: &Values, progress: &Progress, fingerprint: &Fingerprint) -> Result<PathBuf, TrainError> {
        let path = self.directory.join(format!("{PREFIX}{:010}{SUFFIX}", progress.step));
        let progress = serde_json::to_string(progress).expect("plain data");
        let fingerprint = serde_json::to_string(fingerprint).expect("plain data");
        let of_values = values.checksum()?;
        let sum = checksum(values, of_values, &[&progress, &fingerprint]);
        let sums = [(CHECKSUM, sum.to_string()), (VALUES_CHECKSUM, of_values.to_string())];
        let metadata = [(PROGRESS, progress), (FINGERPRINT, fingerprint)].into_iter().chain(sums);
        let metadata = metadata.map(|(key, value)| (key.to_string(), value)).collect();
        let file = &path;
        let tensors = values.all().map(|(section, index, parameter)| {
            let bytes = move || match values.read(section, index) {
                Ok(Cow::Borrowed(numbers)) => Ok(Cow::Borrowed(bytemuck::cast_slice(numbers))),
                Ok(Cow::Owned(numbers)) => Ok(Cow::Owned(bytemuck::cast_slice(&numbers).to_vec())),
                Err(error) => {
                    let source = std::io::Error::other(error.to_string());
                    Err(ArchiveError::Io { file: file.clone(), doing: "write", source })
                }
            };
            let name = format!("{section}/{}", parameter.name);
            TensorToWrite::new(name, parameter.shape.axes(), ElementType::F32, bytes)
        });
        write_safetensors(&path, tensors, &metadata).map_err(|error| of_archive(&path, error))?;
        let mut before = self.all()?;
        before.pop();
        let (regular, others): (Vec<_>, Vec<_>) = before.into_iter().partition(|(step, _)| self.is_regular(*step));
        for (_, old) in regular.into_iter().rev().skip(self.keep - 1).chain(others) {
            // One file too many does no harm.
            let _ = fs::remove_file(old);
        }
        Ok(path)
    }

    /// All of them, by step.
    pub fn all(&self) -> Result<Vec<(u64, PathBuf)>, TrainError> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(TrainError::io(&self.directory, "cannot be read"))?,
        };
        let step_of =
            |path: &Path| path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse::<u64>().ok();
        let paths = entries.flatten().map(|entry| entry.path());
        let mut found: Vec<_> = paths.filter_map(|path| Some((step_of(&path)?, path))).collect();
        found.sort();
        Ok(found)
    }

    /// The mean of a state's parameters and those of this many of the last regular checkpoints before it; `None` without checkpoints.
    pub fn average_with(&self, state: &State, before: usize) -> Result<Option<State>, TrainError> {
        let mut all = self.all()?;
        all.retain(|(step, _)| self.is_regular(*step));
        let last = &all[all.len().saturating_sub(before)..];
        if last.is_empty() {
            return Ok(None);
        }
        let mut mean = state.parameters_alone()?;
        let weight = 1.0 / (last.len() + 1) as f32;
        mean.parameters_mut().iter_mut().for_each(|number| *number *= weight);
        for (_, path) in last {
            let archive = Archive::open(path).map_err(|error| of_archive(path, error))?;
            for parameter in state.table() {
                let tensor = archive.tensor(&format!("parameters/{}", parameter.name));
                let values = tensor.and_then(|tensor| tensor.to_f32()).map_err(|error| of_archive(path, error))?;
                let sums = mean.parameter_mut(&parameter.name)?;
                sums.iter_mut().zip(values.iter()).for_each(|(sum, value)| *sum += weight * value);
            }
        }
        Ok(Some(mean))
    }

    /// Restores the latest one into a state; `None` if there is none. Checkpoints of version 0.1 have no fingerprint.
    /// Where its values do not fit the state, `now`, what the run would be trained with, tells why.
    pub fn restore(
        &self,
        state: &mut State,
        now: &Fingerprint,
    ) -> Result<Option<(Progress, Option<Fingerprint>)>, TrainError> {
        let mut all = self.all()?;
        let Some((step, path)) = all.pop() else { return Ok(None) };
        restore(&path, step, state, now).map(Some).map_err(|error| match error {
            TrainError::Checkpoint { path, what } => {
                let advice = match all.pop() {
                    Some((step, _)) => format!("remove it to resume from the one before, of step {step}"),
                    None => "remove it to start again: there is no other".to_string(),
                };
                TrainError::Checkpoint { path, what: format!("{what}. If it is damaged, {advice}") }
            }
            other => other,
        })
    }
}

fn restore(
    path: &Path,
    step: u64,
    state: &mut State,
    now: &Fingerprint,
) -> Result<(Progress, Option<Fingerprint>), TrainError> {
    let broken = |what: String| TrainError::Checkpoint { path: path.to_path_buf(), what };
    let archive = Archive::open(path).map_err(|error| of_archive(path, error))?;
    let text = archive.metadata().get(PROGRESS);
    let text = text.ok_or_else(|| broken("this is not a checkpoint of a training run".to_string()))?;
    let damaged = |error: serde_json::Error| broken(format!("its metadata is damaged: {error}"));
    let progress: Progress = serde_json::from_str(text).map_err(damaged)?;
    let marks = archive.metadata().get(FINGERPRINT);
    let fingerprint: Option<Fingerprint> =
        marks.map(|marks| serde_json::from_str(marks)).transpose().map_err(damaged)?;
    let misfit = |what: String| match fingerprint.as_ref().map(|saved| now.differences_from(saved)) {
        Some(changes) if !changes.is_empty() => TrainError::Changed { path: path.to_path_buf(), changes },
        _ => broken(what),
    };
    if progress.step != step {
        return Err(broken(format!("it says that it is of step {}, but its name says {step}", progress.step)));
    }
    let wanted: Vec<(&str, usize)> =
        Values { state, moments: None }.all().map(|(section, index, _)| (section, index)).collect();
    for &(section, index) in &wanted {
        let parameter = &state.table()[index];
        let (name, shape) = (format!("{section}/{}", parameter.name), &parameter.shape);
        let tensor = archive.tensor(&name).map_err(|error| of_archive(path, error))?;
        if tensor.shape != shape.axes() {
            return Err(misfit(format!("`{name}` is {:?}, but the recipe's model has {shape}", tensor.shape)));
        }
        let Some(range) = range_in(section, parameter) else { continue };
        tensor.read_into(&mut section_mut(state, section)[range]).map_err(|error| of_archive(path, error))?;
    }
    if archive.len() != wanted.len() {
        return Err(misfit("it has more values than the recipe's model and optimizer".to_string()));
    }
    let values = Values { state, moments: None };
    let of_values = values.checksum()?;
    let expected = match (archive.metadata().get(CHECKSUM), marks) {
        (Some(sum), Some(marks)) => (sum, checksum(&values, of_values, &[text, marks])),
        (None, None) => match archive.metadata().get(VALUES_CHECKSUM) {
            Some(sum) => (sum, of_values),
            None => return Err(broken("it has no checksum".to_string())),
        },
        _ => return Err(broken("a part of its metadata is missing".to_string())),
    };
    match *expected.0 == expected.1.to_string() {
        true => Ok((progress, fingerprint)),
        false => Err(broken("it is not what was saved: the checksum differs".to_string())),
    }
}

/// CRC-32C of metadata, names, shapes and values, so that a file that a failing disk or an editor has changed is noticed.
fn checksum(values: &Values, of_values: u32, metadata: &[&str]) -> u32 {
    let mut mark = Mark::of(metadata);
    for (section, _, parameter) in values.all() {
        mark.add(format!("{section}/{} {}", parameter.name, parameter.shape).as_bytes());
    }
    mark.add(&of_values.to_le_bytes());
    mark.sum()
}

fn section_mut<'s>(state: &'s mut State, section: &str) -> &'s mut [f32] {
    match section {
        "parameters" => state.parameters_mut(),
        "first" => state.moments_mut().0,
        "second" => state.moments_mut().1,
        _ => state.averages_mut(),
    }
}

/// The range of a parameter in a buffer. Only trained parameters have moments.
fn range_in(section: &str, parameter: &Parameter) -> Option<Range<usize>> {
    let start = match section {
        "first" | "second" => parameter.gradient_offset?,
        _ => parameter.offset,
    };
    Some(start..start + parameter.shape.elements())
}

/// Keeps the error of a full disk recognisable.
fn of_archive(path: &Path, error: ArchiveError) -> TrainError {
    match error {
        ArchiveError::Io { file, source, .. } => TrainError::Io { path: file, what: "the checkpoint", source },
        // The path is named once.
        ArchiveError::Damaged { what, .. } => TrainError::Checkpoint { path: path.to_path_buf(), what },
        other => TrainError::Checkpoint { path: path.to_path_buf(), what: other.to_string() },
    }
}
