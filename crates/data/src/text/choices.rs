//! Multiple-choice questions for language models: BoolQ, PIQA, OpenBookQA and HellaSwag as JSON lines.
//!
//! A model chooses the answer that it finds the most probable continuation of a context. Contexts are written as
//! lm-evaluation-harness writes them.

use std::path::Path;

use serde_json::{Map, Value};

use super::PairsError;
use super::lines::Lines;
use crate::dataset::extension;

/// The most answers to choose from.
const MOST_CHOICES: usize = 64;

/// A question with its possible answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceQuestion {
    /// What comes before an answer, and a space.
    pub context: String,
    /// The possible answers.
    pub choices: Vec<String>,
    /// Which one is right, if the file says it.
    pub answer: Option<usize>,
}

/// The data sets whose format is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceFormat {
    /// Yes or no, about a passage.
    BoolQ,
    /// Two ways to reach a goal.
    Piqa,
    /// Several ends of a question.
    OpenBookQa,
    /// Several ends of a description.
    HellaSwag,
}

impl ChoiceFormat {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ChoiceFormat::BoolQ => "BoolQ",
            ChoiceFormat::Piqa => "PIQA",
            ChoiceFormat::OpenBookQa => "OpenBookQA",
            ChoiceFormat::HellaSwag => "HellaSwag",
        }
    }
}

/// The questions of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceQuestions {
    /// The format that its keys tell.
    pub format: ChoiceFormat,
    /// The questions.
    pub questions: Vec<ChoiceQuestion>,
}

/// Opens a file of JSON lines with multiple-choice questions; `None` if it is no such file by its name or by the keys of its first line.
pub fn open_choices(path: &Path) -> Result<Option<ChoiceQuestions>, PairsError> {
    if !matches!(extension(path).as_deref(), Some("jsonl" | "ndjson")) {
        return Ok(None);
    }
    let mut lines = Lines::open_regular(path)?;
    let mut found: Option<ChoiceQuestions> = None;
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let parsed = serde_json::from_str::<Map<String, Value>>(line);
        let object = match (parsed, &found) {
            (Ok(object), _) => object,
            (Err(_), None) => return Ok(None),
            (Err(error), Some(_)) => {
                return Err(PairsError::line(path, lines.number(), format!("this is not a JSON object: {error}")));
            }
        };
        let (format, question) = match (read(&object), &found) {
            (Some(read), _) => read.map_err(|reason| PairsError::line(path, lines.number(), reason))?,
            (None, None) => return Ok(None),
            (None, Some(first)) => {
                let reason = format!("its keys are not those of the lines before, which are {}'s", first.format.name());
                return Err(PairsError::line(path, lines.number(), reason));
            }
        };
        let all = found.get_or_insert_with(|| ChoiceQuestions { format, questions: Vec::new() });
        if all.format != format {
            let reason = format!("this is {}, but the lines before are {}", format.name(), all.format.name());
            return Err(PairsError::line(path, lines.number(), reason));
        }
        all.questions.push(question);
    }
    Ok(found)
}

type Read = Result<(ChoiceFormat, ChoiceQuestion), String>;

/// The question of a line; `None` if the keys are those of no known format.
fn read(object: &Map<String, Value>) -> Option<Read> {
    let has = |keys: &[&str]| keys.iter().all(|key| object.contains_key(*key));
    let read = if has(&["passage", "question"]) {
        boolq(object)
    } else if has(&["goal", "sol1", "sol2"]) {
        piqa(object)
    } else if has(&["ctx", "endings"]) {
        hellaswag(object)
    } else if has(&["question_stem", "choices"]) {
        openbookqa(object, text(object, "question_stem"))
    } else if object.get("question").is_some_and(Value::is_object) {
        match object["question"].as_object() {
            Some(question) => openbookqa_original(object, question),
            None => return None,
        }
    } else if has(&["question", "options"]) {
        lettered(object)
    } else if object.contains_key("question") && object.get("answer").is_some_and(Value::is_array) {
        unlabelled_endings(object)
    } else {
        return None;
    };
    Some(read.and_then(checked))
}

