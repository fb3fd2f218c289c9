//! Where answers go: to standard output, or into a file that appears when it is complete.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::anyhow;
use vitreous_files::partial::PartialFile;
use vitreous_files::printable::PrintableWriter;
use vitreous_pages::write::check_new;

use crate::failure::Failure;

/// Where answers go.
pub enum Output {
    /// To standard output.
    Printed,
    /// Into a file.
    File(PrintableWriter<BufWriter<std::fs::File>>, Box<PartialFile>),
}

impl Output {
    /// Refuses a file that is there, unless it is to be overwritten; call it before long work.
    pub fn check(path: Option<&Path>, force: bool) -> Result<(), Failure> {
        match path {
            Some(path) if force && path.is_file() => Ok(()),
            Some(path) => check_new(path).map_err(|refusal| match path.is_file() {
                true => Failure::input(anyhow!("{}: the file exists; --force overwrites it", path.display())),
                false => refusal.into(),
            }),
            None => Ok(()),
        }
    }

    /// Standard output, or a file that is begun.
    pub fn new(path: Option<&Path>, force: bool) -> Result<Output, Failure> {
        Output::check(path, force)?;
        let Some(path) = path else { return Ok(Output::Printed) };
        let failed = |error| Failure::work(anyhow!("{}: cannot be written: {error}", path.display()));
        let mut partial = PartialFile::create(path).map_err(failed)?;
        let file = partial.file().try_clone().map_err(failed)?;
        Ok(Output::File(PrintableWriter::new(BufWriter::new(file)), Box::new(partial)))
    }

    /// Gives a file its name.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        match self {
            Output::Printed => Ok(()),
            Output::File(writer, partial) => {
                drop(writer);
                let path = partial.path().to_path_buf();
                let failed = |error| Failure::work(anyhow!("{}: cannot be written: {error}", path.display()));
                partial.finish().map_err(failed)?;
                say!("{} written", path.display());
                Ok(())
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Printed => crate::say::stdout().write(bytes),
            Output::File(file, _) => file.write(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Output::Printed => crate::say::stdout().write_all(bytes),
            Output::File(file, _) => file.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Printed => crate::say::stdout().flush(),
            Output::File(file, _) => file.flush(),
        }
    }
}
