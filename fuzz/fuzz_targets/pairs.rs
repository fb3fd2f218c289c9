//! Sentence pairs: lines with tabs, and JSON lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_data::text::read;
use vitreous_fuzz::with_files;

fuzz_target!(|input: &[u8]| {
    for name in ["pairs.tsv", "pairs.jsonl"] {
        with_files(&[(name, input)], |folder| {
            let Ok(found) = read(&folder.join(name), None) else { return };
            assert!(found.pairs.iter().all(|pair| !pair.is_empty()));
        });
    }
});
