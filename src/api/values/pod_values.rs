//! Values that every chart has: images, what pods ask for and tolerate. Shaped as in Kubernetes' own pods.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When nodes pull an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// Only if the node does not have the image yet.
    IfNotPresent,
    /// Before every start.
    Always,
    /// Never: the node must already have the image.
    Never,
}

/// A Secret by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretName {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Text that fleetctl never prints.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SecretValue(pub String);

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[hidden]")
    }
}

/// A taint that is tolerated, as in a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Toleration {
    /// The taint's key; by default all taints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `Equal` (value must agree) or `Exists`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// The taint's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The taint's effect; by default all effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// For `NoExecute`: seconds until a pod is evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub toleration_seconds: Option<i64>,
}

/// Operator that compares a toleration with a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    /// Key and value agree.
    Equal,
    /// The key agrees.
    Exists,
}

/// Effect of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// The node gets no new pods.
    NoSchedule,
    /// The node gets no new pods if another node has room.
    PreferNoSchedule,
    /// The node gets no new pods, and existing pods are evicted.
    NoExecute,
}

/// A variable of a container's environment, as in a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvVar {
    /// Its name.
    #[schemars(regex(pattern = r"^[-._A-Za-z][-._A-Za-z0-9]*$"))]
    pub name: String,
    /// Its value. Kubernetes replaces `$(NAME)` in it by the value of another variable. Store secrets in a Secret:
    /// `valueFrom.secretKeyRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Source of its value, instead of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

/// Source of the value of a variable: exactly one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvSource {
    /// A key of a ConfigMap of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    /// A key of a Secret of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// A field of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
    /// A resource of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldRef>,
}

/// A key of a ConfigMap or Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRef {
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Whether the pod starts without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A field of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FieldRef {
    /// Such as `status.hostIP` or `metadata.labels['zone']`.
    #[schemars(length(min = 1))]
    pub field_path: String,
}

/// A resource of the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceFieldRef {
    /// Such as `limits.memory`.
    #[schemars(length(min = 1))]
    pub resource: String,
    /// Unit of the value, such as `1Mi`; the default is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Quantity>,
}

/// The ServiceAccount of the pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceAccountValues {
    /// Its annotations; clouds use them to give workloads an identity.
    pub annotations: BTreeMap<String, String>,
}

/// An HTTP proxy, and the destinations that are reached without the proxy.
///
/// The chart sets the variables `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` from these values. `NO_PROXY` always
/// contains the names of Services and the API server of the pod's own cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyValues {
    /// Proxy for http, such as `http://proxy.example.com:3128`.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub http: Option<String>,
    /// Proxy for https. All connections of the service use https.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub https: Option<String>,
    /// Destinations that are reached without the proxy: hosts, domains as `.example.com`, addresses, and ranges in CIDR
    /// form.
    pub no_proxy: Vec<NoProxy>,
    /// Address ranges of pods, Services and nodes; connections to them do not use the proxy either.
    pub cluster_ranges: Vec<NoProxy>,
}

/// A destination that is reached without the proxy: a host, a domain as `.example.com`, an address or a range in CIDR
/// form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct NoProxy(
    #[schemars(regex(
        pattern = r"^(\.?[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?|[0-9A-Fa-f:]+|[0-9A-Fa-f.:]+/[0-9]{1,3})$"
    ))]
    pub String,
);

/// A registry, optionally with a port and a path prefix of its images.
pub const REGISTRY: &str = r"^(([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)?$";

/// An image by repository and tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageValues {
    /// Registry and name, without a tag.
    #[schemars(
        length(min = 1),
        regex(
            pattern = r"^((([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)?$"
        )
    )]
    pub repository: String,
    /// Tag, digest (`sha256:…`), or a tag followed by a digest (`v1.1.0@sha256:…`).
    #[schemars(
        length(min = 1),
        regex(pattern = r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(@sha256:[0-9a-f]{64})?|sha256:[0-9a-f]{64})?$")
    )]
    pub tag: String,
}

/// Requests and limits of a container, as in a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Requests: the reserved `cpu`, `memory` and other resources, as Kubernetes quantities.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// Limits: the most that a container may use, as Kubernetes quantities.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

/// A Kubernetes quantity, such as `250m`, `1.5` or `10Gi`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Quantity(#[schemars(regex(pattern = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"))] pub String);

/// One argument of a program: `--name=value`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Argument(#[schemars(regex(pattern = r"^--?[a-zA-Z]"))] pub String);

/// For tests: holds a generated file of `values/` against its text, and writes it under `INSTA_UPDATE=always`.
#[cfg(test)]
pub(crate) fn assert_file_current(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("values").join(name);
    if std::env::var("INSTA_UPDATE").as_deref() == Ok("always") {
        fs_err::write(&path, text).unwrap();
    }
    let found = fs_err::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "values/{name} is not current: INSTA_UPDATE=always cargo test --lib schema_beside");
}
