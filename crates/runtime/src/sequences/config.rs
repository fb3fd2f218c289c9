//! `generation_config.json`: how a model's authors would have it write. Where there is none, `config.json` says it, as in older models.

use std::path::Path;

use serde_json::{Map, Value};
use vitreous_models::SpecialTokens;
use vitreous_models::generate::{EarlyStopping, TargetRules};

use crate::error::Error;

/// More beams than anybody takes.
const MOST_BEAMS: u64 = 256;
/// The most tokens, n-grams and forbidden sequences that a file may say.
const MOST_TOKENS: u64 = 1 << 20;

/// What the files say.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationConfig {
    /// `num_beams`.
    pub beam: usize,
    /// `length_penalty`.
    pub length_penalty: f32,
    /// `decoder_start_token_id`.
    pub start: Option<u32>,
    /// All other rules.
    pub rules: TargetRules,
    /// What they say beyond that, which is not done: `encoder_no_repeat_ngram_size = 4`.
    pub ignored: Vec<String>,
}

/// Settings of `transformers`' `generate` that change what is written and that are not done here, with the values that change nothing.
const NOT_DONE: [(&str, &[f64]); 14] = [
    ("encoder_no_repeat_ngram_size", &[0.0]),
    ("encoder_repetition_penalty", &[1.0]),
    ("diversity_penalty", &[0.0]),
    ("num_beam_groups", &[1.0]),
    ("penalty_alpha", &[0.0]),
    ("guidance_scale", &[1.0]),
    ("do_sample", &[]),
    ("renormalize_logits", &[]),
    ("constraints", &[]),
    ("force_words_ids", &[]),
    ("sequence_bias", &[]),
    ("begin_suppress_tokens", &[]),
    ("forced_decoder_ids", &[]),
    ("exponential_decay_length_penalty", &[]),
];

impl GenerationConfig {
    /// Reads the files of a directory, for a model with these special tokens and so many others.
    pub fn read(directory: &Path, special: SpecialTokens, vocabulary: usize) -> Result<GenerationConfig, Error> {
        for name in ["generation_config.json", "config.json"] {
            let path = directory.join(name);
            if !path.is_file() {
                continue;
            }
            let refused = |what: String| Error::input(format!("{}: {what}", path.display()));
            let bytes = std::fs::read(&path).map_err(|error| refused(error.to_string()))?;
            let file: Value =
                serde_json::from_slice(&bytes).map_err(|error| refused(format!("this is not JSON: {error}")))?;
            let Value::Object(object) = file else { return Err(refused("this is not a JSON object".to_string())) };
            // A file of its own says all there is; a model's configuration leaves out what is usual for its class.
            let forced_end = if name == "config.json" { special.forced_end } else { None };
            return Fields { object: &object, vocabulary }.config(special, forced_end).map_err(refused);
        }
        Ok(GenerationConfig::usual(special))
    }

    /// What a model does of which no file says anything.
    fn usual(special: SpecialTokens) -> GenerationConfig {
        let rules = TargetRules { forced_last: special.forced_end, ..TargetRules::ending_with(vec![special.end]) };
        GenerationConfig { beam: 1, length_penalty: 1.0, start: None, rules, ignored: Vec::new() }
    }
}

/// The fields of a file.
struct Fields<'f> {
    object: &'f Map<String, Value>,
    vocabulary: usize,
}

impl Fields<'_> {
    fn config(&self, special: SpecialTokens, forced_end: Option<u32>) -> Result<GenerationConfig, String> {
        let ends = self.tokens("eos_token_id")?;
        let early_stopping = match self.object.get("early_stopping") {
            None | Some(Value::Null | Value::Bool(false)) => EarlyStopping::WhenUnlikely,
            Some(Value::Bool(true)) => EarlyStopping::WhenFull,
            Some(Value::String(text)) if text == "never" => EarlyStopping::Never,
            Some(_) => return Err("`early_stopping` must be true, false or \"never\"".to_string()),
        };
        // Lengths count the start token.
        let length = |key: &str| Ok::<_, String>(self.size(key, MOST_TOKENS)?.map(|length| length.saturating_sub(1)));
        let suppressed = self.tokens("suppress_tokens")?.into_iter().map(|token| vec![token]);
        let rules = TargetRules {
            ends: if ends.is_empty() { vec![special.end] } else { ends },
            max_tokens: self.size("max_new_tokens", MOST_TOKENS)?.or(length("max_length")?).filter(|most| *most > 0),
            min_tokens: self.size("min_new_tokens", MOST_TOKENS)?.or(length("min_length")?).unwrap_or(0),
            early_stopping,
            forced_first: self.tokens("forced_bos_token_id")?.first().copied(),
            forced_last: self.tokens("forced_eos_token_id")?.first().copied().or(forced_end),
            no_repeat: self.size("no_repeat_ngram_size", MOST_TOKENS)?.unwrap_or(0),
            forbidden: self.forbidden()?.into_iter().chain(suppressed).collect(),
            repetition_penalty: self.number("repetition_penalty")?.unwrap_or(1.0),
        };
        if !(rules.repetition_penalty > 0.0 && rules.repetition_penalty.is_finite()) {
            return Err(format!("`repetition_penalty` must be above 0, not {}", rules.repetition_penalty));
        }
        let beam = self.size("num_beams", MOST_BEAMS)?.unwrap_or(1).max(1);
        let length_penalty = self.number("length_penalty")?.unwrap_or(1.0);
        let start = self.tokens("decoder_start_token_id")?.first().copied();
        Ok(GenerationConfig { beam, length_penalty, start, rules, ignored: self.ignored() })
    }

    /// What is said of [`NOT_DONE`].
    fn ignored(&self) -> Vec<String> {
        let changes_nothing = |value: &Value, neutral: &[f64]| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(values) => values.is_empty(),
            value => value.as_f64().is_some_and(|number| neutral.contains(&number)),
        };
        let said = NOT_DONE.iter().filter_map(|(key, neutral)| Some((key, neutral, self.object.get(*key)?)));
        said.filter(|(_, neutral, value)| !changes_nothing(value, neutral))
            .map(|(key, _, value)| format!("{key} = {}", short(value)))
            .collect()
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn size(&self, key: &str, most: u64) -> Result<Option<usize>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|size| *size <= most) {
                Some(size) => Ok(Some(size as usize)),
                None => Err(format!("`{key}` must be a whole number up to {most}, not {}", short(value))),
            },
        }
    }

    fn number(&self, key: &str) -> Result<Option<f32>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_f64().map(|number| number as f32).filter(|number| number.is_finite()) {
                Some(number) => Ok(Some(number)),
                None => Err(format!("`{key}` must be a number, not {}", short(value))),
            },
        }
    }

    /// One token, or a list of them.
    fn tokens(&self, key: &str) -> Result<Vec<u32>, String> {
        let one = |value: &Value| self.token(key, value);
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(tokens)) => tokens.iter().map(one).collect(),
            Some(value) => Ok(vec![one(value)?]),
        }
    }

    fn token(&self, key: &str, value: &Value) -> Result<u32, String> {
        let vocabulary = self.vocabulary;
        match value.as_u64().filter(|token| *token < vocabulary as u64) {
            Some(token) => Ok(token as u32),
            None => Err(format!("`{key}` is {}, but the vocabulary has {vocabulary} tokens", short(value))),
        }
    }

    /// `bad_words_ids`: sequences of tokens.
    fn forbidden(&self) -> Result<Vec<Vec<u32>>, String> {
        const KEY: &str = "bad_words_ids";
        let wrong = || format!("`{KEY}` must be a list of lists of tokens");
        let Some(value) = self.get(KEY) else { return Ok(Vec::new()) };
        let all = value.as_array().ok_or_else(wrong)?;
        let sequence = |value: &Value| {
            let tokens = value.as_array().filter(|tokens| !tokens.is_empty()).ok_or_else(wrong)?;
            tokens.iter().map(|token| self.token(KEY, token)).collect::<Result<Vec<u32>, String>>()
        };
        all.iter().take(MOST_TOKENS as usize).map(sequence).collect()
    }
}

