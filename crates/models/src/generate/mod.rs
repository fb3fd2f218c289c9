//! Generating text token by token: slots, caches and search, for every decoder.
//!
//! A decoder has a number of slots, each one sequence that is being written; its keys and values stay in caches on the device. A step
//! computes one token for every slot and leaves all but the likeliest next tokens on the device. [`SearchOptions`] says how sequences
//! go on from there.

pub mod constrain;
mod constraint;
mod decoder;
mod encoder;
mod language;
mod request;
mod room;
mod rules;
mod sample;
mod search;
mod sequence;
mod slots;
mod speech;
mod translate;

pub use constraint::{TokenConstraint, TokenMask};
pub use language::{GenerateOptions, TokenGenerator};
pub use request::{Ended, Request, RequestId, Stop, Tally, Update, WrittenToken};
pub use room::GenerationMemory;
pub use rules::{EarlyStopping, TargetRules};
pub(crate) use sample::likeliest;
pub use sample::{Choice, Choosing, Sampler, SamplingOptions, SeenTokens, TokenLogprob, draw_at, largest};
pub use search::{Hypothesis, SearchOptions};
pub use speech::{SpeechWriter, TextSlot};
pub use translate::{TranslateOptions, Translator};

pub use crate::on_device::Weights;
pub use crate::signature::SpecialTokens;
