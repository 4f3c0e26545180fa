//! The kinds that follow, in an order in which each belongs only to kinds that stand before it.

use crate::placement::facts::ObjectKey;

/// A kind that follows: its place in the order, and what it belongs to if nothing else claims it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FollowerKind {
    /// Position in the order of planning.
    pub(super) rank: usize,
    /// Whether it belongs to everything that is decided in its namespace if it belongs to nothing else.
    pub(super) is_for_namespace: bool,
    /// Whether it is written where it is needed although no policy matches it.
    pub(super) is_carried: bool,
}

const RBAC: &str = "rbac.authorization.k8s.io";
const NETWORKING: &str = "networking.k8s.io";

/// Group and kind, whether it falls back to its namespace, whether it is carried.
const ORDER: [(&str, &str, bool, bool); 20] = [
    ("", "ServiceAccount", false, true),
    ("", "ConfigMap", false, true),
    ("", "PersistentVolumeClaim", false, true),
    ("", "Service", false, false),
    ("policy", "PodDisruptionBudget", false, false),
    (NETWORKING, "NetworkPolicy", true, true),
    ("autoscaling", "HorizontalPodAutoscaler", false, false),
    ("", "LimitRange", true, false),
    ("", "ResourceQuota", true, false),
    ("scheduling.k8s.io", "PriorityClass", false, false),
    ("node.k8s.io", "RuntimeClass", false, false),
    (NETWORKING, "Ingress", false, false),
    (RBAC, "RoleBinding", true, false),
    (RBAC, "ClusterRoleBinding", false, false),
    ("storage.k8s.io", "StorageClass", false, false),
    ("", "Secret", false, true),
    (RBAC, "Role", true, false),
    (RBAC, "ClusterRole", false, false),
    (NETWORKING, "IngressClass", false, false),
    ("", "Namespace", false, false),
];

impl FollowerKind {
    /// Finds the kind of an object; `None` for kinds that are decided: those that run pods, and added kinds, for they may.
    pub(super) fn find(key: &ObjectKey) -> Option<Self> {
        let (group, kind) = (key.group(), key.kind());
        let rank = ORDER.iter().position(|one| (one.0, one.1) == (group, kind))?;
        let (_, _, is_for_namespace, is_carried) = ORDER[rank];
        Some(Self { rank, is_for_namespace, is_carried })
    }
}

/// Returns whether an object goes where what it belongs to is, and is not decided about by itself.
pub fn is_follower(key: &ObjectKey) -> bool {
    FollowerKind::find(key).is_some()
}

/// Returns whether it is a claim, which has one home.
pub(super) fn is_claim(key: &ObjectKey) -> bool {
    key.is_of_kind("", "PersistentVolumeClaim")
}

/// Returns whether it is the ServiceAccount that every cluster has by itself, of which only the pull secrets go along.
pub(super) fn is_default_account(key: &ObjectKey) -> bool {
    key.is_of_kind("", "ServiceAccount") && key.name() == "default"
}
