//! Text for a translator: sentence pairs, tokenisers, and batches of tokens.
//!
//! [`open`] reads pairs from whatever a path holds. [`Tokenisers::train`] learns pieces of words from them,
//! [`EncodedPairs::new`] turns each pair into numbers and drops what cannot be learnt from, and [`PairBatches`] says which pairs
//! go together, in an order that is a function of (seed, epoch).
//!
//! ```
//! use vitreous_data::text::{EncodedPairs, Limits, Pair, PairBatches, TokeniserKind, Tokenisers};
//!
//! let pairs: Vec<Pair> = (0..40).map(|n| Pair::new(&format!("{n} green trees"), &format!("{n} grüne Bäume"))).collect();
//! let tokenisers = Tokenisers::train(TokeniserKind::Bpe, &pairs, 300, true)?;
//! let (encoded, dropped) = EncodedPairs::new(&pairs, &tokenisers, &Limits::default())?;
//! assert_eq!((encoded.len(), dropped.total()), (40, 0));
//! let batches = PairBatches::new(&encoded, 256, 7)?;
//! let order = batches.epoch(0);
//! let batch = order.batch(0, &encoded);
//! assert_eq!(batch.source.len(), batch.shape.batch * batch.shape.source);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batches;
mod encode;
mod error;
mod file;
mod jsonl;
mod lines;
mod open;
mod pairs;
mod parts;
mod shapes;
mod special;
mod tokeniser;
mod tokenisers;
mod training;
mod words;

pub use batches::{EpochOrder, PairBatch, PairBatches, TooFewTokens};
pub use encode::{Dropped, EncodedPairs, Limits};
pub use error::{PairsError, TokeniserError};
pub use lines::{Lines, MOST_LINE_BYTES};
pub use open::{OpenPairs, PairSplits, open};
pub use pairs::{Languages, Pair, ReadPairs, read, read_parallel};
pub use shapes::{BatchShape, padded_length};
pub use special::{END, PADDING, SPECIAL_TOKENS, START, shifted_target, source_of, wanted_target};
pub use tokeniser::Tokeniser;
pub use tokenisers::{SHARED_FILE, SOURCE_FILE, TARGET_FILE, Tokenisers};
pub use training::{MOST_VOCABULARY, SMALLEST_VOCABULARY, TokeniserKind};
pub use words::Word;
