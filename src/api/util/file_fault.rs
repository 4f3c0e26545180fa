//! The fault behind an error of the file system: which file or folder refuses, its owner, and the command that repairs
//! it.
//!
//! Every error of a file on the user's machine is classified here. Facts come from the file system itself, at the moment of the
//! error: who owns what, which folder cannot be opened, where a file system is mounted, whether it has room.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::io::ErrorKind as K;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::api::shell::quote_word;

/// The superuser.
const ROOT: u32 = 0;
/// Number of symbolic links in one path that Linux follows at most.
const MOST_LINKS: u8 = 40;

/// Use that a file was opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Reading, listing, inspecting.
    Read,
    /// Writing, creating, replacing, deleting.
    Write,
}

/// Reason that a file cannot be used, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct FileFault {
    kind: io::ErrorKind,
    cause: String,
    remedy: Option<String>,
}

impl FileFault {
    /// Classifies an error of the file system by what is at `path` now.
    pub fn from_io_error(path: &Path, usage: Usage, error: &io::Error) -> Self {
        if let Some(known) = Self::in_error(error) {
            return known.clone();
        }
        let kind = error.kind();
        let path = &std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (cause, remedy) = match kind {
            K::PermissionDenied => describe_refusal(path, usage),
            K::NotFound => describe_absence(path, usage),
            // A folder cannot be made where a link to nothing is.
            K::AlreadyExists if path.metadata().is_err() => describe_absence(path, usage),
            K::NotADirectory => describe_file_in_path(path),
            K::IsADirectory => ("it is a folder, not a file".to_owned(), None),
            _ if error.raw_os_error() == Some(libc::ELOOP) => {
                ("its symbolic links form a loop".to_owned(), Some(format!("inspect them: `ls -l {}`", word(path))))
            }
            K::ReadOnlyFilesystem => {
                let mount = find_mount_point(path);
                let remedy = format!(
                    "choose a path on another file system, or make this one writable: `sudo mount -o remount,rw {}`",
                    word(&mount)
                );
                (format!("the file system at `{}` is read-only", mount.display()), Some(remedy))
            }
            K::StorageFull => describe_full_disk(path),
            K::QuotaExceeded => {
                let (user, mount) = (describe_user(own_user()), find_mount_point(path));
                let cause = format!("the disk quota of {user} is used up on the file system at `{}`", mount.display());
                (
                    cause,
                    Some("delete some of your files there, or ask for a higher quota; `quota -s` prints it".to_owned()),
                )
            }
            K::ResourceBusy | K::CrossesDevices => {
                let cause = format!("`{}` is a mount point, so no other file can take its place", path.display());
                let folder = path.parent().unwrap_or(path);
                let remedy = format!("mount its folder {} instead of the file, or choose another path", word(folder));
                (cause, Some(remedy))
            }
            K::StaleNetworkFileHandle => {
                let mount = find_mount_point(path);
                let remedy = format!("mount it again: `sudo umount {0} && sudo mount {0}`", word(&mount));
                ("the server of the network file system no longer has this file".to_owned(), Some(remedy))
            }
            _ if error.raw_os_error() == Some(libc::EIO) => {
                let cause =
                    format!("the file system at `{}` cannot be read or written", find_mount_point(path).display());
                (format!("{cause}: {error}"), Some("look for disk errors: `sudo dmesg`".to_owned()))
            }
            _ => (error.to_string(), None),
        };
        Self { kind, cause, remedy }
    }

    /// Returns the fault that [`crate::api::util::file`] has put into an error.
    pub fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The remedy, a clause with a command where there is one.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}

impl From<FileFault> for io::Error {
    fn from(fault: FileFault) -> Self {
        Self::new(fault.kind, fault)
    }
}

fn word(path: &Path) -> String {
    quote_word(&path.to_string_lossy()).into_owned()
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The name of a user as `/etc/passwd` has it, else the number.
pub fn find_user_name(user: u32) -> String {
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == user.to_string()).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| user.to_string())
}

