//! Labelled texts that are refused, each with a sentence: what, where, what to do.

use proptest::prelude::*;
use vitreous_data::text::{LabelKind, OpenLabelled, open_labelled, open_plain, open_tagged};

use super::folder;

/// Why a file of this name and content is refused.
fn refused_with(name: &str, content: &[u8], options: &OpenLabelled) -> String {
    let folder = folder(&[(name, content)]);
    open_labelled(&folder.path().join(name), options).expect_err("this must be refused").to_string()
}

fn assert_refused(name: &str, content: &[u8], parts: &[&str]) {
    let refused = refused_with(name, content, &OpenLabelled::default());
    assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
    assert!(refused.len() < 600, "{refused}");
}

#[test]
fn columns_that_are_missing_or_doubled_are_named() {
    assert_refused("a.csv", b"id,text,stamp\n1,a,b\n", &["a.csv, line 1", "data.label=NAME", "id, text, stamp"]);
    assert_refused("a.csv", b"id,words,label\n1,a,b\n", &["line 1", "data.text=NAME", "id, words, label"]);
    assert_refused("a.csv", b"text,label,label\na,b,c\n", &["two columns are called `label`"]);
    assert_refused(
        "a.jsonl",
        b"{\"text\": \"a\", \"stamp\": 1}\n",
        &["line 1", "data.label=NAME", "the columns are:", "stamp"],
    );
    let options = OpenLabelled { label: "topic".into(), ..OpenLabelled::default() };
    let refused = refused_with("a.csv", b"text,label\na,b\n", &options);
    assert!(refused.contains("no column `topic`") && refused.contains("text, label"), "{refused}");
    let options = OpenLabelled { text: "label".into(), ..OpenLabelled::default() };
    assert!(refused_with("a.csv", b"text,label\na,b\n", &options).contains("different columns"));
    assert_refused(
        "a.csv",
        b"utterance,mood\nhello you,1\ngood day,0\nbye,1\n",
        &["line 1", "`mood`", "names the columns"],
    );
    assert_refused("a.tsv", b"one column\nand nothing else\n", &["one column only"]);
}

#[test]
fn files_without_texts_are_refused() {
    assert_refused("a.csv", b"", &["a.csv", "no rows"]);
    assert_refused("a.csv", b"text,label\n", &["no rows", "only a header"]);
    assert_refused("a.jsonl", b"\n\n", &["no rows"]);
    assert_refused("a.parquet", b"PAR1", &[".csv, .tsv or .jsonl"]);
    let empty = folder(&[("notes.md", b"")]);
    let refused = open_labelled(empty.path(), &OpenLabelled::default()).expect_err("no data").to_string();
    assert!(refused.contains("it has notes.md") && refused.contains("train.csv"), "{refused}");
}

#[test]
fn rows_that_cannot_be_read_are_named() {
    assert_refused("a.csv", b"text,label\na,b\n\nc, d,e\n", &["line 4", "3 columns", "has 2", "quotes"]);
    assert_refused("a.csv", b"text,label\n\"a\nb\",c\n\xff,d\n", &["line 4, byte 1", "not UTF-8", "iconv"]);
    assert_refused(
        "a.jsonl",
        b"{\"text\": \"a\", \"label\": 1}\n{\"text\": 2, \"label\": 1}\n",
        &["line 2", "`text` must be a string"],
    );
    assert_refused("a.jsonl", b"{\"text\": \"a\", \"label\": 1}\n{\"label\": 1}\n", &["line 2", "`text` is missing"]);
    assert_refused("a.json", b"[\n{\"text\": \"a\", \"label\": 1}\n]", &["line 1", "JSON array", "jq"]);
    assert_refused("a.jsonl", b"{\"text\": \"a\", \"label\": {\"x\": 1}}\n", &["line 1", "a label must be"]);
    assert_refused("a.jsonl", &[b"{\"text\": ".as_slice(), &[b'['; 100_000]].concat(), &["line 1", "not JSON"]);
}

