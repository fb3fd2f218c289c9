//! Which texts are computed together: those of similar length, so that little is padded.

/// The parts of a batch on a CPU: the engine takes each of them through all layers, while it is in a core's cache.
const PARTS_OF_CPU: usize = 16;
/// The tokens of a part, with padding: the most that the engine takes through all layers at once.
const TOKENS_OF_PART: usize = 256;
/// The most tokens of other batches on a CPU, and as many as are worth some padding.
const TOKENS_OF_CPU: usize = 2048;
const FEW_TOKENS_OF_CPU: usize = 512;
/// The tokens of a batch on a GPU, with padding: enough to keep it busy.
const TOKENS_OF_GPU: usize = 1 << 16;

/// The shape of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Texts.
    pub batch: usize,
    /// Tokens of each, with padding.
    pub length: usize,
}

/// Texts that are computed together, by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextBatch {
    pub shape: Shape,
    pub texts: Vec<usize>,
}

/// Groups texts by length, the longest first: memory is taken once. On a GPU there are few shapes, because each is prepared at some cost.
pub(crate) fn batches(lengths: &[usize], longest: usize, on_gpu: bool) -> Vec<TextBatch> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    // Of equal length in their order, so that the same texts give the same batches.
    order.sort_by_key(|&text| (std::cmp::Reverse(lengths[text]), text));
    let mut batches = Vec::new();
    let mut rest = &order[..];
    while let Some(&first) = rest.first() {
        let length = lengths[first].max(1);
        let (texts, shape) = match on_gpu {
            true => {
                let length = few_lengths(length).min(longest);
                let most = (TOKENS_OF_GPU / length).next_power_of_two();
                // Texts that would fit a smaller shape wait for it.
                let same = |&&text: &&usize| few_lengths(lengths[text].max(1)).min(longest) == length;
                let count = rest.iter().take(most).take_while(same).count();
                (&rest[..count], Shape { batch: count.next_power_of_two().min(most), length })
            }
            false => {
                let count = count_on_cpu(rest, lengths);
                (&rest[..count], Shape { batch: count, length })
            }
        };
        rest = &rest[texts.len()..];
        batches.push(TextBatch { shape, texts: texts.to_vec() });
    }
    batches
}

/// How many of some texts, the longest first, are computed together on a CPU: as many equal parts as have little padding; where not even
/// one text each does, texts that are about as long as the first.
fn count_on_cpu(texts: &[usize], lengths: &[usize]) -> usize {
    let length = |text: &usize| lengths[*text].max(1);
    let longest = length(&texts[0]);
    let has_little_padding = |&count: &usize| {
        let tokens: usize = texts[..count].iter().map(length).sum();
        tokens * 16 >= count * longest * 15
    };
    let most = (TOKENS_OF_PART / longest).min(texts.len() / PARTS_OF_CPU);
    let parts = (1..=most).rev().map(|each| PARTS_OF_CPU * each).find(has_little_padding);
    parts.unwrap_or_else(|| {
        let most = texts.iter().take((TOKENS_OF_CPU / longest).max(1)).enumerate();
        let fits = |(place, text): &(usize, &usize)| {
            (place + 1) * longest <= FEW_TOKENS_OF_CPU || 8 * length(text) >= 7 * longest
        };
        most.take_while(fits).count()
    })
}

/// A length rounded up to a few: by at most a third, less beyond short texts.
fn few_lengths(length: usize) -> usize {
    let step = match length {
        0..=64 => 16,
        65..=256 => 32,
        _ => 64,
    };
    length.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_similar_length_are_together_and_none_is_lost() {
        let lengths: Vec<usize> = (0..5000).map(|n| 1 + n * 7919 % 300).collect();
        for on_gpu in [false, true] {
            let batches = batches(&lengths, 300, on_gpu);
            let mut all: Vec<usize> = batches.iter().flat_map(|batch| batch.texts.clone()).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..5000));
            for TextBatch { shape, texts } in &batches {
                assert!(texts.len() <= shape.batch && texts.iter().all(|&text| lengths[text] <= shape.length));
            }
            let padded: usize = batches.iter().map(|batch| batch.shape.batch * batch.shape.length).sum();
            let tokens: usize = lengths.iter().sum();
            assert!(padded as f64 <= tokens as f64 * if on_gpu { 1.5 } else { 1.05 }, "{padded} for {tokens}");
            let mut shapes: Vec<(usize, usize)> = batches.iter().map(|b| (b.shape.batch, b.shape.length)).collect();
            shapes.dedup();
            assert!(!on_gpu || shapes.len() <= 16, "{shapes:?}");
        }
        // On a CPU most texts are in batches of equal parts, as long as the engine takes at once.
        let in_parts = |batch: &&TextBatch| {
            let TextBatch { shape, .. } = batch;
            shape.batch.is_multiple_of(PARTS_OF_CPU) && shape.batch / PARTS_OF_CPU * shape.length <= TOKENS_OF_PART
        };
        let on_cpu = batches(&lengths, 300, false);
        assert!(on_cpu.iter().filter(in_parts).map(|batch| batch.texts.len()).sum::<usize>() > 4000);
        // Few texts are one batch, whatever their lengths.
        assert_eq!(batches(&[40, 3, 17, 9, 1], 300, false).len(), 1);
        // A long text does not make a batch too large, and an empty one is computed as one token.
        assert_eq!(batches(&[9000, 0], 9000, false).iter().map(|b| b.shape.batch).collect::<Vec<_>>(), [1, 1]);
    }
}
