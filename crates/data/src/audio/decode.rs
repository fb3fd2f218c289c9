//! Audio files as one channel of 16,000 samples per second, read piece by piece.

use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as Failure;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream, ReadOnlySource};
use symphonia::core::meta::MetadataOptions;

use super::SAMPLE_RATE;
use super::error::AudioError;
use super::foreign::foreign;
use super::resample::Resampler;

/// The rates that are read. Below the first there is no speech, above the second no recorder.
const LEAST_RATE: u32 = 1000;
const MOST_RATE: u32 = 768_000;
/// Broken packets in a row before the rest of a file is given up.
const MOST_BROKEN: usize = 64;
/// Bytes that a format is recognised by.
const HEAD: usize = 64;
/// The most channels of WAV files that are decoded.
const MOST_CHANNELS: u16 = 26;
/// Programs that write WAV into a pipe do not know its length yet: they state the longest that fits.
const UNKNOWN_LENGTH: u32 = 0x7fff_0000;

/// Audio that is decoded while it is read: what is in memory does not depend on its length.
pub struct AudioReader {
    format: Box<dyn FormatReader>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    rate: u32,
    /// The length that the file states, in samples of its own rate.
    stated: Option<u64>,
    /// Whether it may end anywhere: its length was not known when its beginning was written.
    ends_anywhere: bool,
    /// Samples of its own rate so far.
    decoded: u64,
    interleaved: Vec<f32>,
    mono: Vec<f32>,
    resampler: Option<Resampler>,
    resampled: Vec<f32>,
    broken: usize,
    damage: Option<String>,
    ended: bool,
}

/// Where audio is read from, as often as is wanted.
#[derive(Clone, Debug)]
pub enum AudioSource {
    /// A file.
    File(std::path::PathBuf),
    /// The content of a file.
    Bytes(Arc<[u8]>),
}

impl AudioSource {
    /// Opens it, from its beginning.
    pub fn open(&self) -> Result<AudioReader, AudioError> {
        match self {
            AudioSource::File(path) => AudioReader::open(path),
            AudioSource::Bytes(bytes) => AudioReader::from_bytes(bytes.clone()),
        }
    }
}

impl std::fmt::Debug for AudioReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AudioReader of {} Hz at sample {}", self.rate, self.decoded)
    }
}

