//! Report of one cluster on its copy, and which copies stand for a source while it moves.

use serde_json::Value;

use super::typed::{self, MOST};
use crate::api::Schedule;
use crate::placement::copy_state;
use crate::placement::facts::Facts;

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
    /// Whether the source is placed elsewhere by now: the copy is kept until those there are available.
    pub leaving: bool,
    /// Reason that its cluster does not report any more, for people; `None` while it does.
    pub lost: Option<String>,
    /// Replicas that the source asks for, while an autoscaler sets those of the copy; `None` where none does.
    pub asked: Option<i64>,
}

impl CopyStatus {
    /// Reads what a Schedule reports of its copy in a cluster. `applied` counts only for the newest generation of the source;
    /// the report on a Job or Pod of an earlier source of the same name does not count.
    pub fn from_schedule(schedule: &Schedule, cluster: &str, facts: &Facts) -> Self {
        let status = schedule.status.as_ref();
        let reported = status.and_then(|status| status.source_uid.as_deref());
        let is_of_source = reported.is_none_or(|uid| facts.uid.is_empty() || uid == facts.uid);
        let resource = status.and_then(|status| status.resource.as_deref());
        let resource = resource.filter(|_| is_of_source || !facts.workload.runs_once());
        Self {
            cluster: cluster.to_owned(),
            applied: is_of_source
                && copy_state::read_copy_state(schedule, cluster).applied
                && status.and_then(|status| status.applied_generation) == Some(facts.generation),
            generation: status.and_then(|status| status.copy_generation).unwrap_or_default(),
            status: resource.and_then(|text| serde_json::from_str(text).ok()),
            ..Self::default()
        }
    }

    /// A count as the API server takes it: 0 to 2³¹ − 1, and not more than the count that it is a part of.
    pub(super) fn count_field(&self, kind: &str, field: &str) -> i64 {
        let own = self.status_field(field).and_then(Value::as_i64).unwrap_or_default().clamp(0, MOST);
        enclosing_count(kind, field).map_or(own, |whole| own.min(self.count_field(kind, whole)))
    }

    /// A time as Kubernetes writes times.
    pub(super) fn time_field(&self, field: &str) -> Option<String> {
        typed::read_time(self.status_field(field)?)
    }

    pub(super) fn status_field(&self, field: &str) -> Option<&Value> {
        self.status.as_ref()?.get(field)
    }

    pub(super) fn text_field(&self, field: &str) -> Option<&str> {
        self.status_field(field)?.as_str()
    }

    /// Returns whether the controller there has seen the newest generation.
    pub(super) fn has_observed(&self) -> bool {
        let observed = self.status_field("observedGeneration").and_then(Value::as_i64);
        self.applied && observed.is_some_and(|observed| observed >= self.generation)
    }

    /// Returns how well a copy serves, to compare it with others of its kind.
    fn service_rank(&self, kind: &str) -> (i64, i64) {
        if self.lost.is_some() {
            return (0, 0);
        }
        match kind {
            "Deployment" | "StatefulSet" | "ReplicaSet" => {
                (self.count_field(kind, "availableReplicas"), self.count_field(kind, "readyReplicas"))
            }
            "DaemonSet" => (self.count_field(kind, "numberAvailable"), self.count_field(kind, "numberReady")),
            "Job" => (i64::from(self.is_true("Complete")), self.count_field(kind, "succeeded")),
            "Pod" => (i64::from(self.is_true("Ready")), self.phase_rank(&["Pending", "Running", "Succeeded"])),
            "PersistentVolumeClaim" => (self.phase_rank(&["Pending", "Bound"]), 0),
            _ => (i64::from(self.applied && self.status.is_some()), 0),
        }
    }

    fn phase_rank(&self, phases: &[&str]) -> i64 {
        let at = phases.iter().position(|phase| self.text_field("phase") == Some(*phase));
        at.and_then(|at| i64::try_from(at).ok()).map_or(0, |at| at + 1)
    }
}

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

/// Returns the copies that stand for a source, by cluster. While it moves, an old copy stands in for a new one that does not
/// serve as well.
pub(super) fn serving_copies<'a>(kind: &str, copies: &'a [CopyStatus]) -> Vec<&'a CopyStatus> {
    let (mut old, mut serving): (Vec<&CopyStatus>, Vec<&CopyStatus>) = copies.iter().partition(|copy| copy.leaving);
    if serving.is_empty() {
        std::mem::swap(&mut old, &mut serving);
    }
    old.sort_by_key(|copy| std::cmp::Reverse(copy.service_rank(kind)));
    serving.sort_by_key(|copy| copy.service_rank(kind));
    for (new, old) in serving.iter_mut().zip(old) {
        if old.service_rank(kind) > new.service_rank(kind) {
            *new = old;
        }
    }
    serving.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    serving
}
