//! Writes the agent's part of the Cluster's status: inventory, health of the API server, deregistration request.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::api_health::{Reported, Smoothed};
use super::heartbeat::LeaseStatus;
use super::inventory::cluster_reports::NodeReports;
use super::inventory::facts::Overrides;
use super::inventory::node_labels;
use super::inventory::nodes::{format_amounts, format_totals};
use super::inventory::publish::{Publisher, Snapshot};
use super::inventory::server::ServerFacts;
use super::inventory::shards::NODES;
use super::inventory::watch::Observed;
use super::work::fields;
use crate::api::crd::cluster::conditions::{HEALTHY, READY};
use crate::api::crd::condition::find_condition;
use crate::api::extra_kind::ExtraKind;
use crate::api::labels::{AGENT_MANAGER, API_VERSION, CLUSTER_GROUP};
use crate::api::util::text::escape_status;
use crate::api::version::ServiceVersion;
use crate::api::{Cluster, Condition};
use crate::daemon::log::OnChange;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::add_jitter;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::extra_kinds::LOOK_AGAIN;

/// Time between two checks of the inventory.
const POLL: Duration = Duration::from_secs(2);
/// Time between two probes of our API server.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// The same until the first report, which the control plane waits for.
const FIRST_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two reads of version and autoscaler.
const FACTS_INTERVAL: Duration = Duration::from_secs(300);
/// Field manager of the deregistration request, so that it can be withdrawn.
const LEAVE_MANAGER: &str = "fleet-agent-leave";
/// Field manager of the request to drain the cluster.
const DRAIN_MANAGER: &str = "fleet-agent-drain";
/// Time to the next attempt after one that failed.
const DRAIN_POLL: Duration = Duration::from_secs(5);
/// Time between two attempts to deregister, and between two to withdraw that.
const LEAVE_POLL: Duration = Duration::from_secs(1);
/// Time for which a request may still be executed after its sender timed out.
const LATE_EXECUTION: Duration = Duration::from_secs(70);
/// Field manager of the condition, so that it can be written without the inventory.
const HEALTH_MANAGER: &str = "fleet-agent-health";

/// Clients and facts of the reports.
#[derive(Clone)]
pub struct Reporter {
    /// Client of the control plane.
    pub control_plane: Client,
    /// Client of the workload cluster.
    pub local: Client,
    /// Registered name.
    pub name: String,
    /// Facts set by flags.
    pub overrides: Overrides,
    /// Service version that the agent was installed as, if known.
    pub version: Option<ServiceVersion>,
    /// Kinds that are placed beside those of the table.
    pub extra_kinds: Vec<ExtraKind>,
    /// Status of the Lease: only its holder reports.
    pub lease: watch::Receiver<LeaseStatus>,
    /// Metrics.
    pub metrics: Metrics,
}

/// Result of a deregistration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deregistration {
    /// The cluster was removed.
    Done,
    /// An uninstall withdrew its request: the cluster remains registered.
    Withdrawn,
    /// Our certificate was refused from the first request on: the cluster may be registered or not.
    Refused,
}

impl Reporter {
    fn clusters_api(&self) -> Api<Cluster> {
        Api::all(self.control_plane.clone())
    }

    fn status_object(&self, status: &Value) -> Value {
        json!({
            "apiVersion": format!("{CLUSTER_GROUP}/{API_VERSION}"),
            "kind": "Cluster",
            "metadata": { "name": self.name },
            "status": status,
        })
    }

    async fn apply_cluster_status(&self, manager: &str, status: &Value) -> Result<Cluster, CallError> {
        let params = PatchParams::apply(manager).force();
        let mut status = status.clone();
        escape_status(&mut status);
        let mut object = self.status_object(&status);
        loop {
            let patch = Patch::Apply(&object);
            let result = call_with_timeout(self.clusters_api().patch_status(&self.name, &params, &patch)).await;
            match result {
                Err(error) if fields::remove_undeclared(&mut object, &error) => {}
                result => return result,
            }
        }
    }

