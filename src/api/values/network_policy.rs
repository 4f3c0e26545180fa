//! Values of network policies, shaped as in Kubernetes' own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pod_scheduling::LabelSelector;

/// Network access to and from the control plane's pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlanePolicies {
    /// Whether the pods' traffic is limited to what the control plane needs.
    pub enabled: bool,
    /// Peers that may read metrics of the scheduler and of the controller manager; nobody if empty. The controller
    /// manager also requires a credential.
    pub metrics_from: Vec<NetworkPeer>,
    /// DNS servers; any address if empty, because a DNS cache on the node answers from outside of the pod network.
    pub dns_to: Vec<NetworkPeer>,
    /// Peers through which the scheduler reaches the cloud's API, directly or by a proxy, if it has an access key; any
    /// address if empty.
    pub cloud_to: Vec<NetworkPeer>,
}

/// Network access to and from the agent's pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentPolicies {
    /// Whether the network policy refuses connections to the pod.
    pub enabled: bool,
    /// Peers that may still read metrics; nobody if empty.
    pub metrics_from: Vec<NetworkPeer>,
    /// All peers that the agent may reach: the API server of its cluster, DNS, and the control plane or the proxy in
    /// front of it. Any address if empty.
    pub egress_to: Vec<NetworkPeer>,
}

/// Pods, selected by their labels and the labels of their namespaces, or addresses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPeer {
    /// Selector of namespaces; an empty selector selects all. The default is the namespace of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Selector of pods; the default is all pods of these namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// A range of addresses, instead of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<IpBlock>,
}

/// A range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpBlock {
    /// The range in CIDR form.
    #[schemars(length(min = 1, max = 64))]
    pub cidr: String,
}
