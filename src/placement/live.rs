//! What a decision is asked about, from the objects of the control plane's API: the scheduler and the command line read
//! them alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::copy::Share;
use super::decide::{Current, Mode, Target};
use super::facts::{Facts, ObjectKey, Workload};
use super::fleet::{Cluster, Fleet};
use super::inventory::{self, Inventory};
use super::matching::Policy;
use super::moves::SeenReport;
use super::room::Promise;
use super::selector::has_untolerated;
use crate::api::crd::cluster::{Taint, conditions, reasons};
use crate::api::crd::condition::{Condition, find_condition};
use crate::api::crd::schedule::{ScheduleShare, SourceRef, conditions as copy_conditions};
use crate::api::labels::TAINT_DRAINING;
use crate::api::{Schedule, ScheduleGroupStatus};

/// Returns whether a Cluster is Ready.
pub fn is_ready(cluster: &crate::api::Cluster) -> bool {
    has_condition(cluster, conditions::READY)
}

fn has_condition(cluster: &crate::api::Cluster, type_: &str) -> bool {
    let status = cluster.status.as_ref();
    status.and_then(|status| find_condition(&status.conditions, type_)).is_some_and(Condition::is_true)
}

/// Returns whether the taints of a cluster make what a policy places there leave.
pub fn is_drained_for(policy: &Policy, cluster: &Cluster) -> bool {
    has_untolerated(&cluster.taints, &policy.tolerations, "NoExecute")
}

/// Returns whether a Cluster is being deleted, or its agent asked to leave.
pub fn is_leaving(cluster: &crate::api::Cluster) -> bool {
    let asked = cluster.status.as_ref().and_then(|status| status.leave_requested);
    cluster.metadata.deletion_timestamp.is_some() || asked == Some(true)
}

/// Returns whether the agent of a Cluster asks that what is placed there moves.
pub fn is_drained(cluster: &crate::api::Cluster) -> bool {
    cluster.status.as_ref().and_then(|status| status.drain_requested) == Some(true)
}

/// Returns since when the agent of a Cluster does not renew its Lease, in seconds; `None` for one that does. A cluster that
/// was not Ready before counts from its last report.
pub fn lost_since(cluster: &crate::api::Cluster, now: i64) -> Option<i64> {
    let ready = find_condition(&cluster.status.as_ref()?.conditions, conditions::READY)?;
    let is_lost = !ready.is_true() && ready.reason == reasons::HEARTBEAT_LOST;
    let times = [ready.last_transition_time.as_ref(), ready.last_heartbeat_time.as_ref()];
    let times = times.into_iter().flatten().map(|time| time.0.as_second()).filter(|time| *time <= now);
    if is_lost { times.max() } else { None }
}

/// Returns whether the nodes of a Cluster are read: it is accepted, and its agent has reported and renewed its Lease.
pub fn is_read(cluster: &crate::api::Cluster) -> bool {
    let status = cluster.status.as_ref();
    let ready = status.and_then(|status| find_condition(&status.conditions, conditions::READY));
    cluster.spec.accepted
        && ready.is_some_and(|ready| ![reasons::NEVER_UPDATED, reasons::NOT_ACCEPTED].contains(&&*ready.reason))
}

/// Reads a Cluster with its nodes.
pub fn read_cluster(fleet: &mut Fleet, cluster: &crate::api::Cluster, inventory: Inventory) -> Cluster {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let mut read = Cluster::new(&name, fleet.build_capacity(inventory.nodes, inventory.dropped_keys));
    update_cluster(&mut read, cluster);
    read
}

/// Brings everything but the nodes of a cluster up to date.
pub fn update_cluster(known: &mut Cluster, cluster: &crate::api::Cluster) {
    known.labels = cluster.metadata.labels.clone().unwrap_or_default();
    known.taints.clone_from(&cluster.spec.taints);
    if is_drained(cluster) {
        let effect = "NoExecute".to_owned();
        known.taints.push(Taint { key: TAINT_DRAINING.to_owned(), value: String::new(), effect });
    }
    known.ready = is_ready(cluster);
    known.accepted = cluster.spec.accepted;
    known.leaving = is_leaving(cluster);
    known.standby = has_condition(cluster, conditions::STANDBY);
    known.apis = inventory::served_apis(cluster).map(Arc::new);
    known.autoscaled = cluster.status.as_ref().and_then(|status| status.autoscaled).unwrap_or_default();
}

