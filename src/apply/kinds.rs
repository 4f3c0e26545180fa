//! The compiled table of kinds: from group and kind to the path of the API, without asking the server.
//!
//! Versions and scopes come from the API reference of Kubernetes 1.24–1.33. A kind whose version depends on the
//! server has one row a version, the newest first.

use std::borrow::Cow;

/// A kind of object and where the API serves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// The API group, empty for the core group.
    pub group: Cow<'static, str>,
    /// The version within the group, such as `v1`.
    pub version: Cow<'static, str>,
    /// The kind as in an object's `kind`, such as `StatefulSet`.
    pub kind: Cow<'static, str>,
    /// The name in a path, such as `statefulsets`.
    pub plural: Cow<'static, str>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

const NAMESPACED: bool = true;
const CLUSTER: bool = false;

/// `(group, version, kind, plural, namespaced)`, grouped as the API reference groups them.
const TABLE: &[(&str, &str, &str, &str, bool)] = &[
    ("", "v1", "Namespace", "namespaces", CLUSTER),
    ("", "v1", "Node", "nodes", CLUSTER),
    ("", "v1", "PersistentVolume", "persistentvolumes", CLUSTER),
    ("", "v1", "ConfigMap", "configmaps", NAMESPACED),
    ("", "v1", "Endpoints", "endpoints", NAMESPACED),
    ("", "v1", "Event", "events", NAMESPACED),
    ("", "v1", "LimitRange", "limitranges", NAMESPACED),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", NAMESPACED),
    ("", "v1", "Pod", "pods", NAMESPACED),
    ("", "v1", "ReplicationController", "replicationcontrollers", NAMESPACED),
    ("", "v1", "ResourceQuota", "resourcequotas", NAMESPACED),
    ("", "v1", "Secret", "secrets", NAMESPACED),
    ("", "v1", "Service", "services", NAMESPACED),
    ("", "v1", "ServiceAccount", "serviceaccounts", NAMESPACED),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", NAMESPACED),
    ("apps", "v1", "DaemonSet", "daemonsets", NAMESPACED),
    ("apps", "v1", "Deployment", "deployments", NAMESPACED),
    ("apps", "v1", "ReplicaSet", "replicasets", NAMESPACED),
    ("apps", "v1", "StatefulSet", "statefulsets", NAMESPACED),
    ("batch", "v1", "CronJob", "cronjobs", NAMESPACED),
    ("batch", "v1", "Job", "jobs", NAMESPACED),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", NAMESPACED),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", NAMESPACED),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", NAMESPACED),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", CLUSTER),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", NAMESPACED),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", NAMESPACED),
    ("coordination.k8s.io", "v1", "Lease", "leases", NAMESPACED),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", CLUSTER),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", CLUSTER),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", NAMESPACED),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", NAMESPACED),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", CLUSTER),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", CLUSTER),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", CLUSTER),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        CLUSTER,
    ),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", CLUSTER),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", CLUSTER),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", CLUSTER),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", CLUSTER),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", CLUSTER),
    ("flowcontrol.apiserver.k8s.io", "v1beta3", "FlowSchema", "flowschemas", CLUSTER),
    ("flowcontrol.apiserver.k8s.io", "v1beta2", "FlowSchema", "flowschemas", CLUSTER),
    ("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", CLUSTER),
    ("flowcontrol.apiserver.k8s.io", "v1beta3", "PriorityLevelConfiguration", "prioritylevelconfigurations", CLUSTER),
    ("flowcontrol.apiserver.k8s.io", "v1beta2", "PriorityLevelConfiguration", "prioritylevelconfigurations", CLUSTER),
    ("cluster.fleet-scheduler.io", "v1alpha1", "Cluster", "clusters", CLUSTER),
    ("policy.fleet-scheduler.io", "v1alpha1", "ScheduleGroup", "schedulegroups", NAMESPACED),
    ("policy.fleet-scheduler.io", "v1alpha1", "SchedulePolicy", "schedulepolicies", CLUSTER),
];

