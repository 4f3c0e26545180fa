//! `template control-plane`: manifests that can be applied, with keys that are made once.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::Sandbox;
use crate::install::{documents, find};

const DECIDED: [&str; 7] =
    ["template", "cp", "demo", "--set", "exposure.type=NodePort", "--set", "exposure.host=192.0.2.10"];

fn template(sandbox: &Sandbox, more: &[&str]) -> crate::Ran {
    sandbox.run(&[&DECIDED[..], &["--set", "exposure.port=32222"], more].concat())
}

#[test]
fn manifests_are_whole_and_the_keys_are_made_once_and_kept() {
    let sandbox = Sandbox::new();
    let first = template(&sandbox, &[]);
    let objects = documents(first.succeeds());
    assert!(first.stderr.contains("private keys"), "{}", first.stderr);
    assert_eq!(find(&objects, "Service", "apiserver")["spec"]["ports"][0]["nodePort"], 32222);
    assert_eq!(template(&sandbox, &[]).succeeds(), first.stdout);
    let keys = sandbox.path().join(".fleet/demo/pki");
    assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(keys.join("ca.key")).unwrap().permissions().mode() & 0o777, 0o600);
    let kubeconfig = fs::read_to_string(sandbox.path().join(".fleet/demo/fleet-kubeconfig")).unwrap();
    assert!(kubeconfig.contains("https://192.0.2.10:32222"), "the kubeconfig names the endpoint");
    let list: serde_json::Value = serde_json::from_str(template(&sandbox, &["-o", "json"]).succeeds()).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), objects.len());
}

#[test]
fn an_undecided_exposure_is_a_usage_error_with_the_flags_that_decide() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&["template", "cp", "demo"])
        .fails(2, &["`exposure.type` has to be given", "--set exposure.type=NodePort"]);
    sandbox.run(&DECIDED).fails(2, &["`exposure.port` has to be given"]);
    assert!(!sandbox.path().join(".fleet").exists(), "nothing is written");
}

#[test]
fn a_kubernetes_version_outside_the_row_is_refused() {
    let sandbox = Sandbox::new();
    template(&sandbox, &["--kube-version", "v1.25.4-gke.1"]).succeeds();
    template(&sandbox, &["--kube-version", "1.31"]).fails(3, &["does not support Kubernetes v1.31", "versions"]);
}

#[test]
fn a_damaged_key_is_named_and_nothing_is_made_anew() {
    let sandbox = Sandbox::new();
    template(&sandbox, &[]).succeeds();
    let key = sandbox.path().join(".fleet/demo/pki/ca.key");
    let good = fs::read_to_string(&key).unwrap();
    fs::write(&key, "-----BEGIN PRIVATE KEY-----\nbroken\n-----END PRIVATE KEY-----\n").unwrap();
    template(&sandbox, &[]).fails(1, &["ca.key"]);
    fs::write(&key, good).unwrap();
    template(&sandbox, &[]).succeeds();
}
