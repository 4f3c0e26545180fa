//! Values that say where pods run: affinity and spread, in Kubernetes' own words and shapes, closed at every level.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Nodes and other pods that a component's pods want to be near to, or far from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Affinity {
    /// Nodes that the pods want.
    #[serde(default)]
    pub node_affinity: Option<NodeAffinity>,
    /// Pods that they want to run beside.
    #[serde(default)]
    pub pod_affinity: Option<PodAffinity>,
    /// Pods that they want to run apart from. Given here, it takes the place of what the chart asks for by itself.
    #[serde(default)]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Nodes that pods want.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAffinity {
    /// What a node must fulfil: any one of the terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    /// What a node should fulfil.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredNode>,
}

/// Terms of which a node has to fulfil one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelector {
    /// The terms.
    #[schemars(length(min = 1))]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements of which a node has to fulfil all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelectorTerm {
    /// On its labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeRequirement>,
    /// On its fields, of which there is `metadata.name`.
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
    /// How its value is compared.
    pub operator: NodeOperator,
    /// The values; none for `Exists` and `DoesNotExist`, one number for `Gt` and `Lt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// How a node's label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeOperator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
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
    /// How much it counts.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i32,
    /// What is preferred.
    pub preference: NodeSelectorTerm,
}

/// Pods that pods want to run beside, or apart from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodAffinity {
    /// What must be fulfilled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_during_scheduling_ignored_during_execution: Vec<PodAffinityTerm>,
    /// What should be fulfilled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredPods>,
}

/// A preference for pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreferredPods {
    /// How much it counts.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i32,
    /// What is preferred.
    pub pod_affinity_term: PodAffinityTerm,
}

/// Pods, and what counts as the same place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodAffinityTerm {
    /// The pods, by their labels; none if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// The label of nodes whose value is the place, such as `kubernetes.io/hostname`.
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
    /// The namespaces of the pods; their own if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// The same by labels of namespaces; an empty selector means all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// Objects by their labels.
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
    /// How its value is compared.
    pub operator: LabelOperator,
    /// The values; none for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// How evenly pods are spread over zones, nodes or other places.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopologySpreadConstraint {
    /// The largest difference in the number of pods between two places.
    #[schemars(range(min = 1))]
    pub max_skew: i32,
    /// The label of nodes whose value is the place, such as `topology.kubernetes.io/zone`.
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
    /// What becomes of a pod that would exceed it.
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// The pods that are counted; those of the component if left out.
    #[serde(default)]
    pub label_selector: Option<LabelSelector>,
}

/// What becomes of a pod that would make pods too unevenly spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhenUnsatisfiable {
    /// It waits.
    DoNotSchedule,
    /// It runs all the same.
    ScheduleAnyway,
}