fn describe_user(user: u32) -> String {
    let name = find_user_name(user);
    if name == user.to_string() { format!("user {name}") } else { name }
}

/// The cause and the remedy of a permission that is missing.
fn describe_refusal(path: &Path, usage: Usage) -> (String, Option<String>) {
    let Some((place, metadata)) = find_refusing_place(path, usage, MOST_LINKS) else {
        let place = path.ancestors().find(|place| place.symlink_metadata().is_ok()).unwrap_or(path);
        let cause = format!("permission denied, although owner and mode of `{}` allow it", place.display());
        let remedy = format!(
            "look for an ACL, an immutable flag or a security module: `ls -ldZ {0}; lsattr -d {0}`",
            word(place)
        );
        return (cause, Some(remedy));
    };
    let is_at_home = std::env::home_dir().is_some_and(|home| place.starts_with(home));
    let owner = Owner { user: metadata.uid(), mode: metadata.mode() & 0o7777, is_folder: metadata.is_dir() };
    describe_owner(path, &place, &owner, usage, own_user(), is_at_home)
}

/// Owner and mode of a place that refuses.
struct Owner {
    user: u32,
    mode: u32,
    is_folder: bool,
}

/// The cause and the remedy where `place`, `path` itself or a folder above it, refuses `user`.
fn describe_owner(
    path: &Path,
    place: &Path,
    owner: &Owner,
    usage: Usage,
    user: u32,
    is_at_home: bool,
) -> (String, Option<String>) {
    let cause = format!(
        "permission denied: `{}` is owned by {} (mode {:04o}), and this program runs as {}",
        place.display(),
        describe_user(owner.user),
        owner.mode,
        describe_user(user)
    );
    let remedy = match () {
        () if owner.user == user => {
            let bits = if owner.is_folder { "u+rwx" } else { "u+rw" };
            format!("give yourself the permission: `chmod {bits} {}`", word(place))
        }
        () if user == ROOT => {
            format!("run the command as {0}: `sudo -u {0}`", find_user_name(owner.user))
        }
        () if is_at_home => {
            let all = if owner.is_folder { "-R " } else { "" };
            format!("take ownership again: `sudo chown {all}{} {}`", find_user_name(user), word(place))
        }
        () if usage == Usage::Read && !owner.is_folder => {
            format!("use your own copy: `sudo install -m 600 -o {} {} COPY`", find_user_name(user), word(path))
        }
        () => format!("choose a path that you own, or run the command as {}", find_user_name(owner.user)),
    };
    (cause, Some(remedy))
}

/// Finds the first folder on the way to a path that cannot be opened, else the file itself, or for writing its folder, if it
/// refuses.
fn find_refusing_place(path: &Path, usage: Usage, links: u8) -> Option<(PathBuf, Metadata)> {
    let folders: Vec<&Path> = path.ancestors().skip(1).collect();
    for folder in folders.iter().rev() {
        let Ok(metadata) = std::fs::metadata(folder) else {
            // A link to a folder that cannot be opened.
            let target = std::fs::read_link(folder).ok().filter(|_| links > 0)?;
            return find_refusing_place(&folder.parent()?.join(target).join("."), usage, links - 1);
        };
        if refuses_access(folder, Access::EXEC_OK) {
            return Some((folder.to_path_buf(), metadata));
        }
    }
    let folder = folders.first().copied().unwrap_or(path);
    let Ok(metadata) = std::fs::metadata(path) else {
        if let Some(target) = std::fs::read_link(path).ok().filter(|_| links > 0) {
            return find_refusing_place(&folder.join(target), usage, links - 1);
        }
        let metadata = std::fs::metadata(folder).ok()?;
        return refuses_access(folder, Access::WRITE_OK).then(|| (folder.to_path_buf(), metadata));
    };
    let own = if usage == Usage::Write { Access::WRITE_OK } else { Access::READ_OK };
    let own = if metadata.is_dir() { own | Access::EXEC_OK } else { own };
    if refuses_access(path, own) {
        return Some((path.to_path_buf(), metadata));
    }
    let metadata = std::fs::metadata(folder).ok()?;
    (usage == Usage::Write && refuses_access(folder, Access::WRITE_OK)).then(|| (folder.to_path_buf(), metadata))
}

