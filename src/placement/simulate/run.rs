//! One run over a state: who decides about each object.

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::RejectedRow;
use super::rooms;
use super::state::{FleetState, SourceObject, cluster_of};
use crate::api::{Cluster, Schedule, ScheduleGroup, ScheduleGroupStatus};
use crate::placement::assignment::{Assignment, assign_to_decider};
use crate::placement::decide::{Decision, DirectDecision};
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::fleet::Fleet;
use crate::placement::follow::NamespacePlan;
use crate::placement::live;
use crate::placement::matching::{Match, Policies, Policy};
use crate::placement::moves::MoveCause;
use crate::placement::names::GroupKey;

/// Labels by namespace.
pub(super) type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// One run over a state.
pub(super) struct Run<'a> {
    pub(super) state: &'a FleetState,
    pub(super) objects: BTreeMap<&'a ObjectKey, &'a SourceObject>,
    pub(super) policies: Policies,
    pub(super) namespaces: Namespaces,
    /// Schedules by the object that they are copies of.
    pub(super) copies: BTreeMap<ObjectKey, Vec<(&'a str, &'a Schedule)>>,
    pub(super) groups: BTreeMap<&'a str, &'a ScheduleGroup>,
    pub(super) clusters: BTreeMap<&'a str, &'a Cluster>,
    pub(super) fleet: Fleet,
    /// Groups that ask for more than before.
    pub(super) grown: BTreeSet<String>,
    pub(super) assignments: BTreeMap<ObjectKey, Assignment>,
    /// Objects by group.
    pub(super) members: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Objects by the group that they were in, and stay in though nothing places them: they count in its turn.
    pub(super) left: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Groups that have become due because of a plan of what follows.
    pub(super) arisen: BTreeSet<String>,
    /// Groups to which a plan of what follows has left other clusters than before: they take a turn again.
    pub(super) pinned: BTreeSet<String>,
    pub(super) decisions: BTreeMap<String, Decision>,
    /// Decisions that are carried out.
    pub(super) reserved: BTreeMap<String, Decision>,
    /// Schedules that objects get which their annotations place, by cluster.
    pub(super) planned: BTreeMap<String, Vec<(Schedule, &'a Facts)>>,
    /// Groups of the objects whose copies were made in another one.
    pub(super) relabelled: BTreeMap<ObjectKey, String>,
    /// Causes of the groups that move by their record, or would if most clusters were not lost.
    pub(super) causes: BTreeMap<String, MoveCause>,
    pub(super) direct: BTreeMap<ObjectKey, DirectDecision>,
    pub(super) plans: BTreeMap<String, NamespacePlan>,
    /// Decisions in words, and the clusters that do not take a group, as both were when it was decided.
    pub(super) words: BTreeMap<String, (String, Vec<RejectedRow>)>,
    /// Objects by cluster, each with its pods that the inventory holds.
    pub(super) by_cluster: BTreeMap<&'a str, Vec<(&'a ObjectKey, i64)>>,
}

impl<'a> Run<'a> {
    /// Begins a run; what grew since the former state asks for room.
    pub(super) fn new(before: &FleetState, state: &'a FleetState) -> Self {
        let mut run = Self::index_state(state);
        let old = Run::index_state(before);
        run.grown = run.find_grown(&old);
        run
    }

    fn index_state(state: &'a FleetState) -> Self {
        let objects: BTreeMap<_, _> = state.objects.iter().map(|object| (&object.facts.key, object)).collect();
        let deciding = state.policies.iter().filter(|policy| policy.metadata.deletion_timestamp.is_none());
        let policies = deciding.filter_map(|policy| Policy::from_schedule_policy(policy).ok()).collect();
        let policies = Policies::new(policies)
            .with_direct_placement_denied(state.denies_direct)
            .with_own_namespace(state.own_namespace.clone());
        let namespaces = objects.iter().filter(|(key, _)| key.is_of_kind("", "Namespace"));
        let namespaces = namespaces.map(|(key, one)| (key.name().to_owned(), one.facts.labels.clone())).collect();
        let mut copies: BTreeMap<ObjectKey, Vec<(&str, &Schedule)>> = BTreeMap::new();
        for schedule in &state.schedules {
            let key = live::source_key(&schedule.spec.source_ref);
            copies.entry(key).or_default().push((cluster_of(schedule), schedule));
        }
        let clusters = &state.clusters;
        let clusters = clusters.iter().map(|one| (one.metadata.name.as_deref().unwrap_or_default(), one));
        let mut run = Self {
            state,
            objects,
            policies,
            namespaces,
            copies,
            groups: state.groups.iter().filter_map(|group| Some((group.metadata.name.as_deref()?, group))).collect(),
            clusters: clusters.collect(),
            fleet: rooms::build_simulated_fleet(state),
            grown: BTreeSet::new(),
            assignments: BTreeMap::new(),
            members: BTreeMap::new(),
            left: BTreeMap::new(),
            arisen: BTreeSet::new(),
            pinned: BTreeSet::new(),
            decisions: BTreeMap::new(),
            reserved: BTreeMap::new(),
            planned: BTreeMap::new(),
            relabelled: BTreeMap::new(),
            causes: BTreeMap::new(),
            direct: BTreeMap::new(),
            plans: BTreeMap::new(),
            words: BTreeMap::new(),
            by_cluster: BTreeMap::new(),
        };
        run.count_known_pods();
        for key in run.objects.keys().copied().collect::<Vec<_>>() {
            run.assign_anew(key);
        }
        run
    }

