//! The compiled table of kinds: from API version and kind to the path of the API, and to the minors of Kubernetes that
//! serve them, without asking a server.
//!
//! From the API reference and the deprecation guide of Kubernetes. The build script reads this file too, to check the
//! charts, so it imports nothing of the crate.

use std::borrow::Cow;

/// The oldest minor of Kubernetes 1 that a service version runs on.
const OLDEST: u32 = 24;

/// A kind of one API version, and the minors that serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// API version, such as `apps/v1`.
    pub api_version: &'static str,
    /// Kind, such as `Deployment`.
    pub kind: &'static str,
    /// The name in paths: `deployments`.
    pub plural: &'static str,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
    /// The first minor of Kubernetes 1 that serves it by default; 0 for before the table begins.
    pub from: u32,
    /// The first minor that no longer does, if there is one.
    pub until: Option<u32>,
}

impl Served {
    /// Returns the first minor that serves the kind in any version, if this version is the newest and later minors serve it.
    fn first_minor_of_newest(&self) -> Option<u32> {
        let needed = needed_rows(split_api_version(self.api_version).0, self.kind);
        let is_newest = *needed[0] == *self && self.until.is_none();
        needed.last().filter(|_| is_newest).map(|oldest| oldest.from)
    }
}

const fn always_served(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Served {
    Served { api_version, kind, plural, namespaced, from: 0, until: None }
}

const fn served_between(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    from: u32,
    until: Option<u32>,
) -> Served {
    Served { api_version, kind, plural, namespaced, from, until }
}

/// The table, the versions of a kind with the newest first. A kind that is not in it is not allowed in a chart.
pub const TABLE: &[Served] = &[
    always_served("v1", "ConfigMap", "configmaps", true),
    always_served("v1", "Endpoints", "endpoints", true),
    always_served("v1", "Event", "events", true),
    always_served("v1", "LimitRange", "limitranges", true),
    always_served("v1", "Namespace", "namespaces", false),
    always_served("v1", "Node", "nodes", false),
    always_served("v1", "PersistentVolume", "persistentvolumes", false),
    always_served("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    always_served("v1", "Pod", "pods", true),
    always_served("v1", "ReplicationController", "replicationcontrollers", true),
    always_served("v1", "ResourceQuota", "resourcequotas", true),
    always_served("v1", "Secret", "secrets", true),
    always_served("v1", "Service", "services", true),
    always_served("v1", "ServiceAccount", "serviceaccounts", true),
    always_served("apps/v1", "ControllerRevision", "controllerrevisions", true),
    always_served("apps/v1", "DaemonSet", "daemonsets", true),
    always_served("apps/v1", "Deployment", "deployments", true),
    always_served("apps/v1", "ReplicaSet", "replicasets", true),
    always_served("apps/v1", "StatefulSet", "statefulsets", true),
    always_served("batch/v1", "CronJob", "cronjobs", true),
    served_between("batch/v1beta1", "CronJob", "cronjobs", true, 0, Some(25)),
    always_served("batch/v1", "Job", "jobs", true),
    served_between("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, 23, None),
    always_served("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    served_between("autoscaling/v2beta2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, 0, Some(26)),
    served_between("autoscaling/v2beta1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, 0, Some(25)),
    always_served("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    served_between("policy/v1beta1", "PodDisruptionBudget", "poddisruptionbudgets", true, 0, Some(25)),
    served_between("policy/v1beta1", "PodSecurityPolicy", "podsecuritypolicies", false, 0, Some(25)),
    always_served("networking.k8s.io/v1", "Ingress", "ingresses", true),
    always_served("networking.k8s.io/v1", "IngressClass", "ingressclasses", false),
    always_served("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    always_served("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true),
    served_between("discovery.k8s.io/v1beta1", "EndpointSlice", "endpointslices", true, 0, Some(25)),
    always_served("coordination.k8s.io/v1", "Lease", "leases", true),
    always_served("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    always_served("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false),
    always_served("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    always_served("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    always_served("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    always_served("apiregistration.k8s.io/v1", "APIService", "apiservices", false),
    always_served(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        false,
    ),
    served_between(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        false,
        30,
        None,
    ),
    served_between(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        false,
        30,
        None,
    ),
    always_served(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        false,
    ),
    always_served("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", false),
    always_served("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false),
    always_served("storage.k8s.io/v1", "CSIDriver", "csidrivers", false),
    always_served("storage.k8s.io/v1", "StorageClass", "storageclasses", false),
    served_between("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "flowschemas", false, 29, None),
    served_between("flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema", "flowschemas", false, 26, Some(32)),
    served_between("flowcontrol.apiserver.k8s.io/v1beta2", "FlowSchema", "flowschemas", false, 23, Some(29)),
    served_between("flowcontrol.apiserver.k8s.io/v1beta1", "FlowSchema", "flowschemas", false, 20, Some(26)),
    served_between(
        "flowcontrol.apiserver.k8s.io/v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
        29,
        None,
    ),
    served_between(
        "flowcontrol.apiserver.k8s.io/v1beta3",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
        26,
        Some(32),
    ),
    served_between(
        "flowcontrol.apiserver.k8s.io/v1beta2",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
        23,
        Some(29),
    ),
    served_between(
        "flowcontrol.apiserver.k8s.io/v1beta1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
        20,
        Some(26),
    ),
    always_served("cluster.fleet-scheduler.io/v1alpha1", "Cluster", "clusters", false),
    always_served("policy.fleet-scheduler.io/v1alpha1", "ScheduleGroup", "schedulegroups", true),
    always_served("policy.fleet-scheduler.io/v1alpha1", "SchedulePolicy", "schedulepolicies", false),
];

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

/// Returns the row of a kind in an API version; `None` where the table has none.
pub fn find_served(api_version: &str, kind: &str) -> Option<&'static Served> {
    TABLE.iter().find(|served| served.api_version == api_version && served.kind == kind)
}

/// Checks that Kubernetes 1.`minor` serves a kind.
///
/// # Errors
/// The reason that it does not, as a sentence without a full stop, with the versions that would do.
pub fn check_served(api_version: &str, kind: &str, minor: u32) -> Result<(), String> {
    let Some(served) = find_served(api_version, kind) else {
        return Err(format!("{kind} of {api_version} is not in the table of known kinds (src/api/kinds.rs)"));
    };
    if minor >= served.from && served.until.is_none_or(|until| minor < until) {
        return Ok(());
    }
    let others: Vec<&str> = TABLE
        .iter()
        .filter(|other| other.kind == kind && minor >= other.from && other.until.is_none_or(|until| minor < until))
        .map(|other| other.api_version)
        .collect();
    let others = if others.is_empty() {
        "it serves no other version".to_owned()
    } else {
        format!("it serves {}", others.join(", "))
    };
    Err(format!("Kubernetes 1.{minor} does not serve {kind} of {api_version}; {others}"))
}

impl Kind {
    fn from_served(row: &Served) -> Self {
        let (group, version) = split_api_version(row.api_version);
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(row.kind),
            plural: Cow::Borrowed(row.plural),
            namespaced: row.namespaced,
        }
    }

    /// Returns the kind of an object's `apiVersion` (`v1`, `apps/v1`) and `kind`, where objects are addressed by that
    /// version; `None` for one that an older or newer version replaces on every supported server, and for kinds not in
    /// the table.
    pub fn find_known_kind(api_version: &str, kind: &str) -> Option<Self> {
        let group = split_api_version(api_version).0;
        needed_rows(group, kind).into_iter().find(|row| row.api_version == api_version).map(Self::from_served)
    }

    /// The versions of a group and kind that are needed to reach every supported server, the newest first: one where all
    /// minors serve it.
    pub fn needed_versions(group: &str, kind: &str) -> Vec<Self> {
        needed_rows(group, kind).into_iter().map(Self::from_served).collect()
    }

    /// Every kind that all supported minors serve, in the newest version.
    pub fn all_kinds() -> Vec<Self> {
        TABLE
            .iter()
            .filter(|row| row.first_minor_of_newest().is_some_and(|from| from <= OLDEST))
            .map(Self::from_served)
            .collect()
    }

    /// Every kind that only newer minors serve, in the newest version.
    pub fn newer_kinds() -> Vec<Self> {
        TABLE
            .iter()
            .filter(|row| row.first_minor_of_newest().is_some_and(|from| from > OLDEST))
            .map(Self::from_served)
            .collect()
    }

    /// Returns whether a controller makes objects of the kind for a Service, with its labels; `Endpoints` are not even
    /// owned by it.
    pub(crate) fn mirrors_a_service(&self) -> bool {
        matches!(self.kind.as_ref(), "Endpoints" | "EndpointSlice")
    }

    /// A kind that this crate itself names.
    ///
    /// # Panics
    /// When the table has no such kind, which is a mistake of the caller.
    pub(crate) fn from_table(group: &str, kind: &str) -> Self {
        Self::needed_versions(group, kind).into_iter().next().expect("a kind of the table")
    }

    /// `v1`, or `group/version` outside the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `Kind` in the core group, else `Kind.group`, the way ApplySet annotations write it.
    pub fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_string() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// The path of the collection: of one namespace, or of the whole cluster without one.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
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

/// Joins what [`split_api_version`] splits: `apps` and `v1` give `apps/v1`, the core group gives the version alone.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The rows of a group and kind, the newest first, up to the one that the oldest supported minor serves.
fn needed_rows(group: &str, kind: &str) -> Vec<&'static Served> {
    let mut needed = Vec::new();
    for row in TABLE.iter().filter(|row| row.kind == kind && split_api_version(row.api_version).0 == group) {
        needed.push(row);
        if row.from <= OLDEST {
            break;
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_group_the_namespace_and_the_plural() {
        let set = Kind::find_known_kind("apps/v1", "StatefulSet").unwrap();
        assert_eq!(set.collection_path(Some("fleet")), "/apis/apps/v1/namespaces/fleet/statefulsets");
        assert_eq!(set.collection_path(None), "/apis/apps/v1/statefulsets");
        let namespace = Kind::find_known_kind("v1", "Namespace").unwrap();
        assert_eq!(
            namespace.collection_path(Some("fleet")),
            "/api/v1/namespaces",
            "cluster-scoped kinds ignore a namespace"
        );
        assert_eq!(set.group_kind(), "StatefulSet.apps");
        assert_eq!(namespace.group_kind(), "Namespace");
    }

    #[test]
    fn a_kind_with_several_versions_lists_the_newest_first() {
        let versions: Vec<String> = Kind::needed_versions("flowcontrol.apiserver.k8s.io", "FlowSchema")
            .into_iter()
            .map(|kind| kind.version.to_string())
            .collect();
        assert_eq!(versions, ["v1", "v1beta3", "v1beta2"]);
        assert!(Kind::find_known_kind("apps/v1beta1", "Deployment").is_none());
        // Known of charts, and never the version that an object is addressed by.
        for (api_version, kind) in [
            ("policy/v1beta1", "PodDisruptionBudget"),
            ("autoscaling/v1", "HorizontalPodAutoscaler"),
            ("flowcontrol.apiserver.k8s.io/v1beta1", "FlowSchema"),
        ] {
            assert!(Kind::find_known_kind(api_version, kind).is_none(), "{api_version}");
        }
        assert!(Kind::find_known_kind("flowcontrol.apiserver.k8s.io/v1beta2", "FlowSchema").is_some());
    }

    #[test]
    fn a_kind_that_only_newer_minors_serve_is_not_among_those_of_all() {
        let all: Vec<String> = Kind::all_kinds().iter().map(Kind::group_kind).collect();
        for kind in ["ValidatingAdmissionPolicy.admissionregistration.k8s.io", "PodSecurityPolicy.policy"] {
            assert!(!all.contains(&kind.to_owned()), "{kind}");
        }
        let newer: Vec<String> = Kind::newer_kinds().iter().map(Kind::group_kind).collect();
        let policies = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
        assert_eq!(newer, policies.map(|kind| format!("{kind}.admissionregistration.k8s.io")));
        for kind in ["FlowSchema.flowcontrol.apiserver.k8s.io", "HorizontalPodAutoscaler.autoscaling", "Secret"] {
            assert_eq!(all.iter().filter(|name| *name == kind).count(), 1, "{kind}");
        }
        let autoscaler = Kind::needed_versions("autoscaling", "HorizontalPodAutoscaler");
        assert_eq!(autoscaler.iter().map(Kind::api_version).collect::<Vec<_>>(), ["autoscaling/v2"]);
    }

    #[test]
    fn removed_and_unknown_kinds_are_refused_with_what_would_do() {
        assert_eq!(check_served("apps/v1", "Deployment", 31), Ok(()));
        assert_eq!(check_served("policy/v1beta1", "PodDisruptionBudget", 24), Ok(()));
        assert_eq!(
            check_served("policy/v1beta1", "PodDisruptionBudget", 25).unwrap_err(),
            "Kubernetes 1.25 does not serve PodDisruptionBudget of policy/v1beta1; it serves policy/v1"
        );
        assert_eq!(
            check_served("flowcontrol.apiserver.k8s.io/v1beta2", "FlowSchema", 29).unwrap_err(),
            "Kubernetes 1.29 does not serve FlowSchema of flowcontrol.apiserver.k8s.io/v1beta2; \
             it serves flowcontrol.apiserver.k8s.io/v1, flowcontrol.apiserver.k8s.io/v1beta3"
        );
        assert!(check_served("extensions/v1beta1", "Ingress", 24).unwrap_err().contains("not in the table"));
    }

    #[test]
    fn the_table_names_each_kind_of_a_version_once() {
        let mut seen = std::collections::BTreeSet::new();
        for row in TABLE {
            assert!(seen.insert((row.api_version, row.kind)), "{row:?}");
            assert!(row.until.is_none_or(|until| row.from < until), "{row:?}");
            assert_eq!(row.plural, row.plural.to_lowercase());
        }
    }
}
