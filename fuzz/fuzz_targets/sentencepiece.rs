//! A model of SentencePiece: an error, or a vocabulary whose pieces are in it and give a text again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_data::text::SentencePieces;

fuzz_target!(|input: &[u8]| {
    let Ok(model) = SentencePieces::read(input) else { return };
    for text in ["A dog, f\u{fc}nf\u{1f600} <s> dogs.", "", "  \u{2581} \u{3000}\u{fb01} ", "\u{0}"] {
        let ids = model.encode(text);
        assert!(ids.iter().all(|&id| (id as usize) < model.len()));
        let _ = model.decode(&ids);
        let _ = model.encode_pieces(text);
    }
    let _ = model.decode(&[0, 1, 2, 3, u32::MAX]);
});
