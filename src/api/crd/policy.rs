//! `SchedulePolicy`: which objects are placed onto which workload clusters, and how.

#![allow(unreachable_pub)] // KubeSchema expands to a public item inside a function.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cluster;
use super::condition::{self, Condition};
use super::crd_schema;
use crate::api::labels::LABEL_NAME;

/// What is placed where.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "policy.fleet-scheduler.io",
    version = "v1alpha1",
    kind = "SchedulePolicy",
    plural = "schedulepolicies",
    category = "fleet",
    status = "SchedulePolicyStatus",
    derive = "PartialEq",
    doc = "A rule that places objects of this control plane onto workload clusters.",
    printcolumn(name = "MATCHED", type_ = "integer", json_path = ".status.matchedObjects"),
    printcolumn(name = "GROUPS", type_ = "integer", json_path = ".status.groups"),
    printcolumn(name = "UNSCHEDULED", type_ = "integer", json_path = ".status.unscheduledGroups"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePolicySpec {
    /// Namespaces that are placed with their objects; `{}` selects all. Other cluster-scoped objects are placed only if
    /// `kinds` names their kind.
    #[schemars(schema_with = "crd_schema::label_selector")]
    pub namespace_selector: LabelSelector,
    /// Objects that are placed.
    pub resource_selectors: ResourceSelectors,
    /// Clusters that may be chosen; if absent, all clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::label_selector")]
    pub cluster_selector: Option<LabelSelector>,
    /// Clusters in order of preference: the first one with room is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::ordered_selector")]
    pub ordered_cluster_selector: Option<LabelSelector>,
    /// Cluster taints that this policy's objects tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub cluster_tolerations: Vec<ClusterToleration>,
    /// If several policies match an object, the one with the higher priority decides; then the older one.
    #[serde(default)]
    pub priority: i32,
    /// Followers that are copied to clusters that need them. `NeedsToStart` (default): also objects that no policy
    /// matches and that pods need to start. `Matched`: only objects that a policy matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::followers")]
    pub followers: Option<String>,
    /// Rule that keeps objects together; if absent, each object is placed alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// Rule that spreads objects over several clusters instead of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_constraints: Option<SpreadConstraints>,
    /// Whether the scheduler only records its decisions and does not carry them out.
    #[serde(default)]
    pub suspend: bool,
    /// Whether groups move away from a lost cluster; if absent, they wait until the cluster is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
}

/// Selection of the objects that a policy places.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelectors {
    /// One of these selectors must match; an empty selector matches everything.
    #[schemars(schema_with = "crd_schema::label_selectors")]
    pub label_selectors: Vec<LabelSelector>,
    /// Only these kinds; if absent, Namespace and every namespaced kind that can be placed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub kinds: Vec<KindSelector>,
}

/// A kind.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct KindSelector {
    /// API group; empty for the core group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// API version; empty for any.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub version: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

/// A toleration of cluster taints.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterToleration {
    /// Key of the taint; empty with `Exists` matches every key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 317))]
    pub key: String,
    /// Operator: `Equal` compares the value, `Exists` does not.
    #[serde(default = "equal")]
    #[schemars(schema_with = "crd_schema::toleration_operator")]
    pub operator: String,
    /// Value of the taint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub value: String,
    /// Effect of the taint; if absent, every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "cluster::taint_effect")]
    pub effect: Option<String>,
}

fn equal() -> String {
    "Equal".to_owned()
}

/// Rule by which objects form a group.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
// `namespace` is a reserved word of the rules of API servers of 1.31.
#[x_kube(validation = Rule::new("has(self.labelKey) != has(self.__namespace__)").message("set exactly one of labelKey and namespace"))]
#[x_kube(validation = Rule::new("has(self.labelKey) || !has(self.acrossNamespaces) || !self.acrossNamespaces").message("acrossNamespaces needs labelKey"))]
pub struct GroupBy {
    /// Objects of one namespace with the same value of this label are one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub label_key: Option<String>,
    /// Whether all objects of a namespace are one group; only `true` can be set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(schema_with = "crd_schema::only_true")]
    pub namespace: bool,
    /// Whether objects of all namespaces with the same value are one group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub across_namespaces: bool,
}

