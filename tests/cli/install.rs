//! `install control-plane` as far as it needs no cluster: arguments, values, the dry run.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::check::empty;
use crate::server::{Answer, admin_kubeconfig, kubeconfig, list, serve, use_cluster, with_kubeconfig};
use crate::{Ran, Sandbox};

/// The documents of a YAML stream as JSON.
pub(crate) fn documents(text: &str) -> Vec<serde_json::Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

pub(crate) fn find<'a>(all: &'a [serde_json::Value], kind: &str, name: &str) -> &'a serde_json::Value {
    let found = all.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn a_dry_run_prints_every_object_with_placeholders_and_asks_no_cluster() {
    let sandbox = Sandbox::new();
    // No kubeconfig exists in this home, so asking a cluster would fail.
    let ran = sandbox.run(&["install", "control-plane", "demo", "--dry-run"]);
    let objects = documents(ran.succeeds());
    for (kind, name) in [
        ("Namespace", "fleet"),
        ("Service", "apiserver"),
        ("StatefulSet", "etcd"),
        ("Deployment", "apiserver"),
        ("Deployment", "kube-controller-manager"),
        ("Deployment", "fleet-scheduler"),
        ("Secret", "fleet-pki"),
        ("ConfigMap", "fleet-bootstrap"),
        ("NetworkPolicy", "etcd"),
    ] {
        find(&objects, kind, name);
    }
    let mut entries = 0;
    for secret in objects.iter().filter(|object| object["kind"] == "Secret") {
        for (key, value) in secret["data"].as_object().unwrap() {
            assert_eq!(value, "PGdlbmVyYXRlZCBhdCBpbnN0YWxsPg==", "{key} is a placeholder");
            entries += 1;
        }
    }
    assert!(entries > 20);
    assert!(!sandbox.path().join(".fleet").exists(), "a dry run writes no file");
    assert_eq!(sandbox.run(&["install", "cp", "demo", "--dry-run"]).succeeds(), ran.stdout, "the same bytes each time");
}

