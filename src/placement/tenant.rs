//! Who takes turns: whose an object is.

use super::facts::ObjectKey;

/// Party that takes turns with others. What it asks for delays only itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tenant {
    /// A namespace with what is in it; a Namespace object lies in itself.
    Namespace(String),
    /// Objects without a namespace.
    ClusterScoped,
    /// Groups with members of several namespaces.
    AcrossNamespaces,
    /// Policies.
    Policies,
}

/// Returns who takes a turn with an object.
pub fn tenant_of(key: &ObjectKey) -> Tenant {
    let namespace = namespace_of(key);
    if namespace.is_empty() { Tenant::ClusterScoped } else { Tenant::Namespace(namespace.to_owned()) }
}

/// Returns the namespace of an object; a Namespace lies in itself.
pub fn namespace_of(key: &ObjectKey) -> &str {
    if key.is_of_kind("", "Namespace") { key.name() } else { key.namespace() }
}
