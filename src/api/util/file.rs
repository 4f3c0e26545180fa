//! Writing files: whole or not at all, and never over anything but a regular file of the user's own. Reading small ones from
//! folders in which others may put something else.
//!
//! Everything that is written on the operator's machine goes through here: keys, kubeconfigs, rendered objects and the
//! local journal. Whoever may make names in the same folder (a link to another file, a device, somebody else's file) gets
//! nothing written through them.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::file_fault::{FileFault, Usage, find_user_name};
use crate::api::remedy::Remedy;
use crate::api::shell::quote_word;

/// The mode of a folder that holds keys.
pub const PRIVATE_FOLDER: u32 = 0o700;
/// The mode of a file that may hold keys.
pub const PRIVATE: u32 = 0o600;
/// The mode of a file that anybody may read, less what the umask takes away.
pub const PUBLIC: u32 = 0o644;

/// The superuser, who writes files on behalf of their owners.
const ROOT: u32 = 0;
/// Description of a file of somebody else.
const OF_ANOTHER_USER: &str = "a file owned by another user";

/// Reason that a file or folder cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Something that could lead elsewhere, or that others could change, stands in the way. It was left as it is.
    #[error("`{}` is {found}; expected {expected}", path.display())]
    Unexpected {
        /// Path of the file or folder.
        path: PathBuf,
        /// Description of the existing file, as a noun phrase.
        found: &'static str,
        /// Description of the expected file, as a noun phrase.
        expected: &'static str,
    },
    /// The file system refused.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// Action that was tried, as a verb.
        action: &'static str,
        /// Path of the file or folder that it was tried on.
        path: PathBuf,
        /// Error of the file system, which carries its [`FileFault`].
        #[source]
        source: io::Error,
    },
}

impl FileError {
    /// The remedy, where one is known.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Unexpected { found: OF_ANOTHER_USER, path, .. } => {
                let user = find_user_name(rustix::process::geteuid().as_raw());
                let path = path.to_string_lossy();
                Some(format!("take ownership: `sudo chown {user} {}`", quote_word(&path)).into())
            }
            Self::Unexpected { path, .. } => Some(
                format!("find out what it is, and move it away: `ls -ld {}`", quote_word(&path.to_string_lossy()))
                    .into(),
            ),
            Self::Io { source, .. } => FileFault::in_error(source).and_then(FileFault::remedy).map(Remedy::new),
        }
    }
}

/// Wraps an error of the file system with the action that was tried, as a verb, and the path that it was tried on; the fault
/// behind it is looked for in the file system.
pub fn wrap_io_error<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |error| {
        let usage = if matches!(action, "read" | "inspect" | "list") { Usage::Read } else { Usage::Write };
        let source = FileFault::from_io_error(path, usage, &error).into();
        FileError::Io { action, path: path.to_owned(), source }
    }
}

/// The kind of a file, as a noun phrase.
pub fn describe_file_kind(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = metadata.file_type();
    match () {
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_dir() => "a folder",
        () if kind.is_file() => "a regular file",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// Returns the metadata of what is at a path, without following a link; `None` where there is nothing.
pub fn read_metadata(path: &Path) -> Result<Option<Metadata>, FileError> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrap_io_error("inspect", path)(error)),
    }
}

/// Returns whether the user of this process owns a file; root may write for every owner.
fn is_own(metadata: &Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    metadata.uid() == user || user == ROOT
}

/// Returns the metadata of what is at a path, where it may be replaced: a regular file of the user's own, or nothing.
///
/// # Errors
/// [`FileError::Unexpected`] for links, folders, devices, pipes, sockets and files of other users.
pub fn check_replaceable(path: &Path) -> Result<Option<Metadata>, FileError> {
    let expected = "a regular file that you own, or nothing";
    match read_metadata(path)? {
        Some(metadata) if !metadata.is_file() => Err(unexpected_file(path, describe_file_kind(&metadata), expected)),
        Some(metadata) if !is_own(&metadata) => Err(unexpected_file(path, OF_ANOTHER_USER, expected)),
        found => Ok(found),
    }
}

