//! Plans of objects that no group holds: placed by annotation, withdrawn, gone, or a namespace.

use std::collections::BTreeSet;

use super::falling_shares::hold_falling_shares;
use super::faults;
use super::move_blocked;
use super::place::cluster_of;
use super::plan::Plan;
use super::schedule_deletions;
use super::schedule_diff::{DesiredSchedule, ScheduleDiff};
use super::source::Source;
use super::store::{Assignment, Store};
use super::write::TargetMark;
use crate::placement::decide::DirectDecision;
use crate::placement::facts::{ObjectKey, Workload};
use crate::placement::follow::is_follower;
use crate::placement::live;
use crate::placement::matching::Match;

/// Plans the copies of an object that no group holds.
pub(super) fn plan_object(store: &Store, key: &ObjectKey, direct: Option<&DirectDecision>) -> Plan {
    let Some(source) = store.sources.get(key) else {
        // Whether an object of a kind that is not watched is gone cannot be known.
        let is_gone = store.kind_of(key).is_some();
        return if is_gone { plan_removal(store, key, true) } else { plan_release(store, key) };
    };
    if store.assignments.get(key) == Some(&Assignment::Withdrawn) {
        return match store.evaluate_object(key) {
            Some(Match::Never(never)) => schedule_deletions::plan_taking_back(store, source, never),
            _ => plan_removal(store, key, false).with_label(source, TargetMark::default()),
        };
    }
    if store.assignments.get(key) == Some(&Assignment::Follows) && !key.is_of_kind("", "Namespace") {
        return plan_release(store, key);
    }
    plan_copies(store, source, direct)
}

fn plan_release(store: &Store, key: &ObjectKey) -> Plan {
    let mut plan = Plan::default();
    plan.push_stage(schedule_deletions::release_schedules(store, key));
    plan
}

fn plan_removal(store: &Store, key: &ObjectKey, gone: bool) -> Plan {
    let mut plan = plan_release(store, key);
    plan.push_stage(schedule_deletions::delete_all_schedules(store, key, gone));
    plan
}

/// Plans the copies of an object that exists and is not withdrawn.
fn plan_copies(store: &Store, source: &Source, direct: Option<&DirectDecision>) -> Plan {
    let key = &source.facts.key;
    let targets: Vec<&str> =
        direct.iter().flat_map(|direct| &direct.targets).map(|target| target.cluster.as_str()).collect();
    let pinned: BTreeSet<&str> = targets.iter().copied().collect();
    let lost = store.lost_homes_of_annotated(key, &pinned);
    let held = move_blocked::format_held_object(store, key, &pinned, &lost).filter(|_| is_direct(store, key));
    let desired = desired_schedules(store, source, direct, &pinned, &lost);
    let mut diff = ScheduleDiff::new(store);
    for schedule in &desired {
        diff.add_desired(schedule);
    }
    let (mut plan, faults) = diff.into_plan();
    if plan.is_partial {
        return plan;
    }
    plan.push_stage(schedule_deletions::release_schedules(store, key));
    for deletion in schedule_deletions::delete_drained_namespaces(store, key, &pinned) {
        plan.push_stage(vec![deletion]);
    }
    // What is written now is not Available yet, whatever was reported before.
    if stops_first(store, source, &pinned) {
        plan.push_stage(schedule_deletions::delete_idle_schedules(store, key, &desired));
    } else if !plan.writes_schedules() {
        plan.push_stage(schedule_deletions::delete_direct_schedules(store, key, &desired, &targets));
    }
    let is_direct = is_direct(store, key);
    let invalid = source.facts.asks.invalid.filter(|_| is_direct).map(|invalid| ("Invalid", invalid.to_string()));
    let is_frozen = direct.is_some_and(|direct| desired.iter().any(|one| direct.frozen.contains(one.cluster)));
    // Where the data was is known by the mark alone.
    let at: BTreeSet<&str> = if !lost.is_empty() {
        lost
    } else if held.is_some() || is_frozen {
        desired.iter().map(|one| one.cluster).collect()
    } else {
        pinned
    };
    let held = held.map(|text| ("HasVolumes", text));
    let blocked = direct.map(faults::format_blocked_clusters).unwrap_or_default();
    let denied = faults::direct_placement_denial(store, key);
    let fault = faults.get(key).map(faults::copy_fault_reason);
    plan.faults
        .insert(key.clone(), blocked.into_iter().chain(denied).chain(fault).chain(invalid).chain(held).collect());
    if is_direct {
        plan.with_label(source, TargetMark::from_targets(at))
    } else if matches!(store.evaluate_object(key), Some(Match::Policy { .. })) {
        // A namespace is where something in it is.
        plan.with_label(source, TargetMark::from_targets(store.clusters_of(key)))
    } else {
        plan
    }
}

