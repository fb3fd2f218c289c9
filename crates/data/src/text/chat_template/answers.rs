//! Which parts of a chat's text the assistant wrote: what a model learns from.
//!
//! Templates may mark them, with `{% generation %}`. Of others, an answer is what the text of a chat up to it has beyond the text of what
//! came before, with the beginning of an answer behind it.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{ChatMessage, ChatTemplate, ChatTemplateError};

/// The filter that marks the text of a block.
pub(super) const FILTER: &str = "mark_answer";
/// The block that `{% generation %}` becomes.
pub(super) const BLOCK: (&str, &str) = ("filter mark_answer", "endfilter");

/// Around an answer. Unicode says that these characters are in no text.
const BEGIN: char = '\u{fdd0}';
const END: char = '\u{fdd1}';

/// Some templates write the date into the text. In training it is always the same, or a run could not be resumed tomorrow.
const DATE: Duration = Duration::from_secs(1_721_952_000);

/// The role of a model in a chat.
pub(super) const ASSISTANT: &str = "assistant";

/// The text of a chat, and where the answers are in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedChat {
    /// The text, with its special tokens.
    pub text: String,
    /// The answers, as ranges of bytes, in order.
    pub answers: Vec<Range<usize>>,
}

/// Marks an answer.
pub(super) fn mark(text: String) -> String {
    format!("{BEGIN}{text}{END}")
}

impl ChatTemplate {
    /// The text of a whole chat, and which parts of it the assistant wrote.
    pub fn render_answers(&self, messages: &[ChatMessage]) -> Result<RenderedChat, ChatTemplateError> {
        let date = UNIX_EPOCH + DATE;
        match &self.marked {
            Some(source) => self.marked_answers(source, messages, date),
            None => self.answers_behind_prompts(messages, date),
        }
    }

    fn marked_answers(
        &self,
        source: &str,
        messages: &[ChatMessage],
        date: SystemTime,
    ) -> Result<RenderedChat, ChatTemplateError> {
        if messages.iter().any(|message| message.content.contains([BEGIN, END])) {
            return Err(ChatTemplateError(
                "a message has the character U+FDD0 or U+FDD1, which no text has".to_string(),
            ));
        }
        let marked = self.render_at(source, messages, false, date)?;
        let mut chat = RenderedChat::default();
        let mut begin = None;
        for letter in marked.chars() {
            match letter {
                BEGIN => begin = begin.or(Some(chat.text.len())),
                END => {
                    let end = chat.text.len();
                    chat.answers.extend(begin.take().map(|begin| begin..end).filter(|answer| !answer.is_empty()));
                }
                _ => chat.text.push(letter),
            }
        }
        Ok(chat)
    }

    fn answers_behind_prompts(
        &self,
        messages: &[ChatMessage],
        date: SystemTime,
    ) -> Result<RenderedChat, ChatTemplateError> {
        let text = self.render_at(&self.source, messages, false, date)?;
        let mut answers: Vec<Range<usize>> = Vec::new();
        for (place, _) in messages.iter().enumerate().filter(|(_, message)| message.role == ASSISTANT) {
            let prompt = self.render_at(&self.source, &messages[..place], true, date)?;
            let with_answer = match place + 1 == messages.len() {
                true => text.clone(),
                false => self.render_at(&self.source, &messages[..=place], false, date)?,
            };
            // Some templates write nothing more for an answer to begin, and then the role of the assistant belongs to the answer.
            if !with_answer.starts_with(&prompt) || !text.starts_with(&with_answer) {
                return Err(ChatTemplateError(
                    "the chat template writes earlier messages differently when others follow, so that answers cannot be told from \
                     the rest: mark them in the template with {% generation %} and {% endgeneration %}"
                        .to_string(),
                ));
            }
            if with_answer.len() > prompt.len() {
                answers.push(prompt.len()..with_answer.len());
            }
        }
        Ok(RenderedChat { text, answers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat() -> Vec<ChatMessage> {
        let said = [
            ("system", "Be brief."),
            ("user", "Hi"),
            ("assistant", "Hello!"),
            ("user", "Bye"),
            (ASSISTANT, "So long."),
        ];
        said.into_iter().map(|(role, content)| ChatMessage::new(role, content)).collect()
    }

    #[test]
    fn answers_are_found_with_and_without_marks() {
        let plain = "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n{% endfor %}\
                     {% if add_generation_prompt %}<|assistant|>\n{% endif %}";
        let marked = "{% for message in messages %}<|{{ message.role }}|>\n{% if message.role == 'assistant' %}\
                      {% generation %}{{ message.content }}<|end|>{% endgeneration %}{% else %}{{ message.content }}<|end|>{% endif %}\
                      \n{% endfor %}";
        for (source, expected) in
            [(plain, ["Hello!<|end|>\n", "So long.<|end|>\n"]), (marked, ["Hello!<|end|>", "So long.<|end|>"])]
        {
            let template = ChatTemplate::new(source, &[]).expect("a template");
            let RenderedChat { text, answers } = template.render_answers(&chat()).expect("text");
            assert_eq!(text, template.render(&chat(), false).expect("text"));
            let found: Vec<&str> = answers.iter().map(|answer| &text[answer.clone()]).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_template_that_changes_what_came_before_is_refused() {
        let source = "{% for message in messages %}{{ loop.revindex }}{{ message.content }}{% endfor %}";
        let template = ChatTemplate::new(source, &[]).expect("a template");
        let refusal = template.render_answers(&chat()).expect_err("no prefix").to_string();
        assert!(refusal.contains("{% generation %}"), "{refusal}");
    }
}
