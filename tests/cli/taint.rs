//! `taint`, `cordon`, `uncordon` and `drain`: what is written into a Cluster, and what is said.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::Sandbox;
use crate::server::{Said, list, serve_as_it_is, use_cluster};

/// A control plane with cluster `west`: its Cluster, as it was written last.
struct ControlPlane {
    sandbox: Sandbox,
    cluster: Arc<Mutex<Value>>,
}

impl ControlPlane {
    /// With these taints of the cluster, and these Schedules of it. The first write meets a Cluster that has changed.
    fn with(taints: Value, schedules: Vec<Value>) -> Self {
        let cluster = Arc::new(Mutex::new(json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "west", "resourceVersion": "1"},
            "spec": {"name": "west", "accepted": true, "taints": taints},
        })));
        let stored = Arc::clone(&cluster);
        let server = serve_as_it_is(move |asked| {
            let mut stored = stored.lock().unwrap();
            let (status, body) = match (&*asked.method, asked.path.split('?').next().unwrap()) {
                ("GET", "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters/west") => (200, stored.clone()),
                ("PATCH", "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters/west") => {
                    let change: Value = serde_json::from_slice(&asked.body).unwrap();
                    if stored["metadata"]["resourceVersion"] == "1" {
                        // Somebody else was quicker.
                        stored["metadata"]["resourceVersion"] = json!("2");
                        let taint = json!({"key": "of-others", "effect": "NoSchedule"});
                        stored["spec"]["taints"].as_array_mut().unwrap().push(taint);
                    }
                    if change["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"] {
                        stored["spec"]["taints"] = change["spec"]["taints"].clone();
                        (200, stored.clone())
                    } else {
                        (409, json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409}))
                    }
                }
                ("GET", "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters") => list(&[stored.clone()]),
                ("GET", "/apis/cluster.fleet-scheduler.io/v1alpha1/namespaces/fleet-c-west/schedules") => {
                    list(&schedules)
                }
                _ => (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})),
            };
            Said { status, head: b"content-type: application/json".to_vec(), body: body.to_string().into_bytes() }
        });
        let sandbox = Sandbox::new();
        use_cluster(&sandbox, &server);
        Self { sandbox, cluster }
    }

    fn taints(&self) -> Value {
        self.cluster.lock().unwrap()["spec"]["taints"].clone()
    }
}

#[test]
fn taints_are_set_changed_and_removed_beside_those_of_others() {
    let plane = ControlPlane::with(json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]), vec![]);
    let ran = |args: &[&str]| plane.sandbox.run(&[&["taint", "cluster", "west"], args].concat());
    ran(&["gpu=no:NoSchedule"]).fails(6, &["`gpu:NoSchedule` already has the value `yes`", "--overwrite"]);
    ran(&["ssd-"]).fails(6, &["taint `ssd` does not exist", "kubectl get cluster west"]);
    let set = ran(&["gpu=no:NoSchedule", "ssd:NoExecute", "--overwrite"]);
    assert_eq!(
        set.succeeds(),
        "Workload cluster west has the taints gpu=no:NoSchedule, of-others:NoSchedule, ssd:NoExecute.\n"
    );
    assert_eq!(plane.taints()[1]["key"], "of-others", "what others have set meanwhile is kept");
    assert!(ran(&["ssd:NoExecute"]).succeeds().contains("already has these taints"));
    assert!(ran(&["gpu-", "ssd:NoExecute-"]).succeeds().contains("the taint of-others:NoSchedule."));
    ran(&["gpu"]).fails(2, &["the effect is missing"]);
    ran(&["gpu=x:Never"]).fails(2, &["`Never` is not a taint effect", "NoSchedule, PreferNoSchedule, NoExecute"]);
    plane.sandbox.run(&["taint", "cluster", "east", "gpu-"]).fails(1, &["no workload cluster `east` is registered"]);
}

#[test]
fn a_cluster_is_cordoned_and_uncordoned() {
    let plane = ControlPlane::with(json!([]), vec![]);
    let ran = |command: &str| plane.sandbox.run(&[command, "cluster", "west"]);
    assert_eq!(ran("uncordon").succeeds(), "Workload cluster west was not cordoned.\n");
    assert!(ran("cordon").succeeds().contains("takes no new work"));
    assert_eq!(plane.taints()[1], json!({"key": "fleet-scheduler.io/unschedulable", "effect": "NoSchedule"}));
    assert_eq!(ran("cordon").succeeds(), "Workload cluster west was cordoned before.\n");
    let uncordoned = ran("uncordon");
    assert!(uncordoned.succeeds().contains("it still has the taint of-others:NoSchedule"), "{uncordoned:?}");
    assert_eq!(plane.taints().as_array().unwrap().len(), 1);
}

#[test]
fn a_drain_waits_for_what_runs_pods_and_names_what_is_left() {
    let schedule = |kind: &str, name: &str| {
        let group = if kind == "StatefulSet" { "apps" } else { "" };
        json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule", "metadata": {"name": name},
            "spec": {"manifest": "{}", "hash": "h",
                "sourceRef": {"group": group, "version": "v1", "kind": kind, "namespace": "shop", "name": name, "uid": "u"}}})
    };
    let plane = ControlPlane::with(json!([]), vec![schedule("ConfigMap", "settings"), schedule("StatefulSet", "db")]);
    let timed_out = plane.sandbox.run(&["drain", "cluster", "west", "--timeout", "1s"]);
    timed_out.fails(
        4,
        &[
            "timed out waiting for the condition: 1 workload still runs in workload cluster west",
            "statefulset/db -n shop",
            "fleetctl why statefulset/db -n shop",
            "fleetctl uncordon cluster west",
        ],
    );
    assert!(!timed_out.stderr.contains("settings"), "{timed_out:?}");
    assert_eq!(plane.taints()[1]["effect"], "NoExecute", "it stays drained");
    let empty = ControlPlane::with(json!([]), vec![schedule("Namespace", "shop")]);
    assert_eq!(
        empty.sandbox.run(&["drain", "cluster", "west"]).succeeds(),
        "Workload cluster west is drained: no workload runs there.\n"
    );
}
