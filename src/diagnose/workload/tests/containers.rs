//! What is said of containers: their images, their runs and their logs.

use super::*;

#[test]
fn an_image_that_cannot_be_pulled_is_told_with_the_registrys_answer() {
    let waiting = |reason: &str| {
        container(json!({"state": {"waiting": {"reason": reason, "message": "Back-off pulling image"}}}))
    };
    let cases = [
        (
            "rpc error: code = NotFound desc = failed to pull and unpack image \"registry/etcd:1\": not found",
            CauseId::ImageNotFound,
        ),
        ("failed to pull image \"registry/etcd:1\": 401 Unauthorized", CauseId::ImagePullDenied),
        ("failed to pull image \"registry/etcd:1\": dial tcp: i/o timeout", CauseId::ImagePullFailed),
        ("failed to pull image \"registry/etcd:1\": unexpected status code: 404", CauseId::ImageNotFound),
        ("failed to pull image \"registry/etcd:1\": StatusCode: 403, \"no\"", CauseId::ImagePullDenied),
        ("failed to pull image \"registry/etcd:1\": dial tcp 10.0.0.1:4043: i/o timeout", CauseId::ImagePullFailed),
        (
            "failed to pull image \"registry/etcd:1\": get sha256:9a40412e401: dial tcp 10.0.0.1:404: i/o timeout",
            CauseId::ImagePullFailed,
        ),
    ];
    for (answer, expected) in cases {
        for reason in ["ErrImagePull", "ImagePullBackOff"] {
            let (cause, chain) = found(&set(), &with_pod(waiting(reason), vec![event("p", "Failed", answer)]));
            assert_eq!(cause, expected, "{answer}");
            assert!(chain.contains(answer), "{chain}");
        }
    }
    assert_eq!(found(&set(), &with_pod(waiting("InvalidImageName"), vec![])).0, CauseId::ImageNotFound);
}

#[test]
fn the_name_of_an_image_is_no_answer_of_its_registry() {
    for image in ["registry/denied/etcd:403", "registry:404/etcd@sha256:9a40412e401f403", ""] {
        let answer = format!("failed to pull image \"{image}\": dial tcp: i/o timeout");
        let state = json!({"image": image, "state": {"waiting": {"reason": "ErrImagePull"}}});
        let evidence = with_pod(container(state), vec![event("p", "Failed", &answer)]);
        assert_eq!(found(&set(), &evidence).0, CauseId::ImagePullFailed, "{answer}");
    }
}

