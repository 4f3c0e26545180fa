//! Why a Schedule is deleted whose source may exist: this says what limits its deletion.

use kube::ResourceExt as _;
use serde_json::json;

use super::group_context::GroupContext;
use super::place::{Place, cluster_of};
use super::store::Store;
use crate::api::Cluster;
use crate::api::util::digest::short_digest;
use crate::placement::decide::Target;
use crate::placement::facts::ObjectKey;
use crate::placement::matching::Policy;

/// Name of the cause of which nothing is known.
pub(super) const UNKNOWN: &str = "unknown";

/// Names of causes that are moves.
pub(super) const DRAIN: &str = "drain";
pub(super) const REBALANCE: &str = "rebalance";

/// Who limits the deletion of a Schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RemovalClass {
    /// The owner of the source asked for it: the source is gone or was edited. Nothing limits it.
    Asked,
    /// It is a part of a move, or a follower, or a namespace in which nothing is left: these have their own limits.
    Moved,
    /// Something else, by the name of its cause: the brake on removals counts it.
    Caused(String),
}

/// Returns the name of an edit of a policy.
pub(super) fn of_policy(policy: &Policy) -> String {
    format!("policy/{}:{}", policy.name, policy.generation)
}

/// Returns the name of a state of a cluster. Edits of labels do not count as edits of its spec, so a digest stands for both.
pub(super) fn of_cluster(cluster: &Cluster) -> String {
    let parts = json!([cluster.labels(), cluster.spec]);
    format!("cluster/{}:{}", cluster.name_any(), &short_digest(parts.to_string().as_bytes())[..8])
}

/// Returns the name of this version of the program.
pub(super) fn of_program() -> String {
    format!("program:{}", env!("CARGO_PKG_VERSION"))
}

/// Returns whether the source of divided copies asks for less than they have together.
fn is_scaled_down(store: &Store, key: &ObjectKey) -> bool {
    let live = store.copies_of(key).filter(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none());
    let shares = live.filter_map(|(_, schedule)| schedule.spec.share.as_ref()?.replicas);
    let had = shares.fold(0_i64, |sum, replicas| sum.saturating_add(replicas));
    store.source_facts(key).is_some_and(|facts| facts.workload.is_dividable() && had > facts.workload.pods_at_once())
}

impl Store {
    /// Forgets that members of a group were edited whose copies are in its targets only.
    pub(super) fn forget_edits(&mut self, group: &str, targets: &[Target]) {
        if self.edited.is_empty() {
            return;
        }
        let is_target = |cluster: &str| targets.iter().any(|target| target.cluster == cluster);
        let members = self.members.get(group).into_iter().flatten().filter(|key| self.edited.contains(*key));
        let is_settled = |key: &&ObjectKey| self.copies_of(key).all(|(at, _)| is_target(cluster_of(at)));
        for key in members.filter(is_settled).cloned().collect::<Vec<_>>() {
            self.edited.remove(&key);
        }
    }
}

impl GroupContext<'_> {
    /// Returns who limits that a member loses its Schedule in a cluster.
    pub(super) fn removal_class(&self, key: &ObjectKey, at: &Place) -> RemovalClass {
        let cause = self.active_decision().map(|decided| decided.record.cause.as_str());
        class_of_cause(self.store, key, cluster_of(at), cause)
    }
}

/// Returns who limits that a copy goes which nobody wants, of a group that does not move.
pub(super) fn stray_class(store: &Store, group: &str, key: &ObjectKey, cluster: &str) -> RemovalClass {
    let status = store.groups.get(group).and_then(|group| group.status.as_ref());
    let cause = status.and_then(|status| Some(status.decision.as_ref()?.cause.as_str()));
    class_of_cause(store, key, cluster, cause)
}

fn class_of_cause(store: &Store, key: &ObjectKey, cluster: &str, cause: Option<&str>) -> RemovalClass {
    if store.drained.contains(cluster) || matches!(cause, Some(DRAIN | REBALANCE)) {
        return RemovalClass::Moved;
    }
    if store.edited.contains(key) || is_scaled_down(store, key) {
        return RemovalClass::Asked;
    }
    RemovalClass::Caused(cause.filter(|cause| !cause.is_empty()).unwrap_or(UNKNOWN).to_owned())
}
