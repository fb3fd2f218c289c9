//! Opening files that strangers may have made: their type and size are looked at before anything is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file. A FIFO would wait for its writer for ever, and devices have no end.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path)?;
    let file_type = file.metadata()?.file_type();
    if file_type.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "this is a directory, not a file"));
    }
    match file_type.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is a device, pipe or socket, not a file")),
    }
}

/// Reads a regular file of at most so many bytes; a larger one is refused before it is read.
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let length = file.metadata()?.len();
    if length > most {
        return Err(too_large(length, most));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    // It may grow while it is read.
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(too_large(bytes.len() as u64, most)),
        false => Ok(bytes),
    }
}

/// As [`read_bounded`], for text.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "this is not UTF-8 text");
    String::from_utf8(read_bounded(path, most)?).map_err(not_text)
}

fn too_large(length: u64, most: u64) -> io::Error {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let text = format!("it has {} MiB, but such a file has {} at most", mib(length), mib(most));
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_the_size_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, "12345").expect("written");
        assert_eq!(read_bounded(&path, 5).expect("read"), b"12345");
        assert_eq!(read_bounded(&path, 4).expect_err("too large").kind(), io::ErrorKind::FileTooLarge);
        File::options().write(true).open(&path).and_then(|file| file.set_len(30 << 30)).expect("a sparse file");
        assert!(read_bounded(&path, 1 << 20).expect_err("too large").to_string().contains("30720 MiB"));
        let error = read_bounded(directory.path(), 5).expect_err("a directory");
        assert!(error.to_string().contains("directory"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn pipes_and_devices_are_refused_at_once() {
        use std::os::unix::ffi::OsStrExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.png");
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("a name");
        // SAFETY: the name ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [path.as_path(), Path::new("/dev/zero")] {
            let error = read_bounded(path, 5).expect_err("no file");
            assert!(error.to_string().contains("not a file"), "{error}");
        }
    }
}
