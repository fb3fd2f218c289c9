//! Models of the smallest sizes that have learned nothing, for what has no fixture with its tokenizer.

use std::path::Path;

use vitreous_engine::{Graph, State};
use vitreous_models::initial::{Initialisation, initialise};
use vitreous_models::{Call, Model, OpenOptions, SaveOptions, preset};

use crate::client::language;

/// Writes a preset with other sizes and random weights.
pub fn write(directory: &Path, name: &str, sizes: &[(&str, usize)]) {
    let sizes = sizes.iter().fold(OpenOptions::default(), |options, &(key, size)| options.with(key, size));
    let architecture = preset(name).expect("known").with_settings(&sizes.settings).expect("fits");
    let mut graph = Graph::for_inference();
    architecture.build(&mut graph, &Call::whole(1)).expect("builds");
    let mut state = State::new(&graph).expect("memory");
    initialise(&mut state, Initialisation::PyTorch, 1, &|_| true).expect("initialised");
    let options = SaveOptions { state: Some(&state), ..SaveOptions::default() };
    Model::new(architecture, Vec::new()).expect("a model").save(directory, &options).expect("saved");
}

/// Whisper, with the vocabulary of English models.
pub fn whisper(directory: &Path) {
    let narrow = ["dim", "mlp_dim", "decoder_mlp_dim"].map(|key| (key, 16));
    let shallow = ["heads", "decoder_heads", "encoder_layers", "decoder_layers"].map(|key| (key, 1));
    write(directory, "whisper_tiny_en", &[&narrow[..], &shallow].concat());
}

/// DINOv2, whose answer is a vector, for images of 28 x 28. Its layers add as much as those that have learned do.
pub fn dinov2(directory: &Path) {
    let sizes = [("image", 28), ("dim", 16), ("depth", 2), ("heads", 2), ("mlp_dim", 32), ("layer_scale", 1)];
    write(directory, "vit_small_patch14_dinov2", &sizes);
}

/// CLIP for images of 32 x 32, with the tokenizer of a fixture.
pub fn clip(directory: &Path) {
    let sizes = [("dim", 16), ("depth", 1), ("heads", 2), ("mlp_dim", 32), ("text_dim", 16), ("text_depth", 1)];
    write(
        directory,
        "clip_cifar",
        &[&sizes[..], &[("text_heads", 2), ("text_mlp_dim", 32), ("vocabulary", 103)]].concat(),
    );
    copy_tokenizer(directory);
}

/// ByT5, whose tokens are bytes.
pub fn byt5(directory: &Path) {
    let sizes =
        [("dim", 16), ("mlp_dim", 32), ("heads", 2), ("head_dim", 8), ("encoder_layers", 1), ("decoder_layers", 1)];
    write(directory, "byt5_small", &sizes);
    let settings = r#"{"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}"#;
    std::fs::write(directory.join("tokenizer_config.json"), settings).expect("written");
}

/// BART, with the tokenizer of a fixture.
pub fn bart(directory: &Path) {
    let narrow = [("dim", 16), ("mlp_dim", 32), ("decoder_mlp_dim", 32), ("heads", 2), ("decoder_heads", 2)];
    let shallow =
        [("encoder_layers", 1), ("decoder_layers", 1), ("source_vocabulary", 103), ("target_vocabulary", 103)];
    write(directory, "bart_base", &[&narrow[..], &shallow, &[("max_length", 64)]].concat());
    copy_tokenizer(directory);
}

fn copy_tokenizer(directory: &Path) {
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(language("llama").0.join(name), directory.join(name)).expect("copied");
    }
}
