//! The name of an object in a cluster, and small readers of objects as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::kinds::{Kind, split_api_version};
use crate::api::util::text::visible_cell;

/// The name of one object in a cluster: everything but the version, which may change between servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    /// The API group, empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace, none for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectRef {
    /// The reference to `name` of a kind; the namespace is dropped for cluster-scoped kinds.
    pub fn new(kind: &Kind, namespace: Option<&str>, name: &str) -> Self {
        Self {
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            namespace: namespace.filter(|_| kind.namespaced).map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// The reference to an object as a server returns it, or nothing when it lacks a kind or a name.
    pub fn of(object: &Value) -> Option<Self> {
        let (group, _) = split_api_version(text_at(object, "/apiVersion")?);
        Some(Self {
            group: group.to_owned(),
            kind: text_at(object, "/kind")?.to_owned(),
            namespace: text_at(object, "/metadata/namespace").map(str::to_owned),
            name: text_at(object, "/metadata/name")?.to_owned(),
        })
    }

    /// Returns whether the object's values must never be shown.
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && self.kind == "Secret"
    }

    /// Returns whether its texts are such as the API has: a name can then lead to no other path.
    pub(crate) fn has_names(&self) -> bool {
        (self.group.is_empty() || is_api_name(&self.group, 253, ".-"))
            && is_api_name(&self.kind, 63, "")
            && is_api_name(&self.name, 253, "-._:")
            && self.namespace.as_ref().is_none_or(|namespace| is_api_name(namespace, 63, "-"))
    }

    pub(crate) fn is_kind(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

/// Returns whether a text of at most so many bytes is of letters, digits and these other characters.
fn is_api_name(text: &str, most: usize, others: &str) -> bool {
    (1..=most).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
        && !matches!(text, "." | "..")
}

impl fmt::Display for ObjectRef {
    /// `StatefulSet fleet/etcd`, `Namespace fleet`: the words that people use for objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = (visible_cell(&self.kind), visible_cell(&self.name));
        match &self.namespace {
            Some(namespace) => write!(f, "{kind} {}/{name}", visible_cell(namespace)),
            None => write!(f, "{kind} {name}"),
        }
    }
}

/// The text at a JSON pointer.
pub(crate) fn text_at<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// The whole number at a JSON pointer.
pub(crate) fn number_at(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// The list at a JSON pointer, empty when there is none.
pub(crate) fn items_at<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A label's value.
pub(crate) fn object_label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// An annotation's value.
pub(crate) fn object_annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// The uid, empty when there is none.
pub(crate) fn object_uid(object: &Value) -> &str {
    text_at(object, "/metadata/uid").unwrap_or_default()
}

/// Returns whether somebody has asked for its deletion, which cannot be withdrawn.
pub(crate) fn is_terminating(live: &Value) -> bool {
    text_at(live, "/metadata/deletionTimestamp").is_some()
}

/// A condition of `status.conditions` by its type.
pub(crate) fn status_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items_at(object, "/status/conditions").iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reference_reads_as_kind_namespace_and_name_and_knows_no_version() {
        let object =
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd", "namespace": "fleet"}});
        let reference = ObjectRef::of(&object).unwrap();
        assert_eq!(reference.to_string(), "StatefulSet fleet/etcd");
        assert_eq!(
            serde_json::to_value(&reference).unwrap(),
            json!({"group": "apps", "kind": "StatefulSet", "namespace": "fleet", "name": "etcd"})
        );
        assert!(ObjectRef::of(&json!({"kind": "Pod"})).is_none());
    }
}
