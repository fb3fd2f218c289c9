//! Broken or hostile input: an error or a note, never a panic.

use proptest::prelude::*;
use vitreous_data::dataset::{OpenDataset, inspect, open};
use vitreous_data::image::Channels;

use super::common::{bytes, fixture};
use super::{idx, labels, names, opened, png, refused, says, tar_of, write};

#[test]
fn folders_may_hold_anything() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    for path in ["train/a/0.png", "train/a/deep/1.PNG", "train/b/0.png", "val/c/0.png"] {
        write(&root.join(path), png(3));
    }
    write(&root.join("train/a/broken.jpg"), "no image");
    write(&root.join("train/a/empty.png"), "");
    for other in ["train/a/notes.txt", "train/a/Makefile", "train/readme.md", "train/a/.hidden.png", "train/a/._0.png"]
    {
        write(&root.join(other), "x");
    }
    write(&root.join("train/loose.png"), png(1));
    std::fs::create_dir_all(root.join("train/nothing/in it")).expect("folders");
    let splits = opened(root);
    assert_eq!(splits.classes, ["a", "b", "c"]);
    let expected = ["train/a/0.png", "train/a/broken.jpg", "train/a/deep/1.PNG", "train/a/empty.png", "train/b/0.png"];
    assert_eq!(names(splits.train.as_ref(), root), expected);
    says(
        &splits.notes.join("; "),
        &[
            "3 files that are not images were skipped (.md, .txt, no extension)",
            "1 image that is in no class folder was skipped",
            "1 class folder has no images: nothing",
            "1 class has no training images: c",
        ],
    );
    let inspection = inspect(&splits.train, 2, None, |_| {});
    let broken: Vec<(&str, &str)> = inspection
        .broken
        .iter()
        .map(|broken| (broken.name.rsplit('/').next().unwrap(), broken.reason.as_str()))
        .collect();
    assert_eq!(broken.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["broken.jpg", "empty.png"]);
    assert_eq!(broken[1].1, "the file is empty");
    assert_eq!(inspection.sizes.range(0), Some([2, 2, 2]));
}

#[cfg(unix)]
#[test]
fn links_lead_nowhere_twice_and_names_need_not_be_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let elsewhere = tempfile::tempdir().expect("a folder");
    write(&elsewhere.path().join("9.png"), png(9));
    write(&root.join("a/0.png"), png(1));
    write(&root.join("b/0.png"), png(1));
    symlink(root, root.join("a/round")).expect("a link");
    symlink(root, root.join("round")).expect("a link");
    symlink(root.join("a/self"), root.join("a/self")).expect("a link");
    symlink(root.join("a/gone"), root.join("a/gone.png")).expect("a link");
    symlink(elsewhere.path(), root.join("b/linked")).expect("a link");
    symlink(elsewhere.path(), root.join("b/linked again")).expect("a link");
    let strange = OsStr::from_bytes(b"c\xff");
    write(&root.join(strange).join(OsStr::from_bytes(b"\xfe.png")), png(1));
    let made = std::process::Command::new("mkfifo").arg(root.join("a/pipe.png")).status();
    assert!(made.expect("mkfifo runs").success());
    let options = OpenDataset { validation_share: 0.0, ..OpenDataset::default() };
    let splits = open(root, &options).expect("a data set");
    assert_eq!(splits.classes, ["a", "b", "c\u{fffd}"]);
    let all = names(splits.train.as_ref(), root);
    assert_eq!(all[..4], ["a/0.png", "a/gone.png", "b/0.png", "b/linked/9.png"], "{all:?}");
    assert_eq!(all.len(), 5);
    assert_eq!(inspect(&splits.train, 1, None, |_| {}).broken.len(), 1);
}

