//! The file that is read, counted and hashed below every layer of it.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use sha2::{Digest as _, Sha256};

use crate::api::util::digest::format_digest;

/// The file, counted and hashed.
pub(super) struct Source<R> {
    inner: R,
    pub(super) track: Rc<RefCell<Track>>,
}

/// What was read of a file.
pub(super) struct Track {
    /// Number of bytes.
    pub(super) bytes: u64,
    hash: Sha256,
    /// Error that the file itself ended with.
    pub(super) failed: Option<io::Error>,
}

impl Track {
    /// SHA-256 of what was read.
    pub(super) fn format_sha256(&self) -> String {
        format_digest(&self.hash.clone().finalize())
    }
}

impl<R> Source<R> {
    pub(super) fn new(inner: R) -> Self {
        let track = Track { bytes: 0, hash: Sha256::new(), failed: None };
        Self { inner, track: Rc::new(RefCell::new(track)) }
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut track = self.track.borrow_mut();
        match self.inner.read(buffer) {
            Ok(read) => {
                track.hash.update(&buffer[..read]);
                track.bytes += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let shown = io::Error::new(error.kind(), error.to_string());
                track.failed = Some(error);
                Err(shown)
            }
        }
    }
}
