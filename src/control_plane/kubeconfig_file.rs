//! Changes a kubeconfig file that others use too: under kubectl's own lock, with a backup, complete or not at all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::pki::EditError;

/// Why the file was left as it is.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Another program is changing it.
    #[error("`{}` is being changed by another program", file.display())]
    Locked {
        /// The kubeconfig.
        file: PathBuf,
        /// The lock.
        lock: PathBuf,
    },
    /// Its content stands in the way.
    #[error("the kubeconfig `{}` was left as it is", file.display())]
    Edit {
        /// The kubeconfig.
        file: PathBuf,
        /// Why.
        #[source]
        source: EditError,
    },
    /// The file system refused.
    #[error("cannot change the kubeconfig `{}`", file.display())]
    Io {
        /// The kubeconfig.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The lock that kubectl takes too: a file beside the kubeconfig that only one can create.
struct Lock(PathBuf);

impl Lock {
    fn take(file: &Path) -> Result<Self, FileError> {
        let mut name = file.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&lock) {
            Ok(_) => Ok(Self(lock)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(FileError::Locked { file: file.to_owned(), lock })
            }
            Err(source) => Err(FileError::Io { file: file.to_owned(), source }),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Where new entries go, as kubectl has it: the file that was named, else the first of `KUBECONFIG` that exists, else
/// its last, else `~/.kube/config`. Never `own`, the file that an install writes.
pub fn target(named: Option<&Path>, own: &Path) -> Option<PathBuf> {
    if let Some(file) = named {
        return Some(file.to_owned());
    }
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let mut listed: Vec<PathBuf> = std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
    listed.retain(|path| path != own);
    let existing = listed.iter().find(|path| path.exists());
    let default = || std::env::home_dir().map(|home| home.join(".kube").join("config"));
    existing.or(listed.last()).cloned().or_else(default)
}

/// Changes the file by `edit`, from its text (empty where there is none) to its new text; nothing leaves it alone.
///
/// The former text is kept beside it under the name that is returned, when anything changed.
///
/// # Errors
/// [`FileError`]; the file is then as it was.
pub fn change(
    file: &Path,
    edit: impl FnOnce(&str) -> Result<Option<String>, EditError>,
) -> Result<Option<PathBuf>, FileError> {
    // A link is followed: the file behind it is what others use.
    let file = &fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let failed = |source| FileError::Io { file: file.clone(), source };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    let _lock = Lock::take(file)?;
    let before = match fs::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let text = before.as_deref().unwrap_or_default();
    let after = edit(text).map_err(|source| FileError::Edit { file: file.clone(), source })?;
    let Some(after) = after.filter(|after| after != text) else { return Ok(None) };
    let mut backup = file.as_os_str().to_owned();
    backup.push(".before-fleetctl");
    let backup = PathBuf::from(backup);
    if let Some(before) = &before {
        replace(&backup, folder, before, None).map_err(failed)?;
    }
    replace(file, folder, &after, Some(file)).map_err(failed)?;
    Ok(before.map(|_| backup))
}

/// Writes a file beside its place and renames it; the mode is that of `like`, else 0600.
fn replace(file: &Path, folder: &Path, text: &str, like: Option<&Path>) -> io::Result<()> {
    let mut fresh = tempfile::Builder::new().prefix(".kubeconfig-").tempfile_in(folder)?;
    if let Some(meta) = like.and_then(|like| fs::metadata(like).ok()) {
        fs::set_permissions(fresh.path(), meta.permissions())?;
    }
    fresh.write_all(text.as_bytes())?;
    fresh.as_file().sync_all()?;
    fresh.persist(file).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_change_keeps_a_backup_the_mode_and_the_link_and_lets_go_of_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("config"), folder.path().join("link"));
        fs::write(&file, "a: 1\n").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let backup = change(&link, |text| Ok(Some(format!("{text}b: 2\n")))).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a: 1\nb: 2\n");
        assert_eq!(fs::read_to_string(backup).unwrap(), "a: 1\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink() && !folder.path().join("config.lock").exists());
        assert_eq!(change(&file, |text| Ok(Some(text.to_owned()))).unwrap(), None, "nothing changed, nothing written");
    }

    #[test]
    fn a_file_that_another_program_has_locked_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        fs::write(folder.path().join("config.lock"), "").unwrap();
        let error = change(&file, |_| Ok(Some("x".to_owned()))).unwrap_err();
        assert!(matches!(error, FileError::Locked { .. }), "{error}");
        assert!(!file.exists() && folder.path().join("config.lock").exists());
    }

    #[test]
    fn a_refused_edit_leaves_file_and_folder_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        fs::write(&file, "a: 1\n").unwrap();
        let refuse = |_: &str| Err(EditError::Unusable("x"));
        assert!(matches!(change(&file, refuse), Err(FileError::Edit { .. })));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
