//! What others do in a cluster: people with kubectl, and the controllers.

use fleetctl::api::kinds::Kind;
use fleetctl::k8s::ObjectRef;
use serde_json::json;

use super::support::Case;

/// A ConfigMap that is not ours, as `kubectl apply` makes it.
pub(crate) async fn kubectl_made(case: &Case, name: &str, data: &serde_json::Value) {
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": case.namespace}, "data": data});
    made_by_kubectl(case, "", "ConfigMap", &manifest).await;
}

/// Makes an object as `kubectl apply` does.
pub(crate) async fn made_by_kubectl(case: &Case, group: &str, kind: &str, manifest: &serde_json::Value) {
    let path = Kind::needed_versions(group, kind).remove(0).collection_path(Some(&case.namespace));
    let request = http::Request::post(format!("{path}?fieldManager=kubectl-client-side-apply"))
        .header("content-type", "application/json")
        .header("user-agent", "kubectl/v1.25")
        .body(serde_json::to_vec(manifest).unwrap())
        .unwrap();
    case.server().client().request::<serde_json::Value>(request).await.unwrap();
}

/// Changes an object as another manager.
pub(crate) async fn edit(case: &Case, manager: &str, group: &str, kind: &str, name: &str, patch: serde_json::Value) {
    let kind = Kind::needed_versions(group, kind).remove(0);
    let path = format!("{}/{name}?fieldManager={manager}", kind.collection_path(Some(&case.namespace)));
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(&patch).unwrap())
        .unwrap();
    case.server().client().request::<serde_json::Value>(request).await.unwrap();
}

pub(crate) async fn wait_for_claim(case: &Case, name: &str) {
    for _ in 0..100 {
        if case.get("", "PersistentVolumeClaim", name).await.is_some() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("no claim {name}");
}

/// Makes a claim look bound, as a provisioner would; its volume goes with it.
pub(crate) async fn bind(case: &Case, name: &str) {
    bind_by(case, name, "Delete").await;
}

/// Binds a claim to a volume of that reclaim policy, which has the name of the namespace.
pub(crate) async fn bind_by(case: &Case, name: &str, policy: &str) {
    wait_for_claim(case, name).await;
    let volumes = Kind::needed_versions("", "PersistentVolume").remove(0);
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": case.namespace},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": policy,
            "claimRef": {"namespace": case.namespace, "name": name}, "hostPath": {"path": "/tmp/none"}}});
    case.server().create_object(&volumes, &volume).await.unwrap();
    for _ in 0..200 {
        let claim = case.get("", "PersistentVolumeClaim", name).await.unwrap();
        if claim["status"]["phase"] == "Bound" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the claim {name} is not bound");
}

/// Deletes an object as somebody would by hand.
pub(crate) async fn delete(case: &Case, group: &str, kind: &str, name: &str) {
    let live = case.get(group, kind, name).await.unwrap();
    let object = ObjectRef::of(&live).unwrap();
    let kind = Kind::needed_versions(group, kind).remove(0);
    case.server().delete_object(&kind, &object, live["metadata"]["uid"].as_str().unwrap()).await.unwrap();
}

/// Deletes an object by hand, and waits until it is gone.
pub(crate) async fn delete_wholly(case: &Case, group: &str, kind: &str, name: &str) {
    delete(case, group, kind, name).await;
    while case.get(group, kind, name).await.is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
