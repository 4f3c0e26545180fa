//! Tests of the sentence about pods that do not run.

use serde_json::{Value, json};

use super::*;
use crate::diagnose::typed::{typed_list, typed_object};

fn pod(status: Value) -> Pod {
    typed_object(json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": "p"},
        "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        "status": status}))
}

fn waiting(reason: &str, message: &str, restarts: i32) -> Value {
    let last = json!({"terminated": {"exitCode": 7, "reason": "Error"}});
    json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "r/x:1", "imageID": "", "ready": false,
        "restartCount": restarts, "state": {"waiting": {"reason": reason, "message": message}}, "lastState": last}]})
}

fn explain(pods: Vec<Pod>, events: Vec<Value>, failure: Option<&str>) -> Option<(&'static str, String)> {
    let object = ObjectRef {
        group: "apps".to_owned(),
        kind: "StatefulSet".to_owned(),
        namespace: Some("shop".to_owned()),
        name: "web".to_owned(),
    };
    let evidence = Evidence { pods, events: typed_list(events), ..Evidence::default() };
    explain_pods(&object, "s", &evidence, true, failure).map(|found| (found.reason, found.sentence))
}

fn warning(uid: &str, kind: &str, name: &str, reason: &str, message: &str) -> Value {
    json!({"type": "Warning", "reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z",
        "metadata": {"name": "e", "namespace": "shop"},
        "involvedObject": {"uid": uid, "kind": kind, "name": name, "namespace": "shop"}})
}

fn unschedulable_status(message: &str) -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": message}]})
}

#[test]
fn each_reason_is_said_in_the_words_of_the_cluster() {
    let unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    for (status, events, reason, part) in [
        (waiting("ErrImagePull", "not found", 0), vec![], "ImageNotFound", "image `r/x:1` cannot be pulled: not found"),
        (
            waiting("CreateContainerConfigError", "couldn't find key k in Secret shop/s", 0),
            vec![],
            "ContainerConfig",
            "couldn't find key k in Secret shop/s",
        ),
        (waiting("CrashLoopBackOff", "back-off", 1), vec![], "CrashLoopBackOff", "exit code 7"),
        (waiting("CrashLoopBackOff", "back-off", 5), vec![], "CrashLoopBackOff", "exit code 7"),
        (
            unschedulable_status("0/1 nodes are available: 1 Insufficient cpu."),
            vec![],
            "Unschedulable",
            "Insufficient cpu",
        ),
        (
            unschedulable_status(unbound),
            vec![warning("", "PersistentVolumeClaim", "data", "ProvisioningFailed", "no such class")],
            "ClaimUnbound",
            "no such class",
        ),
        (
            json!({"phase": "Pending"}),
            vec![warning("p", "Pod", "web-1", "FailedMount", "configmap \"a\" not found")],
            "MountFailed",
            "configmap \"a\" not found",
        ),
    ] {
        let (found, sentence) = explain(vec![pod(status)], events, None).unwrap();
        assert_eq!(found, reason, "{sentence}");
        assert!(sentence.starts_with("Pod shop/web-1: ") && sentence.contains(part), "{sentence}");
        assert!(available::NOT_RUNNING.contains(&found));
    }
}

#[test]
fn pods_that_are_refused_are_explained_by_the_answer() {
    for (message, reason) in [
        ("pods \"web-0\" is forbidden: exceeded quota: none", "QuotaExceeded"),
        ("pods \"web-0\" is forbidden: violates PodSecurity \"restricted\"", "PodSecurity"),
        ("admission webhook \"w\" denied the request: no", "PodsRefused"),
    ] {
        let expected = (reason, format!("its pods cannot be created: {message}"));
        let event = warning("s", "StatefulSet", "web", "FailedCreate", message);
        assert_eq!(explain(vec![], vec![event], None), Some(expected.clone()));
        assert_eq!(explain(vec![], vec![], Some(message)), Some(expected));
    }
    assert_eq!(explain(vec![], vec![warning("other", "StatefulSet", "b", "FailedCreate", "x")], None), None);
}

#[test]
fn a_pod_that_begins_is_no_reason() {
    assert_eq!(explain(vec![pod(waiting("ContainerCreating", "", 0))], vec![], None), None);
}

#[test]
fn a_sentence_is_bounded_and_visible() {
    let (_, sentence) = explain(vec![], vec![], Some(&format!("a\u{1b}[2J\n{}", "m".repeat(5000)))).unwrap();
    assert!(sentence.chars().count() == SENTENCE + 1 && !sentence.chars().any(char::is_control), "{sentence}");
}

#[test]
fn every_cause_has_a_known_reason() {
    for cause in CauseId::ALL {
        assert!(available::NOT_RUNNING.contains(&reason_word(cause)), "{cause}");
    }
}