/// Returns whether a CronJob has copies in Ready clusters that its annotation does not name: they go before it begins where
/// the annotation says, or its Jobs would start twice.
fn stops_first(store: &Store, source: &Source, pinned: &BTreeSet<&str>) -> bool {
    let key = &source.facts.key;
    let is_ready = |cluster: &str| store.clusters.get(cluster) == Some(&true);
    matches!(source.facts.workload, Workload::CronJob { .. })
        && is_direct(store, key)
        && !pinned.is_empty()
        && pinned.iter().all(|cluster| is_ready(cluster))
        && store.copies_of(key).any(|(at, _)| !pinned.contains(cluster_of(at)) && is_ready(cluster_of(at)))
}

fn is_direct(store: &Store, key: &ObjectKey) -> bool {
    store.assignments.get(key) == Some(&Assignment::Direct)
}

/// Returns the Schedules that the object has to have: where its annotation has `pinned` it, but only in the `lost` clusters
/// where its data was, if there are any; and what exists and is not decided about.
fn desired_schedules<'a>(
    store: &'a Store,
    source: &'a Source,
    direct: Option<&'a DirectDecision>,
    pinned: &BTreeSet<&str>,
    lost: &BTreeSet<&str>,
) -> Vec<DesiredSchedule<'a>> {
    let key = &source.facts.key;
    let is_direct = is_direct(store, key);
    let mut desired = Vec::new();
    let mut kept = store.kept_copies(key);
    if kept.is_empty() {
        kept = store.begun_copies(key);
    }
    if is_direct && kept.iter().any(|(at, _)| !pinned.contains(cluster_of(at))) {
        // Its data is where its copies are, and an empty volume elsewhere is not its data. What runs once ends where it began.
        for (at, schedule) in kept {
            let (cluster, share) = (cluster_of(at), schedule.spec.share.clone());
            desired.push(DesiredSchedule { share, ..DesiredSchedule::of_whole(source, cluster) });
        }
        set_scaler(store, key, &mut desired);
        return desired;
    }
    let stops_first = stops_first(store, source, pinned);
    for target in direct.iter().filter(|_| is_direct).flat_map(|direct| &direct.targets) {
        if !lost.is_empty() && !lost.contains(target.cluster.as_str()) {
            continue;
        }
        let share = target.share.map(|share| live::build_schedule_share(&target.cluster, Some(share)));
        let cluster = target.cluster.as_str();
        if store.is_over_elsewhere(key, cluster) || stops_first && store.copy_in(key, cluster).is_none() {
            continue;
        }
        desired.push(DesiredSchedule { share, ..DesiredSchedule::of_whole(source, cluster) });
    }
    for (at, schedule) in store.copies_of(key) {
        let cluster = cluster_of(at);
        let is_target = pinned.contains(cluster);
        if !is_target && schedule_deletions::is_drained_namespace(store, key, cluster) {
            continue;
        }
        let is_frozen = direct.is_some_and(|direct| direct.frozen.contains(cluster)) && !is_target;
        // What is there and not decided about stays, and is kept up to date.
        if !is_direct || is_frozen || key.is_of_kind("", "Namespace") && !is_target {
            let share = schedule.spec.share.clone();
            let group = schedule.spec.group.as_deref().filter(|_| !is_follower(key));
            desired.push(DesiredSchedule { share, group, ..DesiredSchedule::of_whole(source, cluster) });
        }
    }
    set_scaler(store, key, &mut desired);
    hold_falling_shares(store, &mut desired);
    desired
}

/// Leaves the number of replicas to the autoscaler of the object, if one is placed.
fn set_scaler<'a>(store: &'a Store, key: &ObjectKey, desired: &mut [DesiredSchedule<'a>]) {
    let scaler = store.placed_scaler_of(key);
    for one in desired {
        one.scaler = scaler;
    }
}
