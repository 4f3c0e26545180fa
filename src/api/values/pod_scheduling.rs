//! Values that say where pods run: affinity and spread, in Kubernetes' own words and shapes, closed at every level.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Affinity and anti-affinity of a component's pods to nodes and other pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Affinity {
    /// Affinity to nodes.
    #[serde(default)]
    pub node_affinity: Option<NodeAffinity>,
    /// Affinity to other pods.
    #[serde(default)]
    pub pod_affinity: Option<PodAffinity>,
    /// Anti-affinity to other pods. It replaces the anti-affinity that the chart sets.
    #[serde(default)]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Affinity to nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAffinity {
    /// Required terms: a node must match one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    /// Preferred terms for nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredNode>,
}

/// Terms; a node must match at least one of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelector {
    /// The terms.
    #[schemars(length(min = 1))]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements; a node must meet all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelectorTerm {
    /// Requirements on labels of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeRequirement>,
    /// Requirements on fields of the node; the only field is `metadata.name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<NodeRequirement>,
}

/// A requirement on one label of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRequirement {
    /// The label's key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Operator that compares the value.
    pub operator: NodeOperator,
    /// The values; none for `Exists` and `DoesNotExist`, one number for `Gt` and `Lt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Operator that compares a label of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeOperator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// Greater than the number.
    Gt,
    /// Less than the number.
    Lt,
}

/// A preference for nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreferredNode {
    /// Weight of the preference.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i32,
    /// Preferred term.
    pub preference: NodeSelectorTerm,
}

/// Affinity or anti-affinity to other pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodAffinity {
    /// Required terms for other pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_during_scheduling_ignored_during_execution: Vec<PodAffinityTerm>,
    /// Preferred terms for other pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredPods>,
}

/// A preference for pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreferredPods {
    /// Weight of the preference.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i32,
    /// Preferred term.
    pub pod_affinity_term: PodAffinityTerm,
}

/// Selection of pods, and the node label that defines which pods are close to each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodAffinityTerm {
    /// Selector of the pods; the default selects none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Label of nodes whose value is the topology domain, such as `kubernetes.io/hostname`.
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
    /// Namespaces of the pods; the default is the namespace of the installation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Selector of namespaces; an empty selector selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// Selector of objects by their labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// A requirement on one label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelRequirement {
    /// The label's key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Operator that compares the value.
    pub operator: LabelOperator,
    /// The values; none for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Operator that compares a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

/// How evenly pods are spread over zones, nodes or other topology domains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopologySpreadConstraint {
    /// Largest difference in the number of pods between two topology domains.
    #[schemars(range(min = 1))]
    pub max_skew: i32,
    /// Label of nodes whose value is the topology domain, such as `topology.kubernetes.io/zone`.
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
    /// Treatment of a pod that would exceed the difference.
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// Pods that are counted; the default is the pods of the component.
    #[serde(default)]
    pub label_selector: Option<LabelSelector>,
}

/// Treatment of a pod that would exceed the largest difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhenUnsatisfiable {
    /// The pod stays Pending.
    DoNotSchedule,
    /// The pod runs anyway.
    ScheduleAnyway,
}
