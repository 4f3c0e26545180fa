//! The decisions of a run, each with its room promised before the next.

use std::collections::BTreeSet;

use super::machine::NOW;
use super::outcome::RejectedRow;
use super::run::Run;
use super::turns::{Request, Turn, TurnQueue};
use crate::placement::assignment::Assignment;
use crate::placement::decide::{Current, Decision, Group, decide_direct, decide_group};
use crate::placement::explain;
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::live;
use crate::placement::matching::{Match, Policy};
use crate::placement::names::GroupKey;
use crate::placement::stuck::{Stuck, count_bound_pods, is_stuck_for_long};
use crate::placement::tenant::{Tenant, namespace_of, tenant_of};

/// Most times that what follows is planned again because something was decided.
const ROUNDS: usize = 8;

impl<'a> Run<'a> {
    /// Decides everything, in rounds: what was decided places what follows, and what nothing uses is decided alone.
    pub(super) fn decide_everything(&mut self) {
        let direct = self.assignments.iter().filter(|(_, one)| **one == Assignment::Direct);
        let direct = direct.map(|(key, _)| Request::Object(key.clone()));
        let left = self.left.iter().filter(|(_, objects)| !objects.is_empty()).map(|(name, _)| name);
        let groups = self.members.keys().chain(left).cloned().map(Request::Group);
        let mut due: BTreeSet<Request> = groups.chain(direct).collect();
        let namespaces: BTreeSet<&str> = self.objects.keys().map(|key| key.namespace()).collect();
        let namespaces = namespaces.into_iter().filter(|name| !name.is_empty()).chain([""]);
        let namespaces: Vec<Request> = namespaces.map(|name| Request::Follow(name.to_owned())).collect();
        for round in 0..ROUNDS {
            let mut queue = TurnQueue::default();
            let follow = namespaces.iter().filter(|_| round > 0).cloned();
            for request in due.into_iter().chain(follow) {
                let turn = self.find_turn(&request);
                queue.push_request(request, turn);
            }
            let before = self.decisions.len();
            due = self.take_turns(queue);
            if round > 0 && due.is_empty() && self.decisions.len() == before {
                return;
            }
        }
    }

    /// Plans what is due, and what becomes due because of it; returns the groups that wait for further members.
    fn take_turns(&mut self, mut queue: TurnQueue) -> BTreeSet<Request> {
        let mut later = BTreeSet::new();
        while let Some(request) = queue.take_turn() {
            match &request {
                Request::Group(name) if self.decisions.contains_key(name) || !self.members.contains_key(name) => {}
                Request::Group(name) => self.decide_simulated_group(name),
                Request::Object(key) => self.decide_annotated_object(key),
                Request::Follow(namespace) => self.plan_followers_in(namespace),
            }
            for name in std::mem::take(&mut self.pinned) {
                if self.members.contains_key(&name) {
                    let request = Request::Group(name);
                    let turn = self.find_turn(&request);
                    queue.push_request(request, turn);
                }
            }
            for name in std::mem::take(&mut self.arisen) {
                let waits = self.waits_for_members(&name);
                let request = Request::Group(name);
                if waits {
                    later.insert(request);
                } else if matches!(&request, Request::Group(name) if self.members.contains_key(name)) {
                    let turn = self.find_turn(&request);
                    queue.push_request(request, turn);
                }
            }
        }
        later.retain(|request| self.is_undecided(request));
        later
    }

    fn is_undecided(&self, request: &Request) -> bool {
        matches!(request, Request::Group(name) if self.members.contains_key(name) && !self.decisions.contains_key(name))
    }

    /// Returns whether more members of a group may come: it has some, or its policy groups by label.
    fn waits_for_members(&self, name: &str) -> bool {
        let Some(members) = self.members.get(name) else { return false };
        let facts = members.first().and_then(|key| self.facts(key));
        let policy = self.find_deciding_policy(name);
        let is_of_one =
            facts.zip(policy).is_some_and(|(facts, policy)| GroupKey::new(facts, policy).is_of_one_object());
        members.len() > 1 || !is_of_one
    }

    fn find_turn(&self, request: &Request) -> Turn {
        match request {
            Request::Object(key) => (tenant_of(key), None),
            Request::Follow(namespace) if namespace.is_empty() => (Tenant::ClusterScoped, None),
            Request::Follow(namespace) => (Tenant::Namespace(namespace.clone()), None),
            Request::Group(name) => {
                let members: BTreeSet<&ObjectKey> =
                    [&self.members, &self.left].into_iter().filter_map(|all| all.get(name)).flatten().collect();
                let namespaces: BTreeSet<&str> = members.iter().map(|key| namespace_of(key)).collect();
                let tenant = match members.first() {
                    Some(first) if namespaces.len() == 1 => tenant_of(first),
                    _ => Tenant::AcrossNamespaces,
                };
                let created = members.iter().filter_map(|key| self.facts(key)?.created);
                (tenant, Some(created.map(jiff::Timestamp::as_second).min().unwrap_or(i64::MAX)))
            }
        }
    }

