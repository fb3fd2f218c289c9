//! The tokens that a model directory's tokenizer gives, for comparison with another program's, and the time that it takes.
//!
//!     cargo run --release -p vitreous-data --example encode_text -- DIRECTORY REQUESTS.jsonl > ANSWERS.jsonl
//!
//! A request is `{"text", "pair", "longest", "stride", "words"}`: all but the text may be missing; with `words`, a list, there is no
//! text. An answer is a list of windows, one where there is no stride. With `--time LONGEST`, each text is encoded once and only the time
//! is printed. `--train DIRECTORY REQUESTS.jsonl` learns vocabularies of 2000 tokens from the texts and saves one of each kind.

use std::error::Error;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use serde::Deserialize;
use serde_json::json;
use vitreous_data::text::{Encoding, TextTokenizer, VocabularyKind};

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    text: String,
    #[serde(default)]
    pair: Option<String>,
    #[serde(default)]
    longest: Option<usize>,
    #[serde(default)]
    stride: Option<usize>,
    #[serde(default)]
    words: Option<Vec<String>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [option, directory, requests] = &arguments[..]
        && option == "--train"
    {
        return train(Path::new(directory), requests);
    }
    let [directory, requests, options @ ..] = &arguments[..] else {
        return Err("usage: encode_text DIRECTORY REQUESTS.jsonl [--time LONGEST]".into());
    };
    let started = Instant::now();
    let tokenizer = TextTokenizer::open(Path::new(directory))?;
    eprintln!(
        "opened in {:.1} ms, {} tokens, {:?}",
        started.elapsed().as_secs_f64() * 1e3,
        tokenizer.vocabulary_size(),
        tokenizer.special()
    );
    let lines = BufReader::new(std::fs::File::open(requests)?).lines();
    let requests =
        lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect::<Result<Vec<Request>, Box<dyn Error>>>()?;
    if let [_, longest] = options {
        let longest = longest.parse()?;
        for _ in 0..3 {
            let started = Instant::now();
            let mut tokens = 0;
            for request in &requests {
                tokens += tokenizer.encode(&request.text, request.pair.as_deref(), longest)?.len();
            }
            let seconds = started.elapsed().as_secs_f64();
            println!("{} texts, {tokens} tokens: {:.1} ms", requests.len(), seconds * 1e3);
        }
        return Ok(());
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    for request in &requests {
        let longest = request.longest.unwrap_or(usize::MAX);
        let answers = match (&request.words, &request.pair, request.stride) {
            (Some(words), _, _) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                tokenizer.encode_words(&words, longest).map(|encoding| vec![encoding])
            }
            (None, Some(pair), Some(stride)) => tokenizer.encode_windows(&request.text, pair, longest, stride),
            (None, pair, _) => tokenizer.encode(&request.text, pair.as_deref(), longest).map(|encoding| vec![encoding]),
        };
        let answer = match answers {
            Ok(answers) => {
                let ids = answers.first().map(|answer| answer.ids.clone()).unwrap_or_default();
                let decoded = [tokenizer.decode(&ids, false)?, tokenizer.decode(&ids, true)?];
                json!({"windows": answers.iter().map(show).collect::<Vec<_>>(), "decoded": decoded})
            }
            Err(error) => json!({"error": error.to_string()}),
        };
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

fn train(directory: &Path, requests: &str) -> Result<(), Box<dyn Error>> {
    let kinds = [VocabularyKind::WordPiece, VocabularyKind::Bpe, VocabularyKind::Unigram];
    for (kind, lower_case) in kinds.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let lines = std::fs::read_to_string(requests)?;
        let texts = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Request>, _>>()?;
        let tokenizer =
            TextTokenizer::train(kind, &mut texts.into_iter().map(|request| request.text), 2000, lower_case)?;
        tokenizer.save(&directory.join(format!("{kind:?}_{lower_case}")))?;
    }
    Ok(())
}

fn show(encoding: &Encoding) -> serde_json::Value {
    json!({
        "ids": encoding.ids,
        "token_types": encoding.token_types,
        "offsets": encoding.offsets,
        "special": encoding.special,
        "sequence": encoding.sequence,
        "words": encoding.words,
        "truncated": encoding.truncated,
    })
}
