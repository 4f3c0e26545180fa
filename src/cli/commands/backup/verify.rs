//! `backup verify`: whether a backup is whole.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::keys::OpeningArgs;
use super::{archive_error, format_size, open_archive, read_sidecar};
use crate::api::util::text::visible_line;
use crate::backup::{ArchiveError, Header, Part, Place, Sidecar, hash_file, verify_archive};
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::format::Format;
use crate::cli::output::terminal::Ui;

pub(super) const EXAMPLES: &str = "\
The whole file is compared with the SHA-256 in the file beside it. With the key it is opened, too: each part is compared
with the footer, and the snapshot with etcd's own hash. Nothing is unpacked to disk.

Examples:
  fleetctl backup verify backups/demo-20270312T101500Z.fleet --identity backup.key
  fleetctl backup verify backups/demo-20270312T101500Z.fleet --passphrase-file passphrase -o json";

/// Read a whole backup and compare it with its hashes
#[derive(Debug, Args)]
pub(super) struct BackupVerifyArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    opening: OpeningArgs,

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
}

pub(super) fn run(ui: &Ui, args: &BackupVerifyArgs) -> Result<Exit, CliError> {
    let opening = args.opening.read_opening()?;
    let failed = |error: &ArchiveError| archive_error(&args.file, error);
    let sidecar = read_sidecar(&args.file);
    // First, so that a damaged seal is told from a wrong key.
    let hashed = match &sidecar {
        Some(sidecar) => Some(compare_with_sidecar(&args.file, sidecar)?),
        None => None,
    };
    let found = match (verify_archive(open_archive(&args.file)?, &opening), hashed) {
        (Ok(verified), hashed) => Found {
            bytes: verified.bytes,
            sha256: verified.sha256,
            as_written: hashed.map(|_| true),
            header: Some(verified.header),
            parts: verified.parts,
        },
        (Err(ArchiveError::KeysMissing(_)), Some((bytes, sha256))) if opening.is_empty() => {
            Found { bytes, sha256, as_written: Some(true), header: None, parts: Vec::new() }
        }
        (Err(error), _) => return Err(failed(&error)),
    };
    let text = match args.output {
        Some(format) => format.serialize_value(&found),
        None => format_found(&args.file, &found),
    };
    ui.write_last_result(&text, Exit::Ok)
}

/// Compares size and SHA-256 of a file with what was written down when it was made. Returns both.
fn compare_with_sidecar(path: &Path, sidecar: &Sidecar) -> Result<(u64, String), CliError> {
    let (bytes, sha256) = hash_file(open_archive(path)?).map_err(|error| archive_error(path, &error))?;
    if (bytes, sha256.as_str()) == (sidecar.bytes, sidecar.sha256.as_str()) {
        return Ok((bytes, sha256));
    }
    let why = if bytes == sidecar.bytes {
        "its SHA-256 is not the one in the file beside it".to_owned()
    } else {
        format!("it has {bytes} bytes, and {} were written", sidecar.bytes)
    };
    let place = Place { file_offset: bytes, ..Place::default() };
    Err(archive_error(path, &ArchiveError::Damaged { place, why }))
}

fn format_found(path: &Path, found: &Found) -> String {
    let (path, size) = (path.display(), format_size(found.bytes));
    let Some(header) = &found.header else {
        return format!(
            "{path} is the file that was written ({size}, SHA-256 {}).\nIt was not opened: give `--identity FILE` or \
             `--passphrase-file FILE` to compare its parts.\n",
            found.sha256
        );
    };
    let text = format!(
        "{path} is whole: {} parts, {size}, SHA-256 {}.\nIt is of control plane {} at {}, revision {} to {}, with a store of {}.\n",
        found.parts.len(),
        found.sha256,
        visible_line(&header.control_plane),
        header.taken,
        header.revision.from,
        header.revision.to,
        format_size(header.snapshot_bytes),
    );
    if header.keys {
        text
    } else {
        format!("{text}It has no keys: only the Secrets of that control plane read its data.\n")
    }
}
