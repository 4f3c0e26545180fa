//! The size limit of a kubeconfig and of each file that it names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::api::util::file_fault::{FileFault, Usage};

/// Number of bytes that a kubeconfig may have, and each file that it names.
pub const MAX_KUBECONFIG_BYTES: usize = 4 << 20;

/// Reads a file to its end, unless it has more than [`MAX_KUBECONFIG_BYTES`]: devices and pipes need not have an end.
///
/// # Errors
/// Errors of the file system with their [`FileFault`], and `FileTooLarge` for a file that is too large.
pub fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_KUBECONFIG_BYTES as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|error| FileFault::from_io_error(path, Usage::Read, &error))?;
    if bytes.len() > MAX_KUBECONFIG_BYTES {
        let message = format!("it is larger than {} MiB", MAX_KUBECONFIG_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}
