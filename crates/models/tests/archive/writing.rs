//! What is written is what was given, and what was there before is safe.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use vitreous_models::archive::{
    Archive, ArchiveError, ElementType, Result, TensorToWrite, write_npz, write_safetensors,
};

use super::{assert_says, open};

type Writer = fn(&Path, Vec<TensorToWrite>) -> Result<()>;

const WRITERS: [Writer; 2] = [
    |path, tensors| write_safetensors(path, tensors, &BTreeMap::from([("format".to_string(), "pt".to_string())])),
    |path, tensors| write_npz(path, tensors),
];

#[test]
fn copies_are_exact() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy");
    for original in ["every_type.safetensors", "views.pth", "compressed.npz", "training_old.pth"].map(open) {
        for write in WRITERS {
            write(&path, original.tensors().map(|view| TensorToWrite::copy(view.name(), view)).collect()).unwrap();
            let copy = Archive::open(&path).unwrap();
            assert_eq!(copy.len(), original.len());
            for view in original.tensors() {
                let copied = copy.tensor(view.name()).unwrap();
                assert_eq!((copied.element, copied.shape), (view.element, view.shape));
                assert_eq!(copied.to_bytes().unwrap(), view.to_bytes().unwrap(), "{}", view.name());
            }
        }
    }
}

#[test]
fn every_bit_of_f32_survives_and_is_borrowed_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers");
    let numbers = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 2.0, f32::MAX];
    for write in WRITERS {
        // Names of every length modulo the alignment of an f32.
        let tensors = (1..6).map(|length| TensorToWrite::f32("n".repeat(length), &[2, 3], &numbers));
        write(&path, tensors.collect()).unwrap();
        let archive = Archive::open(&path).unwrap();
        for view in archive.tensors() {
            let read = view.to_f32().unwrap();
            assert!(matches!(read, std::borrow::Cow::Borrowed(_)));
            assert_eq!(read.iter().map(|n| n.to_bits()).collect::<Vec<_>>(), numbers.map(f32::to_bits));
        }
    }
}

#[test]
fn narrow_elements_do_not_push_wide_ones_out_of_alignment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mixed");
    for write in WRITERS {
        let byte = TensorToWrite::new("byte", &[1], ElementType::U8, || Ok(vec![1].into()));
        write(&path, vec![byte, TensorToWrite::f32("wide", &[2], &[1.0, 2.0])]).unwrap();
        let archive = Archive::open(&path).unwrap();
        assert!(matches!(archive.tensor("wide").unwrap().to_f32().unwrap(), std::borrow::Cow::Borrowed([1.0, 2.0])));
    }
}

#[test]
fn metadata_is_written_and_order_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weights");
    let metadata = BTreeMap::from([("classes".to_string(), "cat\n\"dog\"".to_string())]);
    let names = ["z", "a", "Ä \"quoted\""];
    write_safetensors(&path, names.map(|name| TensorToWrite::f32(name, &[1], &[1.0])), &metadata).unwrap();
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.names().collect::<Vec<_>>(), names);
    assert_eq!(*archive.metadata(), metadata);
}

#[test]
fn the_peers_understand_the_header() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weights");
    WRITERS[0](&path, vec![TensorToWrite::f32("a", &[2], &[1.0, 2.0])]).unwrap();
    let written = fs::read(&path).unwrap();
    let peer = safetensors::SafeTensors::deserialize(&written).unwrap();
    assert_eq!(peer.tensor("a").unwrap().data(), [1.0f32, 2.0].map(f32::to_le_bytes).concat());
}

#[test]
fn a_failed_write_leaves_what_was_there_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weights");
    fs::write(&path, "precious").unwrap();
    let fails = || ArchiveError::NotFound { file: "x".into(), tensor: "y".into(), count: 0, names: vec![] };
    for write in WRITERS {
        let good = || TensorToWrite::f32("good", &[2], &[1.0, 2.0]);
        let failing = TensorToWrite::new("bad", &[1], ElementType::F32, move || Err(fails()));
        assert_says(write(&path, vec![good(), failing]), &["`y`"]);
        let short = TensorToWrite::f32("short", &[3], &[1.0]);
        assert_says(write(&path, vec![good(), short]), &["weights", "`short`", "12 bytes", "4 were"]);
        assert_says(write(&path, vec![good(), good()]), &["`good`", "two tensors"]);
        let huge = TensorToWrite::f32("huge", &[usize::MAX, 2], &[]);
        assert_says(write(&path, vec![huge]), &["`huge`"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
    let reserved = TensorToWrite::f32("__metadata__", &[1], &[1.0]);
    assert_says(WRITERS[0](&path, vec![reserved]), &["`__metadata__`", "rename"]);
    assert_says(WRITERS[0](&directory.path().join("no/where"), vec![]), &["where", "cannot create"]);
}

#[test]
fn tensors_are_asked_for_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weights");
    for write in WRITERS {
        // Each looks at how far the file beside has grown: all before it must have been taken by then.
        let taken = std::cell::Cell::new(0);
        let tensors = (0..4).map(|index| {
            let taken = &taken;
            TensorToWrite::new(format!("t{index}"), &[4], ElementType::U8, move || {
                assert_eq!(taken.replace(index + 1), index);
                Ok(vec![index as u8; 4].into())
            })
        });
        write(&path, tensors.collect()).unwrap();
        assert_eq!(*Archive::open(&path).unwrap().tensor("t3").unwrap().to_bytes().unwrap(), [3; 4]);
    }
}
