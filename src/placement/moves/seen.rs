//! What a leader sees of a group at one moment. The module's head says where each fact comes from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::record::{ClusterAmounts, MoveCause};

/// What is seen of one group.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// Seconds of the control plane's clock: the monotonic clock of this process, set by the server's time in each answer
    /// to a renewal of the Lease.
    pub now: i64,
    /// The group is among those that [`admit_moves`](super::admit_moves) or
    /// [`admit_failovers`](super::admit_failovers) let begin.
    pub admitted: bool,
    /// Mass-loss protection is active: no move begins, and deadlines stand still.
    pub frozen: bool,
    /// Seconds since the running move began during which that protection was active. They extend its deadline.
    #[serde(default)]
    pub frozen_seconds: i64,
    /// State of the policy.
    pub policy: SeenPolicy,
    /// The source.
    pub source: SeenSource,
    /// What the rules of placement say now.
    pub decision: SeenDecision,
    /// Clusters that are accepted or have a copy, by name. A Cluster that no longer exists is missing.
    pub clusters: BTreeMap<String, SeenCluster>,
    /// Schedules of the group by cluster. The Schedules of a cluster end with its Cluster's uid.
    pub schedules: BTreeMap<String, SeenSchedule>,
}

/// State of the policy of a group.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum SeenPolicy {
    /// It exists and decides.
    There,
    /// It was deleted or no longer matches: what runs is kept.
    Gone,
    /// It says `suspend`: nothing is made or edited.
    Suspended,
}

/// The source of a group.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SeenSource {
    /// It exists. `false` only after a Deleted event or an answer 404 for the same uid.
    pub there: bool,
    /// Hash of what its copies have to contain.
    pub hash: String,
    /// Pods that a divided group asks for; 1 for a group that is not divided.
    pub amount: i64,
    /// The group has shares.
    #[serde(default)]
    pub divided: bool,
    /// It has volumes whose data stays behind in a move.
    pub volumes: bool,
    /// Its owner allows volumes to be left behind, as read from the API server and not from a cache.
    pub consent: bool,
    /// It runs once: a Job or a bare Pod.
    pub once: bool,
    /// Nothing of it has begun, so that nothing is lost where it is stopped.
    #[serde(default)]
    pub idle: bool,
}

impl SeenSource {
    /// Returns whether it moves for a cause. What runs once and has begun does so only where its cluster is given up; of a
    /// lost one nobody says that it was stopped there.
    pub fn moves_for(&self, cause: MoveCause) -> bool {
        let gives_up = matches!(cause, MoveCause::Drain | MoveCause::Leaving);
        !self.once || gives_up || (self.idle && cause != MoveCause::Failover)
    }
}

/// What the rules of placement say now.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SeenDecision {
    /// The cause that holds. While a move runs: its own cause, if it still holds.
    #[serde(default)]
    pub cause: Option<MoveCause>,
    /// The amounts that would be chosen; empty if no cluster fits.
    #[serde(default)]
    pub best: ClusterAmounts,
    /// Clusters that the policy and the taints allow.
    #[serde(default)]
    pub wanted: BTreeSet<String>,
    /// The shares for the present number of replicas. Divided groups only.
    #[serde(default)]
    pub scaled: Option<ScaledShares>,
    /// The policy's placement part or the annotation `rebalance` changed after the last failure: back-off does not hold.
    #[serde(default)]
    pub renewed: bool,
}

/// Recorded shares after a change of the replicas.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ScaledShares {
    /// From `target`, or from `to` of the running move.
    pub to: ClusterAmounts,
    /// From `from` of the running move.
    #[serde(default)]
    pub from: ClusterAmounts,
}

/// A cluster.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SeenCluster {
    /// `metadata.uid` of its Cluster.
    pub uid: String,
    /// Condition `Ready` is True.
    pub ready: bool,
    /// It is not Ready for the policy's `failover.afterSeconds`, else for ten minutes.
    #[serde(default)]
    pub away: bool,
}

/// The copy of a group in one cluster.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SeenSchedule {
    /// Hash of what it contains.
    pub hash: String,
    /// Amount that it asks for.
    pub amount: i64,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The last report of the agent.
    #[serde(default)]
    pub said: SeenReport,
    /// This leader asked this cluster in its own term, after the cluster was last not Ready.
    pub asked: bool,
    /// The agent answered that, for the present epoch of the Schedule.
    pub answered: bool,
    /// Epoch of the record when this leader last wrote the Schedule for a copy that stays.
    #[serde(default)]
    pub kept: Option<i64>,
}

/// What an agent reported of a copy.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SeenReport {
    /// Pods that are available now; 1 for a copy that is available and not divided.
    pub available: i64,
    /// Most that were available at once since this copy, by uid, was asked for no less.
    pub served: i64,
    /// It runs once and has finished.
    pub finished: bool,
    /// It is removed from its cluster.
    pub removed: bool,
}
