//! The place of an object in the control plane's API: namespace and name, and from there to its key or its cluster.

use kube::{Resource, ResourceExt as _};

use crate::api::crd::group::ObjectRef;
use crate::api::labels::cluster_of_namespace;
use crate::api::placeable::Placeable;
use crate::placement::facts::ObjectKey;

/// Namespace and name; the namespace of an object without one is empty.
pub(super) type Place = (String, String);

/// Returns the namespace and name of an object.
pub(super) fn namespace_and_name<K: Resource>(object: &K) -> Place {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Returns the key of an object of a kind.
pub(super) fn key_of(kind: &Placeable, (namespace, name): &Place) -> ObjectKey {
    ObjectKey::new(kind.group, kind.kind, namespace, name)
}

/// The cluster that a Schedule is for.
pub(super) fn cluster_of(at: &Place) -> &str {
    cluster_of_namespace(&at.0).unwrap_or_default()
}

/// Returns the key of a member as a group's status names it.
pub(super) fn referenced_key(one: &ObjectRef) -> ObjectKey {
    ObjectKey::new(&one.group, &one.kind, one.namespace.as_deref().unwrap_or_default(), &one.name)
}
