//! What follows in a namespace, as the decisions of a run place it.

use std::collections::{BTreeMap, BTreeSet};

use super::run::Run;
use crate::api::Schedule;
use crate::placement::assignment::Assignment;
use crate::placement::copy_state;
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::follow::{
    EditedRelations, FollowCopy, FollowInput, Follower, MissingFollower, SourceRecord, is_follower, plan_followers,
};
use crate::placement::live;
use crate::placement::matching::{Match, Policy};
use crate::placement::names::GroupKey;

/// Plan of one namespace.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NamespacePlan {
    /// Followers that have a place or wait for one.
    pub(super) followers: BTreeMap<ObjectKey, Follower>,
    /// Followers that their policies decide about, in groups without anything that is decided.
    pub(super) alone: BTreeSet<ObjectKey>,
    /// Clusters that claims leave to groups.
    only: BTreeMap<String, BTreeSet<String>>,
    /// What pods cannot start without and is not there.
    pub(super) missing: Vec<MissingFollower>,
}

impl Run<'_> {
    /// Returns the clusters that claims leave to a group; `None` where none pins it.
    pub(super) fn find_claimed_clusters(&self, group: &str) -> Option<BTreeSet<String>> {
        let namespaces: BTreeSet<&str> = self.members[group].iter().map(ObjectKey::namespace).collect();
        let sets = namespaces.iter().filter_map(|namespace| self.plans.get(*namespace)?.only.get(group));
        sets.fold(None, |only: Option<BTreeSet<String>>, set| {
            Some(only.map_or_else(|| set.clone(), |only| only.intersection(set).cloned().collect()))
        })
    }

    /// Plans the namespaces of a group that have no plan, and those of members that mount claims.
    pub(super) fn plan_namespaces_first(&mut self, group: &str) {
        let objects = self.members[group].iter().filter_map(|key| self.objects.get(key).copied());
        let due = objects.filter(|object| {
            let mounts = object.relations.name_keys().any(|key| key.is_of_kind("", "PersistentVolumeClaim"));
            mounts
                || !object.relations.claim_prefixes.is_empty()
                || !self.plans.contains_key(object.facts.key.namespace())
        });
        let due: BTreeSet<&str> =
            due.map(|object| object.facts.key.namespace()).filter(|name| !name.is_empty()).collect();
        for namespace in due {
            self.plan_followers_in(namespace);
        }
    }

    /// Plans what follows in a namespace, or what has none; who decides about a follower may be another one afterwards.
    pub(super) fn plan_followers_in(&mut self, namespace: &str) {
        let plan = self.plan_simulated_namespace(namespace);
        let old = self.plans.insert(namespace.to_owned(), plan).unwrap_or_default();
        let new = &self.plans[namespace];
        let groups = new.only.keys().chain(old.only.keys());
        self.pinned.extend(groups.filter(|group| old.only.get(*group) != new.only.get(*group)).cloned());
        let changed: Vec<ObjectKey> = old.alone.symmetric_difference(&new.alone).cloned().collect();
        for key in changed {
            self.assign_anew(&key);
            self.arisen.extend(self.find_group(&key).map(str::to_owned));
        }
    }

    fn plan_simulated_namespace(&self, namespace: &str) -> NamespacePlan {
        let unedited = EditedRelations::new();
        let all = self.objects.keys().filter(|key| namespace.is_empty() || key.namespace() == namespace);
        let records: Vec<SourceRecord<'_>> = all.filter_map(|key| self.describe_source(key, &unedited)).collect();
        let elsewhere =
            if namespace.is_empty() { BTreeSet::new() } else { self.find_decided_groups_elsewhere(namespace) };
        let plan = plan_followers(&FollowInput {
            policies: &self.policies,
            namespaces: &self.namespaces,
            records: &records,
            groups_elsewhere: &elsewhere,
        });
        let is_planned = |key: &ObjectKey| key.namespace() == namespace && !key.is_of_kind("", "Namespace");
        let mut found = NamespacePlan::default();
        for group in plan.groups {
            if let Some(first) = group.decided.first() {
                let Some(Assignment::Group(name)) = self.assignments.get(first) else { continue };
                found.only.extend(group.only.filter(|_| !namespace.is_empty()).map(|only| (name.clone(), only)));
            } else if !elsewhere.contains(&(group.policy, group.key.as_str().to_owned())) {
                found.alone.extend(group.followers.into_iter().filter(is_planned));
            }
        }
        found.followers = plan.followers.into_iter().filter(|(key, _)| is_planned(key)).collect();
        found.missing = plan.missing.into_iter().filter(|missing| is_planned(&missing.user)).collect();
        found
    }

    fn describe_source<'r>(&'r self, key: &'r ObjectKey, edited: &'r EditedRelations) -> Option<SourceRecord<'r>> {
        let object = self.objects.get(key)?;
        let copies = self.list_known_copies(key).map(|(cluster, schedule)| {
            let uses = schedule.spec.uses.as_ref();
            let copy = FollowCopy {
                follows: schedule.spec.follows,
                unsettled: !is_follower(key) && self.is_copy_unsettled(cluster, schedule, &object.facts),
                uses: uses.map(|uses| uses.iter().map(|name| ObjectKey::from(name.as_str())).collect()),
            };
            (cluster.to_owned(), copy)
        });
        let is_lost = key.is_of_kind("", "PersistentVolumeClaim")
            && self.assignments.get(key) == Some(&Assignment::Follows)
            && !self.copies.contains_key(key)
            && self.keeps_volumes(&object.facts);
        Some(SourceRecord {
            facts: &object.facts,
            relations: &object.relations,
            edited,
            targets: self.find_decided_targets(key, &object.facts),
            copies: copies.collect(),
            recorded: if is_lost { object.marked.clone() } else { BTreeSet::new() },
            is_quiet: true,
        })
    }

    /// Returns whether the data of an object keeps its copies where they are.
    pub(super) fn keeps_volumes(&self, facts: &Facts) -> bool {
        let consents = |claim: &ObjectKey| self.facts(claim).map(|facts| facts.asks.allow_volume_move);
        facts.asks.cluster.as_deref() != Some("") && facts.is_held_by_volumes(consents)
    }

    /// Returns the clusters that the decision about an object gives it.
    pub(super) fn find_decided_targets(&self, key: &ObjectKey, facts: &Facts) -> BTreeSet<String> {
        match self.assignments.get(key) {
            Some(Assignment::Direct) => {
                let direct = self.direct.get(key).into_iter().flat_map(|direct| &direct.targets);
                direct.map(|target| target.cluster.clone()).collect()
            }
            Some(Assignment::Group(group)) => self.find_group_targets(group, facts),
            Some(Assignment::Follows) => match self.match_known_object(facts) {
                Match::Policy { policy, .. } => self.find_group_targets(&self.name_group(facts, policy), facts),
                _ => BTreeSet::new(),
            },
            _ => BTreeSet::new(),
        }
    }

    fn find_group_targets(&self, group: &str, facts: &Facts) -> BTreeSet<String> {
        if let Some(decided) = self.decisions.get(group) {
            let targets = decided.targets.iter().filter(|target| live::has_copy_in_target(target, facts));
            return targets.map(|target| target.cluster.clone()).collect();
        }
        let recorded = self.recorded_status(group).into_iter().flat_map(|status| &status.target_clusters);
        recorded.filter(|name| self.clusters.contains_key(name.as_str())).cloned().collect()
    }

    /// Returns whether pods of an older template may be in a cluster, or its copy is not as its source asks now.
    fn is_copy_unsettled(&self, cluster: &str, schedule: &Schedule, facts: &Facts) -> bool {
        let state = copy_state::read_copy_state(schedule, cluster);
        let is_ready = self.clusters.get(cluster).is_some_and(|cluster| live::is_ready(cluster));
        let is_current = schedule.spec.source_ref.generation == facts.generation;
        let is_deleting = schedule.metadata.deletion_timestamp.is_some();
        !is_ready || !is_current || is_deleting || !state.applied || !state.available || live::has_old_pods(schedule)
    }

    /// Returns the groups over several namespaces that have decided members in others.
    fn find_decided_groups_elsewhere(&self, namespace: &str) -> BTreeSet<(String, String)> {
        let across = |policy: &Policy| policy.spec.group_by.as_ref().is_some_and(|by| by.across_namespaces);
        if !self.policies.iter().any(across) {
            return BTreeSet::new();
        }
        let decided = self.members.values().flatten();
        let decided = decided.filter(|key| !is_follower(key) && key.namespace() != namespace);
        let groups = decided.filter_map(|key| {
            let facts = self.facts(key)?;
            match self.match_known_object(facts) {
                Match::Policy { policy, .. } if across(policy) => {
                    Some((policy.name.clone(), GroupKey::new(facts, policy).as_str().to_owned()))
                }
                _ => None,
            }
        });
        groups.collect()
    }
}
