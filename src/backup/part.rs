//! Parts of an archive: their names, their largest sizes, and their bytes, hashed while they pass.

use std::io::{self, Read};

use sha2::digest::Output;
use sha2::{Digest as _, Sha256};

use super::manifest::Part;
use crate::api::names::is_subdomain;
use crate::api::util::digest::format_digest;

/// Largest size of a part that is not the snapshot, in bytes. A Secret has at most one MiB, a record less.
pub const MOST_SMALL_BYTES: u64 = 8 * 1024 * 1024;
/// Largest size of a snapshot, in bytes: twice the largest `etcd.quotaBytes` that a chart takes.
pub const MOST_SNAPSHOT_BYTES: u64 = 32 * 1024 * 1024 * 1024;
/// Largest number of parts.
pub(super) const MOST_PARTS: usize = 64;

/// Length of etcd's own hash at the end of a snapshot.
const HASH_BYTES: usize = 32;
/// The store consists of pages of a multiple of this size.
const PAGE_BYTES: u64 = 512;

const KEYS: &str = "keys/";

/// Kind of a part, by its name. Parts stand in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartKind {
    Header,
    Key,
    Values,
    Record,
    Snapshot,
    Footer,
}

impl PartKind {
    /// The kind of a part; none for a name that no archive has.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "header.json" => Self::Header,
            "values.yaml" => Self::Values,
            "record.json" => Self::Record,
            "snapshot.db" => Self::Snapshot,
            "footer.json" => Self::Footer,
            _ => {
                let name = name.strip_prefix(KEYS)?.strip_suffix(".yaml")?;
                return is_subdomain(name).then_some(Self::Key);
            }
        })
    }

    /// The name; that of a key is [`key_part_name`].
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Header => "header.json",
            Self::Key => KEYS,
            Self::Values => "values.yaml",
            Self::Record => "record.json",
            Self::Snapshot => "snapshot.db",
            Self::Footer => "footer.json",
        }
    }

    pub(super) const fn most_bytes(self) -> u64 {
        if matches!(self, Self::Snapshot) { MOST_SNAPSHOT_BYTES } else { MOST_SMALL_BYTES }
    }
}

/// The part with a Secret.
pub(super) fn key_part_name(secret: &str) -> String {
    format!("{KEYS}{secret}.yaml")
}

/// Bytes of a part, hashed while they are read; those of a snapshot against etcd's own hash, too.
pub(super) struct PartReader<R> {
    inner: R,
    hash: Sha256,
    /// Number of bytes that were read.
    pub(super) bytes: u64,
    trailer: Option<Trailer>,
    /// Error of the source.
    pub(super) failed: Option<io::Error>,
}

/// The end of a snapshot: the hash of all bytes before it.
struct Trailer {
    /// Size of the store.
    store: u64,
    expected: Option<Output<Sha256>>,
    found: Vec<u8>,
}

impl<R: Read> PartReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), bytes: 0, trailer: None, failed: None }
    }

    /// The bytes of a snapshot of this size, with the hash at its end.
    pub(super) fn of_snapshot(inner: R, size: u64) -> Self {
        let trailer = Trailer { store: size.saturating_sub(HASH_BYTES as u64), expected: None, found: Vec::new() };
        Self { trailer: Some(trailer), ..Self::new(inner) }
    }

    /// The part, after all of it was read.
    pub(super) fn into_part(self, name: &str) -> Part {
        Part { name: name.to_owned(), bytes: self.bytes, sha256: format_digest(&self.hash.finalize()) }
    }

    /// Checks what a snapshot ends with, after all of it was read.
    ///
    /// # Errors
    /// A clause.
    pub(super) fn check_snapshot(&self) -> Result<(), &'static str> {
        let Some(trailer) = &self.trailer else { return Ok(()) };
        if trailer.store == 0 || !trailer.store.is_multiple_of(PAGE_BYTES) {
            return Err("the size of the store is not a multiple of the page size");
        }
        if trailer.expected.as_ref().is_none_or(|expected| expected[..] != trailer.found[..]) {
            return Err("the SHA-256 that etcd appended does not match the data");
        }
        Ok(())
    }

    fn update(&mut self, mut read: &[u8]) {
        if let Some(trailer) = &mut self.trailer {
            let before = usize::try_from(trailer.store.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
            if before <= read.len() {
                let (store, rest) = read.split_at(before);
                self.hash.update(store);
                self.bytes += store.len() as u64;
                trailer.expected.get_or_insert_with(|| self.hash.clone().finalize());
                let missing = HASH_BYTES.saturating_sub(trailer.found.len());
                trailer.found.extend_from_slice(&rest[..missing.min(rest.len())]);
                read = rest;
            }
        }
        self.hash.update(read);
        self.bytes += read.len() as u64;
    }
}

impl<R: Read> Read for PartReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(read) => {
                self.update(&buffer[..read]);
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let shown = io::Error::new(error.kind(), error.to_string());
                self.failed = Some(error);
                Err(shown)
            }
        }
    }
}
