//! Packing: whether pods go onto nodes, first in a way that wastes least, then in the way of the cluster's own scheduler.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use super::{Eligible, Need, Needs, Resources, Room};
use crate::placement::reason::{Fragmented, Reason};

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
            let free = id.and_then(|id| self.column(id)).map_or(0, |column| row[column]);
            most = most.min(free.max(0) / request);
        }
        most
    }

    fn take(&self, need: &Need<'_>, row: &mut [i64], pods: i64) {
        for (id, request) in &need.requests {
            if let Some(column) = id.and_then(|id| self.column(id)) {
                row[column] = row[column].saturating_sub(request.saturating_mul(pods));
            }
        }
    }

    /// Fills nodes in their order, as many pods as go in; returns how many did.
    pub(super) fn fill(&self, need: &Need<'_>, eligible: &Eligible, free: &mut [i64]) -> i64 {
        // Pods that are there hold a node each, and nobody knows which.
        let mut nodes_left = if need.shape.one_per_node {
            i64::try_from(eligible.count(self.nodes())).unwrap_or(i64::MAX).saturating_sub(need.counted)
        } else {
            i64::MAX
        };
        let mut placed = 0;
        for (node, row) in free.chunks_exact_mut(self.width().max(1)).enumerate() {
            if placed >= need.pods || nodes_left <= 0 {
                break;
            }
            if !eligible.is(node) {
                continue;
            }
            let pods = self.goes_onto(need, row).min(need.pods - placed);
            if pods > 0 {
                self.take(need, row, pods);
                placed += pods;
                nodes_left -= 1;
            }
        }
        placed
    }

    /// Takes a pod's part from each eligible node with room; `None` if there are eligible nodes and none has room.
    pub(super) fn place_daemon(&self, need: &Need<'_>, eligible: &Eligible, free: &mut [i64]) -> Option<()> {
        let (mut nodes, mut placed) = (0, 0);
        for (node, row) in free.chunks_exact_mut(self.width().max(1)).enumerate() {
            if eligible.is(node) {
                nodes += 1;
                if self.goes_onto(need, row) > 0 {
                    self.take(need, row, 1);
                    placed += 1;
                }
            }
        }
        (nodes == 0 || placed > 0).then_some(())
    }

    /// Returns whether all needs have room: totals, then both packings.
    pub fn fit(&self, resources: &Resources, needs: &Needs<'_>) -> Fit {
        match self.totals(needs).1 {
            Some(lacking) => Fit::No(lacking),
            None => self.fit_exactly(resources, needs),
        }
    }

    /// Returns whether needs whose totals are there can be packed.
    pub(crate) fn fit_exactly(&self, resources: &Resources, needs: &Needs<'_>) -> Fit {
        let mut free = self.free.clone();
        if let Err(reason) = self.place_daemons(resources, needs, &mut free) {
            return Fit::No(reason);
        }
        let open = needs.each.iter().filter(|need| !need.daemon && need.is_open());
        let mut shapes: Vec<(usize, &Need<'_>, Eligible)> = open
            .map(|need| {
                let eligible = self.eligible(need);
                (eligible.count(self.nodes()), need, eligible)
            })
            .collect();
        shapes.sort_by(|(a_nodes, a, _), (b_nodes, b, _)| self.packing_order((*a_nodes, a), (*b_nodes, b)));
        let after_daemons = (shapes.len() >= 2).then(|| free.clone());
        for (nodes, need, eligible) in &shapes {
            if let Some(reason) = self.lacks_nodes(resources, need, eligible, *nodes, &free) {
                return Fit::No(reason);
            }
            let sums = self.sums(eligible, &free);
            if self.fill(need, eligible, &mut free) < need.pods {
                return Fit::No(self.why_not_packed(resources, need, *nodes, eligible, &free, &sums));
            }
        }
        let spreads = after_daemons.is_none_or(|mut free| self.spreads(&mut shapes, &mut free));
        if spreads { Fit::Fits } else { Fit::Tight }
    }

    fn place_daemons(&self, resources: &Resources, needs: &Needs<'_>, free: &mut [i64]) -> Result<(), Reason> {
        for need in needs.each.iter().filter(|need| need.daemon && need.is_open()) {
            let eligible = self.eligible(need);
            if eligible.count(self.nodes()) == 0 && self.labels_are_unknown(need.shape) {
                return Err(Reason::NodeLabelsUnknown(Box::new(need.key.clone())));
            }
            let sums = self.sums(&eligible, free);
            if self.place_daemon(need, &eligible, free).is_none() {
                return Err(self.fragmented(resources, need, &eligible, free, &sums));
            }
        }
        Ok(())
    }

    /// Returns the amounts that are free on the eligible nodes, by column.
    fn sums(&self, eligible: &Eligible, free: &[i64]) -> Vec<i64> {
        let mut sums = vec![0_i64; self.width()];
        for (_, row) in free.chunks_exact(self.width().max(1)).enumerate().filter(|(node, _)| eligible.is(*node)) {
            for (sum, amount) in sums.iter_mut().zip(row) {
                *sum = sum.saturating_add(*amount);
            }
        }
        sums
    }

    /// Returns the reason that pods have no nodes at all, or too little on those that they have.
    fn lacks_nodes(
        &self,
        resources: &Resources,
        need: &Need<'_>,
        eligible: &Eligible,
        nodes: usize,
        free: &[i64],
    ) -> Option<Reason> {
        let key = || Box::new(need.key.clone());
        if nodes == 0 {
            let unknown = self.labels_are_unknown(need.shape);
            return Some(if unknown { Reason::NodeLabelsUnknown(key()) } else { Reason::NoNodeMatches(key()) });
        }
        if matches!(eligible, Eligible::All) && self.daemons_took_nothing(free) {
            // The totals of all nodes were compared before.
            return None;
        }
        self.insufficient(resources, need, &self.sums(eligible, free))
    }

    fn daemons_took_nothing(&self, free: &[i64]) -> bool {
        free == self.free
    }

    fn insufficient(&self, resources: &Resources, need: &Need<'_>, sums: &[i64]) -> Option<Reason> {
        let lacking = |(id, request): &(Option<u16>, i64)| {
            let id = (*id)?;
            let free = self.column(id).map_or(0, |column| sums[column]);
            let asked = request.saturating_mul(need.pods);
            (asked > free).then(|| Reason::Insufficient { resource: resources.name(id).clone(), asked, free })
        };
        need.requests.iter().find_map(lacking)
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
        if let Some(reason) = self.insufficient(resources, need, sums) {
            return reason;
        }
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        if need.shape.one_per_node && need.pods.saturating_add(need.counted) > nodes {
            return Reason::TooFewNodes(Box::new(need.key.clone()));
        }
        self.fragmented(resources, need, eligible, free, sums)
    }

    /// Names the resource of which the fullest-packed node is most short.
    fn fragmented(
        &self,
        resources: &Resources,
        need: &Need<'_>,
        eligible: &Eligible,
        free: &[i64],
        sums: &[i64],
    ) -> Reason {
        let rows = || free.chunks_exact(self.width().max(1)).enumerate().filter(|(node, _)| eligible.is(*node));
        let of = |(id, request): &(Option<u16>, i64)| {
            let id = (*id)?;
            let column = self.column(id)?;
            let most = rows().map(|(_, row)| row[column]).max().unwrap_or_default();
            Some((most / (*request).max(1), id, *request, most, sums[column]))
        };
        let scarcest = need.requests.iter().filter_map(of).min_by_key(|(times, ..)| *times);
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
        let share = |need: &Need<'_>| {
            let of = |(id, request): &(Option<u16>, i64)| {
                let column = id.and_then(|id| self.column(id))?;
                crate::placement::fraction::Fraction::new(*request, self.capacity[column])
            };
            need.requests.iter().filter_map(of).max()
        };
        share(a).cmp(&share(b))
    }

    /// Packs smallest first, each pod onto the node where most stays free.
    fn spreads(&self, shapes: &mut [(usize, &Need<'_>, Eligible)], free: &mut [i64]) -> bool {
        shapes.sort_by(|(_, a, _), (_, b, _)| self.by_share(a, b).then_with(|| a.key.cmp(b.key)));
        let width = self.width().max(1);
        for (nodes, need, eligible) in shapes.iter() {
            let mut used = vec![false; if need.shape.one_per_node { self.nodes() } else { 0 }];
            let nodes = i64::try_from(*nodes).unwrap_or(i64::MAX);
            if need.shape.one_per_node && need.pods.saturating_add(need.counted) > nodes {
                return false;
            }
            for _ in 0..need.pods {
                let fits = |node: &usize| {
                    eligible.is(*node)
                        && !used.get(*node).copied().unwrap_or(false)
                        && self.goes_onto(need, &free[node * width..(node + 1) * width]) > 0
                };
                let score = |node: &usize| self.score(need, *node, &free[node * width..(node + 1) * width]);
                let best = (0..self.nodes()).filter(fits).max_by_key(|node| (score(node), Reverse(*node)));
                let Some(node) = best else { return false };
                self.take(need, &mut free[node * width..(node + 1) * width], 1);
                if let Some(used) = used.get_mut(node) {
                    *used = true;
                }
            }
        }
        true
    }

    /// Returns what would stay free of cpu and memory on a node, each in thousandths of its capacity, added up.
    fn score(&self, need: &Need<'_>, node: usize, row: &[i64]) -> i128 {
        let capacity = &self.kinds[usize::from(self.kind_of[node])].capacity;
        let of = |id: u16| {
            let column = self.column(id)?;
            let request = need.requests.iter().find(|(one, _)| *one == Some(id)).map_or(0, |(_, request)| *request);
            let whole = i128::from(capacity[column]);
            (whole > 0).then(|| (i128::from(row[column]) - i128::from(request)) * 1000 / whole)
        };
        [0, 1].into_iter().filter_map(of).sum()
    }

    /// Returns whether every pod would fit an empty node like one that is there; true of a cluster without nodes.
    pub(crate) fn fits_empty_nodes(&self, needs: &Needs<'_>) -> bool {
        self.nodes() == 0
            || needs.each.iter().filter(|need| need.is_open()).all(|need| {
                let eligible = self.eligible(need);
                (0..self.nodes()).any(|node| {
                    let capacity = &self.kinds[usize::from(self.kind_of[node])].capacity;
                    eligible.is(node) && self.goes_onto(need, capacity) > 0
                })
            })
    }

    /// Returns how many pods of one need go in beside all of the others, or why these do not.
    pub(crate) fn most(&self, resources: &Resources, beside: &Needs<'_>, need: &Need<'_>) -> Result<i64, Reason> {
        if let Some(lacking) = self.totals(beside).1 {
            return Err(lacking);
        }
        let mut free = self.free.clone();
        self.place_daemons(resources, beside, &mut free)?;
        let mut shapes: Vec<&Need<'_>> = beside.each.iter().filter(|one| !one.daemon && one.is_open()).collect();
        shapes.sort_by(|a, b| self.by_share(b, a).then_with(|| a.key.cmp(b.key)));
        for one in shapes {
            let eligible = self.eligible(one);
            let (nodes, sums) = (eligible.count(self.nodes()), self.sums(&eligible, &free));
            if let Some(reason) = self.lacks_nodes(resources, one, &eligible, nodes, &free) {
                return Err(reason);
            }
            if self.fill(one, &eligible, &mut free) < one.pods {
                return Err(self.why_not_packed(resources, one, nodes, &eligible, &free, &sums));
            }
        }
        let endless = Need { pods: i64::MAX, ..need.clone() };
        Ok(self.fill(&endless, &self.eligible(need), &mut free))
    }
}
