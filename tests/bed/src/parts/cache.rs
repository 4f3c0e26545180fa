//! The cache: what was built once, outside the work tree, shared by all checkouts of this machine.
//!
//! ```text
//! bin/<part>-<version>/…     programs
//! openapi/<minor>/*.json     the API's own schemas of a Kubernetes minor
//! images/                    the bed's images, in the registry's own layout
//! work/                      Go's caches and half-built things; gone when a build is done
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use fs_err as fs;

use crate::parts::{self, Part};
use crate::say::say;

/// The cache of the user who runs the bed.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    root: PathBuf,
}

/// Held while something in the cache is made; the kernel releases it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "the open file is the lock")] std::fs::File);

impl Cache {
    /// `$XDG_CACHE_HOME/fleetctl-bed`, by default in `~/.cache`.
    pub(crate) fn here() -> Result<Self> {
        let base = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let base = base
            .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
            .context("no place for the cache: set HOME or XDG_CACHE_HOME")?;
        Ok(Self { root: base.join("fleetctl-bed") })
    }

    /// The folder itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a part's programs; it exists only when all of them are built.
    pub(crate) fn programs(&self, part: &Part) -> PathBuf {
        self.root.join("bin").join(part.key())
    }

    /// One program.
    pub(crate) fn program(&self, part: &Part, name: &str) -> PathBuf {
        self.programs(part).join(name)
    }

    /// Where the registry of Debian is unpacked.
    pub(crate) fn registry_of_debian(&self) -> PathBuf {
        self.root.join("bin/registry-debian")
    }

    /// The folder below `bin` that has the registry: Debian's, or the one that is built where that cannot be had.
    pub(crate) fn registry_folder(&self) -> String {
        let debian = self.registry_of_debian();
        let found = debian.is_dir().then(|| debian.file_name()).flatten();
        found.map_or_else(|| parts::REGISTRY.key(), |name| name.to_string_lossy().into_owned())
    }

    /// Whether a part is built.
    pub(crate) fn has(&self, part: &Part) -> bool {
        self.programs(part).is_dir()
    }

    /// The API's schemas of a minor.
    pub(crate) fn openapi(&self, minor: &str) -> PathBuf {
        self.root.join("openapi").join(minor)
    }

    /// The images in the registry's layout.
    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// Scratch space on the same file system, so that a rename is all that publishing takes.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Waits until nobody else makes `what`, and says so if that takes a while.
    pub(crate) fn lock(&self, what: &str) -> Result<Lock> {
        fs::create_dir_all(&self.root)?;
        let path = self.root.join(format!("{what}.lock"));
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path)?.into_parts().0;
        if file.try_lock().is_err() {
            say(format!("waiting for another run of the bed that holds {}", path.display()));
            file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Ok(Lock(file))
    }

    /// The bytes that the cache takes on disk.
    pub(crate) fn size(&self) -> u64 {
        size_of_tree(&self.root)
    }

    /// Gives the disk back. Clusters that run keep their open files, and nothing else.
    pub(crate) fn clean(&self) -> Result<u64> {
        if !self.root.exists() {
            return Ok(0);
        }
        let _lock = self.lock("build")?;
        let size = self.size();
        remove_tree(&self.root)?;
        Ok(size)
    }
}

/// Bytes on disk below a folder; a file with several names counts once.
pub(crate) fn size_of_tree(root: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut seen = std::collections::HashSet::new();
    let mut folders = vec![root.to_owned()];
    let mut total = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                folders.push(entry.path());
            } else if meta.nlink() == 1 || seen.insert((meta.dev(), meta.ino())) {
                total += meta.blocks() * 512;
            }
        }
    }
    total
}

/// Removes a tree that others may still be writing to: tries again until nothing is left.
pub(crate) fn remove_tree(root: &Path) -> Result<()> {
    for _ in 0..20 {
        match fs::remove_dir_all(root) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Ok(()) => return Ok(()),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
