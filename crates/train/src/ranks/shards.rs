//! Moments that are shared out among ranks: each rank updates its pieces. A checkpoint has all of them, and is the same file as one
//! process's.

use std::ops::Range;

use vitreous_engine::collective::{Bucket, Wire, World, gather_parts};
use vitreous_engine::{Floats, ShardLink, State};

use super::reducer::Reducer;
use crate::checkpoint::READS;
use crate::error::TrainError;

/// All moments: the first and the second ones.
pub type Moments = (Floats, Floats);

/// What an update needs of the other ranks.
pub(crate) struct Link<'r> {
    world: &'r World,
    /// Of parameters.
    buckets: &'r [Bucket],
    /// The first thing that went wrong.
    failed: Option<TrainError>,
}

impl<'r> Link<'r> {
    pub fn new(reducer: &'r Reducer) -> Link<'r> {
        Link { world: reducer.world(), buckets: reducer.buckets().1, failed: None }
    }

    /// Whether all went well.
    pub fn result(self) -> Result<(), TrainError> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl ShardLink for Link<'_> {
    fn add_up(&mut self, sums: &mut [f64]) {
        match self.world.gather(bytemuck::cast_slice(sums).to_vec()) {
            Ok(all) => {
                sums.fill(0.0);
                for bytes in &all {
                    let numbers =
                        bytes.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok()).map(f64::from_le_bytes);
                    sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
                }
            }
            Err(error) => {
                // Nothing is updated then.
                sums.fill(f64::NAN);
                self.failed.get_or_insert(error.into());
            }
        }
    }

    fn complete(&mut self, parameters: &mut [f32]) {
        if let Err(error) = complete(self.world, self.buckets, parameters) {
            self.failed.get_or_insert(error);
        }
    }
}

/// Completes a flat buffer with the pieces of the other ranks.
fn complete(world: &World, buckets: &[Bucket], flat: &mut [f32]) -> Result<(), TrainError> {
    let pending: Vec<_> = buckets
        .iter()
        .map(|bucket| {
            let mut own = Vec::with_capacity(bucket.part(world.rank()).len());
            bucket.pieces_of(world.rank()).iter().for_each(|piece| own.extend_from_slice(&flat[piece.clone()]));
            let bucket = bucket.clone();
            world.start(move |link| gather_parts(link, &bucket, &own, Wire::F32))
        })
        .collect();
    for (bucket, floats) in buckets.iter().zip(pending) {
        Bucket::scatter(&bucket.pieces, &world.wait(floats)?, flat);
    }
    Ok(())
}

impl Reducer {
    /// Completes the gradients with the sums of the other ranks.
    pub(crate) fn complete_gradients(&self, state: &mut State) -> Result<(), TrainError> {
        match state.shard().is_some() {
            true => complete(self.world(), self.buckets().0, state.gradients_mut()),
            false => Ok(()),
        }
    }

    /// The moments of a parameter, on rank 0, from the ranks that have them; nothing on the others. All ranks call this. One parameter at a
    /// time, because all moments may be more than rank 0 has room for.
    pub(crate) fn moments_of(&self, state: &State, index: usize, second: bool) -> Result<Vec<f32>, TrainError> {
        let parameter = &state.table()[index];
        let place = self.place_of(index, parameter).zip(state.shard()).zip(parameter.gradient_offset);
        let Some((((bucket, floats), shard), gradient)) = place else { return Ok(Vec::new()) };
        let part_of = |rank: usize| {
            let part = bucket.part(rank);
            let (start, end) = (part.start.max(floats.start), part.end.min(floats.end));
            start..end.max(start)
        };
        let parts: Vec<Range<usize>> = (0..self.world().size()).map(part_of).collect();
        let own = parts[self.world().rank()].clone();
        let (first, other) = state.moments();
        let moments = if second { other } else { first };
        let start = shard.place_of(gradient + own.start - floats.start).filter(|_| !own.is_empty());
        let own = start.map_or(Vec::new(), |start| moments[start..start + own.len()].to_vec());
        Ok(self.world().ask(move |link| {
            if link.rank() > 0 {
                let sends = [(0, bytemuck::cast_slice(&own))];
                link.exchange(&sends[..usize::from(!own.is_empty())], &mut [])?;
                return Ok(Vec::new());
            }
            let mut all = vec![0.0; floats.len()];
            let (mut rest, mut receives) = (&mut all[..], Vec::new());
            for (rank, part) in parts.iter().enumerate() {
                let (part, others) = rest.split_at_mut(part.len());
                rest = others;
                match rank {
                    0 => part.copy_from_slice(&own),
                    _ if part.is_empty() => {}
                    _ => receives.push((rank, bytemuck::cast_slice_mut(part))),
                }
            }
            link.exchange(&[], &mut receives)?;
            Ok(all)
        })?)
    }

    /// Gives rank 0 this rank's moments while it saves a checkpoint.
    pub(crate) fn help_save(&self, state: &State) -> Result<(), TrainError> {
        let trained = state.table().iter().enumerate().filter(|(_, parameter)| parameter.gradient_offset.is_some());
        let trained: Vec<usize> = trained.map(|(index, _)| index).collect();
        for _ in 0..READS {
            for (second, _) in [false, true].into_iter().zip(state.all_moments()).filter(|(_, count)| *count > 0) {
                for &index in &trained {
                    self.moments_of(state, index, second)?;
                }
            }
        }
        Ok(())
    }

    /// Gives each rank the moments of its pieces, where rank 0 has all of them. All ranks call this.
    pub(crate) fn hand_out_moments(&self, all: Option<&Moments>, state: &mut State) -> Result<(), TrainError> {
        let Some(shard) = state.shard().cloned() else { return Ok(()) };
        let rank = self.world().rank();
        for second in [false, true] {
            let whole = all.map(|(first, other)| if second { other } else { first });
            for bucket in self.buckets().0 {
                let bytes = match whole {
                    Some(whole) if !whole.is_empty() => {
                        bytemuck::cast_slice(&bucket.collect(whole.as_slice())).to_vec()
                    }
                    _ => Vec::new(),
                };
                let bytes = self.world().from_first(bytes)?;
                if bytes.is_empty() {
                    continue;
                }
                let part = &bytes[4 * bucket.cuts[rank]..4 * bucket.cuts[rank + 1]];
                let mut numbers =
                    part.chunks_exact(4).filter_map(|chunk| chunk.try_into().ok()).map(f32::from_le_bytes);
                let (first, other) = state.moments_mut();
                let to = if second { other } else { first };
                for piece in bucket.pieces_of(rank) {
                    let place = shard.place_of(piece.start).unwrap_or(0);
                    to[place..place + piece.len()].iter_mut().zip(&mut numbers).for_each(|(to, from)| *to = from);
                }
            }
        }
        Ok(())
    }
}
