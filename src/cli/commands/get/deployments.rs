//! `get deployments`: the deployments of the control plane's API, with the cluster that runs each.

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::Api;

use super::{Format, formatted, selection};
use crate::api::labels::LABEL_TARGET_CLUSTER;
use crate::cli::args::global::Global;
use crate::cli::connect::{hub, list_failed};
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::table::{Columns, row};
use crate::cli::output::terminal::Ui;

pub(super) const EXAMPLES: &str = "\
Without --all-namespaces it lists the namespace of the context, or the one of --namespace if that is given.

Examples:
  fleetctl get deployments --context demo
  fleetctl get deployments --context demo --all-namespaces";

/// List the deployments of the control plane's API with the cluster that runs each
#[derive(Debug, Args)]
pub(crate) struct GetDeploymentsArgs {
    /// List all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Show only deployments with these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,

    /// Output format [default: a table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &GetDeploymentsArgs) -> Result<Exit, CliError> {
    let there = hub(global).await?;
    // The default is where the service's own components are, which is not where workloads are.
    let namespace = if global.namespace_given { global.namespace.to_string() } else { there.namespace.clone() };
    let deployments: Api<Deployment> =
        if args.all_namespaces { Api::all(there.client) } else { Api::namespaced(there.client, &namespace) };
    let found = deployments.list(&selection(args.selector.as_deref())).await;
    let found = found.map_err(|error| list_failed("deployments", &error))?.items;
    let text = match args.output {
        Some(format) => formatted(format, &found, "deployment.apps"),
        None if found.is_empty() && args.all_namespaces => "There are no deployments.\n".to_owned(),
        None if found.is_empty() => format!("There are no deployments in namespace {namespace}.\n"),
        None => table(&found, args.all_namespaces),
    };
    ui.out(&text)?;
    Ok(Exit::Ok)
}

fn table(deployments: &[Deployment], namespaces: bool) -> String {
    let titles = row(["NAMESPACE", "NAME", "READY", "UP-TO-DATE", "AVAILABLE", "CLUSTER"]);
    let rows: Vec<Vec<String>> = std::iter::once(titles)
        .chain(deployments.iter().map(cells))
        .map(|cells| if namespaces { cells } else { cells[1..].to_vec() })
        .collect();
    Columns::of(&rows).lines(&rows)
}

fn cells(deployment: &Deployment) -> Vec<String> {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let number = |count: Option<i32>| count.unwrap_or_default().to_string();
    row([
        &deployment.namespace().unwrap_or_default(),
        &deployment.name_any(),
        &format!("{}/{wanted}", number(status.ready_replicas)),
        &number(status.updated_replicas),
        &number(status.available_replicas),
        deployment.labels().get(LABEL_TARGET_CLUSTER).map_or("", String::as_str),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_how_much_is_ready_and_where() {
        let deployment: Deployment = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {LABEL_TARGET_CLUSTER: "west"}},
            "spec": {"replicas": 3, "selector": {}, "template": {}},
            "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2},
        }))
        .unwrap();
        let shown = table(std::slice::from_ref(&deployment), false);
        insta::assert_snapshot!(shown);
        assert!(table(&[deployment], true).contains("shop"));
    }
}
