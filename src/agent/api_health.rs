//! Is the workload cluster's own API server well? Asked often, believed slowly: a change counts after 30 seconds.

use std::time::Duration;

/// How long a new answer has to hold.
const WINDOW: Duration = Duration::from_secs(30);

/// After how long an opinion is told again.
const AGAIN: Duration = Duration::from_secs(300);

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

/// What the control plane was told last, and when that is to be said again.
#[derive(Debug, Default)]
pub struct Told {
    opinion: Option<bool>,
    again: Duration,
}

impl Told {
    /// Whether the opinion `well` is to be told at the time `now`.
    pub fn is_due(&self, well: bool, now: Duration) -> bool {
        self.opinion != Some(well) || now >= self.again
    }

    /// Notes that it was told, to be said again after about `spread` times five minutes: what the control plane knew may
    /// be lost to it, and all who were told together need not be so for ever. Returns whether it is another opinion.
    pub fn note(&mut self, well: bool, now: Duration, spread: f64) -> bool {
        let before = self.opinion.replace(well);
        self.again = now + AGAIN.mul_f64(spread);
        before != Some(well)
    }

    /// Notes that another agent may have told something else since.
    pub fn forget(&mut self) {
        self.opinion = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opinion_is_told_when_it_is_new_and_again_every_five_minutes() {
        let mut told = Told::default();
        assert!(told.is_due(true, at(0)));
        assert!(told.note(true, at(0), 1.0));
        assert!(!told.is_due(true, at(299)) && told.is_due(false, at(1)));
        assert!(told.is_due(true, at(300)));
        assert!(!told.note(true, at(300), 0.9), "that is no news");
        assert!(!told.is_due(true, at(569)) && told.is_due(true, at(570)));
        told.note(true, at(570), 1.0);
        told.forget();
        assert!(told.is_due(true, at(571)), "another agent worked in between");
    }

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
