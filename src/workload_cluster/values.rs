//! The values of an agent: one struct tree, whose comments and bounds are the schema that users see.
//!
//! The charts' `values.yaml` holds the defaults; nothing here has one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::values::network_policy::AgentPolicies;
use crate::api::values::placement_values::AgentPlacementValues;
use crate::api::values::pod_scheduling::{Affinity, TopologySpreadConstraint};
use crate::api::values::pod_values::{
    Argument, EnvVar, ImagePullPolicy, ImageValues, ProxyValues, REGISTRY, Resources, SecretName, SecretValue,
    ServiceAccountValues, Toleration,
};

/// Values of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentValues {
    /// Name of the workload cluster in the control plane, if the command line gives none.
    #[serde(default)]
    #[schemars(length(min = 1, max = 50))]
    pub name: Option<String>,
    /// Service version to install if the command line gives none: a line (`v0.6`), a version (`v0.6.1`), or `auto`
    /// for the newest that supports the cluster.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    pub version: Option<String>,
    /// Image.
    pub image: ImageValues,
    /// Registry to pull the image from, as `mirror.example/fleetscheduler/fleet-agent:v0.6.1`. By default the image
    /// comes from its own registry.
    #[serde(default)]
    #[schemars(length(min = 1), regex(pattern = REGISTRY))]
    pub image_registry: Option<String>,
    /// When the nodes pull the image.
    pub image_pull_policy: ImagePullPolicy,
    /// Secrets of the namespace that nodes log in to registries with.
    pub image_pull_secrets: Vec<SecretName>,
    /// Credentials for registries: the JSON text of a docker configuration file. It is stored in a Secret
    /// `fleet-registry`, which the pods use.
    #[serde(default)]
    #[schemars(length(min = 2), extend("x-secret" = true))]
    pub registry_credentials: Option<SecretValue>,
    /// Labels that a node must have to run the agent, besides `kubernetes.io/os: linux`.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the agent's pod tolerates.
    pub tolerations: Vec<Toleration>,
    /// Priority class of the agent's pod.
    #[serde(default)]
    pub priority_class_name: Option<String>,
    /// Replicas; one is the leader, a second is on standby.
    #[schemars(range(min = 1, max = 2), extend("x-since" = "v0.8"))]
    pub replicas: i32,
    /// Network access to the agent's pod.
    pub network_policy: AgentPolicies,
    /// Facts that the agent reports about its cluster instead of detected ones.
    pub cluster: ClusterValues,
    /// Objects that the agent may place into the cluster.
    pub placement: AgentPlacementValues,
    /// Whether a ValidatingAdmissionPolicy limits the writes of the agent's service account, whoever has its token.
    pub admission_policy: AdmissionPolicy,
    /// Resources of the agent.
    pub resources: Resources,
    /// Additional arguments, which override the chart's.
    pub extra_args: Vec<Argument>,
    /// Additional environment variables.
    pub extra_env: Vec<EnvVar>,
    /// Additional labels of the pods; labels of the chart cannot be set.
    pub pod_labels: BTreeMap<String, String>,
    /// Additional annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Affinity and anti-affinity of the pods to nodes and other pods.
    pub affinity: Affinity,
    /// How evenly the pods are spread over zones, nodes or other topology domains.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// The ServiceAccount of the agent.
    pub service_account: ServiceAccountValues,
    /// Proxy of the agent for connections to the control plane.
    pub proxy: ProxyValues,
}

/// Whether the chart contains an admission policy for the agent's service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdmissionPolicy {
    /// If the cluster serves such policies, from Kubernetes 1.30 on. If the version of the cluster is unknown: if all
    /// Kubernetes versions that the service version supports serve such policies.
    Auto,
    /// Always.
    Enabled,
    /// Never.
    Disabled,
}

/// Facts about the cluster; the agent detects the facts that are not set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterValues {
    /// Name of the underlying cluster.
    #[serde(default)]
    #[schemars(length(min = 1, max = 63))]
    pub kubernetes_cluster: Option<String>,
    /// Cloud provider, as a short identifier.
    #[serde(default)]
    #[schemars(length(min = 1, max = 63))]
    pub provider: Option<String>,
    /// Region.
    #[serde(default)]
    #[schemars(length(min = 1, max = 63))]
    pub region: Option<String>,
    /// Zone.
    #[serde(default)]
    #[schemars(length(min = 1, max = 63))]
    pub zone: Option<String>,
}

impl AgentValues {
    /// The JSON Schema: closed at every level, with descriptions and bounds.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}
