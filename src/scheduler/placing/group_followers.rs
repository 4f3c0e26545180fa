//! What belongs to a group and is not in it: autoscalers of what is placed, and claims that members mount.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::store::{Assignment, Store};
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::matching::Match;

impl Store {
    /// Returns the autoscalers in the namespaces of a group's members that are placed, and the claims that members
    /// mount; except for those that are members.
    pub(super) fn followers_of(&self, group: &str) -> Vec<&Facts> {
        let members = self.members.get(group);
        let namespaces: BTreeSet<&str> = members.into_iter().flatten().map(ObjectKey::namespace).collect();
        let firsts = namespaces.into_iter().map(|namespace| scaler_key(namespace, ""));
        let found = firsts.flat_map(|first| {
            let all = self.sources.range(first.clone()..);
            all.take_while(move |(key, _)| key.as_str().starts_with(first.as_str()))
        });
        let others = found.filter(|(key, _)| members.is_none_or(|members| !members.contains(*key)));
        let scalers = others.filter(|(key, _)| self.is_placed(key)).map(|(_, source)| &*source.facts);
        let mounted =
            members.into_iter().flatten().filter_map(|key| self.source_facts(key)).flat_map(Facts::mounted_claims);
        let claims: BTreeSet<ObjectKey> =
            mounted.filter(|key| members.is_none_or(|members| !members.contains(key))).collect();
        scalers.chain(claims.iter().filter_map(|key| self.source_facts(key))).collect()
    }

    /// Returns the group of what an autoscaler scales, whoever decides about the autoscaler itself.
    pub(super) fn scaled_group(&self, key: &ObjectKey) -> Option<&String> {
        let source = self.sources.get(key).filter(|source| source.facts.scales.is_some())?;
        match self.assignments.get(source.relations.belongs_to.first()?)? {
            Assignment::Group(group) => Some(group),
            _ => None,
        }
    }

    /// Decides again about what an autoscaler scales: its copies leave the number of replicas to it.
    pub(super) fn mark_scaled_group(&mut self, key: &ObjectKey, now: Instant) {
        if let Some(group) = self.scaled_group(key).cloned() {
            self.mark_undecided(group, now);
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
