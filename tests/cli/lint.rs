//! `lint`: values checked without a cluster.

use serde_json::Value;

use crate::{Ran, Sandbox};

#[test]
fn right_values_are_right_for_every_line_and_wrong_ones_are_said_for_each() {
    let sandbox = Sandbox::new();
    let good = sandbox.file("good.yaml", "scheduler:\n  registration: Manual\n");
    let lint = sandbox.run(&["lint", "--values", &good, "--all-versions"]);
    assert_eq!(lint.succeeds().lines().filter(|line| line.contains("objects")).count(), 6, "{lint:?}");
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
    let ran = sandbox.run(&["lint", "--set-json", r#"exposure.annotations={"bad key": "x"}"#]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stdout.contains("service/apiserver: the annotation `bad key`"), "{}", ran.stdout);
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
    assert_eq!(wrong.stdout.matches("standard input:1:27").count(), 6, "{}", wrong.stdout);
}
