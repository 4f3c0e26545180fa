//! The places of one follower.

use std::collections::{BTreeMap, BTreeSet};

use super::board::{Board, Presence, Standing};
use super::claims::{Home, Homes};
use super::kinds::{is_claim, is_default_account};
use super::plan::{Because, Follower, Place, PlaceState, Wait};
use super::record::FollowCopy;
use super::sources::Decider;
use super::uses::{Index, Reasons, UserMode, Uses};
use crate::placement::facts::Never;

/// A follower as it is planned, before it is written into the plan.
#[derive(Debug, Default)]
pub(super) struct Planned<'a> {
    pub(super) follower: Follower,
    pub(super) standing: Standing<'a>,
    /// Whether its own place counts, so that its group has it as a member.
    pub(super) counts_own: bool,
}

/// What is asked about each cluster of one follower.
struct Question<'a> {
    index: Index,
    uses: Uses<'a>,
    /// Clusters of its own place, as far as that counts and its policy is not suspended.
    own: BTreeSet<&'a str>,
    home: Option<Home<'a>>,
    policy: Option<usize>,
}

impl<'a> Board<'a> {
    /// Plans one follower; all kinds before its own are planned.
    pub(super) fn plan_follower(
        &mut self,
        index: Index,
        groups_elsewhere: &BTreeSet<(String, String)>,
        homes: &mut Homes<'a>,
    ) -> Planned<'a> {
        let key = self.sources.key(index);
        let record = self.sources.records[index];
        match self.sources.decider(index) {
            Decider::Nowhere => return self.plan_by_annotation(index),
            Decider::Annotation { .. } => {
                let own = record.targets.iter().map(String::as_str).collect();
                homes.extend(self.find_claim_home(index, &Uses::default(), &own).map(|home| (index, home)));
                return self.plan_by_annotation(index);
            }
            Decider::Never(_) if is_default_account(key) => {
                if record.relations.pull_secrets == 0 && record.copies.is_empty() {
                    return Planned::default();
                }
            }
            Decider::Never(never) if never.is_taken_back() => return self.plan_removal(index),
            Decider::Never(_) | Decider::Policy(_) | Decider::Nobody => {}
        }
        let uses = self.find_uses(index);
        let policy = self.sources.policy(index);
        let (counts_own, is_alone) = self.count_own_place(index, &uses, groups_elsewhere);
        let has_own = counts_own && !self.sources.is_suspended(policy);
        let own: BTreeSet<&str> = record.targets.iter().filter(|_| has_own).map(String::as_str).collect();
        let home = self.find_claim_home(index, &uses, &own);
        let question = Question { index, uses, own, home, policy };
        let mut planned = self.plan_places(&question);
        planned.counts_own = counts_own;
        if planned.follower.places.is_empty() {
            planned.follower.waits = self.find_wait(&question, is_alone && !record.is_quiet);
            planned.standing.is_waiting = planned.follower.waits.is_some();
        }
        let has_home = !record.copies.is_empty() || !record.recorded.is_empty() || !planned.follower.places.is_empty();
        homes.extend(question.home.filter(|_| has_home).map(|home| (index, home)));
        planned
    }

    /// Returns whether a follower's own place counts, and whether it is alone: used by nothing, in a group without pods.
    fn count_own_place(
        &self,
        index: Index,
        uses: &Uses<'a>,
        groups_elsewhere: &BTreeSet<(String, String)>,
    ) -> (bool, bool) {
        let key = self.sources.key(index);
        let Some(policy) = self.sources.policy(index) else { return (false, false) };
        // A namespace is where something in it is, and nowhere by itself.
        if key.is_of_kind("", "Namespace") {
            return (false, false);
        }
        let has_decided = self.shared_group(index).is_some_and(|group| {
            let name = self.sources.policies[policy].name.clone();
            self.members.contains_key(&group) || groups_elsewhere.contains(&(name, group.1.as_str().to_owned()))
        });
        let always = has_decided || self.sources.duplicates(policy);
        let is_alone = !always && !uses.is_used() && !is_claim(key);
        (always || is_alone && self.sources.records[index].is_quiet, is_alone)
    }

    fn find_wait(&self, question: &Question<'a>, is_unquiet: bool) -> Option<Wait> {
        let is_carried = self.sources.kind(question.index).is_some_and(|kind| kind.is_carried);
        if question.uses.is_waiting && (question.policy.is_some() || is_carried && question.uses.waiting_carries) {
            return Some(Wait::User);
        }
        if question.policy.is_none() || self.sources.is_suspended(question.policy) {
            return None;
        }
        if is_claim(self.sources.key(question.index)) && !question.uses.is_used() {
            return Some(Wait::Mount);
        }
        is_unquiet.then_some(Wait::Quiet)
    }

    /// Plans every cluster where it is used, has its own place or is.
    fn plan_places(&self, question: &Question<'a>) -> Planned<'a> {
        let record = self.sources.records[question.index];
        let mut planned = Planned::default();
        let mut unused: Vec<(&'a str, &FollowCopy)> = Vec::new();
        let copies = record.copies.keys().map(String::as_str);
        let clusters: BTreeSet<&str> =
            question.uses.places.keys().copied().chain(question.own.iter().copied()).chain(copies).collect();
        for cluster in clusters {
            let is_allowed = question.home.as_ref().is_none_or(|home| home.allowed.contains(cluster));
            let reasons = question.uses.places.get(cluster).filter(|_| is_allowed);
            let is_own = is_allowed && question.own.contains(cluster);
            let copy = record.copies.get(cluster);
            let state = self.find_used_state(question, cluster, reasons, is_own, copy.is_some());
            match (state, copy) {
                (Some(state), _) => self.add_place(&mut planned, question, cluster, state, reasons, is_own),
                (None, Some(copy)) if reasons.is_none() => unused.push((cluster, copy)),
                (None, _) => {}
            }
        }
        let has_place = !planned.follower.places.is_empty();
        for (cluster, copy) in unused {
            let state = self.find_unused_state(question, cluster, copy, has_place);
            self.add_place(&mut planned, question, cluster, state, None, false);
        }
        planned
    }

    /// Returns the state where it is used or has its own place; `None` where nothing is made.
    fn find_used_state(
        &self,
        question: &Question<'a>,
        cluster: &str,
        reasons: Option<&Reasons>,
        is_own: bool,
        has_copy: bool,
    ) -> Option<PlaceState> {
        if !is_own && reasons.is_none() {
            return None;
        }
        if self.is_made_elsewhere(question.index, cluster) {
            return has_copy.then_some(PlaceState::Frozen);
        }
        let is_active = is_own || reasons.is_some_and(|reasons| reasons.is_active);
        if has_copy {
            let is_edited = is_active || reasons.is_some_and(|reasons| reasons.is_leaving);
            return Some(if is_edited { PlaceState::Written } else { PlaceState::Frozen });
        }
        let kind_is_carried = self.sources.kind(question.index).is_some_and(|kind| kind.is_carried);
        let is_carried = kind_is_carried && reasons.is_some_and(|reasons| reasons.is_carried);
        (is_own || is_active && question.policy.is_some() || is_carried).then_some(PlaceState::Written)
    }

    /// Returns whether something that is never placed is not written in a cluster either: by a controller where its owner is,
    /// or by the cluster itself. A ConfigMap or Secret of a controller is carried where its owner is not, and of every
    /// cluster's own account the pull secrets go along.
    fn is_made_elsewhere(&self, index: Index, cluster: &str) -> bool {
        let key = self.sources.key(index);
        match self.sources.decider(index) {
            Decider::Never(Never::Owned) if key.is_of_kind("", "ConfigMap") || key.is_of_kind("", "Secret") => {
                self.has_controller(index, cluster)
            }
            Decider::Never(_) => !is_default_account(key),
            _ => false,
        }
    }

    /// Returns whether the object that controls a source is or is to be in a cluster.
    pub(super) fn has_controller(&self, index: Index, cluster: &str) -> bool {
        let owner = self.sources.records[index].relations.controller.as_ref();
        let owner = owner.and_then(|owner| self.sources.find(owner));
        owner.is_some_and(|owner| self.standings[owner].places.contains_key(cluster))
    }

    /// Returns the state of a copy that nothing in its cluster uses.
    fn find_unused_state(
        &self,
        question: &Question<'a>,
        cluster: &str,
        copy: &FollowCopy,
        has_place: bool,
    ) -> PlaceState {
        let key = self.sources.key(question.index);
        if self.sources.is_suspended(question.policy) {
            return PlaceState::Frozen;
        }
        // A claim is never removed with its data, nor a namespace with what others have in it.
        let is_kept = question.home.is_some() || key.is_of_kind("", "Namespace");
        let leaves = if question.policy.is_some() { has_place } else { copy.follows };
        match (leaves && !is_kept, self.sources.decider(question.index)) {
            (true, _) if self.is_settled(key.namespace(), cluster) => PlaceState::Leaves,
            (true, _) => PlaceState::Lingers,
            (false, Decider::Never(_)) => PlaceState::Frozen,
            (false, _) => PlaceState::Stays,
        }
    }

    fn add_place(
        &self,
        planned: &mut Planned<'a>,
        question: &Question<'a>,
        cluster: &'a str,
        state: PlaceState,
        reasons: Option<&Reasons>,
        is_own: bool,
    ) {
        let key = self.sources.key(question.index);
        let users = reasons.into_iter().flat_map(|reasons| &reasons.users);
        let mut because: BTreeSet<Because> =
            users.map(|user| Because::Object(self.sources.key(*user).clone())).collect();
        because.extend(is_own.then_some(Because::Policy));
        let is_overridden = question.policy.is_none() && state == PlaceState::Written;
        let carrier = reasons.filter(|_| is_overridden).and_then(Reasons::overriding_policy);
        let is_default = is_default_account(key);
        let name = carrier.filter(|_| !is_default).map(|policy| self.sources.policies[policy].name.clone());
        let is_active = is_own || reasons.is_some_and(|reasons| reasons.is_active);
        let mode = match state {
            PlaceState::Written if !is_active => UserMode::Leaving,
            PlaceState::Written | PlaceState::Stays => UserMode::Active,
            PlaceState::Frozen => UserMode::Suspended,
            PlaceState::Lingers | PlaceState::Leaves => UserMode::Leaving,
        };
        let policy = question.policy.or(carrier);
        planned.standing.places.insert(cluster, Presence { mode, policy, is_spread: false });
        let place = Place { state, because, policy: name, only_pull_secrets: is_default };
        planned.follower.places.insert(cluster.to_owned(), place);
    }

    /// Plans a follower whose own annotation decides, whoever uses it. A claim goes only with consent or with its
    /// annotation that keeps it here, and what runs behind a fence that came later stays.
    fn plan_by_annotation(&self, index: Index) -> Planned<'a> {
        let record = self.sources.records[index];
        let asks = &record.facts.asks;
        let is_nowhere = self.sources.decider(index) == Decider::Nowhere;
        let home = self.find_claim_home(index, &Uses::default(), &record.targets.iter().map(String::as_str).collect());
        let mut planned = Planned::default();
        let targets = record.targets.iter().filter(|_| !is_nowhere);
        for cluster in targets {
            if home.as_ref().is_none_or(|home| home.allowed.contains(cluster.as_str())) {
                add_annotated(&mut planned, cluster, PlaceState::Written);
            }
        }
        for cluster in record.copies.keys() {
            if planned.follower.places.contains_key(cluster) {
                continue;
            }
            let is_named = asks.names_any(&BTreeSet::from([cluster.clone()]));
            let is_kept = !is_nowhere && (home.is_some() || is_named || record.targets.is_empty());
            add_annotated(&mut planned, cluster, if is_kept { PlaceState::Stays } else { PlaceState::Leaves });
        }
        planned.standing.is_waiting = !is_nowhere && planned.standing.places.is_empty();
        planned
    }

    /// Plans something of which every copy is withdrawn, whoever uses it.
    fn plan_removal(&self, index: Index) -> Planned<'a> {
        let mut planned = Planned::default();
        for cluster in self.sources.records[index].copies.keys() {
            add_annotated(&mut planned, cluster, PlaceState::Leaves);
            if let Some(place) = planned.follower.places.get_mut(cluster) {
                place.because = BTreeSet::new();
            }
        }
        planned
    }
}

fn add_annotated<'a>(planned: &mut Planned<'a>, cluster: &'a str, state: PlaceState) {
    let mode = if state == PlaceState::Leaves { UserMode::Leaving } else { UserMode::Active };
    planned.standing.places.insert(cluster, Presence { mode, policy: None, is_spread: false });
    let because = if state == PlaceState::Stays { BTreeSet::new() } else { BTreeSet::from([Because::Annotation]) };
    let place = Place { state, because, policy: None, only_pull_secrets: false };
    planned.follower.places.insert(cluster.to_owned(), place);
}

/// Followers by their position, as they are planned.
pub(super) type PlannedFollowers = BTreeMap<Index, Follower>;
