//! The status of a group: where its members went, how far their copies are, and why nothing better was found.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decide::{Decided, ROWS};
use super::faults::CopyFaults;
use super::group_context::GroupContext;
use crate::api::crd::condition;
use crate::api::crd::group::conditions::{APPLIED, AVAILABLE, SCHEDULED};
use crate::api::crd::group::{DecisionRecord, ObjectRef};
use crate::api::{Condition, ScheduleGroupStatus};
use crate::placement::copy_state;
use crate::placement::explain;
use crate::placement::facts::ObjectKey;

/// Reason of the condition Scheduled of a group that would move, and waits for the end of mass-loss protection.
const FROZEN: &str = "Frozen";
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

impl GroupContext<'_> {
    /// Returns the status of the group as it should be.
    pub(super) fn group_status(&self, faults: &CopyFaults) -> ScheduleGroupStatus {
        let old = self.known_status().cloned().unwrap_or_default();
        let mut status =
            ScheduleGroupStatus { object_refs: self.member_references(), ..ScheduleGroupStatus::default() };
        status.conditions.clone_from(&old.conditions);
        match self.decided.filter(|_| self.policy.is_some()) {
            Some(decided) if decided.waits => self.keep_waiting_placement(&mut status, &old),
            Some(decided) => self.set_decision(&mut status, &old, decided, faults),
            None => self.keep_decision(&mut status, &old),
        }
        if let Some(recorded) = &self.recorded {
            recorded.set_status(&mut status);
        }
        self.set_progress(&mut status, faults);
        self.set_group_conditions(&mut status);
        if !is_same_group_status(Some(&old), &status) {
            status.last_status_update = Some(Time(self.now));
        }
        status
    }

    /// Sets what was decided.
    fn set_decision(
        &self,
        status: &mut ScheduleGroupStatus,
        old: &ScheduleGroupStatus,
        decided: &Decided,
        faults: &CopyFaults,
    ) {
        status.scheduled = decided.scheduled;
        status.target_clusters = if decided.suspended {
            // What runs stays where it is, and the decision is made again when it counts.
            self.kept_targets(old)
        } else {
            self.clusters_to_record(decided)
        };
        if decided.suspended {
            status.proposed_clusters.clone_from(&decided.proposed);
            status.domains.clone_from(&old.domains);
        } else {
            status.domains.clone_from(&decided.domains);
        }
        status.clusters.clone_from(&decided.rows);
        status.decision = Some(decided.record.clone());
        if let Some(same) = old.decision.clone().filter(|old| same_decision(old, &decided.record)) {
            status.decision = Some(same);
        }
        if decided.suspended {
            status.decision.clone_from(&old.decision);
        }
        let mut message = decided.message.clone();
        let before =
            condition::find_condition(&old.conditions, SCHEDULED).filter(|c| c.is_true() && c.reason == decided.reason);
        if let Some(before) = before.filter(|_| decided.kept && old.target_clusters == status.target_clusters) {
            message.clone_from(&before.message);
            status.clusters.clone_from(&old.clusters);
            status.decision = old.decision.clone().map(|record| DecisionRecord {
                policy_hash: decided.record.policy_hash.clone(),
                rebalanced_at: decided.record.rebalanced_at.clone(),
                candidates: decided.record.candidates,
                ..record
            });
        }
        let mut reason = decided.reason.as_str();
        // Free amounts that change while the reasons stay the same are no news.
        if let Some(before) = find_same_shortage(status, old, decided) {
            message.clone_from(&before.message);
            status.clusters.clone_from(&old.clusters);
        }
        // The copies stay in their last good state.
        if let Some((key, fault)) = faults.iter().find(|(_, fault)| fault.is_override()) {
            (reason, message) =
                ("OverrideInvalid", explain::shorten_event_text(format!("{}: {fault}", key.format_title())));
        }
        let scheduled = Condition::new(SCHEDULED, decided.scheduled, reason, message, self.now);
        condition::set_condition(&mut status.conditions, scheduled);
    }

    /// Returns where a group is recorded, else where its copies are: a group of what runs already may be new.
    fn kept_targets(&self, old: &ScheduleGroupStatus) -> Vec<String> {
        if !old.target_clusters.is_empty() {
            return old.target_clusters.clone();
        }
        let clusters: BTreeSet<&str> = self.members.iter().flat_map(|key| self.store.clusters_of(key)).collect();
        clusters.into_iter().map(str::to_owned).collect()
    }

    /// Keeps what is recorded of a group that moves, or waits for its move; under mass-loss protection it says so.
    fn keep_waiting_placement(&self, status: &mut ScheduleGroupStatus, old: &ScheduleGroupStatus) {
        keep_placement(status, old);
        let frozen = self.recorded.as_ref().and_then(|recorded| recorded.frozen.clone());
        let was_frozen = condition::find_condition(&old.conditions, SCHEDULED).is_some_and(|one| one.reason == FROZEN);
        let (reason, message) = match frozen {
            Some(message) => (FROZEN, message),
            None if was_frozen => ("Placed", format!("Stays on {}", old.target_clusters.join(", "))),
            None => return,
        };
        let scheduled = Condition::new(SCHEDULED, status.scheduled, reason, message, self.now);
        condition::set_condition(&mut status.conditions, scheduled);
    }

    /// Keeps what is recorded of a group that no policy matches any more.
    fn keep_decision(&self, status: &mut ScheduleGroupStatus, old: &ScheduleGroupStatus) {
        keep_placement(status, old);
        status.target_clusters = self.kept_targets(old);
        let kept = "existing copies are kept and still follow their source";
        let broken = self.known.map(|group| &group.spec.policy.name).filter(|name| self.store.broken.contains(*name));
        let (reason, message) = match broken {
            Some(name) => ("PolicyInvalid", format!("SchedulePolicy {name:?} cannot be read: {kept} ({})", self.name)),
            None => ("PolicyGone", format!("no policy matches any more: {kept} ({})", self.name)),
        };
        condition::set_condition(
            &mut status.conditions,
            Condition::new(SCHEDULED, status.scheduled, reason, message, self.now),
        );
    }

    /// Sets how far the copies are in each target and in all of them.
    fn set_progress(&self, status: &mut ScheduleGroupStatus, faults: &CopyFaults) {
        let mut all = GroupProgress::default();
        for row in status.clusters.iter_mut().filter(|row| row.state == "Target") {
            let progress = self.measure_progress(&row.name, faults);
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
        if all.objects == 0 {
            status.conditions.retain(|condition| ![APPLIED, AVAILABLE].contains(&condition.type_.as_str()));
            return;
        }
        let parts = [
            (APPLIED, all.applied, "AllApplied", "NotAllApplied"),
            (AVAILABLE, all.available, "AllAvailable", "NotAllAvailable"),
        ];
        for (type_, count, good, bad) in parts {
            let holds = count == all.objects;
            let message = if holds {
                String::new()
            } else {
                format!(
                    "{count} of {} objects{}{}",
                    all.objects,
                    if all.message.is_empty() { "" } else { "; " },
                    all.message
                )
            };
            let reason = if holds { good } else { bad };
            condition::set_condition(&mut status.conditions, Condition::new(type_, holds, reason, message, self.now));
        }
    }

    fn measure_progress(&self, cluster: &str, faults: &CopyFaults) -> GroupProgress {
        let mut progress = GroupProgress::default();
        for key in self.members.iter().filter(|key| !self.store.is_over_elsewhere(key, cluster)) {
            progress.objects += 1;
            if let Some(fault) = faults.get(*key) {
                progress.set_first_problem(key, &format!("{}: {fault}", fault.code()));
            }
            let Some((_, schedule)) = self.store.copy_in(key, cluster) else { continue };
            let copy = copy_state::read_copy_state(schedule, cluster);
            progress.applied += i32::from(copy.applied);
            progress.available += i32::from(copy.available);
            progress.set_first_problem(key, &copy.problem);
        }
        progress
    }

    fn member_references(&self) -> Vec<ObjectRef> {
        self.members
            .iter()
            .take(MEMBERS)
            .map(|key| ObjectRef {
                group: key.group().to_owned(),
                version: self.store.source_facts(key).map(|facts| facts.version.clone()).unwrap_or_default(),
                kind: key.kind().to_owned(),
                namespace: Some(key.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
                name: key.name().to_owned(),
            })
            .collect()
    }
}

/// Keeps what is recorded of the place of a group.
fn keep_placement(status: &mut ScheduleGroupStatus, old: &ScheduleGroupStatus) {
    status.scheduled = old.scheduled;
    status.target_clusters.clone_from(&old.target_clusters);
    status.clusters.clone_from(&old.clusters);
    status.decision.clone_from(&old.decision);
    status.domains.clone_from(&old.domains);
}

/// Returns the condition of a group that still has no place, if nothing but free amounts has changed since it was written.
fn find_same_shortage<'c>(
    status: &ScheduleGroupStatus,
    old: &'c ScheduleGroupStatus,
    decided: &Decided,
) -> Option<&'c Condition> {
    let before = condition::find_condition(&old.conditions, SCHEDULED)?;
    let is_same = old.target_clusters == status.target_clusters
        && before.status == "False"
        && before.reason == decided.reason
        && explain::list_asked_amounts(&before.message) == explain::list_asked_amounts(&decided.message)
        && old.decision.as_ref().is_some_and(|before| same_decision(before, &decided.record));
    (!decided.scheduled && !decided.suspended && is_same).then_some(before)
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
    let (last_status_update, old_conditions) = (old.last_status_update.clone(), old.conditions.clone());
    conditions && *old == ScheduleGroupStatus { last_status_update, conditions: old_conditions, ..new.clone() }
}
