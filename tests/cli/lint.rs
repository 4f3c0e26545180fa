//! `lint`: values checked without a cluster.

use serde_json::Value;

use crate::show::LINES;
use crate::{Ran, Sandbox};

#[test]
fn right_values_are_right_for_every_line_and_wrong_ones_are_said_for_each() {
    let sandbox = Sandbox::new();
    let good = sandbox.file("good.yaml", "scheduler:\n  registration: Manual\n");
    let lint = sandbox.run(&["lint", "--values", &good, "--all-versions"]);
    assert_eq!(lint.succeeds().lines().filter(|line| line.contains("objects")).count(), LINES.len(), "{lint:?}");
    let ran = sandbox.run(&["lint", "--set", "etcd.replicas=3", "--all-versions", "-o", "json"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let outcomes: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    for outcome in outcomes {
        let old = ["v0.6", "v0.7"].contains(&outcome["version"].as_str().unwrap());
        let codes: Vec<&str> =
            outcome["problems"].as_array().unwrap().iter().filter_map(|problem| problem["code"].as_str()).collect();
        assert_eq!(codes, if old { vec!["needs-newer-version"] } else { vec![] }, "{outcome}");
    }
}

#[test]
fn what_values_make_of_the_objects_is_checked_too() {
    let sandbox = Sandbox::new();
    let patch = sandbox.file("p.yaml", "kind: Service\nmetadata: {name: apiserver, annotations: {bad key: x}}\n");
    let ran = sandbox.run(&["lint", "--patch", &patch]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stdout.contains("service/apiserver: the annotation `bad key`"), "{}", ran.stdout);
    let ran = sandbox.run(&["lint", "--set-json", r#"exposure.annotations={"bad key": "x"}"#]);
    assert!(ran.code == 2 && ran.stdout.contains("--set-json:1:"), "{}", ran.stdout);
    for chart in ["control-plane", "agent"] {
        let name = sandbox.run(&["lint", chart, "--set", "name=My_Name"]);
        assert!(name.code == 2 && name.stdout.contains("`My_Name`"), "{name:?}");
    }
    let old = sandbox.run(&["lint", "--kube-version", "1.31"]);
    assert!(old.code == 2 && old.stdout.contains("supports Kubernetes v1.24 to v1.25, not v1.31"), "{old:?}");
    sandbox.run(&["lint", "agent", "--version", "v1.1", "--set", "replicas=2"]).succeeds();
}

#[test]
fn standard_input_is_a_file_of_values_for_all_versions_at_once() {
    let sandbox = Sandbox::new();
    let run = |text: &str| {
        let args = ["lint", "--values", "-", "--all-versions"];
        Ran::of(sandbox.command().args(args).write_stdin(text).output().unwrap())
    };
    run("scheduler: {registration: Manual}\n").succeeds();
    let wrong = run("scheduler: {registration: Never}\n");
    assert_eq!(wrong.code, 2);
    assert_eq!(wrong.stdout.matches("standard input:1:27").count(), LINES.len(), "{}", wrong.stdout);
}

#[test]
fn addresses_and_images_that_nothing_could_use_are_wrong_values() {
    let sandbox = Sandbox::new();
    let digest = format!("sha256:{}", "0".repeat(64));
    for (flag, value) in [
        ("--set", "exposure.extraSANs={foo/}"),
        ("--set", "exposure.extraSANs={192.0.2.1:6443}"),
        ("--set", "scheduler.image.repository=foo bar:1@"),
        ("--set", "etcd.image.repository=foo:5000/bar:v1"),
        ("--set", "etcd.image.tag=v1 2"),
        ("--set", "etcd.image.tag=sha256:abc"),
        ("--image-registry", "http://x/"),
    ] {
        let ran = sandbox.run(&["lint", flag, value]);
        assert!(ran.code == 2 && ran.stdout.contains("^ must match "), "{flag} {value}: {ran:?}");
    }
    let address = sandbox.run(&["lint", "--set", "exposure.extraSANs={foo/}"]);
    assert!(address.stdout.contains("An IP address, or a DNS name"), "{address:?}");
    for (flag, value) in [
        ("--set", "exposure.extraSANs={foo.example,*.foo.example,192.0.2.1,2001:db8::1,::ffff:192.0.2.1}"),
        ("--set", "etcd.image.repository=foo:5000/bar.example/etcd"),
        ("--set", "etcd.image.repository=[2001:db8::1]:5000/a__b/c-d"),
        ("--set", &format!("etcd.image.tag={digest}")),
        ("--set", &format!("etcd.image.tag=v1@{digest}")),
        ("--image-registry", "mirror.example:5000/proxy"),
    ] {
        sandbox.run(&["lint", flag, value]).succeeds();
    }
    for tag in ["v0.6.1 ", "v0.6.1/x"] {
        let args = ["install", "agent", "west", "--dry-run", "--version", "v0.6", "--image-tag", tag];
        sandbox.run(&args).fails(2, &["--image-tag", "must match"]);
    }
}
