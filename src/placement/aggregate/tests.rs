//! Tests of the status of a source.

use serde_json::{Value, json};

use super::*;

fn copy(cluster: &str, status: Value) -> CopyStatus {
    CopyStatus {
        cluster: cluster.to_owned(),
        applied: true,
        generation: 1,
        status: Some(status),
        ..CopyStatus::default()
    }
}

fn silent(cluster: &str) -> CopyStatus {
    CopyStatus { cluster: cluster.to_owned(), ..CopyStatus::default() }
}

fn group_of(kind: &str) -> &'static str {
    placeable::PLACEABLE.iter().find(|entry| entry.kind == kind).map_or("example.com", |entry| entry.group)
}

fn source<'a>(kind: &'a str, copies: &'a [CopyStatus]) -> Source<'a> {
    Source { group: group_of(kind), kind, generation: 7, duplicate: false, withheld: 0, copies }
}

fn status(kind: &str, copies: &[CopyStatus]) -> Value {
    source(kind, copies).aggregate_status().into()
}

fn write(kind: &str, copies: &[CopyStatus], previous: &Value) -> Option<Value> {
    source(kind, copies).status_to_write(previous, "2026-01-05T00:00:00Z".parse().unwrap())
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn find<'v>(status: &'v Value, type_: &str) -> &'v Value {
    status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == type_).unwrap_or(&Value::Null)
}

fn deployment(conditions: &[Value]) -> Value {
    json!({ "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3, "observedGeneration": 1,
        "conditions": conditions })
}

const TRUE: &str = "True";
const FALSE: &str = "False";

fn complete() -> Value {
    condition("Progressing", TRUE, "NewReplicaSetAvailable", "has successfully progressed.")
}

fn available() -> Value {
    condition("Available", TRUE, "MinimumReplicasAvailable", "Deployment has minimum availability.")
}

#[test]
fn withheld_replicas_are_missing_ones() {
    let copies = [copy("a", deployment(&[available(), complete()]))];
    let source = Source { withheld: 3, ..source("Deployment", &copies) };
    let found: Value = source.aggregate_status().into();
    assert_eq!(found["unavailableReplicas"], 3);
    let missing = find(&found, "Available");
    assert_eq!(missing["message"], "no cluster has room for 3 replicas");
    assert_eq!((&missing["status"], &missing["reason"]), (&json!(FALSE), &json!("MinimumReplicasUnavailable")));
    assert_ne!(find(&found, "Progressing")["reason"], "NewReplicaSetAvailable");
}

