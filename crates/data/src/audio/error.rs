//! Errors of audio.

use std::time::Duration;

/// Why audio could not be read. The caller adds the file's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AudioError {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The content is in no format that is known.
    #[error("this is not audio of a supported format (WAV, AIFF, FLAC, MP3, OGG Vorbis, M4A with AAC or ALAC)")]
    NotAudio,
    /// The content is something else that is known.
    #[error("this is {0}, not audio")]
    SomethingElse(&'static str),
    /// The content is audio in a format that cannot be decoded.
    #[error("{0} is not supported; convert it first, e.g. `ffmpeg -i FILE FILE.flac`")]
    Format(&'static str),
    /// The format is supported, but not this variant of it.
    #[error("this variant of audio is not supported: {0}")]
    Unsupported(String),
    /// The content is inconsistent.
    #[error("the audio is damaged: {0}")]
    Damaged(String),
    /// There are no samples.
    #[error("the file has no audio in it: its length is zero")]
    NoSamples,
    /// Samples come too seldom or too often.
    #[error("it has {rate} samples per second, but only rates from {least} to {most} Hz are read")]
    Rate {
        /// The rate.
        rate: u32,
        /// The lowest rate that is read.
        least: u32,
        /// The highest rate that is read.
        most: u32,
    },
    /// There are more channels than are decoded.
    #[error(
        "it has {channels} channels, but only WAV files of at most {most} are read; mix them into one first, e.g. `ffmpeg -i FILE -ac 1 FILE.flac`"
    )]
    Channels {
        /// The number of channels.
        channels: u16,
        /// The most that are read.
        most: u16,
    },
    /// A sample is NaN or infinite.
    #[error("a sample at {:.2} s is not a number", .at.as_secs_f64())]
    NotFinite {
        /// Where it is.
        at: Duration,
    },
    /// A recording does not fit into one window.
    #[error("it {} long, but only recordings of at most {most} s fit into a window: cut it into sentences", seconds_of(*.seconds))]
    TooLong {
        /// Its length; 0 if it is so long that nobody looked.
        seconds: f64,
        /// The longest that fits.
        most: f64,
    },
    /// A recording is longer than whoever reads it takes.
    #[error("the recording is longer than {most_seconds} s")]
    MoreThanTaken {
        /// The most seconds that are taken.
        most_seconds: f64,
    },
    /// A list of recordings is not one.
    #[error("{0}")]
    List(String),
    /// The number of mel bins is not one that models have.
    #[error("spectrograms have from 1 to {most} mel bins, not {bins}")]
    Bins {
        /// The number of bins.
        bins: usize,
        /// The largest number of bins.
        most: usize,
    },
}

fn seconds_of(seconds: f64) -> String {
    match seconds {
        0.0 => "is too".to_string(),
        seconds => format!("is {seconds:.1} s"),
    }
}
