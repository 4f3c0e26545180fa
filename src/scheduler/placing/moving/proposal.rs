//! What the rules of placement say of a group that is recorded: where it would be best, and the cause for which it moves.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::placement::decide::{self, Current, Decision, Group, How, Mode, Target};
use crate::placement::facts::ObjectKey;
use crate::placement::live;
use crate::placement::matching::Policy;
use crate::placement::moves::{ClusterAmounts, ExclusionReason, MoveCause, MoveRecord, SeenDecision};
use crate::placement::reason::Reason;
use crate::placement::selector::has_untolerated;
use crate::scheduler::placing::decide::{Clusters, Decided};
use crate::scheduler::placing::place::cluster_of;
use crate::scheduler::placing::store::Store;
use crate::scheduler::placing::stuck::Stuck;

/// What would be decided of a group.
pub(in crate::scheduler::placing) struct Proposal {
    pub(super) seen: SeenDecision,
    pub(in crate::scheduler::placing) decided: Decided,
    pub(super) decision: Decision,
    pub(super) current: Current,
    /// The member that does not run where the group is, and why; it leaves for that.
    pub(super) stuck: Option<(ObjectKey, Stuck)>,
    /// When the group has to be decided again: it would leave its lost cluster, a cluster is no longer left out, or what
    /// failed may be tried again.
    pub(in crate::scheduler::placing) alarm: Option<i64>,
}

/// Returns why a cluster is left out, as reasons of clusters say it.
fn exclusion_text(reason: ExclusionReason) -> &'static str {
    match reason {
        ExclusionReason::MoveFailed => "a move there failed",
        ExclusionReason::Unschedulable => "pods found no node there",
        ExclusionReason::KindNotServed => "a kind is not served there",
    }
}

/// Returns the amounts of clusters that are not divided.
pub(super) fn whole_amounts<'a>(clusters: impl IntoIterator<Item = &'a str>) -> ClusterAmounts {
    clusters.into_iter().map(|cluster| (cluster.to_owned(), 1)).collect()
}

/// Returns the names of the targets of a decision.
pub(in crate::scheduler::placing) fn target_amounts(decided: &Decided) -> ClusterAmounts {
    whole_amounts(decided.targets.iter().map(|target| target.cluster.as_str()))
}

impl Clusters {
    /// Returns what would be decided of a group; in a move, as if it were still on its old side. `None` without a policy.
    pub(in crate::scheduler::placing) fn propose(
        &self,
        store: &Store,
        name: &str,
        record: &MoveRecord,
        now: i64,
        wall: Timestamp,
    ) -> Option<Proposal> {
        let policy = store.policy_of(name)?;
        let members = store.facts_of(name);
        let objects = members.iter().map(|facts| &***facts);
        let group = Group::with_followers(name, policy, objects, store.followers_of(name));
        let status = store.groups.get(name).and_then(|group| group.status.as_ref());
        let here = record.running.as_ref().map_or(&record.target, |running| &running.from);
        let copies = members
            .iter()
            .flat_map(|facts| store.copies_of(&facts.key).map(|(at, schedule)| (cluster_of(at), schedule, &***facts)));
        let mut current = live::current_placement(copies, status, policy, false);
        let exists = |cluster: &&String| self.known.contains_key(*cluster);
        let target = |cluster: &String| Target { cluster: cluster.clone(), ..Target::default() };
        current.targets = here.keys().filter(exists).map(target).collect();
        // What began a move, or failed, is no longer seen in what was decided last.
        let cause = record.running.as_ref().map(|running| running.cause).or(record.retry.map(|retry| retry.cause));
        let is_asked = record.running.is_none() && store.is_rebalance_asked(name);
        let leaves_at = here.keys().next().and_then(|cluster| self.failover_time(policy, cluster, now));
        let is_lost = leaves_at.is_some_and(|at| at <= now);
        let leaves =
            matches!(cause, Some(MoveCause::Unschedulable | MoveCause::KindNotServed)) && record.running.is_some();
        let keys = || members.iter().map(|facts| &facts.key);
        let stuck = here.keys().next().and_then(|at| self.find_stuck_member(store, keys(), at, (leaves, now)));
        let is_kind_missing = stuck.is_some_and(|(_, stuck)| stuck == Stuck::KindNotServed);
        current.mode = match cause {
            // What is not served, or lost, is left whatever else may keep it.
            _ if is_lost || is_kind_missing => Mode::Failover,
            Some(MoveCause::Rebalance) => Mode::Rebalance,
            _ if is_asked => Mode::Rebalance,
            Some(MoveCause::Policy) => Mode::PolicyEdit,
            _ => current.mode,
        };
        current.is_settled = !store.grown.contains(name) && cause != Some(MoveCause::Outgrown);
        let namespaces = members.iter().map(|facts| facts.key.namespace()).collect();
        current.only = store.follow.only_of(name, &namespaces);
        let uid = |cluster: &str| self.known.get(cluster).and_then(|cluster| cluster.metadata.uid.as_ref());
        let excluded = record.excluded.iter().filter(|one| one.until > now && uid(&one.cluster) == Some(&one.uid));
        current.excluded = excluded.map(|one| (one.cluster.clone(), exclusion_text(one.reason).to_owned())).collect();
        let mut decision = decide::decide_group(policy, &group, &self.fleet, &current);
        let stays = |decision: &Decision| decision.targets.is_empty() || decision.targets == current.targets;
        // Where nothing else takes the group, what was left out is tried again, and at last the cluster where it is.
        let may_try = record.retry.is_none_or(|retry| retry.not_before <= now);
        for keeps_here in [true, false] {
            if stays(&decision) && !current.excluded.is_empty() && may_try {
                current.excluded.retain(|cluster, _| keeps_here && here.contains_key(cluster));
                decision = decide::decide_group(policy, &group, &self.fleet, &current);
            }
        }
        let cause = match here.keys().next() {
            // A better place is not given up for a report that merely differs.
            Some(_) if record.running.as_ref().is_some_and(|running| running.cause == MoveCause::Rebalance) => cause,
            Some(cluster) => {
                let urgent = if is_lost { Some(MoveCause::Failover) } else { stuck.map(|(_, stuck)| stuck.cause()) };
                self.find_move_cause(policy, cluster, (&decision, &current), urgent)
            }
            None => None,
        };
        let recorded = status.and_then(|status| status.decision.as_ref());
        let is_edited =
            recorded.is_some_and(|known| !known.policy_hash.is_empty() && known.policy_hash != policy.placement_hash());
        let seen = SeenDecision {
            cause,
            best: whole_amounts(decision.targets.iter().map(|target| target.cluster.as_str())),
            // It is asked for in a move only.
            wanted: match record.running {
                Some(_) => decide::allowed_clusters(policy, &group, &self.fleet, &current),
                None => BTreeSet::new(),
            },
            scaled: None,
            renewed: (is_edited || is_asked) && record.retry.is_some(),
        };
        let mut decided = self.build_decided(policy, &group, decision.clone(), wall);
        decided.record.rebalanced_at = store.rebalance_digest(name);
        decided.record.cause = self.find_loss_cause(policy, status, &current, &decided);
        let stuck = stuck.map(|(key, stuck)| (key.clone(), stuck));
        // A cluster is tried again when it is no longer left out, and a move when its time has come.
        let ends = record.excluded.iter().filter(|_| stuck.is_some()).map(|one| one.until);
        let again = record.retry.map(|retry| retry.not_before);
        let alarm = leaves_at.into_iter().chain(ends).chain(again).filter(|at| *at > now).min();
        Some(Proposal { seen, decided, decision, current, stuck, alarm })
    }

