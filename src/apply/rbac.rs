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
        let mut need = |verbs| rights.extend(Right::needed_rights(scope, &kind.group, &kind.plural, verbs));
        // An apply that makes an object needs both `patch` and `create`.
        need(&["get", "create", "patch", "delete"]);
        // A removal finds its objects by their labels; its namespace it knows.
        if !is_namespace(kind) {
            need(&["list"]);
        }
        if awaited(kind) {
            // Without it the wait polls.
            rights.extend(Right::optional_rights(scope, &kind.group, &kind.plural, &["watch"]));
        }
    }
    let need = |resource, verbs| Right::needed_rights(Scope::Namespace, "", resource, verbs);
    let explain = |group, resource, verbs| Right::optional_rights(Scope::Namespace, group, resource, verbs);
    rights.extend(
        [
            // Record, journal and lock.
            need("secrets", &["get", "create", "patch", "delete"]),
            // What workloads leave when they are removed.
            need("pods", &["list", "get"]),
            need("persistentvolumeclaims", &["list", "get", "delete"]),
            Right::optional_rights(Scope::Cluster, "", "persistentvolumes", &["get"]),
            // Why something does not become ready.
            explain("", "events", &["list"]),
            explain("", "pods/log", &["get"]),
            // That, and whether the workload above a pod stands.
            explain("apps", "replicasets", &["list"]),
            Right::optional_rights(Scope::Cluster, "storage.k8s.io", "storageclasses", &["list"]),
            // Whether the namespace is empty, before it is deleted.
            explain("*", "*", &["list"]),
        ]
        .concat(),
    );
    rights
}

/// The same for objects of `kinds` in other namespaces than that of the installation; nothing there is waited for.
pub fn rights_elsewhere<'k>(kinds: impl IntoIterator<Item = &'k Kind>) -> Vec<Right> {
    let of = |kind: &Kind| {
        let need = |scope, verbs| Right::needed_rights(scope, &kind.group, &kind.plural, verbs);
        // By their labels they are found in the whole cluster or not at all.
        [need(Scope::Elsewhere, &["get", "create", "patch", "delete"]), need(Scope::Cluster, &["list"])].concat()
    };
    kinds.into_iter().flat_map(of).collect()
}

fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.kind == "Namespace"
}
