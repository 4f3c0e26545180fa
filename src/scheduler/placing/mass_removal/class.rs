//! Who limits the deletion of a Schedule: nobody, the limits of moves, or mass-removal protection.

use std::collections::BTreeSet;

use super::cause::{DRAIN, REBALANCE, UNKNOWN};
use crate::placement::decide::Target;
use crate::placement::facts::ObjectKey;
use crate::scheduler::placing::group_context::GroupContext;
use crate::scheduler::placing::place::{Place, cluster_of};
use crate::scheduler::placing::store::Store;
use crate::scheduler::placing::write::RemovalClass;

/// Returns whether the source of divided copies asks for less than they have together.
fn is_scaled_down(store: &Store, key: &ObjectKey) -> bool {
    let live = store.copies_of(key).filter(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none());
    let shares = live.filter_map(|(_, schedule)| schedule.spec.share.as_ref()?.replicas);
    let had = shares.fold(0_i64, i64::saturating_add);
    store.source_facts(key).is_some_and(|facts| facts.workload.is_dividable() && had > facts.workload.pods_at_once())
}

impl Store {
    /// Forgets that members of a group were edited whose copies are in its targets only.
    pub(in crate::scheduler::placing) fn forget_edits(&mut self, group: &str, targets: &[Target]) {
        if self.edited.is_empty() {
            return;
        }
        let targets: BTreeSet<&str> = targets.iter().map(|target| target.cluster.as_str()).collect();
        let members = self.members.get(group).into_iter().flatten().filter(|key| self.edited.contains(*key));
        let settled = members.filter(|key| self.copies_of(key).all(|(at, _)| targets.contains(cluster_of(at))));
        for key in settled.cloned().collect::<Vec<_>>() {
            self.edited.remove(&key);
        }
    }
}

impl GroupContext<'_> {
    /// Returns who limits that a member loses its Schedule in a cluster.
    pub(in crate::scheduler::placing) fn removal_class(&self, key: &ObjectKey, at: &Place) -> RemovalClass {
        let cause = self.active_decision().map(|decided| decided.record.cause.as_str());
        class_of_cause(self.store, key, cluster_of(at), cause)
    }
}

/// Returns who limits that a copy goes which nobody wants, of a group that does not move.
pub(in crate::scheduler::placing) fn stray_class(
    store: &Store,
    group: &str,
    key: &ObjectKey,
    cluster: &str,
) -> RemovalClass {
    let status = store.groups.get(group).and_then(|group| group.status.as_ref());
    let cause = status.and_then(|status| Some(status.decision.as_ref()?.cause.as_str()));
    class_of_cause(store, key, cluster, cause)
}

fn class_of_cause(store: &Store, key: &ObjectKey, cluster: &str, cause: Option<&str>) -> RemovalClass {
    if store.drained.contains(cluster) || matches!(cause, Some(DRAIN | REBALANCE)) {
        return RemovalClass::Moved;
    }
    if store.edited.contains(key) || is_scaled_down(store, key) {
        return RemovalClass::Asked;
    }
    RemovalClass::Caused(cause.filter(|cause| !cause.is_empty()).unwrap_or(UNKNOWN).to_owned())
}
