//! Causes at containers: their images, their runs and their logs.

use super::*;

#[test]
fn image_pull_quotes_the_registry() {
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
            let waiting = waiting_container(reason, "Back-off pulling image");
            let (cause, chain) = found(&stateful_set(), &with_pod(waiting, vec![event("p", "Failed", answer)]));
            assert_eq!(cause, expected, "{answer}");
            assert!(chain.contains(answer), "{chain}");
        }
    }
    let invalid = with_pod(waiting_container("InvalidImageName", "Back-off pulling image"), vec![]);
    assert_eq!(found(&stateful_set(), &invalid).0, CauseId::ImageNotFound);
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
    let mut between = container(json!({"restartCount": 3, "state": {"running": {}},
        "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}));
    for early in [crashing_container(1, "Error"), between.clone()] {
        assert!(
            diagnose_object(&stateful_set(), &evaluate_status(&stateful_set(), None), &with_pod(early, vec![]))
                .is_none()
        );
    }
    between["containerStatuses"][0]["restartCount"] = 4.into();
    assert_eq!(found(&stateful_set(), &with_pod(between, vec![])).0, CauseId::CrashLoop);
    let mut evidence = with_pod(crashing_container(2, "Error"), vec![]);
    evidence.logs.insert("fleet/etcd-0/c".into(), vec!["cannot listen: address in use".into()]);
    let diagnosis = diagnose_object(&stateful_set(), &evaluate_status(&stateful_set(), None), &evidence).unwrap();
    assert_eq!((diagnosis.cause, diagnosis.logs.len()), (CauseId::CrashLoop, 1));
    assert_eq!(found(&stateful_set(), &with_pod(crashing_container(3, "OOMKilled"), vec![])).0, CauseId::OutOfMemory);
    // A program of another architecture does no better the next time.
    let mut evidence = with_pod(crashing_container(1, "Error"), vec![]);
    evidence.logs.insert("fleet/etcd-0/c".into(), vec!["exec /usr/local/bin/etcd: exec format error".into()]);
    assert_eq!(found(&stateful_set(), &evidence).0, CauseId::ImageArchitecture);
}

fn etcd_member(name: &str, status: Value) -> Pod {
    let mut pod = pod("s", json!({}), status);
    (pod.metadata.name, pod.metadata.uid) = (Some(name.to_owned()), Some(name.to_owned()));
    pod
}

fn running_pod(address: Value) -> Value {
    json!({"phase": "Running", "podIP": address,
    "containerStatuses": [{"name": "c", "ready": false, "restartCount": 0, "state": {"running": {}}}]})
}

/// The cause and its grace when the first member logs a line beside other members.
fn first_member_cause(others: &[Pod], line: &str) -> Option<(CauseId, Option<Duration>)> {
    let mut pods = vec![etcd_member("etcd-0", running_pod("10.1.0.5".into()))];
    pods.extend_from_slice(others);
    let logs = [("fleet/etcd-0/c".to_owned(), vec![line.to_owned()])].into();
    cause_and_grace(&Evidence { pods, logs, ..Evidence::default() })
}

#[test]
fn sibling_name_needs_a_pod_address() {
    let line = "dial tcp: lookup etcd-2.etcd.fleet.svc on 10.96.0.10:53: no such host";
    let creating = container(json!({"restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}));
    let mut addressed = creating.clone();
    addressed["podIP"] = "10.1.0.7".into();
    let second = etcd_member("etcd-1", running_pod("10.1.0.6".into()));
    for (name, third) in [
        ("made", Some(creating)),
        ("not running", Some(addressed)),
        ("without an address", Some(running_pod(Value::Null))),
        ("not there", None),
    ] {
        let third = third.map(|status| etcd_member("etcd-2", status));
        let others: Vec<Pod> = std::iter::once(second.clone()).chain(third).collect();
        assert_eq!(first_member_cause(&others, line), None, "{name}");
    }
    let lookup = CauseId::NameLookupFailed;
    let all = [second, etcd_member("etcd-2", running_pod("10.1.0.7".into()))];
    let (_, grace) = first_member_cause(&all, line).expect("a cause");
    assert!(grace >= Some(Duration::from_secs(35)), "DNS keeps for 30 s that a name does not exist: {grace:?}");
    // Names of other objects than pods exist from the start, and a DNS server that does not answer knows none.
    for line in [line.replace("etcd-2.etcd", "etcd-client"), line.replace("no such host", "i/o timeout")] {
        assert_eq!(first_member_cause(&[], &line), Some((lookup, lookup.default_grace())), "{line}");
        assert_eq!(first_member_cause(&all, &line), Some((lookup, lookup.default_grace())), "{line}");
    }
}

/// Returns whether the text and the remedy about a container that is not ready show its memory limit.
fn shown_limit(state: &str, limits: &Value, log: Option<&[&str]>) -> (bool, bool) {
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
}

#[test]
fn silent_container_within_its_limit() {
    let (limit, unlimited) = (json!({"memory": "16Mi"}), json!({}));
    assert_eq!(shown_limit("running", &limit, Some(&[])), (true, true));
    assert_eq!(shown_limit("running", &limit, Some(&["serving"])), (false, false));
    assert_eq!(shown_limit("waiting", &limit, Some(&[])), (false, false), "one that does not run");
    assert_eq!(shown_limit("running", &limit, None), (false, false), "a log that could not be read");
    assert_eq!(shown_limit("running", &unlimited, Some(&[])), (false, false), "one that may use what the node has");
}

#[test]
fn start_fails_within_memory_limit() {
    let killed = "runc create failed: container init was OOM-killed (memory limit too low?): unknown";
    let ended = json!({"reason": "StartError", "exitCode": 128, "message": killed});
    let again = json!({"restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}});
    for status in [
        waiting_container("RunContainerError", killed),
        waiting_container(
            "CreateContainerError",
            "set memory limit 8388608 too low; should be at least 12582912 bytes",
        ),
        waiting_container("CreateContainerError", "Error response from daemon: Minimum memory limit allowed is 6MB"),
        waiting_container("RunContainerError", "OOM: the memory limit could be too low: read from the init process"),
        container(again),
    ] {
        let evidence = with_pod(status, vec![]);
        assert_eq!(found(&stateful_set(), &evidence).0, CauseId::OutOfMemory, "{evidence:?}");
    }
    let foreign = waiting_container("RunContainerError", "exec /etcd: Exec format error: OCI runtime error");
    assert_eq!(found(&stateful_set(), &with_pod(foreign, vec![])).0, CauseId::ImageArchitecture);
    let missing =
        waiting_container("RunContainerError", "exec: \"serve\": executable file not found in $PATH: unknown");
    let (cause, text) = found(&stateful_set(), &with_pod(missing, vec![]));
    assert!(cause == CauseId::ContainerConfig && !text.contains("Secret"), "{text}");
}

#[test]
fn logs_are_read_from_the_first_run() {
    for (state, read) in [
        (json!({"state": {"running": {}}}), true),
        (json!({"state": {"terminated": {"exitCode": 1}}, "restartCount": 0}), true),
        (json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1}), true),
        (json!({"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}), false),
        (json!({"state": {"running": {}}, "ready": true}), false),
    ] {
        let pod = pod("s", json!({}), container(state.clone()));
        assert_eq!(!crate::diagnose::pod::containers_with_logs(&pod).is_empty(), read, "{state}");
    }
}
