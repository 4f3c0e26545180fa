//! Ownership of fields: reading `managedFields` (the `fieldsV1` format of structured-merge-diff).
//!
//! The server takes a field out of our entry when anyone else changes it. So "all that we would apply is in our entry"
//! means that nobody has touched it since, without comparing values that the server may have normalised.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::object::{items_at, text_at};
use super::request::server::MANAGER;
use crate::api::labels::KEYS_MANAGER;

/// Our `Apply` entry in an object's `managedFields`, if there is one.
///
/// An `Update` entry of the same name is another manager's for the server, and is not ours either.
pub(crate) fn owned_entry(object: &Value) -> Option<&Value> {
    items_at(object, "/metadata/managedFields")
        .iter()
        .find(|entry| is_ours(entry))
        .and_then(|entry| entry.get("fieldsV1"))
}

/// Returns whether an entry of `managedFields` is our `Apply` entry.
pub(crate) fn is_ours(entry: &Value) -> bool {
    text_at(entry, "/manager") == Some(MANAGER)
        && text_at(entry, "/operation") == Some("Apply")
        && text_at(entry, "/subresource").unwrap_or_default().is_empty()
}

/// Returns whether an object was made by the Job of a control plane that makes its keys inside the cluster.
pub(crate) fn is_of_keys(object: &Value) -> bool {
    items_at(object, "/metadata/managedFields").iter().any(|entry| text_at(entry, "/manager") == Some(KEYS_MANAGER))
}

/// The names of all managers, the latest first, without those of a subresource such as `status`.
pub(crate) fn list_managers(object: &Value) -> Vec<String> {
    managers_by(object, str::is_empty)
}

/// As [`list_managers`], with those who scaled the object.
pub(crate) fn managers_and_scalers(object: &Value) -> Vec<String> {
    managers_by(object, |subresource| matches!(subresource, "" | SCALE))
}