impl AudioReader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<AudioReader, AudioError> {
        let mut file = vitreous_files::open::open_regular(path)?;
        let mut head = Vec::with_capacity(HEAD);
        file.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
        check_head(&head)?;
        std::io::Seek::rewind(&mut file)?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        let again = vitreous_files::open::open_regular(path)?;
        AudioReader::of_source(Box::new(file), extension)
            .or_else(|error| AudioReader::from_its_beginning(error, Box::new(again), extension))
    }

    /// Reads the content of a file.
    pub fn from_bytes(bytes: Arc<[u8]>) -> Result<AudioReader, AudioError> {
        check_head(&bytes[..bytes.len().min(HEAD)])?;
        let again = Cursor::new(bytes.clone());
        AudioReader::of_source(Box::new(Cursor::new(bytes)), None)
            .or_else(|error| AudioReader::from_its_beginning(error, Box::new(again), None))
    }

    /// Once more without looking at the end, which of a file that was cut off is not there.
    fn from_its_beginning(
        error: AudioError,
        source: Box<dyn Read + Send + Sync>,
        extension: Option<&str>,
    ) -> Result<AudioReader, AudioError> {
        match error {
            AudioError::Damaged(_) => {
                AudioReader::of_source(Box::new(ReadOnlySource::new(source)), extension).map_err(|_| error)
            }
            error => Err(error),
        }
    }

    /// Reads what comes, such as from a pipe. M4A files that have their table of contents at the end cannot be read like this.
    pub fn from_reader(mut reader: impl Read + Send + Sync + 'static) -> Result<AudioReader, AudioError> {
        let mut head = Vec::with_capacity(HEAD);
        reader.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
        check_head(&head)?;
        let ends_anywhere = states_no_length(&head);
        let source = ReadOnlySource::new(Cursor::new(head).chain(reader));
        let mut reader = AudioReader::of_source(Box::new(source), None)?;
        if ends_anywhere {
            (reader.ends_anywhere, reader.stated) = (true, None);
        }
        Ok(reader)
    }

    fn of_source(source: Box<dyn MediaSource>, extension: Option<&str>) -> Result<AudioReader, AudioError> {
        let stream = MediaSourceStream::new(source, Default::default());
        let mut hint = Hint::new();
        if let Some(extension) = extension {
            hint.with_extension(extension);
        }
        let format = symphonia::default::get_probe()
            .probe(&hint, stream, FormatOptions::default(), MetadataOptions::default())
            .map_err(|failure| match failure {
                Failure::Unsupported(_) => AudioError::NotAudio,
                failure => of_failure(failure),
            })?;
        let track = format.default_track(TrackType::Audio).ok_or(AudioError::NotAudio)?;
        let parameters = track.codec_params.as_ref().and_then(|parameters| parameters.audio());
        let parameters = parameters.ok_or_else(|| AudioError::Unsupported("its codec is not known".to_string()))?;
        // Some formats state the rate in the first packet only.
        if let Some(rate) = parameters.sample_rate {
            check_rate(rate)?;
        }
        let decoder = symphonia::default::get_codecs()
            .make_audio_decoder(parameters, &AudioDecoderOptions::default())
            .map_err(of_failure)?;
        let (track, stated) = (track.id, track.num_frames);
        Ok(AudioReader {
            track,
            stated,
            ends_anywhere: false,
            format,
            decoder,
            rate: 0,
            decoded: 0,
            interleaved: Vec::new(),
            mono: Vec::new(),
            resampler: None,
            resampled: Vec::new(),
            broken: 0,
            damage: None,
            ended: false,
        })
    }

    /// The length that the file states, if it does: what is read can be shorter.
    pub fn stated_length(&self) -> Option<Duration> {
        let rate = self.decoder.codec_params().sample_rate.filter(|&rate| rate > 0)?;
        Some(Duration::from_secs_f64(self.stated? as f64 / f64::from(rate)))
    }

    /// What of the audio could not be read, in words; the rest was.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// The next samples, of one channel and [`SAMPLE_RATE`], from -1 to 1; `None` at the end.
    pub fn next_samples(&mut self) -> Result<Option<&[f32]>, AudioError> {
        while !self.ended {
            if self.decode_packet()? {
                self.check_and_mix()?;
            } else {
                self.ended = true;
                self.mono.clear();
                if self.decoded == 0 {
                    return Err(match self.damage.take() {
                        Some(damage) => AudioError::Damaged(damage),
                        None => AudioError::NoSamples,
                    });
                }
                self.note_missing();
            }
            let Some(resampler) = &mut self.resampler else {
                if self.mono.is_empty() {
                    continue;
                }
                return Ok(Some(&self.mono));
            };
            self.resampled.clear();
            match self.ended {
                false => resampler.push(&self.mono, &mut self.resampled)?,
                true => resampler.finish(&mut self.resampled)?,
            }
            if !self.resampled.is_empty() {
                return Ok(Some(&self.resampled));
            }
        }
        Ok(None)
    }

    /// Decodes the next packet into `interleaved`, with its channels; false at the end.
    fn decode_packet(&mut self) -> Result<bool, AudioError> {
        loop {
            let packet = match self.format.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(false),
                Err(failure) => {
                    self.give_up(failure);
                    return Ok(false);
                }
            };
            if packet.track_id != self.track {
                continue;
            }
            match self.decoder.decode(&packet) {
                Ok(buffer) if buffer.frames() == 0 => {}
                Ok(buffer) => {
                    let rate = buffer.spec().rate();
                    if rate != self.rate {
                        check_rate(rate)?;
                        if self.rate != 0 {
                            let what = format!("its sampling rate changes from {} to {rate} Hz", self.rate);
                            return Err(AudioError::Unsupported(what));
                        }
                        self.rate = rate;
                        self.resampler = (rate != SAMPLE_RATE).then(|| Resampler::new(rate)).transpose()?;
                    }
                    buffer.copy_to_vec_interleaved(&mut self.interleaved);
                    self.broken = 0;
                    return Ok(true);
                }
                // A broken packet is left out, as players do.
                Err(Failure::DecodeError(what)) if self.broken < MOST_BROKEN => {
                    self.broken += 1;
                    self.damage = Some(format!("some of it cannot be decoded and is left out ({what})"));
                }
                Err(failure) => {
                    self.give_up(failure);
                    return Ok(false);
                }
            }
        }
    }

    fn give_up(&mut self, failure: Failure) {
        let is_cut = matches!(&failure, Failure::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof);
        if is_cut && self.ends_anywhere {
            return;
        }
        self.damage = Some(match is_cut {
            true => "it ends in the middle".to_string(),
            false => format!("the rest cannot be decoded ({failure})"),
        });
    }

    /// A note if the file has clearly less than it states. Some formats round their length.
    fn note_missing(&mut self) {
        let Some(stated) = self.stated.filter(|&stated| self.decoded + u64::from(self.rate) / 2 < stated) else {
            return;
        };
        let seconds = |samples: u64| samples as f64 / f64::from(self.rate.max(1));
        self.damage = Some(format!(
            "it ends in the middle: {:.1} of {:.1} seconds are there",
            seconds(self.decoded),
            seconds(stated)
        ));
    }

    /// The mean of all channels, limited to what a recorder could have meant.
    fn check_and_mix(&mut self) -> Result<(), AudioError> {
        let channels = self.decoder.last_decoded().num_planes().max(1);
        let scale = 1.0 / channels as f32;
        self.mono.clear();
        for (place, frame) in self.interleaved.chunks_exact(channels).enumerate() {
            let sum: f32 = frame.iter().map(|sample| sample.clamp(-1.0, 1.0)).sum();
            if !frame.iter().all(|sample| sample.is_finite()) {
                let at = (self.decoded + place as u64) as f64 / f64::from(self.rate.max(1));
                return Err(AudioError::NotFinite { at: Duration::from_secs_f64(at) });
            }
            self.mono.push(sum * scale);
        }
        self.decoded += self.mono.len() as u64;
        Ok(())
    }
}