/// The key of the object that a Schedule is a copy of.
pub fn source_key(source: &SourceRef) -> ObjectKey {
    ObjectKey::new(&source.group, &source.kind, source.namespace.as_deref().unwrap_or_default(), &source.name)
}

/// Pods of a copy that the inventory of its cluster holds already.
fn counted_copy_pods(schedule: &Schedule) -> i64 {
    schedule.status.as_ref().and_then(|status| status.pods.as_ref()).map_or(0, |pods| pods.counted.max(0))
}

/// The status of a copy.
fn read_copy_status(schedule: &Schedule) -> Value {
    let text = schedule.status.as_ref().and_then(|status| status.resource.as_deref());
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Returns whether the status of a Job or a bare Pod says that it is over.
pub fn is_finished(resource: &Value) -> bool {
    has_failed(resource) || is_condition_true(resource, "Complete") || resource["phase"] == "Succeeded"
}

fn has_failed(resource: &Value) -> bool {
    is_condition_true(resource, "Failed") || resource["phase"] == "Failed"
}

fn is_condition_true(resource: &Value, type_: &str) -> bool {
    let mut conditions = resource["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == type_ && condition["status"] == "True")
}

/// Returns whether the copy of a Job or of a bare Pod has started and is not over.
pub fn has_begun(schedule: &Schedule, facts: &Facts) -> bool {
    let resource = read_copy_status(schedule);
    facts.workload.runs_once() && !resource["startTime"].is_null() && !is_finished(&resource)
}

/// Returns whether the copy of a Job or of a bare Pod is over.
pub fn has_ended(schedule: &Schedule, facts: &Facts) -> bool {
    facts.workload.runs_once() && is_finished(&read_copy_status(schedule))
}

/// Returns whether copies of a Job or of a bare Pod say that it is over: one of them failed, a whole one is complete, or the
/// shares that are complete have all of its completions. A share alone says nothing of the others; one that has no
/// completions is complete at once.
pub fn are_over<'a>(copies: impl IntoIterator<Item = &'a Schedule>, facts: &Facts) -> bool {
    let asked = match facts.workload {
        Workload::Job { completions, .. } => completions,
        _ => None,
    };
    let mut complete = 0_i64;
    for schedule in copies.into_iter().filter(|schedule| has_ended(schedule, facts)) {
        let share = schedule.spec.share.as_ref().and_then(|share| share.completions);
        let (Some(asked), Some(share)) = (asked, share) else { return true };
        complete = complete.saturating_add(share.max(0));
        if complete >= asked || has_failed(&read_copy_status(schedule)) {
            return true;
        }
    }
    false
}

/// Returns what the agent of a cluster last reported of a copy, for a move. Counts are those of pods, which Kubernetes
/// counts in 32 bits; without a report they are 0.
pub fn read_copy_report(schedule: &Schedule) -> SeenReport {
    let Some(status) = &schedule.status else { return SeenReport::default() };
    let is_removed = find_condition(&status.conditions, copy_conditions::DELETED).is_some_and(Condition::is_true);
    let [available, served] =
        [status.available, status.served].map(|count| count.unwrap_or(0).clamp(0, i32::MAX.into()));
    SeenReport { available, served, finished: status.finished == Some(true), removed: is_removed }
}

/// Returns how many pods of a copy are available that has `all` pods of its source: its report says whether all of them
/// are, and its status how many if they are not.
pub fn available_of_whole(schedule: &Schedule, all: i64) -> i64 {
    if read_copy_report(schedule).available > 0 {
        return all;
    }
    read_copy_status(schedule)["availableReplicas"].as_i64().unwrap_or(0).clamp(0, all.max(0))
}

/// Returns whether the agent of a cluster answered what it was asked, and has tried the Schedule as it is now.
pub fn is_answered(schedule: &Schedule, cluster: &crate::api::Cluster, asked: &str) -> bool {
    let answered = cluster.status.as_ref().and_then(|status| status.answered.as_deref());
    let tried = schedule.status.as_ref().and_then(|status| status.epoch);
    answered == Some(asked) && tried == Some(schedule.spec.epoch)
}

/// Returns whether the status of a StatefulSet names a new revision that not all of its pods have.
fn is_revision_held(resource: &Value) -> bool {
    let [current, update] =
        ["currentRevision", "updateRevision"].map(|name| resource[name].as_str().unwrap_or_default());
    !update.is_empty() && current != update
}

/// Returns whether a copy says that some of its pods are of an older template.
pub fn is_rolling_out(schedule: &Schedule) -> bool {
    let resource = read_copy_status(schedule);
    let [updated, all] = ["updatedReplicas", "replicas"].map(|name| resource[name].as_i64().unwrap_or(0));
    is_revision_held(&resource) || updated < all
}

/// Returns whether a copy says that pods of an older template may be there: of a StatefulSet whose new revision is held back,
/// or of Jobs that a CronJob has started.
pub fn has_old_pods(schedule: &Schedule) -> bool {
    let resource = read_copy_status(schedule);
    is_revision_held(&resource) || resource["active"].as_array().is_some_and(|jobs| !jobs.is_empty())
}

/// Returns the share that a Schedule was written with.
pub fn share_from_schedule(facts: &Facts, share: &ScheduleShare) -> Option<Share> {
    let replicas = share.replicas?;
    Some(match (facts.workload, share.completions) {
        (Workload::Job { .. }, Some(completions)) => Share::Job { completions, parallelism: replicas },
        _ => Share::Replicas(replicas),
    })
}

/// Returns the share of a Schedule in a domain.
pub fn build_schedule_share(domain: &str, share: Option<Share>) -> ScheduleShare {
    let (replicas, completions) = match share {
        Some(Share::Replicas(replicas)) => (Some(replicas), None),
        Some(Share::Job { completions, parallelism }) => (Some(parallelism), Some(completions)),
        None => (None, None),
    };
    ScheduleShare { domain: domain.to_owned(), replicas, completions }
}

/// Returns the promise of a cluster to the pods of a copy that it does not count yet; `None` where all of them are
/// counted, and for what runs no pods or is over. Jobs that a CronJob may start are not promised.
pub fn copy_reservation(schedule: &Schedule, facts: &Facts) -> Option<Promise> {
    let shape = facts.shape.clone()?;
    let daemon = facts.workload == Workload::DaemonSet;
    let share = schedule.spec.share.as_ref().and_then(|written| share_from_schedule(facts, written));
    let asked = share.map_or_else(|| facts.workload.pods_at_once(), Share::pods);
    // An autoscaler of the workload cluster may ask for more than the source does.
    let told = schedule.status.as_ref().and_then(|status| status.pods.as_ref()).map_or(0, |pods| pods.desired);
    let counted = counted_copy_pods(schedule);
    let pods = asked.max(told).saturating_sub(counted).max(0);
    let is_open = if daemon { counted == 0 } else { pods > 0 };
    let ends = facts.workload.runs_once() && is_finished(&read_copy_status(schedule));
    if !is_open || ends || matches!(facts.workload, Workload::CronJob { .. }) {
        return None;
    }
    let group = schedule.spec.group.clone().unwrap_or_default();
    Some(Promise { group: group.into(), object: facts.key.clone(), shape, pods, daemon })
}

/// Returns what one cluster has promised to copies, the oldest Schedule first, ties by name.
pub fn copy_reservations<'a>(copies: impl Iterator<Item = (&'a Schedule, &'a Facts)>) -> Vec<Promise> {
    let mut copies: Vec<_> = copies.collect();
    copies.sort_by_cached_key(|(schedule, _)| {
        let metadata = &schedule.metadata;
        (metadata.creation_timestamp.as_ref().map(|time| time.0), metadata.name.clone())
    });
    copies.iter().filter_map(|(schedule, facts)| copy_reservation(schedule, facts)).collect()
}

