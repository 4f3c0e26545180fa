//! `accept`: lets a workload cluster in, where the control plane registers by hand.

use clap::Args;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::api::Cluster;
use crate::api::lenient::Lenient;
use crate::api::names::ClusterName;
use crate::cli::args::global::Global;
use crate::cli::args::package::wrong_name;
use crate::cli::connect::{hub_client, registered, request_failed};
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::terminal::Ui;

/// Let a workload cluster into the control plane of `--context`
#[derive(Debug, Args)]
#[command(after_help = "Needed only with `scheduler.registration: Manual`.

Example:
  fleetctl accept west --context demo")]
pub(crate) struct AcceptArgs {
    /// Name of the workload cluster
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: String,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: &AcceptArgs) -> Result<Exit, CliError> {
    let name: ClusterName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let clusters: Api<Lenient<Cluster>> = Api::all(hub_client(global).await?);
    let Some(Lenient(cluster)) = registered(&clusters, name.as_str()).await? else {
        return Err(CliError::new(
            Exit::Failed,
            "NoSuchCluster",
            format!("no workload cluster `{name}` asks to be let in"),
        )
        .hint(format!("see who does: `fleetctl get clusters -o wide{}`", global.tail())));
    };
    if cluster.spec.accepted {
        ui.out(&format!("Workload cluster {name} was accepted before.\n"))?;
        return Ok(Exit::Ok);
    }
    let change = Patch::Merge(json!({ "spec": { "accepted": true } }));
    clusters
        .patch(name.as_str(), &PatchParams::default(), &change)
        .await
        .map_err(|error| request_failed(&format!("cannot accept Cluster {name}"), &error))?;
    ui.out(&format!("Accepted workload cluster {name}.\n"))?;
    Ok(Exit::Ok)
}
