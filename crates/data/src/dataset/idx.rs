//! The IDX format of the MNIST family: `0 0 type rank`, the axes as big-endian 32-bit integers, the values.

/// The bytes of an IDX file with their shape.
pub(super) struct Idx {
    pub axes: Vec<usize>,
    pub values: Vec<u8>,
}

/// Parses an unpacked file of unsigned bytes.
pub(super) fn parse(bytes: &[u8]) -> Result<Idx, String> {
    let [0, 0, kind, rank, rest @ ..] = bytes else { return Err("it does not begin like an IDX file".to_string()) };
    if *kind != 8 {
        return Err(format!("its values are of type {kind:#04x}; images and labels are bytes, 0x08"));
    }
    let rank = usize::from(*rank);
    if rest.len() < 4 * rank {
        return Err("it ends within its header".to_string());
    }
    let (axes, values) = rest.split_at(4 * rank);
    let axes: Vec<usize> =
        axes.chunks_exact(4).map(|axis| u32::from_be_bytes([axis[0], axis[1], axis[2], axis[3]]) as usize).collect();
    let expected = axes.iter().try_fold(1usize, |product, &axis| product.checked_mul(axis));
    if expected != Some(values.len()) {
        return Err(format!("its header says {axes:?} values, but it has {}", values.len()));
    }
    Ok(Idx { axes, values: values.to_vec() })
}
