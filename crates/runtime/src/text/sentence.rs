//! What sentence-transformers writes beside a model: how the vectors of tokens become one of the text.

use std::path::Path;

use serde_json::Value as Json;
use vitreous_files::open::read_text;
use vitreous_models::Pooling;

use crate::error::Error;

/// The largest of these files.
const MOST_BYTES: u64 = 1 << 20;

/// The settings of a sentence-transformers directory; all `None` for other directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentenceSettings {
    /// How tokens are pooled.
    pub pooling: Option<Pooling>,
    /// Whether vectors are scaled to length 1.
    pub normalise: bool,
    /// The most tokens of a text.
    pub longest: Option<usize>,
}

impl SentenceSettings {
    /// Reads `modules.json` and what it names.
    pub(super) fn read(directory: &Path) -> Result<SentenceSettings, Error> {
        let mut settings = SentenceSettings::default();
        let Some(modules) = read_json(&directory.join("modules.json"))? else { return Ok(settings) };
        let refuse = |what: String| Error::input(format!("{}: {what}", directory.join("modules.json").display()));
        let modules = modules.as_array().ok_or_else(|| refuse("this is no list of modules".to_string()))?;
        for module in modules {
            let text = |key: &str| module.get(key).and_then(Json::as_str).unwrap_or_default();
            let folder = text("path");
            // A folder inside: the file may come from anybody.
            if Path::new(folder).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
                return Err(refuse(format!("{folder:?} is no folder of the model's")));
            }
            match text("type").rsplit('.').next().unwrap_or_default() {
                "Transformer" => {
                    let file = directory.join(folder).join("sentence_bert_config.json");
                    if let Some(config) = read_json(&file)? {
                        let longest = config.get("max_seq_length").and_then(Json::as_u64);
                        settings.longest = longest.and_then(|longest| usize::try_from(longest).ok());
                    }
                }
                "Pooling" => settings.pooling = Some(read_pooling(&directory.join(folder).join("config.json"))?),
                "Normalize" => settings.normalise = true,
                other => {
                    return Err(refuse(format!(
                        "a module {other:?} is not known here: Transformer, Pooling and Normalize are. With the file moved away, `embed \
                         --pooling` gives vectors without it"
                    )));
                }
            }
        }
        Ok(settings)
    }
}

/// The one way of pooling that a `1_Pooling/config.json` says.
fn read_pooling(file: &Path) -> Result<Pooling, Error> {
    let refuse = |what: String| Error::input(format!("{}: {what}", file.display()));
    let Some(config) = read_json(file)? else { return Err(refuse("there is no such file".to_string())) };
    // Newer directories have one word, older ones a flag for each.
    let mut modes: Vec<String> = match config.get("pooling_mode").and_then(Json::as_str) {
        Some(mode) => vec![mode.to_string()],
        None => {
            let flags = config.as_object().into_iter().flatten();
            let set = flags.filter(|(_, value)| value.as_bool() == Some(true));
            set.filter_map(|(key, _)| key.strip_prefix("pooling_mode_").map(str::to_string)).collect()
        }
    };
    let known = |mode: &str| match mode {
        "cls_token" | "cls" => Some(Pooling::Cls),
        "mean_tokens" | "mean" => Some(Pooling::Mean),
        "max_tokens" | "max" => Some(Pooling::Max),
        "lasttoken" => Some(Pooling::Last),
        _ => None,
    };
    match (modes.pop(), modes.len()) {
        (Some(mode), 0) => known(&mode).ok_or_else(|| refuse(format!("pooling by {mode:?} is not known here"))),
        (None, _) => Err(refuse("it says no way of pooling".to_string())),
        _ => Err(refuse("it says several ways of pooling, of which one is possible here".to_string())),
    }
}

fn read_json(file: &Path) -> Result<Option<Json>, Error> {
    let text = match read_text(file, MOST_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::input(format!("{}: {error}", file.display()))),
    };
    let parsed = serde_json::from_str(&text);
    parsed.map(Some).map_err(|error| Error::input(format!("{}: this is no JSON: {error}", file.display())))
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
        let expected = SentenceSettings { pooling: Some(Pooling::Mean), normalise: true, longest: Some(256) };
        assert_eq!(found.expect("settings"), expected);
        let newer = written(&[("modules.json", MODULES), ("1_Pooling/config.json", r#"{"pooling_mode": "cls"}"#)]);
        assert_eq!(newer.expect("settings").pooling, Some(Pooling::Cls));
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
        refused(&[("modules.json", r#"[{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]"#)], "Dense");
        refused(&[("modules.json", r#"[{"path": "../../etc", "type": "x.Pooling"}]"#)], "no folder");
    }
}
