//! Values of network policies, shaped as in Kubernetes' own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pod_scheduling::LabelSelector;

/// Who may talk to the control plane's pods, and to whom they may talk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlanePolicies {
    /// Whether the pods' traffic is limited to what the control plane needs.
    pub enabled: bool,
    /// Who may read metrics of the scheduler and of the controller manager, which asks for a credential as well; nobody if empty.
    pub metrics_from: Vec<NetworkPeer>,
    /// Where names are looked up; at any address if empty, for a cache on the node answers from outside of the pods' network.
    pub dns_to: Vec<NetworkPeer>,
    /// Where the scheduler reaches the cloud's API or the proxy on the way, with an access key; any address if empty.
    pub cloud_to: Vec<NetworkPeer>,
}

/// Who may talk to the agent's pod, and to whom it may talk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentPolicies {
    /// Whether connections to the pod are refused.
    pub enabled: bool,
    /// Who may read metrics all the same; nobody if empty.
    pub metrics_from: Vec<NetworkPeer>,
    /// All that the agent may reach: the API server of its cluster, DNS, the control plane or the proxy on the way there.
    /// Anything if empty.
    pub egress_to: Vec<NetworkPeer>,
}

/// Pods by their labels and those of their namespaces, or addresses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPeer {
    /// Namespaces; an empty selector means all of them. Left out, it is the namespace of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Pods; all of these namespaces if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Addresses instead.
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
