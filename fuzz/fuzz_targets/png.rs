//! PNG files whose checksums are made right, so that what they guard is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::decode_image;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
    !bytes.iter().fold(!0, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

fn repaired(input: &[u8]) -> Vec<u8> {
    let mut file = SIGNATURE.to_vec();
    let mut rest = input.strip_prefix(SIGNATURE).unwrap_or(input);
    while let Some((head, tail)) = rest.split_at_checked(8) {
        let asked = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let length = asked.min(tail.len());
        let (content, after) = tail.split_at(length);
        file.extend((length as u32).to_be_bytes());
        file.extend(&head[4..8]);
        file.extend(content);
        file.extend(checksum(&[&head[4..8], content].concat()).to_be_bytes());
        rest = after.get(4..).unwrap_or_default();
    }
    file
}

fuzz_target!(|input: &[u8]| decode_image(&repaired(input)));
