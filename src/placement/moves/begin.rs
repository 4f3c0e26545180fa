//! What begins and ends a move: its record, its admission, and the Schedules that are let go.

use super::record::{ClusterAmounts, Move, MoveCause, MovePhase, MoveRecord};
use super::view::View;
use super::write::MoveWrite;

/// Seconds that a move has until its new side serves.
const MOVE_SECONDS: i64 = 600;

/// Lets Schedules of copies go that the agent has removed. In a move the record says first how they ended, unless the
/// source is gone: then nothing is recorded any more.
pub(super) fn release_copies(view: View<'_>) -> Vec<MoveWrite> {
    let is_free = view.record.running.is_none() || !view.seen.source.there;
    let over = view.seen.schedules.iter().filter(|(_, schedule)| is_free && schedule.said.removed);
    over.map(|(cluster, _)| MoveWrite::Release { cluster: cluster.clone() }).collect()
}

/// Returns the record of a move that begins now.
pub(super) fn begin_move(view: View<'_>, to: &ClusterAmounts, cause: MoveCause, phase: MovePhase) -> MoveRecord {
    let (record, seen) = (view.record, view.seen);
    let sides = record.target.keys().chain(to.keys());
    let uids = sides.filter_map(|cluster| Some((cluster.clone(), seen.clusters.get(cluster)?.uid.clone())));
    let running = Move {
        phase,
        from: record.target.clone(),
        to: to.clone(),
        uids: uids.collect(),
        cause,
        since: seen.now,
        deadline: seen.now.saturating_add(MOVE_SECONDS),
        consent: seen.source.consent,
    };
    MoveRecord { target: to.clone(), running: Some(running), ..record.next_epoch() }
}

/// Returns whether a cause may begin a move now: it is admitted, not in back-off, and leaves no volumes behind unasked.
pub(super) fn may_begin(view: View<'_>, cause: MoveCause) -> bool {
    let (record, seen) = (view.record, view.seen);
    let waits = record.retry.is_some_and(|retry| retry.cause == cause && seen.now < retry.not_before);
    seen.admitted && !seen.frozen && (!waits || seen.decision.renewed) && (!seen.source.volumes || seen.source.consent)
}
