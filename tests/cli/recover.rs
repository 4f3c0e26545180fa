//! `rollback` and `kubeconfig` as far as they need no real cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::Sandbox;
use crate::install::documents;
use crate::server::{not_found, serve, use_cluster};

#[test]
fn names_are_checked_and_asked_for() {
    let sandbox = Sandbox::new();
    for command in ["rollback", "kubeconfig"] {
        sandbox.run(&[command]).fails(2, &["CONTROL_PLANE_NAME"]);
        sandbox.run(&[command, "../../etc"]).fails(2, &["../../etc"]);
        sandbox.run(&[command, "demo", "--context", "nowhere"]).fails(2, &["nowhere"]);
    }
    sandbox.run(&["rollback", "demo", "--timeout", "soon"]).fails(2, &["soon", "5m"]);
}

#[test]
fn certificates_to_renew_and_limits_are_checked_before_anything_is_asked() {
    let sandbox = Sandbox::new();
    sandbox.run(&["certs", "renew", "demo", "--only", "apiserver.crt,apiservr.crt"]).fails(2, &["apiserver.crt"]);
    sandbox.run(&["certs", "renew", "demo", "--only", "ca.crt", "--all"]).fails(2, &["--all"]);
    sandbox.run(&["certs", "status", "demo", "--fail-under", "30"]).fails(2, &["30", "--fail-under"]);
}

#[test]
fn a_kubeconfig_comes_from_the_local_folder_where_there_is_no_cluster() {
    let sandbox = Sandbox::new();
    sandbox.run(&["kubeconfig", "demo"]).fails(1, &["no kubeconfig of control plane demo", ".fleet/demo"]);
    let exposed =
        ["--set", "exposure.type=NodePort", "--set", "exposure.host=192.0.2.1", "--set", "exposure.port=32222"];
    sandbox.run(&[&["template", "cp", "demo"], &exposed[..]].concat()).succeeds();
    let file = sandbox.path().join(".fleet/demo/fleet-kubeconfig");
    let made = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let shown = sandbox.run(&["kubeconfig", "demo", "--show"]);
    assert_eq!(shown.succeeds(), made);
    assert!(!file.exists(), "only shown");
    let written = sandbox.run(&["kubeconfig", "demo"]);
    assert!(written.succeeds().contains(&file.display().to_string()));
    assert!(!written.stdout.contains("client-key-data") && !written.stderr.contains("client-key-data"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), made);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_rollback_without_a_record_says_what_is_installed_by_its_labels() {
    let sandbox = Sandbox::new();
    let labels = json!({"fleet-scheduler.io/install": "demo", "app.kubernetes.io/version": "v0.7.1"});
    let server = serve(move |_, path| match path.split('?').next() {
        Some(path) if path.ends_with("/deployments/apiserver") => (
            200,
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "apiserver", "labels": labels}}),
        ),
        _ => not_found(),
    });
    use_cluster(&sandbox, &server);
    let said = sandbox.run(&["rollback", "demo"]);
    let found = [
        "nothing to undo. According to its labels, service version v0.7.1 is installed",
        "fleetctl install control-plane demo",
    ];
    assert!(found.iter().all(|part| said.succeeds().contains(part)), "{said:?}");
    let other = sandbox.run(&["rollback", "other"]);
    assert!(other.succeeds().contains("Nothing is installed."), "{other:?}");
}

/// A cluster with an interrupted install of control plane demo, of which two objects are there; and what was written to it.
fn interrupted(sandbox: &Sandbox, steps: &Value) -> Arc<Mutex<Vec<String>>> {
    let journal = json!({"run": "r", "command": "install", "started": "2026-01-31T12:00:00Z\u{1b}[2J", "installUid": "u",
        "steps": steps});
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "fleetctl.demo", "namespace": "fleet", "uid": "s", "resourceVersion": "1"},
        "data": {"journal": STANDARD.encode(journal.to_string())}});
    let elsewhere = Sandbox::new();
    let given =
        ["--set", "exposure.type=NodePort", "--set", "exposure.host=192.0.2.10", "--set", "exposure.port=32222"];
    let manifests = elsewhere.run(&[&["template", "cp", "demo"], &given[..]].concat());
    let mut objects = BTreeMap::new();
    for mut object in documents(manifests.succeeds()) {
        object["metadata"]["uid"] = object["metadata"]["name"].clone();
        object["metadata"]["managedFields"] = json!([{"manager": "fleetctl", "operation": "Apply", "fieldsV1": {}}]);
        let place = match (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap()) {
            ("ConfigMap", name @ "fleet-bootstrap") => format!("/api/v1/namespaces/fleet/configmaps/{name}"),
            ("Deployment", name @ "fleet-scheduler") => format!("/apis/apps/v1/namespaces/fleet/deployments/{name}"),
            _ => continue,
        };
        objects.insert(place, object);
    }
    let (writes, objects) = (Arc::new(Mutex::new(Vec::new())), Mutex::new(objects));
    let told = Arc::clone(&writes);
    let server = serve(move |method, path| {
        let path = path.split('?').next().unwrap();
        let mut objects = objects.lock().unwrap();
        if method != "GET" {
            told.lock().unwrap().push(format!("{method} {path}"));
        }
        match (method, path) {
            (_, "/api/v1/namespaces/fleet/secrets/fleetctl.demo") => (200, secret.clone()),
            ("DELETE", path) => objects.remove(path).map_or_else(not_found, |object| (200, object)),
            ("GET", path) => objects.get(path).map_or_else(not_found, |object| (200, object.clone())),
            _ => not_found(),
        }
    });
    use_cluster(sandbox, &server);
    writes
}

