//! The status of a policy: whether it can be applied, and how much of what it matches has a place.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;
use tokio::time::Instant;

use super::events;
use super::group_events::group_reference;
use super::other_objects::OtherObjects;
use super::plan::Plan;
use super::queue::{Cause, ReconcileRequest};
use super::store::Store;
use super::write::Write;
use crate::api::Condition;
use crate::api::crd::condition;
use crate::api::crd::policy::SchedulePolicyStatus;
use crate::api::crd::policy::conditions::{KINDS_PLACED, SCHEDULED, SUSPENDED, VALID};
use crate::placement::explain::{self, UnplacedKinds};
use crate::placement::facts::Facts;
use crate::placement::matching::Match;
use crate::placement::policy_fault::find_policy_fault;

/// Reason of the condition and of the event that name kinds which are not placed.
const KINDS_NOT_PLACED: &str = "KindsNotPlaced";
/// Most groups of a policy that have such an event.
const TOLD_GROUPS: usize = 10;

/// Plans the status of a policy.
pub(super) fn plan_policy_status(store: &Store, name: &str, now: Timestamp) -> Plan {
    let Some(policy) = store.policies.get(name) else { return Plan::default() };
    let old = policy.status.clone().unwrap_or_default();
    let groups: Vec<_> = store.groups.iter().filter(|(_, group)| group.spec.policy.name == name).collect();
    let members = groups.iter().filter_map(|(name, _)| store.members.get(*name)).map(std::collections::BTreeSet::len);
    let matched: usize = members.sum();
    let unscheduled =
        groups.iter().filter(|(_, group)| group.status.as_ref().is_none_or(|status| !status.scheduled)).count();
    let [matched_objects, group_count, unscheduled_groups] =
        [matched, groups.len(), unscheduled].map(|count| Some(i32::try_from(count).unwrap_or(i32::MAX)));
    let mut status = SchedulePolicyStatus {
        conditions: old.conditions.clone(),
        matched_objects,
        groups: group_count,
        unscheduled_groups,
    };
    let generation = policy.metadata.generation;
    let mut set = |type_: &str, holds: bool, reason: &str, message: String| {
        let mut condition = Condition::new(type_, holds, reason, message, now);
        condition.observed_generation = generation;
        condition::set_condition(&mut status.conditions, condition);
    };
    let fault = find_policy_fault(&store.kinds, policy);
    match &fault {
        Some((reason, message)) => set(VALID, false, reason, message.clone()),
        None => set(VALID, true, VALID, String::new()),
    }
    match (groups.len(), unscheduled) {
        (0, _) => set(SCHEDULED, false, "NothingMatched", "no object matches".to_owned()),
        (_, 0) => set(SCHEDULED, true, "AllScheduled", String::new()),
        (all, none) => set(SCHEDULED, false, "SomeUnscheduled", format!("{none} of {all} groups are not placed")),
    }
    if policy.spec.suspend {
        set(SUSPENDED, true, SUSPENDED, "decisions are recorded, but not carried out".to_owned());
    }
    let join = |kinds| explain::format_unplaced_kinds(kinds).collect::<Vec<_>>().join("; ");
    let unplaced = store.unplaced_kinds(name).map(join);
    if let Some(kinds) = &unplaced {
        set(KINDS_PLACED, false, KINDS_NOT_PLACED, kinds.clone());
    }
    status.conditions.retain(|condition| match &*condition.type_ {
        SUSPENDED => policy.spec.suspend,
        KINDS_PLACED => unplaced.is_some() || store.unplaced.is_none(),
        _ => true,
    });
    let news = [
        fault.map(|(reason, message)| (VALID, reason, message)),
        unplaced.map(|kinds| (KINDS_PLACED, KINDS_NOT_PLACED, kinds)),
    ];
    let news = news.into_iter().flatten().filter(|(type_, _, message)| {
        let told = condition::find_condition(&old.conditions, type_);
        // What is counted is told once, and not with every object more.
        told.is_none_or(|told| match *type_ {
            KINDS_PLACED => without_numbers(&told.message) != without_numbers(message),
            _ => told.message != *message,
        })
    });
    let about = kube::Resource::object_ref(policy, &());
    // A group of several objects is what people look at; of one object, it would be told again and again.
    let gathering = groups.iter().filter(|_| policy.spec.group_by.is_some()).take(TOLD_GROUPS);
    let gathering: Vec<_> = gathering.map(|(name, _)| group_reference(name)).collect();
    let news: Vec<Write> = news
        .flat_map(|(type_, reason, message)| {
            let groups = gathering.iter().filter(|_| type_ == KINDS_PLACED).cloned();
            let about = std::iter::once(about.clone()).chain(groups);
            about.map(|about| events::event_about(about, true, reason, &message)).collect::<Vec<_>>()
        })
        .collect();
    let mut stage = Vec::new();
    if !is_same_policy_status(&old, &status) {
        stage.push(Write::PolicyStatus {
            name: name.to_owned(),
            uid: policy.uid().unwrap_or_default(),
            status: Box::new(status),
        });
    }
    stage.extend(news);
    let stages = if stage.is_empty() { Vec::new() } else { vec![stage] };
    Plan { stages, ..Plan::default() }
}

/// Returns a message without its numbers.
fn without_numbers(message: &str) -> String {
    message.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Returns whether two states say the same, whenever they were written.
fn is_same_policy_status(old: &SchedulePolicyStatus, new: &SchedulePolicyStatus) -> bool {
    condition::has_same_conditions(&old.conditions, &new.conditions)
        && *old == SchedulePolicyStatus { conditions: old.conditions.clone(), ..new.clone() }
}

impl Store {
    /// Records what there is of kinds that are not placed, by the policies that would take it.
    pub(super) fn set_other_objects(&mut self, found: &[OtherObjects], now: Instant) {
        let mut unplaced: BTreeMap<String, UnplacedKinds> = BTreeMap::new();
        for one in found {
            let metadata = json!({ "name": "x", "namespace": one.namespace, "labels": one.labels });
            let manifest = json!({ "apiVersion": one.api_version, "kind": one.kind, "metadata": metadata });
            let Ok(facts) = Facts::from_manifest(&manifest) else { continue };
            let is_placed = self.kinds.find_placeable(facts.key.group(), facts.key.kind()).is_some();
            let labels = self.namespace_labels(&one.namespace);
            if let (false, Match::Policy { policy, .. }) = (is_placed, self.order.match_object(&facts, labels)) {
                let kinds = unplaced.entry(policy.name.clone()).or_default();
                *kinds.entry(one.value).or_default().entry(one.kind.clone()).or_default() += one.count;
            }
        }
        let before = self.unplaced.replace(unplaced).unwrap_or_default();
        let after = self.unplaced.iter().flatten();
        let names: BTreeSet<String> = before.keys().chain(after.map(|(name, _)| name)).cloned().collect();
        for name in names {
            if before.get(&name) != self.unplaced_kinds(&name) {
                self.enqueue(ReconcileRequest::Policy(name), Cause::Review, now);
            }
        }
    }

    /// Returns what there is of kinds that are not placed, which a policy would take; `None` without any.
    pub(super) fn unplaced_kinds(&self, policy: &str) -> Option<&UnplacedKinds> {
        self.unplaced.as_ref()?.get(policy)
    }
}
