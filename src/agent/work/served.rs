//! What a copy serves: how much of it is available, the most that was since it was asked for no less, and whether it ran to
//! its end.
//!
//! A move removes the old copy only after a report of these numbers on the new one. So they are of one copy, by UID, and of
//! what its controller has observed: pods that an earlier amount had may be on their way out.

use serde_json::{Map, Value};

use super::index::Seen;
use super::status::print_status_part;
use super::task::{CopyKey, Task};
use crate::api::crd::schedule::ScheduleStatus;
use crate::diagnose::kstatus::State;

/// Returns the number of a field of the reported status.
fn count_of(part: Option<&Map<String, Value>>, field: &str) -> i64 {
    part.and_then(|part| part.get(field)).and_then(Value::as_i64).unwrap_or(0).max(0)
}

/// Returns how many pods of a workload are available and how many it asks for; `None` for kinds whose controllers do not
/// count them.
fn counted_pods(key: &CopyKey, seen: &Seen) -> Option<(i64, i64)> {
    let part = seen.resource.as_ref();
    match (key.group, key.kind) {
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => {
            Some((count_of(part, "availableReplicas"), seen.desired.unwrap_or(1)))
        }
        ("apps", "DaemonSet") => Some((count_of(part, "numberAvailable"), count_of(part, "desiredNumberScheduled"))),
        _ => None,
    }
}

/// Returns whether the controller has observed the copy as it is now.
fn is_observed(seen: &Seen) -> bool {
    let part = seen.resource.as_ref();
    let observed = part.and_then(|part| part.get("observedGeneration")).and_then(Value::as_i64);
    observed.is_some_and(|observed| seen.generation.is_none_or(|generation| observed >= generation))
}

/// Returns what is available of a copy, in pods where it is divided, else 1 or 0; `before`: what was, of the same copy.
fn available_amount(task: &Task, key: &CopyKey, seen: &Seen, before: i64) -> i64 {
    if seen.terminating {
        return 0;
    }
    let Some((available, desired)) = counted_pods(key, seen) else {
        // A load balancer may never get an address, and nothing waits for it.
        let is_service = key.is_core("Service");
        let is_available = is_service || matches!(seen.status.state, State::Current | State::Unknown);
        return if is_available { task.amount } else { 0 };
    };
    let now = if task.is_divided { available } else { i64::from(available >= desired) };
    // Until its controller has observed a change, the pods of the copy before it are counted.
    if is_observed(seen) { now } else { now.min(before).min(task.amount) }
}

/// Records that a copy was tried to be applied as `task` says: from now on it is asked for its amount.
pub fn record_try(status: &mut ScheduleStatus, task: &Task) {
    status.epoch = Some(task.epoch);
    status.available.get_or_insert(0);
    status.served = Some(status.served.unwrap_or(0).min(task.amount));
}

/// Records the first look of a process at a copy, after a try. A copy that was changed since the last report may have been
/// asked for less in between.
pub fn record_first_look(status: &mut ScheduleStatus, seen: &Seen, was_tried: bool) {
    if !was_tried && status.copy_generation != seen.generation {
        status.served = status.served.min(status.available);
    }
}

/// Records what is available of a copy that was seen, before anything else of it is recorded.
pub fn record_amounts(status: &mut ScheduleStatus, task: &Task, seen: &Seen) {
    let Some(key) = task.key() else { return };
    let is_same = status.applied_uid.as_ref().is_none_or(|uid| *uid == seen.uid);
    let (before, served) = if is_same { (status.available, status.served) } else { (None, None) };
    let available = available_amount(task, key, seen, before.unwrap_or(0));
    status.available = Some(available);
    status.served = Some(served.unwrap_or(0).max(available).min(task.amount));
    // A Pod that is being deleted ends because of that.
    let is_stopped = seen.terminating && key.is_core("Pod");
    let had_finished = is_same && status.finished == Some(true);
    let is_over = had_finished || (seen.finished && !is_stopped);
    status.finished = (key.runs_once() && is_over).then_some(true);
}

