//! `version`: of this program, of the control planes in the cluster, and of the agents, and how far they are apart.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::Serialize;

use crate::api::Cluster;
use crate::api::labels::LABEL_INSTALL;
use crate::api::util::text::{visible_cell, visible_list};
use crate::api::version::ServiceVersion;
use crate::chart;
use crate::chart::versions::agent_skew::check_skew;
use crate::cli::args::global::Global;
use crate::cli::connect::connect_cluster;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::terminal::Ui;
use crate::control_plane::health;
use crate::control_plane::keys::find_keys;

/// Time that each cluster may take to answer: a version is asked for when something is wrong, too.
const PATIENCE: Duration = Duration::from_secs(5);

/// Print the versions of this program, of control planes and of agents
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fleetctl version\n  fleetctl version --client -o json")]
pub(crate) struct VersionArgs {
    /// Contact no cluster
    #[arg(long)]
    client: bool,

    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientVersion {
    version: &'static str,
    git_commit: &'static str,
    built: &'static str,
}

/// A control plane or an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Installed {
    name: String,
    version: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionDocument {
    client: ClientVersion,
    control_planes: Vec<Installed>,
    agents: Vec<Installed>,
    /// Agents and control planes that do not fit together, a clause for each pair.
    skew: Vec<String>,
    /// Reasons that something is missing above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_asked: Vec<String>,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: &VersionArgs) -> Result<Exit, CliError> {
    let client = ClientVersion {
        version: concat!("v", env!("CARGO_PKG_VERSION")),
        git_commit: env!("FLEETCTL_GIT"),
        built: env!("FLEETCTL_BUILT"),
    };
    let mut found = VersionDocument {
        client,
        control_planes: Vec::new(),
        agents: Vec::new(),
        skew: Vec::new(),
        not_asked: Vec::new(),
    };
    if !args.client {
        let asked = tokio::time::timeout(2 * PATIENCE, read_cluster_versions(global, &mut found)).await;
        match asked {
            Ok(Ok(())) => {}
            Ok(Err(why)) => found.not_asked.push(why),
            Err(_) => found.not_asked.push(format!("no answer within {} s", 2 * PATIENCE.as_secs())),
        }
    }
    ui.write_stdout(&match args.output {
        Some(format) => format.serialize_value(&found),
        None => format_version_report(ui, &found),
    })?;
    Ok(Exit::Ok)
}

async fn read_cluster_versions(global: &Global, found: &mut VersionDocument) -> Result<(), String> {
    let hosting = connect_cluster(global).await;
    let hosting = hosting.map_err(|error| [&[error.headline][..], &error.causes].concat().join(": "))?;
    let namespace = global.namespace.as_str();
    let deployments: Api<Deployment> = Api::namespaced(hosting.client.clone(), namespace);
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=fleet");
    let listed = tokio::time::timeout(PATIENCE, deployments.list(&ours)).await;
    let listed = listed.map_err(|_| "the cluster does not answer".to_owned())?;
    let listed =
        listed.map_err(|error| format!("the cluster cannot be read: {}", health::format_error_chain(&error)))?;
    found.control_planes = list_installed(&listed.items, "fleet-scheduler");
    found.agents = list_installed(&listed.items, "fleet-agent");
    if let Some(control_plane) = found.control_planes.first() {
        let agents =
            tokio::time::timeout(PATIENCE, list_registered_agents(&hosting.client, namespace, &control_plane.name))
                .await;
        match agents.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
            Ok(agents) => {
                // An agent of this namespace may be registered elsewhere, with a control plane of its own line.
                found.skew = describe_skew(control_plane, &agents);
                found.agents.retain(|here| !agents.contains(here));
                found.agents.extend(agents);
            }
            Err(why) => found.not_asked.push(format!("control plane {}: {why}", visible_cell(&control_plane.name))),
        }
    }
    Ok(())
}

/// What the labels of the Deployments of a component tell.
fn list_installed(deployments: &[Deployment], component: &str) -> Vec<Installed> {
    let labels = deployments.iter().map(ResourceExt::labels);
    let named = labels.filter(|labels| labels.get("app.kubernetes.io/name").is_some_and(|name| name == component));
    let installed = named.map(|labels| Installed {
        name: labels.get(LABEL_INSTALL).cloned().unwrap_or_default(),
        version: labels.get("app.kubernetes.io/version").cloned().unwrap_or_default(),
    });
    installed.collect()
}

/// The agents that the control plane in this namespace knows.
async fn list_registered_agents(hosting: &Client, namespace: &str, name: &str) -> Result<Vec<Installed>, String> {
    let kubeconfig = find_keys::admin_kubeconfig(hosting, namespace, name)
        .await
        .map_err(|error| health::format_error_chain(&error))?;
    let kubeconfig = kubeconfig.ok_or("its kubeconfig is not in the cluster")?;
    let hub = health::connect_control_plane_api(&kubeconfig).await?;
    let clusters = Api::<Cluster>::all(hub).list(&ListParams::default()).await;
    let clusters = clusters.map_err(|error| health::format_error_chain(&error))?;
    let known = clusters.iter().filter_map(|cluster| {
        let observed = cluster.status.as_ref()?.observed.as_ref()?;
        Some(Installed { name: cluster.name_any(), version: observed.agent_version.clone() })
    });
    Ok(known.filter(|agent| !agent.version.is_empty()).collect())
}

/// Returns a clause for each registered agent that is neither of its control plane's line nor of a neighbouring one.
fn describe_skew(control_plane: &Installed, agents: &[Installed]) -> Vec<String> {
    let Ok(hub) = control_plane.version.parse::<ServiceVersion>() else { return Vec::new() };
    let clauses = agents.iter().filter_map(|agent| {
        let line = agent.version.parse::<ServiceVersion>().ok()?.service_line();
        let apart = check_skew(chart::embedded_versions(), hub.service_line(), line).err()?;
        let (agent, control_plane) = (visible_cell(&agent.name), visible_cell(&control_plane.name));
        Some(format!("agent {agent} and control plane {control_plane}: {apart}"))
    });
    clauses.collect()
}

fn format_version_report(ui: &Ui, found: &VersionDocument) -> String {
    let client = &found.client;
    let mut text = format!("{} {} (git: {}) built: {}\n", ui.program, client.version, client.git_commit, client.built);
    for (what, installed) in [("control plane", &found.control_planes), ("agent", &found.agents)] {
        for one in installed {
            let version = if one.version.is_empty() { "unknown version" } else { &one.version };
            let _ = writeln!(text, "{what} {} {}", visible_cell(&one.name), visible_cell(version));
        }
    }
    for apart in &found.skew {
        let _ = writeln!(text, "{} {apart}", ui.mark(crate::cli::output::terminal::Mark::Warning));
    }
    for why in &found.not_asked {
        let _ = writeln!(text, "not checked: {}", visible_list(why));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_that_are_more_than_one_line_away_are_named() {
        let installed = [("demo", "v1.1.0"), ("near", "v1.0.0"), ("far", "v0.7.1"), ("odd", "main")]
            .map(|(name, version)| Installed { name: name.to_owned(), version: version.to_owned() });
        let found = describe_skew(&installed[0], &installed[1..]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("agent far and control plane demo: "), "{found:?}");
    }
}
