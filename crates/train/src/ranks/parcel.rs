//! Results that ranks send each other, to the last bit.

/// Lists of numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parcel {
    /// Whole numbers: classes, samples, counts.
    pub counts: Vec<u64>,
    /// Logits, targets.
    pub floats: Vec<f32>,
    /// Sums and scores.
    pub doubles: Vec<f64>,
}

impl Parcel {
    /// As bytes: the lengths, then the numbers.
    pub fn to_bytes(&self) -> Vec<u8> {
        let lengths = [self.counts.len(), self.floats.len(), self.doubles.len()];
        let mut bytes: Vec<u8> = lengths.iter().flat_map(|&length| (length as u64).to_le_bytes()).collect();
        bytes.extend(self.counts.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(self.floats.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(self.doubles.iter().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    /// Of lists of tokens.
    pub fn of_tokens(lists: impl IntoIterator<Item = Vec<u32>>) -> Parcel {
        let list = |tokens: Vec<u32>| {
            let length = tokens.len() as u64;
            std::iter::once(length).chain(tokens.into_iter().map(u64::from))
        };
        Parcel { counts: lists.into_iter().flat_map(list).collect(), ..Parcel::default() }
    }

    /// The lists that [`Parcel::of_tokens`] was given.
    pub fn tokens(&self) -> Vec<Vec<u32>> {
        let (mut lists, mut rest) = (Vec::new(), &self.counts[..]);
        while let Some((&length, others)) = rest.split_first() {
            let (list, others) = others.split_at(others.len().min(length as usize));
            lists.push(list.iter().map(|&token| token as u32).collect());
            rest = others;
        }
        lists
    }

    /// A sum over samples, and how many they are.
    pub fn of_sum(sum: f64, count: u64) -> Parcel {
        Parcel { counts: vec![count], doubles: vec![sum], ..Parcel::default() }
    }

    /// What [`Parcel::of_sum`] was given.
    pub fn sum(&self) -> (f64, u64) {
        (self.doubles.first().copied().unwrap_or(0.0), self.counts.first().copied().unwrap_or(0))
    }

    /// Of bytes that [`Parcel::to_bytes`] gave. What is missing in others is left out.
    pub fn of_bytes(bytes: &[u8]) -> Parcel {
        let (lengths, mut rest) = bytes.split_at(bytes.len().min(24));
        let lengths: Vec<usize> = numbers(lengths, u64::from_le_bytes).map(|length| length as usize).collect();
        let mut part = |index: usize, width: usize| {
            let length = lengths.get(index).copied().unwrap_or(0).saturating_mul(width).min(rest.len());
            let (part, others) = rest.split_at(length);
            rest = others;
            part
        };
        let (counts, floats, doubles) = (part(0, 8), part(1, 4), part(2, 8));
        Parcel {
            counts: numbers(counts, u64::from_le_bytes).collect(),
            floats: numbers(floats, f32::from_le_bytes).collect(),
            doubles: numbers(doubles, f64::from_le_bytes).collect(),
        }
    }
}

fn numbers<const WIDTH: usize, T>(bytes: &[u8], of: impl Fn([u8; WIDTH]) -> T) -> impl Iterator<Item = T> {
    bytes.chunks_exact(WIDTH).filter_map(|chunk| chunk.try_into().ok()).map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_arrives_as_it_was_sent() {
        let parcel = Parcel { counts: vec![7, u64::MAX], floats: vec![0.1, -0.0, 3.0], doubles: vec![1.0 / 3.0] };
        assert_eq!(Parcel::of_bytes(&parcel.to_bytes()), parcel);
        assert_eq!(Parcel::of_bytes(&Parcel::default().to_bytes()), Parcel::default());
        assert_eq!(Parcel::of_bytes(&[1, 2, 3]), Parcel::default());
        let lists = vec![vec![7, 8, u32::MAX], Vec::new(), vec![1]];
        assert_eq!(Parcel::of_tokens(lists.clone()).tokens(), lists);
        assert_eq!(Parcel::of_sum(0.5, 3).sum(), (0.5, 3));
    }
}
