//! Opens fixtures, runs models on the CPU, and compares with what the peers computed.

#![allow(dead_code)] // each test binary uses a part of it

use std::path::{Path, PathBuf};

use vitreous_engine::cpu::Executor;
use vitreous_engine::random::Run;
use vitreous_engine::{Graph, Plan, State};
use vitreous_models::archive::Archive;
use vitreous_models::{Model, OpenOptions, Size, vit};

/// The limit of the difference to the peers, in results whose size is about one.
pub const LIMIT: f32 = 2e-5;

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub fn open(name: &str) -> Model {
    open_with(name, &OpenOptions::default())
}

pub fn open_with(name: &str, options: &OpenOptions) -> Model {
    Model::open(&fixture(name), options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A tensor's shape and numbers.
pub fn tensor(archive: &Archive, name: &str) -> (Vec<usize>, Vec<f32>) {
    let view = archive.tensor(name).unwrap_or_else(|error| panic!("{error}"));
    (view.shape.to_vec(), view.to_f32().expect("numbers").into_owned())
}

pub fn largest_difference(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    let differences = got.iter().zip(expected).map(|(g, e)| (g - e).abs());
    // NaN must not pass.
    differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

/// What a model computes of images, by the names that fixtures use.
pub struct Outputs(Vec<(&'static str, Vec<f32>)>);

impl Outputs {
    pub fn get(&self, name: &str) -> &[f32] {
        let found = self.0.iter().find(|(known, _)| *known == name);
        &found.unwrap_or_else(|| panic!("no {name}")).1
    }
}

pub fn run(model: &Model, shape: &[usize], images: &[f32]) -> Outputs {
    let mut g = Graph::for_inference();
    let built = vit(&mut g, &model.config, shape[0]).expect("builds");
    assert_eq!(shape[1..], [model.config.channels, model.config.image.height, model.config.image.width]);
    let mut values = vec![("tokens", built.tokens), ("features", built.features)];
    values.extend(built.logits.map(|logits| ("logits", logits)));
    if let Some([class, distillation]) = built.heads {
        values.extend([("class_logits", class), ("distillation_logits", distillation)]);
    }
    let wanted: Vec<_> = values.iter().map(|(_, value)| *value).collect();
    let plan = Plan::for_cpu(&g, &wanted).expect("plans");
    let mut executor = Executor::new(plan, 1).expect("runs");
    let mut state = State::new(&g).expect("memory");
    // A parameter that is not loaded makes everything NaN.
    state.parameters_mut().fill(f32::NAN);
    model.load(&mut state).unwrap_or_else(|error| panic!("{error}"));
    executor.input("images").expect("an input").copy_from_slice(images);
    executor.run(&mut state, Run::default()).expect("a run");
    Outputs(values.iter().map(|(name, value)| (*name, executor.output(*value).expect("a result"))).collect())
}

/// Compares everything that the fixture has; returns the largest difference.
pub fn compare_with(model: &Model, expected: &Path) -> f32 {
    let expected = Archive::open(expected).unwrap_or_else(|error| panic!("{error}"));
    let (shape, images) = tensor(&expected, "images");
    let outputs = run(model, &shape, &images);
    let mut worst = 0f32;
    for name in expected.names().filter(|name| *name != "images") {
        let (_, numbers) = tensor(&expected, name);
        let difference = largest_difference(outputs.get(name), &numbers);
        println!("{}: {name} differ by {difference:.1e}", model.path.as_deref().unwrap_or(Path::new("")).display());
        assert!(difference < LIMIT, "{:?}: {name} differ by {difference:e}", model.path);
        worst = worst.max(difference);
    }
    worst
}

/// Opens a fixture at another image size and compares.
pub fn compare_resized(name: &str, expected: &str, height: usize, width: usize) {
    let options = OpenOptions { image: Some(Size { height, width }), ..OpenOptions::default() };
    compare_with(&open_with(name, &options), &fixture(expected));
}
