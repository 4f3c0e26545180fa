//! The scheduler and the kubelet of a cluster without nodes: pods are bound, and do what the name of their image says.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::placing::spread_ways::{is_ours, play_node};
use crate::placing::walks::kubelet::{Seen, conditions, make_volume, remove_volume, watch_all};

/// The node that is played.
const NODE: &str = "played";

/// Plays both until it is dropped.
pub(super) async fn play_cluster(client: Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let live = async {
        loop {
            play_node(&nodes, "2000").await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let pods = watch_all(Api::<Pod>::all(client.clone()), {
        let (client, mut begun, mut ended) = (client.clone(), BTreeSet::new(), BTreeSet::new());
        move |seen| {
            let Seen::There(pod) = seen else { return };
            let Some(uid) = pod.uid().filter(|_| is_ours(&pod.namespace().unwrap_or_default())) else { return };
            if pod.metadata.deletion_timestamp.is_some() {
                if ended.insert(uid) {
                    tokio::spawn(end_pod(client.clone(), pod));
                }
            } else if begun.insert(uid) {
                tokio::spawn(run_pod(client.clone(), pod));
            }
        }
    });
    let claims = watch_all(Api::<PersistentVolumeClaim>::all(client.clone()), {
        let client = client.clone();
        move |seen| {
            let (Seen::There(claim) | Seen::Gone(claim)) = &seen;
            let is_open = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_none());
            if is_ours(&claim.namespace().unwrap_or_default()) {
                match seen {
                    Seen::There(claim) if is_open => drop(tokio::spawn(make_volume(client.clone(), claim))),
                    Seen::There(_) => {}
                    Seen::Gone(claim) => drop(tokio::spawn(remove_volume(client.clone(), claim))),
                }
            }
        }
    });
    tokio::join!(live, pods, claims);
}

async fn end_pod(client: Client, pod: Pod) {
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap());
    // What is gone meanwhile is gone.
    let _ = api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
}

/// Binds a pod, and has its containers do what the image of the first one says: `run`, `end`, `fail`, or `miss`, which
/// cannot be pulled.
async fn run_pod(client: Client, pod: Pod) {
    let (name, spec) = (pod.name_any(), pod.spec.clone().unwrap_or_default());
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap());
    if spec.scheduling_gates.is_some_and(|gates| !gates.is_empty()) {
        return;
    }
    if spec.node_selector.is_some_and(|selector| !selector.is_empty()) {
        let text = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text,
            "lastTransitionTime": Timestamp::now().to_string()});
        set_status(&api, &name, json!({"phase": "Pending", "conditions": [condition]})).await;
        return;
    }
    if spec.node_name.is_none() {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}});
        let _: Result<Value, _> = api.create_subresource("binding", &name, &PostParams::default(), &binding).await;
    }
    let image = spec.containers.first().and_then(|one| one.image.clone()).unwrap_or_default();
    let containers = |state: &Value, ready: bool| -> Vec<Value> {
        let one = |container: &k8s_openapi::api::core::v1::Container| {
            json!({"name": container.name, "image": container.image, "imageID": "played", "ready": ready,
                "started": ready, "restartCount": 0, "state": state})
        };
        spec.containers.iter().map(one).collect()
    };
    let now = Timestamp::now().to_string();
    let begun = [("PodScheduled", true), ("Initialized", true)];
    let status = |phase: &str, ready: bool, state: &Value| {
        let ready_types = [("ContainersReady", ready), ("Ready", ready)];
        json!({"phase": phase, "startTime": now, "podIP": "10.244.0.9", "podIPs": [{"ip": "10.244.0.9"}],
            "conditions": conditions(&[&begun[..], &ready_types[..]].concat()),
            "containerStatuses": containers(state, ready)})
    };
    let running = json!({"running": {"startedAt": now}});
    let terminated = |code: i32, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}});
    match image.split(':').next().unwrap_or_default() {
        "miss" => {
            let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}});
            set_status(&api, &name, status("Pending", false, &waiting)).await;
        }
        "end" => {
            set_status(&api, &name, status("Running", true, &running)).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            set_status(&api, &name, status("Succeeded", false, &terminated(0, "Completed"))).await;
        }
        "fail" => set_status(&api, &name, status("Failed", false, &terminated(3, "Error"))).await,
        _ => set_status(&api, &name, status("Running", true, &running)).await,
    }
}

async fn set_status(api: &Api<Pod>, name: &str, status: Value) {
    // What is gone meanwhile is gone.
    let _ = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&json!({ "status": status }))).await;
}
