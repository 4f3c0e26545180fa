//! State of one copy, as its Schedule says.

use super::explain;
use super::live;
use crate::api::Schedule;
use crate::api::crd::condition::{Condition, find_condition};
use crate::api::crd::schedule::{self, applied, conditions, deleted};

/// State of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyState {
    /// Whether it is as the Schedule says now.
    pub applied: bool,
    /// Whether it is also available, by the rules of its kind.
    pub available: bool,
    /// Reason that it is not both, in words; empty where nothing was reported.
    pub problem: String,
    /// Notes on a copy that is applied: fields that were dropped, changes that were undone.
    pub note: String,
}

/// Returns the reason and, where there is one, the message of a condition.
fn format_condition(condition: &Condition) -> String {
    let Condition { reason, message, .. } = condition;
    if message.is_empty() { reason.clone() } else { format!("{reason}: {message}") }
}

/// Reads the state of the copy that a Schedule is about, in the cluster of this name.
pub fn read_copy_state(schedule: &Schedule, cluster: &str) -> CopyState {
    let Some(status) = &schedule.status else { return CopyState::default() };
    let is_current = status.observed_hash.as_deref() == Some(&schedule.spec.hash);
    let [apply, available] =
        [conditions::APPLIED, conditions::AVAILABLE].map(|type_| find_condition(&status.conditions, type_));
    let mut state = CopyState { applied: is_current && apply.is_some_and(Condition::is_true), ..CopyState::default() };
    if !state.applied {
        state.problem = apply.filter(|one| !one.is_true()).map(format_condition).unwrap_or_default();
        return state;
    }
    let notes = apply.map(|one| one.message.clone()).into_iter().chain(status.message.clone());
    state.note = notes.filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; ");
    state.available = available.is_some_and(Condition::is_true);
    if !state.available {
        let waiting = status.pods.as_ref().and_then(|pods| {
            let since = pods.unschedulable_since.as_ref()?;
            let key = live::source_key(&schedule.spec.source_ref);
            Some(explain::format_unschedulable(&key, cluster, pods.desired.saturating_sub(pods.bound).max(1), since.0))
        });
        let explained =
            available.filter(|one| not_running_reason(&one.reason).is_some()).map(|one| one.message.as_str());
        // The amount and the time, and what the scheduler there says.
        let waiting = waiting.map(|waiting| match explained {
            Some(why) => format!("{waiting}; {why}"),
            None => waiting,
        });
        state.problem = waiting.or_else(|| available.map(format_condition)).unwrap_or_default();
    }
    state
}

/// Finds the reason among those for which pods do not run.
fn not_running_reason(reason: &str) -> Option<&'static str> {
    schedule::available::NOT_RUNNING.into_iter().find(|known| *known == reason)
}

/// Event about a copy, upon which its owner may have to act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Whether something must be done.
    pub warning: bool,
    /// Reason of the event.
    pub reason: &'static str,
    /// Text of the event, without the cluster.
    pub message: String,
}

/// Reasons of `Applied` that stay until somebody does something.
const LASTING: [&str; 8] = [
    applied::KIND_NOT_SERVED,
    applied::ALREADY_EXISTS,
    applied::NAMESPACE_NOT_OWNED,
    applied::REFUSED,
    applied::CONTESTED,
    applied::FORBIDDEN,
    applied::INVALID,
    applied::TOO_LARGE,
];

/// Prefixes of the notes that are events of their own.
const NOTES: [(&str, bool); 3] =
    [("FieldsDropped", true), ("DriftCorrected", false), (applied::NAMESPACE_NOT_OWNED, true)];

/// Returns what is new in a Schedule's status.
pub fn find_copy_events(old: &Schedule, new: &Schedule) -> Vec<News> {
    let mut found = Vec::new();
    if let Some(apply) = find_changed_condition(old, new, conditions::APPLIED) {
        let lasting = LASTING.into_iter().find(|reason| *reason == apply.reason).filter(|_| !apply.is_true());
        let before = find_reported_condition(old, conditions::APPLIED).map(|old| old.reason);
        match lasting {
            // A message that changes while the reason stays is no news.
            Some(reason) if before.as_deref() != Some(reason) => {
                found.push(News { warning: true, reason, message: apply.message.clone() });
            }
            Some(_) => {}
            None => found.extend(read_noted_event(&apply.message)),
        }
    }
    if let Some(available) =
        find_changed_condition(old, new, conditions::AVAILABLE).filter(|available| !available.is_true())
    {
        let before = find_reported_condition(old, conditions::AVAILABLE).map(|old| old.reason);
        // A sentence that changes while the reason stays is no news.
        if let Some(reason) = not_running_reason(&available.reason).filter(|reason| before.as_deref() != Some(*reason))
        {
            found.push(News { warning: true, reason, message: available.message });
        }
    }
    if let Some(gone) =
        find_changed_condition(old, new, conditions::DELETED).filter(|gone| gone.reason == deleted::NAMESPACE_KEPT)
    {
        found.push(News { warning: false, reason: deleted::NAMESPACE_KEPT, message: gone.message });
    }
    let [before, now] = [old, new].map(|schedule| schedule.status.as_ref().and_then(|status| status.message.clone()));
    found.extend(now.filter(|text| before.as_ref() != Some(text)).and_then(|text| read_noted_event(&text)));
    found
}

/// Returns the event of a message that begins with the reason of one.
fn read_noted_event(text: &str) -> Option<News> {
    let (reason, warning) = NOTES.into_iter().find(|(prefix, _)| text.starts_with(prefix))?;
    let message = text.trim_start_matches(reason).trim_start_matches(": ").to_owned();
    Some(News { warning, reason, message })
}

