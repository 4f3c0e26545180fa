//! Telling the control plane: the inventory, whether our API server is well, and that we leave.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::api_health::{Smooth, Told};
use super::heartbeat::Pulse;
use super::inventory::cluster_reports::NodeReports;
use super::inventory::facts::Overrides;
use super::inventory::nodes::{printed, totals};
use super::inventory::publish::{Publisher, Snapshot};
use super::inventory::shards::NODES;
use super::inventory::watch::Observed;
use crate::api::cluster::conditions::{HEALTHY, READY};
use crate::api::condition::find;
use crate::api::labels::{AGENT_MANAGER, API_VERSION, CLUSTER_GROUP};
use crate::api::version::ServiceVersion;
use crate::api::{Cluster, Condition};
use crate::daemon::log::OnChange;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::jittered;
use crate::k8s::daemon_client::{CallError, call};

/// How often the inventory is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How often our API server is asked.
const ASK: Duration = Duration::from_secs(5);
/// The same until the control plane was told for the first time: it waits for that.
const ASK_FIRST: Duration = Duration::from_secs(1);
/// How often the slow facts are looked up: version, autoscaler.
const SLOW: Duration = Duration::from_secs(300);
/// Owns the wish to leave, so that it can be taken back.
const LEAVE_MANAGER: &str = "fleet-agent-leave";
/// How often a cluster that leaves is looked at, and how often taking that back is tried.
const LEAVE_LOOK: Duration = Duration::from_secs(1);
/// How much later than its sender gave it up a request may still be carried out.
const HEARD_LATE: Duration = Duration::from_secs(70);
/// Owns the condition, so that it can be written without the inventory.
const HEALTH_MANAGER: &str = "fleet-agent-health";

/// Who reports, where to and from where.
#[derive(Clone)]
pub struct Reporter {
    /// Client of the control plane.
    pub hub: Client,
    /// Client of the workload cluster.
    pub local: Client,
    /// Registered name.
    pub name: String,
    /// What the operator knows better.
    pub overrides: Overrides,
    /// The service version that the agent was installed as, if it was told.
    pub version: Option<ServiceVersion>,
    /// Whether we are the one that works.
    pub pulse: watch::Receiver<Pulse>,
    /// Where it is counted.
    pub metrics: Metrics,
}

/// What came of asking to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goodbye {
    /// The cluster is gone.
    Forgotten,
    /// An uninstall has taken its request back: the cluster stays.
    TakenBack,
    /// Our certificate is not good for that, and never was while we asked: the cluster may be gone or there.
    Refused,
}

impl Reporter {
    fn api(&self) -> Api<Cluster> {
        Api::all(self.hub.clone())
    }

    fn object(&self, status: &Value) -> Value {
        json!({
            "apiVersion": format!("{CLUSTER_GROUP}/{API_VERSION}"),
            "kind": "Cluster",
            "metadata": { "name": self.name },
            "status": status,
        })
    }

    async fn patch(&self, manager: &str, status: &Value) -> Result<Cluster, CallError> {
        let params = PatchParams::apply(manager).force();
        call(self.api().patch_status(&self.name, &params, &Patch::Apply(self.object(status)))).await
    }

