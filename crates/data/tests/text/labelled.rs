//! Labelled texts: formats, columns, labels and splits.

use std::collections::BTreeSet;

use tempfile::TempDir;
use vitreous_data::text::{LabelKind, LabelledSplits, LabelledText, OpenLabelled, PairsError, open_labelled};

use super::folder;

fn all() -> OpenLabelled {
    OpenLabelled { validation_share: 0.0, ..OpenLabelled::default() }
}

fn open_one(name: &str, content: &str, options: &OpenLabelled) -> Result<LabelledSplits, PairsError> {
    let folder = folder(&[(name, content.as_bytes())]);
    open_labelled(&folder.path().join(name), options)
}

fn text(text: &str, label: u32) -> LabelledText {
    LabelledText { text: text.to_string(), labels: vec![label], ..LabelledText::default() }
}

fn pair(text: &str, pair: &str, label: u32) -> LabelledText {
    LabelledText { text: text.to_string(), pair: Some(pair.to_string()), labels: vec![label], number: None }
}

fn labels(splits: &LabelledSplits) -> Vec<Vec<u32>> {
    splits.train.iter().map(|text| text.labels.clone()).collect()
}

#[test]
fn a_csv_has_quotes_and_line_breaks_within_them() {
    let content =
        "\u{feff}id,Text,label\r\n1,\"one, \"\"two\"\"\r\nthree\",pos\r\n\r\n2,plain \"text\",neg\n3,\"\n\nend\",pos";
    let splits = open_one("a.csv", content, &all()).unwrap();
    assert_eq!(splits.classes, ["neg", "pos"]);
    assert_eq!(splits.train, [text("one, \"two\"\nthree", 1), text("plain \"text\"", 0), text("\n\nend", 1)]);
    assert_eq!((splits.name.as_str(), splits.is_regression, splits.several_labels), ("a.csv", false, false));
    // Tables of other programs that are called CSV.
    let splits = open_one("a.csv", "text;label\none, two;1\nthree;0\n", &all()).unwrap();
    assert_eq!(splits.train, [text("one, two", 1), text("three", 0)]);
}

#[test]
fn quotation_marks_in_a_tsv_are_text_unless_they_enclose_a_cell() {
    let rows = [
        "sentence\tlabel",
        "\"So\" he said\t1",
        "\"never closed\t0",
        "\"a \"\"b\"\"\tc\"\t1",
        "5\" disk\t0",
        "\"two",
        "lines\"\t1",
    ];
    let splits = open_one("a.tsv", &rows.join("\n"), &all()).unwrap();
    let texts: Vec<&str> = splits.train.iter().map(|text| text.text.as_str()).collect();
    assert_eq!(texts, ["\"So\" he said", "\"never closed", "a \"b\"\tc", "5\" disk", "two\nlines"]);
}

#[test]
fn json_lines_have_strings_numbers_truths_and_lists() {
    let one = |labels: [&str; 3]| {
        let lines = labels.map(|label| format!("{{\"review\": \"a\", \"sentiment\": {label}}}\n"));
        open_one("a.jsonl", &lines.concat(), &all()).unwrap()
    };
    let splits = one(["\"x\"", "\"b\"", "\"x\""]);
    assert_eq!(
        (splits.classes.clone(), labels(&splits)),
        (vec!["b".into(), "x".into()], vec![vec![1], vec![0], vec![1]])
    );
    let splits = one(["10", "9", "-1.0"]);
    assert_eq!(
        (splits.classes.clone(), labels(&splits)),
        (vec!["-1".into(), "9".into(), "10".into()], vec![vec![2], vec![1], vec![0]])
    );
    assert_eq!(one(["true", "false", "true"]).classes, ["false", "true"]);
    let splits = one(["[\"b\", \"a\", \"b\"]", "[]", "\"a\""]);
    assert!(splits.several_labels);
    assert_eq!(labels(&splits), [vec![0, 1], vec![], vec![0]]);
    let splits = one(["0.5", "1", "2"]);
    assert!(splits.is_regression && splits.classes.is_empty());
    assert_eq!(splits.train.iter().map(|text| text.number).collect::<Vec<_>>(), [Some(0.5), Some(1.0), Some(2.0)]);
}

