//! When the control plane is told: seldom, and when it matters.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::Facts;
use super::nodes::Amounts;
use crate::api::cluster::Taint;
use crate::k8s::backoff::Backoff;

/// Never more often than this.
const AT_MOST_EVERY: Duration = Duration::from_secs(60);
/// At least this often.
pub(super) const AT_LEAST_EVERY: Duration = Duration::from_secs(300);
/// A report that comes later than this after it was due was held up, and so, most likely, were those of others.
const LATE: Duration = Duration::from_secs(30);
/// Time to the next attempt after the first that failed, at most.
const AGAIN: Duration = Duration::from_secs(5);
/// Changes that come together are told together.
const DEBOUNCE: Duration = Duration::from_secs(5);

/// The inventory at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// What is free, by node.
    pub available: BTreeMap<String, Amounts>,
    /// What pods may request in all, by node: what a change is measured by.
    pub allocatable: BTreeMap<String, Amounts>,
    /// Sizes, by node, as the nodes say.
    pub capacity: BTreeMap<String, BTreeMap<String, String>>,
    /// Taints, by node; nodes without are left out.
    pub taints: BTreeMap<String, Vec<Taint>>,
    /// What the cluster is.
    pub facts: Facts,
    /// Version of its API server.
    pub git_version: String,
    /// Whether an autoscaler is at work.
    pub autoscaled: bool,
}

/// Whether `now` differs from what was `told` in a way that matters: nodes, taints or facts; or any free amount by
/// more than a tenth of what its node has.
pub fn matters(told: &Snapshot, now: &Snapshot) -> bool {
    let nodes_differ = !told.allocatable.keys().eq(now.allocatable.keys()) || told.taints != now.taints;
    let about = |s: &Snapshot| (s.facts.clone(), s.git_version.clone(), s.autoscaled);
    if nodes_differ || about(told) != about(now) {
        return true;
    }
    now.available.iter().any(|(node, amounts)| {
        amounts.iter().any(|(resource, value)| {
            let before = told.available.get(node).and_then(|a| a.get(resource)).copied().unwrap_or(0);
            let has = now.allocatable.get(node).and_then(|a| a.get(resource)).copied().unwrap_or(0);
            (value - before).abs() * 10 > has
        })
    })
}

/// Decides when to tell.
#[derive(Debug)]
pub struct Publisher {
    told: Option<Snapshot>,
    /// Since when something that matters is waiting.
    waiting: Option<Duration>,
    told_at: Duration,
    /// How much sooner the next report comes if nothing happens.
    sooner: Duration,
    /// The waits after reports that failed.
    backoff: Backoff,
    /// Until when nothing is told after one that failed.
    not_before: Duration,
}

impl Default for Publisher {
    fn default() -> Self {
        Self {
            told: None,
            waiting: None,
            told_at: Duration::ZERO,
            sooner: Duration::ZERO,
            backoff: Backoff::new(AGAIN, AT_MOST_EVERY),
            not_before: Duration::ZERO,
        }
    }
}

impl Publisher {
    /// Whether to tell `snapshot` at the time `now`, counted from any beginning.
    pub fn is_due(&mut self, snapshot: &Snapshot, now: Duration) -> bool {
        if now < self.not_before {
            return false;
        }
        let Some(told) = &self.told else { return true };
        let since = now.saturating_sub(self.told_at);
        if since >= AT_LEAST_EVERY.saturating_sub(self.sooner) {
            return true;
        }
        if !matters(told, snapshot) {
            self.waiting = None;
            return false;
        }
        let waiting = *self.waiting.get_or_insert(now);
        since >= AT_MOST_EVERY && now.saturating_sub(waiting) >= DEBOUNCE
    }

    /// Notes that `snapshot` was told.
    ///
    /// After the first report, and after one that came late, the next comes sooner by a `share` of the time, from 0 to 1.
    /// A control plane that comes back hears of all its agents at once; with a share of its own each, it does not hear of
    /// them at once ever after.
    pub fn told(&mut self, snapshot: Snapshot, now: Duration, share: f64) {
        let apart = AT_LEAST_EVERY.saturating_sub(AT_MOST_EVERY).mul_f64(share.clamp(0.0, 1.0));
        let sooner = if self.told.is_none() || self.is_late(now) { apart } else { Duration::ZERO };
        *self = Self { told: Some(snapshot), told_at: now, sooner, ..Self::default() };
    }

