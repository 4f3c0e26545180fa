//! The status of a source.

use fleetctl::api::placeable::PLACEABLE;
use fleetctl::placement::aggregate::{CopyStatus, Source};
use serde_json::Value;

use crate::support::check;

/// Returns the API group of a kind of the cases.
fn group_of(kind: &str) -> &'static str {
    PLACEABLE.iter().find(|entry| entry.kind == kind).unwrap().group
}

fn run(_: &str, case: &Value) -> Value {
    let copy = |value: &Value| CopyStatus {
        cluster: value["cluster"].as_str().unwrap().to_owned(),
        applied: value["applied"].as_bool().unwrap(),
        generation: value["generation"].as_i64().unwrap(),
        status: value.get("status").filter(|status| !status.is_null()).cloned(),
        ..CopyStatus::default()
    };
    let copies: Vec<CopyStatus> = case["copies"].as_array().unwrap().iter().map(copy).collect();
    let kind = case["kind"].as_str().unwrap();
    let source = Source {
        group: group_of(kind),
        kind,
        generation: case["generation"].as_i64().unwrap(),
        duplicate: case.get("mode").and_then(Value::as_str) == Some("Duplicate"),
        withheld: case.get("withheld").and_then(Value::as_i64).unwrap_or_default(),
        copies: &copies,
    };
    let mut status = source.aggregate_status();
    // The cases hold the end of a Job without what an API server demands beside it, and addresses, without what is around
    // them.
    if let (Some(conditions), "Job") = (status.remove("conditions"), source.kind) {
        let ends = |one: &&Value| one["type"] == "Complete" || one["type"] == "Failed";
        let end = conditions.as_array().into_iter().flatten().find(ends).unwrap();
        status.insert("condition".to_owned(), end["type"].clone());
        status.extend(end.get("message").map(|message| ("message".to_owned(), message.clone())));
    }
    if let Some(balancer) = status.remove("loadBalancer") {
        status.insert("ingress".to_owned(), balancer["ingress"].clone());
    }
    status.into()
}

#[test]
fn aggregate_cases() {
    check("aggregate.json", 9, run);
}
