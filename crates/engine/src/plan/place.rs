//! Assigns every temporary an offset in one arena: values whose lifetimes do not overlap share memory.

/// Alignment of offsets in bytes: a cache line.
pub(super) const ALIGNMENT: usize = 64;

/// A value that needs memory from one kernel to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Temporary {
    /// Its size.
    pub bytes: usize,
    /// The kernel that writes it.
    pub first: usize,
    /// The last kernel that reads it.
    pub last: usize,
}

/// The offsets, and the size of the arena.
pub(super) struct Placement {
    pub offsets: Vec<usize>,
    pub arena_bytes: usize,
}

/// First fit by decreasing size: each temporary gets the lowest offset that is free during its lifetime. `None` if the
/// arena would exceed the address space.
pub(super) fn place(temporaries: &[Temporary]) -> Option<Placement> {
    let sizes = temporaries.iter().map(|temporary| temporary.bytes.checked_next_multiple_of(ALIGNMENT));
    sizes.into_iter().try_fold(0usize, |sum, size| sum.checked_add(size?)).filter(|&sum| sum <= isize::MAX as usize)?;
    let mut by_size: Vec<usize> = (0..temporaries.len()).collect();
    by_size.sort_by_key(|&index| (std::cmp::Reverse(temporaries[index].bytes), temporaries[index].first));
    let mut offsets = vec![0; temporaries.len()];
    let mut placed: Vec<usize> = Vec::new(); // ordered by offset
    let mut arena_bytes = 0;
    for index in by_size {
        let wanted = temporaries[index];
        let bytes = wanted.bytes.next_multiple_of(ALIGNMENT);
        let mut offset = 0;
        for &other in &placed {
            let there = temporaries[other];
            if there.first > wanted.last || there.last < wanted.first {
                continue;
            }
            if offsets[other] >= offset + bytes {
                break;
            }
            offset = offset.max(offsets[other] + there.bytes.next_multiple_of(ALIGNMENT));
        }
        offsets[index] = offset;
        arena_bytes = arena_bytes.max(offset + bytes);
        let at = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(at, index);
    }
    Some(Placement { offsets, arena_bytes })
}

/// The most bytes alive at any time: a lower bound for every placement.
pub(super) fn lower_bound(temporaries: &[Temporary]) -> usize {
    let end = temporaries.iter().map(|t| t.last + 2).max().unwrap_or(0);
    let mut change = vec![0isize; end];
    for temporary in temporaries {
        let bytes = temporary.bytes.next_multiple_of(ALIGNMENT) as isize;
        change[temporary.first] += bytes;
        change[temporary.last + 1] -= bytes;
    }
    let mut alive = 0;
    change
        .iter()
        .map(|delta| {
            alive += delta;
            alive
        })
        .max()
        .unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_alive_together_never_overlap(
            raw in prop::collection::vec((1usize..5000, 0usize..40, 0usize..12), 1..80)
        ) {
            let temporaries: Vec<Temporary> =
                raw.iter().map(|&(bytes, first, life)| Temporary { bytes, first, last: first + life }).collect();
            let placement = place(&temporaries).unwrap();
            for (i, a) in temporaries.iter().enumerate() {
                prop_assert!(placement.offsets[i] + a.bytes <= placement.arena_bytes);
                prop_assert_eq!(placement.offsets[i] % ALIGNMENT, 0);
                for (j, b) in temporaries.iter().enumerate().skip(i + 1) {
                    let together = a.first <= b.last && b.first <= a.last;
                    let (p, q) = (placement.offsets[i], placement.offsets[j]);
                    prop_assert!(!together || p + a.bytes <= q || q + b.bytes <= p, "{} and {}", i, j);
                }
            }
            prop_assert!(placement.arena_bytes >= lower_bound(&temporaries));
        }
    }
}
