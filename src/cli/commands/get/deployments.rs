//! `get deployments`: the deployments of the control plane's API, with the cluster that runs each.

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::{WideFormat, format_objects, selector_params};
use crate::api::Schedule;
use crate::api::labels::{LABEL_TARGET_CLUSTER, cluster_of_namespace};
use crate::api::lenient::Lenient;
use crate::cli::args::global::Global;
use crate::cli::connect::{connect_to_control_plane, list_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::Ui;
use crate::k8s::request::pages::all_pages;
use crate::placement::copy_state;

pub(super) const EXAMPLES: &str = "\
Without --all-namespaces, the command lists one namespace: that of --namespace, or else that of the context.

Examples:
  fleetctl get deployments --context demo
  fleetctl get deployments --context demo --all-namespaces
  fleetctl get deployments --context demo -o wide";

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
    output: Option<WideFormat>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &GetDeploymentsArgs) -> Result<Exit, CliError> {
    let there = connect_to_control_plane(global).await?;
    // The default is where the service's own components are, which is not where workloads are.
    let namespace = if global.namespace_given { global.namespace.to_string() } else { there.namespace.clone() };
    let client = there.client.clone();
    let deployments: Api<Deployment> =
        if args.all_namespaces { Api::all(there.client) } else { Api::namespaced(there.client, &namespace) };
    let found = deployments.list(&selector_params(args.selector.as_deref())).await;
    let found = found.map_err(|error| list_failed("deployments", &error))?.items;
    let text = match (args.output, args.output.and_then(WideFormat::for_programs)) {
        (_, Some(format)) => format_objects(format, &found, "deployment.apps"),
        _ if found.is_empty() && args.all_namespaces => "There are no deployments.\n".to_owned(),
        _ if found.is_empty() => format!("There are no deployments in namespace {namespace}.\n"),
        (Some(_), None) => {
            let api: Api<Lenient<Schedule>> = Api::all(client);
            let listed = all_pages(ListParams::default(), |page| {
                let api = api.clone();
                async move { api.list(&page).await }
            });
            let schedules = listed.await.map_err(|error| list_failed("schedules", &error))?;
            format_wide_deployments(
                &found,
                &schedules.into_iter().map(|read| read.0).collect::<Vec<_>>(),
                args.all_namespaces,
            )
        }
        (None, None) => format_deployments(&found, args.all_namespaces),
    };
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

fn format_deployments(deployments: &[Deployment], namespaces: bool) -> String {
    let titles = table_row(["NAMESPACE", "NAME", "READY", "UP-TO-DATE", "AVAILABLE", "CLUSTER"]);
    let rows: Vec<Vec<String>> = std::iter::once(titles)
        .chain(deployments.iter().map(deployment_cells))
        .map(|cells| if namespaces { cells } else { cells[1..].to_vec() })
        .collect();
    Columns::from_rows(&rows).format_lines(&rows)
}

/// The same, and below each deployment a row for each cluster that has a copy.
fn format_wide_deployments(deployments: &[Deployment], schedules: &[Schedule], namespaces: bool) -> String {
    let titles = table_row(["NAMESPACE", "NAME", "READY", "UP-TO-DATE", "AVAILABLE", "CLUSTER", "STATE", "REASON"]);
    let mut rows = vec![titles];
    for deployment in deployments {
        rows.push(deployment_cells(deployment));
        let copies = schedules.iter().filter(|schedule| {
            let source = &schedule.spec.source_ref;
            source.group == "apps"
                && source.kind == "Deployment"
                && Some(&source.uid) == deployment.metadata.uid.as_ref()
        });
        rows.extend(copies.map(copy_cells));
    }
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|cells| if namespaces { cells } else { cells[1..].to_vec() }).collect();
    Columns::from_rows(&rows).format_lines(&rows)
}

fn copy_cells(schedule: &Schedule) -> Vec<String> {
    let cluster = schedule.metadata.namespace.as_deref().and_then(cluster_of_namespace).unwrap_or_default();
    let status = schedule.status.clone().unwrap_or_default();
    let resource: Value =
        status.resource.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let [ready, updated, available] = ["readyReplicas", "updatedReplicas", "availableReplicas"]
        .map(|field| resource[field].as_i64().unwrap_or_default());
    let wanted = schedule.spec.share.as_ref().and_then(|share| share.replicas);
    let wanted = wanted.or(status.pods.as_ref().map(|pods| pods.desired));
    let wanted = wanted.map_or_else(|| "?".to_owned(), |wanted| wanted.to_string());
    let state = copy_state::read_copy_state(schedule, cluster);
    let word = match (schedule.metadata.deletion_timestamp.is_some(), state.applied, state.available) {
        (true, ..) => "leaving",
        (_, true, true) => "available",
        (_, true, false) => "applied",
        (_, false, _) => "not applied",
    };
    table_row([
        "",
        "",
        &format!("{ready}/{wanted}"),
        &updated.to_string(),
        &available.to_string(),
        cluster,
        word,
        &state.problem,
    ])
}

fn deployment_cells(deployment: &Deployment) -> Vec<String> {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let [ready, updated, available] = [status.ready_replicas, status.updated_replicas, status.available_replicas]
        .map(|count| count.unwrap_or_default().to_string());
    table_row([
        &deployment.namespace().unwrap_or_default(),
        &deployment.name_any(),
        &format!("{ready}/{wanted}"),
        &updated,
        &available,
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
        let shown = format_deployments(std::slice::from_ref(&deployment), false);
        insta::assert_snapshot!(shown);
        assert!(format_deployments(&[deployment], true).contains("shop"));
    }

    fn schedule_of_deployment(cluster: &str, uid: &str, replicas: i64, status: Value) -> Schedule {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
            "metadata": {"name": "x", "namespace": format!("fleet-c-{cluster}")}, "status": status,
            "spec": {"manifest": "{}", "hash": "h", "share": {"domain": cluster, "replicas": replicas},
                "sourceRef": {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop",
                    "name": "web", "uid": uid, "generation": 1}},
        }))
        .unwrap()
    }

    #[test]
    fn the_wide_table_has_a_row_for_each_copy() {
        let deployment: Deployment = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {LABEL_TARGET_CLUSTER: "2_clusters"}},
            "spec": {"replicas": 5, "selector": {}, "template": {}},
            "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2},
        }))
        .unwrap();
        let east = serde_json::json!({"observedHash": "h", "resource": r#"{"readyReplicas":2,"updatedReplicas":2,"availableReplicas":2}"#,
            "conditions": [{"type": "Applied", "status": "True", "reason": "Applied"},
                {"type": "Available", "status": "True", "reason": "Available"}]});
        let west = serde_json::json!({"conditions": [{"type": "Applied", "status": "False", "reason": "Forbidden"}]});
        let all = [
            schedule_of_deployment("east", "u", 2, east),
            schedule_of_deployment("west", "u", 3, west),
            schedule_of_deployment("north", "other", 1, Value::Null),
        ];
        insta::assert_snapshot!(format_wide_deployments(&[deployment], &all, false));
    }
}
