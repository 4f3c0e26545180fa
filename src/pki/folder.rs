//! The folder on disk with a set of keys: mode 0700, its files 0600, each replaced as a whole.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Files, SecretText};
use crate::api::util::file;
pub use crate::api::util::file::FileError as FolderError;
use crate::api::util::file::{PRIVATE, PRIVATE_FOLDER, describe_file_kind, wrap_io_error};

/// Size of a file, in bytes, beyond which it is none of ours.
const LARGEST: u64 = 1024 * 1024;

/// Writes one file, 0600, into a folder, 0700: complete or not at all.
///
/// What is no regular file of the user's own is refused, a symbolic link too. A file that already holds the text is left alone,
/// save for its mode.
pub fn write_file(folder: &Path, name: &str, text: &str) -> Result<PathBuf, FolderError> {
    file::private_folder(folder)?;
    let path = folder.join(name);
    let closed = std::fs::symlink_metadata(&path).is_ok_and(|m| m.permissions().mode() & 0o777 == PRIVATE);
    if closed && read_regular(&path).is_ok_and(|present| present.as_deref() == Some(text)) {
        return Ok(path);
    }
    file::replace_file(&path, text.as_bytes(), PRIVATE)?;
    Ok(path)
}

/// Writes every file of a set into a folder. Files of other names are left alone.
pub fn write_folder(folder: &Path, files: &Files) -> Result<(), FolderError> {
    file::private_folder(folder)?;
    for (name, text) in files.expose_all() {
        write_file(folder, name, text)?;
    }
    Ok(())
}

/// Writes a set into a folder in which nothing is yet: all of it appears at once. False, and nothing was written, where
/// something is there by now, or where the folder cannot be replaced because a file system is mounted on it.
pub(super) fn write_new_folder(folder: &Path, files: &Files) -> Result<bool, FolderError> {
    file::private_folder(folder)?;
    // Beside it, so that the rename is atomic. What a run that is killed leaves there has a name that no other run has, and
    // that nothing reads.
    let whole = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(Permissions::from_mode(PRIVATE_FOLDER))
        .tempdir_in(folder.parent().unwrap_or(folder))
        .map_err(wrap_io_error("write", folder))?;
    write_folder(whole.path(), files)?;
    match std::fs::rename(whole.path(), folder) {
        Ok(()) => {
            let _ = whole.keep();
            Ok(true)
        }
        Err(error) if is_taken(error.kind()) => Ok(false),
        Err(error) => Err(wrap_io_error("write", folder)(error)),
    }
}

/// Returns whether a folder cannot take the place of another one, though it could be written to.
fn is_taken(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as K;
    matches!(kind, K::DirectoryNotEmpty | K::AlreadyExists | K::ResourceBusy | K::CrossesDevices)
}

/// Reads the files of a folder; an absent folder has none. Names that begin with a dot are left out.
///
/// Symbolic links are refused: a set is what lies in the folder, not what something in it points to.
pub fn read_folder(folder: &Path) -> Result<Files, FolderError> {
    match std::fs::symlink_metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(metadata) => {
            return Err(FolderError::Unexpected {
                path: folder.to_owned(),
                found: describe_file_kind(&metadata),
                expected: "a folder",
            });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Files::new()),
        Err(error) => return Err(wrap_io_error("inspect", folder)(error)),
    }
    let mut files = Files::new();
    for entry in std::fs::read_dir(folder).map_err(wrap_io_error("list", folder))? {
        let entry = entry.map_err(wrap_io_error("list", folder))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if name.starts_with('.') || is_folder && !is_key_name(&name) {
            continue;
        }
        if let Some(text) = read_regular(&entry.path())? {
            files.insert(name, text);
        }
    }
    Ok(files)
}

/// Returns whether a file of this name belongs to a set. Container engines make a folder of what they mount and do not find.
fn is_key_name(name: &str) -> bool {
    [".crt", ".key", ".pub", ".kubeconfig", ".yaml"].iter().any(|end| name.ends_with(end))
}

/// Reads one file of a folder that [`read_folder`] would read; `None` where there is nothing.
pub fn read_file(folder: &Path, name: &str) -> Result<Option<SecretText>, FolderError> {
    Ok(read_regular(&folder.join(name))?.map(SecretText::new))
}

