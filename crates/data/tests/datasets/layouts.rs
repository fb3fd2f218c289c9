//! The layouts that a path may have.

use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use vitreous_data::dataset::{Dataset, OpenDataset, Split, ValidationFrom, ValidationRule, count_labels, open};
use vitreous_data::image::Channels;

use super::common::{bytes, fixture};
use super::{idx, labels, names, opened, png, refused, refused_with, says, tar_of, write};

#[test]
fn one_folder_is_split_by_names_and_stays_split() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    for number in 0..200 {
        write(&root.join(format!("{}/{number}.png", if number % 2 == 0 { "even" } else { "odd" })), png(number as u8));
    }
    let by_name = OpenDataset { validation_rule: ValidationRule::ByName, ..OpenDataset::default() };
    let before = open(root, &by_name).expect("a data set");
    assert_eq!(before.classes, ["even", "odd"]);
    assert_eq!(before.train.len() + before.validation.len(), 200);
    assert!((8..=35).contains(&before.validation.len()), "{}", before.validation.len());
    says(&before.notes.join("; "), &["there is no validation part", "a share of 0.1"]);
    // Whatever comes, what was drawn stays drawn.
    let drawn = names(before.validation.as_ref(), root);
    for number in 0..50 {
        write(&root.join(format!("even/more-{number}.png")), png(0));
        write(&root.join(format!("another/{number}.png")), png(0));
    }
    let after = names(open(root, &by_name).expect("a data set").validation.as_ref(), root);
    let kept: Vec<&String> = after.iter().filter(|name| drawn.contains(name)).collect();
    assert_eq!(kept.len(), drawn.len());
    let none = OpenDataset { validation_share: 0.0, ..OpenDataset::default() };
    assert!(open(root, &none).expect("a data set").validation.is_empty());
    for share in [1.0, -0.1, f64::NAN] {
        let wrong = OpenDataset { validation_share: share, ..OpenDataset::default() };
        says(&refused_with(root, &wrong), &["must be at least 0 and under 1"]);
    }
}

/// A folder of two classes, the second with a tenth of the images of the first.
fn unequal_classes(root: &Path) {
    for number in 0..330 {
        write(&root.join(format!("{}/{number}.png", if number < 300 { "many" } else { "few" })), png(number as u8));
    }
}

#[test]
fn a_drawn_validation_split_is_stratified_by_class() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    unequal_classes(root);
    let counts = |part: &dyn Dataset| count_labels(part, 2);
    let splits = opened(root);
    assert_eq!((counts(splits.validation.as_ref()), counts(splits.train.as_ref())), (vec![3, 30], vec![27, 270]));
    assert_eq!(splits.validation_from, ValidationFrom::TrainingPart);
    says(
        &splits.notes.join("; "),
        &["33 of 330 training images were drawn for it, stratified by class", "only 33 validation images"],
    );
    assert_eq!(names(opened(root).validation.as_ref(), root), names(splits.validation.as_ref(), root));
    assert!(splits.get(Split::Test).is_none());
    // The same for samples that have numbers.
    let labels: Vec<u8> = (0..330).map(|number| u8::from(number < 300)).collect();
    let idx_root = root.join("idx");
    write(&idx_root.join("train-images-idx3-ubyte"), idx(&[330, 1, 1], &[0; 330]));
    write(&idx_root.join("train-labels-idx1-ubyte"), idx(&[330], &labels));
    let splits = opened(&idx_root);
    assert_eq!((counts(splits.validation.as_ref()), counts(splits.train.as_ref())), (vec![3, 30], vec![27, 270]));
}

#[test]
fn runs_of_version_0_1_find_their_split_again() {
    let folder = tempfile::tempdir().expect("a folder");
    unequal_classes(folder.path());
    let by_name = OpenDataset { validation_rule: ValidationRule::ByName, ..OpenDataset::default() };
    let splits = open(folder.path(), &by_name).expect("a data set");
    let mut drawn = names(splits.validation.as_ref(), folder.path());
    drawn.sort();
    assert_eq!(drawn, DRAWN_BY_0_1);
}

