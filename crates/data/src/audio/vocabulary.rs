//! The tokens of a speech model: text, languages, tasks and timestamps.

use std::path::Path;

use super::languages::LANGUAGES;
use crate::text::{TextTokenizer, TokeniserError, VocabularyData};

/// Tokens of the smallest multilingual model.
const MULTILINGUAL_SIZE: usize = 51_865;
/// Languages that are written without spaces between words.
const WITHOUT_SPACES: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

/// A speech model's tokenizer, and what its special tokens are.
#[derive(Clone, Debug)]
pub struct SpeechVocabulary {
    tokenizer: TextTokenizer,
    /// What ends a text. All tokens before it are text.
    pub end: u32,
    /// What a text begins with.
    pub start: u32,
    /// What comes before earlier text that a text goes on from.
    pub previous: u32,
    /// What is written for silence.
    pub no_speech: Option<u32>,
    /// What says that no timestamps are to be written.
    pub no_timestamps: u32,
    /// The timestamp of 0 s; those that follow are 20 ms apart.
    pub first_timestamp: u32,
    translate: u32,
    transcribe: u32,
    start_of_lm: Option<u32>,
    /// Code and token of each language; none of English models.
    pub languages: Vec<(&'static str, u32)>,
    size: usize,
}

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpeechTask {
    /// What is said, in its language.
    #[default]
    Transcribe,
    /// What is said, in English.
    Translate,
}

impl SpeechVocabulary {
    /// The vocabulary of a model with so many tokens: that of the tokenizer in its directory, or a published one where there is none, as
    /// beside OpenAI's files. Published models with as many tokens as the multilingual ones have languages, unless it is said otherwise.
    pub fn open(path: &Path, size: usize, is_multilingual: Option<bool>) -> Result<SpeechVocabulary, TokeniserError> {
        let has_tokenizer = ["tokenizer.json", "vocab.json"].iter().any(|name| path.join(name).is_file());
        if !has_tokenizer && let Ok(published) = SpeechVocabulary::published(size) {
            return Ok(published);
        }
        let is_multilingual = is_multilingual.unwrap_or(size >= MULTILINGUAL_SIZE);
        SpeechVocabulary::new(TextTokenizer::open(path)?, size, is_multilingual)
    }

    /// The vocabulary of a published model, by the rows of its embedding.
    pub fn published(size: usize) -> Result<SpeechVocabulary, TokeniserError> {
        let codes = LANGUAGES.map(|(code, _)| code);
        let data = VocabularyData::whisper(size, &codes).ok_or_else(|| {
            TokeniserError::Speech(format!(
                "the model's vocabulary has {size} tokens, which no published Whisper has: open a directory with a tokenizer.json"
            ))
        })?;
        SpeechVocabulary::new(TextTokenizer::from_vocabulary(data)?, size, size >= MULTILINGUAL_SIZE)
    }

    /// Of a tokenizer whose special tokens have OpenAI's names.
    pub fn new(
        tokenizer: TextTokenizer,
        size: usize,
        is_multilingual: bool,
    ) -> Result<SpeechVocabulary, TokeniserError> {
        let find = |name: &str| tokenizer.id(&format!("<|{name}|>")).filter(|&token| (token as usize) < size);
        let need = |name: &str| {
            find(name).ok_or_else(|| {
                TokeniserError::Speech(format!(
                    "the tokenizer has no token <|{name}|> that the model has, so that it is no speech model's"
                ))
            })
        };
        let no_timestamps = need("notimestamps")?;
        let languages = LANGUAGES.iter().filter_map(|(code, _)| Some((*code, find(code)?)));
        Ok(SpeechVocabulary {
            end: need("endoftext")?,
            start: need("startoftranscript")?,
            previous: need("startofprev")?,
            // Older files call it otherwise.
            no_speech: find("nospeech").or(find("nocaptions")),
            no_timestamps,
            // Some files do not name timestamps.
            first_timestamp: find("0.00").unwrap_or(no_timestamps + 1),
            translate: need("translate")?,
            transcribe: need("transcribe")?,
            start_of_lm: find("startoflm"),
            languages: if is_multilingual { languages.collect() } else { Vec::new() },
            size,
            tokenizer,
        })
    }

    /// Number of tokens.
    pub fn size(&self) -> usize {
        self.size
    }

    /// By which text becomes tokens.
    pub fn tokenizer(&self) -> &TextTokenizer {
        &self.tokenizer
    }

