//! The values of a control plane: one struct tree, whose comments and bounds are the schema that users see.
//!
//! The charts' `values.yaml` holds the defaults, so that a line of charts can change them; nothing here has one.
//! Values that only newer lines know carry `x-since`, secret ones `x-secret`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::quantity;
use crate::api::values::network_policy::ControlPlanePolicies;
pub use crate::api::values::placement_values::PlacementValues;
use crate::api::values::pod_scheduling::{Affinity, TopologySpreadConstraint};
use crate::api::values::pod_values::REGISTRY;
pub use crate::api::values::pod_values::{
    Argument, EnvVar, ImagePullPolicy, ImageValues, ProxyValues, Quantity, Resources, SecretName, SecretValue,
    ServiceAccountValues, TaintEffect, Toleration, TolerationOperator,
};

/// Values of a control plane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlaneValues {
    /// Name of the control plane, if the command line gives none.
    #[serde(default)]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// Service version to install if the command line gives none: a line (`v0.6`), a version (`v0.6.1`), or `auto`
    /// for the newest that supports the cluster.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    pub version: Option<String>,
    /// Registry to pull every image from, as `mirror.example/registry.k8s.io/etcd:3.5.35-0`. By default each image
    /// comes from its own registry.
    #[serde(default)]
    #[schemars(length(min = 1), regex(pattern = REGISTRY))]
    pub image_registry: Option<String>,
    /// When the nodes pull images.
    pub image_pull_policy: ImagePullPolicy,
    /// Secrets of the namespace that nodes log in to registries with.
    pub image_pull_secrets: Vec<SecretName>,
    /// Credentials for registries: the JSON text of a docker configuration file. It is stored in a Secret
    /// `fleet-registry`, which the pods use.
    #[serde(default)]
    #[schemars(length(min = 2), extend("x-secret" = true))]
    pub registry_credentials: Option<SecretValue>,
    /// Labels that a node must have to run the control plane, besides `kubernetes.io/os: linux`.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the control plane's pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// Priority class of the control plane's pods.
    #[serde(default)]
    pub priority_class_name: Option<String>,
    /// How strictly replicas of one component are spread over different nodes.
    #[schemars(extend("x-since" = "v0.8"))]
    pub spread: Spread,
    /// The ServiceAccount of all components.
    pub service_account: ServiceAccountValues,
    /// Proxy of the scheduler for connections out of the hosting cluster.
    pub proxy: ProxyValues,
    /// The namespace of the control plane in the hosting cluster.
    pub namespace: NamespaceValues,
    /// Network access to the control plane's pods.
    pub network_policy: ControlPlanePolicies,
    /// Source of the keys and certificates.
    pub pki: PkiValues,
    /// Address that people and agents use to reach the API server.
    pub exposure: ExposureValues,
    /// The store of the control plane.
    pub etcd: EtcdValues,
    /// The control plane's own API server.
    pub apiserver: ApiServerValues,
    /// The controller manager, which signs certificates and cleans up.
    pub controller_manager: ComponentValues,
    /// The scheduler of the service.
    pub scheduler: SchedulerValues,
    /// Kinds that are placed from the control plane into workload clusters.
    pub placement: PlacementValues,
    /// Access to the cloud that the control plane runs in.
    pub cloud: CloudValues,
}

/// How strictly replicas are spread over different nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Spread {
    /// If possible.
    Preferred,
    /// Always: a replica without its own node stays Pending.
    Required,
    /// Not at all.
    None,
}

/// The namespace in the hosting cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceValues {
    /// Pod Security level that the namespace gets as a label. The control plane's pods meet the strictest level. With
    /// `null`, the labels are not managed.
    pub pod_security: Option<PodSecurity>,
}

/// A level of Pod Security.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurity {
    /// The strictest.
    Restricted,
    /// Known privilege escalations are refused.
    Baseline,
    /// Everything is allowed.
    Privileged,
}

/// Source of the keys and certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PkiValues {
    /// Who creates the keys and certificates.
    pub source: PkiSource,
    /// Who renews certificates before they expire, unless you manage them (source `Existing`).
    pub renewal: PkiRenewal,
    /// For source `Existing`: the Secret in the control plane's namespace with all keys and certificates, one entry per
    /// file, as `template --pki` writes them into a folder.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"))]
    pub existing_secret: Option<String>,
}

/// Who creates keys and certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PkiSource {
    /// fleetctl, which renders the Secrets with them.
    Installer,
    /// You: one Secret must exist before the install, and you renew its certificates.
    Existing,
    /// A Job in the hosting cluster creates missing keys, and a CronJob renews certificates in time: no private key
    /// leaves the cluster.
    InCluster,
}

/// Who renews certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PkiRenewal {
    /// A CronJob in the hosting cluster, every week.
    CronJob,
    /// The operator: an install or an upgrade renews certificates that are due.
    Manual,
}

