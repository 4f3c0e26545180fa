//! One case a cause: its evidence, and the diagnosis.

use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::api::kubernetes_record::Held;
use crate::api::version::KubeMinor;
use crate::diagnose::kstatus::evaluate_status;
use crate::diagnose::typed::{typed_list, typed_object};

mod containers;
mod storage;

fn stateful_set() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd", "namespace": "fleet", "uid": "s", "generation": 1},
        "spec": {"replicas": 1}, "status": {"observedGeneration": 1, "replicas": 1}})
}

fn deployment() -> (Value, ReplicaSet) {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "api", "namespace": "fleet", "uid": "d", "generation": 1},
        "spec": {"replicas": 1}, "status": {"observedGeneration": 1}});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "api-1", "namespace": "fleet", "uid": "r",
        "ownerReferences": [{"uid": "d"}], "annotations": {"deployment.kubernetes.io/revision": "2"}}});
    (deployment, typed_object(set))
}

fn pod(owner: &str, spec: Value, status: Value) -> Pod {
    typed_object(
        json!({"metadata": {"name": "etcd-0", "namespace": "fleet", "uid": "p", "ownerReferences": [{"uid": owner}]},
        "spec": spec, "status": status}),
    )
}

fn container(state: Value) -> Value {
    let mut container = json!({"name": "c", "image": "registry/etcd:1", "ready": false});
    crate::k8s::managed_fields::apply_merge_patch(&mut container, &state);
    json!({"phase": "Pending", "containerStatuses": [container]})
}

fn event(uid: &str, reason: &str, message: &str) -> Event {
    let time = "2026-01-01T00:00:00Z";
    typed_object(json!({"involvedObject": {"uid": uid}, "reason": reason, "message": message, "lastTimestamp": time}))
}

fn warning(uid: &str, reason: &str, message: &str) -> Event {
    Event { type_: Some("Warning".to_owned()), ..event(uid, reason, message) }
}

fn at(time: &str, event: Event) -> Event {
    Event { last_timestamp: Some(Time(time.parse().unwrap())), ..event }
}

fn pvc(class: Option<&str>) -> PersistentVolumeClaim {
    typed_object(json!({"metadata": {"name": "data-etcd-0", "namespace": "fleet", "uid": "c"},
        "spec": {"storageClassName": class}, "status": {"phase": "Pending"}}))
}

fn class(name: &str, provisioner: &str, default: bool) -> StorageClass {
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": default.to_string()});
    typed_object(json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": provisioner}))
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "apiserver", "namespace": "fleet", "uid": "v"},
        "spec": {"type": "LoadBalancer"}})
}

fn with_pvc(pvc: PersistentVolumeClaim, classes: Vec<StorageClass>, events: Vec<Event>) -> Evidence {
    let volumes = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-etcd-0"}}]});
    let status = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 pod has unbound immediate PersistentVolumeClaims."}]});
    Evidence {
        pods: vec![pod("s", volumes, status)],
        pvcs: vec![pvc],
        storage_classes: Some(classes),
        events,
        ..Evidence::default()
    }
}

fn with_pod(status: Value, events: Vec<Event>) -> Evidence {
    Evidence { pods: vec![pod("s", json!({}), status)], events, ..Evidence::default() }
}

fn found(object: &Value, evidence: &Evidence) -> (CauseId, String) {
    let diagnosis = diagnose_object(object, &evaluate_status(object, None), evidence).expect("a cause");
    assert!(!diagnosis.remedy.parts().is_empty());
    (diagnosis.cause, diagnosis.to_string())
}

/// The grace of the cause that is found.
fn grace(object: &Value, evidence: &Evidence) -> Option<Duration> {
    diagnose_object(object, &evaluate_status(object, None), evidence).expect("a cause").grace
}

