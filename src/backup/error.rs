//! Errors of writing and reading archives.

use std::fmt;
use std::io;

/// A place in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// Part that was read; none before the first and behind the last one.
    pub part: Option<String>,
    /// Bytes of the part that had been read.
    pub offset: u64,
    /// Bytes of the file that had been read: up to a block of 64 KiB more than what was looked at.
    pub file_offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            Some(part) => {
                write!(f, "part {part} at byte {} (in the first {} bytes of the file)", self.offset, self.file_offset)
            }
            None => write!(f, "in the first {} bytes of the file", self.file_offset),
        }
    }
}

/// Reason that an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is not what was written, or no archive at all.
    #[error("{place}: {why}")]
    Damaged {
        /// Where it was seen.
        place: Place,
        /// What is wrong, a clause.
        why: String,
    },
    /// No key that was given opens it.
    #[error("{0}")]
    KeysMissing(&'static str),
    /// The file system refuses, or the source ends in an error.
    #[error("cannot read it")]
    Read(#[source] io::Error),
    /// Whoever takes what is read refuses it.
    #[error("cannot pass on the data that was read")]
    Output(#[source] io::Error),
}

impl ArchiveError {
    /// The stable identifier.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Damaged { .. } => "SnapshotDamaged",
            Self::KeysMissing(_) => "KeysMissing",
            Self::Read(_) => "LocalFile",
            Self::Output(_) => "RestoreFailed",
        }
    }
}

/// Reason that an archive was not written whole.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The target refuses.
    #[error("cannot write the archive")]
    Output(#[source] io::Error),
    /// The stream of the snapshot broke, or has another size than was announced.
    #[error("the snapshot stream is incomplete")]
    Stream(#[source] io::Error),
    /// The seal cannot be made.
    #[error("cannot seal the archive: {0}")]
    Seal(String),
    /// A part is larger than a reader would take.
    #[error("part {part} has {bytes} bytes; the limit is {most}")]
    TooLarge {
        /// Name of the part.
        part: String,
        /// Its size.
        bytes: u64,
        /// Largest size.
        most: u64,
    },
}