    /// Makes a group with the autoscalers and claims that are not in it and that its members have.
    pub(super) fn build_group(&self, name: &str, policy: &Policy) -> Group<'a> {
        let facts = self.members[name].iter().filter_map(|key| self.facts(key));
        Group::with_followers(name, policy, facts, self.list_followers(name))
    }

    /// Returns the autoscalers and claims that are not in a group and that its members have.
    pub(super) fn list_followers(&self, name: &str) -> Vec<&'a Facts> {
        let members = &self.members[name];
        let facts: Vec<&'a Facts> = members.iter().filter_map(|key| self.facts(key)).collect();
        let namespaces: BTreeSet<&str> = members.iter().map(ObjectKey::namespace).collect();
        let firsts = namespaces.iter().map(|name| ObjectKey::new("autoscaling", "HorizontalPodAutoscaler", name, ""));
        let scalers = firsts.flat_map(|first| {
            let all = self.objects.range::<ObjectKey, _>(&first..);
            let there = all.take_while(|(key, _)| key.as_str().starts_with(first.as_str()));
            there.map(|(key, object)| (*key, *object)).collect::<Vec<_>>()
        });
        let scalers = scalers.filter(|(key, _)| !members.contains(*key) && self.has_placement(key));
        let claims: BTreeSet<ObjectKey> = facts.iter().flat_map(|facts| facts.mounted_claims()).collect();
        let claims = claims.iter().filter(|key| !members.contains(*key)).filter_map(|key| self.facts(key));
        scalers.map(|(_, one)| &one.facts).chain(claims).collect()
    }

    /// Returns whether anything places an object.
    fn has_placement(&self, key: &ObjectKey) -> bool {
        match self.assignments.get(key) {
            Some(Assignment::Direct | Assignment::Group(_) | Assignment::Left(_)) => true,
            Some(Assignment::Follows) => {
                self.copies.contains_key(key)
                    || self
                        .facts(key)
                        .is_some_and(|facts| matches!(self.match_known_object(facts), Match::Policy { .. }))
            }
            _ => false,
        }
    }

    /// Returns where a group is; `is_held` if its volumes keep it there.
    fn find_present_placement(&self, name: &str, policy: &Policy, is_held: bool) -> Current {
        let members = self.members[name].iter().filter_map(|key| self.facts(key));
        let copies = members
            .clone()
            .flat_map(|facts| self.list_known_copies(&facts.key).map(move |(at, copy)| (at, copy, facts)));
        let mut current = live::current_placement(copies, self.recorded_status(name), policy, is_held);
        current.is_settled = !self.grown.contains(name);
        current.only = self.find_clusters_left(name);
        if policy.spec.spread_constraints.is_some() {
            let copies = members
                .flat_map(|facts| self.list_known_copies(&facts.key).map(move |(at, copy)| (at, &facts.key, copy)));
            current.bound = count_bound_pods(copies, |cluster, stuck| self.is_stuck_by_now(cluster, stuck));
        }
        current
    }

    pub(super) fn is_stuck_by_now(&self, cluster: &str, stuck: Stuck) -> bool {
        self.fleet.get(cluster).is_some_and(|known| is_stuck_for_long(known, stuck, None, NOW))
    }

    fn decide_simulated_group(&mut self, name: &str) {
        self.regroup_promises(name);
        self.plan_namespaces_first(name);
        let Some(policy) = self.find_deciding_policy(name).cloned() else { return };
        let group = self.build_group(name, &policy);
        let is_spread = policy.spec.spread_constraints.is_some();
        if is_spread || !self.has_record(name, &policy) {
            let (decision, current) = if is_spread && self.has_record(name, &policy) {
                let current = self.find_present_placement(name, &policy, false);
                let proposal = self.decide_spread_move(name, &policy, &group, current);
                (proposal.decision, proposal.current)
            } else {
                let current = self.find_present_placement(name, &policy, group.is_held());
                (decide_group(&policy, &group, &self.fleet, &current), current)
            };
            if !decision.suspended {
                self.reserve_room(&group, &decision, &current);
            }
            let words = explain::format_decision(&policy, &group, &self.fleet, &decision);
            self.record_decision(&policy, decision, name, words);
            return;
        }
        let current = self.find_present_placement(name, &policy, false);
        let played = self.play_moves(name, &policy, &group, current);
        if played.is_carried_out {
            self.reserve_room(&group, &played.decision, &played.current);
        }
        let words = explain::format_decision(&policy, &group, &self.fleet, &played.decision);
        let words = played.frozen_words.unwrap_or(words);
        self.causes.extend(played.cause.map(|cause| (name.to_owned(), cause)));
        let decision = match played.target {
            // It stays where it is, though the decision is another one.
            Some(targets) => Decision { targets, moving_from: Vec::new(), ..played.decision },
            None => played.decision,
        };
        self.record_decision(&policy, decision, name, words);
    }

    fn record_decision(&mut self, policy: &Policy, decision: Decision, name: &str, words: String) {
        let rows = explain::rejection_rows(policy, &self.fleet, &decision).into_iter();
        let rows = rows.map(|row| RejectedRow { clusters: row.clusters, reason: row.reason, detail: row.detail });
        self.words.insert(name.to_owned(), (words, rows.collect()));
        self.decisions.insert(name.to_owned(), decision);
    }

    fn decide_annotated_object(&mut self, key: &ObjectKey) {
        let Some(facts) = self.facts(key) else { return };
        let Match::Annotation { direct, .. } = self.match_known_object(facts) else { return };
        let shares = self.list_known_copies(key).filter_map(|(at, schedule)| {
            let written = schedule.spec.share.as_ref()?;
            Some((at.to_owned(), written.completions.or(written.replicas)?))
        });
        let decision = decide_direct(facts, &direct, &self.fleet, &shares.collect());
        for target in &decision.targets {
            self.promise_direct_copy(facts, target);
        }
        self.direct.insert(key.clone(), decision);
    }
}
