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
use crate::api::{ScheduleGroup, ScheduleGroupStatus};
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
        let is_known = |key: &ObjectKey| known.contains(key);
        for key in self.members.iter().filter(|key| !is_known(key)) {
            let (Some(source), Some(Match::Policy { policy, losers })) =
                (store.sources.get(*key), store.evaluate_object(key))
            else {
                continue;
            };
            let about = || source.address.event_reference();
            events.push(event_about(
                about(),
                false,
                "SchedulePolicyMatched",
                &explain::format_matched_policy(policy, &losers),
            ));
            events.push(event_about(
                about(),
                false,
                "AddedToScheduleGroup",
                &explain::format_added_to_group(name, policy, &source.facts),
            ));
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
            for key in self.members.iter().filter(|key| is_moved || !is_known(key)) {
                let Some(source) = store.sources.get(*key) else { continue };
                if let Some((reason, text)) = spread_event(source, decided) {
                    events.push(event_about(source.address.event_reference(), false, reason, &text));
                }
            }
            let moving = |status: &ScheduleGroupStatus| condition::find_condition(&status.conditions, MOVING).cloned();
            if self.recorded.is_none()
                && let Some(moving) =
                    moving(new).filter(|new| old.and_then(moving).map(|old| old.message).as_ref() != Some(&new.message))
            {
                events.push(event_about(group_reference(name), false, MOVING, &format!("Moves {}", moving.message)));
                events.extend(self.restart_events(decided));
            }
            if let Some(was) = old.and_then(moving).filter(|_| self.recorded.is_none() && moving(new).is_none()) {
                let way = was.message.split(':').next().unwrap_or_default();
                events.push(event_about(
                    group_reference(name),
                    false,
                    "Moved",
                    &format!("Moved {way}: the old copies are deleted"),
                ));
            }
            let outgrown =
                |status: &ScheduleGroupStatus| status.decision.as_ref().is_some_and(|one| one.how == "Outgrown");
            if outgrown(new) && !old.is_some_and(outgrown) {
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
            let is_target = |cluster: &str| decided.targets.iter().any(|target| target.cluster == cluster);
            let mut begun =
                store.copies_of(&source.facts.key).filter(|(_, schedule)| live::has_begun(schedule, &source.facts));
            let is_stopped = |cluster: &str| !is_target(cluster) && store.drained.contains(cluster);
            if let Some((at, _)) = begun.find(|(at, _)| is_stopped(cluster_of(at))) {
                let text = format!("starts again elsewhere: its progress on {:?} is lost", cluster_of(at));
                events.push(event_about(source.address.event_reference(), true, "Restarted", &text));
            }
        }
        events
    }
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
        ("OrdinalsPerCluster", format!("the pods of {title} begin with {name}-0 in each of {divided} clusters"))
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
