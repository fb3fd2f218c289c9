//! The tokenizer of an encoder-decoder's directory: T5's, BART's, mBART's with its languages, Marian's two, ByT5's bytes. Sources and targets get the special tokens that `transformers` gives them.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use vitreous_files::open::read_bounded;

use super::marian::MarianPieces;
use super::tokenizer::SentencePieces;
use super::{TextTokenizer, TokeniserError, Word};

/// The largest file that is read.
const MOST_FILE_BYTES: u64 = 256 << 20;
/// ByT5's ids of bytes begin behind padding, end and unknown.
const FIRST_BYTE: u32 = 3;
/// The sentinels of T5 and ByT5, if no file says another number.
const USUAL_SENTINELS: usize = 100;
const USUAL_BYTE_SENTINELS: usize = 125;

/// The languages of mBART in the order of their tokens; the first 25 are those of the first model.
const MBART_LANGUAGES: [&str; 52] = [
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX",
    "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN",
    "zh_CN", "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN",
    "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA",
    "ur_PK", "xh_ZA", "gl_ES", "sl_SI",
];
const FIRST_LANGUAGES: usize = 25;

/// Whose tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairSide {
    /// What is read.
    Source,
    /// What is written.
    Target,
}

/// Where the token of a language stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LanguagePlace {
    /// The model has no languages.
    None,
    /// `text </s> language`, and the target begins with its language (mBART).
    Behind,
    /// `language text </s>`, and the first token of the target is its language (mBART-50).
    Before,
    /// `language text </s>`, of the target alone (Marian's models of several targets).
    TargetBefore,
}

/// What texts become tokens by.
#[derive(Clone, Debug)]
enum Pieces {
    /// A tokenizer with its template.
    Text(Box<TextTokenizer>),
    /// T5's file of pieces, with sentinels behind them.
    Sentinels { pieces: Box<SentencePieces>, sentinels: usize },
    /// mBART's file of pieces: the first four tokens are others, and languages and the mask come behind them.
    Fairseq(Box<SentencePieces>),
    /// Marian's files of pieces, whose numbers are another file's.
    Marian(Box<MarianPieces>),
    /// Bytes, with sentinels behind them.
    Bytes { sentinels: usize },
}

/// Converts sources and targets to tokens and back.
#[derive(Clone, Debug)]
pub struct PairTokenizer {
    pieces: Pieces,
    place: LanguagePlace,
    /// The languages with their tokens.
    languages: Vec<(String, u32)>,
    end: u32,
    files: Vec<(String, Arc<[u8]>)>,
}

/// The files that a directory may have, all of which are written again.
const FILES: [&str; 12] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "target_vocab.json",
    "generation_config.json",
];

impl PairTokenizer {
    /// Opens a model directory's tokenizer. `end` is the token that ends a text, by the model's configuration.
    pub fn open(directory: &Path, end: u32) -> Result<PairTokenizer, TokeniserError> {
        let (settings, config) =
            (read_json(&directory.join("tokenizer_config.json"))?, read_json(&directory.join("config.json"))?);
        let class = settings.get("tokenizer_class").or(config.get("tokenizer_class")).and_then(Value::as_str);
        let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let class = class.unwrap_or_default().trim_end_matches("Fast").to_string();
        let has = |name: &str| directory.join(name).is_file();
        let extra = settings.get("extra_ids").and_then(Value::as_u64).map(|count| count.min(1 << 16) as usize);
        let pieces = if has("source.spm") && has("target.spm") && has("vocab.json") {
            let is_separate = settings.get("separate_vocabs").and_then(Value::as_bool).unwrap_or(false);
            Pieces::Marian(Box::new(MarianPieces::open(directory, is_separate)?))
        } else if class == "ByT5Tokenizer" {
            Pieces::Bytes { sentinels: extra.unwrap_or(USUAL_BYTE_SENTINELS) }
        } else if !has("tokenizer.json") && has("spiece.model") {
            let pieces = Box::new(SentencePieces::open(&directory.join("spiece.model"))?);
            Pieces::Sentinels { pieces, sentinels: extra.unwrap_or(USUAL_SENTINELS) }
        } else if !has("tokenizer.json") && has("sentencepiece.bpe.model") {
            Pieces::Fairseq(Box::new(SentencePieces::open(&directory.join("sentencepiece.bpe.model"))?))
        } else {
            Pieces::Text(Box::new(TextTokenizer::open(directory)?))
        };
        let place = match (&pieces, class.as_str()) {
            (Pieces::Marian(_), _) => LanguagePlace::TargetBefore,
            (_, "MBart50Tokenizer") => LanguagePlace::Before,
            (_, "MBartTokenizer") => LanguagePlace::Behind,
            _ if model_type == "mbart" => LanguagePlace::Behind,
            _ => LanguagePlace::None,
        };
        let mut files = Vec::new();
        for name in FILES {
            files.extend(read(&directory.join(name))?.map(|bytes| (name.to_string(), bytes.into())));
        }
        let mut tokenizer = PairTokenizer { pieces, place, languages: Vec::new(), end, files };
        tokenizer.languages = tokenizer.find_languages();
        if tokenizer.languages.is_empty() {
            tokenizer.place = LanguagePlace::None;
        }
        Ok(tokenizer)
    }

