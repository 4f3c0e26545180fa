//! Where a group ends that moves by its record: the steps of the move machine, with agents that do what they are told.

use std::collections::BTreeMap;

use super::run::Run;
use crate::api::Cluster;
use crate::placement::decide::{Current, Decision, Group, Target};
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::live;
use crate::placement::matching::Policy;
use crate::placement::moves::{
    ClusterAmounts, MoveCause, MoveRecord, MoveStep, MoveWrite, Seen, SeenCluster, SeenDecision, SeenPolicy,
    SeenReport, SeenSchedule, SeenSource, exclude_cluster, step,
};
use crate::placement::proposal::{Proposal, RecordedGroup, format_frozen, moves_by_record, propose_for_group};
use crate::placement::spread_proposal::{find_divided_member, read_fitting_record, spread_moves_by_record};
use crate::placement::stuck::{Stuck, find_stuck_member};

/// The present time of a simulation: after every time that is recorded, so that what waits for its time has waited.
pub(super) const NOW: i64 = 1 << 40;
/// Most steps until a group is where it stays.
const STEPS: usize = 32;
/// Hash of every copy: agents have applied what exists.
const CURRENT: &str = "current";

/// The end of a group that moves by its record.
pub(super) struct Played {
    pub(super) decision: Decision,
    pub(super) current: Current,
    /// Whether the decision is promised its room: nothing was in progress before.
    pub(super) is_carried_out: bool,
    /// Why it moves, or would.
    pub(super) cause: Option<MoveCause>,
    /// Where it ends, if that is not where the decision puts it.
    pub(super) target: Option<Vec<Target>>,
    /// Why it does not move though it would.
    pub(super) frozen_words: Option<String>,
}

