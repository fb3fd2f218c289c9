//! Whether something fits into a device's memory and, where it does not, what would.

use vitreous_engine::machine::{refusal, size_in_words};
use vitreous_engine::{Device, Result};

/// The fraction of the available memory that what we choose or advise may use: what is available changes from one minute to the next.
const COMFORTABLE: f64 = 0.97;
/// Sizes that are tried for a piece of advice: each costs a plan, which may take a tenth of a second.
const MOST_TRIES: usize = 10;

/// Something that takes memory, of a size that can be changed.
#[derive(Clone, Debug)]
pub struct MemoryRequest<'r> {
    /// What needs the memory, as in "training with train.batch=512".
    pub purpose: String,
    /// What its size is written behind: `train.batch=`.
    pub setting: &'r str,
    /// Its size: images or tokens at a time.
    pub size: usize,
    /// The smallest size that makes sense.
    pub least: usize,
    /// Bytes that it takes.
    pub bytes: usize,
    /// How to have activations recomputed, where they could be and are not: `train.recompute=true`.
    pub recompute: Option<&'r str>,
    /// Another setting that would need less, and how many bytes less: `train.shard=optimizer`.
    pub other: Option<(&'r str, usize)>,
}

/// Refuses what does not fit into the free memory of a device, and says which size would fit, and what recomputing activations would
/// need. `needed` gives the bytes of another size, with recomputation or without; `None` if there is no such size.
pub fn check(device: &Device, request: &MemoryRequest, needed: impl FnMut(usize, bool) -> Option<usize>) -> Result<()> {
    check_within(device.available_memory()?, request, needed)
}

/// Whether this many bytes fit into the free memory of a device with some room to spare: for sizes that are ours to choose.
pub fn fits_well(device: &Device, bytes: usize) -> Result<bool> {
    Ok(device.available_memory()?.is_none_or(|available| bytes <= comfortable(available)))
}

fn comfortable(available: u64) -> usize {
    (available as f64 * COMFORTABLE) as usize
}

/// As [`check`], where so many bytes are available; `None` if that is unknown.
pub(crate) fn check_within(
    available: Option<u64>,
    request: &MemoryRequest,
    mut needed: impl FnMut(usize, bool) -> Option<usize>,
) -> Result<()> {
    let Some(available) = available.filter(|&available| request.bytes as u64 > available) else { return Ok(()) };
    let limit = comfortable(available);
    let plain = largest(request, request.bytes, limit, |size| needed(size, false));
    let mut advice: Vec<String> =
        plain.iter().map(|size| format!("take a smaller batch: {}{size} would fit", request.setting)).collect();
    if let Some(name) = request.recompute
        && let Some(bytes) = needed(request.size, true).filter(|&bytes| bytes < request.bytes)
    {
        let in_words = size_in_words(bytes as u64);
        if bytes <= limit {
            advice.push(format!("{name} would need {in_words}"));
        } else if let Some(size) =
            largest(request, bytes, limit, |size| needed(size, true)).filter(|&size| plain < Some(size))
        {
            advice.push(format!("{name} would need {in_words}, and fit with {}{size}", request.setting));
        }
    }
    if let Some((name, less)) = request.other.filter(|&(_, less)| less > 0) {
        let bytes = request.bytes.saturating_sub(less);
        let enough = if bytes <= limit { "" } else { ", which alone is not enough" };
        advice.push(format!("{name} would need {}{enough}", size_in_words(bytes as u64)));
    }
    if advice.is_empty() {
        advice.push("no smaller batch fits: take a smaller image or model".to_string());
    }
    Err(refusal(&request.purpose, request.bytes as u64, available, &advice.join("; or ")))
}