fn checked((format, question): (ChoiceFormat, ChoiceQuestion)) -> Read {
    let count = question.choices.len();
    if !(2..=MOST_CHOICES).contains(&count) {
        return Err(format!("there are {count} answers to choose from: there must be 2 to {MOST_CHOICES}"));
    }
    match question.answer {
        Some(answer) if answer >= count => {
            Err(format!("answer {answer} (counted from 0) is right, but there are {count}"))
        }
        _ => Ok((format, question)),
    }
}

fn boolq(object: &Map<String, Value>) -> Read {
    let (passage, question) = (text(object, "passage")?, text(object, "question")?);
    let context = format!("{passage}\nQuestion: {question}?\nAnswer:");
    let answer = match object.get("answer").or_else(|| object.get("label")) {
        None | Some(Value::Null) => None,
        Some(Value::Bool(answer)) => Some(usize::from(*answer)),
        Some(Value::Number(number)) if number.as_i64() == Some(-1) => None,
        Some(Value::Number(number)) => Some(number.as_u64().ok_or("`label` must be 0 or 1")? as usize),
        Some(Value::String(word)) => match word.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" => Some(1),
            "false" | "no" => Some(0),
            _ => return Err(format!("`answer` must be true or false, not {word:?}")),
        },
        Some(_) => return Err("`answer` must be true or false".to_string()),
    };
    let choices = ["no", "yes"].map(str::to_string).to_vec();
    Ok((ChoiceFormat::BoolQ, ChoiceQuestion { context, choices, answer }))
}

fn piqa(object: &Map<String, Value>) -> Read {
    let context = asked(&text(object, "goal")?);
    let choices = vec![text(object, "sol1")?, text(object, "sol2")?];
    Ok((ChoiceFormat::Piqa, ChoiceQuestion { context, choices, answer: label(object)? }))
}

/// The context of a question whose answer is not its end.
fn asked(question: &str) -> String {
    format!("Question: {question}\nAnswer:")
}

fn hellaswag(object: &Map<String, Value>) -> Read {
    let context = match object.contains_key("activity_label") && object.contains_key("ctx_b") {
        true => {
            let end = capitalised(&text(object, "ctx_b")?);
            format!("{}: {} {end}", text(object, "activity_label")?, text(object, "ctx_a")?)
        }
        false => text(object, "ctx")?,
    };
    let choices = texts(&object["endings"]).ok_or("`endings` must be a list of strings")?;
    Ok((ChoiceFormat::HellaSwag, of_wikihow(&context, &choices, label(object)?)))
}

/// HellaSwag without the answers: `{"question": "..", "answer": [".."]}`.
fn unlabelled_endings(object: &Map<String, Value>) -> Read {
    let choices = texts(&object["answer"]).ok_or("`answer` must be a list of strings")?;
    Ok((ChoiceFormat::HellaSwag, of_wikihow(&text(object, "question")?, &choices, None)))
}

fn openbookqa(object: &Map<String, Value>, stem: Result<String, String>) -> Read {
    let choices = object.get("choices").and_then(|choices| Some((choices.get("text")?, choices.get("label")?)));
    let choices = choices.and_then(|(own, labels)| Some((texts(own)?, texts(labels)?)));
    let (choices, labels) = choices.ok_or("`choices` must be {\"text\": [..], \"label\": [..]}")?;
    let answer = keyed(object, &labels)?;
    Ok((ChoiceFormat::OpenBookQa, ChoiceQuestion { context: stem?.trim_end().to_string(), choices, answer }))
}

fn openbookqa_original(object: &Map<String, Value>, question: &Map<String, Value>) -> Read {
    let rule = "`question` must be {\"stem\": \"..\", \"choices\": [{\"text\": \"..\", \"label\": \"A\"}]}";
    let stem = question.get("stem").and_then(Value::as_str).ok_or(rule)?;
    let list = question.get("choices").and_then(Value::as_array).ok_or(rule)?;
    let of = |key: &str| list.iter().map(|choice| Some(choice.get(key)?.as_str()?.to_string())).collect();
    let (choices, labels): (Option<Vec<String>>, Option<Vec<String>>) = (of("text"), of("label"));
    let answer = keyed(object, &labels.ok_or(rule)?)?;
    let question = ChoiceQuestion { context: stem.trim_end().to_string(), choices: choices.ok_or(rule)?, answer };
    Ok((ChoiceFormat::OpenBookQa, question))
}