    /// Publishes the inventory by its rules until dropped. A passive agent does not.
    pub async fn inventory(self, observed: Observed) {
        let started = Instant::now();
        let said = OnChange::default();
        let mut publisher = Publisher::default();
        let mut looked: Option<(u64, Snapshot)> = None;
        let mut reports = NodeReports::new(&self.hub, &self.name);
        let mut slow: Option<(Instant, String, bool)> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let pulse = self.pulse.borrow().clone();
            if let Pulse::Passive { .. } = pulse {
                // Whoever works now tells in our place.
                publisher = Publisher::default();
                reports.forget();
            }
            if pulse != Pulse::Beating {
                continue;
            }
            let revision = observed.revision();
            if looked.as_ref().is_none_or(|(at, _)| *at != revision) {
                looked = observed.snapshot(&self.overrides, &self.name).map(|snapshot| (revision, snapshot));
            }
            let Some((_, snapshot)) = &mut looked else { continue };
            if slow.as_ref().is_none_or(|(at, version, _)| at.elapsed() > SLOW || version.is_empty()) {
                slow = Some((Instant::now(), self.git_version().await, self.is_autoscaled().await));
            }
            if let Some((_, version, autoscaled)) = &slow {
                snapshot.git_version.clone_from(version);
                snapshot.autoscaled = *autoscaled;
            }
            if !publisher.is_due(snapshot, started.elapsed()) {
                continue;
            }
            let asked = Instant::now();
            let written = self.publish(snapshot, &mut reports, started.elapsed()).await;
            self.metrics.observe("fleet_agent_report_seconds", "How long a report took.", asked.elapsed());
            let result = if written.is_ok() { "ok" } else { "failed" };
            self.metrics.count("fleet_agent_reports_total", "Reports of the inventory.", &[("result", result)]);
            let outcome = match written {
                Ok(()) => {
                    publisher.told(snapshot.clone(), started.elapsed(), rand::random());
                    "ok".to_owned()
                }
                Err(error) => {
                    publisher.failed(started.elapsed());
                    error.to_string()
                }
            };
            if said.news("inventory", &outcome) {
                tracing::info!(outcome, "inventory");
            }
        }
    }

    /// Tells a whole inventory.
    async fn publish(&self, snapshot: &Snapshot, reports: &mut NodeReports, now: Duration) -> Result<(), CallError> {
        let wall = Timestamp::now();
        reports.write(snapshot, now, wall).await?;
        self.patch(AGENT_MANAGER, &status_of(snapshot, self.version.as_ref(), wall)).await?;
        // What is left over misleads nobody who reads the Cluster first, and has time until the next report.
        if let Err(error) = reports.tidy(snapshot).await {
            tracing::debug!(%error, "reports that are left over could not be deleted");
        }
        Ok(())
    }

    async fn git_version(&self) -> String {
        match call(self.local.apiserver_version()).await {
            Ok(info) => info.git_version,
            Err(_) => String::new(),
        }
    }

    /// The cluster autoscaler keeps its state in this ConfigMap wherever it runs.
    async fn is_autoscaled(&self) -> bool {
        let api: Api<ConfigMap> = Api::namespaced(self.local.clone(), "kube-system");
        matches!(call(api.get_metadata_opt("cluster-autoscaler-status")).await, Ok(Some(_)))
    }

    /// Judges our API server and reports what it thinks until dropped. A passive agent does not.
    pub async fn health(self) {
        let started = Instant::now();
        let mut smooth = Smooth::default();
        let mut told = Told::default();
        let mut asked = ASK_FIRST;
        loop {
            let (answer, message) = self.ask_readyz().await;
            let well = smooth.hear(answer, started.elapsed());
            let pulse = self.pulse.borrow().clone();
            match pulse {
                // Whoever works now tells in our place.
                Pulse::Passive { .. } => told.forget(),
                Pulse::Beating if told.is_due(well, started.elapsed()) => {
                    match self.tell_health(well, &message).await {
                        Ok(()) => {
                            if told.note(well, started.elapsed(), rand::rng().random_range(0.9..1.1)) {
                                tracing::info!(well, detail = message, "this cluster's API server");
                            }
                        }
                        Err(error) => tracing::debug!(%error, "health could not be reported"),
                    }
                    asked = ASK;
                }
                _ => {}
            }
            tokio::time::sleep(asked).await;
        }
    }

    async fn ask_readyz(&self) -> (bool, String) {
        let request = http::Request::get("/readyz").body(Vec::new());
        let Ok(request) = request else { return (false, "no request".to_owned()) };
        match call(self.local.request_text(request)).await {
            Ok(_) => (true, "the API server is ready".to_owned()),
            Err(error) => (false, format!("the API server is not ready: {error}")),
        }
    }

    async fn tell_health(&self, well: bool, message: &str) -> Result<(), CallError> {
        let reason = if well { "ApiServerReady" } else { "ApiServerNotReady" };
        let message: String = message.chars().take(1000).collect();
        let mut condition = Condition::new(HEALTHY, well, reason, message, Timestamp::now());
        let found = call(self.api().get(&self.name)).await?;
        let before = found.status.map(|s| s.conditions).unwrap_or_default();
        if let Some(old) = find(&before, HEALTHY).filter(|old| old.status == condition.status) {
            condition.last_transition_time.clone_from(&old.last_transition_time);
        }
        self.patch(HEALTH_MANAGER, &json!({ "conditions": [condition] })).await?;
        Ok(())
    }

    /// The reason of the condition Ready, if that is True.
    pub async fn ready(&self) -> Result<Option<String>, CallError> {
        let cluster = call(self.api().get(&self.name)).await?;
        let conditions = cluster.status.map(|status| status.conditions).unwrap_or_default();
        Ok(find(&conditions, READY).filter(|ready| ready.is_true()).map(|ready| ready.reason.clone()))
    }

    /// Asks the control plane to forget this cluster, and waits until it has: our rights are gone then. It ends sooner
    /// when `stays` does, which says that the request was taken back; what was asked here is not, see [`Self::stay`].
    pub async fn leave(&self, stays: impl Future<Output = ()>) -> Result<Goodbye, CallError> {
        tokio::select! {
            goodbye = self.say_goodbye() => goodbye,
            () = stays => Ok(Goodbye::TakenBack),
        }
    }

    async fn say_goodbye(&self) -> Result<Goodbye, CallError> {
        let mut heard = false;
        loop {
            match self.patch(LEAVE_MANAGER, &json!({ "leaveRequested": true })).await {
                Ok(_) => heard = true,
                Err(e) if e.is_not_found() => return Ok(Goodbye::Forgotten),
                Err(e) if [Some(401), Some(403)].contains(&e.code()) => {
                    return Ok(if heard { Goodbye::Forgotten } else { Goodbye::Refused });
                }
                Err(e) => return Err(e),
            }
            tokio::time::sleep(LEAVE_LOOK).await;
        }
    }

    /// Takes back what an uninstall that was given up has asked of the control plane, which would else forget this
    /// cluster whenever it comes to that. Ends when nothing of it stands there, or we may not say so.
    pub async fn stay(self) {
        // What timed out for us may be heard up to a minute later.
        for wait in [None, Some(HEARD_LATE)] {
            tokio::time::sleep(wait.unwrap_or_default()).await;
            while let Err(error) = self.take_back().await {
                if [Some(401), Some(403), Some(404)].contains(&error.code()) {
                    return;
                }
                tracing::debug!(%error, "whether a wish to leave stands there");
                tokio::time::sleep(jittered(5 * LEAVE_LOOK, 0.5)).await;
            }
        }
    }

    async fn take_back(&self) -> Result<(), CallError> {
        let found = call(self.api().get(&self.name)).await?;
        if found.status.and_then(|status| status.leave_requested) == Some(true) {
            // What a manager no longer applies, and nobody else does, the server removes.
            self.patch(LEAVE_MANAGER, &json!({})).await?;
            tracing::info!("the cluster stays: the request to leave was taken back");
        }
        Ok(())
    }
}

