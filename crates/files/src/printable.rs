//! Text for people. Names in files of strangers can hold control characters, which a terminal obeys, and bidirectional
//! overrides, which show a text as another one. Both are written as `\u001b`, which JSON understands, too.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The text, with an escape for each character that a terminal would obey. Line breaks and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_obeyed(character) {
            true => _ = write!(safe, "\\u{:04x}", u32::from(character)),
            false => safe.push(character),
        }
    }
    Cow::Owned(safe)
}

/// As [`printable`], and in one line: also line breaks and tabs are escaped.
pub fn one_line(text: &str) -> Cow<'_, str> {
    match printable(text) {
        safe if !safe.contains(['\n', '\t']) => safe,
        safe => Cow::Owned(safe.replace('\n', "\\n").replace('\t', "\\t")),
    }
}

/// Control characters (but for line breaks and tabs), and those that change the direction of text.
pub fn is_obeyed(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        '\u{2028}' | '\u{2029}' => true,
        _ => character.is_control(),
    }
}

/// A writer of [`printable`] text. What is no UTF-8 is written with replacement characters.
#[derive(Debug)]
pub struct PrintableWriter<W: Write> {
    inner: W,
    /// The beginning of a character whose end was not yet written: at most three bytes.
    begun: Vec<u8>,
}

impl<W: Write> PrintableWriter<W> {
    /// Writes to another writer.
    pub fn new(inner: W) -> PrintableWriter<W> {
        PrintableWriter { inner, begun: Vec::new() }
    }

    fn write_complete(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            match std::str::from_utf8(bytes) {
                Ok(text) => return self.inner.write_all(printable(text).as_bytes()),
                Err(error) => {
                    let (text, rest) = bytes.split_at(error.valid_up_to());
                    let text = std::str::from_utf8(text).unwrap_or_default();
                    self.inner.write_all(printable(text).as_bytes())?;
                    let Some(broken) = error.error_len() else {
                        self.begun = rest.to_vec();
                        return Ok(());
                    };
                    self.inner.write_all("\u{fffd}".as_bytes())?;
                    bytes = &rest[broken..];
                }
            }
        }
    }
}

impl<W: Write> Write for PrintableWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.begun.is_empty() {
            true => self.write_complete(bytes)?,
            false => {
                let all = [std::mem::take(&mut self.begun), bytes.to_vec()].concat();
                self.write_complete(&all)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let cases = [
            ("a\tb\nKäse 猫 😀", "a\tb\nKäse 猫 😀"),
            ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
            ("\u{9b}2J", "\\u009b2J"),
            ("cat\u{202e}gpj.exe", "cat\\u202egpj.exe"),
            ("\u{2066}a\u{2069}", "\\u2066a\\u2069"),
            ("one\rtwo\x7f", "one\\u000dtwo\\u007f"),
        ];
        for (text, safe) in cases {
            assert_eq!(printable(text), safe);
            // Whatever the pieces in which it is written.
            for size in 1..5 {
                let mut writer = PrintableWriter::new(Vec::new());
                text.as_bytes().chunks(size).for_each(|piece| writer.write_all(piece).expect("written"));
                assert_eq!(String::from_utf8(writer.inner).expect("text"), safe, "in pieces of {size}");
            }
        }
        assert_eq!(one_line("a\tb\n\x1b"), "a\\tb\\n\\u001b");
        let mut writer = PrintableWriter::new(Vec::new());
        writer.write_all(b"a\xffb\xe2\x80c").expect("written");
        assert_eq!(String::from_utf8(writer.inner).expect("text"), "a\u{fffd}b\u{fffd}c");
    }

    #[test]
    fn escaped_json_is_json_of_the_same_text() {
        assert_eq!(printable("{\"label\":\"\u{202e}\"}"), "{\"label\":\"\\u202e\"}");
    }
}
