//! Recordings that fit into one window of a speech model, with their spectrograms.

use std::path::Path;

use rayon::prelude::*;

use super::decode::AudioSource;
use super::error::AudioError;
use super::spectrogram::{Behind, FRAMES_PER_SECOND, Spectrogram};
use super::transcripts::{TranscribedAudio, read_transcripts};
use crate::dataset::{TEST_NAMES, TRAIN_NAMES, VALIDATION_NAMES, counted, extension, is_drawn, list, name_hash};
use crate::loader::BrokenSample;

/// Recordings, split for training and validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscribedSplits {
    /// What a model is trained on.
    pub train: Vec<TranscribedAudio>,
    /// What it is evaluated with; may be empty.
    pub validation: Vec<TranscribedAudio>,
    /// What a user should know about how they were read.
    pub notes: Vec<String>,
}

/// Opens a list of recordings, of which a share is drawn for validation, or a folder with lists `train.csv` and `validation.csv`. An error
/// names the file.
pub fn open_transcripts(path: &Path, validation_share: f64) -> Result<TranscribedSplits, String> {
    let read = |list: &Path| read_transcripts(list).map_err(|error| format!("{}: {error}", list.display()));
    let mut splits = TranscribedSplits::default();
    if path.is_dir() {
        let files = list(path).map_err(|error| error.to_string())?.files;
        let lists = files
            .iter()
            .filter(|file| matches!(extension(file).as_deref(), Some("csv" | "tsv" | "jsonl" | "ndjson" | "json")));
        let named = |names: &[&str]| {
            lists.clone().find(|file| {
                let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_ascii_lowercase();
                names.contains(&stem.as_str())
            })
        };
        let Some(train) = named(&TRAIN_NAMES) else {
            let what = "this folder has no train.csv (or .tsv, .jsonl): give a list of recordings, or a folder with train.csv and validation.csv";
            return Err(format!("{}: {what}", path.display()));
        };
        splits.train = read(train)?;
        // A test list is used where there is no other to validate with.
        match named(&VALIDATION_NAMES).or(named(&TEST_NAMES)) {
            Some(validation) => {
                splits.validation = read(validation)?;
                return Ok(splits);
            }
            None => splits.notes.push("there is no validation.csv".to_string()),
        }
    } else {
        splits.train = read(path)?;
    }
    // By what is said, so that a sentence that several people say is in one split.
    let is_held_out =
        |recording: &TranscribedAudio| is_drawn(name_hash(recording.text.to_lowercase().as_bytes()), validation_share);
    (splits.validation, splits.train) = std::mem::take(&mut splits.train).into_iter().partition(is_held_out);
    splits.notes.push(match splits.validation.len() {
        0 => "no recordings are held out for validation".to_string(),
        _ => format!("{} % of the recordings, drawn by their texts, are for validation", 100.0 * validation_share),
    });
    Ok(splits)
}

/// Recordings of at most one window. Each is read once when they are opened, so that none fails in the middle of a run; as many
/// spectrograms as there is memory for are kept, and the others are computed again when they are needed.
#[derive(Debug)]
pub struct SpeechClips {
    recordings: Vec<TranscribedAudio>,
    bins: usize,
    frames: usize,
    seconds: f64,
    kept: Vec<Option<Clip>>,
}

/// The part of a window that a recording fills, and the value of all others.
#[derive(Clone, Debug)]
struct Clip {
    values: Vec<f32>,
    silence: f32,
}