/// The cause of the StatefulSet with its grace, if the evidence shows one.
fn cause_and_grace(evidence: &Evidence) -> Option<(CauseId, Option<Duration>)> {
    diagnose_object(&stateful_set(), &evaluate_status(&stateful_set(), None), evidence)
        .map(|found| (found.cause, found.grace))
}

/// Of each cause that a snapshot can show an example.
pub(crate) fn examples() -> Vec<Diagnosis> {
    let of_the_set = [
        with_pvc(pvc(None), vec![], vec![]),
        with_pvc(pvc(None), vec![class("slow", "disk.csi.example.com", true)], vec![]),
        with_pvc(pvc(Some("fast")), vec![class("slow", "disk.csi.example.com", true)], vec![]),
        with_csi_event("ExternalProvisioning", "waiting for a volume to be created"),
        with_csi_event("ProvisioningFailed", "no space left in pool ssd"),
        failed_pull("not found"),
        failed_pull("no match for platform in manifest sha256:1f2e: not found"),
        failed_pull("401 Unauthorized"),
        failed_pull("dial tcp 192.0.2.7:443: i/o timeout"),
        crashing_with_log("Error", "listen tcp 0.0.0.0:2379: bind: address already in use"),
        crashing_with_log("OOMKilled", "compacting"),
        crashing_with_log("Error", "dial tcp: lookup etcd-client.fleet.svc on 10.96.0.10:53: i/o timeout"),
        crashing_with_log("Error", "remote error: tls: bad certificate"),
        crashing_with_log("Error", "x509: certificate has expired or is not yet valid"),
        crashing_with_log(
            "Error",
            &format!("ERROR {}", Held::Skips { stored: KubeMinor::new(1, 36), wanted: KubeMinor::new(1, 38) }),
        ),
        with_pod(waiting_container("CreateContainerConfigError", "secret \"etcd-certs\" not found"), vec![]),
        with_pod(json!({"phase": "Pending"}), vec![event("p", "FailedMount", "secret \"etcd-certs\" not found")]),
        with_pod(unschedulable_pod(UNTOLERATED), vec![]),
        with_pod(json!({"phase": "Running"}), vec![event("p", "Unhealthy", "Readiness probe failed: HTTP 503")]),
    ];
    let failing = "WARN fleet-scheduler is not ready: Bootstrapped: KindNotServed: FlowSchema fleet-agents: not served";
    let failing = Evidence {
        replica_sets: vec![deployment().1],
        pods: vec![pod("r", json!({}), container(json!({"state": {"running": {}}})))],
        logs: [("fleet/etcd-0/c".to_owned(), vec![failing.to_owned()])].into(),
        ..Evidence::default()
    };
    let of_the_deployment = [
        failing,
        refused_pods("exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5"),
        refused_pods("violates PodSecurity \"restricted:latest\": runAsNonRoot != true"),
        refused_pods("admission webhook \"policy.example.com\" denied the request"),
    ];
    let cloud = Evidence {
        events: vec![warning("v", "SyncLoadBalancerFailed", "quota of load balancers exceeded")],
        ..Evidence::default()
    };
    let backoff = json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many"});
    let late = json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "message": "ReplicaSet \"api-1\" has timed out progressing."});
    let cases = of_the_set.iter().map(|evidence| (stateful_set(), evidence.clone()));
    let cases = cases.chain(of_the_deployment.iter().map(|evidence| (deployment().0, evidence.clone()))).chain([
        (service(), Evidence::default()),
        (service(), cloud),
        (failed_object("batch/v1", "Job", &backoff), Evidence::default()),
        (failed_object("apps/v1", "Deployment", &late), Evidence::default()),
    ]);
    let pulling = event("p", "Pulling", "Pulling image \"registry/etcd:1\"");
    let late = with_pod(waiting_container("ContainerCreating", ""), vec![pulling]);
    cases
        .map(|(object, evidence)| {
            diagnose_object(&object, &evaluate_status(&object, None), &evidence).expect("a cause")
        })
        .chain(diagnose_slow(&stateful_set(), &evaluate_status(&stateful_set(), None), &late))
        .collect()
}

