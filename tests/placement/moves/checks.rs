//! What a write does to the world, and the promise that it breaks.

use fleetctl::placement::moves::{MoveRecord, MoveWrite};

use super::world::{
    Action, LateWrite, LeaderView, NAMES, Scenario, Schedule, World, amount_of, index_of, side_that_stays,
};

/// A world after a step, and the promise that the step broke.
pub(super) type Outcome = (World, Option<&'static str>);

/// A write reaches the control plane; none where it is refused.
pub(super) fn land(world: &World, action: &Action, scenario: &Scenario, late: Option<&LateWrite>) -> Option<Outcome> {
    let mut after = world.clone();
    let write = match action {
        Action::Record(record) => return Some(land_record(after, record, late.is_some())),
        Action::Schedule(write) => write,
    };
    let at = index_of(write.cluster());
    let hash = late.map_or(world.user.hash, |late| late.hash);
    let kept = late.is_none().then_some(world.record.epoch);
    if let MoveWrite::Create { amount, .. } = write {
        if world.schedules[at].is_some() || !world.clusters[at].up {
            return None;
        }
        let made = Schedule { asked: late.is_none(), kept, ..Schedule::made(hash, *amount) };
        after.set_schedule(at, Some(made));
        let live = (0..scenario.clusters).filter(|other| after.is_live(*other)).count();
        let broken = match () {
            () if scenario.job && world.ran > 0 => Some("I3 a finished Job gets another copy"),
            () if !scenario.divided && live > 2 => Some("I5 three clusters have copies"),
            () => None,
        };
        return Some((after, broken));
    }
    let schedule = world.schedules[at]?;
    if matches!(write, MoveWrite::Release { .. }) {
        after.set_schedule(at, None);
        return Some((after, None));
    }
    if schedule.deleting {
        return None;
    }
    match write {
        MoveWrite::Ask { .. } if late.is_some() => return None,
        MoveWrite::Ask { .. } => after.schedules[at] = Some(Schedule { asked: true, answered: false, ..schedule }),
        MoveWrite::Keep { .. } => {
            after.set_schedule(at, Some(Schedule { asked: late.is_none(), answered: false, kept, ..schedule }));
        }
        MoveWrite::Edit { amount, .. } => {
            let asked = late.is_none();
            let written = Schedule { hash, ..schedule };
            // A new amount asks for news by itself.
            let written = if *amount == schedule.amount {
                written
            } else {
                Schedule { amount: *amount, asked, answered: false, ..written }
            };
            after.set_schedule(at, Some(written));
        }
        _ => {
            after.set_schedule(at, Some(Schedule { deleting: true, ..schedule }));
            let agreed = late.is_some_and(|late| late.consent);
            let broken = world.user.source.then(|| broken_by_removal(&after, at, scenario, agreed)).flatten();
            return Some((after, broken));
        }
    }
    Some((after, None))
}

/// The record is written; its version makes every other write of it that is on its way fail.
fn land_record(mut world: World, record: &MoveRecord, late: bool) -> Outcome {
    let old = world.record.clone();
    let mut broken = None;
    if matches!(world.late, Some(LateWrite { action: Action::Record(_), .. })) {
        world.late = None;
    }
    if let (Some(begun), None) = (&record.running, &old.running) {
        if record.failed_attempts() != world.failures && !record.finished {
            broken = Some("I9 failures in a row are forgotten");
        }
        world.agreed = if late { begun.consent } else { world.user.consent };
    }
    let is_moved = |moving: &fleetctl::placement::moves::Move| {
        record.running.is_none() && record.target == moving.to && moving.to != moving.from
    };
    if record.failed_attempts() > old.failed_attempts() {
        world.failures += 1;
    } else if record.failed_attempts() < old.failed_attempts() || old.running.as_ref().is_some_and(is_moved) {
        world.failures = 0;
    }
    world.record = record.clone();
    (world, broken)
}

/// The promise that the deletion of a copy breaks.
fn broken_by_removal(world: &World, cluster: usize, scenario: &Scenario, agreed: bool) -> Option<&'static str> {
    let moving = world.record.running.is_some();
    if scenario.volumes && !(world.user.consent || agreed || (moving && world.agreed)) {
        return Some("I2 volumes are removed");
    }
    let served = |at: usize| world.copies[at].is_some_and(|copy| copy.most > 0);
    let other_stays =
        (0..scenario.clusters).any(|at| at != cluster && served(at) && world.is_live(at) && world.clusters[at].up);
    if !scenario.job && !scenario.divided && served(cluster) && !other_stays && !world.lost {
        return Some("I1a the last copy that served is removed");
    }
    let stays = side_that_stays(&world.record).is_some_and(|side| amount_of(side, cluster) > 0);
    (stays && !(scenario.job && moving)).then_some("I1b a copy that is to stay is removed")
}

