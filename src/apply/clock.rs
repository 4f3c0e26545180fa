//! The clock of the API server, as far as its answers tell it: machines that share a lock in it may not agree on the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};

/// How far apart two clocks may be and count as one: answers tell whole seconds, and take their time.
const SAME: SignedDuration = SignedDuration::from_secs(2);

/// How far the server's clock is before ours, in milliseconds. Shared by all copies.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock(Arc<AtomicI64>);

impl Clock {
    /// Takes what the `Date` of an answer says (RFC 9110, such as `Sun, 06 Nov 1994 08:49:37 GMT`); one without says nothing.
    pub(super) fn hear(&self, headers: &HeaderMap) {
        let date = headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) {
            let before = date.timestamp().duration_since(Timestamp::now());
            let before = if before.abs() <= SAME { SignedDuration::ZERO } else { before };
            self.0.store(i64::try_from(before.as_millis()).unwrap_or_default(), Ordering::Relaxed);
        }
    }

    /// The time there.
    pub(super) fn now(&self) -> Timestamp {
        let before = SignedDuration::from_millis(self.0.load(Ordering::Relaxed));
        Timestamp::now().checked_add(before).unwrap_or_else(|_| Timestamp::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(date: &str) -> SignedDuration {
        let clock = Clock::default();
        clock.hear(&HeaderMap::from_iter([(http::header::DATE, date.parse().unwrap())]));
        clock.now().duration_since(Timestamp::now())
    }

    #[test]
    fn the_time_is_that_of_the_last_answer() {
        let an_hour_ahead = Timestamp::now() + SignedDuration::from_hours(1);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&an_hour_ahead).unwrap();
        assert!((heard(&date) - SignedDuration::from_hours(1)).abs() < SAME, "{date}");
        let now = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now()).unwrap();
        for same in [now.as_str(), "no date"] {
            assert!(heard(same).abs() < SignedDuration::from_millis(100), "{same}");
        }
        assert!(heard("Sun, 06 Nov 1994 08:49:37 GMT") < SignedDuration::from_hours(-24));
    }
}
