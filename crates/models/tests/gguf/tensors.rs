//! Values of every type are the package's, and what we quantise is what ggml quantises, or better.

use vitreous_engine::{BlockFormat, WeightView};
use vitreous_models::archive::gguf::{MetaValue, write_gguf};
use vitreous_models::archive::{Archive, ElementType, TensorToWrite, write_npz, write_safetensors};

use super::{archive, fixture};

#[test]
fn values_of_all_types_are_the_peers() {
    let (file, expected) = (archive("types.gguf"), archive("types.safetensors"));
    let mut seen = 0;
    for theirs in expected.tensors() {
        let ours = file.tensor(theirs.name()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ours.shape, theirs.shape);
        assert_eq!(ours.to_f32().expect("read"), theirs.to_f32().expect("read"), "{}", theirs.name());
        let mut filled = vec![f32::NAN; ours.elements()];
        ours.read_into(&mut filled).expect("filled");
        assert_eq!(filled, *theirs.to_f32().expect("read"), "{}", theirs.name());
        if let ElementType::Blocks(format) = ours.element {
            let weight = ours.to_weight().expect("lent");
            let WeightView::Blocks(lent, bytes) = &weight else { panic!("{}: not blocks", theirs.name()) };
            assert_eq!((*lent, format.name()), (format, theirs.name()));
            assert!(matches!(bytes, std::borrow::Cow::Borrowed(_)));
            seen += 1;
        }
    }
    assert_eq!(seen, BlockFormat::ALL.len());
    assert_eq!(file.tensor("flat").expect("there").shape, [5]);
}

#[test]
fn metadata_has_its_types() {
    let file = archive("types.gguf");
    let metadata = file.gguf().expect("metadata");
    let text = |text: &str| text.to_string();
    for (key, value) in [
        ("general.architecture", MetaValue::Text(text("llama"))),
        ("a.u32", MetaValue::U64(7)),
        ("a.i32", MetaValue::I64(-7)),
        ("a.f32", MetaValue::F64(0.5)),
        ("a.f64", MetaValue::F64(0.1)),
        ("a.bool", MetaValue::Bool(true)),
        ("a.u64", MetaValue::U64(1 << 40)),
        ("a.text", MetaValue::Text(text("tüte"))),
        ("a.texts", MetaValue::Texts(vec![text("a"), text(""), text("日本")])),
        ("a.integers", MetaValue::Integers(vec![1, -2, 3])),
        ("a.floats", MetaValue::Floats(vec![0.5, -1.0])),
        ("a.flags", MetaValue::Flags(vec![true, false])),
        ("a.lists", MetaValue::Lists(vec![MetaValue::Integers(vec![1, 2]), MetaValue::Integers(vec![3])])),
    ] {
        assert_eq!(metadata.get(key), Some(&value), "{key}");
    }
}

/// Blocks of 32 values are bit for bit ggml's; super-blocks have no larger error than ggml's.
#[test]
fn quantised_blocks_are_ggmls_or_better() {
    let file = archive("types.gguf");
    let values = file.tensor("values").expect("there").to_f32().expect("read");
    let error = |read: &[f32]| values.iter().zip(read).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    for format in BlockFormat::ALL {
        let theirs = file.tensor(format.name()).expect("there");
        let bytes = theirs.to_bytes().expect("read");
        let mut ours = vec![0xAA; bytes.len()];
        format.quantise(&values, &mut ours);
        if format.values() == 32 {
            assert!(ours == *bytes, "{}", format.name());
            continue;
        }
        let mut read = vec![0.0; values.len()];
        format.dequantise(&ours, &mut read);
        let (ours, theirs) = (error(&read), error(&theirs.to_f32().expect("read")));
        assert!(ours <= theirs, "{}: {ours} against {theirs}", format.name());
    }
}

#[test]
fn what_is_written_is_read_again() {
    let file = archive("types.gguf");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("again.gguf");
    let tensors = file.tensors().map(|view| TensorToWrite::copy(view.name(), view));
    write_gguf(&path, file.gguf().expect("metadata"), tensors).unwrap_or_else(|error| panic!("{error}"));
    let again = Archive::open(&path).unwrap_or_else(|error| panic!("{error}"));
    for (key, value) in file.gguf().expect("metadata").iter() {
        let written = again.gguf().expect("metadata").get(key);
        // Floats are written as f32, as llama.cpp expects them.
        let expected =
            if let MetaValue::F64(number) = value { &MetaValue::F64((*number as f32).into()) } else { value };
        assert_eq!(written, Some(expected), "{key}");
    }
    assert!(again.names().eq(file.names()));
    for (ours, theirs) in again.tensors().zip(file.tensors()) {
        assert_eq!((ours.element, ours.shape), (theirs.element, theirs.shape));
        assert_eq!(ours.to_bytes().expect("read"), theirs.to_bytes().expect("read"), "{}", ours.name());
    }
}

#[test]
fn other_formats_refuse_blocks() {
    let file = archive("types.gguf");
    let directory = tempfile::tempdir().expect("a directory");
    let copy = || [TensorToWrite::copy("w", file.tensor("Q4_K").expect("there"))];
    let path = directory.path().join("file");
    for error in [write_safetensors(&path, copy(), &Default::default()), write_npz(&path, copy())] {
        let said = error.expect_err("refused").to_string();
        assert!(said.contains("Q4_K") && said.contains("write f32"), "{said}");
    }
    assert!(!path.exists() && fixture("types.gguf").exists());
}
