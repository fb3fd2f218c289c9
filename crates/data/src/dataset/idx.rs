//! The IDX format of the MNIST family: `0 0 type rank`, the axes as big-endian 32-bit integers, the values.

use std::io::Read;

/// The most values of a file; 60,000 images have 47 million.
const MOST_VALUES: u64 = 8 << 30;

/// The bytes of an IDX file with their shape.
pub(super) struct Idx {
    pub axes: Vec<usize>,
    pub values: Vec<u8>,
}

/// Reads an unpacked file of unsigned bytes with a number of axes. `expected` is the first axis, where it is known, and the file that says so. Values are read only
/// if the header says what it should, and no more of them than it says.
pub(super) fn read(mut from: impl Read, rank: usize, expected: Option<(usize, &str)>) -> Result<Idx, String> {
    let mut head = vec![0; 4 + 4 * rank];
    let ends = |_| "it ends within its header, or is not a complete gzip file".to_string();
    from.read_exact(&mut head[..4]).map_err(ends)?;
    let [0, 0, kind, found] = head[..4] else { return Err("it does not begin like an IDX file".to_string()) };
    if kind != 8 {
        return Err(format!("its values are of type {kind:#04x}; images and labels are bytes, 0x08"));
    }
    if usize::from(found) != rank {
        return Err(format!("it has {found} axes, but {rank} are expected"));
    }
    from.read_exact(&mut head[4..]).map_err(ends)?;
    let axis = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let axes: Vec<usize> = head[4..].chunks_exact(4).map(axis).collect();
    let total = axes.iter().try_fold(1u64, |product, &axis| product.checked_mul(axis as u64));
    let total = total.filter(|&total| total <= MOST_VALUES);
    let total = total.ok_or_else(|| format!("its header says {axes:?} values, which is more than such a file has"))?;
    if let (Some((expected, labels)), Some(&count)) = (expected, axes.first())
        && count != expected
    {
        return Err(format!("it has {count} images, but {labels} has {expected} labels"));
    }
    let mut values = Vec::new();
    from.take(total + 1)
        .read_to_end(&mut values)
        .map_err(|error| format!("it cannot be read, or is not a complete gzip file: {error}"))?;
    match values.len() as u64 {
        found if found > total => Err(format!("its header says {axes:?} values, but it has more")),
        found if found < total => Err(format!("its header says {axes:?} values, but it has {found}")),
        _ => Ok(Idx { axes, values }),
    }
}
