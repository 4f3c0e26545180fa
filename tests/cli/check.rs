//! `check` while a cluster answers slowly.

use std::io::BufRead as _;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::server::{Answer, list, not_found, serve, use_cluster};
use crate::{Running, Sandbox};

/// An empty cluster in which the user may do everything.
pub(crate) fn empty(method: &str, path: &str) -> Answer {
    match path {
        "/version" => {
            let version = json!({"major": "1", "minor": "25", "gitVersion": "v1.25.4", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
            (200, version)
        }
        _ if path.contains("/selfsubjectaccessreviews") && method == "POST" => {
            let kind = "SelfSubjectAccessReview";
            (
                201,
                json!({"kind": kind, "apiVersion": "authorization.k8s.io/v1", "spec": {}, "status": {"allowed": true}}),
            )
        }
        _ if path.contains('?') => list(&[]),
        _ => not_found(),
    }
}

/// A cluster that says nothing about its StorageClasses before it is told to, or a minute later; and how it is told.
fn slow() -> (String, Sender<()>, Arc<Mutex<bool>>) {
    let (go_on, told) = channel::<()>();
    let (told, waited) = (Mutex::new(told), Arc::new(Mutex::new(true)));
    let in_time = Arc::clone(&waited);
    let server = serve(move |method, path| {
        if path.contains("/storageclasses") {
            *in_time.lock().unwrap() = told.lock().unwrap().recv_timeout(Duration::from_secs(60)).is_ok();
        }
        empty(method, path)
    });
    (server, go_on, waited)
}

#[test]
fn a_verdict_is_shown_once_it_is_known_and_not_when_all_are() {
    for (format, before, after) in [
        ("table", "(leftovers): none", "(storage): the cluster has no"),
        ("short", "failed nodes: ", "failed storage: "),
    ] {
        let sandbox = Sandbox::new();
        let (server, go_on, in_time) = slow();
        use_cluster(&sandbox, &server);
        let (mut running, stdout) = Running::start(&sandbox, &["check", "--pre", "--output", format]);
        let mut lines = stdout.lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains(before)), "{format}");
        go_on.send(()).expect("the cluster still waits");
        assert!(lines.any(|line| line.contains(after)), "{format}");
        assert_eq!(running.0.wait().unwrap().code(), Some(3));
        assert!(*in_time.lock().unwrap(), "{format}: nothing was shown before all was known");
    }
}

#[test]
fn a_command_that_deletes_is_told_with_the_place_that_was_checked() {
    let sandbox = Sandbox::new();
    let server = serve(|method, path| {
        if path.contains("/namespaces/two/persistentvolumeclaims?") {
            let labels = json!({"fleet-scheduler.io/install": "other"});
            return list(&[json!({"metadata": {"name": "etcd-data-etcd-0", "labels": labels}})]);
        }
        empty(method, path)
    });
    use_cluster(&sandbox, &server);
    let ran = sandbox.run(&["check", "--pre", "--context", "hosting", "--namespace", "two"]);
    let command = "`fleetctl uninstall control-plane other --context hosting --namespace two --delete-data`";
    assert!(ran.code == 3 && ran.stdout.contains(command), "{ran:?}");
}

#[test]
fn a_reader_that_goes_away_does_not_turn_a_refusal_into_a_success() {
    for format in ["table", "short", "json", "junit"] {
        let sandbox = Sandbox::new();
        let (server, go_on, _) = slow();
        use_cluster(&sandbox, &server);
        let (mut running, stdout) = Running::start(&sandbox, &["check", "--pre", "--output", format]);
        drop(stdout);
        go_on.send(()).expect("the cluster still waits");
        assert_eq!(running.0.wait().unwrap().code(), Some(3), "{format}");
    }
}
