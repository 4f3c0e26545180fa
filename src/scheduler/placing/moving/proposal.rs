//! What would be decided of a group that is recorded, from the store to the rules of placement and back.

use k8s_openapi::jiff::Timestamp;

use crate::placement::decide::{Current, Decision, Group};
use crate::placement::facts::ObjectKey;
use crate::placement::live;
use crate::placement::moves::{ClusterAmounts, MoveRecord, SeenDecision};
use crate::placement::proposal::{RecordedGroup, propose_for_group};
use crate::placement::spread_proposal;
use crate::placement::stuck::{Stuck, find_stuck_member};
use crate::scheduler::placing::decide::{Clusters, Decided};
use crate::scheduler::placing::place::cluster_of;
use crate::scheduler::placing::store::Store;

/// What would be decided of a group.
pub(in crate::scheduler::placing) struct Proposal {
    pub(super) seen: SeenDecision,
    pub(in crate::scheduler::placing) decided: Decided,
    pub(super) decision: Decision,
    pub(super) current: Current,
    /// The member that does not run where the group is, and why; it leaves for that.
    pub(super) stuck: Option<(ObjectKey, Stuck)>,
    /// When the group must be decided again: it would leave its lost cluster, a cluster is no longer left out, or what
    /// failed may be tried again.
    pub(in crate::scheduler::placing) alarm: Option<i64>,
}

/// Returns the targets of a decision with their amounts.
pub(in crate::scheduler::placing) fn target_amounts(decided: &Decided) -> ClusterAmounts {
    spread_proposal::target_amounts(&decided.targets)
}

impl Clusters {
    /// Returns what would be decided of a group. `None` without a policy.
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
        let copies = members
            .iter()
            .flat_map(|facts| store.copies_of(&facts.key).map(|(at, schedule)| (cluster_of(at), schedule, &***facts)));
        let mut current = live::current_placement(copies, status, policy, false);
        current.is_settled = !store.grown.contains(name);
        let namespaces = members.iter().map(|facts| facts.key.namespace()).collect();
        current.only = store.follow.only_of(name, &namespaces);
        let is_spread = policy.spec.spread_constraints.is_some();
        if is_spread {
            current.bound = self.bound_pods(store, members.iter().map(|facts| &facts.key), now);
        }
        let here = record.running.as_ref().map_or(&record.target, |running| &running.from);
        let stuck = here.keys().next().filter(|_| !is_spread).and_then(|at| {
            find_stuck_member(
                members.iter().map(|facts| &***facts),
                record,
                |key| store.find_stuck_copy(key, at),
                |stuck| self.is_stuck_there_for_long(at, stuck, now),
            )
        });
        let recorded = RecordedGroup {
            policy,
            group: &group,
            status,
            record,
            current,
            stuck: stuck.map(|(_, stuck)| stuck),
            is_rebalance_asked: store.is_rebalance_asked(name),
            now,
        };
        let found = propose_for_group(recorded, &self.fleet, |cluster| self.known.get(cluster).map(|one| &**one));
        let mut decided = self.build_decided(policy, &group, found.decision.clone(), wall);
        decided.record.rebalanced_at = store.rebalance_digest(name);
        decided.record.cause = self.find_loss_cause(policy, status, &found.current, &decided);
        let stuck = stuck.map(|(key, stuck)| (key.clone(), stuck));
        // A cluster is tried again when it is no longer left out, and a move when its time has come.
        let ends = record.excluded.iter().filter(|_| stuck.is_some()).map(|one| one.until);
        let again = record.retry.map(|retry| retry.not_before);
        let alarm = found.leaves_at.into_iter().chain(ends).chain(again).filter(|at| *at > now).min();
        Some(Proposal { seen: found.seen, decided, decision: found.decision, current: found.current, stuck, alarm })
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
