//! Batches: every pair once, no more tokens than asked for, the same order each time.

use std::sync::Arc;

use proptest::prelude::*;
use vitreous_data::loader::{Batch, BatchPosition, BatchSource, Loader};
use vitreous_data::random::Random;
use vitreous_data::text::{BatchShape, END, EncodedPairs, PADDING, PairBatches, START};

/// Pairs of these lengths whose every token is another.
fn pairs(lengths: &[(usize, usize)]) -> EncodedPairs {
    let mut next = 3;
    let mut row = |length: usize| -> Vec<u32> {
        next += length as u32;
        (next - length as u32..next).collect()
    };
    let rows: Vec<(Vec<u32>, Vec<u32>)> = lengths.iter().map(|&(source, target)| (row(source), row(target))).collect();
    EncodedPairs::from_tokens(rows.iter().map(|(source, target)| (source.as_slice(), target.as_slice())))
}

/// Lengths as translations have them: about as long, most short, some long.
fn likely_lengths(count: usize) -> Vec<(usize, usize)> {
    let mut random = Random::new(3, 0, 0);
    (0..count)
        .map(|_| {
            let source = 22.0 * (0.6 * random.normal()).exp();
            let target = source * (1.1 + 0.2 * random.normal());
            ((source as usize).clamp(1, 120), (target as usize).clamp(1, 120))
        })
        .collect()
}

/// An array of a batch.
fn tokens<'b>(batch: &'b Batch, name: &str) -> &'b [i32] {
    batch.i32(name).expect("an array of tokens")
}

fn lengths() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0usize..70, 0usize..70), 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_pair_comes_once_and_no_batch_is_too_large(lengths in lengths(), limit in 72usize..600, epoch in any::<u64>()) {
        let pairs = pairs(&lengths);
        let batches = PairBatches::new(pairs, limit, 5).unwrap();
        let order = batches.order(epoch);
        prop_assert_eq!(order.len(), batches.batches_per_epoch());
        let mut times = vec![0; lengths.len()];
        let (mut places, mut filled, mut units) = (0, 0, 0);
        for index in 0..order.len() {
            let shape = batches.shapes()[order.group(index)];
            prop_assert!(shape.batch * shape.source.max(shape.target) <= limit && shape.batch > 0);
            let batch = batches.batch(&order, index).unwrap();
            for (array, spec) in batch.arrays.iter().zip(&batches.groups()[batch.group]) {
                prop_assert_eq!((array.name, &array.shape), (spec.name, &spec.shape));
            }
            prop_assert_eq!(&batch.array("source").unwrap().shape, &[shape.batch, shape.source]);
            prop_assert_eq!(&batch.array("target").unwrap().shape, &[shape.batch, shape.target]);
            prop_assert!(batch.samples.iter().zip(order.samples(index)).all(|(&pair, &other)| pair == other as usize));
            prop_assert!((1..=shape.batch).contains(&batch.count()));
            batch.samples.iter().for_each(|&pair| times[pair] += 1);
            units += batch.units;
            places += shape.batch * (shape.source + shape.target);
            let both = tokens(&batch, "source").iter().chain(tokens(&batch, "target"));
            filled += both.filter(|&&token| token != PADDING as i32).count();
        }
        prop_assert!(times.iter().all(|&times| times == 1), "each pair once: {:?}", times);
        prop_assert_eq!(units, lengths.iter().map(|lengths| lengths.1 + 1).sum::<usize>());
        let padding = if places == 0 { 0.0 } else { 1.0 - filled as f64 / places as f64 };
        prop_assert!((batches.padding_share() - padding).abs() < 1e-12);
    }

    #[test]
    fn an_epoch_is_a_function_of_its_seed_and_number(lengths in lengths(), seed in any::<u64>(), epoch in 0u64..1000) {
        let pairs = pairs(&lengths);
        let batches = || PairBatches::new(pairs.clone(), 200, seed).unwrap();
        // A run that is resumed has seen no other epoch, and starts in the middle.
        let whole = batches();
        let all: Vec<Batch> = {
            whole.order(epoch + 1);
            let order = whole.order(epoch);
            (0..order.len()).map(|index| whole.batch(&order, index).unwrap()).collect()
        };
        let middle = all.len() / 2;
        let first = BatchPosition { epoch, index: middle };
        let resumed: Vec<Batch> =
            Loader::start(Arc::new(batches()), first, epoch + 1, 2).map(|batch| batch.unwrap()).collect();
        prop_assert_eq!(&all[middle..], &resumed[..]);
    }
}

