//! Beside what NumPy and `torchvision` read (`fixtures/make_datasets.py`).

use std::sync::Arc;

use serde_json::Value;
use vitreous_data::dataset::{Dataset, OpenDataset, inspect, open};
use vitreous_data::image::Channels;

use super::common::{bytes, fixture, integer, text};
use super::{labels, names, opened};

fn expected(kind: &str) -> Value {
    let all: Value = serde_json::from_slice(&bytes("datasets.json")).expect("JSON");
    all[kind].clone()
}

fn list<T>(value: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    let list: Vec<T> = value.as_array().unwrap_or_else(|| panic!("{value}")).iter().map(read).collect();
    assert!(!list.is_empty());
    list
}

fn texts(value: &Value) -> Vec<String> {
    list(value, |value| value.as_str().expect("a text").to_string())
}

fn same(dataset: &Arc<dyn Dataset>, expected: &Value, label_key: &str) {
    let expected_labels = list(&expected[label_key], |label| vec![integer(label) as u32]);
    assert_eq!(labels(dataset.as_ref()), expected_labels);
    let expected_pixels = list(&expected["pixels"], |image| list(image, |value| integer(value) as u8));
    for (index, pixels) in expected_pixels.iter().enumerate() {
        let image = dataset.image(index, dataset.channels()).expect("an image");
        assert_eq!(image.pixels(), pixels, "image {index}");
    }
    let inspection = inspect(dataset, 2, None, |_| {});
    let numbers = |key: &str| list(&expected[key], |value| value.as_f64().expect("a number"));
    for (ours, theirs) in [(&inspection.mean, numbers("mean")), (&inspection.deviation, numbers("deviation"))] {
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert!((ours - theirs).abs() < 1e-12, "{ours} {theirs}");
        }
    }
}

#[test]
fn idx_is_read_as_numpy_reads_it() {
    let (splits, expected) = (opened(&fixture("datasets/idx")), expected("idx"));
    assert_eq!(splits.kind, "IDX");
    assert_eq!(splits.classes, texts(&expected["classes"]));
    assert_eq!(splits.train.channels(), Channels::Grey);
    same(&splits.train, &expected["train"], "labels");
    same(&splits.validation, &expected["validation"], "labels");
    let image = splits.train.image(0, Channels::Rgb).expect("an image");
    assert_eq!((image.width(), image.height()), (3, 4));
    assert!(splits.notes.iter().all(|note| note.starts_with("only ")), "{:?}", splits.notes);
    // Any file of the set stands for all.
    assert_eq!(opened(&fixture("datasets/idx/train-labels-idx1-ubyte.gz")).train.len(), splits.train.len());
}

#[test]
fn cifar_10_is_read_as_numpy_reads_it() {
    let expected = expected("cifar10");
    for path in ["datasets/cifar10", "datasets/cifar10/cifar-10-batches-bin"] {
        let splits = opened(&fixture(path));
        assert_eq!(splits.kind, "CIFAR-10 binary");
        assert_eq!(splits.classes, texts(&expected["classes"]));
        // The tenth batch comes after the second.
        same(&splits.train, &expected["train"], "labels");
        same(&splits.validation, &expected["validation"], "labels");
        assert_eq!(
            splits.notes[1..],
            ["not all of CIFAR-10 is there: data_batch_3.bin, data_batch_4.bin, data_batch_5.bin is missing"]
        );
    }
}

#[test]
fn cifar_100_is_read_as_numpy_reads_it() {
    let expected = expected("cifar100");
    for (sort, key, first) in
        [(None, "labels", "fine 0"), (Some("fine"), "labels", "fine 0"), (Some("coarse"), "coarse", "coarse 0")]
    {
        let options = OpenDataset { labels: sort.map(str::to_string), ..OpenDataset::default() };
        let splits = open(&fixture("datasets/cifar-100-binary"), &options).expect("a data set");
        assert_eq!((splits.kind.as_str(), splits.classes[0].as_str()), ("CIFAR-100 binary", first));
        same(&splits.train, &expected["train"], key);
        same(&splits.validation, &expected["validation"], key);
    }
}

#[test]
fn folders_have_torchvisions_classes() {
    let (splits, expected) = (opened(&fixture("datasets/folder")), expected("folder"));
    assert_eq!(splits.kind, "image folder");
    assert_eq!(splits.classes, texts(&expected["classes"]));
    for (part, dataset) in [("train", &splits.train), ("validation", &splits.validation)] {
        let samples =
            list(&expected[part], |sample| (text(sample, "path").to_string(), integer(&sample["label"]) as u32));
        let ours = names(dataset.as_ref(), &fixture("datasets"));
        let mut ours: Vec<(String, u32)> =
            ours.into_iter().zip(labels(dataset.as_ref()).into_iter().flatten()).collect();
        ours.sort();
        assert_eq!(ours, samples);
        assert!((0..dataset.len()).all(|index| dataset.image(index, Channels::Rgb).is_ok()));
    }
}

#[test]
fn shards_of_pythons_tarfile_are_read() {
    let expected = expected("shards");
    let pattern = fixture("datasets/shards").join("set-{000..001}.tar");
    for path in [fixture("datasets/shards"), pattern] {
        let options = OpenDataset { validation_share: 0.0, ..OpenDataset::default() };
        let splits = open(&path, &options).expect("a data set");
        assert_eq!(splits.kind, "tar shards (2 files)");
        assert_eq!(splits.classes, ["class 0", "class 1"]);
        assert!(splits.notes.is_empty() && splits.validation.is_empty(), "{:?}", splits.notes);
        let samples = list(&expected, Value::clone);
        assert_eq!(splits.train.len(), samples.len());
        for (index, sample) in samples.iter().enumerate().rev() {
            let name = splits.train.name(index);
            assert!(name.ends_with(&format!("{}: {}", text(sample, "shard"), text(sample, "name"))), "{name}");
            let class = &splits.classes[splits.train.labels(index)[0] as usize];
            assert_eq!(class, text(sample, "label"));
            let pixels = list(&sample["pixels"], |value| integer(value) as u8);
            assert_eq!(splits.train.image(index, Channels::Rgb).expect("an image").pixels(), pixels);
        }
    }
}

#[test]
fn tables_of_pythons_csv_are_read() {
    let splits = opened(&fixture("datasets/manifest.csv"));
    assert_eq!(splits.kind, "manifest (CSV)");
    assert_eq!(splits.classes, ["a, \"quoted\" class", "plain"]);
    assert_eq!(
        (labels(splits.train.as_ref()), labels(splits.validation.as_ref())),
        (vec![vec![0], vec![1]], vec![vec![1]])
    );
    assert!(splits.train.image(0, Channels::Rgb).is_ok());
}
