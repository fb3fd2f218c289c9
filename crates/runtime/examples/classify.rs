//! Classifies a picture: `cargo run --release -p vitreous-runtime --example classify -- MODEL photo.jpg`

use std::path::PathBuf;

use vitreous_runtime::{Classifier, ClassifierOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(model), Some(picture)) = (arguments.next(), arguments.next()) else {
        return Err("give a model directory and a picture".into());
    };
    let mut classifier = Classifier::open(&model, &ClassifierOptions::default())?;
    for answer in classifier.classify_file(&picture)?.top(5) {
        println!("{:5.1} %  {}", 100.0 * answer.score, answer.label);
    }
    Ok(())
}
