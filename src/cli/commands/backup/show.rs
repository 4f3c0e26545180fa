//! `backup show`: what a backup is of.

use std::path::PathBuf;

use clap::Args;

use super::keys::OpeningArgs;
use super::{archive_error, open_archive, read_sidecar};
use crate::backup::{ArchiveError, read_archive_header};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::terminal::Ui;

pub(super) const EXAMPLES: &str = "\
If a backup is sealed and no key is given, the command shows what the `.json` file beside the backup contains; this
file does not list the registered clusters. The command reads only the head of the backup: `fleetctl backup verify FILE`
shows whether the backup is complete.

Examples:
  fleetctl backup show backups/demo-20270312T101500.512Z.fleet
  fleetctl backup show backups/demo-20270312T101500.512Z.fleet --identity backup.key -o json";

/// Describe a backup: versions, revisions, registered clusters
#[derive(Debug, Args)]
pub(super) struct BackupShowArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    opening: OpeningArgs,

    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "yaml")]
    output: Format,
}

pub(super) fn run(ui: &Ui, args: &BackupShowArgs) -> Result<Exit, CliError> {
    let opening = args.opening.read_opening()?;
    let text = match read_archive_header(open_archive(&args.file)?, &opening) {
        Ok(header) => args.output.serialize_value(&header),
        Err(error @ ArchiveError::KeysMissing(_)) if opening.is_empty() => match read_sidecar(&args.file) {
            Some(sidecar) => args.output.serialize_value(&sidecar),
            None => return Err(archive_error(&args.file, &error)),
        },
        Err(error) => return Err(archive_error(&args.file, &error)),
    };
    ui.write_last_result(&text, Exit::Ok)
}
