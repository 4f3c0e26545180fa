//! Queue of the units that have to be planned, by the time at which they are due and in turns of their tenants.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::tenant::Tenant;
use super::turns::{Slots, Turns};
use crate::placement::facts::ObjectKey;

/// Units whose writes are under way at a time.
const UNITS: usize = 64;

/// Unit that is planned as one: its writes are made one after the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unit {
    /// A group.
    Group(String),
    /// An object outside groups, or one that is gone.
    Object(ObjectKey),
    /// The status of an object.
    Status(ObjectKey),
    /// The conditions of a policy.
    Policy(String),
}

/// Cause for which a unit is due. Causes take turns too: what clusters report never delays what users change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// An object was changed by its owner.
    Change,
    /// A decision may be another one: by a policy, a cluster, or the time.
    Review,
    /// A copy reports something.
    Report,
}

const CAUSES: [Cause; 3] = [Cause::Change, Cause::Review, Cause::Report];

/// Order of a unit among those of its tenant that are due: the least first.
pub(super) type Rank = Option<i64>;

/// Time at which a unit is planned.
#[derive(Debug, Clone)]
struct Due {
    at: Instant,
    first: Instant,
    cause: Cause,
    /// Set once it is due and may begin.
    ready: Option<(Tenant, Rank)>,
}

/// A unit whose turn it is. Its slot is held until [`Queue::finish_unit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) unit: Unit,
    pub(super) tenant: Tenant,
    pub(super) cause: Cause,
    /// Time since it was first marked.
    pub(super) waited: Duration,
}

/// Units of one cause that may begin, by tenant.
#[derive(Debug, Default)]
struct Lane {
    ready: BTreeMap<Tenant, BTreeSet<(Rank, Unit)>>,
    turns: Turns<Tenant>,
}

impl Lane {
    fn insert(&mut self, tenant: &Tenant, rank: Rank, unit: Unit) {
        self.ready.entry(tenant.clone()).or_default().insert((rank, unit));
        self.turns.add_waiter(tenant);
    }

    fn remove(&mut self, tenant: &Tenant, one: &(Rank, Unit)) {
        if let Some(units) = self.ready.get_mut(tenant) {
            units.remove(one);
            if units.is_empty() {
                self.ready.remove(tenant);
                self.turns.remove_waiter(tenant);
            }
        }
    }

    /// Returns the first unit of the tenant whose turn it is.
    fn first_ready_unit(&self, slots: &Slots<Tenant>) -> Option<&Unit> {
        let tenant = self.turns.next_eligible(slots)?;
        self.ready.get(tenant)?.first().map(|(_, unit)| unit)
    }
}

/// Units that are due at some time, each once.
///
/// Thousands may wait while a few are being written, and each completed write takes the next: later units are sorted by
/// time, and due units are grouped by cause and tenant, in turns. A unit that is being written waits for the end of
/// that write.
#[derive(Debug)]
pub(super) struct Queue {
    units: BTreeMap<Unit, Due>,
    later: BTreeSet<(Instant, Unit)>,
    lanes: BTreeMap<Cause, Lane>,
    /// Cause whose turn it is.
    turn: usize,
    slots: Slots<Tenant>,
    under_way: BTreeMap<Unit, (Tenant, Instant)>,
    /// Beginnings of what is under way.
    begun: BTreeSet<(Instant, Unit)>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            units: BTreeMap::new(),
            later: BTreeSet::new(),
            lanes: CAUSES.map(|cause| (cause, Lane::default())).into(),
            turn: 0,
            slots: Slots::new(UNITS),
            under_way: BTreeMap::new(),
            begun: BTreeSet::new(),
        }
    }
}

impl Queue {
    /// Makes a unit due now.
    pub(super) fn mark_due(&mut self, unit: Unit, cause: Cause, now: Instant) {
        let at = self.units.get(&unit).map_or(now, |due| due.at.min(now));
        self.set_due_time(unit, at, cause, now);
    }

    /// Makes a unit due after a wait, which restarts with each change up to the longest; an earlier due time is kept.
    pub(super) fn postpone_unit(&mut self, unit: Unit, cause: Cause, now: Instant, wait: Duration, longest: Duration) {
        let at = match self.units.get(&unit) {
            None => now + wait,
            Some(due) if due.at > now => (now + wait).min(due.first + longest),
            Some(due) => due.at,
        };
        self.set_due_time(unit, at, cause, now);
    }

    /// Makes a unit due after a wait, unless it is due anyway.
    pub(super) fn retry_unit(&mut self, unit: Unit, cause: Cause, now: Instant, wait: Duration) {
        if !self.units.contains_key(&unit) {
            self.set_due_time(unit, now + wait, cause, now);
        }
    }

