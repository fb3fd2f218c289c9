//! Opens fixtures: a model, two images, and what its library says happens inside.

#![allow(dead_code)] // each test binary uses a part of it

use std::path::{Path, PathBuf};

use vitreous_engine::{Device, cuda};
use vitreous_explain::{Choice, Classes, Explainer, Explanation, Fusion, Settings, Structure};
use vitreous_models::archive::Archive;
use vitreous_models::{Model, OpenOptions};

/// All fixtures: with a class token; with a class token, registers and a mean over grey rectangular patches' tokens; with two heads;
/// without any; without a class token, post-norm, of patches that are no squares.
pub const ALL: [&str; 5] = ["class_token", "registers", "distilled", "dinov2_registers", "post_norm"];

pub const DISCARDS: [f32; 3] = [0.0, 0.3, 0.9];

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub fn open(name: &str) -> Model {
    open_with(name, &OpenOptions::default())
}

pub fn open_with(name: &str, options: &OpenOptions) -> Model {
    Model::open(&fixture(name), options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What the library computed.
pub struct Expected(Archive);

impl Expected {
    pub fn of(name: &str) -> Expected {
        Expected(Archive::open(&fixture(name).join("expected.safetensors")).unwrap_or_else(|error| panic!("{error}")))
    }

    pub fn all(&self, tensor: &str) -> Vec<f32> {
        let view = self.0.tensor(tensor).unwrap_or_else(|error| panic!("{error}"));
        view.to_f32().expect("numbers").into_owned()
    }

    /// Whole numbers.
    pub fn integers(&self, tensor: &str) -> Vec<i64> {
        let view = self.0.tensor(tensor).unwrap_or_else(|error| panic!("{error}"));
        let bytes = view.to_bytes().expect("whole numbers");
        let number = |bytes: &[u8]| i64::from(i32::from_le_bytes(bytes.try_into().expect("four bytes")));
        bytes.chunks_exact(4).map(number).collect()
    }

    /// Outputs of the head: the last axis of the logits.
    pub fn outputs_of_head(&self) -> usize {
        let view = self.0.tensor("logits").unwrap_or_else(|error| panic!("{error}"));
        view.shape.last().copied().unwrap_or(1)
    }

    /// One image's part of a tensor.
    pub fn of_image(&self, tensor: &str, image: usize) -> Vec<f32> {
        let all = self.all(tensor);
        all.chunks_exact(all.len() / 2).nth(image).expect("two images").to_vec()
    }

    pub fn names(&self, prefix: &str) -> Vec<String> {
        self.0.names().filter_map(|name| name.strip_prefix(prefix)).map(str::to_string).collect()
    }

    /// The classes that it has relevance for.
    pub fn classes(&self) -> Classes {
        let mut classes: Vec<usize> = self.names("relevance.").iter().filter_map(|name| name.parse().ok()).collect();
        classes.sort_unstable();
        if classes.is_empty() { Classes::Top(1) } else { Classes::These(classes) }
    }
}

/// Everything that fixtures have.
pub fn settings(model: &Model, expected: &Expected) -> Settings {
    Settings {
        choice: Choice::all(structure(model)),
        fusions: Fusion::ALL.to_vec(),
        discards: DISCARDS.to_vec(),
        classes: expected.classes(),
        threads: 2,
        memory: 1 << 20,
    }
}

/// The processor.
pub const CPU: Device = Device::Cpu { threads: 2 };

/// The GPU, if there is one.
pub fn gpu() -> Option<Device> {
    match cuda::Device::open(0) {
        Ok(device) => Some(Device::Cuda(device)),
        Err(error) => {
            eprintln!("skipped on the GPU: {error}");
            None
        }
    }
}

pub fn explain(model: &Model, settings: Settings, pixels: &[f32]) -> Explanation {
    explain_on(&CPU, model, settings, pixels)
}

pub fn explain_on(device: &Device, model: &Model, settings: Settings, pixels: &[f32]) -> Explanation {
    let mut explainer = Explainer::new(model, settings, device).unwrap_or_else(|error| panic!("{error}"));
    explainer.explain(pixels).unwrap_or_else(|error| panic!("{error}"))
}

/// Panics unless all numbers are as near as that; what is no number is never near. Gives the largest difference.
pub fn near(what: &str, got: impl IntoIterator<Item = f64>, expected: &[f32], limit: f64) -> f64 {
    let got: Vec<f64> = got.into_iter().collect();
    assert_eq!(got.len(), expected.len(), "{what}");
    let mut most = 0.0;
    for (index, (got, &expected)) in got.iter().zip(expected).enumerate() {
        let difference = (got - f64::from(expected)).abs();
        assert!(difference <= limit, "{what}: {got} at {index} should be {expected}");
        most = f64::max(most, difference);
    }
    println!("{what}: {} numbers differ by {most:.1e} at most", got.len());
    most
}

pub fn wide(numbers: &[f32]) -> impl Iterator<Item = f64> {
    numbers.iter().map(|&number| f64::from(number))
}

pub fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// Panics unless two explanations are the same, to the bit.
pub fn same(a: &Explanation, b: &Explanation) {
    assert_eq!(a.logits.as_deref().map(bits), b.logits.as_deref().map(bits));
    assert_eq!(bits(&a.features), bits(&b.features));
    assert_eq!(a.attention.len(), b.attention.len());
    for (a, b) in a.attention.iter().zip(&b.attention) {
        assert_eq!((a.layer, &a.heads), (b.layer, &b.heads));
        assert_eq!((bits(&a.weights), &a.distance, &a.entropy), (bits(&b.weights), &b.distance, &b.entropy));
    }
    let rollouts =
        |e: &Explanation| e.rollout.iter().map(|r| (r.fusion, r.discard, bits(&r.patches))).collect::<Vec<_>>();
    assert_eq!(rollouts(a), rollouts(b));
    let relevance = |e: &Explanation| e.relevance.iter().map(|r| (r.class, bits(&r.patches))).collect::<Vec<_>>();
    assert_eq!(relevance(a), relevance(b));
}

/// What can be chosen of a model.
pub fn structure(model: &Model) -> Structure {
    Structure::of(model.architecture.as_ref()).expect("a graph")
}
