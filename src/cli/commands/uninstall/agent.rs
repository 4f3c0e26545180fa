//! `uninstall agent`: the cluster leaves its control plane, then everything of the agent goes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::FutureExt as _;
use serde::Serialize;

use super::{check_not_elsewhere, check_orphaned_objects};
use crate::api::labels::cluster_namespace;
use crate::api::names::ClusterName;
use crate::api::remedy::{Access, Action, Command, Place, Remedy};
use crate::api::shell::foreign_word;
use crate::api::util::text::{visible_cell, visible_line};
use crate::apply::Removed;
use crate::cli::args::global::Global;
use crate::cli::args::timeouts::RunArgs;
use crate::cli::connect;
use crate::cli::connect::request_failed;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::install_error::engine_error;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use crate::cli::signals::{goes_on, until_stopped};
use crate::install::local_values::LocalValues;
use crate::install::progress::Progress;
use crate::workload_cluster::copies::{Copies, PlacedObject, format_object_names};
use crate::workload_cluster::plan::OWNER_KIND;
use crate::workload_cluster::uninstall::{Drain, Leave};

/// Time that an interrupted run may take to take back the drain that it asked for.
const TAKE_BACK: Duration = Duration::from_secs(5);

pub(super) const EXAMPLES: &str = "\
The agent first deregisters its cluster from the control plane; then the command removes the agent.
If the control plane has placed workloads here, `--drain` first moves them to other clusters, and `--keep-workloads`
leaves them running without management. Without either flag, the command then changes nothing.
A namespace and an init Secret that you created are kept.

Examples:
  fleetctl uninstall agent west --context west
  fleetctl uninstall agent west --context west --drain
  fleetctl uninstall agent west --context west --keep-workloads
  fleetctl uninstall agent west --context west --force";

/// Disconnect the cluster of `--context` from its control plane and remove its agent
#[derive(Debug, Args)]
pub(crate) struct UninstallAgentArgs {
    /// Name of the workload cluster
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: String,

    /// Remove the agent even if its cluster cannot be deregistered
    #[arg(long)]
    force: bool,

    /// First move the placed workloads to other clusters
    #[arg(long, conflicts_with = "keep_workloads")]
    drain: bool,

    /// Leave the placed workloads running without management
    #[arg(long)]
    keep_workloads: bool,

    #[command(flatten)]
    run: RunArgs,