fn unexpected_file(path: &Path, found: &'static str, expected: &'static str) -> FileError {
    FileError::Unexpected { path: path.to_owned(), found, expected }
}

/// Writes a file whole: a new one beside it, synced to disk, then renamed into its place. It has `mode` whatever the former
/// one had, less what the umask takes away where there was none; under root the owner stays.
///
/// # Errors
/// Refusals of [`check_replaceable`] and of the file system; the file is then as it was.
pub fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    let former = check_replaceable(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // In the same folder, so that the rename is atomic.
    let mut fresh = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder)
        .map_err(wrap_io_error("write", path))?;
    if let Some(former) = former {
        if former.uid() != rustix::process::geteuid().as_raw() {
            fchown(fresh.as_file(), Some(former.uid()), Some(former.gid())).map_err(wrap_io_error("write", path))?;
        }
        fresh.as_file().set_permissions(Permissions::from_mode(mode)).map_err(wrap_io_error("write", path))?;
    }
    fresh.write_all(bytes).and_then(|()| fresh.as_file().sync_all()).map_err(wrap_io_error("write", path))?;
    fresh.persist(path).map(drop).map_err(|error| wrap_io_error("write", path)(error.error))
}

/// Reads a regular file of at most `largest` bytes without following a link or waiting for a pipe; `None` where there is nothing.
///
/// # Errors
/// [`FileError::Unexpected`] for links, folders, devices, pipes, sockets and larger files; errors of the file system.
pub fn read_bounded_file(path: &Path, largest: u64) -> Result<Option<Vec<u8>>, FileError> {
    let expected = "a small regular file";
    match read_metadata(path)? {
        None => return Ok(None),
        Some(metadata) if !metadata.is_file() => {
            return Err(unexpected_file(path, describe_file_kind(&metadata), expected));
        }
        Some(_) => {}
    }
    let mut options = OpenOptions::new();
    // Somebody may put something else into its place between the look and the opening.
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(wrap_io_error("read", path))?;
    let opened = file.metadata().map_err(wrap_io_error("read", path))?;
    if !opened.is_file() {
        return Err(unexpected_file(path, describe_file_kind(&opened), expected));
    }
    // With its size known, and a byte to see its end, it takes two calls of the system.
    let size = usize::try_from(opened.len().min(largest)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(size + 1);
    file.take(largest + 1).read_to_end(&mut bytes).map_err(wrap_io_error("read", path))?;
    if bytes.len() as u64 > largest {
        Err(unexpected_file(path, "a very large file", expected))
    } else {
        Ok(Some(bytes))
    }
}

/// Reads the text of a file as [`read_bounded_file`] does.
///
/// # Errors
/// Those of [`read_bounded_file`], and a file that is not UTF-8.
pub fn read_text(path: &Path, largest: u64) -> Result<Option<String>, FileError> {
    read_bounded_file(path, largest)?
        .map(|bytes| String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)))
        .transpose()
        .map_err(wrap_io_error("read", path))
}

/// Reads the text of a file that users may put there themselves, through links and whatever its kind; `None` where there is
/// nothing. Of a device or pipe, at most `largest` bytes are read.
///
/// # Errors
/// Errors of the file system, a file that is larger, and one that is not UTF-8.
pub fn read_linked_text(path: &Path, largest: u64) -> Result<Option<String>, FileError> {
    let file = match File::open(path) {
        Err(error) if is_absent(&error) => return Ok(None),
        opened => opened.map_err(wrap_io_error("read", path))?,
    };
    let mut text = String::new();
    let read = file.take(largest + 1).read_to_string(&mut text).map_err(wrap_io_error("read", path))?;
    if read as u64 > largest {
        let (found, expected) = ("a very large file", "a small file");
        return Err(FileError::Unexpected { path: path.to_owned(), found, expected });
    }
    Ok(Some(text))
}

