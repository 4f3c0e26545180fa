//! `fleet-scheduler store`: the folders of a member of etcd on its volume, while a restore replaces its store.
//!
//! ```text
//! etcd             the store that the member runs on
//! etcd.new-RUN     the store that a run has prepared
//! etcd.before-RUN  the former store, after the swap
//! ```
//!
//! Folders are renamed and never copied, each action can be repeated, and one that was interrupted is completed by the same
//! action or undone by `rollback`. A member without a store gets an empty folder as its former one, so that the way back
//! is the same.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::daemon::log::{self, LogFormat};

/// Part of the name of a store that was prepared.
const NEW: &str = ".new-";
/// Part of the name of a former store.
const BEFORE: &str = ".before-";
/// Unit in which a file system counts what a file takes.
const BLOCK_BYTES: u64 = 512;

/// Work on the folders of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreAction {
    /// Delete stores that other runs prepared, and check that the volume has enough free space
    Prepare,
    /// Check that the prepared store is complete, and sync it to disk
    Confirm,
    /// Replace the current store with the prepared one
    Swap,
    /// Restore the former store, and delete the prepared one
    Rollback,
    /// Delete former stores
    Commit,
}

/// The folders, and what to do with them.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// Action to take on the folders
    pub action: StoreAction,

    /// Folder of the member's store, such as /data/etcd
    #[arg(long)]
    pub data_dir: PathBuf,

    /// Run that prepares the store
    #[arg(long)]
    pub run: String,

    /// Bytes that must be free for `prepare`
    #[arg(long, default_value_t = 0)]
    pub need_bytes: u64,

    /// File into which `swap` writes the total size of all former stores, in bytes
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Runs `fleet-scheduler store`.
///
/// # Errors
/// A volume that refuses, or folders that no such run has left.
pub fn main(format: LogFormat, args: &StoreArgs) -> anyhow::Result<()> {
    log::start_logging(format);
    let folders = StoreFolders::new(&args.data_dir, &args.run)?;
    match args.action {
        StoreAction::Prepare => folders.make_room(args.need_bytes)?,
        StoreAction::Confirm => folders.confirm_prepared()?,
        StoreAction::Swap => {
            folders.swap_stores()?;
            if let Some(report) = &args.report {
                fs_err::write(report, folders.measure_former()?.to_string())?;
            }
        }
        StoreAction::Rollback => folders.swap_back()?,
        StoreAction::Commit => folders.delete_by_prefix(BEFORE)?,
    }
    tracing::info!(action = ?args.action, "done");
    Ok(())
}

/// The folders of one member.
#[derive(Debug)]
pub struct StoreFolders {
    parent: PathBuf,
    name: String,
    store: PathBuf,
    prepared: PathBuf,
    former: PathBuf,
}

impl StoreFolders {
    /// The folders of a run.
    ///
    /// # Errors
    /// A path or a run that is no name.
    pub fn new(data_dir: &Path, run: &str) -> io::Result<Self> {
        let is_id = !run.is_empty() && run.len() <= 64 && run.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let name = data_dir.file_name().and_then(|name| name.to_str());
        let (Some(parent), Some(name), true) = (data_dir.parent(), name, is_id) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of the folder or the run is invalid"));
        };
        Ok(Self {
            parent: parent.to_owned(),
            name: name.to_owned(),
            store: data_dir.to_owned(),
            prepared: parent.join(format!("{name}{NEW}{run}")),
            former: parent.join(format!("{name}{BEFORE}{run}")),
        })
    }

    /// Deletes what was prepared before, and fails without this much room.
    ///
    /// # Errors
    /// Too little room, or a volume that refuses.
    pub fn make_room(&self, need_bytes: u64) -> io::Result<()> {
        self.delete_by_prefix(NEW)?;
        let volume = rustix::fs::statvfs(&self.parent)?;
        let free = volume.f_bavail.saturating_mul(volume.f_frsize);
        if free < need_bytes {
            let why = format!("the volume has {free} bytes free, but the restored data needs {need_bytes}");
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        Ok(())
    }

    /// Fails unless the prepared store is there; all of it is on disk then.
    ///
    /// # Errors
    /// No whole store, or a volume that refuses.
    pub fn confirm_prepared(&self) -> io::Result<()> {
        for part in ["member/snap/db", "member/wal"] {
            if !exists(&self.prepared.join(part))? {
                return Err(other(format!("the prepared store has no {part}")));
            }
        }
        rustix::fs::syncfs(File::open(&self.parent)?)?;
        Ok(())
    }

    /// Puts the prepared store in the place of the store.
    ///
    /// # Errors
    /// No prepared store, or a volume that refuses.
    pub fn swap_stores(&self) -> io::Result<()> {
        let has_former = exists(&self.former)?;
        if !exists(&self.prepared)? {
            return if has_former { Ok(()) } else { Err(other("no store was prepared by this run".to_owned())) };
        }
        match (exists(&self.store)?, has_former) {
            (true, false) => std::fs::rename(&self.store, &self.former)?,
            (false, false) => std::fs::create_dir(&self.former)?,
            (false, true) => {}
            (true, true) => return Err(other("the current, the former and the prepared store all exist".to_owned())),
        }
        std::fs::rename(&self.prepared, &self.store)?;
        File::open(&self.parent)?.sync_all()
    }

    /// Puts the former store back, and deletes what was prepared.
    ///
    /// # Errors
    /// A volume that refuses.
    pub fn swap_back(&self) -> io::Result<()> {
        if exists(&self.former)? {
            if exists(&self.store)? {
                if exists(&self.prepared)? {
                    return Err(other("the current, the former and the prepared store all exist".to_owned()));
                }
                std::fs::rename(&self.store, &self.prepared)?;
            }
            std::fs::rename(&self.former, &self.store)?;
            File::open(&self.parent)?.sync_all()?;
        }
        self.delete_by_prefix(NEW)
    }

    /// Measures the former stores of all runs, in bytes that they take on the volume.
    ///
    /// # Errors
    /// A volume that refuses.
    pub fn measure_former(&self) -> io::Result<u64> {
        self.list_by_prefix(BEFORE)?.iter().try_fold(0, |bytes, folder| Ok(bytes + measure_folder(folder)?))
    }

    /// Deletes the folders whose names begin so, behind that of the store.
    fn delete_by_prefix(&self, prefix: &str) -> io::Result<()> {
        for folder in self.list_by_prefix(prefix)? {
            std::fs::remove_dir_all(folder)?;
        }
        File::open(&self.parent)?.sync_all()
    }

    fn list_by_prefix(&self, prefix: &str) -> io::Result<Vec<PathBuf>> {
        let prefix = format!("{}{prefix}", self.name);
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(&self.parent)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() && entry.file_name().to_string_lossy().starts_with(&prefix) {
                folders.push(entry.path());
            }
        }
        Ok(folders)
    }
}