#[test]
fn a_batch_holds_its_pairs() {
    let [pad, start, end] = [PADDING, START, END].map(|token| token as i32);
    let pairs = EncodedPairs::from_tokens([(&[11, 12, 13][..], &[21][..]), (&[14], &[22, 23])]);
    let expected =
        [(&[11, 12, 13, end][..], &[start, 21][..], &[21, end][..]), (&[14, end], &[start, 22, 23], &[22, 23, end])];
    let is_row = |rows: &[i32], width: usize, index: usize, start: &[i32]| {
        let (filled, rest) = rows[index * width..][..width].split_at(start.len());
        assert_eq!(filled, start);
        assert!(rest.iter().all(|&token| token == pad), "{rest:?}");
    };
    let batches = PairBatches::new(pairs, 12, 1).unwrap();
    let order = batches.order(0);
    let mut seen = 0;
    for batch in (0..order.len()).map(|index| batches.batch(&order, index).unwrap()) {
        let BatchShape { source: source_width, target: target_width, .. } = batches.shapes()[batch.group];
        for (index, &pair) in batch.samples.iter().enumerate() {
            let (source, shifted, wanted) = expected[pair];
            is_row(tokens(&batch, "source"), source_width, index, source);
            is_row(tokens(&batch, "target"), target_width, index, shifted);
            is_row(tokens(&batch, "wanted"), target_width, index, wanted);
            assert_eq!(tokens(&batch, "source_lengths")[index] as usize, source.len());
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}

#[test]
fn rows_without_a_pair_count_for_nothing() {
    let pairs = pairs(&[(3, 3); 5]);
    let batches = PairBatches::new(pairs, 16, 1).unwrap();
    assert_eq!(batches.shapes(), [BatchShape { batch: 4, source: 4, target: 4 }]);
    let order = batches.order(3);
    let last = (0..order.len()).find(|&index| order.samples(index).len() == 1).expect("five pairs are four and one");
    let batch = batches.batch(&order, last).unwrap();
    assert_eq!((tokens(&batch, "source_lengths"), batch.units), (&[4, 0, 0, 0][..], 4));
    for matrix in ["source", "target", "wanted"].map(|name| tokens(&batch, name)) {
        assert_eq!(matrix.len(), 16);
        assert!(matrix[4..].iter().all(|&token| token == PADDING as i32));
    }
}

#[test]
fn little_is_padding_and_shapes_are_few() {
    for (count, limit, most_padding) in [(25_000, 4096, 0.10), (25_000, 1024, 0.10), (2000, 1024, 0.12)] {
        let pairs = pairs(&likely_lengths(count));
        let batches = PairBatches::new(pairs, limit, 1).unwrap();
        let (shapes, padding) = (batches.shapes().len(), batches.padding_share());
        assert!(shapes <= 60 && padding < most_padding, "{count} pairs, {limit} tokens: {shapes} shapes, {padding:.3}");
    }
}

#[test]
fn epochs_and_seeds_differ_and_pairs_meet_others() {
    let pairs = Arc::new(pairs(&likely_lengths(2000)));
    let batches = PairBatches::new(pairs.clone(), 1024, 1).unwrap();
    assert_ne!(batches.order(0).all_samples(), batches.order(1).all_samples());
    assert_ne!(batches.order(0), PairBatches::new(pairs, 1024, 2).unwrap().order(0));
    let neighbours = |epoch| {
        let order = batches.order(epoch);
        let index = (0..order.len()).find(|&index| order.samples(index).contains(&7)).unwrap();
        let mut pairs = order.samples(index).to_vec();
        pairs.sort();
        pairs
    };
    assert_ne!(neighbours(0), neighbours(1));
    // Not from short to long: shapes follow each other in any order.
    let order = batches.order(0);
    let source = |index: usize| batches.shapes()[order.group(index)].source;
    let steps = (1..order.len()).filter(|&index| source(index) < source(index - 1)).count();
    assert!(steps * 5 > order.len(), "{steps} of {}", order.len());
}

#[test]
fn a_pair_that_no_batch_has_room_for_is_refused() {
    let pairs = pairs(&[(3, 3), (4, 99)]);
    let refused = PairBatches::new(pairs, 90, 1).unwrap_err();
    assert_eq!((refused.longest, refused.tokens_per_batch), (100, 90));
    assert!(refused.to_string().contains("max_tokens"));
    let none = PairBatches::new(EncodedPairs::default(), 1, 1).unwrap();
    assert_eq!((none.batches_per_epoch(), none.shapes().len(), none.order(0).is_empty()), (0, 0, true));
}
