//! The command line that does what a look does.

use std::collections::HashMap;
use std::sync::Arc;

use super::request::{ChangeAsked, EditAsked};
use super::{WatchedInput, WatchedModel};

/// The command, with the model's name in place of its path. `None` where no command does it: no option takes values of another recording.
/// `labels` are the classes that a model of images and texts was asked for.
pub fn of(
    name: &str,
    model: &WatchedModel,
    input: &WatchedInput,
    edits: &[EditAsked],
    others: &HashMap<String, Arc<WatchedInput>>,
    labels: Option<&[String]>,
) -> Option<String> {
    let from = edits.iter().any(|edit| edit.change == ChangeAsked::From);
    let text = |at: usize| quoted(input.texts.get(at).map_or("", String::as_str));
    let signature = model.model().architecture.signature();
    let mut words = vec!["vitreous".to_string()];
    match model {
        WatchedModel::Speech(_) if from => return None,
        WatchedModel::Image(_) if from => words.extend(["explain".into(), name.into(), "picture.png".into()]),
        WatchedModel::Image(_) if signature.classes().is_none() => {
            words.extend(["predict".into(), name.into(), "picture.png".into(), "--features".into()]);
        }
        WatchedModel::Image(_) => words.extend(["predict".into(), name.into(), "picture.png".into()]),
        WatchedModel::ImageText(_) => match labels {
            Some(labels) if from => {
                words.extend(["explain".into(), name.into(), "picture.png".into()]);
                words.extend(labels.iter().flat_map(|label| ["--text".into(), quoted(label)]));
            }
            Some(labels) => {
                let list = quoted(&labels.join(","));
                words.extend(["predict".into(), name.into(), "picture.png".into(), "--labels".into(), list]);
            }
            None if from => return None,
            None => words.extend(["embed".into(), name.into(), "picture.png".into()]),
        },
        WatchedModel::Text(_) if signature.masked_tokens().is_some() && !from => {
            words.extend(["fill".into(), name.into(), text(0)]);
        }
        WatchedModel::Text(_) if signature.is_span() => {
            let verb = if from { "explain" } else { "predict" };
            words.extend([verb.into(), name.into(), "--question".into(), text(0), "--context".into(), text(1)]);
        }
        WatchedModel::Text(_) => {
            let is_vector = signature.named_outputs() == 0 && signature.masked_tokens().is_none();
            match (from, is_vector) {
                (false, true) => words.extend(["embed".into(), name.into(), text(0)]),
                (false, false) => words.extend(["predict".into(), name.into(), "--text".into(), text(0)]),
                (true, _) => words.extend(["explain".into(), name.into(), "--text".into(), text(0)]),
            }
            if input.texts.len() > 1 && !is_vector {
                words.extend(["--pair".into(), text(1)]);
            }
        }
        WatchedModel::Language(_) => words.extend(["explain".into(), name.into(), "--text".into(), text(0)]),
        WatchedModel::Translator(_) | WatchedModel::Sequence(_) => {
            words.extend(["explain".into(), name.into(), "--text".into(), text(0), "--target".into(), text(1)]);
        }
        WatchedModel::Speech(_) => words.extend(["transcribe".into(), name.into(), "recording.wav".into()]),
    }
    words.extend(edits.iter().flat_map(option));
    if from {
        words.extend(other(edits, input, others)?);
    }
    Some(words.join(" "))
}

/// The options that name the other input. A command has one: with several, there is none.
fn other(
    edits: &[EditAsked],
    input: &WatchedInput,
    others: &HashMap<String, Arc<WatchedInput>>,
) -> Option<Vec<String>> {
    let mut ids = edits.iter().filter(|edit| edit.change == ChangeAsked::From).map(|edit| edit.input.as_deref());
    let first = ids.next()?;
    if ids.any(|id| id != first) {
        return None;
    }
    let texts = first.and_then(|id| others.get(id)).map_or(&[][..], |other| &other.texts[..]);
    let from = texts.first().map_or("other.png", String::as_str);
    let mut words = vec!["--patch-from".into(), quoted(from)];
    if let Some(beside) = texts.get(1).filter(|text| Some(*text) != input.texts.get(1)) {
        words.extend(["--patch-pair".into(), quoted(beside)]);
    }
    Some(words)
}

/// The option of an edit.
fn option(edit: &EditAsked) -> Vec<String> {
    let tokens = edit.tokens.as_ref().map(|tokens| {
        let list: Vec<String> = tokens.iter().map(usize::to_string).collect();
        format!("@{}", list.join(","))
    });
    let path = format!("{}{}", edit.path, tokens.unwrap_or_default());
    let number = |number: Option<f32>| number.unwrap_or_default();
    match edit.change {
        ChangeAsked::Zero => vec!["--without".into(), quoted(&path)],
        ChangeAsked::Scale => vec!["--scale".into(), quoted(&format!("{path}={}", number(edit.factor)))],
        ChangeAsked::Clamp => {
            vec!["--clamp".into(), quoted(&format!("{path}={},{}", number(edit.low), number(edit.high)))]
        }
        ChangeAsked::From => vec!["--at".into(), quoted(&path)],
    }
}

/// A word as a shell takes it.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/=@,:+".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_string(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("blocks.3.mlp=0.5"), "blocks.3.mlp=0.5");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a; rm -r ~"), "'a; rm -r ~'");
    }

    #[test]
    fn edits_are_options() {
        let edit = |change: ChangeAsked| EditAsked {
            path: "blocks.3.mlp".to_string(),
            change,
            factor: Some(0.5),
            low: Some(-1.0),
            high: Some(2.0),
            input: None,
            tokens: Some(vec![1, 3]),
        };
        let told = |change| option(&edit(change)).join(" ");
        assert_eq!(told(ChangeAsked::Zero), "--without blocks.3.mlp@1,3");
        assert_eq!(told(ChangeAsked::Scale), "--scale blocks.3.mlp@1,3=0.5");
        assert_eq!(told(ChangeAsked::Clamp), "--clamp blocks.3.mlp@1,3=-1,2");
        assert_eq!(told(ChangeAsked::From), "--at blocks.3.mlp@1,3");
    }
}
