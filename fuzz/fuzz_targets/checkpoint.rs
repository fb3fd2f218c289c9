//! A checkpoint of a training run with one parameter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_engine::{Graph, Mode, Precision, State};
use vitreous_fuzz::with_files;
use vitreous_train::Fingerprint;
use vitreous_train::checkpoint::Checkpoints;

fuzz_target!(|input: &[u8]| {
    let mut graph = Graph::new(Mode::Inference, Precision::F32);
    graph.parameter("weight", [2, 2]).expect("a parameter");
    with_files(&[("step-0000000001.safetensors", input)], |folder| {
        let mut state = State::new(&graph).expect("a state");
        let checkpoints = Checkpoints::new(folder, 1);
        let now = Fingerprint::default();
        let Ok(Some((progress, _))) = checkpoints.restore(&mut state, &now) else { return };
        // What was restored can be saved and restored again.
        checkpoints.save(&state, &progress, &now).expect("saved");
        assert!(checkpoints.restore(&mut state, &now).expect("restored").is_some());
    });
});
