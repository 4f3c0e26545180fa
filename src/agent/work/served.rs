//! What a copy serves: how much of it is available, the most that was since it was asked for no less, and whether it ran to
//! its end.
//!
//! A move removes the old copy only after a report of these numbers on the new one. So they are of one copy, by UID, and of
//! what its controller has observed: pods that an earlier amount had may be on their way out.

use serde_json::{Map, Value};

use super::index::Seen;
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

/// Records that the copy had run to its end when it was deleted, if it had.
pub fn record_finished(status: &mut ScheduleStatus, finished: bool) {
    if finished {
        status.finished = Some(true);
    }
}

/// Records that a copy was removed.
pub fn record_removed(status: &mut ScheduleStatus, finished: bool) {
    record_finished(status, finished);
    status.available = Some(0);
}
