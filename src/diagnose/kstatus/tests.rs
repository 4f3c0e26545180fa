//! One table a kind: what the server shows, and what it means.

use serde_json::json;

use super::*;

type Case<'a> = (&'a str, Value, State);

/// Judges `{apiVersion, kind, metadata: {generation: 2}}` merged with each case.
fn check(api_version: &str, kind: &str, cases: &[Case<'_>]) {
    for (name, part, expected) in cases {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "generation": 2}});
        crate::k8s::managed_fields::apply_merge_patch(&mut object, part);
        let status = evaluate_status(&object, None);
        assert_eq!(status.state, *expected, "{kind}, {name}: {}", status.message);
        assert!(!status.message.is_empty(), "{kind}, {name}");
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(evaluate_status(&object, None).state, State::Terminating, "{kind}, {name}");
    }
}

/// An object with one condition.
fn condition_only(kind: &str, status: &str) -> Value {
    json!({"status": {"conditions": [{"type": kind, "status": status, "reason": "r", "message": "m"}]}})
}

fn ready_deployment_with(extra: &Value) -> Value {
    let ready = json!({"spec": {"replicas": 2}, "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2,
        "readyReplicas": 2, "availableReplicas": 2, "conditions": [{"type": "Available", "status": "True"}]}});
    merge_parts(ready, extra)
}

fn merge_parts(mut object: Value, extra: &Value) -> Value {
    crate::k8s::managed_fields::apply_merge_patch(&mut object, extra);
    object
}

#[test]
fn deployment_status() {
    check(
        "apps/v1",
        "Deployment",
        &[
            ("all there", ready_deployment_with(&json!({})), State::Current),
            ("nobody looked", json!({"spec": {"replicas": 1}}), State::InProgress),
            ("an empty status", json!({"status": {}}), State::InProgress),
            (
                "an older generation was seen",
                ready_deployment_with(&json!({"status": {"observedGeneration": 1}})),
                State::InProgress,
            ),
            ("not all updated", ready_deployment_with(&json!({"status": {"updatedReplicas": 1}})), State::InProgress),
            ("old pods are still there", ready_deployment_with(&json!({"status": {"replicas": 3}})), State::InProgress),
            ("not all ready", ready_deployment_with(&json!({"status": {"readyReplicas": 1}})), State::InProgress),
            (
                "not all available",
                ready_deployment_with(&json!({"status": {"availableReplicas": null}})),
                State::InProgress,
            ),
            (
                "not available",
                ready_deployment_with(&json!({"status": {"conditions": [{"type": "Available", "status": "False"}]}})),
                State::InProgress,
            ),
            (
                "gave up",
                ready_deployment_with(
                    &json!({"status": {"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "x"}]}}),
                ),
                State::Failed,
            ),
            ("scaled to zero", json!({"spec": {"replicas": 0}, "status": {"observedGeneration": 2}}), State::Current),
        ],
    );
}

fn ready_stateful_set_with(extra: &Value) -> Value {
    let ready = json!({"spec": {"replicas": 3}, "status": {"observedGeneration": 2, "replicas": 3, "readyReplicas": 3,
        "availableReplicas": 3, "updatedReplicas": 3, "currentRevision": "b", "updateRevision": "b"}});
    merge_parts(ready, extra)
}

#[test]
fn stateful_set_status() {
    check(
        "apps/v1",
        "StatefulSet",
        &[
            ("all there", ready_stateful_set_with(&json!({})), State::Current),
            ("nobody looked", json!({"spec": {"replicas": 1}, "status": {"replicas": 0}}), State::InProgress),
            ("not all ready", ready_stateful_set_with(&json!({"status": {"readyReplicas": 2}})), State::InProgress),
            (
                "ready for too short a time",
                ready_stateful_set_with(&json!({"status": {"availableReplicas": 2}})),
                State::InProgress,
            ),
            (
                "not all updated",
                ready_stateful_set_with(&json!({"status": {"updatedReplicas": 2, "currentRevision": "a"}})),
                State::InProgress,
            ),
            ("one too many", ready_stateful_set_with(&json!({"status": {"replicas": 4}})), State::InProgress),
            (
                "the old revision is still the current one",
                ready_stateful_set_with(&json!({"status": {"currentRevision": "a"}})),
                State::InProgress,
            ),
            (
                "a partition holds two back",
                ready_stateful_set_with(
                    &json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}, "status": {"updatedReplicas": 1, "currentRevision": "a"}}),
                ),
                State::Current,
            ),
            (
                "pods are replaced by hand",
                ready_stateful_set_with(
                    &json!({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"updatedReplicas": 0, "currentRevision": "a"}}),
                ),
                State::Current,
            ),
            (
                "by hand and not ready",
                ready_stateful_set_with(
                    &json!({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"readyReplicas": 0}}),
                ),
                State::InProgress,
            ),
            (
                "one replica is the default",
                json!({"spec": {}, "status": {"observedGeneration": 2, "readyReplicas": 0}}),
                State::InProgress,
            ),
        ],
    );
}