    fn set_due_time(&mut self, unit: Unit, at: Instant, cause: Cause, now: Instant) {
        let due = self.units.entry(unit.clone()).or_insert(Due { at, first: now, cause, ready: None });
        let before = due.cause;
        due.cause = before.min(cause);
        if let Some((tenant, rank)) = &due.ready {
            if before != due.cause {
                let one = (*rank, unit);
                self.lanes.entry(before).or_default().remove(tenant, &one);
                self.lanes.entry(due.cause).or_default().insert(tenant, one.0, one.1);
            }
            return;
        }
        let before = std::mem::replace(&mut due.at, at);
        if before != at {
            self.later.remove(&(before, unit.clone()));
        }
        // It comes back with the end of its writes.
        if !self.under_way.contains_key(&unit) {
            self.later.insert((at, unit));
        }
    }

    /// Number of units that are due at some time.
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// Returns the beginning of what is under way for longest.
    pub(super) fn oldest_start(&self) -> Option<Instant> {
        self.begun.first().map(|(began, _)| *began)
    }

    /// Returns the time at which the next unit may begin; `None` where none may before another one has ended.
    pub(super) fn next_start(&self) -> Option<Instant> {
        let ready = self.lanes.values().find_map(|lane| lane.first_ready_unit(&self.slots));
        let ready = ready.and_then(|unit| self.units.get(unit)).map(|due| due.at);
        ready.or_else(|| self.later.first().map(|(at, _)| *at))
    }

