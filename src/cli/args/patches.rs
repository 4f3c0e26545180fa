//! The flag that lays patches over rendered objects.

use std::path::PathBuf;

use clap::Args;

use crate::chart::patch::Patches;
use crate::chart::read_file;
use crate::cli::output::error::CliError;
use crate::cli::output::values_error::wrong_values;

/// Patches of rendered objects.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Values")]
pub(crate) struct PatchArgs {
    /// File with patches for rendered objects: partial objects to merge, or JSON patches with a `target`; may be
    /// repeated
    #[arg(long = "patch", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl PatchArgs {
    /// Returns whether none was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Reads the files, in their order.
    pub(crate) fn read_patches(&self) -> Result<Patches, CliError> {
        let files = self.files.iter().map(|file| {
            let path = file.display().to_string();
            let name = if path == "-" { "standard input".to_owned() } else { path.clone() };
            (name, read_file(&path))
        });
        Patches::read_patch_files(files).map_err(|problems| wrong_values(&problems))
    }
}
