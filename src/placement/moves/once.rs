//! What runs once, a Job or a bare Pod: its copy is stopped before another one begins.

use super::begin::{begin_move, may_begin, release_copies};
use super::record::{Move, MovePhase, MoveRecord, amount_in};
use super::sides::is_same_cluster;
use super::step::{find_place, place};
use super::view::View;
use super::write::{MoveEvent, MoveStep, MoveWrite};

pub(super) fn step_once(view: View<'_>) -> MoveStep {
    match &view.record.running {
        Some(running) => step_restart(view, running),
        None => step_once_at_rest(view),
    }
}

fn step_once_at_rest(view: View<'_>) -> MoveStep {
    let (record, seen) = (view.record, view.seen);
    if !record.finished && seen.schedules.values().any(|schedule| schedule.said.finished) {
        return MoveStep::Record { record: MoveRecord { finished: true, ..record.next_epoch() }, event: None };
    }
    let target = record.target.keys().next().map(String::as_str);
    if target.is_none()
        && view.cluster_names().into_iter().any(|cluster| view.is_live(cluster) && view.cluster_exists(cluster))
    {
        // No record says where it is. To write it down is no decision.
        return place(view, find_place(view));
    }
    if !record.finished
        && !view.is_fixed()
        && let Some(step) = step_once_decided(view, target)
    {
        return step;
    }
    let mut writes = release_copies(view);
    if let Some(cluster) = target.filter(|at| !record.finished && (seen.schedules.is_empty() || view.is_live(at))) {
        writes.extend(view.write_amount(cluster, 1));
    }
    if let Some(target) = target {
        let others = seen.schedules.keys().filter(|cluster| *cluster != target && view.is_live(cluster));
        writes.extend(others.map(|cluster| MoveWrite::Delete { cluster: cluster.clone() }));
    }
    MoveStep::Writes(writes)
}

/// Returns the step of the first placement, after a loss, or of a cluster that is drained.
fn step_once_decided(view: View<'_>, target: Option<&str>) -> Option<MoveStep> {
    let (record, seen, best) = (view.record, view.seen, &view.seen.decision.best);
    if best.is_empty() {
        return None;
    }
    match target.filter(|cluster| view.cluster_exists(cluster)) {
        None => (seen.schedules.is_empty() && *best != record.target).then(|| {
            let placed = MoveRecord { target: best.clone(), ..record.next_epoch() };
            MoveStep::Record { record: placed, event: None }
        }),
        Some(cluster) => {
            let cause = seen.decision.cause.filter(|cause| seen.source.moves_for(*cause))?;
            if !view.is_live(cluster) || *best == record.target || !may_begin(view, cause) {
                return None;
            }
            let begun = begin_move(view, best, cause, MovePhase::Removing);
            let begun = MoveRecord { target: record.target.clone(), ..begun };
            Some(MoveStep::Record { record: begun, event: Some(MoveEvent::Moving) })
        }
    }
}

/// The old copy is stopped; another one begins only if that one had not finished.
fn step_restart(view: View<'_>, running: &Move) -> MoveStep {
    let record = view.record;
    let stopped = running.from.keys().next().and_then(|cluster| Some((cluster, view.schedule(cluster)?)));
    let Some((cluster, schedule)) = stopped.filter(|(_, schedule)| !schedule.said.removed) else {
        // It is stopped, and the agent said how it ended.
        let finished = record.finished || stopped.is_some_and(|(_, schedule)| schedule.said.finished);
        let target = if finished { &running.from } else { &running.to };
        let ended = record.next_epoch().without_move(target.clone());
        let event = (!finished).then_some(MoveEvent::Restarted);
        return MoveStep::Record { record: MoveRecord { finished, ..ended }, event };
    };
    if schedule.deleting {
        return MoveStep::Writes(Vec::new());
    }
    let stays = record.next_epoch().without_move(record.target.clone());
    if schedule.said.finished {
        return view.keep_then_record(&running.from, MoveRecord { finished: true, ..stays }, None);
    }
    if !running
        .to
        .keys()
        .filter(|to| amount_in(&running.to, to) > 0)
        .all(|to| is_same_cluster(view, running, to) && view.is_ready(to))
    {
        return view.keep_then_record(&running.from, stays, None);
    }
    MoveStep::Writes(vec![MoveWrite::Delete { cluster: cluster.clone() }])
}
