//! One run: who decides about each object, and what is decided, each decision with its room promised before the next.

use std::collections::{BTreeMap, BTreeSet};

use super::Asked;
use super::follow::NamespacePlan;
use super::outcome::RejectedRow;
use super::rooms;
use super::state::{FleetState, SourceObject, cluster_of};
use super::turns::{Request, sort_in_turns};
use crate::api::crd::schedule::{ScheduleShare, ScheduleSpec, SourceRef};
use crate::api::{Schedule, ScheduleGroup, ScheduleGroupStatus};
use crate::placement::assignment::{Assignment, assign_to_decider};
use crate::placement::copy::Share;
use crate::placement::decide::{Current, Decision, DirectDecision, Group, Mode, decide_direct, decide_group};
use crate::placement::explain;
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::fleet::Fleet;
use crate::placement::live;
use crate::placement::matching::{Match, Policies, Policy};
use crate::placement::names::GroupKey;
use crate::placement::tenant::{Tenant, namespace_of, tenant_of};

/// Most times that what follows is planned anew because something was decided.
const ROUNDS: usize = 8;

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
    /// The clusters, with whether they are Ready.
    pub(super) clusters: BTreeMap<&'a str, bool>,
    pub(super) fleet: Fleet,
    /// Clusters that policies with failover give up.
    lost: BTreeSet<String>,
    /// Groups that ask for more than before.
    grown: BTreeSet<String>,
    pub(super) assignments: BTreeMap<ObjectKey, Assignment>,
    /// Objects by group.
    pub(super) members: BTreeMap<String, BTreeSet<ObjectKey>>,
    pub(super) decisions: BTreeMap<String, Decision>,
    pub(super) direct: BTreeMap<ObjectKey, DirectDecision>,
    pub(super) plans: BTreeMap<String, NamespacePlan>,
    /// Decisions in words, and the clusters that do not take a group, as both were when it was decided.
    pub(super) words: BTreeMap<String, (String, Vec<RejectedRow>)>,
    /// Objects by cluster, each with its pods that the inventory holds.
    pub(super) by_cluster: BTreeMap<&'a str, Vec<(&'a ObjectKey, i64)>>,
}

impl<'a> Run<'a> {
    /// Begins a run; what grew since the state of before asks for room.
    pub(super) fn new(before: &FleetState, state: &'a FleetState, asked: &Asked) -> Self {
        let mut run = Self::read_state(state);
        run.lost.clone_from(&asked.lost);
        let old = Run::read_state(before);
        run.grown = run.find_grown(&old);
        run
    }

    fn read_state(state: &'a FleetState) -> Self {
        let objects: BTreeMap<_, _> = state.objects.iter().map(|object| (&object.facts.key, object)).collect();
        let policies = state.policies.iter().filter_map(|policy| Policy::from_schedule_policy(policy).ok()).collect();
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
        let clusters =
            clusters.iter().map(|one| (one.metadata.name.as_deref().unwrap_or_default(), live::is_ready(one)));
        let mut run = Self {
            state,
            objects,
            policies,
            namespaces,
            copies,
            groups: state.groups.iter().filter_map(|group| Some((group.metadata.name.as_deref()?, group))).collect(),
            clusters: clusters.collect(),
            fleet: rooms::build_fleet(state),
            lost: BTreeSet::new(),
            grown: BTreeSet::new(),
            assignments: BTreeMap::new(),
            members: BTreeMap::new(),
            decisions: BTreeMap::new(),
            direct: BTreeMap::new(),
            plans: BTreeMap::new(),
            words: BTreeMap::new(),
            by_cluster: BTreeMap::new(),
        };
        run.count_pods();
        for key in run.objects.keys().copied().collect::<Vec<_>>() {
            run.assign_object(key);
        }
        run
    }

