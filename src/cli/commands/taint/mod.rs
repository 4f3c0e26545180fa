//! `taint`, `cordon`, `uncordon`: keep new work off a workload cluster and let it in again, as kubectl does with nodes.

pub(in crate::cli) mod drain;
pub(crate) mod edit;

use clap::{Args, Subcommand};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::api::Cluster;
use crate::api::crd::cluster::Taint;
use crate::api::labels::TAINT_UNSCHEDULABLE;
use crate::api::lenient::Lenient;
use crate::api::names::ClusterName;
use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::connect::{control_plane_client, find_registered_cluster, no_such_cluster, request_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use edit::{EditError, TaintEdit};

/// Times that an edit is repeated because the Cluster has changed meanwhile.
const MOST_EDITS: usize = 5;

/// Edit the taints of a workload cluster
#[derive(Debug, Subcommand)]
pub(crate) enum TaintCommand {
    /// Edit the taints of a workload cluster
    #[command(after_help = TAINT_EXAMPLES)]
    Cluster(TaintClusterArgs),
}

const TAINT_EXAMPLES: &str = "\
A policy places work on a tainted cluster only if its `clusterTolerations` tolerate the taint. `NoExecute` also moves
the running workloads away. The syntax is that of `kubectl taint nodes`.

Examples:
  fleetctl taint cluster west gpu=yes:NoSchedule --context demo
  fleetctl taint cluster west gpu=no:NoSchedule --overwrite --context demo
  fleetctl taint cluster west gpu- --context demo";

/// Edit the taints of a workload cluster
#[derive(Debug, Args)]
pub(crate) struct TaintClusterArgs {
    /// Name of the workload cluster
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: String,

    /// Taints to set (KEY=VALUE:EFFECT, KEY:EFFECT) or to remove (KEY-, KEY:EFFECT-)
    #[arg(value_name = "TAINT", required = true)]
    taints: Vec<TaintEdit>,

    /// Change the value of a taint that exists
    #[arg(long)]
    overwrite: bool,
}

/// Place no new work in a workload cluster
#[derive(Debug, Subcommand)]
pub(crate) enum CordonCommand {
    /// Place no new work in a workload cluster; its workloads keep running
    #[command(after_help = CORDON_EXAMPLES)]
    Cluster(ClusterArgs),
}

const CORDON_EXAMPLES: &str = "\
The command sets the taint fleet-scheduler.io/unschedulable:NoSchedule. `fleetctl uncordon cluster` removes it.

Examples:
  fleetctl cordon cluster west --context demo";

/// Let a workload cluster take work again
#[derive(Debug, Subcommand)]
pub(crate) enum UncordonCommand {
    /// Let a workload cluster take work again after `cordon` or `drain`
    #[command(after_help = UNCORDON_EXAMPLES)]
    Cluster(ClusterArgs),
}

const UNCORDON_EXAMPLES: &str = "\
The command removes the taints fleet-scheduler.io/unschedulable that `cordon` and `drain` set. Workloads that have moved
away do not move back by themselves.

Examples:
  fleetctl uncordon cluster west --context demo";

/// A workload cluster by its name.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Name of the workload cluster
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: String,
}

