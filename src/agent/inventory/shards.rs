//! A cluster with more nodes than its Cluster object should hold, cut into reports of a bounded size.
//!
//! A node stays in the report that it is in, also when the agent starts again, so that one that changes costs one write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::publish::{AT_LEAST_EVERY, Snapshot, matters};

/// Up to this many nodes are told in the Cluster object, and in each report.
pub const NODES: usize = 200;

/// Which node is in which report, and what has been told of each.
#[derive(Debug, Default)]
pub struct Shards {
    /// The report of a node.
    of: BTreeMap<String, usize>,
    /// What was told in each report, and when.
    told: BTreeMap<usize, (Snapshot, Duration)>,
    /// The reports that the control plane has.
    there: BTreeSet<usize>,
}

impl Shards {
    /// Notes a report that was there before us, with its nodes.
    pub fn found(&mut self, index: usize, nodes: impl IntoIterator<Item = String>) {
        self.there.insert(index);
        for node in nodes.into_iter().take(NODES) {
            self.of.entry(node).or_insert(index);
        }
    }

    /// Gives every one of `nodes` a report, and takes it from all others.
    pub fn assign<'n>(&mut self, nodes: impl Iterator<Item = &'n String>) {
        let nodes: BTreeSet<&String> = nodes.collect();
        self.of.retain(|node, _| nodes.contains(node));
        // Many reports that are nearly empty, after a cluster shrank, are packed anew: all are written once.
        if self.sizes().len() > 2 * nodes.len().div_ceil(NODES) {
            self.of.clear();
        }
        let mut sizes = self.sizes();
        // What there is fills up before there is more.
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

    fn sizes(&self) -> BTreeMap<usize, usize> {
        let mut sizes = BTreeMap::new();
        for index in self.of.values() {
            *sizes.entry(*index).or_default() += 1;
        }
        sizes
    }

    /// The reports to write at the time `now`, counted from any beginning, with the part of the inventory in each: those
    /// in which something matters, and those that have not been written for long.
    pub fn due(&self, snapshot: &Snapshot, now: Duration) -> Vec<(usize, Snapshot)> {
        let mut parts: BTreeMap<usize, Snapshot> = BTreeMap::new();
        for (node, index) in &self.of {
            let part = parts.entry(*index).or_default();
            copy(node, &snapshot.available, &mut part.available);
            copy(node, &snapshot.allocatable, &mut part.allocatable);
            copy(node, &snapshot.capacity, &mut part.capacity);
            copy(node, &snapshot.taints, &mut part.taints);
        }
        let is_due = |index: &usize, part: &Snapshot| {
            self.told
                .get(index)
                .is_none_or(|(told, at)| now.saturating_sub(*at) >= AT_LEAST_EVERY || matters(told, part))
        };
        parts.into_iter().filter(|(index, part)| is_due(index, part)).collect()
    }

    /// Notes that a report was written.
    pub fn told(&mut self, index: usize, part: Snapshot, now: Duration) {
        self.told.insert(index, (part, now));
        self.there.insert(index);
    }

    /// The reports that no node is in any more.
    pub fn left_over(&self) -> Vec<usize> {
        let used: BTreeSet<usize> = self.of.values().copied().collect();
        self.there.difference(&used).copied().collect()
    }

    /// Notes that a report was deleted.
    pub fn deleted(&mut self, index: usize) {
        self.told.remove(&index);
        self.there.remove(&index);
    }
}

fn copy<T: Clone>(node: &str, from: &BTreeMap<String, T>, to: &mut BTreeMap<String, T>) {
    if let Some(value) = from.get(node) {
        to.insert(node.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::inventory::nodes::Amounts;
    use crate::api::cluster::Taint;

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

    /// Writes what is due; the reports that were.
    fn tell(shards: &mut Shards, snapshot: &Snapshot, now: Duration) -> Vec<usize> {
        shards.assign(snapshot.allocatable.keys());
        let due = shards.due(snapshot, now);
        let indices = due.iter().map(|(index, _)| *index).collect();
        for (index, part) in due {
            assert!(part.allocatable.len() <= NODES);
            shards.told(index, part, now);
        }
        indices
    }

    #[test]
    fn one_node_that_changes_costs_one_report() {
        let mut shards = Shards::default();
        let mut now = snapshot(0..500);
        assert_eq!(tell(&mut shards, &now, at(0)), [0, 1, 2]);
        assert_eq!(tell(&mut shards, &now, at(60)), [0; 0]);
        *now.available.get_mut(&name(250)).unwrap().get_mut("cpu").unwrap() = 500;
        assert_eq!(tell(&mut shards, &now, at(60)), [1]);
        let taint = Taint { key: "k".to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
        now.taints.insert(name(499), vec![taint]);
        assert_eq!(tell(&mut shards, &now, at(120)), [2]);
        assert_eq!(tell(&mut shards, &now, at(300)), [0], "the others were told in between");
    }

    #[test]
    fn nodes_that_come_take_the_room_of_those_that_went_and_no_other_moves() {
        let mut shards = Shards::default();
        tell(&mut shards, &snapshot(0..600), at(0));
        let without = snapshot((0..600).filter(|i| ![7, 450].contains(i)));
        assert_eq!(tell(&mut shards, &without, at(60)), [0, 2]);
        let mut grown = without;
        for i in [9000, 9001, 9002] {
            let more = snapshot([i]);
            grown.available.extend(more.available);
            grown.allocatable.extend(more.allocatable);
        }
        assert_eq!(tell(&mut shards, &grown, at(120)), [0, 2, 3], "two holes, then a new report");
        assert_eq!(shards.of[&name(250)], 1);
    }

    #[test]
    fn an_agent_that_starts_again_leaves_nodes_where_they_are() {
        let mut shards = Shards::default();
        shards.found(4, (100..300).map(name));
        shards.found(1, (0..100).map(name));
        let before = shards.of.clone();
        let now = snapshot(0..310);
        assert_eq!(tell(&mut shards, &now, at(0)), [1, 4], "it cannot know what is in them");
        assert!(before.iter().all(|(node, index)| shards.of[node] == *index));
        assert_eq!(shards.left_over(), [0; 0]);
    }

    #[test]
    fn a_cluster_that_shrinks_leaves_no_empty_reports_and_not_many_that_are_nearly_so() {
        let mut shards = Shards::default();
        tell(&mut shards, &snapshot(0..1000), at(0));
        // Every fourth node: five reports with 50 each, where two would do.
        let few = snapshot((0..1000).filter(|i| i % 4 == 0));
        assert_eq!(tell(&mut shards, &few, at(60)), [0, 1]);
        assert_eq!(shards.left_over(), [2, 3, 4]);
        shards.deleted(3);
        assert_eq!(shards.left_over(), [2, 4]);
        // Small enough for the Cluster object itself.
        shards.assign([].iter());
        assert_eq!(shards.left_over(), [0, 1, 2, 4]);
        assert!(shards.due(&few, at(120)).is_empty());
    }
}
