//! The status of a group: where its members went, how far their copies are, and why nothing better was found.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::conditions;
use super::decide::{Decided, ROWS};
use super::plan::Plan;
use super::state::{State, cluster_of};
use super::writer::Write;
use crate::api::crd::condition;
use crate::api::crd::group::{DecisionRecord, ObjectRef};
use crate::api::{Condition, Schedule, ScheduleGroup, ScheduleGroupStatus};
use crate::placement::aggregate::{self, CopyStatus};
use crate::placement::copy::CopyError;
use crate::placement::copy_state;
use crate::placement::explain;
use crate::placement::facts::ObjectKey;
use crate::placement::live;

/// Types of the conditions of a group.
pub(super) const SCHEDULED: &str = "Scheduled";
const APPLIED: &str = "Applied";
const AVAILABLE: &str = "Available";

/// Most members that a group names; more are not placed together.
const MEMBERS: usize = 1000;

/// Progress of the copies of a group in one cluster.
#[derive(Default)]
struct GroupProgress {
    objects: i32,
    applied: i32,
    available: i32,
    message: String,
}

fn measure_progress(
    state: &State,
    members: &[&ObjectKey],
    cluster: &str,
    faults: &BTreeMap<ObjectKey, CopyError>,
) -> GroupProgress {
    let mut progress = GroupProgress::default();
    for key in members {
        progress.objects += 1;
        if let Some(fault) = faults.get(*key) {
            progress.set_first_problem(key, &format!("{}: {fault}", fault.code()));
        }
        let Some((_, schedule)) = state.copy_in(key, cluster) else { continue };
        let copy = copy_state::read_copy_state(schedule, cluster);
        progress.applied += i32::from(copy.applied);
        progress.available += i32::from(copy.available);
        progress.set_first_problem(key, &copy.problem);
    }
    progress
}

impl GroupProgress {
    fn set_first_problem(&mut self, key: &ObjectKey, problem: &str) {
        if self.message.is_empty() && !problem.is_empty() {
            // The texts of some problems begin with the object.
            let title = key.format_title();
            let text = if problem.starts_with(&title) { problem.to_owned() } else { format!("{title}: {problem}") };
            self.message = explain::shorten_event_text(text);
        }
    }
}

/// Returns whether every member of a group is available in every cluster that it was decided for. One that cannot be
/// copied and that is nowhere is not waited for.
pub(super) fn all_available(
    state: &State,
    members: &[&ObjectKey],
    decided: Option<&Decided>,
    faults: &BTreeMap<ObjectKey, CopyError>,
) -> bool {
    let is_nowhere = |key: &ObjectKey| faults.contains_key(key) && state.copies_of(key).next().is_none();
    decided.is_some_and(|decided| {
        decided.targets.iter().all(|target| {
            let mut members = members
                .iter()
                .filter(|key| state.source_facts(key).is_some_and(|facts| live::has_copy_in_target(target, facts)));
            members.all(|key| is_nowhere(key) || is_available_in(state, key, &[&target.cluster]))
        })
    })
}

/// Returns whether an object is available in each of these clusters, and in at least one.
pub(super) fn is_available_in(state: &State, key: &ObjectKey, clusters: &[&str]) -> bool {
    let is_there = |cluster: &&str| {
        state
            .copy_in(key, cluster)
            .is_some_and(|(_, schedule)| copy_state::read_copy_state(schedule, cluster).available)
    };
    !clusters.is_empty() && clusters.iter().all(is_there)
}

