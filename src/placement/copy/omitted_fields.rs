//! What a copy does not take from its source: what the API server keeps, allocated or filled in, and what belongs to the
//! control plane alone. A field that a user wrote is copied, also one that an API server would allocate.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::kinds::split_api_version;
use crate::api::labels::OWN_KEY_PREFIX;
use crate::placement::facts::LOCAL_ANNOTATIONS;

/// Fields of `spec` that somebody wrote, as managed fields name them; none where the source has no managed fields.
struct Written(Option<Value>);

impl Written {
    /// Reads the one entry to which sources are condensed when they are read.
    fn of_manifest(manifest: &Value) -> Self {
        Self(manifest.pointer("/metadata/managedFields/0/fieldsV1/f:spec").cloned())
    }

    /// Returns whether somebody wrote the node port of a port of a Service.
    fn has_node_port(&self, port: &Value) -> bool {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let key = format!("k:{{\"port\":{},\"protocol\":\"{protocol}\"}}", port["port"]);
        self.0.as_ref().is_some_and(|fields| fields["f:ports"][key.as_str()].get("f:nodePort").is_some())
    }
}

/// Fields of the metadata that the API server keeps, or that belong to the source alone.
const METADATA: [&str; 11] = [
    "uid",
    "resourceVersion",
    "generation",
    "generateName",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
    "ownerReferences",
    "finalizers",
];

/// The ServiceAccount that every namespace has by itself.
const DEFAULT_ACCOUNT: &str = "default";

/// Labels by which a Job finds its pods.
const JOB_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

fn remove_keys(value: Option<&mut Value>, keys: &[&str]) {
    if let Some(map) = value.and_then(Value::as_object_mut) {
        for key in keys {
            map.remove(*key);
        }
    }
}

pub(super) fn strip_metadata(manifest: &mut Value) {
    remove_keys(manifest.get_mut("metadata"), &METADATA);
    for name in ["labels", "annotations"] {
        let pointer = format!("/metadata/{name}");
        let Some(map) = manifest.pointer_mut(&pointer).and_then(Value::as_object_mut) else { continue };
        map.retain(|key, _| !key.starts_with(OWN_KEY_PREFIX) && !LOCAL_ANNOTATIONS.contains(&key.as_str()));
        if map.is_empty() {
            remove_keys(manifest.get_mut("metadata"), &[name]);
        }
    }
}

/// Removes what a copy must not have.
pub(super) fn strip_manifest(manifest: &mut Value) {
    let written = Written::of_manifest(manifest);
    strip_metadata(manifest);
    remove_keys(Some(manifest), &["status"]);
    let [api_version, kind] = ["apiVersion", "kind"].map(|name| manifest[name].as_str().unwrap_or_default().to_owned());
    let (group, _) = split_api_version(&api_version);
    match (group, kind.as_str()) {
        ("", "Service") => strip_service(manifest, &written),
        ("", "ServiceAccount") if manifest["metadata"]["name"] == DEFAULT_ACCOUNT => strip_default_account(manifest),
        ("", "Namespace") => remove_keys(manifest.get_mut("spec"), &["finalizers"]),
        ("", "PersistentVolumeClaim") => {
            strip_unwritten(manifest, &written, &["volumeName", "storageClassName"], &["volumeName"]);
            if let Some(map) = manifest.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                map.retain(|key, _| !key.starts_with("pv.kubernetes.io/"));
            }
        }
        ("", "Pod") => strip_pod(manifest, &written),
        ("networking.k8s.io", "Ingress") => strip_unwritten(manifest, &written, &["ingressClassName"], &[]),
        // A controller of each cluster fills them in.
        ("rbac.authorization.k8s.io", "ClusterRole")
            if manifest.get("aggregationRule").is_some_and(Value::is_object) =>
        {
            remove_keys(Some(manifest), &["rules"]);
        }
        ("batch", "Job") => {
            remove_keys(manifest.get_mut("spec"), &["ttlSecondsAfterFinished"]);
            if manifest.pointer("/spec/manualSelector") != Some(&Value::Bool(true)) {
                remove_keys(manifest.get_mut("spec"), &["selector"]);
                for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
                    remove_keys(manifest.pointer_mut(labels), &JOB_LABELS);
                }
            }
        }
        _ => {}
    }
}

/// Leaves of the account that every cluster has by itself what the agent adds to the list there.
fn strip_default_account(manifest: &mut Value) {
    let Some(fields) = manifest.as_object_mut() else { return };
    fields.retain(|key, _| ["apiVersion", "kind", "metadata", "imagePullSecrets"].contains(&key.as_str()));
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| ["name", "namespace"].contains(&key.as_str()));
    }
}

/// Removes fields of `spec` that nobody wrote: `allocated` where it is known who wrote what, `by_name` where it is not.
fn strip_unwritten(manifest: &mut Value, written: &Written, allocated: &[&str], by_name: &[&str]) {
    let keys: Vec<&str> = match &written.0 {
        Some(fields) => allocated.iter().copied().filter(|key| fields.get(format!("f:{key}")).is_none()).collect(),
        None => by_name.to_vec(),
    };
    remove_keys(manifest.get_mut("spec"), &keys);
}

/// Removes addresses, families and ports that the control plane allocated; a headless Service stays headless.
fn strip_service(manifest: &mut Value, written: &Written) {
    let is_headless = manifest.pointer("/spec/clusterIP").and_then(Value::as_str) == Some("None");
    let addresses: &[&str] = if is_headless { &[] } else { &["clusterIP", "clusterIPs"] };
    let families = ["healthCheckNodePort", "ipFamilies", "ipFamilyPolicy"];
    strip_unwritten(
        manifest,
        written,
        &[addresses, &families].concat(),
        &[addresses, &["healthCheckNodePort"]].concat(),
    );
    if let Some(ports) = manifest.pointer_mut("/spec/ports").and_then(Value::as_array_mut) {
        for port in ports {
            if !written.has_node_port(port) {
                remove_keys(Some(port), &["nodePort"]);
            }
        }
    }
}

/// Removes the node and the priority unless somebody wrote them, and the volumes of tokens that the API server added.
fn strip_pod(manifest: &mut Value, written: &Written) {
    strip_unwritten(manifest, written, &["nodeName", "priority", "preemptionPolicy", "tolerations"], &["nodeName"]);
    let Some(volumes) = manifest.pointer_mut("/spec/volumes").and_then(Value::as_array_mut) else { return };
    let tokens = volumes.iter().filter(|one| is_token_volume(one));
    let names: BTreeSet<String> = tokens.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect();
    let is_kept = |value: &Value| value["name"].as_str().is_none_or(|name| !names.contains(name));
    volumes.retain(is_kept);
    for list in ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"] {
        let containers = manifest.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for mounts in containers.filter_map(|one| one.get_mut("volumeMounts")?.as_array_mut()) {
            mounts.retain(is_kept);
        }
    }
}

/// Returns whether a volume is the token that an API server gives to every pod.
fn is_token_volume(volume: &Value) -> bool {
    let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
    volume["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"))
        && sources.is_some_and(|sources| sources.iter().any(|one| one.get("serviceAccountToken").is_some()))
}
