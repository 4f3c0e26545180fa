//! What tools that go by kstatus read in the status of a source: current where its copies are, failed where one is.

use std::path::Path;

use fleetctl::diagnose::kstatus::evaluate_status;
use fleetctl::placement::aggregate::{CopyStatus, Source};
use serde_json::{Value, json};

/// Statuses of copies, kind by kind; the tests of the runtime write them to a real API server.
fn reported() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placement/cases/reported.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    document["cases"].as_array().unwrap().clone()
}

fn copies(status: &Value, count: usize) -> Vec<CopyStatus> {
    let copy = |number: usize| CopyStatus {
        cluster: format!("c{number}"),
        applied: true,
        generation: 4,
        status: Some(status.clone()),
        ..CopyStatus::default()
    };
    (0..count).map(copy).collect()
}

#[test]
fn a_source_is_current_where_its_copies_are_and_failed_where_one_is() {
    for case in reported() {
        for count in [1, 3] {
            let copies = copies(&case["status"], count);
            let api_version = case["apiVersion"].as_str().unwrap();
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            let kind = case["kind"].as_str().unwrap();
            let source = Source { group, kind, generation: 9, duplicate: false, withheld: 0, copies: &copies };
            let status =
                source.status_to_write(&Value::Null, "2026-01-05T00:00:00Z".parse().unwrap()).unwrap_or_default();
            let mut spec = case["spec"].clone();
            for field in ["replicas", "completions"] {
                if let Some(number) = spec[field].as_u64() {
                    spec[field] = (number * count as u64).into();
                }
            }
            let object = json!({ "apiVersion": api_version, "kind": kind, "status": status, "spec": spec,
                "metadata": { "name": "a", "namespace": "n", "generation": 9 } });
            let found = evaluate_status(&object, None);
            assert_eq!(format!("{:?}", found.state), case["state"], "{kind} of {count}: {}; {object}", found.message);
        }
    }
}
