//! Groups with copies that do not run: which of them have waited for long enough to leave.

use std::collections::BTreeMap;

use super::decide::Clusters;
use super::place::{Place, cluster_of};
use super::store::Store;
use super::stuck::Stuck;
use crate::placement::facts::ObjectKey;

/// Seconds for which pods find no node before their group leaves, and the same where nodes are added by need.
const PATIENCE_SECONDS: i64 = 120;
const AUTOSCALED_PATIENCE_SECONDS: i64 = 600;

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
    /// Returns whether a copy has not run for so long that its group leaves. A cluster that has grown since gets its time
    /// again; of one that is not Ready nothing is known.
    pub(super) fn is_stuck_for_long(&self, cluster: &str, stuck: Stuck, now: i64) -> bool {
        let Some(known) = self.fleet.get(cluster).filter(|known| known.ready) else { return false };
        let Stuck::Unschedulable { since, .. } = stuck else { return true };
        let patience = if known.autoscaled { AUTOSCALED_PATIENCE_SECONDS } else { PATIENCE_SECONDS };
        let since = self.grown_at.get(cluster).map_or(since, |grown| since.max(*grown));
        now.saturating_sub(since) >= patience
    }

    /// Returns the first object, of those that do not run once, that has not run in a cluster for long, and why. A group
    /// that leaves for it has reason to as long as one does not run.
    pub(super) fn find_stuck_member<'k>(
        &self,
        store: &Store,
        members: impl Iterator<Item = &'k ObjectKey>,
        cluster: &str,
        (leaves, now): (bool, i64),
    ) -> Option<(&'k ObjectKey, Stuck)> {
        let repeats = |key: &&ObjectKey| store.source_facts(key).is_some_and(|facts| !facts.workload.runs_once());
        let stuck = members.filter(repeats).filter_map(|key| Some((key, store.find_stuck_copy(key, cluster)?)));
        stuck.into_iter().find(|(_, stuck)| leaves || self.is_stuck_for_long(cluster, *stuck, now))
    }

    /// Returns the pods that have a node, by cluster and object, where others of the copy have found none for long.
    pub(super) fn bound_pods<'k>(
        &self,
        store: &Store,
        members: impl Iterator<Item = &'k ObjectKey>,
        now: i64,
    ) -> BTreeMap<String, BTreeMap<ObjectKey, i64>> {
        let mut bound: BTreeMap<String, BTreeMap<ObjectKey, i64>> = BTreeMap::new();
        for key in members {
            for (at, schedule) in store.copies_of(key) {
                let cluster = cluster_of(at);
                let Some((stuck @ Stuck::Unschedulable { .. }, _)) = store.stuck.get(at) else { continue };
                let counts = schedule.status.as_ref().and_then(|status| status.pods.as_ref());
                if let Some(counts) = counts.filter(|_| self.is_stuck_for_long(cluster, *stuck, now)) {
                    bound.entry(cluster.to_owned()).or_default().insert(key.clone(), counts.bound.max(0));
                }
            }
        }
        bound
    }
}
