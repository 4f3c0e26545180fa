//! `Cluster`: a registered workload cluster, as the control plane sees it.

#![allow(unreachable_pub)] // KubeSchema expands to a public item inside a function.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::condition::{self, Condition};
use super::crd_schema;
use crate::api::lenient::field;

/// Desired state of a workload cluster in the control plane.
///
/// The scheduler and operators write it, never an agent: labels and these fields determine which objects are placed in
/// the cluster.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "cluster.fleet-scheduler.io",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    category = "fleet",
    status = "ClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A workload cluster that is registered with this control plane.",
    printcolumn(name = "K8S-VERSION", type_ = "string", json_path = ".spec.kubernetesversion"),
    printcolumn(name = "K8S-CLUSTER", type_ = "string", json_path = ".spec.kubernetescluster"),
    printcolumn(name = "PROVIDER", type_ = "string", json_path = ".spec.provider", priority = "1"),
    printcolumn(name = "REGION", type_ = "string", json_path = ".spec.region"),
    printcolumn(name = "ZONE", type_ = "string", json_path = ".spec.zone"),
    printcolumn(name = "READY", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "IDLE", type_ = "string", json_path = r#".status.conditions[?(@.type=="Idle")].status"#),
    printcolumn(name = "STANDBY", type_ = "string", json_path = r#".status.conditions[?(@.type=="Standby")].status"#)
)]
#[x_kube(validation = Rule::new("!has(oldSelf.clusterID) || has(self.clusterID)").message("clusterID cannot be removed once set"))]
pub struct ClusterSpec {
    /// The registered name; the same as `metadata.name`.
    #[schemars(length(min = 1, max = 50), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("name is immutable"))]
    pub name: String,
    /// UID of the workload cluster's `kube-system` namespace.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("clusterID is immutable once set"))]
    pub cluster_id: Option<String>,
    /// Whether the cluster may receive workloads. With manual registration it is `false` until an operator accepts the
    /// cluster.
    #[serde(default = "yes")]
    pub accepted: bool,
    /// Kubernetes version, as major.minor.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub kubernetesversion: String,
    /// Name of the underlying cluster, as its provider calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub kubernetescluster: String,
    /// Short name of the cloud provider.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub provider: String,
    /// Region, if all nodes have the same one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub region: String,
    /// Zone, if all nodes have the same one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub zone: String,
    /// Taints, which keep out objects that do not tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub taints: Vec<Taint>,
}

fn yes() -> bool {
    true
}

/// Effects that a taint may have.
pub const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The effect of a taint.
pub(in crate::api) fn taint_effect(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": TAINT_EFFECTS })
}

/// A taint, of a cluster or of a node.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Value; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[schemars(schema_with = "taint_effect")]
    pub effect: String,
}

impl Cluster {
    /// Returns whether the agent of the cluster has ever reported.
    pub fn has_reported(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.last_update_time.is_some())
    }
}

/// Observed state of a workload cluster. The agent writes everything except the conditions of the scheduler.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// `Ready`, `Idle`, `Standby`, `Accepted`, `ClockSkew`, `InventoryTruncated` by the scheduler; `ClusterHealthy` by the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions")]
    pub conditions: Vec<Condition>,
    /// Facts about the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// Free resources by node and resource, as quantities.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::nodes_of_cluster")]
    pub available_resources: Option<NodeResources>,
    /// Existing resources by node and resource, as quantities.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::nodes_of_cluster")]
    pub capacity_resources: Option<NodeResources>,
    /// Taints by node; nodes without taints are left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::nodes_of_cluster")]
    pub node_taints: Option<BTreeMap<String, Vec<Taint>>>,
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub node_labels: Option<NodeLabels>,
    /// Whether an autoscaler adds nodes to the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaled: Option<bool>,
    /// Time at which the agent last wrote the inventory.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::time")]
    pub last_update_time: Option<Time>,
    /// Set by an agent that is being uninstalled: the control plane then deletes the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_requested: Option<bool>,
    /// Set by an agent whose uninstall drains the cluster: the cluster counts as tainted `NoExecute`, so its copies
    /// move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_requested: Option<bool>,
    /// Value of the annotation `fleet-scheduler.io/ask` that the agent answered last. Before it answered, the agent
    /// compared every copy with the status of its Schedule and wrote each difference.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(length(max = 128))]
    pub answered: Option<String>,
    /// Number of copies in the cluster that have no Schedule, including those that are kept. Absent while the agent has
    /// not counted them, and for an agent older than the annotation `fleet-scheduler.io/hold-deletions`: such an agent
    /// deletes these copies whatever the annotation says.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(range(min = 0, max = MOST_COPIES_WITHOUT_SCHEDULE))]
    pub copies_without_schedule: Option<i32>,
    /// Copies without a Schedule that contain data. The agent keeps them until somebody decides.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    pub data_without_schedule: Option<DataWithoutSchedule>,
}

