//! Moves of groups: the machine of [`crate::placement::moves`], its record in the
//! status of the group, and its writes.
//!
//! ```text
//! store, clusters ──→ survey: Seen ──┐
//! proposal: what is best, and why ───┼──→ moves::step ──→ plan: the record alone, or writes of Schedules and asks
//! memory: who may begin (admission) ─┘
//! ```
//!
//! Members that run once are stopped before they begin elsewhere, see `once`. Groups with what follows others, or whose data
//! keeps them, and spread groups whose shares one amount a cluster does not say, go by their decision alone, as do those of which an agent reports no epochs. Of a group that becomes one of them the record is dropped: where it is
//! says the decision. Namespaces are copied to where the group is, and are never waited for.

mod exclusions;
mod memory;
mod once;
mod plan;
mod proposal;
mod survey;

use k8s_openapi::jiff::Timestamp;

pub(super) use memory::Moves;
pub(super) use plan::plan_move;
pub(super) use proposal::target_amounts;

use super::decide::build_cluster_row;
use super::store::Store;
use super::write::TargetMark;
use crate::api::ScheduleGroupStatus;
use crate::placement::facts::ObjectKey;
use crate::placement::moves::{MovePhase, MoveRecord};
use crate::placement::proposal as proposal_rules;
use crate::placement::spread_proposal::{find_divided_member, read_fitting_record, spread_moves_by_record};

/// Record of a group as it should be, and what is said of its move: reason and message of the condition `Moving`.
pub(super) struct Recorded {
    pub(super) record: MoveRecord,
    pub(super) moving: Option<(&'static str, String)>,
    /// What it waits for under mass-loss protection.
    pub(super) frozen: Option<String>,
}

impl Recorded {
    /// Returns the marks of the members: where the group serves. The new side is none before the old one is given up.
    pub(super) fn target_mark(&self) -> TargetMark {
        let up = self.record.running.as_ref().filter(|running| running.phase == MovePhase::Up);
        TargetMark::from_targets(up.map_or(&self.record.target, |running| &running.from).keys().map(String::as_str))
    }

    /// Puts the record into a status. The rows of targets are those of its target.
    pub(super) fn set_status(&self, status: &mut ScheduleGroupStatus) {
        status.record = self.record.clone();
        status.target_clusters = self.record.target.keys().cloned().collect();
        let targets = status.clusters.iter().filter(|row| row.state == "Target");
        if targets.map(|row| &row.name).ne(self.record.target.keys()) {
            status.clusters.retain(|row| row.state != "Target" && !self.record.target.contains_key(&row.name));
            let targets = self.record.target.keys().map(|name| build_cluster_row(name, "Target"));
            status.clusters.splice(0..0, targets);
        }
    }
}

/// Returns the record of a group.
pub(super) fn read_record(store: &Store, name: &str) -> MoveRecord {
    let status = store.groups.get(name).and_then(|group| group.status.as_ref());
    let Some(policy) = store.policy_of(name) else { return proposal_rules::read_group_record(status) };
    let members = store.facts_of(name);
    let divided = find_divided_member(policy, members.iter().map(|facts| &***facts));
    read_fitting_record(status, policy, divided, |cluster| {
        store.copy_in(&divided?.key, cluster).map(|(_, schedule)| schedule)
    })
}

/// Returns the members of a group that are moved: those about which its policy decides, or all that were left by it.
fn moved_members<'a>(store: &'a Store, name: &str) -> Vec<&'a ObjectKey> {
    let is_left = store.policy_of(name).is_none();
    let members = store.members.get(name).into_iter().flatten();
    let members = members.filter(|key| is_left || store.is_assigned_to_group(key));
    members.filter(|key| !key.is_of_kind("", "Namespace") && store.sources.contains_key(*key)).collect()
}

/// Returns whether a group has a record, and moves as that says.
pub(super) fn is_recorded(store: &Store, name: &str) -> bool {
    let members = moved_members(store, name);
    let status = store.groups.get(name).and_then(|group| group.status.as_ref());
    let running = status.and_then(|status| status.record.running.as_ref());
    let is_covered = match store.policy_of(name) {
        Some(policy) if policy.spec.spread_constraints.is_some() => {
            let (own, others) = (store.facts_of(name), store.followers_of(name));
            spread_moves_by_record(policy, own.iter().map(|facts| &***facts).chain(others.iter().copied()))
        }
        Some(_) => true,
        None => status.is_some_and(|status| !status.record.target.is_empty()),
    };
    is_covered
        && !members.is_empty()
        && members.iter().all(|key| {
            let is_held = running.is_none_or(|running| !running.consent) && store.is_held_by_volumes(key);
            let copies = store.copies_of(key).map(|(_, schedule)| schedule);
            store.source_facts(key).is_some_and(|facts| proposal_rules::moves_by_record(facts, is_held, copies))
        })
}

/// Returns a time of the control plane's clock in words.
fn time_text(seconds: i64) -> String {
    Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