    /// Publishes the inventory by its rules until dropped. A passive agent does not.
    pub async fn publish_inventory(self, observed: Observed) {
        let started = Instant::now();
        let logged = OnChange::default();
        let mut publisher = Publisher::default();
        let mut taken: Option<(u64, Snapshot)> = None;
        let mut reports = NodeReports::new(&self.control_plane, &self.name);
        let mut facts: Option<(Instant, ServerFacts)> = None;
        loop {
            tokio::time::sleep(POLL).await;
            let lease = self.lease.borrow().clone();
            if let LeaseStatus::Passive { .. } = lease {
                // The active agent reports in our place.
                publisher = Publisher::default();
                reports.forget_reports();
            }
            if lease != LeaseStatus::Held {
                continue;
            }
            let revision = observed.revision();
            if taken.as_ref().is_none_or(|(at, _)| *at != revision) {
                taken = observed.take_snapshot(&self.overrides, &self.name).map(|snapshot| (revision, snapshot));
            }
            let Some((_, snapshot)) = &mut taken else { continue };
            if facts.as_ref().is_none_or(|(at, facts)| self.are_facts_outdated(*at, facts)) {
                let before = facts.take().map(|(_, before)| before);
                facts = Some((
                    Instant::now(),
                    ServerFacts::read_server_facts(&self.local, &self.extra_kinds, before).await,
                ));
            }
            if let Some((_, server)) = &facts {
                snapshot.server.clone_from(server);
            }
            if !publisher.is_due(snapshot, started.elapsed()) {
                continue;
            }
            let sent = Instant::now();
            let written = self.publish_snapshot(snapshot, &mut reports, started.elapsed()).await;
            self.metrics.observe_duration("fleet_agent_report_seconds", "Duration of a report.", sent.elapsed());
            let result = if written.is_ok() { "ok" } else { "failed" };
            self.metrics.increment_counter(
                "fleet_agent_reports_total",
                "Reports of the inventory.",
                &[("result", result)],
            );
            let outcome = match written {
                Ok(()) => {
                    observed.record_published_pods(snapshot.pods.clone());
                    publisher.record_publication(snapshot.clone(), started.elapsed(), rand::random());
                    "ok".to_owned()
                }
                Err(error) => {
                    publisher.record_failure(started.elapsed());
                    error.to_string()
                }
            };
            if logged.record_if_changed("inventory", &outcome) {
                tracing::info!(outcome, "the inventory was reported");
            }
        }
    }

    /// Returns whether the facts that were read at a time are to be read again.
    fn are_facts_outdated(&self, at: Instant, facts: &ServerFacts) -> bool {
        let is_complete = self.extra_kinds.iter().all(|kind| facts.apis.contains(&kind.api_version()));
        at.elapsed() > if is_complete { FACTS_INTERVAL } else { LOOK_AGAIN } || facts.git_version.is_empty()
    }

    /// Reports a whole inventory.
    async fn publish_snapshot(
        &self,
        snapshot: &Snapshot,
        reports: &mut NodeReports,
        now: Duration,
    ) -> Result<(), CallError> {
        let wall = Timestamp::now();
        reports.write_due_reports(snapshot, now, wall).await?;
        self.apply_cluster_status(AGENT_MANAGER, &status_of(snapshot, self.version.as_ref(), wall)).await?;
        // Orphaned reports mislead nobody who reads the Cluster first; the next report deletes them.
        if let Err(error) = reports.delete_orphans(snapshot).await {
            tracing::debug!(%error, "deleting orphaned reports failed");
        }
        Ok(())
    }

    /// Probes our API server and reports its health until dropped. A passive agent does not report.
    pub async fn monitor_health(self) {
        let started = Instant::now();
        let mut health = Smoothed::default();
        let mut reported = Reported::default();
        let mut interval = FIRST_PROBE_INTERVAL;
        loop {
            let (ready, message) = self.probe_readyz().await;
            let healthy = health.record_probe(ready, started.elapsed());
            let lease = self.lease.borrow().clone();
            match lease {
                // The active agent reports in our place.
                LeaseStatus::Passive { .. } => reported.forget_report(),
                LeaseStatus::Held if reported.is_due(healthy, started.elapsed()) => {
                    match self.report_health(healthy, &message).await {
                        Ok(()) => {
                            if reported.record_report(healthy, started.elapsed(), rand::rng().random_range(0.9..1.1)) {
                                tracing::info!(healthy, detail = message, "health of the API server reported");
                            }
                        }
                        Err(error) => tracing::debug!(%error, "reporting health failed"),
                    }
                    interval = PROBE_INTERVAL;
                }
                _ => {}
            }
            tokio::time::sleep(interval).await;
        }
    }

    async fn probe_readyz(&self) -> (bool, String) {
        let request = http::Request::get("/readyz").body(Vec::new());
        let Ok(request) = request else { return (false, "no request".to_owned()) };
        match call_with_timeout(self.local.request_text(request)).await {
            Ok(_) => (true, "the workload cluster's API server is ready".to_owned()),
            Err(error) => (false, format!("the workload cluster's API server is not ready: {error}")),
        }
    }

