//! Tagged sentences, good and bad.

use vitreous_data::text::{TaggedSentence, TaggedSplits, open_tagged};

use super::folder;

fn open_one(name: &str, content: &[u8]) -> Result<TaggedSplits, String> {
    let folder = folder(&[(name, content)]);
    open_tagged(&folder.path().join(name), 0.0).map_err(|error| error.to_string())
}

fn sentence(words: &[&str], tags: &[u32]) -> TaggedSentence {
    TaggedSentence { words: words.iter().map(|word| word.to_string()).collect(), tags: tags.to_vec() }
}

#[test]
fn conll_files_have_words_first_and_tags_last() {
    let content = "-DOCSTART- -X- O O\r\n\r\nEU NNP B-NP I-ORG\r\nrejects VBZ B-VP O\r\n\r\n\r\n# SYM B-NP O\nParis NNP B-NP B-LOC";
    let splits = open_one("eng.train", content.as_bytes()).unwrap();
    assert_eq!(splits.tags, ["O", "B-LOC", "I-ORG"]);
    assert_eq!(splits.train, [sentence(&["EU", "rejects"], &[2, 0]), sentence(&["#", "Paris"], &[0, 1])]);
    // Tabs; a word may be another space, and sentences may have comments.
    let content = "# id 7 domain=en\nNew York\tB-LOC\n\u{a0}\tO\n  \n# id 8 domain=en\nis\tO\n";
    let splits = open_one("a.iob2", content.as_bytes()).unwrap();
    assert_eq!(splits.train, [sentence(&["New York", "\u{a0}"], &[1, 0]), sentence(&["is"], &[0])]);
}

#[test]
fn json_lines_have_tokens_and_tags() {
    let content = b"{\"tokens\": [\"a\", \"B\"], \"ner_tags\": [\"O\", \"B-PER\"]}\n{\"tokens\": [], \"tags\": []}\n{\"tokens\": [\"c\"], \"tags\": [\"O\"]}";
    let splits = open_one("a.jsonl", content).unwrap();
    assert_eq!(splits.train, [sentence(&["a", "B"], &[0, 1]), sentence(&["c"], &[0])]);
    for (line, part) in [
        ("{\"tokens\": [\"a\"], \"tags\": [\"O\", \"O\"]}", "1 words, but 2 tags"),
        ("{\"tokens\": [\"a\"], \"ner_tags\": [3]}", "names instead"),
        ("{\"tokens\": [\"a\"], \"spans\": []}", "the keys are: spans"),
        ("[1]", "not a JSON object"),
    ] {
        let refused = open_one("a.jsonl", format!("\n{line}\n").as_bytes()).unwrap_err();
        assert!(refused.contains("line 2") && refused.contains(part), "{refused}");
    }
}

#[test]
fn folders_have_parts_of_many_names() {
    let (one, two, three) = (b"a O\nb B-X\n".as_slice(), b"c O\n".as_slice(), b"d B-Y\n".as_slice());
    for names in [
        ["eng.train", "eng.testa", "eng.testb"],
        ["train.txt", "valid.txt", "test.txt"],
        ["en_ewt-ud-train.iob2", "en_ewt-ud-dev.iob2", "en_ewt-ud-test.iob2"],
    ] {
        let found =
            folder(&[(names[0], one), (names[1], two), (names[2], three), ("README", b"train"), ("train.py", b"")]);
        let splits = open_tagged(found.path(), 0.1).unwrap();
        assert_eq!(splits.tags, ["O", "B-X", "B-Y"]);
        assert_eq!(splits.validation, [sentence(&["c"], &[0])]);
        assert_eq!(splits.test, [sentence(&["d"], &[2])]);
        assert!(splits.notes.iter().any(|note| note.contains("cannot be learnt: B-Y")), "{:?}", splits.notes);
    }
}

#[test]
fn a_share_of_sentences_is_drawn() {
    let content: String = (0..100).map(|index| format!("w{} O\nx B-X\n\n", index % 50)).collect();
    let found = folder(&[("train.conll", content.as_bytes())]);
    let splits = open_tagged(found.path(), 0.2).unwrap();
    assert_eq!((splits.train.len(), splits.validation.len()), (80, 20));
    assert!(
        splits.validation.iter().all(|sentence| !splits.train.contains(sentence)),
        "equal sentences are in both parts"
    );
    assert!(open_tagged(found.path(), 1.0).unwrap_err().to_string().contains("validation_share"));
}

#[test]
fn files_that_are_not_tagged_are_refused() {
    let many: String = (0..300).map(|index| format!("the word{index}\n\n")).collect();
    let endless = "a O\n".repeat(70_000);
    for (content, parts) in [
        (b"".as_slice(), ["a.conll", "no sentences"]),
        (b"-DOCSTART- O\n\n", ["a.conll", "no sentences"]),
        (b"EU B-ORG\nrejects\n", ["line 2", "`rejects` has no tag"]),
        (b"EU NNP B-ORG\nrejects VBZ\n", ["line 2", "2 columns, but the first word has 3"]),
        (b"a O\nb O\n", ["a.conll", "every word has the tag `O`"]),
        (b"a O\n\xe9 O\n", ["line 2", "not UTF-8"]),
        (many.as_bytes(), ["300 tags for 300 words", "last column"]),
        (endless.as_bytes(), ["line 65537", "blank line"]),
    ] {
        let refused = open_one("a.conll", content).unwrap_err();
        assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
    }
    let found = folder(&[("notes.md", b"train")]);
    let refused = open_tagged(found.path(), 0.1).unwrap_err().to_string();
    assert!(refused.contains("it has notes.md") && refused.contains("train.conll"), "{refused}");
}