impl SpeechClips {
    /// Reads recordings as windows of so many frames of so many bins. Those that are longer or cannot be read are left out, and named.
    /// At most `keep_bytes` of spectrograms are kept.
    pub fn read(
        recordings: Vec<TranscribedAudio>,
        [frames, bins]: [usize; 2],
        keep_bytes: u64,
    ) -> (SpeechClips, Vec<BrokenSample>) {
        let mut clips = SpeechClips { recordings: Vec::new(), bins, frames, seconds: 0.0, kept: Vec::new() };
        let mut left_out = Vec::new();
        let mut room = keep_bytes;
        // In parts, so that no more is in memory than is kept.
        const AT_ONCE: usize = 64;
        for part in recordings.chunks(AT_ONCE) {
            let read: Vec<Result<(Clip, usize), AudioError>> =
                part.par_iter().map(|recording| read_clip(&recording.path, frames, bins)).collect();
            for (recording, read) in part.iter().zip(read) {
                match read {
                    Ok((clip, length)) => {
                        let bytes = size_of_val(&clip.values[..]) as u64;
                        clips.kept.push((bytes <= room).then_some(clip));
                        room = room.saturating_sub(bytes);
                        clips.seconds += length as f64 / FRAMES_PER_SECOND as f64;
                        clips.recordings.push(recording.clone());
                    }
                    Err(error) => left_out
                        .push(BrokenSample { name: recording.path.display().to_string(), reason: error.to_string() }),
                }
            }
        }
        (clips, left_out)
    }

    /// What was read.
    pub fn recordings(&self) -> &[TranscribedAudio] {
        &self.recordings
    }

    /// Number of recordings.
    pub fn len(&self) -> usize {
        self.recordings.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.recordings.is_empty()
    }

    /// How long all of them are together.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Memory of the spectrograms that are kept.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.iter().flatten().map(|clip| size_of_val(&clip.values[..]) as u64).sum()
    }

    /// Frames and bins of a window.
    pub fn window_shape(&self) -> [usize; 2] {
        [self.frames, self.bins]
    }

    /// Only the recordings for which this is so.
    pub fn retain(&mut self, mut keep: impl FnMut(&TranscribedAudio) -> bool) {
        let all = self.recordings.drain(..).zip(self.kept.drain(..));
        let kept: Vec<_> = all.filter(|(recording, _)| keep(recording)).collect();
        (self.recordings, self.kept) = kept.into_iter().unzip();
    }

    /// Writes the window of a recording `[frames, bins]`; gives how many of its frames the recording fills.
    pub fn window(&self, index: usize, to: &mut [f32]) -> Result<usize, AudioError> {
        let read;
        let clip = match &self.kept[index] {
            Some(clip) => clip,
            None => {
                read = read_clip(&self.recordings[index].path, self.frames, self.bins)?.0;
                &read
            }
        };
        to[..clip.values.len()].copy_from_slice(&clip.values);
        to[clip.values.len()..].fill(clip.silence);
        Ok(clip.values.len() / self.bins)
    }
}

/// The spectrogram of a file, and its length in frames.
fn read_clip(path: &Path, frames: usize, bins: usize) -> Result<(Clip, usize), AudioError> {
    let mut spectrogram = Spectrogram::open(&AudioSource::File(path.to_path_buf()), bins)?;
    let most = frames as f64 / FRAMES_PER_SECOND as f64;
    let length = match spectrogram.length() {
        Some(length) if length <= frames => length,
        length => {
            let seconds = length.map_or(0.0, |length| length as f64 / FRAMES_PER_SECOND as f64);
            return Err(AudioError::TooLong { seconds, most });
        }
    };
    let mut window = vec![0.0; frames * bins];
    spectrogram.window(0, usize::MAX, Behind::Silence, &mut window)?;
    let silence = window.last().copied().unwrap_or(0.0);
    let silent = window.rchunks_exact(bins).take_while(|frame| frame.iter().all(|&value| value == silence)).count();
    window.truncate((frames - silent) * bins);
    window.shrink_to_fit();
    Ok((Clip { values: window, silence }, length))
}

/// What was left out of a list, in a sentence; `None` if nothing was.
pub fn left_out_note(left_out: &[BrokenSample]) -> Option<String> {
    let first = left_out.first()?;
    Some(format!(
        "{} left out; the first is {}: {}",
        counted(left_out.len(), "recording is", "recordings are"),
        first.name,
        first.reason
    ))
}