#[test]
fn one_copy_has_its_conditions_word_for_word() {
    let stuck =
        condition("Progressing", FALSE, "ProgressDeadlineExceeded", "ReplicaSet \"web-1\" has timed out progressing.");
    let failure = condition("ReplicaFailure", TRUE, "FailedCreate", "exceeded quota: none");
    let short =
        condition("Available", FALSE, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.");
    let all = [short, stuck, failure];
    assert_eq!(status("Deployment", &[copy("a", deployment(&all))])["conditions"], json!(all));
}

fn complete_copy(cluster: &str) -> CopyStatus {
    copy(cluster, deployment(&[available(), complete()]))
}

#[test]
fn of_several_copies_the_worst_decides_and_is_named() {
    let stuck = condition("Progressing", FALSE, "ProgressDeadlineExceeded", "timed out");
    let updated = condition("Progressing", TRUE, "ReplicaSetUpdated", "at work");
    for (other, status_, reason, message) in [
        (complete(), TRUE, "NewReplicaSetAvailable", "has successfully progressed."),
        (updated, TRUE, "ReplicaSetUpdated", "at work; on b"),
        (stuck, FALSE, "ProgressDeadlineExceeded", "timed out; on b"),
    ] {
        let found = status("Deployment", &[complete_copy("a"), copy("b", deployment(&[available(), other]))]);
        let found = find(&found, "Progressing");
        assert_eq!(found["status"], status_);
        assert_eq!((&found["reason"], &found["message"]), (&json!(reason), &json!(message)));
    }
    let found = status("Deployment", &[complete_copy("a"), silent("b")]);
    assert_eq!(find(&found, "Available")["status"], FALSE);
    assert_ne!(find(&found, "Progressing")["reason"], "NewReplicaSetAvailable");
    let found = status(
        "Deployment",
        &[
            complete_copy("a"),
            copy(
                "b",
                deployment(&[
                    available(),
                    complete(),
                    condition("ReplicaFailure", TRUE, "FailedCreate", "exceeded quota"),
                ]),
            ),
        ],
    );
    assert_eq!(find(&found, "ReplicaFailure")["message"], "exceeded quota; on b");
}

fn leaving_copy() -> CopyStatus {
    CopyStatus { leaving: true, ..complete_copy("a") }
}

#[test]
fn while_something_moves_the_better_of_both_sides_counts() {
    let new =
        copy("b", json!({ "replicas": 3, "updatedReplicas": 3, "unavailableReplicas": 3, "observedGeneration": 1 }));
    let moving = [leaving_copy(), new.clone()];
    let found: Value = Source { duplicate: true, ..source("Deployment", &moving) }.aggregate_status().into();
    assert_eq!((found["readyReplicas"].as_i64(), found["observedGeneration"].as_i64()), (Some(3), Some(7)));
    assert_eq!(find(&found, "Available")["status"], TRUE);
    let ready = [leaving_copy(), complete_copy("b")];
    assert_eq!(status("Deployment", &ready)["replicas"], 3, "one side only");
    let lost = [CopyStatus { lost: Some("no report".to_owned()), ..leaving_copy() }, new.clone()];
    assert_eq!(status("Deployment", &lost)["readyReplicas"], 0, "what is lost serves nobody");
    let divided = [leaving_copy(), new, complete_copy("c")];
    assert_eq!(status("Deployment", &divided)["readyReplicas"], 6);
}

#[test]
fn pods_that_terminate_are_counted_where_they_are_reported() {
    let terminating = |cluster: &str, count: i64| {
        let mut status = deployment(&[available(), complete()]);
        status["terminatingReplicas"] = count.into();
        copy(cluster, status)
    };
    let copies = [terminating("a", 1), complete_copy("b"), terminating("c", 2)];
    assert_eq!(status("Deployment", &copies)["terminatingReplicas"], 3);
    let whole: Value = Source { duplicate: true, ..source("ReplicaSet", &copies) }.aggregate_status().into();
    assert_eq!(whole["terminatingReplicas"], 2);
    assert_eq!(status("Deployment", &[terminating("a", 0)])["terminatingReplicas"], 0);
    assert_eq!(status("Deployment", &[complete_copy("b")]).get("terminatingReplicas"), None);
    assert_eq!(status("StatefulSet", &copies).get("terminatingReplicas"), None, "its status has no such field");
    let former = write("Deployment", &copies, &Value::Null).unwrap();
    assert_eq!(write("Deployment", &[], &former).unwrap().get("terminatingReplicas"), None);
    assert!(placeable::reported_fields("apps", "Deployment").contains(&"terminatingReplicas"));
}

#[test]
fn a_scaled_workload_is_complete_as_its_source_asks() {
    let scaled = |count: i64, running: i64| {
        let mut status = deployment(&[available(), complete()]);
        for field in ["replicas", "updatedReplicas", "readyReplicas"] {
            status[field] = count.into();
        }
        status["availableReplicas"] = running.into();
        status["unavailableReplicas"] = (count - running).into();
        CopyStatus { asked: Some(5), ..copy("a", status) }
    };
    for count in [2, 9] {
        let found = status("Deployment", &[scaled(count, count)]);
        for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
            assert_eq!(found[field], 5, "{field} of {count}");
        }
        assert_eq!(found["unavailableReplicas"], 0);
        let rolling = status("Deployment", &[scaled(count, count - 1)]);
        assert_eq!((&rolling["replicas"], &rolling["availableReplicas"]), (&json!(count), &json!(count - 1)));
    }
    let alone = CopyStatus { asked: None, ..scaled(2, 2) };
    assert_eq!(status("Deployment", &[alone])["replicas"], 2);
    let paused = CopyStatus { asked: Some(0), ..scaled(2, 2) };
    assert_eq!(status("Deployment", &[paused])["replicas"], 2);
}

fn lost_copy(cluster: &str) -> CopyStatus {
    CopyStatus { lost: Some("its agent has not reported".to_owned()), ..complete_copy(cluster) }
}

