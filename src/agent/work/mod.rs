//! Work: the copies that this workload cluster has to hold, as the Schedules in the control plane say.
//!
//! A Schedule is applied, its copy is watched, and what becomes of it is reported in the Schedule's status. What was applied
//! stays when the control plane does not answer.

pub mod adoption;
pub mod answer;
pub mod apply;
pub mod ask;
pub mod contents;
pub mod context;
mod data;
pub mod delete;
pub mod drift;
pub mod entry;
pub mod explain;
pub mod fields;
pub mod index;
pub mod namespaces;
pub mod orphans;
pub mod pods;
pub mod problem;
pub mod pull_secrets;
pub mod resource;
mod results;
pub mod served;
pub mod status;
pub mod task;
pub mod unlisted;
pub mod warnings;
pub mod watch;
pub mod worker;

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch as channel;

use super::heartbeat::LeaseStatus;
use super::identity::IdentityStore;
use super::inventory::watch::Observed;
use crate::api::extra_kind::ExtraKind;
use crate::api::labels::cluster_namespace;
use crate::daemon::log::OnChange;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::Backoff;
use crate::k8s::connect::daemon_client::call_with_timeout;
use crate::k8s::extra_kinds;
use context::Context;
use namespaces::{NamespaceRules, Namespaces};
use worker::Worker;

/// Clients of the work, and the Lease: only its holder works.
#[derive(Clone)]
pub struct Work {
    /// Client of the control plane.
    pub control_plane: Client,
    /// Client of the workload cluster.
    pub local: Client,
    /// Registered name.
    pub cluster: String,
    /// Status of the Lease.
    pub lease: channel::Receiver<LeaseStatus>,
    /// Pods of the cluster.
    pub observed: Observed,
    /// Metrics.
    pub metrics: Metrics,
    /// Store in which an uninstall finds the label by which the copies are known.
    pub store: IdentityStore,
    /// Kinds that are placed beside those of the table, as far as the cluster serves them.
    pub extra_kinds: Vec<ExtraKind>,
    /// Time after which copies without a Schedule are deleted.
    pub orphan_grace: Duration,
    /// Rules about namespaces.
    pub namespaces: NamespaceRules,
}

impl Work {
    /// Works until dropped, while the Lease is held. While the control plane does not answer the copies are still
    /// looked after, from what is known. A passive agent starts again when it becomes active, and any when a kind
    /// begins to be served.
    pub async fn run(mut self) {
        loop {
            if self.lease.wait_for(|lease| *lease == LeaseStatus::Held).await.is_err() {
                return;
            }
            let context = self.read_context().await;
            let kinds = context.kinds.clone();
            let mut lease = self.lease.clone();
            let passive = async { lease.wait_for(|lease| matches!(lease, LeaseStatus::Passive { .. })).await.is_err() };
            let namespaces = Namespaces::new(self.namespaces.clone(), &context.placed_by);
            let worker =
                Worker::new(context, namespaces, self.observed.clone(), self.metrics.clone(), self.orphan_grace);
            tokio::select! {
                () = worker.run() => {}
                closed = passive => if closed { return },
                _ = extra_kinds::wait_for_new_kinds(&self.local, &self.extra_kinds, &kinds) => {}
            }
        }
    }

    /// Reads what identifies the control plane, and which kinds can be placed.
    async fn read_context(&self) -> Context {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let logged = OnChange::default();
        let namespaces: Api<Namespace> = Api::all(self.control_plane.clone());
        let uid = loop {
            match call_with_timeout(namespaces.get_metadata("kube-system")).await {
                Ok(found) if found.uid().is_some_and(|uid| uid.len() >= 8) => break found.uid().unwrap_or_default(),
                Err(error) if logged.record_if_changed("control plane", &error.to_string()) => {
                    tracing::warn!(%error, "reading the identity of the control plane failed; will retry");
                }
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(backoff.next_wait()).await;
        };
        let placed_by: String = uid.chars().take(8).collect();
        while let Err(error) = self.store.report_copies(&placed_by, &self.extra_kinds).await {
            if logged.record_if_changed("identity", &error.to_string()) {
                tracing::warn!(%error, "recording the label of the copies failed; will retry");
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
        let kinds = extra_kinds::discover_kinds(&self.local, &self.extra_kinds).await;
        Context {
            control_plane: self.control_plane.clone(),
            local: self.local.clone(),
            cluster: self.cluster.clone(),
            namespace: cluster_namespace(&self.cluster),
            placed_by,
            control_plane_uid: uid,
            kinds,
        }
    }
}
