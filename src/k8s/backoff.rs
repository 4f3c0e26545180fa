//! Waiting between attempts: doubling, with jitter, up to a cap.

use std::time::Duration;

use rand::RngExt as _;

/// The waits between failed attempts of one thing.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    attempt: u32,
}

impl Backoff {
    /// Waits around `first`, then twice that, and so on up to `cap`.
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, attempt: 0 }
    }

    /// The next wait: between half and all of the doubled time, so that a thousand clients do not come back at once.
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

/// `around` plus or minus `share` of it, at random.
pub fn jittered(around: Duration, share: f64) -> Duration {
    around.mul_f64(rand::rng().random_range(1.0 - share..=1.0 + share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_start_again_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        for full in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let wait = backoff.next_wait().as_secs_f64();
            assert!(wait >= f64::from(full) / 2.0 && wait <= f64::from(full), "{wait} of {full}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_secs(1));
    }
}
