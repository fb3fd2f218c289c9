//! Values that the comparison script computes as well: pure functions of a name and a position.

/// A hash of a 32-bit number; 64-bit multiplication makes it easy to write in any language.
fn mix(bits: u32) -> u32 {
    let bits = (bits ^ (bits >> 16)).wrapping_mul(0x7feb_352d);
    let bits = (bits ^ (bits >> 15)).wrapping_mul(0x846c_a68b);
    bits ^ (bits >> 16)
}

fn bits_of(name: &str) -> impl Fn(usize) -> u32 {
    let seed = name.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // Hashed twice, so that two names do not give one sequence at two offsets.
    move |position| mix(mix(position as u32).wrapping_add(seed))
}

/// Uniformly distributed around 0, with standard deviation 1.
fn spread(name: &str) -> impl Fn(usize) -> f32 {
    let bits = bits_of(name);
    move |position| ((bits(position) >> 8) as f32 / 16_777_216.0 - 0.5) * 12f32.sqrt()
}

/// The values of an input.
pub fn input(name: &str) -> impl Fn(usize) -> f32 {
    let value = spread(name);
    let rate = name == "learning_rate";
    move |position| if rate { 1e-3 } else { value(position) }
}

/// Labels: every benchmark has at least ten classes.
pub fn label(name: &str) -> impl Fn(usize) -> i32 {
    let bits = bits_of(name);
    move |position| (bits(position) % 10) as i32
}

/// The values of a parameter: matrices preserve the magnitude of activations, scales are around 1, shifts around 0.
pub fn parameter(name: &str, axes: &[usize]) -> impl Fn(usize) -> f32 {
    let value = spread(name);
    let (centre, width) = match axes {
        [_, columns] => (0.0, 1.0 / (*columns as f32).sqrt()),
        _ if name.ends_with("weight") => (1.0, 0.1),
        _ => (0.0, 0.1),
    };
    move |position| centre + width * value(position)
}
