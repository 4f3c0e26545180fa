//! Change of the group of what has copies already: the copies are relabelled, and a new group takes over what another one
//! has recorded, before anything is decided.
//!
//! Groups by label were once made over all namespaces. Each of the groups that are made of one now, a group for each
//! namespace, has the record of the old group before that is deleted; no copy is rewritten because of it.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use kube::api::ObjectMeta;

use super::place::{cluster_of, referenced_key};
use super::plan::Plan;
use super::store::{Assignment, Store};
use super::write::Write;
use crate::api::crd::group::PolicyRef;
use crate::api::{ScheduleGroup, ScheduleGroupSpec};
use crate::placement::facts::ObjectKey;
use crate::placement::matching::Match;
use crate::placement::names::GroupKey;

/// Plans what must be written before a group is decided; `None` where that is nothing.
pub(super) fn plan_regroup(store: &Store, name: &str) -> Option<Plan> {
    let members = store.members.get(name).into_iter().flatten();
    let members: Vec<&ObjectKey> = members.filter(|key| store.is_assigned_to_group(key)).collect();
    let record = taken_over(store, name, &members).map(|group| vec![Write::Group(Box::new(group))]);
    let copies = members.iter().flat_map(|key| store.copies_of(key)).filter(|(_, schedule)| {
        schedule.metadata.deletion_timestamp.is_none() && schedule.spec.group.as_deref() != Some(name)
    });
    let relabelled: Vec<Write> = copies
        .map(|(at, schedule)| Write::Regroup {
            cluster: cluster_of(at).to_owned(),
            name: at.1.clone(),
            uid: schedule.uid().unwrap_or_default(),
            group: name.to_owned(),
        })
        // One copy that cannot be relabelled does not keep the group waiting.
        .filter(|write| !store.refusals.is_held_back(write))
        .collect();
    let relabelled = Some(relabelled).filter(|stage| !stage.is_empty());
    // The record first: the old group stays until it is there.
    let stages: Vec<_> = record.into_iter().chain(relabelled).collect();
    (!stages.is_empty()).then(|| Plan { stages, ..Plan::default() })
}

/// Returns a group that is not there yet, with the record of the one that it takes over from.
fn taken_over(store: &Store, name: &str, members: &[&ObjectKey]) -> Option<ScheduleGroup> {
    if store.groups.contains_key(name) {
        return None;
    }
    let (_, old) = store.predecessor_group(name)?;
    let policy = store.policy_of(name)?;
    let key = GroupKey::new(store.source_facts(members.first()?)?, policy).to_spec_key();
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: old.metadata.labels.clone(),
        annotations: old.metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    let mine: BTreeSet<&ObjectKey> = members.iter().copied().collect();
    let status = old.status.clone().map(|mut status| {
        status.object_refs.retain(|one| mine.contains(&referenced_key(one)));
        status
    });
    let policy = PolicyRef { name: policy.name.clone(), namespace: None };
    Some(ScheduleGroup { metadata, spec: ScheduleGroupSpec { policy, key }, status })
}

impl Store {
    /// Returns the group over all namespaces that a group of one namespace takes over from, where that exists.
    pub(super) fn predecessor_group(&self, name: &str) -> Option<(&str, &ScheduleGroup)> {
        let member = self.members.get(name)?.iter().find(|key| self.is_assigned_to_group(key))?;
        let Some(Match::Policy { policy, .. }) = self.evaluate_object(member) else { return None };
        let before = GroupKey::new(self.source_facts(member)?, policy).across_namespaces()?;
        let printed = before.to_spec_key();
        let names = before.group_names(&policy.name);
        let mut groups = names.iter().filter_map(|name| self.groups.get_key_value(name));
        groups
            .find(|(_, group)| group.spec.key == printed && group.spec.policy.name == policy.name)
            .map(|(name, group)| (name.as_str(), group))
    }

    /// Returns whether a group without members is still needed: copies name it, or a group that takes over from it is not
    /// recorded yet.
    pub(super) fn is_needed(&self, name: &str, group: &ScheduleGroup) -> bool {
        let recorded = group.status.iter().flat_map(|status| &status.object_refs).map(referenced_key);
        let mut next = BTreeSet::new();
        for key in recorded {
            if self.copies_of(&key).any(|(_, schedule)| schedule.spec.group.as_deref() == Some(name)) {
                return true;
            }
            if let Some(Assignment::Group(group)) = self.assignments.get(&key) {
                next.extend((!self.groups.contains_key(group)).then_some(group));
            }
        }
        next.into_iter().any(|next| self.predecessor_group(next).is_some_and(|(before, _)| before == name))
            || self.has_copies(name)
    }
}
