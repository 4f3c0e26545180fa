//! Clock skew of an agent, measured by the time that it writes into its Lease.
//!
//! It matters for certificates only: a Lease is valid as long as it changes, whatever time is in it. So it is reported for
//! information, and slowly: a reading counts once it has held for a while by our own clock. A delayed renewal looks like a
//! clock that is behind, but renewals that were delayed together arrive together, and the last of them is as good as any.

use std::time::Duration;

use tokio::time::Instant;

/// Skew beyond this is reported, in seconds.
const FAR: i64 = 60;
/// Skew up to this is agreement again, in seconds.
const NEAR: i64 = 30;
/// Time that a reading has to hold before it counts: three renewals.
const HOLD: Duration = Duration::from_secs(30);

/// State of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// It agrees with ours.
    Agrees,
    /// It is this many seconds ahead of ours; behind, if negative.
    Off(i64),
}

impl Reading {
    /// Returns true for readings that are not worth two reports.
    fn is_similar_to(self, other: Self) -> bool {
        match (self, other) {
            (Self::Agrees, Self::Agrees) => true,
            (Self::Off(a), Self::Off(b)) => (a - b).abs() <= FAR,
            _ => false,
        }
    }
}

/// The clock of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clock {
    reported: Option<Reading>,
    /// Different reading, and the time of its first occurrence.
    candidate: Option<(Reading, Instant)>,
}

impl Clock {
    /// Takes the difference that a renewal showed, in seconds ahead of ours, when it was seen at `now`.
    pub fn record_reading(&mut self, ahead: i64, now: Instant) {
        let reading = match ahead.abs() {
            far if far > FAR => Reading::Off(ahead),
            near if near <= NEAR => Reading::Agrees,
            // In between, the reported reading stays valid.
            _ => self.reported.unwrap_or(Reading::Agrees),
        };
        if self.reported.is_some_and(|reported| reported.is_similar_to(reading)) {
            self.candidate = None;
            return;
        }
        let since =
            self.candidate.filter(|(candidate, _)| candidate.is_similar_to(reading)).map_or(now, |(_, since)| since);
        self.candidate = Some((reading, since));
        if now.duration_since(since) >= HOLD {
            *self = Self { reported: Some(reading), candidate: None };
        }
    }

    /// Returns the reading to report; `None` until the first one has held.
    pub fn reported_reading(&self) -> Option<Reading> {
        self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the report after renewals every ten seconds, given as pairs of skew and number.
    fn after(readings: &[(i64, u64)]) -> Option<Reading> {
        let start = Instant::now();
        let mut clock = Clock::default();
        let mut second = 0;
        for (ahead, times) in readings {
            for _ in 0..*times {
                clock.record_reading(*ahead, start + Duration::from_secs(second));
                second += 10;
            }
        }
        clock.reported_reading()
    }

    #[test]
    fn skew_counts_after_three_renewals() {
        assert_eq!(after(&[(600, 3)]), None);
        assert_eq!(after(&[(600, 4)]), Some(Reading::Off(600)));
        assert_eq!(after(&[(-600, 4)]), Some(Reading::Off(-600)));
        assert_eq!(after(&[(60, 100)]), Some(Reading::Agrees));
        assert_eq!(after(&[(-1, 4), (-600, 3), (-1, 1), (-600, 3)]), Some(Reading::Agrees), "without a break");
    }

    #[test]
    fn skew_ends_only_near_agreement() {
        assert_eq!(after(&[(70, 4), (55, 100)]), Some(Reading::Off(70)), "no back and forth at the border");
        assert_eq!(after(&[(70, 4), (30, 3)]), Some(Reading::Off(70)));
        assert_eq!(after(&[(70, 4), (30, 4)]), Some(Reading::Agrees));
        assert_eq!(after(&[(70, 4), (130, 100)]), Some(Reading::Off(70)));
        assert_eq!(after(&[(70, 4), (131, 4)]), Some(Reading::Off(131)));
    }

    #[test]
    fn delayed_renewals_are_no_skew() {
        let start = Instant::now();
        let mut clock = Clock::default();
        for second in [0, 10, 20, 30] {
            clock.record_reading(-1, start + Duration::from_secs(second));
        }
        let healed = start + Duration::from_secs(600);
        for late in (0..=57).rev() {
            clock.record_reading(-10 * late, healed);
        }
        clock.record_reading(0, healed + Duration::from_secs(10));
        assert_eq!(clock, Clock { reported: Some(Reading::Agrees), candidate: None });
    }
}
