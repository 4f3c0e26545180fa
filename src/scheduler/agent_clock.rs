//! How far an agent's clock is from ours, judged by the time that it writes into its Lease.
//!
//! Only certificates mind: an agent lives as long as its Lease changes, whatever time is in it. So this is told for
//! information, and slowly: a reading counts once it has held for a while by our own clock. A renewal that reaches us
//! late looks like a clock that is behind, but those that were held up together arrive together, and the last of them
//! is as good as any.

use std::time::Duration;

use tokio::time::Instant;

/// More than this is told, in seconds.
const FAR: i64 = 60;
/// At most this is agreement again, in seconds.
const NEAR: i64 = 30;
/// How long a reading has to hold before it counts: three renewals.
const HOLD: Duration = Duration::from_secs(30);

/// What is known of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// It agrees with ours.
    Agrees,
    /// It is this many seconds ahead of ours; behind, if negative.
    Off(i64),
}

impl Reading {
    /// Whether telling one after the other says nothing new.
    fn resembles(self, other: Self) -> bool {
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
    told: Option<Reading>,
    /// What has been read instead, and since when.
    doubt: Option<(Reading, Instant)>,
}

impl Clock {
    /// Takes the difference that a renewal showed, in seconds ahead of ours, when it was seen at `now`.
    pub fn read(&mut self, ahead: i64, now: Instant) {
        let reading = match ahead.abs() {
            far if far > FAR => Reading::Off(ahead),
            near if near <= NEAR => Reading::Agrees,
            // In between, what was told stays right.
            _ => self.told.unwrap_or(Reading::Agrees),
        };
        if self.told.is_some_and(|told| told.resembles(reading)) {
            self.doubt = None;
            return;
        }
        let since = self.doubt.filter(|(doubt, _)| doubt.resembles(reading)).map_or(now, |(_, since)| since);
        self.doubt = Some((reading, since));
        if now.duration_since(since) >= HOLD {
            *self = Self { told: Some(reading), doubt: None };
        }
    }

    /// What is known; `None` until the first reading has held.
    pub fn told(&self) -> Option<Reading> {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renewals every ten seconds, as pairs of the difference and how often it is read; what is told in the end.
    fn after(readings: &[(i64, u64)]) -> Option<Reading> {
        let start = Instant::now();
        let mut clock = Clock::default();
        let mut second = 0;
        for (ahead, times) in readings {
            for _ in 0..*times {
                clock.read(*ahead, start + Duration::from_secs(second));
                second += 10;
            }
        }
        clock.told()
    }

    #[test]
    fn a_difference_counts_once_it_has_held_for_three_renewals() {
        assert_eq!(after(&[(600, 3)]), None);
        assert_eq!(after(&[(600, 4)]), Some(Reading::Off(600)));
        assert_eq!(after(&[(-600, 4)]), Some(Reading::Off(-600)));
        assert_eq!(after(&[(60, 100)]), Some(Reading::Agrees));
        assert_eq!(after(&[(-1, 4), (-600, 3), (-1, 1), (-600, 3)]), Some(Reading::Agrees), "without a break");
    }

    #[test]
    fn it_is_over_only_when_the_clocks_are_near_and_a_drift_is_no_news() {
        assert_eq!(after(&[(70, 4), (55, 100)]), Some(Reading::Off(70)), "no back and forth at the border");
        assert_eq!(after(&[(70, 4), (30, 3)]), Some(Reading::Off(70)));
        assert_eq!(after(&[(70, 4), (30, 4)]), Some(Reading::Agrees));
        assert_eq!(after(&[(70, 4), (130, 100)]), Some(Reading::Off(70)));
        assert_eq!(after(&[(70, 4), (131, 4)]), Some(Reading::Off(131)));
    }

    #[test]
    fn renewals_that_were_held_up_and_arrive_together_say_nothing_of_the_clock() {
        let start = Instant::now();
        let mut clock = Clock::default();
        for second in [0, 10, 20, 30] {
            clock.read(-1, start + Duration::from_secs(second));
        }
        let healed = start + Duration::from_secs(600);
        for late in (0..=57).rev() {
            clock.read(-10 * late, healed);
        }
        clock.read(0, healed + Duration::from_secs(10));
        assert_eq!(clock, Clock { told: Some(Reading::Agrees), doubt: None });
    }
}
