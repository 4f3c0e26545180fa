//! The entry of the move machine, and what a group at rest or without a source needs.

use super::begin::{begin_move, may_begin, release_copies};
use super::once::step_once;
use super::record::{ClusterAmounts, MoveCause, MovePhase, MoveRecord, amount_in};
use super::removing::step_removal;
use super::seen::Seen;
use super::up::step_up;
use super::view::View;
use super::write::{MoveEvent, MoveStep, MoveWrite, distinct};

/// Returns what may be written now for a group: the next record, alone, or writes of its Schedules.
///
/// The same record and the same look give the same step. Nothing is due if the step has no writes.
pub fn step(record: &MoveRecord, seen: &Seen) -> MoveStep {
    let view = View { record, seen };
    if !seen.source.there {
        let live = view.cluster_names().into_iter().filter(|cluster| view.is_live(cluster));
        let deletions = live.map(|cluster| MoveWrite::Delete { cluster: cluster.to_owned() });
        return MoveStep::Writes(deletions.chain(release_copies(view)).collect());
    }
    if seen.source.once {
        return step_once(view);
    }
    match &record.running {
        Some(running) if running.phase == MovePhase::Up => step_up(view, running),
        Some(running) => step_removal(view, running),
        None => step_at_rest(view),
    }
}

fn step_at_rest(view: View<'_>) -> MoveStep {
    let target = &view.record.target;
    let strays = find_strays(view);
    if target.is_empty() && !strays.is_empty() {
        // No record says where the group is. To write it down is no decision.
        return place(view, find_place(view));
    }
    if !view.is_fixed() {
        if let Some(step) = step_by_decision(view, &strays) {
            return step;
        }
        if view.record.retry.is_some() && view.seen.decision.cause.is_none() {
            return MoveStep::Record { record: view.record.next_epoch().without_failures(), event: None };
        }
    }
    MoveStep::Writes(tend_copies(view, &strays))
}

/// Returns the clusters with a copy that nobody wants.
fn find_strays(view: View<'_>) -> Vec<&str> {
    view.cluster_names()
        .into_iter()
        .filter(|cluster| {
            view.is_live(cluster) && view.cluster_exists(cluster) && !view.record.target.contains_key(*cluster)
        })
        .collect()
}

/// Returns the step that a decision asks for; none if the group stays as it is recorded.
fn step_by_decision(view: View<'_>, strays: &[&str]) -> Option<MoveStep> {
    let (record, seen, decision) = (view.record, view.seen, &view.seen.decision);
    let target = &record.target;
    if target.is_empty() {
        return (!decision.best.is_empty()).then(|| place(view, decision.best.clone()));
    }
    let target_served = target.keys().any(|cluster| view.most_served(cluster) > 0);
    if !seen.source.divided && !target_served && strays.iter().any(|cluster| view.copy_serves(cluster, 1)) {
        return Some(place(view, find_place(view)));
    }
    match decision.cause? {
        MoveCause::Lost => {
            let left: ClusterAmounts = target
                .iter()
                .filter(|(cluster, _)| view.cluster_exists(cluster))
                .map(|(cluster, amount)| (cluster.clone(), *amount))
                .collect();
            // An empty volume is not the data: with volumes the target stays recorded.
            let is_new = !seen.source.volumes && left != *target;
            is_new.then(|| MoveStep::Record { record: record.next_epoch().without_move(left), event: None })
        }
        MoveCause::Scale => {
            let scaled = decision.scaled.as_ref().filter(|scaled| scaled.to != *target)?;
            Some(place(view, scaled.to.clone()))
        }
        cause if may_begin(view, cause) => {
            let to = choose_side(view, strays)?;
            let begun = begin_move(view, &to, cause, MovePhase::Up);
            Some(view.keep_then_record(&added_side(target, &to), begun, Some(MoveEvent::Moving)))
        }
        _ => None,
    }
}

/// Returns where a group would move; never to a third cluster beside a copy that nobody wants.
fn choose_side(view: View<'_>, strays: &[&str]) -> Option<ClusterAmounts> {
    let best = &view.seen.decision.best;
    let to = if strays.is_empty() || view.seen.source.divided {
        best.clone()
    } else {
        let stray = strays.iter().find(|cluster| amount_in(best, cluster) > 0)?;
        ClusterAmounts::from([((*stray).to_owned(), 1)])
    };
    (!to.is_empty() && to != view.record.target).then_some(to)
}

/// Writes another target without a move, after the copies that it adds are kept.
pub(super) fn place(view: View<'_>, to: ClusterAmounts) -> MoveStep {
    let added = added_side(&view.record.target, &to);
    view.keep_then_record(&added, view.record.next_epoch().without_move(to), None)
}

/// Returns the part of a side in clusters that the target does not name.
fn added_side(target: &ClusterAmounts, to: &ClusterAmounts) -> ClusterAmounts {
    let added = to.iter().filter(|(cluster, _)| !target.contains_key(*cluster));
    added.map(|(cluster, amount)| (cluster.clone(), *amount)).collect()
}

/// Returns where a group is of which no record says it: where it serves, else where it has a copy, ties by name.
pub(super) fn find_place(view: View<'_>) -> ClusterAmounts {
    let schedules = &view.seen.schedules;
    let there = schedules.keys().filter(|cluster| view.is_live(cluster) && view.cluster_exists(cluster));
    if view.seen.source.divided {
        return there.map(|cluster| (cluster.clone(), schedules[cluster].amount)).collect();
    }
    let first = there.min_by_key(|cluster| {
        let serves = schedules[*cluster].said.available > 0 && view.is_ready(cluster);
        (!serves, (*cluster).clone())
    });
    first.map(|cluster| (cluster.clone(), 1)).into_iter().collect()
}

/// Writes what the targets lack, and removes what nobody wants once the targets serve.
fn tend_copies(view: View<'_>, strays: &[&str]) -> Vec<MoveWrite> {
    let (target, source) = (&view.record.target, &view.seen.source);
    let there: Vec<&str> = target.keys().map(String::as_str).collect();
    let mut writes: Vec<MoveWrite> = Vec::new();
    for (cluster, amount) in target {
        writes.extend(view.write_amount_safely(cluster, *amount, &there));
    }
    if source.volumes && !source.consent {
        return distinct(writes);
    }
    for stray in strays {
        let Some(schedule) = view.schedule(stray) else { continue };
        let replaced = target.iter().all(|(cluster, amount)| view.copy_serves(cluster, *amount))
            || (schedule.said.available == 0
                && target.iter().all(|(cluster, amount)| view.copy_served(cluster, *amount)))
            || (schedule.said.served == 0 && !source.divided);
        if !target.is_empty() && replaced {
            writes.push(MoveWrite::Delete { cluster: (*stray).to_owned() });
        } else {
            writes.extend(view.write_amount(stray, schedule.amount));
            writes.extend(view.ask_clusters([*stray].into_iter().chain(there.iter().copied())));
        }
    }
    distinct(writes)
}
