//! Huffman tables (T.81, annex C and F.2.2.3).

use super::bits::{Bits, Fault, extend};

/// Codes of up to this many bits are decoded by a table.
const LOOK: u32 = 10;

/// Whether a table is for DC coefficients (the mean of a block) or for AC coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Dc,
    Ac,
}

/// A table of codes and their symbols.
#[derive(Clone)]
pub(super) struct Table {
    /// By the next `LOOK` bits: [`Entry`].
    fast: Box<[Entry; 1 << LOOK]>,
    /// By length: one more than the last code of this length, extended to 16 bits. 0 where there is none.
    end: [u32; 17],
    /// By length: the difference between a symbol's index and its code.
    offset: [i32; 17],
    symbols: Vec<u8>,
}

/// The meaning of the next bits. Most codes are so short that the number after them is in the table, too.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The number, if it is in the table. 0 if not, or if there is none.
    value: i16,
    symbol: u8,
    /// Bits of the code, and of the number if it is here. 0: the code is longer than `LOOK`.
    length: u8,
}

/// A symbol, and the number after it.
pub(super) struct Coded {
    /// Upper half: the zeros before the number. Lower half: the bits of the number.
    pub(super) symbol: u8,
    pub(super) value: i32,
}

impl Table {
    /// The table with `counts[n]` codes of `n + 1` bits for these symbols, or why it is invalid.
    pub(super) fn new(class: Class, counts: &[u8; 16], symbols: &[u8]) -> Result<Table, &'static str> {
        let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
        if total > 256 || total != symbols.len() {
            return Err("a Huffman table has more symbols than there are");
        }
        if class == Class::Dc && symbols.iter().any(|&symbol| symbol > 15) {
            return Err("a Huffman table has numbers of more than 15 bits");
        }
        let mut table = Table {
            fast: Box::new([Entry::default(); 1 << LOOK]),
            end: [0; 17],
            offset: [0; 17],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut first) = (0_u32, 0);
        for length in 1..=16_u32 {
            let count = u32::from(counts[length as usize - 1]);
            table.offset[length as usize] = first as i32 - code as i32;
            for place in first..first + count as usize {
                table.enter(code, length, symbols[place]);
                code += 1;
            }
            // No code is all ones, so codes are always left over.
            if count > 0 && code >= 1 << length {
                return Err("a Huffman table has more codes than fit");
            }
            if count > 0 {
                table.end[length as usize] = code << (16 - length);
            }
            first += count as usize;
            code <<= 1;
        }
        Ok(table)
    }

    /// Fills the entries of `fast` that begin with a code.
    fn enter(&mut self, code: u32, length: u32, symbol: u8) {
        if length > LOOK || code >= 1 << length {
            return;
        }
        let free = LOOK - length;
        let size = u32::from(symbol & 15);
        for rest in 0..1 << free {
            let mut entry = Entry { value: 0, symbol, length: length as u8 };
            if size > 0 && size <= free {
                entry.value = extend(rest >> (free - size), size) as i16;
                entry.length += size as u8;
            }
            self.fast[(code << free | rest) as usize] = entry;
        }
    }

    /// A symbol alone, whatever follows it.
    #[inline(always)]
    pub(super) fn symbol(&self, bits: &mut Bits) -> Result<u8, Fault> {
        bits.refill();
        let entry = self.fast[bits.peek(LOOK) as usize];
        if entry.length == 0 {
            let (symbol, length) = self.long(bits.peek(16)).ok_or(Fault::NoSuchCode)?;
            bits.skip(length);
            return Ok(symbol);
        }
        let number = if entry.value == 0 { 0 } else { entry.symbol & 15 };
        bits.skip(u32::from(entry.length - number));
        Ok(entry.symbol)
    }

    /// A symbol, and the number whose bits it counts.
    #[inline(always)]
    pub(super) fn coded(&self, bits: &mut Bits) -> Result<Coded, Fault> {
        bits.refill();
        let entry = self.fast[bits.peek(LOOK) as usize];
        if entry.value != 0 {
            bits.skip(u32::from(entry.length));
            return Ok(Coded { symbol: entry.symbol, value: entry.value.into() });
        }
        let (symbol, length) = match u32::from(entry.length) {
            0 => self.long(bits.peek(16)).ok_or(Fault::NoSuchCode)?,
            length => (entry.symbol, length),
        };
        bits.skip(length);
        let size = u32::from(symbol & 15);
        let value = if size == 0 { 0 } else { bits.take_signed(size) };
        Ok(Coded { symbol, value })
    }

    /// The symbol of a longer code, and its length, from the next 16 bits.
    #[cold]
    #[inline(never)]
    fn long(&self, next: u32) -> Option<(u8, u32)> {
        let length = (LOOK + 1..=16).find(|&length| next < self.end[length as usize])?;
        let place = (next >> (16 - length)) as i32 + self.offset[length as usize];
        Some((*self.symbols.get(place as usize)?, length))
    }
}

