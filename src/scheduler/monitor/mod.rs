//! The monitor: writes the conditions of every cluster, syncs its labels and rights, and removes clusters that deregister.

pub mod cluster_conditions;
pub mod cluster_labels;
pub mod mass_loss;
mod rights;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::events::{EventType, Recorder};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use super::cluster_rbac;
use super::events::{NewEvent, publish};
use super::index::Index;
use crate::api::cluster::conditions;
use crate::api::condition::find;
use crate::api::labels::{API_VERSION, CLUSTER_GROUP, LABEL_CLUSTER, SCHEDULER_MANAGER, cluster_of_namespace};
use crate::api::lenient::Lenient;
use crate::api::registration::gone::CLUSTER_LEFT;
use crate::api::{Cluster, Condition};
use crate::daemon::metrics::Metrics;
use crate::k8s::daemon_client::{CallError, call};
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
        let mut mass_loss = MassLoss::default();
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
                searched = Some(Instant::now());
            }
            self.evaluate_all(&mut mass_loss).await;
        }
    }

    async fn evaluate_all(&self, mass_loss: &mut MassLoss) {
        let now = Instant::now();
        let clusters = self.index.clusters();
        let names: BTreeSet<_> = clusters.iter().map(|c| c.name_any()).collect();
        mass_loss.retain(|name| names.contains(name));
        let mut ready = 0;
        for cluster in &clusters {
            let was = is_ready(cluster);
            let lease = self.lease_status(&cluster.name_any(), now);
            if was && lease == LeaseStatus::Expired {
                mass_loss.record_loss(&cluster.name_any(), now);
            } else if lease == LeaseStatus::Valid {
                mass_loss.record_recovery(&cluster.name_any());
                ready += usize::from(was);
            }
        }
        if let Some(active) = mass_loss.evaluate(ready, now) {
            self.publish_mass_loss(active).await;
        }
        let known = clusters.len();
        futures::stream::iter(clusters)
            .for_each_concurrent(CONCURRENCY, |cluster| async move {
                match self.evaluate(cluster.clone(), now).await {
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
            self.metrics.gauge("fleet_clusters", "Clusters by state.", &[("state", state)], count as f64);
        }
    }

    /// Updates the index where a cluster whose status could not be written was deleted, or another one has its name.
    async fn refresh_index(&self, cluster: &Cluster) {
        let name = cluster.name_any();
        match self.find(&name).await {
            Ok(None) => self.index.forget(cluster),
            Ok(Some(now)) if now.metadata.uid != cluster.metadata.uid => self.index.put(now),
            // Others wrote at the same time; the next evaluation tries again.
            Ok(Some(_)) => {}
            Err(error) => tracing::debug!(cluster = name, %error, "reading the cluster failed"),
        }
    }

    /// Reads the cluster of a name from the API server.
    async fn find(&self, name: &str) -> Result<Option<Cluster>, CallError> {
        let api: Api<Lenient<Cluster>> = Api::all(self.client.clone());
        Ok(call(api.get_opt(name)).await?.map(|read| read.0))
    }

    fn lease_status(&self, name: &str, now: Instant) -> LeaseStatus {
        cluster_conditions::lease_status(self.index.renewal(name).as_ref(), self.index.known_since(name), now)
    }

    async fn evaluate(&self, cluster: Arc<Cluster>, now: Instant) -> Result<(), CallError> {
        let name = cluster.name_any();
        let api: Api<Lenient<Cluster>> = Api::all(self.client.clone());
        if cluster.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if leaves(&cluster) {
            return self.deregister(&cluster).await;
        }
        let cluster = match cluster_labels::update(&cluster) {
            Some(update) => {
                let params = PatchParams::apply(SCHEDULER_MANAGER).force();
                match call(api.patch(&name, &params, &Patch::Apply(&update))).await {
                    Ok(written) => {
                        self.index.put(written.0.clone());
                        Arc::new(written.0)
                    }
                    // Whatever an agent observed, its conditions are evaluated all the same.
                    Err(error) if error.is_invalid() => {
                        tracing::warn!(cluster = name, %error, "observed facts are invalid and were not copied");
                        cluster
                    }
                    Err(error) => return Err(error),
                }
            }
            None => cluster,
        };
        let evidence = cluster_conditions::Evidence {
            lease: self.lease_status(&name, now),
            clock: self.index.renewal(&name).and_then(|renewal| renewal.clock.reported()),
            has_work: self.index.has_work(&name),
        };
        let all = cluster_conditions::evaluate(&cluster, evidence, Timestamp::now());
        let before = cluster.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
        if !differ(&before, &all) {
            return Ok(());
        }
        let status = json!({
            "apiVersion": format!("{CLUSTER_GROUP}/{API_VERSION}"),
            "kind": "Cluster",
            "metadata": { "name": name, "uid": cluster.metadata.uid },
            "status": { "conditions": all },
        });
        let params = PatchParams::apply(SCHEDULER_MANAGER).force();
        let written = call(api.patch_status(&name, &params, &Patch::Apply(&status))).await?.0;
        self.index.put(written);
        self.publish_readiness(&cluster, &before, &all).await;
        self.publish_clock_skew(&cluster, &before, &all).await;
        Ok(())
    }

    /// Removes a cluster that requested deregistration, unless the request was withdrawn or another one has its name by now.
    async fn deregister(&self, cluster: &Cluster) -> Result<(), CallError> {
        let name = cluster.name_any();
        let _names = self.index.names.lock().await;
        match self.find(&name).await? {
            Some(now) if now.metadata.uid == cluster.metadata.uid && leaves(&now) => {
                tracing::info!(cluster = name, "deregistering the cluster");
                self.publish_about(&now, EventType::Normal, CLUSTER_LEFT, "the agent asked to be forgotten").await;
                cluster_rbac::remove(&self.client, &now).await?;
            }
            Some(now) => self.index.put(now),
            None => self.index.forget(cluster),
        }
        Ok(())
    }

    async fn publish_clock_skew(&self, cluster: &Cluster, before: &[Condition], after: &[Condition]) {
        let Some(new) = find(after, conditions::CLOCK_SKEW) else { return };
        if find(before, conditions::CLOCK_SKEW).is_some_and(|old| old.reason == new.reason) {
            return;
        }
        tracing::info!(cluster = cluster.name_any(), detail = new.message, "clock skew changed");
        let reason = if new.is_true() { "ClockSkew" } else { "ClockSkewOver" };
        self.publish_about(cluster, EventType::Normal, reason, &new.message).await;
    }

    async fn publish_readiness(&self, cluster: &Cluster, before: &[Condition], after: &[Condition]) {
        let (Some(new), old) = (find(after, conditions::READY), find(before, conditions::READY)) else { return };
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

    async fn publish_mass_loss(&self, active: bool) {
        self.metrics.gauge(
            "fleet_placement_frozen",
            "Whether nothing is observed because too many clusters were lost at once.",
            &[],
            f64::from(u8::from(active)),
        );
        let (reason, message) = if active {
            ("MassHeartbeatLoss", "most clusters were lost at once; nothing is observed until they are back")
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
        self.publish(&lease, type_, reason, message).await;
    }

    async fn publish_about(&self, cluster: &Cluster, type_: EventType, reason: &str, message: &str) {
        self.publish(&cluster.object_ref(&()), type_, reason, message).await;
    }

    async fn publish(&self, regarding: &ObjectReference, type_: EventType, reason: &str, message: &str) {
        let event = NewEvent { type_, action: "Monitoring", reason, message };
        publish(&self.recorder, regarding, event).await;
    }

    /// Finds namespaces whose cluster was deleted while nobody led, or whose deletion is stuck.
    async fn find_orphans(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let Ok(found) = call(namespaces.list_metadata(&ListParams::default().labels(LABEL_CLUSTER))).await else {
            return;
        };
        let known: BTreeSet<_> = self.index.clusters().iter().map(|c| c.name_any()).collect();
        let names = found.items.iter().filter_map(|n| n.metadata.name.as_deref());
        let orphans = names.filter_map(cluster_of_namespace).map(ToOwned::to_owned);
        self.index.add_deleted(orphans.filter(|name| !known.contains(name)));
    }
}

/// Returns true where the agent requested deregistration.
fn leaves(cluster: &Cluster) -> bool {
    cluster.status.as_ref().is_some_and(|s| s.leave_requested == Some(true))
}

fn is_ready(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    find(conditions, conditions::READY).is_some_and(Condition::is_true)
}

/// Returns true where anything but times differs.
fn differ(before: &[Condition], after: &[Condition]) -> bool {
    after.iter().any(|new| {
        find(before, &new.type_)
            .is_none_or(|old| (&old.status, &old.reason, &old.message) != (&new.status, &new.reason, &new.message))
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use kube::client::Body;
    use kube::runtime::events::Reporter;

    use super::*;
    use crate::api::labels::ANNOTATION_KEY_FINGERPRINT;
    use crate::api::{ClusterSpec, ClusterStatus};

    /// Returns a monitor of a control plane that has this cluster or none, and the requests that it wrote.
    fn monitor(found: Option<&Cluster>) -> (Monitor, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, found) = (asked.clone(), found.map(|cluster| json!(cluster).to_string()));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (log, found) = (log.clone(), found.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
                let reads = parts.method == http::Method::GET;
                if !reads {
                    log.lock().unwrap().push(format!("{} {} {body}", parts.method, parts.uri.path()));
                }
                let status = |result: &str, code: u16| {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": result,
                        "code": code, "message": "", "reason": if code == 404 { "NotFound" } else { "" }});
                    (code, status.to_string())
                };
                let place = |kind: &str| parts.uri.path().ends_with(&format!("/namespaces/fleet-c-a/{kind}"));
                let (code, text) = match found {
                    _ if reads && place("clusterreports") => (200, held("ClusterReport")),
                    _ if reads && place("schedules") => (200, held("Schedule")),
                    _ if reads && place("leases") => (200, held("Lease")),
                    _ if reads && place("events") => (200, held("Event")),
                    Some(_) if reads && parts.uri.path().ends_with("/namespaces/fleet-c-a") => status("Failure", 404),
                    Some(found) if reads => (200, found),
                    // What is applied is answered with itself.
                    Some(_) if body.contains("apiVersion") => (200, body),
                    Some(_) => status("Success", 200),
                    None => status("Failure", 404),
                };
                Ok::<_, Infallible>(http::Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap())
            }
        });
        let client = Client::new(service, "default");
        let recorder = Recorder::new(client.clone(), Reporter { controller: "test".to_owned(), instance: None });
        let index = Arc::new(Index::default());
        (Monitor { client, index, metrics: Metrics::default(), recorder }, asked)
    }

    /// A list of two objects, one of which a finalizer holds; with managed fields that an agent may write.
    fn held(kind: &str) -> String {
        let managed = json!([{ "manager": "x", "time": "9999-12-31T23:59:59Z" }]);
        let object = |name: &str, finalizers: &[&str]| json!({ "metadata": { "name": name, "uid": "7", "finalizers": finalizers, "managedFields": managed } });
        let items = [object("held", &["example.com/hold"]), object("free", &[])];
        json!({ "kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {}, "items": items }).to_string()
    }

    fn leaving(uid: &str) -> Cluster {
        let mut cluster = Cluster::new("a", ClusterSpec { name: "a".to_owned(), ..ClusterSpec::default() });
        cluster.metadata.uid = Some(uid.to_owned());
        cluster.status = Some(ClusterStatus { leave_requested: Some(true), ..ClusterStatus::default() });
        cluster
    }

    fn deleted(asked: &Mutex<Vec<String>>) -> Vec<String> {
        asked.lock().unwrap().iter().filter_map(|line| line.strip_prefix("DELETE ").map(str::to_owned)).collect()
    }

    #[tokio::test]
    async fn an_existing_cluster_keeps_its_rights() {
        let (monitor, asked) = monitor(Some(&leaving("1")));
        monitor.index.add_deleted(["a".to_owned()]);
        monitor.revoke_deleted().await;
        assert!(asked.lock().unwrap().is_empty() && monitor.index.take_deleted().is_empty());
    }

    #[tokio::test]
    async fn a_deleted_cluster_loses_its_rights() {
        let (monitor, asked) = monitor(None);
        monitor.index.add_deleted(["a".to_owned()]);
        monitor.revoke_deleted().await;
        let deleted = deleted(&asked);
        assert!(deleted[0].contains("/clusterrolebindings/fleet:agent:a "), "{deleted:?}");
        assert!(deleted.iter().any(|line| line.contains("/namespaces/fleet-c-a ")), "{deleted:?}");
        assert!(!deleted.iter().any(|line| line.contains("/clusters/")), "{deleted:?}");
    }

    #[tokio::test]
    async fn finalizers_of_agents_are_removed() {
        let (monitor, asked) = monitor(None);
        monitor.index.add_deleted(["a".to_owned()]);
        monitor.revoke_deleted().await;
        let asked = asked.lock().unwrap();
        let last_right = asked.iter().rposition(|line| line.starts_with("DELETE "));
        let freed: Vec<_> = asked.iter().filter(|line| line.starts_with("PATCH ")).collect();
        for (line, kind) in freed.iter().zip(["clusterreports", "schedules", "leases", "events"]) {
            assert!(line.contains(&format!("/namespaces/fleet-c-a/{kind}/held ")), "{line}");
            assert!(line.contains(r#""finalizers":null"#) && line.contains(r#""uid":"7""#), "{line}");
        }
        assert_eq!((freed.len(), last_right), (4, Some(asked.len() - 5)), "{asked:?}");
    }

    #[tokio::test]
    async fn deregistration_spares_a_successor() {
        let (monitor, asked) = monitor(Some(&leaving("2")));
        monitor.evaluate(Arc::new(leaving("1")), Instant::now()).await.unwrap();
        assert!(asked.lock().unwrap().is_empty());
        monitor.evaluate(Arc::new(leaving("2")), Instant::now()).await.unwrap();
        let deleted = deleted(&asked);
        let cluster = deleted.last().unwrap();
        assert!(cluster.contains("/clusters/a ") && cluster.contains(r#""preconditions":{"uid":"2"}"#), "{cluster}");
    }

    fn member(accepted: bool, key: &str) -> Cluster {
        let spec = ClusterSpec {
            name: "a".to_owned(),
            cluster_id: Some("0a1b2c3d-1111-2222-3333-444455556666".to_owned()),
            accepted,
            ..ClusterSpec::default()
        };
        let mut cluster = Cluster::new("a", spec);
        cluster.metadata.uid = Some("1".to_owned());
        cluster.annotations_mut().insert(ANNOTATION_KEY_FINGERPRINT.to_owned(), key.repeat(64));
        cluster
    }

    /// Returns the writes of one reconciliation, where the index has `known` and the API server `now`.
    async fn reconciled(known: &Cluster, now: &Cluster) -> (Monitor, Vec<String>) {
        let (monitor, asked) = monitor(Some(now));
        monitor.index.put(known.clone());
        monitor.reconcile(known, &mut std::collections::BTreeMap::new()).await;
        let asked = asked.lock().unwrap().clone();
        (monitor, asked)
    }

    #[tokio::test]
    async fn rights_are_granted_to_the_latest_key() {
        let (monitor, asked) = reconciled(&member(true, "a"), &member(true, "b")).await;
        let bindings: Vec<_> = asked.iter().filter(|line| line.contains("bindings/")).collect();
        assert_eq!(bindings.len(), 2, "{asked:?}");
        for binding in bindings {
            assert!(binding.contains("fleet:agent:a:0a1b2c3d:bbbbbbbbbbbbbbbb"), "{binding}");
        }
        let holder = monitor.index.rights("a").unwrap().holder;
        assert_eq!(holder.as_deref(), Some("fleet:agent:a:0a1b2c3d:bbbbbbbbbbbbbbbb"));
    }

    #[tokio::test]
    async fn a_suspended_cluster_loses_its_rights() {
        let (_, asked) = reconciled(&member(true, "a"), &member(false, "a")).await;
        assert!(asked.iter().all(|line| line.starts_with("DELETE ")), "{asked:?}");
        for binding in ["/clusterrolebindings/fleet:agent:a ", "/namespaces/fleet-c-a/rolebindings/fleet-agent "] {
            assert!(asked.iter().any(|line| line.contains(binding)), "{binding}: {asked:?}");
        }
    }

    #[tokio::test]
    async fn reconciled_rights_are_not_rewritten() {
        let (monitor, _) = reconciled(&member(true, "a"), &member(true, "a")).await;
        assert!(rights::is_reconciled(&monitor.index, &member(true, "a")));
        assert!(!rights::is_reconciled(&monitor.index, &member(true, "b")), "another key");
        assert!(!rights::is_reconciled(&monitor.index, &member(false, "a")), "suspended");
        let mut another = member(true, "a");
        another.metadata.uid = Some("2".to_owned());
        assert!(!rights::is_reconciled(&monitor.index, &another), "made again by that name");
        monitor.index.forget_all_rights();
        assert!(!rights::is_reconciled(&monitor.index, &member(true, "a")), "after an upgrade, say");
    }

    #[tokio::test]
    async fn deregistration_waits_for_the_name_lock() {
        let (monitor, asked) = monitor(Some(&leaving("1")));
        let index = monitor.index.clone();
        let names = index.names.lock().await;
        let evaluated = monitor.evaluate(Arc::new(leaving("1")), Instant::now());
        assert!(tokio::time::timeout(Duration::from_millis(50), evaluated).await.is_err());
        drop(names);
        assert!(asked.lock().unwrap().is_empty());
    }
}
