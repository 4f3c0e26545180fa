//! From a plan of what follows to writes: Schedules of followers, and which of them leave. What uses them is in
//! `group_plan` and `object_plan`.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::faults;
use super::follow::is_used;
use super::follow_input::FollowContext;
use super::plan::Plan;
use super::schedule_deletions;
use super::schedule_diff::{DesiredSchedule, ScheduleDiff};
use super::store::{Assignment, Store};
use super::write::{TargetMark, Write};
use crate::api::crd::schedule::ScheduleShare;
use crate::api::labels::LABEL_NAME;
use crate::placement::facts::ObjectKey;
use crate::placement::follow::{Because, Place, PlaceState, is_follower};
use crate::placement::live;
use crate::placement::matching::{Match, Policy};

/// Most objects of a namespace of which the followers are planned before each of its groups is written; of more they are
/// written beside it.
const MOST_FIRST: usize = 2_000;

/// Plans the writes of what follows in a namespace, as it was last planned.
pub(super) fn plan_follow(store: &mut Store, namespace: &str, now: Instant) -> Plan {
    let keys = followed_keys(store, namespace);
    let mut diff = ScheduleDiff::new(store);
    for (key, cluster, place) in planned_places(store, &keys) {
        let is_there = store.copy_in(key, cluster).is_some();
        let is_edited = match place.state {
            PlaceState::Written => true,
            PlaceState::Stays | PlaceState::Lingers => is_there,
            PlaceState::Frozen | PlaceState::Leaves => false,
        };
        if let Some(desired) = desired_follower(store, key, cluster, place).filter(|_| is_edited) {
            diff.add_desired(&desired);
        }
    }
    let (mut plan, faults) = diff.into_plan();
    if plan.is_partial {
        return plan;
    }
    let is_written = plan.stages.is_empty();
    plan.push_stage(keys.iter().flat_map(|key| schedule_deletions::release_schedules(store, key)).collect());
    plan.push_stage(keys.iter().filter_map(|key| diff_label(store, key)).collect());
    for key in &keys {
        let fault = faults.get(key).map(faults::copy_fault_reason).into_iter();
        plan.faults.insert(key.clone(), fault.chain(faults::direct_placement_denial(store, key)).collect());
    }
    if is_written {
        let stage = plan_leaving(store, &keys, namespace, now);
        plan.push_stage(stage);
    }
    plan
}

/// Returns the deletions of copies that leave, as many as may within a second.
fn plan_leaving(store: &mut Store, keys: &[ObjectKey], namespace: &str, now: Instant) -> Vec<Write> {
    let leaving = planned_places(store, keys).filter(|(_, _, place)| place.state == PlaceState::Leaves);
    let mut writes: Vec<Write> =
        leaving.flat_map(|(key, cluster, _)| schedule_deletions::delete_follower(store, key, cluster)).collect();
    let granted = store.follow.take_leaves(writes.len(), now);
    if granted < writes.len() {
        store.postpone_follow(namespace, now);
    }
    writes.truncate(granted);
    writes
}

/// Plans the followers that a group's members need in its targets and that are not there: they are written before the members.
/// `None` if there is nothing to write.
pub(super) fn plan_followers_first(context: &FollowContext<'_>, group: &str) -> Option<Plan> {
    let store = context.store;
    let decided = context.decided.get(group).filter(|decided| !decided.suspended)?;
    let facts = store.facts_of(group);
    let facts = facts.iter().filter(|facts| !is_follower(&facts.key));
    let new = facts.filter(|facts| {
        let mut targets = decided.targets.iter().filter(|target| live::has_copy_in_target(target, facts));
        targets.any(|target| store.copy_in(&facts.key, &target.cluster).is_none())
    });
    let namespaces: BTreeSet<&str> = new.map(|facts| facts.key.namespace()).filter(|name| !name.is_empty()).collect();
    let mut diff = ScheduleDiff::new(store);
    for namespace in namespaces {
        if store.sources_in(namespace).len() > MOST_FIRST {
            continue;
        }
        let plan = context.plan_namespace(namespace);
        for (key, follower) in &plan.followers {
            let places = follower.places.iter().filter(|(cluster, place)| {
                place.state == PlaceState::Written
                    && decided.has_target(cluster)
                    && is_used(place)
                    && store.assignments.get(key) == Some(&Assignment::Follows)
                    && store.copy_in(key, cluster).is_none()
            });
            for (cluster, place) in places {
                if let Some(desired) = desired_follower(store, key, cluster, place) {
                    diff.add_desired(&desired);
                }
            }
        }
    }
    let (plan, _) = diff.into_plan();
    (!plan.stages.is_empty() || !plan.fetch.is_empty()).then_some(plan)
}