/// Returns a condition of the new Schedule whose reason or message the old one does not have.
fn find_changed_condition(old: &Schedule, new: &Schedule, type_: &str) -> Option<Condition> {
    let (old, new) = (find_reported_condition(old, type_), find_reported_condition(new, type_)?);
    let same = old.is_some_and(|old| old.reason == new.reason && old.message == new.message);
    (!same).then_some(new)
}

/// Returns a condition that the status of a Schedule has.
fn find_reported_condition(schedule: &Schedule, type_: &str) -> Option<Condition> {
    schedule.status.as_ref().and_then(|status| find_condition(&status.conditions, type_)).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn schedule(status: Value) -> Schedule {
        serde_json::from_value(json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
            "metadata": {"name": "a"}, "status": status,
            "spec": {"manifest": "{}", "hash": "h", "sourceRef": {"group": "apps", "version": "v1", "kind": "Deployment",
                "namespace": "shop", "name": "web", "uid": "u", "generation": 1}}}))
        .unwrap()
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message})
    }

    fn applied_condition(message: &str) -> Value {
        condition("Applied", "True", "Applied", message)
    }

    #[test]
    fn a_copy_says_what_keeps_it_from_being_available() {
        let waiting = json!({"desired": 5, "bound": 2, "counted": 2, "unschedulableSince": "2026-01-01T00:00:00Z"});
        let progress = condition("Available", "False", "InProgress", "1 of 3");
        for (status, applied, available, problem, note) in [
            (json!({}), false, false, "", ""),
            (json!({"observedHash": "old", "conditions": [applied_condition("")]}), false, false, "", ""),
            (
                json!({"observedHash": "h", "conditions": [condition("Applied", "False", "Refused", "no")]}),
                false,
                false,
                "Refused: no",
                "",
            ),
            (
                json!({"observedHash": "h", "conditions": [applied_condition(""), progress]}),
                true,
                false,
                "InProgress: 1 of 3",
                "",
            ),
            (
                json!({"observedHash": "h", "pods": waiting, "conditions": [applied_condition(""), progress]}),
                true,
                false,
                r#"Deployment shop/web lacks minimum replicas on "west": 3 pods unschedulable since 2026-01-01T00:00:00Z"#,
                "",
            ),
            (
                json!({"observedHash": "h", "pods": waiting, "conditions": [applied_condition(""),
                    condition("Available", "False", "Unschedulable", "Insufficient cpu")]}),
                true,
                false,
                r#"Deployment shop/web lacks minimum replicas on "west": 3 pods unschedulable since 2026-01-01T00:00:00Z; Insufficient cpu"#,
                "",
            ),
            (
                json!({"observedHash": "h", "message": "DriftCorrected: x", "conditions": [applied_condition("FieldsDropped: y"),
                    condition("Available", "True", "Available", "")]}),
                true,
                true,
                "",
                "FieldsDropped: y; DriftCorrected: x",
            ),
        ] {
            let expected = CopyState { applied, available, problem: problem.to_owned(), note: note.to_owned() };
            assert_eq!(read_copy_state(&schedule(status), "west"), expected);
        }
    }

    fn event_reasons(old: Value, new: Value) -> Vec<&'static str> {
        find_copy_events(&schedule(old), &schedule(new)).into_iter().map(|news| news.reason).collect()
    }

    fn apply_status(status: &str, reason: &str, message: &str) -> Value {
        json!({"conditions": [condition("Applied", status, reason, message)]})
    }

    fn unavailable_status(reason: &str, message: &str) -> Value {
        json!({"conditions": [condition("Available", "False", reason, message)]})
    }

    #[test]
    fn only_what_lasts_and_is_new_is_an_event() {
        assert_eq!(event_reasons(json!({}), apply_status("False", "Refused", "a")), ["Refused"]);
        assert_eq!(
            event_reasons(apply_status("False", "Refused", "a"), apply_status("False", "Refused", "b")),
            [""; 0]
        );
        assert_eq!(event_reasons(json!({}), apply_status("False", "NamespaceMissing", "")), [""; 0]);
        assert_eq!(event_reasons(json!({}), apply_status("True", "Applied", "FieldsDropped: x")), ["FieldsDropped"]);
        assert_eq!(
            event_reasons(json!({}), apply_status("True", "Applied", "NamespaceNotOwned: x")),
            ["NamespaceNotOwned"]
        );
        assert_eq!(event_reasons(json!({}), apply_status("False", "NamespaceNotOwned", "x")), ["NamespaceNotOwned"]);
        assert_eq!(event_reasons(json!({}), json!({"message": "DriftCorrected: x"})), ["DriftCorrected"]);
        assert_eq!(event_reasons(json!({}), unavailable_status("ImageNotFound", "a")), ["ImageNotFound"]);
        assert_eq!(
            event_reasons(unavailable_status("ImageNotFound", "a"), unavailable_status("ImageNotFound", "b")),
            [""; 0]
        );
        assert_eq!(
            event_reasons(unavailable_status("ImageNotFound", "a"), unavailable_status("QuotaExceeded", "b")),
            ["QuotaExceeded"]
        );
        assert_eq!(
            event_reasons(unavailable_status("QuotaExceeded", "b"), unavailable_status("InProgress", "c")),
            [""; 0]
        );
        let kept = json!({"conditions": [condition("Deleted", "True", "NamespaceKept", "x")]});
        assert_eq!(event_reasons(json!({}), kept.clone()), ["NamespaceKept"]);
        assert_eq!(event_reasons(kept.clone(), kept), [""; 0]);
    }
}
