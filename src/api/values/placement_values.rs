//! What the charts of control plane and agent ask about the kinds that can be placed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::namespace_pattern::NamespacePattern;

/// Pattern of an API group; empty for the core group.
const GROUP: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";
/// Pattern of a version of an API group.
const VERSION: &str = "^v[a-z0-9]{0,62}$";
/// Pattern of a kind.
const KIND: &str = "^[A-Z][A-Za-z0-9]{0,62}$";
/// Pattern of the name of a kind in paths.
const RESOURCE: &str = "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$";

/// Kinds that can be placed besides the built-in ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlacementValues {
    /// Additional kinds that the control plane watches and places, such as those of CustomResourceDefinitions. Add them
    /// to the values of the agents too.
    #[schemars(length(max = 50))]
    pub extra_kinds: Vec<KindValues>,
    /// Whether Roles, ClusterRoles and their bindings are placed. Set it in the values of the agents too.
    #[serde(rename = "allowRBACKinds")]
    pub allow_rbac_kinds: bool,
}

/// A kind that can be placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindValues {
    /// Its API group, such as `example.com`; empty for the core group.
    #[schemars(length(max = 253), regex(pattern = GROUP))]
    pub group: String,
    /// Version that is watched and applied, such as `v1`.
    #[schemars(regex(pattern = VERSION))]
    pub version: String,
    /// Kind, such as `Widget`.
    #[schemars(regex(pattern = KIND))]
    pub kind: String,
}

/// Objects that an agent may place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentPlacementValues {
    /// Additional kinds that the agent may place; its ClusterRole gets rights on them.
    #[schemars(length(max = 50))]
    pub extra_kinds: Vec<AgentKindValues>,
    /// Whether the agent may place Roles, ClusterRoles and their bindings. The agent then has the verbs `bind` and
    /// `escalate`: whoever may place objects from the control plane can grant any right in this cluster.
    #[serde(rename = "allowRBACKinds")]
    pub allow_rbac_kinds: bool,
    /// Additional namespaces of this cluster into which nothing is placed, besides those of Kubernetes and of the
    /// service: names, or prefixes of names followed by `*`, such as `cattle-*`. Existing copies in these namespaces
    /// are deleted.
    #[schemars(length(max = 50), inner(regex(pattern = NamespacePattern::SCHEMA)))]
    pub protected_namespaces: Vec<String>,
    /// Whether copies are placed into namespaces of this cluster that no control plane created.
    pub existing_namespaces: ExistingNamespaces,
}

/// Whether copies are placed into namespaces that already existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExistingNamespaces {
    /// Copies are placed, and the Schedule of the namespace reports it.
    Allow,
    /// Copies are placed only if the Namespace in the control plane has the annotation `fleet-scheduler.io/adopt:
    /// "true"`.
    Deny,
}

/// A kind that an agent may place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentKindValues {
    /// Its API group, such as `example.com`; empty for the core group.
    #[schemars(length(max = 253), regex(pattern = GROUP))]
    pub group: String,
    /// Version that is applied, such as `v1`.
    #[schemars(regex(pattern = VERSION))]
    pub version: String,
    /// Kind, such as `Widget`.
    #[schemars(regex(pattern = KIND))]
    pub kind: String,
    /// Its name in rights and paths, such as `widgets`; the first column of `kubectl api-resources`.
    #[schemars(regex(pattern = RESOURCE))]
    pub resource: String,
}
