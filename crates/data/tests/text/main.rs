//! Sentence pairs, labelled and tagged texts, plain text, tokenisers and batches of tokens.

mod batches;
mod clip_directories;
mod hostile_tokenizers;
mod labelled;
mod labelled_hostile;
mod llama_directories;
mod model_directories;
mod pair_tokenizers;
mod pairs;
mod plain;
mod stored_vocabularies;
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
