//! The outcome of a run: what goes where, what stays free, what has no place and why, and what moves.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::placement::moves::MoveCause;

/// Outcome of a simulation. Amounts are thousandths of the unit of their resource: of a CPU, of a byte, of a pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Simulation {
    /// The clusters, in the order of their names.
    pub clusters: Vec<ClusterOutcome>,
    /// Groups, and objects that their own annotation places.
    pub placements: Vec<Placement>,
    /// Objects that go where what uses them goes, with their clusters.
    pub followers: BTreeMap<String, BTreeSet<String>>,
    /// Objects of the question that nothing places.
    pub unplaced: Vec<Unplaced>,
    /// Copies that move, are made elsewhere too, or go.
    pub moves: Vec<CopyMove>,
    /// Copies that go without a move.
    pub removals: Removals,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Copies that go without a move that replaces them first, though neither their sources nor their cluster ask for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removals {
    /// All copies of now, except for those of Namespaces and of what follows.
    pub copies: usize,
    /// Copies that go, by cluster.
    pub by_cluster: BTreeMap<String, usize>,
    /// Whether these are more than ten, and more than a tenth of all.
    pub is_mass: bool,
}

/// One cluster, before and after.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOutcome {
    /// Name.
    pub name: String,
    /// `Ready`, `NotReady`, `Drained`, `Tainted`, `NotAccepted`, `Leaving` or `Removed`.
    pub state: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Amounts of now.
    pub before: Vec<RoomAmount>,
    /// Amounts when everything is as decided.
    pub after: Vec<RoomAmount>,
    /// What is placed there now.
    pub groups_before: BTreeSet<String>,
    /// What is placed there then.
    pub groups: BTreeSet<String>,
}

/// A resource of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoomAmount {
    /// The resource.
    pub resource: String,
    /// What there is.
    pub capacity: i64,
    /// What runs there, or is kept from pods.
    pub used: i64,
    /// What is promised to pods that do not run yet.
    pub promised: i64,
    /// What is left.
    pub free: i64,
}

/// A group, or an object that its own annotation places.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Name of the group; empty of an object that its annotation places.
    pub name: String,
    /// Policy that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The objects.
    pub objects: BTreeSet<String>,
    /// Whether the question is about it.
    pub asked: bool,
    /// Whether all of it has a place.
    pub placed: bool,
    /// Reason of the outcome, as the group's condition has it.
    pub reason: String,
    /// The decision in words.
    pub message: String,
    /// Clusters with a copy now.
    pub before: BTreeSet<String>,
    /// Clusters that it goes to.
    pub targets: Vec<TargetOutcome>,
    /// Clusters that do not take it.
    pub rejected: Vec<RejectedRow>,
}

/// One cluster that a group goes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetOutcome {
    /// The cluster.
    pub cluster: String,
    /// Replicas by object; empty of what is copied whole.
    pub replicas: BTreeMap<String, i64>,
}

/// Clusters that do not take a group for the same reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RejectedRow {
    /// Their names.
    pub clusters: Vec<String>,
    /// The reason.
    pub reason: String,
    /// Numbers.
    pub detail: String,
}

/// An object that nothing places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unplaced {
    /// The object.
    pub object: String,
    /// Why.
    pub why: String,
    /// Whether it was to have a place.
    pub lacks_place: bool,
}

/// Copies of an object that change their clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyMove {
    /// The object.
    pub object: String,
    /// Clusters that it leaves.
    pub from: BTreeSet<String>,
    /// Clusters that get it.
    pub to: BTreeSet<String>,
    /// Whether it only follows what uses it.
    pub follows: bool,
    /// Why its group moves, if that moves step by step: the new copies serve before the old ones go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<MoveCause>,
}

impl Placement {
    /// Returns its object if it is one, else the name of the group and how many there are.
    pub fn format_title(&self) -> String {
        match (self.objects.first(), self.objects.len()) {
            (Some(one), 1) => one.clone(),
            (_, count) => format!("{} ({count} objects)", self.name),
        }
    }
}

impl Simulation {
    /// Returns whether everything that the question is about has a place, and whatever has one now keeps one.
    pub fn is_all_placed(&self) -> bool {
        self.placements.iter().all(|one| one.placed || !one.asked && one.before.is_empty())
            && self.unplaced.iter().all(|one| !one.lacks_place)
    }
}
