//! The monitor: says of every cluster whether it is ready, idle, asleep, accepted; and lets go of those that leave.

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
use super::events::{Note, publish};
use super::index::{View, cluster_of_namespace};
use crate::api::cluster::conditions;
use crate::api::condition::find;
use crate::api::labels::{API_VERSION, CLUSTER_GROUP, LABEL_CLUSTER, SCHEDULER_MANAGER};
use crate::api::lenient::Lenient;
use crate::api::registration::gone::CLUSTER_LEFT;
use crate::api::{Cluster, Condition};
use crate::daemon::metrics::Metrics;
use crate::k8s::daemon_client::{CallError, call};
use mass_loss::Brake;

/// How often all clusters are judged; a look costs no request.
const TICK: Duration = Duration::from_secs(1);
/// Changes within this time are looked at together: a thousand agents' inventories make dozens a second.
const TOGETHER: Duration = Duration::from_millis(300);
/// Writes at the same time.
const AT_ONCE: usize = 16;
/// How often places without a cluster are looked for.
const SWEEP: Duration = Duration::from_secs(300);

/// The monitor of one term.
pub struct Monitor {
    /// Client of the hub.
    pub client: Client,
    /// What is known.
    pub view: Arc<View>,
    /// Where it is counted.
    pub metrics: Metrics,
    /// Where events go.
    pub recorder: Recorder,
}

impl Monitor {
    /// Judges until dropped.
    pub async fn run(self) {
        tokio::join!(self.judge_always(), self.reconcile_rights());
    }