#[test]
fn replica_and_daemon_set_status() {
    check(
        "apps/v1",
        "DaemonSet",
        &[
            (
                "all there",
                json!({"status": {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}}),
                State::Current,
            ),
            ("nobody looked", json!({"status": {"desiredNumberScheduled": 0}}), State::InProgress),
            (
                "not all updated",
                json!({"status": {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2}}),
                State::InProgress,
            ),
            (
                "not all available",
                json!({"status": {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2}}),
                State::InProgress,
            ),
            (
                "no node wants one",
                json!({"status": {"observedGeneration": 2, "desiredNumberScheduled": 0}}),
                State::Current,
            ),
        ],
    );
    check(
        "apps/v1",
        "ReplicaSet",
        &[
            (
                "all there",
                json!({"spec": {"replicas": 2}, "status": {"observedGeneration": 2, "availableReplicas": 2}}),
                State::Current,
            ),
            (
                "not all",
                json!({"spec": {"replicas": 2}, "status": {"observedGeneration": 2, "availableReplicas": 1}}),
                State::InProgress,
            ),
            ("nobody looked", json!({"spec": {"replicas": 2}}), State::InProgress),
        ],
    );
    check(
        "policy/v1",
        "PodDisruptionBudget",
        &[
            (
                "healthy",
                json!({"status": {"observedGeneration": 2, "currentHealthy": 1, "desiredHealthy": 1}}),
                State::Current,
            ),
            (
                "not healthy",
                json!({"status": {"observedGeneration": 2, "currentHealthy": 0, "desiredHealthy": 1}}),
                State::InProgress,
            ),
            ("nobody looked", json!({}), State::InProgress),
        ],
    );
}

#[test]
fn job_status() {
    check(
        "batch/v1",
        "Job",
        &[
            ("begun", json!({"status": {"active": 1, "ready": 1}}), State::InProgress),
            ("complete", condition_only("Complete", "True"), State::Current),
            ("failed", condition_only("Failed", "True"), State::Failed),
            ("failing", condition_only("FailureTarget", "True"), State::Failed),
            ("suspended", json!({"spec": {"suspend": true}}), State::Current),
            ("nobody looked", json!({}), State::InProgress),
        ],
    );
}

#[test]
fn pod_status() {
    check(
        "v1",
        "Pod",
        &[
            (
                "ready",
                json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
                State::Current,
            ),
            (
                "running",
                json!({"status": {"phase": "Running", "containerStatuses": [{"ready": false}]}}),
                State::InProgress,
            ),
            ("succeeded", json!({"status": {"phase": "Succeeded"}}), State::Current),
            ("failed", json!({"status": {"phase": "Failed", "reason": "Evicted"}}), State::Failed),
            ("pending", json!({"status": {"phase": "Pending"}}), State::InProgress),
            ("nobody looked", json!({}), State::InProgress),
        ],
    );
}

