//! Every rendered object is valid by the schemas of every Kubernetes minor that it is for, and has no unknown field.

use std::collections::BTreeMap;

use bed::Bed;
use fleetctl::chart::Object;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::support;

/// The schemas of one minor, compiled when they are first needed.
struct Schemas {
    bed: Bed,
    minor: u32,
    documents: BTreeMap<String, Value>,
    validators: BTreeMap<(String, String), Validator>,
}

impl Schemas {
    fn new(minor: u32) -> Self {
        let bed = Bed::here().unwrap();
        Self { bed, minor, documents: BTreeMap::new(), validators: BTreeMap::new() }
    }

    /// The document of a group and version, made strict.
    fn document(&mut self, api_version: &str) -> &Value {
        let folder = self.bed.openapi(&format!("1.{}", self.minor)).unwrap();
        self.documents.entry(api_version.to_owned()).or_insert_with(|| {
            let name = match api_version.split_once('/') {
                None => format!("api__{api_version}_openapi.json"),
                Some((group, version)) => format!("apis__{group}__{version}_openapi.json"),
            };
            let text = std::fs::read_to_string(folder.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut document: Value = serde_json::from_str(&text).unwrap();
            document["components"]["schemas"].as_object_mut().unwrap().values_mut().for_each(close);
            document
        })
    }

    fn validator(&mut self, api_version: &str, kind: &str) -> &Validator {
        let key = (api_version.to_owned(), kind.to_owned());
        if !self.validators.contains_key(&key) {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let gvk = json!({"group": group, "version": version, "kind": kind});
            let document = self.document(api_version);
            let schemas = document["components"]["schemas"].as_object().unwrap();
            let is_of = |schema: &Value| {
                let kinds = schema["x-kubernetes-group-version-kind"].as_array();
                kinds.is_some_and(|kinds| kinds.contains(&gvk))
            };
            let found = schemas.iter().find(|(_, schema)| is_of(schema)).map(|(name, _)| name.clone());
            let name = found.unwrap_or_else(|| panic!("no schema of {kind} in {api_version}"));
            let schema = json!({"$ref": format!("#/components/schemas/{name}"), "components": document["components"]});
            self.validators.insert(key.clone(), jsonschema::validator_for(&schema).unwrap());
        }
        &self.validators[&key]
    }

    /// What is wrong with an object.
    fn problems(&mut self, object: &Object) -> Vec<String> {
        let validator = self.validator(object.api_version(), object.kind());
        let errors = validator.iter_errors(&object.json);
        errors.map(|error| format!("{} {}: {}", object.id(), error.instance_path(), error.masked())).collect()
    }
}

/// Refuses unknown fields everywhere, and takes numbers and text where Kubernetes does.
fn close(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    if map.get("format").is_some_and(|format| format == "int-or-string") {
        map.remove("type");
    }
    if map.contains_key("properties") && !map.contains_key("additionalProperties") {
        map.insert("additionalProperties".to_owned(), json!(false));
    }
    for keyword in ["properties", "patternProperties"] {
        let below = map.get_mut(keyword).and_then(Value::as_object_mut);
        below.into_iter().flat_map(serde_json::Map::values_mut).for_each(close);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        map.get_mut(keyword).and_then(Value::as_array_mut).into_iter().flatten().for_each(close);
    }
    for keyword in ["items", "additionalProperties"] {
        map.get_mut(keyword).into_iter().for_each(close);
    }
}

#[test]
fn every_line_with_every_preset_is_valid_for_every_minor_of_its_row() {
    let mut minors: BTreeMap<u32, Schemas> = BTreeMap::new();
    let mut problems = Vec::new();
    let mut checked = 0;
    for set in support::sets() {
        let hosting = set.minors().into_iter().map(|minor| (minor, &set.rendered.objects));
        let own = [(set.own_minor(), &set.rendered.bootstrap)];
        for (minor, objects) in hosting.chain(own) {
            let schemas = minors.entry(minor).or_insert_with(|| Schemas::new(minor));
            for object in objects {
                let found = schemas.problems(object);
                problems.extend(found.iter().map(|problem| format!("{} on 1.{minor}: {problem}", set.name)));
                checked += 1;
            }
        }
    }
    assert_eq!(problems, [""; 0]);
    assert_eq!(minors.keys().copied().collect::<Vec<_>>(), (24..=37).collect::<Vec<_>>());
    assert!(checked > 2000, "{checked}");
}

#[test]
fn a_field_that_nobody_knows_and_a_wrong_type_are_found() {
    let set = support::sets().into_iter().find(|set| set.name == "control-plane v0.6 defaults").unwrap();
    let mut etcd = set.rendered.objects.into_iter().find(|object| object.kind() == "StatefulSet").unwrap();
    let mut minor = Schemas::new(24);
    assert_eq!(minor.problems(&etcd), [""; 0]);
    etcd.json["spec"]["template"]["spec"]["containers"][0]["imagee"] = json!("x");
    etcd.json["spec"]["replicas"] = json!("1");
    etcd.json["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = json!("http");
    let problems = minor.problems(&etcd).join("\n");
    assert_eq!(problems.lines().count(), 3, "{problems}");
    assert!(problems.contains("imagee") && problems.contains("/spec/replicas"), "{problems}");
}