    async fn report_health(&self, healthy: bool, message: &str) -> Result<(), CallError> {
        let reason = if healthy { "ApiServerReady" } else { "ApiServerNotReady" };
        let message: String = message.chars().take(1000).collect();
        let mut condition = Condition::new(HEALTHY, healthy, reason, message, Timestamp::now());
        let found = call_with_timeout(self.clusters_api().get(&self.name)).await?;
        let before = found.status.map(|s| s.conditions).unwrap_or_default();
        if let Some(old) = find_condition(&before, HEALTHY).filter(|old| old.status == condition.status) {
            condition.last_transition_time.clone_from(&old.last_transition_time);
        }
        self.apply_cluster_status(HEALTH_MANAGER, &json!({ "conditions": [condition] })).await?;
        Ok(())
    }

    /// Asks the control plane to drain this cluster for as long as `wanted` says so; nothing before it says anything.
    pub async fn follow_drain_request(self, mut wanted: watch::Receiver<Option<bool>>) {
        let mut asked = None;
        loop {
            let now = *wanted.borrow_and_update();
            let held = *self.lease.borrow() == LeaseStatus::Held;
            if let Some(now) = now.filter(|now| held && asked != Some(*now)) {
                match self.request_drain(now).await {
                    Ok(()) => asked = Some(now),
                    Err(error) => tracing::debug!(%error, "requesting a drain failed; will retry"),
                }
            }
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(DRAIN_POLL) => {}
            }
        }
    }

    async fn request_drain(&self, wanted: bool) -> Result<(), CallError> {
        let found = call_with_timeout(self.clusters_api().get(&self.name)).await?;
        if (found.status.and_then(|status| status.drain_requested) == Some(true)) == wanted {
            return Ok(());
        }
        // The server removes a field that its manager no longer applies.
        let status = if wanted { json!({ "drainRequested": true }) } else { json!({}) };
        self.apply_cluster_status(DRAIN_MANAGER, &status).await?;
        tracing::info!(wanted, "the drain request of this cluster changed");
        Ok(())
    }

    /// Returns the reason of the condition Ready, if that is True.
    pub async fn read_ready_reason(&self) -> Result<Option<String>, CallError> {
        let cluster = call_with_timeout(self.clusters_api().get(&self.name)).await?;
        let conditions = cluster.status.map(|status| status.conditions).unwrap_or_default();
        Ok(find_condition(&conditions, READY).filter(|ready| ready.is_true()).map(|ready| ready.reason.clone()))
    }

    /// Requests deregistration, and waits until the cluster is removed and our rights are revoked. It ends early when
    /// `withdrawn` does; the request in the control plane stands then, see [`Self::withdraw_deregistration`].
    pub async fn deregister_from_control_plane(
        &self,
        withdrawn: impl Future<Output = ()>,
    ) -> Result<Deregistration, CallError> {
        tokio::select! {
            result = self.request_deregistration() => result,
            () = withdrawn => Ok(Deregistration::Withdrawn),
        }
    }

    async fn request_deregistration(&self) -> Result<Deregistration, CallError> {
        let mut accepted = false;
        loop {
            match self.apply_cluster_status(LEAVE_MANAGER, &json!({ "leaveRequested": true })).await {
                Ok(_) => accepted = true,
                Err(e) if e.is_not_found() => return Ok(Deregistration::Done),
                Err(e) if [Some(401), Some(403)].contains(&e.status_code()) => {
                    return Ok(if accepted { Deregistration::Done } else { Deregistration::Refused });
                }
                Err(e) => return Err(e),
            }
            tokio::time::sleep(LEAVE_POLL).await;
        }
    }

    /// Withdraws the deregistration request of an abandoned uninstall, which the control plane would execute otherwise. Ends
    /// when there is no such request, or we have no right to write.
    pub async fn withdraw_deregistration(self) {
        // A request that timed out for us may be executed up to a minute later.
        for wait in [None, Some(LATE_EXECUTION)] {
            tokio::time::sleep(wait.unwrap_or_default()).await;
            while let Err(error) = self.try_withdraw().await {
                if [Some(401), Some(403), Some(404)].contains(&error.status_code()) {
                    return;
                }
                tracing::debug!(%error, "withdrawing the deregistration request failed; will retry");
                tokio::time::sleep(add_jitter(5 * LEAVE_POLL, 0.5)).await;
            }
        }
    }

    async fn try_withdraw(&self) -> Result<(), CallError> {
        let found = call_with_timeout(self.clusters_api().get(&self.name)).await?;
        if found.status.and_then(|status| status.leave_requested) == Some(true) {
            // The server removes a field that its manager no longer applies.
            self.apply_cluster_status(LEAVE_MANAGER, &json!({})).await?;
            tracing::info!("deregistration request withdrawn");
        }
        Ok(())
    }
}

