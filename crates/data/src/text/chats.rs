//! Chats to learn from: JSON lines with `messages`, as `transformers`, TRL and OpenAI's interfaces have them.

use std::path::Path;

use serde_json::{Map, Value};

use super::chat_template::ChatMessage;
use super::lines::Lines;
use super::plain::{MOST_LINE_MIB, PlainTexts};
use super::{PairsError, PlainFile};
use crate::dataset::{counted, extension};

/// Chats that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chats {
    /// The messages of each.
    pub chats: Vec<Vec<ChatMessage>>,
    /// What a user should know about how they were read.
    pub notes: Vec<String>,
}

/// Whether these files are JSON lines whose first object has `messages`.
pub fn are_chats(texts: &PlainTexts) -> Result<bool, PairsError> {
    let Some(file) = texts.files().iter().find(|file| is_json_lines(file.path())) else { return Ok(false) };
    let mut lines = Lines::open_regular(file.path())?.with_most_mib(MOST_LINE_MIB);
    while let Some(line) = lines.next_line()? {
        if !line.trim().is_empty() {
            let object = serde_json::from_str::<Map<String, Value>>(line);
            return Ok(object.is_ok_and(|object| object.contains_key("messages")));
        }
    }
    Ok(false)
}

fn is_json_lines(path: &Path) -> bool {
    extension(path).is_some_and(|extension| extension == "jsonl" || extension == "ndjson")
}

/// Reads the chats of all files. One in which the assistant says nothing teaches nothing and is left out.
pub fn read_chats(texts: &PlainTexts) -> Result<Chats, PairsError> {
    let mut read = Chats::default();
    let mut without_answers = 0;
    for file in texts.files() {
        if !is_json_lines(file.path()) {
            let reason = "chats are JSON lines (.jsonl) with `messages`, one chat per line, but this is other text: give one kind";
            return Err(PairsError::content(file.path(), reason));
        }
        without_answers += read_file(file, &mut read.chats)?;
    }
    if read.chats.is_empty() {
        let file = texts.files().first().map(PlainFile::path).unwrap_or(Path::new("chats"));
        let reason =
            "in no chat does the assistant say anything: messages with the role \"assistant\" are what is learnt";
        return Err(PairsError::content(file, reason));
    }
    if without_answers > 0 {
        let chats = counted(without_answers, "chat has", "chats have");
        read.notes.push(format!("{chats} no message of the assistant, and nothing to learn: left out"));
    }
    Ok(read)
}

/// Adds the chats of a file; how many were left out.
fn read_file(file: &PlainFile, chats: &mut Vec<Vec<ChatMessage>>) -> Result<usize, PairsError> {
    let path = file.path();
    let mut lines = Lines::open_regular(path)?.with_most_mib(MOST_LINE_MIB);
    let mut left_out = 0;
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let chat = messages(line).map_err(|reason| PairsError::line(path, lines.number(), reason))?;
        match chat.iter().any(|message| message.role == "assistant" && !message.content.trim().is_empty()) {
            true => chats.push(chat),
            false => left_out += 1,
        }
    }
    Ok(left_out)
}

fn messages(line: &str) -> Result<Vec<ChatMessage>, String> {
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("it must be a JSON object with `messages`: {error}"))?;
    let Some(Value::Array(messages)) = object.get("messages") else {
        let keys: Vec<&str> = object.keys().take(6).map(String::as_str).collect();
        return Err(format!("`messages` is missing, or is no list; found: {}", keys.join(", ")));
    };
    messages.iter().enumerate().map(|(number, value)| message(value, number + 1)).collect()
}

fn message(value: &Value, number: usize) -> Result<ChatMessage, String> {
    let role = value.get("role").and_then(Value::as_str);
    let role = role.ok_or_else(|| format!("message {number} has no `role`: system, user or assistant"))?;
    let content = match value.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        // A list of parts, of which texts are the only ones that a language model reads.
        Some(Value::Array(parts)) => {
            let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_string);
            let texts: Option<String> = parts.iter().map(text).collect();
            texts.ok_or_else(|| format!("message {number} has a part that is not text"))?
        }
        Some(_) => return Err(format!("`content` of message {number} must be a string")),
    };
    Ok(ChatMessage::new(role, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::open_plain;

    fn read(text: &str) -> Result<Chats, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("chats.jsonl");
        std::fs::write(&path, text).expect("written");
        let texts = open_plain(&path).expect("texts");
        assert!(are_chats(&texts).expect("read"));
        read_chats(&texts).map_err(|error| error.to_string())
    }

    #[test]
    fn chats_are_read_and_those_without_an_answer_left_out() {
        let text = r#"{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}]}

{"messages": [{"role": "user", "content": "Anyone?"}]}
"#;
        let read = read(text).expect("chats");
        assert_eq!(read.chats, [[ChatMessage::new("user", "Hi"), ChatMessage::new("assistant", "Hello")]]);
        assert!(read.notes[0].starts_with("1 chat has no message of the assistant"), "{:?}", read.notes);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let first = "{\"messages\": []}\n";
        let wrong = |line: &str, words: &str| {
            let error = read(&format!("{first}{line}\n")).expect_err(line);
            assert!(error.contains(words) && error.contains("line 2"), "{error}");
        };
        wrong("[1]", "JSON object with `messages`");
        wrong("{\"text\": \"x\"}", "`messages` is missing, or is no list; found: text");
        wrong("{\"messages\": [{\"content\": \"x\"}]}", "message 1 has no `role`");
        wrong("{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", "`content` of message 1");
        assert!(read(first).expect_err("nothing").contains("in no chat does the assistant say anything"));
    }
}
