//! The status of a source from the statuses of its copies.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::canonical::to_canonical_json;

/// Report of one cluster on its copy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CopyStatus {
    /// The cluster.
    pub cluster: String,
    /// Whether the copy of the source's newest generation is applied.
    pub applied: bool,
    /// Generation of the copy in its cluster.
    pub generation: i64,
    /// Its status; absent while it has not reported.
    pub status: Option<Value>,
}

impl CopyStatus {
    /// A count as the API server takes it: 0 to 2³¹ − 1, and not more than the count that it is a part of.
    fn count_field(&self, kind: &str, field: &str) -> i64 {
        let own = self.status_field(field).and_then(Value::as_i64).unwrap_or_default().clamp(0, MOST);
        enclosing_count(kind, field).map_or(own, |whole| own.min(self.count_field(kind, whole)))
    }

    /// A time as Kubernetes writes times.
    fn time_field(&self, field: &str) -> Option<&str> {
        self.text_field(field).filter(|text| text.len() <= 64 && text.parse::<Timestamp>().is_ok())
    }

    fn status_field(&self, field: &str) -> Option<&Value> {
        self.status.as_ref()?.get(field)
    }

    fn text_field(&self, field: &str) -> Option<&str> {
        self.status_field(field)?.as_str()
    }

    fn reported_condition(&self, kind: &str) -> Option<&Value> {
        self.status_field("conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
    }

    fn is_true(&self, kind: &str) -> bool {
        self.reported_condition(kind).is_some_and(|condition| condition["status"] == "True")
    }

    /// Returns whether the controller there has seen the newest generation.
    fn has_observed(&self) -> bool {
        self.applied
            && self
                .status_field("observedGeneration")
                .and_then(Value::as_i64)
                .is_some_and(|seen| seen >= self.generation)
    }
}

/// Largest count of Kubernetes.
const MOST: i64 = i32::MAX as i64;
/// Most addresses of a source, and most Jobs of a CronJob.
const LIST: usize = 100;

/// Returns the count that another is a part of.
fn enclosing_count(kind: &str, field: &str) -> Option<&'static str> {
    match (kind, field) {
        ("Job", "ready") => Some("active"),
        ("Deployment" | "StatefulSet" | "ReplicaSet", "availableReplicas") => Some("readyReplicas"),
        (
            "Deployment" | "StatefulSet" | "ReplicaSet",
            "updatedReplicas" | "readyReplicas" | "currentReplicas" | "fullyLabeledReplicas",
        ) => Some("replicas"),
        _ => None,
    }
}

/// Returns the fields of an address that the API server takes; `None` for one that is none.
fn sanitize_address(found: &Value) -> Option<Value> {
    let text = |field: &str| found.get(field).and_then(Value::as_str);
    let mut address = Map::new();
    if let Some(ip) = text("ip").filter(|ip| ip.parse::<IpAddr>().is_ok()) {
        address.insert("ip".to_owned(), ip.into());
        let mode = text("ipMode").filter(|mode| ["VIP", "Proxy"].contains(mode));
        address.extend(mode.map(|mode| ("ipMode".to_owned(), mode.into())));
    }
    if let Some(host) = text("hostname").filter(|host| is_host(host)) {
        address.insert("hostname".to_owned(), host.into());
    }
    if address.is_empty() {
        return None;
    }
    let port = |port: &Value| {
        let number = port.get("port").and_then(Value::as_i64).filter(|number| (1..=65535).contains(number))?;
        let protocol = port.get("protocol").and_then(Value::as_str);
        let protocol = protocol.filter(|protocol| ["TCP", "UDP", "SCTP"].contains(protocol))?;
        Some(json!({ "port": number, "protocol": protocol }))
    };
    let ports: Vec<Value> =
        found.get("ports").and_then(Value::as_array).into_iter().flatten().filter_map(port).take(LIST).collect();
    if !ports.is_empty() {
        address.insert("ports".to_owned(), ports.into());
    }
    Some(Value::Object(address))
}

/// Returns whether a text is a name of a host, as Kubernetes takes it.
fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let bytes = label.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label) && text.parse::<IpAddr>().is_err()
}

/// Returns the texts of a reference to a Job.
fn sanitize_job_reference(found: &Value) -> Option<Value> {
    let fields = ["apiVersion", "kind", "namespace", "name", "uid", "resourceVersion"];
    let text = |field: &str| Some((field.to_owned(), Value::from(found.get(field)?.as_str()?)));
    found.is_object().then(|| fields.into_iter().filter_map(text).collect::<Map<_, _>>().into())
}

