//! Opens fixtures, runs models on the CPU, and compares with the peers' results.

use std::path::{Path, PathBuf};

use crate::archive::Archive;
use crate::families::vit::{VitConfig, vit};
pub use crate::testing::{largest_difference, tensor};
use crate::{Call, Model, OpenOptions, Size, testing};
use vitreous_engine::cpu::Executor;
use vitreous_engine::random::Run;
use vitreous_engine::{Graph, Plan, State};

/// The configuration that a model was opened with.
pub trait Configured {
    fn config(&self) -> &VitConfig;
}

impl Configured for Model {
    fn config(&self) -> &VitConfig {
        self.architecture.downcast_ref().expect("a Vision Transformer")
    }
}

/// The largest allowed difference from the peers, for results of magnitude one.
pub const LIMIT: f32 = 2e-5;

pub fn fixture(name: &str) -> PathBuf {
    testing::fixture("vit", name)
}

pub fn open(name: &str) -> Model {
    open_with(name, &OpenOptions::default())
}

pub fn open_with(name: &str, options: &OpenOptions) -> Model {
    Model::open(&fixture(name), options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The outputs of a model by the names that fixtures use.
pub struct Outputs(Vec<(String, Vec<f32>)>);

impl Outputs {
    pub fn get(&self, name: &str) -> &[f32] {
        let found = self.0.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("no {name}")).1
    }
}

pub fn run(model: &Model, shape: &[usize], images: &[f32]) -> Outputs {
    let mut g = Graph::for_inference();
    let built = vit(&mut g, model.config(), &Call::whole(shape[0])).expect("builds");
    assert_eq!(shape[1..], [model.config().channels, model.config().image.height, model.config().image.width]);
    let values: Vec<_> = built.iter().collect();
    let wanted: Vec<_> = values.iter().map(|(_, value)| *value).collect();
    let plan = Plan::for_cpu(&g, &wanted).expect("plans");
    let mut executor = Executor::new(plan, 1).expect("runs");
    let mut state = State::new(&g).expect("memory");
    // A parameter that is not loaded turns every output into NaN.
    state.parameters_mut().fill(f32::NAN);
    model.load(&mut state).unwrap_or_else(|error| panic!("{error}"));
    executor.input("images").expect("an input").copy_from_slice(images);
    executor.run(&mut state, Run::default()).expect("a run");
    Outputs(values.iter().map(|(name, value)| (name.to_string(), executor.output(*value).expect("a result"))).collect())
}

/// Compares everything in the fixture; returns the largest difference.
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
    let options = OpenOptions::default().with("image", Size { height, width });
    compare_with(&open_with(name, &options), &fixture(expected));
}
