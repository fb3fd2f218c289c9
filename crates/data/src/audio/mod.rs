//! Audio: decoding, resampling, the log-mel spectrograms that speech models take, and the tokens that they write.
//!
//! Everything is read as a stream: what is in memory does not grow with the length of a recording. The peer is `openai-whisper`, whose
//! spectrograms the tests compare with.

mod batches;
mod clips;
mod decode;
mod error;
mod foreign;
mod languages;
mod mel;
mod resample;
mod spec_augment;
mod spectrogram;
mod transcripts;
mod vocabulary;

pub use batches::{SpeechBatches, SpeechTargets};
pub use clips::{SpeechClips, TranscribedSplits, left_out_note, open_transcripts};
pub use decode::{AudioReader, AudioSource, read_samples};
pub use error::AudioError;
pub use languages::{LANGUAGES, language_code, language_name};
pub use mel::{FRAME_SAMPLES, HOP, mel_filters};
pub use spec_augment::SpecAugment;
pub use spectrogram::{Behind, FRAMES_PER_SECOND, Spectrogram};
pub use transcripts::{TranscribedAudio, read_transcripts};
pub use vocabulary::{SpeechTask, SpeechVocabulary};

/// Samples per second of what models take.
pub const SAMPLE_RATE: u32 = 16_000;
