//! `get`: lists what a control plane manages; talks to the control plane's own API.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::{Args, Subcommand, ValueEnum};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::Global;
use super::cluster_access::{hub_client, request_failed};
use super::error::{CliError, Exit};
use super::ui::Ui;
use crate::api::Cluster;
use crate::api::cluster::conditions;

/// List what a control plane manages
#[derive(Debug, Subcommand)]
pub(super) enum GetCommand {
    /// List registered workload clusters with their nodes
    #[command(visible_alias = "cluster", after_help = "Example:\n  fleetctl get clusters --context demo")]
    Clusters(GetClustersArgs),
}

/// List registered workload clusters with their nodes
#[derive(Debug, Args)]
pub(super) struct GetClustersArgs {
    /// Show only this cluster
    name: Option<String>,

    /// Output format [default: a block a cluster]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Yaml,
    Name,
}

pub(super) async fn run(ui: &Ui, global: &Global, command: GetCommand) -> Result<Exit, CliError> {
    match command {
        GetCommand::Clusters(args) => clusters(ui, global, &args).await,
    }
}

async fn clusters(ui: &Ui, global: &Global, args: &GetClustersArgs) -> Result<Exit, CliError> {
    let hub = hub_client(global).await?;
    let found = list(&hub, args.name.as_deref()).await?;
    match args.output {
        Some(Format::Json) => ui.out(&crate::chart::output::json(&as_list(&found)))?,
        Some(Format::Yaml) => ui.out(&crate::chart::output::yaml(&as_list(&found)))?,
        Some(Format::Name) => {
            let names = found.iter().fold(String::new(), |text, cluster| {
                text + "cluster.cluster.fleet-scheduler.io/" + &cluster.name_any() + "\n"
            });
            ui.out(&names)?;
        }
        None if found.is_empty() => {
            ui.out("No workload clusters are registered.\n")?;
            ui.note(&format!("Register one with `{} install agent NAME --context CONTEXT`", ui.program));
        }
        None => ui.out(&found.iter().map(block).collect::<Vec<_>>().join("\n"))?,
    }
    Ok(Exit::Ok)
}

async fn list(hub: &Client, name: Option<&str>) -> Result<Vec<Cluster>, CliError> {
    let api: Api<Cluster> = Api::all(hub.clone());
    let failed = |error: kube::Error| match &error {
        kube::Error::Api(status) if status.code == 404 && name.is_none() => {
            CliError::new(Exit::Failed, "NotAControlPlane", "this API server has no resource `clusters`")
                .hint("give the control plane's own context: `--context NAME`")
        }
        _ => request_failed("cannot list workload clusters", &error),
    };
    match name {
        None => Ok(api.list(&ListParams::default()).await.map_err(failed)?.items),
        Some(name) => match api.get_opt(name).await.map_err(failed)? {
            Some(cluster) => Ok(vec![cluster]),
            None => {
                Err(CliError::new(Exit::Failed, "NoSuchCluster", format!("no workload cluster `{name}` is registered"))
                    .hint("list them all with `get clusters`"))
            }
        },
    }
}

fn as_list(clusters: &[Cluster]) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "List",
        "items": clusters.iter().map(|cluster| serde_json::json!(cluster)).collect::<Vec<_>>(),
    })
}

/// The resources that count as GPUs in the listing.
fn is_gpu(resource: &str) -> bool {
    matches!(resource, "nvidia.com/gpu" | "amd.com/gpu")
        || resource.starts_with("gpu.intel.com/")
        || resource.starts_with("nvidia.com/mig-")
}

/// Frames `rows` (the first is the title row) in columns as wide as their widest cell.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let rule: String = widths.iter().fold("+".to_owned(), |rule, width| rule + &"-".repeat(width + 2) + "+") + "\n";
    let mut text = rule.clone();
    for (index, row) in rows.iter().enumerate() {
        for (column, width) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if index == 0 {
            text.push_str(&rule);
        }
    }
    text + &rule
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// The block of one cluster: its facts, its nodes, its nodes' taints.
fn block(cluster: &Cluster) -> String {
    let spec = &cluster.spec;
    let status = cluster.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == conditions::READY);
    let state = ready.map_or("Unknown", |condition| condition.reason.as_str());
    let mut text = table(&[
        row(&["CLUSTER NAME", "K8S VERSION", "CLOUD PROVIDER", "REGION", "STATUS"]),
        row(&[&cluster.name_any(), &spec.kubernetesversion, &spec.provider, &spec.region, state]),
    ]);
    let available = status.available_resources.unwrap_or_default();
    let mut nodes = vec![row(&["NODES", "AVAILABLE CPU", "AVAILABLE MEMORY", "AVAILABLE GPU"])];
    for (node, resources) in &available {
        let quantity = |name: &str| resources.get(name).map_or("", String::as_str);
        let gpus = resources.iter().filter(|(name, _)| is_gpu(name));
        let gpus: i64 = gpus.filter_map(|(_, count)| count.parse::<i64>().ok()).sum();
        nodes.push(row(&[node, quantity("cpu"), quantity("memory"), &gpus.to_string()]));
    }
    text.push_str(&table(&nodes));
    let mut taints = vec![row(&["NODES' TAINTS"])];
    for (node, list) in status.node_taints.unwrap_or_default() {
        let entries: BTreeSet<String> =
            list.iter().map(|taint| format!("  - {}:{}:{}", taint.key, taint.value, taint.effect)).collect();
        if !entries.is_empty() {
            taints.push(vec![node]);
            taints.extend(entries.into_iter().map(|entry| vec![entry]));
        }
    }
    text + &table(&taints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(status: serde_json::Value) -> Cluster {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "west"},
            "spec": {"name": "west", "kubernetesversion": "1.29", "provider": "aws", "region": "us-west-2"},
            "status": status
        }))
        .unwrap()
    }

    #[test]
    fn a_block_shows_nodes_gpus_and_taints_in_one_frame() {
        let shown = block(&cluster(serde_json::json!({
            "conditions": [{"type": "Idle", "status": "True", "reason": "x", "message": ""},
                           {"type": "Ready", "status": "True", "reason": "ClusterReady", "message": ""}],
            "availableResources": {"node-a": {"cpu": "399m", "memory": "2332068Ki", "nvidia.com/gpu": "2", "amd.com/gpu": "1"}},
            "nodeTaints": {"node-a": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}
        })));
        insta::assert_snapshot!(shown, @"");
    }

    #[test]
    fn a_cluster_that_never_reported_keeps_the_frame() {
        let shown = block(&cluster(serde_json::json!({})));
        for title in ["Unknown", "NODES", "NODES' TAINTS"] {
            assert!(shown.contains(title), "{shown}");
        }
        let widths: BTreeSet<usize> = shown.lines().take(5).map(|line| line.chars().count()).collect();
        assert_eq!(widths.len(), 1, "{shown}");
    }
}
