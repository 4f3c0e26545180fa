//! Changes a kubeconfig file that others use too: under kubectl's own lock, with a backup, complete or not at all.

use std::fs;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::api::util::file;
use crate::api::util::file::{PRIVATE, wrap_io_error};
use crate::pki::EditError;

/// Reason that the file was left as it is.
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
    #[error("the kubeconfig `{}` was not changed", file.display())]
    Edit {
        /// The kubeconfig.
        file: PathBuf,
        /// Reason that the content cannot be edited.
        #[source]
        source: EditError,
    },
    /// It is nothing that may be replaced, such as a device or another user's file.
    #[error(transparent)]
    NotReplaceable(file::FileError),
    /// The file system refused.
    #[error("cannot change the kubeconfig `{}`", file.display())]
    Io {
        /// The kubeconfig.
        file: PathBuf,
        /// Error of the file system: of the kubeconfig, its folder, its lock or its backup.
        #[source]
        source: file::FileError,
    },
}

/// Returns what makes an error of a file one of the kubeconfig that it was for.
fn wrap_file_error(kubeconfig: &Path) -> impl Fn(file::FileError) -> FileError + '_ {
    move |error| match error {
        source @ file::FileError::Io { .. } => FileError::Io { file: kubeconfig.to_owned(), source },
        error @ file::FileError::Unexpected { .. } => FileError::NotReplaceable(error),
    }
}

/// Returns what makes an error of the file system one of the kubeconfig.
fn wrap_error(action: &'static str, kubeconfig: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |error| wrap_file_error(kubeconfig)(wrap_io_error(action, kubeconfig)(error))
}

/// The lock that kubectl takes too: a file beside the kubeconfig that only one can create.
struct Lock(PathBuf);

impl Lock {
    fn take_lock(file: &Path) -> Result<Self, FileError> {
        let mut name = file.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        match fs::OpenOptions::new().write(true).create_new(true).open(&lock) {
            Ok(_) => Ok(Self(lock)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(FileError::Locked { file: file.to_owned(), lock })
            }
            Err(error) => Err(wrap_file_error(file)(wrap_io_error("create the lock", &lock)(error))),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The files that kubectl puts together, in its order: the one that was named, else those of `KUBECONFIG`, else
/// `~/.kube/config`. Never `own`, the file that an install writes.
pub fn list_kubeconfig_files(named: Option<&Path>, own: &Path) -> Vec<PathBuf> {
    if let Some(file) = named {
        return vec![file.to_owned()];
    }
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let mut listed: Vec<PathBuf> = std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
    listed.retain(|path| !is_same_file(path, own));
    if listed.is_empty() {
        listed.extend(std::env::home_dir().map(|home| home.join(".kube").join("config")));
    }
    listed
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other || fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// Returns the file that new entries go to, as kubectl chooses it: the first of the files that exists, else the last. The
/// files are known to be readable or absent.
pub fn choose_target_file(listed: &[PathBuf]) -> Option<&PathBuf> {
    listed.iter().find(|path| path.exists()).or(listed.last())
}

/// The text of a file; empty where there is none, or something that is no file, such as /dev/null.
///
/// # Errors
/// [`FileError::Io`].
pub fn read_text_or_empty(file: &Path) -> Result<String, FileError> {
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Ok(String::new());
    }
    match fs::read_to_string(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(wrap_error("read", file)(error)),
        read => Ok(read.unwrap_or_default()),
    }
}

/// Users who may read a file after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Whoever could before.
    AsBefore,
    /// Its owner alone, for a key is put into it.
    OwnerOnly,
}

/// Side effects of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Path of the backup with the former text, when there was one and it changed.
    pub backup: Option<PathBuf>,
    /// Whether others could read the file before and no longer can.
    pub closed: bool,
}

/// Changes the file by `edit`, from its text (empty where there is none) to its new text; an `edit` that gives none
/// leaves the file alone.
///
/// # Errors
/// [`FileError`]; the file is then as it was, and nothing was made beside it where it is no file to write to.
pub fn change_file(
    file: &Path,
    readers: Readers,
    edit: impl FnOnce(&str) -> Result<Option<String>, EditError>,
) -> Result<Changed, FileError> {
    // A link is followed, also to a file that does not exist yet: the file behind it is what others use.
    let file = &behind_links(file)?;
    let refused = wrap_file_error(file);
    let permissions = file::check_replaceable(file).map_err(&refused)?.map(|found| found.permissions().mode() & 0o7777);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = fs::create_dir_all(folder).map_err(wrap_io_error("create the folder", folder));
    made.map_err(&refused)?;
    let _lock = Lock::take_lock(file)?;
    let before = match fs::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(wrap_error("read", file)(error)),
    };
    let text = before.as_deref().unwrap_or_default();
    let after = edit(text).map_err(|source| FileError::Edit { file: file.clone(), source })?;
    let open_to_others = permissions.filter(|mode| readers == Readers::OwnerOnly && mode & 0o077 != 0);
    let closed = open_to_others.map(|mode| mode & !0o077);
    let Some(after) = after.filter(|after| after != text) else {
        // An earlier release left a key in it that others can read.
        if let Some(mode) = closed {
            let closed = fs::set_permissions(file, Permissions::from_mode(mode));
            closed.map_err(wrap_error("restrict the permissions of", file))?;
        }
        return Ok(Changed { backup: None, closed: closed.is_some() });
    };
    let backup = backup_of(file);
    if let Some(before) = &before {
        file::replace_file(&backup, before.as_bytes(), PRIVATE).map_err(&refused)?;
    }
    file::replace_file(file, after.as_bytes(), closed.or(permissions).unwrap_or(PRIVATE)).map_err(&refused)?;
    Ok(Changed { backup: before.map(|_| backup), closed: closed.is_some() })
}

