//! Changes of a copy by others: put back at once, until the same manager made three of them in ten minutes. A deletion is one
//! of a manager without a name.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a change is remembered.
const WINDOW: Duration = Duration::from_secs(600);
/// Number of changes by one manager within [`WINDOW`] that make a copy contested.
const MOST: usize = 3;
/// Time for which a contested copy is left as it is.
pub const PAUSE: Duration = Duration::from_secs(1800);

/// Recent changes of one copy.
#[derive(Debug, Default)]
pub struct Drift {
    changes: VecDeque<(Instant, String)>,
}

impl Drift {
    /// Records a change by `manager`. Returns true where it is contested from now on; the changes are then forgotten.
    pub fn record_change(&mut self, manager: &str, now: Instant) -> bool {
        self.changes.retain(|(at, _)| now.duration_since(*at) < WINDOW);
        self.changes.push_back((now, manager.to_owned()));
        let contested = self.changes.iter().filter(|(_, by)| by == manager).count() >= MOST;
        if contested {
            self.changes.clear();
        }
        contested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_changes_by_one_manager_are_a_contest() {
        let start = Instant::now();
        let mut drift = Drift::default();
        for (manager, seconds, is_contest) in
            [("a", 0, false), ("b", 1, false), ("a", 2, false), ("b", 3, false), ("a", 599, true), ("a", 600, false)]
        {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(drift.record_change(manager, now), is_contest, "{manager} at {seconds}");
        }
        let mut slow = Drift::default();
        let mut times = (0..10).map(|i| start + Duration::from_secs(i * 301));
        assert!(times.all(|now| !slow.record_change("a", now)), "two in ten minutes are none");
    }
}
