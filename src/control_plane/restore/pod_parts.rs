//! What pods of a restore and of a rehearsal have in common: they run where and as whom etcd's own pods run.

use k8s_openapi::api::core::v1::ResourceRequirements;
use serde_json::{Value, json};

use super::components::LABEL_COMPONENT;
use super::site::StoreSite;
use crate::api::labels::{LABEL_INSTANCE, LABEL_PART_OF};
use crate::api::transfer::RECEIVE_PORT;

/// Container that takes the snapshot.
pub(super) const RECEIVE: &str = "receive";
/// Bytes that a new store needs beside the snapshot: its log, of which etcd allocates 64 MB at once.
pub(super) const LOG_BYTES: u64 = 96 * 1024 * 1024;
/// Bytes beside the snapshot on the volume that it arrives on.
pub(super) const SPARE_BYTES: u64 = 16 * 1024 * 1024;

/// A pod that runs once, without a token: its init containers, its containers and its volumes are those of `parts`.
pub(super) fn build_pod(
    site: &StoreSite,
    (name, component): (&str, &str),
    life_seconds: u32,
    parts: [Vec<Value>; 3],
) -> Value {
    let (pod, [first, containers, volumes]) = (&site.pod, parts);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": site.namespace,
            // The labels of the installation's network policies, and of no Service.
            "labels": {LABEL_COMPONENT: component, LABEL_INSTANCE: site.name, LABEL_PART_OF: "fleet"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": life_seconds,
            "terminationGracePeriodSeconds": 1,
            "serviceAccountName": pod.service_account_name,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "securityContext": pod.security_context,
            "imagePullSecrets": pod.image_pull_secrets,
            "nodeSelector": pod.node_selector,
            "tolerations": pod.tolerations,
            "priorityClassName": pod.priority_class_name,
            "initContainers": first,
            "containers": containers,
            "volumes": volumes,
        },
    })
}

/// A container of etcd's image.
pub(super) fn etcd_container(site: &StoreSite, name: &str, command: &[String], mounts: &[Value]) -> Value {
    let etcd = &site.etcd;
    let mut container = build_container(site, name, etcd.resources.as_ref(), mounts);
    container["image"] = json!(etcd.image);
    container["imagePullPolicy"] = json!(etcd.image_pull_policy);
    container["command"] = json!(command);
    container
}

/// A container of this project's own program.
pub(super) fn program_container(
    site: &StoreSite,
    name: &str,
    arguments: &[String],
    resources: Option<&ResourceRequirements>,
    mounts: &[Value],
) -> Value {
    let mut container = build_container(site, name, resources, mounts);
    container["image"] = json!(site.program.0);
    container["imagePullPolicy"] = json!(site.program.1);
    container["args"] = json!(arguments);
    container
}

/// Arguments of the program that takes a file of at most so many bytes.
pub(super) fn receive_arguments(file: &str, most_bytes: u64) -> Vec<String> {
    let named = [format!("--file={file}"), format!("--max-bytes={most_bytes}"), format!("--port={RECEIVE_PORT}")];
    ["receive".to_owned()].into_iter().chain(named).collect()
}

/// A container without an image: it may do what etcd's own may, and says at its end why it failed.
pub(super) fn build_container(
    site: &StoreSite,
    name: &str,
    resources: Option<&ResourceRequirements>,
    mounts: &[Value],
) -> Value {
    json!({
        "name": name,
        "resources": resources,
        "securityContext": site.etcd.security_context,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    })
}