/// A removal is decided on a report that counts: another copy served, as was said since its cluster is back.
pub(super) fn is_believable(world: &World, view: &LeaderView, action: &Action, scenario: &Scenario) -> bool {
    let Action::Schedule(MoveWrite::Delete { cluster }) = action else { return true };
    let at = index_of(cluster);
    let served = |at: usize| view.schedules[at].is_some_and(|schedule| schedule.said.served > 0);
    if !view.user.source || scenario.job || scenario.divided || !served(at) {
        return true;
    }
    (0..scenario.clusters).any(|other| {
        let live = view.schedules[other].is_some_and(|schedule| !schedule.deleting);
        let fresh = view.clusters[other].fresh || world.clusters[other].fresh;
        other != at && live && view.clusters[other].ready && fresh && served(other)
    })
}

/// The promise that is broken by a state in which nothing more happens by itself and every cluster answers.
pub(super) fn broken_at_rest(world: &World, scenario: &Scenario) -> Option<&'static str> {
    let (record, user) = (&world.record, world.user);
    if !user.source {
        let is_left = world.schedules.iter().any(Option::is_some)
            || (world.copies.iter().any(Option::is_some) && world.backup != super::world::Backup::Used);
        return is_left.then_some("I4 copies of a deleted source");
    }
    if record.running.is_some() {
        return Some("I4 a move never ends");
    }
    for at in 0..scenario.clusters {
        let is_target = amount_of(&record.target, at) > 0;
        let ended = scenario.job && record.finished;
        let is_wanted = is_target && !ended && world.clusters[at].up;
        if is_wanted && !world.is_live(at) && !user.suspended {
            return Some("I4 a target has no copy");
        }
        let may_stay = is_wanted || scenario.volumes || ended && is_target;
        if world.is_live(at) && !may_stay {
            return Some("I4 a copy is left over");
        }
        if let (Some(schedule), Some(copy)) = (world.schedules[at], world.copies[at])
            && world.is_live(at)
            && !user.suspended
            && !scenario.job
            && (schedule.hash != user.hash || copy.hash != user.hash)
        {
            return Some("I7 an edit does not arrive");
        }
    }
    let is_decided = user.suspended || user.policy.is_none() || (scenario.job && world.ran > 0) || scenario.volumes;
    if is_decided || world.failures > 1 {
        return None;
    }
    let view = world.view();
    let later = world.now + 1_000_000;
    let decision = scenario.seen(world, &view, later).decision;
    let moves = decision.cause.is_some() && !decision.best.is_empty() && decision.best != record.target;
    (moves && scenario.actions(world, &view, later).is_empty()).then_some("I4 a cause is forgotten")
}

/// The same while a cluster is away: what serves is not given up for one that is lost.
pub(super) fn broken_while_away(world: &World, scenario: &Scenario) -> Option<&'static str> {
    let moving = world.record.running.as_ref()?;
    let keep = side_that_stays(&world.record)?;
    let drop = if keep == &moving.to { &moving.from } else { &moving.to };
    let has = |side, at: usize| amount_of(side, at) > 0;
    let waits = (0..scenario.clusters).any(|at| has(keep, at) && !world.clusters[at].ready);
    let serves = |at: usize| {
        let amount = amount_of(drop, at);
        let counts = world.clusters[at].up && world.clusters[at].ready && world.is_live(at);
        let said = |schedule: Schedule| {
            schedule.asked && schedule.answered && schedule.amount >= amount && schedule.said.available >= amount
        };
        counts && world.schedules[at].is_some_and(said)
    };
    let other_serves = (0..scenario.clusters).filter(|at| has(drop, *at)).all(serves);
    (waits && other_serves).then_some("I4 it waits for a cluster that is away, and the other one serves")
}

/// Fewer replicas run than before and after; divided groups only.
pub(super) fn broken_share(world: &World, scenario: &Scenario) -> Option<&'static str> {
    let available: i64 = world.copies.iter().flatten().map(|copy| copy.available).sum();
    (scenario.divided && !world.lost && available < world.floor)
        .then_some("I1d fewer replicas run than before and after")
}

/// A write in a few words.
pub(super) fn print_action(action: &Action) -> String {
    match action {
        Action::Record(record) => match &record.running {
            None => format!("record: no move, target {:?}", record.target),
            Some(moving) => {
                format!("record: {:?} {:?} -> {:?} ({:?})", moving.phase, moving.from, moving.to, moving.cause)
            }
        },
        Action::Schedule(write) => format!("{write:?}"),
    }
}

/// Returns whether a write is the record of a move that begins.
pub(super) fn begins_move(world: &World, action: &Action) -> bool {
    matches!(action, Action::Record(record) if record.running.is_some() && world.record.running.is_none())
}

/// Returns the name of a cluster.
pub(super) fn name_of(cluster: usize) -> &'static str {
    NAMES[cluster]
}
