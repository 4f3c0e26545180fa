//! From the store to a plan of what follows: what the pure planner is asked about a namespace.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::decide::{Clusters, Decided};
use super::follow::NamespacePlan;
use super::place::cluster_of;
use super::store::{Assignment, Store};
use crate::api::Schedule;
use crate::placement::copy_state;
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::follow::{EditedRelations, FollowCopy, FollowInput, SourceRecord, is_follower, plan_followers};
use crate::placement::live;
use crate::placement::matching::Match;
use crate::placement::names::GroupKey;

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
        let elsewhere = if namespace.is_empty() { BTreeSet::new() } else { self.find_groups_elsewhere(namespace) };
        let plan = plan_followers(&FollowInput {
            policies: &self.store.order,
            namespaces: &namespaces,
            records: &records,
            groups_elsewhere: &elsewhere,
        });
        let is_planned = |key: &ObjectKey| key.namespace() == namespace && !key.is_of_kind("", "Namespace");
        let mut found = NamespacePlan::default();
        for group in plan.groups {
            if let Some(first) = group.decided.first() {
                let name = match self.store.assignments.get(first) {
                    Some(Assignment::Group(name)) => name.clone(),
                    _ => continue,
                };
                found.only.extend(group.only.filter(|_| !namespace.is_empty()).map(|only| (name, only)));
            } else if !elsewhere.contains(&(group.policy, group.key.as_str().to_owned())) {
                found.alone.extend(group.followers.into_iter().filter(is_planned));
            }
        }
        found.followers = plan.followers.into_iter().filter(|(key, _)| is_planned(key)).collect();
        for missing in plan.missing.into_iter().filter(|missing| is_planned(&missing.user)) {
            found.missing.entry(missing.user.clone()).or_default().push(missing);
        }
        found
    }

    fn build_record<'r>(&'r self, key: &ObjectKey, edited: &'r EditedRelations) -> Option<SourceRecord<'r>> {
        let source = self.store.sources.get(key)?;
        let copies = self.store.copies_of(key).map(|(at, schedule)| {
            let cluster = cluster_of(at);
            let uses = schedule.spec.uses.as_ref();
            let copy = FollowCopy {
                follows: schedule.spec.follows,
                unsettled: !is_follower(key) && self.is_unsettled(cluster, schedule, &source.facts),
                uses: uses.map(|uses| uses.iter().map(|name| ObjectKey::from(name.as_str())).collect()),
            };
            (cluster.to_owned(), copy)
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

    /// Returns whether pods of an older template may be in a cluster, or its copy is not as its source asks now.
    fn is_unsettled(&self, cluster: &str, schedule: &Schedule, facts: &Facts) -> bool {
        let state = copy_state::read_copy_state(schedule, cluster);
        let is_ready = self.store.follow.clusters.get(cluster).is_some_and(|cluster| cluster.is_ready);
        let is_current = schedule.spec.source_ref.generation == facts.generation;
        let is_deleting = schedule.metadata.deletion_timestamp.is_some();
        !is_ready || !is_current || is_deleting || !state.applied || !state.available || live::has_old_pods(schedule)
    }

    /// Returns the groups over several namespaces that have decided members in others.
    fn find_groups_elsewhere(&self, namespace: &str) -> BTreeSet<(String, String)> {
        let across = |policy: &crate::placement::matching::Policy| {
            policy.spec.group_by.as_ref().is_some_and(|by| by.across_namespaces)
        };
        if !self.store.order.iter().any(across) {
            return BTreeSet::new();
        }
        let decided = self.store.members.values().flatten();
        let decided = decided.filter(|key| !is_follower(key) && key.namespace() != namespace);
        let groups = decided.filter_map(|key| match self.store.evaluate_object(key) {
            Some(Match::Policy { policy, .. }) if across(policy) => {
                let group = GroupKey::new(self.store.source_facts(key)?, policy);
                Some((policy.name.clone(), group.as_str().to_owned()))
            }
            _ => None,
        });
        groups.collect()
    }
}
