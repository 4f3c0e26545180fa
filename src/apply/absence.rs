//! Waiting until objects are gone, and saying what holds those that are not.

use serde_json::Value;

use super::object::{list, text};

/// What keeps an object that is being deleted: its finalizers, the conditions of a namespace, or its grace period.
pub(crate) fn holds(live: &Value) -> String {
    let names = |pointer: &str| -> Vec<&str> { list(live, pointer).iter().filter_map(Value::as_str).collect() };
    let remaining: Vec<&str> = list(live, "/status/conditions")
        .iter()
        .filter(|condition| text(condition, "/status") == Some("True"))
        .filter(|condition| text(condition, "/type").is_some_and(|kind| kind.starts_with("Namespace")))
        .filter_map(|condition| text(condition, "/message"))
        .collect();
    let finalizers = names("/metadata/finalizers");
    if !remaining.is_empty() {
        remaining.join("; ")
    } else if !finalizers.is_empty() {
        format!("its finalizer {} has not been removed by its controller", finalizers.join(", "))
    } else if text(live, "/metadata/deletionTimestamp").is_some() {
        "it is being deleted".to_owned()
    } else {
        "its deletion has not begun".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_finalizer_or_the_rest_of_a_namespace_is_named() {
        let pvc = json!({"metadata": {"deletionTimestamp": "x", "finalizers": ["kubernetes.io/pvc-protection"]}});
        assert!(holds(&pvc).contains("kubernetes.io/pvc-protection"));
        let namespace = json!({"metadata": {"deletionTimestamp": "x"}, "status": {"conditions": [
            {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "ok"},
            {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: pods. has 1 resource instances"}]}});
        assert_eq!(holds(&namespace), "Some resources are remaining: pods. has 1 resource instances");
    }
}
