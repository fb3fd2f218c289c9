//! Texts to learn from: labelled (tables, JSON lines), tagged (CoNLL, JSON lines) and plain.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_data::text::{LabelKind, OpenLabelled, open_labelled, open_plain, open_tagged};
use vitreous_fuzz::with_files;

fuzz_target!(|input: &[u8]| {
    // The first byte chooses the format and what labels are.
    let Some((&choice, content)) = input.split_first() else { return };
    let name = ["set.csv", "set.tsv", "set.jsonl", "set.conll"][usize::from(choice % 4)];
    let kind = [LabelKind::Auto, LabelKind::Class, LabelKind::Several, LabelKind::Number][usize::from(choice / 4 % 4)];
    with_files(&[(name, content)], |folder| {
        let path = folder.join(name);
        if let Ok(splits) = open_labelled(&path, &OpenLabelled { kind, ..OpenLabelled::default() }) {
            for text in splits.train.iter().chain(&splits.validation) {
                assert!(text.labels.iter().all(|&label| (label as usize) < splits.classes.len()));
                assert_eq!(text.number.is_some(), splits.is_regression);
                assert!(splits.is_regression || splits.several_labels || text.labels.len() == 1);
            }
        }
        if let Ok(splits) = open_tagged(&path, 0.1) {
            for sentence in splits.train.iter().chain(&splits.validation) {
                assert_eq!(sentence.words.len(), sentence.tags.len());
                assert!(sentence.tags.iter().all(|&tag| (tag as usize) < splits.tags.len()));
            }
        }
        if let Ok(texts) = open_plain(&path) {
            assert!(texts.documents().flatten().all(|document| !document.trim().is_empty()));
        }
    });
});
