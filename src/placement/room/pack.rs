//! Packing: whether pods go onto nodes, first in a way that wastes least, then in the way of the cluster's own scheduler.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::{Eligible, Need, Needs, ResourceId, Resources, Room, Steps};
use crate::placement::reason::{Fragmented, Reason};

/// Steps that one pod takes that is put onto the best of all nodes.
const POD: usize = 8;

/// Whether needs have room in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// They have room.
    Fits,
    /// They have room, but perhaps not the way in which the cluster's own scheduler packs.
    Tight,
    /// They have no room, for this reason.
    No(Reason),
}

impl Room {
    /// Returns the number of pods that go onto one node.
    fn goes_onto(&self, need: &Need<'_>, row: &[i64]) -> i64 {
        let mut most = if need.shape.one_per_node { 1 } else { i64::MAX };
        for (id, request) in need.requests.iter().filter(|(_, request)| *request > 0) {
            let free = id.and_then(|id| self.find_column(id)).map_or(0, |column| row[column]);
            most = most.min(free.max(0) / request);
        }
        most
    }

    fn subtract_pods(&self, need: &Need<'_>, row: &mut [i64], pods: i64) {
        for (id, request) in &need.requests {
            if let Some(column) = id.and_then(|id| self.find_column(id)) {
                row[column] = row[column].saturating_sub(request.saturating_mul(pods));
            }
        }
    }

    /// Fills nodes in their order, as many pods as go in; returns how many did.
    pub(super) fn fill_nodes(&self, need: &Need<'_>, eligible: &Eligible, free: &mut [i64]) -> i64 {
        // Pods that are there hold a node each, and nobody knows which.
        let mut nodes_left = if need.shape.one_per_node {
            i64::try_from(eligible.count_eligible(self.count_nodes())).unwrap_or(i64::MAX).saturating_sub(need.counted)
        } else {
            i64::MAX
        };
        let mut placed = 0;
        for (node, row) in free.chunks_exact_mut(self.column_count().max(1)).enumerate() {
            if placed >= need.pods || nodes_left <= 0 {
                break;
            }
            if !eligible.is_eligible(node) {
                continue;
            }
            let pods = self.goes_onto(need, row).min(need.pods - placed);
            if pods > 0 {
                self.subtract_pods(need, row, pods);
                placed += pods;
                nodes_left -= 1;
            }
        }
        placed
    }

    /// Takes a pod's part from each eligible node with room; `None` if there are eligible nodes and none has room.
    pub(super) fn place_daemon(&self, need: &Need<'_>, eligible: &Eligible, free: &mut [i64]) -> Option<()> {
        let (mut nodes, mut placed) = (0, 0);
        for (node, row) in free.chunks_exact_mut(self.column_count().max(1)).enumerate() {
            if eligible.is_eligible(node) {
                nodes += 1;
                if self.goes_onto(need, row) > 0 {
                    self.subtract_pods(need, row, 1);
                    placed += 1;
                }
            }
        }
        (nodes == 0 || placed > 0).then_some(())
    }

    /// Returns whether all needs have room: totals, then both packings.
    pub fn check_fit(&self, resources: &Resources, needs: &Needs<'_>) -> Fit {
        self.fit_within(resources, needs, &Steps::default())
    }

    /// The same within what a decision may do.
    pub(crate) fn fit_within(&self, resources: &Resources, needs: &Needs<'_>, steps: &Steps) -> Fit {
        match self.evaluate_totals(needs).1 {
            Some(lacking) => Fit::No(lacking),
            None => self.fit_exactly(resources, needs, steps),
        }
    }

