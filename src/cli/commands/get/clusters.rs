//! `get clusters`: the workload clusters of a control plane, in detail, as a table or for programs; once or for ever.

use std::pin::pin;

use clap::{Args, ValueEnum};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};

use super::blocks::{cluster_state, format_cluster_block};
use super::node_reports::with_nodes;
use super::{GetFormat, format_objects, formatted_alone, selector_params};
use crate::api::Cluster;
use crate::api::crd::cluster::conditions::{IDLE, READY, STANDBY};
use crate::api::crd::condition::find_condition;
use crate::api::lenient::Lenient;
use crate::api::util::text::visible_cell;
use crate::chart::output;
use crate::cli::args::global::Global;
use crate::cli::commands::simulate::live::read_live_state;
use crate::cli::connect::{control_plane_client, find_registered_cluster, list_failed, no_such_cluster};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::fleet_page::format_fleet_page;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::Ui;
use crate::control_plane::health::format_error_chain;
use crate::placement::simulate::picture_fleet;

pub(super) const EXAMPLES: &str = "Examples:
  fleetctl get clusters --context demo
  fleetctl get clusters west --context demo -o yaml
  fleetctl get clusters --context demo --selector fleet-scheduler.io/cluster.provider=aws -o wide
  fleetctl get clusters --context demo --watch -o wide
  fleetctl get clusters --context demo -o html > fleet.html";

/// The name of the resource, as `-o name` gives it.
const RESOURCE: &str = "cluster.cluster.fleet-scheduler.io";

/// Requests at the same time.
const AT_ONCE: usize = 8;

/// List registered workload clusters with their nodes
#[derive(Debug, Args)]
pub(crate) struct GetClustersArgs {
    /// Show only this cluster
    name: Option<String>,

    /// Output format [default: a block per cluster, with nodes and taints]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    /// Show only clusters with these labels, e.g. `fleet-scheduler.io/cluster.region=eu-1`
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "name")]
    selector: Option<String>,

    /// Keep watching and print each cluster that changes, until interrupted
    #[arg(short, long)]
    watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum View {
    /// One line per cluster
    Wide,
    Json,
    Yaml,
    Name,
    /// HTML page with the used, promised and free capacity, and the groups without a place
    #[value(name = "html")]
    Page,
}

impl View {
    fn for_programs(self) -> Option<GetFormat> {
        match self {
            Self::Wide | Self::Page => None,
            Self::Json => Some(GetFormat::Json),
            Self::Yaml => Some(GetFormat::Yaml),
            Self::Name => Some(GetFormat::Name),
        }
    }
}

