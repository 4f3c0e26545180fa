//! `drain`: moves what runs in a workload cluster to other clusters, and waits until it has moved.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use kube::Client;
use kube::api::{Api, ListParams};

use super::{Change, edit_taints, with_taint};
use crate::api::Schedule;
use crate::api::labels::cluster_namespace;
use crate::api::lenient::Lenient;
use crate::api::names::ClusterName;
use crate::api::placeable;
use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::args::timeouts::{DRAIN_TIMEOUT, parse_duration};
use crate::cli::connect::{control_plane_client, list_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use crate::cli::signals::until_stopped;
use crate::install::progress::Progress;
use crate::k8s::request::pages::all_pages;

/// Move the workloads of a workload cluster to other clusters
#[derive(Debug, Subcommand)]
pub(crate) enum DrainCommand {
    /// Move the workloads of a workload cluster to other clusters, and wait until they have moved
    #[command(after_help = EXAMPLES)]
    Cluster(DrainClusterArgs),
}

const EXAMPLES: &str = "\
The command sets the taint fleet-scheduler.io/unschedulable:NoExecute: the cluster gets no new work, and its workloads
move to other clusters. Workloads that fit no other cluster, or have volumes, keep running; the command lists them at
the end. `fleetctl uncordon cluster` lets the cluster take work again.

Examples:
  fleetctl drain cluster west --context demo
  fleetctl drain cluster west --context demo --timeout 30m";

/// Move the workloads of a workload cluster to other clusters, and wait until they have moved
#[derive(Debug, Args)]
pub(crate) struct DrainClusterArgs {
    /// Name of the workload cluster
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: String,

    /// Time to wait until everything has moved
    #[arg(long, value_name = "DURATION", default_value = DRAIN_TIMEOUT, value_parser = parse_duration)]
    timeout: Duration,
}

/// Time between two looks at what is left.
const PAUSE: Duration = Duration::from_secs(1);

/// Objects that are named at the end; the rest is counted.
const MOST_NAMED: usize = 20;

pub(crate) async fn run(ui: &Ui, global: &Global, command: DrainCommand) -> Result<Exit, CliError> {
    let DrainCommand::Cluster(args) = command;
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let client = control_plane_client(global).await?;
    let display = Arc::new(Display::new(ui));
    let work = async {
        let change = edit_taints(&client, global, &name, &|taints| Ok(with_taint(taints, "NoExecute"))).await?;
        display.begin_step(&format!("Draining workload cluster {name}"));
        if matches!(change, Change::Unneeded) {
            display.update_step("the taint was already set");
        }
        wait_until_moved(&client, &name, &display, args.timeout).await
    };
    let left = until_stopped(ui, &display, "the drain", work, async {}).await??;
    if left.is_empty() {
        ui.write_stdout(&format!("Workload cluster {name} is drained: no workload runs there.\n"))?;
        return Ok(Exit::Ok);
    }
    Err(not_drained(&name, left, global, args.timeout))
}

/// Waits until nothing that runs pods is placed in the cluster; returns what is left at the timeout.
async fn wait_until_moved(
    client: &Client,
    name: &ClusterName,
    display: &Display,
    timeout: Duration,
) -> Result<Vec<String>, CliError> {
    let end = tokio::time::Instant::now() + timeout;
    loop {
        let left = list_running_copies(client, name).await?;
        if left.is_empty() || tokio::time::Instant::now() >= end {
            return Ok(left);
        }
        display.update_step(&format!("{} workloads left", left.len()));
        tokio::time::sleep(PAUSE).await;
    }
}

/// The objects that run pods and are placed in the cluster, as `KIND/NAME (NAMESPACE)`, in order.
async fn list_running_copies(client: &Client, name: &ClusterName) -> Result<Vec<String>, CliError> {
    let schedules: Api<Lenient<Schedule>> = Api::namespaced(client.clone(), &cluster_namespace(name.as_str()));
    let found = all_pages(ListParams::default(), async |params| schedules.list(&params).await).await;
    let found = found.map_err(|error| list_failed("schedules", &error))?;
    let mut running: Vec<String> =
        found.iter().filter(|Lenient(schedule)| is_running(schedule)).map(|Lenient(one)| format_copy(one)).collect();
    running.sort();
    Ok(running)
}

/// Whether a copy runs pods, or is about to. A Job or Pod that has ended asks for none: it is not run again elsewhere.
fn is_running(schedule: &Schedule) -> bool {
    let source = &schedule.spec.source_ref;
    let pods = schedule.status.as_ref().and_then(|status| status.pods.as_ref());
    let asks_for_none = pods.is_some_and(|pods| pods.desired == 0 && pods.bound == 0);
    let has_ended = matches!(source.kind.as_str(), "Job" | "Pod") && asks_for_none;
    placeable::runs_pods(&source.group, &source.kind) && !has_ended
}

fn format_copy(schedule: &Schedule) -> String {
    let source = &schedule.spec.source_ref;
    let namespace = source.namespace.as_deref().unwrap_or_default();
    visible_cell(&format!("{}/{} -n {namespace}", source.kind.to_lowercase(), source.name)).into_owned()
}

fn not_drained(name: &ClusterName, left: Vec<String>, global: &Global, timeout: Duration) -> CliError {
    let count = left.len();
    let first = left.first().cloned().unwrap_or_default();
    let mut named: Vec<String> = left.into_iter().take(MOST_NAMED).collect();
    if count > MOST_NAMED {
        named.push(format!("and {} more", count - MOST_NAMED));
    }
    let noun = if count == 1 { "workload still runs" } else { "workloads still run" };
    CliError::new(
        Exit::TimedOut,
        "NotDrained",
        format!(
            "timed out waiting for the condition: {count} {noun} in workload cluster {name} after {} s",
            timeout.as_secs()
        ),
    )
    .details(named)
    .hint(format!("see why one of them is kept: `fleetctl why {first}{}`", global.cluster_flags()))
    .hint(format!(
        "the cluster takes no new work; to undo it: `fleetctl uncordon cluster {name}{}`",
        global.tail_flags()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A copy, and how many pods it should have and has on nodes, if its agent has reported that.
    fn copy_with_pods(kind: &str, pods: Option<(i64, i64)>) -> Schedule {
        let group = match kind {
            "Deployment" => "apps",
            "Job" => "batch",
            _ => "",
        };
        let status =
            pods.map(|(desired, bound)| json!({ "pods": { "desired": desired, "bound": bound, "counted": 0 } }));
        serde_json::from_value(json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule", "metadata": { "name": "x" },
            "spec": { "manifest": "{}", "hash": "h",
                "sourceRef": { "group": group, "version": "v1", "kind": kind, "namespace": "shop", "name": "web", "uid": "u" } },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn what_runs_pods_is_waited_for_and_what_has_ended_is_not() {
        let (none, one, waits) = (Some((0, 0)), Some((1, 1)), Some((1, 0)));
        for (kind, pods, running, why) in [
            ("Deployment", None, true, "it never ends"),
            ("Deployment", none, true, "it never ends"),
            ("Job", one, true, "it has a pod"),
            ("Job", None, true, "its agent has not reported yet"),
            ("Job", waits, true, "it has no node yet, or is between two tries"),
            ("Pod", waits, true, "it has no node yet"),
            ("Job", Some((0, 1)), true, "its last pod is still there"),
            ("Job", none, false, "it has ended"),
            ("Pod", none, false, "it has ended"),
            ("ConfigMap", None, false, "it runs no pods"),
            ("Namespace", None, false, "it runs no pods"),
        ] {
            assert_eq!(is_running(&copy_with_pods(kind, pods)), running, "{kind}: {why}");
        }
        assert_eq!(format_copy(&copy_with_pods("Job", None)), "job/web -n shop");
    }
}
