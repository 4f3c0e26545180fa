//! Paths of fields in a manifest: those that are left to others, and those that an older API server does not know.
//!
//! Two notations are read: that of annotations (`spec.template`, `[2]`, `[name=x]`, `['dotted/key']`), and that in which API
//! servers name a field (`.spec.containers[name="c"].x`, `[containerPort=80,protocol="TCP"]`).

use serde_json::{Value, json};

use super::index::{is_own_entry, own_entries};
use crate::k8s::connect::daemon_client::CallError;
use crate::k8s::managed_fields::{apply_merge_patch, merge_diff, merge_field_sets};
use crate::k8s::object::{items_at, text_at};

/// Marks a field that an API server's schema lacks, in its answer to an apply.
const NOT_DECLARED: &str = ": field not declared in schema";

/// Begins the answer to an apply whose manifest does not fit the schema.
pub(super) const TYPED: &str = "failed to create typed patch object";

/// A part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    /// The element whose fields print as these.
    Item(Vec<(String, String)>),
}

/// Removes the field at `path`. Returns false where the path is none, or nothing is there.
pub fn remove_field_at(object: &mut Value, path: &str) -> bool {
    let Some(steps) = parse_field_path(path) else { return false };
    let Some((last, steps)) = steps.split_last() else { return false };
    let mut place = object;
    for step in steps {
        let Some(next) = find_position(place, step) else { return false };
        let child = match next {
            Position::Field(name) => place.get_mut(name),
            Position::Index(index) => place.get_mut(index),
        };
        let Some(child) = child else { return false };
        place = child;
    }
    match (find_position(place, last), place) {
        (Some(Position::Field(name)), Value::Object(map)) => map.remove(&name).is_some(),
        (Some(Position::Index(index)), Value::Array(items)) if index < items.len() => {
            items.remove(index);
            true
        }
        _ => false,
    }
}

/// Returns an object with nothing but the field at `path` of another; `None` where there is none, or where it is in a list.
pub fn extract_field_at(object: &Value, path: &str) -> Option<Value> {
    let names = parse_field_path(path)?.into_iter().map(|step| match step {
        Step::Field(name) => Some(name),
        Step::Index(_) | Step::Item(_) => None,
    });
    let names = names.collect::<Option<Vec<_>>>()?;
    let found = names.iter().try_fold(object, |place, name| place.get(name))?;
    Some(names.into_iter().rev().fold(found.clone(), |value, name| json!({ name: value })))
}

enum Position {
    Field(String),
    Index(usize),
}

fn find_position(place: &Value, step: &Step) -> Option<Position> {
    match step {
        Step::Field(name) => place.get(name).map(|_| Position::Field(name.clone())),
        Step::Index(index) => Some(Position::Index(*index)),
        Step::Item(wanted) => {
            let mut items = place.as_array()?.iter();
            let index = items.position(|item| wanted.iter().all(|(key, value)| prints_as(item.get(key), value)));
            index.map(Position::Index)
        }
    }
}

fn prints_as(value: Option<&Value>, text: &str) -> bool {
    match value {
        Some(Value::String(value)) => value == text,
        Some(Value::Number(value)) => value.to_string() == text,
        Some(Value::Bool(value)) => value.to_string() == text,
        // A key that the manifest leaves out was defaulted by the server.
        _ => value.is_none() && text == "TCP",
    }
}

