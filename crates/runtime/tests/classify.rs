//! The library as an application uses it: a model directory and a picture in, classes out.

use std::path::{Path, PathBuf};

use vitreous_runtime::{Classifier, ClassifierOptions, DeviceChoice};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vitreous/tests/fixtures")
}

#[test]
fn a_picture_is_classified_as_transformers_does() {
    let options = ClassifierOptions { device: DeviceChoice::Cpu, ..ClassifierOptions::default() };
    let mut classifier = Classifier::open(&fixtures().join("tiny_vit"), &options).expect("opens");
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixtures().join("predictions.json")).expect("a fixture")).expect("JSON");
    let prediction = classifier.classify_file(&fixtures().join("pictures/noise.png")).expect("classified");
    let theirs: Vec<f64> =
        expected["noise.png"]["logits"].as_array().expect("logits").iter().filter_map(|x| x.as_f64()).collect();
    assert_eq!(prediction.logits.len(), theirs.len());
    for (ours, theirs) in prediction.logits.iter().zip(&theirs) {
        assert!((f64::from(*ours) - theirs).abs() < 1e-4, "{ours} and {theirs}");
    }
    let top = prediction.top(2);
    assert!(top[0].score >= top[1].score && top[0].score > 0.0);
}

#[test]
fn what_cannot_be_classified_with_is_told_what_it_is() {
    let families = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/src/families");
    let refused = |path: &str| {
        let opened = Classifier::open(&families.join(path), &ClassifierOptions::default());
        opened.err().expect("refused").to_string()
    };
    let bert = refused("bert/tests/fixtures/masked");
    assert!(bert.contains("a masked language model") && bert.contains("vitreous summary"), "{bert}");
    let encoder = refused("vit/tests/fixtures/hf_dinov2");
    assert!(encoder.contains("an image encoder") && encoder.contains("--features"), "{encoder}");
    let missing = refused("nowhere");
    assert!(missing.contains("no such file or directory"), "{missing}");
}
