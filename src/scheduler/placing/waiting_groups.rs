//! Groups without a place, or with too little: when each of them is decided again.
//!
//! A few are decided whenever a cluster may have more room. Many would be decided for ever beside agents that report each
//! minute: then each waits the longer, the more wait.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between two rounds.
const ROUND: Duration = Duration::from_secs(2);
/// Groups that are decided again in one round because of more room.
const IN_ROUND: usize = 8;
/// Longest time that a group waits after there is more room.
const LONGEST: Duration = Duration::from_secs(60);

/// When waiting groups were decided last, and what has changed since.
pub(super) struct WaitingGroups {
    decided: BTreeMap<String, Instant>,
    /// When a cluster last had more room, perhaps.
    grown: Option<Instant>,
    /// When a cluster last joined, left or changed in what decides whether it may be chosen.
    changed: Option<Instant>,
    round: Instant,
    next: Option<Instant>,
}

impl WaitingGroups {
    pub(super) fn new(now: Instant) -> Self {
        Self { decided: BTreeMap::new(), grown: None, changed: None, round: now, next: None }
    }

    /// Records that a group was decided and still waits.
    pub(super) fn record_decided(&mut self, group: &str, now: Instant) {
        self.decided.insert(group.to_owned(), now);
    }

    /// Forgets a group that waits no longer.
    pub(super) fn remove(&mut self, group: &str) {
        self.decided.remove(group);
    }

    /// Records that a cluster may have more room.
    pub(super) fn record_growth(&mut self, now: Instant) {
        self.grown = Some(now);
        self.plan_round();
    }

    /// Records that clusters changed in what decides whether they may be chosen: no group waits for that.
    pub(super) fn record_change(&mut self, now: Instant) {
        self.changed = Some(now);
        self.plan_round();
    }

    fn plan_round(&mut self) {
        if !self.decided.is_empty() {
            self.next = Some(self.round + ROUND);
        }
    }

    /// How long each group waits after it was decided: not at all where one round takes them all.
    fn pause(&self) -> Duration {
        let rounds = u32::try_from(self.decided.len().saturating_sub(1) / IN_ROUND).unwrap_or(u32::MAX);
        ROUND.saturating_mul(rounds).min(LONGEST)
    }

    /// Takes the groups whose turn it is, those first that were decided longest ago; `all` of them where nothing has changed.
    pub(super) fn take_due(&mut self, now: Instant, all: bool) -> Vec<String> {
        if !all && self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        self.round = now;
        let (pause, grown, changed) = (self.pause(), self.grown, self.changed);
        let is_urgent = |at: Instant| all || changed.is_some_and(|changed| at < changed);
        let (urgent, others): (Vec<_>, Vec<_>) = self.decided.iter().partition(|(_, at)| is_urgent(**at));
        let open = others.into_iter().filter(|(_, at)| grown.is_some_and(|grown| **at < grown));
        let mut open: Vec<(Instant, &String)> = open.map(|(name, at)| (*at + pause, name)).collect();
        open.sort_unstable();
        let count = open.iter().take(IN_ROUND).take_while(|(at, _)| *at <= now).count();
        self.next = open.get(count).map(|(at, _)| (*at).max(now + ROUND));
        let due: Vec<String> = urgent
            .into_iter()
            .chain(open.iter().take(count).map(|(_, name)| (*name, &now)))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &due {
            // Until it is decided it is not taken again.
            self.decided.insert(name.clone(), now);
        }
        due
    }

    /// Returns the time of the next round; `None` where nothing waits for room that may be there.
    pub(super) fn next_round(&self) -> Option<Instant> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets time go by with a report of more room every half second; returns how often groups were decided.
    fn play(groups: usize, seconds: u64) -> BTreeMap<String, usize> {
        let began = Instant::now();
        let mut waiting = WaitingGroups::new(began);
        for number in 0..groups {
            waiting.record_decided(&format!("g{number}"), began);
        }
        let mut found = BTreeMap::new();
        for half in 1..=seconds * 2 {
            let now = began + Duration::from_millis(500 * half);
            waiting.record_growth(now);
            for name in waiting.take_due(now, false) {
                *found.entry(name.clone()).or_default() += 1;
                waiting.record_decided(&name, now + Duration::from_millis(100));
            }
        }
        found
    }

    #[test]
    fn a_few_are_decided_at_once_and_many_in_turn() {
        let few = play(5, 60);
        assert!(few.len() == 5 && few.values().all(|count| (25..=30).contains(count)), "{few:?}");
        let many = play(1000, 600);
        let decisions: usize = many.values().sum();
        assert!(decisions <= 5 * 600 && many.len() == 1000, "{decisions} of {}", many.len());
        assert!(many.values().all(|count| (2..=3).contains(count)), "each has its turn: {many:?}");
    }

    #[test]
    fn what_changes_the_choice_of_clusters_decides_all() {
        let began = Instant::now();
        let mut waiting = WaitingGroups::new(began);
        for number in 0..1000 {
            waiting.record_decided(&format!("g{number}"), began);
        }
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        assert_eq!((waiting.take_due(at(5), false).len(), waiting.next_round()), (0, None), "nothing has changed");
        waiting.record_change(at(6));
        assert_eq!(waiting.next_round(), Some(at(2)));
        assert_eq!(waiting.take_due(at(7), false).len(), 1000);
        assert_eq!(waiting.take_due(at(9), false).len(), 0, "once");
        assert_eq!(waiting.take_due(at(10), true).len(), 1000);
        waiting.remove("g1");
        assert_eq!(waiting.take_due(at(11), true).len(), 999);
    }
}
