//! Conditions of a group beside Scheduled: whether it moves, what keeps it from moving (in `move_blocked`), and what its
//! pods lack.

use std::collections::BTreeSet;

use super::decide::Decided;
use super::group_context::GroupContext;
use super::place::cluster_of;
use crate::api::crd::condition;
use crate::api::crd::group::conditions::{DEPENDENCIES_PLACED, MOVE_BLOCKED, MOVING};
use crate::api::{Condition, ScheduleGroupStatus};
use crate::placement::explain;
use crate::placement::facts::ObjectKey;
use crate::placement::follow::MissingFollower;

/// Most missing objects that are counted: the message names three.
const MISSING: usize = 1_000;

impl GroupContext<'_> {
    /// Clusters with copies of a group that is placed elsewhere by now.
    fn clusters_with_old_copies(&self) -> BTreeSet<String> {
        let Some(decided) = self.active_decision().filter(|decided| decided.scheduled) else {
            return BTreeSet::new();
        };
        // What its data keeps does not move, nor what no policy matches any more; namespaces are deleted when nothing is left
        // in them.
        let stays = |key: &ObjectKey| self.store.is_held_by_volumes(key) || self.is_left(key);
        let moving = self.members.iter().filter(|key| !key.is_of_kind("", "Namespace") && !stays(key));
        let copies = moving.flat_map(|key| self.store.copies_of(key).map(move |(at, one)| (key, cluster_of(at), one)));
        // What is there because something uses it stays as long as that.
        let old = copies.filter(|(key, cluster, schedule)| {
            schedule.metadata.deletion_timestamp.is_none()
                && !schedule.spec.follows
                && !self.store.follow.is_used_in(key, cluster)
        });
        let clusters = old.map(|(_, cluster, _)| cluster);
        let targets: BTreeSet<&str> = decided.targets.iter().map(|target| target.cluster.as_str()).collect();
        clusters.filter(|cluster| !targets.contains(cluster)).map(ToOwned::to_owned).collect()
    }

    /// Returns the objects that the pods of a group cannot start without and that are not placed in its clusters.
    fn find_missing_objects(&self, decided: &Decided) -> Vec<&MissingFollower> {
        let missing = self.members.iter().flat_map(|key| self.store.follow.missing_of(key));
        missing.filter(|missing| decided.has_target(&missing.cluster)).take(MISSING).collect()
    }

    /// Sets the conditions; those that do not apply are absent.
    pub(super) fn set_group_conditions(&self, status: &mut ScheduleGroupStatus) {
        let mut found: Vec<(&str, bool, &str, String)> = Vec::new();
        let left = self.clusters_with_old_copies();
        if let Some(recorded) = &self.recorded {
            found.extend(recorded.moving.clone().map(|(reason, message)| (MOVING, true, reason, message)));
        } else if !left.is_empty() {
            let message = format!(
                "from {} to {}: the old copies are deleted when the new ones are available",
                left.into_iter().collect::<Vec<_>>().join(", "),
                status.target_clusters.join(", ")
            );
            found.push((MOVING, true, "Moving", message));
        }
        if let Some(decided) = self.decided {
            found.extend(self.find_move_blocked(decided).map(|(reason, text)| (MOVE_BLOCKED, true, reason, text)));
            let mut facts = self.members.iter().filter_map(|key| self.store.source_facts(key));
            if !decided.targets.is_empty() && facts.any(|facts| !facts.references.is_empty()) {
                let missing = self.find_missing_objects(decided);
                let (holds, reason) = if missing.is_empty() { (true, "AllPlaced") } else { (false, "Missing") };
                found.push((DEPENDENCIES_PLACED, holds, reason, explain::format_missing_followers(&missing)));
            }
        }
        let ours = [MOVING, MOVE_BLOCKED, DEPENDENCIES_PLACED];
        status
            .conditions
            .retain(|one| !ours.contains(&one.type_.as_str()) || found.iter().any(|(type_, ..)| *type_ == one.type_));
        for (type_, holds, reason, message) in found {
            condition::set_condition(
                &mut status.conditions,
                Condition::new(type_, holds, reason, explain::shorten_event_text(message), self.now),
            );
        }
    }
}