/// Number of symbolic links in one path that Linux follows at most.
const MOST_LINKS: usize = 40;

/// The file that a path leads to through links, whether it exists or not.
fn behind_links(file: &Path) -> Result<PathBuf, FileError> {
    let mut place = file.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&place) else {
            // What is left are links among the folders above it.
            return Ok(fs::canonicalize(&place).unwrap_or(place));
        };
        place = place.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(wrap_error("follow the links of", file)(io::Error::from_raw_os_error(libc::ELOOP)))
}

/// Returns the path of the backup that keeps the former text of a file.
fn backup_of(file: &Path) -> PathBuf {
    let mut backup = file.as_os_str().to_owned();
    backup.push(".before-fleetctl");
    PathBuf::from(backup)
}

/// Moves a file that another one is to replace to where [`change_file`] keeps a former text, under a name that is not taken
/// yet; returns its new path.
///
/// # Errors
/// Refusals of the file system; the file is then as it was.
pub fn set_aside(file: &Path) -> io::Result<PathBuf> {
    let first = backup_of(file);
    let (mut place, mut number) = (first.clone(), 1);
    // A name is taken by making it, so that two runs never get the same one; the rename replaces what was made.
    while let Err(error) = fs::OpenOptions::new().write(true).create_new(true).open(&place) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        number += 1;
        let mut next = first.as_os_str().to_owned();
        next.push(format!("-{number}"));
        place = PathBuf::from(next);
    }
    if let Err(error) = fs::rename(file, &place) {
        let _ = fs::remove_file(&place);
        return Err(error);
    }
    Ok(place)
}

