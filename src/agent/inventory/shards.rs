//! Splits a cluster with more nodes than its Cluster object should hold into reports of a bounded size.
//!
//! A node stays in its report, also after a restart of the agent, so that a changed node costs one write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::publish::{MAX_INTERVAL, Snapshot, is_significant};

/// Maximum number of nodes in the Cluster object, and in each report.
pub const NODES: usize = 200;

/// Assignment of nodes to reports, and the last content of each report.
#[derive(Debug, Default)]
pub struct Shards {
    /// Report of each node.
    of: BTreeMap<String, usize>,
    /// Last content of each report, and its time.
    reported: BTreeMap<usize, (Snapshot, Duration)>,
    /// Reports that exist in the control plane.
    existing: BTreeSet<usize>,
}

impl Shards {
    /// Adds a report that exists already, with its nodes.
    pub fn add_existing(&mut self, index: usize, nodes: impl IntoIterator<Item = String>) {
        self.existing.insert(index);
        for node in nodes.into_iter().take(NODES) {
            self.of.entry(node).or_insert(index);
        }
    }

    /// Assigns a report to each of `nodes`, and removes all others.
    pub fn assign_nodes<'n>(&mut self, nodes: impl Iterator<Item = &'n String>) {
        let nodes: BTreeSet<&String> = nodes.collect();
        self.of.retain(|node, _| nodes.contains(node));
        // Many nearly empty reports, after a cluster shrank, are packed again: all are written once.
        if self.shard_sizes().len() > 2 * nodes.len().div_ceil(NODES) {
            self.of.clear();
        }
        let mut sizes = self.shard_sizes();
        // Existing reports are filled before new ones are added.
        let used: Vec<usize> = sizes.keys().copied().collect();
        let fresh = (0..).filter(|index| !used.contains(index));
        let mut order = used.iter().copied().chain(fresh);
        let mut roomy = order.next();
        for node in nodes {
            if self.of.contains_key(node) {
                continue;
            }
            while roomy.is_some_and(|index| sizes.get(&index).is_some_and(|size| *size >= NODES)) {
                roomy = order.next();
            }
            let Some(index) = roomy else { return };
            *sizes.entry(index).or_default() += 1;
            self.of.insert(node.clone(), index);
        }
    }

    fn shard_sizes(&self) -> BTreeMap<usize, usize> {
        let mut sizes = BTreeMap::new();
        for index in self.of.values() {
            *sizes.entry(*index).or_default() += 1;
        }
        sizes
    }

    /// Returns the reports to write at the time `now`, counted from any beginning, with the part of the inventory in each:
    /// those with a significant change, and those that have not been written for long.
    pub fn due_reports(&self, snapshot: &Snapshot, now: Duration) -> Vec<(usize, Snapshot)> {
        let mut parts: BTreeMap<usize, Snapshot> = BTreeMap::new();
        for (node, index) in &self.of {
            let part = parts.entry(*index).or_default();
            copy_node_value(node, &snapshot.available, &mut part.available);
            copy_node_value(node, &snapshot.allocatable, &mut part.allocatable);
            copy_node_value(node, &snapshot.capacity, &mut part.capacity);
            copy_node_value(node, &snapshot.taints, &mut part.taints);
            copy_node_value(node, &snapshot.labels, &mut part.labels);
        }
        parts.retain(|index, part| {
            self.reported
                .get(index)
                .is_none_or(|(last, at)| now.saturating_sub(*at) >= MAX_INTERVAL || is_significant(last, part))
        });
        parts.into_iter().collect()
    }

    /// Records that a report was written.
    pub fn record_written(&mut self, index: usize, part: Snapshot, now: Duration) {
        self.reported.insert(index, (part, now));
        self.existing.insert(index);
    }

    /// Returns the reports without a node.
    pub fn orphaned_reports(&self) -> Vec<usize> {
        let used: BTreeSet<usize> = self.of.values().copied().collect();
        self.existing.difference(&used).copied().collect()
    }

    /// Records that a report was deleted.
    pub fn record_deleted(&mut self, index: usize) {
        self.reported.remove(&index);
        self.existing.remove(&index);
    }
}

