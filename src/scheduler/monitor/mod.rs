//! The monitor: writes the conditions of every cluster, syncs its labels and rights, and removes clusters that deregister.

pub mod cluster_conditions;
pub mod cluster_labels;
pub mod mass_loss;
mod mass_loss_record;
mod rights;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::events::{EventType, Recorder};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use super::cluster_rbac;
use super::events::{NewEvent, publish_event};
use super::index::Index;
use crate::api::crd::cluster::conditions;
use crate::api::crd::condition::find_condition;
use crate::api::labels::{API_VERSION, CLUSTER_GROUP, LABEL_CLUSTER, SCHEDULER_MANAGER, cluster_of_namespace};
use crate::api::lenient::Lenient;
use crate::api::mass_loss::MassLossRecord;
use crate::api::registration::gone::CLUSTER_LEFT;
use crate::api::{Cluster, Condition};
use crate::daemon::metrics::Metrics;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::request::api_error::ApiError;
use cluster_conditions::LeaseStatus;
use mass_loss::MassLoss;

/// Time between two evaluations of all clusters, which cost no request.
const TICK: Duration = Duration::from_secs(1);
/// Changes within this time are evaluated together: a thousand agents' inventories make dozens a second.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// Number of concurrent writes.
const CONCURRENCY: usize = 16;
/// Time between two searches for namespaces without a cluster.
const ORPHANS_INTERVAL: Duration = Duration::from_secs(300);

/// Time after which a cluster is removed whose agent never reported.
const NEVER_REPORTED_TTL: SignedDuration = SignedDuration::from_hours(24);

/// The monitor of one leadership term.
pub struct Monitor {
    /// Client of the control-plane API server.
    pub client: Client,
    /// Known objects.
    pub index: Arc<Index>,
    /// Metrics.
    pub metrics: Metrics,
    /// Recorder of events.
    pub recorder: Recorder,
}

impl Monitor {
    /// Evaluates until dropped.
    pub async fn run(self) {
        tokio::join!(self.evaluate_repeatedly(), self.reconcile_rights());
    }