/// What the rule of version 0.1 draws, computed apart from this code.
const DRAWN_BY_0_1: [&str; 39] = [
    "few/308.png",
    "few/319.png",
    "few/320.png",
    "few/327.png",
    "many/111.png",
    "many/143.png",
    "many/146.png",
    "many/150.png",
    "many/154.png",
    "many/158.png",
    "many/16.png",
    "many/161.png",
    "many/163.png",
    "many/17.png",
    "many/177.png",
    "many/179.png",
    "many/193.png",
    "many/224.png",
    "many/226.png",
    "many/233.png",
    "many/236.png",
    "many/252.png",
    "many/27.png",
    "many/273.png",
    "many/274.png",
    "many/28.png",
    "many/297.png",
    "many/299.png",
    "many/30.png",
    "many/33.png",
    "many/37.png",
    "many/40.png",
    "many/5.png",
    "many/53.png",
    "many/54.png",
    "many/56.png",
    "many/61.png",
    "many/78.png",
    "many/86.png",
];

#[test]
fn a_test_part_is_a_split_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in ["train/a/0.png", "train/b/0.png", "val/a/1.png", "test/a/2.png", "test/b/3.png"] {
        write(&folder.path().join(path), png(1));
    }
    let splits = opened(folder.path());
    let names_of = |split: Split| names(splits.get(split).expect("a part").as_ref(), folder.path());
    assert_eq!(names_of(Split::Validation), ["val/a/1.png"]);
    assert_eq!(names_of(Split::Test), ["test/a/2.png", "test/b/3.png"]);
    // Without a validation part the test part takes its place, and says so.
    std::fs::remove_dir_all(folder.path().join("val")).expect("removed");
    let splits = opened(folder.path());
    assert_eq!((splits.validation.len(), splits.test.is_none()), (2, true));
    assert_eq!(splits.validation_from, ValidationFrom::TestPart);
    assert_eq!(splits.get(Split::Test).map(|part| part.len()), Some(2));
    says(&splits.notes.join("; "), &["the test part chooses the best checkpoint"]);
}

#[test]
fn validation_is_called_by_many_names_and_goes_before_test() {
    for name in ["val", "valid", "validation", "test", "Val"] {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["train/a/0.png", "train/b/0.png", &format!("{name}/b/1.png")] {
            write(&folder.path().join(path), png(1));
        }
        let splits = opened(folder.path());
        assert_eq!((splits.train.len(), labels(splits.validation.as_ref())), (2, vec![vec![1]]), "{name}");
        if name == "val" {
            write(&folder.path().join("test/a/0.png"), png(1));
            let splits = opened(folder.path());
            assert_eq!(names(splits.validation.as_ref(), folder.path()), ["val/b/1.png"]);
            let test = splits.test.as_ref().expect("a test part");
            assert_eq!(names(test.as_ref(), folder.path()), ["test/a/0.png"]);
            assert_eq!(splits.validation_from, ValidationFrom::ValidationPart);
        }
    }
}

#[test]
fn a_folder_around_the_folder_does_not_matter() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in ["flowers/flowers/rose/0.png", "flowers/flowers/tulip/0.png"] {
        write(&folder.path().join(path), png(1));
    }
    assert_eq!(opened(folder.path()).classes, ["rose", "tulip"]);
}

#[test]
fn several_labels_come_from_tables_and_from_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let options = OpenDataset { validation_share: 0.0, ..OpenDataset::default() };
    write(&root.join("x.csv"), "path,labels\na.png,dog|cat\nb.png,\nc.png, cat ; cat\n");
    write(&root.join("x.tsv"), "file\tlabel\na.png\tdog;cat\nb.png\t\nc.png\tcat\n");
    write(
        &root.join("x.jsonl"),
        "{\"image\": \"a.png\", \"label\": [\"dog\", \"cat\"]}\n\n{\"image\": \"b.png\", \"label\": []}\n{\"image\": \"c.png\", \"label\": [\"cat\"]}",
    );
    for name in ["x.csv", "x.tsv", "x.jsonl"] {
        let splits = open(&root.join(name), &options).unwrap_or_else(|error| panic!("{error}"));
        assert!(splits.several_labels);
        assert_eq!(splits.classes, ["cat", "dog"]);
        let mut all = labels(splits.train.as_ref());
        all[0].sort_unstable();
        assert_eq!(all, [vec![0, 1], vec![], vec![0]], "{name}");
    }
    // Where every row has one label, a row without is a mistake.
    write(&root.join("one.csv"), "path,label\na.png,dog\nb.png,\n");
    says(&refused(&root.join("one.csv")), &["one.csv, row 2", "there is no label"]);
}

