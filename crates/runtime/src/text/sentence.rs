//! What sentence-transformers writes beside a model: how the vectors of tokens become one of the text.

use std::path::Path;

use serde_json::Value as Json;
use vitreous_files::open::read_text;
use vitreous_models::Pooling;

use super::dense::DenseSettings;
use super::embed::Purpose;
use super::model::TextInput;
use crate::error::Error;

/// The largest of these files.
const MOST_BYTES: u64 = 1 << 20;

/// The settings of a sentence-transformers directory; all `None` for other directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentenceSettings {
    /// How tokens are pooled.
    pub pooling: Option<Pooling>,
    /// What is done with the pooled vector, one after the other.
    pub after_pooling: Vec<VectorModule>,
    /// The most tokens of a text.
    pub longest: Option<usize>,
    /// Whether texts are lower-cased, whatever the tokenizer does.
    pub lower_case: bool,
    /// What is written before texts.
    pub prompts: Prompts,
}

/// What sentence-transformers does with the vector of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VectorModule {
    /// A linear layer.
    Dense(DenseSettings),
    /// Scales it to length 1.
    Normalize,
}

/// What is written before a text, by what it is for; empty where there is nothing to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    /// Before any text.
    pub usual: String,
    /// Before what is searched for.
    pub query: String,
    /// Before what is searched in.
    pub document: String,
}

impl Prompts {
    /// Reads `config_sentence_transformers.json`, as `encode`, `encode_query` and `encode_document` take it.
    fn read(directory: &Path) -> Result<Prompts, Error> {
        let Some(config) = read_json(&directory.join("config_sentence_transformers.json"))? else {
            return Ok(Prompts::default());
        };
        let prompt = |name: &str| config.get("prompts").and_then(|prompts| prompts.get(name)).and_then(Json::as_str);
        let usual = config.get("default_prompt_name").and_then(Json::as_str).and_then(prompt).unwrap_or_default();
        // Newer versions write both names, empty if there is no prompt, so that the usual one is not meant.
        let or_usual = |prompt: Option<&str>| prompt.unwrap_or(usual).to_string();
        let document = ["document", "passage", "corpus"].into_iter().find_map(prompt);
        Ok(Prompts { usual: usual.to_string(), query: or_usual(prompt("query")), document: or_usual(document) })
    }

    fn are_empty(&self) -> bool {
        [&self.usual, &self.query, &self.document].into_iter().all(String::is_empty)
    }
}

impl SentenceSettings {
    /// How tokens are pooled: the mean where nothing says otherwise.
    pub fn pooling(&self) -> Pooling {
        self.pooling.unwrap_or(Pooling::Mean)
    }

    /// A text as its vector is computed: with the prompt of what it is for, and in lower case where that is wanted.
    pub fn prepared(&self, input: &TextInput, purpose: Purpose) -> TextInput {
        let prompt = match purpose {
            Purpose::Any => &self.prompts.usual,
            Purpose::Query => &self.prompts.query,
            Purpose::Document => &self.prompts.document,
        };
        let cased = |text: String| if self.lower_case { text.to_lowercase() } else { text };
        TextInput { text: cased(format!("{prompt}{}", input.text)), pair: input.pair.clone().map(cased) }
    }

    /// Reads `modules.json` and what it names.
    pub(super) fn read(directory: &Path) -> Result<SentenceSettings, Error> {
        let mut settings = SentenceSettings::default();
        let Some(modules) = read_json(&directory.join("modules.json"))? else { return Ok(settings) };
        let refuse = |what: String| Error::input(format!("{}: {what}", directory.join("modules.json").display()));
        let modules = modules.as_array().ok_or_else(|| refuse("this is not a list of modules".to_string()))?;
        settings.prompts = Prompts::read(directory)?;
        for module in modules {
            let text = |key: &str| module.get(key).and_then(Json::as_str).unwrap_or_default();
            let folder = text("path");
            // A folder inside: the file may come from anybody.
            if Path::new(folder).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
                return Err(refuse(format!("{folder:?} is not a folder inside the model directory")));
            }
            match text("type").rsplit('.').next().unwrap_or_default() {
                "Transformer" => {
                    let file = directory.join(folder).join("sentence_bert_config.json");
                    if let Some(config) = read_json(&file)? {
                        let longest = config.get("max_seq_length").and_then(Json::as_u64);
                        settings.longest = longest.and_then(|longest| usize::try_from(longest).ok());
                        settings.lower_case = config.get("do_lower_case").and_then(Json::as_bool).unwrap_or(false);
                    }
                }
                "Pooling" => {
                    let file = directory.join(folder).join("config.json");
                    settings.pooling = Some(read_pooling(&file, &settings.prompts)?);
                }
                kind @ ("Dense" | "Normalize") if settings.pooling.is_none() => {
                    return Err(refuse(format!(
                        "the module {kind:?} stands before the pooling, which is not possible here"
                    )));
                }
                "Dense" => {
                    let dense = DenseSettings::read(&directory.join(folder))?;
                    settings.after_pooling.push(VectorModule::Dense(dense));
                }
                "Normalize" => settings.after_pooling.push(VectorModule::Normalize),
                other => {
                    return Err(refuse(format!(
                        "a module {other:?} is not supported: Transformer, Pooling, Dense and Normalize are. With the file moved away, \
                         `embed --pooling` gives vectors without it"
                    )));
                }
            }
        }
        Ok(settings)
    }
}