impl Kind {
    const fn row(row: (&'static str, &'static str, &'static str, &'static str, bool)) -> Self {
        Self {
            group: Cow::Borrowed(row.0),
            version: Cow::Borrowed(row.1),
            kind: Cow::Borrowed(row.2),
            plural: Cow::Borrowed(row.3),
            namespaced: row.4,
        }
    }

    /// The row of an object's `apiVersion` (`v1`, `apps/v1`) and `kind`, or nothing for kinds not in the table.
    pub fn find(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = split_api_version(api_version);
        TABLE.iter().find(|r| r.0 == group && r.1 == version && r.2 == kind).copied().map(Self::row)
    }

    /// All rows of a group and kind, the newest version first: one row for kinds with a single version.
    pub fn versions(group: &str, kind: &str) -> Vec<Self> {
        TABLE.iter().filter(|r| r.0 == group && r.2 == kind).copied().map(Self::row).collect()
    }

    /// Every kind of the table, one row a group and kind (the newest version).
    pub fn all() -> Vec<Self> {
        let mut rows: Vec<Self> = Vec::with_capacity(TABLE.len());
        for row in TABLE {
            if !rows.iter().any(|seen| seen.group == row.0 && seen.kind == row.2) {
                rows.push(Self::row(*row));
            }
        }
        rows
    }

    /// Made by a controller for a Service, with its labels; `Endpoints` are not even owned by it.
    pub(crate) fn mirrors_a_service(&self) -> bool {
        matches!(self.kind.as_ref(), "Endpoints" | "EndpointSlice")
    }

    /// A core kind that this room itself reads.
    ///
    /// # Panics
    /// When the table has no such kind, which is a mistake of this room.
    pub(crate) fn known(group: &str, kind: &str) -> Self {
        Self::versions(group, kind).into_iter().next().expect("a kind of the table")
    }

    /// `v1`, or `group/version` outside the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `Kind` in the core group, else `Kind.group`, the way ApplySet annotations write it.
    pub fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_string() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// The path of the collection: of one namespace, or of the whole cluster without one.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace {
            Some(namespace) if self.namespaced => format!("{root}/namespaces/{namespace}/{}", self.plural),
            _ => format!("{root}/{}", self.plural),
        }
    }
}

/// Splits `apps/v1` into `("apps", "v1")` and `v1` into `("", "v1")`.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_group_the_namespace_and_the_plural() {
        let set = Kind::find("apps/v1", "StatefulSet").unwrap();
        assert_eq!(set.collection(Some("fleet")), "/apis/apps/v1/namespaces/fleet/statefulsets");
        assert_eq!(set.collection(None), "/apis/apps/v1/statefulsets");
        let namespace = Kind::find("v1", "Namespace").unwrap();
        assert_eq!(
            namespace.collection(Some("fleet")),
            "/api/v1/namespaces",
            "cluster-scoped kinds ignore a namespace"
        );
        assert_eq!(set.group_kind(), "StatefulSet.apps");
        assert_eq!(namespace.group_kind(), "Namespace");
    }

    #[test]
    fn a_kind_with_several_versions_lists_the_newest_first() {
        let versions: Vec<String> = Kind::versions("flowcontrol.apiserver.k8s.io", "FlowSchema")
            .into_iter()
            .map(|kind| kind.version.to_string())
            .collect();
        assert_eq!(versions, ["v1", "v1beta3", "v1beta2"]);
        assert!(Kind::find("apps/v1beta1", "Deployment").is_none());
    }

    #[test]
    fn no_row_stands_twice_and_every_plural_is_lower_case() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.3, row.3.to_lowercase());
            let twin = TABLE.iter().skip(index + 1).any(|other| (other.0, other.1, other.2) == (row.0, row.1, row.2));
            assert!(!twin, "{row:?} stands twice");
        }
    }
}
