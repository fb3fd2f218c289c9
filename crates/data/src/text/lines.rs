//! Lines of a text file: of bounded length, in UTF-8, with any line ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::PairsError;

/// The maximum length of a line, without its end. No sentence is nearly as long: a file with longer lines is not text.
pub const MOST_LINE_BYTES: usize = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Text, line by line.
pub struct Lines {
    /// The name for errors.
    path: PathBuf,
    reader: BufReader<Box<dyn Read + Send>>,
    /// The number of the last line, from 1.
    number: usize,
    line: Vec<u8>,
    /// The maximum length of a line, without its end.
    most: usize,
}

impl Lines {
    /// The lines of a file, or of a pipe, for whose writer it waits.
    pub fn open(path: &Path) -> Result<Lines, PairsError> {
        let file = File::open(path).map_err(|error| PairsError::io(path, error))?;
        Ok(Lines::of(Box::new(file), path))
    }

    /// The lines of a regular file: what a run is trained on must be there again when it is resumed.
    pub fn open_regular(path: &Path) -> Result<Lines, PairsError> {
        let file = vitreous_files::open::open_regular(path).map_err(|error| PairsError::io(path, error))?;
        Ok(Lines::of(Box::new(file), path))
    }

    /// The lines of a reader; `name` is used in errors.
    pub fn of(from: Box<dyn Read + Send>, name: &Path) -> Lines {
        Lines {
            path: name.to_path_buf(),
            reader: BufReader::new(from),
            number: 0,
            line: Vec::new(),
            most: MOST_LINE_BYTES,
        }
    }

    /// With another maximum length of a line, in whole MiB.
    pub(super) fn with_most_mib(self, mib: usize) -> Lines {
        Lines { most: mib << 20, ..self }
    }

    /// The number of the last line, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The next line without its end (LF or CR LF; the last one needs none) and, if it is the first, without a byte order mark.
    pub fn next_line(&mut self) -> Result<Option<&str>, PairsError> {
        self.line.clear();
        // The mark and the line end do not count.
        let most = (self.most + BYTE_ORDER_MARK.len() + 2) as u64;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut self.line);
        if read.map_err(|error| PairsError::io(&self.path, error))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let mut line = self.line.as_slice();
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut skipped = 0;
        if self.number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            skipped = BYTE_ORDER_MARK.len();
            line = &line[skipped..];
        }
        if line.len() > self.most {
            let reason = match self.most {
                MOST_LINE_BYTES => "it is longer than 1 MiB: this is not text with one sentence per line".to_string(),
                most => format!("it is longer than {} MiB: break it into lines", most >> 20),
            };
            return Err(PairsError::line(&self.path, self.number, reason));
        }
        match std::str::from_utf8(line) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(PairsError::NotUtf8 {
                path: self.path.clone(),
                line: self.number,
                byte: skipped + error.valid_up_to() + 1,
                value: line[error.valid_up_to()],
                hint: hint(line, self.number),
            }),
        }
    }
}

/// Which encoding a file that is not UTF-8 may have.
fn hint(line: &[u8], number: usize) -> &'static str {
    match (number, line) {
        (1, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) => {
            "; it looks like UTF-16: convert it with `iconv -f UTF-16 -t UTF-8`"
        }
        _ => "; if it is Latin-1, convert it with `iconv -f ISO-8859-1 -t UTF-8`",
    }
}
