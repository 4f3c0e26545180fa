//! The flag that pins images to the digests of a lock.

use std::path::PathBuf;

use clap::Args;

use crate::chart::values::ImageLock;
use crate::chart::{ValuesBuilder, read_file};
use crate::cli::output::error::CliError;
use crate::cli::output::values_error::wrong_values;

/// The lock that images are held to.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LockArgs {
    /// File with the digest of every image; each digest is appended to the tag of its image [see: show images --digests]
    #[arg(long, value_name = "FILE")]
    image_lock: Option<PathBuf>,
}

impl LockArgs {
    /// Returns whether none was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.image_lock.is_none()
    }

    /// Puts the digests behind the tags of all images that the values choose so far.
    pub(crate) fn apply_image_lock(&self, builder: ValuesBuilder) -> Result<ValuesBuilder, CliError> {
        let Some(file) = &self.image_lock else { return Ok(builder) };
        let name = file.display().to_string();
        let lock = read_file(&name).map_err(Into::into).and_then(|bytes| ImageLock::parse_lock(&name, &bytes));
        lock.and_then(|lock| lock.apply_digests(builder)).map_err(|problems| wrong_values(&problems))
    }
}
