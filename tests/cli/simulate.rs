//! `simulate`: a recording of a control plane, and what is asked about it without one.

use serde_json::{Value, json};

use crate::Sandbox;
use crate::server::{list, not_found, serve, use_cluster};

/// Values that no recording may hold.
const CANARY: &str = "canary-7f3a";

fn cluster(name: &str, cpu: &str) -> Value {
    let node = json!({ "n1": {"cpu": cpu, "memory": "64Gi", "pods": "110"} });
    json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "uid": name, "annotations": {"note": CANARY}, "labels": {"region": name}},
        "spec": {"name": name, "accepted": true},
        "status": {"capacityResources": node, "availableResources": node, "conditions": [
            {"type": "Ready", "status": "True", "reason": "ClusterReady", "message": CANARY}]}})
}

fn deployment(name: &str, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": CANARY, "env": [{"name": "A", "value": CANARY}],
        "envFrom": [{"secretRef": {"name": "key"}}], "resources": {"requests": {"cpu": cpu}}});
    json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "generation": 1,
            "creationTimestamp": "2026-01-02T00:00:00Z", "annotations": {"note": CANARY}},
        "spec": {"replicas": 2, "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}}})
}

fn policy() -> Value {
    let edit = json!({"fieldPath": "data.a", "value": {"staticValue": CANARY}});
    let resource = json!({"kind": "ConfigMap", "apiVersion": "v1", "name": "page", "override": [edit]});
    json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
        "metadata": {"name": "shop", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"note": CANARY}},
        "spec": {"namespaceSelector": {}, "resourceSelectors": {"labelSelectors": [{}],
                "kinds": [{"group": "apps", "kind": "Deployment"}]},
            "spreadConstraints": {"overrides": [{"topologyValue": "west", "resources": [resource]}]},
            "clusterSelector": {"matchLabels": {"region": "west"}}}})
}

/// The Schedule of `web` in `west`.
fn schedule() -> Value {
    json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
        "metadata": {"name": "web", "namespace": "fleet-c-west", "creationTimestamp": "2026-01-02T00:00:00Z"},
        "spec": {"manifest": json!({"data": CANARY}).to_string(), "hash": CANARY, "group": "shop-x",
            "sourceRef": {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": "web",
                "uid": CANARY, "generation": 1}},
        "status": {"observedHash": CANARY, "epoch": 0, "available": 1, "served": 1, "message": CANARY, "pods": {"desired": 2, "bound": 2, "counted": 2},
            "resource": json!({"conditions": [{"type": "Available", "status": "True", "message": CANARY}]}).to_string(),
            "conditions": [{"type": "Applied", "status": "True", "reason": "Applied", "message": CANARY}]}})
}

/// A sandbox with a recording of a control plane: `web` runs in `west`, and `east` is free.
fn recorded() -> Sandbox {
    let sandbox = Sandbox::new();
    let server = serve(|_, path| {
        let secret = json!({"metadata": {"name": "key", "namespace": "shop"}, "data": {"a": "Y2FuYXJ5LTdmM2E="}});
        let map = json!({"metadata": {"name": "page", "namespace": "shop"}, "data": {"a": CANARY}});
        let mut bare = policy();
        bare["spec"].as_object_mut().unwrap().remove("spreadConstraints");
        match path.split('?').next().unwrap().rsplit('/').next().unwrap() {
            "clusters" => list(&[cluster("east", "8"), cluster("west", "8")]),
            "schedulepolicies" => list(&[bare]),
            "schedules" => list(&[schedule()]),
            "namespaces" => list(&[json!({"metadata": {"name": "shop"}})]),
            "deployments" => list(&[deployment("web", "1")]),
            "secrets" => list(&[secret]),
            "fleet-brake" => not_found(),
            "configmaps" if !path.contains("fieldSelector") => list(&[map]),
            _ => list(&[]),
        }
    });
    use_cluster(&sandbox, &server);
    for name in ["fleet.json", "again.json", "fleet.json.gz"] {
        sandbox.run(&["simulate", "--record", name]).succeeds();
    }
    std::fs::remove_dir_all(sandbox.path().join(".kube")).unwrap();
    sandbox
}

#[test]
fn a_recording_holds_no_manifest_and_no_data() {
    let sandbox = recorded();
    let read = |name: &str| std::fs::read(sandbox.path().join(name)).unwrap();
    let text = String::from_utf8(read("fleet.json")).unwrap();
    assert!(!text.contains(CANARY) && !text.contains("Y2FuYXJ5"), "{text}");
    assert!(text.contains("\"west\"") && text.contains("Deployment/shop/web"), "{text}");
    assert_eq!(read("fleet.json"), read("again.json"), "the same fleet, the same bytes");
    let plain = sandbox.run(&["simulate", "--fleet", "fleet.json", "-o", "json"]);
    let packed = sandbox.run(&["simulate", "--fleet", "fleet.json.gz", "-o", "json"]);
    assert_eq!(plain.succeeds(), packed.succeeds());
}

