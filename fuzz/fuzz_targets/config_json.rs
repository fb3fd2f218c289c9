#![no_main]
//! A config.json of any family and dialect: it gives an error, or a configuration that gives an error or can be built.

use libfuzzer_sys::fuzz_target;
use vitreous_models::checkpoint::json::Object;
use vitreous_models::{Checkpoint, FAMILIES, Format, OpenOptions, Settings};

/// Larger models are only checked: building them is slow, not wrong.
const LARGEST: u64 = 64;

fuzz_target!(|input: &[u8]| {
    let Ok(config) = serde_json::from_slice::<Settings>(input) else { return };
    let options = OpenOptions::default();
    let checkpoint = Checkpoint { config: Some(Object::new(&config)), gguf: None, tensors: None, options: &options };
    for family in FAMILIES {
        let Ok(Some(reading)) = family.read(&checkpoint) else { continue };
        let settings = reading.architecture.settings();
        // What was read is checked again by whoever builds it.
        let Ok(architecture) = family.from_settings(&settings) else { continue };
        let sizes = settings.values().filter_map(|value| value.as_u64());
        if sizes.into_iter().any(|size| size > LARGEST) {
            continue;
        }
        let Ok(parameters) = architecture.parameters() else { continue };
        // Every dialect that can express the model names all of its parameters.
        for format in [Format::Own, Format::HuggingFace, Format::Npz] {
            if let Ok(dialect) = architecture.dialect(format) {
                dialect.entries(&parameters, None).expect("every parameter has a name");
            }
        }
    }
});