/// Which label `answerKey` names.
fn keyed(object: &Map<String, Value>, labels: &[String]) -> Result<Option<usize>, String> {
    match object.get("answerKey").and_then(Value::as_str).filter(|key| !key.is_empty()) {
        None => Ok(None),
        Some(key) => match labels.iter().position(|label| label == key) {
            Some(place) => Ok(Some(place)),
            None => Err(format!("`answerKey` is {key:?}, which is the label of no choice")),
        },
    }
}

/// Answers in one string, `A. first\nB. second`: of two, as in PIQA, they answer a question; of more, as in OpenBookQA, they end it.
fn lettered(object: &Map<String, Value>) -> Read {
    let (question, options) = (text(object, "question")?, text(object, "options")?);
    let mut rest = options.strip_prefix("A. ").ok_or("`options` must be written as \"A. ..\\nB. ..\"")?;
    let mut choices = Vec::new();
    for letter in 'B'..='Z' {
        match rest.split_once(&format!("\n{letter}. ")) {
            Some((choice, others)) => {
                choices.push(choice.to_string());
                rest = others;
            }
            None => break,
        }
    }
    choices.push(rest.to_string());
    let answer = match object.get("answer") {
        None | Some(Value::Null) => None,
        Some(Value::String(answer)) => {
            let letters = 'A'..='Z';
            let is_it = |(letter, choice): (char, &String)| {
                answer.trim() == letter.to_string() || answer.trim() == format!("{letter}. {choice}").trim()
            };
            let place = letters.zip(&choices).position(is_it);
            Some(place.ok_or_else(|| format!("`answer` is {answer:?}, which is none of the options"))?)
        }
        Some(_) => return Err("`answer` must be one of the options".to_string()),
    };
    let (format, context) = match choices.len() {
        2 => (ChoiceFormat::Piqa, asked(question.trim_end())),
        _ => (ChoiceFormat::OpenBookQa, question.trim_end().to_string()),
    };
    Ok((format, ChoiceQuestion { context, choices, answer }))
}

/// Texts of WikiHow have headings in brackets, which are taken out.
fn of_wikihow(context: &str, choices: &[String], answer: Option<usize>) -> ChoiceQuestion {
    let cleaned = |text: &str| {
        let text = text.trim().replace(" [title]", ". ");
        let mut clean = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('[') {
            // As the pattern `\[.*?\]` has it: a bracket is closed on its line, or stays.
            match after.split_once(']').filter(|(inside, _)| !inside.contains('\n')) {
                Some((_, behind)) => {
                    clean.push_str(before);
                    rest = behind;
                }
                None => {
                    clean.push_str(before);
                    clean.push('[');
                    rest = after;
                }
            }
        }
        clean.push_str(rest);
        clean.replace("  ", " ")
    };
    ChoiceQuestion {
        context: cleaned(context),
        choices: choices.iter().map(|choice| cleaned(choice)).collect(),
        answer,
    }
}

/// As Python's `capitalize`: the first letter is a capital, the others are not.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().chain(letters.flat_map(char::to_lowercase)).collect())
}

fn text(object: &Map<String, Value>, key: &str) -> Result<String, String> {
    match object.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(format!("`{key}` must be a string")),
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| Some(text.as_str()?.to_string())).collect()
}

