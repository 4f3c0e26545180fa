//! What pods cannot start without and is not in their cluster, as events: only while they do not run some time after they
//! were applied, for something there may make it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::events;
use super::queue::{Cause, ReconcileRequest};
use super::store::Store;
use super::write::Write;
use crate::api::crd::condition;
use crate::api::crd::schedule::conditions::APPLIED;
use crate::placement::copy_state;
use crate::placement::explain;
use crate::placement::follow::MissingFollower;

/// Time after which what was applied is expected to run, in seconds.
const GRACE: i64 = 30;

/// Returns the events about what is missing in a namespace that were not told before.
pub(super) fn report_missing(store: &mut Store, namespace: &str, wall: Timestamp, now: Instant) -> Vec<Write> {
    let (mut due, mut next) = (Vec::new(), None::<i64>);
    let plan = store.follow.plan_of(namespace);
    for (user, missing) in plan.into_iter().flat_map(|plan| &plan.missing) {
        let waits: Vec<(i64, &MissingFollower)> =
            missing.iter().filter_map(|one| Some((find_wait_left(store, one, wall)?, one))).collect();
        next = waits.iter().map(|(wait, _)| *wait).filter(|wait| *wait > 0).chain(next).min();
        let lasting: Vec<&MissingFollower> =
            waits.into_iter().filter(|(wait, _)| *wait <= 0).map(|(_, one)| one).collect();
        if let Some(first) = lasting.first() {
            let text = format!("{} {}", explain::format_missing_followers(&lasting), first.why.remedy());
            due.push((user.clone(), text));
        }
    }
    if let Some(wait) = next {
        let wait = Duration::from_secs(u64::try_from(wait).unwrap_or_default());
        store.queue.retry_request(ReconcileRequest::Follow(namespace.to_owned()), Cause::Report, now, wait);
    }
    store.follow.told.retain(|key, _| key.namespace() != namespace || due.iter().any(|(user, _)| user == key));
    let mut events = Vec::new();
    for (user, text) in due {
        let Some(source) = store.sources.get(&user) else { continue };
        if store.follow.told.get(&user) != Some(&text) {
            events.push(events::event_about(source.address.event_reference(), true, "DependencyMissing", &text));
            store.follow.told.insert(user, text);
        }
    }
    events
}

/// Returns the seconds after which a copy that lacks something is expected to run; `None` where it is not applied, or runs.
fn find_wait_left(store: &Store, missing: &MissingFollower, wall: Timestamp) -> Option<i64> {
    let (_, schedule) = store.copy_in(&missing.user, &missing.cluster)?;
    let state = copy_state::read_copy_state(schedule, &missing.cluster);
    if !state.applied || state.available {
        return None;
    }
    let conditions = schedule.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let applied = condition::find_condition(conditions, APPLIED)?.last_transition_time.as_ref()?.0;
    Some(applied.as_second() + GRACE - wall.as_second())
}
