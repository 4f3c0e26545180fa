//! What the rules of placement say of a group that is recorded: where it would be best, and the cause for which it moves.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::placement::decide::{self, Current, Decision, Group, How, Mode, Target};
use crate::placement::live;
use crate::placement::matching::Policy;
use crate::placement::moves::{ClusterAmounts, MoveCause, MoveRecord, SeenDecision};
use crate::placement::reason::Reason;
use crate::placement::selector::has_untolerated;
use crate::scheduler::placing::decide::{Clusters, Decided};
use crate::scheduler::placing::place::cluster_of;
use crate::scheduler::placing::store::Store;

/// What would be decided of a group.
pub(in crate::scheduler::placing) struct Proposal {
    pub(super) seen: SeenDecision,
    pub(in crate::scheduler::placing) decided: Decided,
    pub(super) decision: Decision,
    pub(super) current: Current,
}

/// Returns the amounts of clusters that are not divided.
pub(super) fn whole_amounts<'a>(clusters: impl IntoIterator<Item = &'a str>) -> ClusterAmounts {
    clusters.into_iter().map(|cluster| (cluster.to_owned(), 1)).collect()
}

/// Returns the names of the targets of a decision.
pub(super) fn target_amounts(decided: &Decided) -> ClusterAmounts {
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
        if cause == Some(MoveCause::Policy) {
            current.mode = Mode::PolicyEdit;
        }
        current.is_settled = !store.grown.contains(name) && cause != Some(MoveCause::Outgrown);
        let namespaces = members.iter().map(|facts| facts.key.namespace()).collect();
        current.only = store.follow.only_of(name, &namespaces);
        let uid = |cluster: &str| self.known.get(cluster).and_then(|cluster| cluster.metadata.uid.as_ref());
        let excluded = record.excluded.iter().filter(|one| one.until > now && uid(&one.cluster) == Some(&one.uid));
        current.excluded = excluded.map(|one| (one.cluster.clone(), "a move there failed".to_owned())).collect();
        let mut decision = decide::decide_group(policy, &group, &self.fleet, &current);
        let stays = |decision: &Decision| decision.targets.is_empty() || decision.targets == current.targets;
        if stays(&decision) && !current.excluded.is_empty() && record.retry.is_none_or(|retry| retry.not_before <= now)
        {
            current.excluded.clear();
            decision = decide::decide_group(policy, &group, &self.fleet, &current);
        }
        let cause = here.keys().next().and_then(|cluster| self.find_cause(policy, cluster, &decision, &current));
        let recorded = status.and_then(|status| status.decision.as_ref());
        let is_edited =
            recorded.is_some_and(|known| !known.policy_hash.is_empty() && known.policy_hash != policy.placement_hash());
        let seen = SeenDecision {
            cause,
            best: whole_amounts(decision.targets.iter().map(|target| target.cluster.as_str())),
            wanted: decide::allowed_clusters(policy, &group, &self.fleet, &current),
            scaled: None,
            renewed: is_edited && record.retry.is_some(),
        };
        let decided = self.build_decided(policy, &group, decision.clone(), wall);
        Some(Proposal { seen, decided, decision, current })
    }

    /// Returns the cause for which a group leaves a cluster, whether or not there is a better one.
    fn find_cause(&self, policy: &Policy, here: &str, decision: &Decision, current: &Current) -> Option<MoveCause> {
        let Some(cluster) = self.fleet.get(here).filter(|_| self.known.contains_key(here)) else {
            return Some(MoveCause::Lost);
        };
        if cluster.leaving {
            return Some(MoveCause::Leaving);
        }
        if has_untolerated(&cluster.taints, &policy.tolerations, "NoExecute") {
            return Some(MoveCause::Drain);
        }
        let is_edited = current.mode == Mode::PolicyEdit;
        let against = decision.rejected.iter().find(|(name, _)| **name == *here).map(|(_, reason)| reason);
        let is_elsewhere = !decision.targets.is_empty() && decision.targets.iter().all(|target| target.cluster != here);
        match against {
            Some(Reason::SelectorMismatch | Reason::NotOrdered) if !is_edited => Some(MoveCause::Label),
            Some(Reason::SelectorMismatch | Reason::NotOrdered) => Some(MoveCause::Policy),
            _ if is_elsewhere && is_edited => Some(MoveCause::Policy),
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

    /// Returns the names of the clusters that exist.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.known.keys().map(String::as_str).collect()
    }
}