#[test]
fn a_workload_of_lost_clusters_is_not_available() {
    for kind in ["Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"] {
        let found = status(kind, &[lost_copy("a")]);
        let found = find(&found, "Available");
        assert_eq!((&found["status"], &found["reason"]), (&json!(FALSE), &json!("ClusterLost")), "{kind}");
        assert!(found["message"].as_str().unwrap().starts_with("cluster \"a\" is lost: its agent has not reported"));
        let found = status(kind, &[lost_copy("a"), complete_copy("b")]);
        assert_ne!(find(&found, "Available")["reason"], "ClusterLost", "{kind}: one of two");
    }
    let previous = json!({ "replicas": 1, "conditions": [condition("Available", FALSE, "ClusterLost", "x")] });
    let back = write("StatefulSet", &[copy("a", json!({ "replicas": 1 }))], &previous).unwrap();
    assert_eq!(back.get("conditions"), None, "it is found again");
}

#[test]
fn a_workload_without_a_copy_runs_no_pods() {
    let previous = deployment(&[available(), complete()]);
    let written = write("Deployment", &[], &previous).unwrap();
    assert_eq!((&written["replicas"], &written["availableReplicas"]), (&json!(0), &json!(0)), "{written}");
    let now = find(&written, "Available");
    assert_eq!((&now["status"], &now["lastTransitionTime"]), (&json!(FALSE), &json!("2026-01-05T00:00:00Z")), "{now}");
    assert_eq!(find(&written, "Progressing")["status"], TRUE);
    assert_eq!(write("Deployment", &[], &written), None, "once");
    let set = json!({ "replicas": 2, "readyReplicas": 2, "currentRevision": "db-1", "updateRevision": "db-1" });
    let written = write("StatefulSet", &[], &set).unwrap();
    assert_eq!((&written["readyReplicas"], &written["updateRevision"]), (&json!(0), &json!("db-1")));
    let daemons = json!({ "desiredNumberScheduled": 3, "numberReady": 3 });
    assert_eq!(write("DaemonSet", &[], &daemons).unwrap()["numberReady"], 0);
    // What has not run yet says nothing, and what runs once said its last.
    assert_eq!(write("Deployment", &[], &json!({})), None);
    assert_eq!(write("Job", &[], &json!({ "active": 1 })), None);
    assert_eq!(write("Pod", &[], &json!({ "phase": "Running" })), None);
}

#[test]
fn nothing_is_taken_back_because_a_copy_is_new() {
    let whole = write("Deployment", &[complete_copy("a")], &Value::Null).unwrap();
    assert_eq!(whole["observedGeneration"], 7);
    let found = write("Deployment", &[silent("a")], &whole).unwrap();
    assert_eq!(
        (&found["observedGeneration"], find(&found, "Progressing")["reason"].as_str()),
        (&json!(7), Some("NewReplicaSetAvailable"))
    );
    let failure = condition("ReplicaFailure", TRUE, "FailedCreate", "x");
    let failed = write("Deployment", &[copy("a", deployment(&[available(), complete(), failure]))], &whole).unwrap();
    let healed = write("Deployment", &[complete_copy("a")], &failed).unwrap();
    assert_eq!(find(&healed, "ReplicaFailure"), &Value::Null);
}

#[test]
fn the_same_status_is_written_once() {
    for kind in
        ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod", "Service", "PodDisruptionBudget", "Widget"]
    {
        let copies = [
            copy("a", deployment(&[available(), condition("Ready", TRUE, "R", "")])),
            copy("b", deployment(&[available()])),
        ];
        if let Some(first) = write(kind, &copies, &Value::Null) {
            assert_eq!(write(kind, &copies, &first), None, "{kind}");
        }
    }
    assert_eq!(write("Service", &[copy("a", json!({ "loadBalancer": {} }))], &json!({})), None);
    assert_eq!(write("ConfigMap", &[copy("a", json!({ "x": 1 }))], &Value::Null), None);
}

#[test]
fn transition_times_move_only_with_the_status() {
    let previous = json!({ "conditions": [condition("Available", TRUE, "MinimumReplicasAvailable", "x")] });
    for (status_, expected) in [(TRUE, "2026-01-01T00:00:00Z"), (FALSE, "2026-01-03T00:00:00Z")] {
        let later = json!({ "type": "Available", "status": status_, "lastTransitionTime": "2026-01-03T00:00:00Z" });
        let copies = ["a", "b"].map(|cluster| copy(cluster, deployment(std::slice::from_ref(&later))));
        let found = write("Deployment", &copies, &previous).unwrap();
        assert_eq!(find(&found, "Available")["lastTransitionTime"], expected);
    }
    let without = copy("a", deployment(&[json!({ "type": "Available", "status": TRUE })]));
    let found = write("Deployment", &[without], &Value::Null).unwrap();
    assert_eq!(find(&found, "Available")["lastTransitionTime"], "2026-01-05T00:00:00Z");
}

