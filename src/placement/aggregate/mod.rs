//! The status of a source from the statuses of its copies: what they say, whole.
//!
//! [`CopyStatus`] is what one cluster reports. [`Source::aggregate_status`] makes one status of all of them, kind by
//! kind: counts are clamped and added up, conditions have the reason, message and times of the copies that decide them.
//! [`Source::status_to_write`] compares it with what the source has, keeps what must not be withdrawn, and completes
//! what an API server demands.

mod added;
mod addresses;
mod compare;
mod conditions;
mod copy;
mod job;
mod pod;
mod replicas;
mod typed;
mod volume_claim;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::MetricStatus;
use serde_json::{Map, Value, json};

pub use copy::CopyStatus;

use crate::api::placeable;
use crate::placement::live;
use copy::serving_copies;
use replicas::{optional_replica_fields, replica_fields};
use typed::{LIST, MOST};

/// Largest status of a source, as JSON: of a larger one the scheduler keeps nothing to compare with.
const LARGEST: usize = 12 << 10;

/// A source and its copies.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// API group of the source; empty for the core group.
    pub group: &'a str,
    /// Kind of the source.
    pub kind: &'a str,
    /// Generation of the source.
    pub generation: i64,
    /// Whether each copy is the whole of it.
    pub duplicate: bool,
    /// Replicas that no cluster gets.
    pub withheld: i64,
    /// Reports on the copies, one for each target, and for each cluster that the source leaves.
    pub copies: &'a [CopyStatus],
}

/// A source with the copies that stand for it: while it moves, the better of both sides.
struct Serving<'a> {
    source: &'a Source<'a>,
    copies: Vec<&'a CopyStatus>,
}

