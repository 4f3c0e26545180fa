//! What is recorded of a group beside its last decision: where its copies belong, the move in progress, and what
//! failed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schedule::is_zero;

/// Amounts by cluster. A cluster that is missing has none. The amount is the number of pods of a divided group, and 1
/// for a group that is not divided.
pub type ClusterAmounts = BTreeMap<String, i64>;

/// Record of a group between two passes of the scheduler; the scheduler stores nothing else about it.
///
/// Times are seconds of the control plane's clock since 1970.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MoveRecord {
    /// Clusters that the group belongs to. During a move, this is the side that the current phase works for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub target: ClusterAmounts,
    /// Counter that grows by one with each write of the record that changes which copies are kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub epoch: i64,
    /// The current move.
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    pub running: Option<Move>,
    /// Back-off after failed moves. Absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<MoveRetry>,
    /// Clusters that are temporarily excluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub excluded: Vec<ExcludedCluster>,
    /// All workloads of the group that run once (Job, bare Pod) have finished. No cluster gets another copy. It is not stored:
    /// the status of each source says it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    pub finished: bool,
}

/// A current move.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// Current phase.
    pub phase: MovePhase,
    /// Amounts before the move. They only decrease during the move.
    pub from: ClusterAmounts,
    /// Amounts after the move.
    pub to: ClusterAmounts,
    /// `metadata.uid` of each Cluster of both sides at the start of the move. A Cluster with another uid is another
    /// cluster.
    pub uids: BTreeMap<String, String>,
    /// Cause of the move.
    pub cause: MoveCause,
    /// Start of the move, in seconds.
    #[schemars(range(min = 0))]
    pub since: i64,
    /// Deadline in seconds: the move has failed if the new side does not serve by that time.
    #[schemars(range(min = 0))]
    pub deadline: i64,
    /// Whether the owner allowed the group to leave volumes behind when the move began. It applies until the move ends.
    pub consent: bool,
}

/// Phase of a move.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum MovePhase {
    /// The new side is created; the old side is kept.
    Up,
    /// The new side serves; the old side is removed.
    Removing,
    /// The old side serves; the new side is removed.
    RollingBack,
}

/// Why a group moves. Each cause is a comparison with what exists, so a restart finds it again.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub enum MoveCause {
    /// A target has a taint with the effect `NoExecute`.
    Drain,
    /// A target is being removed from the fleet and still runs its copies.
    Leaving,
    /// Pods found no node for long.
    Unschedulable,
    /// A target does not serve a kind.
    KindNotServed,
    /// The policy no longer allows a target, or prefers another one.
    Policy,
    /// The demand grew beyond the target.
    Outgrown,
    /// A target lost or gained a label.
    Label,
    /// Somebody asked for it by the annotation `rebalance`.
    Rebalance,
    /// A target is not Ready for longer than the policy's `failover.afterSeconds`.
    Failover,
    /// The Cluster of a target no longer exists. It is placed again without a move.
    Lost,
    /// The replicas of a divided group changed. The shares follow without a move.
    Scale,
}

/// Back-off after failed moves.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MoveRetry {
    /// Cause of the move that failed. Another cause does not wait.
    pub cause: MoveCause,
    /// Moves that failed in a row.
    #[schemars(range(min = 1))]
    pub attempt: i32,
    /// Earliest time of the next try, in seconds.
    #[schemars(range(min = 0))]
    pub not_before: i64,
}

/// A cluster that is left out for a while, unless nothing else has room.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExcludedCluster {
    /// Name of the cluster.
    #[schemars(length(min = 1, max = 63))]
    pub cluster: String,
    /// `metadata.uid` of its Cluster.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// Why it is left out.
    #[serde(default, skip_serializing_if = "ExclusionReason::is_default")]
    pub reason: ExclusionReason,
    /// End of the exclusion, in seconds.
    #[schemars(range(min = 0))]
    pub until: i64,
}

/// Why a cluster is left out.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExclusionReason {
    /// A move of the group there failed.
    #[default]
    MoveFailed,
    /// Pods of the group found no node there.
    Unschedulable,
    /// It does not serve a kind of the group.
    KindNotServed,
}

impl ExclusionReason {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