#[test]
fn image_flags_reach_the_scheduler_and_choose_the_version() {
    let sandbox = Sandbox::new();
    let image = |args: &[&str]| {
        let ran = sandbox.run(&[&["install", "cp", "demo", "--dry-run"], args].concat());
        let objects = documents(ran.succeeds());
        let scheduler = find(&objects, "Deployment", "fleet-scheduler").clone();
        scheduler["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    };
    assert_eq!(image(&[]), "fleetscheduler/fleet-scheduler:v0.6.1");
    assert_eq!(image(&["--image-tag", "v0.6.0"]), "fleetscheduler/fleet-scheduler:v0.6.0");
    assert_eq!(image(&["--image-repository", "mirror.example/x", "--version", "v0.6"]), "mirror.example/x:v0.6.1");
    let refused = |args: &[&str], parts: &[&str]| {
        sandbox.run(&[&["install", "cp", "demo", "--dry-run"], args].concat()).fails(2, parts);
    };
    refused(&["--image-tag", "latest"], &["latest", "--version"]);
    refused(&["--version", "v9.9"], &["v9.9", "versions"]);
    refused(&["--version", "new"], &["new"]);
    refused(&["--version", "v0.6", "--image-tag", "v1.1.0"], &["v0.6", "v1.1"]);
    refused(&["--version", "auto"], &["auto", "--dry-run"]);
    refused(&["--image-tag", ""], &["--image-tag"]);
}

#[test]
fn the_name_comes_from_the_argument_or_the_values_and_is_checked() {
    let sandbox = Sandbox::new();
    let values = sandbox.file("v.yaml", "name: from-values\n");
    let named = sandbox.run(&["install", "cp", "--values", &values, "--dry-run"]);
    assert_eq!(
        find(&documents(named.succeeds()), "Namespace", "fleet")["metadata"]["labels"]["app.kubernetes.io/instance"],
        "from-values"
    );
    sandbox.run(&["install", "cp", "--dry-run"]).fails(2, &["has no name", "install control-plane NAME", "name:"]);
    sandbox.run(&["install", "cp", "My_Plane", "--dry-run"]).fails(2, &["My_Plane", "`my-plane`"]);
    sandbox.run(&["install", "cp", "../../etc", "--dry-run"]).fails(2, &["../../etc"]);
}

#[test]
fn wrong_values_are_shown_at_their_place_all_at_once() {
    let sandbox = Sandbox::new();
    let values = sandbox.file("v.yaml", "etcd:\n  replicas: 2\nexposures:\n  type: NodePort\n");
    let ran =
        sandbox.run(&["install", "cp", "demo", "--dry-run", "--values", &values, "--set", "apiserver.replicas=none"]);
    ran.fails(2, &["the values have 3 errors", "v.yaml:2:", "exposures", "exposure", "--set"]);
}

#[test]
fn an_access_key_is_read_from_its_file_and_never_shown() {
    let sandbox = Sandbox::new();
    let wrong = |content: Option<&str>, parts: &[&str]| {
        let path = match content {
            Some(content) => sandbox.file("key.json", content),
            None => sandbox.path().join("missing.json").display().to_string(),
        };
        let ran = sandbox.run(&["install", "cp", "demo", "--dry-run", "--cloud-access-key", &path]);
        ran.fails(2, parts);
        assert!(!ran.stderr.contains("canary"), "{ran:?}");
    };
    wrong(None, &["--cloud-access-key", "missing.json", "does not exist"]);
    wrong(Some("canary-text"), &["key.json", "not JSON (line 1"]);
    wrong(Some("[\"canary\"]"), &["not a JSON object"]);
    wrong(Some(""), &["not JSON"]);
    let path = sandbox.file("key.json", r#"{"private_key": "canary"}"#);
    let ran =
        sandbox.run(&["install", "cp", "demo", "--dry-run", "--cloud-access-key", &path, "--cloud-project-id", "p-1"]);
    find(&documents(ran.succeeds()), "Secret", "fleet-cloud-credentials");
    sandbox.run(&["install", "cp", "demo", "--dry-run", "--cloud-project-id", ""]).fails(2, &["--cloud-project-id"]);
}

#[test]
fn without_a_cluster_the_error_names_what_was_looked_for() {
    let sandbox = Sandbox::new();
    sandbox.run(&["install", "cp", "demo"]).fails(1, &["no kubeconfig was found", ".kube/config", "KUBECONFIG"]);
    let file = sandbox.file("config", "clusters: [");
    sandbox.run(&["install", "cp", "demo", "--kubeconfig", &file]).fails(1, &["config"]);
    sandbox.run(&["install", "cp", "demo", "--skip-preflight", "storge"]).fails(2, &["storge", "storage"]);
    sandbox.run(&["install", "cp", "demo", "--timeout", "soon"]).fails(2, &["soon", "5m"]);
}

/// A hosting cluster that answers with `answer`, and what was asked of it to write.
fn written_to(answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&writes);
    let server = serve(move |method, path| {
        if method != "GET" && !path.contains("/selfsubjectaccessreviews") {
            noted.lock().unwrap().push(format!("{method} {path}"));
        }
        answer(method, path)
    });
    (server, writes)
}

/// An install that the cluster itself keeps from nothing.
const INSTALL: [&str; 5] = ["install", "cp", "demo", "--skip-preflight", "nodes,storage"];

#[test]
fn a_part_of_a_set_of_keys_on_this_machine_is_refused_by_its_folder_before_anything_is_written() {
    let sandbox = Sandbox::new();
    let (server, writes) = written_to(empty);
    use_cluster(&sandbox, &server);
    let exposed =
        ["--set", "exposure.type=NodePort", "--set", "exposure.host=192.0.2.1", "--set", "exposure.port=32222"];
    let template = || sandbox.run(&[&["template", "cp", "demo"], &exposed[..]].concat());
    template().succeeds();
    let folder = sandbox.path().join(".fleet/demo/pki");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "ca.crt" {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let named = format!("the keys in {} cannot be used", folder.display());
    let told = [&named, "`ca.key` is missing from the keys of the control plane", "move the folder away"];
    template().fails(1, &told);
    for more in [&[][..], &["--dry-run=server"]] {
        sandbox.run(&[&INSTALL, more].concat()).fails(1, &told);
    }
    sandbox.run(&INSTALL).fails(1, &["nothing was written to the cluster"]);
    assert_eq!(*writes.lock().unwrap(), Vec::<String>::new());
}

/// A ConfigMap of control plane `demo`, as an install leaves it in the cluster.
fn installed_map(sandbox: &Sandbox) -> Value {
    let printed = sandbox.run(&["install", "cp", "demo", "--dry-run"]);
    let mut map = find(&documents(printed.succeeds()), "ConfigMap", "fleet-bootstrap").clone();
    map["metadata"]["uid"] = json!("1");
    map["metadata"]["managedFields"] = json!([{"manager": "fleetctl", "operation": "Apply", "fieldsV1": {}}]);
    map
}

#[test]
fn a_lost_record_is_said_with_what_was_found_before_anything_is_written() {
    let sandbox = Sandbox::new();
    let map = installed_map(&sandbox);
    let there = move |method: &str, path: &str| match path.split('?').next() {
        Some("/api/v1/namespaces/fleet") => {
            (200, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}))
        }
        Some("/api/v1/configmaps" | "/api/v1/namespaces/fleet/configmaps") => list(std::slice::from_ref(&map)),
        _ => empty(method, path),
    };
    let (server, writes) = written_to(there);
    use_cluster(&sandbox, &server);
    // Keys that stop the install before its first write.
    std::fs::create_dir_all(sandbox.path().join(".fleet/demo/pki")).unwrap();
    sandbox.file(".fleet/demo/pki/ca.crt", "none");
    let lost = "the record of this installation is lost; 1 object was found by its labels";
    sandbox.run(&INSTALL).fails(1, &[&format!("warning: {lost}"), "cannot be used", "nothing was written"]);
    assert_eq!(*writes.lock().unwrap(), Vec::<String>::new());
    let events = sandbox.run(&[&INSTALL[..], &["-o", "json"]].concat()).stderr;
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told: Vec<Value> = events.filter(|event| event["type"] == "record-lost").collect();
    assert_eq!(told.iter().map(|event| &event["found"]).collect::<Vec<_>>(), [&json!(1)]);

    // This server lets nothing be written, so the removal ends at its first write.
    let removal = sandbox.run(&["uninstall", "cp", "demo"]);
    assert!(removal.code != 0 && removal.stderr.contains(&format!("warning: {lost}")), "{removal:?}");
    assert!(!writes.lock().unwrap().is_empty());

    // Where nothing is there, nothing is lost.
    let sandbox = Sandbox::new();
    use_cluster(&sandbox, &written_to(empty).0);
    std::fs::create_dir_all(sandbox.path().join(".fleet/demo/pki")).unwrap();
    sandbox.file(".fleet/demo/pki/ca.crt", "none");
    let first = sandbox.run(&INSTALL);
    first.fails(1, &["cannot be used"]);
    assert!(!first.stderr.contains("lost"), "{first:?}");
}

#[test]
fn a_context_that_is_named_like_the_control_plane_is_said_before_anything_is_written() {
    let sandbox = Sandbox::new();
    let (server, writes) = written_to(empty);
    std::fs::create_dir_all(sandbox.path().join(".fleet/demo/pki")).unwrap();
    // Keys that stop the install before its first write.
    sandbox.file(".fleet/demo/pki/ca.crt", "none");
    with_kubeconfig(&sandbox, &kubeconfig("demo", &server));
    let said = format!("warning: your kubeconfig already has a context demo for {server}");
    sandbox.run(&INSTALL).fails(1, &[&said, "kubectl config rename-context demo NEW", "nothing was written"]);
    let events = sandbox.run(&[&INSTALL[..], &["-o", "json"]].concat()).stderr;
    assert!(events.contains("\"warning\"") && events.contains("already has a context demo"), "{events}");
    assert_eq!(*writes.lock().unwrap(), Vec::<String>::new());
    // The one that an earlier install wrote is the control plane's own.
    let own = admin_kubeconfig("demo", "http://192.0.2.1:6443");
    sandbox.file(".fleet/demo/fleet-kubeconfig", &own);
    let both = [sandbox.file("hosting", &kubeconfig("hosting", &server)), sandbox.file("own", &own)].join(":");
    let ran = Ran::of(sandbox.command().args(INSTALL).env("KUBECONFIG", both).output().unwrap());
    assert!(!ran.stderr.contains("has a context demo"), "{}", ran.stderr);
}