fn managers_by(object: &Value, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut entries: Vec<(&str, &str)> = items_at(object, "/metadata/managedFields")
        .iter()
        .filter(|entry| is_wanted(text_at(entry, "/subresource").unwrap_or_default()))
        .filter_map(|entry| Some((text_at(entry, "/time").unwrap_or_default(), text_at(entry, "/manager")?)))
        .collect();
    entries.sort_unstable_by(|a, b| b.cmp(a));
    let mut names: Vec<String> = Vec::new();
    for (_, name) in entries {
        if !names.iter().any(|seen| seen == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The field that an autoscaler holds.
pub(crate) const REPLICAS: &str = ".spec.replicas";

/// The subresource by which others set [`REPLICAS`].
const SCALE: &str = "scale";

/// The manager as which the autoscalers of Kubernetes write.
pub(crate) const AUTOSCALERS: &str = "kube-controller-manager";

/// Returns the manager, other than kubectl, that has taken `spec.replicas` of an object: by way of the subresource
/// `scale`, as a HorizontalPodAutoscaler does, or as [`AUTOSCALERS`] without it, as a rollback gives the field back.
pub(crate) fn scaled_by(object: &Value) -> Option<&str> {
    let scaling = items_at(object, "/metadata/managedFields").iter().filter(|entry| {
        (text_at(entry, "/subresource") == Some(SCALE) || text_at(entry, "/manager") == Some(AUTOSCALERS))
            && entry.pointer("/fieldsV1/f:spec/f:replicas").is_some()
    });
    scaling.filter_map(|entry| text_at(entry, "/manager")).find(|manager| !by_hand(manager))
}

/// Returns whether a manager is a person: kubectl, whichever of its commands.
pub(crate) fn by_hand(manager: &str) -> bool {
    manager == "kubectl" || manager.starts_with("kubectl-")
}

/// The paths of a manifest that are not in a manager's entry: what others took or removed since we applied.
pub(crate) fn not_owned(manifest: &Value, fields: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    collect_missing_fields(manifest, fields, &mut String::new(), &mut missing);
    missing
}

/// Number of fields that an entry covers: the leaves of its tree.
pub(crate) fn count_fields(fields: &Value) -> u32 {
    let children: Vec<&Value> =
        fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".").map(|(_, child)| child).collect();
    if children.is_empty() { 1 } else { children.into_iter().map(count_fields).sum() }
}

/// Number of fields of a Secret that a renewal has written: they are of the installation as ours are.
pub(crate) fn count_renewed_fields(object: &Value) -> u32 {
    let entries = items_at(object, "/metadata/managedFields").iter();
    let renewed = entries.filter(|entry| text_at(entry, "/manager") == Some(KEYS_MANAGER));
    renewed.filter_map(|entry| entry.pointer("/fieldsV1/f:data")).map(count_fields).sum()
}

/// Number of fields of an object that are ours, with the replicas that whoever scales it has taken: a number that an autoscaler does
/// not make smaller.
pub(crate) fn count_owned_fields(object: &Value) -> u32 {
    let fields = owned_entry(object);
    let has_replicas = fields.is_some_and(|fields| fields.pointer("/f:spec/f:replicas").is_some());
    fields.map_or(0, count_fields) + u32::from(scaled_by(object).is_some() && !has_replicas)
}

/// Returns whether a field names the object: no manager owns these.
fn is_identity_field(path: &str, key: &str) -> bool {
    matches!((path, key), ("", "apiVersion" | "kind") | (".metadata", "name" | "namespace"))
}

fn collect_missing_fields(manifest: &Value, fields: &Value, path: &mut String, missing: &mut Vec<String>) {
    let Some(fields) = fields.as_object() else { return };
    let length = path.len();
    match manifest {
        Value::Object(map) if has_key_prefix(fields, "f:") || path.is_empty() => {
            for (key, value) in map {
                if is_identity_field(path, key) || is_empty(value) {
                    continue;
                }
                path.push('.');
                path.push_str(key);
                match fields.get(&format!("f:{key}")) {
                    Some(child) => collect_missing_fields(value, child, path, missing),
                    // `metadata` itself is never listed when nothing in it is; its children are what counts.
                    None => missing.push(path.clone()),
                }
                path.truncate(length);
            }
        }
        Value::Array(items) if has_key_prefix(fields, "k:") => {
            for (index, item) in items.iter().enumerate() {
                let _ = write!(path, "[{index}]");
                match fields.iter().find(|(key, _)| names_item(key, item)) {
                    Some((_, child)) => collect_missing_fields(item, child, path, missing),
                    None => missing.push(path.clone()),
                }
                path.truncate(length);
            }
        }
        Value::Array(items) if has_key_prefix(fields, "v:") => {
            for (index, item) in items.iter().enumerate() {
                if !fields.contains_key(&format!("v:{item}")) {
                    missing.push(format!("{path}[{index}]"));
                }
            }
        }
        // A leaf, or a list or map that is owned as a whole.
        _ => {}
    }
}

fn has_key_prefix(fields: &Map<String, Value>, prefix: &str) -> bool {
    fields.keys().any(|key| key.starts_with(prefix))
}

/// Returns whether a value is empty: the server drops empty maps and lists here and there, so they are never in an
/// entry.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Returns whether a `v:…` key is a list item.
pub(crate) fn is_item(key: &str, item: &Value) -> bool {
    key.strip_prefix("v:").is_some_and(|value| serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item))
}

/// Returns whether a `k:{…}` key names a list item. Keys that the item leaves out have been defaulted by the server.
pub(crate) fn names_item(key: &str, item: &Value) -> bool {
    let Some(Ok(Value::Object(wanted))) = key.strip_prefix("k:").map(serde_json::from_str) else { return false };
    let mut matched = false;
    for (name, value) in &wanted {
        match item.get(name) {
            Some(found) if found == value => matched = true,
            Some(_) => return false,
            None => {}
        }
    }
    matched
}

/// The fields that a manager applied: the part of a live object that its entry covers, with the object's identity.
///
/// Applying the result again with the same manager changes nothing.
pub(crate) fn extract_fields(live: &Value, fields: &Value) -> Value {
    let mut part = pick_fields(live, fields);
    if !part.is_object() {
        part = Value::Object(Map::new());
    }
    if let Some(map) = part.as_object_mut() {
        for key in ["apiVersion", "kind"] {
            if let Some(value) = live.get(key) {
                map.insert(key.to_owned(), value.clone());
            }
        }
        let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            for key in ["name", "namespace"] {
                if let Some(value) = live.pointer(&format!("/metadata/{key}")) {
                    metadata.insert(key.to_owned(), value.clone());
                }
            }
        }
    }
    part
}

