//! The rights that the engine's requests need, for a given set of kinds.
//!
//! A test sends the engine's requests past a proxy and compares: a request that is not stated here fails it.

use crate::api::kinds::Kind;
use crate::api::rbac::{Right, Scope};

/// Planning, applying, waiting for, undoing and removing objects of `kinds`, of which `awaited` become ready.
pub fn engine_rights<'k>(kinds: impl IntoIterator<Item = &'k Kind>, awaited: impl Fn(&Kind) -> bool) -> Vec<Right> {
    let mut rights = Vec::new();
    for kind in kinds {
        let scope = if kind.namespaced { Scope::Namespace } else { Scope::Cluster };
        // An apply that makes an object needs both `patch` and `create`.
        rights.extend(need_of_kind(scope, kind, &["get", "create", "patch", "delete"]));
        // A removal finds its objects by their labels; its namespace it knows.
        if !is_namespace(kind) {
            rights.extend(need_of_kind(scope, kind, &["list"]));
        }
        if awaited(kind) {
            // Without it the wait polls.
            rights.extend(Right::optional_rights(scope, &kind.group, &kind.plural, &["watch"]));
        }
    }
    rights.extend(
        [
            // Record, journal and lock.
            need_in_namespace("secrets", &["get", "create", "patch", "delete"]),
            // What workloads leave when they are removed.
            need_in_namespace("pods", &["list", "get"]),
            need_in_namespace("persistentvolumeclaims", &["list", "get", "delete"]),
            Right::optional_rights(Scope::Cluster, "", "persistentvolumes", &["get"]),
            // Why something does not become ready.
            explain_in_namespace("", "events", &["list"]),
            explain_in_namespace("", "pods/log", &["get"]),
            // That, and whether the workload above a pod stands.
            explain_in_namespace("apps", "replicasets", &["list"]),
            Right::optional_rights(Scope::Cluster, "storage.k8s.io", "storageclasses", &["list"]),
            // Whether the namespace is empty, before it is deleted.
            explain_in_namespace("*", "*", &["list"]),
        ]
        .concat(),
    );
    rights
}

fn need_of_kind(scope: Scope, kind: &Kind, verbs: &[&'static str]) -> Vec<Right> {
    Right::needed_rights(scope, &kind.group, &kind.plural, verbs)
}

fn need_in_namespace(resource: &str, verbs: &[&'static str]) -> Vec<Right> {
    Right::needed_rights(Scope::Namespace, "", resource, verbs)
}

fn explain_in_namespace(group: &str, resource: &str, verbs: &[&'static str]) -> Vec<Right> {
    Right::optional_rights(Scope::Namespace, group, resource, verbs)
}

/// The same for objects of `kinds` in other namespaces than that of the installation; nothing there is waited for.
pub fn rights_elsewhere<'k>(kinds: impl IntoIterator<Item = &'k Kind>) -> Vec<Right> {
    let rights = kinds.into_iter().flat_map(|kind| {
        let written = need_of_kind(Scope::Elsewhere, kind, &["get", "create", "patch", "delete"]);
        // By their labels they are found in the whole cluster or not at all.
        [written, need_of_kind(Scope::Cluster, kind, &["list"])].concat()
    });
    rights.collect()
}

fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.kind == "Namespace"
}
