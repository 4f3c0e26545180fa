//! `restore --new`: a control plane that is lost is installed again from its backup, and gets its data back.

use std::time::{Duration, Instant};

use super::errors::restore_error;
use super::take_back::{check_forgotten, report_restored};
use super::{RestoreArgs, Site};
use crate::api::names::ControlPlaneName;
use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::commands::backup::format_size;
use crate::cli::commands::install::{check_local_kubeconfig, format_recorded_values, remember_values};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::control_plane_failed;
use crate::cli::output::terminal::Question;
use crate::cli::signals::wait_for_interrupt;
use crate::control_plane::charts::ORDINARY_VALUES;
use crate::control_plane::error::InstallError;
use crate::control_plane::install::install_control_plane;
use crate::control_plane::kubeconfig::find_kubeconfig;
use crate::control_plane::restore::{ArchiveSource, LostPlane, RebuildStage, precheck_restore};
use crate::install::admin_access::read_local_kubeconfig;
use crate::install::fleet_home::Home;
use crate::install::recorded_use::RecordedUse;
use crate::install::recorded_values::Recorded;
use crate::install::session::InstallOptions;
use crate::k8s::Connected;

/// Longest time for the install: an API that is not reached from here has not to be waited for.
const INSTALLS_WITHIN: Duration = Duration::from_secs(600);

/// Reads what the backup says of the control plane. No cluster is asked.
pub(super) async fn read_lost_plane(
    global: &Global,
    args: &RestoreArgs,
    name: &ControlPlaneName,
    home: &Home,
    source: &ArchiveSource,
) -> Result<LostPlane, CliError> {
    check_local_kubeconfig(home, name)?;
    // One that is damaged names no user that could be kept.
    let own = read_local_kubeconfig(home, name).ok().flatten();
    let patches = args.patches.read_patches()?;
    let lost = LostPlane::read_from_archive(source, (name, &global.namespace), patches, own.as_ref(), |values| {
        args.values.apply_values(values)
    });
    lost.await.map_err(|error| restore_error(&error, name, &global.tail_flags()))
}

/// Installs the control plane, unless that was done, and restores its data.
pub(super) async fn rebuild_from_file(
    site: &Site<'_>,
    hosting: &Connected,
    source: &ArchiveSource,
    lost: &LostPlane,
    forget: &[String],
) -> Result<Exit, CliError> {
    let target = site.target();
    let stage = target.find_rebuild_stage(source).await.map_err(|error| site.explain_error(&error))?;
    let going_on = match stage {
        RebuildStage::Empty => None,
        RebuildStage::Begun => Some("Continuing the install of the lost control plane"),
        RebuildStage::Installed => Some("The control plane is installed and waits for its data"),
        RebuildStage::Restoring => Some("Continuing the restore of the data"),
        RebuildStage::Restored => Some("The data of this backup was restored already; nothing is changed"),
    };
    if let Some(note) = going_on {
        site.ui.print_note(note);
    } else {
        check_forgotten(source, forget)?;
        confirm_rebuild(site, hosting, source, lost)?;
    }
    if stage <= RebuildStage::Begun {
        install_lost_plane(site, hosting, source, lost).await?;
    }
    if stage <= RebuildStage::Installed {
        precheck_restore(&target, source, None, true).await.map_err(|error| site.explain_error(&error))?;
    }
    if stage <= RebuildStage::Restoring {
        site.run_stages("the restore", target.restore_archive(source, forget)).await?;
    }
    report_restored(site, source, &describe_address(site, lost).await).await
}

