//! A new file that is written as a stream, such as a backup: its name is `NAME.RANDOM.part` until it is whole, and it never
//! replaces a file.

use std::fs::{File, Permissions};
use std::io::{self, Seek as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::file::{self, FileError, PRIVATE, describe_file_kind, wrap_io_error};

/// End of the name of a file that is not whole yet.
pub const UNFINISHED: &str = ".part";

/// A file that is being written, mode 0600. It is deleted unless it is kept.
#[derive(Debug)]
pub struct UnfinishedFile {
    path: PathBuf,
    unfinished: NamedTempFile,
}

impl UnfinishedFile {
    /// Creates the file that will become `path`, beside it.
    ///
    /// # Errors
    /// [`FileError::Unexpected`] if something is at the path, a link too, or if others can write to its folder.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let folder = folder_of(path);
        file::own_folder(folder)?;
        if let Some(metadata) = file::read_metadata(path)? {
            let found = describe_file_kind(&metadata);
            return Err(FileError::Unexpected { path: path.to_owned(), found, expected: "nothing" });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = tempfile::Builder::new()
            .prefix(&format!("{name}."))
            .suffix(UNFINISHED)
            .permissions(Permissions::from_mode(PRIVATE))
            .tempfile_in(folder)
            .map_err(wrap_io_error("write", path))?;
        Ok(Self { path: path.to_owned(), unfinished })
    }

    /// Empties it, and opens it at its start.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn restart_file(&mut self) -> io::Result<File> {
        let file = self.unfinished.as_file_mut();
        file.set_len(0)?;
        file.rewind()?;
        file.try_clone()
    }

    /// Syncs it to disk and gives it its name, unless something has that name by now.
    ///
    /// # Errors
    /// Errors of the file system; the file is deleted then.
    pub fn keep(self) -> Result<PathBuf, FileError> {
        let path = self.path;
        self.unfinished.as_file().sync_all().map_err(wrap_io_error("write", &path))?;
        self.unfinished.persist_noclobber(&path).map_err(|error| wrap_io_error("write", &path)(error.error))?;
        let folder = folder_of(&path);
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(wrap_io_error("write", folder))?;
        Ok(path)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        file::list_names(folder).unwrap()
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut new = UnfinishedFile::create(&path).unwrap();
        new.restart_file().unwrap().write_all(b"broken and longer").unwrap();
        new.restart_file().unwrap().write_all(b"whole").unwrap();
        let unfinished = names(folder.path());
        assert!(unfinished.len() == 1 && unfinished[0].starts_with("new.") && unfinished[0].ends_with(UNFINISHED));
        assert_eq!(new.keep().unwrap(), path);
        assert_eq!(names(folder.path()), ["new"]);
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "whole");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn nothing_stays_of_a_file_that_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut new = UnfinishedFile::create(&folder.path().join("new")).unwrap();
        new.restart_file().unwrap().write_all(b"half").unwrap();
        drop(new);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn nothing_that_exists_is_written_over_and_no_folder_of_others_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::write(root.join("file"), "mine").unwrap();
        symlink("nothing", root.join("dangling")).unwrap();
        std::fs::create_dir(root.join("sub")).unwrap();
        for name in ["file", "dangling", "sub"] {
            assert!(matches!(UnfinishedFile::create(&root.join(name)), Err(FileError::Unexpected { .. })), "{name}");
        }
        assert!(matches!(UnfinishedFile::create(Path::new("/dev/null")), Err(FileError::Unexpected { .. })));
        assert!(UnfinishedFile::create(&root.join("none/new")).is_err());
        // Somebody makes it while it is written.
        let new = UnfinishedFile::create(&root.join("late")).unwrap();
        std::fs::write(root.join("late"), "theirs").unwrap();
        assert!(new.keep().is_err());
        assert_eq!(std::fs::read_to_string(root.join("late")).unwrap(), "theirs");
        std::fs::set_permissions(root, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(UnfinishedFile::create(&root.join("new")), Err(FileError::Unexpected { .. })));
        assert_eq!(names(root), ["dangling", "file", "late", "sub"]);
    }
}
