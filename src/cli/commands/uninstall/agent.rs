//! `uninstall agent`: the cluster leaves its control plane, then everything of the agent goes.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::{elsewhere, leftovers};
use crate::api::labels::cluster_namespace;
use crate::api::names::ClusterName;
use crate::api::remedy::{Access, Action, Command, Place, Remedy};
use crate::api::shell::foreign_word;
use crate::api::text::{visible, visible_cell};
use crate::apply::Removed;
use crate::cli::args::global::Global;
use crate::cli::args::package::wrong_name;
use crate::cli::args::run::{RunArgs, goes_on, until_stopped};
use crate::cli::connect;
use crate::cli::connect::request_failed;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::format::Format;
use crate::cli::output::install_error::engine_error;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::install::progress::Progress;
use crate::workload_cluster::uninstall::Leave;

pub(super) const EXAMPLES: &str = "\
The agent says goodbye to the control plane first, which forgets the cluster; then it is removed here.
A namespace and an init Secret that an operator made stay.

Examples:
  fleetctl uninstall agent west --context west
  fleetctl uninstall agent west --context west --force";

/// Disconnect the cluster of `--context` from its control plane and remove its agent
#[derive(Debug, Args)]
pub(crate) struct UninstallAgentArgs {
    /// Name of the workload cluster
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: String,

    /// Remove the agent although the control plane cannot be told
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    run: RunArgs,

    /// Output format [default: text]; with `json` the progress on stderr is JSON too
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &UninstallAgentArgs) -> Result<Exit, CliError> {
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let home = connect::home()?;
    let workload = connect::connect(global).await?;
    let target = args.run.target(&name, global, &workload.client, &home);
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    let unread = |error: &kube::Error| request_failed("cannot read the workload cluster", error);
    if let Some(other) = target.installed().await.map_err(|e| unread(&e))?.filter(|other| other != name.as_str()) {
        return Err(CliError::new(
            Exit::Refused,
            "OtherAgent",
            format!(
                "the agent in namespace {} is that of workload cluster `{}`, not `{name}`",
                global.namespace,
                visible_cell(&other)
            ),
        )
        .hint(format!("to remove it: `fleetctl uninstall agent {}{}`", foreign_word(&other), global.tail())));
    }
    let work = async {
        // What cannot be removed here is not made to leave there.
        target.plan(&progress).await.map_err(|error| engine_error("the agent cannot be removed", &error))?;
        progress.step(&format!("Leaving the control plane as {name}"));
        let leave = target.leave().await.map_err(|e| unread(&e))?;
        match &leave {
            Leave::Left => progress.done("it has forgotten the cluster"),
            Leave::NotRegistered => progress.done("nothing was registered from here"),
            Leave::Stays(why) if args.force => progress.warn(&format!("{why}; going on, as `--force` says")),
            Leave::Stays(why) => return Err(stays(&name, why, global)),
        }
        progress.step(&format!("Removing the agent from namespace {}", global.namespace));
        let removed = target.remove(&progress).await;
        Ok((leave, removed.map_err(|error| goes_on(engine_error("the removal stopped", &error)))?))
    };
    let (leave, removed) = until_stopped(ui, &display, "the removal", work).await??;
    elsewhere("agent", name.as_str(), global, &removed)?;
    ui.out(&match args.output {
        Some(format) => {
            format.of(&Document { name: name.as_str(), left: !matches!(leave, Leave::Stays(_)), removed: &removed })
        }
        None => summary(ui, &name, global, &leave, &removed),
    })?;
    leftovers(&removed)
}

/// A removal as programs read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'r> {
    name: &'r str,
    /// Whether the control plane knows nothing of the cluster any more.
    left: bool,
    #[serde(flatten)]
    removed: &'r Removed,
}

/// What the control plane still has of a cluster that could not leave.
fn left_there(name: &ClusterName) -> String {
    format!("Cluster {name}, its namespace {} and its credentials", cluster_namespace(name.as_str()))
}

pub(in crate::cli) fn stays(name: &ClusterName, why: &str, global: &Global) -> CliError {
    CliError::new(Exit::Refused, "CannotLeave", format!("workload cluster {name} could not leave its control plane"))
        .cause(why.to_owned())
        .hint(format!("nothing was removed; the control plane still has {}", left_there(name)))
        .hint(format!("to remove the agent all the same: `fleetctl uninstall agent {name}{} --force`", global.tail()))
        .hint(Remedy::new("and there, once it is reached: ").command(delete_there(name)))
}

/// Removes the cluster in its control plane, of which it is not known how it is reached.
fn delete_there(name: &ClusterName) -> Command {
    Command::at(Place::ControlPlane(Access::Unknown), Action::DeleteCluster(name.to_string()))
}

fn summary(ui: &Ui, name: &ClusterName, global: &Global, leave: &Leave, removed: &Removed) -> String {
    let namespace = &global.namespace;
    let mut text = if removed.nothing_found {
        format!("There is no agent {name} in namespace {namespace}; nothing to remove.\n")
    } else {
        format!("Removed the agent of workload cluster {name}: {} objects are gone.\n", removed.deleted.len())
    };
    if !removed.kept.is_empty() {
        text.push_str("\nKept:\n");
        for kept in &removed.kept {
            let _ = writeln!(text, "  {}: {}", kept.object, visible(&kept.why));
        }
    }
    if let Leave::Stays(_) = leave {
        let _ = writeln!(
            text,
            "\nThe control plane still has {}. To remove them there:\n  {}",
            left_there(name),
            ui.command(&delete_there(name))
        );
    }
    text
}
