//! Numbers that the tests and the scripts beside their fixtures compute alike, so that they need not be stored.

/// Numbers in -1..1 by a hash of the place, as the scripts compute them.
pub fn hashed(name: &str, count: usize) -> Vec<f32> {
    let crc = name.bytes().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    });
    let start = u64::from(!crc) << 20;
    let number = |index: u64| {
        let x = start + index;
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count as u64).map(number).collect()
}