/// Address of the API server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExposureValues {
    /// Kind of the API server's Service.
    #[serde(rename = "type")]
    pub kind: ExposureType,
    /// Address in kubeconfigs. The default is the address of the load balancer, or of a node.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9.:-]+$"))]
    pub host: Option<String>,
    /// Port in kubeconfigs. The default is 443, or the node port.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Port on every node, for type NodePort. By default the cluster chooses one.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: Option<i32>,
    /// Additional SANs of the API server's certificate: IP addresses or DNS names.
    #[serde(rename = "extraSANs")]
    #[schemars(extend("items" = serde_json::json!({
        "type": "string",
        "description": "An IP address, or a DNS name, which may begin with `*.`.",
        "pattern": r"^((\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)$"
    })))]
    pub extra_sans: Vec<String>,
    /// `host:port` for agents, if it differs from the address for people.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[A-Za-z0-9.:\[\]-]+:[0-9]{1,5}$"))]
    pub agent_endpoint: Option<String>,
    /// Annotations of the API server's Service, which configure many load balancers.
    pub annotations: BTreeMap<String, String>,
    /// Networks in CIDR form that may use the load balancer; all if empty.
    pub source_ranges: Vec<String>,
    /// Class of the load balancer, if the hosting cluster has several. It cannot be changed after the first install.
    #[serde(default)]
    #[schemars(length(min = 1, max = 317))]
    pub load_balancer_class: Option<String>,
    /// Whether nodes forward connections to other nodes (`Cluster`), or only to their own pods (`Local`), which
    /// preserves the client's address. With `Local`, nodes without a pod of the API server do not answer. By default
    /// the hosting cluster decides.
    #[serde(default)]
    pub external_traffic_policy: Option<TrafficPolicy>,
}

/// Which nodes answer for a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TrafficPolicy {
    /// Every node.
    Cluster,
    /// Nodes with a pod of the Service.
    Local,
}

/// Kind of the API server's Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExposureType {
    /// LoadBalancer if the nodes belong to a cloud, else NodePort.
    Auto,
    /// A load balancer of the hosting cluster.
    LoadBalancer,
    /// A port on every node.
    NodePort,
    /// Inside the hosting cluster only.
    #[serde(rename = "ClusterIP")]
    ClusterIp,
}

/// The store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EtcdValues {
    /// Replicas: 1, or 3 to survive the loss of one.
    #[schemars(extend("enum" = [1, 3], "x-since" = "v0.8"))]
    pub replicas: i32,
    /// Image.
    pub image: ImageValues,
    /// Volumes for the data.
    pub storage: StorageValues,
    /// Size of the data at which etcd refuses writes, in bytes; less than the size of the volume. The default is four
    /// fifths of the volume, at most 8 GiB.
    #[serde(default)]
    #[schemars(range(min = SMALLEST_QUOTA, max = 17_179_869_184_i64))]
    pub quota_bytes: Option<i64>,
    /// Resources of each member.
    pub resources: Resources,
    /// Additional arguments, which override the chart's: `--log-level=debug`.
    pub extra_args: Vec<Argument>,
    /// Additional environment variables.
    pub extra_env: Vec<EnvVar>,
    /// Additional labels of the pods; labels of the chart cannot be set.
    pub pod_labels: BTreeMap<String, String>,
    /// Additional annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Labels that a node must have, in addition to the `nodeSelector` for all components.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate, in addition to the `tolerations` for all components.
    pub tolerations: Vec<Toleration>,
    /// Affinity and anti-affinity of the pods to nodes and other pods.
    pub affinity: Affinity,
    /// How evenly the pods are spread over zones, nodes or other topology domains.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pods, instead of that of all components.
    #[serde(default)]
    pub priority_class_name: Option<String>,
}

/// The least quota of etcd, in bytes.
pub const SMALLEST_QUOTA: i64 = 64 << 20;

/// The most that is taken without being asked for, in bytes: what etcd's authors advise.
const LARGEST_DEFAULT_QUOTA: i64 = 8 << 30;

impl EtcdValues {
    /// The quota that etcd gets: as given, else what leaves a fifth of the volume free.
    pub fn effective_quota(&self) -> i64 {
        self.quota_bytes.unwrap_or_else(|| {
            let of_volume = self.storage.size_in_bytes().map_or(LARGEST_DEFAULT_QUOTA, |size| size / 5 * 4);
            of_volume.clamp(SMALLEST_QUOTA, LARGEST_DEFAULT_QUOTA)
        })
    }
}

impl StorageValues {
    /// The size in bytes; none where it is beyond what can be counted.
    pub fn size_in_bytes(&self) -> Option<i64> {
        i64::try_from(quantity::parse_quantity(&self.size.0)? / 1000).ok()
    }
}

/// A volume per member of the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StorageValues {
    /// Size of each volume. It cannot be changed after the first install.
    pub size: Quantity,
    /// StorageClass of the volumes; by default that of the hosting cluster.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class: Option<String>,
}

