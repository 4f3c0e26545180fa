//! `Schedule` and `ClusterReport`: what scheduler and agent exchange in the namespace of one cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::{NodeLabels, NodeResources, Taint};
use super::condition::{self, Condition};
use super::crd_schema;
use crate::api::lenient::field;

/// One object that one cluster must have.
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
    /// The object that the agent applies, as JSON text: in a watch cache, parsed objects take several times their size.
    #[schemars(length(min = 2, max = 1_048_576))]
    pub manifest: String,
    /// Digest of the inputs of the manifest: the source, its share and the edits of its policy.
    #[schemars(length(min = 1, max = 128))]
    pub hash: String,
    /// SHA-256 of `manifest` in hex. An agent applies no other manifest. Absent if an earlier version wrote the
    /// Schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 64, max = 64))]
    pub manifest_digest: Option<String>,
    /// Name of the ScheduleGroup that the source is a member of. Absent if an annotation of the source places it, or if
    /// the source follows the objects that use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group: Option<String>,
    /// Whether the copy exists only because another object in the cluster uses it. It is deleted when nothing uses it
    /// any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows: bool,
    /// Objects that `manifest` names and that follow it, as `GROUP/KIND/NAMESPACE/NAME`, sorted. Absent if it names
    /// none, or if they were not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000), inner(length(max = 640)))]
    pub uses: Option<Vec<String>>,
    /// The source: an object of the control plane's API.
    pub source_ref: SourceRef,
    /// The part of the source that runs in this cluster; absent if the whole source runs here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ScheduleShare>,
    /// How the agent applies the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_policy: Option<ApplyPolicy>,
    /// Counter that grows when the amount or the pods of the copy change, and when the scheduler keeps the copy; if
    /// absent, 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "crd_schema::generation")]
    pub epoch: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub(super) fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The source of a copy.
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
    /// `metadata.generation` of the source that `manifest` was made from; 0 for kinds without one.
    #[serde(default)]
    #[schemars(schema_with = "crd_schema::generation")]
    pub generation: i64,
}

/// The part of a source that one cluster runs.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleShare {
    /// The cluster's value of the policy's topology label.
    #[schemars(length(max = 63))]
    pub domain: String,
    /// Replicas of a divided workload, or parallel pods of a divided Job; absent if the source is copied whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i64>,
    /// Pods of a divided Job that must succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub completions: Option<i64>,
}

/// How a copy is applied.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ApplyPolicy {
    /// Whether the copy may adopt an existing object.
    #[serde(default)]
    pub adopt: bool,
    /// Fields that other managers in the cluster may set, for example `spec.replicas` with an autoscaler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub leave_fields: Vec<String>,
    /// Treatment of the copy when the Schedule is deleted.
    #[serde(default)]
    #[schemars(schema_with = "crd_schema::on_delete")]
    pub on_delete: OnDelete,
}

/// Treatment of a copy when its Schedule is deleted.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDelete {
    /// The copy is deleted.
    #[default]
    Delete,
    /// The copy is kept without the labels and annotations of this control plane.
    Keep,
}

/// Observed state of a copy.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// Conditions `Applied`, `Available` and `Deleted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions")]
    pub conditions: Vec<Condition>,
    /// `spec.hash` of the Schedule that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(length(max = 128))]
    pub observed_hash: Option<String>,
    /// `spec.sourceRef.generation` of the Schedule that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::generation")]
    pub applied_generation: Option<i64>,
    /// UID of the copy.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "appliedUID",
        deserialize_with = "field::field"
    )]
    #[schemars(length(max = 64))]
    pub applied_uid: Option<String>,
    /// `spec.sourceRef.uid` of the Schedule that was applied last: a Job or Pod that was recreated in the control plane
    /// runs again.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "sourceUID", deserialize_with = "field::field")]
    #[schemars(length(max = 64))]
    pub source_uid: Option<String>,
    /// `metadata.generation` of the copy when `resource` was read; absent for kinds without one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::generation")]
    pub copy_generation: Option<i64>,
    /// `spec.epoch` of the Schedule that was tried last, whatever the result.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::generation")]
    pub epoch: Option<i64>,
    /// Available part of the copy: pods of a divided workload; otherwise 1 if the whole copy is available, else 0. A
    /// load balancer counts as available without an address.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(range(min = 0))]
    pub available: Option<i64>,
    /// Largest amount that was available at once, for this UID of the copy, since the amount was last reduced.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(range(min = 0))]
    pub served: Option<i64>,
    /// Whether the copy has finished: a Job completed or failed, a Pod succeeded or failed. With the condition
    /// `Deleted`: whether it had finished when it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    pub finished: Option<bool>,
    /// Pods of the copy, for kinds that run pods.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    pub pods: Option<PodCounts>,
    /// The part of the copy's status that its kind requires, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(length(max = 8192))]
    pub resource: Option<String>,
    /// Message for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// Pods of a copy, found by the owner references from the pod to the copy.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodCounts {
    /// Pods that the copy requests.
    #[schemars(range(min = 0))]
    pub desired: i64,
    /// Pods that have a node.
    #[schemars(range(min = 0))]
    pub bound: i64,
    /// Pods whose requests are included in the last inventory of the agent.
    #[schemars(range(min = 0))]
    pub counted: i64,
    /// Time since which a pod of the copy has found no node.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::time")]
    pub unschedulable_since: Option<Time>,
}