#[test]
fn manifests_are_refused_with_their_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused_as = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        write(&path, content);
        refused(&path)
    };
    says(&refused_as("a.csv", b"a,b\n1,2\n"), &["its first row must name the columns", "a, b"]);
    says(&refused_as("a.csv", b""), &["its first row must name the columns"]);
    says(&refused_as("a.csv", b"path,label\n"), &["has no samples"]);
    says(&refused_as("a.csv", b"path,label\na.png,x\n,x\n"), &["row 2", "there is no path"]);
    says(&refused_as("a.csv", b"path,label\na.png\n"), &["row 1", "too short"]);
    says(&refused_as("a.csv", b"path,label,split\na.png,x,middle\n"), &["row 1", "`middle` is not a split"]);
    says(&refused_as("a.csv", b"path,label\na.png,1\nb.png,-1\n"), &["the label -1 is not a class"]);
    says(&refused_as("a.csv", b"path,label\na.png,4294967295\n"), &["is not a class"]);
    says(&refused_as("a.jsonl", b"{\"path\": \"a\", \"label\": 1}\n[1]\n"), &["row 2", "not a JSON object"]);
    says(&refused_as("a.jsonl", b"{\"path\": \"a\", \"label\": 1.5}\n"), &["row 1", "a string or an integer"]);
    says(&refused_as("a.jsonl", b"{\"path\": \"a\", \"label\": {}}\n"), &["row 1", "a string or an integer"]);
    says(&refused_as("a.jsonl", b"{\"path\": 3, \"label\": 1}\n"), &["the path is not a string"]);
    says(&refused_as("a.jsonl", b"{\"label\": 1}\n"), &["there is no path"]);
    says(&refused_as("a.jsonl", &[b'['; 100_000]), &["row 1"]);
}

#[test]
fn images_named_twice_are_taken_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.csv");
    write(&path, b"path,label,split\n\xff.png,x,train\n\xff.png,x,train\n\xff.png,y,train\nb.png,y,val\n");
    let splits = opened(&path);
    assert_eq!(labels(splits.train.as_ref()), [[0]]);
    says(
        &splits.notes.join("; "),
        &[
            "1 row names an image that was named before; each",
            "1 row names an image that was named before, with other labels",
        ],
    );
}

#[test]
fn cifar_and_idx_are_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let cifar = root.join("cifar/data_batch_1.bin");
    write(&cifar, [0; 3073 * 2 - 1]);
    says(&refused(&root.join("cifar")), &["data_batch_1.bin", "not a multiple of the record size"]);
    let mut records = [0; 3073 * 2];
    records[3073] = 10;
    write(&cifar, records);
    says(&refused(&root.join("cifar")), &["record 1 has the label 10, but there are 10 classes"]);
    write(&cifar, []);
    says(&refused(&root.join("cifar")), &["not a multiple"]);

    let write_pair = |images: Vec<u8>, labels: Vec<u8>| {
        write(&root.join("idx/train-images-idx3-ubyte"), images);
        write(&root.join("idx/train-labels-idx1-ubyte"), labels);
        refused(&root.join("idx"))
    };
    says(
        &write_pair(idx(&[2, 1, 1], &[0, 0]), idx(&[3], &[0; 3])),
        &["it has 2 images, but train-labels-idx1-ubyte has 3 labels"],
    );
    says(&write_pair(idx(&[2, 1, 1], &[0]), idx(&[2], &[0; 2])), &["train-images-idx3-ubyte", "its header says"]);
    says(&write_pair(idx(&[u32::MAX; 3], &[0]), idx(&[2], &[0; 2])), &["its header says"]);
    says(&write_pair(idx(&[2], &[0; 2]), idx(&[2], &[0; 2])), &["it has 1 axes, but 3 are expected"]);
    says(&write_pair(idx(&[2, 0, 0], &[]), idx(&[2], &[0; 2])), &["no pixels"]);
    says(&write_pair(idx(&[0, 1, 1], &[]), idx(&[0], &[])), &["has no samples"]);
    says(&write_pair(b"nonsense".to_vec(), idx(&[2], &[0; 2])), &["does not begin like an IDX file"]);
    std::fs::remove_file(root.join("idx/train-images-idx3-ubyte")).expect("removed");
    write(&root.join("idx/train-labels-idx1-ubyte"), idx(&[7], &[0; 7]));
    let packed = bytes("datasets/idx/train-images-idx3-ubyte.gz");
    write(&root.join("idx/train-images-idx3-ubyte.gz"), &packed[..packed.len() - 9]);
    says(&refused(&root.join("idx")), &["train-images-idx3-ubyte.gz", "not a complete gzip file"]);
}