    fn count_known_pods(&mut self) {
        for (key, copies) in &self.copies {
            let Some((key, _)) = self.objects.get_key_value(key) else { continue };
            for (cluster, schedule) in copies {
                let pods = schedule.status.as_ref().and_then(|status| status.pods.as_ref());
                let counted = pods.map_or(0, |pods| pods.counted.max(0));
                self.by_cluster.entry(cluster).or_default().push((key, counted));
            }
        }
    }

    /// Returns the groups with a member that is new or asks for more.
    fn find_grown(&self, before: &Run<'_>) -> BTreeSet<String> {
        let mut grown = BTreeSet::new();
        for (key, object) in &self.objects {
            let facts = &object.facts;
            let old = before.objects.get(*key).map(|object| &object.facts);
            let group = self.find_scaled_group(object).or_else(|| self.find_group(key));
            let (Some(group), false) = (group, facts.workload.runs_once()) else { continue };
            let is_elsewhere = self.assignments.get(*key) != before.assignments.get(*key);
            let asks = facts.shape.is_some() || facts.scales.is_some();
            if asks && (is_elsewhere || old.is_none_or(|old| facts.asks_for_more_than(old))) {
                grown.insert(group.to_owned());
            }
        }
        grown
    }

    pub(super) fn find_group(&self, key: &ObjectKey) -> Option<&str> {
        match self.assignments.get(key) {
            Some(Assignment::Group(group)) => Some(group),
            _ => None,
        }
    }

    /// Returns the group of what an autoscaler scales.
    fn find_scaled_group(&self, object: &SourceObject) -> Option<&str> {
        object.facts.scales.as_ref()?;
        self.find_group(object.relations.belongs_to.first()?)
    }

    pub(super) fn facts(&self, key: &ObjectKey) -> Option<&'a Facts> {
        self.objects.get(key).map(|object| &object.facts)
    }

    pub(super) fn list_known_copies(
        &self,
        key: &ObjectKey,
    ) -> impl Iterator<Item = (&'a str, &'a Schedule)> + use<'a, '_> {
        self.copies.get(key).into_iter().flatten().copied()
    }

    /// Returns whether a Job or a bare Pod is over by its known copies.
    pub(super) fn is_over(&self, facts: &Facts) -> bool {
        live::are_over(self.list_known_copies(&facts.key).map(|(_, copy)| copy), facts)
    }

    /// Finds who decides about an object.
    pub(super) fn match_known_object(&self, facts: &Facts) -> Match<'_> {
        self.policies.match_object(facts, self.namespace_labels(facts.key.namespace()))
    }

    /// Returns the labels of a namespace.
    pub(super) fn namespace_labels(&self, name: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.namespaces.get(name).unwrap_or(&NONE)
    }

    /// Returns the name of the group of an object under a policy.
    pub(super) fn name_group(&self, facts: &Facts, policy: &Policy) -> String {
        let key = GroupKey::new(facts, policy);
        let printed = key.to_spec_key();
        key.group_name(&policy.name, |name| {
            let group = self.groups.get(name).map(|group| &group.spec);
            group.is_some_and(|group| group.key != printed || group.policy.name != policy.name)
        })
    }

    pub(super) fn assign_anew(&mut self, key: &ObjectKey) {
        let Some(facts) = self.facts(key) else { return };
        let is_alone = self.plans.get(key.namespace()).is_some_and(|plan| plan.alone.contains(key));
        let new = assign_to_decider(
            key,
            &self.match_known_object(facts),
            is_alone,
            |policy| self.name_group(facts, policy),
            || {
                let copy = self.list_known_copies(key).next();
                copy.map_or(Assignment::Unplaced, |(_, copy)| Assignment::Left(copy.spec.group.clone()))
            },
        );
        if let Some(old) = self.find_group(key).map(str::to_owned)
            && let Some(members) = self.members.get_mut(&old)
        {
            members.remove(key);
            if members.is_empty() {
                self.members.remove(&old);
            }
        }
        if let Some(Assignment::Left(Some(old))) = self.assignments.get(key)
            && let Some(left) = self.left.get_mut(old)
        {
            left.remove(key);
        }
        let taken_in = match &new {
            Assignment::Group(group) => Some(self.members.entry(group.clone())),
            Assignment::Left(Some(group)) => Some(self.left.entry(group.clone())),
            _ => None,
        };
        if let Some(objects) = taken_in {
            objects.or_default().insert(key.clone());
        }
        self.assignments.insert(key.clone(), new);
    }

    /// Returns the policy that decides about a group.
    pub(super) fn find_deciding_policy(&self, group: &str) -> Option<&Policy> {
        let first = self.members.get(group)?.first()?;
        match self.match_known_object(self.facts(first)?) {
            Match::Policy { policy, .. } => self.policies.get(&policy.name),
            _ => None,
        }
    }

    /// Returns what is recorded of a group, or of the one over all namespaces that it takes over from.
    pub(super) fn recorded_status(&self, group: &str) -> Option<&'a ScheduleGroupStatus> {
        let known = self.groups.get(group).copied().or_else(|| self.find_predecessor(group));
        known.and_then(|group| group.status.as_ref())
    }

    fn find_predecessor(&self, group: &str) -> Option<&'a ScheduleGroup> {
        let facts = self.facts(self.members.get(group)?.first()?)?;
        let Match::Policy { policy, .. } = self.match_known_object(facts) else { return None };
        let before = GroupKey::new(facts, policy).across_namespaces()?;
        let printed = before.to_spec_key();
        let names = before.group_names(&policy.name);
        let mut groups = names.iter().filter_map(|name| self.groups.get(name.as_str()).copied());
        groups.find(|group| group.spec.key == printed && group.spec.policy.name == policy.name)
    }
}
