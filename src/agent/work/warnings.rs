//! Warning events of the workload cluster about what keeps pods from running, by the object that they are about.

use std::collections::{BTreeMap, VecDeque};

use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;

use super::watch::Change;

/// Reasons of the events that are kept.
const REASONS: [&str; 8] = [
    "FailedCreate",
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "Failed",
    "ProvisioningFailed",
    "SyncLoadBalancerFailed",
    "Unhealthy",
];
/// Most objects of which events are kept; the oldest are forgotten first.
const SUBJECTS: usize = 2_000;
/// Most events about one object.
const EVENTS: usize = 4;
/// Longest message, in characters.
const MESSAGE: usize = 1_024;

/// Returns what is kept of an event; `None` for one that explains nothing here.
pub fn reduce_warning(mut event: Event) -> Option<Event> {
    let reason = event.reason.as_deref()?;
    if !REASONS.contains(&reason) {
        return None;
    }
    event.message = event.message.map(|message| message.chars().take(MESSAGE).collect());
    event.metadata.managed_fields = None;
    event.metadata.annotations = None;
    Some(event)
}

/// Warnings by what they are about: kind, namespace and name.
#[derive(Debug, Default)]
pub struct Warnings {
    about: BTreeMap<(String, String, String), Vec<Event>>,
    order: VecDeque<(String, String, String)>,
}

fn subject_of(event: &Event) -> (String, String, String) {
    let about = &event.involved_object;
    let [kind, namespace, name] =
        [&about.kind, &about.namespace, &about.name].map(|part| part.clone().unwrap_or_default());
    (kind, namespace, name)
}

/// Returns whether two are the same event, except for how often and when it happened.
fn says_the_same(one: &Event, other: &Event) -> bool {
    one.metadata.name == other.metadata.name && one.reason == other.reason && one.message == other.message
}

impl Warnings {
    /// Takes a change of the events. Returns whether they say something else now: an event that is repeated does not.
    pub fn take_event_change(&mut self, change: Change<Event>) -> bool {
        match change {
            Change::All(all) => {
                *self = Self::default();
                for event in all {
                    self.put_event(event);
                }
                // Any of those before may be gone.
                true
            }
            Change::One(event) => self.put_event(event),
            Change::Gone(event) => {
                let Some(known) = self.about.get_mut(&subject_of(&event)) else { return false };
                let before = known.len();
                known.retain(|one| one.name_any() != event.name_any());
                known.len() != before
            }
        }
    }

    /// Puts an event behind the others about its object. Returns whether it says something else than the last of them.
    fn put_event(&mut self, event: Event) -> bool {
        let subject = subject_of(&event);
        if !self.about.contains_key(&subject) {
            self.order.push_back(subject.clone());
            if self.order.len() > SUBJECTS
                && let Some(oldest) = self.order.pop_front()
            {
                self.about.remove(&oldest);
            }
        }
        let known = self.about.entry(subject).or_default();
        let is_repeated = known.last().is_some_and(|last| says_the_same(last, &event));
        known.retain(|one| one.name_any() != event.name_any());
        known.push(event);
        if known.len() > EVENTS {
            known.remove(0);
        }
        !is_repeated
    }

    /// Returns the warnings about an object.
    pub fn find_warnings(&self, kind: &str, namespace: &str, name: &str) -> &[Event] {
        self.about.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned())).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, about: &str, reason: &str) -> Event {
        serde_json::from_value(json!({"metadata": {"name": name}, "reason": reason, "message": "m".repeat(3000),
            "involvedObject": {"kind": "Pod", "namespace": "n", "name": about}}))
        .unwrap()
    }

    fn repeated_event(name: &str, message: &str, count: i32) -> Change<Event> {
        let (message, count) = (Some(message.to_owned()), Some(count));
        Change::One(Event { message, count, ..event(name, "p", "FailedMount") })
    }

    #[test]
    fn a_warning_that_is_repeated_is_kept_and_changes_nothing() {
        let mut warnings = Warnings::default();
        assert!(warnings.take_event_change(repeated_event("a", "no Secret", 1)));
        assert!(!warnings.take_event_change(repeated_event("a", "no Secret", 2)));
        assert_eq!(warnings.find_warnings("Pod", "n", "p")[0].count, Some(2), "the newer one is kept");
        assert!(warnings.take_event_change(repeated_event("a", "no volume", 3)), "it says something else");
        assert!(warnings.take_event_change(repeated_event("b", "no volume", 1)), "another event");
        assert!(warnings.take_event_change(repeated_event("a", "no volume", 4)), "it is the latest again");
        for is_known in [true, false] {
            let gone = Change::Gone(event("b", "p", "FailedMount"));
            assert_eq!(warnings.take_event_change(gone), is_known);
        }
        assert!(!warnings.take_event_change(Change::Gone(event("a", "unknown", "FailedMount"))));
        assert!(warnings.take_event_change(Change::All(Vec::new())));
        assert!(warnings.find_warnings("Pod", "n", "p").is_empty());
    }

    #[test]
    fn warnings_are_bounded_and_found_by_their_object() {
        assert!(reduce_warning(event("a", "p", "Pulled")).is_none());
        let reduced = reduce_warning(event("a", "p", "FailedMount")).unwrap();
        assert_eq!(reduced.message.as_ref().unwrap().len(), MESSAGE);
        let mut warnings = Warnings::default();
        for number in 0..6 {
            warnings.take_event_change(Change::One(event(&number.to_string(), "p", "FailedMount")));
            warnings.take_event_change(Change::One(event(&number.to_string(), "p", "FailedMount")));
        }
        assert_eq!(warnings.find_warnings("Pod", "n", "p").len(), EVENTS);
        warnings.take_event_change(Change::Gone(event("5", "p", "FailedMount")));
        assert_eq!(warnings.find_warnings("Pod", "n", "p").len(), EVENTS - 1);
        for number in 0..SUBJECTS {
            warnings.take_event_change(Change::One(event("a", &format!("q{number}"), "FailedMount")));
        }
        assert!(warnings.find_warnings("Pod", "n", "p").is_empty(), "the oldest is forgotten");
        assert_eq!(warnings.about.len(), SUBJECTS);
    }
}