/// Copies without a Schedule that contain data: PersistentVolumeClaims, and workloads that mount one or have claim
/// templates.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DataWithoutSchedule {
    /// Total number.
    #[schemars(range(min = 0, max = MOST_COPIES_WITHOUT_SCHEDULE))]
    pub count: i32,
    /// The first copies, such as `PersistentVolumeClaim shop/data`, sorted by this text.
    #[serde(default)]
    #[schemars(length(max = MOST_DATA_NAMED), inner(length(max = LONGEST_DATA_NAME)))]
    pub first: Vec<String>,
}

/// Most copies that contain data which a Cluster names.
pub const MOST_DATA_NAMED: usize = 20;

/// Longest of these names, in characters: a kind, a namespace and a name.
pub const LONGEST_DATA_NAME: usize = 400;

impl DataWithoutSchedule {
    /// Returns what is reported of the copies with these names, which are sorted.
    pub fn from_names(names: &[String]) -> Self {
        let count = i32::try_from(names.len()).unwrap_or(i32::MAX).min(MOST_COPIES_WITHOUT_SCHEDULE);
        let first = names.iter().take(MOST_DATA_NAMED).map(|name| name.chars().take(LONGEST_DATA_NAME).collect());
        Self { count, first: first.collect() }
    }
}

/// Largest number of copies without a Schedule that is reported.
pub const MOST_COPIES_WITHOUT_SCHEDULE: i32 = 1_000_000;

/// Labels of nodes, each distinct set once. `kubernetes.io/hostname` is left out, and read as the name of the node.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeLabels {
    /// The distinct sets of labels.
    pub sets: Vec<BTreeMap<String, String>>,
    /// Index into `sets` of the set that each node has, in byte order of the names of the nodes.
    pub of: Vec<i32>,
    /// Keys that were omitted because of their size: the values of nodes for these keys are unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped_keys: Vec<String>,
}

/// Node name → resource name → quantity.
pub type NodeResources = BTreeMap<String, BTreeMap<String, String>>;

/// Facts that an agent reports; the scheduler copies them into spec and labels.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// Version of the API server, in full.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub git_version: String,
    /// Name of the underlying cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub kubernetescluster: String,
    /// Short name of the cloud provider.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub provider: String,
    /// Region, if all nodes have the same one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub region: String,
    /// Every zone that has a node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 253)))]
    pub zones: Vec<String>,
    /// Service version that the agent was installed as.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub agent_version: String,
    /// Version of the agent's program, which can serve several lines of the service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub agent_build: String,
    /// Total number of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    pub node_count: Option<i32>,
    /// Served API versions, such as `v1` and `apps/v1`; empty if they are unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 400), inner(length(max = 317)))]
    pub apis: Vec<String>,
    /// Sums over all nodes, when the maps by node are left out because the cluster is large.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::opaque_map")]
    pub totals: Option<Map<String, Value>>,
}

/// Types of the conditions of a Cluster.
pub mod conditions {
    /// The cluster takes work.
    pub const READY: &str = "Ready";
    /// Nothing that consumes resources is placed there.
    pub const IDLE: &str = "Idle";
    /// The cluster is asleep to save cost.
    pub const STANDBY: &str = "Standby";
    /// The cluster may take part.
    pub const ACCEPTED: &str = "Accepted";
    /// The agent's clock is far from the scheduler's. Absent while it never was.
    pub const CLOCK_SKEW: &str = "ClockSkew";
    /// The agent reports more than is read of it. Absent while it never did.
    pub const INVENTORY_TRUNCATED: &str = "InventoryTruncated";
    /// The agent's own view of its API server.
    pub const HEALTHY: &str = "ClusterHealthy";
}

/// Reasons of the condition `Ready`.
pub mod reasons {
    /// All is well.
    pub const READY: &str = "ClusterReady";
    /// The agent's Lease is out of date.
    pub const HEARTBEAT_LOST: &str = "ClusterHeartbeatLost";
    /// The agent lives, the API server there is not well.
    pub const NOT_READY: &str = "ClusterNotReady";
    /// The agent has not reported yet.
    pub const NEVER_UPDATED: &str = "ClusterStatusNeverUpdated";
    /// The cluster sleeps.
    pub const STANDBY: &str = "ClusterStandby";
    /// Nobody has accepted the cluster yet.
    pub const NOT_ACCEPTED: &str = "ClusterNotAccepted";
    /// Its agent asked to leave.
    pub const LEAVING: &str = "ClusterLeaving";
}