#[test]
fn shards_that_end_early_give_what_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.tar");
    let whole = tar_of(&[
        ("0.png", png(1)),
        ("0.cls", "3".into()),
        ("1.png", png(2)),
        ("1.cls", "0".into()),
        ("2.png", png(3)),
        ("3.cls", "1".into()),
        ("4.png", png(4)),
        ("4.json", "[]".into()),
        ("1.jpg", png(5)),
    ]);
    let options = OpenDataset { validation_share: 0.0, keep_bytes: 0, ..OpenDataset::default() };
    write(&path, &whole);
    let splits = open(&path, &options).expect("a data set");
    assert_eq!((labels(splits.train.as_ref()), splits.classes.len()), (vec![vec![3], vec![0]], 4));
    says(
        &splits.notes.join("; "),
        &[
            "1 sample has no image",
            "2 samples have no label",
            "1 file is a second image",
            "4.json: this is not a JSON object",
        ],
    );
    // Cut within 1.png: its header is at three times (header and content), its content one block on.
    write(&path, &whole[..2048 + 512 + 20]);
    let splits = open(&path, &options).expect("a data set");
    assert_eq!(splits.train.len(), 1);
    says(&splits.notes.join("; "), &["1 archive ends too early", "it ends within 1.png"]);
    assert!(splits.train.image(0, Channels::Rgb).is_ok());
    // The archive changes after it was looked through.
    write(&path, &whole[..540]);
    let error = splits.train.image(0, Channels::Rgb).expect_err("cut").to_string();
    says(&error, &["the archive became shorter"]);
    write(&path, "");
    says(&refused(&path), &["no sample with an image"]);
    write(&path, vec![7; 5000]);
    says(&refused(&path), &["no sample with an image", "1 archive ends too early"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever byte is changed, wherever it is cut: an answer in words, or samples that can be asked for.
    #[test]
    fn damaged_files_never_panic(which in 0usize..6, at in 0.0f64..1.0, with in any::<u8>(), cut in any::<bool>()) {
        let files = [
            ("datasets/shards/set-000.tar", "x.tar"),
            ("datasets/shards/set-001.tar", "x.tar"),
            ("datasets/manifest.csv", "x.csv"),
            ("datasets/idx/t10k-images.idx3-ubyte", "t10k-images.idx3-ubyte"),
            ("datasets/idx/train-images-idx3-ubyte.gz", "train-images-idx3-ubyte.gz"),
            ("datasets/cifar-100-binary/fine_label_names.txt", "fine_label_names.txt"),
        ];
        let (fixture_name, name) = files[which];
        let folder = tempfile::tempdir().expect("a folder");
        let beside = fixture(fixture_name);
        for entry in std::fs::read_dir(beside.parent().expect("a folder")).expect("a folder").flatten() {
            if entry.path().is_file() && which >= 3 {
                std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("copied");
            }
        }
        let mut content = bytes(fixture_name);
        let place = (at * content.len() as f64) as usize;
        if cut { content.truncate(place) } else { content[place] = with }
        let path = folder.path().join(name);
        write(&path, content);
        for path in [&path, folder.path()] {
            if let Ok(splits) = open(path, &OpenDataset::default()) {
                for part in [&splits.train, &splits.validation] {
                    let inspection = inspect(part, 1, None, |_| {});
                    prop_assert_eq!(inspection.looked_at, part.len());
                    prop_assert!((0..part.len()).all(|index| part.labels(index).iter().all(|&label| (label as usize) < splits.classes.len())));
                }
            }
        }
    }
}