/// `label`, a number or one in a string; -1 or nothing where it is not told.
fn label(object: &Map<String, Value>) -> Result<Option<usize>, String> {
    let number = match object.get("label") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) => text.parse::<i64>().ok(),
        Some(Value::Number(number)) => number.as_i64(),
        Some(_) => None,
    };
    match number {
        Some(-1) => Ok(None),
        Some(number) if number >= 0 => Ok(Some(number as usize)),
        _ => Err("`label` must be the number of the right answer, counted from 0".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lines: &[&str]) -> Result<Option<ChoiceQuestions>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.jsonl");
        std::fs::write(&path, lines.join("\n")).expect("written");
        open_choices(&path).map_err(|error| error.to_string())
    }

    fn one(line: &str) -> (ChoiceFormat, String, Vec<String>, Option<usize>) {
        let ChoiceQuestions { format, questions } = written(&[line]).expect("read").expect("questions");
        let [ChoiceQuestion { context, choices, answer }] = &questions[..] else { panic!("{questions:?}") };
        (format, context.clone(), choices.clone(), *answer)
    }

    #[test]
    fn the_formats_are_told_by_their_keys() {
        let (format, context, choices, answer) =
            one(r#"{"question": "is it", "title": "T", "answer": "True", "passage": "P."}"#);
        assert_eq!((format, answer), (ChoiceFormat::BoolQ, Some(1)));
        assert_eq!(
            (context.as_str(), &choices[..]),
            ("P.\nQuestion: is it?\nAnswer:", &["no".into(), "yes".into()][..])
        );
        assert_eq!(one(r#"{"passage": "P", "question": "q", "label": false}"#).3, Some(0));
        assert_eq!(one(r#"{"passage": "P", "question": "q", "idx": 1}"#).3, None);

        let two = one(r#"{"question": "q", "options": "A. x y\nB. z ", "answer": "B. z "}"#);
        let original = one(r#"{"goal": "q", "sol1": "x y", "sol2": "z ", "label": 1}"#);
        assert_eq!(two, original);
        assert_eq!(two.1, "Question: q\nAnswer:");
        assert_eq!(two.2, ["x y", "z "]);

        let four = one(r#"{"question": "fog is: ", "options": "A. a\nB. b\nC. c\nD. d", "answer": "C"}"#);
        let stem = one(
            r#"{"question_stem": "fog is:", "choices": {"text": ["a","b","c","d"], "label": ["A","B","C","D"]}, "answerKey": "C"}"#,
        );
        let first = one(
            r#"{"question": {"stem": "fog is:", "choices": [{"text": "a", "label": "A"}, {"text": "b", "label": "B"},
                {"text": "c", "label": "C"}, {"text": "d", "label": "D"}]}, "answerKey": "C"}"#
                .replace('\n', " ")
                .as_str(),
        );
        assert_eq!((&four, &four), (&stem, &first));
        assert_eq!((four.0, four.1.as_str(), four.3), (ChoiceFormat::OpenBookQa, "fog is:", Some(2)));

        let endings = one(
            r#"{"activity_label": "Skiing", "ctx_a": "A man skis. [header] So [title] x.", "ctx_b": "he Then", "ctx": "",
                "endings": ["falls  down.", "[step] stops."], "label": "1"}"#
                .replace('\n', " ")
                .as_str(),
        );
        assert_eq!((endings.0, endings.3), (ChoiceFormat::HellaSwag, Some(1)));
        assert_eq!(endings.1, "Skiing: A man skis. So. x. He then");
        assert_eq!(endings.2, ["falls down.", " stops."]);
        let bare = one(r#"{"question": "A man skis. he", "answer": ["falls.", "stops."]}"#);
        assert_eq!((bare.1.as_str(), bare.3), ("A man skis. he", None));
    }

    #[test]
    fn other_files_are_none_and_broken_lines_are_named() {
        assert_eq!(written(&[r#"{"text": "a story"}"#]), Ok(None));
        assert_eq!(written(&["no JSON"]), Ok(None));
        let good = r#"{"goal": "q", "sol1": "x", "sol2": "y", "label": 0}"#;
        let cases = [
            (r#"{"goal": "q", "sol1": 3, "sol2": "y"}"#, "`sol1` must be a string"),
            (r#"{"goal": "q", "sol1": "x", "sol2": "y", "label": 2}"#, "there are 2"),
            (r#"{"goal": "q", "sol1": "x", "sol2": "y", "label": -3}"#, "counted from 0"),
            (r#"{"passage": "P", "question": "q"}"#, "this is BoolQ"),
            (r#"{"text": "a story"}"#, "keys"),
            ("{", "JSON"),
        ];
        for (line, says) in cases {
            let error = written(&[good, "", line]).expect_err("refused");
            assert!(error.contains(says) && error.contains('3'), "{line}: {error}");
        }
        for line in [
            r#"{"question": "q", "options": "x or y"}"#,
            r#"{"question": "q", "options": "A. x\nB. y", "answer": "C. z"}"#,
            r#"{"question": "q", "answer": ["one"]}"#,
            r#"{"ctx": "q", "endings": "one"}"#,
        ] {
            written(&[line]).expect_err(line);
        }
    }
}
