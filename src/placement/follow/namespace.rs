//! What a plan says about one namespace, or about what has none.

use std::collections::{BTreeMap, BTreeSet};

use super::kinds::is_follower;
use super::plan::{FollowPlan, Follower, MissingFollower, PlaceState, Wait};
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::matching::{Match, Policies, Policy};
use crate::placement::names::GroupKey;

/// Plan of one namespace.
#[derive(Debug, Default, PartialEq)]
pub struct NamespacePlan {
    /// Followers that have a place or wait for one.
    pub followers: BTreeMap<ObjectKey, Follower>,
    /// Followers that their policies decide about, in groups without anything that is decided.
    pub alone: BTreeSet<ObjectKey>,
    /// Clusters that claims leave to groups.
    pub only: BTreeMap<String, BTreeSet<String>>,
    /// What pods cannot start without and is not there, by the object whose pods name it.
    pub missing: BTreeMap<ObjectKey, Vec<MissingFollower>>,
}

impl NamespacePlan {
    /// Takes from a plan what it says about a namespace; `group_of` names the group of an object that is decided.
    pub fn from_plan(
        plan: FollowPlan,
        namespace: &str,
        elsewhere: &BTreeSet<(String, String)>,
        group_of: impl Fn(&ObjectKey) -> Option<String>,
    ) -> Self {
        let mut found = Self::default();
        for group in plan.groups {
            if let Some(first) = group.decided.first() {
                let only = group.only.filter(|_| !namespace.is_empty());
                found.only.extend(group_of(first).zip(only));
            } else if !elsewhere.contains(&(group.policy, group.key.as_str().to_owned())) {
                found.alone.extend(group.followers.into_iter().filter(|key| is_planned_for(namespace, key)));
            }
        }
        found.followers = plan.followers.into_iter().filter(|(key, _)| is_planned_for(namespace, key)).collect();
        for missing in plan.missing.into_iter().filter(|missing| is_planned_for(namespace, &missing.user)) {
            found.missing.entry(missing.user.clone()).or_default().push(missing);
        }
        found
    }

    /// Returns whether a copy waits until what runs pods is settled.
    pub fn has_lingering(&self) -> bool {
        let mut places = self.followers.values().flat_map(|follower| follower.places.values());
        places.any(|place| place.state == PlaceState::Lingers)
    }

    /// Returns whether a follower waits until its namespace is quiet.
    pub fn waits_for_quiet(&self) -> bool {
        self.followers.values().any(|follower| follower.waits == Some(Wait::Quiet))
    }

    /// Returns the groups that have other clusters left than by a former plan.
    pub fn changed_pins(&self, before: &Self) -> BTreeSet<String> {
        let groups = self.only.keys().chain(before.only.keys());
        groups.filter(|group| self.only.get(*group) != before.only.get(*group)).cloned().collect()
    }
}

/// Returns the clusters that claims of several namespaces leave to a group; `None` where none pins it.
pub fn find_claimed_clusters<'p>(
    plans: impl Iterator<Item = &'p NamespacePlan>,
    group: &str,
) -> Option<BTreeSet<String>> {
    plans
        .filter_map(|plan| plan.only.get(group))
        .cloned()
        .reduce(|only, set| only.intersection(&set).cloned().collect())
}

/// Returns the groups over several namespaces that have members outside of this one, by policy and key. `members` are all
/// objects that are in a group, and `labels` gives those of a namespace.
pub fn find_groups_elsewhere<'f, 'l>(
    policies: &Policies,
    namespace: &str,
    members: impl Iterator<Item = &'f Facts>,
    labels: impl Fn(&str) -> &'l BTreeMap<String, String>,
) -> BTreeSet<(String, String)> {
    // With an empty name everything is planned.
    if namespace.is_empty() || !policies.iter().any(groups_across_namespaces) {
        return BTreeSet::new();
    }
    let decided = members.filter(|facts| !is_follower(&facts.key) && facts.key.namespace() != namespace);
    let groups = decided.filter_map(|facts| match policies.match_object(facts, labels(facts.key.namespace())) {
        Match::Policy { policy, .. } if groups_across_namespaces(policy) => {
            Some((policy.name.clone(), GroupKey::new(facts, policy).as_str().to_owned()))
        }
        _ => None,
    });
    groups.collect()
}

fn groups_across_namespaces(policy: &Policy) -> bool {
    policy.spec.group_by.as_ref().is_some_and(|by| by.across_namespaces)
}

fn is_planned_for(namespace: &str, key: &ObjectKey) -> bool {
    key.namespace() == namespace && !key.is_of_kind("", "Namespace")
}