/// Returns whether there is a file beside this one that [`set_aside`] has put there.
///
/// # Errors
/// A folder that cannot be listed.
pub(crate) fn has_set_aside(file: &Path) -> Result<bool, file::FileError> {
    let aside = backup_of(file);
    let (Some(folder), Some(aside)) = (file.parent(), aside.file_name()) else { return Ok(false) };
    let aside = aside.to_string_lossy();
    Ok(file::list_names(folder)?.iter().any(|name| name.starts_with(&*aside)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_keeps_a_backup_the_mode_and_the_link_and_lets_go_of_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("config"), folder.path().join("link"));
        fs::write(&file, "a: 1\n").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let added = change_file(&link, Readers::AsBefore, |text| Ok(Some(format!("{text}b: 2\n"))));
        let backup = added.unwrap().backup.unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a: 1\nb: 2\n");
        assert_eq!(fs::read_to_string(backup).unwrap(), "a: 1\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink() && !folder.path().join("config.lock").exists());
        let unchanged = change_file(&file, Readers::AsBefore, |text| Ok(Some(text.to_owned())));
        assert_eq!(unchanged.unwrap(), Changed::default(), "nothing changed, nothing written");
    }

    #[test]
    fn a_file_that_gets_a_key_is_its_owners_alone_whether_its_text_changes_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        for after in ["a: 1\nb: 2\n", "a: 1\n"] {
            fs::write(&file, "a: 1\n").unwrap();
            fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
            let [first, second] =
                [(); 2].map(|()| change_file(&file, Readers::OwnerOnly, |_| Ok(Some(after.to_owned()))).unwrap());
            assert!(first.closed && !second.closed, "it is said once");
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_is_put_aside_is_kept_as_it_was_under_the_name_of_a_backup() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet-kubeconfig");
        fs::write(&file, "a: 1\n").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let kept = set_aside(&file).unwrap();
        assert!(!file.exists() && kept.ends_with("fleet-kubeconfig.before-fleetctl"));
        assert_eq!(fs::read_to_string(&kept).unwrap(), "a: 1\n");
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
        // Those that follow take nothing from it.
        for number in [2, 3] {
            fs::write(&file, format!("a: {number}\n")).unwrap();
            let next = set_aside(&file).unwrap();
            assert!(next.ends_with(format!("fleet-kubeconfig.before-fleetctl-{number}")), "{}", next.display());
            assert_eq!(fs::read_to_string(&next).unwrap(), format!("a: {number}\n"));
        }
        assert_eq!(fs::read_to_string(&kept).unwrap(), "a: 1\n");
    }

    #[test]
    fn what_cannot_be_put_aside_stays_and_no_name_is_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet-kubeconfig");
        assert!(set_aside(&file).is_err(), "nothing is there");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // A folder does not replace a file.
        fs::create_dir(&file).unwrap();
        assert!(set_aside(&file).is_err());
        assert!(file.is_dir() && fs::read_dir(folder.path()).unwrap().count() == 1);
    }

    #[test]
    fn a_file_that_another_program_has_locked_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        fs::write(folder.path().join("config.lock"), "").unwrap();
        let error = change_file(&file, Readers::AsBefore, |_| Ok(Some("x".to_owned()))).unwrap_err();
        assert!(matches!(error, FileError::Locked { .. }), "{error}");
        assert!(!file.exists() && folder.path().join("config.lock").exists());
    }

    #[test]
    fn a_link_to_a_file_that_does_not_exist_yet_is_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("middle", root.join("config")).unwrap();
        std::os::unix::fs::symlink("real/config", root.join("middle")).unwrap();
        change_file(&root.join("config"), Readers::OwnerOnly, |_| Ok(Some("a: 1\n".to_owned()))).unwrap();
        assert_eq!(fs::read_to_string(root.join("real/config")).unwrap(), "a: 1\n");
        assert!(root.join("config").is_symlink() && root.join("middle").is_symlink());
        std::os::unix::fs::symlink("circle", root.join("circle")).unwrap();
        let error = change_file(&root.join("circle"), Readers::OwnerOnly, |_| Ok(Some(String::new()))).unwrap_err();
        assert!(matches!(error, FileError::Io { .. }), "{error}");
    }

    #[test]
    fn what_is_no_file_is_refused_and_nothing_is_made_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("folder")).unwrap();
        std::os::unix::fs::symlink("/dev/null", root.join("device")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        for file in [root.join("folder"), root.join("device"), root.join("pipe"), PathBuf::from("/dev/null")] {
            let error = change_file(&file, Readers::OwnerOnly, |_| Ok(Some("key".to_owned()))).unwrap_err();
            assert!(matches!(error, FileError::NotReplaceable(_)), "{}: {error}", file.display());
            assert_eq!(read_text_or_empty(&root.join("pipe")).unwrap(), "", "a pipe is not waited for");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        assert!(!Path::new("/dev/null.lock").exists() && !Path::new("/dev/null").is_file());
    }

    #[test]
    fn a_refused_edit_leaves_file_and_folder_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        fs::write(&file, "a: 1\n").unwrap();
        let refused = change_file(&file, Readers::OwnerOnly, |_| Err(EditError::Unusable("x")));
        assert!(matches!(refused, Err(FileError::Edit { .. })));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
