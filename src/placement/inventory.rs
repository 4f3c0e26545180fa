//! The nodes of a workload cluster as its agent reports them, read within limits, so that an excessive report costs no
//! other cluster memory or time.
//!
//! Each object, a Cluster or a ClusterReport, is reduced to a [`Part`]; [`read_inventory`] puts the parts of a cluster together.
//! What is left out is named in [`Inventory::left_out`], for a condition of the Cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::live::is_read;
use super::room::{Labels, Node, NodeAmounts};
use crate::api::crd::cluster::{NodeLabels, NodeResources, Taint};
use crate::api::{Cluster, ClusterReportSpec, quantity};

/// Most nodes of one object; agents report more in several.
const NODES: usize = 200;
/// Most nodes of a cluster: as many as Kubernetes is made for.
const NODES_OF_CLUSTER: usize = 5_000;
/// Most resources of a node, and most resources with different names of a cluster.
const RESOURCES: usize = 64;
const RESOURCES_OF_CLUSTER: usize = 256;
/// Most numbers that are kept of a cluster: all nodes with the resources of one.
const NUMBERS: usize = NODES_OF_CLUSTER * RESOURCES;
/// Longest name of an object, and of a resource, a taint or a label with its domain.
const NAME: usize = 253;
const QUALIFIED: usize = 317;
/// Most bytes of the distinct sets of labels of an object; agents leave out keys before they report more.
const LABELS: usize = 8 << 10;
/// Most label keys that an object names as left out.
const DROPPED_KEYS: usize = 1_000;
/// Most taints of a node, and most bytes of the distinct lists of them of an object.
const TAINTS: usize = 64;
const TAINTS_BYTES: usize = 64 << 10;
/// Most API versions of a cluster.
const APIS: usize = 400;

/// Resources that every node has; of too many these stay.
const FIRST: [&str; 3] = ["cpu", "memory", "pods"];

/// Texts about what is left out.
type LeftOut = BTreeSet<&'static str>;

/// Nodes of one object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part {
    nodes: Vec<Node>,
    /// Label keys of which the values are not known.
    dropped_keys: Vec<String>,
    left_out: LeftOut,
}

/// Nodes of a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inventory {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Label keys of which the values are not known.
    pub dropped_keys: Vec<String>,
    left_out: LeftOut,
}

impl Inventory {
    fn add_part(&mut self, part: &Part) {
        self.left_out.extend(&part.left_out);
        self.dropped_keys.extend(part.dropped_keys.iter().cloned());
        let room = NODES_OF_CLUSTER - self.nodes.len();
        if part.nodes.len() > room {
            self.left_out.insert("nodes beyond the first 5,000");
        }
        self.nodes.extend(part.nodes.iter().take(room).cloned());
    }

    /// Returns what is left out of the report of the agent, for people; `None` where all of it is read.
    pub fn left_out(&self) -> Option<String> {
        let parts: Vec<&str> = self.left_out.iter().copied().collect();
        (!parts.is_empty())
            .then(|| format!("the agent reports more than the limits allow; left out: {}", parts.join("; ")))
    }
}

/// Returns the most of a resource that one node is believed to have, in thousandths: 4,096 CPUs, 64 TiB of memory, 1,000
/// pods, 2⁵⁰ of anything else.
fn max_plausible_amount(resource: &str) -> i64 {
    match resource {
        "cpu" => 4_096_000,
        "memory" => (1 << 46) * 1000,
        "pods" => 1_000_000,
        _ => (1 << 50) * 1000,
    }
}

/// Returns the names that stay of too many: those of [`FIRST`], then those that most nodes have.
fn most_frequent_names<'a>(all: impl Iterator<Item = &'a str>, most: usize) -> Option<BTreeSet<&'a str>> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in all {
        *counts.entry(name).or_default() += 1;
    }
    if counts.len() <= most {
        return None;
    }
    let mut names: Vec<(&str, usize)> = counts.into_iter().collect();
    names.sort_by_key(|(name, count)| (!FIRST.contains(name), std::cmp::Reverse(*count), *name));
    Some(names.into_iter().take(most).map(|(name, _)| name).collect())
}