/// Returns the status that the agent owns. Above [`NODES`] nodes the maps by node are omitted: the object would near the
/// limit of etcd.
fn status_of(snapshot: &Snapshot, version: Option<&ServiceVersion>, now: Timestamp) -> Value {
    let facts = &snapshot.facts;
    // One build serves several lines of the service, so the service version and the build are two facts.
    let build = concat!("v", env!("CARGO_PKG_VERSION"));
    let mut observed = json!({
        "gitVersion": snapshot.server.git_version,
        "kubernetescluster": facts.kubernetes_cluster,
        "provider": facts.provider,
        "region": facts.region,
        "zones": facts.zones,
        "agentVersion": version.map_or_else(|| build.to_owned(), ToString::to_string),
        "agentBuild": build,
        "nodeCount": snapshot.allocatable.len(),
        "apis": snapshot.server.apis,
    });
    let mut status = json!({
        "autoscaled": snapshot.server.autoscaled,
        "lastUpdateTime": Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
    });
    if snapshot.allocatable.len() <= NODES {
        status["availableResources"] = json!(format_amounts(&snapshot.available));
        status["capacityResources"] = json!(snapshot.capacity);
        status["nodeTaints"] = json!(snapshot.taints);
        status["nodeLabels"] = json!(node_labels::report_labels(&snapshot.labels));
    } else {
        observed["totals"] = json!(format_totals(&snapshot.available));
    }
    // Also if it is 0: others see by the field that this agent knows the hold of deletions. An older agent that takes over
    // removes the field, as it reports as the same field manager.
    if let Some(count) = snapshot.copies_without_schedule {
        status["copiesWithoutSchedule"] = json!(count);
    }
    if let Some(data) = snapshot.data_without_schedule.as_ref().filter(|data| data.count > 0) {
        status["dataWithoutSchedule"] = json!(data);
    }
    status["observed"] = observed;
    status
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::agent::inventory::nodes::Amounts;
    use crate::api::crd::cluster::DataWithoutSchedule;
    use crate::k8s::test_api;

    fn reporter(control_plane: Client) -> Reporter {
        Reporter {
            control_plane: control_plane.clone(),
            local: control_plane,
            name: "west".to_owned(),
            overrides: Overrides::default(),
            version: None,
            extra_kinds: Vec::new(),
            lease: watch::channel(LeaseStatus::Held).1,
            metrics: Metrics::default(),
        }
    }

    #[tokio::test]
    async fn what_a_cluster_says_is_reported_without_control_characters() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let server = Arc::clone(&written);
        let reporter = reporter(test_api::api(move |_, brought| {
            if brought.is_object() {
                server.lock().unwrap().push(brought["status"].clone());
            }
            json!({
                "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
                "metadata": { "name": "west" }, "spec": { "name": "west" },
            })
        }));
        let mut snapshot = snapshot(1);
        snapshot.server.git_version = "v1.31\u{1b}]0;x\u{7}".to_owned();
        snapshot.facts.zones = vec!["z\n\u{9b}".to_owned()];
        reporter
            .publish_snapshot(&snapshot, &mut NodeReports::new(&reporter.local, "west"), Duration::ZERO)
            .await
            .unwrap();
        reporter.report_health(false, "refused:\n\u{1b}[2J").await.unwrap();
        let written = written.lock().unwrap();
        assert_eq!(written[0]["observed"]["gitVersion"], r"v1.31\u{1b}]0;x\u{7}");
        assert_eq!(written[0]["observed"]["zones"], json!([r"z\n\u{9b}"]));
        assert_eq!(written[1]["conditions"][0]["message"], "refused:\n\\u{1b}[2J");
    }

    #[tokio::test]
    async fn a_deregistration_is_withdrawn() {
        let request = Arc::new(Mutex::new((String::new(), Value::Null)));
        let server = Arc::clone(&request);
        let control_plane = test_api::api(move |uri, brought| {
            let mut request = server.lock().unwrap();
            if brought.is_object() {
                *request = (uri.query().unwrap_or_default().to_owned(), brought["status"].clone());
            }
            json!({
                "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
                "metadata": { "name": "west" }, "spec": { "name": "west" }, "status": request.1,
            })
        });
        let reporter = reporter(control_plane);
        let withdrawn = tokio::time::sleep(Duration::from_millis(200));
        assert_eq!(reporter.deregister_from_control_plane(withdrawn).await.unwrap(), Deregistration::Withdrawn);
        let (by, status) = request.lock().unwrap().clone();
        assert_eq!(status, json!({ "leaveRequested": true }));
        reporter.try_withdraw().await.unwrap();
        // The same manager applies nothing now: that is how the server removes it.
        assert_eq!(*request.lock().unwrap(), (by.clone(), json!({})));
        *request.lock().unwrap() = (String::new(), json!({ "leaveRequested": false }));
        reporter.try_withdraw().await.unwrap();
        assert_eq!(request.lock().unwrap().0, "", "nothing is written where nothing was requested");
    }

    fn snapshot(nodes: usize) -> Snapshot {
        let all: std::collections::BTreeMap<_, _> =
            (0..nodes).map(|i| (format!("n{i}"), Amounts::from([("cpu".to_owned(), 1000)]))).collect();
        Snapshot { available: all.clone(), allocatable: all, ..Snapshot::default() }
    }

    #[test]
    fn a_large_cluster_reports_totals() {
        let now = Timestamp::from_second(0).unwrap();
        let small = status_of(&snapshot(200), None, now);
        assert_eq!(small["availableResources"]["n0"]["cpu"], "1");
        assert!(small["observed"].get("totals").is_none());
        let large = status_of(&snapshot(201), None, now);
        assert!(large.get("availableResources").is_none());
        assert_eq!(large["observed"]["totals"]["cpu"], "201");
        assert_eq!(large["observed"]["nodeCount"], 201);
    }

    #[test]
    fn service_version_and_build_are_reported() {
        let build = concat!("v", env!("CARGO_PKG_VERSION"));
        let now = Timestamp::from_second(0).unwrap();
        let installed = "v1.1.0".parse().unwrap();
        for (version, reported) in [(None, build), (Some(&installed), "v1.1.0")] {
            let status = status_of(&snapshot(1), version, now);
            assert_eq!(status["observed"]["agentVersion"], reported);
            assert_eq!(status["observed"]["agentBuild"], build);
        }
    }

    #[test]
    fn copies_without_a_schedule_are_reported_once_they_are_counted() {
        let now = Timestamp::from_second(0).unwrap();
        let counts = [None, Some(0), Some(3)].map(|copies_without_schedule| {
            status_of(&Snapshot { copies_without_schedule, ..snapshot(1) }, None, now)
                .get("copiesWithoutSchedule")
                .cloned()
        });
        assert_eq!(counts, [None, Some(json!(0)), Some(json!(3))]);

        let names: Vec<String> = (0..30).map(|n| format!("PersistentVolumeClaim shop/data-{n:02}")).collect();
        let [nothing, reported] = [&names[..0], &names[..]].map(|names| {
            let data_without_schedule = Some(DataWithoutSchedule::from_names(names));
            status_of(&Snapshot { data_without_schedule, ..snapshot(1) }, None, now).get("dataWithoutSchedule").cloned()
        });
        assert_eq!(nothing, None);
        let reported = reported.unwrap();
        assert_eq!(reported["count"], 30);
        assert_eq!(reported["first"], json!(names[..20]));
    }

    #[tokio::test]
    async fn a_control_plane_of_an_earlier_build_gets_what_it_knows() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let server = Arc::clone(&written);
        let reporter = reporter(test_api::api(move |_, brought| {
            server.lock().unwrap().push(brought["status"].clone());
            if brought["status"].get("copiesWithoutSchedule").is_some() {
                let mut refused = test_api::failure(500);
                refused["message"] = json!(
                    "failed to create typed patch object (/west; cluster.fleet-scheduler.io/v1alpha1, Kind=Cluster): \
                                            .status.copiesWithoutSchedule: field not declared in schema"
                );
                return refused;
            }
            json!({
                "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
                "metadata": { "name": "west" }, "spec": { "name": "west" },
            })
        }));
        let status = json!({ "copiesWithoutSchedule": 1, "autoscaled": true });
        reporter.apply_cluster_status(AGENT_MANAGER, &status).await.unwrap();
        assert_eq!(*written.lock().unwrap(), [status, json!({ "autoscaled": true })]);
    }

    #[test]
    fn no_nodes_are_empty_maps() {
        let none = status_of(&snapshot(0), None, Timestamp::from_second(0).unwrap());
        assert_eq!(none["availableResources"], json!({}));
        assert_eq!(none["observed"]["nodeCount"], 0);
    }
}
