//! Phases Removing and RollingBack: one side stays, the other one is given up.

use super::record::{ClusterAmounts, Move, MovePhase, MoveRecord, amount_in};
use super::sides::{Sides, is_same_cluster};
use super::view::View;
use super::write::{MoveEvent, MoveStep, MoveWrite, distinct};

/// The two sides of a move that removes.
struct Removal<'a> {
    /// Amounts of the side that stays.
    keep: &'a ClusterAmounts,
    /// Amounts of the side that is given up.
    drop: &'a ClusterAmounts,
    /// Clusters where the side that stays has less.
    given_up: Vec<&'a str>,
}

impl<'a> Removal<'a> {
    fn from_move(running: &'a Move) -> Self {
        let sides = Sides::from_move(running);
        if running.phase == MovePhase::Removing {
            Self { keep: &running.to, drop: &running.from, given_up: sides.shrink }
        } else {
            Self { keep: &running.from, drop: &running.to, given_up: sides.grow }
        }
    }

    fn kept(&self, cluster: &str) -> i64 {
        amount_in(self.keep, cluster)
    }

    fn dropped(&self, cluster: &str) -> i64 {
        amount_in(self.drop, cluster)
    }

    /// Returns the clusters that stay and have more than on the other side.
    fn risen(&self) -> Vec<&'a str> {
        let risen = self.keep.iter().filter(|(cluster, amount)| **amount > self.dropped(cluster));
        risen.map(|(cluster, _)| cluster.as_str()).collect()
    }
}

pub(super) fn step_removal(view: View<'_>, running: &Move) -> MoveStep {
    let removal = Removal::from_move(running);
    if let Some(step) = step_without_stay(view, running, &removal) {
        return step;
    }
    let is_away = removal.keep.keys().any(|cluster| view.is_away(cluster));
    let never_served = removal
        .risen()
        .iter()
        .any(|cluster| view.most_served(cluster) < view.needed_amount(removal.kept(cluster), &removal.given_up));
    let other_serves = removal.drop.iter().all(|(cluster, amount)| view.copy_serves(cluster, *amount));
    if (is_away || never_served) && other_serves {
        return turn_around(view, running, &removal);
    }
    if removal.given_up.iter().all(|cluster| is_given_up(view, &removal, cluster)) {
        return end_move(view, running, &removal);
    }
    let mut writes = view.ask_clusters(removal.keep.keys().map(String::as_str));
    if running.phase == MovePhase::RollingBack || is_away || never_served {
        writes.extend(view.ask_clusters(removal.drop.keys().map(String::as_str)));
    }
    writes.extend(write_sides(view, running, &removal));
    MoveStep::Writes(distinct(writes))
}

/// Returns the step if a copy that stays is gone: what is still there of either side stays instead.
fn step_without_stay(view: View<'_>, running: &Move, removal: &Removal<'_>) -> Option<MoveStep> {
    if removal.keep.keys().all(|cluster| is_still_there(view, running, cluster)) {
        return None;
    }
    let both = removal.drop.iter().chain(removal.keep).filter(|(cluster, _)| is_still_there(view, running, cluster));
    let left: ClusterAmounts = both.map(|(cluster, amount)| (cluster.clone(), *amount)).collect();
    let record = view.record.next_epoch().without_move(left.clone()).without_failures();
    Some(view.keep_then_record(&left, record, None))
}

fn is_still_there(view: View<'_>, running: &Move, cluster: &str) -> bool {
    is_same_cluster(view, running, cluster) && view.is_live(cluster)
}

/// The side that stays is away or never served, and the other one serves: that one stays.
fn turn_around(view: View<'_>, running: &Move, removal: &Removal<'_>) -> MoveStep {
    let phase = match running.phase {
        MovePhase::Removing => MovePhase::RollingBack,
        MovePhase::RollingBack | MovePhase::Up => MovePhase::Removing,
    };
    let turned = Move { phase, ..running.clone() };
    let record = MoveRecord { target: removal.drop.clone(), running: Some(turned), ..view.record.next_epoch() };
    view.keep_then_record(removal.drop, record, None)
}

/// Returns whether all that a cluster gives up is asked of it.
fn is_given_up(view: View<'_>, removal: &Removal<'_>, cluster: &str) -> bool {
    match removal.kept(cluster) {
        0 => !view.is_live(cluster),
        kept => view.schedule(cluster).is_some_and(|schedule| schedule.amount == kept),
    }
}

fn end_move(view: View<'_>, running: &Move, removal: &Removal<'_>) -> MoveStep {
    let ended = view.record.next_epoch().without_move(removal.keep.clone());
    if running.phase == MovePhase::RollingBack {
        return MoveStep::Record { record: ended, event: None };
    }
    MoveStep::Record { record: ended.without_failures(), event: Some(MoveEvent::Moved) }
}

/// Removes what is given up, each only while the copies that stay served, and edits whatever still serves.
fn write_sides(view: View<'_>, running: &Move, removal: &Removal<'_>) -> Vec<MoveWrite> {
    let stay: Vec<&str> = removal.keep.keys().map(String::as_str).collect();
    let risen = removal.risen();
    let guards = if risen.is_empty() { &stay } else { &risen };
    let is_sure = guards
        .iter()
        .all(|cluster| view.copy_served(cluster, view.needed_amount(removal.kept(cluster), &removal.given_up)));
    let mut writes = Vec::new();
    for cluster in view.cluster_names() {
        let Some(schedule) = view.schedule(cluster).filter(|schedule| !schedule.deleting) else { continue };
        let gives = removal.given_up.contains(&cluster);
        let kept = removal.kept(cluster);
        if gives && is_sure && kept > 0 {
            if schedule.amount == kept {
                writes.extend(view.write_amount(cluster, kept));
            } else {
                writes.push(MoveWrite::Edit { cluster: cluster.to_owned(), amount: kept });
            }
            continue;
        }
        if gives && is_sure && (!view.seen.source.volumes || running.consent) {
            writes.push(MoveWrite::Delete { cluster: cluster.to_owned() });
            continue;
        }
        let amount = if gives { schedule.amount } else { kept };
        writes.extend(view.write_amount_safely(cluster, amount, &stay));
    }
    writes
}
