//! A group as it is seen when it is planned: the whole input of its plan.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use super::decide::Decided;
use super::moving::Recorded;
use super::store::{Assignment, Store};
use crate::api::{ScheduleGroup, ScheduleGroupStatus};
use crate::placement::facts::ObjectKey;
use crate::placement::live;
use crate::placement::matching::Policy;

/// What is seen of a group. What it becomes is in `group_plan`, what it loses in `schedule_deletions`.
pub(super) struct GroupContext<'a> {
    /// Sources, Schedules and what else the watches have brought.
    pub(super) store: &'a Store,
    pub(super) name: &'a str,
    pub(super) members: Vec<&'a ObjectKey>,
    /// The last decision; `None` where no policy matches any member any more.
    pub(super) decided: Option<&'a Decided>,
    pub(super) policy: Option<&'a Policy>,
    /// The object of the group, where it is there.
    pub(super) known: Option<&'a ScheduleGroup>,
    pub(super) now: Timestamp,
    /// Its record with what is said of its move, where moves of the group go through their machine.
    pub(super) recorded: Option<Recorded>,
}

impl<'a> GroupContext<'a> {
    /// Gathers what is seen of a group.
    pub(super) fn new(store: &'a Store, name: &'a str, decided: Option<&'a Decided>, now: Timestamp) -> Self {
        let members = store.members.get(name).into_iter().flatten().collect();
        Self {
            store,
            name,
            members,
            decided,
            policy: store.policy_of(name),
            known: store.groups.get(name),
            now,
            recorded: None,
        }
    }

    /// Returns the status that is recorded.
    pub(super) fn known_status(&self) -> Option<&'a ScheduleGroupStatus> {
        self.known.and_then(|group| group.status.as_ref())
    }

    /// Returns whether the policy says that nothing is dispatched.
    pub(super) fn is_suspended(&self) -> bool {
        self.decided.is_some_and(|decided| decided.suspended)
    }

    /// Returns the decision, where it is carried out.
    pub(super) fn active_decision(&self) -> Option<&'a Decided> {
        self.decided.filter(|decided| !decided.suspended)
    }

    /// Returns the clusters of a decision to which a member is copied. What a divided group cannot divide goes to one.
    pub(super) fn member_targets<'d>(&self, decided: &'d Decided, key: &ObjectKey) -> BTreeSet<&'d str> {
        let Some(facts) = self.store.source_facts(key) else { return BTreeSet::new() };
        let targets = decided.targets.iter().filter(|target| live::has_copy_in_target(target, facts));
        targets.map(|target| target.cluster.as_str()).collect()
    }

    /// Returns whether no policy matches a member any more: its copies are kept where they are.
    pub(super) fn is_left(&self, key: &ObjectKey) -> bool {
        matches!(self.store.assignments.get(key), Some(Assignment::Left(_)))
    }
}
