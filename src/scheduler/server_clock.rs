//! The control plane's clock, as the answers to renewals of our Lease show it: two leaders whose own clocks differ agree
//! on what is recorded.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// The server's time at the last answer, and when that came by our monotonic clock.
#[derive(Debug, Clone, Default)]
pub struct ServerClock(Arc<Mutex<Option<(Instant, i64)>>>);

impl ServerClock {
    /// Sets the clock by a Lease that was just written: the API server stamps each write of its fields.
    pub fn set_by_lease(&self, written: &Lease) {
        let stamps = written.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.time.as_ref());
        if let Some(latest) = stamps.map(|time| time.0.as_second()).max() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), latest));
        }
    }

    /// Returns the seconds since 1970; by our own clock as long as there was no answer.
    pub fn now(&self) -> i64 {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some((at, seconds)) => seconds + i64::try_from(at.elapsed().as_secs()).unwrap_or_default(),
            None => Timestamp::now().as_second(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_clock_is_that_of_the_last_write() {
        let clock = ServerClock::default();
        let stamps = ["1970-01-01T00:01:40Z", "1970-01-01T00:00:10Z"]
            .map(|time| json!({"manager": "m", "operation": "Update", "time": time}));
        clock.set_by_lease(&serde_json::from_value(json!({"metadata": {"managedFields": stamps}})).unwrap());
        assert!((100..1_000).contains(&clock.now()), "far from our own");
        clock.set_by_lease(&Lease::default());
        assert!((100..1_000).contains(&clock.now()), "an answer without a stamp says nothing");
    }
}
