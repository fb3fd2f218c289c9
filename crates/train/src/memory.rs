//! Whether an order fits into a device's memory and, where it does not, what would.

use vitreous_engine::machine::{refusal, size_in_words};
use vitreous_engine::{Device, Result};

/// The share of the available memory that what we choose or advise may use: what is available changes from one minute to the next.
const COMFORTABLE: f64 = 0.97;
/// Sizes that are tried for a piece of advice: each costs a plan, which may take a tenth of a second.
const MOST_TRIES: usize = 10;

/// Something that takes memory, of a size that can be changed.
#[derive(Clone, Debug)]
pub struct Order<'o> {
    /// What needs the memory, as in "training with train.batch=512".
    pub what: String,
    /// What its size is written behind: `train.batch=`.
    pub setting: &'o str,
    /// Its size: images or tokens at a time.
    pub size: usize,
    /// The least size that makes sense.
    pub least: usize,
    /// Bytes that it takes.
    pub bytes: usize,
    /// How to have activations recomputed, where they could be and are not: `train.recompute=true`.
    pub recompute: Option<&'o str>,
}

/// Refuses an order that does not fit into what is free of a device's memory, and says which size would, and what recomputing
/// activations would need. `needed` gives the bytes of another size, with recomputation or without; `None` if that cannot be.
pub fn check(device: &Device, order: &Order, needed: impl FnMut(usize, bool) -> Option<usize>) -> Result<()> {
    match device.available_memory()? {
        Some(available) => check_within(available, order, needed),
        None => Ok(()),
    }
}

/// Whether so many bytes fit into what is free of a device's memory, with some air: for orders whose size is ours to choose.
pub fn fits_well(device: &Device, bytes: usize) -> Result<bool> {
    Ok(device.available_memory()?.is_none_or(|available| bytes <= comfortable(available)))
}

fn comfortable(available: u64) -> usize {
    (available as f64 * COMFORTABLE) as usize
}

fn check_within(available: u64, order: &Order, mut needed: impl FnMut(usize, bool) -> Option<usize>) -> Result<()> {
    if order.bytes as u64 <= available {
        return Ok(());
    }
    let limit = comfortable(available);
    let plain = largest(order, order.bytes, limit, |size| needed(size, false));
    let mut advice: Vec<String> =
        plain.iter().map(|size| format!("take a smaller batch: {}{size} would fit", order.setting)).collect();
    if let Some(name) = order.recompute
        && let Some(bytes) = needed(order.size, true).filter(|&bytes| bytes < order.bytes)
    {
        let in_words = size_in_words(bytes as u64);
        if bytes <= limit {
            advice.push(format!("{name} would need {in_words}"));
        } else if let Some(size) =
            largest(order, bytes, limit, |size| needed(size, true)).filter(|&size| plain < Some(size))
        {
            advice.push(format!("{name} would need {in_words}, and fit with {}{size}", order.setting));
        }
    }
    if advice.is_empty() {
        advice.push("no smaller batch fits: take a smaller image or model".to_string());
    }
    Err(refusal(&order.what, order.bytes as u64, available, &advice.join("; or ")))
}

/// The largest size below an order's that fits, as far as it is found in a few tries; it does fit. Memory grows nearly in proportion, so
/// a straight line between two sizes mostly hits it.
fn largest(order: &Order, bytes: usize, limit: usize, mut needed: impl FnMut(usize) -> Option<usize>) -> Option<usize> {
    if order.least >= order.size {
        return None;
    }
    let (mut low, mut high) = ((order.least, needed(order.least)?), (order.size, bytes));
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

    fn order(size: usize, bytes: usize) -> Order<'static> {
        let what = format!("training with train.batch={size}");
        Order { what, setting: "train.batch=", size, least: 1, bytes, recompute: Some("train.recompute=true") }
    }

    /// What a batch of made-up activations needs.
    fn needed(size: usize, recompute: bool) -> Option<usize> {
        size.checked_mul(if recompute { MIB } else { 8 * MIB })?.checked_add(100 * MIB)
    }

    fn refused(size: usize, available: usize) -> String {
        let bytes = needed(size, false).expect("a size");
        check_within(available as u64, &order(size, bytes), needed).expect_err("too much").to_string()
    }

    #[test]
    fn what_fits_is_not_refused() {
        let never = |_, _| panic!("nothing else is asked for");
        assert_eq!(check_within(100, &order(7, 100), never), Ok(()));
        assert_eq!(check(&Device::Cpu { threads: 1 }, &order(7, 0), never), Ok(()));
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
        // Recomputation is on already.
        let order = Order { recompute: None, ..order(512, 4096 * MIB) };
        let without = check_within(1000 << 20, &order, needed).expect_err("too much").to_string();
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
            let found = largest(&order(size, bytes(size)), bytes(size), limit, counted).expect("one fits");
            assert!(bytes(found) <= limit, "{limit}: {found}");
            let best = (1..size).take_while(|&size| bytes(size) <= limit).last().expect("one fits");
            assert!(found as f64 >= 0.99 * best as f64, "{limit}: {found} of {best}");
            assert!((2..=MOST_TRIES).contains(&tries), "{tries}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_not_offered() {
        // As sentences are longer than a batch of few tokens.
        let order = Order { least: 100, ..order(512, 4096 * MIB) };
        let limit = 900 * MIB;
        assert_eq!(largest(&order, order.bytes, limit, |size| needed(size, false)), Some(100));
        assert_eq!(largest(&order, order.bytes, limit - 1, |size| needed(size, false)), None);
        assert_eq!(largest(&order, order.bytes, limit, |_| None), None);
    }
}