/// Makes the status of a group.
#[expect(clippy::too_many_arguments, reason = "each is one thing that the status tells")]
pub(super) fn group_status(
    state: &State,
    name: &str,
    members: &[&ObjectKey],
    decided: Option<&Decided>,
    has_policy: bool,
    faults: &BTreeMap<ObjectKey, CopyError>,
    known: Option<&ScheduleGroup>,
    now: Timestamp,
) -> ScheduleGroupStatus {
    let old = known.and_then(|group| group.status.clone()).unwrap_or_default();
    let mut status =
        ScheduleGroupStatus { object_refs: member_references(state, members), ..ScheduleGroupStatus::default() };
    status.conditions.clone_from(&old.conditions);
    match decided.filter(|_| has_policy) {
        Some(decided) => {
            status.scheduled = decided.scheduled;
            status.target_clusters = decided.targets.iter().map(|target| target.cluster.clone()).collect();
            status.clusters.clone_from(&decided.rows);
            status.decision = Some(decided.record.clone());
            if let Some(same) = old.decision.clone().filter(|old| same_decision(old, &decided.record)) {
                status.decision = Some(same);
            }
            let mut message = decided.message.clone();
            let before = condition::find_condition(&old.conditions, SCHEDULED)
                .filter(|c| c.is_true() && c.reason == decided.reason);
            if let Some(before) = before.filter(|_| decided.kept && old.target_clusters == status.target_clusters) {
                message.clone_from(&before.message);
                status.clusters.clone_from(&old.clusters);
                status.decision = old.decision.clone().map(|record| DecisionRecord {
                    policy_hash: decided.record.policy_hash.clone(),
                    candidates: decided.record.candidates,
                    ..record
                });
            }
            let mut reason = decided.reason.as_str();
            // The copies stay in their last good state.
            if let Some((key, fault)) = faults.iter().find(|(_, fault)| fault.is_override()) {
                (reason, message) =
                    ("OverrideInvalid", explain::shorten_event_text(format!("{}: {fault}", key.format_title())));
            }
            let scheduled = Condition::new(SCHEDULED, decided.scheduled, reason, message, now);
            condition::set_condition(&mut status.conditions, scheduled);
        }
        None => {
            status.scheduled = old.scheduled;
            status.target_clusters.clone_from(&old.target_clusters);
            status.clusters.clone_from(&old.clusters);
            status.decision.clone_from(&old.decision);
            let message =
                format!("no policy matches any more: existing copies are kept and still follow their source ({name})");
            condition::set_condition(
                &mut status.conditions,
                Condition::new(SCHEDULED, status.scheduled, "PolicyGone", message, now),
            );
        }
    }
    let mut all = GroupProgress::default();
    for row in status.clusters.iter_mut().filter(|row| row.state == "Target") {
        let progress = measure_progress(state, members, &row.name, faults);
        row.objects = Some(progress.objects);
        row.applied = Some(progress.applied);
        row.available = Some(progress.available);
        row.message.clone_from(&progress.message);
        all.objects += progress.objects;
        all.applied += progress.applied;
        all.available += progress.available;
        if all.message.is_empty() && !progress.message.is_empty() {
            all.message = format!("{} on {}", progress.message, row.name);
        }
    }
    status.clusters.truncate(ROWS);
    if all.objects > 0 {
        let parts = [
            (APPLIED, all.applied, "AllApplied", "NotAllApplied"),
            (AVAILABLE, all.available, "AllAvailable", "NotAllAvailable"),
        ];
        for (type_, count, good, bad) in parts {
            let holds = count == all.objects;
            let message = if holds {
                String::new()
            } else {
                format!("{count} of {}{}{}", all.objects, if all.message.is_empty() { "" } else { "; " }, all.message)
            };
            let reason = if holds { good } else { bad };
            condition::set_condition(&mut status.conditions, Condition::new(type_, holds, reason, message, now));
        }
    } else {
        status.conditions.retain(|condition| ![APPLIED, AVAILABLE].contains(&condition.type_.as_str()));
    }
    conditions::set_group_conditions(state, members, decided, &mut status, now);
    if !is_same_group_status(Some(&old), &status) {
        status.last_status_update = Some(Time(now));
    }
    status
}

fn member_references(state: &State, members: &[&ObjectKey]) -> Vec<ObjectRef> {
    members
        .iter()
        .take(MEMBERS)
        .map(|key| ObjectRef {
            group: key.group().to_owned(),
            version: state.sources.get(*key).map(|source| source.facts.version.clone()).unwrap_or_default(),
            kind: key.kind().to_owned(),
            namespace: Some(key.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
            name: key.name().to_owned(),
        })
        .collect()
}

/// The key of a member as a group's status names it.
pub(super) fn key_of(one: &ObjectRef) -> ObjectKey {
    ObjectKey::new(&one.group, &one.kind, one.namespace.as_deref().unwrap_or_default(), &one.name)
}

fn same_decision(old: &DecisionRecord, new: &DecisionRecord) -> bool {
    let mut old = old.clone();
    old.time.clone_from(&new.time);
    old == *new
}

/// Returns whether two states of a status say the same, whenever they were written.
pub(super) fn is_same_group_status(old: Option<&ScheduleGroupStatus>, new: &ScheduleGroupStatus) -> bool {
    let Some(old) = old else { return false };
    let conditions = condition::has_same_conditions(&old.conditions, &new.conditions);
    let rest = |status: &ScheduleGroupStatus| ScheduleGroupStatus {
        last_status_update: None,
        conditions: Vec::new(),
        ..status.clone()
    };
    conditions && rest(old) == rest(new)
}

/// Plans the status of a source, as its copies have it.
pub(super) fn plan_source_status(state: &State, key: &ObjectKey, now: Timestamp) -> Plan {
    let Some(source) = state.sources.get(key) else { return Plan::default() };
    let targets = state.target_clusters(key);
    let copies: Vec<(CopyStatus, &Schedule)> = state
        .copies_of(key)
        .filter(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none())
        .map(|(at, schedule)| {
            let cluster = cluster_of(at);
            let leaving = targets.as_ref().is_some_and(|targets| !targets.contains(cluster));
            let lost = state.lost.get(cluster).cloned();
            (CopyStatus { leaving, lost, ..CopyStatus::from_schedule(schedule, cluster, &source.facts) }, schedule)
        })
        .collect();
    let shares =
        copies.iter().filter(|(copy, _)| !copy.leaving).filter_map(|(_, schedule)| schedule.spec.share.as_ref());
    let replicas: Vec<i64> = shares.filter_map(|share| share.replicas).collect();
    let copies: Vec<CopyStatus> = copies.into_iter().map(|(copy, _)| copy).collect();
    let is_divided = !replicas.is_empty();
    let withheld = source.facts.workload.pods_at_once().saturating_sub(replicas.iter().sum());
    let all = aggregate::Source {
        group: key.group(),
        kind: key.kind(),
        generation: source.facts.generation,
        duplicate: !is_divided && copies.len() > 1,
        withheld: if is_divided { withheld.max(0) } else { 0 },
        copies: &copies,
    };
    let status = all.status_to_write(&source.status, now);
    let write = status.map(|status| vec![Write::Status(source.address.clone(), status)]);
    Plan { stages: write.into_iter().collect(), ..Plan::default() }
}
