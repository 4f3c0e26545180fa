//! Whether copies are available where they must be: what the deletion of old copies waits for.

use super::faults::CopyFaults;
use super::group_context::GroupContext;
use super::store::Store;
use crate::placement::copy_state;
use crate::placement::facts::ObjectKey;

/// Returns whether an object is available in each of these clusters, and in at least one.
pub(super) fn is_available_in(store: &Store, key: &ObjectKey, clusters: &[&str]) -> bool {
    !clusters.is_empty()
        && clusters.iter().all(|cluster| {
            store.is_over_elsewhere(key, cluster)
                // What a cluster that is not Ready said last is no proof.
                || store.clusters.get(*cluster) == Some(&true)
                    && store
                        .copy_in(key, cluster)
                        .is_some_and(|(_, schedule)| copy_state::read_copy_state(schedule, cluster).available)
        })
}

impl GroupContext<'_> {
    /// Returns whether every member is available in every cluster that the group was decided for. One that cannot be
    /// copied and that is nowhere is not waited for, nor is one that has run to its end elsewhere, or that stays where it is.
    pub(super) fn is_available_in_targets(&self, faults: &CopyFaults) -> bool {
        let store = self.store;
        self.decided.is_some_and(|decided| {
            let members = self.members.iter();
            let mut awaited =
                members.filter(|key| !faults.contains_key(**key) || store.copies_of(key).next().is_some());
            awaited.all(|key| {
                let targets = self.member_targets(decided, key);
                if self.kept_place(key, &targets).is_some() || !self.copies_to_finish(decided, key).is_empty() {
                    return true;
                }
                targets.into_iter().all(|cluster| {
                    store.is_over_elsewhere(key, cluster)
                        || !faults.contains_key(*key) && is_available_in(store, key, &[cluster])
                })
            })
        })
    }
}