    async fn evaluate_repeatedly(&self) {
        let mut known: Option<(MassLoss, Option<MassLossRecord>)> = None;
        let mut searched: Option<Instant> = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = self.index.changed.notified() => tokio::time::sleep(DEBOUNCE).await,
            }
            if !self.index.is_complete() {
                continue;
            }
            if searched.is_none_or(|at| at.elapsed() > ORPHANS_INTERVAL) {
                self.find_orphans().await;
                self.remove_never_reported(Timestamp::now()).await;
                searched = Some(Instant::now());
            }
            if known.is_none() {
                // Whoever led before may have seen most clusters go; nothing is evaluated before that is known.
                known = match self.read_mass_loss().await {
                    Ok(record) => Some((self.resume_mass_loss(record.as_ref()), record)),
                    Err(error) => {
                        tracing::warn!(%error, "reading the record of a mass loss failed");
                        None
                    }
                };
            }
            if let Some((mass_loss, recorded)) = &mut known {
                self.evaluate_all(mass_loss).await;
                self.record_mass_loss(mass_loss, recorded).await;
            }
        }
    }

    /// Goes on with a mass loss that a former leader has recorded.
    fn resume_mass_loss(&self, record: Option<&MassLossRecord>) -> MassLoss {
        let Some(record) = record else { return MassLoss::default() };
        self.index.set_frozen(true);
        self.set_frozen_gauge(true);
        MassLoss::from_lost(&record.clusters, Instant::now())
    }

    /// Records whether most clusters are lost, where that changed.
    async fn record_mass_loss(&self, mass_loss: &MassLoss, recorded: &mut Option<MassLossRecord>) {
        if mass_loss.is_active() == recorded.is_some() {
            return;
        }
        let record = mass_loss.is_active().then(|| MassLossRecord {
            since: Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default(),
            clusters: mass_loss.lost_clusters(),
        });
        match self.write_mass_loss(record.as_ref()).await {
            Ok(()) => *recorded = record,
            Err(error) => tracing::warn!(%error, "recording a mass loss failed"),
        }
    }

    async fn evaluate_all(&self, mass_loss: &mut MassLoss) {
        let now = Instant::now();
        let clusters = self.index.clusters();
        let names: BTreeSet<_> = clusters.iter().map(|c| c.name_any()).collect();
        mass_loss.retain_existing_clusters(|name| names.contains(name));
        let (mut ready, mut steady) = (0, 0);
        let wall = Timestamp::now();
        for cluster in &clusters {
            let was = is_ready(cluster);
            let is_steady = was && mass_loss::is_steady(cluster, wall);
            let lease = self.lease_status(&cluster.name_any(), now);
            if is_steady && lease == LeaseStatus::Expired {
                mass_loss.record_loss(&cluster.name_any(), now);
            } else if lease == LeaseStatus::Valid {
                mass_loss.record_recovery(&cluster.name_any());
                ready += usize::from(was);
                steady += usize::from(is_steady);
            }
        }
        if let Some(active) = mass_loss.evaluate_mass_loss(steady, now) {
            self.index.set_frozen(active);
            self.publish_mass_loss(active).await;
        }
        let known = clusters.len();
        futures::stream::iter(clusters)
            .for_each_concurrent(CONCURRENCY, |cluster| async move {
                match self.evaluate_cluster(cluster.clone(), now).await {
                    Ok(()) => {}
                    Err(e) if e.is_not_found() || e.is_conflict() => self.refresh_index(&cluster).await,
                    Err(error) => {
                        let name = cluster.name_any();
                        tracing::warn!(cluster = name, %error, "writing the cluster's status failed");
                    }
                }
            })
            .await;
        #[allow(clippy::cast_precision_loss)] // Counts of clusters.
        for (state, count) in [("ready", ready), ("known", known)] {
            self.metrics.set_gauge("fleet_clusters", "Clusters by state.", &[("state", state)], count as f64);
        }
    }

    /// Updates the index where a cluster whose status could not be written was deleted, or another one has its name.
    async fn refresh_index(&self, cluster: &Cluster) {
        let name = cluster.name_any();
        match self.fetch_cluster(&name).await {
            Ok(None) => self.index.forget_cluster(cluster),
            Ok(Some(now)) if now.metadata.uid != cluster.metadata.uid => self.index.put_cluster(now),
            // Others wrote at the same time; the next evaluation tries again.
            Ok(Some(_)) => {}
            Err(error) => tracing::debug!(cluster = name, %error, "reading the cluster failed"),
        }
    }

    /// Reads the cluster of a name from the API server.
    async fn fetch_cluster(&self, name: &str) -> Result<Option<Cluster>, CallError> {
        let api: Api<Lenient<Cluster>> = Api::all(self.client.clone());
        Ok(call_with_timeout(api.get_opt(name)).await?.map(|read| read.0))
    }

    fn lease_status(&self, name: &str, now: Instant) -> LeaseStatus {
        cluster_conditions::lease_status(self.index.last_renewal(name).as_ref(), self.index.known_since(name), now)
    }

    async fn evaluate_cluster(&self, cluster: Arc<Cluster>, now: Instant) -> Result<(), CallError> {
        let name = cluster.name_any();
        let api: Api<Lenient<Cluster>> = Api::all(self.client.clone());
        if cluster.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if is_leave_requested(&cluster) {
            return self.deregister_cluster(&cluster).await;
        }
        let cluster = match cluster_labels::plan_observed_update(&cluster) {
            Some(update) => match self.copy_observed(&cluster, update).await {
                Ok(written) => {
                    self.index.put_cluster(written.clone());
                    Arc::new(written)
                }
                // Whatever an agent observed, its conditions are evaluated all the same.
                Err(error) if error.is_invalid() => {
                    tracing::warn!(cluster = name, %error, "the API server rejected the observed facts; they were not copied");
                    cluster
                }
                Err(error) => return Err(error),
            },
            None => cluster,
        };
        let left_out = self.index.left_out(&name);
        let evidence = cluster_conditions::Evidence {
            lease: self.lease_status(&name, now),
            clock: self.index.last_renewal(&name).and_then(|renewal| renewal.clock.reported_reading()),
            has_work: self.index.has_work(&name),
            left_out: left_out.as_deref(),
        };
        let all = cluster_conditions::evaluate_conditions(&cluster, evidence, Timestamp::now());
        let before = cluster.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
        if !has_changed_conditions(&before, &all) {
            return Ok(());
        }
        let status = json!({
            "apiVersion": format!("{CLUSTER_GROUP}/{API_VERSION}"),
            "kind": "Cluster",
            "metadata": { "name": name, "uid": cluster.metadata.uid },
            "status": { "conditions": all },
        });
        let params = PatchParams::apply(SCHEDULER_MANAGER).force();
        let written = call_with_timeout(api.patch_status(&name, &params, &Patch::Apply(&status))).await?.0;
        self.index.put_cluster(written);
        self.publish_readiness(&cluster, &before, &all).await;
        self.publish_clock_skew(&cluster, &before, &all).await;
        Ok(())
    }

    /// Writes what was observed of a cluster, except for the fields that others applied as well.
    async fn copy_observed(&self, cluster: &Cluster, mut update: serde_json::Value) -> Result<Cluster, CallError> {
        let name = &cluster.name_any();
        let api: Api<Lenient<Cluster>> = Api::all(self.client.clone());
        let params = PatchParams::apply(SCHEDULER_MANAGER);
        let refused = match call_with_timeout(api.patch(name, &params, &Patch::Apply(&update))).await {
            Err(error) => error.to_api_error().filter(ApiError::is_conflict_with_manager).ok_or(error)?,
            Ok(written) => return Ok(written.0),
        };
        cluster_labels::leave_out(&mut update, cluster, &refused);
        Ok(call_with_timeout(api.patch(name, &params, &Patch::Apply(&update))).await?.0)
    }

    /// Removes a cluster that requested deregistration, unless the request was withdrawn or another one has its name by now.
    async fn deregister_cluster(&self, cluster: &Cluster) -> Result<(), CallError> {
        let name = cluster.name_any();
        let _names = self.index.names.lock().await;
        match self.fetch_cluster(&name).await? {
            Some(now) if now.metadata.uid == cluster.metadata.uid && is_leave_requested(&now) => {
                tracing::info!(cluster = name, "deregistering the cluster");
                self.publish_about(&now, EventType::Normal, CLUSTER_LEFT, "the agent requested deregistration").await;
                cluster_rbac::delete_cluster_with_objects(&self.client, &now).await?;
            }
            Some(now) => self.index.put_cluster(now),
            None => self.index.forget_cluster(cluster),
        }
        Ok(())
    }

    /// Removes the clusters that were registered a day ago and whose agents never reported.
    async fn remove_never_reported(&self, now: Timestamp) {
        for cluster in self.index.never_reported() {
            if cluster.creation_timestamp().is_none_or(|created| now.duration_since(created.0) < NEVER_REPORTED_TTL) {
                continue;
            }
            if let Err(error) = self.remove_if_never_reported(&cluster).await {
                tracing::warn!(cluster = cluster.name_any(), %error, "cannot remove a cluster that never reported");
            }
        }
    }

    async fn remove_if_never_reported(&self, cluster: &Cluster) -> Result<(), CallError> {
        let name = cluster.name_any();
        let _names = self.index.names.lock().await;
        match self.fetch_cluster(&name).await? {
            Some(now) if now.metadata.uid == cluster.metadata.uid && !now.has_reported() => {
                tracing::info!(cluster = name, "removing the cluster: its agent never reported");
                let message = "registered a day ago, and the agent never reported";
                self.publish_about(&now, EventType::Warning, "NeverReported", message).await;
                cluster_rbac::delete_cluster_with_objects(&self.client, &now).await?;
            }
            Some(now) => self.index.put_cluster(now),
            None => self.index.forget_cluster(cluster),
        }
        Ok(())
    }

    async fn publish_clock_skew(&self, cluster: &Cluster, before: &[Condition], after: &[Condition]) {
        let Some(new) = find_condition(after, conditions::CLOCK_SKEW) else { return };
        if find_condition(before, conditions::CLOCK_SKEW).is_some_and(|old| old.reason == new.reason) {
            return;
        }
        tracing::info!(cluster = cluster.name_any(), detail = new.message, "clock skew changed");
        let reason = if new.is_true() { "ClockSkew" } else { "ClockSkewOver" };
        self.publish_about(cluster, EventType::Normal, reason, &new.message).await;
    }

    async fn publish_readiness(&self, cluster: &Cluster, before: &[Condition], after: &[Condition]) {
        let (Some(new), old) = (find_condition(after, conditions::READY), find_condition(before, conditions::READY))
        else {
            return;
        };
        if old.is_some_and(|o| o.status == new.status && o.reason == new.reason) {
            return;
        }
        let name = cluster.name_any();
        let (status, reason, message) = (&new.status, &new.reason, &new.message);
        tracing::info!(cluster = name, ready = status, reason, detail = message, "readiness changed");
        // A new cluster is not ready for a moment; that is not worth an event.
        if old.is_some() || new.is_true() {
            let type_ = if new.is_true() { EventType::Normal } else { EventType::Warning };
            self.publish_about(cluster, type_, reason, message).await;
        }
    }

    fn set_frozen_gauge(&self, active: bool) {
        let help = "Whether nothing moves because too many clusters were lost at once.";
        self.metrics.set_gauge("fleet_placement_frozen", help, &[], f64::from(u8::from(active)));
    }

    async fn publish_mass_loss(&self, active: bool) {
        self.set_frozen_gauge(active);
        let (reason, message) = if active {
            ("MassHeartbeatLoss", "most clusters were lost at once; nothing moves until they are back")
        } else {
            ("MassHeartbeatLossOver", "the lost clusters are no longer the majority")
        };
        tracing::warn!(reason, "{message}");
        let lease = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            name: Some("fleet-scheduler".to_owned()),
            namespace: Some("kube-system".to_owned()),
            ..ObjectReference::default()
        };
        let type_ = if active { EventType::Warning } else { EventType::Normal };
        self.publish_monitor_event(&lease, type_, reason, message).await;
    }

    async fn publish_about(&self, cluster: &Cluster, type_: EventType, reason: &str, message: &str) {
        self.publish_monitor_event(&cluster.object_ref(&()), type_, reason, message).await;
    }

    async fn publish_monitor_event(&self, regarding: &ObjectReference, type_: EventType, reason: &str, message: &str) {
        let event = NewEvent { type_, action: "Monitoring", reason, message };
        publish_event(&self.recorder, regarding, event).await;
    }

    /// Finds namespaces whose cluster was deleted while nobody led, or whose deletion is stuck.
    async fn find_orphans(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let Ok(found) = call_with_timeout(namespaces.list_metadata(&ListParams::default().labels(LABEL_CLUSTER))).await
        else {
            return;
        };
        let known: BTreeSet<_> = self.index.clusters().iter().map(|c| c.name_any()).collect();
        let names = found.items.iter().filter_map(|n| n.metadata.name.as_deref());
        let orphans = names.filter_map(cluster_of_namespace).map(ToOwned::to_owned);
        self.index.add_deleted(orphans.filter(|name| !known.contains(name)));
    }
}

/// Returns true where the agent requested deregistration.
fn is_leave_requested(cluster: &Cluster) -> bool {
    cluster.status.as_ref().is_some_and(|s| s.leave_requested == Some(true))
}

fn is_ready(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    find_condition(conditions, conditions::READY).is_some_and(Condition::is_true)
}

/// Returns true where anything but times differs.
fn has_changed_conditions(before: &[Condition], after: &[Condition]) -> bool {
    after.iter().any(|new| {
        find_condition(before, &new.type_)
            .is_none_or(|old| (&old.status, &old.reason, &old.message) != (&new.status, &new.reason, &new.message))
    })
}

#[cfg(test)]
mod tests;
