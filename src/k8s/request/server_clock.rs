//! The clock of the API server, as far as its answers tell it: machines that share a lock in it may not agree on the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};

/// Precision of the `Date` of an answer, which tells whole seconds: it may be this much later there than it says.
const TOLD: SignedDuration = SignedDuration::from_secs(1);

/// Lead of the server's clock over ours, in milliseconds. Shared by all copies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Arc<AtomicI64>);

impl Clock {
    /// Takes what the `Date` of an answer says (RFC 9110, such as `Sun, 06 Nov 1994 08:49:37 GMT`) to a request that was `sent`
    /// at this time by our clock; one without says nothing.
    ///
    /// It was made between the sending and the reading, and this machine may have slept in between: the known clock is
    /// kept if it agrees with this, else corrected by as little as possible.
    pub(crate) fn observe_date(&self, headers: &HeaderMap, sent: Timestamp) {
        let date = headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) {
            let least = as_milliseconds(date.timestamp().duration_since(Timestamp::now()));
            // Less than the least where our clock was set back meanwhile: what it shows now is what counts.
            let most = as_milliseconds(date.timestamp().duration_since(sent) + TOLD).max(least);
            let _ =
                self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known: i64| Some(known.clamp(least, most)));
        }
    }

    /// Returns the time by the server's clock.
    pub(crate) fn now(&self) -> Timestamp {
        let before = SignedDuration::from_millis(self.0.load(Ordering::Relaxed));
        Timestamp::now().checked_add(before).unwrap_or_else(|_| Timestamp::now())
    }
}

fn as_milliseconds(duration: SignedDuration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn said(date: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::DATE, date.parse().unwrap())])
    }

    /// The headers of an answer that is made at this time.
    pub(crate) fn dated(time: Timestamp) -> HeaderMap {
        said(&jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap())
    }

    /// Lead of the clock over ours, in seconds.
    fn before(clock: &Clock) -> i64 {
        clock.now().duration_since(Timestamp::now()).as_millis().div_euclid(1000).try_into().unwrap()
    }

    fn heard(headers: &HeaderMap) -> i64 {
        let clock = Clock::default();
        clock.observe_date(headers, Timestamp::now());
        before(&clock)
    }

    #[test]
    fn the_time_is_that_of_the_last_answer() {
        let ahead = heard(&dated(Timestamp::now() + HOUR));
        assert!((3598..=3600).contains(&ahead), "{ahead}");
        for same in [dated(Timestamp::now()), said("no date")] {
            assert!((-1..=0).contains(&heard(&same)), "{same:?}");
        }
        assert!(heard(&said("Sun, 06 Nov 1994 08:49:37 GMT")) < -24 * 3600);
    }

    #[test]
    fn an_answer_from_before_a_sleep_does_not_set_the_clock_back() {
        let slept = Timestamp::now() - HOUR;
        // Of a server whose clock agrees with ours, and of one whose clock is five hours ahead.
        for (clock, ahead) in [(Clock::default(), 0), (Clock::default(), 5)] {
            clock.observe_date(&dated(Timestamp::now() + ahead * HOUR), Timestamp::now());
            clock.observe_date(&dated(slept + ahead * HOUR), slept);
            let before = before(&clock) - i64::from(ahead) * 3600;
            assert!((-2..=1).contains(&before), "{before}");
        }
    }

    #[test]
    fn a_clock_that_was_set_back_while_an_answer_was_on_its_way_is_told_by_what_it_shows_now() {
        let clock = Clock::default();
        clock.observe_date(&dated(Timestamp::now() + HOUR), Timestamp::now() + HOUR);
        let before = before(&clock);
        assert!((3598..=3600).contains(&before), "{before}");
    }
}
