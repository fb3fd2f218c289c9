//! Moments that are shared out among processes (ZeRO-1): each keeps those of some pieces of the trained parameters, updates these
//! pieces, and gets the others from whoever has them.

use std::collections::HashSet;
use std::ops::Range;

use crate::graph::Graph;
use crate::ops::Op;

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
    /// Of these pieces, each a tile of one parameter (see [`Shard::TILE`]) or a whole one.
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

    /// The parameters, by number, that one process must update as a whole: Muon's direction is a function of a whole matrix.
    pub fn undivided(update: &Graph) -> HashSet<usize> {
        let of = |op: &Op| match op {
            Op::MuonUpdate(op) => Some(op.parameter),
            _ => None,
        };
        update.nodes().iter().filter_map(|node| of(&node.op)).collect()
    }

    /// How many moments of each sort are kept.
    pub fn floats(&self) -> usize {
        self.floats
    }

    /// Where the moment of this float of the gradients is; `None` if another process has it.
    pub fn place_of(&self, float: usize) -> Option<usize> {
        let index = self.pieces.partition_point(|piece| piece.start <= float).checked_sub(1)?;
        self.pieces[index].contains(&float).then(|| self.places[index] + float - self.pieces[index].start)
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
        let places = [0, 7, 64, 99, 500, 10, 100, 507].map(|float| shard.place_of(float));
        assert_eq!(places, [Some(0), Some(7), Some(10), Some(45), Some(46), None, None, None]);
    }
}