#[test]
fn columns_are_found_by_their_names() {
    let first = |header: &str, row: &str| {
        let content = format!("{header}\n{row}\n{}\n", row.replace("yes", "no"));
        open_one("a.csv", &content, &all()).unwrap().train[0].clone()
    };
    assert_eq!(first("content,class", "a,yes"), text("a", 1));
    assert_eq!(first("label,review", "yes,a"), text("a", 1));
    assert_eq!(first("premise,hypothesis,label", "a,b,yes"), pair("a", "b", 1));
    assert_eq!(first("index,sentence1,sentence2,score", "7,a,b,yes"), pair("a", "b", 1));
    // QNLI: `sentence` is not the first text.
    assert_eq!(first("index,question,sentence,label", "7,a,b,yes"), pair("a", "b", 1));
    let options = OpenLabelled { text: "b".into(), pair: "text".into(), label: "c".into(), ..all() };
    let splits = open_one("a.csv", "text,b,c,label\nx,y,1,0\nx,y,2,0\n", &options).unwrap();
    assert_eq!(splits.train, [pair("y", "x", 0), pair("y", "x", 1)]);
}

#[test]
fn a_table_without_a_header_has_its_label_last_or_first() {
    let splits = open_one("a.csv", "a good film,x,1\na bad one,y,0\n", &all()).unwrap();
    assert_eq!(splits.train, [text("a good film", 1), text("a bad one", 0)]);
    let note = splits.notes.join("\n");
    assert!(note.contains("text is in column 1, the label in column 3 (1 of 3 columns are not used)"), "{note}");
    let splits = open_one("a.tsv", "spam\tbuy this now\nham\thow are you\n", &all()).unwrap();
    assert_eq!(splits.train, [text("buy this now", 1), text("how are you", 0)]);
    let options = OpenLabelled { text: "3".into(), pair: "1".into(), label: "2".into(), ..all() };
    let splits = open_one("a.csv", "a b,1,c d\ne f,0,g h\n", &options).unwrap();
    assert_eq!(splits.train, [pair("c d", "a b", 1), pair("g h", "e f", 0)]);
    // Its test file has one column less.
    let folder = folder(&[("train.csv", b"a film,1\nthe end,0\n"), ("test.csv", b"unknown film\n")]);
    let splits = open_labelled(folder.path(), &all()).unwrap();
    assert_eq!(splits.test, [LabelledText { text: "unknown film".into(), ..LabelledText::default() }]);
}

#[test]
fn the_kind_and_the_separator_say_what_a_cell_means() {
    let content = "text,label\na,x|y\nb,\nc,y\n";
    let splits = open_one("a.csv", content, &OpenLabelled { kind: LabelKind::Several, ..all() }).unwrap();
    assert!(splits.several_labels);
    assert_eq!(
        (splits.classes.clone(), labels(&splits)),
        (vec!["x".into(), "y".into()], vec![vec![0, 1], vec![], vec![1]])
    );
    let splits =
        open_one("a.csv", "text,label\na,x; y\nc,y\n", &OpenLabelled { separator: ";".into(), ..all() }).unwrap();
    assert_eq!(labels(&splits), [vec![0, 1], vec![1]]);
    let splits = open_one("a.csv", "text,label\na,x|y\nc,y\n", &all()).unwrap();
    assert_eq!(splits.classes, ["x|y", "y"]);
    let numbers = "text,label\na,1\nb,2\n";
    assert!(!open_one("a.csv", numbers, &all()).unwrap().is_regression);
    let splits = open_one("a.csv", numbers, &OpenLabelled { kind: LabelKind::Number, ..all() }).unwrap();
    assert_eq!((splits.is_regression, splits.train[1].number), (true, Some(2.0)));
    let halves =
        open_one("a.csv", "text,label\na,1.5\nb,0.50\nc,1.50\n", &OpenLabelled { kind: LabelKind::Class, ..all() });
    assert_eq!(halves.unwrap().classes, ["0.5", "1.5"]);
}

#[test]
fn given_classes_keep_their_order_and_may_be_indices() {
    let options = OpenLabelled { classes: vec!["pos".into(), "neg".into(), "none".into()], ..all() };
    let splits = open_one("a.csv", "text,label\na,neg\nb,pos\nc,2\n", &options).unwrap();
    assert_eq!((splits.classes.clone(), labels(&splits)), (options.classes.clone(), vec![vec![1], vec![0], vec![2]]));
    let refused = open_one("a.csv", "text,label\na,neg\nb,3\n", &options).unwrap_err().to_string();
    assert!(
        refused.contains("line 3") && refused.contains("`3` is not one of the 3 classes: pos, neg, none"),
        "{refused}"
    );
}

