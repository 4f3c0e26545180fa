//! The mass-loss brake: when most clusters vanish at once, it is more likely that we are cut off than that they died.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Losses within this time belong together.
const WINDOW: Duration = Duration::from_secs(40);
/// Fewer than this is never a mass.
const AT_LEAST: usize = 3;

/// Counts losses and says when they are too many to be believed.
#[derive(Debug, Default)]
pub struct Brake {
    lost: BTreeMap<String, Instant>,
    on: bool,
}

impl Brake {
    /// Notes that a cluster that was ready was lost.
    pub fn lost(&mut self, name: &str, now: Instant) {
        self.lost.insert(name.to_owned(), now);
    }

    /// Whether nothing may be moved, given how many clusters are ready now. Returns `Some` when that changed.
    ///
    /// The brake is released when the lost ones are no longer the majority: they came back, others did, or they were
    /// deleted.
    pub fn judge(&mut self, ready: usize, now: Instant) -> Option<bool> {
        if !self.on {
            self.lost.retain(|_, at| now.duration_since(*at) < WINDOW);
        }
        let lost = self.lost.len();
        let on = lost >= AT_LEAST && lost > ready;
        let changed = on != self.on;
        self.on = on;
        changed.then_some(on)
    }

    /// Drops lost clusters that are not there any more: they never come back, and there is nothing to move from them.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.lost.retain(|name, _| is_there(name));
    }

    /// Notes that a cluster is ready again.
    pub fn back(&mut self, name: &str) {
        self.lost.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losing_most_clusters_at_once_pulls_the_brake_until_they_are_back() {
        let start = Instant::now();
        let mut brake = Brake::default();
        for name in ["a", "b", "c"] {
            brake.lost(name, start);
        }
        assert_eq!(brake.judge(2, start), Some(true));
        assert_eq!(brake.judge(2, start + WINDOW * 10), None, "time alone does not release it");
        brake.back("a");
        assert_eq!(brake.judge(3, start), Some(false));
    }

    #[test]
    fn lost_clusters_that_were_deleted_release_the_brake() {
        let start = Instant::now();
        let mut brake = Brake::default();
        for name in ["a", "b", "c"] {
            brake.lost(name, start);
        }
        assert_eq!(brake.judge(1, start), Some(true));
        brake.keep(|name| name == "a");
        assert_eq!(brake.judge(1, start + WINDOW * 10), Some(false));
    }

    #[test]
    fn a_minority_a_few_or_losses_far_apart_are_believed() {
        let start = Instant::now();
        let mut few = Brake::default();
        few.lost("a", start);
        few.lost("b", start);
        assert_eq!(few.judge(0, start), None);
        let mut minority = Brake::default();
        let mut apart = Brake::default();
        for (step, name) in ["a", "b", "c"].into_iter().enumerate() {
            minority.lost(name, start);
            apart.lost(name, start + WINDOW * u32::try_from(step).unwrap());
        }
        assert_eq!(minority.judge(3, start), None);
        assert_eq!(apart.judge(0, start + WINDOW * 2), None);
    }
}