/// All samples of some audio, for what is known to be short: at most `most` of them.
pub fn read_samples(reader: &mut AudioReader, most: usize) -> Result<Vec<f32>, AudioError> {
    let mut all = Vec::new();
    while all.len() < most
        && let Some(samples) = reader.next_samples()?
    {
        all.extend_from_slice(&samples[..samples.len().min(most - all.len())]);
    }
    Ok(all)
}

fn check_rate(rate: u32) -> Result<(), AudioError> {
    match (LEAST_RATE..=MOST_RATE).contains(&rate) {
        true => Ok(()),
        false => Err(AudioError::Rate { rate, least: LEAST_RATE, most: MOST_RATE }),
    }
}

fn check_head(head: &[u8]) -> Result<(), AudioError> {
    if head.is_empty() {
        return Err(AudioError::Empty);
    }
    match wav_channels(head) {
        Some(channels) if channels > MOST_CHANNELS => Err(AudioError::Channels { channels, most: MOST_CHANNELS }),
        _ => foreign(head).map_or(Ok(()), Err),
    }
}

/// The channels that a WAV file's head states, if its format comes first in it, as is usual.
fn wav_channels(head: &[u8]) -> Option<u16> {
    let is_wav = head.starts_with(b"RIFF") && head.get(8..16) == Some(b"WAVEfmt ");
    head.get(22..24).filter(|_| is_wav).map(|two| u16::from_le_bytes([two[0], two[1]]))
}

/// Whether the head of a WAV file was written by a program that did not know how long it would become.
fn states_no_length(head: &[u8]) -> bool {
    let length = head.get(4..8).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    head.starts_with(b"RIFF") && length.is_some_and(|length| length >= UNKNOWN_LENGTH)
}

fn of_failure(failure: Failure) -> AudioError {
    match failure {
        Failure::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            AudioError::Damaged("it ends before its samples begin".to_string())
        }
        Failure::IoError(error) => AudioError::Io(error),
        Failure::Unsupported(what) => AudioError::Unsupported(what.to_string()),
        failure => AudioError::Damaged(failure.to_string()),
    }
}