    /// Output format [default: text]; with `json`, the progress on stderr is JSON too
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &UninstallAgentArgs) -> Result<Exit, CliError> {
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let home = connect::find_home()?;
    let workload = connect::connect_cluster(global).await?;
    let target = args.run.build_target(&name, global, &workload.client, &home);
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    let installed = target.find_installed_agent().await.map_err(|e| unreadable_workload_cluster(&e))?;
    if let Some(other) = installed.filter(|other| other != name.as_str()) {
        return Err(CliError::new(
            Exit::Refused,
            "OtherAgent",
            format!(
                "the agent in namespace {} belongs to workload cluster `{}`, not `{name}`",
                global.namespace,
                visible_cell(&other)
            ),
        )
        .hint(format!(
            "to remove it: `fleetctl uninstall agent {}{}`",
            foreign_word(&other),
            global.tail_flags()
        )));
    }
    let work = async {
        // What cannot be removed here is not made to leave there.
        target
            .plan_agent_removal(&progress)
            .await
            .map_err(|error| engine_error("the agent cannot be removed", &error))?;
        let copies = target.find_copies().await.map_err(|e| unreadable_workload_cluster(&e))?;
        let mut placed = match &copies {
            Some(copies) => copies.list_copies().await.map_err(|e| unreadable_workload_cluster(&e))?,
            None => Vec::new(),
        };
        if args.drain
            && let Some(copies) = &copies
            && !placed.is_empty()
        {
            progress.begin_step("Moving the placed workloads to other clusters");
            let drained = target.drain_copies(copies, |left| {
                progress.update_step(&format!("{} are left: {}", format_object_count(left), format_object_names(left)));
            });
            match drained.await.map_err(|e| unreadable_workload_cluster(&e))? {
                Drain::Done => progress.finish_step("all workloads have moved"),
                Drain::NoAgent => return Err(not_drained(&name, "no agent is running to request the drain", global)),
                Drain::Left(left) => {
                    let why = format!(
                        "{} not moved after {} s: {}",
                        format_object_count(&left),
                        args.run.timeout.as_secs(),
                        format_object_names(&left)
                    );
                    return Err(not_drained(&name, &why, global));
                }
            }
            placed.clear();
        }
        let data = match &copies {
            Some(copies) => copies.find_data(&placed).await.map_err(|e| unreadable_workload_cluster(&e))?,
            None => Vec::new(),
        };
        if !args.keep_workloads && placed.iter().any(|object| !object.is_namespace()) {
            return Err(placed_here(&name, &placed, &data, global));
        }
        progress.begin_step(&format!("Deregistering {name} from the control plane"));
        let leave = target.deregister_agent().await.map_err(|e| unreadable_workload_cluster(&e))?;
        match &leave {
            Leave::Left => progress.finish_step("the cluster is deregistered"),
            Leave::NotRegistered => progress.finish_step("the cluster was not registered"),
            Leave::Stays(why) if args.force => {
                progress.report_warning(&format!("{why}; continuing because of `--force`"));
            }
            Leave::Stays(why) => return Err(cannot_leave_error(&name, why, global)),
        }
        // An agent that works still would put its marks back.
        let has_left = !matches!(leave, Leave::Stays(_));
        if has_left {
            release_placed_objects(copies.as_ref(), &placed).await?;
        }
        progress.begin_step(&format!("Removing the agent from namespace {}", global.namespace));
        let removed = target.remove_agent(&progress).await;
        let removed = removed.map_err(|error| goes_on(engine_error("the removal stopped", &error)))?;
        if !has_left {
            release_placed_objects(copies.as_ref(), &placed).await?;
        }
        Ok((leave, removed, placed, data))
    };
    let outcome = until_stopped(ui, &display, "the removal", work, target.release_lock(OWNER_KIND).map(drop)).await;
    if outcome.is_err() && args.drain {
        // Interrupted: the cluster is not to stay drained by a run that has ended.
        let _ = tokio::time::timeout(TAKE_BACK, target.stop_draining()).await;
    }
    let (leave, removed, kept, data) = outcome??;
    check_not_elsewhere("agent", name.as_str(), global, &removed)?;
    LocalValues::remove_values_file(&home.agent_values(&name));
    ui.write_stdout(&match args.output {
        Some(format) => format.serialize_value(&AgentUninstallDocument {
            name: name.as_str(),
            left: !matches!(leave, Leave::Stays(_)),
            workloads_kept: &kept,
            data_kept: &data,
            removed: &removed,
        }),
        None => format_agent_removal(ui, &name, global, &leave, &removed, (&kept, &data)),
    })?;
    check_orphaned_objects(&removed)
}

async fn release_placed_objects(copies: Option<&Copies>, placed: &[PlacedObject]) -> Result<(), CliError> {
    let Some(copies) = copies else { return Ok(()) };
    copies.release_copies(placed).await.map_err(|error| goes_on(unreadable_workload_cluster(&error)))
}

fn unreadable_workload_cluster(error: &kube::Error) -> CliError {
    request_failed("cannot read the workload cluster", error)
}

/// A removal as programs read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentUninstallDocument<'r> {
    name: &'r str,
    /// Whether the control plane knows nothing of the cluster any more.
    left: bool,
    /// Objects that were placed here, run on and are managed by nobody.
    workloads_kept: &'r [PlacedObject],
    /// Those of them that contain data: their groups start nowhere else.
    data_kept: &'r [PlacedObject],
    #[serde(flatten)]
    removed: &'r Removed,
}

/// Names the objects that the control plane still has of a cluster that could not leave.
fn abandoned_objects(name: &ClusterName) -> String {
    format!("Cluster {name}, its namespace {} and its credentials", cluster_namespace(name.as_str()))
}