    /// Whether it has languages.
    pub fn is_multilingual(&self) -> bool {
        !self.languages.is_empty()
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokeniserError> {
        Ok(self.tokenizer.encode_plain(text)?.into_iter().filter(|&token| token < self.end).collect())
    }

    /// The tokens of a whole text as models write it: with a space before its first word, where the language has spaces.
    pub fn encode_text(&self, text: &str, language: Option<&str>) -> Result<Vec<u32>, TokeniserError> {
        match language.is_some_and(|code| WITHOUT_SPACES.contains(&code)) {
            true => self.encode(text.trim()),
            false => self.encode(&format!(" {}", text.trim())),
        }
    }

    /// Name and token of the tasks.
    pub fn tasks(&self) -> [(&'static str, u32); 2] {
        [("transcribe", self.transcribe), ("translate", self.translate)]
    }

    /// The text of tokens, without special ones.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokeniserError> {
        let text: Vec<u32> = tokens.iter().copied().filter(|&token| token < self.end).collect();
        self.tokenizer.decode(&text, true)
    }

    /// Whether a token is a timestamp.
    pub fn is_timestamp(&self, token: u32) -> bool {
        token >= self.first_timestamp
    }

    /// What a text begins with: the start, and of models with languages the language and the task.
    pub fn beginning(&self, language: Option<&str>, task: SpeechTask) -> Result<Vec<u32>, TokeniserError> {
        let mut tokens = vec![self.start];
        if self.is_multilingual() {
            let code = language.unwrap_or("en");
            let known = self.languages.iter().find(|(known, _)| *known == code);
            let (_, token) = known
                .ok_or_else(|| TokeniserError::Speech(format!("the model does not know the language {code:?}")))?;
            tokens.push(*token);
            tokens.push(if task == SpeechTask::Translate { self.translate } else { self.transcribe });
        }
        Ok(tokens)
    }

    /// The tokens that are never written: symbols that nobody says, and special tokens, as OpenAI has them.
    pub fn suppressed(&self) -> Result<Vec<u32>, TokeniserError> {
        const MARKS: &str = "\"#()*+/:;<=>@[\\]^_`{|}~「」『』";
        const GROUPS: &str = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪";
        const NOTES: &str = "♩♪♫♬♭♮♯";
        let first = |text: &str| Ok::<_, TokeniserError>(self.encode(text)?.first().copied());
        let mut tokens: Vec<u32> = [first(" -")?, first(" '")?].into_iter().flatten().collect();
        let marks = MARKS.chars().chain(NOTES.chars()).map(String::from);
        for symbol in marks.chain(GROUPS.split(' ').map(String::from)) {
            for text in [symbol.clone(), format!(" {symbol}")] {
                let encoded = self.encode(&text)?;
                // Of notes, which share their first bytes, the first token is enough.
                if encoded.len() == 1 || NOTES.contains(&symbol) {
                    tokens.extend(encoded.first());
                }
            }
        }
        tokens.extend([self.transcribe, self.translate, self.start, self.previous]);
        tokens.extend(self.start_of_lm.into_iter().chain(self.no_speech));
        tokens.sort_unstable();
        tokens.dedup();
        Ok(tokens)
    }

    /// The tokens that no text begins with: a space, and its end.
    pub fn blank(&self) -> Result<Vec<u32>, TokeniserError> {
        let mut tokens = self.encode(" ")?;
        tokens.push(self.end);
        Ok(tokens)
    }

    /// Tokens in groups that are words, with their text. Languages without spaces are split wherever characters are whole.
    pub fn words(&self, tokens: &[u32], language: Option<&str>) -> Vec<(String, Vec<u32>)> {
        let pieces = self.characters(tokens);
        if language.is_some_and(|code| WITHOUT_SPACES.contains(&code)) {
            return pieces;
        }
        let mut words: Vec<(String, Vec<u32>)> = Vec::new();
        for (text, tokens) in pieces {
            let is_special = tokens.first().is_some_and(|&token| token >= self.end);
            let trimmed = text.trim();
            let is_punctuation =
                trimmed.is_empty() || trimmed.len() == 1 && trimmed.bytes().all(|byte| byte.is_ascii_punctuation());
            match words.last_mut() {
                Some(word) if !(is_special || text.starts_with(' ') || is_punctuation) => {
                    word.0.push_str(&text);
                    word.1.extend(tokens);
                }
                _ => words.push((text, tokens)),
            }
        }
        words
    }

    /// Tokens in groups that are whole characters.
    fn characters(&self, tokens: &[u32]) -> Vec<(String, Vec<u32>)> {
        let mut pieces = Vec::new();
        let (mut bytes, mut group) = (Vec::new(), Vec::new());
        for (place, &token) in tokens.iter().enumerate() {
            group.push(token);
            match self.tokenizer.token_bytes(token) {
                Some(own) if token < self.end => bytes.extend(own),
                _ => bytes.extend(self.tokenizer.token(token).unwrap_or_default().into_bytes()),
            }
            let is_incomplete = std::str::from_utf8(&bytes).is_err_and(|error| error.error_len().is_none());
            if !is_incomplete || place + 1 == tokens.len() {
                pieces.push((String::from_utf8_lossy(&bytes).into_owned(), std::mem::take(&mut group)));
                bytes.clear();
            }
        }
        pieces
    }
}