#[test]
fn long_lines_and_quotes_that_never_end_are_refused() {
    let long = [b"text,label\na,b\n".as_slice(), &vec![b'x'; 10 << 20], b",c\n"].concat();
    assert_refused("a.csv", &long, &["line 3", "longer than 1 MiB"]);
    assert_refused("a.csv", b"text,label\na,b\n\"c,d\ne,f\n", &["line 3", "quote", "before the end of the file"]);
    let endless = ["text,label\na,b\n\"open,c\n", &"some more text,d\n".repeat(200_000)].concat();
    assert_refused("a.csv", endless.as_bytes(), &["line 3", "quote", "within 1 MiB"]);
}

#[test]
fn texts_without_labels_are_refused_unless_they_are_for_testing() {
    assert_refused("a.csv", b"text,label\na,x\nb,\nc,y\n", &["line 3", "there is no label"]);
    let lines = b"{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": null}\n";
    assert_refused("a.jsonl", lines, &["line 2", "there is no label"]);
    let options = OpenLabelled { kind: LabelKind::Number, ..OpenLabelled::default() };
    for label in ["x", "nan", "1e99", ""] {
        let refused = refused_with("a.csv", format!("text,label\na,1\nb,{label}\n").as_bytes(), &options);
        assert!(refused.contains("line 3"), "{refused}");
    }
    let options = OpenLabelled { kind: LabelKind::Class, ..OpenLabelled::default() };
    let lines = b"{\"text\": \"a\", \"label\": [1]}\n{\"text\": \"b\", \"label\": [1, 2]}\n";
    let refused = refused_with("a.jsonl", lines, &options);
    assert!(refused.contains("line 2") && refused.contains("2 labels (1, 2)"), "{refused}");
}

#[test]
fn labels_that_are_not_classes_are_refused() {
    assert_refused("a.csv", b"text,label\na,x\nb,x\n", &["class `x`", "nothing to learn"]);
    let every: String = (0..60).map(|row| format!("text {row},{}\n", row.min(31))).collect();
    assert_refused("a.csv", format!("text,label\n{every}").as_bytes(), &["32 classes for 60 texts", "data.label=NAME"]);
    let many: String = (0..300_000).map(|row| format!("t,{}\n", row % 100_000)).collect();
    assert_refused("a.csv", format!("text,label\n{many}").as_bytes(), &["100000 classes", "65536"]);
    let options = OpenLabelled { classes: vec!["a".into(), "a".into()], ..OpenLabelled::default() };
    assert!(refused_with("a.csv", b"text,label\nx,a\n", &options).contains("different names"));
    for share in [-0.1, 1.0, f64::NAN] {
        let options = OpenLabelled { validation_share: share, ..OpenLabelled::default() };
        assert!(refused_with("a.csv", b"text,label\nx,a\n", &options).contains("validation_share"));
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.csv");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let refused = open_labelled(&path, &OpenLabelled::default()).expect_err("a pipe").to_string();
    assert!(refused.contains("pipe"), "{refused}");
    // In a folder it is not a data set.
    assert!(open_labelled(folder.path(), &OpenLabelled::default()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_file_is_read_or_refused(content in "(text,label\n|label\ttext\n)?([ab01,;|\t\n\"\r é.{}\\[:-]|\"text\": |\"label\": ){0,60}") {
        for name in ["a.csv", "a.tsv", "a.jsonl", "a.conll"] {
            let folder = folder(&[(name, content.as_bytes())]);
            let path = folder.path().join(name);
            for kind in [LabelKind::Auto, LabelKind::Class, LabelKind::Several, LabelKind::Number] {
                let options = OpenLabelled { kind, validation_share: 0.3, ..OpenLabelled::default() };
                let Ok(splits) = open_labelled(&path, &options) else { continue };
                for text in splits.train.iter().chain(&splits.validation) {
                    prop_assert!(text.labels.iter().all(|&label| (label as usize) < splits.classes.len()));
                    prop_assert_eq!(text.number.is_some(), splits.is_regression);
                    prop_assert!(splits.is_regression || splits.several_labels || text.labels.len() == 1);
                }
            }
            if let Ok(splits) = open_tagged(&path, 0.3) {
                for sentence in splits.train.iter().chain(&splits.validation) {
                    prop_assert_eq!(sentence.words.len(), sentence.tags.len());
                    prop_assert!(sentence.tags.iter().all(|&tag| (tag as usize) < splits.tags.len()));
                }
            }
            if let Ok(texts) = open_plain(&path) {
                prop_assert!(texts.documents().flatten().all(|document| !document.trim().is_empty()));
            }
        }
    }
}
