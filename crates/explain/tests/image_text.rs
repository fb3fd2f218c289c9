//! Relevance through both towers of models of images and texts, against PyTorch (`fixtures/make_image_text.py`).

use std::path::Path;

use vitreous_engine::Device;
use vitreous_explain::image_text::ImageTextExplainer;
use vitreous_models::archive::Archive;
use vitreous_models::{Model, OpenOptions};

fn tensor(archive: &Archive, name: &str) -> (Vec<usize>, Vec<f32>) {
    let view = archive.tensor(name).unwrap_or_else(|error| panic!("{error}"));
    (view.shape.to_vec(), view.to_f32().expect("numbers").into_owned())
}

fn close(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let most = expected.iter().fold(1e-6_f32, |most, value| most.max(value.abs()));
    let worst = got.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / most;
    assert!(worst < 1e-4, "{what}: differs by {worst:e}");
    assert!(expected.iter().any(|value| (value - expected[0]).abs() > 1e-4 * most), "{what}: all the same");
}

#[test]
fn relevance_of_patches_and_tokens_is_pytorchs() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let expected = Archive::open(&manifest.join("tests/fixtures/image_text.safetensors")).expect("a fixture");
    for name in ["clip", "siglip"] {
        let folder = manifest.join("../models/src/families/clip/tests/fixtures").join(name);
        let given = Archive::open(&folder.join("expected.safetensors")).expect("a fixture");
        let tower = |which: &str| Model::open(&folder, &OpenOptions::default().with("towers", which)).expect("a tower");
        let (images, texts) = (tower("image"), tower("text"));
        let whole = Model::open(&folder, &OpenOptions::default()).expect("a model");
        let captions = whole.architecture.signature().images_and_texts().expect("both").1;
        let device = Device::Cpu { threads: 2 };
        let mut explainer = ImageTextExplainer::new(&images, &texts, captions, 2, &device).expect("ready");
        let row = |name: &str, row: usize| {
            let (shape, values) = tensor(&given, name);
            let size = values.len() / shape[0];
            values[row * size..(row + 1) * size].to_vec()
        };
        for sample in 0..2 {
            let ids: Vec<u32> = row("tokens", sample).iter().map(|&id| id as u32).collect();
            let ids = if captions.has_pooled() { &ids[..=captions.place(&ids)] } else { &ids[..] };
            let patches = explainer.patches(&row("images", sample), &row("text_embeddings", sample)).expect("patches");
            close(&patches, &tensor(&expected, &format!("{name}.patches.{sample}")).1, &format!("{name}, patches"));
            let tokens = explainer.tokens(ids, &row("image_embeddings", sample)).expect("tokens");
            close(&tokens, &tensor(&expected, &format!("{name}.tokens.{sample}")).1, &format!("{name}, tokens"));
        }
    }
}