fn refuses_access(place: &Path, access: Access) -> bool {
    rustix::fs::access(place, access).is_err()
}

/// The cause and the remedy where nothing is at a path.
fn describe_absence(path: &Path, usage: Usage) -> (String, Option<String>) {
    let first = path.ancestors().take_while(|place| place.metadata().is_err()).last().unwrap_or(path);
    if let Ok(target) = std::fs::read_link(first) {
        let cause = format!("`{}` is a symbolic link to `{}`, which does not exist", first.display(), target.display());
        return (cause, Some(format!("inspect it: `ls -l {}`", word(first))));
    }
    if first == path {
        return ("it does not exist".to_owned(), None);
    }
    let folder = path.parent().filter(|_| usage == Usage::Write);
    let remedy = folder.map(|folder| format!("create the folder: `mkdir -p {}`", word(folder)));
    (format!("the folder `{}` does not exist", first.display()), remedy)
}

/// The cause and the remedy where a file is in the place of a folder above a path.
fn describe_file_in_path(path: &Path) -> (String, Option<String>) {
    let Some(file) = path.ancestors().skip(1).find(|place| place.metadata().is_ok_and(|metadata| !metadata.is_dir()))
    else {
        return ("a part of the path is not a folder".to_owned(), None);
    };
    let remedy = format!("move it away: `mv {0} {0}.old`", word(file));
    (format!("`{}` is a file, but a folder is needed", file.display()), Some(remedy))
}

/// The cause and the remedy where a file system has no room.
fn describe_full_disk(path: &Path) -> (String, Option<String>) {
    let mount = find_mount_point(path);
    let has_inodes = rustix::fs::statvfs(&mount).map_or(true, |room| room.f_favail > 0 || room.f_files == 0);
    let (cause, flag) =
        if has_inodes { ("no space left", "-h") } else { ("no space left for another file (inode)", "-i") };
    let remedy =
        format!("free some space there and run the command again; `df {flag} {}` prints the free space", word(&mount));
    (format!("{cause} on the file system at `{}`", mount.display()), Some(remedy))
}

/// The folder, or the file, on which the file system of a path is mounted.
fn find_mount_point(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|place| place.canonicalize().ok());
    let known = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = existing.and_then(|place| find_listed_mount(&known, &place));
    mount.unwrap_or_else(|| find_device_root(path))
}

/// The innermost mount point above a path without links, of a list as `/proc/self/mounts`.
fn find_listed_mount(known: &str, place: &Path) -> Option<PathBuf> {
    let points = known.lines().filter_map(|line| line.split(' ').nth(1)).map(unescape_mount_point);
    points.filter(|point| place.starts_with(point)).max_by_key(|point| point.components().count())
}

/// A path in which spaces, tabs, line breaks and backslashes are written as `\\` and three octal digits.
fn unescape_mount_point(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The uppermost folder on the same device, where no mount points are listed. A part of a file system that is mounted
/// elsewhere is not seen by it.
fn find_device_root(path: &Path) -> PathBuf {
    let mut existing = path.ancestors().filter_map(|place| Some((place, place.metadata().ok()?.dev())));
    let Some((mut mount, device)) = existing.next() else { return PathBuf::from("/") };
    for (place, other) in existing {
        if other != device {
            break;
        }
        mount = place;
    }
    mount.to_path_buf()
}

#[cfg(test)]
#[path = "file_fault_tests.rs"]
mod tests;