/// Fields that are added up, by group and kind.
const SUMS: [(&str, &str, &[&str]); 4] = [
    (
        "apps",
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
    ("policy", "PodDisruptionBudget", &["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"]),
    ("autoscaling", "HorizontalPodAutoscaler", &["currentReplicas", "desiredReplicas"]),
    ("batch", "Job", &["active", "succeeded", "failed", "ready"]),
];

impl Source<'_> {
    /// Returns the status that the copies give the source; empty for kinds without one.
    pub fn aggregate_status(&self) -> Map<String, Value> {
        let mut status = Map::new();
        let serving = Serving { source: self, copies: serving_copies(self.kind, self.copies) };
        if self.is_added_kind() {
            serving.aggregate_added_kind(&mut status);
            return status;
        }
        let fields = self.replica_fields();
        if let Some(fields) = fields {
            serving.aggregate_replicas(fields, &mut status);
        }
        let sums = self.summed_fields();
        if let Some(fields) = sums {
            serving.sum_fields(fields, &mut status);
        }
        match (self.group, self.kind) {
            ("batch", "Job") => serving.aggregate_job(&mut status),
            ("batch", "CronJob") => serving.aggregate_cron_job(&mut status),
            ("", "Pod") => serving.aggregate_pod(&mut status),
            ("", "Service") | ("networking.k8s.io", "Ingress") => serving.aggregate_addresses(&mut status),
            ("", "PersistentVolumeClaim") => serving.aggregate_volume_claim(&mut status),
            ("apps", "DaemonSet") => serving.aggregate_conditions(&mut status),
            ("policy", "PodDisruptionBudget") => serving.aggregate_budget(&mut status),
            ("autoscaling", "HorizontalPodAutoscaler") => serving.aggregate_autoscaler(&mut status),
            _ => {}
        }
        let observes = fields.is_some() || sums.is_some() && self.kind != "Job";
        if observes && !serving.copies.is_empty() && serving.copies.iter().all(|copy| copy.has_observed()) {
            status.insert("observedGeneration".to_owned(), self.generation.into());
        }
        status
    }

    /// Returns the counts of a kind that has replicas.
    fn replica_fields(&self) -> Option<&'static [&'static str]> {
        replica_fields(self.kind).filter(|_| self.group == "apps")
    }

    /// Returns the fields of a kind that are added up.
    fn summed_fields(&self) -> Option<&'static [&'static str]> {
        let sums = SUMS.iter().find(|(group, kind, _)| (*group, *kind) == (self.group, self.kind));
        sums.map(|(.., fields)| *fields)
    }

    /// Returns the status to write over `previous`, which the API server returned; `None` where it would say the same, and
    /// where nothing may change any more. `now` is the time of what has none.
    pub fn status_to_write(&self, previous: &Value, now: Timestamp) -> Option<Value> {
        if self.is_over(previous) {
            return None;
        }
        let mut status =
            if self.copies.is_empty() { self.status_without_copies(previous)? } else { self.aggregate_status() };
        if status.is_empty() {
            return None;
        }
        self.carry_over(&mut status, previous, now);
        bound_lists(&mut status);
        (!compare::is_same_status(&status, previous, self.group, self.kind)).then_some(Value::Object(status))
    }

    /// Returns the status of a workload that has no copy any more, and still says that pods run; `None` for others.
    fn status_without_copies(&self, previous: &Value) -> Option<Map<String, Value>> {
        let fields = self.replica_fields().or_else(|| self.summed_fields().filter(|_| self.group == "apps"))?;
        if !fields.iter().any(|field| previous[*field].as_i64().is_some_and(|count| count > 0)) {
            return None;
        }
        let mut status = previous.as_object().cloned().unwrap_or_default();
        for field in fields {
            status.insert((*field).to_owned(), 0.into());
        }
        status.retain(|field, _| !optional_replica_fields(self.kind).contains(&field.as_str()));
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
        for condition in conditions.filter(|condition| condition["type"] == "Available") {
            *condition = json!({ "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable",
                "message": "no cluster has a copy" });
        }
        Some(status)
    }

    /// Returns whether the kind is none of those that can always be placed.
    fn is_added_kind(&self) -> bool {
        placeable::is_added_kind(self.group, self.kind)
    }

    /// Returns whether a status is the last one of its object.
    fn is_over(&self, status: &Value) -> bool {
        match (self.group, self.kind) {
            ("batch", "Job") => live::is_finished(status),
            ("", "Pod") => status["phase"] == "Succeeded" || status["phase"] == "Failed",
            _ => false,
        }
    }

    /// Keeps what the source has and what must not be withdrawn, because copies are new or silent.
    fn carry_over(&self, status: &mut Map<String, Value>, previous: &Value, now: Timestamp) {
        let observed = [status.get("observedGeneration"), previous.get("observedGeneration")];
        let observed = observed.into_iter().flatten().filter_map(Value::as_i64);
        if let Some(observed) = observed.filter(|seen| *seen <= self.generation).max() {
            status.insert("observedGeneration".to_owned(), observed.into());
        }
        for field in ["phase", "lastScheduleTime", "lastSuccessfulTime", "lastScaleTime"] {
            let was = previous.get(field).and_then(Value::as_str);
            let is_time = field != "phase";
            if let Some(was) = was.filter(|_| !self.is_added_kind())
                && status.get(field).is_none_or(|now| is_time && now.as_str() < Some(was))
            {
                status.insert(field.to_owned(), was.into());
            }
        }
        self.carry_conditions(status, previous, now);
        if (self.group, self.kind) == ("batch", "Job") {
            job::carry_job(status, previous, now);
        }
    }

    /// Keeps the times of conditions whose status is the same, and conditions that copies have not reported on yet.
    fn carry_conditions(&self, status: &mut Map<String, Value>, previous: &Value, now: Timestamp) {
        let empty = Vec::new();
        let before = previous["conditions"].as_array().unwrap_or(&empty);
        let is_silent = self.copies.iter().any(|copy| copy.status_field("conditions").is_none());
        let mut all = match status.remove("conditions") {
            Some(Value::Array(all)) => all,
            _ => Vec::new(),
        };
        let has_times = !self.is_added_kind() || self.copies.len() > 1;
        for condition in all.iter_mut().filter(|_| has_times) {
            let old = before.iter().find(|old| old["type"] == condition["type"]);
            carry_times(condition, old, self.copies.len() > 1, self.kind == "Deployment", now);
        }
        if is_silent {
            let kept: Vec<Value> = before
                .iter()
                .filter(|old| {
                    old["reason"] != conditions::CLUSTER_LOST && !all.iter().any(|one| one["type"] == old["type"])
                })
                .take(LIST)
                .cloned()
                .collect();
            all.extend(kept);
        }
        conditions::insert_conditions(status, all);
    }
}

