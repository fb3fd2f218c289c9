//! Audio: decoding, resampling, and the log-mel spectrograms that speech models take.
//!
//! Everything is read as a stream: what is in memory does not grow with the length of a recording. The peer is `openai-whisper`, whose
//! spectrograms the tests compare with.

mod decode;
mod error;
mod foreign;
mod mel;
mod resample;
mod spectrogram;
mod transcripts;

pub use decode::{AudioReader, AudioSource, read_samples};
pub use error::AudioError;
pub use mel::{FRAME_SAMPLES, HOP, mel_filters};
pub use spectrogram::{Behind, FRAMES_PER_SECOND, Spectrogram};
pub use transcripts::{TranscribedAudio, read_transcripts};

/// Samples per second of what models take.
pub const SAMPLE_RATE: u32 = 16_000;
