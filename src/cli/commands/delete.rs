//! `delete`: deletes a workload cluster from a control plane when its agent cannot deregister any more.

use std::fmt::Debug;
use std::time::Duration;

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::api::Cluster;
use crate::api::crd::cluster::conditions::READY;
use crate::api::crd::condition::find_condition;
use crate::api::first_of::first_of;
use crate::api::labels::cluster_namespace;
use crate::api::lenient::Lenient;
use crate::api::names::ClusterName;
use crate::api::util::text::{visible_line, visible_lines};
use crate::cli::args::global::Global;
use crate::cli::args::timeouts::{DELETE_TIMEOUT, parse_duration};
use crate::cli::commands::simulate::live::read_live_state;
use crate::cli::connect::{control_plane_client, find_registered_cluster, request_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::{Question, Ui};
use crate::cli::output::values_error::wrong_name;
use crate::placement::decide::Outcome;
use crate::placement::simulate::{Asked, Placement, simulate};

/// Delete a registration that cannot be removed by its agent
#[derive(Debug, Subcommand)]
pub(crate) enum DeleteCommand {
    /// Delete a workload cluster from the control plane of `--context`
    #[command(after_help = EXAMPLES)]
    Cluster(DeleteClusterArgs),
}

/// Time between two looks at what is being deleted.
const PAUSE: Duration = Duration::from_millis(250);

const EXAMPLES: &str = "\
Use this command if a workload cluster no longer exists, or its agent was removed by force. While its agent runs, use
`uninstall agent` instead: a running agent registers again.

Examples:
  fleetctl delete cluster west --context demo
  fleetctl delete cluster west --context demo --yes";

/// Delete a workload cluster from the control plane of `--context`
#[derive(Debug, Args)]
pub(crate) struct DeleteClusterArgs {
    /// Name of the workload cluster
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: String,

    /// Continue without a prompt
    #[arg(long, short)]
    yes: bool,

    /// Time to wait until the cluster and its namespace are deleted
    #[arg(long, value_name = "DURATION", default_value = DELETE_TIMEOUT, value_parser = parse_duration)]
    timeout: Duration,
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: DeleteCommand) -> Result<Exit, CliError> {
    let DeleteCommand::Cluster(args) = command;
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let hub = control_plane_client(global).await?;
    // What an agent wrote into its Cluster must not keep it from being deleted.
    let clusters: Api<Lenient<Cluster>> = Api::all(hub.clone());
    let Some(Lenient(cluster)) = find_registered_cluster(&clusters, name.as_str()).await? else {
        ui.write_stdout(&format!("No workload cluster {name} is registered; nothing to delete.\n"))?;
        return Ok(Exit::Ok);
    };
    // Who gives `--yes` is not there to read it, and waits for no lists.
    let left = if args.yes { String::new() } else { describe_what_is_left(ui, global, name.as_str()).await };
    confirm_cluster_deletion(ui, &name, &cluster, &left, args.yes)?;
    // With what was looked at, and not with a cluster that has taken the name since.
    let same = DeleteParams::background()
        .preconditions(kube::api::Preconditions { uid: cluster.uid(), resource_version: None });
    match clusters.delete(name.as_str(), &same).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(request_failed(&format!("cannot delete Cluster {name}"), &error)),
    }
    if tokio::time::timeout(args.timeout, wait_for_cluster_deletion(&hub, &name, cluster.uid())).await.is_err() {
        return Err(CliError::new(
            Exit::TimedOut,
            "NotGone",
            format!("timed out waiting for the condition: Cluster {name} and its namespace are still being deleted"),
        )
        .hint(format!(
            "see what blocks the deletion: `kubectl get namespace {} -o yaml`",
            cluster_namespace(name.as_str())
        )));
    }
    ui.write_stdout(&format!("Deleted workload cluster {name}, its namespace and its credentials.\n"))?;
    Ok(Exit::Ok)
}

