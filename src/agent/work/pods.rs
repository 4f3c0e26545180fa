//! Pods of copies, by the chain of controllers from the pod up to the copy: selectors would count strangers' pods as well.

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::task::CopyKey;
use super::watch::Change;
use crate::agent::inventory::pods::OwnedPods;
use crate::api::crd::schedule::PodCounts;
use crate::api::placeable::{self, Placeable};

/// Longest chain that is followed: pod, Job, CronJob, and one to spare.
const LONGEST: usize = 3;

/// Controllers of ReplicaSets and Jobs, by UID.
#[derive(Debug, Default)]
pub struct Owners {
    /// By the name of the kind in paths: UID → UID of the controller.
    of: HashMap<&'static str, HashMap<String, String>>,
    /// Kinds of which the list is complete.
    listed: HashSet<&'static str>,
}

impl Owners {
    /// Takes a change of objects of one kind, each with the UID of its controller if it has one.
    pub fn take_owner_change(&mut self, kind: &'static str, change: Change<(String, Option<String>)>) {
        let known = self.of.entry(kind).or_default();
        match change {
            Change::All(all) => {
                self.listed.insert(kind);
                *known = all.into_iter().filter_map(|(uid, owner)| Some((uid, owner?))).collect();
            }
            Change::One((uid, Some(owner))) => {
                known.insert(uid, owner);
            }
            Change::One((uid, None)) | Change::Gone((uid, _)) => {
                known.remove(&uid);
            }
        }
    }

    /// Returns whether the chains from pods to copies of this kind are known: before, their pods would count as none.
    pub fn are_listed_for(&self, key: &CopyKey) -> bool {
        owner_between(key.group, key.kind).is_none_or(|between| self.listed.contains(between.plural))
    }

    /// Returns the last controller of a chain.
    pub fn root_owner<'u>(&'u self, uid: &'u str) -> &'u str {
        let mut root = uid;
        for _ in 0..LONGEST {
            match self.of.values().find_map(|known| known.get(root)) {
                Some(owner) => root = owner,
                None => break,
            }
        }
        root
    }
}

/// Returns the kind that lies between copies of a kind and their pods.
pub fn owner_between(group: &str, kind: &str) -> Option<&'static Placeable> {
    match (group, kind) {
        ("apps", "Deployment") => placeable::find_builtin_kind("apps", "ReplicaSet"),
        ("batch", "CronJob") => placeable::find_builtin_kind("batch", "Job"),
        _ => None,
    }
}

/// Pods of one copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Pods with a node.
    pub bound: i64,
    /// Pods without one.
    pub unbound: i64,
    /// Pods of the inventory that was published last.
    pub counted: i64,
    /// Earliest time since which one is unschedulable.
    pub unschedulable_since: Option<Timestamp>,
}

impl Count {
    /// Returns the reported pod counts of a copy with `desired` pods. A CronJob has no desired count of its own: the
    /// pods that exist are reported as desired.
    pub fn to_pod_counts(self, desired: i64, only_makes_others: bool) -> PodCounts {
        PodCounts {
            desired: if only_makes_others { self.bound + self.unbound } else { desired },
            bound: self.bound,
            counted: self.counted,
            unschedulable_since: self.unschedulable_since.map(|since| Time(super::status::truncate_to_seconds(since))),
        }
    }
}

/// Counts pods by the UID at the end of their chains.
pub fn count_pods_by_root(owners: &Owners, pods: &OwnedPods) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for (uid, number) in &pods.bound {
        counts.entry(owners.root_owner(uid)).or_default().bound += number;
    }
    for (uid, number) in pods.published.iter().flat_map(|published| published.iter()) {
        counts.entry(owners.root_owner(uid)).or_default().counted += number;
    }
    for (uid, (number, since)) in &pods.unbound {
        let count = counts.entry(owners.root_owner(uid)).or_default();
        count.unbound += number;
        count.unschedulable_since = [count.unschedulable_since, *since].into_iter().flatten().min();
    }
    counts.into_iter().map(|(uid, count)| (uid.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn owned_uid(uid: &str, owner: &str) -> (String, Option<String>) {
        (uid.to_owned(), Some(owner.to_owned()))
    }

    fn numbers_by_uid(all: &[(&str, i64)]) -> BTreeMap<String, i64> {
        all.iter().map(|(uid, number)| ((*uid).to_owned(), *number)).collect()
    }

    #[test]
    fn pods_are_counted_by_the_end_of_their_chain() {
        let [deployment, nightly, stateful_set, foreign] =
            [("apps", "Deployment"), ("batch", "CronJob"), ("apps", "StatefulSet"), ("example.com", "Deployment")]
                .map(|(group, kind)| CopyKey { group, kind, namespace: Some("n".to_owned()), name: "x".to_owned() });
        let mut owners = Owners::default();
        assert!(!owners.are_listed_for(&deployment) && owners.are_listed_for(&stateful_set));
        assert!(owners.are_listed_for(&foreign), "a kind of others has no such chain");
        owners.take_owner_change(
            "replicasets",
            Change::All(vec![owned_uid("old", "web"), owned_uid("new", "web"), ("bare".to_owned(), None)]),
        );
        owners.take_owner_change("jobs", Change::One(owned_uid("tonight", "nightly")));
        assert!(owners.are_listed_for(&deployment) && !owners.are_listed_for(&nightly));
        let [early, late] = [10, 20].map(|seconds| Timestamp::from_second(seconds).unwrap());
        let pods = OwnedPods {
            bound: numbers_by_uid(&[("old", 1), ("new", 2), ("bare", 4), ("tonight", 1)]),
            unbound: [("new", (2, Some(late))), ("old", (1, Some(early))), ("tonight", (1, None))]
                .map(|(uid, pods)| (uid.to_owned(), pods))
                .into(),
            published: Some(Arc::new(numbers_by_uid(&[("old", 3), ("gone", 1)]))),
            unready: Vec::new(),
        };
        let counts = count_pods_by_root(&owners, &pods);
        let web = Count { bound: 3, unbound: 3, counted: 3, unschedulable_since: Some(early) };
        assert_eq!((counts["web"], counts["bare"].bound), (web, 4));
        assert_eq!(counts["nightly"].to_pod_counts(0, true).desired, 2);
        assert_eq!(counts["web"].to_pod_counts(5, false).desired, 5);
        owners.take_owner_change("replicasets", Change::Gone(owned_uid("old", "web")));
        assert_eq!(count_pods_by_root(&owners, &pods)["web"].bound, 2);
    }
}
