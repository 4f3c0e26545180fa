//! Groups that somebody lets move to where they fit better: by an annotation of theirs, or of their policy.

use tokio::time::Instant;

use super::store::Store;
use crate::api::labels::ANNOTATION_REBALANCE;
use crate::api::util::digest;

impl Store {
    /// Returns what the annotations `rebalance` of a group and of its policy say, as the group records it; empty without any.
    pub(super) fn rebalance_digest(&self, name: &str) -> String {
        let asked =
            |metadata: &kube::api::ObjectMeta| metadata.annotations.as_ref()?.get(ANNOTATION_REBALANCE).cloned();
        let of_group = self.groups.get(name).and_then(|group| asked(&group.metadata));
        let policy = self.policy_of(name).and_then(|policy| self.policies.get(&policy.name));
        let of_policy = policy.and_then(|policy| asked(&policy.metadata));
        if of_group.is_none() && of_policy.is_none() {
            return String::new();
        }
        digest::short_digest(format!("{of_group:?} {of_policy:?}").as_bytes())
    }

    /// Returns whether somebody has asked for a better place of a group since it was last decided.
    pub(super) fn is_rebalance_asked(&self, name: &str) -> bool {
        let asked = self.rebalance_digest(name);
        let status = self.groups.get(name).and_then(|group| group.status.as_ref());
        let decision = status.and_then(|status| status.decision.as_ref());
        !asked.is_empty() && decision.is_some_and(|decision| decision.rebalanced_at != asked)
    }

    /// Marks the groups of a policy to be decided.
    pub(super) fn mark_groups_of_policy(&mut self, policy: &str, now: Instant) {
        let of_policy = self.groups.iter().filter(|(_, group)| group.spec.policy.name == policy);
        for name in of_policy.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.mark_undecided(name, now);
        }
    }
}
