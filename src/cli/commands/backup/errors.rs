//! Errors of backups as they are shown.

use std::path::Path;

use crate::backup::{ArchiveError, WriteError};
use crate::cli::connect::request_failed;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::engine_error;
use crate::control_plane::backup::BackupError;

/// A backup that cannot be read.
pub(in crate::cli) fn archive_error(path: &Path, error: &ArchiveError) -> CliError {
    let exit = if matches!(error, ArchiveError::KeysMissing(_)) { Exit::Refused } else { Exit::Failed };
    let headline = match error {
        ArchiveError::Damaged { .. } => format!("`{}` is damaged", path.display()),
        ArchiveError::KeysMissing(_) => format!("`{}` cannot be opened", path.display()),
        ArchiveError::Read(_) | ArchiveError::Output(_) => format!("cannot read `{}`", path.display()),
    };
    let remedy = match error {
        ArchiveError::Damaged { .. } => {
            "use another backup, or another copy of this one; do not use any part of this file"
        }
        ArchiveError::KeysMissing(_) => {
            "give the key that it was sealed for: `--identity FILE` or `--passphrase-file FILE`"
        }
        ArchiveError::Read(_) => "make sure that the whole file can be read",
        ArchiveError::Output(_) => "run the same command again; it continues where it stopped",
    };
    let shown = CliError::new(exit, error.reason(), headline).hint(remedy);
    match error {
        ArchiveError::Read(source) | ArchiveError::Output(source) => shown.because(source),
        other => shown.cause(other.to_string()),
    }
}

/// A backup that was not made.
pub(in crate::cli) fn backup_error(error: &BackupError) -> CliError {
    let (exit, remedy) = match error {
        BackupError::Cluster(error) => return request_failed("cannot read the hosting cluster", error),
        BackupError::Record(error) => return engine_error("cannot read the record of the control plane", error),
        BackupError::KeysMissing(_) => {
            (Exit::Refused, "`--no-keys` makes a backup without keys; only the existing Secrets can decrypt it")
        }
        BackupError::NoQuorum(_) => {
            (Exit::Refused, "`--from etcd-0` reads one member as it is; its data may be older than that of the others")
        }
        BackupError::NoSuchMember { .. } => (Exit::Usage, "name a pod of etcd, such as `--from etcd-0`"),
        BackupError::NotInSync(_) => (
            Exit::Failed,
            "wait until `fleetctl etcd status` shows no member far behind, or name a member with `--from`",
        ),
        BackupError::Etcd(error) => (Exit::Failed, error.remedy()),
        BackupError::Write(WriteError::Output(_)) => (Exit::Failed, "choose a writable target with enough space"),
        BackupError::Write(_) => (Exit::Failed, "run the same command again; nothing of this backup is kept"),
        BackupError::NotRepeatable => {
            (Exit::Failed, "run the same command again, or write to a file: a backup to a file restarts by itself")
        }
    };
    let shown = CliError::new(exit, error.reason(), "no backup was made").cause(error.to_string()).hint(remedy);
    match error {
        BackupError::Write(WriteError::Output(source) | WriteError::Stream(source)) => shown.because(source),
        _ => shown,
    }
}