/// Types of the conditions of a Schedule.
pub mod conditions {
    /// The copy is as `spec.manifest` says.
    pub const APPLIED: &str = "Applied";
    /// The copy is available, by the rules of its kind.
    pub const AVAILABLE: &str = "Available";
    /// The copy is gone, or was left as `onDelete: Keep` says.
    pub const DELETED: &str = "Deleted";
}

/// Reasons of the condition `Applied`.
pub mod applied {
    /// All is well.
    pub const APPLIED: &str = "Applied";
    /// The workload cluster does not serve the kind.
    pub const KIND_NOT_SERVED: &str = "KindNotServed";
    /// An object of that name is there and is not a copy of this control plane.
    pub const ALREADY_EXISTS: &str = "AlreadyExists";
    /// The API server refuses the change of a field that cannot be changed, or the agent an object for a protected namespace.
    pub const REFUSED: &str = "Refused";
    /// The namespace was there before, and the copy does not go into it; with `Applied` as a note, it goes into it.
    pub const NAMESPACE_NOT_OWNED: &str = "NamespaceNotOwned";
    /// Another manager changes the same fields again and again.
    pub const CONTESTED: &str = "Contested";
    /// The agent lacks a right.
    pub const FORBIDDEN: &str = "Forbidden";
    /// The API server finds the object invalid.
    pub const INVALID: &str = "Invalid";
    /// The object is larger than a Schedule can carry.
    pub const TOO_LARGE: &str = "TooLarge";
    /// The namespace of the copy does not exist there.
    pub const NAMESPACE_MISSING: &str = "NamespaceMissing";
    /// The API server there could not be asked; the agent tries again.
    pub const UNREACHABLE: &str = "Unreachable";
    /// The Secret of the control plane that holds the data of a copied Secret does not exist.
    pub const PAYLOAD_MISSING: &str = "PayloadMissing";
    /// Somebody else wrote `spec.manifest`.
    pub const MANIFEST_EDITED: &str = "ManifestEdited";
    /// Reasons for which the scheduler writes a Schedule again, though nothing else asks for it.
    pub const WRITTEN_AGAIN: [&str; 2] = [PAYLOAD_MISSING, MANIFEST_EDITED];
}

/// Reasons of the condition `Available`.
pub mod available {
    /// Pods do not run for a reason that is none of the others.
    pub const PODS_FAILING: &str = "PodsFailing";
    /// Reasons for which pods do not run, or an object without pods is not available, until somebody does something.
    pub const NOT_RUNNING: [&str; 17] = [
        "ImageNotFound",
        "ImageArchitecture",
        "ImagePullDenied",
        "ImagePullFailed",
        "CrashLoopBackOff",
        "OutOfMemory",
        "ContainerConfig",
        "MountFailed",
        "ClaimUnbound",
        "ProvisioningFailed",
        "QuotaExceeded",
        "PodSecurity",
        "PodsRefused",
        "Unschedulable",
        "ProbeFailing",
        "LoadBalancerFailed",
        PODS_FAILING,
    ];
}

/// Reasons of the condition `Deleted`.
pub mod deleted {
    /// The copy is gone, or there was none.
    pub const DELETED: &str = "Deleted";
    /// The copy was left, as `onDelete: Keep` says, or because it was there before.
    pub const KEPT: &str = "Kept";
    /// The namespace was left: it was there before, or foreign objects are in it.
    pub const NAMESPACE_KEPT: &str = "NamespaceKept";
    /// The copy is not gone yet.
    pub const WAITING: &str = "Waiting";
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
    /// Free resources by node and resource.
    #[serde(deserialize_with = "field::or_empty")]
    #[schemars(schema_with = "crd_schema::nodes_of_report")]
    pub available_resources: NodeResources,
    /// Existing resources by node and resource.
    #[serde(deserialize_with = "field::or_empty")]
    #[schemars(schema_with = "crd_schema::nodes_of_report")]
    pub capacity_resources: NodeResources,
    /// Taints by node; nodes without taints are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "field::or_empty")]
    #[schemars(schema_with = "crd_schema::nodes_of_report")]
    pub node_taints: BTreeMap<String, Vec<Taint>>,
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub node_labels: Option<NodeLabels>,
    /// Time at which the agent wrote the report.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::time")]
    pub last_update_time: Option<Time>,
}
