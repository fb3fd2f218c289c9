//! Text: sentence pairs, tokenisers, and batches of tokens.
//!
//! [`open`] reads pairs from whatever a path holds. [`Tokenisers::train`] learns a vocabulary of subwords from them,
//! [`EncodedPairs::new`] tokenises each pair and drops those that are unfit for training, and [`PairBatches`] groups them into
//! batches for the [loader](crate::loader).
//!
//! ```
//! use vitreous_data::loader::BatchSource;
//! use vitreous_data::text::{EncodedPairs, Limits, Pair, PairBatches, TokeniserKind, Tokenisers};
//!
//! let pairs: Vec<Pair> = (0..40).map(|n| Pair::new(&format!("{n} green trees"), &format!("{n} grüne Bäume"))).collect();
//! let tokenisers = Tokenisers::train(TokeniserKind::Bpe, &pairs, 300, true)?;
//! let (encoded, dropped) = EncodedPairs::new(&pairs, &tokenisers, &Limits::default())?;
//! assert_eq!((encoded.len(), dropped.total()), (40, 0));
//! let batches = PairBatches::new(encoded, 256, 7)?;
//! let batch = batches.batch(&batches.order(0), 0)?;
//! let shape = batches.shapes()[batch.group];
//! assert_eq!(batch.array("source").map(|array| &array.shape[..]), Some(&[shape.batch, shape.source][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batches;
pub mod chat_template;
mod chats;
mod choices;
mod corrupted;
mod encode;
mod error;
mod file;
mod jsonl;
mod labelled;
mod lines;
mod marian;
mod masked;
mod matched;
mod open;
mod pair_tokenizer;
mod pairs;
mod parts;
mod plain;
mod plain_parts;
mod questions;
mod sequences;
mod shapes;
mod special;
mod split_files;
mod tagged;
mod text_batches;
mod token_arrays;
mod tokeniser;
mod tokenisers;
mod tokenizer;
mod training;
mod words;

pub use batches::{PairBatches, PairForm, TooFewTokens};
pub use chats::{Chats, are_chats, read_chats};
pub use choices::{ChoiceFormat, ChoiceQuestion, ChoiceQuestions, open_choices};
pub use corrupted::{CorruptedBatches, Corruption, InfillingOptions, SpanOptions};
pub use encode::{Dropped, EncodedPairs, Limits};
pub use error::{PairsError, TokeniserError};
pub use labelled::{LabelKind, LabelledSplits, LabelledText, OpenLabelled, open_labelled};
pub use lines::{Lines, MOST_LINE_BYTES};
pub use masked::{MaskOptions, MaskedBatches, PackedTexts, TokenKind};
pub use matched::MatchedBatches;
pub use open::{OpenPairs, PairSplits, open};
pub use pair_tokenizer::{PairSide, PairTokenizer};
pub use pairs::{Languages, Pair, ReadPairs, read, read_parallel};
pub use plain::{Documents, MOST_DOCUMENT_BYTES, PlainFile, PlainTexts, open_plain};
pub use plain_parts::{DocumentBreak, TextPart, TextParts};
pub use questions::{AnsweredQuestion, QuestionSplits, open_questions};
pub use sequences::{SequenceBatches, SequenceOptions, TokenDocuments, TokenSequence, TokenSequences};
pub use shapes::{BatchShape, padded_length};
pub use special::{END, PADDING, SPECIAL_TOKENS, START, shifted_target, source_of, wanted_target};
pub use tagged::{TaggedSentence, TaggedSplits, open_tagged};
pub use text_batches::{EncodedTexts, IGNORED, TextBatches, TextTargets};
pub use token_arrays::TextRows;
pub use tokeniser::Tokeniser;
pub use tokenisers::{SHARED_FILE, SOURCE_FILE, TARGET_FILE, Tokenisers};
pub use tokenizer::{
    Encoding, LanguageVocabulary, SentencePieces, SpecialIds, TextStream, TextTokenizer, VocabularyData,
    VocabularyKind, VocabularySpecial,
};
pub use training::{MOST_VOCABULARY, SMALLEST_VOCABULARY, TokeniserKind};
pub use words::Word;