#[test]
fn a_rollback_shows_its_plan_and_writes_nothing_where_nobody_can_be_asked() {
    let sandbox = Sandbox::new();
    let step = |group: &str, kind: &str, name: &str| {
        let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        json!({"group": group, "kind": kind, "namespace": "fleet", "name": name, "apiVersion": version, "undo": "delete"})
    };
    // The last is not there.
    let steps = json!([
        step("", "ConfigMap", "fleet-bootstrap"),
        step("apps", "Deployment", "fleet-scheduler"),
        step("apps", "Deployment", "apiserver")
    ]);
    let writes = interrupted(&sandbox, &steps);
    let plan = "This undoes the run of control plane demo begun 2026-01-31T12:00:00Z\\u{1b}[2J:\n  \
                delete Deployment fleet/fleet-scheduler\n  delete ConfigMap fleet/fleet-bootstrap\n";
    let asked = sandbox.run(&["rollback", "demo"]);
    asked.fails(6, &[plan, "undoing a run needs confirmation, but there is no terminal to ask on", "give `--yes`"]);
    let as_data = sandbox.run(&["rollback", "demo", "-o", "json"]);
    as_data.fails(6, &["NotConfirmed", "delete Deployment fleet/fleet-scheduler"]);
    assert_eq!(*writes.lock().unwrap(), Vec::<String>::new());
    let said = sandbox.run(&["rollback", "demo", "--yes"]);
    assert!(
        said.stderr.contains(plan) && said.succeeds().contains("\n  ConfigMap fleet/fleet-bootstrap\n"),
        "{said:?}"
    );
    let writes = writes.lock().unwrap();
    assert!(
        writes.contains(&"DELETE /apis/apps/v1/namespaces/fleet/deployments/fleet-scheduler".to_owned()),
        "{writes:?}"
    );
}

#[test]
fn a_journal_that_no_run_has_written_is_refused_by_rollback_and_uninstall_with_the_way_on() {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "pwn"}});
    let steps = json!([{"group": "rbac.authorization.k8s.io", "kind": "ClusterRoleBinding", "name": "pwn",
        "apiVersion": "rbac.authorization.k8s.io/v1", "undo": "recreate", "manifest": binding}]);
    for command in [
        &["rollback", "demo", "--yes"][..],
        &["uninstall", "cp", "demo"],
        &["uninstall", "cp", "demo", "--delete-data", "--yes"],
    ] {
        let sandbox = Sandbox::new();
        let writes = interrupted(&sandbox, &steps);
        let refused = sandbox.run(command);
        refused.fails(
            6,
            &[
                "ClusterRoleBinding pwn: no chart of any version renders this kind of object",
                "anyone who may edit Secrets in namespace fleet could have written it",
                "`kubectl -n fleet get secret fleetctl.demo",
                "`kubectl -n fleet patch secret fleetctl.demo --type=json",
                "nothing was written to the cluster",
            ],
        );
        assert_eq!(*writes.lock().unwrap(), Vec::<String>::new(), "{command:?}");
        let last: Value =
            serde_json::from_str(sandbox.run(&[command, &["-o", "json"]].concat()).stderr.lines().last().unwrap())
                .unwrap();
        assert_eq!(last["error"]["reason"], "JournalRefused");
    }
}

#[test]
fn a_journal_file_on_this_machine_that_names_something_else_is_refused_as_well() {
    let sandbox = Sandbox::new();
    let annotations = json!({"fleet-scheduler.io/namespace-created-by": "u"});
    let server = serve(move |method, path| match (method, path.split('?').next()) {
        ("GET", Some("/api/v1/namespaces/fleet")) => (
            200,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet", "annotations": annotations}}),
        ),
        _ => not_found(),
    });
    use_cluster(&sandbox, &server);
    let head = json!({"run": "r", "command": "install", "started": "then", "installUid": "u"});
    let step = json!({"kind": "ConfigMap", "namespace": "kube-system", "name": "coredns", "apiVersion": "v1", "undo": "delete"});
    std::fs::create_dir_all(sandbox.path().join(".fleet/demo")).unwrap();
    sandbox.file(".fleet/demo/journal", &format!("{head}\n{step}\n"));
    let refused = sandbox.run(&["rollback", "demo", "--yes"]);
    refused.fails(6, &["the journal on this machine", "ConfigMap kube-system/coredns", "move it away"]);
}
