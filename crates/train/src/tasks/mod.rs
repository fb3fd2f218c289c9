//! The tasks that models can be trained for: a folder each, and this list.

pub mod classify;
pub mod classify_text;
pub mod contrast;
pub mod language;
pub mod mask_tokens;
pub mod match_texts;
pub mod seq2seq;
pub mod tag_tokens;
pub mod text;
pub mod transcribe;
pub mod translate;

use crate::task::TaskType;

/// All tasks. A recipe that names none is of the first.
pub static TASKS: [&dyn TaskType; 12] = [
    &classify::Classification,
    &translate::Translation,
    &classify_text::TextClassification,
    &mask_tokens::MaskedLanguage,
    &tag_tokens::TokenClassification,
    &match_texts::SentenceEmbedding,
    &seq2seq::Seq2Seq,
    &seq2seq::SpanCorruption,
    &seq2seq::Denoising,
    &language::Language,
    &contrast::Contrast,
    &transcribe::Transcribe,
];
