//! `backup`: makes a backup of a control plane, and reads backups.

mod errors;
pub(in crate::cli) mod keys;
mod list;
pub(in crate::cli) mod rehearse;
mod show;
mod take;
mod target;
mod verify;

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::api::util::file::{self, FileError, describe_file_kind, wrap_io_error};
pub(in crate::cli) use crate::api::util::size::format_size;
use crate::backup::{SIDECAR, Sidecar};
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::local_file_error;
use crate::cli::output::terminal::Ui;
pub(in crate::cli) use errors::{archive_error, backup_error};

/// Largest size of the file beside a backup, in bytes.
const MOST_SIDECAR_BYTES: u64 = 64 * 1024;

/// Make, list, show and verify backups of a control plane
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = take::EXAMPLES)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    take: take::TakeArgs,

    #[command(subcommand)]
    command: Option<BackupCommand>,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// List the backups in a folder, without opening them
    #[command(after_help = list::EXAMPLES)]
    List(list::BackupListArgs),
    /// Describe a backup: versions, revisions, registered clusters
    #[command(after_help = show::EXAMPLES)]
    Show(show::BackupShowArgs),
    /// Read a whole backup and compare it with its hashes; with `--rehearse`, start it
    #[command(after_help = verify::EXAMPLES)]
    Verify(verify::BackupVerifyArgs),
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: BackupArgs) -> Result<Exit, CliError> {
    match args.command {
        Some(BackupCommand::List(args)) => list::run(ui, &args),
        Some(BackupCommand::Show(args)) => show::run(ui, &args),
        Some(BackupCommand::Verify(args)) => verify::run(ui, global, &args).await,
        None => take::run(ui, global, &args.take).await,
    }
}

/// Opens a backup to read it; what is no file could block or never end.
pub(in crate::cli) fn open_archive(path: &Path) -> Result<File, CliError> {
    let opened = std::fs::metadata(path).map_err(wrap_io_error("read", path)).and_then(|metadata| {
        if metadata.is_file() {
            return File::open(path).map_err(wrap_io_error("read", path));
        }
        let found = describe_file_kind(&metadata);
        Err(FileError::Unexpected { path: path.to_owned(), found, expected: "a regular file" })
    });
    opened.map_err(|error| local_file_error(&error))
}

/// The file beside a backup.
fn sidecar_path(archive: &Path) -> PathBuf {
    let mut name = archive.as_os_str().to_owned();
    name.push(SIDECAR);
    PathBuf::from(name)
}

/// Reads the file beside a backup; none if there is no such file, or if it is something else.
fn read_sidecar(archive: &Path) -> Option<Sidecar> {
    let text = file::read_bounded_file(&sidecar_path(archive), MOST_SIDECAR_BYTES).ok().flatten()?;
    serde_json::from_slice(&text).ok()
}
