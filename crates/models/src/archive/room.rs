//! Memory for the values of a tensor: asked for before it is taken, because a system that has too little may kill the process
//! instead of refusing.

use vitreous_engine::machine::{available_memory, refusal};

use super::error::{ArchiveError, Result, shortened};

const ADVICE: &str = "free some memory, or use a machine with more";

/// An empty list with room for so many values, of which `copies` are held at a time.
pub(crate) fn room<T>(tensor: &str, count: usize, copies: usize) -> Result<Vec<T>> {
    let bytes = count.saturating_mul(size_of::<T>()).saturating_mul(copies) as u64;
    let what = format!("reading the tensor `{}`", shortened(tensor));
    // Small ones are not worth asking.
    let available = if bytes < 1 << 20 { None } else { available_memory() };
    if let Some(available) = available.filter(|&available| bytes > available) {
        return Err(ArchiveError::Memory(refusal(&what, bytes, available, ADVICE).to_string()));
    }
    let mut room = Vec::new();
    room.try_reserve_exact(count)
        .map_err(|_| ArchiveError::Memory(format!("{what}: the system refused {bytes} bytes of memory; {ADVICE}")))?;
    Ok(room)
}

/// Zeros, as [`room`].
pub(crate) fn zeros(tensor: &str, count: usize, copies: usize) -> Result<Vec<f32>> {
    let mut zeros = room(tensor, count, copies)?;
    zeros.resize(count, 0.0);
    Ok(zeros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_not_tried() {
        assert_eq!(zeros("small", 3, 2).expect("memory"), [0.0; 3]);
        for count in [1 << 44, usize::MAX / 4, usize::MAX] {
            let said = room::<f32>("a.weight", count, 1).expect_err("too much").to_string();
            assert!(said.contains("reading the tensor `a.weight`") && said.contains("free some memory"), "{said}");
        }
    }
}
