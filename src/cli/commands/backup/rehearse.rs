//! `backup verify --rehearse`: a backup is started in a pod of the hosting cluster, and everything in it is read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{archive_error, read_sidecar, sidecar_path};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::rehearsal::RehearsalReport;
use crate::api::util::file;
use crate::api::util::text::visible_line;
use crate::backup::{ArchiveError, Place, Rehearsed};
use crate::chart::output::format_json;
use crate::cli::args::global::Global;
use crate::cli::commands::etcd::status::access_error;
use crate::cli::connect::{connect_cluster, request_failed, require_verified_server};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::engine_error;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::signals::until_stopped;
use crate::control_plane::restore::{ArchiveSource, RestoreError, RestoreTarget};
use crate::install::progress::Progress;
use crate::inventory::HeldLock;

/// Starts a backup and reads everything. Returns what was read; the file beside the backup says so then.
pub(super) async fn rehearse_backup(
    ui: &Ui,
    global: &Global,
    source: &ArchiveSource,
    timeout: Duration,
) -> Result<RehearsalReport, CliError> {
    let header = &source.verified.header;
    let name: ControlPlaneName = parse_name(source, &header.control_plane)?;
    let archived: NamespaceName = parse_name(source, &header.namespace)?;
    let namespace = if global.namespace_given { &global.namespace } else { &archived };
    let connected = connect_cluster(global).await?;
    // The data that is sent has the Secrets of the control plane.
    require_verified_server(&connected)?;
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    let target = RestoreTarget {
        client: &connected.client,
        name: &name,
        namespace,
        lock_wait: Duration::ZERO,
        deadline: Instant::now() + timeout,
        held: HeldLock::default(),
        progress: &progress,
    };
    progress.begin_step("Starting etcd and the API server on the backup");
    let stop = async { drop(target.delete_rehearsal().await) };
    let outcome = until_stopped(ui, &display, "the rehearsal", target.rehearse_archive(source), stop).await?;
    let report = outcome.map_err(|error| rehearsal_error(&error, &name, &global.tail_in(namespace.as_str())))?;
    if report.faults > 0 {
        return Err(describe_faults(&source.path, &report));
    }
    note_rehearsal(ui, &source.path, report.revision);
    Ok(report)
}

fn parse_name<N: std::str::FromStr<Err: std::fmt::Display>>(source: &ArchiveSource, text: &str) -> Result<N, CliError> {
    text.parse().map_err(|error: N::Err| {
        let why = format!("its header names no control plane: {}", visible_line(&error.to_string()));
        archive_error(&source.path, &ArchiveError::Damaged { place: Place::default(), why })
    })
}

/// Notes in the file beside a backup that it was started.
fn note_rehearsal(ui: &Ui, path: &Path, revision: i64) {
    let Some(mut sidecar) = read_sidecar(path) else { return };
    sidecar.rehearsed = Some(Rehearsed { at: Timestamp::now(), revision });
    if let Err(error) = file::replace_file(&sidecar_path(path), format_json(&sidecar).as_bytes(), file::PUBLIC) {
        ui.warn(&format!("the backup was started, but its `.json` file does not record this: {error}"));
    }
}

pub(in crate::cli) fn describe_faults(path: &Path, report: &RehearsalReport) -> CliError {
    let faults = if report.faults == 1 { "1 fault".to_owned() } else { format!("{} faults", report.faults) };
    let headline = format!("`{}` was started, and has {faults}", path.display());
    let shown = report.findings.iter().map(|one| format!("{}: {}", visible_line(&one.about), visible_line(&one.why)));
    let mut lines: Vec<String> = shown.collect();
    let rest = report.faults.saturating_sub(report.findings.len() as u64);
    if rest > 0 {
        lines.push(format!("and {rest} more"));
    }
    CliError::new(Exit::Failed, "RehearsalFailed", headline).details(lines).hint(
        "the control plane may have the same fault: compare with `kubectl get` there, and fix it before \
             the next backup",
    )
}

/// A rehearsal that came to no result.
pub(in crate::cli) fn rehearsal_error(error: &RestoreError, name: &ControlPlaneName, tail: &str) -> CliError {
    let (exit, reason, hint) = match error {
        RestoreError::Api(error) => return request_failed("a request of the rehearsal failed", error),
        RestoreError::Engine(error) => return engine_error("the rehearsal stopped", error),
        RestoreError::Etcd(error) => return access_error(error, name),
        RestoreError::Archive(error) => return archive_error("the backup".as_ref(), error),
        RestoreError::Forbidden(_) => (
            Exit::Preflight,
            error.reason(),
            format!("`fleetctl show rbac {name} --day2{tail}` prints the rights; ask an administrator for them"),
        ),
        RestoreError::NotPossible(_) => (
            Exit::Preflight,
            error.reason(),
            "raise the quota of the namespace, or rehearse in another control plane with `--context` and `--namespace`"
                .to_owned(),
        ),
        RestoreError::KeysMissing(_) | RestoreError::Keys(_) => (
            Exit::Refused,
            "KeysMissing",
            "rehearse the backup in the control plane whose Secrets contain its keys, or make backups that contain the keys".to_owned(),
        ),
        RestoreError::OlderApiServer { .. } => (
            Exit::Refused,
            error.reason(),
            "upgrade the control plane first: an older API server cannot read objects that a newer one has \
             stored".to_owned(),
        ),
        RestoreError::TimedOut(_) => {
            (Exit::TimedOut, "RehearsalFailed", "run it again with a longer `--timeout`".to_owned())
        }
        _ => (
            Exit::Failed,
            "RehearsalFailed",
            "if a container does not know `probe`, the images of the control plane are older than this fleetctl: upgrade the control plane"
                .to_owned(),
        ),
    };
    let shown = CliError::new(exit, reason, "the rehearsal ended without a result").cause(error.to_string()).hint(hint);
    match error {
        RestoreError::Send { source, .. } => shown.because(source),
        RestoreError::Keys(source) => shown.because(source),
        _ => shown,
    }
}