    /// A tokenizer that was learnt from texts.
    pub fn of_text(tokenizer: TextTokenizer, end: u32) -> Result<PairTokenizer, TokeniserError> {
        let files = tokenizer.files()?.into_iter().map(|(name, bytes)| (name, bytes.into())).collect();
        let pieces = Pieces::Text(Box::new(tokenizer));
        Ok(PairTokenizer { pieces, place: LanguagePlace::None, languages: Vec::new(), end, files })
    }

    /// ByT5's bytes, with the usual sentinels.
    pub fn bytes() -> PairTokenizer {
        let pieces = Pieces::Bytes { sentinels: USUAL_BYTE_SENTINELS };
        let config = br#"{"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}"#;
        let files = vec![("tokenizer_config.json".to_string(), Arc::from(&config[..]))];
        PairTokenizer { pieces, place: LanguagePlace::None, languages: Vec::new(), end: 1, files }
    }

    fn find_languages(&self) -> Vec<(String, u32)> {
        let named = |code: &&str| self.id(code).map(|id| (code.to_string(), id));
        match (self.place, &self.pieces) {
            (LanguagePlace::None, _) => Vec::new(),
            (_, Pieces::Marian(pieces)) => pieces.languages(),
            (LanguagePlace::Behind, _) => MBART_LANGUAGES[..FIRST_LANGUAGES].iter().filter_map(named).collect(),
            _ => MBART_LANGUAGES.iter().filter_map(named).collect(),
        }
    }

