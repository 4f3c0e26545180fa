//! Health of the workload cluster's own API server: probed often, smoothed: a change counts after 30 seconds.

use std::time::Duration;

/// Time that a changed result has to hold.
const WINDOW: Duration = Duration::from_secs(30);

/// Time after which the same health is reported again.
const REPORT_INTERVAL: Duration = Duration::from_secs(300);

/// Health that changes only when the probes agree for a while.
#[derive(Debug, Default)]
pub struct Smoothed {
    current: Option<bool>,
    /// Time of the first of the opposite results, which have followed without a break.
    opposite_since: Option<Duration>,
}

impl Smoothed {
    /// Records the result of a probe at the time `now`, counted from any beginning; returns the health.
    pub fn record_probe(&mut self, healthy: bool, now: Duration) -> bool {
        let Some(current) = self.current else {
            self.current = Some(healthy);
            return healthy;
        };
        if healthy == current {
            self.opposite_since = None;
            return current;
        }
        let since = *self.opposite_since.get_or_insert(now);
        if now.saturating_sub(since) < WINDOW {
            return current;
        }
        *self = Self { current: Some(healthy), opposite_since: None };
        healthy
    }
}

/// Last report to the control plane, and the time of the next.
#[derive(Debug, Default)]
pub struct Reported {
    healthy: Option<bool>,
    next: Duration,
}

impl Reported {
    /// Returns true where a report is due at the time `now`.
    pub fn is_due(&self, healthy: bool, now: Duration) -> bool {
        self.healthy != Some(healthy) || now >= self.next
    }

    /// Records a report, to be repeated after `spread` times five minutes: the control plane may lose it, and agents that
    /// reported together should not do so for ever. Returns true where the health changed.
    pub fn record_report(&mut self, healthy: bool, now: Duration, spread: f64) -> bool {
        let before = self.healthy.replace(healthy);
        self.next = now + REPORT_INTERVAL.mul_f64(spread);
        before != Some(healthy)
    }

    /// Records that another agent may have reported since.
    pub fn forget_report(&mut self) {
        self.healthy = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_reported_on_change() {
        let mut reported = Reported::default();
        assert!(reported.is_due(true, at(0)));
        assert!(reported.record_report(true, at(0), 1.0));
        assert!(!reported.is_due(true, at(299)) && reported.is_due(false, at(1)));
        assert!(reported.is_due(true, at(300)));
        assert!(!reported.record_report(true, at(300), 0.9), "unchanged");
        assert!(!reported.is_due(true, at(569)) && reported.is_due(true, at(570)));
        reported.record_report(true, at(570), 1.0);
        reported.forget_report();
        assert!(reported.is_due(true, at(571)), "another agent worked in between");
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_change_counts_after_thirty_seconds() {
        let mut health = Smoothed::default();
        assert!(health.record_probe(true, at(0)), "the first answer counts at once");
        assert!(health.record_probe(false, at(10)) && health.record_probe(false, at(39)));
        assert!(health.record_probe(true, at(40)), "one good result ends the change");
        assert!(health.record_probe(false, at(50)) && health.record_probe(false, at(79)));
        assert!(!health.record_probe(false, at(80)));
        assert!(!health.record_probe(true, at(90)), "recovery takes as long");
        assert!(health.record_probe(true, at(120)));
    }
}