/// Completes the times of a condition from what it was before.
fn carry_times(condition: &mut Value, old: Option<&Value>, is_of_several: bool, has_update: bool, now: Timestamp) {
    let Some(now) = typed::format_time(now) else { return };
    let (kept, own) = (
        keep_old_time(old, condition, "lastTransitionTime"),
        condition["lastTransitionTime"].as_str().map(str::to_owned),
    );
    let changed = if is_of_several { kept.or(own) } else { own.or(kept) };
    let says_same = old.is_some_and(|old| {
        ["status", "reason", "message"].iter().all(|field| old.get(*field) == condition.get(*field))
    });
    let updated = condition["lastUpdateTime"].as_str().map(str::to_owned);
    let updated = updated.or_else(|| keep_old_time(old, condition, "lastUpdateTime").filter(|_| says_same));
    condition["lastTransitionTime"] = changed.unwrap_or_else(|| now.clone()).into();
    if has_update {
        condition["lastUpdateTime"] = updated.unwrap_or(now).into();
    } else if let Some(map) = condition.as_object_mut() {
        map.remove("lastUpdateTime");
    }
}

/// Returns a time of the former condition, if the condition still has its status.
fn keep_old_time(old: Option<&Value>, condition: &Value, field: &str) -> Option<String> {
    let old = old.filter(|old| old["status"] == condition["status"])?;
    old[field].as_str().map(str::to_owned)
}

/// Shortens the lists of a status that is too large.
fn bound_lists(status: &mut Map<String, Value>) {
    while serde_json::to_string(&*status).map_or(0, |text| text.len()) > LARGEST {
        let longest = status
            .iter_mut()
            .filter_map(|(_, value)| match value {
                Value::Array(items) => Some(items),
                Value::Object(map) => map.values_mut().find_map(Value::as_array_mut),
                _ => None,
            })
            .max_by_key(|items| items.len());
        match longest {
            Some(items) if !items.is_empty() => items.truncate(items.len() / 2),
            _ => return,
        }
    }
}

impl Serving<'_> {
    fn sum_fields(&self, fields: &[&str], status: &mut Map<String, Value>) {
        for field in fields {
            let numbers = self.copies.iter().map(|copy| copy.count_field(self.source.kind, field));
            let sum = numbers.fold(0, i64::saturating_add).min(MOST);
            status.insert((*field).to_owned(), sum.into());
        }
    }

    /// Sums of fields that not every Kubernetes has.
    fn sum_optional_fields(&self, fields: &[&str], status: &mut Map<String, Value>) {
        let fields: Vec<&str> = fields
            .iter()
            .filter(|field| self.copies.iter().any(|copy| copy.status_field(field).is_some()))
            .copied()
            .collect();
        self.sum_fields(&fields, status);
    }

    fn aggregate_conditions(&self, status: &mut Map<String, Value>) {
        let mut all = conditions::merge_conditions(&self.copies);
        conditions::replace_lost(&mut all, &self.copies);
        conditions::insert_conditions(status, all);
    }

    fn aggregate_budget(&self, status: &mut Map<String, Value>) {
        let mut all = conditions::merge_conditions(&self.copies);
        conditions::complete_conditions(&mut all, &self.copies, self.source.generation);
        conditions::insert_conditions(status, all);
    }

    fn aggregate_autoscaler(&self, status: &mut Map<String, Value>) {
        let all = conditions::merge_conditions(&self.copies);
        conditions::insert_conditions(status, all);
        let scaled = self.copies.iter().filter_map(|copy| copy.time_field("lastScaleTime")).max();
        status.extend(scaled.map(|time| ("lastScaleTime".to_owned(), time.into())));
        // Metrics of several clusters are not one number.
        if let [copy] = self.copies[..] {
            let metrics = copy.status_field("currentMetrics").and_then(Value::as_array).into_iter().flatten();
            let metrics =
                metrics.take(LIST).filter_map(|metric| serde_json::from_value::<MetricStatus>(metric.clone()).ok());
            let metrics: Vec<Value> = metrics.map(|metric| json!(metric)).collect();
            if !metrics.is_empty() {
                status.insert("currentMetrics".to_owned(), metrics.into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