    /// Returns whether needs whose totals are there can be packed; [`Fit::Tight`] where that takes too many steps.
    pub(crate) fn fit_exactly(&self, resources: &Resources, needs: &Needs<'_>, steps: &Steps) -> Fit {
        if steps.are_spent() {
            return Fit::Tight;
        }
        let mut free = self.free.clone();
        if let Err(reason) = self.place_daemons(resources, needs, &mut free, steps) {
            return reason.map_or(Fit::Tight, Fit::No);
        }
        let open: Vec<&Need<'_>> = needs.each.iter().filter(|need| !need.daemon && need.is_open()).collect();
        let mut shapes: Vec<(usize, &Need<'_>, Eligible)> = Vec::with_capacity(open.len());
        for need in open {
            let Some(eligible) = self.eligible_within(need, steps) else { return Fit::Tight };
            shapes.push((eligible.count_eligible(self.count_nodes()), need, eligible));
        }
        shapes.sort_by(|(a_nodes, a, _), (b_nodes, b, _)| self.packing_order((*a_nodes, a), (*b_nodes, b)));
        let after_daemons = (shapes.len() >= 2).then(|| free.clone());
        let mut all = self.sum_free_amounts(&Eligible::All, &free);
        for (nodes, need, eligible) in &shapes {
            if !steps.take_steps(self.count_nodes()) {
                return Fit::Tight;
            }
            let sums = match eligible {
                Eligible::All => all.clone(),
                Eligible::Nodes(_) => self.sum_free_amounts(eligible, &free),
            };
            if let Some(reason) = self.lacks_nodes(resources, need, *nodes, &sums) {
                return Fit::No(reason);
            }
            if self.fill_nodes(need, eligible, &mut free) < need.pods {
                return Fit::No(self.why_not_packed(resources, need, *nodes, eligible, &free, &sums));
            }
            self.subtract_pods(need, &mut all, need.pods);
        }
        let spreads = after_daemons.is_none_or(|mut free| self.may_pack_spread(&mut shapes, &mut free, steps));
        if spreads { Fit::Fits } else { Fit::Tight }
    }

    /// Takes what DaemonSets need.
    ///
    /// # Errors
    /// The reason that one has no room; nothing where that takes too many steps.
    fn place_daemons(
        &self,
        resources: &Resources,
        needs: &Needs<'_>,
        free: &mut [i64],
        steps: &Steps,
    ) -> Result<(), Option<Reason>> {
        for need in needs.each.iter().filter(|need| need.daemon && need.is_open()) {
            if !steps.take_steps(self.count_nodes()) {
                return Err(None);
            }
            let eligible = self.eligible_within(need, steps).ok_or(None)?;
            if eligible.count_eligible(self.count_nodes()) == 0 && self.labels_are_unknown(need.shape) {
                return Err(Some(Reason::NodeLabelsUnknown(Box::new(need.key.clone()))));
            }
            let sums = self.sum_free_amounts(&eligible, free);
            if self.place_daemon(need, &eligible, free).is_none() {
                return Err(Some(self.find_fragmented(resources, need, &eligible, free, &sums)));
            }
        }
        Ok(())
    }

    /// The nodes on which pods may run; `None` where that takes too many steps.
    fn eligible_within(&self, need: &Need<'_>, steps: &Steps) -> Option<Eligible> {
        let nodes = if need.shape.nodes.asks_names() { self.count_nodes() } else { self.kinds.len() };
        let asked = 1 + need.shape.nodes.max_comparisons() + need.shape.tolerations.len();
        let is_free = self.untainted && need.shape.nodes.is_empty();
        (is_free || steps.take_steps(nodes.saturating_mul(asked) / 8 + 1)).then(|| self.eligible_nodes(need))
    }

    /// Returns the amounts that are free on the eligible nodes, by column.
    fn sum_free_amounts(&self, eligible: &Eligible, free: &[i64]) -> Vec<i64> {
        let mut sums = vec![0_i64; self.column_count()];
        for (_, row) in
            free.chunks_exact(self.column_count().max(1)).enumerate().filter(|(node, _)| eligible.is_eligible(*node))
        {
            for (sum, amount) in sums.iter_mut().zip(row) {
                *sum = sum.saturating_add(*amount);
            }
        }
        sums
    }

    /// Returns the reason that pods have no nodes at all, or too little on those that they have.
    fn lacks_nodes(&self, resources: &Resources, need: &Need<'_>, nodes: usize, sums: &[i64]) -> Option<Reason> {
        if nodes == 0 {
            let key = Box::new(need.key.clone());
            let unknown = self.labels_are_unknown(need.shape);
            return Some(if unknown { Reason::NodeLabelsUnknown(key) } else { Reason::NoNodeMatches(key) });
        }
        self.find_insufficient(resources, need, sums)
    }

    fn find_insufficient(&self, resources: &Resources, need: &Need<'_>, sums: &[i64]) -> Option<Reason> {
        need.requests.iter().find_map(|(id, request)| {
            let id = (*id)?;
            let free = self.find_column(id).map_or(0, |column| sums[column]);
            let asked = request.saturating_mul(need.pods);
            (asked > free).then(|| Reason::Insufficient { resource: resources.name(id).clone(), asked, free })
        })
    }

    fn why_not_packed(
        &self,
        resources: &Resources,
        need: &Need<'_>,
        nodes: usize,
        eligible: &Eligible,
        free: &[i64],
        sums: &[i64],
    ) -> Reason {
        if let Some(reason) = self.find_insufficient(resources, need, sums) {
            return reason;
        }
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        if need.shape.one_per_node && need.pods.saturating_add(need.counted) > nodes {
            return Reason::TooFewNodes(Box::new(need.key.clone()));
        }
        self.find_fragmented(resources, need, eligible, free, sums)
    }

    /// Names the resource of which the fullest-packed node is most short.
    fn find_fragmented(
        &self,
        resources: &Resources,
        need: &Need<'_>,
        eligible: &Eligible,
        free: &[i64],
        sums: &[i64],
    ) -> Reason {
        let rows =
            free.chunks_exact(self.column_count().max(1)).enumerate().filter(|(node, _)| eligible.is_eligible(*node));
        let requested = need.requests.iter().filter_map(|(id, request)| {
            let id = (*id)?;
            let column = self.find_column(id)?;
            let most = rows.clone().map(|(_, row)| row[column]).max().unwrap_or_default();
            Some((most / (*request).max(1), id, *request, most, sums[column]))
        });
        let scarcest = requested.min_by_key(|(times, ..)| *times);
        let (resource, asked, most, free) = match scarcest {
            Some((_, id, asked, most, free)) => (resources.name(id).clone(), asked, most.max(0), free),
            None => (Arc::from("pods"), 1000, 0, 0),
        };
        Reason::Fragmented(Box::new(Fragmented { object: need.key.clone(), resource, asked, most, free }))
    }

    /// The order of the first packing: fewest eligible nodes, larger pods, key.
    pub(super) fn packing_order(&self, (a_nodes, a): (usize, &Need<'_>), (b_nodes, b): (usize, &Need<'_>)) -> Ordering {
        a_nodes.cmp(&b_nodes).then_with(|| self.by_share(b, a)).then_with(|| a.key.cmp(b.key))
    }

    /// Compares by the largest part of the cluster's capacity that one pod takes.
    pub(crate) fn by_share(&self, a: &Need<'_>, b: &Need<'_>) -> Ordering {
        self.find_largest_share(a).cmp(&self.find_largest_share(b))
    }

    /// Returns the largest part of the cluster's capacity that one pod takes.
    fn find_largest_share(&self, need: &Need<'_>) -> Option<crate::placement::fraction::Fraction> {
        let shares = need.requests.iter().filter_map(|(id, request)| {
            let column = id.and_then(|id| self.find_column(id))?;
            crate::placement::fraction::Fraction::new(*request, self.capacity[column])
        });
        shares.max()
    }

    /// Packs smallest first, each pod onto the node where most stays free; false also where that takes too many steps.
    fn may_pack_spread(&self, shapes: &mut [(usize, &Need<'_>, Eligible)], free: &mut [i64], steps: &Steps) -> bool {
        shapes.sort_by(|(_, a, _), (_, b, _)| self.by_share(a, b).then_with(|| a.key.cmp(b.key)));
        let width = self.column_count().max(1);
        for (nodes, need, eligible) in shapes.iter() {
            let nodes = i64::try_from(*nodes).unwrap_or(i64::MAX);
            if need.shape.one_per_node && need.pods.saturating_add(need.counted) > nodes {
                return false;
            }
            if !steps.take_steps(self.count_nodes()) {
                return false;
            }
            let rows = free.chunks_exact(width).enumerate();
            let mut best: BinaryHeap<_> =
                rows.filter_map(|(node, row)| self.score_open_node(need, eligible, node, row)).collect();
            for _ in 0..need.pods {
                let Some((_, Reverse(node))) = best.pop().filter(|_| steps.take_steps(POD)) else { return false };
                let row = &mut free[node * width..(node + 1) * width];
                self.subtract_pods(need, row, 1);
                if !need.shape.one_per_node {
                    best.extend(self.score_open_node(need, eligible, node, row));
                }
            }
        }
        true
    }

    /// Returns how well a pod goes onto a node, if it does, and the node; of equal ones the first is the best.
    fn score_open_node(
        &self,
        need: &Need<'_>,
        eligible: &Eligible,
        node: usize,
        row: &[i64],
    ) -> Option<(i128, Reverse<usize>)> {
        let fits = eligible.is_eligible(node) && self.goes_onto(need, row) > 0;
        fits.then(|| (self.score_node(need, node, row), Reverse(node)))
    }

    /// Returns what would stay free of cpu and memory on a node, each in thousandths of its capacity, added up.
    fn score_node(&self, need: &Need<'_>, node: usize, row: &[i64]) -> i128 {
        let capacity = &self.kinds[usize::from(self.kind_of[node])].capacity;
        let scores = [0, 1].into_iter().filter_map(|id| {
            let column = self.find_column(id)?;
            let request = need.requests.iter().find(|(one, _)| *one == Some(id)).map_or(0, |(_, request)| *request);
            let whole = i128::from(capacity[column]);
            (whole > 0).then(|| (i128::from(row[column]) - i128::from(request)) * 1000 / whole)
        });
        scores.sum()
    }

    /// Returns whether every pod would fit an empty node like one that exists; true of a cluster without nodes.
    pub(crate) fn fits_empty_nodes(&self, needs: &Needs<'_>, steps: &Steps) -> bool {
        self.count_nodes() == 0
            || needs.each.iter().filter(|need| need.is_open()).all(|need| {
                let eligible = self.eligible_within(need, steps).filter(|_| steps.take_steps(self.count_nodes()));
                let Some(eligible) = eligible else { return false };
                (0..self.count_nodes()).any(|node| {
                    let capacity = &self.kinds[usize::from(self.kind_of[node])].capacity;
                    eligible.is_eligible(node) && self.goes_onto(need, capacity) > 0
                })
            })
    }

    /// Returns how many pods of one need go in beside all of the others, or why these do not; by totals alone where more
    /// takes too many steps.
    pub(crate) fn max_pods_beside(
        &self,
        resources: &Resources,
        beside: &Needs<'_>,
        need: &Need<'_>,
        steps: &Steps,
    ) -> Result<i64, Reason> {
        if let Some(lacking) = self.evaluate_totals(beside).1 {
            return Err(lacking);
        }
        let asked = beside.sums.iter().filter_map(|sum| Some((sum.id?, sum.amount)));
        let by_totals = || Ok(self.most_by_totals(asked.clone(), need));
        let mut free = self.free.clone();
        match self.place_daemons(resources, beside, &mut free, steps) {
            Err(Some(reason)) => return Err(reason),
            Err(None) => return by_totals(),
            Ok(()) => {}
        }
        let mut shapes: Vec<&Need<'_>> = beside.each.iter().filter(|one| !one.daemon && one.is_open()).collect();
        shapes.sort_by(|a, b| self.by_share(b, a).then_with(|| a.key.cmp(b.key)));
        for one in shapes {
            let eligible = self.eligible_within(one, steps).filter(|_| steps.take_steps(self.count_nodes()));
            let Some(eligible) = eligible else { return by_totals() };
            let (nodes, sums) = (eligible.count_eligible(self.count_nodes()), self.sum_free_amounts(&eligible, &free));
            if let Some(reason) = self.lacks_nodes(resources, one, nodes, &sums) {
                return Err(reason);
            }
            if self.fill_nodes(one, &eligible, &mut free) < one.pods {
                return Err(self.why_not_packed(resources, one, nodes, &eligible, &free, &sums));
            }
        }
        let Some(eligible) = self.eligible_within(need, steps) else { return by_totals() };
        let endless = Need { pods: i64::MAX, ..need.clone() };
        Ok(self.fill_nodes(&endless, &eligible, &mut free))
    }

    /// Returns how many pods of a need go in by totals, where so much of each resource is asked for besides.
    pub(crate) fn most_by_totals(&self, asked: impl Iterator<Item = (ResourceId, i64)>, need: &Need<'_>) -> i64 {
        let mut left = self.free_sums.clone();
        for (id, amount) in asked {
            if let Some(column) = self.find_column(id) {
                left[column] = left[column].saturating_sub(amount);
            }
        }
        let requests = need.requests.iter().filter(|(_, request)| *request > 0);
        let fits = requests.map(|(id, request)| {
            id.and_then(|id| self.find_column(id)).map_or(0, |column| left[column].max(0) / request)
        });
        let nodes = i64::try_from(self.count_nodes()).unwrap_or(i64::MAX).saturating_sub(need.counted).max(0);
        fits.min().unwrap_or(i64::MAX).min(if need.shape.one_per_node { nodes } else { i64::MAX })
    }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
