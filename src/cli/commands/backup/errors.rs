//! Errors of backups as they are shown.

use std::path::Path;

use crate::backup::{ArchiveError, WriteError};
use crate::cli::connect::request_failed;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::install_error::engine_error;
use crate::control_plane::backup::BackupError;

/// A backup that cannot be read.
pub(in crate::cli) fn archive_error(path: &Path, error: &ArchiveError) -> CliError {
    let exit = if matches!(error, ArchiveError::KeysMissing(_)) { Exit::Refused } else { Exit::Failed };
    let headline = match error {
        ArchiveError::Damaged { .. } => format!("`{}` is damaged", path.display()),
        ArchiveError::KeysMissing(_) => format!("`{}` cannot be opened", path.display()),
        ArchiveError::Read(_) => format!("cannot read `{}`", path.display()),
    };
    let shown = CliError::new(exit, error.reason(), headline).hint(error.remedy());
    match error {
        ArchiveError::Read(source) => shown.because(source),
        other => shown.cause(other.to_string()),
    }
}

/// A backup that was not made.
pub(in crate::cli) fn backup_error(error: &BackupError) -> CliError {
    let headline = "no backup was made";
    let exit = match error {
        BackupError::Cluster(error) => return request_failed("cannot read the hosting cluster", error),
        BackupError::Record(error) => return engine_error("cannot read the record of the control plane", error),
        BackupError::KeysMissing(_) | BackupError::NoQuorum(_) => Exit::Refused,
        BackupError::NoSuchMember { .. } => Exit::Usage,
        BackupError::Etcd(_) | BackupError::NotInSync(_) | BackupError::Write(_) | BackupError::NotRepeatable => {
            Exit::Failed
        }
    };
    let shown = CliError::new(exit, error.reason(), headline).cause(error.to_string());
    let shown = match error {
        BackupError::Write(WriteError::Output(source) | WriteError::Stream(source)) => shown.because(source),
        _ => shown,
    };
    match error.remedy() {
        Some(remedy) => shown.hint(remedy),
        None => shown,
    }
}
