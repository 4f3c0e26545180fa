//! Every exit code that is promised to scripts, made by a command that a user could type.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;

use serde_json::json;

use crate::server::{list, not_found, serve, use_cluster};
use crate::{Ran, Sandbox};

/// The codes of the page that users read.
fn documented() -> Vec<i32> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/exit-codes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok());
    rows.collect()
}

fn done(sandbox: &Sandbox) -> Ran {
    sandbox.run(&["versions"])
}

fn failed(sandbox: &Sandbox) -> Ran {
    sandbox.run(&["get", "clusters"])
}

fn wrong_arguments(sandbox: &Sandbox) -> Ran {
    sandbox.run(&["install", "cp", "demo", "--dry-run", "--set", "etcd.quotaBytes=much"])
}

fn refused_by_preflight(sandbox: &Sandbox) -> Ran {
    // A Kubernetes version that no service version supports.
    let version = json!({"major": "1", "minor": "99", "gitVersion": "v1.99.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    let server = serve(move |_, path| if path == "/version" { (200, version.clone()) } else { not_found() });
    use_cluster(sandbox, &server);
    sandbox.run(&["install", "cp", "demo", "--version", "auto"])
}

fn timed_out(sandbox: &Sandbox) -> Ran {
    // A workload cluster that stays, whatever is asked for.
    let cluster = json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "west", "uid": "u", "resourceVersion": "1"}, "spec": {"name": "west"}});
    let server = serve(move |method, path| match (method, path.split('?').next().unwrap()) {
        ("GET", "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters") => list(std::slice::from_ref(&cluster)),
        (_, "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters/west") => (200, cluster.clone()),
        _ => not_found(),
    });
    use_cluster(sandbox, &server);
    sandbox.run(&["delete", "cluster", "west", "--yes", "--timeout", "1s"])
}

fn left_part_done(sandbox: &Sandbox) -> Ran {
    // An object with the installation's label that no record knows: not deleted, but not forgotten either.
    let kinds = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [
        {"name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap", "verbs": ["get", "list"]}]});
    let left = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "left", "namespace": "elsewhere", "uid": "u",
        "labels": {"fleet-scheduler.io/install": "demo", "fleet-scheduler.io/install-kind": "control-plane"}}});
    let server = serve(move |_, path| match path.split('?').next().unwrap() {
        "/apis" => (200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        "/api/v1" => (200, kinds.clone()),
        "/api/v1/configmaps" => list(std::slice::from_ref(&left)),
        _ => not_found(),
    });
    use_cluster(sandbox, &server);
    sandbox.run(&["uninstall", "cp", "demo"])
}

fn refused_for_safety(sandbox: &Sandbox) -> Ran {
    std::fs::create_dir(sandbox.path().join("bin")).unwrap();
    sandbox.file("bin/kubectl-fleet", "#!/bin/sh\n");
    sandbox.run(&["kubectl-install", "--bin-dir", "bin"])
}

fn not_healthy(sandbox: &Sandbox) -> Ran {
    use_cluster(sandbox, &serve(|_, path| if path.contains("/statefulsets?") { list(&[]) } else { not_found() }));
    sandbox.run(&["status"])
}

fn interrupted(sandbox: &Sandbox) -> Ran {
    // The removal looks for its namespace first; it never learns.
    let (asked, asks) = mpsc::sync_channel(1);
    let server = serve(move |_, path| {
        if path == "/api/v1/namespaces/fleet" {
            let _ = asked.try_send(());
            std::thread::park();
        }
        not_found()
    });
    use_cluster(sandbox, &server);
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("fleetctl"));
    command.args(["uninstall", "cp", "demo"]).env_clear().env("HOME", sandbox.path());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    asks.recv().unwrap();
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    Ran::of(child.wait_with_output().unwrap())
}

/// Runs a command to its end.
type Producer = fn(&Sandbox) -> Ran;

#[test]
fn every_documented_exit_code_is_made_by_a_command_and_every_other_is_documented() {
    let producers: BTreeMap<i32, (Producer, &str)> = BTreeMap::from([
        (0, (done as Producer, "")),
        (1, (failed, "no kubeconfig was found")),
        (2, (wrong_arguments, "etcd.quotaBytes")),
        (3, (refused_by_preflight, "v1.99")),
        (4, (timed_out, "timed out waiting for the condition: Cluster west")),
        (5, (left_part_done, "elsewhere/left: it has the label of this installation")),
        (6, (refused_for_safety, "is not this program")),
        (7, (not_healthy, "no control plane is installed in namespace fleet")),
        (130, (interrupted, "was interrupted")),
    ]);
    assert_eq!(documented(), producers.keys().copied().collect::<Vec<_>>(), "docs/exit-codes.md and this table differ");
    for (code, (make, says)) in producers {
        let ran = make(&Sandbox::new());
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.contains(says), "{code}: `{says}` is not in:\n{}", ran.stderr);
    }
}