    fn count_pods(&mut self) {
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
            let group = self.scaled_group(object).or_else(|| self.group_of(key));
            let (Some(group), false) = (group, facts.workload.runs_once()) else { continue };
            let is_elsewhere = self.assignments.get(*key) != before.assignments.get(*key);
            let asks = facts.shape.is_some() || facts.scales.is_some();
            if asks && (is_elsewhere || old.is_none_or(|old| facts.asks_for_more_than(old))) {
                grown.insert(group.to_owned());
            }
        }
        grown
    }

    fn group_of(&self, key: &ObjectKey) -> Option<&str> {
        match self.assignments.get(key) {
            Some(Assignment::Group(group)) => Some(group),
            _ => None,
        }
    }

    /// Returns the group of what an autoscaler scales.
    fn scaled_group(&self, object: &SourceObject) -> Option<&str> {
        object.facts.scales.as_ref()?;
        self.group_of(object.relations.belongs_to.first()?)
    }

    pub(super) fn facts(&self, key: &ObjectKey) -> Option<&'a Facts> {
        self.objects.get(key).map(|object| &object.facts)
    }

    pub(super) fn copies_of(&self, key: &ObjectKey) -> impl Iterator<Item = (&'a str, &'a Schedule)> + use<'a, '_> {
        self.copies.get(key).into_iter().flatten().copied()
    }

    /// Finds who decides about an object.
    pub(super) fn match_object(&self, facts: &Facts) -> Match<'_> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.policies.match_object(facts, self.namespaces.get(facts.key.namespace()).unwrap_or(&NONE))
    }

    /// Returns the name of the group of an object under a policy.
    pub(super) fn group_name(&self, facts: &Facts, policy: &Policy) -> String {
        let key = GroupKey::new(facts, policy);
        let printed = key.to_spec_key();
        let is_other = |group: &ScheduleGroup| group.spec.key != printed || group.spec.policy.name != policy.name;
        key.group_name(&policy.name, |name| self.groups.get(name).is_some_and(|group| is_other(group)))
    }

    pub(super) fn assign_object(&mut self, key: &ObjectKey) {
        let Some(facts) = self.facts(key) else { return };
        let is_alone = self.plans.get(key.namespace()).is_some_and(|plan| plan.alone.contains(key));
        let new = assign_to_decider(
            key,
            &self.match_object(facts),
            is_alone,
            |policy| self.group_name(facts, policy),
            || {
                let copy = self.copies_of(key).next();
                copy.map_or(Assignment::Unplaced, |(_, copy)| Assignment::Left(copy.spec.group.clone()))
            },
        );
        if let Some(old) = self.group_of(key).map(str::to_owned)
            && let Some(members) = self.members.get_mut(&old)
        {
            members.remove(key);
            if members.is_empty() {
                self.members.remove(&old);
            }
        }
        if let Assignment::Group(group) = &new {
            self.members.entry(group.clone()).or_default().insert(key.clone());
        }
        self.assignments.insert(key.clone(), new);
    }

    /// Decides everything, in rounds: what was decided places what follows, and what nothing uses is decided alone.
    pub(super) fn decide_everything(&mut self) {
        for _ in 0..ROUNDS {
            let groups = self.members.keys().filter(|name| !self.decisions.contains_key(*name)).cloned();
            let direct = self
                .assignments
                .iter()
                .filter(|(key, one)| **one == Assignment::Direct && !self.direct.contains_key(*key));
            let direct = direct.map(|(key, _)| Request::Object(key.clone()));
            let due: BTreeSet<Request> = groups.map(Request::Group).chain(direct).collect();
            if due.is_empty() && !self.plans.is_empty() {
                return;
            }
            for request in sort_in_turns(due, |request| self.find_turn(request)) {
                match request {
                    Request::Group(name) => self.decide_group(&name),
                    Request::Object(key) => self.decide_direct(&key),
                }
            }
            self.plan_followers_everywhere();
        }
    }

    fn find_turn(&self, request: &Request) -> (Tenant, Option<i64>) {
        match request {
            Request::Object(key) => (tenant_of(key), None),
            Request::Group(name) => {
                let members = &self.members[name];
                let namespaces: BTreeSet<&str> = members.iter().map(namespace_of).collect();
                let tenant = match members.first() {
                    Some(first) if namespaces.len() == 1 => tenant_of(first),
                    _ => Tenant::AcrossNamespaces,
                };
                let created = members.iter().filter_map(|key| self.facts(key)?.created);
                (tenant, Some(created.map(|time| time.as_second()).min().unwrap_or(i64::MAX)))
            }
        }
    }

    /// Returns the policy that decides about a group.
    pub(super) fn policy_of(&self, group: &str) -> Option<&Policy> {
        let first = self.members.get(group)?.first()?;
        match self.match_object(self.facts(first)?) {
            Match::Policy { policy, .. } => self.policies.get(&policy.name),
            _ => None,
        }
    }

    pub(super) fn recorded_status(&self, group: &str) -> Option<&'a ScheduleGroupStatus> {
        self.groups.get(group).and_then(|group| group.status.as_ref())
    }

    /// Makes a group with the autoscalers and claims that are not in it and that its members have.
    pub(super) fn build_group(&self, name: &str, policy: &Policy) -> Group<'a> {
        let members = &self.members[name];
        let facts: Vec<&'a Facts> = members.iter().filter_map(|key| self.facts(key)).collect();
        let namespaces: BTreeSet<&str> = members.iter().map(ObjectKey::namespace).collect();
        let firsts = namespaces.iter().map(|name| ObjectKey::new("autoscaling", "HorizontalPodAutoscaler", name, ""));
        let scalers = firsts.flat_map(|first| {
            let all = self.objects.range::<ObjectKey, _>(&first..);
            let there = all.take_while(|(key, _)| key.as_str().starts_with(first.as_str()));
            there.map(|(key, object)| (*key, *object)).collect::<Vec<_>>()
        });
        let scalers = scalers.filter(|(key, _)| !members.contains(*key) && self.is_placed(key));
        let claims: BTreeSet<ObjectKey> = facts.iter().flat_map(|facts| facts.mounted_claims()).collect();
        let claims = claims.iter().filter(|key| !members.contains(*key)).filter_map(|key| self.facts(key));
        let followers: Vec<&'a Facts> = scalers.map(|(_, one)| &one.facts).chain(claims).collect();
        Group::with_followers(name, policy, facts, followers)
    }

    /// Returns whether anything places an object.
    fn is_placed(&self, key: &ObjectKey) -> bool {
        match self.assignments.get(key) {
            Some(Assignment::Direct | Assignment::Group(_) | Assignment::Left(_)) => true,
            Some(Assignment::Follows) => {
                let is_matched = |facts| matches!(self.match_object(facts), Match::Policy { .. });
                self.copies.contains_key(key) || self.facts(key).is_some_and(is_matched)
            }
            _ => false,
        }
    }

    /// Returns where a group is.
    fn current_placement(&self, name: &str, policy: &Policy, group: &Group<'_>) -> Current {
        let members = self.members[name].iter().filter_map(|key| self.facts(key));
        let copies = members.flat_map(|facts| self.copies_of(&facts.key).map(move |(at, copy)| (at, copy, facts)));
        let mut current = live::current_placement(copies, self.recorded_status(name), policy, group.is_held());
        current.is_settled = !self.grown.contains(name);
        current.only = self.only_of(name);
        let is_lost = current.targets.iter().any(|target| self.lost.contains(&target.cluster));
        if is_lost && policy.spec.failover.is_some() {
            current.mode = Mode::Failover;
        }
        current
    }

    fn decide_group(&mut self, name: &str) {
        self.plan_namespaces_first(name);
        let Some(policy) = self.policy_of(name).cloned() else { return };
        let group = self.build_group(name, &policy);
        let current = self.current_placement(name, &policy, &group);
        let decision = decide_group(&policy, &group, &self.fleet, &current);
        if !decision.suspended {
            self.fleet.reserve_decision(&group, &decision, &current);
        }
        let rows = explain::rejection_rows(&policy, &self.fleet, &decision).into_iter();
        let rows = rows.map(|row| RejectedRow { clusters: row.clusters, reason: row.reason, detail: row.detail });
        let words = explain::format_decision(&policy, &group, &self.fleet, &decision);
        self.words.insert(name.to_owned(), (words, rows.collect()));
        self.decisions.insert(name.to_owned(), decision);
    }

    fn decide_direct(&mut self, key: &ObjectKey) {
        let Some(facts) = self.facts(key) else { return };
        let Match::Annotation { direct, .. } = self.match_object(facts) else { return };
        let shares = self.copies_of(key).filter_map(|(at, schedule)| {
            let written = schedule.spec.share.as_ref()?;
            Some((at.to_owned(), written.completions.or(written.replicas)?))
        });
        let decision = decide_direct(facts, &direct, &self.fleet, &shares.collect());
        for target in &decision.targets {
            if self.copies_of(key).any(|(at, _)| at == target.cluster) {
                continue;
            }
            let copy = plan_schedule(target.share);
            if let (Some(promise), Some(cluster)) =
                (live::copy_reservation(&copy, facts), self.fleet.get(&target.cluster))
            {
                let mut promises = cluster.room.reservations().to_vec();
                promises.push(promise);
                self.fleet.set_promises(&target.cluster, promises);
            }
        }
        self.direct.insert(key.clone(), decision);
    }
}

/// Returns the Schedule that an object placed by annotation gets, as far as it takes room.
fn plan_schedule(share: Option<Share>) -> Schedule {
    let (replicas, completions) = match share {
        None => (None, None),
        Some(Share::Replicas(replicas)) => (Some(replicas), None),
        Some(Share::Job { completions, parallelism }) => (Some(parallelism), Some(completions)),
    };
    let share = share.map(|_| ScheduleShare { domain: String::new(), replicas, completions });
    Schedule::new("", ScheduleSpec { source_ref: SourceRef::default(), share, ..ScheduleSpec::default() })
}
