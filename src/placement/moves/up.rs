//! Phase Up: the new side is made beside the old one, until it serves, is withdrawn, or fails.

use super::record::{
    ClusterAmounts, ExcludedCluster, ExclusionReason, Move, MoveCause, MovePhase, MoveRecord, MoveRetry, amount_in,
};
use super::sides::{Sides, is_same_cluster};
use super::view::View;
use super::write::{MoveEvent, MoveStep, MoveWrite, distinct};

/// Seconds of back-off after the first failure. Each further one doubles them.
const BACK_OFF_SECONDS: i64 = 600;
/// Longest back-off, in seconds.
const LONGEST_BACK_OFF_SECONDS: i64 = 7_200;
/// Seconds after the back-off until a cluster where a move failed is taken again.
const EXCLUDED_SECONDS: i64 = 600;

pub(super) fn step_up(view: View<'_>, running: &Move) -> MoveStep {
    let sides = Sides::from_move(running);
    step_without_sides(view, running, &sides)
        .or_else(|| step_scaled(view, running))
        .unwrap_or_else(|| step_growing(view, running, &sides))
}

/// What is left of the old side: what is gone, or was removed by somebody else, is not given up a second time.
fn remaining_from(view: View<'_>, running: &Move) -> ClusterAmounts {
    let left = running.from.iter().filter(|(cluster, _)| {
        is_same_cluster(view, running, cluster) && (view.is_live(cluster) || amount_in(&running.to, cluster) > 0)
    });
    left.map(|(cluster, amount)| (cluster.clone(), *amount)).collect()
}

/// Returns the step if a cluster of either side is gone, or the new side of a failover is lost as well.
fn step_without_sides(view: View<'_>, running: &Move, sides: &Sides<'_>) -> Option<MoveStep> {
    let from = remaining_from(view, running);
    let next = view.record.next_epoch();
    if running.to.keys().any(|cluster| !is_same_cluster(view, running, cluster)) {
        if from.is_empty() {
            return Some(MoveStep::Record { record: next.without_move(ClusterAmounts::new()), event: None });
        }
        let back = Move { phase: MovePhase::RollingBack, from: from.clone(), ..running.clone() };
        let record = MoveRecord { target: from, running: Some(back), ..next };
        return Some(MoveStep::Record { record, event: Some(MoveEvent::MoveWithdrawn) });
    }
    if running.cause == MoveCause::Failover
        && sides.grow.iter().any(|cluster| view.is_away(cluster) && view.most_served(cluster) == 0)
    {
        return Some(MoveStep::Record { record: next.without_move(from), event: None });
    }
    if from == running.from {
        return None;
    }
    if running.to.iter().any(|(cluster, amount)| *amount < amount_in(&from, cluster))
        || from.keys().any(|cluster| amount_in(&running.to, cluster) == 0)
    {
        let rest = Move { from, ..running.clone() };
        let record = MoveRecord { running: Some(rest), ..view.record.clone() };
        return Some(MoveStep::Record { record, event: None });
    }
    // Nothing is left to go back to: the move is a placement, and no deadline runs.
    let placed = next.without_move(view.record.target.clone()).without_failures();
    Some(MoveStep::Record { record: placed, event: None })
}

/// Returns the step if the replicas changed: the new side follows, the old one only falls.
fn step_scaled(view: View<'_>, running: &Move) -> Option<MoveStep> {
    let source = &view.seen.source;
    if !source.divided || running.to.values().sum::<i64>() == source.amount || view.is_fixed() {
        return None;
    }
    let scaled = view.seen.decision.scaled.as_ref()?;
    let from = if source.amount < running.from.values().sum::<i64>() { &scaled.from } else { &running.from };
    if scaled.to == *from {
        let record = view.record.next_epoch().without_move(scaled.to.clone());
        return Some(MoveStep::Record { record, event: None });
    }
    if scaled.to == running.to && *from == running.from {
        return None;
    }
    let mut changed = Move { from: from.clone(), to: scaled.to.clone(), ..running.clone() };
    for cluster in scaled.to.keys() {
        if let Some(seen) = view.seen.clusters.get(cluster) {
            changed.uids.entry(cluster.clone()).or_insert_with(|| seen.uid.clone());
        }
    }
    let record = MoveRecord { target: scaled.to.clone(), running: Some(changed), ..view.record.clone() };
    Some(MoveStep::Record { record, event: None })
}

