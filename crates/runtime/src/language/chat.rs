//! A conversation with a language model: messages in, answers out, with the history in the KV cache.

use vitreous_engine::Device;
use vitreous_models::generate::{GenerateOptions, Tally};

use super::generator::{Continuation, TextGenerator, TextOptions};
use super::model::LanguageModel;
use crate::error::Error;

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatRole {
    /// What the model is told before the conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl ChatRole {
    /// As templates call it.
    pub fn name(self) -> &'static str {
        match self {
            ChatRole::System => "system",
            ChatRole::User => "user",
            ChatRole::Assistant => "assistant",
        }
    }

    /// The role that templates call by a name.
    pub fn of_name(name: &str) -> Option<ChatRole> {
        [ChatRole::System, ChatRole::User, ChatRole::Assistant].into_iter().find(|role| role.name() == name)
    }
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatMessage {
    /// Who says it.
    pub role: ChatRole,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// What somebody says.
    pub fn new(role: ChatRole, content: impl Into<String>) -> ChatMessage {
        ChatMessage { role, content: content.into() }
    }
}

/// How messages become the text that a model reads.
pub trait ChatFormat {
    /// The text of messages, up to where the model's answer begins.
    fn format(&self, messages: &[ChatMessage]) -> Result<String, Error>;

    /// The tokens, by name, that end an answer besides the model's own.
    fn ends(&self) -> &[&'static str];
}

/// ChatML: `<|im_start|>user`, a line break, the message, `<|im_end|>`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatMl;

impl ChatFormat for ChatMl {
    fn format(&self, messages: &[ChatMessage]) -> Result<String, Error> {
        let mut text = String::new();
        for ChatMessage { role, content } in messages {
            text.push_str(&format!("<|im_start|>{}\n{content}<|im_end|>\n", role.name()));
        }
        text.push_str("<|im_start|>assistant\n");
        Ok(text)
    }

    fn ends(&self) -> &[&'static str] {
        &["<|im_end|>"]
    }
}

/// A conversation. What was said stays in the cache, so that a turn reads only what is new.
pub struct Chat<'m> {
    model: &'m LanguageModel,
    format: Box<dyn ChatFormat>,
    generator: TextGenerator<'m>,
    options: TextOptions,
    messages: Vec<ChatMessage>,
    /// Answers so far, so that each has random numbers of its own.
    answers: u64,
}

impl<'m> Chat<'m> {
    /// Makes a model ready for a conversation.
    pub fn new(
        model: &'m LanguageModel,
        format: Box<dyn ChatFormat>,
        system: Option<&str>,
        options: TextOptions,
        generate: GenerateOptions,
        device: &Device,
    ) -> Result<Chat<'m>, Error> {
        let generator = TextGenerator::new(model, GenerateOptions { slots: 1, ..generate }, device)?;
        let messages = system.map(|text| ChatMessage::new(ChatRole::System, text)).into_iter().collect();
        let known = |name: &&str| model.tokenizer.id(name).filter(|&id| (id as usize) < model.vocabulary);
        let more_ends = format.ends().iter().filter_map(known).chain(options.more_ends.iter().copied()).collect();
        let options = TextOptions { more_ends, ..options };
        Ok(Chat { model, format, generator, options, messages, answers: 0 })
    }

    /// What was said so far.
    pub fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    /// What was done so far, and how long it took.
    pub fn tally(&self) -> Tally {
        self.generator.tally()
    }

    /// Forgets everything but what the model was told before the conversation.
    pub fn reset(&mut self) {
        self.messages.retain(|message| message.role == ChatRole::System);
    }

    /// Says something. Pieces of the answer are given to `piece`, which tells whether to go on; what was written until then is the answer.
    /// Where the conversation does not fit the context any more, its oldest turns are left out. Gives the answer and how many messages were.
    pub fn say(
        &mut self,
        text: &str,
        mut piece: impl FnMut(&str) -> Result<bool, Error>,
    ) -> Result<(String, usize), Error> {
        self.messages.push(ChatMessage::new(ChatRole::User, text));
        let (prompt, forgotten) = match self.prompt() {
            Ok(prompt) => prompt,
            Err(error) => {
                self.messages.pop();
                return Err(error);
            }
        };
        let id = self.generator.add(prompt, &self.options, self.answers, None)?;
        self.answers += 1;
        let mut answer = String::new();
        let mut goes_on = true;
        while goes_on && !self.generator.is_idle() {
            let updates = self.generator.advance()?;
            if updates.is_empty() {
                // A long prompt is being read.
                goes_on = piece("")?;
            }
            for update in updates {
                answer.push_str(&update.piece);
                goes_on &= piece(&update.piece)?;
                if let Some([Continuation { text, .. }]) = update.finished.as_deref() {
                    answer.clone_from(text);
                }
            }
        }
        self.generator.end(id);
        self.messages.push(ChatMessage::new(ChatRole::Assistant, answer.clone()));
        Ok((answer, forgotten))
    }

    /// The tokens of the conversation, with room for an answer, and how many messages had to be left out for that.
    fn prompt(&mut self) -> Result<(Vec<u32>, usize), Error> {
        let context = self.generator.context();
        let room = context - self.options.max_tokens.min(context / 4);
        let mut forgotten = 0;
        loop {
            let tokens = self.model.encode_formatted(&self.format.format(&self.messages)?)?;
            if tokens.len() <= room {
                return Ok((tokens, forgotten));
            }
            let oldest = self.messages.iter().position(|message| message.role != ChatRole::System);
            match oldest.filter(|&oldest| oldest + 1 < self.messages.len()) {
                Some(oldest) => {
                    self.messages.remove(oldest);
                    forgotten += 1;
                    // A conversation begins with what the person says.
                    if self.messages.get(oldest).is_some_and(|message| message.role == ChatRole::Assistant) {
                        self.messages.remove(oldest);
                        forgotten += 1;
                    }
                }
                None => {
                    return Err(Error::input(format!(
                        "the message has {} tokens with what belongs to it, but a context of {context} leaves room for {room}; \
                         shorten it, or take a larger --context",
                        tokens.len()
                    )));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chatml_is_as_it_is_known() {
        let messages = [ChatMessage::new(ChatRole::System, "Be kind."), ChatMessage::new(ChatRole::User, "Hi")];
        let text = ChatMl.format(&messages).expect("a text");
        assert_eq!(
            text,
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        );
    }
}
