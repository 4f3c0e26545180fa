//! Causes at containers: their images, their runs and their logs.

use super::*;

#[test]
fn image_pull_quotes_the_registry() {
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
            let (cause, chain) = found(&stateful_set(), &with_pod(waiting(reason), vec![event("p", "Failed", answer)]));
            assert_eq!(cause, expected, "{answer}");
            assert!(chain.contains(answer), "{chain}");
        }
    }
    assert_eq!(found(&stateful_set(), &with_pod(waiting("InvalidImageName"), vec![])).0, CauseId::ImageNotFound);
}

#[test]
fn image_name_is_no_registry_answer() {
    for image in ["registry/denied/etcd:403", "registry:404/etcd@sha256:9a40412e401f403", ""] {
        let answer = format!("failed to pull image \"{image}\": dial tcp: i/o timeout");
        let state = json!({"image": image, "state": {"waiting": {"reason": "ErrImagePull"}}});
        let evidence = with_pod(container(state), vec![event("p", "Failed", &answer)]);
        assert_eq!(found(&stateful_set(), &evidence).0, CauseId::ImagePullFailed, "{answer}");
    }
}

#[test]
fn crash_loop_from_the_second_restart() {
    let crashing = |restarts: i64, why: &str| {
        container(json!({"restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"reason": why, "exitCode": 1}}}))
    };
    let between = |restarts: i64| {
        container(json!({"restartCount": restarts, "state": {"running": {}},
            "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}))
    };
    for early in [crashing(1, "Error"), between(3)] {
        assert!(
            diagnose_object(&stateful_set(), &evaluate_status(&stateful_set(), None), &with_pod(early, vec![]))
                .is_none()
        );
    }
    assert_eq!(found(&stateful_set(), &with_pod(between(4), vec![])).0, CauseId::CrashLoop);
    let mut evidence = with_pod(crashing(2, "Error"), vec![]);
    evidence.logs.insert("fleet/etcd-0/c".into(), vec!["cannot listen: address in use".into()]);
    let diagnosis = diagnose_object(&stateful_set(), &evaluate_status(&stateful_set(), None), &evidence).unwrap();
    assert_eq!((diagnosis.cause, diagnosis.logs.len()), (CauseId::CrashLoop, 1));
    assert_eq!(found(&stateful_set(), &with_pod(crashing(3, "OOMKilled"), vec![])).0, CauseId::OutOfMemory);
    // A program of another architecture does no better the next time.
    let mut evidence = with_pod(crashing(1, "Error"), vec![]);
    evidence.logs.insert("fleet/etcd-0/c".into(), vec!["exec /usr/local/bin/etcd: exec format error".into()]);
    assert_eq!(found(&stateful_set(), &evidence).0, CauseId::ImageArchitecture);
}

#[test]
fn sibling_name_needs_a_pod_address() {
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
    let cause_of = |others: Vec<Pod>, line: &str| {
        let pods = std::iter::once(member("etcd-0", running("10.1.0.5".into()))).chain(others).collect();
        let logs = [("fleet/etcd-0/c".to_owned(), vec![line.to_owned()])].into();
        let evidence = Evidence { pods, logs, ..Evidence::default() };
        diagnose_object(&stateful_set(), &evaluate_status(&stateful_set(), None), &evidence)
            .map(|found| (found.cause, found.grace))
    };
    let second = || member("etcd-1", running("10.1.0.6".into()));
    for (name, third) in [
        ("made", Some(creating)),
        ("not running", Some(addressed)),
        ("without an address", Some(running(Value::Null))),
        ("not there", None),
    ] {
        let third = third.map(|status| member("etcd-2", status));
        assert_eq!(cause_of(std::iter::once(second()).chain(third).collect(), line), None, "{name}");
    }
    let lookup = CauseId::NameLookupFailed;
    let all = || vec![second(), member("etcd-2", running("10.1.0.7".into()))];
    let (_, grace) = cause_of(all(), line).expect("a cause");
    assert!(grace >= Some(Duration::from_secs(35)), "DNS keeps for 30 s that a name does not exist: {grace:?}");
    // Names of other objects than pods exist from the start, and a DNS server that does not answer knows none.
    for line in [line.replace("etcd-2.etcd", "etcd-client"), line.replace("no such host", "i/o timeout")] {
        assert_eq!(cause_of(vec![], &line), Some((lookup, lookup.default_grace())), "{line}");
        assert_eq!(cause_of(all(), &line), Some((lookup, lookup.default_grace())), "{line}");
    }
}

#[test]
fn silent_container_within_its_limit() {
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
        let (cause, text) = found(&stateful_set(), &evidence);
        assert_eq!(cause, CauseId::ProbeFailing);
        assert_eq!(grace(&stateful_set(), &evidence), None, "it may only be slow");
        let hint = diagnose_object(&stateful_set(), &evaluate_status(&stateful_set(), None), &evidence).unwrap().remedy;
        (
            text.contains("`c` has no log output so far; its memory limit is 16Mi"),
            hint.joined_text().contains("limits.memory"),
        )
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
fn start_fails_within_memory_limit() {
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
        assert_eq!(found(&stateful_set(), &evidence).0, CauseId::OutOfMemory, "{evidence:?}");
    }
    let foreign = waiting("RunContainerError", "exec /etcd: Exec format error: OCI runtime error");
    assert_eq!(found(&stateful_set(), &with_pod(foreign, vec![])).0, CauseId::ImageArchitecture);
    let missing = waiting("RunContainerError", "exec: \"serve\": executable file not found in $PATH: unknown");
    let (cause, text) = found(&stateful_set(), &with_pod(missing, vec![]));
    assert!(cause == CauseId::ContainerConfig && !text.contains("Secret"), "{text}");
}

#[test]
fn logs_are_read_from_the_first_run() {
    let read =
        |state: Value| !crate::diagnose::pod::containers_with_logs(&pod("s", json!({}), container(state))).is_empty();
    assert!(read(json!({"state": {"running": {}}})));
    assert!(read(json!({"state": {"terminated": {"exitCode": 1}}, "restartCount": 0})));
    assert!(read(json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1})));
    assert!(!read(json!({"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0})));
    assert!(!read(json!({"state": {"running": {}}, "ready": true})));
}