/// The fleet as a page, of the clusters that were found.
async fn format_page(ui: &Ui, global: &Global, found: &[Cluster]) -> Result<String, CliError> {
    let mut state = read_live_state(ui, global).await?;
    state.clusters.retain(|cluster| found.iter().any(|one| one.metadata.name == cluster.metadata.name));
    state.sort_by_name();
    Ok(format_fleet_page(&picture_fleet(&state), false))
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &GetClustersArgs) -> Result<Exit, CliError> {
    let hub = control_plane_client(global).await?;
    let found = list_clusters(&hub, global, args).await?;
    if args.output == Some(View::Page) {
        if args.watch {
            return Err(CliError::usage("Usage", "`-o html` prints a single page and cannot be used with `--watch`"));
        }
        ui.write_stdout(&format_page(ui, global, &found).await?)?;
        return Ok(Exit::Ok);
    }
    if args.watch {
        return watch_clusters(ui, &hub, args, &found).await;
    }
    let text = match args.output.map(|view| (view, view.for_programs())) {
        Some((_, Some(format))) => match (&args.name, found.as_slice()) {
            (Some(_), [one]) => formatted_alone(format, one, RESOURCE),
            _ => format_objects(format, &found, RESOURCE),
        },
        _ if found.is_empty() => {
            ui.write_stdout("No workload clusters are registered.\n")?;
            ui.print_note(&format!("Register one with `{} install agent NAME --context CONTEXT`", ui.program));
            return Ok(Exit::Ok);
        }
        Some(_) => {
            let rows: Vec<Vec<String>> =
                std::iter::once(cluster_titles()).chain(found.iter().map(wide_cluster_row)).collect();
            Columns::from_rows(&rows).format_lines(&rows)
        }
        None => {
            let whole = stream::iter(found).map(|cluster| with_nodes(ui, &hub, cluster)).buffered(AT_ONCE);
            whole.map(|cluster| format_cluster_block(&cluster)).collect().await
        }
    };
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

async fn list_clusters(hub: &Client, global: &Global, args: &GetClustersArgs) -> Result<Vec<Cluster>, CliError> {
    let api: Api<Lenient<Cluster>> = Api::all(hub.clone());
    let Some(name) = &args.name else {
        let found = api.list(&selector_params(args.selector.as_deref())).await;
        let found = found.map_err(|error| list_failed("clusters", &error))?;
        return Ok(found.into_iter().map(strip_managed_fields).collect());
    };
    let found = find_registered_cluster(&api, name).await?;
    let cluster = found.ok_or_else(|| no_such_cluster(name, global))?;
    Ok(vec![strip_managed_fields(cluster)])
}

/// A cluster as it is shown: as kubectl does, without managed fields.
fn strip_managed_fields(read: Lenient<Cluster>) -> Cluster {
    let mut cluster = read.0;
    cluster.metadata.managed_fields = None;
    cluster
}

fn cluster_titles() -> Vec<String> {
    table_row([
        "NAME",
        "K8S-VERSION",
        "K8S-CLUSTER",
        "REGION",
        "ZONE",
        "READY",
        "IDLE",
        "STANDBY",
        "PROVIDER",
        "NODES",
        "AGENT",
        "STATUS",
    ])
}

/// The columns of the plain listing, then those that are worth a wide line.
fn wide_cluster_row(cluster: &Cluster) -> Vec<String> {
    let spec = &cluster.spec;
    let status = cluster.status.as_ref();
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let [ready, idle, standby] = [READY, IDLE, STANDBY]
        .map(|type_| find_condition(conditions, type_).map_or("Unknown", |condition| condition.status.as_str()));
    let observed = status.and_then(|status| status.observed.as_ref());
    let nodes = observed.and_then(|observed| observed.node_count).map(|count| count.to_string()).unwrap_or_default();
    let agent = observed.map(|observed| observed.agent_version.as_str()).unwrap_or_default();
    table_row([
        &cluster.name_any(),
        &spec.kubernetesversion,
        &spec.kubernetescluster,
        &spec.region,
        &spec.zone,
        ready,
        idle,
        standby,
        &spec.provider,
        &nodes,
        agent,
        cluster_state(cluster),
    ])
}

/// Shows the clusters that exist, then each one as it changes. Ends only with an error or by a signal.
async fn watch_clusters(ui: &Ui, hub: &Client, args: &GetClustersArgs, found: &[Cluster]) -> Result<Exit, CliError> {
    let rows: Vec<Vec<String>> = std::iter::once(cluster_titles()).chain(found.iter().map(wide_cluster_row)).collect();
    let columns = Columns::from_rows(&rows);
    if args.output == Some(View::Wide) {
        ui.write_stdout(&columns.format_line(&cluster_titles()))?;
    }
    let api: Api<Lenient<Cluster>> = Api::all(hub.clone());
    let mut config = watcher::Config::default();
    if let Some(name) = &args.name {
        config = config.fields(&format!("metadata.name={name}"));
    }
    if let Some(selector) = &args.selector {
        config = config.labels(selector);
    }
    // A watch that breaks begins anew by itself, and lists everything again; what was shown is not shown twice.
    let mut shown: std::collections::BTreeMap<String, Option<String>> = std::collections::BTreeMap::new();
    let mut stream = pin!(watcher::watcher(api, config).default_backoff());
    while let Some(event) = stream.try_next().await.transpose() {
        match event {
            Ok(Event::InitApply(cluster) | Event::Apply(cluster)) => {
                let version = cluster.resource_version();
                if shown.insert(cluster.name_any(), version.clone()) != Some(version) {
                    let cluster = strip_managed_fields(cluster);
                    ui.write_stdout(&match args.output {
                        None => format_cluster_block(&with_nodes(ui, hub, cluster).await),
                        Some(View::Wide) => columns.format_line(&wide_cluster_row(&cluster)),
                        Some(View::Json) => output::format_json(&cluster),
                        Some(View::Yaml) => format!("---\n{}", output::format_yaml(&cluster)),
                        Some(View::Name) => format_objects(GetFormat::Name, &[cluster], RESOURCE),
                        Some(View::Page) => String::new(),
                    })?;
                }
            }
            Ok(Event::Delete(cluster)) => {
                shown.remove(&cluster.name_any());
                ui.print_note(&format!("{} is no longer registered", visible_cell(&cluster.name_any())));
            }
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => {
                ui.warn(&format!("the watch was interrupted and starts again: {}", format_error_chain(&error)));
            }
        }
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wide_line_begins_with_the_columns_of_the_plain_listing() {
        let cluster: Cluster = serde_json::from_value(serde_json::json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "west"},
            "spec": {"name": "west", "kubernetesversion": "1.29", "kubernetescluster": "w", "region": "r"},
            "status": {"observed": {"nodeCount": 3}, "conditions": [
                {"type": "Ready", "status": "False", "reason": "ClusterHeartbeatLost", "message": ""},
                {"type": "Idle", "status": "True", "reason": "x", "message": ""}]}
        }))
        .unwrap();
        let mut bad = cluster.clone();
        bad.spec.zone = "z\u{1b}[2J\n".to_owned();
        let shown = Columns::from_rows(&[cluster_titles()]).format_line(&wide_cluster_row(&bad));
        assert!(shown.contains(r" z\u{1b}[2J\n ") && shown.lines().count() == 1, "{shown}");
        let rows = [cluster_titles(), wide_cluster_row(&cluster)];
        insta::assert_snapshot!(Columns::from_rows(&rows).format_lines(&rows));
    }
}
