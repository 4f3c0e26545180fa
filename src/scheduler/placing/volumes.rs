//! What contains data stays where it is: its copies are not deleted, and it is not begun elsewhere with an empty
//! volume, as long as its source exists and does not consent.

use std::collections::BTreeSet;

use super::decide::Decided;
use super::group_context::GroupContext;
use super::place::{Place, cluster_of};
use super::store::{Assignment, Store};
use crate::api::Schedule;
use crate::placement::facts::ObjectKey;

impl Store {
    /// Returns whether the data of an object keeps its copies where they are: it holds or mounts a claim, and no consent
    /// is given. One that is gone, or that its annotation keeps in the control plane, keeps nothing.
    pub(super) fn is_held_by_volumes(&self, key: &ObjectKey) -> bool {
        let facts = self.source_facts(key).filter(|facts| facts.asks.cluster.as_deref() != Some(""));
        facts.is_some_and(|facts| {
            facts.is_held_by_volumes(|claim| self.source_facts(claim).map(|facts| facts.asks.allow_volume_move))
        })
    }

    /// Returns whether the data of an object's source keeps this Schedule. A copy of an earlier source of the name is not
    /// its data.
    pub(super) fn is_kept_by_volumes(&self, key: &ObjectKey, schedule: &Schedule) -> bool {
        self.sources.get(key).is_some_and(|source| source.is_source_of(schedule)) && self.is_held_by_volumes(key)
    }

    /// Returns the clusters where a claim that follows was last, if its copies are not known any more: its data is there.
    pub(super) fn lost_home(&self, key: &ObjectKey) -> BTreeSet<&str> {
        let follows = self.assignments.get(key) == Some(&Assignment::Follows);
        if follows && key.is_of_kind("", "PersistentVolumeClaim") { self.marked_homes(key) } else { BTreeSet::new() }
    }

    /// Returns the clusters where the data of an object placed by annotation was last, if its copies are not known any more
    /// and its annotation names other clusters now: an empty volume there is not its data.
    pub(super) fn lost_homes_of_annotated(&self, key: &ObjectKey, targets: &BTreeSet<&str>) -> BTreeSet<&str> {
        if self.assignments.get(key) != Some(&Assignment::Direct) {
            return BTreeSet::new();
        }
        let homes = self.marked_homes(key);
        if homes.is_subset(targets) { BTreeSet::new() } else { homes }
    }

    /// Returns the clusters that the mark of an object names, if its data keeps it and its copies are not known any more.
    fn marked_homes(&self, key: &ObjectKey) -> BTreeSet<&str> {
        let is_lost = self.copies_of(key).next().is_none() && self.is_held_by_volumes(key);
        let source = self.sources.get(key).filter(|_| is_lost);
        source.map(|source| source.target.parse_clusters()).unwrap_or_default()
    }

    /// Returns the Schedules of an object that its data keeps.
    pub(super) fn kept_copies(&self, key: &ObjectKey) -> Vec<(&Place, &Schedule)> {
        let Some(source) = self.sources.get(key).filter(|_| self.is_held_by_volumes(key)) else {
            return Vec::new();
        };
        let copies = self.copies_of(key).filter(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none());
        copies.filter(|(_, schedule)| source.is_source_of(schedule)).collect()
    }
}

/// Where an object whose data keeps it must be, in place of the targets.
pub(super) enum KeptAt<'a> {
    /// Where its copies are, and nowhere else.
    Copies(Vec<(&'a Place, &'a Schedule)>),
    /// In the clusters that recorded it, as far as they are there again. Its copies are not known any more.
    Recorded(Vec<&'a str>),
}

impl<'a> GroupContext<'a> {
    /// Returns where a member is kept by its data in place of the targets; `None` where the targets are right for it.
    pub(super) fn kept_place(&self, key: &ObjectKey, targets: &BTreeSet<&str>) -> Option<KeptAt<'a>> {
        if !self.store.is_held_by_volumes(key) {
            return None;
        }
        let copies = self.store.kept_copies(key);
        if copies.iter().any(|(at, _)| !targets.contains(cluster_of(at))) {
            return Some(KeptAt::Copies(copies));
        }
        if !copies.is_empty() {
            return None;
        }
        let others: Vec<&str> = self.find_last_homes(key).into_iter().filter(|name| !targets.contains(name)).collect();
        if others.is_empty() {
            return None;
        }
        let are_known = others.iter().all(|name| self.store.clusters.contains_key(*name));
        Some(KeptAt::Recorded(if are_known { others } else { Vec::new() }))
    }

    /// Returns the clusters where the group was last recorded.
    pub(super) fn recorded_clusters(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.known_status().into_iter().flat_map(|status| &status.target_clusters).map(String::as_str)
    }

    /// Returns the clusters where the data of a member was last: as the group recorded it, or, where that went with its last
    /// member, as the mark of the source has it.
    fn find_last_homes(&self, key: &ObjectKey) -> Vec<&'a str> {
        if self.known_status().is_some() {
            return self.recorded_clusters().collect();
        }
        // A tenant can write the mark, and choose a cluster by it.
        let source = self.store.sources.get(key).filter(|_| !self.store.denies_direct);
        source.map(|source| source.target.parse_clusters().into_iter().collect()).unwrap_or_default()
    }

    /// Returns the clusters to record: the targets, then those where the data of members is, or was last.
    pub(super) fn clusters_to_record(&self, decided: &Decided) -> Vec<String> {
        let mut clusters: Vec<String> = decided.targets.iter().map(|target| target.cluster.clone()).collect();
        for key in self.members.iter().filter(|key| self.store.is_held_by_volumes(key)) {
            let copies = self.store.kept_copies(key);
            let homes = if copies.is_empty() {
                self.find_last_homes(key)
            } else {
                copies.into_iter().map(|(at, _)| cluster_of(at)).collect()
            };
            for name in homes {
                if clusters.iter().all(|known| known != name) {
                    clusters.push(name.to_owned());
                }
            }
        }
        clusters
    }
}
