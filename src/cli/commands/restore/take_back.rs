//! `restore --from`: checks, a backup of the present data, the restore itself, and what is to be seen afterwards; and the way
//! back, `restore --rollback`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;

use super::Site;
use crate::api::names::ClusterName;
use crate::api::partial_list::Age;
use crate::api::remedy::{Action, Command, Remedy};
use crate::api::util::file;
use crate::api::util::text::visible_line;
use crate::api::util::unfinished_file::UnfinishedFile;
use crate::backup::{EXTENSION, Seal, WITHOUT_KEYS, verify_archive};
use crate::check::inside::list_registered_members;
use crate::cli::commands::backup::keys::OpeningArgs;
use crate::cli::commands::backup::{archive_error, backup_error, format_size, open_archive};
use crate::cli::commands::etcd::status::access_error;
use crate::cli::connect::request_failed;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::local_file_error;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::{Question, Ui};
use crate::cli::output::values_error::wrong_name;
use crate::cli::signals::until_stopped;
use crate::control_plane::backup::{Request, write_backup};
use crate::control_plane::etcd::access::prepare_etcd_access;
use crate::control_plane::health::wait_until_healthy;
use crate::control_plane::restore::{ArchiveSource, RestoreEffects, precheck_restore};
use crate::install::progress::Progress as _;
use crate::inventory::release::random_id;

/// Longest time in which agents come back.
const AGENTS_WITHIN: Duration = Duration::from_secs(60);
/// Longest time in which a control plane becomes healthy after its restore.
const HEALTHY_WITHIN: Duration = Duration::from_secs(180);
/// Time between two looks.
const POLL: Duration = Duration::from_secs(2);

/// Reads a whole backup, and compares it with its hashes.
pub(super) fn read_restore_source(ui: &Ui, path: &Path, opening: &OpeningArgs) -> Result<ArchiveSource, CliError> {
    let opening = opening.read_opening()?;
    let display = Display::new(ui);
    display.begin_step("Verifying the backup");
    let verified = verify_archive(open_archive(path)?, &opening);
    display.close_step(verified.is_ok());
    let verified = verified.map_err(|error| archive_error(path, &error))?;
    Ok(ArchiveSource { path: path.to_owned(), opening: Arc::new(opening), verified })
}

pub(super) fn parse_cluster(name: &str) -> Result<String, CliError> {
    let name: ClusterName = name.parse().map_err(|error| wrong_name(&error))?;
    Ok(name.to_string())
}

/// Restores a backup, or continues with a restore of it.
pub(super) async fn restore_from_file(
    site: &Site<'_>,
    source: &ArchiveSource,
    forget: &[String],
) -> Result<Exit, CliError> {
    let target = site.target();
    let open =
        target.find_operation().await.map_err(|error| site.explain_error(&error))?.filter(|operation| operation.open);
    if let Some(open) = open {
        site.ui.print_note(&format!("Continuing {open}"));
    } else {
        let hub = site.connect_own_api().await;
        if let Err(why) = &hub {
            site.ui.warn(&format!("the API of the control plane does not answer: {}", visible_line(why)));
        }
        let precheck = precheck_restore(&target, source, hub.as_ref().ok(), site.args.paused).await;
        let precheck = precheck.map_err(|error| site.explain_error(&error))?;
        check_forgotten(source, forget)?;
        confirm_restore(site, source, &precheck, forget)?;
        if !site.args.no_safety {
            save_present_data(site).await?;
        }
    }
    site.run_stages("the restore", target.restore_archive(source, forget)).await?;
    report_restored(site, source, &[]).await
}

/// Refuses to forget a cluster that the backup does not have.
pub(super) fn check_forgotten(source: &ArchiveSource, forget: &[String]) -> Result<(), CliError> {
    let Some(clusters) = &source.verified.header.clusters else { return Ok(()) };
    let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    match forget.iter().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(CliError::usage("NoSuchCluster", format!("the backup has no workload cluster `{name}`"))
            .did_you_mean(name, &names)),
        None => Ok(()),
    }
}

fn confirm_restore(
    site: &Site<'_>,
    source: &ArchiveSource,
    precheck: &RestoreEffects,
    forget: &[String],
) -> Result<(), CliError> {
    let header = &source.verified.header;
    for name in precheck.returning.iter().filter(|name| !forget.contains(name)) {
        site.ui.warn(&format!(
            "workload cluster {name} was deleted after the backup, and the restore registers it again; \
             `--forget {name}` prevents this"
        ));
    }
    for name in &precheck.missing {
        site.ui.warn(&format!("workload cluster {name} is not in the backup: its agent has to register again"));
    }
    if header.patches.is_some() {
        site.ui.warn(
            "the installation was rendered with patches, which are not in the backup; a restore changes no manifest",
        );
    }
    site.ui.write_stderr(&format!(
        "Control plane {} returns to its state at {} (revision {}, {} of data). Later changes are lost; workloads \
         keep running. The API is unavailable for about a minute. Until the API server runs on the new store, \
         `--rollback` undoes the restore.",
        site.name,
        header.taken,
        header.revision.to,
        format_size(header.snapshot_bytes),
    ));
    if site.args.yes {
        return Ok(());
    }
    site.ui.confirm_by_name(Question::Restore, "control plane", site.name.as_str())
}

