//! Questions about texts with their answers: the JSON of SQuAD, and JSON lines.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::PairsError;
use super::lines::Lines;
use super::split_files::{content_of, split_files, split_named};
use crate::dataset::{Split, extension};

/// The largest JSON file that is read at once; SQuAD's has 40 MB.
const MOST_BYTES: u64 = 512 << 20;

/// A question about a text, with its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredQuestion {
    /// The question.
    pub question: String,
    /// The text that is asked about.
    pub context: Arc<str>,
    /// The answers that are right; none if the text does not answer the question.
    pub answers: Vec<String>,
}

/// Questions, split for training and evaluation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuestionSplits {
    /// The training part, or all of a single file.
    pub train: Vec<AnsweredQuestion>,
    /// The validation part.
    pub validation: Vec<AnsweredQuestion>,
    /// The test part.
    pub test: Vec<AnsweredQuestion>,
}

/// Opens a file of questions, or a folder with such files for training, validation (`dev-v1.1.json`) and testing.
///
/// A `.json` file is SQuAD's (1.1 or 2.0); JSON lines (`.jsonl`) are `{"question", "context", "answers"}`, where `answers` is a list of
/// strings, a list of `{"text"}`, or `{"text": [..]}` as on Hugging Face, or `answer` is one.
pub fn open_questions(path: &Path) -> Result<QuestionSplits, PairsError> {
    let files = match path.is_dir() {
        true => split_files(path, split_of)?,
        false => vec![(Split::Train, path.to_path_buf())],
    };
    if files.is_empty() {
        let there = content_of(path)?;
        let reason = format!("no questions were found here; {there}. Supported are dev-v1.1.json and validation.jsonl");
        return Err(PairsError::content(path, reason));
    }
    let mut splits = QuestionSplits::default();
    for (split, file) in files {
        let questions = read(&file)?;
        if questions.is_empty() {
            return Err(PairsError::content(&file, "it has no questions"));
        }
        match split {
            Split::Train => splits.train = questions,
            Split::Validation => splits.validation = questions,
            Split::Test => splits.test = questions,
        }
    }
    Ok(splits)
}

fn is_lines(path: &Path) -> bool {
    matches!(extension(path).as_deref(), Some("jsonl" | "ndjson"))
}

fn split_of(path: &Path) -> Option<Split> {
    let is_supported = is_lines(path) || extension(path).as_deref() == Some("json");
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    name.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|_| is_supported).find_map(split_named)
}

fn read(path: &Path) -> Result<Vec<AnsweredQuestion>, PairsError> {
    if !is_lines(path) {
        let text = vitreous_files::open::read_text(path, MOST_BYTES).map_err(|error| PairsError::io(path, error))?;
        return read_squad(&text).map_err(|reason| PairsError::content(path, reason));
    }
    let mut lines = Lines::open_regular(path)?;
    let mut questions = Vec::new();
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let question = read_line(line).map_err(|reason| PairsError::line(path, lines.number(), reason))?;
        questions.push(question);
    }
    Ok(questions)
}

#[derive(Deserialize)]
struct Squad {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: String,
    qas: Vec<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    question: String,
    #[serde(default)]
    answers: Vec<Answer>,
    #[serde(default)]
    is_impossible: bool,
}

#[derive(Deserialize)]
struct Answer {
    text: String,
}

fn read_squad(text: &str) -> Result<Vec<AnsweredQuestion>, String> {
    let squad: Squad = serde_json::from_str(text).map_err(|error| {
        format!("this is not the JSON of SQuAD, {{\"data\": [{{\"paragraphs\": ..}}]}} ({error}); JSON lines are called .jsonl")
    })?;
    let mut questions = Vec::new();
    for Paragraph { context, qas } in squad.data.into_iter().flat_map(|article| article.paragraphs) {
        let context: Arc<str> = context.into();
        for Asked { question, answers, is_impossible } in qas {
            let answers = answers.into_iter().filter(|_| !is_impossible).map(|answer| answer.text).collect();
            questions.push(AnsweredQuestion { question, context: context.clone(), answers });
        }
    }
    Ok(questions)
}

