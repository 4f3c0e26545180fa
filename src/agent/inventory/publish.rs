//! Decides when the inventory is reported: seldom, and when a change is significant.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::Facts;
use super::node_labels::Labels;
use super::nodes::Amounts;
use super::pods::PodsByOwner;
use super::server::ServerFacts;
use crate::api::crd::cluster::{DataWithoutSchedule, Taint};
use crate::k8s::backoff::Backoff;

/// Shortest time between two reports, unless the API server serves more than before: objects wait for that.
const MIN_INTERVAL: Duration = Duration::from_secs(60);
/// Longest time between two reports.
pub(super) const MAX_INTERVAL: Duration = Duration::from_secs(300);
/// Delay beyond which a report counts as late: then, most likely, those of other agents were delayed, too.
const LATE: Duration = Duration::from_secs(30);
/// Longest time to the next attempt after the first failure.
const RETRY: Duration = Duration::from_secs(5);
/// Changes within this time are reported together.
const DEBOUNCE: Duration = Duration::from_secs(5);

/// The inventory at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Free resources by node.
    pub available: BTreeMap<String, Amounts>,
    /// Allocatable resources by node, by which a change is measured.
    pub allocatable: BTreeMap<String, Amounts>,
    /// Capacity by node.
    pub capacity: BTreeMap<String, BTreeMap<String, String>>,
    /// Taints by node; nodes without are omitted.
    pub taints: BTreeMap<String, Vec<Taint>>,
    /// Labels by node.
    pub labels: Labels,
    /// Pods with a node, by owner: those that the free resources are without.
    pub pods: PodsByOwner,
    /// Provider, region, zones, name.
    pub facts: Facts,
    /// Version of its API server, what that serves, and whether an autoscaler exists.
    pub server: ServerFacts,
    /// Copies without a Schedule; `None` until they were counted.
    pub copies_without_schedule: Option<i32>,
    /// Those that contain data; `None` until somebody looked.
    pub data_without_schedule: Option<DataWithoutSchedule>,
}

/// Returns true where `now` differs significantly from what was `reported`: in nodes, labels, taints, APIs, facts or copies without a Schedule; or in any
/// free amount by more than a tenth of what its node has.
pub fn is_significant(reported: &Snapshot, now: &Snapshot) -> bool {
    let nodes_differ = !reported.allocatable.keys().eq(now.allocatable.keys())
        || reported.taints != now.taints
        || reported.labels != now.labels
        || reported.copies_without_schedule != now.copies_without_schedule
        || reported.data_without_schedule != now.data_without_schedule;
    if nodes_differ || reported.facts != now.facts || reported.server != now.server {
        return true;
    }
    now.available.iter().any(|(node, amounts)| {
        amounts.iter().any(|(resource, value)| {
            let before = reported.available.get(node).and_then(|a| a.get(resource)).copied().unwrap_or(0);
            let has = now.allocatable.get(node).and_then(|a| a.get(resource)).copied().unwrap_or(0);
            (value - before).abs() * 10 > has
        })
    })
}

/// Returns true where an API version is served that was not before. Objects of it cannot be placed until that is known. How
/// often this is true is limited by how often the facts are read.
fn serves_more(reported: &ServerFacts, now: &ServerFacts) -> bool {
    now.apis.iter().any(|api| reported.apis.binary_search(api).is_err())
}

/// Decides when to report.
#[derive(Debug)]
pub struct Publisher {
    reported: Option<Snapshot>,
    /// Time of the first significant change that is not reported.
    waiting: Option<Duration>,
    reported_at: Duration,
    /// Time by which the next periodic report is advanced.
    advance: Duration,
    /// Waits after failed reports.
    backoff: Backoff,
    /// Time before which nothing is reported, after a failure.
    not_before: Duration,
}

impl Default for Publisher {
    fn default() -> Self {
        Self {
            reported: None,
            waiting: None,
            reported_at: Duration::ZERO,
            advance: Duration::ZERO,
            backoff: Backoff::new(RETRY, MIN_INTERVAL),
            not_before: Duration::ZERO,
        }
    }
}

impl Publisher {
    /// Returns true where `snapshot` is to be reported at the time `now`, counted from any beginning.
    pub fn is_due(&mut self, snapshot: &Snapshot, now: Duration) -> bool {
        if now < self.not_before {
            return false;
        }
        let Some(reported) = &self.reported else { return true };
        let since = now.saturating_sub(self.reported_at);
        if since >= MAX_INTERVAL.saturating_sub(self.advance) {
            return true;
        }
        if !is_significant(reported, snapshot) {
            self.waiting = None;
            return false;
        }
        let waiting = *self.waiting.get_or_insert(now);
        let is_time = since >= MIN_INTERVAL || serves_more(&reported.server, &snapshot.server);
        is_time && now.saturating_sub(waiting) >= DEBOUNCE
    }

    /// Records that `snapshot` was reported.
    ///
    /// After the first report, and after a late one, the next is advanced by a `share` of the time, from 0 to 1. After an
    /// outage all agents report at once; with random shares, they do not do so ever after.
    pub fn record_publication(&mut self, snapshot: Snapshot, now: Duration, share: f64) {
        let apart = MAX_INTERVAL.saturating_sub(MIN_INTERVAL).mul_f64(share.clamp(0.0, 1.0));
        let advance = if self.reported.is_none() || self.is_late(now) { apart } else { Duration::ZERO };
        *self = Self { reported: Some(snapshot), reported_at: now, advance, ..Self::default() };
    }

    /// Returns true where a report at the time `now` was due well before.
    fn is_late(&self, now: Duration) -> bool {
        let quiet = self.reported_at + MAX_INTERVAL.saturating_sub(self.advance);
        let due = self.waiting.map_or(quiet, |at| quiet.min((at + DEBOUNCE).max(self.reported_at + MIN_INTERVAL)));
        now.saturating_sub(due) > LATE
    }

