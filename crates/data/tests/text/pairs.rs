//! Files of sentence pairs, good and bad.

use std::path::Path;

use vitreous_data::text::{
    EncodedPairs, Languages, Limits, MOST_LINE_BYTES, OpenPairs, Pair, PairsError, TokeniserKind, Tokenisers, open,
    read, read_parallel,
};

use super::folder;

fn languages(source: &str, target: &str) -> Languages {
    Languages { source: source.to_string(), target: target.to_string() }
}

fn in_languages(source: &str, target: &str) -> OpenPairs {
    OpenPairs { languages: Some(languages(source, target)), validation_share: 0.0 }
}

fn pair(source: &str, target: &str) -> Pair {
    Pair { source: source.to_string(), target: target.to_string() }
}

/// Reads one file of this name and content.
fn read_one(name: &str, content: &[u8]) -> Result<(Vec<Pair>, usize), PairsError> {
    let folder = folder(&[(name, content)]);
    read(&folder.path().join(name), None).map(|read| (read.pairs, read.empty))
}

fn message(result: Result<impl Sized, PairsError>) -> String {
    result.err().expect("this must be refused").to_string()
}

#[test]
fn a_tsv_of_any_make_gives_its_pairs() {
    let content = "\u{feff}The house\tDas Haus\r\n tre\u{301}s \tdeux\n\n\tnichts\nnothing\t \r\n\"quoted\t„so“";
    let (pairs, empty) = read_one("a.tsv", content.as_bytes()).unwrap();
    // Composed, without space around, and quotes are signs like others.
    assert_eq!(pairs, [pair("The house", "Das Haus"), pair("tr\u{e9}s", "deux"), pair("\"quoted", "„so“")]);
    assert_eq!(empty, 3);
    assert_eq!(read_one("a.tsv", b"").unwrap(), (vec![], 0));
}

#[test]
fn a_line_that_is_no_pair_is_named() {
    let refused = message(read_one("a.tsv", b"one\teins\ntwo\tzwei\tdeux\n"));
    assert!(refused.contains("a.tsv, line 2") && refused.contains("3 columns"), "{refused}");
    let refused = message(read_one("a.tsv", b"one\teins\ntwo\tzwei\n\nthree\n"));
    assert!(refused.contains("line 4") && refused.contains("1 column"), "{refused}");
    let refused = message(read_one("a.doc", b"one\teins\n"));
    assert!(refused.contains(".tsv") && refused.contains(".jsonl"), "{refused}");
}

#[test]
fn what_is_no_utf8_is_refused_with_line_and_byte() {
    let refused = read_one("a.tsv", b"one\teins\nH\xc3\xa4user\tH\xe4user\n").unwrap_err();
    let PairsError::NotUtf8 { line, byte, value, .. } = &refused else { panic!("{refused}") };
    assert_eq!((*line, *byte, *value), (2, 10, 0xe4));
    let refused = refused.to_string();
    assert!(refused.contains("a.tsv, line 2, byte 10") && refused.contains("ISO-8859-1"), "{refused}");
    // The byte order mark counts: it is a byte of the file.
    let refused = message(read_one("a.tsv", b"\xef\xbb\xbfa\xff\tb\n"));
    assert!(refused.contains("line 1, byte 5"), "{refused}");
    let refused = message(read_one("a.tsv", b"\xff\xfeo\0n\0e\0\t\0"));
    assert!(refused.contains("UTF-16"), "{refused}");
    let folder = folder(&[("a.en", b"one\ntwo"), ("a.de", b"eins\nzw\xe4i")]);
    let refused = message(read_parallel(&folder.path().join("a.en"), &folder.path().join("a.de")));
    assert!(refused.contains("a.de, line 2, byte 3"), "{refused}");
}

#[test]
fn a_line_that_does_not_end_is_refused() {
    let line = |bytes: usize| [b"one\teins\nx\t", "y".repeat(bytes - 2).as_bytes(), b"\r\nlast\tletzte"].concat();
    let (pairs, _) = read_one("a.tsv", &line(MOST_LINE_BYTES)).unwrap();
    assert_eq!((pairs.len(), pairs[1].target.len()), (3, MOST_LINE_BYTES - 2));
    let refused = message(read_one("a.tsv", &line(MOST_LINE_BYTES + 1)));
    assert!(refused.contains("line 2") && refused.contains("1 MiB"), "{refused}");
    let refused = message(read_one("a.jsonl", &vec![b'['; 3 * MOST_LINE_BYTES]));
    assert!(refused.contains("line 1") && refused.contains("1 MiB"), "{refused}");
}

