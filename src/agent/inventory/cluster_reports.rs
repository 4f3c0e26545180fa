//! The nodes of a large cluster, reported in ClusterReports beside the Cluster: see [`super::shards`].
//!
//! They are in the cluster's own namespace of the control plane, the only one that this agent may write to, and are deleted
//! with it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};

use super::node_labels;
use super::nodes::format_amounts;
use super::publish::Snapshot;
use super::shards::{NODES, Shards};
use crate::api::labels::{AGENT_MANAGER, cluster_namespace};
use crate::api::{ClusterReport, ClusterReportSpec};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};

/// Prefix of the names of the reports; a number follows.
const PREFIX: &str = "nodes-";

/// The reports of one cluster.
pub struct NodeReports {
    api: Api<ClusterReport>,
    /// `None` until the reports in the control plane were listed.
    shards: Option<Shards>,
}

impl NodeReports {
    /// Returns the reports of the cluster `name`.
    pub fn new(control_plane: &Client, name: &str) -> Self {
        Self { api: Api::namespaced(control_plane.clone(), &cluster_namespace(name)), shards: None }
    }

    /// Discards the reported state: another agent with our identity may have reported since.
    pub fn forget_reports(&mut self) {
        self.shards = None;
    }

    async fn load_shards(&mut self) -> Result<&mut Shards, CallError> {
        if self.shards.is_none() {
            let mut shards = Shards::default();
            for report in call_with_timeout(self.api.list(&ListParams::default())).await? {
                let index = report.name_any().strip_prefix(PREFIX).and_then(|number| number.parse().ok());
                if let Some(index) = index {
                    shards.add_existing(index, report.spec.available_resources.into_keys());
                }
            }
            self.shards = Some(shards);
        }
        Ok(self.shards.get_or_insert_default())
    }

    /// Writes the reports that are due, for a cluster that is too large for its object. Called before the Cluster is written,
    /// so that its readers find them.
    ///
    /// # Errors
    /// The first report that could not be written; those before it are.
    pub async fn write_due_reports(
        &mut self,
        snapshot: &Snapshot,
        now: Duration,
        wall: Timestamp,
    ) -> Result<(), CallError> {
        if snapshot.allocatable.len() <= NODES {
            return Ok(());
        }
        let api = self.api.clone();
        let shards = self.load_shards().await?;
        shards.assign_nodes(snapshot.allocatable.keys());
        for (index, part) in shards.due_reports(snapshot, now) {
            let name = format!("{PREFIX}{index}");
            let report = ClusterReport::new(&name, report_spec(&part, wall));
            let params = PatchParams::apply(AGENT_MANAGER).force();
            call_with_timeout(api.patch(&name, &params, &Patch::Apply(&report))).await?;
            shards.record_written(index, part, now);
        }
        Ok(())
    }

    /// Deletes the reports without a node. Called after the Cluster is written.
    ///
    /// # Errors
    /// The first that could not be deleted.
    pub async fn delete_orphans(&mut self, snapshot: &Snapshot) -> Result<(), CallError> {
        let api = self.api.clone();
        let shards = self.load_shards().await?;
        if snapshot.allocatable.len() <= NODES {
            shards.assign_nodes([].iter());
        }
        for index in shards.orphaned_reports() {
            match call_with_timeout(api.delete(&format!("{PREFIX}{index}"), &DeleteParams::default())).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => shards.record_deleted(index),
            }
        }
        Ok(())
    }
}

fn report_spec(part: &Snapshot, wall: Timestamp) -> ClusterReportSpec {
    ClusterReportSpec {
        available_resources: format_amounts(&part.available),
        capacity_resources: part.capacity.clone(),
        node_taints: part.taints.clone(),
        node_labels: Some(node_labels::report_labels(&part.labels)),
        last_update_time: Some(Time(Timestamp::from_second(wall.as_second()).unwrap_or(wall))),
    }
}
