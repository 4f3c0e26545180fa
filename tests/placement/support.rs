//! Reading of cases, and what they have in common.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fleetctl::api::SchedulePolicy;
use fleetctl::api::crd::cluster::Taint;
use fleetctl::placement::facts::Facts;
use fleetctl::placement::fleet::Fleet;
use fleetctl::placement::matching::{Policies, Policy};
use fleetctl::placement::room::{Node, Promise, Room, read_node_amounts};
use serde_json::{Value, json};

/// Runs every case of a file and compares; fails with the names of all cases that differ.
pub(crate) fn check(file: &str, count: usize, run: impl Fn(&str, &Value) -> Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placement/cases").join(file);
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = document["cases"].as_array().unwrap();
    assert_eq!(cases.len(), count, "{file} has other cases than before");
    let mut wrong = Vec::new();
    for case in cases {
        let found = run(case["what"].as_str().unwrap(), &case["in"]);
        if found != case["out"] {
            wrong.push(format!("{}\n  expected {}\n  found    {found}", case["name"], case["out"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases of {file}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

pub(crate) fn policy(value: &Value) -> Policy {
    let policy: SchedulePolicy = serde_json::from_value(value.clone()).unwrap();
    Policy::from_schedule_policy(&policy).unwrap()
}

pub(crate) fn policies(value: &Value) -> Policies {
    Policies::new(value.as_array().unwrap().iter().map(policy).collect())
}

pub(crate) fn facts(value: &Value) -> Facts {
    Facts::from_manifest(value).unwrap()
}

/// The labels of a namespace; none where the case does not name it.
pub(crate) fn namespace(case: &Value, name: &str) -> BTreeMap<String, String> {
    let labels = case.get("namespaces").and_then(|all| all.get(name));
    labels.map(|labels| serde_json::from_value(labels.clone()).unwrap()).unwrap_or_default()
}

/// The nodes of a case's cluster and what is reserved of them.
pub(crate) fn room(fleet: &mut Fleet, cluster: &Value) -> Room {
    let amounts = |value: &Value| read_node_amounts(&serde_json::from_value(value.clone()).unwrap());
    let taints = |node: &Value| -> Vec<Taint> {
        node.get("taints").map(|taints| serde_json::from_value(taints.clone()).unwrap()).unwrap_or_default()
    };
    let node = |node: &Value| Node {
        name: node["name"].as_str().unwrap().to_owned(),
        capacity: amounts(&node["capacity"]),
        available: amounts(node.get("available").unwrap_or(&node["capacity"])),
        labels: node.get("labels").map(|labels| Arc::new(serde_json::from_value(labels.clone()).unwrap())),
        taints: taints(node).into(),
    };
    let nodes = cluster["nodes"].as_array().unwrap().iter().map(node).collect();
    let mut room = fleet.build_capacity(nodes, Vec::new());
    for (number, reserved) in cluster["reserved"].as_array().into_iter().flatten().enumerate() {
        let daemon = reserved.get("daemon").and_then(Value::as_bool) == Some(true);
        let kind = if daemon { "DaemonSet" } else { "Deployment" };
        let object =
            facts(&json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": format!("r{number}") },
            "spec": { "template": reserved["template"] } }));
        let pods = reserved["pods"].as_i64().unwrap_or_default();
        let shape = object.shape.unwrap();
        let group = format!("others-{number}").into();
        room.reserve_pods(fleet.resources(), vec![Promise { group, object: object.key, shape, pods, daemon }]);
    }
    room
}