/// Waits until a cluster is deleted. Its Cluster owns all its objects in the control plane; the namespace is deleted
/// last.
async fn wait_for_cluster_deletion(hub: &Client, name: &ClusterName, uid: Option<String>) {
    until_other(&Api::<Lenient<Cluster>>::all(hub.clone()), name.as_str(), uid).await;
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    let place = cluster_namespace(name.as_str());
    if let Some(namespace) = until_read(&namespaces, &place).await {
        until_other(&namespaces, &place, namespace.uid()).await;
    }
}

/// Waits until the object is gone, or another one has its name.
async fn until_other<K: Resource + Clone + DeserializeOwned + Debug>(api: &Api<K>, name: &str, uid: Option<String>) {
    while until_read(api, name).await.is_some_and(|found| found.uid() == uid) {
        tokio::time::sleep(PAUSE).await;
    }
}

/// The object, if it exists. A failed read proves nothing and is repeated.
async fn until_read<K: Resource + Clone + DeserializeOwned + Debug>(api: &Api<K>, name: &str) -> Option<K> {
    loop {
        match api.get_opt(name).await {
            Ok(found) => return found,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Returns what becomes of what is placed in a cluster once it is deleted, by a simulation without it.
async fn describe_what_is_left(ui: &Ui, global: &Global, name: &str) -> String {
    let mut before = match read_live_state(ui, global).await {
        Ok(state) => state,
        Err(error) => {
            return format!("The effect on its workloads is unknown: {}.", visible_line(&error.headline));
        }
    };
    before.strip_at(Timestamp::now().as_second());
    let mut after = before.clone();
    after.remove_cluster(name);
    after.set_missing_ages();
    let outcome = simulate(&before, &after, &Asked { clusters: [name.to_owned()].into(), ..Asked::default() });
    format_what_is_left(name, &outcome.placements)
}

/// Returns the sentences about placements of which a copy is in a cluster now.
fn format_what_is_left(name: &str, placements: &[Placement]) -> String {
    let there: Vec<&Placement> = placements.iter().filter(|placement| placement.before.contains(name)).collect();
    if there.is_empty() {
        return "Nothing is placed there.".to_owned();
    }
    let (kept, others): (Vec<&Placement>, Vec<&Placement>) =
        there.into_iter().partition(|one| one.reason == Outcome::HasVolumes.code());
    let (elsewhere, waiting): (Vec<&Placement>, Vec<&Placement>) = others.into_iter().partition(|one| one.placed);
    let mut lines = Vec::new();
    if !elsewhere.is_empty() {
        lines.push(format!("Groups that have a place in other clusters: {}.", format_placement_titles(&elsewhere)));
    }
    if !waiting.is_empty() {
        lines.push(format!(
            "Groups that have no place in other clusters, and wait for one: {}.",
            format_placement_titles(&waiting)
        ));
    }
    if !kept.is_empty() {
        lines.push(format!(
            "Groups whose data is in this cluster; they do not start elsewhere until a cluster is registered as \
             {name} again: {}.",
            format_placement_titles(&kept)
        ));
    }
    lines.join("\n")
}

fn format_placement_titles(found: &[&Placement]) -> String {
    let titles = found.iter().map(|placement| match placement.objects.first() {
        Some(first) if placement.objects.len() == 1 => first.clone(),
        Some(first) => format!("{first} and {} more", placement.objects.len() - 1),
        None => placement.name.clone(),
    });
    format!("{} ({})", found.len(), first_of(titles, 3, "; "))
}

fn confirm_cluster_deletion(
    ui: &Ui,
    name: &ClusterName,
    cluster: &Cluster,
    left: &str,
    yes: bool,
) -> Result<(), CliError> {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if find_condition(conditions, READY).is_some_and(crate::api::Condition::is_true) {
        ui.warn(&format!(
            "the agent of {name} is running and will register again; to remove both, give the context of its cluster: `{} uninstall agent {name} --context CONTEXT`",
            ui.program
        ));
    }
    if yes {
        return Ok(());
    }
    ui.write_stderr(&format!(
        "The control plane deletes the registration of {name}. The workloads that it placed there keep running, but \
         it no longer manages them.\n{}",
        visible_lines(left)
    ));
    ui.confirm_by_name(Question::DeleteCluster, "workload cluster", name.as_str())
}
