//! Sums over ranks in a fixed order.
//!
//! One process adds the gradients of its batches one after the other: `((g₀ + g₁) + g₂) + …`. Here batch `k` is that of rank `k mod N`,
//! and each rank adds up a part of every bucket: it receives that part from all others and adds them in the order of the batches,
//! which is the order of the ranks. So the sums are the same bits as one process's, whatever library carries the numbers.

use half::bf16;

use super::{Bucket, Collective};
use crate::error::Result;

/// How numbers travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// As they are.
    #[default]
    F32,
    /// Rounded to bf16: half the bytes, and no longer the sums of one process.
    Bf16,
}

impl Wire {
    /// Numbers as they arrive: those of the own rank are rounded as those of all others are.
    fn round(self, floats: &mut [f32]) {
        if self == Wire::Bf16 {
            floats.iter_mut().for_each(|float| *float = bf16::from_f32(*float).to_f32());
        }
    }

    fn pack(self, floats: &[f32]) -> Vec<u8> {
        match self {
            Wire::F32 => bytemuck::cast_slice(floats).to_vec(),
            Wire::Bf16 => floats.iter().flat_map(|&float| bf16::from_f32(float).to_le_bytes()).collect(),
        }
    }

    fn bytes(self, floats: usize) -> usize {
        match self {
            Wire::F32 => 4 * floats,
            Wire::Bf16 => 2 * floats,
        }
    }

    fn unpack(self, bytes: &[u8], floats: &mut [f32]) {
        match self {
            Wire::F32 => bytemuck::cast_slice_mut(floats).copy_from_slice(bytes),
            Wire::Bf16 => {
                for (float, pair) in floats.iter_mut().zip(bytes.chunks_exact(2)) {
                    *float = bf16::from_le_bytes([pair[0], pair[1]]).to_f32();
                }
            }
        }
    }
}

/// The sums of this rank's part of a bucket, as far as they have come.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    floats: Vec<f32>,
    begun: bool,
}

impl Sums {
    /// Adds what the first `contributors` ranks have, in their order. `own` are the floats of the whole bucket here; `None` of a rank that
    /// has none this time. All ranks call this.
    pub fn add(
        &mut self,
        link: &mut dyn Collective,
        bucket: &Bucket,
        own: Option<&[f32]>,
        contributors: usize,
        wire: Wire,
    ) -> Result<()> {
        let rank = link.rank();
        let packed: Vec<(usize, Vec<u8>)> = match own {
            Some(floats) => (0..link.size())
                .filter(|&other| other != rank && !bucket.part(other).is_empty())
                .map(|other| (other, wire.pack(&floats[bucket.part(other)])))
                .collect(),
            None => Vec::new(),
        };
        let sends: Vec<(usize, &[u8])> = packed.iter().map(|(to, bytes)| (*to, &bytes[..])).collect();
        let part = bucket.part(rank);
        let mut received: Vec<(usize, Vec<u8>)> = (0..contributors)
            .filter(|&other| other != rank && !part.is_empty())
            .map(|other| (other, vec![0; wire.bytes(part.len())]))
            .collect();
        let mut receives: Vec<(usize, &mut [u8])> =
            received.iter_mut().map(|(from, bytes)| (*from, &mut bytes[..])).collect();
        link.exchange(&sends, &mut receives)?;
        let mut received = received.iter();
        let mut floats = vec![0.0; part.len()];
        for contributor in 0..contributors {
            match (contributor == rank, own) {
                (true, Some(own)) => {
                    floats.copy_from_slice(&own[part.clone()]);
                    wire.round(&mut floats);
                }
                _ => {
                    let Some((_, bytes)) = received.next() else { continue };
                    wire.unpack(bytes, &mut floats);
                }
            }
            self.take(&floats);
        }
        Ok(())
    }

    /// Adds numbers; the first ones replace what was there, so that they keep the sign of their zeros.
    fn take(&mut self, floats: &[f32]) {
        match std::mem::replace(&mut self.begun, true) {
            false => self.floats = floats.to_vec(),
            true => self.floats.iter_mut().zip(floats).for_each(|(sum, float)| *sum += float),
        }
    }

    /// The sums; the next ones begin anew.
    pub fn finish(&mut self) -> Vec<f32> {
        self.begun = false;
        std::mem::take(&mut self.floats)
    }
}

