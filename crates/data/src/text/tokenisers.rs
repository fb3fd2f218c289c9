//! The tokenisers of a translator: one for both languages, or one for each.

use std::path::Path;
use std::sync::Arc;

use super::{Pair, Tokeniser, TokeniserError, TokeniserKind};

/// The file of a shared tokeniser.
pub const SHARED_FILE: &str = "tokenizer.json";
/// The file of the source's tokeniser, where there are two.
pub const SOURCE_FILE: &str = "source_tokenizer.json";
/// The file of the target's tokeniser, where there are two.
pub const TARGET_FILE: &str = "target_tokenizer.json";

/// A tokeniser for each language; the same one if the vocabulary is shared.
#[derive(Clone, Debug)]
pub struct Tokenisers {
    /// For the source language.
    pub source: Arc<Tokeniser>,
    /// For the target language.
    pub target: Arc<Tokeniser>,
}

impl Tokenisers {
    /// One tokeniser for both languages.
    pub fn shared(tokeniser: Tokeniser) -> Tokenisers {
        let tokeniser = Arc::new(tokeniser);
        Tokenisers { source: tokeniser.clone(), target: tokeniser }
    }

    /// Whether both languages share a tokeniser.
    pub fn is_shared(&self) -> bool {
        Arc::ptr_eq(&self.source, &self.target)
    }

    /// Trains on pairs: one vocabulary for both languages if `shared`, otherwise one for each, of `vocab_size` each.
    pub fn train(
        kind: TokeniserKind,
        pairs: &[Pair],
        vocab_size: usize,
        shared: bool,
    ) -> Result<Tokenisers, TokeniserError> {
        let sources = || pairs.iter().map(|pair| pair.source.as_str());
        let targets = || pairs.iter().map(|pair| pair.target.as_str());
        if shared {
            return Ok(Tokenisers::shared(Tokeniser::train(kind, sources().chain(targets()), vocab_size)?));
        }
        let source = Arc::new(Tokeniser::train(kind, sources(), vocab_size)?);
        Ok(Tokenisers { source, target: Arc::new(Tokeniser::train(kind, targets(), vocab_size)?) })
    }

    /// Writes [`SHARED_FILE`], or [`SOURCE_FILE`] and [`TARGET_FILE`], into a folder.
    pub fn save(&self, folder: &Path) -> Result<(), TokeniserError> {
        if self.is_shared() {
            return self.source.save(&folder.join(SHARED_FILE));
        }
        self.source.save(&folder.join(SOURCE_FILE))?;
        self.target.save(&folder.join(TARGET_FILE))
    }

    /// Opens what [`Tokenisers::save`] wrote.
    pub fn open(folder: &Path) -> Result<Tokenisers, TokeniserError> {
        let [shared, source, target] = [SHARED_FILE, SOURCE_FILE, TARGET_FILE].map(|name| folder.join(name));
        if shared.is_file() {
            return Ok(Tokenisers::shared(Tokeniser::open(&shared)?));
        }
        let missing: Vec<&str> = [(&source, SOURCE_FILE), (&target, TARGET_FILE)]
            .into_iter()
            .filter_map(|(path, name)| (!path.is_file()).then_some(name))
            .collect();
        if !missing.is_empty() {
            return Err(TokeniserError::Missing { path: folder.to_path_buf(), missing: missing.join(" with ") });
        }
        Ok(Tokenisers { source: Arc::new(Tokeniser::open(&source)?), target: Arc::new(Tokeniser::open(&target)?) })
    }
}
