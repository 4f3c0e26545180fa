//! The nodes of a cluster that is too large for its Cluster object: its agent tells them in ClusterReports beside it.

use std::collections::BTreeMap;

use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::api::labels::cluster_namespace;
use crate::api::util::text::visible_cell;
use crate::api::{Cluster, ClusterReport};
use crate::cli::output::terminal::Ui;
use crate::control_plane::health::format_error_chain;

/// Returns whether the nodes of a cluster are told elsewhere.
fn is_large(cluster: &Cluster) -> bool {
    let Some(status) = &cluster.status else { return false };
    status.available_resources.is_none() && status.observed.as_ref().is_some_and(|observed| observed.totals.is_some())
}

/// The cluster with its nodes, wherever they are told. Where they cannot be read, its sums are left to be shown.
pub(super) async fn with_nodes(ui: &Ui, hub: &Client, mut cluster: Cluster) -> Cluster {
    if !is_large(&cluster) {
        return cluster;
    }
    let name = cluster.name_any();
    let reports: Api<ClusterReport> = Api::namespaced(hub.clone(), &cluster_namespace(&name));
    let reports = match reports.list(&ListParams::default()).await {
        Ok(reports) => reports,
        Err(error) => {
            let (name, why) = (visible_cell(&name), format_error_chain(&error));
            ui.warn(&format!("the nodes of the large cluster {name} cannot be listed: {why}"));
            return cluster;
        }
    };
    let (mut available, mut taints) = (BTreeMap::new(), BTreeMap::new());
    for report in reports {
        available.extend(report.spec.available_resources);
        taints.extend(report.spec.node_taints);
    }
    if let Some(status) = cluster.status.as_mut().filter(|_| !available.is_empty()) {
        status.available_resources = Some(available);
        status.node_taints = Some(taints);
    }
    cluster
}
