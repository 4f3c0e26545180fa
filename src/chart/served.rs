//! Which kinds the Kubernetes API serves in which minor version: what a chart may hold, and how its objects are addressed.
//!
//! Compiled in, so that a chart is checked when it is built and no server has to be asked. From the API reference and
//! the deprecation guide of Kubernetes. It is also read by the build script, so it imports nothing.

/// A kind of one API version, and the minors that serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// `apps/v1`.
    pub api_version: &'static str,
    /// `Deployment`.
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

const fn always(api_version: &'static str, kind: &'static str, plural: &'static str, namespaced: bool) -> Served {
    Served { api_version, kind, plural, namespaced, from: 0, until: None }
}

const fn between(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    from: u32,
    until: Option<u32>,
) -> Served {
    Served { api_version, kind, plural, namespaced, from, until }
}

/// The table. What is not in it is not known, and so not allowed in a chart.
pub const TABLE: &[Served] = &[
    always("v1", "ConfigMap", "configmaps", true),
    always("v1", "Endpoints", "endpoints", true),
    always("v1", "LimitRange", "limitranges", true),
    always("v1", "Namespace", "namespaces", false),
    always("v1", "PersistentVolume", "persistentvolumes", false),
    always("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    always("v1", "Pod", "pods", true),
    always("v1", "ResourceQuota", "resourcequotas", true),
    always("v1", "Secret", "secrets", true),
    always("v1", "Service", "services", true),
    always("v1", "ServiceAccount", "serviceaccounts", true),
    always("apps/v1", "DaemonSet", "daemonsets", true),
    always("apps/v1", "Deployment", "deployments", true),
    always("apps/v1", "ReplicaSet", "replicasets", true),
    always("apps/v1", "StatefulSet", "statefulsets", true),
    always("batch/v1", "CronJob", "cronjobs", true),
    between("batch/v1beta1", "CronJob", "cronjobs", true, 0, Some(25)),
    always("batch/v1", "Job", "jobs", true),
    between("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, 23, None),
    always("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    between("autoscaling/v2beta1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, 0, Some(25)),
    between("autoscaling/v2beta2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, 0, Some(26)),
    always("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    between("policy/v1beta1", "PodDisruptionBudget", "poddisruptionbudgets", true, 0, Some(25)),
    between("policy/v1beta1", "PodSecurityPolicy", "podsecuritypolicies", false, 0, Some(25)),
    always("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    always("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false),
    always("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    always("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    always("networking.k8s.io/v1", "Ingress", "ingresses", true),
    always("networking.k8s.io/v1", "IngressClass", "ingressclasses", false),
    always("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    always("storage.k8s.io/v1", "StorageClass", "storageclasses", false),
    always("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false),
    always("coordination.k8s.io/v1", "Lease", "leases", true),
    always("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true),
    between("discovery.k8s.io/v1beta1", "EndpointSlice", "endpointslices", true, 0, Some(25)),
    always("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    always("apiregistration.k8s.io/v1", "APIService", "apiservices", false),
    always("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    always(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        false,
    ),
    between(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        false,
        30,
        None,
    ),
    between(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        false,
        30,
        None,
    ),
    always("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", false),
    between("flowcontrol.apiserver.k8s.io/v1beta1", "FlowSchema", "flowschemas", false, 20, Some(26)),
    between("flowcontrol.apiserver.k8s.io/v1beta2", "FlowSchema", "flowschemas", false, 23, Some(29)),
    between("flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema", "flowschemas", false, 26, Some(32)),
    between("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "flowschemas", false, 29, None),
    between(
        "flowcontrol.apiserver.k8s.io/v1beta1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
        20,
        Some(26),
    ),
    between(
        "flowcontrol.apiserver.k8s.io/v1beta2",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
        23,
        Some(29),
    ),
    between(
        "flowcontrol.apiserver.k8s.io/v1beta3",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
        26,
        Some(32),
    ),
    between(
        "flowcontrol.apiserver.k8s.io/v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
        29,
        None,
    ),
];

/// A kind by its API version; nothing for one that the table does not know.
pub fn find(api_version: &str, kind: &str) -> Option<&'static Served> {
    TABLE.iter().find(|served| served.api_version == api_version && served.kind == kind)
}

/// Checks that Kubernetes 1.`minor` serves a kind.
///
/// # Errors
/// Why not, as a sentence without a full stop; with the versions that would do.
pub fn check(api_version: &str, kind: &str, minor: u32) -> Result<(), String> {
    let Some(served) = find(api_version, kind) else {
        return Err(format!("{kind} of {api_version} is not in the table of known kinds (src/chart/served.rs)"));
    };
    if minor >= served.from && served.until.is_none_or(|until| minor < until) {
        return Ok(());
    }
    let others: Vec<&str> = TABLE
        .iter()
        .filter(|other| other.kind == kind && minor >= other.from && other.until.is_none_or(|until| minor < until))
        .map(|other| other.api_version)
        .collect();
    let others =
        if others.is_empty() { "nothing else does".to_owned() } else { format!("it has {}", others.join(", ")) };
    Err(format!("Kubernetes 1.{minor} does not serve {kind} of {api_version}; {others}"))
}