fn read_line(line: &str) -> Result<AnsweredQuestion, String> {
    let example = r#"{"question": "..", "context": "..", "answers": [".."]}"#;
    let object: Value = serde_json::from_str(line).map_err(|error| format!("this is not JSON: {error}"))?;
    let text = |key: &str| match object.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("`{key}` must be a string")),
        None => Err(format!("`{key}` is missing: each line is an object such as {example}")),
    };
    let answers = match (object.get("answers"), object.get("answer")) {
        (Some(answers), _) => texts_of(answers),
        (None, Some(answer)) => texts_of(answer),
        (None, None) => return Err(format!("`answers` is missing: each line is an object such as {example}")),
    };
    let answers = answers.ok_or_else(|| format!("`answers` must be a list of strings, as in {example}"))?;
    Ok(AnsweredQuestion { question: text("question")?, context: text("context")?.into(), answers })
}

/// The texts of answers: a string, an object with `text`, or a list of these; null is none.
fn texts_of(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) => Some(vec![text.clone()]),
        Value::Object(object) => texts_of(object.get("text")?),
        Value::Array(values) => {
            let all: Option<Vec<Vec<String>>> = values.iter().map(texts_of).collect();
            all.map(|all| all.concat())
        }
        Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, text: &str) -> Result<QuestionSplits, String> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(name), text).expect("written");
        open_questions(&folder.path().join(name)).map_err(|error| error.to_string())
    }

    #[test]
    fn squad_and_json_lines_are_read() {
        let squad = r#"{"version": "v2.0", "data": [{"title": "x", "paragraphs": [{"context": "Ada wrote.", "qas": [
            {"id": "1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}, {"text": "Ada wrote"}]},
            {"id": "2", "question": "Why?", "is_impossible": true, "answers": [], "plausible_answers": [{"text": "Ada"}]}]}]}]}"#;
        let found = written("dev-v2.0.json", squad).expect("questions").train;
        assert_eq!((found[0].question.as_str(), &found[0].context[..]), ("Who?", "Ada wrote."));
        assert_eq!(
            (&found[0].answers[..], &found[1].answers[..]),
            (&["Ada".to_string(), "Ada wrote".to_string()][..], &[][..])
        );
        let forms = [
            r#"["Ada", "Ada wrote"]"#,
            r#"[{"text": "Ada"}, {"text": "Ada wrote"}]"#,
            r#"{"text": ["Ada", "Ada wrote"], "answer_start": [0, 0]}"#,
        ];
        for form in forms {
            let line = format!(r#"{{"question": "Who?", "context": "Ada wrote.", "answers": {form}}}"#);
            assert_eq!(written("x.jsonl", &line).expect("questions").train[..], found[..1], "{form}");
        }
        let none = r#"{"question": "Why?", "context": "Ada wrote.", "answers": {"text": [], "answer_start": []}}"#;
        assert_eq!(written("x.jsonl", none).expect("questions").train[..], found[1..]);
    }

    #[test]
    fn folders_have_parts_and_what_is_broken_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = r#"{"question": "q", "context": "c", "answer": "c"}"#;
        for name in ["train.jsonl", "dev.jsonl", "notes.jsonl"] {
            std::fs::write(folder.path().join(name), line).expect("written");
        }
        let splits = open_questions(folder.path()).expect("questions");
        assert_eq!((splits.train.len(), splits.validation.len(), splits.test.len()), (1, 1, 0));
        for (name, text, says) in [
            ("x.json", "{\"data\": 3}", "not the JSON of SQuAD"),
            ("x.json", line, ".jsonl"),
            ("x.json", "{\"data\": []}", "no questions"),
            ("x.jsonl", "{\"question\": \"q\"}", "line 1"),
            ("x.jsonl", "{\"question\": 3, \"context\": \"c\", \"answers\": []}", "`question` must be a string"),
            ("x.jsonl", "{\"question\": \"q\", \"context\": \"c\", \"answers\": [3]}", "list of strings"),
        ] {
            let error = written(name, text).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }
}
