//! Is the workload cluster's own API server well? Asked often, believed slowly: a change counts after 30 seconds.

use std::time::Duration;

/// How long a new answer has to hold.
const WINDOW: Duration = Duration::from_secs(30);

/// An opinion that changes only when the evidence stays the same for a while.
#[derive(Debug, Default)]
pub struct Smooth {
    current: Option<bool>,
    /// The opposite answer, and since when it has been heard without a break.
    doubt: Option<Duration>,
}

impl Smooth {
    /// Takes an answer heard at the time `now`, counted from any beginning; returns the opinion.
    pub fn hear(&mut self, well: bool, now: Duration) -> bool {
        let Some(current) = self.current else {
            self.current = Some(well);
            return well;
        };
        if well == current {
            self.doubt = None;
            return current;
        }
        let since = *self.doubt.get_or_insert(now);
        if now.saturating_sub(since) < WINDOW {
            return current;
        }
        *self = Self { current: Some(well), doubt: None };
        well
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_change_counts_only_after_thirty_seconds_without_a_break() {
        let mut smooth = Smooth::default();
        assert!(smooth.hear(true, at(0)), "the first answer counts at once");
        assert!(smooth.hear(false, at(10)) && smooth.hear(false, at(39)));
        assert!(smooth.hear(true, at(40)), "one good answer ends the doubt");
        assert!(smooth.hear(false, at(50)) && smooth.hear(false, at(79)));
        assert!(!smooth.hear(false, at(80)));
        assert!(!smooth.hear(true, at(90)), "recovery is believed as slowly");
        assert!(smooth.hear(true, at(120)));
    }
}