/// Returns the objects in a namespace whose copies are planned with what uses them.
fn followed_keys(store: &Store, namespace: &str) -> Vec<ObjectKey> {
    let keys = if namespace.is_empty() { store.class_keys().cloned().collect() } else { store.sources_in(namespace) };
    keys.into_iter().filter(|key| store.assignments.get(key) == Some(&Assignment::Follows)).collect()
}

/// Returns the places of objects as they were last planned.
fn planned_places<'a>(
    store: &'a Store,
    keys: &'a [ObjectKey],
) -> impl Iterator<Item = (&'a ObjectKey, &'a str, &'a Place)> {
    let followers = keys.iter().filter_map(move |key| Some((key, store.follow.follower(key)?)));
    let places = followers.flat_map(|(key, follower)| follower.places.iter().map(move |place| (key, place)));
    places.map(|(key, (cluster, place))| (key, cluster.as_str(), place))
}

/// Returns the Schedule that a follower has in a cluster.
pub(super) fn desired_follower<'a>(
    store: &'a Store,
    key: &ObjectKey,
    cluster: &'a str,
    place: &Place,
) -> Option<DesiredSchedule<'a>> {
    let source = store.sources.get(key)?;
    let policy = match store.evaluate_object(key) {
        Some(Match::Policy { policy, .. }) => Some(policy),
        _ => place.policy.as_ref().and_then(|name| store.order.iter().find(|policy| policy.name == *name)),
    };
    let share = match policy {
        Some(policy) => find_share(store, policy, cluster),
        None => store.copy_in(key, cluster).and_then(|(_, schedule)| schedule.spec.share.clone()),
    };
    let follows = !place.because.iter().any(|because| matches!(because, Because::Policy | Because::Annotation));
    Some(DesiredSchedule { share, policy, follows, ..DesiredSchedule::of_whole(source, cluster) })
}

/// Returns the Schedules of a follower that its own policy decides about, in clusters where something else keeps it.
pub(super) fn desired_elsewhere<'a>(
    store: &'a Store,
    key: &ObjectKey,
    is_elsewhere: impl Fn(&str) -> bool,
) -> Vec<DesiredSchedule<'a>> {
    let places = store.follow.follower(key).into_iter().flat_map(|follower| &follower.places);
    let kept = places.filter(|(cluster, place)| {
        let is_kept = store.copy_in(key, cluster).is_some()
            && matches!(place.state, PlaceState::Stays | PlaceState::Lingers | PlaceState::Frozen);
        is_elsewhere(cluster) && (is_used(place) && place.state == PlaceState::Written || is_kept)
    });
    kept.filter_map(|(cluster, place)| desired_follower(store, key, cluster, place)).collect()
}

/// Returns the domain of a cluster under a policy that spreads, after which its overrides go.
fn find_share(store: &Store, policy: &Policy, cluster: &str) -> Option<ScheduleShare> {
    let key = &policy.spec.spread_constraints.as_ref()?.topology_key;
    let label = store.follow.clusters.get(cluster).and_then(|cluster| cluster.labels.get(key));
    let domain = if key == LABEL_NAME { cluster } else { label? };
    Some(live::build_schedule_share(domain, None))
}

/// Returns the write of the marks that say where a follower went, where they differ.
fn diff_label(store: &Store, key: &ObjectKey) -> Option<Write> {
    let source = store.sources.get(key)?;
    // The mark of a lost home is the record of it.
    if !store.lost_home(key).is_empty() {
        return None;
    }
    let places = store.follow.follower(key).into_iter().flat_map(|follower| &follower.places);
    let places = places.filter(|(_, place)| place.state != PlaceState::Leaves);
    let target = TargetMark::from_targets(places.map(|(cluster, _)| cluster.as_str()));
    (source.target != target).then(|| Write::Label(source.address.clone(), target))
}
