//! Fields of an object that somebody has written, of those that an API server otherwise allocates or fills in by itself.
//!
//! API servers record who set a field before they allocate addresses and before admission plug-ins add defaults
//! (`fieldsV1` of structured-merge-diff), so a field that no entry names was not written by anybody.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::field::{Names, or_empty};

/// Fields of `spec` that API servers allocate or admission plug-ins fill in.
const ALLOCATED: [&str; 12] = [
    "clusterIP",
    "clusterIPs",
    "healthCheckNodePort",
    "ingressClassName",
    "ipFamilies",
    "ipFamilyPolicy",
    "nodeName",
    "preemptionPolicy",
    "priority",
    "storageClassName",
    "tolerations",
    "volumeName",
];

/// Entry of the managed fields, as deep as a port of a Service is.
#[derive(Deserialize)]
pub(super) struct Entry {
    #[serde(default, deserialize_with = "or_empty")]
    subresource: String,
    #[serde(rename = "fieldsV1", default, deserialize_with = "or_empty")]
    fields: BTreeMap<String, BTreeMap<String, BTreeMap<String, Names>>>,
}

/// Returns the managed fields with only the allocated fields that were written, as one entry; none where there are no
/// managed fields, so that it is not known who wrote what.
pub(super) fn condense_entries(entries: Vec<Entry>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    let mut written = Map::new();
    let mut ports = Map::new();
    for mut entry in entries.into_iter().filter(|entry| entry.subresource.is_empty()) {
        let spec = entry.fields.remove("f:spec").unwrap_or_default();
        for (name, below) in spec {
            if name == "f:ports" {
                let found = below.into_iter().filter(|(_, names)| names.0.iter().any(|name| name == "f:nodePort"));
                ports.extend(found.map(|(key, _)| (key, json!({ "f:nodePort": {} }))));
            } else if name.strip_prefix("f:").is_some_and(|name| ALLOCATED.contains(&name)) {
                written.insert(name, json!({}));
            }
        }
    }
    if !ports.is_empty() {
        written.insert("f:ports".to_owned(), ports.into());
    }
    Some(json!([{ "fieldsV1": { "f:spec": written } }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condensed(entries: Value) -> Option<Value> {
        condense_entries(serde_json::from_value(entries).unwrap())
    }

    #[test]
    fn allocated_fields_that_were_written_are_kept() {
        let entries = json!([
            { "manager": "kubectl-create", "operation": "Update", "fieldsV1": { "f:metadata": { "f:labels": {} }, "f:spec": {
                "f:clusterIP": {}, "f:selector": {}, "f:ports": {
                    ".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:nodePort": {}, "f:port": {} },
                    "k:{\"port\":81,\"protocol\":\"TCP\"}": { ".": {}, "f:port": {} } } } } },
            { "manager": "x", "subresource": "status", "fieldsV1": { "f:spec": { "f:nodeName": {} } } },
        ]);
        let expected = json!([{ "fieldsV1": { "f:spec": { "f:clusterIP": {},
            "f:ports": { "k:{\"port\":80,\"protocol\":\"TCP\"}": { "f:nodePort": {} } } } } }]);
        assert_eq!(condensed(entries), Some(expected));
    }

    #[test]
    fn nobody_wrote_them_is_told_from_nobody_knows() {
        assert_eq!(condensed(json!([])), None);
        let nothing = json!([{ "fieldsV1": { "f:spec": {} } }]);
        assert_eq!(condensed(json!([{ "fieldsV1": { "f:data": {} } }])), Some(nothing.clone()));
        for wrong in [json!(null), json!(7), json!({ "f:spec": [1] }), json!({ "f:spec": { "f:ports": "x" } })] {
            assert_eq!(condensed(json!([{ "fieldsV1": wrong }])), Some(nothing.clone()));
        }
    }
}