/// Returns whether an error says that there is no such file: nothing is at the path, or a file is in the place of a folder.
/// Every other error leaves open whether there is one.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns whether something is at a path, behind links.
///
/// # Errors
/// Errors of the file system that leave it open, such as a folder that cannot be opened.
pub fn is_present(path: &Path) -> Result<bool, FileError> {
    match std::fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(wrap_io_error("inspect", path)(error)),
    }
}

/// The names in a folder that are text, sorted; none where there is no such folder.
///
/// # Errors
/// Errors of the file system that leave open what is in it.
pub fn list_names(folder: &Path) -> Result<Vec<String>, FileError> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        entries => entries.map_err(wrap_io_error("list", folder))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(wrap_io_error("list", folder))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// Opens a file for appending, made [`PRIVATE`] where it is new and closed to others where it is not.
///
/// # Errors
/// Refusals of [`check_replaceable`], also of what comes into the file's place between the look and the opening.
pub fn open_for_append(path: &Path) -> Result<File, FileError> {
    check_replaceable(path)?;
    let mut options = OpenOptions::new();
    // Neither a link nor a pipe without a reader that has come since is followed or waited for.
    options.append(true).create(true).mode(PRIVATE).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(wrap_io_error("open", path))?;
    let opened = file.metadata().map_err(wrap_io_error("inspect", path))?;
    if !opened.is_file() || !is_own(&opened) || opened.nlink() != 1 {
        let expected = "a regular file that you own, without hard links";
        return Err(FileError::Unexpected {
            path: path.to_owned(),
            found: "a file that was replaced meanwhile",
            expected,
        });
    }
    if opened.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(PRIVATE))
            .map_err(wrap_io_error("restrict the permissions of", path))?;
    }
    Ok(file)
}

/// Makes a folder and those above it where they are missing, all [`PRIVATE_FOLDER`], and closes an existing one to others.
///
/// # Errors
/// [`FileError::Unexpected`] where something else is there, a link to a folder too.
pub fn private_folder(folder: &Path) -> Result<(), FileError> {
    match read_metadata(folder)? {
        Some(metadata) if metadata.is_dir() => {
            if metadata.permissions().mode() & 0o077 != 0 {
                std::fs::set_permissions(folder, Permissions::from_mode(PRIVATE_FOLDER))
                    .map_err(wrap_io_error("restrict the permissions of", folder))?;
            }
            Ok(())
        }
        Some(metadata) => Err(FileError::Unexpected {
            path: folder.to_owned(),
            found: describe_file_kind(&metadata),
            expected: "a folder, or nothing",
        }),
        None => std::fs::DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_FOLDER)
            .create(folder)
            .map_err(wrap_io_error("create the folder", folder)),
    }
}

