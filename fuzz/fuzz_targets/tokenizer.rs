//! A tokenizer.json: an error, or a tokenizer whose tokens are in its vocabulary and give a text again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_data::text::Tokeniser;
use vitreous_fuzz::with_files;

fuzz_target!(|input: &[u8]| {
    with_files(&[("tokenizer.json", input)], |folder| {
        let Ok(tokeniser) = Tokeniser::open(&folder.join("tokenizer.json")) else { return };
        let Ok(tokens) = tokeniser.encode("A dog, f\u{fc}nf\u{1f600} <s> dogs.") else { return };
        assert!(tokens.iter().all(|&token| (token as usize) < tokeniser.vocabulary_size()));
        let _ = tokeniser.decode(&tokens);
        let _ = tokeniser.decode(&[0, 1, 2, 3, u32::MAX]);
        tokens.iter().for_each(|&token| drop(tokeniser.piece(token)));
    });
});