/// The status that the agent owns. Above [`NODES`] nodes the maps by node are left out: the object would near what etcd
/// takes.
fn status_of(snapshot: &Snapshot, version: Option<&ServiceVersion>, now: Timestamp) -> Value {
    let facts = &snapshot.facts;
    // One program serves several lines of the service: what it is part of and what it was built as are two things.
    let build = concat!("v", env!("CARGO_PKG_VERSION"));
    let mut observed = json!({
        "gitVersion": snapshot.git_version,
        "kubernetescluster": facts.kubernetes_cluster,
        "provider": facts.provider,
        "region": facts.region,
        "zones": facts.zones,
        "agentVersion": version.map_or_else(|| build.to_owned(), ToString::to_string),
        "agentBuild": build,
        "nodeCount": snapshot.allocatable.len(),
    });
    let mut status = json!({
        "autoscaled": snapshot.autoscaled,
        "lastUpdateTime": Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
    });
    if snapshot.allocatable.len() <= NODES {
        status["availableResources"] = json!(printed(&snapshot.available));
        status["capacityResources"] = json!(snapshot.capacity);
        status["nodeTaints"] = json!(snapshot.taints);
    } else {
        observed["totals"] = json!(totals(&snapshot.available));
    }
    status["observed"] = observed;
    status
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::agent::inventory::nodes::Amounts;
    use crate::agent::test_api;

    #[tokio::test]
    async fn a_wish_to_leave_is_taken_back_from_the_control_plane() {
        let wish = Arc::new(Mutex::new((String::new(), Value::Null)));
        let heard = Arc::clone(&wish);
        let hub = test_api::api(move |uri, brought| {
            let mut wish = heard.lock().unwrap();
            if brought.is_object() {
                *wish = (uri.query().unwrap_or_default().to_owned(), brought["status"].clone());
            }
            json!({
                "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
                "metadata": { "name": "west" }, "spec": { "name": "west" }, "status": wish.1,
            })
        });
        let reporter = Reporter {
            hub: hub.clone(),
            local: hub,
            name: "west".to_owned(),
            overrides: Overrides::default(),
            version: None,
            pulse: watch::channel(Pulse::Beating).1,
            metrics: Metrics::default(),
        };
        let stays = tokio::time::sleep(Duration::from_millis(200));
        assert_eq!(reporter.leave(stays).await.unwrap(), Goodbye::TakenBack);
        let (by, status) = wish.lock().unwrap().clone();
        assert_eq!(status, json!({ "leaveRequested": true }));
        reporter.take_back().await.unwrap();
        // The same manager applies nothing now: that is how the server removes it.
        assert_eq!(*wish.lock().unwrap(), (by.clone(), json!({})));
        *wish.lock().unwrap() = (String::new(), json!({ "leaveRequested": false }));
        reporter.take_back().await.unwrap();
        assert_eq!(wish.lock().unwrap().0, "", "nothing is written where nothing stands");
    }

    fn snapshot(nodes: usize) -> Snapshot {
        let all: std::collections::BTreeMap<_, _> =
            (0..nodes).map(|i| (format!("n{i}"), Amounts::from([("cpu".to_owned(), 1000)]))).collect();
        Snapshot { available: all.clone(), allocatable: all, ..Snapshot::default() }
    }

    #[test]
    fn a_large_cluster_is_told_in_sums() {
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
    fn an_agent_says_as_what_it_was_installed_and_as_what_it_was_built() {
        let build = concat!("v", env!("CARGO_PKG_VERSION"));
        let now = Timestamp::from_second(0).unwrap();
        let installed = "v1.1.0".parse().unwrap();
        for (version, said) in [(None, build), (Some(&installed), "v1.1.0")] {
            let status = status_of(&snapshot(1), version, now);
            assert_eq!(status["observed"]["agentVersion"], said);
            assert_eq!(status["observed"]["agentBuild"], build);
        }
    }

    #[test]
    fn a_cluster_without_nodes_says_so_with_empty_maps() {
        let none = status_of(&snapshot(0), None, Timestamp::from_second(0).unwrap());
        assert_eq!(none["availableResources"], json!({}));
        assert_eq!(none["observed"]["nodeCount"], 0);
    }
}
