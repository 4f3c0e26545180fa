//! The clusters of a control plane as placement sees them, and what is promised on each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::decide::{Current, Decision, Group};
use super::room::{Node, Promise, Resources, Room};
use crate::api::crd::cluster::Taint;
use crate::api::labels::LABEL_NAME;

/// One workload cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Name.
    pub name: Arc<str>,
    /// Labels; the one that repeats the name need not be among them.
    pub labels: BTreeMap<String, String>,
    /// Taints of the cluster.
    pub taints: Vec<Taint>,
    /// Whether it is Ready.
    pub ready: bool,
    /// Whether it may take part.
    pub accepted: bool,
    /// Whether it is being deleted, or its agent asked to leave.
    pub leaving: bool,
    /// Whether it sleeps, and a decision wakes it.
    pub standby: bool,
    /// Whether nodes are added by need.
    pub autoscaled: bool,
    /// API versions that it serves; unknown ones are assumed.
    pub apis: Option<Arc<BTreeSet<String>>>,
    /// Its nodes.
    pub room: Room,
}

impl Cluster {
    /// Makes a Ready, accepted cluster without labels or taints.
    pub fn new(name: &str, room: Room) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            ready: true,
            accepted: true,
            leaving: false,
            standby: false,
            autoscaled: false,
            apis: None,
            room,
        }
    }

    /// Returns the value of a label; that of the name label is the name.
    pub fn find_label(&self, key: &str) -> Option<&str> {
        if key == LABEL_NAME { Some(&self.name) } else { self.labels.get(key).map(String::as_str) }
    }
}

/// All clusters, in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    pub(super) resources: Resources,
    clusters: Vec<Cluster>,
    /// Lists of APIs that clusters serve, each once.
    apis: BTreeSet<Arc<BTreeSet<String>>>,
}

impl Fleet {
    /// Returns the numbers of the resources of all clusters.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Makes the room of a cluster of this fleet; `dropped_keys` are node labels that it does not report.
    pub fn build_capacity(&mut self, nodes: Vec<Node>, dropped_keys: Vec<String>) -> Room {
        Room::new(&mut self.resources, nodes, dropped_keys)
    }

    /// Adds a cluster, or replaces the one of the same name. Clusters that serve the same APIs share one list of them.
    pub fn set_cluster(&mut self, mut cluster: Cluster) {
        // What nobody serves any more is known here alone.
        self.apis.retain(|apis| Arc::strong_count(apis) > 1);
        if let Some(apis) = &mut cluster.apis {
            match self.apis.get(apis) {
                Some(known) => *apis = known.clone(),
                None => drop(self.apis.insert(apis.clone())),
            }
        }
        match self.clusters.binary_search_by(|one| one.name.cmp(&cluster.name)) {
            Ok(at) => std::mem::replace(&mut self.clusters[at], cluster).room.release_resources(&mut self.resources),
            Err(at) => self.clusters.insert(at, cluster),
        }
    }

    /// Removes a cluster; returns whether it was there.
    pub fn remove_cluster(&mut self, name: &str) -> bool {
        let found = self.cluster_position(name).map(|at| self.clusters.remove(at));
        found.map(|cluster| cluster.room.release_resources(&mut self.resources)).is_some()
    }

    fn cluster_position(&self, name: &str) -> Option<usize> {
        self.clusters.binary_search_by(|one| (*one.name).cmp(name)).ok()
    }

    /// Returns a cluster by name.
    pub fn get(&self, name: &str) -> Option<&Cluster> {
        self.cluster_position(name).map(|at| &self.clusters[at])
    }

    /// Returns a cluster by name, to change anything but its name.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Cluster> {
        self.cluster_position(name).map(|at| &mut self.clusters[at])
    }

    /// Returns the clusters in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.iter()
    }

    /// Number of lists of APIs that are kept.
    #[cfg(test)]
    pub(crate) fn known_apis(&self) -> usize {
        self.apis.len()
    }

    /// Number of clusters.
    pub fn len(&self) -> usize {
        self.clusters.len()
    }

    /// Returns whether there is no cluster.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    /// Replaces all promises of a cluster; they are packed in this order.
    pub fn set_promises(&mut self, cluster: &str, promises: Vec<Promise>) {
        if let Some(at) = self.cluster_position(cluster) {
            self.clusters[at].room.set_promises(&self.resources, promises);
        }
    }

    /// Promises the room that a decision takes, instead of what was promised to the group on its targets before.
    pub fn reserve_decision(&mut self, group: &Group<'_>, decision: &Decision, current: &Current) {
        for old in &current.targets {
            let stays = decision.moving_from.contains(&old.cluster);
            if !stays && !decision.targets.iter().any(|target| target.cluster == old.cluster) {
                self.add_promises(&old.cluster, &group.name, Vec::new());
            }
        }
        for target in &decision.targets {
            let promises = group.make_reservations(target, current);
            self.add_promises(&target.cluster, &group.name, promises);
        }
    }

    /// Replaces a group's promises in a cluster; new ones come last.
    fn add_promises(&mut self, cluster: &str, group: &str, promises: Vec<Promise>) {
        let Some(at) = self.cluster_position(cluster) else { return };
        let room = &mut self.clusters[at].room;
        if let Some(without) = room.without_reservations_of(&self.resources, group) {
            *room = without;
        }
        room.reserve_pods(&self.resources, promises);
    }
}