pub(crate) async fn run_taint(ui: &Ui, global: &Global, command: TaintCommand) -> Result<Exit, CliError> {
    let TaintCommand::Cluster(args) = command;
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let client = control_plane_client(global).await?;
    let change = edit_taints(&client, global, &name, &|taints| {
        edit::apply_edits(taints, &args.taints, args.overwrite).map_err(|error| refused_edit(&name, &error, global))
    })
    .await?;
    let text = match change {
        Change::Made(taints) => format!("Workload cluster {name} has {}.\n", format_taints(&taints)),
        Change::Unneeded => format!("Workload cluster {name} already has these taints.\n"),
    };
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

pub(crate) async fn run_cordon(ui: &Ui, global: &Global, command: CordonCommand) -> Result<Exit, CliError> {
    let CordonCommand::Cluster(args) = command;
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let client = control_plane_client(global).await?;
    let change = edit_taints(&client, global, &name, &|taints| Ok(with_taint(taints, "NoSchedule"))).await?;
    ui.write_stdout(&match change {
        Change::Made(_) => format!("Workload cluster {name} is cordoned: it takes no new work.\n"),
        Change::Unneeded => format!("Workload cluster {name} was cordoned before.\n"),
    })?;
    Ok(Exit::Ok)
}

pub(crate) async fn run_uncordon(ui: &Ui, global: &Global, command: UncordonCommand) -> Result<Exit, CliError> {
    let UncordonCommand::Cluster(args) = command;
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let client = control_plane_client(global).await?;
    let change = edit_taints(&client, global, &name, &|taints| {
        Ok(taints.iter().filter(|taint| taint.key != TAINT_UNSCHEDULABLE).cloned().collect())
    })
    .await?;
    let text = match change {
        Change::Made(taints) if taints.is_empty() => format!("Workload cluster {name} takes work again.\n"),
        Change::Made(taints) => {
            format!("Workload cluster {name} is no longer cordoned; it still has {}.\n", format_taints(&taints))
        }
        Change::Unneeded => format!("Workload cluster {name} was not cordoned.\n"),
    };
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

/// Returns the taints with that of `cordon` or `drain`.
fn with_taint(taints: &[Taint], effect: &str) -> Vec<Taint> {
    let mut edited = taints.to_vec();
    if !edited.iter().any(|taint| taint.key == TAINT_UNSCHEDULABLE && taint.effect == effect) {
        edited.push(Taint { key: TAINT_UNSCHEDULABLE.to_owned(), value: String::new(), effect: effect.to_owned() });
    }
    edited
}

/// Returns the taints after an edit.
type Edit<'e> = dyn Fn(&[Taint]) -> Result<Vec<Taint>, CliError> + 'e;

/// What an edit came to.
enum Change {
    /// The taints were written; these are all of the cluster.
    Made(Vec<Taint>),
    /// The taints were like that before; nothing was written.
    Unneeded,
}

/// Edits the taints of a cluster, with those that others set meanwhile.
async fn edit_taints(
    client: &Client,
    global: &Global,
    name: &ClusterName,
    edit: &Edit<'_>,
) -> Result<Change, CliError> {
    let clusters: Api<Lenient<Cluster>> = Api::all(client.clone());
    for _ in 0..MOST_EDITS {
        let Some(Lenient(cluster)) = find_registered_cluster(&clusters, name.as_str()).await? else {
            return Err(no_such_cluster(name.as_str(), global));
        };
        let taints = edit(&cluster.spec.taints)?;
        if taints == cluster.spec.taints {
            return Ok(Change::Unneeded);
        }
        let change = json!({
            "metadata": { "resourceVersion": cluster.resource_version() },
            "spec": { "taints": taints },
        });
        match clusters.patch(name.as_str(), &PatchParams::default(), &Patch::Merge(&change)).await {
            Ok(_) => return Ok(Change::Made(taints)),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(request_failed(&format!("cannot change the taints of Cluster {name}"), &error)),
        }
    }
    Err(CliError::new(
        Exit::Failed,
        "RequestFailed",
        format!("Cluster {name} keeps changing; its taints were not changed"),
    )
    .hint("run the same command again"))
}

pub(crate) fn refused_edit(name: &ClusterName, error: &EditError, global: &Global) -> CliError {
    let refused =
        CliError::new(Exit::Refused, "TaintsUnchanged", format!("the taints of Cluster {name} were not changed"))
            .cause(visible_cell(&error.to_string()).into_owned());
    match error {
        EditError::HasOtherValue { .. } => refused.hint("give `--overwrite` to change the value"),
        EditError::NotFound(_) => {
            let list = format!(
                "list the taints: `kubectl get cluster {name} -o jsonpath='{{.spec.taints}}'{}`",
                global.tail_flags()
            );
            refused.hint(list)
        }
    }
}

fn format_taints(taints: &[Taint]) -> String {
    let listed = taints.iter().map(|taint| {
        let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
        visible_cell(&format!("{}{value}:{}", taint.key, taint.effect)).into_owned()
    });
    match taints.len() {
        0 => "no taints".to_owned(),
        1 => format!("the taint {}", listed.collect::<String>()),
        _ => format!("the taints {}", listed.collect::<Vec<_>>().join(", ")),
    }
}