    /// The codes of the languages that the model has; empty if it has none.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.languages.iter().map(|(code, _)| code.as_str())
    }

    /// Whether a source says its language.
    pub fn names_sources(&self) -> bool {
        matches!(self.place, LanguagePlace::Before | LanguagePlace::Behind)
    }

    /// The token of a language: its code, or the beginning of one (`de` of `de_DE`).
    fn language(&self, wanted: &str) -> Result<u32, TokeniserError> {
        let exact = self.languages.iter().find(|(code, _)| code.eq_ignore_ascii_case(wanted));
        let short = || self.languages.iter().find(|(code, _)| code.split('_').next() == Some(wanted));
        exact.or_else(short).map(|(_, id)| *id).ok_or_else(|| TokeniserError::Language {
            wanted: wanted.to_string(),
            known: self.languages().collect::<Vec<_>>().join(", "),
        })
    }

    /// The tokens of a source, as the encoder reads it. Languages are those of source and target; they must be given where the model has
    /// some.
    pub fn encode_source(&self, text: &str, from: Option<&str>, to: Option<&str>) -> Result<Vec<u32>, TokeniserError> {
        let language = match self.place {
            LanguagePlace::None => {
                self.refuse_languages(from.or(to))?;
                None
            }
            LanguagePlace::TargetBefore => to.map(|to| self.language(to)).transpose()?,
            LanguagePlace::Before | LanguagePlace::Behind => Some(self.need_language(from, "--from")?),
        };
        self.with_special(text, PairSide::Source, language)
    }

    /// The tokens of a target, as a decoder is to write it.
    pub fn encode_target(&self, text: &str, to: Option<&str>) -> Result<Vec<u32>, TokeniserError> {
        let language = match self.place {
            LanguagePlace::Before | LanguagePlace::Behind => Some(self.need_language(to, "--to")?),
            LanguagePlace::None | LanguagePlace::TargetBefore => None,
        };
        self.with_special(text, PairSide::Target, language)
    }

    fn with_special(&self, text: &str, side: PairSide, language: Option<u32>) -> Result<Vec<u32>, TokeniserError> {
        if let (Pieces::Text(tokenizer), LanguagePlace::None) = (&self.pieces, self.place) {
            return Ok(tokenizer.encode(text, None, usize::MAX)?.ids);
        }
        let plain = self.plain(text, side)?;
        let end = [self.end];
        let (before, behind) = match self.place {
            LanguagePlace::Behind => (None, language),
            _ => (language, None),
        };
        Ok(before.into_iter().chain(plain).chain(end).chain(behind).collect())
    }

    /// Keeps at most so many tokens of a source or target: the first, and those from the last end on, where a language may follow.
    pub fn truncate(&self, tokens: &mut Vec<u32>, longest: usize) {
        if tokens.len() > longest {
            let place = tokens.iter().rposition(|&token| token == self.end).unwrap_or(tokens.len());
            let behind = tokens.split_off(place);
            tokens.truncate(longest.saturating_sub(behind.len()));
            tokens.extend(behind);
            tokens.truncate(longest);
        }
    }

    /// The tokens of a text alone.
    fn plain(&self, text: &str, side: PairSide) -> Result<Vec<u32>, TokeniserError> {
        Ok(match &self.pieces {
            Pieces::Text(tokenizer) => tokenizer.encode_plain(text)?,
            Pieces::Fairseq(pieces) => pieces.encode(text).into_iter().map(|id| fairseq_of(id, pieces)).collect(),
            Pieces::Marian(pieces) => pieces.encode(side, text),
            Pieces::Sentinels { pieces, sentinels } => {
                let first = pieces.len();
                between_sentinels(
                    text,
                    *sentinels,
                    |text| pieces.encode(text),
                    |which| (first + sentinels - 1 - which) as u32,
                )
            }
            Pieces::Bytes { sentinels } => between_sentinels(
                text,
                *sentinels,
                |text| text.bytes().map(|byte| u32::from(byte) + FIRST_BYTE).collect(),
                |which| FIRST_BYTE + 256 + which as u32,
            ),
        })
    }

    fn need_language(&self, wanted: Option<&str>, option: &'static str) -> Result<u32, TokeniserError> {
        match wanted {
            Some(wanted) => self.language(wanted),
            None => Err(TokeniserError::NoLanguage { option, known: self.languages().collect::<Vec<_>>().join(", ") }),
        }
    }

    fn refuse_languages(&self, wanted: Option<&str>) -> Result<(), TokeniserError> {
        match wanted {
            Some(wanted) => Err(TokeniserError::Language { wanted: wanted.to_string(), known: String::new() }),
            None => Ok(()),
        }
    }

    /// What a target in a language begins with, if it is not the model's usual start.
    pub fn start(&self, to: Option<&str>) -> Result<Option<u32>, TokeniserError> {
        match self.place {
            LanguagePlace::Behind => self.need_language(to, "--to").map(Some),
            LanguagePlace::None | LanguagePlace::Before | LanguagePlace::TargetBefore => Ok(None),
        }
    }

    /// The first token of a target in a language, if it is given.
    pub fn forced_first(&self, to: Option<&str>) -> Result<Option<u32>, TokeniserError> {
        match self.place {
            LanguagePlace::Before => self.need_language(to, "--to").map(Some),
            LanguagePlace::None | LanguagePlace::Behind | LanguagePlace::TargetBefore => Ok(None),
        }
    }

    /// The text of a target's tokens, without special ones.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokeniserError> {
        let is_special = |id: &u32| *id == self.end || self.is_language(PairSide::Target, *id);
        let ids: Vec<u32> = ids.iter().copied().filter(|id| !is_special(id)).collect();
        Ok(match &self.pieces {
            Pieces::Text(tokenizer) => tokenizer.decode(&ids, true)?,
            Pieces::Sentinels { pieces, .. } => pieces.decode(&ids),
            Pieces::Fairseq(pieces) => {
                let own = |&id: &u32| if id < 4 { None } else { Some(id - 1) };
                pieces.decode(&ids.iter().filter_map(own).collect::<Vec<_>>())
            }
            Pieces::Marian(pieces) => pieces.decode(&ids),
            Pieces::Bytes { .. } => {
                let byte = |&id: &u32| id.checked_sub(FIRST_BYTE).and_then(|byte| u8::try_from(byte).ok());
                String::from_utf8_lossy(&ids.iter().filter_map(byte).collect::<Vec<_>>()).into_owned()
            }
        })
    }

    /// A token for display.
    pub fn piece(&self, side: PairSide, id: u32) -> String {
        let named = match &self.pieces {
            Pieces::Text(tokenizer) => tokenizer.token(id),
            Pieces::Sentinels { pieces, sentinels } => pieces.piece(id).map(str::to_string).or_else(|| {
                let which = (pieces.len() + sentinels).checked_sub(id as usize + 1)?;
                Some(sentinel(which))
            }),
            Pieces::Fairseq(pieces) => match id {
                0..4 => Some(["<s>", "<pad>", "</s>", "<unk>"][id as usize].to_string()),
                _ => pieces.piece(id - 1).map(str::to_string),
            },
            Pieces::Marian(pieces) => pieces.name(side, id).map(str::to_string),
            Pieces::Bytes { .. } => match id.checked_sub(FIRST_BYTE) {
                None => Some(["<pad>", "</s>", "<unk>"][id as usize].to_string()),
                Some(byte) if byte < 256 => Some(char::from(byte as u8).to_string()),
                Some(byte) => Some(sentinel(byte as usize - 256)),
            },
        };
        let language = || self.languages.iter().find(|(_, language)| *language == id).map(|(code, _)| code.clone());
        let language = if self.is_language(side, id) { language() } else { None };
        language.or(named).unwrap_or_else(|| format!("<{id}>"))
    }

    /// Tokens grouped into words: a token that is written with a space before it begins one, and a special token is one by itself.
    pub fn words(&self, side: PairSide, tokens: &[u32]) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        let mut may_continue = false;
        for (place, &token) in tokens.iter().enumerate() {
            let piece = self.piece(side, token);
            let is_special = self.is_special(side, token, &piece);
            let plain = piece.trim_start_matches(['\u{2581}', '\u{120}', ' ']);
            let begins = is_special || !may_continue || plain.len() < piece.len();
            match words.last_mut() {
                Some(word) if !begins => {
                    word.text.push_str(plain);
                    word.tokens.end = place + 1;
                }
                _ => {
                    let text = if is_special { piece.clone() } else { plain.to_string() };
                    words.push(Word { text, tokens: place..place + 1, is_special });
                }
            }
            may_continue = !is_special;
        }
        words
    }

    /// Whether a token is that of a language.
    fn is_language(&self, side: PairSide, token: u32) -> bool {
        let has_others =
            side == PairSide::Target && matches!(&self.pieces, Pieces::Marian(pieces) if pieces.is_separate());
        !has_others && self.languages.iter().any(|(_, language)| *language == token)
    }

    /// Whether a token is no text.
    fn is_special(&self, side: PairSide, token: u32, piece: &str) -> bool {
        token == self.end
            || self.is_language(side, token)
            || (piece.len() > 2 && piece.starts_with('<') && piece.ends_with('>'))
    }

    /// The index of a token's name.
    pub fn id(&self, name: &str) -> Option<u32> {
        match &self.pieces {
            Pieces::Text(tokenizer) => tokenizer.id(name),
            Pieces::Sentinels { pieces, .. } => pieces.id(name),
            Pieces::Fairseq(pieces) => {
                let place = MBART_LANGUAGES.iter().position(|code| *code == name);
                match place {
                    Some(place) => Some((pieces.len() + 1 + place) as u32),
                    None => pieces.id(name).map(|id| fairseq_of(id, pieces)),
                }
            }
            Pieces::Marian(pieces) => pieces.id(name),
            Pieces::Bytes { .. } => None,
        }
    }

    /// The size that an embedding of a side must have at least.
    pub fn vocabulary_size(&self, side: PairSide) -> usize {
        match &self.pieces {
            Pieces::Text(tokenizer) => tokenizer.vocabulary_size(),
            Pieces::Sentinels { pieces, sentinels } => pieces.len() + sentinels,
            Pieces::Fairseq(pieces) => pieces.len() + 1 + self.languages.len(),
            Pieces::Marian(pieces) => pieces.size(side),
            Pieces::Bytes { sentinels } => FIRST_BYTE as usize + 256 + sentinels,
        }
    }

    /// The tokens that stand for spans of text that are left out, in their order: T5's `<extra_id_0>`, ..
    pub fn sentinels(&self) -> Vec<u32> {
        let named = |tokenizer: &TextTokenizer| {
            (0..).map_while(|which| tokenizer.id(&sentinel(which))).take(1 << 16).collect::<Vec<u32>>()
        };
        match &self.pieces {
            Pieces::Text(tokenizer) => named(tokenizer),
            Pieces::Sentinels { pieces, sentinels } => {
                (0..*sentinels).map(|which| (pieces.len() + sentinels - 1 - which) as u32).collect()
            }
            Pieces::Bytes { sentinels } => (0..*sentinels as u32).map(|which| FIRST_BYTE + 256 + which).collect(),
            Pieces::Fairseq(_) | Pieces::Marian(_) => Vec::new(),
        }
    }

    /// The tokens of a text without special tokens.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokeniserError> {
        self.plain(text, PairSide::Source)
    }

    /// The mask token, if there is one.
    pub fn mask(&self) -> Option<u32> {
        match &self.pieces {
            Pieces::Text(tokenizer) => tokenizer.special().mask,
            Pieces::Fairseq(pieces) => Some((pieces.len() + 1 + self.languages.len()) as u32),
            Pieces::Sentinels { .. } | Pieces::Marian(_) | Pieces::Bytes { .. } => None,
        }
    }

    /// Its files by name, as they were read.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        self.files.iter().map(|(name, bytes)| (name.clone(), bytes.to_vec())).collect()
    }
}

