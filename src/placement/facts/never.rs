//! Objects that are never placed, whatever asks for it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::relations::is_controller;
use super::{ObjectKey, text_at_pointer};
use crate::api::labels::{
    BOOTSTRAP_STATUS, CLUSTER_NAMESPACE_PREFIX, INIT_SECRET, INIT_SECRET_KEY, LABEL_INSTALL_KIND, LABEL_PART_OF,
    is_own_group,
};

/// Reason that an object is never placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Never {
    /// A namespace of Kubernetes or of the service, or something in it.
    SystemNamespace,
    /// The Namespace `default`.
    DefaultNamespace,
    /// Made by a controller, which makes it in the workload cluster too.
    Owned,
    /// An object of the service's own API.
    OwnApi,
    /// Every cluster makes its own.
    EveryCluster,
    /// A Secret that is worth something only in the cluster that made it.
    Secret,
    /// The Secret with the token by which workload clusters join, or a copy of it under another name.
    JoinToken,
    /// A part of an installation of the service, or what it says of itself.
    Installation,
    /// Its labels, the objects that its pods name, or the demands of its pods are too large to be kept.
    Oversized,
}

impl Never {
    /// Returns why, as the end of a sentence: `it is never placed, because …`.
    pub fn format_never_reason(self) -> &'static str {
        match self {
            Self::SystemNamespace => "its namespace belongs to Kubernetes or to the service",
            Self::DefaultNamespace => "every cluster has the Namespace default",
            Self::Owned => "a controller created it, and recreates it wherever its owner is placed",
            Self::OwnApi => "it belongs to the service's own API",
            Self::EveryCluster => "every cluster creates its own",
            Self::Secret => "a Secret of this type is usable only in the cluster that created it",
            Self::JoinToken => "it contains the token that clusters use to join the control plane",
            Self::Installation => "it is part of an installation of the service",
            Self::Oversized => {
                "its labels, the names of what its pods use and the requests of its pods need more than 64 KiB"
            }
        }
    }

    /// Returns whether copies of such an object are withdrawn: earlier versions made them, and they give away what the
    /// service keeps for itself. Whatever else is never placed had no copies, or has got the reason since, and what
    /// runs stays.
    pub fn is_taken_back(self) -> bool {
        matches!(self, Self::SystemNamespace | Self::JoinToken | Self::Installation)
    }
}

fn is_system(namespace: &str) -> bool {
    namespace.starts_with("kube-")
        || namespace == "fleet"
        || namespace == "fleet-system"
        || namespace.starts_with(CLUSTER_NAMESPACE_PREFIX)
}

pub(super) fn check_never_placed(key: &ObjectKey, manifest: &Value) -> Option<Never> {
    let is_namespace = key.is_of_kind("", "Namespace");
    let owners = manifest.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let secret_types = ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1"];
    if is_system(key.namespace()) || is_namespace && is_system(key.name()) {
        return Some(Never::SystemNamespace);
    }
    let labels = &manifest["metadata"]["labels"];
    if labels[LABEL_INSTALL_KIND].is_string() {
        return Some(if is_namespace { Never::SystemNamespace } else { Never::Installation });
    }
    if key.is_of_kind("", "Secret") {
        // Its labels go along with every copy that somebody makes of it.
        let holds_kubeconfig = ["/data", "/stringData"]
            .into_iter()
            .any(|data| manifest.pointer(data).and_then(|data| data.get(INIT_SECRET_KEY)).is_some());
        if key.name() == INIT_SECRET || labels[LABEL_PART_OF] == "fleet" && holds_kubeconfig {
            return Some(Never::JoinToken);
        }
    }
    if key.is_of_kind("", "ConfigMap") && key.name() == BOOTSTRAP_STATUS {
        return Some(Never::Installation);
    }
    if is_namespace && key.name() == "default" {
        return Some(Never::DefaultNamespace);
    }
    // No controller of CronJobs runs in the control plane: a Job that belongs to one was created by hand, as by
    // `kubectl create job --from=cronjob/NAME`.
    let is_job = key.is_of_kind("batch", "Job");
    if owners.into_iter().flatten().any(|owner| is_controller(owner) && !(is_job && owner["kind"] == "CronJob")) {
        return Some(Never::Owned);
    }
    if is_own_group(key.group()) || key.group() == "apiextensions.k8s.io" && is_own_group(key.name()) {
        return Some(Never::OwnApi);
    }
    if key.group() == "rbac.authorization.k8s.io"
        && (key.name().starts_with("system:")
            || key.name().starts_with("fleet:")
            || text_at_pointer(manifest, "/metadata/labels/kubernetes.io~1bootstrapping").is_some())
    {
        return Some(Never::EveryCluster);
    }
    match (key.group(), key.kind(), key.namespace(), key.name()) {
        ("", "ConfigMap", _, "kube-root-ca.crt")
        | ("", "ServiceAccount", _, "default")
        | ("", "Service", "default", "kubernetes") => Some(Never::EveryCluster),
        ("scheduling.k8s.io", "PriorityClass", _, name) if name.starts_with("system-") => Some(Never::EveryCluster),
        ("", "Secret", ..) if text_at_pointer(manifest, "/type").is_some_and(|kind| secret_types.contains(&kind)) => {
            Some(Never::Secret)
        }
        _ => None,
    }
}
