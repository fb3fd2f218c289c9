//! The ids of lines from standard input by a unigram model of SentencePiece: `sentencepiece_ids MODEL`.

use std::io::{Read, Write};

use vitreous_data::text::SentencePieces;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give a model file")?;
    let model = SentencePieces::open(path.as_ref())?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let mut out = std::io::BufWriter::new(std::io::stdout());
    for line in text.split('\n') {
        let ids: Vec<String> = model.encode(line).iter().map(u32::to_string).collect();
        writeln!(out, "{}", ids.join(" "))?;
    }
    Ok(())
}