fn format_object_count(objects: &[PlacedObject]) -> String {
    match objects.len() {
        1 => "1 object".to_owned(),
        count => format!("{count} objects"),
    }
}

pub(in crate::cli) fn placed_here(
    name: &ClusterName,
    placed: &[PlacedObject],
    data: &[PlacedObject],
    global: &Global,
) -> CliError {
    let headline = format!("the control plane has placed {} in workload cluster {name}", format_object_count(placed));
    let again = format!("fleetctl uninstall agent {name}{}", global.tail_flags());
    let error = CliError::new(Exit::Refused, "WorkloadsPlaced", headline)
        .cause(visible_line(&format_object_names(placed)).into_owned());
    let error = match data {
        [] => error,
        _ => error.hint(format!(
            "data is kept in this cluster, and the workloads that use it do not start elsewhere: {}",
            visible_line(&format_object_names(data))
        )),
    };
    error
        .hint("nothing was removed")
        .hint(format!("to move them to other clusters first: `{again} --drain`"))
        .hint(format!("to leave them running without management: `{again} --keep-workloads`"))
}

pub(in crate::cli) fn not_drained(name: &ClusterName, why: &str, global: &Global) -> CliError {
    CliError::new(Exit::Refused, "NotDrained", format!("workload cluster {name} could not be drained"))
        .cause(visible_line(why).into_owned())
        .hint("nothing was removed, and the cluster accepts workloads again within seconds")
        .hint("ask the control plane why an object was not moved: `fleetctl why KIND/NAME -n NAMESPACE`")
        .hint(format!(
            "to leave the workloads running without management: `fleetctl uninstall agent {name}{} --keep-workloads`",
            global.tail_flags()
        ))
}

pub(in crate::cli) fn cannot_leave_error(name: &ClusterName, why: &str, global: &Global) -> CliError {
    CliError::new(
        Exit::Refused,
        "CannotLeave",
        format!("workload cluster {name} could not be deregistered from its control plane"),
    )
    .cause(why.to_owned())
    .hint(format!("nothing was removed; the control plane still has {}", abandoned_objects(name)))
    .hint(format!("to remove the agent anyway: `fleetctl uninstall agent {name}{} --force`", global.tail_flags()))
    .hint(Remedy::new("when the control plane can be reached, delete the cluster there: ").command(delete_there(name)))
}

/// Removes the cluster in its control plane, of which it is not known how it is reached.
fn delete_there(name: &ClusterName) -> Command {
    Command::at_place(Place::ControlPlane(Access::Unknown), Action::DeleteCluster(name.to_string()))
}

fn format_agent_removal(
    ui: &Ui,
    name: &ClusterName,
    global: &Global,
    leave: &Leave,
    removed: &Removed,
    (workloads, data): (&[PlacedObject], &[PlacedObject]),
) -> String {
    let namespace = &global.namespace;
    let mut text = if removed.nothing_found {
        format!("There is no agent {name} in namespace {namespace}; nothing to remove.\n")
    } else {
        format!("Removed the agent of workload cluster {name}: {} objects were deleted.\n", removed.deleted.len())
    };
    if !removed.kept.is_empty() {
        text.push_str("\nKept:\n");
        for kept in &removed.kept {
            let _ = writeln!(text, "  {kept}");
        }
    }
    if !workloads.is_empty() {
        let _ = writeln!(text, "\nStill running, but no longer managed:");
        for object in workloads {
            let _ = writeln!(text, "  {}", visible_line(&object.to_string()));
        }
    }
    if !data.is_empty() {
        let _ = writeln!(
            text,
            "\nData is kept in this cluster: {}. The workloads that use it do not start elsewhere until this cluster \
             is registered as {name} again, or until their claims have the annotation \
             fleet-scheduler.io/allow-volume-move: \"true\" in the control plane.",
            visible_line(&format_object_names(data))
        );
    }
    if let Leave::Stays(_) = leave {
        let _ = writeln!(
            text,
            "\nThe control plane still has {}. To remove them there:\n  {}",
            abandoned_objects(name),
            ui.format_command(&delete_there(name))
        );
    }
    text
}