const UNTOLERATED: &str =
    "0/2 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint {gpu: true}.";

fn waiting_container(reason: &str, message: &str) -> Value {
    container(json!({"restartCount": 0, "state": {"waiting": {"reason": reason, "message": message}}}))
}

fn failed_pull(answer: &str) -> Evidence {
    let answer = format!("failed to pull image \"registry/etcd:1\": {answer}");
    with_pod(waiting_container("ErrImagePull", &answer), vec![event("p", "Failed", &answer)])
}

fn crashing_container(restarts: i64, why: &str) -> Value {
    container(json!({"restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"reason": why, "exitCode": 1}}}))
}

fn crashing_with_log(why: &str, log: &str) -> Evidence {
    let logs = [("fleet/etcd-0/c".to_owned(), vec![log.to_owned()])].into();
    Evidence { logs, ..with_pod(crashing_container(3, why), vec![]) }
}

fn refused_pods(message: &str) -> Evidence {
    Evidence {
        replica_sets: vec![deployment().1],
        events: vec![event("r", "FailedCreate", &format!("pods \"api-1-x\" is forbidden: {message}"))],
        ..Evidence::default()
    }
}

fn unschedulable_pod(message: &str) -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": message}]})
}

/// The evidence of a PVC of a driver, with an event about it.
fn with_csi_event(reason: &str, message: &str) -> Evidence {
    let classes = vec![class("csi", "disk.csi.example.com", true)];
    with_pvc(pvc(Some("csi")), classes, vec![event("c", reason, message)])
}

/// An object whose controller gave up, by its condition.
fn failed_object(api_version: &str, kind: &str, condition: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "api", "namespace": "fleet", "uid": "d",
        "generation": 1}, "spec": {"replicas": 1}, "status": {"observedGeneration": 1, "conditions": [condition]}})
}

#[test]
fn pods_refused_by_quota_or_policy() {
    let cases = [
        ("pods \"api-1-x\" is forbidden: exceeded quota: q, requested: pods=1", CauseId::QuotaExceeded),
        (
            "pods \"api-1-x\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot",
            CauseId::PodSecurity,
        ),
        ("Internal error occurred: failed calling webhook \"w\"", CauseId::PodsRefused),
    ];
    let (deployment, replica_set) = deployment();
    for (message, expected) in cases {
        let evidence = Evidence {
            replica_sets: vec![replica_set.clone()],
            events: vec![event("r", "FailedCreate", message)],
            ..Evidence::default()
        };
        let (cause, chain) = found(&deployment, &evidence);
        assert_eq!(cause, expected);
        assert!(chain.contains("ReplicaSet fleet/api-1: cannot create its pods") && chain.contains(message), "{chain}");
        let evidence = Evidence { events: vec![event("s", "FailedCreate", message)], ..Evidence::default() };
        assert_eq!(found(&stateful_set(), &evidence).0, expected);
    }
}

#[test]
fn unschedulable_pod_quotes_scheduler() {
    let (cause, chain) = found(&stateful_set(), &with_pod(unschedulable_pod(UNTOLERATED), vec![]));
    assert_eq!(cause, CauseId::Unschedulable);
    assert!(chain.contains(UNTOLERATED));
    assert_eq!(
        grace(&stateful_set(), &with_pod(unschedulable_pod(UNTOLERATED), vec![])),
        CauseId::Unschedulable.default_grace()
    );

    let not_ready = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.";
    let starting = [
        with_pod(unschedulable_pod(UNTOLERATED), vec![event("p", "TriggeredScaleUp", "pod triggered scale-up")]),
        with_pod(unschedulable_pod(UNTOLERATED), vec![event("p", "Nominated", "Pod should schedule on: nodeclaim/a")]),
        with_pod(unschedulable_pod(not_ready), vec![]),
    ];
    for evidence in starting {
        assert_eq!(found(&stateful_set(), &evidence).0, CauseId::Unschedulable);
        assert_eq!(grace(&stateful_set(), &evidence), None, "a node is being added");
    }
}

