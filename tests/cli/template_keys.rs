//! Where the keys of `template` come from, and which files it writes.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::install::{documents, find};
use crate::{Ran, Sandbox};

const DECIDED: [&str; 6] = ["template", "cp", "demo", "--preset", "nodeport", "--set"];

fn template(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.run(&[&DECIDED[..], &["exposure.host=192.0.2.10"], more].concat())
}

fn files(folder: &std::path::Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn new_keys_are_told_from_those_that_were_found() {
    let sandbox = Sandbox::new();
    let first = template(&sandbox, &[]);
    first.succeeds();
    assert!(
        first.stderr.contains("new keys were created in ") && first.stderr.contains(".fleet/demo/pki"),
        "{first:?}"
    );
    let second = template(&sandbox, &[]);
    assert!(second.stderr.contains("keys found in ") && !second.stderr.contains("new keys"), "{second:?}");
    assert_eq!(first.stdout, second.stdout);
}

#[test]
fn keys_can_be_kept_in_a_folder_of_ones_own_and_nothing_is_written_elsewhere() {
    let (one, other) = (Sandbox::new(), Sandbox::new());
    let folder = one.path().join("keys");
    let keys = ["--pki", folder.to_str().unwrap()];
    let first = template(&one, &keys);
    assert!(first.succeeds().contains("fleet-pki") && first.stderr.contains("new keys were created in "), "{first:?}");
    assert!(!one.path().join(".fleet").exists());
    // Another machine, or another run of a pipeline.
    assert_eq!(template(&other, &keys).succeeds(), first.stdout);
    assert!(!other.path().join(".fleet").exists());
    template(&one, &["--pki", "keys", "--without-keys"]).fails(2, &["--without-keys"]);
}

#[test]
fn without_keys_everything_else_is_rendered_and_always_the_same() {
    let (one, other) = (Sandbox::new(), Sandbox::new());
    let ran = template(&one, &["--without-keys"]);
    let objects = documents(ran.succeeds());
    assert!(!objects.is_empty() && objects.iter().all(|object| object["kind"] != "Secret"), "{}", ran.stdout);
    assert!(ran.stderr.contains("fleet-pki") && ran.stderr.contains("must exist"), "{}", ran.stderr);
    assert_eq!(template(&other, &["--without-keys"]).succeeds(), ran.stdout);
    let all = documents(template(&one, &[]).succeeds());
    let kept: Vec<&Value> = all.iter().filter(|object| object["kind"] != "Secret").collect();
    assert_eq!(kept.len(), objects.len());
    assert!(!other.path().join(".fleet").exists());
    // A Secret without keys is the user's own value.
    let file = other.file("registry.yaml", "registryCredentials: '{\"auths\":{}}'\n");
    let objects = documents(template(&other, &["--without-keys", "--values", &file]).succeeds());
    let secrets: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "Secret").collect();
    assert!(matches!(&secrets[..], [only] if only["metadata"]["name"] == "fleet-registry"), "{secrets:?}");
}

#[test]
fn the_keys_of_a_control_plane_cannot_be_replaced_by_applying_others() {
    let sandbox = Sandbox::new();
    for format in ["yaml", "json"] {
        let ran = template(&sandbox, &["-o", format]);
        let objects = match format {
            "yaml" => documents(ran.succeeds()),
            _ => serde_json::from_str::<Value>(ran.succeeds()).unwrap()["items"].as_array().unwrap().clone(),
        };
        let fixed: Vec<&str> = objects
            .iter()
            .filter(|object| object["immutable"] == true)
            .map(|object| object["metadata"]["name"].as_str().unwrap())
            .collect();
        let keys = [
            "fleet-pki",
            "etcd-certs",
            "apiserver-certs",
            "controller-manager-kubeconfig",
            "fleet-scheduler-kubeconfig",
            "fleet-kubeconfig",
        ];
        assert_eq!(BTreeSet::from_iter(fixed), BTreeSet::from(keys), "{format}");
    }
    // An install may renew them.
    let dry = sandbox.run(&["install", "cp", "demo", "--dry-run"]);
    assert_eq!(find(&documents(dry.succeeds()), "Secret", "fleet-pki")["immutable"], Value::Null);
}

