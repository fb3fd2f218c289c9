//! How gradients are cut for their way: into buckets that travel while the next ones are computed, and each bucket into one part for
//! each rank, which adds it up.

use std::ops::Range;

/// Pieces that travel together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its pieces, as ranges of the flat buffer.
    pub pieces: Vec<Range<usize>>,
    /// Where each rank's part begins among the floats of the pieces, and behind them their number. A piece is in one part.
    pub cuts: Vec<usize>,
    /// How many pieces each rank has: where its pieces begin, and behind them their number.
    pub owners: Vec<usize>,
}

impl Bucket {
    /// Cuts pieces into parts. `held` is how many floats each rank has of other buckets, and of this one afterwards: who has fewer gets
    /// more, because pieces may be large.
    fn new(pieces: Vec<Range<usize>>, held: &mut [usize]) -> Bucket {
        let total: usize = pieces.iter().map(ExactSizeIterator::len).sum();
        let equal = (held.iter().sum::<usize>() + total).div_ceil(held.len());
        let missing: Vec<usize> = held.iter().map(|&held| equal.saturating_sub(held)).collect();
        let all_missing = missing.iter().sum::<usize>().max(1) as u128;
        let (mut cuts, mut owners) = (vec![0], vec![0]);
        let (mut floats, mut place, mut missing_before) = (0, 0, 0);
        for missing in &missing[..held.len() - 1] {
            missing_before += missing;
            // As near to its share as whole pieces allow.
            let share = (total as u128 * missing_before as u128 / all_missing) as usize;
            while place < pieces.len() && floats + pieces[place].len() / 2 < share {
                floats += pieces[place].len();
                place += 1;
            }
            cuts.push(floats);
            owners.push(place);
        }
        cuts.push(total);
        owners.push(pieces.len());
        held.iter_mut().zip(cuts.windows(2)).for_each(|(held, cut)| *held += cut[1] - cut[0]);
        Bucket { pieces, cuts, owners }
    }

    /// Number of floats.
    pub fn floats(&self) -> usize {
        self.cuts.last().copied().unwrap_or(0)
    }

    /// The part of a rank among the floats of the pieces.
    pub fn part(&self, rank: usize) -> Range<usize> {
        self.cuts[rank]..self.cuts[rank + 1]
    }

    /// The pieces of a rank.
    pub fn pieces_of(&self, rank: usize) -> &[Range<usize>] {
        &self.pieces[self.owners[rank]..self.owners[rank + 1]]
    }

    /// The floats of the pieces, one after the other.
    pub fn collect(&self, flat: &[f32]) -> Vec<f32> {
        let mut floats = Vec::with_capacity(self.floats());
        self.pieces.iter().for_each(|piece| floats.extend_from_slice(&flat[piece.clone()]));
        floats
    }

    /// Puts the floats of some pieces back where they were collected.
    pub fn scatter(pieces: &[Range<usize>], floats: &[f32], flat: &mut [f32]) {
        let mut start = 0;
        for piece in pieces {
            flat[piece.clone()].copy_from_slice(&floats[start..start + piece.len()]);
            start += piece.len();
        }
    }
}

/// All buckets, in the order in which they travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    all: Vec<Bucket>,
}

impl Buckets {
    /// Cuts parameters, given as the pieces of each in the order in which their gradients are ready, into buckets of about so many
    /// floats, for so many ranks. A parameter is in one bucket.
    pub fn new(parameters: &[Vec<Range<usize>>], floats: usize, size: usize) -> Buckets {
        let (mut all, mut pieces, mut filled, mut held) = (Vec::new(), Vec::new(), 0, vec![0; size]);
        for parameter in parameters {
            let length: usize = parameter.iter().map(ExactSizeIterator::len).sum();
            if filled > 0 && filled + length > floats {
                all.push(Bucket::new(std::mem::take(&mut pieces), &mut held));
                filled = 0;
            }
            pieces.extend(parameter.iter().cloned());
            filled += length;
        }
        if !pieces.is_empty() {
            all.push(Bucket::new(pieces, &mut held));
        }
        Buckets { all }
    }

    /// The buckets.
    pub fn all(&self) -> &[Bucket] {
        &self.all
    }

    /// The most floats of a bucket.
    pub fn largest(&self) -> usize {
        self.all.iter().map(Bucket::floats).max().unwrap_or(0)
    }

    /// How many floats a rank adds up in all.
    pub fn floats_of(&self, rank: usize) -> usize {
        self.all.iter().map(|bucket| bucket.part(rank).len()).sum()
    }
}

#[cfg(test)]
// Lists of ranges, some of which have one.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_in_one_part_of_one_bucket() {
        let parameters: Vec<Vec<Range<usize>>> =
            vec![vec![0..100, 100..130], vec![200..205], vec![300..400, 400..500, 500..507], vec![600..601]];
        for size in 1..=6 {
            for floats in [1, 50, 150, 10_000] {
                let buckets = Buckets::new(&parameters, floats, size);
                let mut seen: Vec<Range<usize>> = buckets
                    .all()
                    .iter()
                    .flat_map(|bucket| (0..size).flat_map(|rank| bucket.pieces_of(rank).to_vec()))
                    .collect();
                seen.sort_by_key(|piece| piece.start);
                assert_eq!(seen, parameters.concat(), "{size} {floats}");
                for bucket in buckets.all() {
                    for rank in 0..size {
                        let own: usize = bucket.pieces_of(rank).iter().map(ExactSizeIterator::len).sum();
                        assert_eq!(own, bucket.part(rank).len());
                    }
                    // No bucket is larger than asked for, unless one parameter is.
                    assert!(bucket.floats() <= floats.max(207), "{floats}: {bucket:?}");
                }
            }
        }
    }

    #[test]
    fn parts_are_about_equal() {
        let parameters: Vec<Vec<Range<usize>>> = (0..64).map(|index| vec![100 * index..100 * index + 100]).collect();
        for size in [2, 3, 7] {
            let buckets = Buckets::new(&parameters, 100_000, size);
            let parts: Vec<usize> = (0..size).map(|rank| buckets.floats_of(rank)).collect();
            let (least, most) = (parts.iter().min().copied(), parts.iter().max().copied());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 100), "{parts:?}");
        }
    }

    #[test]
    fn pieces_that_fill_a_bucket_each_are_shared_out_too() {
        let parameters: Vec<Vec<Range<usize>>> = (0..12).map(|index| vec![100 * index..100 * index + 100]).collect();
        for size in [2, 3, 4] {
            let buckets = Buckets::new(&parameters, 100, size);
            let parts: Vec<usize> = (0..size).map(|rank| buckets.floats_of(rank)).collect();
            assert_eq!(parts, vec![1200 / size; size]);
        }
    }

    #[test]
    fn what_is_collected_goes_back_to_its_place() {
        let bucket = Bucket::new(vec![4..6, 0..1], &mut [0, 0]);
        let flat = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let floats = bucket.collect(&flat);
        assert_eq!(floats, [4.0, 5.0, 0.0]);
        let mut back = [9.0; 6];
        Bucket::scatter(&bucket.pieces, &floats, &mut back);
        assert_eq!(back, [0.0, 9.0, 9.0, 9.0, 4.0, 5.0]);
    }
}
