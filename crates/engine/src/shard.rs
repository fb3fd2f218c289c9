//! Moments that are shared out among processes (ZeRO-1): each keeps those of some pieces of the trained parameters, updates these
//! pieces, and gets the others from whoever has them.

use std::ops::Range;

/// The pieces whose moments this process keeps, as ranges of the flat buffer of gradients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// By where they begin.
    pieces: Vec<Range<usize>>,
    /// Where the moments of each piece begin.
    places: Vec<usize>,
    floats: usize,
}

impl Shard {
    /// Of these pieces, each a tile of one parameter: see [`Shard::TILE`].
    pub fn new(mut pieces: Vec<Range<usize>>) -> Shard {
        pieces.sort_by_key(|piece| piece.start);
        let mut floats = 0;
        let places = pieces
            .iter()
            .map(|piece| {
                let place = floats;
                floats += piece.len();
                place
            })
            .collect();
        Shard { pieces, places, floats }
    }

    /// How many floats of a parameter are a piece; the last one of a parameter may have fewer.
    pub const TILE: usize = 131_072;

    /// The pieces of a parameter that begins there.
    pub fn tiles(start: usize, length: usize) -> Vec<Range<usize>> {
        (0..length).step_by(Shard::TILE).map(|first| start + first..start + (first + Shard::TILE).min(length)).collect()
    }

    /// How many moments of each sort are kept.
    pub fn floats(&self) -> usize {
        self.floats
    }

    /// Where the moments of the piece are that begins there; `None` if another process has them.
    pub fn place_of(&self, start: usize) -> Option<usize> {
        let index = self.pieces.binary_search_by_key(&start, |piece| piece.start).ok()?;
        Some(self.places[index])
    }

    /// The pieces, and where the moments of each begin.
    pub fn pieces(&self) -> impl Iterator<Item = (&Range<usize>, usize)> {
        self.pieces.iter().zip(self.places.iter().copied())
    }
}

/// What an update needs of the other processes.
pub trait ShardLink: Send {
    /// Adds up numbers of all processes, place by place.
    fn add_up(&mut self, sums: &mut [f64]);

    /// Completes the flat buffer of parameters with the pieces that others have updated.
    fn complete(&mut self, parameters: &mut [f32]);
}

#[cfg(test)]
// Lists of ranges, some of which have one.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_pieces_lie_one_behind_the_other() {
        let tiles = Shard::tiles(64, Shard::TILE + 5);
        assert_eq!(tiles, [64..64 + Shard::TILE, 64 + Shard::TILE..69 + Shard::TILE]);
        let shard = Shard::new(vec![500..507, 0..10, 64..100]);
        assert_eq!(shard.floats(), 53);
        assert_eq!([0, 64, 500, 7].map(|start| shard.place_of(start)), [Some(0), Some(10), Some(46), None]);
    }
}
