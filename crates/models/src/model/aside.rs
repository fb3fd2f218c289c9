//! Writes several files of a directory as one transaction: they are renamed into place when all are complete.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use vitreous_files::partial::PartialFile;

use super::ModelError;
use super::locate::failed;

/// Temporary files, until all are complete.
pub(crate) struct Aside<'a> {
    directory: &'a Path,
    files: Vec<PartialFile>,
    /// Directories created for this, the innermost first: they are removed if nothing is written into them.
    made: Vec<PathBuf>,
}

impl<'a> Aside<'a> {
    pub(crate) fn new(directory: &'a Path) -> Result<Aside<'a>, ModelError> {
        let missing = directory.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let aside = Aside { directory, files: Vec::new(), made: missing.map(Path::to_path_buf).collect() };
        fs::create_dir_all(directory).map_err(failed(directory, "create"))?;
        Ok(aside)
    }

    /// Writes a file that will get this name; a folder in it is created.
    pub(crate) fn write(
        &mut self,
        name: &str,
        content: impl FnOnce(&mut File, &Path) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let path = self.directory.join(name);
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            fs::create_dir(folder).map_err(failed(folder, "create"))?;
            self.made.insert(0, folder.to_path_buf());
        }
        let mut partial = PartialFile::create(&path).map_err(failed(&path, "create a file beside"))?;
        content(partial.file(), &path)?;
        partial.file().sync_all().map_err(failed(&path, "write"))?;
        self.files.push(partial);
        Ok(())
    }

    /// Renames the files into place, in the order in which they were written.
    pub(crate) fn finish(mut self) -> Result<(), ModelError> {
        // Detects a name that cannot be taken before the first file is renamed.
        if let Some(name) = self.files.iter().map(PartialFile::path).find(|name| name.is_dir()) {
            return Err(ModelError::unwritable(name, "it is a directory: remove it, or name another target"));
        }
        for file in std::mem::take(&mut self.files) {
            let name = file.path().to_path_buf();
            file.finish().map_err(failed(&name, "rename"))?;
        }
        self.made.clear();
        Ok(())
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        // The directories are empty after this.
        self.files.clear();
        for directory in &self.made {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Writes the content of another file.
pub(crate) fn copy_of(from: &Path) -> impl FnOnce(&mut File, &Path) -> Result<(), ModelError> {
    move |file, path| {
        let mut from = File::open(from).map_err(failed(from, "read"))?;
        std::io::copy(&mut from, file).map(|_| ()).map_err(failed(path, "write"))
    }
}

/// Writes the content of a file from memory.
pub(crate) fn all_of(bytes: &[u8]) -> impl FnOnce(&mut File, &Path) -> Result<(), ModelError> {
    move |file, path| file.write_all(bytes).map_err(failed(path, "write"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_neither_files_nor_empty_directories() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("new/model");
        let mut aside = Aside::new(&target).expect("made");
        aside.write("config.json", all_of(b"{}")).expect("written");
        aside.write("1_Pooling/config.json", all_of(b"{}")).expect("written");
        let broken = aside.write("model.safetensors", |_, path| Err(ModelError::unwritable(path, "as intended")));
        assert!(broken.is_err() && target.exists());
        drop(aside);
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);

        let mut aside = Aside::new(&target).expect("made");
        aside.write("config.json", all_of(b"{}")).expect("written");
        aside.finish().expect("finished");
        let left: Vec<_> =
            fs::read_dir(&target).expect("a directory").map(|file| file.expect("one").file_name()).collect();
        assert_eq!(left, ["config.json"]);

        // A directory that existed before stays, even if it is empty.
        let empty = directory.path().join("empty");
        fs::create_dir(&empty).expect("made");
        drop(Aside::new(&empty).expect("there"));
        assert!(empty.exists());
    }
}
