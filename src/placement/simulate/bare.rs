//! A state reduced to names, labels and numbers: no manifest, no value of a Secret or ConfigMap, no text of a program.

use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::state::FleetState;
use crate::api::crd::cluster::{ClusterStatus, Observed};
use crate::api::crd::condition::Condition;
use crate::api::crd::group::{DecisionRecord, ScheduleGroupStatus};
use crate::api::crd::schedule::{PodCounts, ScheduleStatus, SourceRef};
use crate::api::{Cluster, ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};

/// Returns the conditions without their texts.
fn bare_conditions(conditions: &[Condition]) -> Vec<Condition> {
    let bare = |one: &Condition| Condition {
        type_: one.type_.clone(),
        status: one.status.clone(),
        reason: one.reason.clone(),
        message: String::new(),
        observed_generation: None,
        last_heartbeat_time: None,
        last_transition_time: None,
    };
    conditions.iter().map(bare).collect()
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
    cluster.metadata = ObjectMeta { labels, ..bare_metadata(&cluster.metadata) };
    cluster.spec.cluster_id = None;
    let Some(status) = cluster.status.take() else { return };
    let observed = |one: Observed| Observed { node_count: one.node_count, apis: one.apis, ..Observed::default() };
    cluster.status = Some(ClusterStatus {
        conditions: bare_conditions(&status.conditions),
        observed: status.observed.map(observed),
        last_update_time: None,
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

fn strip_group(group: &mut ScheduleGroup) {
    group.metadata = bare_metadata(&group.metadata);
    let Some(status) = group.status.take() else { return };
    let decision = status.decision.map(|decision| DecisionRecord {
        how: decision.how,
        policy_hash: decision.policy_hash,
        ..DecisionRecord::default()
    });
    group.status = Some(ScheduleGroupStatus {
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
    let ends = |one: &&Value| one["type"] == "Complete" || one["type"] == "Failed";
    let ends = status["conditions"].as_array().into_iter().flatten().filter(ends);
    let ends: Vec<Value> = ends.map(|one| json!({ "type": one["type"], "status": one["status"] })).collect();
    if !ends.is_empty() {
        bare["conditions"] = json!(ends);
    }
    for field in ["startTime", "phase", "currentRevision", "updateRevision"] {
        if let Some(text) = status[field].as_str() {
            bare[field] = text.into();
        }
    }
    if let Some(active) = status["active"].as_array() {
        bare["active"] = active.iter().map(|_| json!({})).collect();
    }
    Some(bare.to_string())
}

fn strip_schedule(schedule: &mut Schedule) {
    schedule.metadata = bare_metadata(&schedule.metadata);
    let hash = std::mem::take(&mut schedule.spec.hash);
    let spec = &mut schedule.spec;
    (spec.manifest, spec.manifest_digest, spec.apply_policy) = (String::new(), None, None);
    spec.source_ref = SourceRef { uid: String::new(), ..std::mem::take(&mut spec.source_ref) };
    let Some(status) = schedule.status.take() else { return };
    schedule.status = Some(ScheduleStatus {
        conditions: bare_conditions(&status.conditions),
        observed_hash: status.observed_hash.filter(|observed| *observed == hash).map(|_| String::new()),
        pods: status.pods.map(|pods| PodCounts { unschedulable_since: None, ..pods }),
        resource: status.resource.as_deref().and_then(bare_copy_status),
        ..ScheduleStatus::default()
    });
}

impl FleetState {
    /// Reduces everything to names, labels and numbers, in the order of the names. Decisions are the same.
    pub fn strip(&mut self) {
        self.clusters.iter_mut().for_each(strip_cluster);
        self.reports.iter_mut().for_each(strip_report);
        self.policies.iter_mut().for_each(strip_policy);
        self.groups.iter_mut().for_each(strip_group);
        self.schedules.iter_mut().for_each(strip_schedule);
        for object in &mut self.objects {
            // A digest of a short secret could be guessed.
            object.facts.uid.clear();
            object.facts.hash.clear();
        }
        self.sort_by_name();
    }
}
