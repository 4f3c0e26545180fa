//! Objects whose own annotation names their clusters: no policy, no group, and no room is asked for.

use std::collections::{BTreeMap, BTreeSet};

use super::Share;
use crate::placement::divide::{Domain, Ties, divide_job, divide_replicas};
use crate::placement::facts::{Facts, ObjectKey, Workload};
use crate::placement::fleet::Fleet;
use crate::placement::matching::Direct;
use crate::placement::reason::Reason;
use crate::placement::selector::find_untolerated;

/// Reason that a named cluster gets nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// No cluster has this name.
    ClusterUnknown,
    /// The cluster is fenced.
    Fenced(Reason),
}

impl Blocked {
    /// Returns the reason as events name it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ClusterUnknown => "ClusterUnknown",
            Self::Fenced(reason) => reason.code(),
        }
    }
}

impl std::fmt::Display for Blocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ClusterUnknown => f.write_str("ClusterUnknown"),
            Self::Fenced(reason) => write!(f, "{reason}"),
        }
    }
}

/// One cluster that gets a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectTarget {
    /// The cluster.
    pub cluster: String,
    /// Its share; absent for a whole copy.
    pub share: Option<Share>,
}

/// Targets of an object by its own annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectDecision {
    /// The object.
    pub object: ObjectKey,
    /// The targets, in the order of the annotation.
    pub targets: Vec<DirectTarget>,
    /// Named clusters that get nothing, and why.
    pub blocked: BTreeMap<String, Blocked>,
    /// Blocked clusters in which a copy that exists stays: only a cluster that is drained, leaving or gone loses it.
    pub frozen: BTreeSet<String>,
    /// Replicas that no target gets; absent for what is not divided.
    pub withheld: Option<i64>,
}

/// The fences hold for annotations too: a cluster must be known, accepted, not leaving and without a taint that keeps
/// work away.
fn check_named_cluster(fleet: &Fleet, name: &str) -> Option<Blocked> {
    let Some(cluster) = fleet.get(name) else { return Some(Blocked::ClusterUnknown) };
    let reason = if cluster.leaving {
        Reason::Leaving
    } else if !cluster.accepted {
        Reason::NotAccepted
    } else {
        Reason::Tainted(find_untolerated(&cluster.taints, &[])?.key.as_str().into())
    };
    Some(Blocked::Fenced(reason))
}

/// Returns whether a fence of a cluster concerns only what is new.
fn keeps_its_copies(fleet: &Fleet, name: &str) -> bool {
    fleet
        .get(name)
        .is_some_and(|cluster| !cluster.leaving && cluster.taints.iter().all(|taint| taint.effect != "NoExecute"))
}

/// Decides where an object goes by its own annotation; `current` is what each cluster has of it.
pub fn decide_direct(facts: &Facts, direct: &Direct, fleet: &Fleet, current: &BTreeMap<String, i64>) -> DirectDecision {
    let (names, divides) = match direct {
        Direct::Cluster(name) => (std::slice::from_ref(name), false),
        Direct::SpreadOnto(onto) if onto.duplicate => (onto.clusters.as_slice(), false),
        Direct::SpreadOnto(onto) if facts.workload.is_undividable() => {
            (&onto.clusters[..onto.clusters.len().min(1)], false)
        }
        Direct::SpreadOnto(onto) => (onto.clusters.as_slice(), facts.workload.is_dividable()),
    };
    let blocked: BTreeMap<String, Blocked> =
        names.iter().filter_map(|name| Some((name.clone(), check_named_cluster(fleet, name)?))).collect();
    let frozen = blocked.keys().filter(|name| keeps_its_copies(fleet, name)).cloned().collect();
    let mut decision =
        DirectDecision { object: facts.key.clone(), targets: Vec::new(), blocked, frozen, withheld: None };
    let shares =
        if divides { divide_direct_shares(facts, names, current, &mut decision) } else { vec![None; names.len()] };
    for (name, share) in names.iter().zip(shares) {
        let is_empty = matches!(share, Some(Share::Replicas(0) | Share::Job { completions: 0, .. }));
        // An object that is scaled to nothing keeps its copies.
        if !decision.blocked.contains_key(name) && (!is_empty || facts.workload.pods_at_once() == 0) {
            decision.targets.push(DirectTarget { cluster: name.clone(), share });
        }
    }
    decision
}

/// Divides evenly over all named clusters, ties to the earlier name; what is for a blocked one is withheld. What each cluster
/// has counts only for a Job, whose copies cannot change: replicas would otherwise stay where they went while another cluster
/// was blocked.
fn divide_direct_shares(
    facts: &Facts,
    names: &[String],
    current: &BTreeMap<String, i64>,
    decision: &mut DirectDecision,
) -> Vec<Option<Share>> {
    let is_job = matches!(facts.workload, Workload::Job { .. });
    let prev = names.iter().map(|name| current.get(name).copied().filter(|_| is_job).unwrap_or_default());
    let prev: Vec<i64> = prev.collect();
    let domains: Vec<Domain<'_>> =
        names.iter().zip(&prev).map(|(name, prev)| Domain { value: name, weight: 1, prev: *prev, cap: None }).collect();
    let (n, parallelism) = match facts.workload {
        Workload::Job { completions, parallelism, .. } => (completions.unwrap_or_default(), Some(parallelism)),
        other => (other.pods_at_once(), None),
    };
    let division = divide_replicas(n, &domains, Ties::Listed);
    let blocked = names.iter().zip(&division.replicas).filter(|(name, _)| decision.blocked.contains_key(*name));
    decision.withheld = Some(division.withheld + blocked.map(|(_, replicas)| replicas).sum::<i64>());
    match parallelism {
        Some(parallelism) => divide_job(&division, parallelism, &domains, Ties::Listed).into_iter().map(Some).collect(),
        None => division.replicas.into_iter().map(|replicas| Some(Share::Replicas(replicas))).collect(),
    }
}