impl GroupBy {
    /// Returns the label that makes the group of an object with these labels, key and value; `None` if it has no such label.
    pub fn find_label<'a>(&'a self, labels: &'a BTreeMap<String, String>) -> Option<(&'a str, &'a str)> {
        let key = self.label_key.as_deref()?;
        Some((key, labels.get(key)?))
    }
}

/// Rule by which a group is spread.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraints {
    /// `Divide` splits the replicas of pod controllers and copies the rest; `Duplicate` copies everything.
    #[serde(default = "divide")]
    #[schemars(schema_with = "crd_schema::spread_mode")]
    pub spread_mode: String,
    /// Cluster label; clusters with the same value are one domain.
    #[serde(default = "by_name")]
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
    /// Share of the replicas by domain, each domain once; if absent, the replicas are divided evenly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["topologyValue"]))]
    #[x_kube(validation = Rule::new(sums_to_100()).message("the percentages must add up to 100"))]
    pub percentage_split: Vec<PercentageSplit>,
    /// Edits by domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub overrides: Vec<DomainOverride>,
}

/// Most shares that a policy can name.
const SHARES: usize = 32;

/// The rule that the shares of a split add up to 100, term by term: API servers before 1.27 overestimate what CEL's own
/// `sum` costs, and refuse the definition.
fn sums_to_100() -> String {
    fn sum_expression(from: usize, to: usize) -> String {
        if to - from == 1 {
            return format!("(self.size() > {from} ? self[{from}].percentage : 0)");
        }
        let middle = usize::midpoint(from, to);
        // Balanced, because the parser limits how deep an expression goes.
        format!("({} + {})", sum_expression(from, middle), sum_expression(middle, to))
    }
    format!("self.size() == 0 || {} == 100", sum_expression(0, SHARES))
}

fn divide() -> String {
    "Divide".to_owned()
}

fn by_name() -> String {
    LABEL_NAME.to_owned()
}

/// The share of one domain.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PercentageSplit {
    /// Value of the topology label.
    #[schemars(length(min = 1, max = 63))]
    pub topology_value: String,
    /// Percent of the replicas.
    #[schemars(range(min = 0, max = 100))]
    pub percentage: i32,
}

/// Edits of the objects that go to one domain.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DomainOverride {
    /// Value of the topology label.
    #[schemars(length(min = 1, max = 63))]
    pub topology_value: String,
    /// Objects to edit.
    #[schemars(length(max = 100))]
    pub resources: Vec<ResourceOverride>,
}

/// Edits of one object.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceOverride {
    /// Kind of the object.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// API version of the object, with its group.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the object; absent for objects without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The edits.
    #[serde(rename = "override")]
    #[schemars(length(max = 100))]
    pub edits: Vec<FieldOverride>,
}

/// One edit.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FieldOverride {
    /// Path of the field, such as `spec.template.spec.containers[0].image` or `metadata.labels['tier']`.
    #[schemars(length(min = 1, max = 1024))]
    pub field_path: String,
    /// The new value.
    pub value: OverrideValue,
}

/// Source of the value of an edit.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct OverrideValue {
    /// The value itself.
    #[schemars(schema_with = "crd_schema::anything")]
    pub static_value: Value,
}

/// Rule by which groups leave a lost cluster.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// Whether groups leave a lost cluster.
    #[serde(default)]
    pub enabled: bool,
    /// Seconds for which a cluster must have been lost before, at least 60.
    #[serde(default = "five_minutes")]
    #[schemars(range(min = 1, max = 604_800))]
    pub after_seconds: i32,
}

fn five_minutes() -> i32 {
    300
}

/// Observed state of a policy.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePolicyStatus {
    /// Conditions `Valid` and `Scheduled`, and `Suspended` while the policy is suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions")]
    pub conditions: Vec<Condition>,
    /// Number of objects that the policy decides about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_objects: Option<i32>,
    /// Number of groups of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<i32>,
    /// Number of these groups that have no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unscheduled_groups: Option<i32>,
}

/// Types of the conditions of a policy.
pub mod conditions {
    /// The policy can be applied as it is.
    pub const VALID: &str = "Valid";
    /// Every group of the policy has a place.
    pub const SCHEDULED: &str = "Scheduled";
    /// Decisions are recorded, but not carried out.
    pub const SUSPENDED: &str = "Suspended";
    /// Whether all that the policy would take is of kinds that are placed; only there where it is not so.
    pub const KINDS_PLACED: &str = "KindsPlaced";
}