/// Reads a regular file without following a link; `None` where there is nothing.
pub(super) fn read_regular(path: &Path) -> Result<Option<String>, FolderError> {
    file::read_text(path, LARGEST)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn sample() -> Files {
        Files::from_iter([("ca.crt".to_owned(), "one".to_owned()), ("ca.key".to_owned(), "two".to_owned())])
    }

    #[test]
    fn a_set_read_back_is_the_set_written() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("demo").join("pki");
        write_folder(&folder, &sample()).unwrap();
        assert_eq!(read_folder(&folder).unwrap(), sample());
    }

    #[test]
    fn folders_are_0700_and_files_0600_even_where_they_were_open_before() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("demo").join("pki");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.join("ca.key"), "two").unwrap();
        std::fs::set_permissions(folder.join("ca.key"), Permissions::from_mode(0o644)).unwrap();
        write_folder(&folder, &sample()).unwrap();
        assert_eq!(mode(&folder), 0o700);
        assert_eq!((mode(&folder.join("ca.crt")), mode(&folder.join("ca.key"))), (0o600, 0o600));

        let fresh = home.path().join("new").join("pki");
        write_folder(&fresh, &sample()).unwrap();
        assert_eq!((mode(&fresh), mode(fresh.parent().unwrap())), (0o700, 0o700));
    }

    #[test]
    fn an_unchanged_file_is_not_written_again() {
        let home = tempfile::tempdir().unwrap();
        write_folder(home.path(), &sample()).unwrap();
        let before = std::fs::metadata(home.path().join("ca.key")).unwrap().ino();
        write_folder(home.path(), &sample()).unwrap();
        assert_eq!(std::fs::metadata(home.path().join("ca.key")).unwrap().ino(), before);
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_new_set_appears_at_once_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("demo").join("pki");
        let mut cut_off = sample();
        cut_off.insert("no/such", "three".to_owned());
        assert!(matches!(write_new_folder(&folder, &cut_off), Err(FolderError::Io { .. })));
        assert!(names(&folder).is_empty(), "two files were written before the one that could not be");

        assert!(write_new_folder(&folder, &sample()).unwrap());
        assert_eq!(read_folder(&folder).unwrap(), sample());
        assert_eq!((mode(&folder), mode(&folder.join("ca.key"))), (0o700, 0o600));
        assert_eq!(names(folder.parent().unwrap()), ["pki"]);
    }

    #[test]
    fn a_set_of_somebody_who_was_faster_stays() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("pki");
        assert!(write_new_folder(&folder, &sample()).unwrap());
        let other =
            Files::from_iter([("ca.crt".to_owned(), "other".to_owned()), ("sa.key".to_owned(), "new".to_owned())]);
        assert!(!write_new_folder(&folder, &other).unwrap());
        assert_eq!(read_folder(&folder).unwrap(), sample());
        assert_eq!(names(home.path()), ["pki"]);
    }

    #[test]
    fn what_a_killed_run_left_beside_a_folder_is_in_nobodys_way() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("pki");
        let left = home.path().join(".new-left");
        write_folder(&left, &sample()).unwrap();
        assert!(read_folder(&folder).unwrap().is_empty());
        assert!(write_new_folder(&folder, &sample()).unwrap());
        assert_eq!(read_folder(&folder).unwrap(), sample());
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_refused_and_its_target_untouched() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("elsewhere");
        std::fs::write(&target, "mine").unwrap();
        let folder = home.path().join("pki");
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&target, folder.join("ca.key")).unwrap();
        assert!(matches!(read_folder(&folder), Err(FolderError::Unexpected { .. })));
        assert!(matches!(write_folder(&folder, &sample()), Err(FolderError::Unexpected { .. })));
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "mine");
        assert!(folder.join("ca.key").is_symlink());
    }

    #[test]
    fn a_link_in_the_place_of_the_folder_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("elsewhere");
        std::fs::create_dir(&target).unwrap();
        let link = home.path().join("pki");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(write_folder(&link, &sample()), Err(FolderError::Unexpected { .. })));
        assert!(matches!(read_folder(&link), Err(FolderError::Unexpected { .. })));
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_in_the_place_of_a_file_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("pki");
        write_folder(&folder, &sample()).unwrap();
        std::fs::create_dir(folder.join("notes")).unwrap();
        assert_eq!(read_folder(&folder).unwrap(), sample());
        std::fs::create_dir(folder.join("sa.key")).unwrap();
        let refused = read_folder(&folder).unwrap_err();
        assert!(matches!(&refused, FolderError::Unexpected { path, .. } if path.ends_with("sa.key")), "{refused}");
    }

    #[test]
    fn an_absent_folder_is_an_empty_set() {
        let home = tempfile::tempdir().unwrap();
        assert!(read_folder(&home.path().join("nothing")).unwrap().is_empty());
    }
}
