//! `vitreous data`.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use common::vitreous;
use serde_json::Value;

fn data(path: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/datasets");
    fixtures.join(path).display().to_string()
}

#[test]
fn the_built_in_set_is_described_without_a_path() {
    let run = vitreous(&["data", "--json"]).succeeded();
    let found = &run.json_lines()[0];
    assert_eq!((&found["train"]["images"], &found["validation"]["images"]), (&10_000.into(), &2_000.into()));
    assert_eq!(found["classes"][9]["name"], "Ankle boot");
    assert_eq!(found["classes"][9]["train"], 1000);
    assert_eq!(found["train"]["mean"].as_array().map(Vec::len), Some(1));
    let text = vitreous(&["data", "--quick", "--threads", "3"]).succeeded().stdout;
    assert!(text.contains("a random sample; 3 threads"), "{text}");
    assert!(text.lines().any(|line| line.split_whitespace().eq(["decoded", "1,000", "1,000"])), "{text}");
}

#[test]
fn means_and_deviations_are_numpys() {
    let expected: Value = {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/datasets.json");
        serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON")
    };
    let found = &vitreous(&["data", &data("cifar10"), "--json"]).succeeded().json_lines()[0];
    assert_eq!(found["kind"], "CIFAR-10 binary");
    for key in ["mean", "deviation"] {
        for channel in 0..3 {
            let number = |value: &Value| value["train"][key][channel].as_f64().expect("a number");
            assert!((number(found) - number(&expected["cifar10"])).abs() < 1e-12, "{key}");
        }
    }
}

#[test]
fn broken_files_are_named_and_notes_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = Path::new(&data("folder/train/2/0.png")).to_path_buf();
    for class in ["one", "two\n\u{1b}[31m"] {
        std::fs::create_dir(folder.path().join(class)).expect("a folder");
        std::fs::copy(&image, folder.path().join(class).join("0.png")).expect("copied");
    }
    std::fs::write(folder.path().join("one/broken.png"), "no image").expect("a file");
    std::fs::write(folder.path().join("one/notes.txt"), "x").expect("a file");
    let path = folder.path().display().to_string();
    let text = vitreous(&["data", &path, "--validation-share", "0"]).succeeded().stdout;
    for part in [
        "image folder, 2 classes",
        "broken in train:",
        "one/broken.png: this is not an image",
        "note: 1 file that is not an image",
        "\\u{1b}[31m",
    ] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    let found = &vitreous(&["data", &path, "--json", "--validation-share", "0"]).succeeded().json_lines()[0];
    assert_eq!(
        (found["train"]["images"].as_u64(), found["train"]["broken"].as_array().map(Vec::len)),
        (Some(3), Some(1))
    );
    assert_eq!(found["train"]["height"]["median"], 3);
}

#[test]
fn a_test_part_is_shown_beside_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = Path::new(&data("folder/train/2/0.png")).to_path_buf();
    for path in ["train/a/0.png", "train/b/0.png", "val/a/0.png", "test/b/0.png", "test/b/1.png"] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::copy(&image, path).expect("copied");
    }
    let path = folder.path().display().to_string();
    let text = vitreous(&["data", &path]).succeeded().stdout;
    let has_row = |row: &[&str]| text.lines().any(|line| line.split_whitespace().eq(row.iter().copied()));
    assert!(has_row(&["split", "train", "validation", "test"]) && has_row(&["images", "2", "1", "2"]), "{text}");
    assert!(text.contains("note: only 1 validation image"), "{text}");
    let found = &vitreous(&["data", &path, "--json"]).succeeded().json_lines()[0];
    assert_eq!((&found["test"]["images"], &found["classes"][1]["test"]), (&2.into(), &2.into()));
}

#[test]
fn many_classes_are_folded() {
    let text = vitreous(&["data", &data("cifar-100-binary")]).succeeded().stdout;
    assert!(text.contains("... 81 more ...") && text.contains("fine 99"), "{text}");
    assert!(!text.contains("fine 50"), "{text}");
    let coarse = vitreous(&["data", &data("cifar-100-binary"), "--labels", "coarse"]).succeeded().stdout;
    assert!(coarse.contains("coarse 19") && !coarse.contains("more ..."), "{coarse}");
}

#[test]
fn wrong_usage_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    vitreous(&["data", &path]).failed(2, &["no data set was recognised", "the folder is empty"]);
    vitreous(&["data", "nothing-here"]).failed(2, &["nothing-here", "cannot be read"]);
    vitreous(&["data", "--validation-share", "2", &path]).failed(2, &["at least 0 and under 1"]);
    vitreous(&["data", "get", "imagenet"]).failed(2, &["cifar10", "fashion-mnist"]);
}

/// A server that answers every request with this.
fn server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

#[test]
fn get_refuses_what_is_not_the_known_file() {
    for (answer, says) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            "its MD5 sum must be f68b3c2dcbeaaa9fbdd348bbdeb94873, but it is 5d41402abc4b2a76b9719d911017c592",
        ),
        ("HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "the server answered 404"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("mnist");
        let output = Command::new(env!("CARGO_BIN_EXE_vitreous"))
            .args(["data", "get", "mnist", "--to"])
            .arg(&to)
            .env("VITREOUS_DATA_MIRROR", server(answer))
            .output()
            .expect("vitreous runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(says), "{text}");
        assert!(!to.join("train-images-idx3-ubyte.gz").exists());
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left behind");
    }
}

/// Ctrl-C, while a server sends this and then nothing: what is said, and which files are left.
#[cfg(unix)]
fn interrupted(answer: &'static [u8], wait_for: impl Fn(&Path) -> bool) -> (String, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mirror = format!("http://{}", listener.local_addr().expect("an address"));
    let (connected, connection) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(answer);
        connected.send(stream).expect("somebody waits");
    });
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("deep/mnist");
    let child = Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args(["data", "get", "mnist", "--to"])
        .arg(&to)
        .env("VITREOUS_DATA_MIRROR", mirror)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("vitreous runs");
    let _stream = connection.recv().expect("a connection");
    while !wait_for(&to) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    let output = child.wait_with_output().expect("vitreous ends");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{text}");
    let left = std::fs::read_dir(&to).map_or_else(|_| Vec::new(), |entries| entries.flatten().collect());
    if left.is_empty() {
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "{text}");
    }
    (text, left.into_iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

#[cfg(unix)]
#[test]
fn an_interrupted_get_leaves_only_what_it_can_resume() {
    const PARTIAL: &str = "train-images-idx3-ubyte.gz.partial";
    let (text, left) = interrupted(b"", |_| true);
    assert!(text.contains("interrupted; nothing was kept") && left.is_empty(), "{text}{left:?}");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\nConnection: close\r\n\r\nhello";
    let received = |to: &Path| std::fs::metadata(to.join(PARTIAL)).is_ok_and(|file| file.len() == 5);
    let (text, left) = interrupted(answer, received);
    assert!(text.contains("interrupted; 5 B are kept: the same command resumes"), "{text}");
    assert_eq!(left, [PARTIAL]);
}