/// Returns the clusters where a group is, by the Schedules of its members and by what it last recorded.
///
/// A group is where most of its demand has Schedules, so that objects which change their group bring their clusters
/// along; while it moves, the recorded target is. One that `is_held` by its volumes is where it was last recorded, too.
pub fn current_placement<'a>(
    copies: impl Iterator<Item = (&'a str, &'a Schedule, &'a Facts)>,
    recorded: Option<&ScheduleGroupStatus>,
    policy: &Policy,
    is_held: bool,
) -> Current {
    let mut current = Current::default();
    let mut targets: BTreeMap<&str, (i64, Target)> = BTreeMap::new();
    for (cluster, schedule, facts) in copies {
        let (demand, target) = targets.entry(cluster).or_insert_with(|| (0, Target::without_shares(cluster)));
        *demand += 1 + facts.workload.pods_at_once().min(1 << 32) * 1000;
        if let Some(written) = &schedule.spec.share {
            target.domain = Some(written.domain.clone());
            if let Some(share) = share_from_schedule(facts, written) {
                target.replicas.insert(facts.key.clone(), share);
            } else if facts.workload.is_undividable() {
                target.whole.push(facts.key.clone());
            }
        }
        current.counted.entry(cluster.to_owned()).or_default().insert(facts.key.clone(), counted_copy_pods(schedule));
        if has_begun(schedule, facts) {
            current.started.insert(facts.key.clone());
        }
    }
    if policy.spec.spread_constraints.is_some() {
        current.targets = targets.into_values().map(|(_, target)| target).collect();
    } else {
        let recorded = recorded.and_then(|status| status.target_clusters.first());
        let here = recorded.filter(|name| targets.contains_key(name.as_str())).cloned();
        let here = here.or_else(|| {
            let most = targets.iter().max_by_key(|(name, (demand, _))| (*demand, std::cmp::Reverse(**name)));
            most.map(|(name, _)| (*name).to_owned())
        });
        current.targets = here.iter().map(|cluster| Target::without_shares(cluster)).collect();
    }
    let known = recorded.and_then(|status| status.decision.as_ref());
    if known.is_some_and(|known| !known.policy_hash.is_empty() && known.policy_hash != policy.placement_hash()) {
        current.mode = Mode::PolicyEdit;
    }
    if is_held {
        keep_recorded_clusters(&mut current, recorded, policy);
    }
    current
}

