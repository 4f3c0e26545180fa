//! The CRDs, generated from the Rust types: the charts' `bootstrap/crd-*.yaml` are what this code prints.

use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::api::{Cluster, ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};

/// Builds the CRDs: of each its plural name, and the object as JSON.
fn build_crds() -> Vec<(&'static str, Value)> {
    [
        ("clusters", Cluster::crd()),
        ("schedulepolicies", SchedulePolicy::crd()),
        ("schedulegroups", ScheduleGroup::crd()),
        ("schedules", Schedule::crd()),
        ("clusterreports", ClusterReport::crd()),
    ]
    .into_iter()
    .map(|(plural, crd)| (plural, normalize_schema(serde_json::to_value(crd).expect("a CRD is plain data"))))
    .map(|(plural, mut crd)| {
        for place in WRITTEN_BY_AGENTS.iter().filter(|(of, _)| *of == plural).map(|(_, place)| place) {
            let schema = crd.pointer_mut(&format!("/spec/versions/0/schema/openAPIV3Schema/properties/{place}"));
            without_control_characters(schema.expect("a part of every CRD of this name"), "");
        }
        (plural, crd)
    })
    .collect()
}

/// Parts of objects that agents write, or the scheduler for them, by the plural name of the CRD: programs print much of
/// it as it is.
const WRITTEN_BY_AGENTS: [(&str, &str); 4] =
    [("clusters", "spec"), ("clusters", "status"), ("schedules", "status"), ("clusterreports", "spec")];

/// Pattern of a text without characters that a terminal acts on (C0, DEL and C1).
const ONE_LINE: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";

/// Pattern of a message, which is the same but may have line breaks and tabs.
const LINES: &str = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$";

/// Bounds every text below a schema that no pattern, enumeration or format bounds. The API server continues taking an
/// object whose stored text does not match, as long as the text does not change.
fn without_control_characters(schema: &mut Value, field: &str) {
    let is_bounded = ["pattern", "enum", "format"].iter().any(|bound| schema.get(*bound).is_some());
    if schema["type"] == "string" && !is_bounded {
        schema["pattern"] = if field == "message" { LINES } else { ONE_LINE }.into();
    }
    for (name, below) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        without_control_characters(below, name);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(below).filter(|below| below.is_object()) {
            without_control_characters(below, "");
        }
    }
}

/// Drops what the generator says about Rust rather than about the API: an `Option` means that a field may be absent, not
/// that `null` is a value of it; unsigned formats are unknown to Kubernetes; bounds of integers are integers.
fn normalize_schema(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.remove("nullable");
            if map.get("format").and_then(Value::as_str).is_some_and(|f| f.starts_with("uint")) {
                map.remove("format");
            }
            for key in ["minimum", "maximum"] {
                if let Some(whole) =
                    map.get(key).and_then(Value::as_f64).and_then(|n| format!("{n:.0}").parse::<i64>().ok())
                {
                    map.insert(key.to_owned(), whole.into());
                }
            }
            map.values_mut().for_each(|v| *v = normalize_schema(v.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|v| *v = normalize_schema(v.take())),
        _ => {}
    }
    value
}

/// Every CustomResourceDefinition of the control plane's API.
pub fn list_crds() -> Vec<Value> {
    build_crds().into_iter().map(|(_, crd)| crd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn yaml(crd: &Value) -> String {
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        let mut text = String::new();
        serde_saphyr::to_fmt_writer_with_options(&mut text, crd, options).unwrap();
        format!("# Generated from src/api: UPDATE=1 cargo test --lib api::crd::crds\n{text}")
    }

    #[test]
    fn the_charts_crds_are_what_the_types_say() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/control-plane/v0.6/bootstrap");
        for (plural, crd) in build_crds() {
            let file = folder.join(format!("crd-{plural}.yaml"));
            if std::env::var_os("UPDATE").is_some() {
                fs_err::create_dir_all(&folder).unwrap();
                fs_err::write(&file, yaml(&crd)).unwrap();
            }
            let found = fs_err::read_to_string(&file).unwrap_or_default();
            assert!(found == yaml(&crd), "{} is out of date: UPDATE=1 cargo test --lib api::crd::crds", file.display());
            assert_eq!(serde_saphyr::from_str::<Value>(&found).unwrap(), crd);
        }
    }

    #[test]
    fn a_crd_is_no_template() {
        // The packager renders the bootstrap folder; braces in a description would be taken for a template.
        for (plural, crd) in build_crds() {
            let text = yaml(&crd);
            assert!(["{{", "{%", "{#"].iter().all(|mark| !text.contains(mark)), "{plural}");
        }
    }

    #[test]
    fn node_maps_are_opaque_to_the_api_server() {
        let cluster = build_crds().remove(0).1;
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        for map in ["availableResources", "capacityResources", "nodeTaints"] {
            let schema = cluster.pointer(&format!("{status}/{map}")).unwrap();
            assert_eq!(schema["x-kubernetes-map-type"], "atomic", "{map}");
            assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true, "{map}");
            assert!(schema.get("additionalProperties").is_none(), "{map}");
        }
    }

    #[test]
    fn what_agents_write_has_no_control_characters() {
        fn texts<'s>(schema: &'s Value, place: &str, found: &mut Vec<(String, &'s Value)>) {
            if schema["type"] == "string" {
                found.push((place.to_owned(), schema));
            }
            for (key, below) in schema.as_object().into_iter().flatten() {
                texts(below, &format!("{place}/{key}"), found);
            }
            for below in schema.as_array().into_iter().flatten() {
                texts(below, place, found);
            }
        }
        let all = build_crds();
        let mut found = Vec::new();
        for (plural, crd) in &all {
            let root = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties").unwrap();
            for (_, place) in WRITTEN_BY_AGENTS.iter().filter(|(of, _)| of == plural) {
                texts(&root[*place], &format!("{plural}/{place}"), &mut found);
            }
        }
        assert!(found.len() > 30, "{}", found.len());
        for (place, schema) in found {
            // Kubernetes checks a time before it stores it, and no enumeration here has such a character.
            if schema.get("enum").is_some() || schema["format"] == "date-time" {
                continue;
            }
            let pattern =
                regex_lite::Regex::new(schema["pattern"].as_str().unwrap_or_else(|| panic!("{place}"))).unwrap();
            for harmful in ["a\u{1b}[2J", "a\0", "a\u{7f}", "a\u{9b}2J", "a\r"] {
                assert!(!pattern.is_match(harmful), "{place} {harmful:?}");
            }
            let is_message = place.ends_with("/message");
            assert_eq!(pattern.is_match("two\nlines\t"), is_message, "{place}");
            let free = [ONE_LINE, LINES].contains(&pattern.as_str());
            assert!(!free || (pattern.is_match("") && pattern.is_match("ünï … 漢字")), "{place}");
        }
        // What only the control plane writes has objects of users in it.
        let schedules = &all.iter().find(|(plural, _)| *plural == "schedules").unwrap().1;
        let manifest = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/manifest/pattern";
        assert_eq!(schedules.pointer(manifest), None);
    }

    #[test]
    fn the_cluster_listing_has_the_specified_columns_in_order() {
        let cluster = build_crds().remove(0).1;
        let columns: Vec<_> = cluster["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| c.get("priority").is_none_or(|p| *p == 0))
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(columns, ["K8S-VERSION", "K8S-CLUSTER", "REGION", "ZONE", "READY", "IDLE", "STANDBY"]);
    }
}
