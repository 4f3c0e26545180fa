//! Names of the causes for which copies go though their sources exist.

use kube::ResourceExt as _;
use serde_json::json;

use crate::api::util::digest::short_digest;
use crate::api::{Cluster, ScheduleGroupStatus};
use crate::placement::decide::Current;
use crate::placement::live;
use crate::placement::matching::Policy;
use crate::scheduler::placing::decide::{Clusters, Decided};

/// Name of the cause of which nothing is known.
pub(in crate::scheduler::placing) const UNKNOWN: &str = "unknown";

/// Names of causes that are moves.
pub(in crate::scheduler::placing) const DRAIN: &str = "drain";
pub(in crate::scheduler::placing) const REBALANCE: &str = "rebalance";

/// Returns the name of an edit of a policy.
fn name_policy_edit(policy: &Policy) -> String {
    format!("policy/{}:{}", policy.name, policy.generation)
}

/// Returns the name of a state of a cluster. Edits of labels do not count as edits of its spec, so a digest stands for both.
fn name_cluster_state(cluster: &Cluster) -> String {
    let parts = json!([cluster.labels(), cluster.spec]);
    format!("cluster/{}:{}", cluster.name_any(), &short_digest(parts.to_string().as_bytes())[..8])
}

/// Returns the name of this version of the program.
pub(in crate::scheduler::placing) fn name_program() -> String {
    format!("program:{}", env!("CARGO_PKG_VERSION"))
}

impl Clusters {
    /// Returns why a group loses a place by a decision, as mass-removal protection knows it; what is recorded where it
    /// loses none.
    pub(in crate::scheduler::placing) fn find_loss_cause(
        &self,
        policy: &Policy,
        recorded: Option<&ScheduleGroupStatus>,
        current: &Current,
        decided: &Decided,
    ) -> String {
        let known = recorded.and_then(|status| status.decision.as_ref());
        let recorded = recorded.into_iter().flat_map(|status| &status.target_clusters);
        let before = recorded.chain(current.targets.iter().map(|target| &target.cluster));
        let lost = before.filter(|cluster| !decided.has_target(cluster));
        let lost: Vec<_> = lost.filter_map(|name| self.known.get_key_value(name)).collect();
        if lost.is_empty() {
            return known.map(|known| known.cause.clone()).unwrap_or_default();
        }
        let mut staying = lost.iter().filter(|(_, one)| !live::is_leaving(one) && !live::is_drained(one));
        let Some((lost, _)) = staying.next() else { return DRAIN.to_owned() };
        if known.is_some_and(|known| known.rebalanced_at != decided.record.rebalanced_at) {
            return REBALANCE.to_owned();
        }
        if known.is_none_or(|known| known.policy_hash != decided.record.policy_hash) {
            return name_policy_edit(policy);
        }
        let is_rejected = decided.rows.iter().any(|row| row.name == **lost && row.state == "Rejected");
        match self.known.get(*lost).filter(|_| is_rejected) {
            Some(cluster) => name_cluster_state(cluster),
            None => UNKNOWN.to_owned(),
        }
    }
}