fn step_growing(view: View<'_>, running: &Move, sides: &Sides<'_>) -> MoveStep {
    let (seen, record) = (view.seen, view.record);
    let Sides { grow, shrink } = sides;
    // The deadline stands still under mass-loss protection.
    let is_late = !seen.frozen && seen.now >= running.deadline.saturating_add(seen.frozen_seconds.max(0));
    let rises = if grow.is_empty() {
        running.to.keys().all(|cluster| serves_as_needed(view, running, shrink, cluster))
    } else {
        grow.iter().all(|cluster| serves_as_needed(view, running, shrink, cluster))
    };
    let can_go_back = shrink
        .iter()
        .all(|cluster| view.copy_served(cluster, view.needed_amount(amount_in(&running.from, cluster), grow)));
    let is_fixed = view.is_fixed();
    let is_unwanted = !is_fixed
        && (seen.decision.cause.is_none() || !grow.iter().all(|cluster| seen.decision.wanted.contains(*cluster)));
    // Where nobody wants the new side any more, the old one is asked first whether it serves.
    let is_asked = !is_late && shrink.iter().any(|cluster| view.is_ready(cluster) && !view.report_counts(cluster));
    if rises && !(is_unwanted && (can_go_back || is_asked)) {
        let removing = Move { phase: MovePhase::Removing, ..running.clone() };
        return MoveStep::Record { record: MoveRecord { running: Some(removing), ..record.next_epoch() }, event: None };
    }
    let back = Move { phase: MovePhase::RollingBack, ..running.clone() };
    let back = MoveRecord { target: running.from.clone(), running: Some(back), ..record.next_epoch() };
    if (is_unwanted || is_fixed) && can_go_back {
        return MoveStep::Record { record: back, event: Some(MoveEvent::MoveWithdrawn) };
    }
    if is_late && can_go_back {
        let record = record_failure(view, running, back, grow);
        return MoveStep::Record { record, event: Some(MoveEvent::MoveFailed) };
    }
    MoveStep::Writes(make_new_side(view, running, sides, is_late || is_unwanted || is_fixed))
}

/// Returns whether the copy in a cluster runs so many that those which it replaces are not missed.
fn serves_as_needed(view: View<'_>, running: &Move, replaced: &[&str], cluster: &str) -> bool {
    view.copy_serves(cluster, view.needed_amount(amount_in(&running.to, cluster), replaced))
}

/// Adds the failure to the record that begins the way back.
fn record_failure(view: View<'_>, running: &Move, back: MoveRecord, grow: &[&str]) -> MoveRecord {
    let attempt = view.record.failed_attempts().saturating_add(1);
    let doublings = u32::try_from(attempt - 1).unwrap_or_default().min(16);
    let not_before = view.seen.now + (BACK_OFF_SECONDS << doublings).min(LONGEST_BACK_OFF_SECONDS);
    let mut excluded = back.excluded.clone();
    for cluster in grow.iter().filter(|cluster| !view.copy_serves(cluster, amount_in(&running.to, cluster))) {
        excluded.retain(|entry| entry.cluster != **cluster);
        let uid = running.uids.get(*cluster).cloned().unwrap_or_default();
        let until = not_before + EXCLUDED_SECONDS;
        let reason = ExclusionReason::MoveFailed;
        excluded.push(ExcludedCluster { cluster: (*cluster).to_owned(), uid, reason, until });
    }
    excluded.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    let retry = Some(MoveRetry { cause: running.cause, attempt, not_before });
    MoveRecord { retry, excluded, ..back }
}

/// Writes what both sides lack and asks who is needed; the old side only if going back may be next.
fn make_new_side(view: View<'_>, running: &Move, sides: &Sides<'_>, back_is_near: bool) -> Vec<MoveWrite> {
    let both: Vec<&str> = sides.grow.iter().chain(&sides.shrink).copied().collect();
    let mut writes = Vec::new();
    for cluster in view.cluster_names() {
        let (to, from) = (amount_in(&running.to, cluster), amount_in(&running.from, cluster));
        let schedule = view.schedule(cluster);
        if to == 0 && schedule.is_none() {
            continue;
        }
        let larger = to.max(from);
        let asked_for = if larger > 0 { larger } else { schedule.map_or(0, |schedule| schedule.amount) };
        writes.extend(view.write_amount_safely(cluster, asked_for, &both));
    }
    let old = sides
        .shrink
        .iter()
        .copied()
        .filter(|cluster| back_is_near || view.most_served(cluster) < amount_in(&running.from, cluster));
    let needed = running.to.keys().map(String::as_str).filter(|cluster| amount_in(&running.to, cluster) > 0);
    let asks =
        view.ask_clusters(needed.chain(old).filter(|cluster| !writes.iter().any(|write| write.cluster() == *cluster)));
    distinct(writes.into_iter().chain(asks).collect())
}