fn confirm_rebuild(
    site: &Site<'_>,
    hosting: &Connected,
    source: &ArchiveSource,
    lost: &LostPlane,
) -> Result<(), CliError> {
    let (name, package, header) = (&site.name, &lost.plan.package, &source.verified.header);
    if let Some(why) = &lost.missing_patches {
        site.ui.warn(&format!("without its patches, the control plane differs from the lost one: {why}"));
    }
    let used = RecordedUse::from_package_values(package, None, ORDINARY_VALUES);
    if !used.values.is_empty() {
        let whose = format!("control plane {name} in the backup");
        site.ui.write_stderr(&format_recorded_values(&whose, &used));
    }
    site.ui.write_stderr(&format!(
        "Control plane {name} (service version {}) will be installed in namespace {} of {} with the keys of the \
         backup. Then its data is restored to its state at {} (revision {}, {} of data). The lost control plane must no \
         longer run anywhere: both would have the same keys and the same agents.",
        package.version,
        package.namespace,
        visible_cell(hosting.context.as_deref().unwrap_or("in-cluster")),
        header.taken,
        header.revision.to,
        format_size(header.snapshot_bytes),
    ));
    if site.args.yes { Ok(()) } else { site.ui.confirm_by_name(Question::Restore, "control plane", name.as_str()) }
}

/// Installs it. An API that is not reached from here keeps nothing from its data, which takes another way.
async fn install_lost_plane(
    site: &Site<'_>,
    hosting: &Connected,
    source: &ArchiveSource,
    lost: &LostPlane,
) -> Result<(), CliError> {
    lost.write_archived_secrets(&site.client).await.map_err(|error| site.explain_error(&error))?;
    let options = InstallOptions {
        rollback: false,
        skip_preflight: Vec::new(),
        timeout: site.deadline.saturating_duration_since(Instant::now()).min(INSTALLS_WITHIN),
        adopt: false,
        take_fields: Vec::new(),
        lock_wait: site.args.lock_wait,
        // Those of the backup are recorded from now on.
        recorded: Recorded::Reset,
        command: "install",
    };
    let way_back = format!("rollback {}{}", site.name, site.global.tail_flags());
    let signals = wait_for_interrupt(site.ui, &site.display, Some(way_back));
    let run = install_control_plane(&lost.plan, &site.client, &site.home, &options, &site.progress, signals);
    // On the heap: the whole flow is one large state machine.
    let outcome = Box::pin(run).await;
    site.display.close_step(outcome.is_ok());
    let Err(failure) = outcome else {
        remember_values(site.ui, &lost.plan.package, &site.home.values_path(&site.name), hosting);
        return Ok(());
    };
    let is_late = matches!(failure.error, InstallError::Unreachable { .. } | InstallError::Unhealthy(_));
    let shown = control_plane_failed(site.ui, &lost.plan, failure);
    if is_late && site.target().find_rebuild_stage(source).await.is_ok_and(|stage| stage == RebuildStage::Installed) {
        site.ui.warn(&format!("{}; the data is restored through the hosting cluster", shown.headline));
        return Ok(());
    }
    Err(shown.hint("run the same command again; it continues where it stopped"))
}

/// Says who must be given another address, if it is another one.
async fn describe_address(site: &Site<'_>, lost: &LostPlane) -> Vec<String> {
    let found = find_kubeconfig(Some(&site.client), &site.home, &site.name, &site.global.namespace).await;
    let (Ok((kubeconfig, _)), Some(former)) = (found, &lost.server) else { return Vec::new() };
    let (name, now) = (&site.name, visible_cell(&kubeconfig.server));
    if *former == now {
        return vec![format!(
            "Its API is at {now} as before, with the same CAs: agents and kubeconfigs need no change."
        )];
    }
    let mut lines = vec![format!(
        "The address of its API changed from {former} to {now}. If the old address does not reach it, replace \
         kubeconfigs with the output of `fleetctl kubeconfig {name}{}`.",
        site.global.tail_flags()
    )];
    if lost.plan.values.exposure.agent_endpoint.is_none() {
        lines.push(format!(
            "Give each agent the new address: `fleetctl install agent CLUSTER --control-plane {name} --context WORKLOAD`"
        ));
    }
    lines
}