    async fn judge_always(&self) {
        let mut brake = Brake::default();
        let mut swept: Option<Instant> = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = self.view.changed.notified() => tokio::time::sleep(TOGETHER).await,
            }
            if !self.view.is_complete() {
                continue;
            }
            if swept.is_none_or(|at| at.elapsed() > SWEEP) {
                self.sweep().await;
                swept = Some(Instant::now());
            }
            self.judge_all(&mut brake).await;
        }
    }

    async fn judge_all(&self, brake: &mut Brake) {
        let now = Instant::now();
        let clusters = self.view.clusters();
        let names: BTreeSet<_> = clusters.iter().map(|c| c.name_any()).collect();
        brake.keep(|name| names.contains(name));
        let mut ready = 0;
        for cluster in &clusters {
            let was = is_ready(cluster);
            let pulse = self.pulse(&cluster.name_any(), now);
            if was && pulse == cluster_conditions::Pulse::Lost {
                brake.lost(&cluster.name_any(), now);
            } else if pulse == cluster_conditions::Pulse::Fresh {
                brake.back(&cluster.name_any());
                ready += usize::from(was);
            }
        }
        if let Some(on) = brake.judge(ready, now) {
            self.say_brake(on).await;
        }
        let known = clusters.len();
        futures::stream::iter(clusters)
            .for_each_concurrent(AT_ONCE, |cluster| async move {
                match self.judge(cluster.clone(), now).await {
                    Ok(()) => {}
                    Err(e) if e.is_not_found() || e.is_conflict() => self.look_for(&cluster).await,
                    Err(error) => {
                        let name = cluster.name_any();
                        tracing::warn!(cluster = name, %error, "the cluster's status could not be written");
                    }
                }
            })
            .await;
        #[allow(clippy::cast_precision_loss)] // Counts of clusters.
        for (state, count) in [("ready", ready), ("known", known)] {
            self.metrics.gauge("fleet_clusters", "Clusters by state.", &[("state", state)], count as f64);
        }
    }

    /// Looks whether a cluster whose status could not be written is gone, or another one has its name.
    async fn look_for(&self, cluster: &Cluster) {
        let name = cluster.name_any();
        match self.find(&name).await {
            Ok(None) => self.view.forget(cluster),
            Ok(Some(now)) if now.metadata.uid != cluster.metadata.uid => self.view.put(now),
            // It was written by many at once; the next look tries again.
            Ok(Some(_)) => {}
            Err(error) => tracing::debug!(cluster = name, %error, "whether the cluster is there"),
        }
    }

    /// The cluster of a name, as it is now.
    async fn find(&self, name: &str) -> Result<Option<Cluster>, CallError> {
        let api: Api<Lenient<Cluster>> = Api::all(self.client.clone());
        Ok(call(api.get_opt(name)).await?.map(|read| read.0))
    }

    fn pulse(&self, name: &str, now: Instant) -> cluster_conditions::Pulse {
        cluster_conditions::pulse(self.view.beat(name).as_ref(), self.view.known_since(name), now)
    }

    async fn judge(&self, cluster: Arc<Cluster>, now: Instant) -> Result<(), CallError> {
        let name = cluster.name_any();
        let api: Api<Lenient<Cluster>> = Api::all(self.client.clone());
        if cluster.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if leaves(&cluster) {
            return self.let_go(&cluster).await;
        }
        let cluster = match cluster_labels::update(&cluster) {
            Some(update) => {
                let params = PatchParams::apply(SCHEDULER_MANAGER).force();
                match call(api.patch(&name, &params, &Patch::Apply(&update))).await {
                    Ok(written) => {
                        self.view.put(written.0.clone());
                        Arc::new(written.0)
                    }
                    // Whatever an agent observes, it is judged all the same.
                    Err(error) if error.is_invalid() => {
                        tracing::warn!(cluster = name, %error, "what was observed cannot be copied");
                        cluster
                    }
                    Err(error) => return Err(error),
                }
            }
            None => cluster,
        };
        let evidence = cluster_conditions::Evidence {
            pulse: self.pulse(&name, now),
            clock: self.view.beat(&name).and_then(|beat| beat.clock.told()),
            has_work: self.view.has_work(&name),
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
        self.view.put(written);
        self.say_ready(&cluster, &before, &all).await;
        self.say_clock(&cluster, &before, &all).await;
        Ok(())
    }

    /// Lets a cluster go that asked for it, unless it changed its mind or another one has its name by now.
    async fn let_go(&self, cluster: &Cluster) -> Result<(), CallError> {
        let name = cluster.name_any();
        let _turn = self.view.names.lock().await;
        match self.find(&name).await? {
            Some(now) if now.metadata.uid == cluster.metadata.uid && leaves(&now) => {
                tracing::info!(cluster = name, "the cluster leaves");
                self.note(&now, EventType::Normal, CLUSTER_LEFT, "the agent asked to be forgotten").await;
                cluster_rbac::remove(&self.client, &now).await?;
            }
            Some(now) => self.view.put(now),
            None => self.view.forget(cluster),
        }
        Ok(())
    }

    async fn say_clock(&self, cluster: &Cluster, before: &[Condition], after: &[Condition]) {
        let Some(new) = find(after, conditions::CLOCK_SKEW) else { return };
        if find(before, conditions::CLOCK_SKEW).is_some_and(|old| old.reason == new.reason) {
            return;
        }
        tracing::info!(cluster = cluster.name_any(), detail = new.message, "clock");
        let reason = if new.is_true() { "ClockSkew" } else { "ClockSkewOver" };
        self.note(cluster, EventType::Normal, reason, &new.message).await;
    }

    async fn say_ready(&self, cluster: &Cluster, before: &[Condition], after: &[Condition]) {
        let (Some(new), old) = (find(after, conditions::READY), find(before, conditions::READY)) else { return };
        if old.is_some_and(|o| o.status == new.status && o.reason == new.reason) {
            return;
        }
        let name = cluster.name_any();
        let (status, reason, message) = (&new.status, &new.reason, &new.message);
        tracing::info!(cluster = name, ready = status, reason, detail = message, "readiness changed");
        // A new cluster is not ready for a moment; that is no event.
        if old.is_some() || new.is_true() {
            let type_ = if new.is_true() { EventType::Normal } else { EventType::Warning };
            self.note(cluster, type_, reason, message).await;
        }
    }

    async fn say_brake(&self, on: bool) {
        self.metrics.gauge(
            "fleet_placement_frozen",
            "Whether nothing is moved because too many clusters were lost at once.",
            &[],
            f64::from(u8::from(on)),
        );
        let (reason, note) = if on {
            ("MassHeartbeatLoss", "most clusters were lost at once; nothing is moved until they are back")
        } else {
            ("MassHeartbeatLossOver", "the lost clusters are no longer the majority")
        };
        tracing::warn!(reason, "{note}");
        let lease = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            name: Some("fleet-scheduler".to_owned()),
            namespace: Some("kube-system".to_owned()),
            ..ObjectReference::default()
        };
        let type_ = if on { EventType::Warning } else { EventType::Normal };
        self.publish(&lease, type_, reason, note).await;
    }

    async fn note(&self, cluster: &Cluster, type_: EventType, reason: &str, note: &str) {
        self.publish(&cluster.object_ref(&()), type_, reason, note).await;
    }

    async fn publish(&self, regarding: &ObjectReference, type_: EventType, reason: &str, note: &str) {
        let note = Note { type_, action: "Monitoring", reason, text: note };
        publish(&self.recorder, regarding, note).await;
    }

    /// Finds places whose cluster was deleted while nobody led, and those that do not go away.
    async fn sweep(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let Ok(found) = call(namespaces.list_metadata(&ListParams::default().labels(LABEL_CLUSTER))).await else {
            return;
        };
        let known: BTreeSet<_> = self.view.clusters().iter().map(|c| c.name_any()).collect();
        let names = found.items.iter().filter_map(|n| n.metadata.name.as_deref());
        let orphans = names.filter_map(cluster_of_namespace).map(ToOwned::to_owned);
        self.view.add_gone(orphans.filter(|name| !known.contains(name)));
    }
}

