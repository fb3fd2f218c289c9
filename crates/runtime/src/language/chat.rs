//! A conversation with a language model: messages in, answers out, with the history in the KV cache.

use vitreous_engine::Device;
use vitreous_models::generate::{GenerateOptions, Tally};

use super::generator::{Continuation, TextGenerator, TextOptions};
use super::model::LanguageModel;
use crate::chat_template::{ChatMessage, ChatTemplate};
use crate::error::Error;

/// The template of models that know its tokens and come without one: ChatML.
const CHAT_ML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}\
                       {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Tokens that end what somebody says, in templates that have them. Not every model names them as its ends.
const TURN_ENDS: [&str; 5] = ["<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "</s>"];

/// How a model's conversations are written.
#[derive(Clone, Debug)]
pub struct ChatFormat {
    template: ChatTemplate,
}

/// A conversation as tokens, up to where an answer begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatPrompt {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Tokens that end what somebody says, besides those that end a text.
    pub ends: Vec<u32>,
}

impl ChatFormat {
    /// The model's own, or ChatML where the model knows its tokens. An error if it was not trained for conversations.
    pub fn of(model: &LanguageModel) -> Result<ChatFormat, Error> {
        let template = match ChatTemplate::of(&model.tokenizer)? {
            Some(template) => template,
            None if model.tokenizer.id("<|im_start|>").is_some() => ChatTemplate::new(CHAT_ML, &[])?,
            None => {
                return Err(Error::input(
                    "the model has no chat template: it was not trained for conversations. Use `vitreous generate`, or add a \
                     `chat_template` to its tokenizer_config.json",
                ));
            }
        };
        Ok(ChatFormat { template })
    }

    /// The prompt of a model for the next answer to these messages.
    pub fn prompt(&self, model: &LanguageModel, messages: &[ChatMessage]) -> Result<ChatPrompt, Error> {
        let text = self.template.render(messages, true)?;
        let tokens = model.encode_formatted(&text)?;
        let known = |name: &&str| model.tokenizer.id(name).filter(|&id| (id as usize) < model.vocabulary);
        let ends = TURN_ENDS.iter().filter(|name| text.contains(**name)).filter_map(known).collect();
        Ok(ChatPrompt { tokens, ends })
    }
}

/// A conversation. What was said stays in the cache, so that a turn reads only what is new.
pub struct Chat<'m> {
    model: &'m LanguageModel,
    format: ChatFormat,
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
        system: Option<&str>,
        options: TextOptions,
        generate: GenerateOptions,
        device: &Device,
    ) -> Result<Chat<'m>, Error> {
        let format = ChatFormat::of(model)?;
        let generator = TextGenerator::new(model, GenerateOptions { slots: 1, ..generate }, device)?;
        let messages = system.map(|text| ChatMessage::new("system", text)).into_iter().collect();
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
        self.messages.retain(|message| message.role == "system");
    }

    /// Says something. Pieces of the answer are given to `piece`, which tells whether to go on; what was written until then is the answer.
    /// Where the conversation does not fit the context any more, its oldest turns are left out. Gives the answer and how many messages were.
    pub fn say(
        &mut self,
        text: &str,
        mut piece: impl FnMut(&str) -> Result<bool, Error>,
    ) -> Result<(String, usize), Error> {
        let before = self.messages.clone();
        let answered = self.answer(text, &mut piece);
        if answered.is_err() {
            // As if nothing had been said, so that something else can be.
            self.messages = before;
        }
        answered
    }

    fn answer(
        &mut self,
        text: &str,
        piece: &mut impl FnMut(&str) -> Result<bool, Error>,
    ) -> Result<(String, usize), Error> {
        self.messages.push(ChatMessage::new("user", text));
        let (prompt, forgotten) = self.prompt()?;
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
        self.messages.push(ChatMessage::new("assistant", answer.clone()));
        Ok((answer, forgotten))
    }

    /// The tokens of the conversation, with room for an answer, and how many messages had to be left out for that.
    fn prompt(&mut self) -> Result<(Vec<u32>, usize), Error> {
        let context = self.generator.context();
        let room = context - self.options.max_tokens.min(context / 4);
        let mut forgotten = 0;
        loop {
            let ChatPrompt { tokens, ends } = self.format.prompt(self.model, &self.messages)?;
            self.options.more_ends = ends;
            if tokens.len() <= room {
                return Ok((tokens, forgotten));
            }
            let oldest = self.messages.iter().position(|message| message.role != "system");
            match oldest.filter(|&oldest| oldest + 1 < self.messages.len()) {
                Some(oldest) => {
                    self.messages.remove(oldest);
                    forgotten += 1;
                    // A conversation begins with what the person says.
                    if self.messages.get(oldest).is_some_and(|message| message.role == "assistant") {
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