#[test]
fn storage_and_service_status() {
    check(
        "v1",
        "PersistentVolumeClaim",
        &[
            ("bound", json!({"status": {"phase": "Bound"}}), State::Current),
            ("pending", json!({"status": {"phase": "Pending"}}), State::InProgress),
            ("lost", json!({"status": {"phase": "Lost"}}), State::Failed),
            ("nobody looked", json!({}), State::InProgress),
        ],
    );
    check(
        "v1",
        "PersistentVolume",
        &[
            ("bound", json!({"status": {"phase": "Bound"}}), State::Current),
            ("failed", json!({"status": {"phase": "Failed"}}), State::Failed),
            ("nobody looked", json!({}), State::InProgress),
        ],
    );
    check(
        "v1",
        "Service",
        &[
            ("inside the cluster", json!({"spec": {"type": "ClusterIP"}}), State::Current),
            (
                "without an address",
                json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {}}}),
                State::InProgress,
            ),
            (
                "with an address",
                json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}}),
                State::Current,
            ),
            (
                "with a name",
                json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"hostname": "a.b"}]}}}),
                State::Current,
            ),
        ],
    );
    check(
        "v1",
        "Namespace",
        &[
            ("active", json!({"status": {"phase": "Active"}}), State::Current),
            ("terminating", json!({"status": {"phase": "Terminating"}}), State::Terminating),
            ("nobody looked", json!({}), State::InProgress),
        ],
    );
}

#[test]
fn served_apis_are_current() {
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[
            ("established", condition_only("Established", "True"), State::Current),
            ("installing", condition_only("Established", "False"), State::InProgress),
            ("names taken", condition_only("NamesAccepted", "False"), State::Failed),
            ("nobody looked", json!({}), State::InProgress),
        ],
    );
    check(
        "apiregistration.k8s.io/v1",
        "APIService",
        &[
            ("available", condition_only("Available", "True"), State::Current),
            ("not available", condition_only("Available", "False"), State::InProgress),
            ("nobody looked", json!({}), State::InProgress),
        ],
    );
    check(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        &[
            (
                "issued",
                json!({"status": {"certificate": "x", "conditions": [{"type": "Approved", "status": "True"}]}}),
                State::Current,
            ),
            ("approved", condition_only("Approved", "True"), State::InProgress),
            ("denied", condition_only("Denied", "True"), State::Failed),
            ("failed", condition_only("Failed", "True"), State::Failed),
            ("nobody looked", json!({}), State::InProgress),
        ],
    );
}

#[test]
fn kinds_without_status_or_rule() {
    for kind in ["ConfigMap", "Secret", "ServiceAccount"] {
        check("v1", kind, &[("stored", json!({}), State::Current)]);
    }
    check("rbac.authorization.k8s.io/v1", "ClusterRole", &[("stored", json!({}), State::Current)]);
    check(
        "example.com/v1",
        "Widget",
        &[
            ("no status", json!({}), State::Unknown),
            ("ready", condition_only("Ready", "True"), State::Current),
            ("not ready", condition_only("Ready", "False"), State::InProgress),
            ("stalled", condition_only("Stalled", "True"), State::Failed),
            ("reconciling", condition_only("Reconciling", "True"), State::InProgress),
            ("a generation that is no number", json!({"status": {"observedGeneration": "1"}}), State::Unknown),
        ],
    );
    assert!(Status::new(State::Unknown, "x").is_done());
}

#[test]
fn unobserved_generation_is_not_current() {
    for (generation, observed, state, why) in [
        (3, 3, State::Current, "the controller has observed it"),
        (3, 2, State::InProgress, "the controller is behind"),
        (2, 2, State::InProgress, "the watch is behind"),
        (4, 4, State::Current, "somebody else changed it since"),
    ] {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "generation": generation},
            "spec": {"replicas": 0}, "status": {"observedGeneration": observed}});
        assert_eq!(evaluate_status(&object, Some(3)).state, state, "{why}");
    }
}

#[test]
fn terminating_names_its_finalizers() {
    let pvc = json!({"metadata": {"deletionTimestamp": "x", "finalizers": ["kubernetes.io/pvc-protection"]}});
    assert!(format_deletion_blockers(&pvc).contains("kubernetes.io/pvc-protection"));
    let namespace = json!({"metadata": {"deletionTimestamp": "x"}, "status": {"conditions": [
        {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "ok"},
        {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: pods. has 1 resource instances"}]}});
    assert_eq!(format_deletion_blockers(&namespace), "Some resources are remaining: pods. has 1 resource instances");
}