/// A part that is being read, with what its nodes share.
struct Reading<'a> {
    part: Part,
    /// Names of resources that stay; absent where all do.
    kept: Option<BTreeSet<&'a str>>,
    names: BTreeSet<Arc<str>>,
    taints: BTreeSet<Arc<[Taint]>>,
    taints_bytes: usize,
}

impl Reading<'_> {
    fn leave_out(&mut self, what: &'static str) {
        self.part.left_out.insert(what);
    }

    fn read_amounts(&mut self, quantities: &BTreeMap<String, String>) -> NodeAmounts {
        let first = FIRST.iter().filter_map(|name| quantities.get_key_value(*name));
        let others = quantities.iter().filter(|(name, _)| !FIRST.contains(&name.as_str()));
        let mut amounts: Vec<(Arc<str>, i64)> = Vec::new();
        for (name, text) in first.chain(others) {
            if amounts.len() == RESOURCES || self.kept.as_ref().is_some_and(|kept| !kept.contains(name.as_str())) {
                self.leave_out("resources beyond 64 of a node or 256 of the cluster");
            } else if name.len() > QUALIFIED {
                self.leave_out("names that are longer than Kubernetes allows");
            } else if let Some(milli) = quantity::parse_quantity(text) {
                if milli > max_plausible_amount(name).into() {
                    self.leave_out("resource amounts above the limit for one node");
                }
                let amount = i64::try_from(milli.clamp(0, max_plausible_amount(name).into())).unwrap_or_default();
                amounts.push((self.intern_name(name), amount));
            }
        }
        amounts.into_iter().collect()
    }

    fn intern_name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let new: Arc<str> = name.into();
        self.names.insert(new.clone());
        new
    }

    /// Reads the taints of a node; `None` where there are too many of them to be kept.
    fn read_taints(&mut self, taints: Option<&Vec<Taint>>) -> Option<Arc<[Taint]>> {
        let taints = taints.map(Vec::as_slice).unwrap_or_default();
        if taints.len() > TAINTS || taints.iter().any(|taint| taint.key.len() > QUALIFIED || taint.value.len() > NAME) {
            return None;
        }
        let read: Arc<[Taint]> = taints
            .iter()
            .filter(|taint| crate::api::crd::cluster::TAINT_EFFECTS.contains(&&*taint.effect))
            .cloned()
            .collect();
        if let Some(known) = self.taints.get(&read) {
            return Some(known.clone());
        }
        let more: usize = read.iter().map(|taint| taint.key.len() + taint.value.len() + taint.effect.len() + 32).sum();
        if self.taints_bytes + more > TAINTS_BYTES {
            return None;
        }
        self.taints_bytes += more;
        self.taints.insert(read.clone());
        Some(read)
    }

    /// Reads the sets of labels; those that cannot be kept are not known.
    fn read_label_sets(&mut self, labels: Option<&NodeLabels>) -> Vec<Option<Arc<Labels>>> {
        let Some(labels) = labels else { return Vec::new() };
        let is_bounded = labels.dropped_keys.len() <= DROPPED_KEYS;
        if !is_bounded || labels.dropped_keys.iter().any(|key| key.len() > QUALIFIED) {
            self.leave_out("labels of nodes, because the agent omits too many label keys");
            return Vec::new();
        }
        self.part.dropped_keys.clone_from(&labels.dropped_keys);
        let mut bytes = 0;
        let mut read = Vec::new();
        for set in labels.sets.iter().take(NODES) {
            bytes += set.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            let is_kept = bytes <= LABELS;
            if !is_kept {
                self.leave_out("labels of nodes beyond 8 KiB");
            }
            read.push(is_kept.then(|| Arc::new(set.clone())));
        }
        read
    }
}

impl Part {
    /// Reads the nodes in the status of a Cluster.
    pub fn of_cluster(cluster: &Cluster) -> Self {
        let Some(status) = &cluster.status else { return Self::default() };
        let (none, untainted) = (BTreeMap::new(), BTreeMap::new());
        let capacity = status.capacity_resources.as_ref().unwrap_or(&none);
        let available = status.available_resources.as_ref().unwrap_or(&none);
        let taints = status.node_taints.as_ref().unwrap_or(&untainted);
        Self::read_nodes(capacity, available, taints, status.node_labels.as_ref())
    }

