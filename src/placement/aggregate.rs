//! The status of a source from the statuses of its copies.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::canonical::canonical;

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
    fn number(&self, field: &str) -> i64 {
        self.get(field).and_then(Value::as_i64).unwrap_or_default()
    }

    fn get(&self, field: &str) -> Option<&Value> {
        self.status.as_ref()?.get(field)
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.get(field)?.as_str()
    }

    fn condition(&self, kind: &str) -> Option<&Value> {
        self.get("conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
    }

    fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition["status"] == "True")
    }

    /// Returns whether the controller there has seen the newest generation.
    fn has_observed(&self) -> bool {
        self.applied
            && self.get("observedGeneration").and_then(Value::as_i64).is_some_and(|seen| seen >= self.generation)
    }
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
    pub fn status(&self) -> Map<String, Value> {
        let mut status = Map::new();
        if let Some(fields) = replica_fields(self.kind) {
            self.replicas(fields, &mut status);
        }
        if let Some((_, fields)) = SUMS.iter().find(|(kind, _)| *kind == self.kind) {
            self.sum(fields, &mut status);
        }
        match self.kind {
            "Job" => self.job(&mut status),
            "CronJob" => self.cron_job(&mut status),
            "Pod" => self.pod(&mut status),
            "Service" | "Ingress" => self.addresses(&mut status),
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

    fn sum(&self, fields: &[&str], status: &mut Map<String, Value>) {
        for field in fields {
            let numbers = self.copies.iter().map(|copy| copy.number(field));
            status.insert((*field).to_owned(), numbers.fold(0, i64::saturating_add).into());
        }
    }

    /// Sums; of whole copies the largest number of pods and of missing ones, and the smallest of everything good.
    fn replicas(&self, fields: &[&str], status: &mut Map<String, Value>) {
        self.sum(fields, status);
        if self.duplicate {
            for field in fields {
                let numbers = self.copies.iter().map(|copy| copy.number(field));
                let worst =
                    if ["replicas", "unavailableReplicas"].contains(field) { numbers.max() } else { numbers.min() };
                status.insert((*field).to_owned(), worst.unwrap_or_default().into());
            }
        }
        if self.withheld > 0 && fields.contains(&"unavailableReplicas") {
            let missing = status["unavailableReplicas"].as_i64().unwrap_or_default().saturating_add(self.withheld);
            status.insert("unavailableReplicas".to_owned(), missing.into());
        }
        let conditions = self.conditions();
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), conditions.into());
        }
    }

    /// Available if all copies are and nothing is withheld; Progressing unless one is not. Absent while no copy has any.
    fn conditions(&self) -> Vec<Value> {
        let mut conditions = Vec::new();
        let has = |kind: &str| self.copies.iter().any(|copy| copy.condition(kind).is_some());
        if has("Available") {
            let lacking: Vec<&str> = self
                .copies
                .iter()
                .filter(|copy| !copy.is_true("Available"))
                .map(|copy| copy.cluster.as_str())
                .collect();
            let message = match (lacking.as_slice(), self.withheld) {
                ([], 0) => String::new(),
                ([], withheld) => format!("{withheld} replicas have room in no cluster"),
                (clusters, _) => format!("not available on {}", clusters.join(", ")),
            };
            conditions.push(condition("Available", message.is_empty(), &message));
        }
        if has("Progressing") {
            let is_false =
                |copy: &&CopyStatus| copy.condition("Progressing").is_some_and(|one| one["status"] == "False");
            let stuck: Vec<&str> = self.copies.iter().filter(is_false).map(|copy| copy.cluster.as_str()).collect();
            let message = if stuck.is_empty() { String::new() } else { format!("stuck on {}", stuck.join(", ")) };
            conditions.push(condition("Progressing", stuck.is_empty(), &message));
        }
        conditions
    }

    /// Earliest start; Failed if one is, Complete with the latest completion if all are.
    fn job(&self, status: &mut Map<String, Value>) {
        let times = |field: &'static str| self.copies.iter().filter_map(move |copy| copy.text(field));
        if let Some(start) = times("startTime").min() {
            status.insert("startTime".to_owned(), start.into());
        }
        let failed: Vec<&str> =
            self.copies.iter().filter(|copy| copy.is_true("Failed")).map(|copy| copy.cluster.as_str()).collect();
        if !failed.is_empty() {
            let message = format!("on {}", failed.join(", "));
            status.insert("conditions".to_owned(), json!([condition("Failed", true, &message)]));
        } else if !self.copies.is_empty() && self.copies.iter().all(|copy| copy.is_true("Complete")) {
            status.insert("conditions".to_owned(), json!([condition("Complete", true, "")]));
            if let Some(end) = times("completionTime").max() {
                status.insert("completionTime".to_owned(), end.into());
            }
        }
    }

    fn cron_job(&self, status: &mut Map<String, Value>) {
        let active = self.copies.iter().filter_map(|copy| copy.get("active")?.as_array()).flatten();
        status.insert("active".to_owned(), active.cloned().collect());
        for field in ["lastScheduleTime", "lastSuccessfulTime"] {
            if let Some(latest) = self.copies.iter().filter_map(|copy| copy.text(field)).max() {
                status.insert(field.to_owned(), latest.into());
            }
        }
    }

    fn pod(&self, status: &mut Map<String, Value>) {
        let phases = ["Failed", "Unknown", "Pending", "Running", "Succeeded"];
        status.extend(self.first_phase(&phases).map(|phase| ("phase".to_owned(), phase)));
        let ready = !self.copies.is_empty() && self.copies.iter().all(|copy| copy.is_true("Ready"));
        status.insert("conditions".to_owned(), json!([condition("Ready", ready, "")]));
    }

    /// The first of the phases that a copy is in.
    fn first_phase(&self, phases: &[&str]) -> Option<Value> {
        let is_one = |phase: &&&str| self.copies.iter().any(|copy| copy.text("phase") == Some(**phase));
        phases.iter().find(is_one).map(|phase| Value::from(*phase))
    }

    /// The addresses of all copies, each once.
    fn addresses(&self, status: &mut Map<String, Value>) {
        let of = |copy: &CopyStatus| {
            let ingress = copy.status.as_ref().and_then(|status| status.pointer("/loadBalancer/ingress"));
            ingress.and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let mut seen = BTreeSet::new();
        let mut all: Vec<(String, Value)> = self.copies.iter().flat_map(of).map(|one| (canonical(&one), one)).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.retain(|(text, _)| seen.insert(text.clone()));
        let ingress: Vec<Value> = all.into_iter().map(|(_, address)| address).collect();
        status.insert("loadBalancer".to_owned(), json!({ "ingress": ingress }));
    }
}

fn condition(kind: &str, holds: bool, message: &str) -> Value {
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
        Source { kind, generation: 1, duplicate: false, withheld, copies }.status().into()
    }

    #[test]
    fn withheld_replicas_are_missing_ones() {
        let available = json!({ "replicas": 2, "unavailableReplicas": 0, "conditions": [{ "type": "Available", "status": "True" }] });
        let found = status("Deployment", 3, &[copy("a", available)]);
        assert_eq!(found["unavailableReplicas"], 3);
        assert_eq!(found["conditions"][0]["message"], "3 replicas have room in no cluster");
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