/// Measures what a folder of a store takes on its volume. Links are not followed.
fn measure_folder(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { measure_folder(&entry.path())? } else { metadata.blocks() * BLOCK_BYTES };
    }
    Ok(bytes)
}

fn exists(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn other(why: String) -> io::Error {
    io::Error::other(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume with a store that contains this text, if any.
    fn volume(store: Option<&str>) -> (tempfile::TempDir, StoreFolders) {
        let volume = tempfile::tempdir().unwrap();
        if let Some(text) = store {
            write_store(&volume.path().join("etcd"), text);
        }
        let folders = StoreFolders::new(&volume.path().join("etcd"), "r1").unwrap();
        (volume, folders)
    }

    fn write_store(folder: &Path, text: &str) {
        std::fs::create_dir_all(folder.join("member/snap")).unwrap();
        std::fs::create_dir_all(folder.join("member/wal")).unwrap();
        std::fs::write(folder.join("member/snap/db"), text).unwrap();
    }

    fn names(volume: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(volume).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn text(volume: &Path) -> String {
        std::fs::read_to_string(volume.join("etcd/member/snap/db")).unwrap()
    }

    #[test]
    fn a_swap_can_be_repeated_and_taken_back() {
        let (volume, folders) = volume(Some("old"));
        let volume = volume.path();
        assert!(folders.swap_stores().unwrap_err().to_string().contains("no store was prepared"));
        write_store(&volume.join("etcd.new-other"), "half");
        folders.make_room(1).unwrap();
        assert_eq!(names(volume), ["etcd"]);
        assert!(folders.confirm_prepared().is_err());
        write_store(&volume.join("etcd.new-r1"), "new");
        folders.confirm_prepared().unwrap();
        for _ in 0..2 {
            folders.swap_stores().unwrap();
            assert_eq!((names(volume), text(volume)), (vec!["etcd".into(), "etcd.before-r1".into()], "new".into()));
        }
        for _ in 0..2 {
            folders.swap_back().unwrap();
            assert_eq!((names(volume), text(volume)), (vec!["etcd".to_owned()], "old".to_owned()));
        }
    }

    #[test]
    fn former_stores_of_all_runs_are_measured() {
        let (volume, folders) = volume(Some("old"));
        let volume = volume.path();
        write_store(&volume.join("etcd.new-r1"), "new");
        assert_eq!(folders.measure_former().unwrap(), 0);
        write_store(&volume.join("etcd.before-r0"), &"x".repeat(100_000));
        folders.swap_stores().unwrap();
        let bytes = folders.measure_former().unwrap();
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        folders.delete_by_prefix(BEFORE).unwrap();
        assert_eq!(folders.measure_former().unwrap(), 0);
    }

    #[test]
    fn a_swap_that_stopped_half_way_ends_in_either_state() {
        for back in [false, true] {
            let (volume, folders) = volume(Some("old"));
            let volume = volume.path();
            write_store(&volume.join("etcd.new-r1"), "new");
            std::fs::rename(volume.join("etcd"), volume.join("etcd.before-r1")).unwrap();
            if back {
                folders.swap_back().unwrap();
                assert_eq!((names(volume), text(volume)), (vec!["etcd".to_owned()], "old".to_owned()));
            } else {
                folders.swap_stores().unwrap();
                assert_eq!(text(volume), "new");
                folders.delete_by_prefix(BEFORE).unwrap();
                assert_eq!(names(volume), ["etcd"]);
            }
        }
    }

    #[test]
    fn a_volume_without_a_store_is_empty_again_after_the_way_back() {
        let (volume, folders) = volume(None);
        let volume = volume.path();
        write_store(&volume.join("etcd.new-r1"), "new");
        folders.swap_stores().unwrap();
        assert_eq!(text(volume), "new");
        folders.swap_back().unwrap();
        assert_eq!(names(volume), ["etcd"]);
        assert_eq!(std::fs::read_dir(volume.join("etcd")).unwrap().count(), 0);
    }

    #[test]
    fn too_little_room_and_odd_names_are_refused() {
        let (_volume, folders) = volume(Some("old"));
        assert_eq!(folders.make_room(u64::MAX).unwrap_err().kind(), io::ErrorKind::StorageFull);
        for run in ["", "../x", "a b"] {
            assert!(StoreFolders::new(Path::new("/data/etcd"), run).is_err(), "{run}");
        }
    }
}