/// A value for a message.
fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECIAL: SpecialTokens = SpecialTokens { padding: 0, start: 0, end: 1, forced_end: Some(1) };

    fn read(files: &[(&str, &str)]) -> Result<GenerationConfig, Error> {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).expect("written");
        }
        GenerationConfig::read(directory.path(), SPECIAL, 100)
    }

    #[test]
    fn a_file_of_its_own_wins() {
        let model = ("config.json", r#"{"num_beams": 4, "max_length": 20}"#);
        let older = read(&[model]).expect("reads");
        assert_eq!((older.beam, older.rules.max_tokens, older.rules.forced_last), (4, Some(19), Some(1)));
        let own = r#"{"num_beams": 2, "early_stopping": true, "no_repeat_ngram_size": 3, "eos_token_id": [1, 5], "bad_words_ids": [[9]],
            "decoder_start_token_id": 7, "min_length": 4, "forced_bos_token_id": 8, "length_penalty": 2.0}"#;
        let config = read(&[model, ("generation_config.json", own)]).expect("reads");
        let TargetRules { ends, max_tokens, min_tokens, early_stopping, forced_first, forced_last, .. } =
            config.rules.clone();
        assert_eq!((config.beam, config.length_penalty, config.start), (2, 2.0, Some(7)));
        assert_eq!((ends, max_tokens, min_tokens), (vec![1, 5], None, 3));
        assert_eq!((early_stopping, forced_first, forced_last), (EarlyStopping::WhenFull, Some(8), None));
        assert_eq!((config.rules.no_repeat, config.rules.forbidden), (3, vec![vec![9]]));
        assert_eq!(read(&[]).expect("reads"), GenerationConfig::usual(SPECIAL));
    }

    #[test]
    fn what_is_not_done_is_named() {
        let config = r#"{"encoder_no_repeat_ngram_size": 4, "encoder_repetition_penalty": 1.0, "num_beam_groups": 1, "do_sample": true,
            "diversity_penalty": 0.0, "forced_decoder_ids": null, "begin_suppress_tokens": [], "sequence_bias": [[[3], -1.0]]}"#;
        let ignored = read(&[("generation_config.json", config)]).expect("reads").ignored;
        assert_eq!(ignored, ["encoder_no_repeat_ngram_size = 4", "do_sample = true", "sequence_bias = [[[3],-1.0]]"]);
    }

    #[test]
    fn hostile_files_get_a_sentence() {
        for (text, says) in [
            ("[]", "not a JSON object"),
            ("{", "not JSON"),
            (r#"{"decoder_start_token_id": 100}"#, "decoder_start_token_id"),
            (r#"{"decoder_start_token_id": -1}"#, "100 tokens"),
            (r#"{"eos_token_id": [1, 100]}"#, "eos_token_id"),
            (r#"{"num_beams": 1000000}"#, "num_beams"),
            (r#"{"early_stopping": "soon"}"#, "early_stopping"),
            (r#"{"bad_words_ids": [[]]}"#, "bad_words_ids"),
            (r#"{"bad_words_ids": 5}"#, "bad_words_ids"),
            (r#"{"max_length": 1.5}"#, "max_length"),
            (r#"{"repetition_penalty": 0}"#, "repetition_penalty"),
            (r#"{"length_penalty": "long"}"#, "length_penalty"),
        ] {
            let said = read(&[("generation_config.json", text)]).expect_err(text).to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }
}