    /// Returns when a policy lets its groups leave a cluster because that is lost.
    fn failover_time(&self, policy: &Policy, cluster: &str, now: i64) -> Option<i64> {
        let since = live::lost_since(self.known.get(cluster)?, now)?;
        Some(since.saturating_add(policy.failover_seconds()?))
    }

    /// Returns the cause for which a group leaves a cluster, whether or not there is a better one. What is `urgent` comes
    /// after a drain.
    fn find_move_cause(
        &self,
        policy: &Policy,
        here: &str,
        (decision, current): (&Decision, &Current),
        urgent: Option<MoveCause>,
    ) -> Option<MoveCause> {
        let Some(cluster) = self.fleet.get(here).filter(|_| self.known.contains_key(here)) else {
            return Some(MoveCause::Lost);
        };
        if cluster.leaving {
            return Some(MoveCause::Leaving);
        }
        if has_untolerated(&cluster.taints, &policy.tolerations, "NoExecute") {
            return Some(MoveCause::Drain);
        }
        if urgent.is_some() {
            return urgent;
        }
        let is_edited = current.mode == Mode::PolicyEdit;
        let against = decision.rejected.iter().find(|(name, _)| **name == *here).map(|(_, reason)| reason);
        let is_elsewhere = !decision.targets.is_empty() && decision.targets.iter().all(|target| target.cluster != here);
        match against {
            Some(Reason::SelectorMismatch | Reason::NotOrdered) if !is_edited => Some(MoveCause::Label),
            Some(Reason::SelectorMismatch | Reason::NotOrdered) => Some(MoveCause::Policy),
            _ if is_elsewhere && is_edited => Some(MoveCause::Policy),
            _ if is_elsewhere && current.mode == Mode::Rebalance => Some(MoveCause::Rebalance),
            _ if is_elsewhere || decision.how == Some(How::Outgrown) => Some(MoveCause::Outgrown),
            _ => None,
        }
    }

    /// Promises what a proposal takes, where it is carried out.
    pub(super) fn reserve_proposal(&mut self, store: &Store, name: &str, proposal: &Proposal) {
        let Some(policy) = store.policy_of(name) else { return };
        let members = store.facts_of(name);
        let objects = members.iter().map(|facts| &***facts);
        let group = Group::with_followers(name, policy, objects, store.followers_of(name));
        self.reserve(&group, &proposal.decision, &proposal.current);
    }
}