/// Adds what a group that its volumes keep has recorded: its data is there though its copies are not known any more.
fn keep_recorded_clusters(current: &mut Current, recorded: Option<&ScheduleGroupStatus>, policy: &Policy) {
    let recorded = recorded.into_iter().flat_map(|status| &status.target_clusters);
    if policy.spec.spread_constraints.is_none() {
        if current.targets.is_empty() {
            current.targets = recorded.take(1).map(|name| Target::without_shares(name)).collect();
        }
        return;
    }
    for name in recorded {
        if current.targets.iter().all(|known| known.cluster != *name) {
            current.targets.push(Target::without_shares(name));
        }
    }
}

/// Returns whether an object has a copy in a target of its group: what cannot be divided goes to one target of a
/// divided group.
pub fn has_copy_in_target(target: &Target, facts: &Facts) -> bool {
    let is_divided = target.domain.is_some() && !(target.replicas.is_empty() && target.whole.is_empty());
    !is_divided || !facts.workload.is_undividable() || target.whole.contains(&facts.key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::lenient::Lenient;

    fn schedule(epoch: i64, status: &Value) -> Schedule {
        let source = json!({"version": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"});
        let schedule = json!({"metadata": {"name": "s"}, "status": status,
            "spec": {"hash": "h", "epoch": epoch, "sourceRef": source}});
        serde_json::from_str::<Lenient<Schedule>>(&schedule.to_string()).unwrap().0
    }

    fn deleted_conditions(status: &str) -> Value {
        json!([{"type": "Deleted", "status": status, "reason": "R"}])
    }

    #[test]
    fn a_report_is_read_whatever_its_agent_writes() {
        for (status, available, served, finished, removed) in [
            (json!(null), 0, 0, false, false),
            (json!({}), 0, 0, false, false),
            (json!({"available": 2, "served": 3}), 2, 3, false, false),
            (json!({"available": -2, "served": 1_u64 << 40}), 0, i32::MAX.into(), false, false),
            (json!({"available": "2", "served": 1e30, "finished": "yes"}), 0, 0, false, false),
            (json!({"finished": true, "conditions": deleted_conditions("False")}), 0, 0, true, false),
            (json!({"finished": true, "conditions": deleted_conditions("True")}), 0, 0, true, true),
        ] {
            let expected = SeenReport { available, served, finished, removed };
            assert_eq!(read_copy_report(&schedule(0, &status)), expected, "{status}");
        }
    }

    fn cluster_with_status(status: &Value) -> crate::api::Cluster {
        let cluster = json!({"metadata": {"name": "a"}, "spec": {"name": "a"}, "status": status});
        serde_json::from_str::<Lenient<crate::api::Cluster>>(&cluster.to_string()).unwrap().0
    }

    #[test]
    fn an_answer_counts_for_the_schedule_that_was_tried() {
        for (status, cluster_status, expected) in [
            (json!({"epoch": 3}), json!({"answered": "x"}), true),
            (json!({"epoch": 3}), json!({"answered": "w"}), false),
            (json!({"epoch": 3}), json!({"answered": 7}), false),
            (json!({"epoch": 3}), json!(null), false),
            (json!({"epoch": 2}), json!({"answered": "x"}), false),
            (json!({}), json!({"answered": "x"}), false),
            (json!(null), json!({"answered": "x"}), false),
        ] {
            assert_eq!(
                is_answered(&schedule(3, &status), &cluster_with_status(&cluster_status), "x"),
                expected,
                "{status}"
            );
        }
        // A Schedule without an epoch, and an agent that knows none.
        assert!(!is_answered(&schedule(0, &json!({})), &cluster_with_status(&json!({"answered": "x"})), "x"));
        assert!(is_answered(&schedule(0, &json!({"epoch": 0})), &cluster_with_status(&json!({"answered": "x"})), "x"));
    }

    /// A Job, and copies of it with the given completions, of which none is a whole copy, and conditions.
    fn say_over(completions: Option<i64>, copies: &[(Option<i64>, &[&str])]) -> bool {
        let mut manifest = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": "shop"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        manifest["spec"]["completions"] = json!(completions);
        manifest["spec"]["parallelism"] = json!(2);
        let facts = Facts::from_manifest(&manifest).unwrap();
        let copies: Vec<Schedule> = copies
            .iter()
            .map(|(share, types)| {
                let conditions: Vec<_> = types.iter().map(|type_| json!({"type": type_, "status": "True"})).collect();
                let resource = json!({ "conditions": conditions }).to_string();
                let mut copy = schedule(1, &json!({ "resource": resource }));
                copy.spec.share = share.map(|completions| {
                    build_schedule_share("east", Some(Share::Job { completions, parallelism: completions.min(1) }))
                });
                copy
            })
            .collect();
        are_over(&copies, &facts)
    }

    #[test]
    fn a_divided_job_is_over_when_all_of_it_is() {
        let (complete, failed): (&[&str], &[&str]) = (&["Complete"], &["Failed"]);
        for (completions, copies, expected) in [
            (Some(3), &[(None, complete), (None, &[])][..], true),
            (Some(3), &[(Some(2), complete), (Some(1), &[])], false),
            (Some(3), &[(Some(2), complete), (Some(1), complete)], true),
            (Some(3), &[(Some(2), &[]), (Some(1), failed)], true),
            // A share of nothing is complete before the others have begun.
            (Some(1), &[(Some(1), &[]), (Some(0), complete)], false),
            (Some(1), &[(Some(0), complete)], false),
            (Some(0), &[(Some(0), complete)], true),
            // A part that had no room.
            (Some(5), &[(Some(2), complete), (Some(2), complete)], false),
            (None, &[(None, complete)], true),
            (Some(3), &[], false),
        ] {
            assert_eq!(say_over(completions, copies), expected, "{completions:?} {copies:?}");
        }
    }
}
