//! Events about decisions: once a change, and never more than the API server should hold.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use tokio::time::Instant;

use super::decide::Decided;
use super::state::State;
use super::status::SCHEDULED;
use super::writer::Write;
use crate::api::group::ObjectRef;
use crate::api::{ScheduleGroup, ScheduleGroupStatus, condition};
use crate::placement::explain;
use crate::placement::facts::ObjectKey;
use crate::placement::matching::Match;

/// Events in a burst, and after it in a second.
const BURST: f64 = 200.0;
const RATE: f64 = 20.0;

/// Limits the rate of events; what is above it is lost.
#[derive(Debug)]
pub(super) struct Limit(Mutex<(f64, Instant)>);

impl Default for Limit {
    fn default() -> Self {
        Self(Mutex::new((BURST, Instant::now())))
    }
}

impl Limit {
    /// Takes one event out of the allowance.
    pub(super) fn take(&self, now: Instant) -> bool {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = *inner;
        let left = (left + RATE * now.saturating_duration_since(at).as_secs_f64()).min(BURST);
        let taken = left >= 1.0;
        *inner = (if taken { left - 1.0 } else { left }, now);
        taken
    }
}

/// An event about an object.
pub(super) fn event(about: ObjectReference, warning: bool, reason: &'static str, message: &str) -> Write {
    Write::Event { about, warning, reason, message: explain::shorten(message.to_owned()) }
}

fn reference(group: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(ScheduleGroup::api_version(&()).into_owned()),
        kind: Some(ScheduleGroup::kind(&()).into_owned()),
        name: Some(group.to_owned()),
        ..ObjectReference::default()
    }
}

/// The events of a decision: for members that are new in the group, and for a place that was found or is missing.
pub(super) fn of_group(
    state: &State,
    name: &str,
    members: &[&ObjectKey],
    decided: Option<&Decided>,
    old: Option<&ScheduleGroupStatus>,
    new: &ScheduleGroupStatus,
) -> Vec<Write> {
    let mut events = Vec::new();
    let is_known = |key: &ObjectKey| old.is_some_and(|old| old.object_refs.iter().any(|one| is_reference(one, key)));
    for key in members.iter().filter(|key| !is_known(key)) {
        let (Some(source), Some(Match::Policy { policy, losers })) = (state.sources.get(*key), state.evaluate(key))
        else {
            continue;
        };
        let about = || source.address.reference();
        events.push(event(about(), false, "SchedulePolicyMatched", &explain::matched(policy, &losers)));
        events.push(event(about(), false, "AddedToScheduleGroup", &explain::added(name, policy, &source.facts)));
    }
    let Some(decided) = decided.filter(|decided| !decided.suspended) else { return events };
    let before = old.and_then(|old| condition::find(&old.conditions, SCHEDULED));
    if decided.scheduled {
        let moved = old.is_none_or(|old| !old.scheduled || old.target_clusters != new.target_clusters);
        if moved {
            events.push(event(reference(name), false, "ScheduleGroupSyncedToWorkloadCluster", &decided.message));
        }
    } else if before.is_none_or(|before| before.reason != decided.reason || before.message != decided.message) {
        events.push(event(reference(name), true, "NotPlaced", &decided.message));
        for source in members.iter().filter_map(|key| state.sources.get(*key)) {
            events.push(event(source.address.reference(), true, "NotPlaced", &decided.message));
        }
    }
    events
}

fn is_reference(one: &ObjectRef, key: &ObjectKey) -> bool {
    key.is(&one.group, &one.kind)
        && key.namespace() == one.namespace.as_deref().unwrap_or_default()
        && key.name() == one.name
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_of_events_is_cut_to_the_rate() {
        let limit = Limit::default();
        let start = Instant::now();
        let count = |at: Instant| (0..1000).filter(|_| limit.take(at)).count();
        assert_eq!(count(start + Duration::from_secs(1)), 200);
        assert_eq!(count(start + Duration::from_secs(2)), 20);
        assert_eq!(count(start + Duration::from_secs(60)), 200);
    }
}
