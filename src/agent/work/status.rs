//! The status of a Schedule, from what was applied and what was seen.

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::context::Context;
use super::fields;
use super::index::Seen;
use super::namespaces;
use super::problem::Problem;
use super::task::Task;
use crate::api::Condition;
use crate::api::crd::condition::{find_condition, set_condition};
use crate::api::crd::schedule::{ScheduleStatus, applied as reasons, conditions};
use crate::api::labels::{AGENT_MANAGER, API_VERSION, CLUSTER_GROUP};
use crate::api::util::text::{escape_status, escaped_json};
use crate::diagnose::kstatus::State;
use crate::diagnose::not_running::NotRunning;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};

/// Longest message.
const MESSAGE: usize = 1024;

/// Returns a time without a fraction of a second, as Kubernetes writes times.
pub fn truncate_to_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Sets a condition; one that did not change keeps its times.
fn set_status_condition(
    status: &mut ScheduleStatus,
    type_: &str,
    holds: bool,
    reason: &str,
    message: &str,
    wall: Timestamp,
) {
    let message: String = message.chars().take(MESSAGE).collect();
    set_condition(&mut status.conditions, Condition::new(type_, holds, reason, message, truncate_to_seconds(wall)));
}

/// Records that a copy is as its Schedule says; without a copy for a namespace that is left as it is, and for what ran to its
/// end and was deleted.
pub fn record_applied(
    status: &mut ScheduleStatus,
    task: &Task,
    seen: Option<(&Seen, Option<&NotRunning>)>,
    dropped: &[String],
    wall: Timestamp,
) {
    let fields = dropped.join(", ");
    let message = if dropped.is_empty() {
        String::new()
    } else {
        format!("FieldsDropped: the workload cluster's API server does not know {fields}")
    };
    set_status_condition(status, conditions::APPLIED, true, reasons::APPLIED, &message, wall);
    status.observed_hash = Some(task.hash.clone());
    status.applied_generation = Some(task.source_generation);
    status.source_uid = Some(task.source_uid.clone());
    if let Some((copy, trouble)) = seen {
        status.applied_uid = Some(copy.uid.clone());
        self::record_seen_copy(status, copy, trouble, wall);
    }
}

/// Records that a namespace was there before and is used as it is.
pub fn not_owned(status: &mut ScheduleStatus, name: &str, wall: Timestamp) {
    set_status_condition(status, conditions::APPLIED, true, reasons::APPLIED, &namespaces::not_owned(name), wall);
}

/// Records why a copy is not as its Schedule says.
pub fn record_problem(status: &mut ScheduleStatus, problem: &Problem, wall: Timestamp) {
    set_status_condition(status, conditions::APPLIED, false, problem.reason, &problem.message, wall);
}

/// Records a state of the copy; while it is not available, with the reason that its pods do not run.
pub fn record_seen_copy(status: &mut ScheduleStatus, seen: &Seen, trouble: Option<&NotRunning>, wall: Timestamp) {
    let (holds, reason) = match seen.status.state {
        State::Current | State::Unknown => (true, "Available"),
        State::InProgress => (false, "InProgress"),
        State::Failed => (false, "Failed"),
        State::Terminating => (false, "Terminating"),
    };
    let mut message = seen.status.message.clone();
    let trouble = trouble.filter(|_| matches!(seen.status.state, State::InProgress | State::Failed));
    if let Some(trouble) = trouble {
        message = format!("{message}; {}", trouble.sentence);
    }
    let reason = trouble.map_or(reason, |trouble| trouble.reason);
    set_status_condition(status, conditions::AVAILABLE, holds, reason, &message, wall);
    status.resource = seen.resource.as_ref().and_then(print_status_part);
    status.copy_generation = seen.generation;
}

/// Part of a status as JSON text, without characters that a terminal acts on.
pub fn print_status_part(part: &Map<String, Value>) -> Option<String> {
    serde_json::to_string(part).ok().map(|text| escaped_json(&text).into_owned())
}

/// Records that there is no copy.
pub fn record_missing_copy(status: &mut ScheduleStatus, wall: Timestamp) {
    if find_condition(&status.conditions, conditions::AVAILABLE).is_some() {
        set_status_condition(status, conditions::AVAILABLE, false, "Missing", "the copy does not exist", wall);
    }
}

/// Records how far a removal is.
pub fn record_removal_progress(
    status: &mut ScheduleStatus,
    holds: bool,
    reason: &str,
    message: String,
    wall: Timestamp,
) {
    set_status_condition(status, conditions::DELETED, holds, reason, &message, wall);
}

/// Writes a status, unless the Schedule is another one by now.
///
/// # Errors
/// The failed request.
pub async fn write_schedule_status(
    context: &Context,
    name: &str,
    uid: &str,
    status: &ScheduleStatus,
) -> Result<(), CallError> {
    let mut status = json!(status);
    escape_status(&mut status);
    let mut object = json!({
        "apiVersion": format!("{CLUSTER_GROUP}/{API_VERSION}"),
        "kind": "Schedule",
        "metadata": { "name": name, "namespace": context.namespace, "uid": uid },
        "status": status,
    });
    let params = PatchParams::apply(AGENT_MANAGER).force();
    let api = context.own_schedules_api();
    loop {
        let Err(error) = call_with_timeout(api.patch_status(name, &params, &Patch::Apply(&object))).await else {
            return Ok(());
        };
        if error.is_gone() {
            return Ok(());
        }
        if !fields::remove_undeclared(&mut object, &error) {
            return Err(error);
        }
    }
}

/// Returns a status as the control plane has it after it was written.
pub fn stored_form(status: &ScheduleStatus) -> ScheduleStatus {
    let mut value = json!(status);
    escape_status(&mut value);
    serde_json::from_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_said_is_recorded_without_control_characters() {
        let mut status = ScheduleStatus::default();
        let refused = Problem::retry_soon(reasons::INVALID, "bad\n\u{1b}[2J");
        record_problem(&mut status, &refused, Timestamp::UNIX_EPOCH);
        assert_eq!(status.conditions[0].message, "bad\n\\u{1b}[2J");
        let resource = json!({ "host": "a\u{9b}b\u{7f}" });
        let text = print_status_part(resource.as_object().unwrap()).unwrap();
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), resource);
    }
}