fn done_job(time: &str) -> Value {
    json!({ "succeeded": 1, "active": 0, "startTime": "2026-01-01T00:00:00Z", "completionTime": time,
        "conditions": [condition("Complete", TRUE, "", "")] })
}

#[test]
fn a_job_ends_as_an_api_server_takes_it() {
    let copies = [copy("a", done_job("2026-01-01T00:01:00Z")), copy("b", done_job("2026-01-01T00:02:00Z"))];
    let found = write("Job", &copies, &json!({ "startTime": "2025-12-31T00:00:00Z", "failed": 4 })).unwrap();
    assert_eq!(found["conditions"][0]["type"], "SuccessCriteriaMet");
    assert_eq!(found["conditions"][1]["type"], "Complete");
    assert_eq!(
        (&found["startTime"], &found["completionTime"]),
        (&json!("2025-12-31T00:00:00Z"), &json!("2026-01-01T00:02:00Z"))
    );
    assert_eq!((&found["succeeded"], &found["failed"]), (&json!(2), &json!(4)), "counters never fall");
    assert_eq!(write("Job", &[copy("a", json!({ "succeeded": 3 }))], &found), None, "nothing changes after the end");
    let failed =
        copy("b", json!({ "failed": 1, "conditions": [condition("Failed", TRUE, "BackoffLimitExceeded", "limit")] }));
    let active = copy("a", json!({ "active": 2, "ready": 1, "terminating": 1 }));
    let found = write("Job", &[active, failed], &json!({})).unwrap();
    assert_eq!((&found["active"], &found["ready"], &found["terminating"]), (&json!(0), &json!(0), &json!(0)));
    assert_eq!(found["conditions"][0]["type"], "FailureTarget");
    let end = find(&found, "Failed");
    assert_eq!((&end["reason"], &end["message"]), (&json!("BackoffLimitExceeded"), &json!("limit; on b")));
    assert!(found["startTime"].is_string() && found.get("completionTime").is_none());
    let early = copy(
        "a",
        json!({ "startTime": "2026-01-02T00:00:00Z", "completionTime": "2026-01-01T00:00:00Z",
        "conditions": [condition("Complete", TRUE, "x", "")] }),
    );
    assert_eq!(write("Job", &[early], &json!({})).unwrap()["completionTime"], "2026-01-02T00:00:00Z");
}