#[test]
fn what_is_issued_again_is_named_with_what_lets_it_be_applied() {
    let sandbox = Sandbox::new();
    template(&sandbox, &[]).succeeds();
    let again = template(&sandbox, &[]);
    assert!(again.stderr.contains("keys found in ") && !again.stderr.contains("immutable"), "{again:?}");
    let moved = template(&sandbox, &["--set", "exposure.extraSANs={fleet.example.com}"]);
    moved.succeeds();
    assert!(moved.stderr.contains("`kubectl -n fleet delete secret apiserver-certs` before"), "{moved:?}");
}

#[test]
fn no_file_is_written_for_an_output_without_secrets() {
    for more in [
        &["-s", "deployment/apiserver"][..],
        &["--exclude-kind", "Secret"],
        &["--print-digest"],
        &["--output-dir", "out", "--include-kind", "Service"],
    ] {
        let sandbox = Sandbox::new();
        let ran = template(&sandbox, more);
        ran.succeeds();
        assert!(!sandbox.path().join(".fleet").exists(), "{more:?}");
        assert!(ran.stderr.contains("contains no keys"), "{ran:?}");
    }
}

#[test]
fn the_kubeconfig_of_an_install_is_never_overwritten() {
    let sandbox = Sandbox::new();
    template(&sandbox, &[]).succeeds();
    let file = sandbox.path().join(".fleet/demo/fleet-kubeconfig");
    // As an install with the keys of this machine writes it.
    fs::remove_file(sandbox.path().join(".fleet/demo/pki/.kubeconfig-of-template")).unwrap();
    let installed = fs::read_to_string(&file).unwrap();
    let ran = template(&sandbox, &["--set", "exposure.host=192.0.2.77"]);
    assert!(ran.succeeds().contains("192.0.2.77"), "{ran:?}");
    assert!(
        ran.stderr.contains("was written by an install and is not changed")
            && ran.stderr.contains("pki/admin.kubeconfig")
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), installed);
}

#[test]
fn an_output_folder_keeps_foreign_files_and_stable_names() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path().join("out");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("kustomization.yaml"), "mine").unwrap();
    let agent = |more: &[&str]| {
        let args = [&["template", "agent", "west", "--output-dir", "out"][..], more].concat();
        sandbox.run(&args).succeeds().lines().count()
    };
    let all = agent(&[]);
    let before = files(&folder);
    assert_eq!(all + 2, before.len(), "and an index and a file of the user: {before:?}");
    let fewer = agent(&["--set", "networkPolicy.enabled=false"]);
    let after = files(&folder);
    assert!(fewer < all && after.iter().all(|name| before.contains(name)), "{before:?} {after:?}");
    assert!(!after.iter().any(|name| name.contains("networkpolicy")), "what is no longer rendered goes: {after:?}");
    assert_eq!(fs::read_to_string(folder.join("kustomization.yaml")).unwrap(), "mine");
    assert_eq!(agent(&[]), all);
    assert_eq!(files(&folder), before);
    // Only what is in the index is ours, and an index that names other places names nothing.
    fs::write(folder.join("mine.yaml"), "mine").unwrap();
    fs::write(sandbox.path().join("outside.yaml"), "mine").unwrap();
    let index = folder.join(".fleetctl-index");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, format!("{text}../outside.yaml\n/etc/x.yaml\n")).unwrap();
    agent(&[]);
    assert!(sandbox.path().join("outside.yaml").exists() && folder.join("mine.yaml").exists());
    fs::write(&index, "").unwrap();
    let refused = sandbox.run(&["template", "agent", "west", "--output-dir", "out"]);
    refused.fails(6, &["not written by this program", "move this file away"]);
}