#[test]
fn parallel_files_go_together_line_by_line() {
    let folder =
        folder(&[("a.en", b"one\ntwo\n\nfour"), ("a.de", b"eins\r\nzwei\r\ndrei\r\nvier\r\n"), ("b.de", b"eins\n")]);
    let [english, german, short] = ["a.en", "a.de", "b.de"].map(|name| folder.path().join(name));
    let found = read_parallel(&english, &german).unwrap();
    assert_eq!(found.pairs, [pair("one", "eins"), pair("two", "zwei"), pair("four", "vier")]);
    assert_eq!(found.empty, 1);
    for (a, b, lines) in [(&english, &short, ["4 lines", "has 1:"]), (&short, &english, ["1 lines", "has 4:"])] {
        let refused = message(read_parallel(a, b));
        assert!(lines.iter().all(|lines| refused.contains(lines)), "{refused}");
    }
    // Without their languages they have a common name.
    let found = read(&folder.path().join("a"), Some(&languages("de", "en"))).unwrap();
    assert_eq!(found.pairs[1], pair("zwei", "two"));
    let refused = message(read(&folder.path().join("c"), Some(&languages("de", "en"))));
    assert!(refused.contains("cannot be read"), "{refused}");
}

#[test]
fn json_lines_have_their_forms() {
    let plain = "{\"source\": \"one\", \"target\": \"eins\", \"id\": 3}\n\n{\"target\": \"zwei\\n\", \"source\": \"\\u0065\\u0301\"}\r\n{\"source\": \"\", \"target\": \"x\"}";
    let (pairs, empty) = read_one("a.jsonl", plain.as_bytes()).unwrap();
    assert_eq!((pairs, empty), (vec![pair("one", "eins"), pair("\u{e9}", "zwei")], 1));

    // The first line says which language is the source; the order of later ones does not matter.
    let hub = b"{\"translation\": {\"en\": \"one\", \"de\": \"eins\"}}\n{\"translation\": {\"de\": \"zwei\", \"en\": \"two\"}}";
    assert_eq!(read_one("a.jsonl", hub).unwrap().0, [pair("one", "eins"), pair("two", "zwei")]);
    let folder = folder(&[("a.jsonl", hub)]);
    let found = read(&folder.path().join("a.jsonl"), Some(&languages("de", "en"))).unwrap();
    assert_eq!(found.pairs, [pair("eins", "one"), pair("zwei", "two")]);

    // As datasets of summaries and of sentence-transformers name them.
    for [source, target] in
        [["document", "summary"], ["article", "highlights"], ["text", "summary"], ["anchor", "positive"]]
    {
        let line = format!("{{\"{target}\": \"eins\", \"{source}\": \"one\"}}");
        assert_eq!(read_one("a.jsonl", line.as_bytes()).unwrap().0, [pair("one", "eins")], "{source}");
    }
}

#[test]
fn json_lines_that_hold_no_pair_are_named() {
    for (line, says) in [
        ("{\"source\": \"one\"}", "`target` is missing; found: nothing"),
        ("{\"en\": \"one\", \"de\": \"eins\"}", "`source` is missing; found: en, de"),
        ("{\"source\": 3, \"target\": \"x\"}", "`source` must be a string"),
        ("{\"translation\": {\"en\": \"1\", \"de\": \"1\", \"fr\": \"1\"}}", "3 languages (en, de, fr)"),
        ("{\"translation\": \"one\"}", "object of languages"),
        ("[\"one\", \"eins\"]", "not a JSON object"),
        ("one\teins", "not JSON"),
    ] {
        let content = format!("\n{line}\n");
        let refused = message(read_one("a.jsonl", content.as_bytes()));
        assert!(refused.contains("a.jsonl, line 2") && refused.contains(says), "{line}: {refused}");
    }
    let deep = "[".repeat(100_000);
    assert!(message(read_one("a.jsonl", deep.as_bytes())).contains("not JSON"));
}

#[test]
fn a_folder_has_its_parts_in_any_form() {
    for name in ["valid", "validation", "val", "dev", "eval"] {
        let validation = format!("{name}.jsonl");
        let folder = folder(&[
            ("train.en", b"one\ntwo\n"),
            ("train.de", b"eins\nzwei\n"),
            (&validation, b"{\"translation\": {\"de\": \"drei\", \"en\": \"three\"}}"),
            ("test.tsv", b"four\tvier\n\t\n"),
            ("README.md", b"no pairs"),
        ]);
        let splits = open(folder.path(), &in_languages("en", "de")).unwrap();
        assert_eq!(splits.train, [pair("one", "eins"), pair("two", "zwei")]);
        assert_eq!(splits.validation, [pair("three", "drei")]);
        assert_eq!((splits.test, splits.empty), (vec![pair("four", "vier")], 1));
        let notes = splits.notes.join("\n");
        assert!(notes.contains("train.en and train.de: 2 pairs") && notes.contains("1 pair was dropped"), "{notes}");
    }
}

