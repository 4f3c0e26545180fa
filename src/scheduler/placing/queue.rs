//! What has to be planned, and when.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use tokio::time::Instant;

use crate::placement::facts::ObjectKey;

/// What is planned as one: its writes are made one after the other.
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

/// When a unit is planned.
#[derive(Debug, Clone, Copy)]
struct Due {
    at: Instant,
    first: Instant,
}

/// Units that are due at some time, each once.
#[derive(Debug, Default)]
pub(super) struct Queue(BTreeMap<Unit, Due>);

impl Queue {
    /// Makes a unit due now.
    pub(super) fn mark(&mut self, unit: Unit, now: Instant) {
        let due = self.0.entry(unit).or_insert(Due { at: now, first: now });
        due.at = due.at.min(now);
    }

    /// Makes a unit due after a wait, which starts anew with each change up to the longest; what is due earlier stays so.
    pub(super) fn postpone(&mut self, unit: Unit, now: Instant, wait: Duration, longest: Duration) {
        match self.0.entry(unit) {
            Entry::Vacant(entry) => {
                entry.insert(Due { at: now + wait, first: now });
            }
            Entry::Occupied(mut entry) => {
                let due = entry.get_mut();
                if due.at > now {
                    due.at = (now + wait).min(due.first + longest);
                }
            }
        }
    }

    /// Makes a unit due after a wait, unless it is due anyway.
    pub(super) fn retry(&mut self, unit: Unit, now: Instant, wait: Duration) {
        self.0.entry(unit).or_insert(Due { at: now + wait, first: now });
    }

    /// Number of units that are due at some time.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Units that are due.
    pub(super) fn due(&self, now: Instant, is_free: impl Fn(&Unit) -> bool) -> Vec<Unit> {
        self.0.iter().filter(|(unit, due)| due.at <= now && is_free(unit)).map(|(unit, _)| unit.clone()).collect()
    }

    /// When the next unit is due.
    pub(super) fn next(&self, is_free: impl Fn(&Unit) -> bool) -> Option<Instant> {
        self.0.iter().filter(|(unit, _)| is_free(unit)).map(|(_, due)| due.at).min()
    }

    /// Removes a unit; returns the time since it was first marked.
    pub(super) fn remove(&mut self, unit: &Unit, now: Instant) -> Duration {
        self.0.remove(unit).map_or(Duration::ZERO, |due| now.saturating_duration_since(due.first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_quick_succession_are_planned_once_and_not_too_late() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let unit = || Unit::Group("g".to_owned());
        let mut queue = Queue::default();
        for millis in [0, 80, 160, 240] {
            queue.postpone(unit(), at(millis), Duration::from_millis(100), Duration::from_millis(300));
        }
        assert_eq!(queue.next(|_| true), Some(at(300)), "at most so late");
        assert!(queue.due(at(299), |_| true).is_empty() && queue.due(at(300), |_| false).is_empty());
        assert_eq!(queue.due(at(300), |_| true), [unit()]);
        queue.mark(unit(), at(250));
        assert_eq!(queue.next(|_| true), Some(at(250)), "what cannot wait does not");
        queue.retry(unit(), at(250), Duration::from_secs(9));
        assert_eq!(queue.next(|_| true), Some(at(250)));
        assert_eq!(queue.remove(&unit(), at(400)), Duration::from_millis(400));
        assert_eq!(queue.next(|_| true), None);
    }
}
