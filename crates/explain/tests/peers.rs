//! What is said of a model's inside against PyTorch's softmax and autograd, and NumPy: from the files in `tests/fixtures`, which
//! `make_explanations.py` made. No Python is needed here.

mod common;

use common::{ALL, CPU, DISCARDS, Expected, near, open, settings, structure, wide};
use vitreous_explain::{Explainer, Fusion, Reader, Spread, pictures};

const LIMIT: f64 = 1e-5;

#[test]
fn weights_rollout_relevance_distance_and_entropy() {
    for name in ALL {
        let (model, expected) = (open(name), Expected::of(name));
        let mut explainer = Explainer::new(&model, settings(&model, &expected), &CPU).expect("ready");
        // Both by the same explainer: nothing of the first image may be left in the second's.
        for image in 0..2 {
            let explanation = explainer.explain(&expected.of_image("images", image)).expect("explained");
            let of = |tensor: &str| expected.of_image(tensor, image);
            let compare = |tensor: &str, got: &mut dyn Iterator<Item = f64>| {
                near(&format!("{name}: {tensor}"), got, &of(tensor), LIMIT);
            };
            let attention = &explanation.attention;
            assert_eq!(attention.len(), structure(&model).layers);
            compare("attention", &mut attention.iter().flat_map(|layer| wide(&layer.weights)));
            compare("distance", &mut attention.iter().flat_map(|layer| layer.distance.iter().copied()));
            compare("entropy", &mut attention.iter().flat_map(|layer| layer.entropy.iter().copied()));
            compare("features", &mut wide(&explanation.features));
            assert_eq!(explanation.logits.is_some(), model.architecture.signature().classes().is_some());
            if let Some(logits) = &explanation.logits {
                compare("logits", &mut wide(logits));
            }
            let mut rollouts = explanation.rollout.iter();
            for fusion in Fusion::ALL {
                for discard in DISCARDS {
                    let rollout = rollouts.next().expect("a rollout for each");
                    assert_eq!((rollout.fusion, rollout.discard), (fusion, discard));
                    compare(&format!("rollout.{}.{discard:.1}", fusion.name()), &mut wide(&rollout.patches));
                }
            }
            let classes = expected.names("relevance.").len();
            assert_eq!(explanation.relevance.len(), classes);
            for relevance in &explanation.relevance {
                let class = relevance.class.map_or("features".to_string(), |class| class.to_string());
                compare(&format!("relevance.{class}"), &mut wide(&relevance.patches));
            }
        }
    }
}

#[test]
fn positions_and_filters() {
    for name in ALL {
        let (model, expected) = (open(name), Expected::of(name));
        let pictures = pictures(&model).expect("pictures");
        let positions = pictures.positions.expect("all of them have positions");
        near(&format!("{name}: similarity"), wide(&positions.similarity), &expected.all("similarity"), LIMIT);
        assert_eq!(positions.table.len() % positions.rows, 0);
        assert_eq!(positions.rows, positions.prefix + pictures.layout.patches());
        assert_eq!(positions.learned, name != "post_norm");
        let components = pictures.filters.iter().flat_map(|filter| wide(&filter.pixels));
        near(&format!("{name}: components"), components, &expected.all("components"), LIMIT);
        let shares = pictures.filters.iter().map(|filter| filter.share);
        near(&format!("{name}: shares"), shares, &expected.all("shares"), LIMIT);
    }
}

#[test]
fn who_reads_the_image_and_which_tokens_stand_in_front() {
    let layout = |name| pictures(&open(name)).expect("pictures").layout;
    let read = ALL.map(|name| (layout(name).reader, layout(name).prefix));
    let (class, mean) = (Reader::ClassToken, Reader::MeanOfPatches);
    assert_eq!(read, [(class, 1), (mean, 3), (class, 2), (class, 3), (mean, 0)]);
    // Of the tokens in front, those that have a position.
    let prefixes = ALL.map(|name| pictures(&open(name)).expect("pictures").positions.expect("positions").prefix);
    assert_eq!(prefixes, [1, 3, 2, 1, 0]);
}

#[test]
fn the_spread_over_images_is_the_mean() {
    for name in ["class_token", "post_norm"] {
        let (model, expected) = (open(name), Expected::of(name));
        let mut explainer = Explainer::new(&model, settings(&model, &expected), &CPU).expect("ready");
        let (mut from_explanations, mut by_itself) = (Spread::new(), Spread::new());
        for image in 0..2 {
            let pixels = expected.of_image("images", image);
            from_explanations.add(&explainer.explain(&pixels).expect("explained"));
            explainer.spread(&pixels, &mut by_itself).expect("measured");
        }
        let mean = |tensor: &str| -> Vec<f32> {
            let (first, second) = (expected.of_image(tensor, 0), expected.of_image(tensor, 1));
            first.iter().zip(&second).map(|(a, b)| (a + b) / 2.0).collect()
        };
        for spread in [&from_explanations, &by_itself] {
            assert_eq!(spread.images(), 2);
            let layers = spread.layers();
            assert_eq!(layers.len(), structure(&model).layers);
            near("distance", layers.iter().flat_map(|l| l.distance.iter().copied()), &mean("distance"), LIMIT);
            near("entropy", layers.iter().flat_map(|l| l.entropy.iter().copied()), &mean("entropy"), LIMIT);
        }
        assert_eq!(from_explanations.layers(), by_itself.layers());
    }
}
