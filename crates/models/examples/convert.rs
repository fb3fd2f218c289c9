//! Converts a checkpoint of any dialect: `convert SOURCE TARGET`, TARGET being a directory or a `.npz`.

use std::path::Path;
use std::process::ExitCode;

use vitreous_models::{Model, OpenOptions, SaveOptions};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, target] = arguments.as_slice() else {
        eprintln!("usage: convert SOURCE TARGET");
        return ExitCode::from(2);
    };
    let model = Model::open(Path::new(source), &OpenOptions::default());
    match model.and_then(|model| model.save(Path::new(target), &SaveOptions::default())) {
        Ok(written) => {
            println!("{target}: {written:?}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
