//! A look at a group: which reports count, which copies serve, and the writes that one copy needs.

use std::collections::BTreeSet;

use super::record::{ClusterAmounts, MovePhase, MoveRecord, amount_in};
use super::seen::{Seen, SeenPolicy, SeenSchedule};
use super::write::{MoveEvent, MoveStep, MoveWrite};

/// The record of a group beside what is seen of it.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) record: &'a MoveRecord,
    pub(super) seen: &'a Seen,
}

impl<'a> View<'a> {
    /// Returns every cluster that the record or a Schedule names, or that exists, in the order of their names.
    pub(super) fn cluster_names(self) -> BTreeSet<&'a str> {
        let sides = self.record.running.iter().flat_map(|running| running.from.keys().chain(running.to.keys()));
        let seen = self.seen.clusters.keys().chain(self.seen.schedules.keys());
        seen.chain(self.record.target.keys()).chain(sides).map(String::as_str).collect()
    }

    pub(super) fn schedule(self, cluster: &str) -> Option<&'a SeenSchedule> {
        self.seen.schedules.get(cluster)
    }

    /// Returns whether the cluster has a Schedule that is not being deleted.
    pub(super) fn is_live(self, cluster: &str) -> bool {
        self.schedule(cluster).is_some_and(|schedule| !schedule.deleting)
    }

    pub(super) fn cluster_exists(self, cluster: &str) -> bool {
        self.seen.clusters.contains_key(cluster)
    }

    pub(super) fn is_ready(self, cluster: &str) -> bool {
        self.seen.clusters.get(cluster).is_some_and(|cluster| cluster.ready)
    }

    /// Returns whether the cluster is not Ready for long, or gone.
    pub(super) fn is_away(self, cluster: &str) -> bool {
        self.seen.clusters.get(cluster).is_none_or(|cluster| cluster.away)
    }

    /// Returns whether nothing is decided: the policy is gone, or suspended.
    pub(super) fn is_fixed(self) -> bool {
        self.seen.policy != SeenPolicy::There
    }

    /// Returns whether the report of a copy counts. An equal hash would prove nothing: it comes back.
    pub(super) fn report_counts(self, cluster: &str) -> bool {
        self.is_ready(cluster)
            && self.schedule(cluster).is_some_and(|schedule| !schedule.deleting && schedule.asked && schedule.answered)
    }

    /// Returns whether the copy runs so many now, with whatever hash: edits reach both sides.
    pub(super) fn copy_serves(self, cluster: &str, amount: i64) -> bool {
        self.report_counts(cluster)
            && self
                .schedule(cluster)
                .is_some_and(|schedule| schedule.amount >= amount && schedule.said.available >= amount)
    }

    /// Returns whether the copy ran so many at least once.
    pub(super) fn copy_served(self, cluster: &str, amount: i64) -> bool {
        self.report_counts(cluster) && self.most_served(cluster) >= amount
    }

    /// Returns the most that a copy is said to have served, whether or not its report counts.
    pub(super) fn most_served(self, cluster: &str) -> i64 {
        self.schedule(cluster).map_or(0, |schedule| schedule.said.served)
    }

    /// Returns what is asked of a copy: its amount, but no more than the copies that it replaces ever served, if their
    /// reports count.
    pub(super) fn needed_amount(self, amount: i64, replaced: &[&str]) -> i64 {
        if !replaced.iter().all(|cluster| self.schedule(cluster).is_none() || self.report_counts(cluster)) {
            return amount;
        }
        let served = replaced.iter().map(|cluster| self.most_served(cluster)).max();
        match served {
            // Shares are added up: less than one is only needed for what never served at all.
            Some(1..) | None if self.seen.source.divided => amount,
            served => amount.min(served.unwrap_or(0)),
        }
    }

    /// Returns the write that makes the Schedule of a cluster ask for an amount of the current source.
    pub(super) fn write_amount(self, cluster: &str, amount: i64) -> Option<MoveWrite> {
        let name = cluster.to_owned();
        if self.seen.policy == SeenPolicy::Suspended {
            return None;
        }
        let Some(schedule) = self.schedule(cluster) else {
            return self.cluster_exists(cluster).then_some(MoveWrite::Create { cluster: name, amount });
        };
        let differs = schedule.hash != self.seen.source.hash || schedule.amount != amount;
        (!schedule.deleting && differs).then_some(MoveWrite::Edit { cluster: name, amount })
    }

    /// The same, but a share falls only if no available pod is lost by it, or enough is available elsewhere.
    pub(super) fn write_amount_safely(self, cluster: &str, amount: i64, others: &[&str]) -> Vec<MoveWrite> {
        let falls_from = self.schedule(cluster).filter(|schedule| !schedule.deleting && schedule.amount > amount);
        let Some(schedule) = falls_from else {
            return self.write_amount(cluster, amount).into_iter().collect();
        };
        let counts = self.report_counts(cluster);
        if counts && (schedule.said.available <= amount || self.is_enough_elsewhere(cluster, amount)) {
            return self.write_amount(cluster, amount).into_iter().collect();
        }
        let unchanged = self.write_amount(cluster, schedule.amount);
        unchanged.into_iter().chain(self.ask_clusters(others.iter().copied())).collect()
    }

    /// Returns whether an amount here and what is available elsewhere are all the pods of the group. Elsewhere only that
    /// counts which the record leaves there: the rest may fall by a write that is still on its way.
    fn is_enough_elsewhere(self, cluster: &str, amount: i64) -> bool {
        let others = self.seen.schedules.keys().filter(|other| *other != cluster && self.report_counts(other));
        let stays: i64 =
            others.map(|other| self.seen.schedules[other].said.available.min(self.planned_amount(other))).sum();
        amount + stays >= self.planned_pods()
    }

    /// Returns the amount that the record leaves to a cluster in its present phase.
    fn planned_amount(self, cluster: &str) -> i64 {
        let Some(running) = &self.record.running else { return amount_in(&self.record.target, cluster) };
        let (from, to) = (amount_in(&running.from, cluster), amount_in(&running.to, cluster));
        match running.phase {
            MovePhase::Up => from.max(to),
            MovePhase::Removing => to,
            MovePhase::RollingBack => from,
        }
    }

    /// Returns the pods below which the group does not fall: what its source asks for, but no more than the record gives.
    fn planned_pods(self) -> i64 {
        let planned = match &self.record.running {
            None => self.record.target.values().sum(),
            Some(running) => running.from.values().sum::<i64>().min(running.to.values().sum()),
        };
        planned.min(self.seen.source.amount)
    }

    /// Asks the clusters that this leader did not ask in its term since they were last not Ready.
    pub(super) fn ask_clusters(self, clusters: impl IntoIterator<Item = &'a str>) -> Vec<MoveWrite> {
        let open = clusters
            .into_iter()
            .filter(|cluster| self.is_live(cluster) && self.is_ready(cluster) && !self.seen.schedules[*cluster].asked);
        open.map(|cluster| MoveWrite::Ask { cluster: cluster.to_owned() }).collect()
    }

    /// Writes the Schedules of the copies of a side once more before the record says that they stay. A deletion that is
    /// still on its way then fails by the Schedule's version.
    pub(super) fn keep_copies(self, side: &ClusterAmounts) -> Vec<MoveWrite> {
        side.keys()
            .filter(|cluster| {
                let kept = self.schedule(cluster).and_then(|schedule| schedule.kept);
                amount_in(side, cluster) > 0 && self.is_live(cluster) && kept != Some(self.record.epoch)
            })
            .map(|cluster| MoveWrite::Keep { cluster: cluster.clone() })
            .collect()
    }

    /// Keeps the copies of a side, then writes the record.
    pub(super) fn keep_then_record(
        self,
        side: &ClusterAmounts,
        record: MoveRecord,
        event: Option<MoveEvent>,
    ) -> MoveStep {
        let keep = self.keep_copies(side);
        if keep.is_empty() { MoveStep::Record { record, event } } else { MoveStep::Writes(keep) }
    }
}