    /// Whether a report at the time `now` could have been made well before.
    fn is_late(&self, now: Duration) -> bool {
        let quiet = self.told_at + AT_LEAST_EVERY.saturating_sub(self.sooner);
        let due = self.waiting.map_or(quiet, |at| quiet.min((at + DEBOUNCE).max(self.told_at + AT_MOST_EVERY)));
        now.saturating_sub(due) > LATE
    }

    /// Notes that a report failed: the next attempt waits, each time longer, as one of a large cluster is no small thing
    /// for a control plane that is busy.
    pub fn failed(&mut self, now: Duration) {
        self.not_before = now + self.backoff.next_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(free: i128) -> Snapshot {
        let one = |value: i128| [("n".to_owned(), Amounts::from([("cpu".to_owned(), value)]))].into();
        Snapshot { available: one(free), allocatable: one(1000), ..Snapshot::default() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn told(free: i128) -> Publisher {
        let mut publisher = Publisher::default();
        assert!(publisher.is_due(&snapshot(free), at(0)), "the first time at once");
        publisher.told(snapshot(free), at(0), 0.0);
        publisher
    }

    #[test]
    fn a_quiet_cluster_is_told_every_five_minutes() {
        let mut publisher = told(500);
        assert!(!publisher.is_due(&snapshot(500), at(299)));
        assert!(publisher.is_due(&snapshot(500), at(300)));
    }

    #[test]
    fn agents_that_begin_together_report_apart_from_the_second_report_on() {
        for (share, second) in [(0.0, 300), (0.5, 180), (1.0, 60)] {
            let mut publisher = Publisher::default();
            publisher.told(snapshot(500), at(0), share);
            assert!(!publisher.is_due(&snapshot(500), at(second - 1)), "{share}");
            assert!(publisher.is_due(&snapshot(500), at(second)), "{share}");
            publisher.told(snapshot(500), at(second), share);
            assert!(!publisher.is_due(&snapshot(500), at(second + 299)), "{share}");
            assert!(publisher.is_due(&snapshot(500), at(second + 300)), "{share}");
        }
    }

    #[test]
    fn agents_that_an_outage_held_up_report_apart_after_the_first_report_that_follows_it() {
        let next = |publisher: &mut Publisher, told: u64| {
            publisher.told(snapshot(500), at(told), 0.5);
            (told..told + 301).find(|second| publisher.is_due(&snapshot(500), at(*second))).unwrap() - told
        };
        assert_eq!(next(&mut told(500), 400), 180, "due at 300");
        assert_eq!(next(&mut told(500), 310), 300, "that is no delay");
        let mut changed = told(500);
        assert!(!changed.is_due(&snapshot(100), at(100)));
        assert_eq!(next(&mut changed, 200), 180, "a change waited since 105");
    }

    #[test]
    fn reports_that_fail_are_sent_again_ever_more_seldom_until_one_gets_through() {
        let mut publisher = told(500);
        let mut now = at(300);
        for longest in [5, 10, 20, 40, 60, 60] {
            assert!(publisher.is_due(&snapshot(500), now));
            publisher.failed(now);
            assert!(!publisher.is_due(&snapshot(0), now + at(longest).mul_f64(0.49)), "{longest}");
            now += at(longest);
        }
        publisher.told(snapshot(500), now, 0.0);
        now += at(300);
        publisher.failed(now);
        assert!(publisher.is_due(&snapshot(500), now + at(5)), "the waits start anew");
    }

    #[test]
    fn a_change_over_a_tenth_is_told_but_never_within_a_minute_of_the_last() {
        let mut publisher = told(500);
        assert!(!publisher.is_due(&snapshot(400), at(70)), "a tenth is not over a tenth");
        assert!(!publisher.is_due(&snapshot(399), at(20)));
        assert!(!publisher.is_due(&snapshot(399), at(59)));
        assert!(publisher.is_due(&snapshot(399), at(60)));
    }

    #[test]
    fn changes_of_nodes_and_taints_are_told_together_after_five_seconds() {
        let taint = Taint { key: "k".to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
        let tainted = Snapshot { taints: [("n".to_owned(), vec![taint])].into(), ..snapshot(500) };
        for changed in [Snapshot::default(), tainted] {
            let mut publisher = told(500);
            assert!(!publisher.is_due(&changed, at(100)));
            assert!(!publisher.is_due(&changed, at(104)));
            assert!(publisher.is_due(&changed, at(105)));
        }
    }

    #[test]
    fn a_change_that_goes_away_again_is_not_told() {
        let mut publisher = told(500);
        assert!(!publisher.is_due(&snapshot(100), at(100)));
        assert!(!publisher.is_due(&snapshot(500), at(104)));
        assert!(!publisher.is_due(&snapshot(100), at(106)), "the wait starts anew");
    }
}
