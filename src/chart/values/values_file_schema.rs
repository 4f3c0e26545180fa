//! The schema of what a user writes: that of the merged values, without what only those have to fulfil.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::chart::Kind;

/// Prefix of the `$id` of the schemas; nothing is fetched from there.
const ID: &str = "https://fleet-scheduler.io/schemas";

/// The schema of a file of values, out of that of the merged values.
///
/// A file leaves out whatever has a default, so no key is required but in entries of lists, which are not merged. `null`
/// deletes a key of the user's own from a mapping. Text may be written without quotes where it looks like a number or a
/// boolean, as `tag: 1.10`: it is kept as it is written.
#[must_use]
pub fn written_schema(mut schema: Value, kind: Kind) -> Value {
    relax_schema(&mut schema, false);
    let definitions = schema.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    let in_lists = definitions_in_lists(&schema);
    if let Some(all) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        for (name, definition) in &definitions {
            let mut definition = definition.clone();
            relax_schema(&mut definition, in_lists.contains(name));
            all.insert(name.clone(), definition);
        }
    }
    if let Some(map) = schema.as_object_mut() {
        map.insert("$id".to_owned(), json!(format!("{ID}/{kind}.schema.json")));
    }
    schema
}

/// The definitions that entries of lists refer to, and those that they are made of.
fn definitions_in_lists(schema: &Value) -> BTreeSet<String> {
    fn collect_list_definitions(root: &Value, schema: &Value, in_list: bool, found: &mut BTreeSet<String>) {
        match schema {
            Value::Object(map) => {
                let reference = map.get("$ref").and_then(Value::as_str).filter(|_| in_list);
                let name = reference.and_then(|reference| reference.strip_prefix("#/$defs/"));
                if let Some(name) = name.filter(|name| found.insert((*name).to_owned())) {
                    collect_list_definitions(root, &root["$defs"][name], true, found);
                }
                map.iter()
                    .for_each(|(key, below)| collect_list_definitions(root, below, in_list || key == "items", found));
            }
            Value::Array(items) => items.iter().for_each(|below| collect_list_definitions(root, below, in_list, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    collect_list_definitions(schema, schema, false, &mut found);
    found
}

/// Relaxes one schema and what it holds; definitions are left to the caller.
fn relax_schema(schema: &mut Value, in_list: bool) {
    let Some(map) = schema.as_object_mut() else { return };
    if !in_list {
        map.remove("required");
    }
    // What is left out has a default of the chart, which is not the one of the type.
    map.remove("default");
    for below in map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(|map| map.values_mut()) {
        relax_schema(below, in_list);
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        for below in map.get_mut(keyword).and_then(Value::as_array_mut).into_iter().flatten() {
            relax_schema(below, in_list);
        }
    }
    if let Some(items) = map.get_mut("items") {
        relax_schema(items, true);
    }
    if let Some(values) = map.get_mut("additionalProperties").filter(|values| values.is_object()) {
        relax_schema(values, in_list);
        *values = json!({"anyOf": [values.take(), {"type": "null"}]});
    }
    without_quotes(schema);
}

/// Lets text be a number or a boolean where its form allows one.
fn without_quotes(schema: &mut Value) {
    let types = match schema.get("type") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => return,
    };
    let is_closed = schema.get("enum").is_some() || schema.get("const").is_some();
    if is_closed || !types.iter().any(|name| name == "string") {
        return;
    }
    let Ok(form) = jsonschema::validator_for(schema) else { return };
    let [integer, fraction, boolean] = ["11", "1.5", "true"].map(|text| form.is_valid(&Value::from(text)));
    let more =
        [(integer || fraction, "number"), (boolean, "boolean")].into_iter().filter_map(|(is, name)| is.then_some(name));
    let types: Vec<String> = types.into_iter().chain(more.map(str::to_owned)).collect();
    if types.len() > 1 {
        schema["type"] = json!(types);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_need_not_hold_what_has_a_default_but_entries_of_lists_are_whole() {
        let merged = json!({
            "type": "object", "additionalProperties": false, "required": ["etcd", "secrets"],
            "properties": {
                "etcd": {"$ref": "#/$defs/Etcd"},
                "secrets": {"type": "array", "items": {"$ref": "#/$defs/Name"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "mode": {"oneOf": [{"const": "A", "type": "string"}]},
                "arguments": {"type": "array", "items": {"type": "string", "pattern": "^--"}},
            },
            "$defs": {
                "Etcd": {"type": "object", "required": ["tag"], "additionalProperties": false, "properties": {"tag": {"type": "string"}}},
                "Name": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            },
        });
        let schema = written_schema(merged, Kind::ControlPlane);
        let validator = jsonschema::validator_for(&schema).unwrap();
        for right in [
            json!({}),
            json!({"etcd": {}}),
            json!({"etcd": {"tag": 1.10}}),
            json!({"labels": {"a": null, "b": true}}),
            json!({"secrets": [{"name": "x"}]}),
            json!({"mode": "A", "arguments": ["--v=4"]}),
        ] {
            assert!(validator.is_valid(&right), "{right}");
        }
        for wrong in [
            json!({"etc": {}}),
            json!({"etcd": {"tags": "x"}}),
            json!({"etcd": null}),
            json!({"secrets": [{}]}),
            json!({"mode": "B"}),
            json!({"arguments": [4]}),
            json!({"labels": {"a": []}}),
        ] {
            assert!(!validator.is_valid(&wrong), "{wrong}");
        }
        assert_eq!(schema["$id"], "https://fleet-scheduler.io/schemas/control-plane.schema.json");
    }
}
