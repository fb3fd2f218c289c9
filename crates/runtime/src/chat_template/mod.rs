//! Chat templates: the messages of a chat as the text that a model was trained on.
//!
//! A template is a program in Jinja that comes with the model, from strangers. It gets the messages and the names of special tokens, and
//! nothing else: there are no files, no environment, no other templates. What it may do is bounded.
//!
//! ```
//! use vitreous_runtime::chat_template::{ChatMessage, ChatTemplate};
//!
//! let source = "{% for message in messages %}<|{{ message.role }}|>{{ message['content'] | trim }}{{ eos_token }}{% endfor %}";
//! let template = ChatTemplate::new(source, &[("eos_token".to_string(), "</s>".to_string())])?;
//! let text = template.render(&[ChatMessage::new("user", " Hello ")], true)?;
//! assert_eq!(text, "<|user|>Hello</s>");
//! # Ok::<(), vitreous_runtime::Error>(())
//! ```

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
use vitreous_data::text::TextTokenizer;

use crate::error::Error;

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

/// A model's chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: Arc<str>,
    special: Vec<(String, String)>,
}

impl ChatTemplate {
    /// A template, with the special tokens that it may use: `bos_token`, `eos_token` .. It is compiled once, so that mistakes in it are
    /// told here.
    pub fn new(source: &str, special: &[(String, String)]) -> Result<ChatTemplate, Error> {
        if source.len() > bounds::MOST_SOURCE_BYTES {
            return Err(Error::input(format!(
                "the chat template has {} bytes, but can have at most {}",
                source.len(),
                bounds::MOST_SOURCE_BYTES
            )));
        }
        let template = ChatTemplate { source: without_generation_tags(source).into(), special: special.to_vec() };
        // The parser is recursive, too.
        bounds::on_large_stack(|| template.compiled().map(|_| ()))?;
        Ok(template)
    }

    /// The template that comes with a tokenizer; `None` if there is none.
    pub fn of(tokenizer: &TextTokenizer) -> Result<Option<ChatTemplate>, Error> {
        let templates = tokenizer.chat_templates();
        let chosen = match &templates[..] {
            [] => return Ok(None),
            [only] => only,
            several => several.iter().find(|(name, _)| name == "default").ok_or_else(|| {
                let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
                Error::input(format!(
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
    pub fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<String, Error> {
        self.render_at(messages, add_generation_prompt, SystemTime::now())
    }

    fn render_at(
        &self,
        messages: &[ChatMessage],
        add_generation_prompt: bool,
        now: SystemTime,
    ) -> Result<String, Error> {
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
        let fuel = bounds::fuel(messages.len(), &self.source);
        bounds::on_large_stack(|| self.evaluate(context, fuel, now))
    }

    fn compiled(&self) -> Result<CompiledTemplate<'_>, Error> {
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        let syntax_config = syntax.build().map_err(|error| failed(&error))?;
        let config = TemplateConfig { syntax_config, default_auto_escape: Arc::new(|_| AutoEscape::None) };
        let mut compiled =
            CompiledTemplate::new("chat_template", &self.source, &config).map_err(|error| failed(&error))?;
        operators::replace(&mut compiled.instructions);
        compiled.blocks.values_mut().for_each(operators::replace);
        Ok(compiled)
    }

    fn evaluate(&self, context: Value, fuel: u64, now: SystemTime) -> Result<String, Error> {
        let compiled = self.compiled()?;
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
}

/// What went wrong, in a sentence.
fn failed(error: &minijinja::Error) -> Error {
    let place = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    Error::input(match error.kind() {
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

/// `{% generation %}` marks what the assistant wrote, for training; for the text it means nothing. A condition that always holds takes
/// its place, so that the white space around it is trimmed as before.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        text.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let name = tag[..end].trim_matches(|letter: char| matches!(letter, '-' | '+') || letter.is_whitespace());
        match name {
            "generation" => text.push_str(&tag[..end].replacen("generation", " if true ", 1)),
            "endgeneration" => text.push_str(&tag[..end].replacen("endgeneration", " endif ", 1)),
            _ => text.push_str(&tag[..end]),
        }
        rest = &tag[end..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests;