#[test]
fn a_crash_counts_from_the_second_restart_and_brings_its_log() {
    let crashing = |restarts: i64, why: &str| {
        container(json!({"restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"reason": why, "exitCode": 1}}}))
    };
    let between = |restarts: i64| {
        container(json!({"restartCount": restarts, "state": {"running": {}},
            "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}))
    };
    for early in [crashing(1, "Error"), between(3)] {
        assert!(diagnose(&set(), &evaluate(&set(), None), &with_pod(early, vec![])).is_none());
    }
    assert_eq!(found(&set(), &with_pod(between(4), vec![])).0, CauseId::CrashLoop);
    let mut evidence = with_pod(crashing(2, "Error"), vec![]);
    evidence.logs.insert("fleet/etcd-0/c".into(), vec!["cannot listen: address in use".into()]);
    let diagnosis = diagnose(&set(), &evaluate(&set(), None), &evidence).unwrap();
    assert_eq!((diagnosis.cause, diagnosis.logs.len()), (CauseId::CrashLoop, 1));
    assert_eq!(found(&set(), &with_pod(crashing(3, "OOMKilled"), vec![])).0, CauseId::OutOfMemory);
}

#[test]
fn the_name_of_a_member_is_unknown_until_its_pod_has_an_address() {
    let line = "dial tcp: lookup etcd-2.etcd.fleet.svc on 10.96.0.10:53: no such host";
    let member = |name: &str, status: Value| {
        let mut pod = pod("s", json!({}), status);
        (pod.metadata.name, pod.metadata.uid) = (Some(name.to_owned()), Some(name.to_owned()));
        pod
    };
    let running = |address: Value| {
        json!({"phase": "Running", "podIP": address,
        "containerStatuses": [{"name": "c", "ready": false, "restartCount": 0, "state": {"running": {}}}]})
    };
    let creating = container(json!({"restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}));
    let mut addressed = creating.clone();
    addressed["podIP"] = "10.1.0.7".into();
    let told = |others: Vec<Pod>, line: &str| {
        let pods = std::iter::once(member("etcd-0", running("10.1.0.5".into()))).chain(others).collect();
        let logs = [("fleet/etcd-0/c".to_owned(), vec![line.to_owned()])].into();
        let evidence = Evidence { pods, logs, ..Evidence::default() };
        diagnose(&set(), &evaluate(&set(), None), &evidence).map(|found| (found.cause, found.patience))
    };
    let second = || member("etcd-1", running("10.1.0.6".into()));
    for (name, third) in [
        ("made", Some(creating)),
        ("not running", Some(addressed)),
        ("without an address", Some(running(Value::Null))),
        ("not there", None),
    ] {
        let third = third.map(|status| member("etcd-2", status));
        assert_eq!(told(std::iter::once(second()).chain(third).collect(), line), None, "{name}");
    }
    let lookup = CauseId::NameLookupFailed;
    let all = || vec![second(), member("etcd-2", running("10.1.0.7".into()))];
    let (_, patience) = told(all(), line).expect("a cause");
    assert!(patience >= Some(Duration::from_secs(35)), "DNS keeps for 30 s that a name does not exist: {patience:?}");
    // What is no pod has its name from the start, and a DNS server that does not answer knows none.
    for line in [line.replace("etcd-2.etcd", "etcd-client"), line.replace("no such host", "i/o timeout")] {
        assert_eq!(told(vec![], &line), Some((lookup, lookup.patience())), "{line}");
        assert_eq!(told(all(), &line), Some((lookup, lookup.patience())), "{line}");
    }
}

#[test]
fn a_container_that_prints_nothing_within_its_memory_is_told_apart_from_one_that_has_a_log() {
    let within = |state: &str, limits: Value, log: Option<&[&str]>| {
        let status =
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": false, "state": {state: {}}}]});
        let spec = json!({"containers": [{"name": "c", "resources": {"limits": limits}}]});
        let logs = log.map(|lines| ("fleet/etcd-0/c".to_owned(), lines.iter().map(ToString::to_string).collect()));
        let evidence = Evidence {
            pods: vec![pod("s", spec, status)],
            events: vec![event("p", "Unhealthy", "Startup probe failed: connection refused")],
            logs: logs.into_iter().collect(),
            ..Evidence::default()
        };
        let (cause, text) = found(&set(), &evidence);
        assert_eq!(cause, CauseId::ProbeFailing);
        assert_eq!(patience(&set(), &evidence), None, "it may only be slow");
        let hint = diagnose(&set(), &evaluate(&set(), None), &evidence).unwrap().remedy;
        (text.contains("`c` has printed nothing so far, and may use 16Mi of memory"), hint.contains("limits.memory"))
    };
    let remedy = |limits, log| within("running", limits, log);
    let limit = || json!({"memory": "16Mi"});
    assert_eq!(remedy(limit(), Some(&[])), (true, true));
    assert_eq!(remedy(limit(), Some(&["serving"])), (false, false));
    assert_eq!(within("waiting", limit(), Some(&[])), (false, false), "one that does not run");
    assert_eq!(remedy(limit(), None), (false, false), "a log that could not be read");
    assert_eq!(remedy(json!({}), Some(&[])), (false, false), "one that may use what the node has");
}

#[test]
fn a_container_that_cannot_start_within_its_memory_lacks_it() {
    let waiting = |reason: &str, message: &str| {
        container(json!({"restartCount": 0, "state": {"waiting": {"reason": reason, "message": message}}}))
    };
    let killed = "runc create failed: container init was OOM-killed (memory limit too low?): unknown";
    let ended = json!({"reason": "StartError", "exitCode": 128, "message": killed});
    let again = json!({"restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}});
    for status in [
        waiting("RunContainerError", killed),
        waiting("CreateContainerError", "set memory limit 8388608 too low; should be at least 12582912 bytes"),
        waiting("CreateContainerError", "Error response from daemon: Minimum memory limit allowed is 6MB"),
        waiting("RunContainerError", "OOM: the memory limit could be too low: read from the init process"),
        container(again),
    ] {
        let evidence = with_pod(status, vec![]);
        assert_eq!(found(&set(), &evidence).0, CauseId::OutOfMemory, "{evidence:?}");
    }
    let missing = waiting("RunContainerError", "exec: \"serve\": executable file not found in $PATH: unknown");
    let (cause, text) = found(&set(), &with_pod(missing, vec![]));
    assert!(cause == CauseId::ContainerConfig && !text.contains("Secret"), "{text}");
}

#[test]
fn a_log_is_worth_reading_from_the_first_run_on_and_between_runs() {
    let read = |state: Value| !crate::diagnose::pod::worth_reading(&pod("s", json!({}), container(state))).is_empty();
    assert!(read(json!({"state": {"running": {}}})));
    assert!(read(json!({"state": {"terminated": {"exitCode": 1}}, "restartCount": 0})));
    assert!(read(json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1})));
    assert!(!read(json!({"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0})));
    assert!(!read(json!({"state": {"running": {}}, "ready": true})));
}
