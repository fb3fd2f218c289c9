//! The bits of entropy-coded data, the highest of a byte first (T.81, F.2.2.5).
//!
//! Within the data a byte `FF` is followed by `00`; anything else after it is a marker, and the data end there.

/// A fault in entropy-coded data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// More bits were taken than there are before the next marker.
    Ended,
    /// The bits are not a code of the table.
    NoSuchCode,
    /// Another marker is found than the expected restart.
    NoRestart,
}

/// Reads bits up to the next marker.
///
/// Beyond the marker it gives zeros without end, so that nothing has to be checked bit by bit: after a block, [`Bits::check`] says whether
/// any of them were used.
///
/// Functions that are not inlined take and return it by value: a reader whose address is known to others is not kept in
/// registers.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The first byte that is not yet in the buffer.
    at: usize,
    /// The next bits, from the highest on. Below the `count` valid ones there may already be some that follow.
    buffer: u64,
    count: u32,
    /// The number of zeros added beyond the marker.
    padding: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Bits<'a> {
        Bits { bytes, at, buffer: 0, count: 0, padding: 0 }
    }

    /// Makes at least 32 bits available: the longest code, and the longest number after it.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        if self.count < 32 {
            self.fill();
        }
    }

    #[inline(always)]
    fn fill(&mut self) {
        if let Some(word) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()) {
            let word = u64::from_be_bytes(*word);
            if !has_byte_ff(word) {
                self.buffer |= word >> self.count;
                let taken = (63 - self.count) >> 3;
                self.at += taken as usize;
                self.count += 8 * taken;
                return;
            }
        }
        *self = self.filled_by_bytes();
    }

    #[cold]
    #[inline(never)]
    fn filled_by_bytes(mut self) -> Bits<'a> {
        while self.count <= 56 {
            let byte = self.next_byte().unwrap_or_else(|| {
                self.padding += 8;
                0
            });
            self.buffer |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
        self
    }

    fn next_byte(&mut self) -> Option<u8> {
        if self.padding > 0 {
            return None;
        }
        let byte = *self.bytes.get(self.at)?;
        if byte != 0xFF {
            self.at += 1;
            return Some(byte);
        }
        // Any number of fill bytes `FF` may precede a marker, or the `00`.
        let fill = self.bytes[self.at..].iter().position(|&byte| byte != 0xFF)?;
        if self.bytes[self.at + fill] != 0 {
            return None;
        }
        self.at += fill + 1;
        Some(0xFF)
    }

    /// The next `count` bits, 1 to 32 of them, as a number. They must be available.
    #[inline(always)]
    pub(super) fn peek(&self, count: u32) -> u32 {
        (self.buffer >> (64 - count)) as u32
    }

    /// Skips bits that are available, 0 to 32 of them.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: u32) {
        self.buffer <<= count;
        self.count = self.count.wrapping_sub(count);
    }

    /// Takes `count` bits, 1 to 16 of them, which must be available.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        let value = self.peek(count);
        self.skip(count);
        value
    }

    /// A number of `size` bits, 1 to 15, as T.81 codes it (F.2.2.1, EXTEND): those that begin with 0 are negative.
    #[inline(always)]
    pub(super) fn take_signed(&mut self, size: u32) -> i32 {
        extend(self.take(size), size)
    }

    /// One bit.
    #[inline(always)]
    pub(super) fn take_bit(&mut self) -> bool {
        self.refill();
        self.take(1) == 1
    }

    /// An error if bits beyond the marker were taken.
    #[inline(always)]
    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.count < self.padding { Err(Fault::Ended) } else { Ok(()) }
    }

    /// Drops what is left before the next marker, which must be the restart of this number, 0 to 7.
    pub(super) fn restarted(self, number: u8) -> Result<Bits<'a>, Fault> {
        let (marker, after) = next_marker(self.bytes, self.at).ok_or(Fault::Ended)?;
        if marker != 0xD0 + number {
            return Err(Fault::NoRestart);
        }
        Ok(Bits::new(self.bytes, after))
    }

    /// A position that is not after the next marker.
    pub(super) fn place(&self) -> usize {
        self.at
    }
}

/// The code of the next marker at or after a position, and the position after it.
pub(super) fn next_marker(bytes: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += bytes.get(at..)?.iter().position(|&byte| byte == 0xFF)?;
        at += bytes[at..].iter().position(|&byte| byte != 0xFF)?;
        if bytes[at] != 0 {
            return Some((bytes[at], at + 1));
        }
    }
}

#[inline(always)]
pub(super) fn extend(bits: u32, size: u32) -> i32 {
    let negative = bits >> (size - 1) == 0;
    bits as i32 - if negative { (1 << size) - 1 } else { 0 }
}

/// Whether one of the eight bytes is `FF`: whether the complement has a zero byte.
#[inline(always)]
fn has_byte_ff(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    (!word).wrapping_sub(ONES) & word & (ONES << 7) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_in_order_through_stuffing_and_refills() {
        // Long enough for both ways of refilling, with `FF 00` and `FF FF 00` at every distance from the last one.
        let mut data = Vec::new();
        let mut file = Vec::new();
        for byte in 0..2000_u32 {
            let byte = if byte % 37 == 0 || byte % 53 == 0 { 0xFF } else { (byte * 7) as u8 };
            data.push(byte);
            file.extend(match byte {
                0xFF if data.len() % 2 == 0 => vec![0xFF, 0xFF, 0],
                0xFF => vec![0xFF, 0],
                byte => vec![byte],
            });
        }
        file.extend([0xFF, 0xD9]);
        let expected = |from: usize, count: usize| {
            (from..from + count).fold(0, |value, bit| value << 1 | u32::from(data[bit / 8] >> (7 - bit % 8) & 1))
        };
        let mut bits = Bits::new(&file, 0);
        let mut done = 0;
        while done + 16 <= data.len() * 8 {
            let count = 1 + done % 16;
            bits.refill();
            assert_eq!(bits.take(count as u32), expected(done, count), "{count} bits after {done}");
            done += count;
            assert_eq!(bits.check(), Ok(()));
        }
        bits.refill();
        bits.skip((data.len() * 8 - done) as u32);
        assert_eq!(bits.check(), Ok(()));
        assert!(!bits.take_bit());
        assert_eq!(bits.check(), Err(Fault::Ended));
        assert_eq!(next_marker(&file, bits.place()), Some((0xD9, file.len())));
    }

    #[test]
    fn every_byte_ff_is_seen() {
        assert!(!has_byte_ff(0x00FE_7F80_0101_FE00));
        for byte in 0..8 {
            assert!(has_byte_ff(0x00FE_7F80_0101_FE00 | 0xFF << (8 * byte)));
        }
    }

    #[test]
    fn numbers_that_begin_with_zero_are_negative() {
        let all: Vec<i32> = (0..8).map(|bits| extend(bits, 3)).collect();
        assert_eq!(all, [-7, -6, -5, -4, 4, 5, 6, 7]);
        assert_eq!([extend(0, 1), extend(1, 1), extend(0, 15), extend(0x7FFF, 15)], [-1, 1, -32767, 32767]);
    }

    #[test]
    fn a_restart_must_be_the_one_that_is_due() {
        let file = [1, 2, 3, 0xFF, 0xFF, 0xD3, 0x80, 0xFF, 0xD9];
        let mut bits = Bits::new(&file, 0);
        assert!(!bits.take_bit());
        assert_eq!(bits.restarted(2).err(), Some(Fault::NoRestart));
        bits = bits.restarted(3).unwrap();
        assert!(bits.take_bit());
        assert_eq!(bits.check(), Ok(()));
    }
}
