//! The record of a group, as its status holds it.

pub use crate::api::crd::move_record::{
    ClusterAmounts, ExcludedCluster, ExclusionReason, Move, MoveCause, MovePhase, MoveRecord, MoveRetry,
};

impl MoveRecord {
    /// Returns whether a cluster of the target, or of either side of the move, is one that is asked for.
    pub fn names_cluster(&self, is_it: impl Fn(&String) -> bool) -> bool {
        let sides = self.running.iter().flat_map(|running| running.from.keys().chain(running.to.keys()));
        self.target.keys().chain(sides).any(is_it)
    }

    /// Returns the number of moves that failed in a row.
    pub fn failed_attempts(&self) -> i32 {
        self.retry.map_or(0, |retry| retry.attempt)
    }

    /// Returns a copy with the next epoch, for a write that changes which copies stay.
    pub(super) fn next_epoch(&self) -> Self {
        Self { epoch: self.epoch.saturating_add(1), ..self.clone() }
    }

    /// Ends the move; what failed before is remembered.
    pub(super) fn without_move(mut self, target: ClusterAmounts) -> Self {
        (self.running, self.target) = (None, target);
        self
    }

    /// Forgets what failed before.
    pub(super) fn without_failures(mut self) -> Self {
        (self.retry, self.excluded) = (None, Vec::new());
        self
    }
}

/// Returns the amount of a cluster; 0 where it is missing.
pub(super) fn amount_in(amounts: &ClusterAmounts, cluster: &str) -> i64 {
    amounts.get(cluster).copied().unwrap_or(0)
}
