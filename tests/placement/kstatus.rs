//! What tools that go by kstatus read in the status of a source: current where its copies are, failed where one is.

use fleetctl::diagnose::kstatus::{State, evaluate_status};
use fleetctl::placement::aggregate::{CopyStatus, Source};
use serde_json::{Value, json};

use crate::aggregate::group_of;

/// A status of a copy of each kind, and the state that the object with that status is in, by the rules of kstatus.
fn reported() -> Vec<(&'static str, Value, State)> {
    let is = |type_: &str, status: &str, reason: &str| {
        json!({ "type": type_, "status": status, "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z" })
    };
    let pods = |ready: i64, conditions: Vec<Value>| {
        json!({ "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready, "availableReplicas": ready,
            "currentReplicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 4, "conditions": conditions,
            "currentRevision": "w-1", "updateRevision": "w-1" })
    };
    let nodes = |available: i64| {
        json!({ "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "updatedNumberScheduled": 2,
            "numberReady": available, "numberAvailable": available, "observedGeneration": 4 })
    };
    let start = "2026-01-01T00:00:00Z";
    let deployed = vec![is("Available", "True", "MinimumReplicasAvailable"), is("Progressing", "True", "NewReplicaSetAvailable")];
    let stuck =
        vec![is("Available", "False", "MinimumReplicasUnavailable"), is("Progressing", "False", "ProgressDeadlineExceeded")];
    vec![
        ("Deployment", pods(2, deployed), State::Current),
        ("Deployment", pods(0, stuck), State::Failed),
        ("Deployment", pods(1, vec![is("Available", "False", "MinimumReplicasUnavailable")]), State::InProgress),
        ("StatefulSet", pods(2, vec![]), State::Current),
        ("StatefulSet", pods(1, vec![]), State::InProgress),
        ("ReplicaSet", pods(2, vec![]), State::Current),
        ("DaemonSet", nodes(2), State::Current),
        ("DaemonSet", nodes(1), State::InProgress),
        (
            "Job",
            json!({ "succeeded": 2, "startTime": start, "completionTime": start,
                "conditions": [is("Complete", "True", "CompletionsReached")] }),
            State::Current,
        ),
        (
            "Job",
            json!({ "failed": 7, "startTime": start, "conditions": [is("Failed", "True", "BackoffLimitExceeded")] }),
            State::Failed,
        ),
        ("Job", json!({ "active": 1, "startTime": start }), State::InProgress),
        ("Pod", json!({ "phase": "Running", "conditions": [is("Ready", "True", "R")] }), State::Current),
        ("Pod", json!({ "phase": "Failed", "reason": "Evicted" }), State::Failed),
        ("PersistentVolumeClaim", json!({ "phase": "Bound" }), State::Current),
        ("PersistentVolumeClaim", json!({ "phase": "Lost" }), State::Failed),
        ("Service", json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.1" }] } }), State::Current),
        (
            "PodDisruptionBudget",
            json!({ "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2, "observedGeneration": 4 }),
            State::Current,
        ),
        ("Widget", json!({ "observedGeneration": 4, "conditions": [is("Ready", "True", "R")] }), State::Current),
        ("Widget", json!({ "observedGeneration": 4, "conditions": [is("Stalled", "True", "S")] }), State::Failed),
    ]
}

#[test]
fn a_source_is_current_where_its_copies_are_and_failed_where_one_is() {
    for (kind, status, expected) in reported() {
        for count in [1_i64, 3] {
            let copy = |number: i64| CopyStatus {
                cluster: format!("c{number}"),
                applied: true,
                generation: 4,
                status: Some(status.clone()),
                ..CopyStatus::default()
            };
            let copies: Vec<CopyStatus> = (0..count).map(copy).collect();
            let group = if kind == "Widget" { "example.com" } else { group_of(kind) };
            let source = Source { group, kind, generation: 9, duplicate: false, withheld: 0, copies: &copies };
            let status = source.status_to_write(&Value::Null, "2026-01-05T00:00:00Z".parse().unwrap()).unwrap();
            let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
            let object = json!({ "apiVersion": api_version, "kind": kind, "status": status,
                "metadata": { "name": "a", "namespace": "n", "generation": 9 },
                "spec": { "replicas": 2 * count, "completions": 2 * count, "type": "LoadBalancer" } });
            let found = evaluate_status(&object, None);
            assert_eq!(found.state, expected, "{kind} of {count}: {}; {object}", found.message);
        }
    }
}
