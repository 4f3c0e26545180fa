//! A state reduced to names, labels and numbers: no manifest, no value of a Secret or ConfigMap, no text of a program.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::machine::NOW;
use super::state::{FleetState, cluster_of};
use crate::api::crd::cluster::{ClusterStatus, Observed};
use crate::api::crd::condition::Condition;
use crate::api::crd::group::{DecisionRecord, ScheduleGroupStatus};
use crate::api::crd::schedule::{PodCounts, ScheduleStatus, SourceRef};
use crate::api::{Cluster, ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};
use crate::placement::moves::MoveRecord;
use crate::placement::stuck::patience_seconds;

/// Returns the conditions without their texts.
fn bare_conditions(conditions: &[Condition]) -> Vec<Condition> {
    let bare = conditions.iter().map(|one| Condition {
        type_: one.type_.clone(),
        status: one.status.clone(),
        reason: one.reason.clone(),
        message: String::new(),
        observed_generation: None,
        last_heartbeat_time: None,
        // Whatever waits for a time has waited.
        last_transition_time: one.last_transition_time.as_ref().map(|_| Time(Timestamp::UNIX_EPOCH)),
    });
    bare.collect()
}

/// Returns name, namespace and times.
fn bare_metadata(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        creation_timestamp: metadata.creation_timestamp.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        ..ObjectMeta::default()
    }
}

fn strip_cluster(cluster: &mut Cluster) {
    let labels = cluster.metadata.labels.take();
    let uid = cluster.metadata.uid.take();
    cluster.metadata = ObjectMeta { labels, uid, ..bare_metadata(&cluster.metadata) };
    cluster.spec.cluster_id = None;
    let Some(status) = cluster.status.take() else { return };
    cluster.status = Some(ClusterStatus {
        conditions: bare_conditions(&status.conditions),
        observed: status.observed.map(|one| Observed {
            node_count: one.node_count,
            apis: one.apis,
            ..Observed::default()
        }),
        last_update_time: None,
        answered: None,
        ..status
    });
}

fn strip_report(report: &mut ClusterReport) {
    report.metadata = bare_metadata(&report.metadata);
}

/// Overrides hold values, and decide nothing about clusters.
fn strip_policy(policy: &mut SchedulePolicy) {
    policy.metadata = bare_metadata(&policy.metadata);
    policy.status = None;
    if let Some(spread) = &mut policy.spec.spread_constraints {
        spread.overrides.clear();
    }
}

/// Leaves out what is over by now; what is not is taken to last, and what may be tried again later may be tried.
fn settle_record(record: &mut MoveRecord, now: i64) {
    record.excluded.retain(|one| one.until > now);
    record.excluded.iter_mut().for_each(|one| one.until = i64::MAX);
    if let Some(retry) = &mut record.retry {
        retry.not_before = 0;
    }
    if let Some(running) = &mut record.running {
        (running.since, running.deadline) = (0, i64::MAX);
    }
}

fn strip_group(group: &mut ScheduleGroup, now: i64) {
    group.metadata = bare_metadata(&group.metadata);
    let Some(status) = group.status.take() else { return };
    let decision = status.decision.map(|decision| DecisionRecord {
        how: decision.how,
        policy_hash: decision.policy_hash,
        ..DecisionRecord::default()
    });
    let mut record = status.record;
    settle_record(&mut record, now);
    group.status = Some(ScheduleGroupStatus {
        record,
        object_refs: status.object_refs,
        scheduled: status.scheduled,
        target_clusters: status.target_clusters,
        decision,
        ..ScheduleGroupStatus::default()
    });
}

/// Returns of a copy's status what says whether it has begun, has ended, or has pods of an older template.
fn bare_copy_status(text: &str) -> Option<String> {
    let status: Value = serde_json::from_str(text).ok()?;
    let mut bare = json!({});
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ends = conditions.filter(|one| one["type"] == "Complete" || one["type"] == "Failed");
    let ends: Vec<Value> = ends.map(|one| json!({ "type": one["type"], "status": one["status"] })).collect();
    if !ends.is_empty() {
        bare["conditions"] = json!(ends);
    }
    for field in ["startTime", "phase", "currentRevision", "updateRevision"] {
        if let Some(text) = status[field].as_str() {
            bare[field] = text.into();
        }
    }
    for field in ["replicas", "updatedReplicas"] {
        if let Some(count) = status[field].as_i64() {
            bare[field] = count.into();
        }
    }
    if let Some(active) = status["active"].as_array() {
        bare["active"] = active.iter().map(|_| json!({})).collect();
    }
    Some(bare.to_string())
}

/// Leaves out since when pods find no node, unless that is so long that their group leaves.
fn settle_pods(pods: PodCounts, is_autoscaled: bool, now: i64) -> PodCounts {
    let since = pods
        .unschedulable_since
        .filter(|since| now.saturating_sub(since.0.as_second()) >= patience_seconds(is_autoscaled))
        .map(|_| Time(Timestamp::UNIX_EPOCH));
    PodCounts { unschedulable_since: since, ..pods }
}

fn strip_schedule(schedule: &mut Schedule, is_autoscaled: bool, now: i64) {
    schedule.metadata = bare_metadata(&schedule.metadata);
    let hash = std::mem::take(&mut schedule.spec.hash);
    let spec = &mut schedule.spec;
    (spec.manifest, spec.manifest_digest, spec.apply_policy) = (String::new(), None, None);
    spec.source_ref = SourceRef { uid: String::new(), ..std::mem::take(&mut spec.source_ref) };
    let Some(status) = schedule.status.take() else { return };
    schedule.status = Some(ScheduleStatus {
        conditions: bare_conditions(&status.conditions),
        observed_hash: status.observed_hash.filter(|observed| *observed == hash).map(|_| String::new()),
        epoch: status.epoch,
        available: status.available,
        served: status.served,
        finished: status.finished,
        pods: status.pods.map(|pods| settle_pods(pods, is_autoscaled, now)),
        resource: status.resource.as_deref().and_then(bare_copy_status),
        ..ScheduleStatus::default()
    });
}

impl FleetState {
    /// Reduces everything to names, labels and numbers, in the order of the names, as it is at a time in seconds. Decisions are
    /// the same.
    pub fn strip_at(&mut self, now: i64) {
        let autoscaled = self.clusters.iter().filter(|cluster| {
            let status = cluster.status.as_ref();
            status.is_some_and(|status| status.autoscaled == Some(true))
        });
        let autoscaled: BTreeSet<String> = autoscaled.filter_map(|one| one.metadata.name.clone()).collect();
        self.clusters.iter_mut().for_each(strip_cluster);
        self.reports.iter_mut().for_each(strip_report);
        self.policies.iter_mut().for_each(strip_policy);
        self.groups.iter_mut().for_each(|group| strip_group(group, now));
        for schedule in &mut self.schedules {
            let is_autoscaled = autoscaled.contains(cluster_of(schedule));
            strip_schedule(schedule, is_autoscaled, now);
        }
        for object in &mut self.objects {
            // A digest of a short secret could be guessed.
            object.facts.uid.clear();
            object.facts.hash.clear();
        }
        self.sort_by_name();
    }

    /// The same for a state that was stripped before.
    pub fn strip_again(&mut self) {
        self.strip_at(NOW);
    }
}
