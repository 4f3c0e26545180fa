//! What belongs to a group and is not in it: autoscalers of what is placed, and claims that members mount.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::queue::Cause;
use super::store::{Assignment, Store};
use crate::placement::facts::{Facts, ObjectKey, Scales};
use crate::placement::matching::Match;

impl Store {
    /// Returns the autoscalers in the namespaces of a group's members that are placed, and the claims that members
    /// mount; except for those that are members.
    pub(super) fn followers_of(&self, group: &str) -> Vec<&Facts> {
        let members = self.members.get(group);
        let namespaces: BTreeSet<&str> = members.into_iter().flatten().map(ObjectKey::namespace).collect();
        let scalers = namespaces.into_iter().flat_map(|namespace| self.placed_scalers(namespace));
        let scalers = scalers.filter(|facts| members.is_none_or(|members| !members.contains(&facts.key)));
        let mounted =
            members.into_iter().flatten().filter_map(|key| self.source_facts(key)).flat_map(Facts::mounted_claims);
        let claims: BTreeSet<ObjectKey> =
            mounted.filter(|key| members.is_none_or(|members| !members.contains(key))).collect();
        scalers.chain(claims.iter().filter_map(|key| self.source_facts(key))).collect()
    }

    /// Returns the autoscalers of a namespace that are placed.
    fn placed_scalers(&self, namespace: &str) -> impl Iterator<Item = &Facts> {
        let first = scaler_key(namespace, "");
        let all = self.sources.range(first.clone()..);
        let scalers = all.take_while(move |(key, _)| key.as_str().starts_with(first.as_str()));
        scalers.filter(|(key, _)| self.is_placed(key)).map(|(_, source)| &*source.facts)
    }

    /// Returns what the autoscaler of an object asks for, if one is placed.
    pub(super) fn placed_scaler_of(&self, key: &ObjectKey) -> Option<&Scales> {
        let mut scalers = self.placed_scalers(key.namespace()).filter_map(|facts| facts.scales.as_ref());
        scalers.find(|scales| scales.is_target(key))
    }

    /// Returns what an autoscaler scales.
    fn scaled_object(&self, key: &ObjectKey) -> Option<&ObjectKey> {
        let source = self.sources.get(key).filter(|source| source.facts.scales.is_some())?;
        source.relations.belongs_to.first()
    }

    /// Returns the group of what an autoscaler scales, whoever decides about the autoscaler itself.
    pub(super) fn scaled_group(&self, key: &ObjectKey) -> Option<&String> {
        match self.assignments.get(self.scaled_object(key)?)? {
            Assignment::Group(group) => Some(group),
            _ => None,
        }
    }

    /// Decides again about what an autoscaler scales: its copies leave the number of replicas to it.
    pub(super) fn mark_scaled_object(&mut self, key: &ObjectKey, now: Instant) {
        if let Some(group) = self.scaled_group(key).cloned() {
            self.mark_undecided(group, now);
        } else if let Some(scaled) = self.scaled_object(key).cloned() {
            self.mark_owner(&scaled, Cause::Review, now);
        }
    }

    /// Returns whether anything places an object.
    fn is_placed(&self, key: &ObjectKey) -> bool {
        match self.assignments.get(key) {
            Some(Assignment::Direct | Assignment::Group(_) | Assignment::Left(_)) => true,
            Some(Assignment::Follows) => {
                self.copies.contains_key(key) || matches!(self.evaluate_object(key), Some(Match::Policy { .. }))
            }
            _ => false,
        }
    }
}

fn scaler_key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new("autoscaling", "HorizontalPodAutoscaler", namespace, name)
}
