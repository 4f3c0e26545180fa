//! For tests: objects as golden files, and what differs between two sets of them.

use serde_json::{Value, json};

use crate::chart::Object;

/// Compares a text with the golden file of that name, beside the test that says so. A macro, because the files lie
/// beside their test.
macro_rules! snapshot {
    ($name:expr, $text:expr) => {
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!($name, $text);
        })
    };
}
pub(crate) use snapshot;

/// Returns the changes from one set of objects to the other: a line for each leaf that differs, whole objects that are
/// new, and the names of those that are gone.
pub(crate) fn format_changes(plain: &[Object], objects: &[Object]) -> String {
    let mut changes = Vec::new();
    for object in objects {
        match plain.iter().find(|old| old.id() == object.id()) {
            Some(old) => collect_differences(&object.id(), &old.json, &object.json, &mut changes),
            None => changes.push(format!("+ {}\n{}", object.id(), golden_yaml(&object.json))),
        }
    }
    let gone = plain.iter().filter(|old| !objects.iter().any(|object| object.id() == old.id()));
    changes.extend(gone.map(|object| format!("- {}", object.id())));
    changes.join("\n")
}

/// Every leaf in which two values differ: `deployment/apiserver spec.replicas: 1 -> 3`.
fn collect_differences(path: &str, old: &Value, new: &Value, changes: &mut Vec<String>) {
    let separator = if path.contains(' ') { "." } else { " " };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
                let (old, new) = (old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null));
                collect_differences(&format!("{path}{separator}{key}"), old, new, changes);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                collect_differences(&format!("{path}[{index}]"), old, new, changes);
            }
        }
        _ if old != new => changes.push(format!("{path}: {old} -> {new}")),
        _ => {}
    }
}

/// An object as YAML. The bootstrap's text has tests of its own, so here it is only named.
pub(crate) fn golden_yaml(object: &Value) -> String {
    let mut object = object.clone();
    if object["metadata"]["name"] == "fleet-bootstrap" {
        let names: Vec<&String> = object["data"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
        object["data"] = json!(names);
    }
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, compact_list_indent: true };
    serde_saphyr::to_string_with_options(&object, options).unwrap()
}
