//! The status of a source.

use fleetctl::placement::aggregate::{CopyStatus, Source};
use serde_json::Value;

use crate::support::check;

fn run(_: &str, case: &Value) -> Value {
    let copy = |value: &Value| CopyStatus {
        cluster: value["cluster"].as_str().unwrap().to_owned(),
        applied: value["applied"].as_bool().unwrap(),
        generation: value["generation"].as_i64().unwrap(),
        status: value.get("status").filter(|status| !status.is_null()).cloned(),
    };
    let copies: Vec<CopyStatus> = case["copies"].as_array().unwrap().iter().map(copy).collect();
    let source = Source {
        kind: case["kind"].as_str().unwrap(),
        generation: case["generation"].as_i64().unwrap(),
        duplicate: case.get("mode").and_then(Value::as_str) == Some("Duplicate"),
        withheld: case.get("withheld").and_then(Value::as_i64).unwrap_or_default(),
        copies: &copies,
    };
    let mut status = source.aggregate_status();
    // The cases hold the one condition of a Job, and addresses, without what is around them.
    if let (Some(conditions), "Job") = (status.remove("conditions"), source.kind) {
        status.insert("condition".to_owned(), conditions[0]["type"].clone());
        status.extend(conditions[0].get("message").map(|message| ("message".to_owned(), message.clone())));
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
