//! From the state to a decision and back: what the pure functions are asked, and what is kept of their answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::state::{Assignment, State, Unit, cluster_of};
use crate::api::Cluster;
use crate::api::cluster::conditions;
use crate::api::condition::{Condition, find};
use crate::api::group::{ClusterRow, DecisionRecord};
use crate::api::labels::LABEL_NAME;
use crate::placement::copy::Share;
use crate::placement::facts::ObjectKey;
use crate::placement::matching::{Direct, Match, Policy};
use crate::scheduler::index::Index;

/// Most rows of clusters that a group shows.
pub(super) const ROWS: usize = 50;

/// A cluster that a group goes to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) cluster: String,
    /// The part of each member that runs there; the whole of those that are not in it.
    pub(super) shares: BTreeMap<ObjectKey, Share>,
}

/// A decision about a group, as it is recorded.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decided {
    pub(super) scheduled: bool,
    /// Its policy says that nothing is dispatched.
    pub(super) suspended: bool,
    /// Reason and message of the condition `Scheduled`.
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) targets: Vec<Target>,
    pub(super) rows: Vec<ClusterRow>,
    pub(super) record: DecisionRecord,
}

/// The clusters as they were last looked at.
#[derive(Default)]
pub(super) struct Clusters {
    known: BTreeMap<String, Arc<Cluster>>,
}

impl Clusters {
    /// Looks at the clusters, and marks the groups for which a change matters.
    pub(super) fn refresh(&mut self, index: &Index, state: &mut State, now: Instant) {
        let new: BTreeMap<String, Arc<Cluster>> =
            index.clusters().into_iter().map(|cluster| (cluster.name_any(), cluster)).collect();
        let mut changed: Vec<&str> = Vec::new();
        for (name, cluster) in &new {
            if self.known.get(name).is_none_or(|old| eligibility(old) != eligibility(cluster)) {
                changed.push(name);
            }
        }
        changed.extend(self.known.keys().filter(|name| !new.contains_key(*name)).map(String::as_str));
        if changed.is_empty() {
            return;
        }
        // What has a place in one of them, and what has none.
        let is_concerned = |name: &str| {
            state.groups.get(name).and_then(|group| group.status.as_ref()).is_none_or(|status| {
                !status.scheduled || status.target_clusters.iter().any(|target| changed.contains(&target.as_str()))
            })
        };
        let concerned: Vec<String> = state.members.keys().filter(|name| is_concerned(name)).cloned().collect();
        let direct: Vec<ObjectKey> = state
            .assignments
            .iter()
            .filter(|(_, assignment)| **assignment == Assignment::Direct)
            .map(|(key, _)| key.clone())
            .collect();
        self.known = new;
        for name in concerned {
            state.undecided.insert(name.clone());
            state.mark(Unit::Group(name), now);
        }
        for key in direct {
            state.mark(Unit::Object(key), now);
        }
    }
}

/// What decides whether a cluster may be chosen.
fn eligibility(cluster: &Cluster) -> (Option<&str>, BTreeMap<String, String>, bool, bool, bool, String) {
    let taints = serde_json::to_string(&cluster.spec.taints).unwrap_or_default();
    let uid = cluster.metadata.uid.as_deref();
    (uid, cluster.labels().clone(), is_ready(cluster), cluster.spec.accepted, is_leaving(cluster), taints)
}

fn is_ready(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.and_then(|status| find(&status.conditions, conditions::READY)).is_some_and(Condition::is_true)
}

fn is_leaving(cluster: &Cluster) -> bool {
    let asked = cluster.status.as_ref().and_then(|status| status.leave_requested);
    cluster.metadata.deletion_timestamp.is_some() || asked == Some(true)
}

/// Decides about a group; `None` where no policy matches any of its members any more.
pub(super) fn group(state: &State, clusters: &Clusters, name: &str, now: Timestamp) -> Option<Decided> {
    let members: Vec<&ObjectKey> = state.members.get(name).into_iter().flatten().collect();
    let policy = members.iter().find_map(|key| match state.evaluate(key) {
        Some(Match::Policy { policy, .. }) => Some(policy),
        _ => None,
    })?;
    let here: Option<String> =
        members.iter().flat_map(|key| state.copies_of(key)).map(|(at, _)| cluster_of(at).to_owned()).next();
    let mut rows: Vec<ClusterRow> = Vec::new();
    let mut rejected: BTreeMap<String, i32> = BTreeMap::new();
    let mut fit: Vec<&str> = Vec::new();
    for (name, cluster) in &clusters.known {
        let reason = reason_against(policy, cluster);
        match reason {
            None => fit.push(name),
            Some(reason) => {
                *rejected.entry(reason.clone()).or_default() += 1;
                rows.push(ClusterRow {
                    name: name.clone(),
                    state: "Rejected".to_owned(),
                    reason,
                    ..ClusterRow::default()
                });
            }
        }
    }
    let chosen = here.or_else(|| fit.first().map(|name| (*name).to_owned()));
    let record = DecisionRecord {
        time: Some(Time(now)),
        how: if chosen.is_some() { "Room".to_owned() } else { String::new() },
        candidates: i32::try_from(clusters.known.len()).unwrap_or(i32::MAX),
        rejected,
        policy_hash: String::new(),
    };
    if let Some(name) = &chosen {
        rows.insert(0, ClusterRow { name: name.clone(), state: "Target".to_owned(), ..ClusterRow::default() });
    }
    let reason = if chosen.is_some() { "Placed" } else { "NoCandidates" };
    Some(Decided {
        scheduled: chosen.is_some(),
        suspended: policy.spec.suspend,
        reason: reason.to_owned(),
        message: String::new(),
        targets: chosen.into_iter().map(|cluster| Target { cluster, shares: BTreeMap::new() }).collect(),
        rows,
        record,
    })
}

fn reason_against(policy: &Policy, cluster: &Cluster) -> Option<String> {
    let name = cluster.name_any();
    let label = |key: &str| {
        if key == LABEL_NAME { Some(name.as_str()) } else { cluster.labels().get(key).map(String::as_str) }
    };
    let reason = if is_leaving(cluster) {
        "Leaving"
    } else if !cluster.spec.accepted {
        "NotAccepted"
    } else if !policy.clusters.matches(label) {
        "SelectorMismatch"
    } else if !is_ready(cluster) {
        "NotReady"
    } else {
        return None;
    };
    Some(reason.to_owned())
}

/// Decides where an object goes whose own annotation says so.
pub(super) fn direct(state: &State, clusters: &Clusters, key: &ObjectKey) -> Vec<(String, Option<Share>)> {
    let Some(Match::Annotation { direct: Direct::Cluster(name), .. }) = state.evaluate(key) else { return Vec::new() };
    let known = clusters.known.get(&name).filter(|cluster| !is_leaving(cluster) && cluster.spec.accepted);
    known.into_iter().map(|_| (name.clone(), None)).collect()
}
