//! `ScheduleGroup`: objects that are placed together, and where they went. Made by the scheduler only.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::condition::Condition;
use super::crd_schema;

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
    doc = "Objects that are placed together. Made and kept by the scheduler.",
    printcolumn(name = "POLICY", type_ = "string", json_path = ".spec.policy.name"),
    printcolumn(
        name = "CLUSTER",
        type_ = "string",
        json_path = r".metadata.labels.fleet-scheduler\.io/target-cluster"
    ),
    printcolumn(name = "SCHEDULED", type_ = "boolean", json_path = ".status.scheduled"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ScheduleGroupSpec {
    /// The policy that made the group.
    pub policy: PolicyRef,
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
    /// What the members request in sum, as quantities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub requests: Option<Map<String, Value>>,
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
