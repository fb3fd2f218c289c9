//! Numbers that the comparison script makes again on its side: pure functions of a name and a position.

/// Well mixed bits of a 32-bit number; 64-bit products keep it easy to write in any language.
fn mix(bits: u32) -> u32 {
    let bits = (bits ^ (bits >> 16)).wrapping_mul(0x7feb_352d);
    let bits = (bits ^ (bits >> 15)).wrapping_mul(0x846c_a68b);
    bits ^ (bits >> 16)
}

fn bits_of(name: &str) -> impl Fn(usize) -> u32 {
    let seed = name.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // Mixed twice, so that two names do not give one sequence at two offsets.
    move |position| mix(mix(position as u32).wrapping_add(seed))
}

/// Evenly distributed around 0, with standard deviation 1.
fn spread(name: &str) -> impl Fn(usize) -> f32 {
    let bits = bits_of(name);
    move |position| ((bits(position) >> 8) as f32 / 16_777_216.0 - 0.5) * 12f32.sqrt()
}

/// An input's numbers.
pub fn input(name: &str) -> impl Fn(usize) -> f32 {
    let value = spread(name);
    let rate = name == "learning_rate";
    move |position| if rate { 1e-3 } else { value(position) }
}

/// Labels: every subject has at least ten classes.
pub fn label(name: &str) -> impl Fn(usize) -> i32 {
    let bits = bits_of(name);
    move |position| (bits(position) % 10) as i32
}

/// A parameter's numbers: matrices keep the size of what goes through them, scales are around 1, shifts around 0.
pub fn parameter(name: &str, axes: &[usize]) -> impl Fn(usize) -> f32 {
    let value = spread(name);
    let (centre, width) = match axes {
        [_, columns] => (0.0, 1.0 / (*columns as f32).sqrt()),
        _ if name.ends_with("weight") => (1.0, 0.1),
        _ => (0.0, 0.1),
    };
    move |position| centre + width * value(position)
}
