//! Statistics of sentence pairs: how long a tokeniser takes to train, tokens per sentence, batch shapes and padding.
//!
//!     cargo run --release -p vitreous-data --example pair_batches -- DIR [bpe|unigram] [VOCAB_SIZE] [TOKENS_PER_BATCH]

use std::path::Path;
use std::time::Instant;

use vitreous_data::loader::BatchSource;
use vitreous_data::text::{EncodedPairs, Limits, OpenPairs, PairBatches, TokeniserKind, Tokenisers, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, otherwise: &str| arguments.get(index).map_or(otherwise, String::as_str).to_string();
    let kind: TokeniserKind = argument(1, "bpe").parse()?;
    let (vocab_size, tokens_per_batch): (usize, usize) = (argument(2, "8000").parse()?, argument(3, "4096").parse()?);

    let start = Instant::now();
    let splits = open(Path::new(&argument(0, "pairs")), &OpenPairs::default())?;
    splits.notes.iter().for_each(|note| println!("{note}"));
    println!("read in {:.2?}", start.elapsed());

    let start = Instant::now();
    let tokenisers = Tokenisers::train(kind, &splits.train, vocab_size, true)?;
    println!("{:?} trained in {:.2?}", tokenisers.source, start.elapsed());

    let start = Instant::now();
    let (encoded, dropped) = EncodedPairs::new(&splits.train, &tokenisers, &Limits::default())?;
    let (sources, targets) = encoded.tokens();
    let each = |tokens: usize| tokens as f64 / encoded.len() as f64;
    println!("encoded in {:.2?}; {dropped}", start.elapsed());
    println!("{:.1} tokens per source, {:.1} per target", each(sources), each(targets));

    let start = Instant::now();
    let batches = PairBatches::new(encoded, tokens_per_batch, 1)?;
    println!(
        "{} shapes, {} batches per epoch, {:.2} % padding, found in {:.2?}",
        batches.shapes().len(),
        batches.batches_per_epoch(),
        100.0 * batches.padding_share(),
        start.elapsed()
    );
    let start = Instant::now();
    let order = batches.order(1);
    println!("order of an epoch computed in {:.2?}", start.elapsed());
    let used: std::collections::BTreeSet<_> = (0..order.len()).map(|index| order.group(index)).collect();
    println!("{} of them occur", used.len());
    Ok(())
}
