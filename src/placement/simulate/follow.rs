//! What follows in a namespace, as the decisions of a run place it.

use std::collections::BTreeSet;

use super::run::Run;
use crate::placement::assignment::Assignment;
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::follow::{
    EditedRelations, FollowCopy, FollowInput, NamespacePlan, SourceRecord, find_claimed_clusters,
    find_groups_elsewhere, plan_followers,
};
use crate::placement::live;
use crate::placement::matching::Match;

impl Run<'_> {
    /// Returns the clusters that claims leave to a group; `None` where none pins it.
    pub(super) fn find_clusters_left(&self, group: &str) -> Option<BTreeSet<String>> {
        let namespaces: BTreeSet<&str> = self.members[group].iter().map(ObjectKey::namespace).collect();
        find_claimed_clusters(namespaces.iter().filter_map(|namespace| self.plans.get(*namespace)), group)
    }

    /// Plans the namespaces of a group that have no plan, and those of members that mount claims.
    pub(super) fn plan_namespaces_first(&mut self, group: &str) {
        let objects = self.members[group].iter().filter_map(|key| self.objects.get(key).copied());
        let due = objects.filter(|object| {
            object.relations.mounts_claims() || !self.plans.contains_key(object.facts.key.namespace())
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
        self.pinned.extend(new.changed_pins(&old));
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
        let members = self.members.values().flatten().filter_map(|key| self.facts(key));
        let elsewhere = find_groups_elsewhere(&self.policies, namespace, members, |name| self.namespace_labels(name));
        let plan = plan_followers(&FollowInput {
            policies: &self.policies,
            namespaces: &self.namespaces,
            records: &records,
            groups_elsewhere: &elsewhere,
        });
        NamespacePlan::from_plan(plan, namespace, &elsewhere, |key| self.find_group(key).map(str::to_owned))
    }

    fn describe_source<'r>(&'r self, key: &'r ObjectKey, edited: &'r EditedRelations) -> Option<SourceRecord<'r>> {
        let object = self.objects.get(key)?;
        let copies = self.list_known_copies(key).map(|(cluster, schedule)| {
            let is_ready = self.clusters.get(cluster).is_some_and(|cluster| live::is_ready(cluster));
            (cluster.to_owned(), FollowCopy::from_schedule(schedule, &object.facts, cluster, is_ready))
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
        facts.asks.cluster.as_deref() != Some("")
            && facts.is_held_by_volumes(|claim| self.facts(claim).map(|facts| facts.asks.allow_volume_move))
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
}