/// The standard tables of T.81, K.3.3. Motion JPEG frames use them without defining them.
pub(super) fn standard(class: Class, colour: bool) -> Option<Table> {
    let sums: Vec<u8> = (0..=11).collect();
    let (counts, symbols) = match (class, colour) {
        (Class::Dc, false) => (&[0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], sums.as_slice()),
        (Class::Dc, true) => (&[0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], sums.as_slice()),
        (Class::Ac, false) => (&[0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7D], AC_LUMA.as_slice()),
        (Class::Ac, true) => (&[0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77], AC_COLOUR.as_slice()),
    };
    Table::new(class, counts, symbols).ok()
}

#[rustfmt::skip]
const AC_LUMA: [u8; 162] = [
    0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14, 0x32, 0x81,
    0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52, 0xD1, 0xF0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0A, 0x16, 0x17, 0x18,
    0x19, 0x1A, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
    0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75,
    0x76, 0x77, 0x78, 0x79, 0x7A, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
    0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3,
    0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5,
    0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
];

#[rustfmt::skip]
const AC_COLOUR: [u8; 162] = [
    0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32, 0x81, 0x08,
    0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33, 0x52, 0xF0, 0x15, 0x62, 0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34, 0xE1, 0x25,
    0xF1, 0x17, 0x18, 0x19, 0x1A, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44, 0x45, 0x46, 0x47,
    0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74,
    0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97,
    0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA,
    0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE2, 0xE3, 0xE4,
    0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes in their order, as T.81's figure C.2 numbers them.
    fn codes(counts: &[u8; 16]) -> Vec<(u32, u32)> {
        let mut codes = Vec::new();
        let mut code = 0;
        for length in 1..=16 {
            for _ in 0..counts[length as usize - 1] {
                codes.push((code, length));
                code += 1;
            }
            code <<= 1;
        }
        codes
    }

    fn written(parts: impl IntoIterator<Item = (u32, u32)>) -> Vec<u8> {
        let (mut bytes, mut buffer, mut count) = (Vec::new(), 0_u64, 0);
        for (value, length) in parts.into_iter().chain([(0x7F, 7)]) {
            buffer = buffer << length | u64::from(value);
            count += length;
            while count >= 8 {
                count -= 8;
                bytes.push((buffer >> count) as u8);
                if bytes.last() == Some(&0xFF) {
                    bytes.push(0);
                }
            }
        }
        bytes
    }

    #[test]
    fn every_code_of_the_standard_tables_gives_its_symbol_and_number() {
        for colour in [false, true] {
            let table = standard(Class::Ac, colour).unwrap();
            let (counts, symbols) = if colour {
                ([0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77], AC_COLOUR)
            } else {
                ([0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7D], AC_LUMA)
            };
            let number = |index: usize, size: u32| (index as u32).wrapping_mul(0x9E37_79B9) >> (32 - size);
            let parts = codes(&counts).into_iter().zip(symbols).enumerate().flat_map(|(index, (code, symbol))| {
                let size = u32::from(symbol & 15);
                [Some(code), (size > 0).then(|| (number(index, size), size))].into_iter().flatten()
            });
            let bytes = written(parts);
            let mut bits = Bits::new(&bytes, 0);
            for (index, symbol) in symbols.into_iter().enumerate() {
                let coded = table.coded(&mut bits).unwrap();
                let size = u32::from(symbol & 15);
                assert_eq!(coded.symbol, symbol);
                assert_eq!(coded.value, if size == 0 { 0 } else { extend(number(index, size), size) });
            }
            bits.check().unwrap();
            let bytes = written(codes(&counts));
            let mut bits = Bits::new(&bytes, 0);
            assert!(symbols.iter().all(|&symbol| table.symbol(&mut bits) == Ok(symbol)));
        }
    }

    #[test]
    fn bits_that_are_no_code_are_an_error() {
        for counts in
            [[0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7D], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]
        {
            let symbols = &AC_LUMA[..counts.iter().map(|&count| usize::from(count)).sum()];
            let table = Table::new(Class::Ac, &counts, symbols).unwrap();
            let ones = [0xFF, 0, 0xFF, 0, 0xFF, 0];
            assert_eq!(table.symbol(&mut Bits::new(&ones, 0)), Err(Fault::NoSuchCode));
            assert!(table.coded(&mut Bits::new(&ones, 0)).is_err());
        }
    }

    #[test]
    fn tables_that_contradict_themselves_are_refused() {
        let mut counts = [0; 16];
        counts[0] = 2;
        assert!(Table::new(Class::Ac, &counts, &[1, 2]).is_err(), "a code of ones only");
        counts[0] = 3;
        assert!(Table::new(Class::Ac, &counts, &[1, 2, 3]).is_err(), "three codes of one bit");
        counts[0] = 1;
        assert!(Table::new(Class::Ac, &counts, &[1, 2]).is_err(), "a symbol too many");
        assert!(Table::new(Class::Dc, &counts, &[16]).is_err(), "a number of 16 bits");
        assert!(Table::new(Class::Ac, &counts, &[16]).is_ok());
        assert!(Table::new(Class::Ac, &[255; 16], &[0; 16 * 255]).is_err(), "more than 256 symbols");
    }
}
