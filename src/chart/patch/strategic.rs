//! Strategic merge: mappings merge key by key, lists of which items have a key merge item by item, null removes, and
//! everything else replaces.

use serde_json::{Map, Value};

use crate::chart::diagnostic::Diagnostic;

use super::Wrong;

/// Key of the directive that says what a part does: `delete` or `replace`.
const DIRECTIVE: &str = "$patch";

/// Lists that are merged item by item, wherever they are: the field, and the key of its items. As the API has them.
const LISTS: [(&str, &str); 9] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("imagePullSecrets", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
];

/// Returns the merge key of the list at a path, which is given without indexes of lists; `None` where the list is
/// replaced as a whole.
pub(in crate::chart) fn merge_key(kind: &str, path: &[&str]) -> Option<&'static str> {
    match path {
        ["spec", "ports"] if kind == "Service" => Some("port"),
        ["secrets"] if kind == "ServiceAccount" => Some("name"),
        [.., "containers" | "initContainers", "ports"] => Some("containerPort"),
        [.., field] => LISTS.iter().find(|(list, _)| list == field).map(|(_, key)| *key),
        [] => None,
    }
}

/// Returns whether some list has this field as its merge key.
pub(super) fn is_key(field: &str) -> bool {
    ["port", "containerPort"].contains(&field) || LISTS.iter().any(|(_, key)| *key == field)
}

/// Lays a part over an object of that kind.
pub(super) fn merge_object(kind: &str, object: Value, part: &Value) -> Result<Value, Wrong> {
    let mut merger = Merger { kind, path: Vec::new(), fields: Vec::new() };
    merger.merge_value(Some(object), part)
}

struct Merger<'p> {
    kind: &'p str,
    /// Keys, and keys of items or indexes in lists: for places.
    path: Vec<String>,
    /// The same path without the keys and indexes of list items, for finding merge keys.
    fields: Vec<&'p str>,
}

impl<'p> Merger<'p> {
    fn merge_error(&self, code: &'static str, message: impl Into<String>, help: &str) -> Wrong {
        Wrong { path: self.path.clone(), diagnostic: Diagnostic::error(code, message).help(help) }
    }

    fn merge_value(&mut self, below: Option<Value>, part: &'p Value) -> Result<Value, Wrong> {
        match part {
            Value::Object(part) => self.merge_mapping(below, part),
            Value::Array(items) => self.merge_list(below, items),
            scalar => Ok(scalar.clone()),
        }
    }

    fn merge_mapping(&mut self, below: Option<Value>, part: &'p Map<String, Value>) -> Result<Value, Wrong> {
        let mut merged = match below {
            Some(Value::Object(map)) if find_directive(part) != Some("replace") => map,
            _ => Map::new(),
        };
        for (key, value) in part.iter().filter(|(key, _)| *key != DIRECTIVE) {
            self.path.push(key.clone());
            self.fields.push(key);
            if value.is_null() || value.as_object().and_then(find_directive) == Some("delete") {
                merged.remove(key);
            } else {
                let below = merged.remove(key);
                let value = self.merge_value(below, value)?;
                merged.insert(key.clone(), value);
            }
            self.fields.pop();
            self.path.pop();
        }
        Ok(Value::Object(merged))
    }

    fn merge_list(&mut self, below: Option<Value>, items: &'p [Value]) -> Result<Value, Wrong> {
        let Some(key) = merge_key(self.kind, &self.fields) else {
            return items.iter().map(|item| self.merge_item(None, item)).collect::<Result<_, _>>().map(Value::Array);
        };
        let is_whole = items.iter().any(is_replace_directive);
        let mut merged = match below {
            Some(Value::Array(items)) if !is_whole => items,
            _ => Vec::new(),
        };
        for item in items.iter().filter(|item| !is_replace_directive(item)) {
            let Some(name) = item.get(key).filter(|name| !name.is_null()) else {
                let list = self.fields.join(".");
                return Err(self.merge_error(
                    "patch-item",
                    format!("an item of `{list}` has no `{key}`, its merge key"),
                    "add the key; or, to replace the whole list, put `- $patch: replace` before the items",
                ));
            };
            let found = merged.iter().position(|other| other.get(key) == Some(name));
            let is_deleted = item.as_object().and_then(find_directive) == Some("delete");
            match (found, is_deleted) {
                (Some(index), true) => {
                    merged.remove(index);
                }
                (None, true) => {
                    let list = self.fields.join(".");
                    return Err(self.merge_error(
                        super::NOT_APPLIED,
                        format!("`{list}` has no item with the `{key}` {name}, so nothing can be deleted"),
                        "leave it out",
                    ));
                }
                (Some(index), false) => {
                    let below = merged[index].take();
                    merged[index] = self.merge_item(Some(below), item)?;
                }
                (None, false) => {
                    let new = self.merge_item(None, item)?;
                    merged.push(new);
                }
            }
        }
        Ok(Value::Array(merged))
    }

    /// An item of a list: whatever is below it has the fields of the list above it.
    fn merge_item(&mut self, below: Option<Value>, item: &'p Value) -> Result<Value, Wrong> {
        self.merge_value(below, item)
    }
}

/// Returns whether an item only says that the list is replaced as a whole.
fn is_replace_directive(item: &Value) -> bool {
    item.as_object().is_some_and(|item| item.len() == 1 && find_directive(item) == Some("replace"))
}

/// Returns the directive of a part: the text of its `$patch`.
fn find_directive(part: &Map<String, Value>) -> Option<&str> {
    part.get(DIRECTIVE).and_then(Value::as_str)
}

/// Finds a directive that is not one of those that are understood: its path, and its text.
pub(super) fn unknown_directive(part: &Value, path: &mut Vec<String>) -> Option<(Vec<String>, String)> {
    match part {
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            path.push(key.clone());
            let is_known = key == DIRECTIVE && matches!(value.as_str(), Some("delete" | "replace" | "merge"));
            let found = if key.starts_with('$') && !is_known {
                let text = if key == DIRECTIVE { format!("{key}: {value}") } else { key.clone() };
                Some((path.clone(), text))
            } else {
                unknown_directive(value, path)
            };
            path.pop();
            found
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            path.push(index.to_string());
            let found = unknown_directive(item, path);
            path.pop();
            found
        }),
        _ => None,
    }
}
