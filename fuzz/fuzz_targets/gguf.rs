#![no_main]
//! A GGUF file as an archive, and as a model whose weights are all read.

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::{read_everything, with_files};
use vitreous_models::{Model, OpenOptions};

/// Larger parameters are not read: filling them only costs time.
const LARGEST_READ: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    // Most changes of the first bytes only lead to another format.
    let mut file = b"GGUF".to_vec();
    file.extend(input.get(4..).unwrap_or_default());
    read_everything(file.clone());
    with_files(&[("model.gguf", &file)], |folder| {
        let Ok(model) = Model::open(&folder.join("model.gguf"), &OpenOptions::default()) else { return };
        for parameter in model.parameters() {
            let elements = parameter.shape.elements();
            if elements > LARGEST_READ {
                continue;
            }
            if let Ok(weight) = model.weight(&parameter.name) {
                assert_eq!(weight.len(), elements, "{}", parameter.name);
                assert_eq!(weight.into_f32().len(), elements, "{}", parameter.name);
            }
        }
    });
});
