//! Adds up the gradients of all ranks, bucket by bucket, while the backward pass goes on.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use vitreous_engine::collective::{Bucket, Buckets, Pending, Sums, Wire, World, gather_parts};
use vitreous_engine::{Graph, Parameter, Shard, State};

use crate::error::TrainError;

/// The sums of gradients over ranks, of one update after the other.
pub struct Reducer {
    world: Arc<World>,
    buckets: Arc<Buckets>,
    /// The same pieces in the flat buffer of parameters.
    parameters: Vec<Bucket>,
    /// By parameter: its bucket, and where it begins there.
    places: Vec<Option<(usize, usize)>>,
    /// Whether each rank keeps its sums, and updates its pieces alone.
    sharded: bool,
    /// By bucket: this rank's sums so far.
    sums: Vec<Arc<Mutex<Sums>>>,
    wire: Wire,
    /// Used memory of buckets.
    spare: Arc<Mutex<Vec<Vec<f32>>>>,
    round: Round,
}

/// What is under way: at most one batch of each rank.
#[derive(Default)]
struct Round {
    contributors: usize,
    is_last: bool,
    /// By bucket: what is there of it, and how many floats are missing.
    filling: Vec<(Vec<f32>, usize)>,
    /// The next bucket to send: all ranks send them in the same order.
    next: usize,
    /// The sums of the last batches, on their way.
    pending: Vec<Pending<Vec<f32>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reducer {
    /// For the trained parameters of an update, in buckets of about so many floats. Each rank gets all sums, or keeps its own if moments are
    /// `sharded`.
    pub fn new(world: Arc<World>, update: &Graph, floats: usize, wire: Wire, sharded: bool) -> Reducer {
        let table = update.parameters();
        let undivided = if sharded { Shard::undivided(update) } else { HashSet::new() };
        // The backward pass comes to the last layers first.
        let trained = || {
            let all = table.iter().enumerate().rev();
            all.filter_map(|(index, parameter)| Some((index, parameter, parameter.gradient_offset?)))
        };
        let pieces = |index: usize, start: usize| {
            let length = table[index].shape.elements();
            if undivided.contains(&index) {
                std::iter::once(start..start + length).collect()
            } else {
                Shard::tiles(start, length)
            }
        };
        let gradients: Vec<Vec<Range<usize>>> = trained().map(|(index, _, start)| pieces(index, start)).collect();
        let values: Vec<Vec<Range<usize>>> =
            trained().map(|(index, parameter, _)| pieces(index, parameter.offset)).collect();
        let buckets = Buckets::new(&gradients, floats, world.size());
        let parameters = Buckets::new(&values, floats, world.size()).all().to_vec();
        let mut places = vec![None; table.len()];
        let (mut bucket, mut start) = (0, 0);
        for (index, parameter, _) in trained() {
            if buckets.all().get(bucket).is_some_and(|all| start >= all.floats()) {
                (bucket, start) = (bucket + 1, 0);
            }
            places[index] = Some((bucket, start));
            start += parameter.shape.elements();
        }
        let sums = buckets.all().iter().map(|_| Arc::default()).collect();
        let (spare, round) = (Arc::default(), Round::default());
        Reducer { world, buckets: Arc::new(buckets), parameters, places, sharded, sums, wire, spare, round }
    }

    /// The pieces that this rank updates; `None` if it updates all.
    pub fn shard(&self) -> Option<Shard> {
        let rank = self.world.rank();
        let own = self.buckets.all().iter().flat_map(|bucket| bucket.pieces_of(rank).to_vec());
        self.sharded.then(|| Shard::new(own.collect()))
    }

    /// Bytes that it may take: a copy of the gradients on their way, this rank's sums, and what it receives.
    pub fn bytes(table: &[Parameter], ranks: usize) -> usize {
        let trained = table.iter().filter(|parameter| parameter.gradient_offset.is_some());
        let floats: usize = trained.map(|parameter| parameter.shape.elements()).sum();
        4 * (2 * floats + floats / ranks.max(1))
    }

    /// The others.
    pub(super) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The bucket of a parameter, and where it is among the floats of that; `None` if it is not trained.
    pub(super) fn place_of(&self, index: usize, parameter: &Parameter) -> Option<(&Bucket, Range<usize>)> {
        let (bucket, start) = self.places[index]?;
        Some((&self.buckets.all()[bucket], start..start + parameter.shape.elements()))
    }

    /// The buckets of gradients, and of parameters.
    pub(super) fn buckets(&self) -> (&[Bucket], &[Bucket]) {
        (self.buckets.all(), &self.parameters)
    }

    /// Begins a batch of each of the first ranks.
    pub fn begin(&mut self, contributors: usize, is_last: bool) {
        let filling = self.buckets.all().iter().map(|bucket| (Vec::new(), bucket.floats())).collect();
        self.round = Round { contributors, is_last, filling, next: 0, pending: Vec::new() };
    }

    /// Takes the gradient of a parameter. A bucket that is full goes on its way.
    pub fn take(&mut self, parameter: usize, gradient: &[f32]) {
        let Some((bucket, start)) = self.places[parameter] else { return };
        let floats = self.buckets.all()[bucket].floats();
        let (filled, missing) = &mut self.round.filling[bucket];
        if filled.is_empty() {
            *filled = lock(&self.spare).pop().unwrap_or_default();
            filled.resize(floats, 0.0);
        }
        filled[start..start + gradient.len()].copy_from_slice(gradient);
        *missing -= gradient.len();
        while let Some((filled, 0)) = self.round.filling.get_mut(self.round.next) {
            let filled = std::mem::take(filled);
            self.send(Some(filled));
        }
    }

    /// Takes the gradients of all parameters.
    pub fn take_all(&mut self, state: &State) {
        for (index, parameter) in state.table().iter().enumerate() {
            let Some(start) = parameter.gradient_offset else { continue };
            self.take(index, &state.gradients()[start..start + parameter.shape.elements()]);
        }
    }

    /// This rank has no batch this time.
    pub fn skip(&mut self) {
        while self.round.next < self.buckets.all().len() {
            self.send(None);
        }
    }

    fn send(&mut self, own: Option<Vec<f32>>) {
        let index = self.round.next;
        self.round.next += 1;
        let (buckets, sums) = (self.buckets.clone(), self.sums[index].clone());
        let (spare, wire) = (self.spare.clone(), self.wire);
        let Round { contributors, is_last, .. } = self.round;
        let sharded = self.sharded;
        let pending = self.world.start(move |link| {
            let bucket = &buckets.all()[index];
            let mut sums = lock(&sums);
            sums.add(link, bucket, own.as_deref(), contributors, wire)?;
            lock(&spare).extend(own);
            match is_last {
                true if sharded => Ok(sums.finish()),
                true => gather_parts(link, bucket, &sums.finish(), wire),
                false => Ok(Vec::new()),
            }
        });
        self.round.pending.push(pending);
    }

    /// Waits for what is on its way. After the last batches, the sums are the gradients of the state: all of them, or those of this rank's
    /// pieces.
    pub fn finish(&mut self, state: &mut State) -> Result<(), TrainError> {
        if self.round.is_last {
            state.bring_home()?;
        }
        for (index, pending) in std::mem::take(&mut self.round.pending).into_iter().enumerate() {
            let floats = self.world.wait(pending)?;
            if self.round.is_last {
                let bucket = &self.buckets.all()[index];
                let pieces = if self.sharded { bucket.pieces_of(self.world.rank()) } else { &bucket.pieces };
                Bucket::scatter(pieces, &floats, state.gradients_mut());
            }
        }
        Ok(())
    }
}
