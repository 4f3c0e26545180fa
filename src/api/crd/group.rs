//! `ScheduleGroup`: objects that are placed together, and where they went. Made by the scheduler only.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::condition::{self, Condition};
use super::crd_schema;
use super::move_record::MoveRecord;

/// Policy and key of the group.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "policy.fleet-scheduler.io",
    version = "v1alpha1",
    kind = "ScheduleGroup",
    plural = "schedulegroups",
    category = "fleet",
    status = "ScheduleGroupStatus",
    derive = "PartialEq",
    doc = "Objects that are placed together. The scheduler creates and updates it.",
    printcolumn(name = "POLICY", type_ = "string", json_path = ".spec.policy.name"),
    printcolumn(
        name = "CLUSTER",
        type_ = "string",
        json_path = r".metadata.labels.fleet-scheduler\.io/target-cluster"
    ),
    printcolumn(name = "SCHEDULED", type_ = "boolean", json_path = ".status.scheduled"),
    printcolumn(name = "REASON", type_ = "string", json_path = r#".status.conditions[?(@.type=="Scheduled")].reason"#),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "MOVE", type_ = "string", json_path = ".status.move.phase", priority = 1),
    printcolumn(
        name = "MISSING",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Moving")].message"#,
        priority = 1
    )
)]
pub struct ScheduleGroupSpec {
    /// The policy that the group belongs to.
    pub policy: PolicyRef,
    /// Text whose hash is the end of the group's name: `label/KEY/VALUE[/NAMESPACE]`, or
    /// `object/GROUP/KIND/NAMESPACE/NAME`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub key: String,
}

/// A policy by name.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRef {
    /// Name of the policy.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Reserved: policies have no namespace today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// Clusters of the group, and the decision about it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleGroupStatus {
    /// Conditions of the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions")]
    pub conditions: Vec<Condition>,
    /// The members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5000))]
    pub object_refs: Vec<ObjectRef>,
    /// Whether clusters were found for the group.
    #[serde(default)]
    pub scheduled: bool,
    /// Time of the last write of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::time")]
    pub last_status_update: Option<Time>,
    /// The chosen clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub target_clusters: Vec<String>,
    /// Clusters of the decision while the policy is suspended: nothing is placed in them until the policy is resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub proposed_clusters: Vec<String>,
    /// Domains of a spread group, sorted by their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub domains: Vec<DomainRow>,
    /// Sum of the requests of all members, as quantities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub requests: Option<Map<String, Value>>,
    /// The chosen clusters, followed by the best other clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub clusters: Vec<ClusterRow>,
    /// The last decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionRecord>,
    /// Clusters that the copies belong to, and the current move; empty for groups whose copies follow each decision
    /// directly.
    #[serde(flatten)]
    pub record: MoveRecord,
}

/// State of one cluster for a group.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterRow {
    /// Name of the cluster.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// `Target`, `Rejected`, or `Lower`: the cluster is suitable, but another one is better.
    #[schemars(schema_with = "crd_schema::row_state")]
    pub state: String,
    /// Reason of the rejection, as one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The reason with numbers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub detail: String,
    /// For a target: number of objects that the cluster must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub objects: Option<i32>,
    /// For a target: number of these objects whose current state is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub applied: Option<i32>,
    /// For a target: number of these objects that are available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub available: Option<i32>,
    /// For a target: message of the first object that is not applied or not available.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Whether the cluster is not Ready, so that this is its last report.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// Share of one domain in a spread group.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainRow {
    /// Value of the topology label.
    #[schemars(length(max = 63))]
    pub value: String,
    /// Cluster of the domain that the group uses; absent if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub cluster: String,
    /// Number of pods that the domain runs of all divided objects together; absent if the whole group is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i64>,
    /// `Placed`, or the reason for which the domain has no cluster: `NoFit` or `NoCandidates`.
    #[schemars(length(max = 32))]
    pub reason: String,
}

/// A decision and its circumstances.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// Time of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::time")]
    pub time: Option<Time>,
    /// Type of the decision, such as `Room`, `Tight` or `Kept`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub how: String,
    /// Number of clusters that were examined.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub candidates: i32,
    /// Number of rejected clusters by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub rejected: BTreeMap<String, i32>,
    /// Digest of the parts of the policy that a decision depends on: if it changes, the scheduler decides about the
    /// group again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub policy_hash: String,
    /// Digest of the annotations `fleet-scheduler.io/rebalance` of the group and of its policy at the time of the
    /// decision: if it changes, somebody has asked for a better cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub rebalanced_at: String,
    /// Cause for which the group last lost a cluster, such as `policy/shop:7`: the seventh edit of that policy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 320))]
    pub cause: String,
}

/// An object of the control plane's API.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for objects without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// Types of the conditions of a group.
pub mod conditions {
    /// A place was found, and what was decided is dispatched.
    pub const SCHEDULED: &str = "Scheduled";
    /// Every copy is as its source says.
    pub const APPLIED: &str = "Applied";
    /// Every copy is available, by the rules of its kind.
    pub const AVAILABLE: &str = "Available";
    /// Old copies exist beside the new ones.
    pub const MOVING: &str = "Moving";
    /// Something keeps the group from moving.
    pub const MOVE_BLOCKED: &str = "MoveBlocked";
    /// What the pods of the group name is placed where they are.
    pub const DEPENDENCIES_PLACED: &str = "DependenciesPlaced";
}
