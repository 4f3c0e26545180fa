//! Copies that a simulation removes without a move: nothing has to serve elsewhere before they go.

use std::collections::BTreeMap;

use super::Asked;
use super::describe::Copies;
use super::outcome::Removals;
use super::run::Run;
use crate::api::first_of::first_of;
use crate::placement::assignment::Assignment;
use crate::placement::facts::ObjectKey;
use crate::placement::follow::is_follower;
use crate::placement::live;
use crate::placement::moves::removals_left;

/// Most clusters that a note names.
const NAMED: usize = 5;

/// Counts the copies that go from `old` to `new` without a move, though neither their sources nor their cluster ask for it.
/// Namespaces and followers do not count.
pub(super) fn count_removals(run: &Run<'_>, old: &Copies, new: &Copies, asked: &Asked) -> Removals {
    let decided = old.iter().filter(|(key, _)| !is_follower(key));
    let mut by_cluster: BTreeMap<String, usize> = BTreeMap::new();
    for (key, clusters) in decided.clone().filter(|(key, _)| !moves_or_asks(run, key, asked)) {
        let Some(kept) = new.get(key) else { continue };
        for cluster in clusters.difference(kept).filter(|cluster| !is_left(run, cluster)) {
            *by_cluster.entry(cluster.clone()).or_default() += 1;
        }
    }
    let copies = decided.map(|(_, clusters)| clusters.len()).sum();
    let removed: usize = by_cluster.values().sum();
    Removals { copies, is_mass: removed > removals_left(copies, 0), by_cluster }
}

/// Returns whether an object moves by the record of its group, or was itself edited.
fn moves_or_asks(run: &Run<'_>, key: &ObjectKey, asked: &Asked) -> bool {
    let moves = run.find_group(key).is_some_and(|group| run.causes.contains_key(group));
    moves || asked.objects.contains(key) || run.assignments.get(key) == Some(&Assignment::Withdrawn)
}

/// Returns whether everything leaves a cluster: it is drained, leaves or is gone.
fn is_left(run: &Run<'_>, cluster: &str) -> bool {
    run.clusters.get(cluster).is_none_or(|cluster| {
        let is_drained =
            live::is_drained(cluster) || cluster.spec.taints.iter().any(|taint| taint.effect == "NoExecute");
        is_drained || live::is_leaving(cluster)
    })
}

impl Removals {
    /// Returns what is said of copies that go, if they are many.
    pub(super) fn format_note(&self) -> Option<String> {
        let removed: usize = self.by_cluster.values().sum();
        let clusters = self.by_cluster.iter().map(|(name, count)| format!("{count} on {name}"));
        let clusters = first_of(clusters, NAMED, ", ");
        let all = self.copies;
        self.is_mass.then(|| {
            format!(
                "{removed} of {all} copies would be removed without being replaced first ({clusters}): more than a \
                 tenth, so the scheduler would hold these removals back until you allow them (RemovalsHeld)"
            )
        })
    }
}
