//! The two vocabularies of OpenAI's Whisper, whose `.pt` files have none: that of GPT-2 for English models, and the multilingual one.
//!
//! Special tokens follow the byte pairs: the end of a text, its start, the languages, the tasks, and a timestamp for every 20 ms.

use std::io::Read;

use flate2::read::ZlibDecoder;

use super::{VocabularyData, VocabularySpecial, token_type};

const ENGLISH: &[u8] = include_bytes!("whisper/gpt2.bin");
const MULTILINGUAL: &[u8] = include_bytes!("whisper/multilingual.bin");
/// Timestamps from 0 to 30 s.
const TIMESTAMPS: usize = 1501;

impl VocabularyData {
    /// The vocabulary of a Whisper whose embedding has so many rows, with the codes of its languages in their order; `None` if no
    /// published model has it.
    pub fn whisper(size: usize, languages: &[&str]) -> Option<VocabularyData> {
        let (file, languages) = match size {
            51_864 => (ENGLISH, languages.get(..99)?),
            51_865.. => (MULTILINGUAL, languages.get(..size - 51_766)?),
            _ => return None,
        };
        let mut data = read(file)?;
        let first = data.tokens.len();
        let before = ["<|endoftext|>", "<|startoftranscript|>"].map(str::to_string);
        let languages = languages.iter().map(|code| format!("<|{code}|>"));
        let after = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"];
        let after = after.map(|name| format!("<|{name}|>"));
        let times = (0..TIMESTAMPS).map(|index| format!("<|{}.{:02}|>", index / 50, index % 50 * 2));
        data.tokens.extend(before.into_iter().chain(languages).chain(after).chain(times));
        data.token_types = vec![1; first];
        data.token_types.resize(data.tokens.len(), token_type::CONTROL);
        data.special = VocabularySpecial {
            bos: Some(first as u32),
            eos: Some(first as u32),
            padding: Some(first as u32),
            ..VocabularySpecial::default()
        };
        (data.tokens.len() == size).then_some(data)
    }
}

/// Byte pairs as `whisper/make.py` wrote them; `None` if the file is not what it wrote.
fn read(file: &[u8]) -> Option<VocabularyData> {
    let mut bytes = Vec::new();
    ZlibDecoder::new(file).read_to_end(&mut bytes).ok()?;
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let (single, pairs) = rest.split_first_chunk::<256>()?;
    let mut tokens: Vec<String> = single.iter().map(|&byte| letter(byte).to_string()).collect();
    let mut merges = Vec::with_capacity(pairs.len() / 4);
    for pair in pairs.chunks_exact(4) {
        let part = |at: usize| usize::from(u16::from_le_bytes([pair[at], pair[at + 1]]));
        match (part(0), part(2)) {
            (0xffff, 0xffff) => tokens.push(String::new()),
            (left, right) => {
                let (left, right) = (tokens.get(left)?, tokens.get(right)?);
                merges.push(format!("{left} {right}"));
                tokens.push(format!("{left}{right}"));
            }
        }
    }
    let expected = u32::from_le_bytes(*count) as usize;
    let data = VocabularyData {
        model: "gpt2".to_string(),
        pre_tokenizer: Some("gpt-2".to_string()),
        tokens,
        merges,
        add_bos: Some(false),
        add_eos: Some(false),
        ..VocabularyData::default()
    };
    (data.tokens.len() == expected).then_some(data)
}

/// The letter that GPT-2 writes a byte as: itself if it is printable, and otherwise one behind all bytes, in order.
fn letter(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match is_printable(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&byte| !is_printable(byte)).count() as u32;
            char::from_u32(256 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    }
}
