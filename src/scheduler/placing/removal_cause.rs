//! Names of the causes for which copies go though their sources exist.

use kube::ResourceExt as _;
use serde_json::json;

use crate::api::Cluster;
use crate::api::util::digest::short_digest;
use crate::placement::matching::Policy;

/// Name of the cause of which nothing is known.
pub(super) const UNKNOWN: &str = "unknown";

/// Names of causes that are moves.
pub(super) const DRAIN: &str = "drain";
pub(super) const REBALANCE: &str = "rebalance";

/// Returns the name of an edit of a policy.
pub(super) fn name_policy_edit(policy: &Policy) -> String {
    format!("policy/{}:{}", policy.name, policy.generation)
}

/// Returns the name of a state of a cluster. Edits of labels do not count as edits of its spec, so a digest stands for both.
pub(super) fn name_cluster_state(cluster: &Cluster) -> String {
    let parts = json!([cluster.labels(), cluster.spec]);
    format!("cluster/{}:{}", cluster.name_any(), &short_digest(parts.to_string().as_bytes())[..8])
}

/// Returns the name of this version of the program.
pub(super) fn name_program() -> String {
    format!("program:{}", env!("CARGO_PKG_VERSION"))
}