/// A source and its copies.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Kind of the source.
    pub kind: &'a str,
    /// Generation of the source.
    pub generation: i64,
    /// Whether each copy is the whole of it.
    pub duplicate: bool,
    /// Replicas that no cluster gets.
    pub withheld: i64,
    /// Reports on the copies, one for each target.
    pub copies: &'a [CopyStatus],
}

/// Fields that are added up, by kind.
const SUMS: [(&str, &[&str]); 4] = [
    (
        "DaemonSet",
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ],
    ),
    ("PodDisruptionBudget", &["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"]),
    ("HorizontalPodAutoscaler", &["currentReplicas", "desiredReplicas"]),
    ("Job", &["active", "succeeded", "failed", "ready"]),
];

fn replica_fields(kind: &str) -> Option<&'static [&'static str]> {
    match kind {
        "Deployment" => {
            Some(&["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"])
        }
        "StatefulSet" => {
            Some(&["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas"])
        }
        "ReplicaSet" => Some(&["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"]),
        _ => None,
    }
}

impl Source<'_> {
    /// Returns the fields of the source's status; empty for kinds whose status the group's conditions stand for.
    pub fn aggregate_status(&self) -> Map<String, Value> {
        let mut status = Map::new();
        if let Some(fields) = replica_fields(self.kind) {
            self.aggregate_replicas(fields, &mut status);
        }
        if let Some((_, fields)) = SUMS.iter().find(|(kind, _)| *kind == self.kind) {
            self.sum_fields(fields, &mut status);
        }
        match self.kind {
            "Job" => self.aggregate_job(&mut status),
            "CronJob" => self.cron_job(&mut status),
            "Pod" => self.aggregate_pod(&mut status),
            "Service" | "Ingress" => self.aggregate_addresses(&mut status),
            "PersistentVolumeClaim" => {
                status.extend(self.first_phase(&["Lost", "Pending", "Bound"]).map(|phase| ("phase".to_owned(), phase)));
            }
            _ => {}
        }
        let observes = replica_fields(self.kind).is_some()
            || ["DaemonSet", "PodDisruptionBudget", "HorizontalPodAutoscaler"].contains(&self.kind);
        if observes && !self.copies.is_empty() && self.copies.iter().all(CopyStatus::has_observed) {
            status.insert("observedGeneration".to_owned(), self.generation.into());
        }
        status
    }

    fn sum_fields(&self, fields: &[&str], status: &mut Map<String, Value>) {
        for field in fields {
            let numbers = self.copies.iter().map(|copy| copy.count_field(self.kind, field));
            let sum = numbers.fold(0, i64::saturating_add).min(MOST);
            status.insert((*field).to_owned(), sum.into());
        }
    }

    /// Sums; of whole copies the largest number of pods and of missing ones, and the smallest of everything good.
    fn aggregate_replicas(&self, fields: &[&str], status: &mut Map<String, Value>) {
        self.sum_fields(fields, status);
        if self.duplicate {
            for field in fields {
                let numbers = self.copies.iter().map(|copy| copy.count_field(self.kind, field));
                let worst =
                    if ["replicas", "unavailableReplicas"].contains(field) { numbers.max() } else { numbers.min() };
                status.insert((*field).to_owned(), worst.unwrap_or_default().into());
            }
        }
        if self.withheld > 0 && fields.contains(&"unavailableReplicas") {
            let missing = status["unavailableReplicas"].as_i64().unwrap_or_default().saturating_add(self.withheld);
            status.insert("unavailableReplicas".to_owned(), missing.min(MOST).into());
        }
        let conditions = self.aggregate_conditions();
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), conditions.into());
        }
    }

    /// Available if all copies are and nothing is withheld; Progressing unless one is not. Absent while no copy has any.
    fn aggregate_conditions(&self) -> Vec<Value> {
        let mut conditions = Vec::new();
        let has = |kind: &str| self.copies.iter().any(|copy| copy.reported_condition(kind).is_some());
        if has("Available") {
            let lacking: Vec<&str> = self
                .copies
                .iter()
                .filter(|copy| !copy.is_true("Available"))
                .map(|copy| copy.cluster.as_str())
                .collect();
            let message = match (lacking.as_slice(), self.withheld) {
                ([], 0) => String::new(),
                ([], withheld) => format!("no cluster has room for {withheld} replicas"),
                (clusters, _) => format!("not available on {}", clusters.join(", ")),
            };
            conditions.push(condition_json("Available", message.is_empty(), &message));
        }
        if has("Progressing") {
            let is_false =
                |copy: &&CopyStatus| copy.reported_condition("Progressing").is_some_and(|one| one["status"] == "False");
            let stuck: Vec<&str> = self.copies.iter().filter(is_false).map(|copy| copy.cluster.as_str()).collect();
            let message = if stuck.is_empty() { String::new() } else { format!("stuck on {}", stuck.join(", ")) };
            conditions.push(condition_json("Progressing", stuck.is_empty(), &message));
        }
        conditions
    }

    /// Earliest start; Failed if one is, Complete with the latest completion if all are.
    fn aggregate_job(&self, status: &mut Map<String, Value>) {
        let times = |field: &'static str| self.copies.iter().filter_map(move |copy| copy.time_field(field));
        if let Some(start) = times("startTime").min() {
            status.insert("startTime".to_owned(), start.into());
        }
        let failed: Vec<&str> =
            self.copies.iter().filter(|copy| copy.is_true("Failed")).map(|copy| copy.cluster.as_str()).collect();
        if !failed.is_empty() {
            let message = format!("on {}", failed.join(", "));
            status.insert("conditions".to_owned(), json!([condition_json("Failed", true, &message)]));
        } else if !self.copies.is_empty() && self.copies.iter().all(|copy| copy.is_true("Complete")) {
            status.insert("conditions".to_owned(), json!([condition_json("Complete", true, "")]));
            if let Some(end) = times("completionTime").max() {
                status.insert("completionTime".to_owned(), end.into());
            }
        }
    }

    fn cron_job(&self, status: &mut Map<String, Value>) {
        let active = self.copies.iter().filter_map(|copy| copy.status_field("active")?.as_array()).flatten();
        status.insert("active".to_owned(), active.filter_map(sanitize_job_reference).take(LIST).collect());
        for field in ["lastScheduleTime", "lastSuccessfulTime"] {
            if let Some(latest) = self.copies.iter().filter_map(|copy| copy.time_field(field)).max() {
                status.insert(field.to_owned(), latest.into());
            }
        }
    }

    fn aggregate_pod(&self, status: &mut Map<String, Value>) {
        let phases = ["Failed", "Unknown", "Pending", "Running", "Succeeded"];
        status.extend(self.first_phase(&phases).map(|phase| ("phase".to_owned(), phase)));
        let ready = !self.copies.is_empty() && self.copies.iter().all(|copy| copy.is_true("Ready"));
        status.insert("conditions".to_owned(), json!([condition_json("Ready", ready, "")]));
    }

    /// The first of the phases that a copy is in.
    fn first_phase(&self, phases: &[&str]) -> Option<Value> {
        let is_one = |phase: &&&str| self.copies.iter().any(|copy| copy.text_field("phase") == Some(**phase));
        phases.iter().find(is_one).map(|phase| Value::from(*phase))
    }

    /// The addresses of all copies, each once.
    fn aggregate_addresses(&self, status: &mut Map<String, Value>) {
        let of = |copy: &CopyStatus| {
            let ingress = copy.status.as_ref().and_then(|status| status.pointer("/loadBalancer/ingress"));
            ingress.and_then(Value::as_array).into_iter().flatten().filter_map(sanitize_address).collect::<Vec<_>>()
        };
        let mut seen = BTreeSet::new();
        let mut all: Vec<(String, Value)> =
            self.copies.iter().flat_map(of).map(|one| (to_canonical_json(&one), one)).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.retain(|(text, _)| seen.insert(text.clone()));
        let ingress: Vec<Value> = all.into_iter().map(|(_, address)| address).take(LIST).collect();
        status.insert("loadBalancer".to_owned(), json!({ "ingress": ingress }));
    }
}