fn copy_node_value<T: Clone>(node: &str, from: &BTreeMap<String, T>, to: &mut BTreeMap<String, T>) {
    if let Some(value) = from.get(node) {
        to.insert(node.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::inventory::nodes::Amounts;
    use crate::api::crd::cluster::Taint;

    fn name(i: usize) -> String {
        format!("n{i:04}")
    }

    fn snapshot(nodes: impl IntoIterator<Item = usize>) -> Snapshot {
        let one = Amounts::from([("cpu".to_owned(), 1000)]);
        let all: BTreeMap<_, _> = nodes.into_iter().map(|i| (name(i), one.clone())).collect();
        Snapshot { available: all.clone(), allocatable: all, ..Snapshot::default() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Writes what is due; returns the reports that were.
    fn report(shards: &mut Shards, snapshot: &Snapshot, now: Duration) -> Vec<usize> {
        shards.assign_nodes(snapshot.allocatable.keys());
        let due = shards.due_reports(snapshot, now);
        let indices = due.iter().map(|(index, _)| *index).collect();
        for (index, part) in due {
            assert!(part.allocatable.len() <= NODES);
            shards.record_written(index, part, now);
        }
        indices
    }

    #[test]
    fn one_changed_node_costs_one_report() {
        let mut shards = Shards::default();
        let mut now = snapshot(0..500);
        assert_eq!(report(&mut shards, &now, at(0)), [0, 1, 2]);
        assert_eq!(report(&mut shards, &now, at(60)), [0; 0]);
        *now.available.get_mut(&name(250)).unwrap().get_mut("cpu").unwrap() = 500;
        assert_eq!(report(&mut shards, &now, at(60)), [1]);
        let taint = Taint { key: "k".to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
        now.taints.insert(name(499), vec![taint]);
        assert_eq!(report(&mut shards, &now, at(120)), [2]);
        assert_eq!(report(&mut shards, &now, at(300)), [0], "the others were written in between");
    }

    #[test]
    fn new_nodes_fill_gaps() {
        let mut shards = Shards::default();
        report(&mut shards, &snapshot(0..600), at(0));
        let without = snapshot((0..600).filter(|i| ![7, 450].contains(i)));
        assert_eq!(report(&mut shards, &without, at(60)), [0, 2]);
        let mut grown = without;
        for i in [9000, 9001, 9002] {
            let more = snapshot([i]);
            grown.available.extend(more.available);
            grown.allocatable.extend(more.allocatable);
        }
        assert_eq!(report(&mut shards, &grown, at(120)), [0, 2, 3], "two holes, then a new report");
        assert_eq!(shards.of[&name(250)], 1);
    }

    #[test]
    fn a_restart_moves_no_node() {
        let mut shards = Shards::default();
        shards.add_existing(4, (100..300).map(name));
        shards.add_existing(1, (0..100).map(name));
        let before = shards.of.clone();
        let now = snapshot(0..310);
        assert_eq!(report(&mut shards, &now, at(0)), [1, 4], "it cannot know what is in them");
        assert!(before.iter().all(|(node, index)| shards.of[node] == *index));
        assert_eq!(shards.orphaned_reports(), [0; 0]);
    }

    #[test]
    fn a_smaller_cluster_is_repacked() {
        let mut shards = Shards::default();
        report(&mut shards, &snapshot(0..1000), at(0));
        // Every fourth node: five reports with 50 each, where two would do.
        let few = snapshot((0..1000).filter(|i| i % 4 == 0));
        assert_eq!(report(&mut shards, &few, at(60)), [0, 1]);
        assert_eq!(shards.orphaned_reports(), [2, 3, 4]);
        shards.record_deleted(3);
        assert_eq!(shards.orphaned_reports(), [2, 4]);
        // Small enough for the Cluster object itself.
        shards.assign_nodes([].iter());
        assert_eq!(shards.orphaned_reports(), [0, 1, 2, 4]);
        assert!(shards.due_reports(&few, at(120)).is_empty());
    }
}
