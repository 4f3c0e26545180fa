//! The two sides of a move.

use std::collections::BTreeSet;

use super::record::{Move, amount_in};
use super::view::View;

/// The clusters of a move by what becomes of them. Both are in the order of their names.
pub(super) struct Sides<'a> {
    /// Clusters with more after the move.
    pub(super) grow: Vec<&'a str>,
    /// Clusters with less after the move.
    pub(super) shrink: Vec<&'a str>,
}

impl<'a> Sides<'a> {
    pub(super) fn from_move(running: &'a Move) -> Self {
        let names: BTreeSet<&str> = running.from.keys().chain(running.to.keys()).map(String::as_str).collect();
        Self {
            grow: names
                .iter()
                .copied()
                .filter(|cluster| amount_in(&running.to, cluster) > amount_in(&running.from, cluster))
                .collect(),
            shrink: names
                .iter()
                .copied()
                .filter(|cluster| amount_in(&running.to, cluster) < amount_in(&running.from, cluster))
                .collect(),
        }
    }
}

/// Returns whether the cluster is the one that the move began with.
pub(super) fn is_same_cluster(view: View<'_>, running: &Move, cluster: &str) -> bool {
    view.seen.clusters.get(cluster).is_some_and(|seen| running.uids.get(cluster) == Some(&seen.uid))
}