fn condition_json(kind: &str, holds: bool, message: &str) -> Value {
    let mut condition = json!({ "type": kind, "status": if holds { "True" } else { "False" } });
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(cluster: &str, status: Value) -> CopyStatus {
        CopyStatus { cluster: cluster.to_owned(), applied: true, generation: 1, status: Some(status) }
    }

    fn status(kind: &str, withheld: i64, copies: &[CopyStatus]) -> Value {
        Source { kind, generation: 1, duplicate: false, withheld, copies }.aggregate_status().into()
    }

    #[test]
    fn withheld_replicas_are_missing_ones() {
        let available = json!({ "replicas": 2, "unavailableReplicas": 0, "conditions": [{ "type": "Available", "status": "True" }] });
        let found = status("Deployment", 3, &[copy("a", available)]);
        assert_eq!(found["unavailableReplicas"], 3);
        assert_eq!(found["conditions"][0]["message"], "no cluster has room for 3 replicas");
        assert_eq!(found["conditions"][0]["status"], "False");
    }

    #[test]
    fn one_copy_that_is_stuck_is_enough() {
        let progressing = |is: &str| json!({ "conditions": [{ "type": "Progressing", "status": is }] });
        let found = status("Deployment", 0, &[copy("a", progressing("True")), copy("b", progressing("False"))]);
        assert_eq!(found["conditions"], json!([{ "type": "Progressing", "status": "False", "message": "stuck on b" }]));
    }

    #[test]
    fn the_worst_pod_counts() {
        let pod = |phase: &str| json!({ "phase": phase, "conditions": [{ "type": "Ready", "status": "True" }] });
        let found = status("Pod", 0, &[copy("a", pod("Running")), copy("b", pod("Pending"))]);
        assert_eq!(
            (found["phase"].as_str(), found["conditions"][0]["status"].as_str()),
            (Some("Pending"), Some("True"))
        );
        assert_eq!(status("Pod", 0, &[])["conditions"][0]["status"], "False");
    }

    #[test]
    fn one_agents_nonsense_leaves_a_status_that_the_api_server_takes() {
        let good = || copy("a", json!({ "replicas": 2, "readyReplicas": 2, "availableReplicas": 2 }));
        let most = i64::from(i32::MAX);
        for (bad, replicas, ready, available) in [
            (json!({ "replicas": -7, "readyReplicas": -1 }), 2, 2, 2),
            (json!({ "replicas": 9_000_000_000_000_000_000_i64, "readyReplicas": i64::MAX }), most, most, 2),
            (json!({ "replicas": 1, "readyReplicas": 5, "availableReplicas": 9 }), 3, 3, 3),
            (json!({ "replicas": "x", "readyReplicas": { "a": 1 } }), 2, 2, 2),
        ] {
            for kind in ["Deployment", "StatefulSet", "ReplicaSet"] {
                let found = status(kind, 0, &[good(), copy("b", bad.clone())]);
                let of = |field: &str| found[field].as_i64().unwrap();
                let numbers = [of("replicas"), of("readyReplicas"), of("availableReplicas")];
                assert_eq!(numbers, [replicas, ready, available], "{kind} {bad}");
            }
        }
        let lost = status("Deployment", i64::MAX, &[copy("b", json!({ "unavailableReplicas": 5 }))]);
        assert_eq!(lost["unavailableReplicas"], most);
        let job = json!({ "ready": 9, "active": 2, "failed": -3, "startTime": "never", "succeeded": 1e30 });
        assert_eq!(
            status("Job", 0, &[copy("b", job)]),
            json!({ "ready": 2, "active": 2, "failed": 0, "succeeded": 0 })
        );
        let ingress = json!([{ "ip": "6.6.6.6", "x": 1 }, { "ip": "no" }, { "hostname": "a..b" }, 5, { "ip": 5 },
            { "hostname": "lb.example.com", "ports": [{ "port": 80, "protocol": "TCP" }, { "port": 99999 }] }]);
        let found = status("Service", 0, &[copy("b", json!({ "loadBalancer": { "ingress": ingress } }))]);
        let expected = json!([{ "hostname": "lb.example.com", "ports": [{ "port": 80, "protocol": "TCP" }] },
            { "ip": "6.6.6.6" }]);
        assert_eq!(found["loadBalancer"]["ingress"], expected);
        let many: Vec<Value> = (0..500).map(|n| json!({ "ip": format!("10.0.{}.{}", n / 250, n % 250) })).collect();
        let found = status("Service", 0, &[copy("b", json!({ "loadBalancer": { "ingress": many } }))]);
        assert_eq!(found["loadBalancer"]["ingress"].as_array().unwrap().len(), 100);
        let active = json!({ "active": [5, { "name": "j", "uid": 3 }], "lastScheduleTime": "9999-99-99" });
        assert_eq!(status("CronJob", 0, &[copy("b", active)]), json!({ "active": [{ "name": "j" }] }));
    }

    #[test]
    fn cron_jobs_have_the_latest_times() {
        let cron = |time: &str| json!({ "active": [{}], "lastScheduleTime": time });
        let found =
            status("CronJob", 0, &[copy("a", cron("2026-01-02T00:00:00Z")), copy("b", cron("2026-01-01T00:00:00Z"))]);
        assert_eq!(found, json!({ "active": [{}, {}], "lastScheduleTime": "2026-01-02T00:00:00Z" }));
    }

    #[test]
    fn other_kinds_have_no_status() {
        assert_eq!(status("ConfigMap", 0, &[copy("a", json!({ "x": 1 }))]), json!({}));
    }
}