/// Refuses a folder in which others could put a file of theirs in the place of one that is written there.
///
/// # Errors
/// [`FileError::Unexpected`] for what is no folder, another user's folder, and one that group or others may write.
pub fn own_folder(folder: &Path) -> Result<(), FileError> {
    let metadata = std::fs::metadata(folder).map_err(wrap_io_error("inspect", folder))?;
    let found = match () {
        () if !metadata.is_dir() => describe_file_kind(&metadata),
        () if !is_own(&metadata) => "a folder owned by another user",
        () if metadata.permissions().mode() & 0o022 != 0 => "a folder that other users can write to",
        () => return Ok(()),
    };
    Err(FileError::Unexpected { path: folder.to_owned(), found, expected: "a folder that only you can write to" })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_and_closed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "former, and longer").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        // Whoever has it open goes on reading the former one.
        let other_name = folder.path().join("other-name");
        std::fs::hard_link(&file, &other_name).unwrap();
        replace_file(&file, b"new", PRIVATE).unwrap();
        assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("new", 0o600));
        assert_eq!(std::fs::read_to_string(&other_name).unwrap(), "former, and longer");
        assert_eq!(names(folder.path()), ["key", "other-name"]);
    }

    #[test]
    fn only_a_regular_file_is_replaced_or_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::write(root.join("target"), "theirs").unwrap();
        symlink(root.join("target"), root.join("link")).unwrap();
        symlink(root.join("nothing"), root.join("dangling")).unwrap();
        symlink("/dev/null", root.join("device")).unwrap();
        std::fs::create_dir(root.join("folder")).unwrap();
        let _socket = UnixListener::bind(root.join("socket")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        let before = names(root);
        for name in ["link", "dangling", "device", "folder", "socket", "pipe"] {
            let path = root.join(name);
            assert!(
                matches!(replace_file(&path, b"key", PRIVATE), Err(FileError::Unexpected { .. })),
                "{name} was written"
            );
            assert!(matches!(open_for_append(&path), Err(FileError::Unexpected { .. })), "{name} was appended to");
        }
        assert!(matches!(replace_file(Path::new("/dev/null"), b"key", PRIVATE), Err(FileError::Unexpected { .. })));
        assert_eq!(names(root), before, "nothing is left beside what is refused");
        assert_eq!(std::fs::read_to_string(root.join("target")).unwrap(), "theirs");
    }

    #[test]
    fn only_a_small_regular_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::write(root.join("small"), "1234").unwrap();
        std::fs::write(root.join("large"), "12345").unwrap();
        std::fs::File::create(root.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        symlink(root.join("small"), root.join("link")).unwrap();
        symlink("/dev/zero", root.join("device")).unwrap();
        std::fs::create_dir(root.join("folder")).unwrap();
        let _socket = UnixListener::bind(root.join("socket")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        assert_eq!(read_text(&root.join("small"), 4).unwrap().as_deref(), Some("1234"));
        assert_eq!(read_text(&root.join("nothing"), 4).unwrap(), None);
        for name in ["large", "sparse", "link", "device", "folder", "socket", "pipe"] {
            let found = read_text(&root.join(name), 4);
            assert!(matches!(found, Err(FileError::Unexpected { .. })), "{name}: {found:?}");
        }
        assert!(matches!(read_bounded_file(Path::new("/dev/zero"), 4), Err(FileError::Unexpected { .. })));
    }

    #[test]
    fn only_what_is_not_there_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::write(root.join("file"), "text").unwrap();
        symlink("file", root.join("link")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        assert_eq!(read_linked_text(&root.join("link"), 4).unwrap().as_deref(), Some("text"));
        assert!(is_present(&root.join("link")).unwrap());
        assert_eq!(list_names(root).unwrap(), ["circle", "file", "link"]);
        for name in ["nothing", "file/below"] {
            assert_eq!(read_linked_text(&root.join(name), 4).unwrap(), None, "{name}");
            assert!(
                !is_present(&root.join(name)).unwrap() && list_names(&root.join(name)).unwrap().is_empty(),
                "{name}"
            );
        }
        assert!(matches!(read_linked_text(&root.join("file"), 3), Err(FileError::Unexpected { .. })));
        assert!(read_linked_text(&root.join("circle"), 4).is_err());
        assert!(is_present(&root.join("circle")).is_err() && list_names(&root.join("circle")).is_err());
    }

    #[test]
    fn a_file_that_is_appended_to_is_closed_to_others_and_has_no_other_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        std::fs::write(&file, "1\n").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        open_for_append(&file).unwrap().write_all(b"2\n").unwrap();
        assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("1\n2\n", 0o600));
        std::fs::hard_link(&file, folder.path().join("second-name")).unwrap();
        assert!(matches!(open_for_append(&file), Err(FileError::Unexpected { .. })));
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused_for_keys() {
        let folder = tempfile::tempdir().unwrap();
        assert!(own_folder(folder.path()).is_ok());
        for mode in [0o770, 0o777, 0o702] {
            std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            assert!(matches!(own_folder(folder.path()), Err(FileError::Unexpected { .. })), "{mode:o}");
        }
    }
}
