//! The log-mel spectrogram of a recording, computed while the recording is read and forgotten when it was used.

use std::io::Read;

use super::SAMPLE_RATE;
use super::decode::{AudioReader, AudioSource};
use super::error::AudioError;
use super::mel::{FRAME_SAMPLES, HOP, LogMel, SILENCE, normalised};

/// Frames per second.
pub const FRAMES_PER_SECOND: usize = SAMPLE_RATE as usize / HOP;
/// Floats of spectrograms that are kept whole: 35 minutes of 80 bins. Longer recordings are read twice.
const MOST_KEPT: usize = 1 << 24;

/// What frames behind the end of a recording are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Zeros, as OpenAI's transcription has them.
    Zero,
    /// Silence, as OpenAI's language detection and the features of `transformers` have it.
    Silence,
}

/// A spectrogram that is read from its beginning to its end. The values of a recording depend on its loudest frame: that is known
/// beforehand, but for what comes through a pipe, where it is the loudest one so far.
pub struct Spectrogram {
    samples: Samples,
    mel: LogMel,
    /// Samples from the beginning of the next frame on.
    waiting: Vec<f32>,
    /// Whether the samples before the first, which mirror those behind it, were among them.
    begun: bool,
    /// Frames computed so far, and how many of them were dropped from `frames`.
    count: usize,
    dropped: usize,
    /// `[frames, bins]`, from frame `dropped` on.
    frames: Vec<f32>,
    loudest: f32,
    /// Samples of the recording so far.
    samples_read: u64,
    ended: bool,
    /// Whether it ends where it can be read no further, and why it did.
    ends_at_failure: bool,
    failure: Option<AudioError>,
}

enum Samples {
    Reader(Box<AudioReader>),
    Given { samples: Vec<f32>, place: usize },
}

impl std::fmt::Debug for Spectrogram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Spectrogram of {} bins at frame {}", self.mel.bins(), self.count)
    }
}

impl Spectrogram {
    /// Of a file or its content, which are read twice if they are long.
    pub fn open(source: &AudioSource, bins: usize) -> Result<Spectrogram, AudioError> {
        Spectrogram::open_within(source, bins, f64::INFINITY)
    }

    /// As [`Spectrogram::open`], of a recording of at most so many seconds: of a longer one no more is read, also where it does not state
    /// its length.
    pub fn open_within(source: &AudioSource, bins: usize, most_seconds: f64) -> Result<Spectrogram, AudioError> {
        let mut first = Spectrogram::new(Samples::Reader(Box::new(source.open()?)), bins)?;
        let kept = MOST_KEPT / bins;
        let stated = first.stated_seconds().unwrap_or(0.0);
        while !first.ended {
            let read = first.samples_read as f64 / f64::from(SAMPLE_RATE);
            if stated.max(read) > most_seconds {
                return Err(AudioError::MoreThanTaken { most_seconds });
            }
            first.read_to(first.count + 1)?;
            if first.count > kept {
                first.forget_before(first.count);
            }
        }
        if first.dropped == 0 {
            return Ok(first);
        }
        let mut again = Spectrogram::new(Samples::Reader(Box::new(source.open()?)), bins)?;
        again.loudest = first.loudest;
        Ok(again)
    }

    /// Of what comes from a pipe. Where it can be read no further it ends, and [`Spectrogram::failure`] says why: it cannot be read again.
    pub fn of_stream(reader: impl Read + Send + Sync + 'static, bins: usize) -> Result<Spectrogram, AudioError> {
        let spectrogram = Spectrogram::new(Samples::Reader(Box::new(AudioReader::from_reader(reader)?)), bins)?;
        Ok(Spectrogram { ends_at_failure: true, ..spectrogram })
    }

    /// Of samples of one channel and [`SAMPLE_RATE`].
    pub fn of_samples(samples: Vec<f32>, bins: usize) -> Result<Spectrogram, AudioError> {
        if let Some(place) = samples.iter().position(|sample| !sample.is_finite()) {
            let at = std::time::Duration::from_secs_f64(place as f64 / f64::from(SAMPLE_RATE));
            return Err(AudioError::NotFinite { at });
        }
        let mut spectrogram = Spectrogram::new(Samples::Given { samples, place: 0 }, bins)?;
        spectrogram.read_to(usize::MAX)?;
        Ok(spectrogram)
    }

    fn new(samples: Samples, bins: usize) -> Result<Spectrogram, AudioError> {
        Ok(Spectrogram {
            samples,
            mel: LogMel::new(bins)?,
            waiting: Vec::new(),
            begun: false,
            count: 0,
            dropped: 0,
            frames: Vec::new(),
            loudest: SILENCE,
            samples_read: 0,
            ended: false,
            ends_at_failure: false,
            failure: None,
        })
    }

    /// Number of mel bins.
    pub fn bins(&self) -> usize {
        self.mel.bins()
    }

    /// Frames of the whole recording, if its end was read.
    pub fn length(&self) -> Option<usize> {
        self.ended.then_some((self.samples_read / HOP as u64) as usize)
    }

