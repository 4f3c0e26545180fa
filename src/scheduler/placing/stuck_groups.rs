//! Groups with copies that do not run: which of them have waited for long enough to leave.

use std::collections::BTreeMap;

use super::decide::Clusters;
use super::place::{Place, cluster_of};
use super::store::Store;
use crate::placement::facts::ObjectKey;
use crate::placement::stuck::{Stuck, count_bound_pods, is_stuck_for_long};

impl Store {
    /// Records what the report of a copy says of it.
    pub(super) fn record_stuck(&mut self, at: &Place) {
        match self.schedules.get(at).and_then(Stuck::from_schedule) {
            None => drop(self.stuck.remove(at)),
            Some(stuck) => {
                let known = self.stuck.get(at).is_some_and(|(known, _)| *known == stuck);
                if !known {
                    self.stuck.insert(at.clone(), (stuck, false));
                }
            }
        }
    }

    /// Returns why the copy of an object in a cluster does not run.
    pub(super) fn find_stuck_copy(&self, key: &ObjectKey, cluster: &str) -> Option<Stuck> {
        let (at, _) = self.copy_in(key, cluster)?;
        self.stuck.get(at).map(|(stuck, _)| *stuck)
    }

    /// Asks again about the copies in a cluster that has grown.
    pub(super) fn reset_stuck_copies(&mut self, cluster: &str) {
        for (_, (_, is_told)) in self.stuck.iter_mut().filter(|(at, _)| cluster_of(at) == cluster) {
            *is_told = false;
        }
    }

    /// Takes the groups of copies that do not run and have not for so long that `is_due`, each copy once.
    pub(super) fn take_stuck_groups(&mut self, is_due: impl Fn(&str, Stuck) -> bool) -> Vec<String> {
        let Self { stuck, schedules, .. } = self;
        let open = stuck.iter_mut().filter(|(at, (stuck, is_told))| !is_told && is_due(cluster_of(at), *stuck));
        let told = open.filter_map(|(at, (_, is_told))| {
            *is_told = true;
            schedules.get(at)?.spec.group.clone()
        });
        told.collect()
    }
}

impl Clusters {
    /// Returns whether a copy has not run for so long that its group leaves.
    pub(super) fn is_stuck_there_for_long(&self, cluster: &str, stuck: Stuck, now: i64) -> bool {
        let grown_at = self.grown_at.get(cluster).copied();
        self.fleet.get(cluster).is_some_and(|known| is_stuck_for_long(known, stuck, grown_at, now))
    }

    /// Returns the pods that have a node, by cluster and object, where others of the copy have found none for long.
    pub(super) fn bound_pods<'k>(
        &self,
        store: &'k Store,
        members: impl Iterator<Item = &'k ObjectKey>,
        now: i64,
    ) -> BTreeMap<String, BTreeMap<ObjectKey, i64>> {
        let copies =
            members.flat_map(|key| store.copies_of(key).map(move |(at, schedule)| (cluster_of(at), key, schedule)));
        count_bound_pods(copies, |cluster, stuck| self.is_stuck_there_for_long(cluster, stuck, now))
    }
}