/// The one way of pooling that a `1_Pooling/config.json` says.
fn read_pooling(file: &Path, prompts: &Prompts) -> Result<Pooling, Error> {
    let refuse = |what: String| Error::input(format!("{}: {what}", file.display()));
    let Some(config) = read_json(file)? else { return Err(refuse("there is no such file".to_string())) };
    // Newer directories have one word, older ones a flag for each.
    let mut modes: Vec<String> = match config.get("pooling_mode") {
        Some(Json::String(mode)) => vec![mode.clone()],
        Some(Json::Array(modes)) => modes.iter().filter_map(Json::as_str).map(str::to_string).collect(),
        _ => {
            let flags = config.as_object().into_iter().flatten();
            let set = flags.filter(|(_, value)| value.as_bool() == Some(true));
            set.filter_map(|(key, _)| key.strip_prefix("pooling_mode_").map(str::to_string)).collect()
        }
    };
    if config.get("include_prompt").and_then(Json::as_bool) == Some(false) && !prompts.are_empty() {
        return Err(refuse("it leaves the prompt out of the pooling, which is not possible here".to_string()));
    }
    let known = |mode: &str| match mode {
        "cls_token" | "cls" => Some(Pooling::Cls),
        "mean_tokens" | "mean" => Some(Pooling::Mean),
        "max_tokens" | "max" => Some(Pooling::Max),
        "lasttoken" => Some(Pooling::Last),
        _ => None,
    };
    match (modes.pop(), modes.len()) {
        (Some(mode), 0) => known(&mode).ok_or_else(|| refuse(format!("pooling by {mode:?} is not supported"))),
        (None, _) => Err(refuse("it says no way of pooling".to_string())),
        _ => Err(refuse("it says several ways of pooling, of which one is possible here".to_string())),
    }
}

pub(super) fn read_json(file: &Path) -> Result<Option<Json>, Error> {
    let text = match read_text(file, MOST_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::input(format!("{}: {error}", file.display()))),
    };
    let parsed = serde_json::from_str(&text);
    parsed.map(Some).map_err(|error| Error::input(format!("{}: this is not JSON: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(files: &[(&str, &str)]) -> Result<SentenceSettings, Error> {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let file = directory.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            std::fs::write(file, text).expect("written");
        }
        SentenceSettings::read(directory.path())
    }

    const MODULES: &str = r#"[
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;

    #[test]
    fn settings_are_those_of_the_directory() {
        assert_eq!(written(&[]).expect("no file"), SentenceSettings::default());
        let pooling = r#"{"word_embedding_dimension": 8, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true,
            "pooling_mode_max_tokens": false}"#;
        let found = written(&[
            ("modules.json", MODULES),
            ("1_Pooling/config.json", pooling),
            ("sentence_bert_config.json", r#"{"max_seq_length": 256}"#),
        ]);
        let expected = SentenceSettings {
            pooling: Some(Pooling::Mean),
            after_pooling: vec![VectorModule::Normalize],
            longest: Some(256),
            ..SentenceSettings::default()
        };
        assert_eq!(found.expect("settings"), expected);
        let newer = written(&[("modules.json", MODULES), ("1_Pooling/config.json", r#"{"pooling_mode": "cls"}"#)]);
        assert_eq!(newer.expect("settings").pooling, Some(Pooling::Cls));
    }

    #[test]
    fn prompts_are_those_of_sentence_transformers() {
        let prompts = |text: &str| {
            let pooling = r#"{"pooling_mode": ["mean"], "include_prompt": true}"#;
            let config = ("config_sentence_transformers.json", text);
            let found = written(&[("modules.json", MODULES), ("1_Pooling/config.json", pooling), config]);
            let Prompts { usual, query, document } = found.expect("settings").prompts;
            [usual, query, document]
        };
        assert_eq!(prompts(r#"{"prompts": {}, "default_prompt_name": null}"#), ["", "", ""]);
        let named = r#"{"prompts": {"query": "query: ", "passage": "passage: "}}"#;
        assert_eq!(prompts(named), ["", "query: ", "passage: "]);
        let usual = r#"{"prompts": {"topic": "about: ", "document": ""}, "default_prompt_name": "topic"}"#;
        assert_eq!(prompts(usual), ["about: ", "about: ", ""]);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let refused = |files: &[(&str, &str)], says: &str| {
            let error = written(files).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        };
        refused(&[("modules.json", "{")], "no JSON");
        refused(&[("modules.json", MODULES)], "no such file");
        let several = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#;
        refused(&[("modules.json", MODULES), ("1_Pooling/config.json", several)], "several");
        let listed = r#"{"pooling_mode": ["cls", "mean"]}"#;
        refused(&[("modules.json", MODULES), ("1_Pooling/config.json", listed)], "several");
        let left_out = r#"{"pooling_mode": "mean", "include_prompt": false}"#;
        let prompts = ("config_sentence_transformers.json", r#"{"prompts": {"query": "query: "}}"#);
        refused(&[("modules.json", MODULES), ("1_Pooling/config.json", left_out), prompts], "leaves the prompt out");
        refused(&[("modules.json", r#"[{"path": "2_CNN", "type": "sentence_transformers.models.CNN"}]"#)], "\"CNN\"");
        let early = r#"[{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]"#;
        refused(&[("modules.json", early)], "before the pooling");
        refused(&[("modules.json", r#"[{"path": "../../etc", "type": "x.Pooling"}]"#)], "no folder");
    }
}
