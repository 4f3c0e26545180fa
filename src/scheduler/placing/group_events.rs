//! Events about a group and its members: once a change.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;

use super::decide::Decided;
use super::events::event_about;
use super::group_context::GroupContext;
use super::place::{cluster_of, referenced_key};
use super::source::Source;
use super::write::Write;
use crate::api::crd::condition;
use crate::api::crd::group::conditions::{MOVING, SCHEDULED};
use crate::api::{Condition, ScheduleGroup, ScheduleGroupStatus};
use crate::placement::explain;
use crate::placement::facts::ObjectKey;
use crate::placement::live;
use crate::placement::matching::Match;

impl GroupContext<'_> {
    /// The events of a decision: for members that are new in the group, and for a place that was found or is missing.
    pub(super) fn events(&self, new: &ScheduleGroupStatus) -> Vec<Write> {
        let (store, name, old) = (self.store, self.name, self.known_status());
        let mut events = Vec::new();
        let known: BTreeSet<ObjectKey> = old.into_iter().flat_map(|old| &old.object_refs).map(referenced_key).collect();
        for key in self.members.iter().filter(|key| !known.contains(**key)) {
            let (Some(source), Some(Match::Policy { policy, losers })) =
                (store.sources.get(*key), store.evaluate_object(key))
            else {
                continue;
            };
            for (reason, text) in [
                ("SchedulePolicyMatched", explain::format_matched_policy(policy, &losers)),
                ("AddedToScheduleGroup", explain::format_added_to_group(name, policy, &source.facts)),
            ] {
                events.push(event_about(source.address.event_reference(), false, reason, &text));
            }
        }
        let is_moved = old.is_none_or(|old| !old.scheduled || old.target_clusters != new.target_clusters);
        let Some(decided) = self.active_decision().filter(|decided| !decided.waits) else { return events };
        let before = old.and_then(|old| condition::find_condition(&old.conditions, SCHEDULED));
        if decided.scheduled {
            if is_moved {
                events.push(event_about(
                    group_reference(name),
                    false,
                    "ScheduleGroupSyncedToWorkloadCluster",
                    &decided.message,
                ));
            }
            for key in self.members.iter().filter(|key| is_moved || !known.contains(**key)) {
                let Some(source) = store.sources.get(*key) else { continue };
                if let Some((reason, text)) = spread_event(source, decided) {
                    events.push(event_about(source.address.event_reference(), false, reason, &text));
                }
            }
            let (was, moving) = (old.and_then(find_moving_condition), find_moving_condition(new));
            if self.recorded.is_none()
                && let Some(moving) = moving.filter(|new| was.is_none_or(|was| was.message != new.message))
            {
                events.push(event_about(group_reference(name), false, MOVING, &format!("Moves {}", moving.message)));
                events.extend(self.restart_events(decided));
            }
            if let Some(was) = was.filter(|_| self.recorded.is_none() && moving.is_none()) {
                let way = was.message.split(':').next().unwrap_or_default();
                events.push(event_about(
                    group_reference(name),
                    false,
                    "Moved",
                    &format!("Moved {way}: the old copies are deleted"),
                ));
            }
            if is_outgrown(new) && !old.is_some_and(is_outgrown) {
                events.push(event_about(group_reference(name), true, "Outgrown", &decided.message));
            }
        } else if before.is_none_or(|before| before.reason != decided.reason || before.message != decided.message) {
            events.push(event_about(group_reference(name), true, "NotPlaced", &decided.message));
            for source in self.members.iter().filter_map(|key| store.sources.get(*key)) {
                events.push(event_about(source.address.event_reference(), true, "NotPlaced", &decided.message));
            }
        }
        events
    }

    /// The events about Jobs and bare Pods that have begun in a drained cluster that their group leaves.
    fn restart_events(&self, decided: &Decided) -> Vec<Write> {
        let store = self.store;
        let mut events = Vec::new();
        let sources = self.members.iter().filter_map(|key| store.sources.get(*key));
        // What its data keeps does not move.
        for source in sources.filter(|source| !store.is_held_by_volumes(&source.facts.key)) {
            let begun =
                store.copies_of(&source.facts.key).filter(|(_, schedule)| live::has_begun(schedule, &source.facts));
            let mut left = begun.map(|(at, _)| cluster_of(at)).filter(|cluster| !decided.has_target(cluster));
            if let Some(cluster) = left.find(|cluster| store.drained.contains(*cluster)) {
                let text = format!("starts again elsewhere: its progress on {cluster:?} is lost");
                events.push(event_about(source.address.event_reference(), true, "Restarted", &text));
            }
        }
        events
    }
}

fn find_moving_condition(status: &ScheduleGroupStatus) -> Option<&Condition> {
    condition::find_condition(&status.conditions, MOVING)
}

fn is_outgrown(status: &ScheduleGroupStatus) -> bool {
    status.decision.as_ref().is_some_and(|one| one.how == "Outgrown")
}

/// Returns the event about a member that does not do in several clusters what it does in one.
fn spread_event(source: &Source, decided: &Decided) -> Option<(&'static str, String)> {
    let facts = &source.facts;
    let clusters = decided.targets.len();
    let divided = decided.targets.iter().filter(|target| target.replicas.contains_key(&facts.key)).count();
    let title = facts.key.format_title();
    if clusters < 2 {
        return None;
    }
    if let Some(whole) = decided.targets.iter().find(|target| target.whole.contains(&facts.key)) {
        return Some((
            "Undividable",
            format!("{title} cannot be divided: the whole object is placed on {:?}", whole.cluster),
        ));
    }
    if facts.scales.is_some() {
        let text =
            format!("minReplicas and maxReplicas of {title} apply in each of {clusters} clusters, not to their total");
        return Some(("HPALimitsPerCluster", text));
    }
    let ordinals = facts.key.is_of_kind("apps", "StatefulSet") && divided > 1;
    ordinals.then(|| {
        let name = facts.key.name();
        ("OrdinalsPerCluster", format!("the pods of {title} are numbered from {name}-0 in each of {divided} clusters"))
    })
}

pub(super) fn group_reference(group: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(ScheduleGroup::api_version(&()).into_owned()),
        kind: Some(ScheduleGroup::kind(&()).into_owned()),
        name: Some(group.to_owned()),
        ..ObjectReference::default()
    }
}
