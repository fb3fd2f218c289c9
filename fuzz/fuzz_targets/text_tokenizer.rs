//! A model directory's tokenizer: an error, or tokens that are in its vocabulary, with ranges that are in the text.
//!
//! The first byte says which of the files the rest is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_data::text::TextTokenizer;
use vitreous_fuzz::with_files;

const TEXT: &str = "A dog, f\u{fc}nf\u{1f600} [MASK] dogs.\n\u{0} \u{fdfa}";

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else { return };
    let files: &[(&str, &[u8])] = match kind {
        b'v' => &[("vocab.txt", bytes)],
        b's' => &[("spiece.model", bytes)],
        b'x' => &[("sentencepiece.bpe.model", bytes)],
        b'c' => &[("vocab.txt", b"[UNK]\n[CLS]\n[SEP]\na\n##b\n"), ("tokenizer_config.json", bytes)],
        b'm' => &[("vocab.json", br#"{"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4}"#), ("merges.txt", bytes)],
        _ => &[("tokenizer.json", bytes)],
    };
    with_files(files, |folder| {
        let Ok(tokenizer) = TextTokenizer::open(folder) else { return };
        for pair in [None, Some(TEXT)] {
            let Ok(encoding) = tokenizer.encode(TEXT, pair, 20) else { continue };
            assert!(encoding.len() <= 20);
            assert!(encoding.ids.iter().all(|&id| (id as usize) < tokenizer.vocabulary_size()));
            assert!(encoding.offsets.iter().all(|&(start, end)| TEXT.get(start..end).is_some()));
            let _ = tokenizer.decode(&encoding.ids, true);
        }
        let _ = tokenizer.encode_windows("a", TEXT, 12, 3);
        let _ = tokenizer.encode_words(&["a", "", "dog\u{301}"], 9);
        let _ = tokenizer.decode(&[0, 1, 2, 3, u32::MAX], false);
    });
});