    /// Takes the unit whose turn it is, if one is due; `place` says whose it is, and its rank there.
    pub(super) fn take_unit(&mut self, now: Instant, place: impl Fn(&Unit) -> (Tenant, Rank)) -> Option<Taken> {
        while self.later.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, unit)) = self.later.pop_first()
            && let Some(due) = self.units.get_mut(&unit)
        {
            let (tenant, rank) = place(&unit);
            self.lanes.entry(due.cause).or_default().insert(&tenant, rank, unit);
            due.ready = Some((tenant, rank));
        }
        let turns = (0..CAUSES.len()).map(|after| (self.turn + after) % CAUSES.len());
        let (at, unit) = turns.into_iter().find_map(|at| {
            let unit = self.lanes.get(&CAUSES[at])?.first_ready_unit(&self.slots)?;
            Some((at, unit.clone()))
        })?;
        self.turn = (at + 1) % CAUSES.len();
        let Due { first, cause, ready, .. } = self.units.remove(&unit)?;
        let (tenant, rank) = ready?;
        let lane = self.lanes.entry(cause).or_default();
        lane.remove(&tenant, &(rank, unit.clone()));
        if lane.ready.contains_key(&tenant) {
            lane.turns.move_to_back(&tenant);
        }
        self.slots.take_slot(&tenant);
        self.under_way.insert(unit.clone(), (tenant.clone(), now));
        self.begun.insert((now, unit.clone()));
        Some(Taken { unit, tenant, cause, waited: now.saturating_duration_since(first) })
    }

    /// Ends a unit that was taken: its slot is free, and it may be taken again.
    pub(super) fn finish_unit(&mut self, unit: &Unit) {
        let Some((tenant, began)) = self.under_way.remove(unit) else { return };
        self.begun.remove(&(began, unit.clone()));
        self.slots.release_slot(&tenant);
        if let Some(due) = self.units.get(unit) {
            self.later.insert((due.at, unit.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str) -> Unit {
        Unit::Group(name.to_owned())
    }

    /// The tenant is what stands before the first dash.
    fn place(unit: &Unit) -> (Tenant, Rank) {
        let Unit::Group(name) = unit else { return (Tenant::Policies, None) };
        (Tenant::Namespace(name.split('-').next().unwrap_or_default().to_owned()), None)
    }

    fn take(queue: &mut Queue, now: Instant) -> Option<Unit> {
        let taken = queue.take_unit(now, place)?.unit;
        queue.finish_unit(&taken);
        Some(taken)
    }

    fn all(queue: &mut Queue, now: Instant) -> Vec<Unit> {
        std::iter::from_fn(|| take(queue, now)).collect()
    }

    #[test]
    fn changes_in_quick_succession_are_planned_once_and_not_too_late() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut queue = Queue::default();
        let postpone = |queue: &mut Queue, now: Instant| {
            queue.postpone_unit(unit("g"), Cause::Report, now, Duration::from_millis(100), Duration::from_millis(300));
        };
        for millis in [0, 80, 160, 240] {
            postpone(&mut queue, at(millis));
        }
        assert_eq!(queue.next_start(), Some(at(300)), "at most so late");
        assert_eq!(take(&mut queue, at(299)), None);
        queue.mark_due(unit("g"), Cause::Change, at(250));
        assert_eq!(queue.next_start(), Some(at(250)), "what cannot wait does not");
        queue.retry_unit(unit("g"), Cause::Change, at(250), Duration::from_secs(9));
        assert_eq!(queue.next_start(), Some(at(250)));
        postpone(&mut queue, at(310));
        assert_eq!(queue.next_start(), Some(at(250)), "what is due stays so");
        let taken = queue.take_unit(at(400), place).unwrap();
        assert_eq!((taken.waited, taken.cause), (Duration::from_millis(400), Cause::Change));
        assert_eq!((queue.next_start(), queue.len(), queue.oldest_start()), (None, 0, Some(at(400))));
        queue.mark_due(unit("g"), Cause::Change, at(410));
        assert_eq!((queue.next_start(), queue.take_unit(at(420), place)), (None, None), "it is being written");
        queue.finish_unit(&unit("g"));
        assert_eq!((queue.next_start(), queue.oldest_start()), (Some(at(410)), None));
        assert_eq!(take(&mut queue, at(420)), Some(unit("g")));
        assert_eq!((queue.next_start(), queue.len()), (None, 0));
    }

    #[test]
    fn what_is_due_is_taken_by_its_rank_within_a_tenant() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for name in ["a", "b", "c", "d"] {
            queue.mark_due(unit(name), Cause::Change, now);
        }
        queue.postpone_unit(unit("later"), Cause::Change, now, Duration::from_secs(1), Duration::from_secs(9));
        let rank = |one: &Unit| (*one != unit("d")).then_some(if *one == unit("a") { 9 } else { 5 });
        let taken: Vec<_> =
            (0..4).map(|_| queue.take_unit(now, |one| (Tenant::ClusterScoped, rank(one))).unwrap().unit).collect();
        assert_eq!(taken, ["d", "b", "c", "a"].map(unit));
        assert_eq!(queue.next_start(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn a_flood_of_one_tenant_delays_another_by_one_unit() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for number in 0..10_000 {
            queue.mark_due(unit(&format!("flood-{number}")), Cause::Change, now);
        }
        for _ in 0..3 {
            assert!(take(&mut queue, now).is_some());
        }
        queue.mark_due(unit("shop-web"), Cause::Change, now);
        queue.mark_due(unit("bank-web"), Cause::Change, now);
        let next: Vec<_> = (0..3).map(|_| take(&mut queue, now).unwrap()).collect();
        assert!(next.contains(&unit("shop-web")) && next.contains(&unit("bank-web")), "{next:?}");
        assert_eq!(all(&mut queue, now).len(), 10_000 - 4);
    }

    #[test]
    fn reports_of_a_cluster_delay_a_change_by_one_unit() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for number in 0..1000 {
            // Copies of every tenant.
            queue.mark_due(unit(&format!("{number}-web")), Cause::Report, now);
            queue.mark_due(unit(&format!("{number}-db")), Cause::Review, now);
        }
        assert!(take(&mut queue, now).is_some());
        queue.mark_due(unit("shop-web"), Cause::Change, now);
        let next: Vec<_> = (0..3).map(|_| take(&mut queue, now).unwrap()).collect();
        assert!(next.contains(&unit("shop-web")), "{next:?}");
        // One that is due already comes forward, and is planned once.
        queue.mark_due(unit("7-web"), Cause::Change, now);
        let next: Vec<_> = (0..3).map(|_| take(&mut queue, now).unwrap()).collect();
        assert!(next.contains(&unit("7-web")), "{next:?}");
        assert_eq!(all(&mut queue, now).len(), 2000 - 6);
    }

    #[test]
    fn a_tenant_whose_writes_hang_leaves_slots_to_others() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for number in 0..100 {
            queue.mark_due(unit(&format!("slow-{number}")), Cause::Change, now);
        }
        let hanging: Vec<_> = std::iter::from_fn(|| queue.take_unit(now, place)).collect();
        assert_eq!((hanging.len(), queue.next_start()), (UNITS / 2, None));
        queue.mark_due(unit("shop-web"), Cause::Change, now);
        assert_eq!(queue.next_start(), Some(now));
        assert_eq!(queue.take_unit(now, place).unwrap().unit, unit("shop-web"));
        queue.finish_unit(&hanging[0].unit);
        assert!(queue.take_unit(now, place).is_some(), "it goes on as its own writes end");
    }
}
