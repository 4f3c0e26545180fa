//! `backup verify`: whether a backup is whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::keys::OpeningArgs;
use super::rehearse::rehearse_backup;
use super::{archive_error, format_size, open_archive, read_sidecar};
use crate::api::rehearsal::RehearsalReport;
use crate::api::util::text::visible_line;
use crate::backup::{ArchiveError, Header, Part, Place, Sidecar, hash_file, verify_archive};
use crate::cli::args::global::Global;
use crate::cli::args::timeouts::{REHEARSAL_TIMEOUT, parse_duration};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::terminal::Ui;
use crate::control_plane::restore::ArchiveSource;

pub(super) const EXAMPLES: &str = "\
The command compares the whole file with the SHA-256 in its `.json` file. With a key, it also opens the backup and
compares each part with the footer, and the snapshot with etcd's own hash. Nothing is unpacked to disk.

With `--rehearse`, the command starts the backup: a pod in the namespace of the control plane runs etcd and the API
server on the data and with the keys of the backup, and reads every object. The control plane itself is not involved.
The pod is deleted afterwards; it ends by itself after ten minutes in any case. If nothing is wrong, the `.json` file
of the backup records when the backup was started.

Examples:
  fleetctl backup verify backups/demo-20270312T101500.512Z.fleet --identity backup.key
  fleetctl backup verify backups/demo-20270312T101500.512Z.fleet --passphrase-file passphrase
  fleetctl backup verify backups/demo-20270312T101500.512Z.fleet --identity backup.key --rehearse";

/// Read a whole backup and compare it with its hashes; with `--rehearse`, start it
#[derive(Debug, Args)]
pub(super) struct BackupVerifyArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    opening: OpeningArgs,

    /// Start etcd and the API server on the backup, in a pod of the hosting cluster, and read everything
    #[arg(long)]
    rehearse: bool,

    /// Timeout for the rehearsal
    #[arg(long, value_name = "DURATION", default_value = REHEARSAL_TIMEOUT, value_parser = parse_duration, requires = "rehearse")]
    timeout: Duration,

    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// What was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    /// Size of the file, in bytes.
    bytes: u64,
    /// SHA-256 of the file.
    sha256: String,
    /// Whether the file beside it has the same SHA-256; none if there is no such file.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_written: Option<bool>,
    /// What it is of, if it was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    /// Its parts, if it was opened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
    /// What was read when it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    rehearsal: Option<RehearsalReport>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &BackupVerifyArgs) -> Result<Exit, CliError> {
    let opening = args.opening.read_opening()?;
    let sidecar = read_sidecar(&args.file);
    let as_written = sidecar.as_ref().map(|_| true);
    let (verified, unopened) = match verify_archive(open_archive(&args.file)?, &opening) {
        Ok(verified) => (Some(verified), None),
        Err(error @ (ArchiveError::KeysMissing(_) | ArchiveError::Damaged { .. })) if sidecar.is_some() => {
            (None, Some(error))
        }
        Err(error) => return Err(archive_error(&args.file, &error)),
    };
    let (bytes, sha256) = match &verified {
        Some(verified) => (verified.bytes, verified.sha256.clone()),
        // It was not read to its end: whether it is what was written shows by its hash.
        None => hash_file(open_archive(&args.file)?).map_err(|error| archive_error(&args.file, &error))?,
    };
    let mut found = Found { bytes, sha256, as_written, header: None, parts: Vec::new(), rehearsal: None };
    let differs = sidecar.and_then(|sidecar| describe_sidecar_difference(&found, &sidecar));
    match (unopened, differs) {
        (Some(ArchiveError::Damaged { place, why }), Some(differs)) => {
            let error = ArchiveError::Damaged { place, why: format!("{why}; {differs}") };
            return Err(archive_error(&args.file, &error));
        }
        (_, Some(why)) => {
            let place = Place { file_offset: found.bytes, ..Place::default() };
            return Err(archive_error(&args.file, &ArchiveError::Damaged { place, why }));
        }
        (Some(ArchiveError::KeysMissing(_)), None) if opening.is_empty() && !args.rehearse => {}
        (Some(error), None) => return Err(archive_error(&args.file, &error)),
        (None, None) => {}
    }
    if let Some(verified) = verified {
        let source = ArchiveSource { path: args.file.clone(), opening: Arc::new(opening), verified };
        if args.rehearse {
            found.rehearsal = Some(rehearse_backup(ui, global, &source, args.timeout).await?);
        }
        (found.header, found.parts) = (Some(source.verified.header), source.verified.parts);
    }
    let text = match args.output {
        Some(format) => format.serialize_value(&found),
        None => format_found(&args.file, &found),
    };
    ui.write_last_result(&text, Exit::Ok)
}

/// Returns how size or SHA-256 of a file differ from what was recorded when it was made.
fn describe_sidecar_difference(found: &Found, sidecar: &Sidecar) -> Option<String> {
    if found.bytes != sidecar.bytes {
        return Some(format!("it has {} bytes, but {} were written", found.bytes, sidecar.bytes));
    }
    (found.sha256 != sidecar.sha256).then(|| "its SHA-256 does not match the one in its `.json` file".to_owned())
}

fn format_found(path: &Path, found: &Found) -> String {
    let (path, size) = (path.display(), format_size(found.bytes));
    let Some(header) = &found.header else {
        return format!(
            "{path} is unchanged since the backup ({size}, SHA-256 {}).\nIt was not opened: give `--identity FILE` or \
             `--passphrase-file FILE` to compare its parts.\n",
            found.sha256
        );
    };
    let mut text = format!(
        "{path} is complete: {} parts, {size}, SHA-256 {}.\n\
         It is a backup of control plane {} at {}, revision {} to {}, with a store of {}.\n",
        found.parts.len(),
        found.sha256,
        visible_line(&header.control_plane),
        header.taken,
        header.revision.from,
        header.revision.to,
        format_size(header.snapshot_bytes),
    );
    if !header.keys {
        text += "It has no keys: only the Secrets of that control plane can decrypt its data.\n";
    }
    if let Some(report) = &found.rehearsal {
        text += &format!(
            "It was started: etcd and the API server serve {} objects of {} kinds at revision {}; etcd has as many keys.\n",
            report.objects, report.kinds, report.revision
        );
    }
    text
}
