//! `backup NAME`: makes a backup.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use jiff::Timestamp;

use super::keys::SealArgs;
use super::target::{Target, open_target};
use super::{backup_error, format_size, sidecar_path};
use crate::api::names::ControlPlaneName;
use crate::api::shell::quote_word;
use crate::api::util::file;
use crate::backup::{Seal, Sidecar};
use crate::cli::args::global::Global;
use crate::cli::commands::etcd::status::access_error;
use crate::cli::connect::connect_cluster;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::local_file_error;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use crate::cli::signals::until_stopped;
use crate::control_plane::backup::{Backup, Output, Request, write_backup};
use crate::control_plane::etcd::access::prepare_etcd_access;
use crate::install::progress::Progress;
use crate::inventory::release::random_id;

pub(super) const EXAMPLES: &str = "\
A backup is one file with the data of etcd, the keys that decrypt it, the values and the record: a gzipped tar, sealed
by age. The command reads a member of etcd that is in sync, through a port-forward, and changes nothing. The file gets
its name only when it is complete. A second file, with `.json` appended to the name, describes the backup; it
can be read without a key. If the control plane is called `list`, `show` or `verify`, give its name last, after `--`.

Examples:
  fleetctl backup demo --to backups --passphrase-file passphrase
  fleetctl backup demo --to - --passphrase-file passphrase > demo.fleet
  fleetctl backup demo --to backups --no-keys --from etcd-1
  fleetctl backup list backups
  fleetctl backup verify backups/demo-20270312T101500.512Z.fleet --identity backup.key";

/// Make a backup of a control plane
#[derive(Debug, Args)]
pub(super) struct TakeArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME", required = true)]
    name: Option<String>,

    /// File that does not exist yet, folder, or `-` for standard output
    #[arg(long, value_name = "TARGET", required = true)]
    to: Option<PathBuf>,

    #[command(flatten)]
    seal: SealArgs,

    /// Pod of etcd to read, such as `etcd-1`, even if etcd has no quorum [default: one that is in sync]
    #[arg(long, value_name = "POD")]
    from: Option<String>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &TakeArgs) -> Result<Exit, CliError> {
    // The parser asks for both, but where a subcommand is given.
    let (Some(name), Some(to)) = (&args.name, &args.to) else {
        return Err(CliError::usage("Usage", "the name of the control plane or `--to` is missing"));
    };
    let name: ControlPlaneName = name.parse().map_err(|error| wrong_name(&error))?;
    let seal = args.seal.read_seal()?;
    let target = open_target(to, &name, args.seal.has_keys(), Timestamp::now())?;
    let client = connect_cluster(global).await?.client;
    let access = prepare_etcd_access(&client, &name, &global.namespace, &random_id()).await;
    let access = access.map_err(|error| access_error(&error, &name))?;
    let request = Request {
        client: &client,
        members: &access.clients,
        quota_bytes: access.quota_bytes,
        name: &name,
        namespace: &global.namespace,
        from: args.from.clone(),
        seal: seal.clone(),
        with_keys: args.seal.has_keys(),
    };
    let began = Instant::now();
    match target {
        Target::Stdout(mut output) => {
            let backup = make_backup(ui, &request, &mut output).await?;
            std::io::stdout().flush()?;
            ui.print_note(&format_report(&backup, &seal, None, began));
            Ok(Exit::Ok)
        }
        Target::File(mut file) => {
            let backup = make_backup(ui, &request, &mut file).await?;
            let path = file.keep().map_err(|error| local_file_error(&error))?;
            write_sidecar(ui, &path, &backup, &seal);
            ui.write_last_result(&format!("{}\n", format_report(&backup, &seal, Some(&path), began)), Exit::Ok)
        }
    }
}

async fn make_backup(ui: &Ui, request: &Request<'_>, output: &mut impl Output) -> Result<Backup, CliError> {
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = Arc::<Display>::clone(&display);
    let work = write_backup(request, output, &progress);
    let outcome = until_stopped(ui, &display, "the backup", work, std::future::ready(())).await;
    // Unlike other commands, the next one begins again.
    let ended = outcome.map_err(|_| {
        CliError::new(Exit::Interrupted, "Interrupted", "the backup was interrupted; nothing of it is kept")
    })?;
    ended.map_err(|error| backup_error(&error))
}

/// Writes the file beside a backup. The backup is whole without it.
fn write_sidecar(ui: &Ui, path: &Path, backup: &Backup, seal: &Seal) {
    let Backup { header, written } = backup;
    let sidecar = Sidecar::from_header(header, written.bytes, written.sha256.clone(), seal.list_openers());
    let text = crate::chart::output::format_json(&sidecar);
    if let Err(error) = file::replace_file(&sidecar_path(path), text.as_bytes(), file::PUBLIC) {
        ui.warn(&format!("the backup is complete, but its `.json` file was not written: {error}"));
    }
}

fn format_report(backup: &Backup, seal: &Seal, path: Option<&Path>, began: Instant) -> String {
    let Backup { header, written } = backup;
    let openers = seal.list_openers();
    let mut lines = Vec::new();
    lines.push(match path {
        Some(path) => format!("Backup of {}: {}", header.control_plane, path.display()),
        None => format!("Backup of {} on standard output", header.control_plane),
    });
    lines.push(format!(
        "  revision    {} to {}, read from {}",
        header.revision.from, header.revision.to, header.read_from
    ));
    let (size, store) = (format_size(written.bytes), format_size(header.snapshot_bytes));
    lines.push(format!("  size        {size}, from a store of {store}, in {} s", began.elapsed().as_secs()));
    lines.push(format!("  SHA-256     {}", written.sha256));
    lines.push(format!("  keys        {}", if header.keys { "included" } else { "not included" }));
    lines.push(format!(
        "  sealed for  {}",
        if openers.is_empty() { "nobody: not sealed".to_owned() } else { openers.join(", ") }
    ));
    if !header.quorum {
        lines.push(format!("{} had no leader: its data may be older than that of the others.", header.read_from));
    }
    if let Some(path) = path {
        let flag = match seal {
            Seal::Recipients(_) => " --identity FILE",
            Seal::Passphrase(_) => " --passphrase-file FILE",
            Seal::Open => "",
        };
        lines.push(format!("Verify it: `fleetctl backup verify {}{flag}`", quote_word(&path.to_string_lossy())));
    }
    lines.join("\n")
}