/// The API server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApiServerValues {
    /// Replicas.
    #[schemars(range(min = 1, max = 9), extend("x-since" = "v0.8"))]
    pub replicas: i32,
    /// Image.
    pub image: ImageValues,
    /// Whether the API server accepts privileged pods, which run in workload clusters.
    pub allow_privileged: bool,
    /// Whether this API server calls the admission webhooks that are stored in it. If false, webhooks are stored for
    /// workload clusters and not called here. If true, a webhook whose Service runs in a workload cluster cannot be
    /// called; with `failurePolicy: Fail`, every request that it matches is then denied, including requests of the
    /// scheduler and the agents.
    pub allow_admission_webhooks: bool,
    /// The audit log.
    pub audit: AuditValues,
    /// Resources of each replica.
    pub resources: Resources,
    /// Additional arguments, which override the chart's: `--v=4`.
    pub extra_args: Vec<Argument>,
    /// Additional environment variables.
    pub extra_env: Vec<EnvVar>,
    /// Additional labels of the pods; labels of the chart cannot be set.
    pub pod_labels: BTreeMap<String, String>,
    /// Additional annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Labels that a node must have, in addition to the `nodeSelector` for all components.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate, in addition to the `tolerations` for all components.
    pub tolerations: Vec<Toleration>,
    /// Affinity and anti-affinity of the pods to nodes and other pods.
    pub affinity: Affinity,
    /// How evenly the pods are spread over zones, nodes or other topology domains.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pods, instead of that of all components.
    #[serde(default)]
    pub priority_class_name: Option<String>,
}

/// The audit log of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditValues {
    /// Whether each request is written to the log of the API server's pods: user, object and time, never the content.
    /// Probes and Lease renewals are left out.
    pub enabled: bool,
}

/// A component with one leader among its replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ComponentValues {
    /// Replicas; one leads, the others wait.
    #[schemars(range(min = 1, max = 9), extend("x-since" = "v0.8"))]
    pub replicas: i32,
    /// Image.
    pub image: ImageValues,
    /// Resources of each replica.
    pub resources: Resources,
    /// Additional arguments, which override the chart's.
    pub extra_args: Vec<Argument>,
    /// Additional environment variables.
    pub extra_env: Vec<EnvVar>,
    /// Additional labels of the pods; labels of the chart cannot be set.
    pub pod_labels: BTreeMap<String, String>,
    /// Additional annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Labels that a node must have, in addition to the `nodeSelector` for all components.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate, in addition to the `tolerations` for all components.
    pub tolerations: Vec<Toleration>,
    /// Affinity and anti-affinity of the pods to nodes and other pods.
    pub affinity: Affinity,
    /// How evenly the pods are spread over zones, nodes or other topology domains.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pods, instead of that of all components.
    #[serde(default)]
    pub priority_class_name: Option<String>,
}

/// The scheduler of the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SchedulerValues {
    /// Replicas; one leads, the others wait.
    #[schemars(range(min = 1, max = 9), extend("x-since" = "v0.8"))]
    pub replicas: i32,
    /// Image.
    pub image: ImageValues,
    /// Who accepts a new workload cluster.
    pub registration: Registration,
    /// Validity of the bootstrap token for new agents, less than ten years; it is replaced after half of that time.
    #[serde(rename = "initTokenTTL")]
    pub init_token_ttl: Lifetime,
    /// Longest validity of an agent's certificate, from `600s` to less than ten years; the agent renews it in time.
    #[serde(rename = "agentCertificateTTL")]
    pub agent_certificate_ttl: Lifetime,
    /// Resources of each replica.
    pub resources: Resources,
    /// Additional arguments, which override the chart's.
    pub extra_args: Vec<Argument>,
    /// Additional environment variables.
    pub extra_env: Vec<EnvVar>,
    /// Additional labels of the pods; labels of the chart cannot be set.
    pub pod_labels: BTreeMap<String, String>,
    /// Additional annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Labels that a node must have, in addition to the `nodeSelector` for all components.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate, in addition to the `tolerations` for all components.
    pub tolerations: Vec<Toleration>,
    /// Affinity and anti-affinity of the pods to nodes and other pods.
    pub affinity: Affinity,
    /// How evenly the pods are spread over zones, nodes or other topology domains.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pods, instead of that of all components.
    #[serde(default)]
    pub priority_class_name: Option<String>,
}

/// Who accepts a new workload cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Registration {
    /// Every agent with an init token is accepted.
    Auto,
    /// An operator accepts each registration manually.
    Manual,
}

/// A duration with its unit: `600s`, `90m`, `12h` or `30d`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Lifetime(#[schemars(regex(pattern = r"^[1-9][0-9]{0,8}[smhd]$"))] pub String);

/// Access to the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudValues {
    /// The access key: the JSON text of the key file. `--cloud-access-key` reads a file into it.
    #[serde(default)]
    #[schemars(length(min = 2), extend("x-secret" = true))]
    pub access_key: Option<SecretValue>,
    /// The project that the control plane runs in.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub project_id: Option<String>,
}

impl ControlPlaneValues {
    /// The values as templates take them, with derived values in place of missing ones.
    #[must_use]
    pub fn with_derived_values(mut self) -> Self {
        self.etcd.quota_bytes = Some(self.etcd.effective_quota());
        self
    }

    /// The JSON Schema: closed at every level, with descriptions and bounds.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}
