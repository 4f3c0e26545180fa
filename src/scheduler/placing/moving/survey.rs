//! What is seen of a group that is recorded: its copies by cluster, and what each of them lacks.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::Moves;
use super::{moved_members, time_text};
use crate::api::crd::cluster::conditions;
use crate::api::crd::condition::find_condition;
use crate::api::crd::schedule::ScheduleShare;
use crate::api::first_of::first_of;
use crate::api::{Cluster, Schedule};
use crate::placement::copy::Share;
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::live;
use crate::placement::matching::Policy;
use crate::placement::moves::{
    Move, MovePhase, MoveRecord, Seen, SeenCluster, SeenDecision, SeenPolicy, SeenReport, SeenSchedule, SeenSource,
};
use crate::placement::proposal::{cause_text, side_text};
use crate::placement::spread_proposal::{find_divided_member, has_own_share, has_replicas};
use crate::scheduler::placing::decide::Clusters;
use crate::scheduler::placing::faults::CopyFaults;
use crate::scheduler::placing::group_plan::Scaled;
use crate::scheduler::placing::place::{Place, cluster_of};
use crate::scheduler::placing::plan::Plan;
use crate::scheduler::placing::schedule_diff::{DesiredSchedule, ScheduleDiff};
use crate::scheduler::placing::store::{Assignment, Store};

/// Seconds after which a cluster that is not Ready is away, unless the policy has its own.
const AWAY_SECONDS: i64 = 600;
/// Most objects that a message names.
const NAMED: usize = 3;
/// Hash of copies that are as their sources say, and of others.
const CURRENT: &str = "current";
const DIFFERENT: &str = "different";

/// A group, with all that its copies are compared with.
pub(super) struct Survey<'a> {
    pub(super) store: &'a Store,
    name: &'a str,
    pub(super) clusters: &'a Clusters,
    moves: &'a Moves,
    pub(super) record: &'a MoveRecord,
    pub(super) policy: Option<&'a Policy>,
    /// Members that are moved.
    pub(super) members: Vec<&'a ObjectKey>,
    /// The member whose replicas are divided.
    divided: Option<&'a Facts>,
    /// Members that have to serve on the new side: those that served on the old one, else all.
    counted: Vec<&'a ObjectKey>,
    pub(super) now: i64,
}

/// The writes that the copies of a group in one cluster lack, and those of which none can be made.
pub(super) type ClusterDiff = (Plan, CopyFaults);

impl<'a> Survey<'a> {
    pub(super) fn new(
        store: &'a Store,
        name: &'a str,
        clusters: &'a Clusters,
        moves: &'a Moves,
        record: &'a MoveRecord,
        now: i64,
    ) -> Self {
        let (policy, members) = (store.policy_of(name), moved_members(store, name));
        let facts = members.iter().filter_map(|key| store.source_facts(key));
        let divided = match policy {
            Some(policy) => find_divided_member(policy, facts),
            None => find_shared_member(store, facts),
        };
        let mut survey =
            Self { store, name, clusters, moves, record, policy, members, divided, counted: Vec::new(), now };
        survey.counted = survey.find_counted();
        survey
    }

