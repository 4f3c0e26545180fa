//! `--patch` on the command line: where it is taken, what it changes, and what is said of mistakes.

use serde_json::{Value, json};

use crate::Sandbox;
use crate::install::{documents, find};

const PATCH: &str = "kind: Deployment\nmetadata: {name: apiserver, annotations: {example.com/owner: 'no'}}\nspec:\n  template:\n    spec:\n      containers:\n      - {name: apiserver, resources: {limits: {memory: 1Gi}}}\n---\ntarget: {kind: StatefulSet, name: etcd}\npatch:\n- {op: replace, path: /spec/replicas, value: 3}\n";

const EXPOSED: [&str; 4] = ["--preset", "nodeport", "--set", "exposure.host=192.0.2.10"];

#[test]
fn patches_change_what_template_and_a_dry_run_print_and_the_digest() {
    let sandbox = Sandbox::new();
    let patch = sandbox.file("patch.yaml", PATCH);
    let run = |args: &[&str]| sandbox.run(&[args, &EXPOSED].concat()).succeeds().to_owned();
    let plain = ["template", "cp", "demo", "--without-keys"];
    let patched = [&plain[..], &["--patch", &patch]].concat();
    let (before, after) = (documents(&run(&plain)), documents(&run(&patched)));
    let mut expected = before.clone();
    for object in &mut expected {
        match (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap()) {
            ("Deployment", "apiserver") => {
                object["metadata"]["annotations"] = json!({"example.com/owner": "no"});
                object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = json!({"memory": "1Gi"});
            }
            ("StatefulSet", "etcd") => object["spec"]["replicas"] = 3.into(),
            _ => {}
        }
    }
    assert_eq!(after, expected);
    let list: Value = serde_json::from_str(&run(&[&patched[..], &["-o", "json"]].concat())).unwrap();
    assert_eq!(list["items"].as_array().unwrap(), &expected);
    let digest = |args: &[&str]| run(&[args, &["--print-digest"]].concat());
    assert_ne!(digest(&plain), digest(&patched));
    let dry = documents(&run(&["install", "cp", "demo", "--dry-run", "--patch", &patch]));
    assert_eq!(find(&dry, "StatefulSet", "etcd")["spec"]["replicas"], 3);
    let agent =
        sandbox.file("agent.yaml", "kind: Deployment\nmetadata: {name: fleet-agent}\nspec: {minReadySeconds: 5}\n");
    let objects = documents(sandbox.run(&["template", "agent", "west", "--patch", &agent]).succeeds());
    assert_eq!(find(&objects, "Deployment", "fleet-agent")["spec"]["minReadySeconds"], 5);
}

#[test]
fn explain_names_the_patch_with_its_place_and_what_was_there_before() {
    let sandbox = Sandbox::new();
    sandbox.file("patch.yaml", PATCH);
    let explain = |field: &str| {
        let args = ["template", "cp", "demo", "--patch", "patch.yaml", "--explain", field];
        sandbox.run(&args).succeeds().to_owned()
    };
    let text = explain("sts/etcd#spec.replicas");
    assert!(text.starts_with("statefulset/etcd#spec.replicas = 3\n  patch patch.yaml:11:3: "), "{text}");
    assert!(text.contains("    instead of 1\n") && text.contains("values.etcd.replicas"), "{text}");
    // What no template gives.
    let text = explain("deploy/apiserver#metadata.annotations");
    assert!(text.contains("= no\n  patch patch.yaml:2:"), "{text}");
    let text = explain("deploy/apiserver#spec.template.spec.containers[0].resources");
    assert!(text.contains("\n  patch patch.yaml:7:27: ") && text.contains("instead of {\"requests\""), "{text}");
    let text = explain("deploy/apiserver#spec.template.spec.containers[0].resources.limits.memory");
    assert!(text.contains("resources.limits.memory = 1Gi\n  patch patch.yaml:7:"), "{text}");
    let text = explain("deploy/apiserver#spec.replicas");
    assert!(!text.contains("patch"), "{text}");
}

#[test]
fn a_patch_that_does_not_fit_is_refused_by_every_command_before_any_cluster_is_asked() {
    let sandbox = Sandbox::new();
    let wrong = sandbox.file("wrong.yaml", "---\nkind: Deployment\nmetadata: {name: apisever}\nspec: {replicas: 2}\n");
    let parts =
        ["wrong.yaml:3:18", "document 1 patches Deployment `apisever`", "StatefulSet/etcd", "`Deployment/apiserver`?"];
    for command in [
        &["install", "cp", "demo"][..],
        &["install", "cp", "demo", "--dry-run"],
        &["diff", "cp", "demo"],
        &["check", "--pre"],
        &["show", "rbac", "demo"],
        &["template", "cp", "demo", "--set", "exposure.type=ClusterIP"],
        &["show", "images", "cp"],
    ] {
        sandbox.run(&[command, &["--patch", &wrong]].concat()).fails(2, &parts);
    }
    let ran = sandbox.run(&["lint", "--patch", &wrong]);
    assert!(ran.code == 2 && parts.iter().all(|part| ran.stdout.contains(part)), "{ran:?}");
    sandbox.run(&["template", "cp", "demo", "--patch", "gone.yaml"]).fails(2, &["gone.yaml does not exist", "patches"]);
    let key = sandbox.file("key.yaml", "target: {kind: Secret, name: fleet-pki}\npatch:\n- {op: copy, from: /data/ca.key, path: /metadata/annotations}\n");
    let args = [&["template", "cp", "demo", "--patch", &key][..], &EXPOSED].concat();
    sandbox.run(&args).fails(2, &["key.yaml:3:3", "can only add, replace and remove"]);
    assert!(!sandbox.path().join(".fleet").exists(), "nothing was written");
}

#[test]
fn lint_and_images_see_what_is_patched() {
    let sandbox = Sandbox::new();
    let text = "kind: Deployment\nmetadata: {name: apiserver}\nspec: {template: {spec: {initContainers: [{name: wait, image: example/wait:1}]}}}\n";
    let patch = sandbox.file("patch.yaml", text);
    let images = sandbox.run(&["show", "images", "cp", "-o", "name", "--patch", &patch]);
    assert!(images.succeeds().contains("example/wait:1\n"), "{images:?}");
    let bad = sandbox.file("bad.yaml", "kind: Service\nmetadata: {name: apiserver, labels: {example.com/x: 'a b'}}\n");
    let ran = sandbox.run(&["lint", "--patch", &bad]);
    assert!(ran.code == 2 && ran.stdout.contains("example.com/x"), "{ran:?}");
}