    /// Records that a report failed: the next attempt waits, each time longer, as the report of a large cluster is a burden for
    /// a busy control plane.
    pub fn record_failure(&mut self, now: Duration) {
        self.not_before = now + self.backoff.next_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(free: i128) -> Snapshot {
        let [available, allocatable] =
            [free, 1000].map(|value| [("n".to_owned(), Amounts::from([("cpu".to_owned(), value)]))].into());
        Snapshot { available, allocatable, ..Snapshot::default() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn after_report(free: i128) -> Publisher {
        let mut publisher = Publisher::default();
        assert!(publisher.is_due(&snapshot(free), at(0)), "the first time at once");
        publisher.record_publication(snapshot(free), at(0), 0.0);
        publisher
    }

    #[test]
    fn an_unchanged_inventory_is_periodic() {
        let mut publisher = after_report(500);
        assert!(!publisher.is_due(&snapshot(500), at(299)));
        assert!(publisher.is_due(&snapshot(500), at(300)));
    }

    #[test]
    fn simultaneous_starts_drift_apart() {
        for (share, second) in [(0.0, 300), (0.5, 180), (1.0, 60)] {
            let mut publisher = Publisher::default();
            publisher.record_publication(snapshot(500), at(0), share);
            assert!(!publisher.is_due(&snapshot(500), at(second - 1)), "{share}");
            assert!(publisher.is_due(&snapshot(500), at(second)), "{share}");
            publisher.record_publication(snapshot(500), at(second), share);
            assert!(!publisher.is_due(&snapshot(500), at(second + 299)), "{share}");
            assert!(publisher.is_due(&snapshot(500), at(second + 300)), "{share}");
        }
    }

    /// Seconds from a report to the next one of the same inventory.
    fn wait_for_next_report(publisher: &mut Publisher, reported: u64) -> u64 {
        publisher.record_publication(snapshot(500), at(reported), 0.5);
        (reported..reported + 301).find(|second| publisher.is_due(&snapshot(500), at(*second))).unwrap() - reported
    }

    #[test]
    fn reports_drift_apart_after_an_outage() {
        assert_eq!(wait_for_next_report(&mut after_report(500), 400), 180, "due at 300");
        assert_eq!(wait_for_next_report(&mut after_report(500), 310), 300, "that is no delay");
        let mut changed = after_report(500);
        assert!(!changed.is_due(&snapshot(100), at(100)));
        assert_eq!(wait_for_next_report(&mut changed, 200), 180, "a change waited since 105");
    }

    #[test]
    fn failed_reports_back_off() {
        let mut publisher = after_report(500);
        let mut now = at(300);
        for longest in [5, 10, 20, 40, 60, 60] {
            assert!(publisher.is_due(&snapshot(500), now));
            publisher.record_failure(now);
            assert!(!publisher.is_due(&snapshot(0), now + at(longest).mul_f64(0.49)), "{longest}");
            now += at(longest);
        }
        publisher.record_publication(snapshot(500), now, 0.0);
        now += at(300);
        publisher.record_failure(now);
        assert!(publisher.is_due(&snapshot(500), now + at(5)), "the waits start again");
    }

    #[test]
    fn reports_are_a_minute_apart() {
        let mut publisher = after_report(500);
        assert!(!publisher.is_due(&snapshot(400), at(70)), "a tenth is not over a tenth");
        assert!(!publisher.is_due(&snapshot(399), at(20)));
        assert!(!publisher.is_due(&snapshot(399), at(59)));
        assert!(publisher.is_due(&snapshot(399), at(60)));
    }

    fn snapshot_serving(apis: &[&str]) -> Snapshot {
        let apis = apis.iter().map(|&api| api.to_owned()).collect();
        Snapshot { server: ServerFacts { apis, ..ServerFacts::default() }, ..snapshot(500) }
    }

    #[test]
    fn an_api_that_is_served_from_now_on_is_reported_within_seconds() {
        let mut publisher = Publisher::default();
        publisher.record_publication(snapshot_serving(&["apps/v1", "v1"]), at(0), 0.0);
        assert!(!publisher.is_due(&snapshot_serving(&["v1"]), at(20)));
        assert!(!publisher.is_due(&snapshot_serving(&["v1"]), at(25)), "one that is gone can wait");
        let more = snapshot_serving(&["apps/v1", "example.com/v1", "v1"]);
        let mut publisher = Publisher::default();
        publisher.record_publication(snapshot_serving(&["apps/v1", "v1"]), at(0), 0.0);
        assert!(!publisher.is_due(&more, at(10)));
        assert!(publisher.is_due(&more, at(15)));
    }

    #[test]
    fn changes_are_debounced() {
        let taint = Taint { key: "k".to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
        let tainted = Snapshot { taints: [("n".to_owned(), vec![taint])].into(), ..snapshot(500) };
        let orphaned = Snapshot { copies_without_schedule: Some(1), ..snapshot(500) };
        for changed in [Snapshot::default(), tainted, orphaned] {
            let mut publisher = after_report(500);
            assert!(!publisher.is_due(&changed, at(100)));
            assert!(!publisher.is_due(&changed, at(104)));
            assert!(publisher.is_due(&changed, at(105)));
        }
    }

    #[test]
    fn a_reverted_change_is_not_reported() {
        let mut publisher = after_report(500);
        assert!(!publisher.is_due(&snapshot(100), at(100)));
        assert!(!publisher.is_due(&snapshot(500), at(104)));
        assert!(!publisher.is_due(&snapshot(100), at(106)), "the wait starts again");
    }
}