#[test]
fn a_folder_that_can_be_read_in_two_ways_is_refused() {
    let refused = |files: &[(&str, &[u8])], options: &OpenPairs| {
        let folder = folder(files);
        message(open(folder.path(), options))
    };
    let german = in_languages("en", "de");
    let both = refused(&[("train.tsv", b""), ("train.jsonl", b"")], &german);
    assert!(both.contains("train.tsv; train.jsonl") && both.contains("keep one of them"), "{both}");
    let twice = refused(&[("valid.tsv", b""), ("dev.tsv", b"")], &german);
    assert!(twice.contains("valid.tsv and dev.tsv are the same split"), "{twice}");
    let half = refused(&[("train.en", b"")], &german);
    assert!(half.contains("train.en") && half.contains("train.de") && half.contains("missing"), "{half}");
    let unnamed = refused(&[("train.en", b""), ("train.de", b"")], &OpenPairs::default());
    assert!(unnamed.contains("train.de, train.en") && unnamed.contains("--languages en-de"), "{unnamed}");
    let nothing = refused(&[("notes.md", b"")], &german);
    assert!(nothing.contains("it has notes.md"), "{nothing}");
    assert!(refused(&[], &german).contains("no files"));
    assert!(message(open(Path::new("/no/such/path"), &german)).contains("/no/such/path"));
    let share = OpenPairs { validation_share: 1.0, ..OpenPairs::default() };
    assert!(refused(&[("train.tsv", b"")], &share).contains("validation_share"));
}

#[test]
fn validation_is_drawn_by_the_source() {
    // Each source twice, with two translations.
    let line = |index: usize| format!("sentence {}\tSatz {index}\n", index % 2000);
    let all: String = (0..4000).map(line).collect();
    let options = OpenPairs { languages: None, validation_share: 0.1 };
    let draw = |content: &str| {
        let folder = folder(&[("a.tsv", content.as_bytes())]);
        open(&folder.path().join("a.tsv"), &options).unwrap()
    };
    let splits = draw(&all);
    assert_eq!(splits.train.len() + splits.validation.len(), 4000);
    // Five deviations of the binomial distribution of 2000 sources.
    assert!(splits.validation.len().abs_diff(400) < 2 * 67, "{}", splits.validation.len());
    let drawn: std::collections::HashSet<&str> = splits.validation.iter().map(|pair| pair.source.as_str()).collect();
    assert!(splits.train.iter().all(|pair| !drawn.contains(pair.source.as_str())), "a source is in both parts");
    assert!(splits.notes[1].contains("hash of the source"), "{:?}", splits.notes);
    // What else is there changes nothing.
    let fewer: String = (0..4000).filter(|index| index % 3 != 0).map(line).collect();
    let fewer = draw(&fewer);
    assert!(fewer.validation.iter().all(|pair| splits.validation.contains(pair)));
    assert!(fewer.train.iter().all(|pair| splits.train.contains(pair)));
}

#[test]
fn pairs_that_cannot_be_learnt_from_are_dropped_and_counted() {
    let pairs = [
        ("one two three", "eins zwei drei"),
        ("x", "a b c d e f g h i"),
        ("x", "a b c d e f g h i j"),
        ("a b c d e f g h i j", "x"),
        ("a b c d e f g h i j k l m", "a b c d e f g h i j k l m"),
        ("a b c d e f g h i j k l", "a b c d e f g h i j k l"),
        ("", "x"),
    ]
    .map(|(source, target)| Pair::new(source, target));
    // What occurs twice is a token: each of these words.
    let learnt = [0, 3, 4, 0, 3, 4].map(|index: usize| pairs[index].clone());
    let tokenisers = Tokenisers::train(TokeniserKind::Bpe, &learnt, 400, true).unwrap();
    let limits = Limits { max_tokens: 12, ..Limits::default() };
    let (encoded, dropped) = EncodedPairs::new(&pairs, &tokenisers, &limits).unwrap();
    assert_eq!((dropped.empty, dropped.too_long, dropped.unequal), (1, 1, 2), "{dropped}");
    let places: Vec<usize> = (0..encoded.len()).map(|index| encoded.place(index)).collect();
    assert_eq!(places, [0, 1, 5]);
    assert_eq!(tokenisers.source.decode(encoded.source(0)).unwrap(), "one two three");
    assert_eq!(tokenisers.target.decode(encoded.target(2)).unwrap(), "a b c d e f g h i j k l");
    let none = Limits { max_tokens: usize::MAX, max_ratio: f64::INFINITY };
    let (all, dropped) = EncodedPairs::new(&pairs, &tokenisers, &none).unwrap();
    assert_eq!((all.len(), dropped.total()), (6, 1));
}