    /// Reads the nodes of a ClusterReport.
    pub fn of_report(spec: &ClusterReportSpec) -> Self {
        Self::read_nodes(
            &spec.capacity_resources,
            &spec.available_resources,
            &spec.node_taints,
            spec.node_labels.as_ref(),
        )
    }

    fn read_nodes(
        capacity: &NodeResources,
        available: &NodeResources,
        taints: &BTreeMap<String, Vec<Taint>>,
        labels: Option<&NodeLabels>,
    ) -> Self {
        let nodes = capacity.iter().take(NODES);
        let resources = nodes
            .clone()
            .flat_map(|(name, own)| own.keys().chain(available.get(name).into_iter().flat_map(BTreeMap::keys)));
        let mut reading = Reading {
            part: Self::default(),
            kept: most_frequent_names(resources.map(String::as_str), RESOURCES_OF_CLUSTER),
            names: BTreeSet::new(),
            taints: BTreeSet::new(),
            taints_bytes: 0,
        };
        if capacity.len() > NODES {
            reading.leave_out("nodes beyond the first 200 of one report");
        }
        let sets = reading.read_label_sets(labels);
        // Labels are given in the order of the names of all nodes.
        for (at, (name, own)) in nodes.enumerate() {
            if name.len() > NAME {
                reading.leave_out("names that are longer than Kubernetes allows");
                continue;
            }
            // Without its taints, pods would be thought to run there.
            let Some(taints) = reading.read_taints(taints.get(name)) else {
                reading.leave_out("nodes with too many taints");
                continue;
            };
            let set = labels.and_then(|labels| labels.of.get(at)).and_then(|set| usize::try_from(*set).ok());
            let node = Node {
                name: name.clone(),
                capacity: reading.read_amounts(own),
                available: available.get(name).map(|free| reading.read_amounts(free)).unwrap_or_default(),
                labels: set.and_then(|set| sets.get(set)).cloned().flatten(),
                taints,
            };
            reading.part.nodes.push(node);
        }
        reading.part
    }
}

/// Reads the nodes of a Cluster and of its reports; none of a cluster that may not take part yet.
pub fn read_inventory<'a>(cluster: &Cluster, reports: impl Iterator<Item = &'a Part>) -> Inventory {
    let mut all = Inventory::default();
    if !is_read(cluster) {
        return all;
    }
    all.add_part(&Part::of_cluster(cluster));
    reports.for_each(|part| all.add_part(part));
    all.dropped_keys.sort();
    all.dropped_keys.dedup();
    let most = RESOURCES_OF_CLUSTER.min(NUMBERS / all.nodes.len().max(1));
    let resources = all.nodes.iter().flat_map(|node| node.capacity.iter().chain(node.available.iter()));
    let kept = most_frequent_names(resources.map(|(name, _)| &**name), most);
    if let Some(kept) = kept.map(|kept| kept.into_iter().map(str::to_owned).collect::<BTreeSet<String>>()) {
        all.left_out.insert("resources beyond 64 of a node or 256 of the cluster");
        for node in &mut all.nodes {
            (node.capacity, node.available) =
                (keep_amounts(&kept, &node.capacity), keep_amounts(&kept, &node.available));
        }
    }
    let apis = cluster.status.as_ref().and_then(|status| status.observed.as_ref()).map(|observed| &observed.apis);
    if apis.is_some_and(|apis| apis.len() > APIS || apis.iter().any(|api| api.len() > QUALIFIED)) {
        all.left_out.insert("API versions beyond the first 400");
    }
    all
}

/// Returns the amounts of the resources that are kept.
fn keep_amounts(kept: &BTreeSet<String>, amounts: &NodeAmounts) -> NodeAmounts {
    let kept = amounts.iter().filter(|(name, _)| kept.contains(&***name));
    kept.map(|(name, amount)| (name.clone(), amount)).collect()
}

/// Returns the API versions that a cluster says it serves, as many as are read; `None` where they are unknown.
pub fn served_apis(cluster: &Cluster) -> Option<BTreeSet<String>> {
    let observed = cluster.status.as_ref().and_then(|status| status.observed.as_ref())?;
    let read = observed.apis.iter().take(APIS).filter(|api| api.len() <= QUALIFIED);
    Some(read.cloned().collect::<BTreeSet<String>>()).filter(|apis| !apis.is_empty())
}

#[cfg(test)]
mod tests;