fn pick_fields(live: &Value, fields: &Value) -> Value {
    let Some(entries) = fields.as_object().filter(|map| !map.is_empty()) else { return live.clone() };
    match live {
        Value::Object(map) => {
            let mut part = Map::new();
            for (key, child) in entries {
                if let Some(name) = key.strip_prefix("f:")
                    && let Some(value) = map.get(name)
                {
                    part.insert(name.to_owned(), pick_fields(value, child));
                }
            }
            Value::Object(part)
        }
        Value::Array(items) => {
            let mut part = Vec::new();
            for item in items {
                if let Some((key, child)) = entries.iter().find(|(key, _)| names_item(key, item)) {
                    let mut picked = pick_fields(item, child);
                    add_keys(&mut picked, key);
                    part.push(picked);
                } else if entries.contains_key(&format!("v:{item}")) {
                    part.push(item.clone());
                }
            }
            Value::Array(part)
        }
        scalar => scalar.clone(),
    }
}

/// An item of a keyed list must carry its keys, though they are not listed as owned fields of their own. Where one is, the
/// others have been defaulted by the server, and would be new fields of ours.
fn add_keys(item: &mut Value, key: &str) {
    let Some(Ok(Value::Object(keys))) = key.strip_prefix("k:").map(serde_json::from_str) else { return };
    if let Some(map) = item.as_object_mut().filter(|map| !keys.keys().any(|key| map.contains_key(key))) {
        for (name, value) in keys {
            map.entry(name).or_insert(value);
        }
    }
}

