//! Sentence pairs, labelled and tagged texts, plain text, tokenisers and batches of tokens.

mod batches;
<<<<<<< HEAD
mod hostile_tokenizers;
mod model_directories;
=======
mod labelled;
mod labelled_hostile;
>>>>>>> lab19
mod pairs;
mod plain;
mod tagged;
mod tokenisers;

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}