impl<'a> Run<'a> {
    fn list_moved_members(&self, name: &str) -> impl Iterator<Item = &'a Facts> {
        let members = self.members[name].iter().filter(|key| !key.is_of_kind("", "Namespace"));
        members.filter_map(|key| self.facts(key))
    }

    /// Returns whether a group moves by its record.
    pub(super) fn has_record(&self, name: &str, policy: &Policy) -> bool {
        let running = self.recorded_status(name).and_then(|status| status.record.running.as_ref());
        let mut members = self.list_moved_members(name).peekable();
        let is_spread = policy.spec.spread_constraints.is_some();
        let all = self.members[name].iter().filter_map(|key| self.facts(key));
        let followers = self.list_followers(name);
        let is_covered = !is_spread || spread_moves_by_record(policy, all.chain(followers.iter().copied()));
        is_covered
            && members.peek().is_some()
            && members.all(|facts| {
                let is_held = running.is_none_or(|running| !running.consent) && self.keeps_volumes(facts);
                moves_by_record(facts, is_held, self.list_known_copies(&facts.key).map(|(_, schedule)| schedule))
            })
    }

    /// Reads the record of a group.
    fn read_simulated_record(&self, name: &str, policy: &Policy) -> MoveRecord {
        let divided = find_divided_member(policy, self.members[name].iter().filter_map(|key| self.facts(key)));
        read_fitting_record(self.recorded_status(name), policy, divided, |cluster| {
            let mut copies = self.list_known_copies(&divided?.key);
            copies.find(|(at, _)| *at == cluster).map(|(_, schedule)| schedule)
        })
    }

    /// Decides a spread group that moves by its record: whatever moves ends where it is decided.
    pub(super) fn decide_spread_move(
        &self,
        name: &str,
        policy: &Policy,
        group: &Group<'_>,
        current: Current,
    ) -> Proposal {
        let mut record = self.read_simulated_record(name, policy);
        if record.target.is_empty() && record.running.is_none() {
            // Where it is was not recorded: its copies say it.
            record.target = self.find_copied_amounts(name, policy);
        }
        self.propose_group(name, policy, group, &record, current)
    }

    /// Returns the amounts that the copies of a spread group ask for.
    fn find_copied_amounts(&self, name: &str, policy: &Policy) -> ClusterAmounts {
        let divided = find_divided_member(policy, self.list_moved_members(name));
        let mut amounts = ClusterAmounts::new();
        for facts in self.list_moved_members(name) {
            let copies = self.list_known_copies(&facts.key).filter(|(cluster, _)| self.clusters.contains_key(cluster));
            for (cluster, copy) in copies.filter(|(_, copy)| copy.metadata.deletion_timestamp.is_none()) {
                let share = copy.spec.share.as_ref().and_then(|share| share.replicas);
                let amount = match divided {
                    None => 1,
                    Some(one) if one.key == facts.key => share.unwrap_or_else(|| facts.workload.pods_at_once()),
                    Some(_) => 0,
                };
                let known = amounts.entry(cluster.to_owned()).or_insert(0);
                *known = amount.max(*known);
            }
        }
        amounts
    }

    /// Returns whether a group has nothing but what is stopped before it begins elsewhere.
    fn is_all_stopped_first(&self, name: &str) -> bool {
        self.list_moved_members(name).all(|facts| facts.workload.is_stopped_first())
    }

    /// Returns whether a copy of what runs once has begun.
    fn has_begun(&self, name: &str) -> bool {
        let mut members = self.list_moved_members(name);
        members.any(|facts| self.list_known_copies(&facts.key).any(|(_, schedule)| live::has_begun(schedule, facts)))
    }

    /// Returns whether all that runs once of a group is over.
    fn is_all_over(&self, name: &str) -> bool {
        self.list_moved_members(name).all(|facts| self.is_over(facts))
    }

    /// Plays the moves of a group until it stays where it is.
    pub(super) fn play_moves(&self, name: &str, policy: &Policy, group: &Group<'_>, current: Current) -> Played {
        let mut record = self.read_simulated_record(name, policy);
        record.finished = self.is_all_stopped_first(name) && self.is_all_over(name);
        let (is_running, is_suspended) = (record.running.is_some(), policy.spec.suspend);
        let propose = |record: &MoveRecord| self.propose_group(name, policy, group, record, current.clone());
        if let Some(excluded) = self.exclude_stuck(name, &record).filter(|_| !is_suspended) {
            record = excluded;
        }
        let began_at = record.running.as_ref().map_or(&record.target, |running| &running.from).clone();
        let mut proposal = propose(&record);
        let mut first = None;
        let mut schedules = self.see_copies(name);
        for _ in 0..STEPS {
            let seen = self.see_group(name, &record, &proposal.seen, schedules.clone(), is_suspended);
            match step(&record, &seen) {
                // Where its copies are was not recorded; to write that down is no decision.
                MoveStep::Record { record: next, .. } if record.target.is_empty() && !schedules.is_empty() => {
                    record = next;
                    proposal = propose(&record);
                }
                MoveStep::Record { record: next, .. } => {
                    let is_placed = next.running.is_none() && !next.target.is_empty();
                    if next.target != record.target && first.is_none() {
                        first = Some(proposal.clone());
                    }
                    record = next;
                    if is_placed && record.target == seen.decision.best {
                        break;
                    }
                    proposal = propose(&record);
                }
                MoveStep::Writes(writes) if !carry_out(&mut schedules, &writes) => break,
                MoveStep::Writes(_) => {}
            }
        }
        let Proposal { seen, decision, current, .. } = first.unwrap_or(proposal);
        let is_decided = record.target.keys().eq(decision.targets.iter().map(|target| &target.cluster));
        let would_move = seen.cause.filter(|_| !seen.best.is_empty() && seen.best != began_at && !is_suspended);
        let held = would_move.filter(|_| self.state.frozen && !is_decided);
        let frozen_words = held.map(|cause| format_frozen(&record.target, cause));
        Played {
            // What is under way is promised by its Schedules.
            is_carried_out: is_decided && !is_running && !is_suspended,
            target: (!is_decided && !is_suspended)
                .then(|| record.target.keys().map(|name| Target::without_shares(name)).collect()),
            cause: would_move,
            decision,
            current,
            frozen_words,
        }
    }

    /// Returns the member that does not run where the record has the group, and why.
    fn find_stuck(&self, name: &str, record: &MoveRecord) -> Option<(&'a ObjectKey, Stuck)> {
        let here = record.running.as_ref().map_or(&record.target, |running| &running.from);
        let cluster = here.keys().next()?;
        find_stuck_member(
            self.list_moved_members(name),
            record,
            |key| {
                let mut copies = self.list_known_copies(key);
                Stuck::from_schedule(copies.find(|(at, _)| *at == cluster.as_str())?.1)
            },
            |stuck| self.is_stuck_by_now(cluster, stuck),
        )
    }

    /// Returns the record that leaves out the cluster where a member does not run.
    fn exclude_stuck(&self, name: &str, record: &MoveRecord) -> Option<MoveRecord> {
        let (_, stuck) = self.find_stuck(name, record)?;
        let cluster = record.target.keys().next()?;
        let uid = self.clusters.get(cluster.as_str())?.metadata.uid.as_deref().unwrap_or_default();
        exclude_cluster(record, (cluster, uid), stuck.exclusion(), NOW)
    }

    fn propose_group(
        &self,
        name: &str,
        policy: &Policy,
        group: &Group<'_>,
        record: &MoveRecord,
        current: Current,
    ) -> Proposal {
        let stuck = self.find_stuck(name, record).map(|(_, stuck)| stuck);
        let status = self.recorded_status(name);
        let one = RecordedGroup { policy, group, status, record, current, stuck, is_rebalance_asked: false, now: NOW };
        propose_for_group(one, &self.fleet, |cluster| self.clusters.get(cluster).copied())
    }

    /// Returns the copies of a group by cluster: they serve where the cluster is Ready and has those of all members that have
    /// any.
    fn see_copies(&self, name: &str) -> BTreeMap<String, SeenSchedule> {
        let mut seen: BTreeMap<String, SeenSchedule> = BTreeMap::new();
        let (mut copied, mut counts) = (0, BTreeMap::<&str, usize>::new());
        let is_once = self.is_all_stopped_first(name);
        for facts in self.list_moved_members(name).filter(|facts| is_once || !facts.workload.is_stopped_first()) {
            copied += usize::from(self.list_known_copies(&facts.key).next().is_some());
            for (cluster, schedule) in self.list_known_copies(&facts.key) {
                let Some(known) = self.clusters.get(cluster) else { continue };
                if schedule.metadata.deletion_timestamp.is_some() {
                    continue;
                }
                let served = live::read_copy_report(schedule).served;
                let is_ready = live::is_ready(known);
                let one = seen.entry(cluster.to_owned()).or_insert_with(|| serving_copy(is_ready));
                one.said.served = one.said.served.min(i64::from(is_ready || served > 0));
                *counts.entry(cluster).or_default() += 1;
            }
        }
        for (_, one) in seen.iter_mut().filter(|(cluster, _)| counts[cluster.as_str()] < copied) {
            (one.said.available, one.said.served) = (0, 0);
        }
        seen
    }

    fn see_group(
        &self,
        name: &str,
        record: &MoveRecord,
        decision: &SeenDecision,
        mut schedules: BTreeMap<String, SeenSchedule>,
        is_suspended: bool,
    ) -> Seen {
        // Every copy was written at this epoch, so a deletion that is under way fails.
        for schedule in schedules.values_mut() {
            schedule.kept = Some(record.epoch);
        }
        let sides = record.running.iter().flat_map(|running| running.from.keys().chain(running.to.keys()));
        let named = record.target.keys().chain(sides).chain(decision.best.keys()).chain(schedules.keys());
        let clusters =
            named.filter_map(|name| Some((name.clone(), see_simulated_cluster(self.clusters.get(name.as_str())?))));
        Seen {
            now: NOW,
            admitted: true,
            frozen: self.state.frozen,
            frozen_seconds: 0,
            policy: if is_suspended { SeenPolicy::Suspended } else { SeenPolicy::There },
            source: SeenSource {
                there: true,
                hash: CURRENT.to_owned(),
                amount: 1,
                divided: false,
                volumes: self.list_moved_members(name).any(Facts::has_volumes),
                consent: !self.list_moved_members(name).any(|facts| self.keeps_volumes(facts)),
                once: self.is_all_stopped_first(name),
                idle: !self.has_begun(name),
            },
            decision: decision.clone(),
            clusters: clusters.collect(),
            schedules,
        }
    }
}

fn see_simulated_cluster(cluster: &Cluster) -> SeenCluster {
    let ready = live::is_ready(cluster);
    SeenCluster { uid: cluster.metadata.uid.clone().unwrap_or_default(), ready, away: !ready }
}

fn serving_copy(is_ready: bool) -> SeenSchedule {
    SeenSchedule {
        hash: CURRENT.to_owned(),
        amount: 1,
        deleting: false,
        said: SeenReport { available: i64::from(is_ready), served: 1, finished: false, removed: false },
        asked: is_ready,
        answered: is_ready,
        kept: None,
    }
}

/// Carries out what is written; returns whether anything is another one then.
fn carry_out(schedules: &mut BTreeMap<String, SeenSchedule>, writes: &[MoveWrite]) -> bool {
    let mut is_changed = false;
    for write in writes {
        is_changed |= match write {
            MoveWrite::Create { cluster, .. } => schedules.insert(cluster.clone(), serving_copy(true)).is_none(),
            MoveWrite::Delete { cluster } | MoveWrite::Release { cluster } => schedules.remove(cluster).is_some(),
            MoveWrite::Edit { .. } | MoveWrite::Keep { .. } | MoveWrite::Ask { .. } => false,
        };
    }
    is_changed
}
