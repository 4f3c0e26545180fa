//! Status of Deployments, StatefulSets and ReplicaSets.

use serde_json::{Map, Value, json};

use super::Serving;
use super::conditions::{self, Deciding, decided_condition, reports};
use super::copy::CopyStatus;
use super::typed::MOST;
use crate::api::names::is_subdomain;

/// Returns the counts of a kind.
pub(super) fn replica_fields(kind: &str) -> Option<&'static [&'static str]> {
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

/// Returns the counts of a kind that not every Kubernetes reports.
pub(super) fn optional_replica_fields(kind: &str) -> &'static [&'static str] {
    match kind {
        "Deployment" | "ReplicaSet" => &["terminatingReplicas"],
        _ => &[],
    }
}

/// Counts of which the larger one is the worse.
const WORSE_IF_LARGER: [&str; 3] = ["replicas", "unavailableReplicas", "terminatingReplicas"];

impl Serving<'_> {
    /// Sums; of whole copies the largest number of pods and of missing ones, and the smallest of everything good.
    pub(super) fn aggregate_replicas(&self, fields: &[&str], status: &mut Map<String, Value>) {
        self.sum_fields(fields, status);
        let optional = optional_replica_fields(self.source.kind);
        self.sum_optional_fields(optional, status);
        if self.source.duplicate {
            for field in fields.iter().chain(optional) {
                let Some(count) = status.get_mut(*field) else { continue };
                let numbers = self.copies.iter().map(|copy| copy.count_field(self.source.kind, field));
                let worst = if WORSE_IF_LARGER.contains(field) { numbers.max() } else { numbers.min() };
                *count = worst.unwrap_or_default().into();
            }
        }
        let withheld = self.source.withheld;
        if withheld > 0 && fields.contains(&"unavailableReplicas") {
            let missing = status["unavailableReplicas"].as_i64().unwrap_or_default().saturating_add(withheld);
            status.insert("unavailableReplicas".to_owned(), missing.min(MOST).into());
        }
        self.show_asked_replicas(fields, status);
        let mut all = match self.source.kind {
            "Deployment" => self.deployment_conditions(),
            _ => conditions::merge_conditions(&self.copies),
        };
        conditions::replace_lost(&mut all, &self.copies);
        conditions::insert_conditions(status, all);
        if self.source.kind == "StatefulSet" {
            self.aggregate_revisions(status);
        }
    }

    /// Shows the replicas that the source asks for where an autoscaler has set others and all pods of these run. In one cluster
    /// the autoscaler sets them in the source; here tools would wait for ever for the number that the source has.
    fn show_asked_replicas(&self, fields: &[&str], status: &mut Map<String, Value>) {
        let asked = self.copies.iter().find_map(|copy| copy.asked).filter(|asked| *asked > 0);
        let (Some(asked), Some(count)) = (asked, status["replicas"].as_i64().filter(|count| *count > 0)) else {
            return;
        };
        let is_missing = |field: &str| field == "unavailableReplicas";
        let is_complete = fields.iter().all(|field| status[*field] == if is_missing(field) { 0 } else { count });
        if is_complete && self.copies.iter().all(|copy| copy.has_observed()) {
            let counts = fields.iter().filter(|field| !is_missing(field));
            status.extend(counts.map(|field| ((*field).to_owned(), asked.min(MOST).into())));
        }
    }

    /// Available if all copies are and nothing is withheld; Progressing complete if it is everywhere, and failed if it is
    /// anywhere; ReplicaFailure if there is one.
    fn deployment_conditions(&self) -> Vec<Value> {
        [self.available_condition(), self.progressing_condition(), self.failure_condition()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn available_condition(&self) -> Option<Value> {
        let all = reports(&self.copies, "Available");
        if all.is_empty() {
            return None;
        }
        let (good, mut bad): (Deciding<'_>, Deciding<'_>) = all.into_iter().partition(|(_, one)| one.is_true());
        if bad.is_empty() && good.len() == self.copies.len() {
            let mut condition = decided_condition("Available", "True", &good, self.copies.len());
            if self.source.withheld > 0 {
                condition["status"] = "False".into();
                condition["reason"] = "MinimumReplicasUnavailable".into();
                condition["message"] = format!("no cluster has room for {} replicas", self.source.withheld).into();
            }
            return Some(condition);
        }
        let silent: Vec<&str> = self.silent_clusters("Available");
        if !bad.is_empty() {
            bad.sort_by_key(|(_, one)| one.status != "False");
            return Some(decided_condition("Available", "False", &bad, self.copies.len()));
        }
        Some(json!({ "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable",
            "message": format!("no report from {} yet", silent.join(", ")) }))
    }

    fn progressing_condition(&self) -> Option<Value> {
        const COMPLETE: &str = "NewReplicaSetAvailable";
        let all = reports(&self.copies, "Progressing");
        let count = self.copies.len();
        let [mut failed, unknown] = ["False", "Unknown"]
            .map(|status| all.iter().filter(|(_, one)| one.status == status).cloned().collect::<Deciding<'_>>());
        if !failed.is_empty() {
            failed.sort_by_key(|(_, one)| one.reason.as_deref() != Some("ProgressDeadlineExceeded"));
            return Some(decided_condition("Progressing", "False", &failed, count));
        }
        if !unknown.is_empty() {
            return Some(decided_condition("Progressing", "Unknown", &unknown, count));
        }
        let (complete, at_work): (Deciding<'_>, Deciding<'_>) =
            all.into_iter().partition(|(_, one)| one.reason.as_deref() == Some(COMPLETE));
        if !at_work.is_empty() {
            return Some(decided_condition("Progressing", "True", &at_work, count));
        }
        if complete.is_empty() {
            return None;
        }
        let mut condition = decided_condition("Progressing", "True", &complete, count);
        // One that has no deadline reports nothing, and is not waited for.
        let silent: Vec<&str> =
            self.copies.iter().filter(|copy| copy.status.is_none()).map(|copy| copy.cluster.as_str()).collect();
        if !silent.is_empty() || self.source.withheld > 0 {
            condition["reason"] = "ReplicaSetUpdated".into();
            let missing = format!("no cluster has room for {} replicas", self.source.withheld);
            let message = if silent.is_empty() { missing } else { format!("no report from {} yet", silent.join(", ")) };
            condition["message"] = message.into();
        }
        Some(condition)
    }

    fn failure_condition(&self) -> Option<Value> {
        let failed: Deciding<'_> =
            reports(&self.copies, "ReplicaFailure").into_iter().filter(|(_, one)| one.is_true()).collect();
        (!failed.is_empty()).then(|| decided_condition("ReplicaFailure", "True", &failed, self.copies.len()))
    }

    fn silent_clusters(&self, type_: &str) -> Vec<&str> {
        let silent = self.copies.iter().filter(|copy| copy.reported_condition(type_).is_none());
        silent.map(|copy| copy.cluster.as_str()).take(8).collect()
    }

    /// The revisions of the first copy that is not at its newest one, else of the first.
    fn aggregate_revisions(&self, status: &mut Map<String, Value>) {
        let all: Vec<(String, String)> = self
            .copies
            .iter()
            .filter_map(|copy| Some((read_revision(copy, "currentRevision")?, read_revision(copy, "updateRevision")?)))
            .collect();
        let behind = all.iter().find(|(current, update)| current != update).or(all.first());
        if let Some((current, update)) = behind {
            status.insert("currentRevision".to_owned(), current.as_str().into());
            status.insert("updateRevision".to_owned(), update.as_str().into());
        }
    }
}

/// Returns the name of a revision that a copy reports.
fn read_revision(copy: &CopyStatus, field: &str) -> Option<String> {
    copy.text_field(field).filter(|name| is_subdomain(name)).map(str::to_owned)
}
