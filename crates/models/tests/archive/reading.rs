//! What the peers wrote is read as they meant it.

use std::borrow::Cow;
use std::fs;

use vitreous_models::archive::{Archive, ElementType};

use super::{assert_holds, assert_says, bytes, counting, fixture, open};

const EVERY_TYPE: [ElementType; 10] = [
    ElementType::F64,
    ElementType::F32,
    ElementType::F16,
    ElementType::Bf16,
    ElementType::I64,
    ElementType::I32,
    ElementType::I16,
    ElementType::I8,
    ElementType::U8,
    ElementType::Bool,
];

/// A bool of a number is whether it is not zero.
fn as_type(element: ElementType, numbers: Vec<f32>) -> Vec<f32> {
    match element {
        ElementType::Bool => numbers.into_iter().map(|number| number.min(1.0)).collect(),
        _ => numbers,
    }
}

#[test]
fn every_element_type_is_read_from_every_format() {
    for file in ["every_type.safetensors", "every_type.pth", "every_type_old.pth"] {
        let archive = open(file);
        assert_eq!(archive.len(), 12, "{file}");
        for element in EVERY_TYPE {
            assert_eq!(archive.tensor(element.name()).unwrap().element, element, "{file}");
            assert_holds(&archive, element.name(), &[2, 3], &as_type(element, counting(6)));
        }
        assert_holds(&archive, "scalar", &[], &[2.5]);
        assert_holds(&archive, "empty", &[0, 3], &[]);
    }
}

#[test]
fn metadata_of_safetensors_is_kept() {
    let archive = open("every_type.safetensors");
    assert_eq!(archive.metadata()["note"], "größer");
    assert_eq!(archive.metadata().len(), 2);
}

#[test]
fn views_of_shared_storages_are_read_in_every_protocol_and_packing() {
    let new = ["views.pth", "views_protocol3.pth", "views_protocol4.pth", "views_protocol5.pth", "views_deflated.pth"];
    for file in new.into_iter().chain(["views_old.pth"]) {
        let archive = open(file);
        assert_holds(&archive, "whole", &[24], &counting(24));
        assert_holds(&archive, "matrix", &[4, 6], &counting(24));
        assert_holds(&archive, "parameter", &[4, 6], &counting(24));
        let transposed: Vec<f32> = (0..24).map(|at| (at % 4 * 6 + at / 4) as f32).collect();
        assert_holds(&archive, "transposed", &[6, 4], &transposed);
        // (2, 3, 4) with its last dimension moved to the front.
        let permuted: Vec<f32> = (0..24).map(|at| (at % 6 / 3 * 12 + at % 3 * 4 + at / 6) as f32).collect();
        assert_holds(&archive, "permuted", &[4, 2, 3], &permuted);
        assert_holds(&archive, "rows", &[2, 6], &counting(24)[6..18]);
        assert_holds(&archive, "column", &[4], &[2.0, 8.0, 14.0, 20.0]);
        assert_holds(&archive, "gaps", &[5], &[1.0, 6.0, 11.0, 16.0, 21.0]);
        assert_holds(&archive, "halves", &[3, 3], &[6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0]);
        assert!(archive.get("expanded").is_none());
        assert_says(archive.tensor("expanded"), &[file, "`expanded`", "repeat", "contiguous()"]);
    }
}

#[test]
fn parts_of_storages_as_the_oldest_streams_have_them_are_read() {
    let archive = open("parts_old.pth");
    assert_holds(&archive, "whole", &[3, 4], &counting(12));
    assert_holds(&archive, "part", &[2, 2], &[5.0, 6.0, 7.0, 8.0]);
}

#[test]
fn tensors_of_training_checkpoints_are_named_by_their_path() {
    for file in ["training.pth", "training_old.pth"] {
        let archive = open(file);
        assert_holds(&archive, "model.head.weight", &[2, 3], &counting(6));
        assert_holds(&archive, "model.norm.num_batches_tracked", &[], &[1.0]);
        assert_holds(&archive, "list.0", &[2], &counting(2));
        assert_holds(&archive, "list.1.inner", &[3], &counting(3));
        assert_holds(&archive, "tagged", &[3], &counting(3));
        assert_eq!(archive.tensor("optimizer.state.2.exp_avg").unwrap().shape, &[2, 3]);
        let under: Vec<&str> = archive.under("model.head.").map(|(rest, _)| rest).collect();
        assert_eq!(under, ["weight", "bias"]);
    }
}

#[test]
fn what_is_no_tensor_is_an_error_only_for_who_asks_for_it() {
    for file in ["training.pth", "training_old.pth"] {
        let archive = open(file);
        assert!(archive.get("args").is_none());
        assert_says(archive.tensor("args"), &[file, "`args`", "argparse.Namespace", "ever run", "state_dict"]);
        assert_says(archive.tensor("array"), &["numpy"]);
        assert_says(archive.tensor("complex"), &["ComplexFloatStorage", "f32"]);
        assert_says(archive.tensor("nothing"), &["`nothing`", "model.norm.weight"]);
    }
    assert_says(open("module.pth").tensor("tensor"), &["Holder"]);
    assert_holds(&open("single.pth"), "tensor", &[3], &counting(3));
}

/// OpenAI's files of CLIP, for example.
#[test]
fn tensors_of_torchscript_have_the_names_of_its_state_dict() {
    let archive = open("script.pt");
    assert_holds(&archive, "weight", &[4], &counting(4));
    assert_holds(&archive, "layers.0.weight", &[2, 3], &counting(6));
    assert_holds(&archive, "layers.0.bias", &[2], &counting(2));
    assert_holds(&archive, "layers.1.running_var", &[2], &[1.0, 1.0]);
    assert_holds(&archive, "context_length", &[], &[77.0]);
    assert_eq!(archive.tensor("layers.0.weight").unwrap().element, ElementType::F16);
    // Those of `state_dict`, and nothing else: weight, two of the linear layer, five of the norm, context_length.
    assert_eq!(archive.len(), 9);
}

