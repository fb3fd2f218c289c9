//! Archives through the public door. The fixtures were made by PyTorch, NumPy and safetensors (`make_archives.py`); what they
//! hold are the numbers 0, 1, 2 and so on, so that expectations are never our own output.

mod hostile;
mod reading;
mod writing;

use std::path::PathBuf;

use vitreous_models::archive::{Archive, Result, TensorView};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archive").join(name)
}

fn open(name: &str) -> Archive {
    Archive::open(&fixture(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

/// Every fixture that is one file.
const SINGLE_FILES: [&str; 18] = [
    "every_type.safetensors",
    "one.safetensors",
    "two.safetensors",
    "every_type.pth",
    "every_type_old.pth",
    "views.pth",
    "views_old.pth",
    "views_protocol3.pth",
    "views_protocol4.pth",
    "views_protocol5.pth",
    "views_deflated.pth",
    "training.pth",
    "training_old.pth",
    "parts_old.pth",
    "command.pth",
    "arrays.npz",
    "compressed.npz",
    "versions.npz",
];

/// A tensor's name, shape and numbers.
type Read = (String, Vec<usize>, Vec<f32>);

/// Everything an archive holds, or the first error.
fn read_all(archive: &Archive) -> Result<Vec<Read>> {
    let read = |view: TensorView| Ok((view.name().to_string(), view.shape.to_vec(), view.to_f32()?.into_owned()));
    archive.tensors().map(read).collect()
}

fn counting(count: usize) -> Vec<f32> {
    (0..count).map(|number| number as f32).collect()
}

#[track_caller]
fn assert_holds(archive: &Archive, name: &str, shape: &[usize], numbers: &[f32]) {
    let view = archive.tensor(name).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(view.shape, shape, "{name}");
    assert_eq!(*view.to_f32().unwrap(), *numbers, "{name}");
    let mut filled = vec![f32::NAN; numbers.len()];
    view.read_into(&mut filled).unwrap();
    assert_eq!(filled, numbers, "{name}");
}

#[track_caller]
fn assert_says<T>(result: Result<T>, parts: &[&str]) {
    let message = result.map(|_| ()).unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}
