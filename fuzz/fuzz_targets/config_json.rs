#![no_main]
//! A config.json of any dialect: it gives an error, or a configuration that gives an error or can be built.

use libfuzzer_sys::fuzz_target;
use vitreous_models::checkpoint::{Description, hugging_face, hugging_face_kind};
use vitreous_models::{Model, VitConfig, vit};

/// Larger models are only checked: building them is slow, not wrong.
const LARGEST: usize = 64;

fuzz_target!(|input: &[u8]| {
    let Ok(description) = Description::parse(input) else { return };
    let Some(config) = description.config() else { return };
    if config.check().is_err() {
        return;
    }
    // What can be expressed reads back as it was written.
    if let Ok(kind) = hugging_face_kind(config) {
        let written = hugging_face::write(kind, config, &[], "float32");
        let text = serde_json::to_vec(&written).expect("JSON");
        let again = Description::parse(&text).expect("what was written is read");
        let again = again.config().expect("a model").clone();
        // Not expressed there: the layer after a base model, which follows from the tensors; whether projections are
        // fused; the stochastic depth of a finished training; and a position scope that is equivalent.
        let expected = VitConfig {
            pre_logits: None,
            qkv: again.qkv,
            stochastic_depth: again.stochastic_depth,
            position_scope: again.position_scope,
            ..config.clone()
        };
        assert_eq!(again, expected);
    }
    let sizes = [config.depth, config.tokens(), config.dim, config.mlp_dim, config.classes, config.features()];
    let pixels = config.channels.saturating_mul(config.image.height).saturating_mul(config.image.width);
    if sizes.iter().all(|size| *size <= LARGEST) && pixels <= 1 << 16 {
        let mut graph = vitreous_engine::Graph::for_inference();
        vit(&mut graph, config, 1).expect("what was checked can be built");
        let model = Model::new(config.clone(), Vec::new()).expect("what was checked can be made");
        assert_eq!(model.parameters().count(), graph.parameters().len());
    }
});