#[test]
fn arrays_of_every_order_type_and_packing_are_read() {
    for file in ["arrays.npz", "compressed.npz"] {
        let archive = open(file);
        assert_eq!(archive.names().next(), Some("Transformer/encoderblock_0/kernel"));
        for name in
            ["Transformer/encoderblock_0/kernel", "big", "big_fortran", "bf16", "f64", "f16", "i64", "i32", "i16"]
        {
            assert_holds(&archive, name, &[2, 3], &counting(6));
        }
        for name in ["i8", "u8"] {
            assert_holds(&archive, name, &[2, 3], &counting(6));
        }
        assert_holds(&archive, "fortran", &[2, 3, 4], &counting(24));
        assert_holds(&archive, "bool", &[2, 3], &as_type(ElementType::Bool, counting(6)));
        assert_holds(&archive, "scalar", &[], &[2.5]);
        assert_holds(&archive, "empty", &[0, 3], &[]);
        assert_says(archive.tensor("text"), &[file, "`text`", "<U7"]);
    }
    for name in ["v1", "v2", "v3"] {
        assert_holds(&open("versions.npz"), name, &[2, 3], &counting(6));
    }
}

#[test]
fn elements_can_be_taken_without_conversion() {
    let archive = open("arrays.npz");
    let expected: Vec<u8> = (0..6).flat_map(|number| f64::from(number).to_le_bytes()).collect();
    assert_eq!(*archive.tensor("big_fortran").unwrap().to_bytes().unwrap(), expected);
    assert!(matches!(archive.tensor("f64").unwrap().to_bytes().unwrap(), Cow::Borrowed(_)));
}

#[test]
fn aligned_f32_is_borrowed_from_the_file() {
    for (file, name) in [("every_type.safetensors", "f32"), ("views.pth", "matrix")] {
        let archive = open(file);
        assert!(matches!(archive.tensor(name).unwrap().to_f32().unwrap(), Cow::Borrowed(_)), "{file}");
    }
}

#[test]
fn threads_can_share_an_archive() {
    let archive = open("views.pth");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_holds(&archive, "matrix", &[4, 6], &counting(24)));
        }
    });
}

#[test]
fn filling_a_slice_of_another_length_is_refused() {
    let archive = open("every_type.safetensors");
    assert_says(archive.tensor("f32").unwrap().read_into(&mut [0.0; 5]), &["`f32`", "6 elements", "5"]);
}

#[test]
fn an_index_opens_its_shards() {
    let archive = open("sharded.safetensors.index.json");
    assert_eq!(archive.names().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_holds(&archive, "b", &[3], &counting(3));
    assert_holds(&archive, "c", &[4], &counting(4));
}

#[test]
fn an_index_that_promises_too_much_or_leads_elsewhere_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors.index.json");
    fs::copy(fixture("one.safetensors"), directory.path().join("one.safetensors")).unwrap();
    let open_index = |map: &str| {
        fs::write(&path, format!("{{\"weight_map\": {map}}}")).unwrap();
        Archive::open(&path)
    };
    assert_eq!(open_index(r#"{"a": "one.safetensors"}"#).unwrap().len(), 1);
    assert_says(open_index(r#"{"c": "one.safetensors"}"#), &["index.json", "`c`", "`one.safetensors`"]);
    assert_says(open_index(r#"{"c": "three.safetensors"}"#), &["`c`", "three.safetensors", "not there"]);
    assert_says(open_index(r#"{"a": "one.safetensors", "a": "one.safetensors"}"#), &["`a`", "twice"]);
    for elsewhere in ["../one.safetensors", "/etc/passwd", "a/b", "..", "", "C:x", "a\\\\b"] {
        assert_says(open_index(&format!(r#"{{"a": "{elsewhere}"}}"#)), &["`a`", "plain file name"]);
    }
    assert_says(open_index("3"), &["not an index"]);
    // An index that names itself would never end.
    assert_says(open_index(r#"{"a": "model.safetensors.index.json"}"#), &["JSON"]);
}

#[test]
fn the_content_tells_the_kind_and_not_the_name() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["every_type.safetensors", "views.pth", "views_old.pth", "arrays.npz"] {
        let path = directory.path().join("weights");
        fs::write(&path, bytes(file)).unwrap();
        assert_eq!(Archive::open(&path).unwrap().len(), open(file).len());
    }
}

#[test]
fn what_people_download_by_mistake_is_named() {
    let from = |content: &[u8]| Archive::from_bytes(content.to_vec());
    assert_says(from(b"version https://git-lfs.github.com/spec/v1\noid"), &["git lfs pull"]);
    assert_says(from(b"\n<!DOCTYPE html><html>"), &["web page"]);
    assert_says(from(b"\x89HDF\r\n\x1a\n"), &["HDF5"]);
    assert_says(from(b"{\"weight_map\": {}}"), &["JSON"]);
    assert_says(from(b"hello, these are not weights"), &["safetensors", ".npz"]);
    assert_says(from(b""), &["0 bytes"]);
    let directory = tempfile::tempdir().unwrap();
    assert_says(Archive::open(directory.path()), &["directory"]);
    assert_says(Archive::open(&directory.path().join("nothing")), &["nothing", "cannot open"]);
    let empty = directory.path().join("empty");
    fs::write(&empty, b"").unwrap();
    assert_says(Archive::open(&empty), &["empty"]);
}