    /// About how long the recording is, if that is known.
    pub fn stated_seconds(&self) -> Option<f64> {
        let stated = match &self.samples {
            Samples::Reader(reader) => reader.stated_length().map(|length| length.as_secs_f64()),
            Samples::Given { samples, .. } => Some(samples.len() as f64 / f64::from(SAMPLE_RATE)),
        };
        self.length().map(|frames| frames as f64 / FRAMES_PER_SECOND as f64).or(stated)
    }

    /// What of the recording could not be read, in words, as far as it was read.
    pub fn damage(&self) -> Option<&str> {
        match &self.samples {
            Samples::Reader(reader) => reader.damage(),
            Samples::Given { .. } => None,
        }
    }

    /// Why what came from a pipe could not be read to its end.
    pub fn failure(&self) -> Option<&AudioError> {
        self.failure.as_ref()
    }

    /// Reads on until there are so many frames, or the recording ends; gives how many of them there are.
    pub fn read_to(&mut self, frames: usize) -> Result<usize, AudioError> {
        while self.count < frames && !self.ended {
            let samples: Option<&[f32]> = match &mut self.samples {
                Samples::Reader(reader) => match reader.next_samples() {
                    Err(error) if self.ends_at_failure && self.samples_read > 0 => {
                        self.failure = Some(error);
                        None
                    }
                    samples => samples?,
                },
                Samples::Given { samples, place } => {
                    let rest = &samples[*place..];
                    let next = &rest[..rest.len().min(1 << 16)];
                    *place += next.len();
                    Some(next).filter(|next| !next.is_empty())
                }
            };
            match samples {
                Some(samples) => {
                    self.samples_read += samples.len() as u64;
                    self.waiting.extend_from_slice(samples);
                    self.begin();
                }
                None => {
                    // Silence behind the end, for the frames that the last samples are in.
                    self.ended = true;
                    self.waiting.extend([0.0; 2 * FRAME_SAMPLES]);
                    self.begin();
                }
            }
            self.push_frames();
        }
        Ok(self.count.min(self.length().unwrap_or(usize::MAX)))
    }

    /// Puts the mirrored samples before the first, as soon as they are known.
    fn begin(&mut self) {
        const HALF: usize = FRAME_SAMPLES / 2;
        if !self.begun && self.waiting.len() > HALF {
            let mirrored: Vec<f32> = self.waiting[1..=HALF].iter().rev().copied().collect();
            self.waiting.splice(..0, mirrored);
            self.begun = true;
        }
    }

    fn push_frames(&mut self) {
        if !self.begun {
            return;
        }
        let mut from = 0;
        while from + FRAME_SAMPLES <= self.waiting.len() {
            let before = self.frames.len();
            self.mel.push_frame(&self.waiting[from..from + FRAME_SAMPLES], &mut self.frames);
            self.loudest = self.frames[before..].iter().copied().fold(self.loudest, f32::max);
            self.count += 1;
            from += HOP;
        }
        self.waiting.drain(..from.min(self.waiting.len()));
    }

    /// The quietest frame of some that were computed, with those around it.
    pub fn quietest(&self, from: usize, to: usize) -> usize {
        const AROUND: usize = 12;
        let bins = self.mel.bins();
        let frame =
            |frame: usize| frame.checked_sub(self.dropped).and_then(|at| self.frames.get(at * bins..(at + 1) * bins));
        let loudness = |place: usize| {
            let frames = (place.saturating_sub(AROUND)..=place + AROUND).filter_map(frame);
            let (sum, count) = frames.fold((0.0, 0), |(sum, count), row| (sum + row.iter().sum::<f32>(), count + 1));
            sum / count.max(1) as f32
        };
        (from..to)
            .map(|place| (loudness(place), place))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(to, |(_, place)| place)
    }

    /// Forgets the frames before this one.
    pub fn forget_before(&mut self, frame: usize) {
        let frames = frame.min(self.count).saturating_sub(self.dropped);
        self.frames.drain(..frames * self.mel.bins());
        self.dropped += frames;
    }

    /// `to.len() / bins` frames from one on, as models take them; those from `end` on are as `behind` says. They must not be forgotten.
    pub fn window(&mut self, start: usize, end: usize, behind: Behind, to: &mut [f32]) -> Result<(), AudioError> {
        let bins = self.mel.bins();
        self.read_to(start.saturating_add(to.len() / bins))?;
        for (place, row) in to.chunks_exact_mut(bins).enumerate() {
            let frame = start + place;
            let known = frame.checked_sub(self.dropped).and_then(|at| self.frames.get(at * bins..(at + 1) * bins));
            match (known, behind) {
                (Some(known), _) if frame < end => {
                    row.iter_mut().zip(known).for_each(|(to, &value)| *to = normalised(value, self.loudest));
                }
                (_, Behind::Zero) => row.fill(0.0),
                (Some(known), Behind::Silence) => {
                    row.iter_mut().zip(known).for_each(|(to, &value)| *to = normalised(value, self.loudest));
                }
                (None, Behind::Silence) => row.fill(normalised(SILENCE, self.loudest)),
            }
        }
        Ok(())
    }
}
