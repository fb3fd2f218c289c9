//! Batches of images and memory.
#![cfg(target_os = "linux")] // where the system tells what is available

use std::path::Path;

use vitreous_engine::{Device, Precision};
use vitreous_models::OpenOptions;
use vitreous_runtime::{ImageModel, OutputName, Runner};

#[test]
fn a_batch_beyond_memory_is_refused_also_by_a_model_that_is_ready() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vitreous/tests/fixtures/tiny_vit");
    let model = ImageModel::open(&path, &OpenOptions::default()).expect("a model");
    let device = Device::Cpu { threads: 1 };
    // Hundreds of gigabytes, of references to one image.
    let count = 1 << 24;
    let mut runner = Runner::new(&model, OutputName::Logits, Precision::F32, &device, Some(count)).expect("a model");
    let image = vec![0.5; runner.input_floats()];
    let one = runner.run(&[&image]).expect("an answer").to_vec();
    let refused = runner.run(&vec![&image; count]).expect_err("too much").to_string();
    assert!(refused.contains("running with batch"), "{refused}");
    assert_eq!(runner.run(&[&image]).expect("an answer"), one);
}