#[test]
fn labels_are_numbers_or_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let table = root.join("set/data.csv");
    // What a spreadsheet writes: a mark at the beginning, semicolons, and the ends of lines of DOS.
    write(&table, "\u{feff}Path;Label;split\r\na.png;2;train\r\nb.png;0;dev\r\n");
    let splits = opened(&root.join("set"));
    assert_eq!(splits.classes, ["0", "1", "2"]);
    assert_eq!((labels(splits.train.as_ref()), labels(splits.validation.as_ref())), (vec![vec![2]], vec![vec![0]]));
    says(&splits.notes.join("; "), &["2 classes have no training images: 0, 1"]);
    write(&root.join("set/classes.txt"), "ant\nbee\ncat\n");
    assert_eq!(opened(&table).classes, ["ant", "bee", "cat"]);
    write(&root.join("set/classes.txt"), "ant\nbee\n");
    says(&refused(&table), &["the label `2` is not one of the 2 classes"]);
    write(&table, "path,label,breed\na.png,cat,siam\n");
    std::fs::remove_file(root.join("set/classes.txt")).expect("removed");
    let breed = OpenDataset { labels: Some("breed".to_string()), validation_share: 0.0, ..OpenDataset::default() };
    assert_eq!(open(&table, &breed).expect("a data set").classes, ["siam"]);
}

#[test]
fn manifests_of_parts_lie_in_one_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    write(&root.join("images/a.png"), png(7));
    write(&root.join("train.jsonl"), "{\"file_name\": \"images/a.png\", \"label\": 1}\n");
    write(&root.join("test.jsonl"), "{\"file_name\": \"images/a.png\", \"label\": 0}\n");
    let splits = opened(root);
    assert_eq!((splits.train.len(), splits.validation.len()), (1, 1));
    assert!(splits.train.image(0, Channels::Rgb).is_ok());
    says(&splits.notes.join("; "), &["1 image is in both the training and the validation part"]);
    // A table without the columns is none: the folders count.
    std::fs::remove_file(root.join("train.jsonl")).expect("removed");
    std::fs::remove_file(root.join("test.jsonl")).expect("removed");
    write(&root.join("labels.csv"), "one,two\n1,2\n");
    assert_eq!(opened(root).classes, ["images"]);
}

#[test]
fn shards_are_of_parts_by_their_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let shard =
        |label: &str| tar_of(&[("0.png", png(9)), ("0.cls", label.into()), ("1.png", png(8)), ("1.cls", "b".into())]);
    for (train, validation) in [("set-train-0.tar", "set-val-0.tar"), ("train/0.tar", "validation/0.tar")] {
        let root = root.join(train.replace('/', "-"));
        write(&root.join(train), shard("a"));
        write(&root.join(validation), shard("c"));
        let splits = opened(&root);
        assert_eq!(splits.classes, ["a", "b", "c"]);
        assert_eq!(labels(splits.train.as_ref()), [[0], [1]]);
        assert_eq!(labels(splits.validation.as_ref()), [[2], [1]]);
    }
}

