//! `backup list`: backups in a folder, as the files beside them describe them.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::{format_size, read_sidecar};
use crate::api::util::file::{self, FileError, describe_file_kind, wrap_io_error};
use crate::api::util::text::visible_cell;
use crate::backup::{EXTENSION, Sidecar};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::install_error::local_file_error;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::Ui;

pub(super) const EXAMPLES: &str = "\
The command reads only the `.json` files of the backups: `fleetctl backup verify FILE` shows whether a backup is
complete.

Examples:
  fleetctl backup list backups
  fleetctl backup list backups -o json";

/// List the backups in a folder, without opening them
#[derive(Debug, Args)]
pub(super) struct BackupListArgs {
    /// Folder with backups
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Output format [default: a table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// A backup in a folder.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedBackup {
    file: String,
    /// Size of the file, in bytes.
    bytes: u64,
    /// What the file beside it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<Sidecar>,
    /// Problem that is seen without opening it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'static str>,
}

pub(super) fn run(ui: &Ui, args: &BackupListArgs) -> Result<Exit, CliError> {
    let backups = list_backups(&args.folder).map_err(|error| local_file_error(&error))?;
    let text = match args.output {
        Some(format) => format.serialize_value(&backups),
        None if backups.is_empty() => format!("No backup is in {}.\n", args.folder.display()),
        None => format_backup_table(&backups),
    };
    ui.write_last_result(&text, Exit::Ok)
}

fn list_backups(folder: &Path) -> Result<Vec<ListedBackup>, FileError> {
    let metadata = std::fs::metadata(folder).map_err(wrap_io_error("list", folder))?;
    if !metadata.is_dir() {
        let found = describe_file_kind(&metadata);
        return Err(FileError::Unexpected { path: folder.to_owned(), found, expected: "a folder" });
    }
    let mut backups = Vec::new();
    for name in file::list_names(folder)?.into_iter().filter(|name| name.ends_with(EXTENSION)) {
        let path = folder.join(&name);
        let Some(metadata) = file::read_metadata(&path)?.filter(std::fs::Metadata::is_file) else { continue };
        let backup = read_sidecar(&path);
        let problem = match &backup {
            None => Some("no `.json` file describes it"),
            Some(sidecar) if sidecar.bytes != metadata.len() => Some("its size has changed"),
            Some(_) => None,
        };
        backups.push(ListedBackup { file: name, bytes: metadata.len(), backup, problem });
    }
    Ok(backups)
}

fn format_backup_table(backups: &[ListedBackup]) -> String {
    let mut rows = vec![table_row([
        "FILE",
        "CONTROL PLANE",
        "TAKEN",
        "VERSION",
        "REVISION",
        "SIZE",
        "KEYS",
        "SEALED FOR",
        "REHEARSED",
        "PROBLEM",
    ])];
    rows.extend(backups.iter().map(|listed| {
        let size = format_size(listed.bytes);
        let problem = listed.problem.unwrap_or_default();
        let row = match &listed.backup {
            None => table_row([&listed.file, "-", "-", "-", "-", &size, "-", "-", "-", problem]),
            Some(sidecar) => {
                let taken = format_backup_time(sidecar.taken);
                let rehearsed = sidecar.rehearsed.map(|rehearsed| format_backup_time(rehearsed.at));
                let rehearsed = rehearsed.unwrap_or_else(|| "-".to_owned());
                let openers = match sidecar.sealed_for.as_slice() {
                    [] => "-".to_owned(),
                    [one] => one.clone(),
                    more => format!("{} recipients", more.len()),
                };
                let revision = sidecar.revision.to.to_string();
                let version = sidecar.versions.service.as_deref().unwrap_or("-");
                let keys = if sidecar.keys { "yes" } else { "no" };
                table_row([
                    &listed.file,
                    &sidecar.control_plane,
                    &taken,
                    version,
                    &revision,
                    &size,
                    keys,
                    &openers,
                    &rehearsed,
                    problem,
                ])
            }
        };
        row.iter().map(|cell| visible_cell(cell).into_owned()).collect()
    }));
    Columns::from_rows(&rows).format_lines(&rows)
}

fn format_backup_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}