/// The parts of all ranks of a bucket together, where `own` is this rank's. All ranks call this.
pub fn gather_parts(link: &mut dyn Collective, bucket: &Bucket, own: &[f32], wire: Wire) -> Result<Vec<f32>> {
    let rank = link.rank();
    let packed = wire.pack(own);
    let others = || (0..link.size()).filter(|&other| other != rank);
    let sends: Vec<(usize, &[u8])> = others().filter(|_| !own.is_empty()).map(|other| (other, &packed[..])).collect();
    let filled = others().filter(|&other| !bucket.part(other).is_empty());
    let mut received: Vec<(usize, Vec<u8>)> =
        filled.map(|other| (other, vec![0; wire.bytes(bucket.part(other).len())])).collect();
    let mut receives: Vec<(usize, &mut [u8])> =
        received.iter_mut().map(|(from, bytes)| (*from, &mut bytes[..])).collect();
    link.exchange(&sends, &mut receives)?;
    let mut all = vec![0.0; bucket.floats()];
    all[bucket.part(rank)].copy_from_slice(own);
    wire.round(&mut all[bucket.part(rank)]);
    for (from, bytes) in &received {
        wire.unpack(bytes, &mut all[bucket.part(*from)]);
    }
    Ok(all)
}

#[cfg(test)]
// Lists of ranges, some of which have one.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::super::threads::together;
    use super::super::{Buckets, gather_all};
    use super::*;

    /// The gradient of a batch: sums of such numbers depend on their order.
    fn gradient(batch: usize, floats: usize) -> Vec<f32> {
        let number = |place: usize| {
            let bits = (batch * 7919 + place * 104_729 + 1) as u32;
            (f32::from_bits(0x3f80_0000 | bits.wrapping_mul(2_654_435_761) >> 9) - 1.5) * 10f32.powi(bits as i32 % 7)
        };
        (0..floats).map(number).collect()
    }

    #[test]
    fn sums_of_many_ranks_are_those_of_one() {
        const FLOATS: usize = 301;
        let parameters = [vec![0..100, 100..128], vec![130..301]];
        for batches in 1..=7 {
            let mut one = gradient(0, FLOATS);
            for batch in 1..batches {
                one.iter_mut().zip(gradient(batch, FLOATS)).for_each(|(sum, float)| *sum += float);
            }
            // What is between parameters does not travel.
            one[128..130].fill(0.0);
            let mut in_another_order = gradient(batches - 1, FLOATS);
            for batch in (0..batches - 1).rev() {
                in_another_order.iter_mut().zip(gradient(batch, FLOATS)).for_each(|(sum, float)| *sum += float);
            }
            assert!(batches < 3 || one[..100] != in_another_order[..100], "the order must matter");
            for size in 1..=5 {
                for bucket_floats in [10, 1000] {
                    let buckets = Buckets::new(&parameters, bucket_floats, size);
                    let sums = together(size, |link| {
                        let mut flat = vec![0.0; FLOATS];
                        for bucket in buckets.all() {
                            let mut sums = Sums::default();
                            for first in (0..batches).step_by(size) {
                                let contributors = size.min(batches - first);
                                let own = (link.rank() < contributors)
                                    .then(|| bucket.collect(&gradient(first + link.rank(), FLOATS)));
                                sums.add(link, bucket, own.as_deref(), contributors, Wire::F32).expect("an exchange");
                            }
                            let own = sums.finish();
                            let all = gather_parts(link, bucket, &own, Wire::F32).expect("an exchange");
                            Bucket::scatter(&bucket.pieces, &all, &mut flat);
                        }
                        flat
                    });
                    let bits = |floats: &[f32]| floats.iter().map(|float| float.to_bits()).collect::<Vec<_>>();
                    assert!(sums.iter().all(|sums| bits(sums) == bits(&one)), "{batches} batches, {size} ranks");
                }
            }
        }
    }

    #[test]
    fn all_ranks_have_the_same_numbers_with_bf16_on_the_way() {
        let buckets = Buckets::new(&[vec![0..50, 50..90]], 1000, 3);
        let bucket = &buckets.all()[0];
        let sums = together(3, |link| {
            let mut sums = Sums::default();
            let own = gradient(link.rank(), 90);
            sums.add(link, bucket, Some(&own), 3, Wire::Bf16).expect("an exchange");
            let own = sums.finish();
            gather_parts(link, bucket, &own, Wire::Bf16).expect("an exchange")
        });
        assert!(sums.iter().all(|other| *other == sums[0]));
        for place in 0..90 {
            let exact: f32 = (0..3).map(|batch| gradient(batch, 90)[place]).sum();
            let largest = (0..3).map(|batch| gradient(batch, 90)[place].abs()).fold(0.0, f32::max);
            assert!((sums[0][place] - exact).abs() <= largest * 4.0 / 256.0, "{place}");
        }
        let heard = together(2, |link| gather_all(link, b"x").expect("an exchange").len());
        assert_eq!(heard, [2, 2]);
    }
}
