//! From the store to a plan of what follows: what the pure planner is asked about a namespace.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::decide::{Clusters, Decided};
use super::place::cluster_of;
use super::store::{Assignment, Store};
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::follow::{
    EditedRelations, FollowCopy, FollowInput, NamespacePlan, SourceRecord, find_groups_elsewhere, plan_followers,
};
use crate::placement::live;
use crate::placement::matching::Match;

/// Everything that a plan of followers depends on.
#[derive(Clone, Copy)]
pub(super) struct FollowContext<'a> {
    pub(super) store: &'a Store,
    /// Decisions, newer than what groups have recorded.
    pub(super) decided: &'a BTreeMap<String, Decided>,
    pub(super) clusters: &'a Clusters,
    pub(super) now: Instant,
    pub(super) wall: Timestamp,
}

impl FollowContext<'_> {
    /// Plans what follows in a namespace, or what has none.
    pub(super) fn plan_namespace(&self, namespace: &str) -> NamespacePlan {
        // What an override names is known by what is recorded with its copy.
        let unedited = EditedRelations::new();
        let keys: Vec<ObjectKey> = if namespace.is_empty() {
            self.store.sources.keys().cloned().collect()
        } else {
            self.store.sources_in(namespace)
        };
        let records: Vec<SourceRecord<'_>> = keys.iter().filter_map(|key| self.build_record(key, &unedited)).collect();
        let namespaces: BTreeSet<&str> = keys.iter().map(ObjectKey::namespace).collect();
        let namespaces =
            namespaces.into_iter().map(|name| (name.to_owned(), self.store.namespace_labels(name).clone())).collect();
        let members = self.store.members.values().flatten();
        let members = members.filter_map(|key| self.store.source_facts(key));
        let elsewhere =
            find_groups_elsewhere(&self.store.order, namespace, members, |name| self.store.namespace_labels(name));
        let plan = plan_followers(&FollowInput {
            policies: &self.store.order,
            namespaces: &namespaces,
            records: &records,
            groups_elsewhere: &elsewhere,
        });
        NamespacePlan::from_plan(plan, namespace, &elsewhere, |key| match self.store.assignments.get(key) {
            Some(Assignment::Group(name)) => Some(name.clone()),
            _ => None,
        })
    }

    fn build_record<'r>(&'r self, key: &ObjectKey, edited: &'r EditedRelations) -> Option<SourceRecord<'r>> {
        let source = self.store.sources.get(key)?;
        let copies = self.store.copies_of(key).map(|(at, schedule)| {
            let cluster = cluster_of(at);
            let is_ready = self.store.follow.clusters.get(cluster).is_some_and(|cluster| cluster.is_ready);
            (cluster.to_owned(), FollowCopy::from_schedule(schedule, &source.facts, cluster, is_ready))
        });
        Some(SourceRecord {
            facts: &source.facts,
            relations: &source.relations,
            edited,
            targets: self.find_targets(key, &source.facts),
            copies: copies.collect(),
            recorded: self.store.lost_home(key).into_iter().map(str::to_owned).collect(),
            // What was placed alone is not taken back because something else comes.
            is_quiet: self.store.follow.is_alone(key)
                || self.store.follow.is_quiet(key, source.facts.created, self.now, self.wall),
        })
    }

    /// Returns the clusters that the decision about an object gives it.
    fn find_targets(&self, key: &ObjectKey, facts: &Facts) -> BTreeSet<String> {
        match self.store.assignments.get(key) {
            Some(Assignment::Direct) => {
                let direct = self.clusters.decide_direct_object(self.store, key);
                direct.into_iter().flat_map(|direct| direct.targets).map(|target| target.cluster).collect()
            }
            Some(Assignment::Group(group)) => self.group_targets(group, facts),
            Some(Assignment::Follows) => match self.store.evaluate_object(key) {
                Some(Match::Policy { policy, .. }) => self.group_targets(&self.store.group_name(facts, policy), facts),
                _ => BTreeSet::new(),
            },
            _ => BTreeSet::new(),
        }
    }

    fn group_targets(&self, group: &str, facts: &Facts) -> BTreeSet<String> {
        if let Some(decided) = self.decided.get(group) {
            let targets = decided.targets.iter().filter(|target| live::has_copy_in_target(target, facts));
            return targets.map(|target| target.cluster.clone()).collect();
        }
        let recorded = self.store.groups.get(group).and_then(|group| group.status.as_ref());
        let recorded = recorded.into_iter().flat_map(|status| &status.target_clusters);
        // Those of what its volumes keep may be gone.
        recorded.filter(|name| self.store.follow.clusters.contains_key(*name)).cloned().collect()
    }
}