    /// Returns the clusters in which what is missing is made; elsewhere what exists is edited.
    fn made_in(&self) -> BTreeSet<&'a str> {
        let target = self.record.target.keys();
        let both = self.record.running.iter().filter(|running| running.phase == MovePhase::Up);
        let both = both.flat_map(|running| running.from.keys().chain(running.to.keys()));
        let clusters = target.chain(both).map(String::as_str);
        clusters.filter(|cluster| self.clusters.known.contains_key(*cluster)).collect()
    }

    /// Returns the clusters that exist and have a copy.
    fn copied_in(&self) -> BTreeSet<&'a str> {
        let copies = self.members.iter().flat_map(|key| self.store.copies_of(key));
        copies.map(|(at, _)| cluster_of(at)).filter(|cluster| self.clusters.known.contains_key(*cluster)).collect()
    }

    /// Returns the copies in a cluster that are not being deleted, and go with the others of the group.
    pub(super) fn live_copies(&self, cluster: &str) -> Vec<(&'a ObjectKey, &'a Place, &'a Schedule)> {
        let copies = self.members.iter().filter_map(|key| {
            let (at, schedule) = self.store.copy_in(key, cluster)?;
            Some((*key, at, schedule))
        });
        let live = copies.filter(|(_, _, schedule)| schedule.metadata.deletion_timestamp.is_none());
        live.filter(|(key, _, schedule)| !self.is_left_running(key, cluster, schedule)).collect()
    }

    /// Returns the copy of a member in a cluster, unless it is being deleted.
    fn live_copy(&self, key: &ObjectKey, cluster: &str) -> Option<&'a Schedule> {
        let copy = self.store.copy_in(key, cluster).map(|(_, schedule)| schedule);
        copy.filter(|schedule| schedule.metadata.deletion_timestamp.is_none())
    }

    /// Returns what is reported of the copy of a member; nothing of one that is being deleted.
    fn report(&self, key: &ObjectKey, cluster: &str) -> SeenReport {
        self.live_copy(key, cluster).map(live::read_copy_report).unwrap_or_default()
    }

    fn find_counted(&self) -> Vec<&'a ObjectKey> {
        let old: BTreeSet<&str> = match &self.record.running {
            Some(running) => running.from.keys().map(String::as_str).collect(),
            None => self.copied_in().into_iter().filter(|cluster| !self.record.target.contains_key(*cluster)).collect(),
        };
        // What runs once is stopped first: nothing waits until it serves.
        let all: Vec<&ObjectKey> = self.members.iter().filter(|key| !self.is_stopped_first(key)).copied().collect();
        let counted = all.iter().filter(|key| old.iter().any(|cluster| self.report(key, cluster).served > 0));
        let counted: Vec<&ObjectKey> = counted.copied().collect();
        if counted.is_empty() { all } else { counted }
    }

    /// Returns what the copies of each cluster lack that has some, or is to have some.
    pub(super) fn diff_clusters(&self) -> BTreeMap<&'a str, ClusterDiff> {
        let made = self.made_in();
        let members = self.store.members.get(self.name);
        let facts = members.into_iter().flatten().filter_map(|key| self.store.source_facts(key));
        let scaled = Scaled::from_members(facts.chain(self.store.followers_of(self.name)));
        let all = made.iter().copied().chain(self.copied_in());
        all.map(|cluster| (cluster, self.diff_cluster(cluster, made.contains(cluster), &scaled, None))).collect()
    }

    /// Returns what the copies in a cluster lack to ask for an amount.
    pub(super) fn diff_amount(&self, cluster: &str, amount: i64) -> ClusterDiff {
        let members = self.store.members.get(self.name);
        let facts = members.into_iter().flatten().filter_map(|key| self.store.source_facts(key));
        let scaled = Scaled::from_members(facts.chain(self.store.followers_of(self.name)));
        self.diff_cluster(cluster, self.made_in().contains(cluster), &scaled, Some(amount))
    }

    /// Returns whether the group is divided: an edit of its copies has an amount.
    pub(super) fn is_divided(&self) -> bool {
        self.divided.is_some()
    }

    /// Returns the amount that the copies in a cluster ask for; `None` without any of what is divided.
    fn asked_amount(&self, cluster: &str) -> Option<i64> {
        let Some(divided) = self.divided else { return Some(1) };
        let (_, schedule) = self.store.copy_in(&divided.key, cluster)?;
        let share = schedule.spec.share.as_ref().and_then(|share| share.replicas);
        Some(share.unwrap_or_else(|| divided.workload.pods_at_once()))
    }

    /// Returns the amount that the record has for a cluster now.
    fn planned_amount(&self, cluster: &str) -> i64 {
        let up = self.record.running.as_ref().filter(|running| running.phase == MovePhase::Up);
        let sides = up.map_or([&self.record.target; 2], |running| [&running.from, &running.to]);
        sides.into_iter().filter_map(|side| side.get(cluster)).max().copied().unwrap_or(0)
    }

    /// Returns the share that a member has in a cluster with an amount; that of a group without a policy is kept.
    fn build_share(&self, key: &ObjectKey, cluster: &str, amount: i64) -> Option<ScheduleShare> {
        let known = self.store.copy_in(key, cluster).and_then(|(_, schedule)| schedule.spec.share.clone());
        let is_divided = self.divided.is_some_and(|divided| divided.key == *key);
        let Some(policy) = self.policy else {
            return known.map(|known| {
                let replicas = if is_divided { Some(amount) } else { known.replicas };
                ScheduleShare { replicas, ..known }
            });
        };
        let label = &policy.spec.spread_constraints.as_ref()?.topology_key;
        let named = self.clusters.fleet.get(cluster).and_then(|one| one.find_label(label)).map(ToOwned::to_owned);
        let domain = named.or_else(|| known.map(|known| known.domain))?;
        Some(live::build_schedule_share(&domain, is_divided.then_some(Share::Replicas(amount))))
    }

    fn diff_cluster(&self, cluster: &str, is_made: bool, scaled: &Scaled<'_>, amount: Option<i64>) -> ClusterDiff {
        let amount = amount.or_else(|| self.asked_amount(cluster)).unwrap_or_else(|| self.planned_amount(cluster));
        let mut diff = ScheduleDiff::new(self.store);
        for key in self.store.members.get(self.name).into_iter().flatten().filter(|key| !self.is_left_member(key)) {
            let Some(source) = self.store.sources.get(key) else { continue };
            let is_made = is_made && (!self.is_stopped_first(key) || self.is_begun_in(key, cluster));
            if is_made || self.store.copy_in(key, cluster).is_some() {
                let (policy, group, scaler) = (self.policy, Some(self.name), scaled.find_scaler(key));
                let share = self.build_share(key, cluster, amount);
                let whole = DesiredSchedule::of_whole(source, cluster);
                diff.add_desired(&DesiredSchedule { share, policy, group, scaler, ..whole });
            }
        }
        diff.into_plan()
    }

    /// Returns whether a member is no longer decided, beside others that are.
    fn is_left_member(&self, key: &ObjectKey) -> bool {
        self.policy.is_some() && matches!(self.store.assignments.get(key), Some(Assignment::Left(_)))
    }

    /// Returns what the copies lack of members that are no longer decided: they stay where they are, and are edited.
    pub(super) fn diff_left(&self) -> ClusterDiff {
        let mut diff = ScheduleDiff::new(self.store);
        for key in self.store.members.get(self.name).into_iter().flatten().filter(|key| self.is_left_member(key)) {
            let Some(source) = self.store.sources.get(key) else { continue };
            for (at, schedule) in self.store.copies_of(key) {
                let (cluster, share, group) = (cluster_of(at), schedule.spec.share.clone(), Some(self.name));
                diff.add_desired(&DesiredSchedule { share, group, ..DesiredSchedule::of_whole(source, cluster) });
            }
        }
        diff.into_plan()
    }

    /// Returns what is seen of the group, except for its admission.
    pub(super) fn see(&self, decision: SeenDecision, diffs: &BTreeMap<&str, ClusterDiff>) -> Seen {
        let schedules = self.copied_in().into_iter().map(|cluster| {
            let differs = diffs.get(cluster).is_none_or(|(plan, _)| plan.is_partial || !plan.stages.is_empty());
            (cluster.to_owned(), self.see_schedule(cluster, differs))
        });
        let schedules = schedules.collect();
        let mut facts = self.members.iter().filter_map(|key| self.store.source_facts(key));
        let since = self.record.running.as_ref().map_or(self.now, |running| running.since);
        let patience = self.policy.and_then(Policy::failover_seconds).unwrap_or(AWAY_SECONDS);
        let of_move = self.record.running.iter().flat_map(|running| running.from.keys().chain(running.to.keys()));
        let named = self.record.target.keys().chain(of_move).chain(decision.best.keys()).map(String::as_str);
        let clusters = named.chain(self.copied_in()).filter_map(|name| self.clusters.known.get_key_value(name));
        let clusters = clusters.map(|(name, one)| (name.clone(), see_cluster(one, self.now, patience))).collect();
        Seen {
            now: self.now,
            admitted: false,
            frozen: self.moves.is_frozen(),
            frozen_seconds: self.moves.frozen_seconds(since, self.now),
            policy: match self.policy {
                None => SeenPolicy::Gone,
                Some(policy) if policy.spec.suspend => SeenPolicy::Suspended,
                Some(_) => SeenPolicy::There,
            },
            source: SeenSource {
                there: true,
                hash: CURRENT.to_owned(),
                amount: self.divided.map_or_else(|| self.planned_clusters(), |one| one.workload.pods_at_once()),
                divided: self.is_spread(),
                volumes: facts.any(crate::placement::facts::Facts::has_volumes),
                consent: !self.members.iter().any(|key| self.store.is_held_by_volumes(key)),
                once: self.members.iter().all(|key| self.is_stopped_first(key)),
                idle: self.is_idle(),
            },
            decision,
            clusters,
            schedules,
        }
    }

    /// Returns whether the group is spread; without a policy, whether its copies are.
    fn is_spread(&self) -> bool {
        match self.policy {
            Some(policy) => policy.spec.spread_constraints.is_some(),
            None => {
                let mut copies = self.members.iter().flat_map(|key| self.store.copies_of(key));
                copies.any(|(_, schedule)| schedule.spec.share.is_some())
            }
        }
    }

    /// Returns the number of clusters that the group goes to.
    fn planned_clusters(&self) -> i64 {
        let side = self.record.running.as_ref().map_or(&self.record.target, |running| &running.to);
        i64::try_from(side.len()).unwrap_or(i64::MAX).max(1)
    }

    /// Returns how much of a group is there by what each counted member has: 0 unless all of them have something.
    fn sum_reports(
        &self,
        cluster: &str,
        count: impl Fn(SeenReport) -> i64,
        of_whole: impl Fn(&Schedule, i64) -> i64,
    ) -> i64 {
        let asked = self.asked_amount(cluster).unwrap_or(0);
        let (shared, others): (Vec<&ObjectKey>, Vec<_>) =
            self.counted.iter().copied().partition(|key| self.divided.is_some_and(|divided| divided.key == **key));
        if others.iter().any(|key| count(self.report(key, cluster)) <= 0) {
            return 0;
        }
        let Some(key) = shared.first() else { return asked };
        match self.live_copy(key, cluster) {
            Some(copy) if !has_own_share(copy) => of_whole(copy, asked),
            _ => count(self.report(key, cluster)).min(asked),
        }
    }

    /// Returns what is seen of the copies in a cluster: they are one copy of the group.
    fn see_schedule(&self, cluster: &str, differs: bool) -> SeenSchedule {
        let live = self.live_copies(cluster);
        let object = &self.clusters.known[cluster];
        let asked = self.moves.asked_text(object);
        let copies = self.members.iter().filter_map(|key| self.store.copy_in(key, cluster));
        let kept: Option<BTreeSet<i64>> =
            live.iter().map(|(_, at, schedule)| self.moves.kept_epoch(at, schedule.metadata.uid.as_ref())).collect();
        SeenSchedule {
            hash: if differs { DIFFERENT } else { CURRENT }.to_owned(),
            amount: self.asked_amount(cluster).unwrap_or(0),
            deleting: live.is_empty(),
            said: SeenReport {
                available: self.sum_reports(cluster, |report| report.available, live::available_of_whole),
                served: self.sum_reports(cluster, |report| report.served, served_of_whole),
                finished: self.is_over(),
                removed: copies.map(|(_, schedule)| live::read_copy_report(schedule)).all(|report| report.removed),
            },
            asked: asked.is_some(),
            answered: asked
                .is_some_and(|text| live.iter().all(|(_, _, schedule)| live::is_answered(schedule, object, text))),
            kept: kept.filter(|epochs| epochs.len() == 1).and_then(|epochs| epochs.into_iter().next()),
        }
    }

    /// Returns reason and message of the condition `Moving`; `None` without a move.
    pub(super) fn describe(&self, record: &MoveRecord, seen: &Seen) -> Option<(&'static str, String)> {
        let running = record.running.as_ref()?;
        let (reason, missing) = match running.phase {
            MovePhase::Up => self.describe_up(running, seen),
            MovePhase::Removing => {
                ("Removing", format!("the copies on {} are being deleted", side_text(&running.from)))
            }
            MovePhase::RollingBack => {
                ("RollingBack", format!("the copies on {} are being deleted", side_text(&running.to)))
            }
        };
        let (from, to, cause) = (side_text(&running.from), side_text(&running.to), cause_text(running.cause));
        let (since, deadline) = (time_text(running.since), time_text(running.deadline));
        Some((reason, format!("from {from} to {to} ({cause}) since {since}, deadline {deadline}: {missing}")))
    }

    fn describe_up(&self, running: &Move, seen: &Seen) -> (&'static str, String) {
        let (mut missing, mut is_made) = (Vec::new(), true);
        for (cluster, amount) in &running.to {
            for key in &self.counted {
                let is_divided = self.divided.is_some_and(|divided| divided.key == **key);
                let (needed, available) = (if is_divided { *amount } else { 1 }, self.report(key, cluster).available);
                if available >= needed {
                    continue;
                }
                is_made &= self.store.copy_in(key, cluster).is_some();
                let title = key.format_title();
                missing.push(match needed {
                    1 => format!("{title} is not available on {cluster}"),
                    _ => format!("{available} of {needed} of {title} are available on {cluster}"),
                });
            }
            let is_confirmed = seen.schedules.get(cluster).is_some_and(|one| one.asked && one.answered);
            if missing.is_empty() && !is_confirmed {
                missing.push(format!("the agent of {cluster} has not confirmed that the copies are available"));
            }
        }
        let is_late = seen.now >= running.deadline.saturating_add(seen.frozen_seconds);
        let reason = match (is_late, is_made) {
            (true, _) => "NothingToGoBackTo",
            (false, true) => "WaitingForAvailable",
            (false, false) => "Creating",
        };
        (reason, first_of(missing, NAMED, ", "))
    }
}

/// Returns the member whose copies have shares of its replicas.
fn find_shared_member<'a>(store: &'a Store, mut members: impl Iterator<Item = &'a Facts>) -> Option<&'a Facts> {
    members.find(|facts| has_replicas(facts) && store.copies_of(&facts.key).any(|(_, copy)| has_own_share(copy)))
}

fn see_cluster(cluster: &Cluster, now: i64, patience: i64) -> SeenCluster {
    let ready = cluster.status.as_ref().and_then(|status| find_condition(&status.conditions, conditions::READY));
    let since = ready.and_then(|ready| ready.last_transition_time.as_ref()).map(|time| time.0.as_second());
    let is_ready = live::is_ready(cluster);
    SeenCluster {
        uid: cluster.metadata.uid.clone().unwrap_or_default(),
        ready: is_ready,
        away: !is_ready && since.is_some_and(|since| now - since >= patience),
    }
}

/// Returns how many pods of a copy served at once that has `all` pods of its source, which reports whether it had all.
fn served_of_whole(schedule: &Schedule, all: i64) -> i64 {
    if live::read_copy_report(schedule).served > 0 { all } else { 0 }
}
