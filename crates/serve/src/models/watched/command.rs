//! The command line that does what a look does.

use std::collections::HashMap;
use std::sync::Arc;

use super::request::{ChangeAsked, EditAsked};
use super::{WatchedInput, WatchedModel};

/// The command, with the model's name in place of its path.
pub fn of(
    name: &str,
    model: &WatchedModel,
    input: &WatchedInput,
    edits: &[EditAsked],
    others: &HashMap<String, Arc<WatchedInput>>,
) -> String {
    let from = edits.iter().any(|edit| edit.change == ChangeAsked::From);
    let text = |at: usize| quoted(input.texts.get(at).map_or("", String::as_str));
    let signature = model.model().architecture.signature();
    let mut words = vec!["vitreous".to_string()];
    match model {
        WatchedModel::Image(_) if signature.classes().is_none() => {
            words.extend(["predict".into(), name.into(), "picture.png".into(), "--features".into()]);
        }
        WatchedModel::Image(_) | WatchedModel::ImageText(_) => {
            words.extend(["predict".into(), name.into(), "picture.png".into()]);
        }
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
    words.extend(edits.iter().flat_map(|edit| option(edit, others)));
    words.join(" ")
}

/// The options of an edit.
fn option(edit: &EditAsked, others: &HashMap<String, Arc<WatchedInput>>) -> Vec<String> {
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
        ChangeAsked::From => {
            let other = edit.input.as_ref().and_then(|id| others.get(id));
            let text = other.and_then(|other| other.texts.first()).map_or("other.png", String::as_str);
            vec!["--patch-from".into(), quoted(text), "--at".into(), quoted(&path)]
        }
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
        let told = |change| option(&edit(change), &HashMap::new()).join(" ");
        assert_eq!(told(ChangeAsked::Zero), "--without blocks.3.mlp@1,3");
        assert_eq!(told(ChangeAsked::Scale), "--scale blocks.3.mlp@1,3=0.5");
        assert_eq!(told(ChangeAsked::Clamp), "--clamp blocks.3.mlp@1,3=-1,2");
    }
}
