//! The archive of a control plane: one file with the data of etcd and the keys that read it, sealed by age.
//!
//! ```text
//! manifest   header, footer and the file beside the archive: facts without and with the key
//! seal       who can open it: recipients, a passphrase, nobody in particular
//! write      header, keys, values, record, snapshot, footer; as a stream
//! read       the same parts, within limits, each compared with the footer
//! ```
//!
//! An archive is `age( gzip( tar ))`, so `age -d | tar -tz` lists its parts with standard tools. The snapshot is one entry:
//! tar needs its size before, and etcd announces that size in the first message of the stream; a stream of another size is
//! an error, and no archive. A file without a footer is not an archive.
//!
//! The room knows no cluster. Everything that is read is treated as data: names, counts and sizes of parts are limited, and one part of at
//! most [`MOST_SMALL_BYTES`] is in memory at a time.

mod error;
mod manifest;
mod part;
mod read;
mod seal;
mod source;
#[cfg(test)]
mod tests;
mod write;

pub use error::{ArchiveError, Place, WriteError};
pub use manifest::{ClusterId, FORMAT, Footer, Header, MemberName, Part, Rehearsed, RevisionRange, Sidecar, Versions};
pub use part::{MOST_SMALL_BYTES, MOST_SNAPSHOT_BYTES};
pub use read::{Verified, hash_file, read_archive, read_archive_header, verify_archive};
pub use seal::{Identity, Opening, Recipient, RecipientError, Seal};
pub use write::{Contents, KeyFile, Written, write_archive};

/// Name of the part with the snapshot.
pub const SNAPSHOT: &str = part::PartKind::Snapshot.name();
/// End of the name of an archive.
pub const EXTENSION: &str = ".fleet";
/// What an archive without keys has in its name, before [`EXTENSION`].
pub const WITHOUT_KEYS: &str = ".no-keys";
/// What the file beside an archive has behind its name.
pub const SIDECAR: &str = ".json";
