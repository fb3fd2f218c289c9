//! Plain text, good and bad.

use vitreous_data::text::{MOST_DOCUMENT_BYTES, open_plain};

use super::folder;

/// The documents of a file, up to an error.
fn documents(name: &str, content: &[u8]) -> Result<Vec<String>, String> {
    let folder = folder(&[(name, content)]);
    let texts = open_plain(&folder.path().join(name)).map_err(|error| error.to_string())?;
    assert_eq!(texts.bytes(), content.len() as u64);
    texts.documents().map(|document| document.map_err(|error| error.to_string())).collect()
}

#[test]
fn documents_end_at_blank_lines() {
    let content = "\u{feff}\n\none\r\n two\r\n \t\r\n\nthree\n\nfour";
    assert_eq!(documents("enwik8", content.as_bytes()).unwrap(), ["one\n two", "three", "four"]);
    let lines = b"{\"text\": \"a\\n\\nb\", \"id\": 7}\n\n{\"text\": \" \"}\n{\"text\": \"c\"}";
    assert_eq!(documents("a.jsonl", lines).unwrap(), ["a\n\nb", "c"]);
}

#[test]
fn a_folder_is_read_in_order_of_names() {
    let found = folder(&[
        ("b.md", b"two\n"),
        ("a.txt", b"one"),
        ("c.png", b"x"),
        ("d.txt", b"\0\x01"),
        ("e.jsonl", b"{\"text\": \"four\"}"),
    ]);
    std::fs::create_dir(found.path().join("deep")).unwrap();
    std::fs::write(found.path().join("deep/x.txt"), "three").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(found.path().join("deep"), found.path().join("deeper")).unwrap();
    let texts = open_plain(found.path()).unwrap();
    let files: Vec<(&str, u64)> = texts.files().iter().map(|file| (file.name.as_str(), file.bytes)).collect();
    assert_eq!((files.len(), files[0], files[1], files[3].1), (4, ("a.txt", 3), ("b.md", 4), 16));
    let documents: Vec<String> = texts.documents().map(Result::unwrap).collect();
    // Each file ends a document, and a folder that two paths lead to is read once.
    assert_eq!(documents, ["one", "two", "three", "four"]);
    assert_eq!(texts.notes(), ["2 files that are not text were skipped: c.png, d.txt"]);
}

#[test]
fn long_documents_are_cut_and_long_lines_refused() {
    let line = format!("{}\n", "x".repeat(1 << 20));
    let cut = documents("a.txt", line.repeat(20).as_bytes()).unwrap();
    // Each line has its end but the last.
    assert_eq!(cut.iter().map(String::len).collect::<Vec<_>>(), [(16 << 20) + 15, (4 << 20) + 3]);
    let mut long = b"short\n\n".to_vec();
    long.resize(long.len() + MOST_DOCUMENT_BYTES + 1, b'x');
    let refused = documents("a.txt", &long).unwrap_err();
    assert!(refused.contains("line 3") && refused.contains("16 MiB"), "{refused}");
    long.pop();
    assert_eq!(documents("a.txt", &long).unwrap().len(), 2);
}

#[test]
fn what_is_not_text_is_refused() {
    for (name, content, parts) in [
        ("a.txt", b"".as_slice(), ["a.txt", "it is empty"]),
        ("a.txt", b"one\n\ntwo \xff\n", ["line 3, byte 5", "not UTF-8"]),
        ("a.txt", b"\xff\xfea\0b\0", ["line 1", "iconv -f UTF-16"]),
        ("a.bin", b"\x7fELF\0\0", ["a.bin", "bytes, not text"]),
        ("a.jsonl", b"{\"text\": \"a\"}\n{\"txt\": \"a\"}", ["line 2", "missing field `text`"]),
        ("a.jsonl", b"[\"a\"]", ["line 1", "JSON object"]),
    ] {
        let refused = documents(name, content).unwrap_err();
        assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
    }
    let found = folder(&[("a.png", b"x")]);
    let refused = open_plain(found.path()).unwrap_err().to_string();
    assert!(refused.contains("it has a.png") && refused.contains(".txt"), "{refused}");
}

#[test]
fn there_is_nothing_after_an_error() {
    let found = folder(&[("a.txt", b"\xff"), ("b.txt", b"b")]);
    let mut documents = open_plain(found.path()).unwrap().documents();
    assert!(documents.next().unwrap().is_err());
    assert!(documents.next().is_none());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(open_plain(&path).unwrap_err().to_string().contains("pipe"));
}