/// mBART's number of a piece: `<s>`, `<pad>`, `</s>`, `<unk>` come first, then the pieces behind the first three.
fn fairseq_of(id: u32, pieces: &SentencePieces) -> u32 {
    if id == pieces.unknown() { 3 } else { id + 1 }
}

fn sentinel(which: usize) -> String {
    format!("<extra_id_{which}>")
}

/// The tokens of a text in which sentinels are written as `<extra_id_0>`.
fn between_sentinels(
    text: &str,
    count: usize,
    encode: impl Fn(&str) -> Vec<u32>,
    id: impl Fn(usize) -> u32,
) -> Vec<u32> {
    const OPENING: &str = "<extra_id_";
    let mut tokens = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(found) = rest[from..].find(OPENING) {
        let start = from + found;
        let number = rest[start + OPENING.len()..].split_once('>').map(|(number, _)| number);
        match number.and_then(|number| Some((number.len(), number.parse::<usize>().ok()?))) {
            Some((digits, which)) if which < count => {
                // As the peer: spaces beside a sentinel are not part of the text.
                let before = rest[..start].trim_end();
                if !before.is_empty() {
                    tokens.extend(encode(before));
                }
                tokens.push(id(which));
                rest = rest[start + OPENING.len() + digits + 1..].trim_start();
                from = 0;
            }
            _ => from = start + OPENING.len(),
        }
    }
    if !rest.is_empty() || tokens.is_empty() {
        tokens.extend(encode(rest));
    }
    tokens
}

/// The JSON of a file; null if there is no such file.
pub(super) fn read_json(path: &Path) -> Result<Value, TokeniserError> {
    let Some(bytes) = read(path)? else { return Ok(Value::Null) };
    serde_json::from_slice(&bytes).map_err(|error| TokeniserError::Damaged {
        path: path.to_path_buf(),
        reason: format!("this is not JSON: {error}"),
    })
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, TokeniserError> {
    if !path.is_file() {
        return Ok(None);
    }
    let failed = |error| TokeniserError::Io { path: path.to_path_buf(), error };
    read_bounded(path, MOST_FILE_BYTES).map(Some).map_err(failed)
}