/// The largest size below the requested one that fits, as far as it is found in a few tries. Memory grows nearly in proportion, so
/// linear interpolation between two sizes mostly hits it.
fn largest(
    request: &MemoryRequest,
    bytes: usize,
    limit: usize,
    mut needed: impl FnMut(usize) -> Option<usize>,
) -> Option<usize> {
    if request.least >= request.size {
        return None;
    }
    let (mut low, mut high) = ((request.least, needed(request.least)?), (request.size, bytes));
    if low.1 > limit {
        return None;
    }
    for turn in 1..MOST_TRIES {
        if high.0 - low.0 <= 1 {
            break;
        }
        let guess = match turn % 3 {
            // Where the line is far from straight, this comes nearer all the same.
            0 => (low.0 as f64 * high.0 as f64).sqrt() as usize,
            _ => {
                let share = (limit - low.1) as f64 / high.1.saturating_sub(low.1).max(1) as f64;
                low.0 + (share * (high.0 - low.0) as f64) as usize
            }
        };
        let guess = guess.clamp(low.0 + 1, high.0 - 1);
        match needed(guess) {
            Some(bytes) if bytes <= limit => low = (guess, bytes),
            other => high = (guess, other.unwrap_or(high.1)),
        }
    }
    Some(low.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn request(size: usize, bytes: usize) -> MemoryRequest<'static> {
        let purpose = format!("training with train.batch={size}");
        MemoryRequest {
            purpose,
            setting: "train.batch=",
            size,
            least: 1,
            bytes,
            recompute: Some("train.recompute=true"),
            other: None,
        }
    }

    /// What a batch of made-up activations needs.
    fn needed(size: usize, recompute: bool) -> Option<usize> {
        size.checked_mul(if recompute { MIB } else { 8 * MIB })?.checked_add(100 * MIB)
    }

    fn refused(size: usize, available: usize) -> String {
        let bytes = needed(size, false).expect("a size");
        check_within(Some(available as u64), &request(size, bytes), needed).expect_err("too much").to_string()
    }

    #[test]
    fn what_fits_is_not_refused() {
        let never = |_, _| panic!("nothing else is asked for");
        assert_eq!(check_within(Some(100), &request(7, 100), never), Ok(()));
        assert_eq!(check_within(None, &request(7, 100), never), Ok(()));
        assert_eq!(check(&Device::Cpu { threads: 1 }, &request(7, 0), never), Ok(()));
    }

    #[test]
    fn a_refusal_says_the_batch_that_fits_and_what_recomputation_needs() {
        // 97 % of 1000 MiB, less 100, are 108 times 8 MiB.
        assert_eq!(
            refused(512, 1000 * MIB),
            "training with train.batch=512 needs 4.1 GiB (4399824896 bytes) of memory, but 1000 MiB are available; \
             take a smaller batch: train.batch=108 would fit; or train.recompute=true would need 612 MiB"
        );
        // It does not help this batch, but a larger one than the other.
        let both = refused(5000, 1000 * MIB);
        assert!(
            both.contains(
                "train.batch=108 would fit; or train.recompute=true would need 5.0 GiB, and fit with train.batch=870"
            ),
            "{both}"
        );
        // A batch of one that only recomputation saves.
        let one = refused(1, 105 * MIB);
        assert!(one.ends_with("available; train.recompute=true would need 101 MiB"), "{one}");
        // Nothing helps.
        let none = refused(512, 50 * MIB);
        assert!(none.ends_with("no smaller batch fits: take a smaller image or model"), "{none}");
        // Moments could be shared out, too.
        let request_sharded =
            |less| MemoryRequest { other: Some(("train.shard=optimizer", less)), ..request(1, 108 * MIB) };
        let sharded = |less| {
            check_within(Some(105 << 20), &request_sharded(less), |_, _| None).expect_err("too much").to_string()
        };
        assert!(
            sharded(8 * MIB).ends_with("available; train.shard=optimizer would need 100 MiB"),
            "{}",
            sharded(8 * MIB)
        );
        assert!(sharded(MIB).ends_with("would need 107 MiB, which alone is not enough"), "{}", sharded(MIB));
        // Recomputation is on already.
        let request = MemoryRequest { recompute: None, ..request(512, 4096 * MIB) };
        let without = check_within(Some(1000 << 20), &request, needed).expect_err("too much").to_string();
        assert!(without.contains("train.batch=") && !without.contains("recompute"), "{without}");
    }

    #[test]
    fn a_few_tries_find_the_largest() {
        for limit in [12_345, 1 << 20, 77_777_777] {
            // In steps, as memory is placed in, and with another slope from 300 on.
            let bytes = |size: usize| (900 + 7 * size + 5 * size.saturating_sub(300)).next_multiple_of(64);
            let size = 50_000_000;
            let mut tries = 0;
            let counted = |size| {
                tries += 1;
                Some(bytes(size))
            };
            let found = largest(&request(size, bytes(size)), bytes(size), limit, counted).expect("one fits");
            assert!(bytes(found) <= limit, "{limit}: {found}");
            let best = (1..size).take_while(|&size| bytes(size) <= limit).last().expect("one fits");
            assert!(found as f64 >= 0.99 * best as f64, "{limit}: {found} of {best}");
            assert!((2..=MOST_TRIES).contains(&tries), "{tries}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_not_offered() {
        // As sentences are longer than a batch of few tokens.
        let request = MemoryRequest { least: 100, ..request(512, 4096 * MIB) };
        let limit = 900 * MIB;
        assert_eq!(largest(&request, request.bytes, limit, |size| needed(size, false)), Some(100));
        assert_eq!(largest(&request, request.bytes, limit - 1, |size| needed(size, false)), None);
        assert_eq!(largest(&request, request.bytes, limit, |_| None), None);
    }
}
