//! Queue of the units that have to be planned, by the time at which they are due.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::placement::facts::ObjectKey;

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

/// Order of a unit among those that are due: the least first, and `None` before all others.
type Rank = Option<i64>;

/// Time at which a unit is planned.
#[derive(Debug, Clone, Copy)]
struct Due {
    at: Instant,
    first: Instant,
    /// Set once it is due.
    rank: Option<Rank>,
}

/// Units that are due at some time, each once.
///
/// Thousands may wait while a few are being written, and each end of a write asks for the next: so what is due later is in the
/// order of time, and what is due now in the order in which it is planned.
#[derive(Debug, Default)]
pub(super) struct Queue {
    units: BTreeMap<Unit, Due>,
    later: BTreeSet<(Instant, Unit)>,
    ready: BTreeSet<(Rank, Unit)>,
}

impl Queue {
    /// Makes a unit due now.
    pub(super) fn mark(&mut self, unit: Unit, now: Instant) {
        let at = self.units.get(&unit).map_or(now, |due| due.at.min(now));
        self.set(unit, at, now);
    }

    /// Makes a unit due after a wait, which starts anew with each change up to the longest; what is due earlier stays so.
    pub(super) fn postpone(&mut self, unit: Unit, now: Instant, wait: Duration, longest: Duration) {
        match self.units.get(&unit).copied() {
            None => self.set(unit, now + wait, now),
            Some(due) if due.at > now => self.set(unit, (now + wait).min(due.first + longest), now),
            Some(_) => {}
        }
    }

    /// Makes a unit due after a wait, unless it is due anyway.
    pub(super) fn retry(&mut self, unit: Unit, now: Instant, wait: Duration) {
        if !self.units.contains_key(&unit) {
            self.set(unit, now + wait, now);
        }
    }

    fn set(&mut self, unit: Unit, at: Instant, now: Instant) {
        let due = self.units.entry(unit.clone()).or_insert(Due { at, first: now, rank: None });
        if due.rank.is_some() {
            return;
        }
        let before = std::mem::replace(&mut due.at, at);
        if before != at {
            self.later.remove(&(before, unit.clone()));
        }
        self.later.insert((at, unit));
    }

    /// Number of units that are due at some time.
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// Returns the time at which the next unit that is free is due; `None` where there is no such unit.
    pub(super) fn next(&self, is_free: impl Fn(&Unit) -> bool) -> Option<Instant> {
        let is_free = &is_free;
        let ready = self.ready.iter().map(|(_, unit)| unit).find(|unit| is_free(unit));
        let ready = ready.and_then(|unit| self.units.get(unit)).map(|due| due.at);
        ready.or_else(|| self.later.iter().find(|(_, unit)| is_free(unit)).map(|(at, _)| *at))
    }

    /// Takes units that are due, at most so many, the least rank first; each with the time since it was first marked.
    pub(super) fn take(
        &mut self,
        now: Instant,
        most: usize,
        is_free: impl Fn(&Unit) -> bool,
        rank: impl Fn(&Unit) -> Rank,
    ) -> Vec<(Unit, Duration)> {
        while self.later.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, unit)) = self.later.pop_first()
        {
            let rank = rank(&unit);
            if let Some(due) = self.units.get_mut(&unit) {
                due.rank = Some(rank);
            }
            self.ready.insert((rank, unit));
        }
        let taken: Vec<_> = self.ready.iter().filter(|(_, unit)| is_free(unit)).take(most).cloned().collect();
        let mut units = Vec::new();
        for one in taken {
            self.ready.remove(&one);
            let first = self.units.remove(&one.1).map_or(now, |due| due.first);
            units.push((one.1, now.saturating_duration_since(first)));
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str) -> Unit {
        Unit::Group(name.to_owned())
    }

    fn names(taken: Vec<(Unit, Duration)>) -> Vec<Unit> {
        taken.into_iter().map(|(unit, _)| unit).collect()
    }

    #[test]
    fn changes_in_quick_succession_are_planned_once_and_not_too_late() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut queue = Queue::default();
        for millis in [0, 80, 160, 240] {
            queue.postpone(unit("g"), at(millis), Duration::from_millis(100), Duration::from_millis(300));
        }
        assert_eq!(queue.next(|_| true), Some(at(300)), "at most so late");
        assert!(queue.take(at(299), 9, |_| true, |_| None).is_empty());
        queue.mark(unit("g"), at(250));
        assert_eq!(queue.next(|_| true), Some(at(250)), "what cannot wait does not");
        queue.retry(unit("g"), at(250), Duration::from_secs(9));
        assert_eq!(queue.next(|_| true), Some(at(250)));
        assert!(queue.take(at(300), 9, |_| false, |_| None).is_empty(), "it is being written");
        assert_eq!(queue.next(|_| false), None);
        queue.postpone(unit("g"), at(310), Duration::from_secs(9), Duration::from_secs(99));
        assert_eq!(queue.next(|_| true), Some(at(250)), "what is due stays so");
        assert_eq!(queue.take(at(400), 9, |_| true, |_| None), [(unit("g"), Duration::from_millis(400))]);
        assert_eq!((queue.next(|_| true), queue.len()), (None, 0));
    }

    #[test]
    fn what_is_due_is_taken_by_its_rank_and_what_is_busy_is_left() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for name in ["a", "b", "c", "d"] {
            queue.mark(unit(name), now);
        }
        queue.postpone(unit("later"), now, Duration::from_secs(1), Duration::from_secs(9));
        let rank = |one: &Unit| (*one != unit("d")).then_some(if *one == unit("a") { 9 } else { 5 });
        let taken = queue.take(now, 2, |one| *one != unit("b"), rank);
        assert_eq!(names(taken), [unit("d"), unit("c")]);
        assert_eq!(queue.next(|one| *one != unit("b")), Some(now));
        assert_eq!(names(queue.take(now, 9, |_| true, rank)), [unit("b"), unit("a")]);
        assert_eq!(queue.next(|_| true), Some(now + Duration::from_secs(1)));
    }
}
