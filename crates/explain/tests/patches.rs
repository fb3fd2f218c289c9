//! The patches' final tokens, their principal components and cosines against transformers and NumPy: from
//! `fixtures/patches.safetensors`, which `make_patches.py` made.

mod common;

use common::{ALL, CPU, Expected, fixture, near, open, settings, wide};
use vitreous_explain::Explainer;
use vitreous_models::archive::Archive;

const LIMIT: f64 = 1e-5;

#[test]
fn tokens_components_and_cosines() {
    let (model, images) = (open("dinov2_registers"), Expected::of("dinov2_registers"));
    let archive = Archive::open(&fixture("patches.safetensors")).expect("opens");
    let expected = |name: &str, image: usize| {
        let all = archive.tensor(name).expect(name).to_f32().expect("numbers").into_owned();
        all.chunks_exact(all.len() / 2).nth(image).expect("two images").to_vec()
    };
    let mut explainer = Explainer::new(&model, settings(&model, &images), &CPU).expect("ready");
    for image in 0..2 {
        let explanation = explainer.explain(&images.of_image("images", image)).expect("explained");
        let patches = explanation.patches.expect("a model without a head");
        assert_eq!((patches.dim, patches.scores.len()), (16, 16));
        near("tokens", wide(&patches.tokens), &expected("tokens", image), LIMIT);
        near("scores", patches.scores.iter().flat_map(|scores| wide(scores)), &expected("scores", image), LIMIT);
        near("shares", patches.shares, &expected("shares", image), LIMIT);
        near("similarity", wide(&patches.similarity), &expected("similarity", image), LIMIT);
    }
}

#[test]
fn only_models_without_a_head_have_them() {
    for name in ALL {
        let (model, expected) = (open(name), Expected::of(name));
        let mut explainer = Explainer::new(&model, settings(&model, &expected), &CPU).expect("ready");
        let explanation = explainer.explain(&expected.of_image("images", 0)).expect("explained");
        assert_eq!(explanation.patches.is_some(), explanation.logits.is_none(), "{name}");
    }
}