/// The union of two sets of fields: sets are trees of maps, and a leaf is an empty map.
pub(crate) fn merge_field_sets(into: &mut Value, other: &Value) {
    let (Some(into), Some(other)) = (into.as_object_mut(), other.as_object()) else { return };
    for (key, value) in other {
        match into.get_mut(key) {
            Some(known) => merge_field_sets(known, value),
            None => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The RFC 7396 merge patch that turns `from` into `to`.
pub(crate) fn merge_diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for (key, value) in to {
        match from.get(key) {
            Some(former) if former == value => {}
            Some(former) => {
                patch.insert(key.clone(), merge_diff(former, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// One merge patch to a state out of two that lead there from different ones.
pub(crate) fn unite_patches(into: &mut Value, other: &Value) {
    let (Value::Object(into), Value::Object(other)) = (into, other) else { return };
    for (key, value) in other {
        match into.get_mut(key) {
            Some(known) => unite_patches(known, value),
            None => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Applies an RFC 7396 merge patch.
pub(crate) fn apply_merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            apply_merge_patch(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn live() -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n", "uid": "u",
            "labels": {"app": "a", "foreign": "x"},
            "managedFields": [
                {"manager": "fleetctl", "operation": "Update", "time": "2026-01-03T00:00:00Z", "fieldsV1": {}},
                {"manager": "fleetctl", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {".": {}, "v:\"x\"": {}}},
                    "f:spec": {"f:selector": {}, "f:ports": {"k:{\"port\":443,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:targetPort": {}}}}}},
                {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {}}]},
            "spec": {"selector": {"app": "a"}, "clusterIP": "10.0.0.1",
                "ports": [{"port": 443, "protocol": "TCP", "targetPort": "https", "nodePort": 30000}]}})
    }

    #[test]
    fn fields_that_nobody_touched_are_all_ours_whatever_the_server_added() {
        let manifest = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n", "labels": {"app": "a"}, "annotations": {}},
            "spec": {"selector": {"app": "a"}, "ports": [{"port": 443, "targetPort": "https"}]}});
        assert_eq!(not_owned(&manifest, owned_entry(&live()).unwrap()), Vec::<String>::new());
    }

    #[test]
    fn a_field_that_another_manager_took_is_named() {
        let manifest = json!({"metadata": {"name": "a", "labels": {"app": "a", "foreign": "x"}, "finalizers": ["x", "y"]},
            "spec": {"ports": [{"port": 443, "nodePort": 1}, {"port": 80}]}});
        assert_eq!(
            not_owned(&manifest, owned_entry(&live()).unwrap()),
            [".metadata.finalizers[1]", ".metadata.labels.foreign", ".spec.ports[0].nodePort", ".spec.ports[1]"]
        );
    }

    #[test]
    fn what_we_applied_is_read_back_from_the_live_object() {
        let live = live();
        assert_eq!(
            extract_fields(&live, owned_entry(&live).unwrap()),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n", "labels": {"app": "a"}},
                "spec": {"selector": {"app": "a"}, "ports": [{"port": 443, "targetPort": "https"}]}})
        );
    }

    #[test]
    fn managers_are_listed_the_latest_first_without_repetition() {
        assert_eq!(list_managers(&live()), ["fleetctl", "kubectl-edit"]);
    }

    /// An object whose replicas a manager has set after fleetctl applied it.
    fn scaled_object(manager: &str, subresource: &str) -> Value {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        json!({"metadata": {"managedFields": [
            {"manager": "fleetctl", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {}},
            {"manager": "kubelet", "operation": "Update", "time": "2026-01-03T00:00:00Z", "subresource": "status", "fieldsV1": {}},
            {"manager": manager, "operation": "Update", "time": "2026-01-02T00:00:00Z", "subresource": subresource, "fieldsV1": replicas}]}})
    }

    #[test]
    fn who_scales_an_object_is_one_of_its_managers_only_where_that_is_asked_for() {
        let by_scale = scaled_object("oc", "scale");
        assert_eq!((scaled_by(&by_scale), list_managers(&by_scale)), (Some("oc"), vec!["fleetctl".to_owned()]));
        assert_eq!(managers_and_scalers(&by_scale), ["oc", "fleetctl"]);
        assert_eq!(scaled_by(&scaled_object("kubectl", "scale")), None, "a person did");
        assert_eq!(scaled_by(&scaled_object("oc", "")), None, "it edited the object");
        assert_eq!(scaled_by(&scaled_object(AUTOSCALERS, "")), Some(AUTOSCALERS));
    }

    #[test]
    fn a_merge_patch_leads_back_to_where_it_came_from() {
        let former = json!({"a": 1, "b": {"c": [1, 2], "d": true}, "gone": {"x": 1}});
        let current = json!({"a": 2, "b": {"c": [1], "e": 5}, "new": 1});
        let mut target = current.clone();
        apply_merge_patch(&mut target, &merge_diff(&current, &former));
        assert_eq!(target, former);
        apply_merge_patch(&mut target, &merge_diff(&current, &former));
        assert_eq!(target, former, "a second time changes nothing");
        assert_eq!(merge_diff(&former, &former), json!({}));
    }

    #[test]
    fn two_patches_united_lead_back_from_either_state() {
        let former = json!({"a": 1, "b": {"c": [1, 2], "d": true}, "gone": {"x": 1}, "deep": {"y": {"z": 1}}});
        let one = json!({"a": 2, "b": {"c": [1], "e": 5}, "new": 1, "deep": {"y": 1}});
        let two = json!({"a": 1, "b": 3, "gone": {"x": 1, "w": 2}, "newer": {"v": 1}, "deep": {"y": {"z": 1, "q": 2}}});
        let mut united = merge_diff(&one, &former);
        unite_patches(&mut united, &merge_diff(&two, &former));
        for mut state in [one, two, former.clone()] {
            apply_merge_patch(&mut state, &united);
            assert_eq!(state, former);
        }
    }
}
