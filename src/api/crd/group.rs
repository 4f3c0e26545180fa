//! `ScheduleGroup`: objects that are placed together, and where they went. Made by the scheduler only.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::condition::Condition;
use super::crd_schema;
use super::move_record::MoveRecord;

/// Whose group it is.
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
    /// The policy that made the group.
    pub policy: PolicyRef,
    /// What is hashed at the end of the group's name: `label/KEY/VALUE[/NAMESPACE]`, or `object/GROUP/KIND/NAMESPACE/NAME`.
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

/// Where the group went.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleGroupStatus {
    /// What happened, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd_schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5000))]
    pub object_refs: Vec<ObjectRef>,
    /// Whether a place was found.
    #[serde(default)]
    pub scheduled: bool,
    /// When the status was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::time")]
    pub last_status_update: Option<Time>,
    /// The chosen clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub target_clusters: Vec<String>,
    /// Clusters that the decision names while the policy is suspended: nothing is placed there before it is resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub proposed_clusters: Vec<String>,
    /// Domains of a group that is spread, in the order of their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub domains: Vec<DomainRow>,
    /// What the members request in sum, as quantities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub requests: Option<Map<String, Value>>,
    /// The chosen clusters, then the best of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub clusters: Vec<ClusterRow>,
    /// How the last decision came about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionRecord>,
    /// Where its copies belong, and the move under way; empty for groups whose copies move by their decision alone.
    #[serde(flatten)]
    pub record: MoveRecord,
}

/// What one cluster is to a group.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterRow {
    /// Name of the cluster.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// `Target`, `Rejected`, or `Lower`: it would have done, and another one was better.
    #[schemars(schema_with = "crd_schema::row_state")]
    pub state: String,
    /// Why it was rejected, as one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The same with numbers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub detail: String,
    /// On a target: objects that it has to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub objects: Option<i32>,
    /// On a target: objects of these whose current state is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub applied: Option<i32>,
    /// On a target: objects of these that are available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub available: Option<i32>,
    /// On a target: what the first object that is not applied or not available says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The cluster is not Ready: this is what it last said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// What one domain has of a group that is spread.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainRow {
    /// Value of the topology label.
    #[schemars(length(max = 63))]
    pub value: String,
    /// Cluster of the domain that the group is in; absent where it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub cluster: String,
    /// Pods of all its divided objects together that it is to run; absent where all of the group is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i64>,
    /// `Placed`, or why it has no cluster: `NoFit` or `NoCandidates`.
    #[schemars(length(max = 32))]
    pub reason: String,
}

/// How a decision came about.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::time")]
    pub time: Option<Time>,
    /// What kind of place was found, such as `Room`, `Tight` or `Kept`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub how: String,
    /// Clusters that were looked at.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub candidates: i32,
    /// How many were rejected, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub rejected: BTreeMap<String, i32>,
    /// Digest of the parts of the policy that a decision depends on: another digest means that the group is decided anew.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub policy_hash: String,
    /// Digest of the annotations `fleet-scheduler.io/rebalance` of the group and of its policy when it was decided: another
    /// one means that somebody asks for a better place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub rebalanced_at: String,
    /// Why the group last lost a place, such as `policy/shop:7`: the seventh edit of that policy.
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
