//! From texts or chats to sequences of tokens.

use std::ops::Range;

use rayon::prelude::*;
use vitreous_data::text::chat_template::{ChatMessage, ChatTemplate, ChatTemplateError, RenderedChat};
use vitreous_data::text::{
    DocumentBreak, PlainTexts, TextPart, TextTokenizer, TokenDocuments, TokenSequences, read_chats,
};

use crate::error::TrainError;
use crate::task::thousands;

/// About as many bytes of text are encoded at a time, by all threads.
const BYTES_AT_ONCE: usize = 16 << 20;
/// Chats that all threads render and encode at a time.
const CHATS_AT_ONCE: usize = 1 << 12;

/// What a model is trained with.
pub(super) struct LanguageData {
    pub sequences: TokenSequences,
    /// Whether only the answers of chats are learnt.
    pub chats: bool,
    pub notes: Vec<String>,
}

/// The tokens around documents.
struct Around {
    /// Before each document, and not learnt.
    lead: Vec<u32>,
    /// Behind each document, or between documents if there is no lead.
    end: u32,
}

impl Around {
    fn of(tokenizer: &TextTokenizer) -> Result<Around, TrainError> {
        let special = tokenizer.special();
        let Some(end) = special.end.or(special.separator) else {
            let what =
                "the tokenizer has no token for the end of a text: its tokenizer_config.json must name an `eos_token`";
            return Err(TrainError::Data(what.to_string()));
        };
        let lead = tokenizer.before_text()?;
        // GPT-2's is both: what ends a document begins the next.
        Ok(Around { lead: if lead == [end] { Vec::new() } else { lead }, end })
    }

    fn begin(&self, all: &mut TokenDocuments) {
        match self.lead.is_empty() {
            true => {
                all.begin();
                all.extend(&[self.end]);
            }
            false => {
                all.begin();
                all.extend_counted(&self.lead, self.lead.iter().map(|_| false));
            }
        }
    }

    /// A document that follows brings what ends this one, if that is the same.
    fn finish(&self, all: &mut TokenDocuments) {
        if !self.lead.is_empty() {
            all.extend(&[self.end]);
        }
    }

    /// The end of the last document.
    fn finish_all(&self, all: &mut TokenDocuments) {
        if self.lead.is_empty() {
            all.begin();
            all.extend(&[self.end]);
        }
    }
}

/// Packs texts into sequences of this length.
pub(super) fn of_texts(
    texts: &PlainTexts,
    documents: DocumentBreak,
    tokenizer: &TextTokenizer,
    length: usize,
) -> Result<LanguageData, TrainError> {
    let around = Around::of(tokenizer)?;
    let mut parts = texts.parts(documents);
    let (mut all, mut is_open) = (TokenDocuments::default(), false);
    loop {
        let some = some_parts(&mut parts)?;
        if some.is_empty() {
            break;
        }
        let encoded: Result<Vec<Vec<u32>>, _> =
            some.par_iter().map(|part| tokenizer.encode_plain(&part.text)).collect();
        for (tokens, part) in encoded?.into_iter().zip(some) {
            if !is_open {
                around.begin(&mut all);
            }
            all.extend(&tokens);
            is_open = !part.ends;
            if part.ends {
                around.finish(&mut all);
            }
        }
    }
    around.finish_all(&mut all);
    let tokens = all.len();
    let sequences = TokenSequences::pack(all, length);
    if sequences.is_empty() {
        return Err(TrainError::Data(format!(
            "the text has {} tokens, fewer than the {} of one sequence: give more text, or set a smaller text.max_tokens",
            thousands(tokens),
            thousands(length + 1)
        )));
    }
    Ok(LanguageData { sequences, chats: false, notes: texts.notes().to_vec() })
}

fn some_parts(parts: &mut impl Iterator<Item = Result<TextPart, impl ToString>>) -> Result<Vec<TextPart>, TrainError> {
    let (mut some, mut bytes) = (Vec::new(), 0);
    while bytes < BYTES_AT_ONCE {
        match parts.next() {
            None => break,
            Some(part) => {
                let part = part.map_err(|error| TrainError::Data(error.to_string()))?;
                // Short documents take memory, too.
                bytes += part.text.len() + 256;
                some.push(part);
            }
        }
    }
    Ok(some)
}

/// Chats in sequences of this length, of which only the answers are learnt.
pub(super) fn of_chats(
    texts: &PlainTexts,
    tokenizer: &TextTokenizer,
    length: usize,
) -> Result<LanguageData, TrainError> {
    let template = ChatTemplate::of(tokenizer).map_err(|error| TrainError::Data(error.to_string()))?;
    let template = template.ok_or_else(|| {
        TrainError::Data(
            "the model has no chat template, which says how messages become text: name a file with one as text.chat_template=FILE"
                .to_string(),
        )
    })?;
    let read = read_chats(texts).map_err(|error| TrainError::Data(error.to_string()))?;
    let mut notes: Vec<String> = texts.notes().iter().cloned().chain(read.notes).collect();
    let mut all = TokenDocuments::default();
    for (chunk, chats) in read.chats.chunks(CHATS_AT_ONCE).enumerate() {
        let encode = |(place, chat): (usize, &Vec<ChatMessage>)| {
            chat_tokens(&template, tokenizer, chat)
                .map_err(|what| TrainError::Data(format!("chat {}: {what}", chunk * CHATS_AT_ONCE + place + 1)))
        };
        let encoded: Result<Vec<ChatTokens>, TrainError> = chats.par_iter().enumerate().map(encode).collect();
        for ChatTokens { ids, counted } in encoded? {
            all.begin();
            all.extend_counted(&ids, counted);
        }
    }
    let (sequences, cut) = TokenSequences::keep_whole(all, length);
    if sequences.is_empty() {
        return Err(TrainError::Data(format!(
            "no chat has an answer within its first {} tokens: set a larger text.max_tokens",
            thousands(length)
        )));
    }
    if cut > 0 {
        let chats = if cut == 1 { "chat is" } else { "chats are" };
        notes.push(format!(
            "{} {chats} longer than {} tokens and end there: a larger text.max_tokens would keep them whole",
            thousands(cut),
            thousands(length + 1)
        ));
    }
    Ok(LanguageData { sequences, chats: true, notes })
}

/// The tokens of a chat, and whether each is part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTokens {
    /// The tokens.
    pub ids: Vec<u32>,
    /// Whether each is part of an answer: it is, if one of its characters is, as in `transformers`' `return_assistant_tokens_mask`.
    pub counted: Vec<bool>,
}

/// Renders a chat with a template, and finds the tokens of its answers.
pub fn chat_tokens(
    template: &ChatTemplate,
    tokenizer: &TextTokenizer,
    chat: &[ChatMessage],
) -> Result<ChatTokens, String> {
    let rendered = template.render_answers(chat).map_err(|ChatTemplateError(what)| what)?;
    let RenderedChat { text, answers } = rendered;
    let tokens = tokenizer.encode_with_ranges(&text).map_err(|error| error.to_string())?;
    let is_answer = |range: &Range<usize>| {
        let next = answers.partition_point(|answer| answer.end <= range.start);
        answers.get(next).is_some_and(|answer| answer.start < range.end.max(range.start + 1))
    };
    let (ids, counted) = tokens.into_iter().map(|(id, range)| (id, is_answer(&range))).unzip();
    Ok(ChatTokens { ids, counted })
}
