//! `Schedule` and `ClusterReport`: what scheduler and agent exchange in the namespace of one cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cluster::{NodeResources, Taint};
use super::condition::Condition;
use super::crd_schema;
use super::lenient::field;

/// One object that one cluster has to hold.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "cluster.fleet-scheduler.io",
    version = "v1alpha1",
    kind = "Schedule",
    plural = "schedules",
    namespaced,
    status = "ScheduleStatus",
    derive = "PartialEq",
    doc = "An object that the agent of one workload cluster applies there. Internal.",
    printcolumn(name = "KIND", type_ = "string", json_path = ".spec.sourceRef.kind"),
    printcolumn(name = "NAMESPACE", type_ = "string", json_path = ".spec.sourceRef.namespace"),
    printcolumn(name = "OBJECT", type_ = "string", json_path = ".spec.sourceRef.name"),
    printcolumn(name = "APPLIED", type_ = "string", json_path = r#".status.conditions[?(@.type=="Applied")].status"#),
    printcolumn(
        name = "AVAILABLE",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSpec {
    /// The object, as it has to be applied.
    #[schemars(schema_with = "crd_schema::embedded_object")]
    pub manifest: Map<String, Value>,
    /// Digest of `manifest`.
    #[schemars(length(min = 1, max = 128))]
    pub hash: String,
    /// The object of the control plane's API that this is a copy of.
    pub source_ref: SourceRef,
    /// How it is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_policy: Option<ApplyPolicy>,
}

/// The origin of a copy.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceRef {
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
    /// UID in the control plane's API.
    pub uid: String,
}

/// How a copy is applied.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ApplyPolicy {
    /// Takes over an object that is there already.
    #[serde(default)]
    pub adopt: bool,
    /// Fields that are left to others there, for example `spec.replicas` under an autoscaler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub leave_fields: Vec<String>,
}

/// What became of a copy.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// `Applied` and `Available`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd_schema::conditions")]
    pub conditions: Vec<Condition>,
    /// `spec.hash` of what was last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub observed_hash: Option<String>,
    /// The part of the copy's status that its kind calls for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub resource: Option<Map<String, Value>>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// Part of the inventory of a large cluster.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "cluster.fleet-scheduler.io",
    version = "v1alpha1",
    kind = "ClusterReport",
    plural = "clusterreports",
    namespaced,
    derive = "PartialEq",
    doc = "Up to 200 nodes of a workload cluster that is too large for its Cluster object. Internal."
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReportSpec {
    /// What is free, by node and resource.
    #[serde(deserialize_with = "field::or_empty")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub available_resources: NodeResources,
    /// What there is, by node and resource.
    #[serde(deserialize_with = "field::or_empty")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub capacity_resources: NodeResources,
    /// Taints by node; nodes without taints are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "field::or_empty")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub node_taints: BTreeMap<String, Vec<Taint>>,
    /// When the agent wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::time")]
    pub last_update_time: Option<Time>,
}