#[test]
fn lasting_causes_before_transient() {
    let starting = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }"}]});
    let broken = container(json!({"state": {"waiting": {"reason": "InvalidImageName"}}}));
    let pods = vec![pod("s", json!({}), starting), pod("s", json!({}), broken)];
    assert_eq!(found(&stateful_set(), &Evidence { pods, ..Evidence::default() }).0, CauseId::ImageNotFound);
}

#[test]
fn slow_workload_shows_pod_and_events() {
    let creating = container(json!({"restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}));
    let pulls = at("2026-01-01T00:00:08Z", event("p", "Pulling", "Pulling image \"a\""));
    let early = at("2026-01-01T00:00:01Z", warning("p", "FailedScheduling", "0/1 nodes"));
    let odd = at("2026-01-01T00:00:09Z", warning("p", "Odd", "it is"));
    let cases = [
        (creating.clone(), vec![], "ContainerCreating"),
        (creating.clone(), vec![pulls.clone()], "ContainerCreating; Pulling: Pulling image \"a\""),
        (
            creating,
            vec![pulls.clone(), early.clone()],
            "ContainerCreating; Pulling: Pulling image \"a\"; FailedScheduling: 0/1 nodes",
        ),
        (json!({"phase": "Pending"}), vec![odd, pulls, early], "Pending; Odd: it is"),
        (json!({"phase": "Running"}), vec![], "running but not ready"),
        (json!({}), vec![], "no kubelet has reported on it yet"),
    ];
    for (status, events, expected) in cases {
        let evidence = with_pod(status, events);
        let late = diagnose_slow(&stateful_set(), &evaluate_status(&stateful_set(), None), &evidence)
            .expect("a pod that is late");
        assert_eq!((late.cause, late.grace), (CauseId::Slow, None));
        assert_eq!(
            late.to_string(),
            format!("StatefulSet fleet/etcd: 0 of 1 pods ready → Pod fleet/etcd-0: {expected}")
        );
        assert_eq!(late.remedy.joined_text(), "see `kubectl -n fleet describe pod etcd-0`");
    }
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let of_the_set = event("s", "SuccessfulCreate", "create Pod etcd-0");
    for evidence in [with_pod(ready, vec![of_the_set]), Evidence::default()] {
        assert!(diagnose_slow(&stateful_set(), &evaluate_status(&stateful_set(), None), &evidence).is_none());
    }
}

#[test]
fn latest_warning_of_unready_pods() {
    let events = vec![
        at("2026-01-01T00:00:01Z", warning("s", "FailedCreate", "webhook")),
        at("2026-01-01T00:00:05Z", warning("p", "BackOff", "pause")),
        at("2026-01-01T00:00:07Z", warning("other", "Evicted", "disk")),
        at("2026-01-01T00:00:09Z", event("p", "Pulled", "image")),
    ];
    let pending = json!({"phase": "Pending"});
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    for (status, but, expected) in
        [(&pending, "", "BackOff"), (&pending, "BackOff", "FailedCreate"), (&ready, "", "FailedCreate")]
    {
        let evidence = with_pod(status.clone(), events.clone());
        let latest = super::latest_warning(&stateful_set(), &evidence, |event| !has_reason(event, &[but]));
        assert_eq!(latest.and_then(|event| event.reason.as_deref()), Some(expected), "{status} but {but}");
    }
}

#[test]
fn slow_service_shows_its_events() {
    let failed = warning("v", "FailedToUpdateEndpointSlices", "conflict");
    let works = at("2026-01-01T00:00:08Z", event("v", "EnsuringLoadBalancer", "Ensuring load balancer"));
    let evidence = Evidence { events: vec![failed, works], ..Evidence::default() };
    assert!(diagnose_object(&service(), &evaluate_status(&service(), None), &evidence).is_none());
    let status = evaluate_status(&service(), None);
    let late = diagnose_slow(&service(), &status, &evidence).expect("the events about it");
    assert_eq!(
        late.to_string(),
        format!(
            "Service fleet/apiserver: {}; EnsuringLoadBalancer: Ensuring load balancer; FailedToUpdateEndpointSlices: conflict",
            status.message
        )
    );
    assert_eq!(late.remedy.joined_text(), "see `kubectl -n fleet describe service apiserver`");
}

#[test]
fn grace_after_a_controller_gave_up() {
    let late = json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"});
    let late = failed_object("apps/v1", "Deployment", &late);
    let evidence = Evidence {
        replica_sets: vec![deployment().1],
        pods: vec![pod("r", json!({}), json!({"phase": "Pending"}))],
        events: vec![event("p", "Pulling", "Pulling image \"a\"")],
        ..Evidence::default()
    };
    let (cause, chain) = found(&late, &evidence);
    assert_eq!((cause, grace(&late, &evidence)), (CauseId::ControllerGaveUp, None));
    assert!(chain.ends_with("→ Pod fleet/etcd-0: Pending; Pulling: Pulling image \"a\""), "{chain}");
    let backoff = json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"});
    let job = failed_object("batch/v1", "Job", &backoff);
    assert_eq!(grace(&job, &evidence), Some(Duration::ZERO));
    let refused = json!({"type": "NamesAccepted", "status": "False"});
    let stalled = json!({"type": "Stalled", "status": "True"});
    for object in [
        failed_object("apiextensions.k8s.io/v1", "CustomResourceDefinition", &refused),
        failed_object("example.com/v1", "Widget", &stalled),
    ] {
        assert_eq!(found(&object, &evidence).0, CauseId::ControllerGaveUp);
        assert_eq!(grace(&object, &evidence), Some(Duration::ZERO));
    }
}

#[test]
fn unanswered_and_failed_load_balancer() {
    let service = service();
    assert_eq!(found(&service, &Evidence::default()).0, CauseId::LoadBalancerUnanswered);
    let working =
        Evidence { events: vec![event("v", "EnsuringLoadBalancer", "Ensuring load balancer")], ..Evidence::default() };
    assert!(diagnose_object(&service, &evaluate_status(&service, None), &working).is_none());
    for (reason, success) in [
        ("SyncLoadBalancerFailed", "EnsuredLoadBalancer"),
        ("AllocationFailed", "IPAllocated"),
        ("FailedBuildModel", "SuccessfullyReconciled"),
        ("FailedDeployModel", "SuccessfullyReconciled"),
    ] {
        let refused = warning("v", reason, "none is left");
        let again = at("2026-01-01T00:05:00Z", event("v", "EnsuringLoadBalancer", "Ensuring load balancer"));
        let failed = Evidence { events: vec![refused.clone(), again], ..Evidence::default() };
        let (cause, chain) = found(&service, &failed);
        assert_eq!((cause, grace(&service, &failed)), (CauseId::LoadBalancerFailed, None), "{reason}");
        assert!(chain.ends_with(": none is left"), "{chain}");
        let made = at("2026-01-01T00:10:00Z", event("v", success, "made"));
        let healed = Evidence { events: vec![refused, made], ..Evidence::default() };
        assert!(
            diagnose_object(&service, &evaluate_status(&service, None), &healed).is_none(),
            "{success}: it was made after all"
        );
    }
    let mut hints = event("v", "TopologyAwareHintsEnabled", "Topology Aware Hints has been enabled");
    hints.source = Some(typed_object(json!({"component": "endpoint-slice-controller"})));
    for of_others in [
        warning("v", "FailedToUpdateEndpointSlices", "conflict"),
        warning("v", "FailedToCreateEndpoint", "forbidden"),
        warning("v", "PolicyViolation", "policy no-load-balancers fail"),
        hints,
    ] {
        let alone = Evidence { events: vec![of_others.clone()], ..Evidence::default() };
        assert_eq!(found(&service, &alone).0, CauseId::LoadBalancerUnanswered, "{of_others:?}");
        let beside = Evidence { events: vec![of_others, working.events[0].clone()], ..Evidence::default() };
        assert!(diagnose_object(&service, &evaluate_status(&service, None), &beside).is_none());
    }
    // Its events are gone after an hour.
    let mut held = service;
    held["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    assert!(diagnose_object(&held, &evaluate_status(&held, None), &Evidence::default()).is_none());
}

#[test]
fn old_and_terminating_pods_are_ignored() {
    let (deployment, replica_set) = deployment();
    let mut old = replica_set.clone();
    old.metadata.uid = Some("old".to_owned());
    old.metadata.annotations = Some([("deployment.kubernetes.io/revision".to_owned(), "1".to_owned())].into());
    let broken = container(json!({"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}));
    let mut leaving = pod("r", json!({}), broken.clone());
    leaving.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
    let evidence = Evidence {
        replica_sets: vec![old, replica_set],
        pods: vec![pod("old", json!({}), broken), leaving],
        ..Evidence::default()
    };
    assert!(diagnose_object(&deployment, &evaluate_status(&deployment, None), &evidence).is_none());
}

#[test]
fn mount_and_probe_quote_the_kubelet() {
    let mount = with_pod(json!({"phase": "Pending"}), vec![event("p", "FailedMount", "secret \"pki\" not found")]);
    assert_eq!(found(&stateful_set(), &mount).0, CauseId::MountFailed);
    let cache = "MountVolume.SetUp failed for volume \"pki\" : failed to sync secret cache: timed out waiting for the condition";
    for passing in [
        with_pod(json!({"phase": "Pending"}), vec![event("p", "FailedMount", cache)]),
        with_pod(json!({"phase": "Running"}), vec![event("p", "FailedMount", "secret \"pki\" not found")]),
    ] {
        assert!(
            diagnose_object(&stateful_set(), &evaluate_status(&stateful_set(), None), &passing)
                .is_none_or(|d| d.cause != CauseId::MountFailed)
        );
    }
    let probe = with_pod(json!({"phase": "Running"}), vec![event("p", "Unhealthy", "Readiness probe failed: 503")]);
    assert_eq!(found(&stateful_set(), &probe).0, CauseId::ProbeFailing);
    let config = container(
        json!({"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "secret \"a\" not found"}}}),
    );
    assert_eq!(found(&stateful_set(), &with_pod(config, vec![])).0, CauseId::ContainerConfig);
}

#[test]
fn events_are_ordered_by_time() {
    let times = [
        json!({"eventTime": "2026-01-01T00:00:07.900000Z", "lastTimestamp": null}),
        json!({"lastTimestamp": "2026-01-01T00:00:08Z", "eventTime": null}),
        json!({"eventTime": "2026-01-01T00:00:08.250000Z", "lastTimestamp": null}),
        json!({"eventTime": "2026-01-01T00:00:00.000001Z", "series": {"lastObservedTime": "2026-01-01T00:00:09.000001Z"}}),
    ];
    let mut events: Vec<Value> = vec![json!({"involvedObject": {"uid": "p"}, "reason": "never"})];
    for (index, time) in times.into_iter().enumerate() {
        let mut event = json!({"involvedObject": {"uid": "p"}, "reason": index.to_string()});
        crate::k8s::managed_fields::apply_merge_patch(&mut event, &time);
        events.push(event);
    }
    let evidence = Evidence { events: typed_list(events), ..Evidence::default() };
    let of_pod = pod("s", json!({}), json!({}));
    let order: Vec<&str> =
        events_of(of_pod.event_subject(), &evidence).filter_map(|event| event.reason.as_deref()).collect();
    assert_eq!(order, ["3", "2", "1", "0", "never"]);
}