fn running_pod_status(phase: &str, ready: &str) -> Value {
    json!({ "phase": phase, "podIP": "10.0.0.1", "conditions": [condition("Ready", ready, "R", "")],
        "containerStatuses": [{ "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 1,
            "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } }, { "name": 5 }, 7] })
}

#[test]
fn the_worst_pod_counts_and_shows_its_containers() {
    let found = status(
        "Pod",
        &[copy("a", running_pod_status("Running", TRUE)), copy("b", running_pod_status("Pending", FALSE))],
    );
    assert_eq!((&found["phase"], &find(&found, "Ready")["status"]), (&json!("Pending"), &json!(FALSE)));
    let found = status("Pod", &[copy("a", running_pod_status("Running", TRUE))]);
    assert_eq!((&found["podIP"], &found["podIPs"]), (&json!("10.0.0.1"), &json!([{ "ip": "10.0.0.1" }])));
    assert_eq!(found["containerStatuses"].as_array().unwrap().len(), 1);
    assert_eq!(found["containerStatuses"][0]["state"]["running"]["startedAt"], "2026-01-01T00:00:00Z");
    assert_eq!(write("Pod", &[copy("a", running_pod_status("Running", TRUE))], &json!({ "phase": "Succeeded" })), None);
    assert_eq!(write("Pod", &[silent("a")], &json!({ "phase": "Pending" })), None);
    let mapped = json!({ "phase": "Running", "podIP": "::ffff:1.2.3.4" });
    assert_eq!(status("Pod", &[copy("a", mapped)]).get("podIP"), None);
}

fn bound_claim(size: &str) -> Value {
    json!({ "phase": "Bound", "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce", "x"] })
}

#[test]
fn a_claim_has_the_least_capacity_of_its_copies() {
    let found = status("PersistentVolumeClaim", &[copy("a", bound_claim("2Gi")), copy("b", bound_claim("1500Mi"))]);
    assert_eq!(
        found,
        json!({ "phase": "Bound", "capacity": { "storage": "1500Mi" }, "accessModes": ["ReadWriteOnce"] })
    );
}

fn stateful_set_revisions(current: &str, update: &str) -> Value {
    json!({ "currentRevision": current, "updateRevision": update })
}

#[test]
fn a_stateful_set_has_the_revisions_of_the_copy_that_is_behind() {
    let found = status(
        "StatefulSet",
        &[copy("a", stateful_set_revisions("w-2", "w-2")), copy("b", stateful_set_revisions("w-1", "w-2"))],
    );
    assert_eq!((&found["currentRevision"], &found["updateRevision"]), (&json!("w-1"), &json!("w-2")));
    assert_eq!(status("StatefulSet", &[copy("a", stateful_set_revisions("W 1", "w-2"))]).get("currentRevision"), None);
}

fn widget_status(ready: &str, generation: i64) -> Value {
    let mut one = condition("Ready", ready, "R", "m");
    one["observedGeneration"] = generation.into();
    json!({ "color": "red", "observedGeneration": generation, "conditions": [one] })
}

#[test]
fn an_added_kind_has_the_status_of_its_copy_or_their_conditions() {
    let found = status("Widget", &[copy("a", widget_status(TRUE, 1))]);
    assert_eq!((&found["color"], &found["observedGeneration"]), (&json!("red"), &json!(7)));
    assert_eq!(find(&found, "Ready")["observedGeneration"], 7);
    let found = status("Widget", &[copy("a", widget_status(TRUE, 0))]);
    assert_eq!((found.get("observedGeneration"), &find(&found, "Ready")["observedGeneration"]), (None, &json!(6)));
    let stalled = json!({ "observedGeneration": 1, "conditions": [condition("Stalled", TRUE, "S", "no")] });
    let found =
        status("Widget", &[copy("a", widget_status(TRUE, 1)), copy("b", widget_status(FALSE, 1)), copy("c", stalled)]);
    assert_eq!(
        (&find(&found, "Ready")["status"], &find(&found, "Ready")["message"]),
        (&json!(FALSE), &json!("m; on b"))
    );
    assert_eq!((&find(&found, "Stalled")["status"], found.get("color")), (&json!(TRUE), None));
    let found = status("Widget", &[copy("a", widget_status(TRUE, 1)), silent("b")]);
    assert_eq!(find(&found, "Ready")["status"], "Unknown");
    let job = [copy("a", json!({ "state": "x" }))];
    let foreign = Source { group: "batch.example.com", ..source("Job", &job) };
    assert_eq!(Value::Object(foreign.aggregate_status()), json!({ "state": "x" }), "a kind is known by its group too");
}

#[test]
fn budgets_and_autoscalers_have_their_conditions() {
    let mut allowed = condition("DisruptionAllowed", TRUE, "SufficientPods", "");
    allowed["observedGeneration"] = 1.into();
    let budget = status(
        "PodDisruptionBudget",
        &[copy("a", json!({ "currentHealthy": 2, "observedGeneration": 1, "conditions": [allowed] }))],
    );
    assert_eq!(find(&budget, "DisruptionAllowed")["observedGeneration"], 7);
    let scaler = json!({ "currentReplicas": 2, "lastScaleTime": "2026-01-01T00:00:00Z", "currentMetrics": [5, { "type": "Resource",
        "resource": { "name": "cpu", "current": { "averageUtilization": 5, "averageValue": "1m" } } }],
        "conditions": [condition("ScalingActive", TRUE, "ValidMetricFound", "m")] });
    let found = status("HorizontalPodAutoscaler", &[copy("a", scaler)]);
    assert_eq!(
        (&find(&found, "ScalingActive")["reason"], found["currentMetrics"].as_array().unwrap().len()),
        (&json!("ValidMetricFound"), 1)
    );
}

#[test]
fn one_agents_nonsense_leaves_a_status_that_the_api_server_takes() {
    let most = i64::from(i32::MAX);
    for (bad, replicas, ready, available) in [
        (json!({ "replicas": -7, "readyReplicas": -1 }), 2, 2, 2),
        (json!({ "replicas": 9_000_000_000_000_000_000_i64, "readyReplicas": i64::MAX }), most, most, 2),
        (json!({ "replicas": 1, "readyReplicas": 5, "availableReplicas": 9 }), 3, 3, 3),
        (
            json!({ "replicas": "x", "readyReplicas": { "a": 1 }, "conditions": [{ "type": 5 }, "x", { "type": "a b" }] }),
            2,
            2,
            2,
        ),
    ] {
        for kind in ["Deployment", "StatefulSet", "ReplicaSet"] {
            let found = status(
                kind,
                &[
                    copy("a", json!({ "replicas": 2, "readyReplicas": 2, "availableReplicas": 2 })),
                    copy("b", bad.clone()),
                ],
            );
            let numbers =
                ["replicas", "readyReplicas", "availableReplicas"].map(|field| found[field].as_i64().unwrap());
            assert_eq!(numbers, [replicas, ready, available], "{kind} {bad}");
            assert_eq!(found.get("conditions"), None);
        }
    }
    let copies = [copy("b", json!({ "unavailableReplicas": 5 }))];
    let lost: Value = Source { withheld: i64::MAX, ..source("Deployment", &copies) }.aggregate_status().into();
    assert_eq!(lost["unavailableReplicas"], most);
    let job = json!({ "ready": 9, "active": 2, "failed": -3, "startTime": "never", "succeeded": 1e30 });
    assert_eq!(status("Job", &[copy("b", job)]), json!({ "ready": 2, "active": 2, "failed": 0, "succeeded": 0 }));
    let ingress = json!([{ "ip": "6.6.6.6", "x": 1 }, { "ip": "no" }, { "hostname": "a..b" }, 5, { "ip": 5 },
        { "hostname": "lb.example.com", "ports": [{ "port": 80, "protocol": "TCP" }, { "port": 99999 }] }]);
    let found = status("Service", &[copy("b", json!({ "loadBalancer": { "ingress": ingress } }))]);
    let expected = json!([{ "hostname": "lb.example.com", "ports": [{ "port": 80, "protocol": "TCP" }] },
        { "ip": "6.6.6.6" }]);
    assert_eq!(found["loadBalancer"]["ingress"], expected);
    let many: Vec<Value> = (0..500).map(|n| json!({ "ip": format!("10.0.{}.{}", n / 250, n % 250) })).collect();
    let found = status("Service", &[copy("b", json!({ "loadBalancer": { "ingress": many } }))]);
    assert_eq!(found["loadBalancer"]["ingress"].as_array().unwrap().len(), 100);
    let active = json!({ "active": [5, { "name": "j", "uid": 3 }], "lastScheduleTime": "9999-99-99" });
    assert_eq!(status("CronJob", &[copy("b", active)]), json!({ "active": [{ "name": "j" }] }));
    let mode = json!({ "loadBalancer": { "ingress": [{ "ip": "6.6.6.6", "ipMode": "VIP" }] } });
    assert_eq!(status("Ingress", &[copy("b", mode)])["loadBalancer"]["ingress"], json!([{ "ip": "6.6.6.6" }]));
}

#[test]
fn a_status_stays_small_enough_to_be_compared() {
    let active: Vec<Value> =
        (0..100).map(|n| json!({ "name": format!("{n}-{}", "j".repeat(240)), "uid": "u" })).collect();
    let found = write("CronJob", &[copy("a", json!({ "active": active }))], &Value::Null).unwrap();
    assert!(found.to_string().len() <= LARGEST && found["active"].as_array().unwrap().len() > 10);
}

fn cron_job_status(time: &str) -> Value {
    json!({ "active": [{ "name": "j", "resourceVersion": time }], "lastScheduleTime": time })
}

#[test]
fn cron_jobs_have_the_latest_times() {
    let copies =
        [copy("a", cron_job_status("2026-01-02T00:00:00Z")), copy("b", cron_job_status("2026-01-01T00:00:00Z"))];
    let found = status("CronJob", &copies);
    assert_eq!(
        found,
        json!({ "active": [{ "name": "j" }, { "name": "j" }], "lastScheduleTime": "2026-01-02T00:00:00Z" })
    );
    let moved = write("CronJob", &[copy("b", json!({}))], &found).unwrap();
    assert_eq!(moved["lastScheduleTime"], "2026-01-02T00:00:00Z", "a new copy takes no time back");
}
