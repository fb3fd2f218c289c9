//! Which texts are computed together: those of similar length, so that little is padded.

/// The tokens of a batch, with padding: enough to keep a device busy.
const TOKENS_OF_CPU: usize = 2048;
/// The same for a GPU.
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
        let (length, most) = match on_gpu {
            true => {
                let length = few_lengths(lengths[first].max(1)).min(longest);
                (length, (TOKENS_OF_GPU / length).next_power_of_two())
            }
            false => (lengths[first].max(1), (TOKENS_OF_CPU / lengths[first].max(1)).max(1)),
        };
        // Texts that would fit a smaller shape wait for it.
        let same = |&&text: &&usize| !on_gpu || few_lengths(lengths[text].max(1)).min(longest) == length;
        let texts: Vec<usize> = rest.iter().take(most).take_while(same).copied().collect();
        let batch = if on_gpu { texts.len().next_power_of_two().min(most) } else { texts.len() };
        rest = &rest[texts.len()..];
        batches.push(TextBatch { shape: Shape { batch, length }, texts });
    }
    batches
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
        // A long text does not make a batch too large, and an empty one is computed as one token.
        assert_eq!(batches(&[9000, 0], 9000, false).iter().map(|b| b.shape.batch).collect::<Vec<_>>(), [1, 1]);
    }
}