const WITHOUT_SAFETY: &str =
    "`--no-safety` restores without this backup; the present etcd data is kept on the volumes anyway";

/// Makes a backup of what exists, without keys: those stay as they are.
async fn save_present_data(site: &Site<'_>) -> Result<(), CliError> {
    let access = prepare_etcd_access(&site.client, &site.name, &site.global.namespace, &random_id()).await;
    let access = access.map_err(|error| access_error(&error, &site.name).hint(WITHOUT_SAFETY))?;
    let folder = site.home.control_plane(&site.name);
    file::private_folder(&folder).map_err(|error| local_file_error(&error))?;
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let path = folder.join(format!("before-restore-{time}{WITHOUT_KEYS}{EXTENSION}"));
    let mut output = UnfinishedFile::create(&path).map_err(|error| local_file_error(&error))?;
    let request = Request {
        client: &site.client,
        members: &access.clients,
        quota_bytes: access.quota_bytes,
        name: &site.name,
        namespace: &site.global.namespace,
        from: None,
        seal: Seal::Open,
        with_keys: false,
    };
    let work = write_backup(&request, &mut output, &site.progress);
    let made = until_stopped(site.ui, &site.display, "the backup of the present data", work, std::future::ready(()));
    made.await?.map_err(|error| backup_error(&error).hint(WITHOUT_SAFETY))?;
    let path = output.keep().map_err(|error| local_file_error(&error))?;
    site.ui.print_note(&format!("Backup of the present data: {}", path.display()));
    Ok(())
}

/// Undoes a restore that is open.
pub(super) async fn roll_back(site: &Site<'_>) -> Result<Exit, CliError> {
    site.run_stages("the rollback", site.target().roll_restore_back()).await?;
    let text = format!("Control plane {} runs on its former data again.\n", site.name);
    let (exit, _) = wait_for_restored_health(site).await?;
    site.ui.write_last_result(&text, exit)
}

/// Waits for health and agents, and says what is left to do, after `further` lines.
pub(super) async fn report_restored(
    site: &Site<'_>,
    source: &ArchiveSource,
    further: &[String],
) -> Result<Exit, CliError> {
    let (exit, hub) = wait_for_restored_health(site).await?;
    let name = &site.name;
    let mut lines = vec![format!("Restored control plane {name} to {}.", source.verified.header.taken)];
    if let Some(hub) = &hub {
        lines.push(count_agents(site, hub).await?);
    }
    lines.extend_from_slice(further);
    let tail = site.global.tail_flags();
    lines.push(format!(
        "Agents keep copies without a Schedule until you run `fleetctl restore {name} --release{tail}`, which first \
         prints their number."
    ));
    lines.push(format!(
        "The former etcd data is kept on the volumes until you run `fleetctl restore {name} --commit{tail}`."
    ));
    site.ui.write_last_result(&(lines.join("\n") + "\n"), exit)
}

/// Waits until the control plane is healthy. Returns its API, if it answers here.
async fn wait_for_restored_health(site: &Site<'_>) -> Result<(Exit, Option<Client>), CliError> {
    site.display.begin_step("Checking the control plane");
    let end = Instant::now() + HEALTHY_WITHIN;
    let work = async {
        let mut hub = site.connect_own_api().await;
        while hub.is_err() && Instant::now() + POLL < end {
            tokio::time::sleep(POLL).await;
            hub = site.connect_own_api().await;
        }
        let namespace = site.global.namespace.as_str();
        let own = hub.as_ref().map_err(Clone::clone);
        let seen =
            wait_until_healthy(&site.client, own, namespace, None, end, &|text| site.display.update_step(text)).await?;
        Ok::<_, kube::Error>((seen, hub.ok()))
    };
    let seen = until_stopped(site.ui, &site.display, "the check of the control plane", work, std::future::ready(()));
    let (seen, hub) =
        seen.await?.map_err(|error| request_failed("cannot read the health of the control plane", &error))?;
    if seen.is_healthy() {
        return Ok((Exit::Ok, hub));
    }
    for (judged, problem) in seen.report.failures() {
        site.ui.warn(&format!("{} ({}): {}", judged.title, judged.id, visible_line(&problem.what)));
    }
    let status = Command::at_run_place(Action::Status(Some(site.name.to_string())));
    site.display.report_advice(&Remedy::new("check again with ").command(status));
    Ok((Exit::Unhealthy, hub))
}

/// Counts the agents that have come back, for a while.
async fn count_agents(site: &Site<'_>, hub: &Client) -> Result<String, CliError> {
    let end = Instant::now() + AGENTS_WITHIN;
    loop {
        let members = list_registered_members(hub, Age::Now).await;
        let members = members.map_err(|error| request_failed("cannot list the workload clusters", &error))?;
        let away: Vec<&str> =
            members.iter().filter(|member| !member.ready).map(|member| member.name.as_str()).collect();
        if away.is_empty() || Instant::now() + POLL >= end {
            let ready = members.len() - away.len();
            for name in away {
                site.ui.warn(&format!("the agent of workload cluster {name} is not ready yet"));
            }
            return Ok(format!("{ready} of {} agents are ready.", members.len()));
        }
        tokio::time::sleep(POLL).await;
    }
}