#[test]
fn cifar_is_read_as_it_is_downloaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("cifar-10-binary.tar.gz");
    let name = |file: &str| format!("datasets/cifar10/cifar-10-batches-bin/{file}");
    let files = ["data_batch_1.bin", "test_batch.bin", "batches.meta.txt"];
    let inner = files.map(|file| format!("cifar-10-batches-bin/{file}"));
    let content: Vec<(&str, Vec<u8>)> =
        inner.iter().zip(files).map(|(inner, file)| (inner.as_str(), bytes(&name(file)))).collect();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut packed, &tar_of(&content)).expect("packed");
    let packed = packed.finish().expect("packed");
    write(&archive, &packed);
    let (splits, unpacked) = (opened(&archive), opened(&fixture("datasets/cifar10")));
    assert_eq!((splits.train.len(), splits.validation.len()), (2, 1));
    let pixels =
        |splits: &vitreous_data::dataset::Splits| splits.train.image(1, Channels::Rgb).expect("an image").into_pixels();
    assert_eq!(pixels(&splits), pixels(&unpacked));
    write(&archive, &packed[..packed.len() / 2]);
    says(&refused(&archive), &["cifar-10-binary.tar.gz", "not a complete .tar.gz"]);
}

#[test]
fn fashion_is_told_from_digits_by_its_labels() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let set = |begin: [u8; 10]| {
        let labels: Vec<u8> = begin.into_iter().chain((10..10_000).map(|index| (index % 10) as u8)).collect();
        write(&root.join("t10k-images.idx3-ubyte"), idx(&[10_000, 1, 1], &vec![0; 10_000]));
        write(&root.join("t10k-labels.idx1-ubyte"), idx(&[10_000], &labels));
        opened(root)
    };
    let fashion = set([9, 2, 1, 1, 6, 1, 4, 6, 5, 7]);
    assert_eq!((fashion.kind.as_str(), fashion.classes[9].as_str()), ("Fashion-MNIST (IDX)", "Ankle boot"));
    assert!(fashion.train.is_empty());
    let digits = set([7, 2, 1, 0, 4, 1, 4, 9, 5, 9]);
    assert_eq!((digits.kind.as_str(), digits.classes[9].as_str()), ("MNIST (IDX)", "9"));
    write(&root.join("classes.txt"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
    assert_eq!(set([0; 10]).classes[9], "j");
}

#[test]
fn a_training_part_alone_is_split() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("train-images-idx3-ubyte"), idx(&[100, 1, 2], &(0..200).collect::<Vec<u8>>()));
    write(&folder.path().join("train-labels-idx1-ubyte"), idx(&[100], &[1; 100]));
    let splits = opened(folder.path());
    assert_eq!(splits.train.len() + splits.validation.len(), 100);
    assert!(!splits.validation.is_empty());
    let first = splits.validation.image(0, Channels::Grey).expect("an image");
    let number: usize = splits.validation.name(0).rsplit('#').next().expect("a number").parse().expect("a number");
    assert_eq!(first.pixels(), [2 * number as u8, 2 * number as u8 + 1]);
}

#[test]
fn what_is_no_data_set_is_described() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    says(&refused(root), &["no data set was recognised", "the folder is empty", "train-images-idx3-ubyte"]);
    says(&refused(&root.join("nothing")), &["nothing", "cannot be read"]);
    says(&refused(Path::new("nothing-{0..2}.tar")), &["nothing-0.tar", "cannot be read"]);
    write(&root.join("a.png"), png(1));
    says(&refused(root), &["found a.png", "not in class folders"]);
    says(&refused(&root.join("a.png")), &["it is one image"]);
    write(&root.join("a.zip"), "PK");
    says(&refused(&root.join("a.zip")), &["unpack it first"]);
    write(&root.join("batches/data_batch_1"), "pickle");
    says(&refused(&root.join("batches")), &["CIFAR's Python version"]);
    write(&root.join("t/train-images-idx3-ubyte"), idx(&[1, 1, 1], &[1]));
    says(
        &refused(&root.join("t")),
        &["train-images-idx3-ubyte is there, but train-labels-idx1-ubyte (or .gz) is missing"],
    );
    let coarse = OpenDataset { labels: Some("coarse".to_string()), ..OpenDataset::default() };
    says(&refused_with(&fixture("datasets/idx"), &coarse), &["one kind of labels", "`coarse`"]);
    let other = OpenDataset { labels: Some("other".to_string()), ..OpenDataset::default() };
    says(&refused_with(&fixture("datasets/cifar-100-binary"), &other), &["`fine` and `coarse`"]);
}
