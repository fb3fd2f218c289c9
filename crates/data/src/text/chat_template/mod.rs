//! Chat templates: the messages of a chat as the text that a model was trained on.
//!
//! A template is a program in Jinja that comes with the model, from strangers. It gets the messages and the names of special tokens, and
//! nothing else: there are no files, no environment, no other templates. What it may do is bounded.
//!
//! ```
//! use vitreous_data::text::chat_template::{ChatMessage, ChatTemplate};
//!
//! let source = "{% for message in messages %}<|{{ message.role }}|>{{ message['content'] | trim }}{{ eos_token }}{% endfor %}";
//! let template = ChatTemplate::new(source, &[("eos_token".to_string(), "</s>".to_string())])?;
//! let text = template.render(&[ChatMessage::new("user", " Hello ")], true)?;
//! assert_eq!(text, "<|user|>Hello</s>");
//! # Ok::<(), vitreous_data::text::chat_template::ChatTemplateError>(())
//! ```

mod answers;
mod bounds;
mod calendar;
mod environment;
mod operators;
mod text;

use std::sync::Arc;
use std::time::SystemTime;

use minijinja::machinery::{CompiledTemplate, TemplateConfig};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, ErrorKind, Value};

use crate::text::TextTokenizer;

/// Why a chat template cannot be used: what is wrong with it, or with the messages for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ChatTemplateError(pub String);

/// A message of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatMessage {
    /// Who says it: `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> ChatMessage {
        ChatMessage { role: role.into(), content: content.into() }
    }
}

pub use answers::RenderedChat;

/// A model's chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: Arc<str>,
    /// The same with the answers marked, if the template says which part of it they are.
    marked: Option<Arc<str>>,
    special: Vec<(String, String)>,
}

impl ChatTemplate {
    /// A template, with the special tokens that it may use: `bos_token`, `eos_token` .. It is compiled once, so that mistakes in it are
    /// told here.
    pub fn new(source: &str, special: &[(String, String)]) -> Result<ChatTemplate, ChatTemplateError> {
        if source.len() > bounds::MOST_SOURCE_BYTES {
            return Err(ChatTemplateError(format!(
                "the chat template has {} bytes, but can have at most {}",
                source.len(),
                bounds::MOST_SOURCE_BYTES
            )));
        }
        let plain = with_generation_tags(source, ("if true", "endif"));
        let marked = with_generation_tags(source, answers::BLOCK);
        let marked = (marked != plain).then(|| marked.into());
        let template = ChatTemplate { source: plain.into(), marked, special: special.to_vec() };
        // The parser is recursive, too.
        bounds::on_large_stack(|| compiled(&template.source).map(|_| ()))?;
        Ok(template)
    }

    /// The template that comes with a tokenizer; `None` if there is none.
    pub fn of(tokenizer: &TextTokenizer) -> Result<Option<ChatTemplate>, ChatTemplateError> {
        let templates = tokenizer.chat_templates();
        let chosen = match &templates[..] {
            [] => return Ok(None),
            [only] => only,
            several => several.iter().find(|(name, _)| name == "default").ok_or_else(|| {
                let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
                ChatTemplateError(format!(
                    "the model has several chat templates ({}), but none of them is called \"default\"",
                    names.join(", ")
                ))
            })?,
        };
        let special: Vec<(String, String)> =
            tokenizer.special_names().into_iter().map(|(role, name)| (role.to_string(), name)).collect();
        ChatTemplate::new(&chosen.1, &special).map(Some)
    }

    /// The text of a chat, ready for [`TextTokenizer::encode_plain`]: it has its special tokens in it. With `add_generation_prompt`, it
    /// ends where the assistant's answer begins.
    pub fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<String, ChatTemplateError> {
        self.render_at(&self.source, messages, add_generation_prompt, SystemTime::now())
    }

    fn render_at(
        &self,
        source: &str,
        messages: &[ChatMessage],
        add_generation_prompt: bool,
        now: SystemTime,
    ) -> Result<String, ChatTemplateError> {
        let said = messages.iter().map(|message| {
            let fields = [("role", &message.role), ("content", &message.content)];
            Value::from_pairs(fields.map(|(name, text)| (name, Value::from(text.as_str()))))
        });
        let given = [
            ("messages", said.collect()),
            ("add_generation_prompt", add_generation_prompt.into()),
            ("tools", ().into()),
            ("documents", ().into()),
        ];
        let special = self.special.iter().map(|(role, name)| (role.as_str(), Value::from(name.as_str())));
        let context = Value::from_pairs(special.chain(given));
        let fuel = bounds::fuel(messages.len(), source);
        bounds::on_large_stack(|| evaluate(source, context, fuel, now))
    }
}

fn compiled(source: &str) -> Result<CompiledTemplate<'_>, ChatTemplateError> {
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    let syntax_config = syntax.build().map_err(|error| failed(&error))?;
    let config = TemplateConfig { syntax_config, default_auto_escape: Arc::new(|_| AutoEscape::None) };
    let mut compiled = CompiledTemplate::new("chat_template", source, &config).map_err(|error| failed(&error))?;
    operators::replace(&mut compiled.instructions);
    compiled.blocks.values_mut().for_each(operators::replace);
    Ok(compiled)
}

fn evaluate(source: &str, context: Value, fuel: u64, now: SystemTime) -> Result<String, ChatTemplateError> {
    let compiled = compiled(source)?;
    let environment = environment::new(fuel, now);
    let mut text = String::new();
    let mut output = minijinja::machinery::make_string_output(&mut text);
    minijinja::machinery::eval(
        &environment,
        &compiled.instructions,
        context,
        &compiled.blocks,
        &mut output,
        AutoEscape::None,
    )
    .map_err(|error| failed(&error))?;
    Ok(text)
}

/// What went wrong, in a sentence.
fn failed(error: &minijinja::Error) -> ChatTemplateError {
    let place = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    ChatTemplateError(match error.kind() {
        ErrorKind::OutOfFuel => format!(
            "the chat template{place} does not come to an end: it takes far more steps than the messages need. Use another template"
        ),
        kind if environment::is_raised(error) => {
            let reason = error.detail().map_or_else(|| kind.to_string(), str::to_string);
            format!("the chat template does not accept these messages: {reason}")
        }
        kind => format!("the chat template{place} cannot be used: {kind}{detail}"),
    })
}

/// `{% generation %}` marks what the assistant wrote, for training. Another block takes its place, so that the white space around it is
/// trimmed as before: for the text a condition that always holds, and for training one that marks the answers.
fn with_generation_tags(source: &str, (begin, end): (&str, &str)) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        text.push_str(before);
        let Some(close) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let name = tag[..close].trim_matches(|letter: char| matches!(letter, '-' | '+') || letter.is_whitespace());
        match name {
            "generation" => text.push_str(&tag[..close].replacen("generation", &format!(" {begin} "), 1)),
            "endgeneration" => text.push_str(&tag[..close].replacen("endgeneration", &format!(" {end} "), 1)),
            _ => text.push_str(&tag[..close]),
        }
        rest = &tag[close..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests;