#[test]
fn a_folder_has_a_file_for_each_part() {
    let train = b"text,label\na,x\nb,y\n";
    let found = folder(&[
        ("train.csv", train),
        ("dev.tsv", b"text\tlabel\nc\ty\n"),
        ("test.jsonl", b"{\"text\": \"d\"}\n{\"text\": \"\", \"label\": \"z\"}\n"),
        ("README.md", b"..."),
    ]);
    let splits = open_labelled(found.path(), &OpenLabelled::default()).unwrap();
    assert_eq!((splits.train.len(), splits.validation.clone()), (2, vec![text("c", 1)]));
    assert_eq!(splits.test, [LabelledText { text: "d".into(), ..LabelledText::default() }, text("", 2)]);
    let notes = splits.notes.join("\n");
    assert!(notes.contains("cannot be learnt: z"), "{notes}");
    assert!(notes.contains("1 without a label"), "{notes}");
    let both = folder(&[("train.csv", train), ("train.tsv", b"text\tlabel\na\tx\n")]);
    let refused = open_labelled(both.path(), &all()).unwrap_err().to_string();
    assert!(refused.contains("train.csv and train.tsv are both the train part"), "{refused}");
    // The hidden labels of a benchmark.
    let hidden = folder(&[("train.csv", b"text,label\na,0\nb,1\n"), ("test.csv", b"text,label\nc,-1\nd,-1\n")]);
    let splits = open_labelled(hidden.path(), &all()).unwrap();
    assert_eq!((splits.classes.len(), splits.test[0].labels.len()), (2, 0));
    let only = folder(&[("reviews.csv", train)]);
    assert_eq!(open_labelled(only.path(), &all()).unwrap().train.len(), 2);
}

fn class_folders(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn class_folders_are_read_as_imdb_has_them() {
    let found = class_folders(&[
        ("train/pos/0_9.txt", "good<br />\nvery\n"),
        ("train/neg/0_1.txt", "bad"),
        ("train/neg/notes.csv", "text,label"),
        ("train/unsup/0_0.txt", "who knows"),
        ("train/urls_pos.txt", "http://"),
        ("test/neg/1_2.txt", "worse"),
        ("imdb.vocab", "the"),
    ]);
    let splits = open_labelled(found.path(), &all()).unwrap();
    assert_eq!(splits.classes, ["neg", "pos"]);
    assert_eq!(splits.train, [text("bad", 0), text("good<br />\nvery", 1)]);
    assert_eq!(splits.test, [text("worse", 0)]);
    let notes = splits.notes.join("\n");
    assert!(notes.contains("1 unlabelled text was left out of the train part (unsup/)"), "{notes}");
    let bare = class_folders(&[("ham/1.txt", "a"), ("spam/1.txt", "b")]);
    assert_eq!(open_labelled(bare.path(), &all()).unwrap().train, [text("a", 0), text("b", 1)]);
}

#[test]
fn validation_texts_are_drawn_by_content_and_class() {
    let label = |index: usize| if index.is_multiple_of(10) { "rare" } else { "usual" };
    let row = |index: usize| format!("text number {},{}\n", index % 150, label(index % 150));
    let rows: Vec<String> = (0..200).map(row).collect();
    let turned: Vec<String> = rows.iter().rev().cloned().collect();
    // The texts of 135 and 15, of which 50 occur twice, that are drawn of each class.
    for (share, usual, rare) in [(0.2, 27, 3), (0.4, 54, 6), (0.6, 81, 9)] {
        let options = OpenLabelled { validation_share: share, ..OpenLabelled::default() };
        let open = |rows: &[String]| open_one("a.csv", &format!("text,label\n{}", rows.concat()), &options).unwrap();
        let drawn = |splits: &LabelledSplits| -> BTreeSet<(u32, String)> {
            splits.validation.iter().map(|text| (text.labels[0], text.text.clone())).collect()
        };
        let splits = open(&rows);
        let own = drawn(&splits);
        assert_eq!(own.iter().filter(|(label, _)| *label == 0).count(), rare);
        assert_eq!(own.len(), rare + usual);
        assert!(splits.train.iter().all(|text| !own.contains(&(text.labels[0], text.text.clone()))), "in both parts");
        assert_eq!(own, drawn(&open(&turned)), "the order of the rows does not matter");
        assert!(
            splits.notes.iter().any(|note| note.contains(&format!("stratified by class (a share of {share} of 200)")))
        );
    }
}