#[test]
fn an_edit_of_a_policy_says_what_moves_and_a_workload_without_room_what_lacks() {
    let sandbox = recorded();
    let mut edited = policy();
    edited["spec"]["clusterSelector"] = json!({"matchLabels": {"region": "east"}});
    edited["spec"].as_object_mut().unwrap().remove("spreadConstraints");
    sandbox.file("policy.yaml", &edited.to_string());
    let ran = sandbox.run(&["simulate", "-f", "policy.yaml", "--fleet", "fleet.json"]);
    let text = ran.succeeds();
    assert!(text.contains("Deployment shop/web   west    east"), "{text}");
    // No group has recorded that its policy was another one.
    assert!(text.contains("Deployment shop/web   west    east   label"), "it moves step by step: {text}");
    assert!(text.contains("1 of 1 groups placed; objects that change their clusters: 1."), "{text}");
    assert_eq!(text, sandbox.run(&["simulate", "-f", "policy.yaml", "--fleet", "fleet.json"]).stdout);
    let mut big = deployment("big", "6");
    (big["apiVersion"], big["kind"]) = (json!("apps/v1"), json!("Deployment"));
    sandbox.file("big.json", &big.to_string());
    let ran = sandbox.run(&["simulate", "-f", "big.json", "--fleet", "fleet.json", "-o", "json"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    let outcome: Value = serde_json::from_str(&ran.stdout).unwrap();
    let big = outcome["placements"].as_array().unwrap().iter().find(|one| one["asked"] == true).unwrap();
    assert_eq!(big["reason"], "NoFit", "{big}");
    let reasons: Vec<&str> =
        big["rejected"].as_array().unwrap().iter().map(|row| row["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["Insufficient cpu", "SelectorMismatch"], "{big}");
}

#[test]
fn clusters_that_are_lost_and_objects_that_grow_are_supposed() {
    let sandbox = recorded();
    let run = |args: &[&str]| sandbox.run(&[&["simulate", "--fleet", "fleet.json"], args].concat());
    assert_eq!(run(&["--without-cluster", "west"]).code, 7, "its policy allows no other");
    assert!(run(&["--cluster-down", "west"]).succeeds().contains("Stays on \"west\""), "no failover");
    assert_eq!(run(&["--scale", "deployment/shop/web=3"]).code, 0);
    assert_eq!(run(&["--replace"]).code, 0);
    let page = run(&["--without-cluster", "west", "-o", "html"]).stdout;
    assert!(page.starts_with("<!doctype html>") && page.contains("Removed") && !page.contains("<script"), "{page}");
}

#[test]
fn wrong_input_is_named_with_its_place_and_a_remedy() {
    let sandbox = recorded();
    sandbox.file("kind.yaml", "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: x}\n");
    sandbox.file("node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: x}\n");
    let head = "apiVersion: policy.fleet-scheduler.io/v1alpha1\nkind: SchedulePolicy\nmetadata: {name: p}\nspec:\n";
    let selectors = "  namespaceSelector: {}\n  resourceSelectors: {labelSelectors: [{}]}\n";
    sandbox.file("field.yaml", &format!("{head}{selectors}  clusterSelectr: {{}}\n"));
    sandbox.file("mode.yaml", &format!("{head}{selectors}  spreadConstraints: {{spreadMode: Spread}}\n"));
    let shares = "[{topologyValue: a, percentage: 60}, {topologyValue: b, percentage: 30}]";
    sandbox.file("sum.yaml", &format!("{head}{selectors}  spreadConstraints: {{percentageSplit: {shares}}}\n"));
    sandbox.file("future.json", "{\"fleetRecording\": 2, \"fleet\": {}}");
    sandbox.file("none.json", "{\"a\": 1}");
    let fails = |args: &[&str], parts: &[&str]| {
        let all = [&["simulate", "--fleet", "fleet.json"], args].concat();
        sandbox.run(&all).fails(2, parts);
    };
    fails(&["-f", "kind.yaml"], &["kind.yaml:2:7", "`Deploymnt`", "did you mean `Deployment`?"]);
    fails(&["-f", "node.yaml"], &["node.yaml:2:7", "`Node`", "placement.extraKinds"]);
    fails(&["-f", "field.yaml"], &["field.yaml:7", "`spec.clusterSelectr`", "kubectl explain"]);
    fails(&["-f", "mode.yaml"], &["mode.yaml:7", "spec.spreadConstraints.spreadMode"]);
    fails(&["-f", "sum.yaml"], &["sum.yaml:7", "add up to 90"]);
    fails(&["-f", "absent.yaml"], &["absent.yaml"]);
    fails(&["--cluster-down", "wst"], &["no cluster `wst`", "did you mean `west`?"]);
    fails(&["--scale", "deployment/shop/wbe=2"], &["Deployment shop/wbe", "did you mean `deployment/shop/web`?"]);
    fails(&["--scale", "web=2"], &["KIND/NAMESPACE/NAME=N"]);
    sandbox.run(&["simulate", "--fleet", "future.json"]).fails(2, &["has format 2", "newer version"]);
    sandbox.run(&["simulate", "--fleet", "none.json"]).fails(2, &["none.json is not a recording", "line 1"]);
}
