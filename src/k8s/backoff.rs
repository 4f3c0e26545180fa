//! Exponential back-off with jitter. It is our own because `backon` adds its jitter on top of the longest wait.

use std::time::Duration;

use rand::RngExt as _;

/// Waits between failed attempts.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    attempt: u32,
}

impl Backoff {
    /// Waits between half and all of `first`, then of twice that, and so on up to `cap`, so that a thousand clients do not
    /// come back at once.
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, attempt: 0 }
    }

    /// Returns the next wait.
    pub fn next_wait(&mut self) -> Duration {
        let full = self.first.saturating_mul(1 << self.attempt.min(20)).min(self.cap);
        self.attempt = self.attempt.saturating_add(1);
        full.mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// Starts again after a success.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// Returns `around` plus or minus `share` of it, at random.
pub fn add_jitter(around: Duration, share: f64) -> Duration {
    around.mul_f64(rand::rng().random_range(1.0 - share..=1.0 + share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        for full in [1, 2, 4, 8, 16, 32, 60, 60, 60].map(f64::from) {
            let wait = backoff.next_wait().as_secs_f64();
            assert!(wait >= full / 2.0 && wait <= full, "{wait} of {full}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_secs(1));
    }
}