/// Whether its agent asked to be forgotten.
fn leaves(cluster: &Cluster) -> bool {
    cluster.status.as_ref().is_some_and(|s| s.leave_requested == Some(true))
}

fn is_ready(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    find(conditions, conditions::READY).is_some_and(Condition::is_true)
}

/// Whether anything but times differs.
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

    /// A monitor of a hub that has this cluster or none, and what else than reading it asked for.
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
        let view = Arc::new(View::default());
        (Monitor { client, view, metrics: Metrics::default(), recorder }, asked)
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
    async fn a_cluster_that_only_an_old_list_does_not_know_keeps_what_it_has() {
        let (monitor, asked) = monitor(Some(&leaving("1")));
        monitor.view.add_gone(["a".to_owned()]);
        monitor.revoke_gone().await;
        assert!(asked.lock().unwrap().is_empty() && monitor.view.take_gone().is_empty());
    }

    #[tokio::test]
    async fn a_cluster_that_is_gone_loses_its_rights_and_whatever_comes_after_it_is_left_alone() {
        let (monitor, asked) = monitor(None);
        monitor.view.add_gone(["a".to_owned()]);
        monitor.revoke_gone().await;
        let deleted = deleted(&asked);
        assert!(deleted[0].contains("/clusterrolebindings/fleet:agent:a "), "{deleted:?}");
        assert!(deleted.iter().any(|line| line.contains("/namespaces/fleet-c-a ")), "{deleted:?}");
        assert!(!deleted.iter().any(|line| line.contains("/clusters/")), "{deleted:?}");
    }

    #[tokio::test]
    async fn no_finalizer_of_an_agent_that_is_gone_keeps_its_place() {
        let (monitor, asked) = monitor(None);
        monitor.view.add_gone(["a".to_owned()]);
        monitor.revoke_gone().await;
        let asked = asked.lock().unwrap();
        let last_right = asked.iter().rposition(|line| line.starts_with("DELETE "));
        let freed: Vec<_> = asked.iter().filter(|line| line.starts_with("PATCH ")).collect();
        for (line, kind) in freed.iter().zip(["clusterreports", "leases", "events"]) {
            assert!(line.contains(&format!("/namespaces/fleet-c-a/{kind}/held ")), "{line}");
            assert!(line.contains(r#""finalizers":null"#) && line.contains(r#""uid":"7""#), "{line}");
        }
        assert_eq!((freed.len(), last_right), (3, Some(asked.len() - 4)), "{asked:?}");
    }

    #[tokio::test]
    async fn who_asks_to_leave_takes_along_no_other_cluster_of_its_name() {
        let (monitor, asked) = monitor(Some(&leaving("2")));
        monitor.judge(Arc::new(leaving("1")), Instant::now()).await.unwrap();
        assert!(asked.lock().unwrap().is_empty());
        monitor.judge(Arc::new(leaving("2")), Instant::now()).await.unwrap();
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

    /// What one reconciliation of a cluster writes that the view knows as `known` and the hub has as `now`.
    async fn reconciled(known: &Cluster, now: &Cluster) -> (Monitor, Vec<String>) {
        let (monitor, asked) = monitor(Some(now));
        monitor.view.put(known.clone());
        monitor.reconcile(known, &mut std::collections::BTreeMap::new()).await;
        let asked = asked.lock().unwrap().clone();
        (monitor, asked)
    }

    #[tokio::test]
    async fn rights_are_granted_to_the_key_on_record_now_and_not_to_one_that_was_known_before() {
        let (monitor, asked) = reconciled(&member(true, "a"), &member(true, "b")).await;
        let bindings: Vec<_> = asked.iter().filter(|line| line.contains("bindings/")).collect();
        assert_eq!(bindings.len(), 2, "{asked:?}");
        for binding in bindings {
            assert!(binding.contains("fleet:agent:a:0a1b2c3d:bbbbbbbbbbbbbbbb"), "{binding}");
        }
        let holder = monitor.view.rights("a").unwrap().holder;
        assert_eq!(holder.as_deref(), Some("fleet:agent:a:0a1b2c3d:bbbbbbbbbbbbbbbb"));
    }

    #[tokio::test]
    async fn a_cluster_that_was_suspended_since_loses_its_rights_whatever_is_known() {
        let (_, asked) = reconciled(&member(true, "a"), &member(false, "a")).await;
        assert!(asked.iter().all(|line| line.starts_with("DELETE ")), "{asked:?}");
        for binding in ["/clusterrolebindings/fleet:agent:a ", "/namespaces/fleet-c-a/rolebindings/fleet-agent "] {
            assert!(asked.iter().any(|line| line.contains(binding)), "{binding}: {asked:?}");
        }
    }

    #[tokio::test]
    async fn rights_that_are_as_they_should_be_are_not_written_again() {
        let (monitor, _) = reconciled(&member(true, "a"), &member(true, "a")).await;
        assert!(rights::is_reconciled(&monitor.view, &member(true, "a")));
        assert!(!rights::is_reconciled(&monitor.view, &member(true, "b")), "another key");
        assert!(!rights::is_reconciled(&monitor.view, &member(false, "a")), "suspended");
        let mut another = member(true, "a");
        another.metadata.uid = Some("2".to_owned());
        assert!(!rights::is_reconciled(&monitor.view, &another), "made again by that name");
        monitor.view.forget_all_rights();
        assert!(!rights::is_reconciled(&monitor.view, &member(true, "a")), "after an upgrade, say");
    }

    #[tokio::test]
    async fn nobody_is_removed_while_a_name_is_being_given() {
        let (monitor, asked) = monitor(Some(&leaving("1")));
        let view = monitor.view.clone();
        let turn = view.names.lock().await;
        let judged = monitor.judge(Arc::new(leaving("1")), Instant::now());
        assert!(tokio::time::timeout(Duration::from_millis(50), judged).await.is_err());
        drop(turn);
        assert!(asked.lock().unwrap().is_empty());
    }
}
