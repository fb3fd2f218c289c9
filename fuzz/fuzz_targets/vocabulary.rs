//! A vocabulary that is stored inside of a model's file: an error, or tokens that are in it, and a stream of text that equals the whole.
//!
//! The first byte says what the rest is: llama2.c's `tokenizer.bin` (`b`), or lines for one of GGUF's models. The second byte is then the
//! pre-tokenizer, the third has flags; a token's line begins with its type and its score, and merges follow on an empty line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_data::text::{TextStream, TextTokenizer, VocabularyData, VocabularySpecial};

const TEXT: &str = "A dog, f\u{fc}nf\u{1f600} <s>dogs</s> 1234's.\n\u{0}  \u{fdfa}\u{2581}x";
const PRE_TOKENIZERS: [&str; 8] =
    ["default", "gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "tekken", "gpt-4o", "not a name"];

/// What the lines say.
fn lines(model: &str, bytes: &[u8]) -> Option<VocabularyData> {
    let (&[pre_tokenizer, flags], text) = bytes.split_first_chunk::<2>()?;
    let text = String::from_utf8_lossy(text);
    let (tokens, merges) = text.split_once("\n\n").unwrap_or((&text, ""));
    let id = |shift: u8| (flags >> shift & 1 == 1).then_some(u32::from(flags >> 4) + u32::from(shift));
    let flag = |shift: u8| (flags >> shift & 1 == 1).then_some(flags & 2 == 0);
    let mut data = VocabularyData {
        model: model.to_string(),
        pre_tokenizer: PRE_TOKENIZERS.get(usize::from(pre_tokenizer)).map(|name| name.to_string()),
        model_name: (flags & 128 != 0).then(|| "Phi-3".to_string()),
        merges: merges.lines().map(str::to_string).collect(),
        special: VocabularySpecial {
            bos: id(0),
            eos: id(1),
            eot: id(2),
            unknown: id(3),
            separator: id(4),
            padding: id(5),
            cls: id(6),
            mask: id(7),
        },
        add_bos: flag(0),
        add_eos: flag(1),
        add_space_prefix: flag(2),
        lower_case: flag(3),
        ..VocabularyData::default()
    };
    for line in tokens.split('\n') {
        let mut letters = line.chars();
        data.token_types.push(letters.next().and_then(|letter| letter.to_digit(10)).unwrap_or(1) as i32);
        data.scores.push(match letters.next() {
            Some('n') => f32::NAN,
            Some('i') => f32::INFINITY,
            letter => letter.map_or(0.0, |letter| -(letter as u32 as f32)),
        });
        data.tokens.push(letters.collect());
    }
    Some(data)
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else { return };
    let data = match kind {
        b'b' => VocabularyData::read_llama2c(bytes).ok(),
        b'l' => lines("llama", bytes),
        b'w' => lines("bert", bytes),
        _ => lines("gpt2", bytes),
    };
    let Some(Ok(tokenizer)) = data.map(TextTokenizer::from_vocabulary) else { return };
    let Ok(encoding) = tokenizer.encode(TEXT, None, 60) else { return };
    assert!(encoding.ids.iter().all(|&id| (id as usize) < tokenizer.vocabulary_size()));
    assert!(encoding.offsets.iter().all(|&(start, end)| TEXT.get(start..end).is_some()));
    let mut ids: Vec<u32> = (0..tokenizer.vocabulary_size().min(40) as u32).rev().collect();
    ids.extend(&encoding.ids);
    ids.push(u32::MAX);
    for skip_special in [false, true] {
        let whole = tokenizer.decode(&ids, skip_special).expect("text");
        let mut stream = TextStream::new(&tokenizer, skip_special);
        let mut text: String = ids.iter().map(|&id| stream.push(&tokenizer, id).expect("text")).collect();
        text.push_str(&stream.finish());
        assert_eq!(text, whole);
    }
    let _ = tokenizer.files();
});
