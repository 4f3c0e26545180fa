//! Work that one decision may do.

use std::cell::Cell;

/// Steps of one decision, such as nodes that are examined for one need. A decision takes at most as long as these, some
/// ten milliseconds; what is not examined by that time counts as [`super::Fit::Tight`].
#[derive(Debug)]
pub(crate) struct Steps(Cell<usize>);

/// Most steps of a decision.
const MOST: usize = 1_000_000;

impl Default for Steps {
    fn default() -> Self {
        Self(Cell::new(MOST))
    }
}

impl Steps {
    /// Takes so many; returns false where they are not left, and then takes all that are.
    pub(crate) fn take_steps(&self, steps: usize) -> bool {
        let left = self.0.get().checked_sub(steps);
        self.0.set(left.unwrap_or_default());
        left.is_some()
    }

    /// Returns whether none is left.
    pub(crate) fn are_spent(&self) -> bool {
        self.0.get() == 0
    }

    /// Number that was taken.
    #[cfg(test)]
    pub(crate) fn steps_taken(&self) -> usize {
        MOST - self.0.get()
    }
}
