//! Error rates against `jiwer` (`fixtures/make_word_errors.py`).

use vitreous_train::measures::{Edits, character_edits, spoken, word_edits};

#[test]
fn error_rates_are_those_of_jiwer() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/word_errors.json");
    let fixture: serde_json::Value = serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON");
    let (mut words, mut characters) = (Edits::default(), Edits::default());
    for case in fixture["cases"].as_array().expect("cases") {
        let text = |key: &str| case[key].as_str().expect(key);
        let (own_words, own_characters) =
            (word_edits(text("reference"), text("found")), character_edits(text("reference"), text("found")));
        let close = |rate: f64, key: &str| (rate - case[key].as_f64().expect(key)).abs() < 1e-12;
        assert!(
            close(own_words.rate(), "wer") && close(own_characters.rate(), "cer"),
            "{case}: {own_words:?}, {own_characters:?}"
        );
        (words, characters) = (words + own_words, characters + own_characters);
    }
    assert!((words.rate() - fixture["wer"].as_f64().expect("a rate")).abs() < 1e-12);
    assert!((characters.rate() - fixture["cer"].as_f64().expect("a rate")).abs() < 1e-12);
    assert_eq!(spoken("Well, it's\n 3 o'clock!  "), "well it's 3 o'clock");
}
