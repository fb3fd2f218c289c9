//! `vitreous generate --json-schema` and `--regex`: models with random weights write what they must (fixtures/language).

mod common;

use std::fs;

use common::{Outcome, vitreous};
use serde_json::Value;

fn generate(model: &str, prompt: &str, arguments: &[&str]) -> Outcome {
    let model = format!("language/{model}");
    vitreous(&[&["generate", &model, prompt, "--device", "cpu"], arguments].concat())
}

/// The texts of many samples, which must be finished.
fn texts(model: &str, prompt: &str, arguments: &[&str]) -> Vec<String> {
    let sampled = ["--json", "--n", "40", "--seed", "3", "--temperature", "1.5"];
    let lines = generate(model, prompt, &[&sampled, arguments].concat()).succeeded().json_lines();
    assert_eq!(lines.len(), 40);
    let text = |line: &Value| {
        assert_eq!(line["stop"], "end", "{line}");
        line["text"].as_str().expect("text").to_string()
    };
    lines.iter().map(text).collect()
}

#[test]
fn a_regular_expression_is_matched_as_a_whole() {
    for (model, prompt) in [("gpt2", "Why"), ("llama", "The tide")] {
        let found = texts(model, prompt, &["--regex", "(the|gulls?) [a-e]{2,4}"]);
        for text in &found {
            let (first, second) = text.split_once(' ').expect("two words");
            assert!(["the", "gull", "gulls"].contains(&first), "{text:?}");
            assert!(
                (2..=4).contains(&second.len()) && second.bytes().all(|byte| (b'a'..=b'e').contains(&byte)),
                "{text:?}"
            );
        }
        assert!(found.iter().any(|text| *text != found[0]), "{found:?}");
        // Greedy search follows it, too, and streams.
        let greedy = generate(model, prompt, &["--regex", "no|yes"]).succeeded();
        assert!(["no\n", "yes\n"].contains(&greedy.stdout.as_str()), "{:?}", greedy.stdout);
    }
}

#[test]
fn json_is_what_the_schema_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("schema.json");
    let schema = r#"{"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 300}, "b": {"enum": [true, null]}},
                    "required": ["a"], "additionalProperties": false}"#;
    fs::write(&file, schema).expect("written");
    for given in [schema, file.to_str().expect("text")] {
        for text in texts("gpt2", "1", &["--json-schema", given]) {
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            let object = value.as_object().expect("an object");
            assert!(object["a"].as_u64().is_some_and(|number| number <= 300), "{text}");
            assert!(object.get("b").is_none_or(|b| b == true || b.is_null()) && object.len() <= 2, "{text}");
        }
    }
}

#[test]
fn what_cannot_be_followed_is_said() {
    let refused = |model: &str, arguments: &[&str], says: &str| generate(model, "Why", arguments).failed(2, &[says]);
    refused("gpt2", &["--regex", "("], "regular expression");
    refused("gpt2", &["--regex", "a", "--json-schema", "{}"], "cannot be used with");
    refused("gpt2", &["--regex", "a", "--beam", "2"], "beam search");
    refused("gpt2", &["--json-schema", "{\"type\": 3}"], "JSON schema");
    refused("gpt2", &["--json-schema", "{"], "not JSON");
    refused("gpt2", &["--json-schema", "nowhere.json"], "nowhere.json");
    // Its vocabulary has no braces.
    refused("llama", &["--json-schema", "{\"type\": \"object\"}"], "no text of this vocabulary");
    let cut = generate("gpt2", "Why", &["--regex", "[a-z]{12}", "--max-tokens", "2"]).succeeded();
    assert!(cut.stderr.contains("1 text ended before"), "{}", cut.stderr);
}