fn parse_field_path(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('.').unwrap_or(path);
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['") {
            let (key, after) = quoted_key(quoted)?;
            steps.push(Step::Field(key));
            rest = after;
        } else if let Some(bracket) = rest.strip_prefix('[') {
            let end = find_bracket_end(bracket)?;
            steps.push(parse_element(&bracket[..end])?);
            rest = &bracket[end + 1..];
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            steps.push(Step::Field(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        match rest.strip_prefix('.') {
            Some("") => return None,
            Some(next) => rest = next,
            None if rest.is_empty() || rest.starts_with('[') => {}
            None => return None,
        }
    }
    (!steps.is_empty()).then_some(steps)
}

/// Reads up to `']`; a quote is written twice.
fn quoted_key(text: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut rest = text;
    loop {
        let at = rest.find('\'')?;
        key.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('\'') {
            key.push('\'');
            rest = after;
        } else {
            return Some((key, rest.strip_prefix(']')?));
        }
    }
}

/// Returns the position of the bracket that closes, outside of quotes.
fn find_bracket_end(text: &str) -> Option<usize> {
    let mut quoted = false;
    for (at, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            ']' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

fn parse_element(text: &str) -> Option<Step> {
    if let Ok(index) = text.parse() {
        return Some(Step::Index(index));
    }
    let pairs = text.split(',').map(|pair| {
        let (key, value) = pair.split_once('=').filter(|(key, _)| !key.is_empty())?;
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        Some((key.trim().to_owned(), value.to_owned()))
    });
    pairs.collect::<Option<Vec<_>>>().map(Step::Item)
}

/// Returns the paths that an API server says it does not know; none for another error.
pub fn undeclared_fields(error: &CallError) -> Vec<String> {
    error.to_api_error().map(|answer| not_declared(&answer.message)).unwrap_or_default()
}

/// Returns true for the answer of server-side apply to a list of which two entries have the same key: in what is applied, or,
/// before Kubernetes 1.29, in the object that is there.
pub fn has_doubled_entries(error: &CallError) -> bool {
    error.to_api_error().is_some_and(|answer| answer.message.contains(": duplicate entries for key ["))
}

/// Returns the merge patch with which a manifest replaces an object that nobody has changed since: labels, annotations and
/// finalizers of others stay, and so does what the copy leaves to others.
pub fn build_replacement_patch(found: &Value, manifest: &Value, left: &[String]) -> Value {
    let mut object = manifest.clone();
    let mut metadata = found["metadata"].clone();
    for fields in own_entries(found).filter_map(|entry| entry.pointer("/fieldsV1/f:metadata")) {
        for part in ["labels", "annotations"] {
            let names = fields.get(format!("f:{part}")).and_then(Value::as_object).into_iter().flatten();
            for name in names.filter_map(|(name, _)| name.strip_prefix("f:")) {
                apply_merge_patch(&mut metadata, &json!({ part: { name: null } }));
            }
        }
    }
    apply_merge_patch(&mut metadata, &manifest["metadata"]);
    object["metadata"] = metadata;
    for field in left.iter().filter_map(|path| extract_field_at(found, path)) {
        apply_merge_patch(&mut object, &field);
    }
    if let Some(status) = found.get("status") {
        object["status"] = status.clone();
    }
    let mut patch = merge_diff(found, &object);
    patch["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
    patch
}

/// Returns the managed fields of an object that was written whole as if it had been applied: an apply removes only what was
/// applied before. `None` where they are like that.
pub fn list_entries_as_applied(object: &Value) -> Option<Vec<Value>> {
    let mut applied = own_entries(object).find(|entry| text_at(entry, "/operation") != Some("Apply"))?.clone();
    applied["operation"] = "Apply".into();
    for other in own_entries(object) {
        merge_field_sets(&mut applied["fieldsV1"], other.get("fieldsV1")?);
    }
    let others = items_at(object, "/metadata/managedFields").iter().filter(|entry| !is_own_entry(entry)).cloned();
    Some(std::iter::once(applied).chain(others).collect())
}

/// Removes the fields that a control plane of an earlier build does not know, which refused to store them. Returns whether there
/// were any.
pub fn remove_undeclared(object: &mut Value, error: &CallError) -> bool {
    undeclared_fields(error).iter().filter(|path| remove_field_at(object, path)).count() > 0
}

/// Returns the paths that an API server's answer to an apply says it does not know; none for any other answer.
fn not_declared(message: &str) -> Vec<String> {
    if !message.contains(TYPED) {
        return Vec::new();
    }
    let lines = message.lines().filter_map(|line| line.strip_suffix(NOT_DECLARED));
    let paths = lines.filter_map(|line| {
        // The first line begins with the name of the object.
        let path = line.rsplit_once("): ").map_or(line, |(_, path)| path).trim();
        path.starts_with('.').then(|| path.to_owned())
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "fieldsV1": fields})
    }

    #[test]
    fn what_is_replaced_keeps_the_labels_of_others_and_loses_what_the_source_dropped() {
        let labels = |names: &[&str]| {
            let names: serde_json::Map<String, Value> =
                names.iter().map(|name| (format!("f:{name}"), json!({}))).collect();
            json!({"f:metadata": {"f:labels": names}})
        };
        let found = json!({"metadata": {"resourceVersion": "7", "labels": {"dropped": "1", "kept": "1", "theirs": "1"},
            "managedFields": [entry("fleet-agent", "Update", &labels(&["dropped", "kept"])),
                entry("kubectl-edit", "Update", &labels(&["theirs"]))]}, "data": {"a": "1"}});
        let manifest = json!({"metadata": {"labels": {"kept": "2"}}, "data": {"b": "1"}});
        let patch = build_replacement_patch(&found, &manifest, &[]);
        assert_eq!(
            patch,
            json!({"metadata": {"resourceVersion": "7", "labels": {"dropped": null, "kept": "2"}},
                "data": {"a": null, "b": "1"}})
        );
    }

    #[test]
    fn doubled_entries_are_found_in_what_is_applied_and_in_what_is_there() {
        let of = "(a/b; apps/v1, Kind=Deployment)";
        let at = ".spec.template.spec.containers[name=\"c\"].env: duplicate entries for key [name=\"A\"]";
        for (message, expected) in [
            (format!("failed to create typed patch object {of}: {at}"), true),
            (
                format!(
                    "failed to create manager for existing fields: failed to convert new object {of} to smd typed: {at}"
                ),
                true,
            ),
            (format!("failed to create typed patch object {of}: .spec.replicas: expected numeric, got string"), false),
        ] {
            let answer = json!({"status": "Failure", "code": 500, "reason": "InternalError", "message": message});
            let error = CallError::Kube(kube::Error::Api(serde_json::from_value(answer).unwrap()));
            assert_eq!(has_doubled_entries(&error), expected, "{message}");
        }
    }

    #[test]
    fn what_was_written_whole_counts_as_applied() {
        let others = entry("kubectl-edit", "Update", &json!({"f:data": {"f:c": {}}}));
        let mut object = json!({"metadata": {"managedFields": [others,
            entry("fleet-agent", "Apply", &json!({"f:data": {"f:a": {}}})),
            entry("fleet-agent", "Update", &json!({"f:data": {"f:b": {}}}))]}});
        let entries = list_entries_as_applied(&object).unwrap();
        let applied = entry("fleet-agent", "Apply", &json!({"f:data": {"f:a": {}, "f:b": {}}}));
        assert_eq!(entries, [applied, others]);
        object["metadata"]["managedFields"] = json!(entries);
        assert_eq!(list_entries_as_applied(&object), None);
    }

    #[test]
    fn both_notations_lead_to_the_field() {
        let object = json!({"metadata": {"annotations": {"a.b/c": "x", "it's": "y"}}, "spec": {"replicas": 2,
            "containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": 80, "extra": 1}], "x": {"y": 1}}]}});
        for (path, pointer) in [
            ("spec.replicas", "/spec/replicas"),
            (".spec.replicas", "/spec/replicas"),
            ("metadata.annotations['a.b/c']", "/metadata/annotations/a.b~1c"),
            ("metadata.annotations['it''s']", "/metadata/annotations/it's"),
            ("spec.containers[name=b].x", "/spec/containers/1/x"),
            (
                ".spec.containers[name=\"b\"].ports[containerPort=80,protocol=\"TCP\"].extra",
                "/spec/containers/1/ports/0/extra",
            ),
            ("spec.containers[1].x.y", "/spec/containers/1/x/y"),
        ] {
            let mut changed = object.clone();
            assert!(remove_field_at(&mut changed, path), "{path}");
            assert!(object.pointer(pointer).is_some() && changed.pointer(pointer).is_none(), "{path}");
        }
        let mut items = object.clone();
        assert!(remove_field_at(&mut items, "spec.containers[0]"));
        assert_eq!(items["spec"]["containers"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_path_to_nothing_changes_nothing() {
        let object = json!({"spec": {"items": [{"name": "a"}]}});
        for path in [
            "",
            ".",
            "spec.",
            "spec..items",
            "spec.nothing",
            "spec.items[3]",
            "spec.items[name=b].x",
            "spec.items[name=a",
            "spec['items",
            "spec.items[]",
        ] {
            let mut same = object.clone();
            assert!(!remove_field_at(&mut same, path), "{path}");
            assert_eq!(same, object, "{path}");
        }
    }

    #[test]
    fn one_field_is_taken_out_of_an_object() {
        let object = json!({"spec": {"replicas": 2, "items": [{"name": "a"}], "other": 1}});
        assert_eq!(extract_field_at(&object, ".spec.replicas"), Some(json!({"spec": {"replicas": 2}})));
        assert_eq!(extract_field_at(&object, "spec.nothing"), None);
        assert_eq!(extract_field_at(&object, "spec.items[name=a]"), None);
    }

    /// Answers of API servers of 1.25 and 1.31.
    #[test]
    fn unknown_fields_are_read_from_the_answer() {
        let of = "failed to create typed patch object (/x; apps/v1, Kind=Deployment): ";
        let one = format!("{of}.spec.template.spec.containers[name=\"c\"].bogus: field not declared in schema");
        assert_eq!(not_declared(&one), [".spec.template.spec.containers[name=\"c\"].bogus"]);
        let two = format!("{of}errors:\n  .spec.a: field not declared in schema\n  .b: field not declared in schema");
        assert_eq!(not_declared(&two), [".spec.a", ".b"]);
        assert!(not_declared("etcdserver: request timed out").is_empty());
        assert!(not_declared(&format!("{of}.spec.x: expected string, got 1")).is_empty());
    }
}