/// Records that there is no copy: the next one begins at nothing.
pub fn record_no_copy(status: &mut ScheduleStatus) {
    (status.available, status.served) = (Some(0), Some(0));
}

/// Records that the copy had run to its end when it was deleted, if it had, and how it ended.
pub fn record_end(status: &mut ScheduleStatus, end: Option<&Map<String, Value>>) {
    if let Some(end) = end {
        status.finished = Some(true);
        status.resource = print_status_part(end);
    }
}

/// Records that a copy was removed.
pub fn record_removed(status: &mut ScheduleStatus, end: Option<&Map<String, Value>>) {
    record_end(status, end);
    status.available = Some(0);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::Schedule;
    use crate::api::placeable::Kinds;

    /// A Schedule of an object of a kind, with a share of so many pods where one is given.
    fn task(api_version: &str, kind: &str, share: Option<i64>, epoch: i64) -> Task {
        let manifest = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "n"}});
        let share = share.map(|replicas| json!({"domain": "d", "replicas": replicas}));
        let schedule: Schedule = serde_json::from_value(json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1",
            "kind": "Schedule", "metadata": {"name": "s"}, "spec": {"manifest": manifest.to_string(), "hash": "h",
                "epoch": epoch, "share": share, "sourceRef": {"version": "v1", "kind": kind, "name": "a", "uid": "u"}}}))
        .unwrap();
        Task::from_schedule(&Kinds::default(), schedule).0
    }

    /// A Deployment of generation `generation`, observed to `observed`, with so many pods of those that it asks for.
    fn deployment(uid: &str, generation: i64, observed: i64, available: i64, replicas: i64) -> Seen {
        Seen::of(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": replicas},
            "metadata": {"name": "a", "namespace": "n", "uid": uid, "generation": generation},
            "status": {"observedGeneration": observed, "availableReplicas": available, "updatedReplicas": 1}}))
    }

    /// Records a look at a copy that was tried before; returns what is available, and what served.
    fn look(status: &mut ScheduleStatus, task: &Task, seen: &Seen) -> (i64, i64) {
        record_amounts(status, task, seen);
        status.applied_uid = Some(seen.uid.clone());
        (status.available.unwrap(), status.served.unwrap())
    }

    fn deployment_task(amount: i64, epoch: i64) -> Task {
        task("apps/v1", "Deployment", Some(amount), epoch)
    }

    #[test]
    fn what_served_is_kept_until_less_is_asked_for_or_the_copy_is_another_one() {
        let mut status = ScheduleStatus::default();
        record_try(&mut status, &deployment_task(5, 1));
        assert_eq!((status.epoch, status.available, status.served), (Some(1), Some(0), Some(0)));
        assert_eq!(look(&mut status, &deployment_task(5, 1), &deployment("u", 1, 1, 4, 5)), (4, 4));
        assert_eq!(look(&mut status, &deployment_task(5, 1), &deployment("u", 1, 1, 5, 5)), (5, 5));
        // Pods die: it served them anyway. An edit of the pods asks for no less.
        assert_eq!(look(&mut status, &deployment_task(5, 1), &deployment("u", 1, 1, 2, 5)), (2, 5));
        record_try(&mut status, &deployment_task(5, 2));
        assert_eq!((status.epoch, status.served), (Some(2), Some(5)));
        // Less, and more again: what an observed controller has counts.
        record_try(&mut status, &deployment_task(2, 3));
        assert_eq!(look(&mut status, &deployment_task(2, 3), &deployment("u", 2, 2, 2, 2)), (2, 2));
        record_try(&mut status, &deployment_task(5, 4));
        assert_eq!(look(&mut status, &deployment_task(5, 4), &deployment("u", 3, 2, 5, 5)), (2, 2), "not observed yet");
        assert_eq!(look(&mut status, &deployment_task(5, 4), &deployment("u", 3, 3, 5, 5)), (5, 5));
        // Another one of its name has served nothing.
        assert_eq!(look(&mut status, &deployment_task(5, 4), &deployment("v", 1, 1, 1, 5)), (1, 1));
        record_no_copy(&mut status);
        assert_eq!((status.available, status.served), (Some(0), Some(0)));
    }

    #[test]
    fn a_copy_that_is_not_divided_is_available_as_a_whole() {
        let whole = task("apps/v1", "Deployment", None, 0);
        let mut status = ScheduleStatus::default();
        record_try(&mut status, &whole);
        assert_eq!(look(&mut status, &whole, &deployment("u", 1, 1, 9, 10)), (0, 0));
        // Of whatever revision its pods are: an edit reaches each copy of it.
        assert_eq!(look(&mut status, &whole, &deployment("u", 1, 1, 10, 10)), (1, 1));
        // An annotation makes a generation, and no pod.
        assert_eq!(look(&mut status, &whole, &deployment("u", 2, 1, 10, 10)), (1, 1));
        assert_eq!(look(&mut status, &whole, &deployment("u", 2, 2, 9, 10)), (0, 1));
    }

    #[test]
    fn the_first_look_believes_no_report_of_a_copy_that_changed_since() {
        let five = task("apps/v1", "Deployment", Some(5), 3);
        let reported = ScheduleStatus {
            available: Some(3),
            served: Some(5),
            copy_generation: Some(1),
            applied_uid: Some("u".to_owned()),
            ..ScheduleStatus::default()
        };
        for (generation, was_tried, served) in [(1, false, 5), (2, true, 5), (2, false, 3)] {
            let (mut status, seen) = (reported.clone(), deployment("u", generation, 1, 3, 5));
            record_try(&mut status, &five);
            record_first_look(&mut status, &seen, was_tried);
            assert_eq!(look(&mut status, &five, &seen), (3, served), "{generation} {was_tried}");
        }
    }

    #[test]
    fn kinds_without_pods_are_available_when_they_are_applied() {
        for (version, kind, spec, expected) in [
            ("v1", "Service", json!({"type": "LoadBalancer"}), 1),
            ("v1", "ConfigMap", json!({}), 1),
            ("v1", "Pod", json!({}), 0),
        ] {
            let seen = Seen::of(&json!({"apiVersion": version, "kind": kind, "spec": spec,
                "metadata": {"name": "a", "namespace": "n", "uid": "u"}}));
            let mut status = ScheduleStatus::default();
            assert_eq!(look(&mut status, &task(version, kind, None, 0), &seen).0, expected, "{kind}");
        }
    }

    fn seen_pod(uid: &str, phase: &str, deleted: Option<&str>) -> Seen {
        Seen::of(&json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": phase},
            "metadata": {"name": "a", "namespace": "n", "uid": uid, "deletionTimestamp": deleted}}))
    }

    #[test]
    fn an_end_is_recorded_once_and_of_one_copy() {
        let once = task("v1", "Pod", None, 0);
        let mut status = ScheduleStatus::default();
        look(&mut status, &once, &seen_pod("u", "Running", None));
        assert_eq!(status.finished, None);
        look(&mut status, &once, &seen_pod("u", "Succeeded", Some("2026-01-01T00:00:00Z")));
        assert_eq!(status.finished, None, "it ends because it is deleted");
        look(&mut status, &once, &seen_pod("u", "Succeeded", None));
        look(&mut status, &once, &seen_pod("u", "Succeeded", Some("2026-01-01T00:00:00Z")));
        assert_eq!(status.finished, Some(true));
        record_removed(&mut status, None);
        assert_eq!((status.finished, status.available), (Some(true), Some(0)));
        look(&mut status, &once, &seen_pod("v", "Running", None));
        assert_eq!(status.finished, None);
        // Between the last report and the deletion.
        record_removed(&mut status, json!({"phase": "Succeeded"}).as_object());
        assert_eq!((status.finished, status.resource.as_deref()), (Some(true), Some(r#"{"phase":"Succeeded"}"#)));
    }
}
