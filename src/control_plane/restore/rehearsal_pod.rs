//! The pod of a rehearsal: keys and snapshot come into it, etcd and the API server start on them, and one container reads all.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use super::error::RestoreError;
use super::fence::API_SERVER;
use super::pods::{LABEL_COMPONENT, LOG_BYTES, RECEIVE, SPARE_BYTES};
use super::site::StoreSite;
use crate::api::labels::{LABEL_INSTANCE, LABEL_PART_OF};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::rehearsal::{API_PORT, ETCD_PORT};
use crate::api::transfer::RECEIVE_PORT;
use crate::backup::Header;

/// Component of these pods, in their labels.
pub(super) const COMPONENT: &str = "rehearsal";
/// Container that takes the keys, and container that reads everything.
pub(super) const RECEIVE_KEYS: &str = "receive-keys";
/// See [`RECEIVE_KEYS`].
pub(super) const PROBE: &str = "probe";
/// Files of the key set that the pod gets: no key of a CA.
pub(super) const KEY_FILES: [&str; 15] = [
    "apiserver-etcd-client.crt",
    "apiserver-etcd-client.key",
    "apiserver.crt",
    "apiserver.key",
    "ca.crt",
    "encryption.yaml",
    "etcd-ca.crt",
    "etcd-server.crt",
    "etcd-server.key",
    "front-proxy-ca.crt",
    "front-proxy-client.crt",
    "front-proxy-client.key",
    "sa.key",
    "sa.pub",
    "scheduler.kubeconfig",
];

/// Longest life of the pod, in seconds, whatever becomes of whoever has started it.
const LIFE_SECONDS: u32 = 600;
/// Largest size of the keys, in bytes; they are in memory only.
const KEYS_BYTES: u64 = 1024 * 1024;
/// Largest size of a store, in bytes, where the backup does not name it: twice the largest `etcd.quotaBytes`.
const QUOTA_BYTES: u64 = 32 * 1024 * 1024 * 1024;
/// Folders in the pod.
const KEYS: &str = "/keys";
const STORE: &str = "/rehearsal";
/// The volume of the API server's keys.
const PKI_VOLUME: &str = "pki";

/// What the pod takes over from the workloads of the control plane.
#[derive(Debug)]
pub(super) struct RehearsalSite {
    store: StoreSite,
    /// Container of the API server.
    pub(super) api_server: Container,
    /// Folder of its keys.
    pki_path: String,
}

impl RehearsalSite {
    /// Reads it from the workloads of a control plane.
    pub(super) async fn read_from_cluster(
        client: &Client,
        name: &ControlPlaneName,
        namespace: &NamespaceName,
    ) -> Result<Self, RestoreError> {
        let store = StoreSite::read_from_cluster(client, name, namespace, 1).await?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace.as_str());
        let site = Self::from_workload(store, deployments.get(API_SERVER).await?);
        site.map_err(|what| RestoreError::Unsuitable(format!("the API server cannot be rehearsed: {what}")))
    }

    /// The same from the API server's Deployment; without one of the parts, a clause.
    pub(super) fn from_workload(store: StoreSite, deployment: Deployment) -> Result<Self, &'static str> {
        let containers = deployment.spec.and_then(|spec| spec.template.spec).map(|pod| pod.containers);
        let mut containers = containers.unwrap_or_default().into_iter();
        let api_server = containers.find(|one| one.name == API_SERVER).ok_or("its pods have no container apiserver")?;
        let mut mounts = api_server.volume_mounts.iter().flatten();
        let mount = mounts.find(|mount| mount.name == PKI_VOLUME).map(|mount| mount.mount_path.clone());
        Ok(Self { store, pki_path: mount.ok_or("it mounts no volume pki")?, api_server })
    }
}

/// The pod of a rehearsal.
pub(super) fn build_rehearsal_pod(site: &RehearsalSite, header: &Header, run: &str) -> Value {
    let (store, pod) = (&site.store, &site.store.pod);
    let size = header.snapshot_bytes.saturating_mul(2).saturating_add(LOG_BYTES + SPARE_BYTES);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("fleet-rehearsal-{run}"),
            "namespace": store.namespace,
            // The labels of the installation's network policies, and of no Service.
            "labels": {LABEL_COMPONENT: COMPONENT, LABEL_INSTANCE: store.name, LABEL_PART_OF: "fleet"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFE_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "serviceAccountName": pod.service_account_name,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "securityContext": pod.security_context,
            "imagePullSecrets": pod.image_pull_secrets,
            "nodeSelector": pod.node_selector,
            "tolerations": pod.tolerations,
            "priorityClassName": pod.priority_class_name,
            "initContainers": [
                receive_container(site, RECEIVE_KEYS, &format!("{KEYS}/bundle.json"), KEYS_BYTES, true),
                receive_container(site, RECEIVE, &format!("{STORE}/snapshot.db"), header.snapshot_bytes, false),
                etcd_container(site, "restore", &restore_command()),
            ],
            "containers": [
                etcd_container(site, "etcd", &etcd_command(header.quota_bytes)),
                api_server_container(site),
                probe_container(site),
            ],
            "volumes": [
                {"name": "keys", "emptyDir": {"medium": "Memory", "sizeLimit": KEYS_BYTES.to_string()}},
                {"name": "store", "emptyDir": {"sizeLimit": size.to_string()}},
            ],
        },
    })
}

fn receive_container(site: &RehearsalSite, name: &str, file: &str, most_bytes: u64, is_bundle: bool) -> Value {
    let mut arguments = vec![
        "receive".to_owned(),
        format!("--file={file}"),
        format!("--max-bytes={most_bytes}"),
        format!("--port={RECEIVE_PORT}"),
    ];
    arguments.extend(is_bundle.then(|| "--bundle".to_owned()));
    let mounts = json!([{"name": "keys", "mountPath": KEYS}, {"name": "store", "mountPath": STORE}]);
    program_container(site, name, &arguments, &mounts)
}

fn probe_container(site: &RehearsalSite) -> Value {
    let arguments = [
        "probe".to_owned(),
        format!("--kubeconfig={KEYS}/scheduler.kubeconfig"),
        format!("--etcd=https://127.0.0.1:{ETCD_PORT}"),
        format!("--etcd-ca-file={KEYS}/etcd-ca.crt"),
        format!("--etcd-cert-file={KEYS}/apiserver-etcd-client.crt"),
        format!("--etcd-key-file={KEYS}/apiserver-etcd-client.key"),
        "--report=/dev/termination-log".to_owned(),
    ];
    let mounts = json!([{"name": "keys", "mountPath": KEYS, "readOnly": true}]);
    program_container(site, PROBE, &arguments, &mounts)
}

fn program_container(site: &RehearsalSite, name: &str, arguments: &[String], mounts: &Value) -> Value {
    let (image, policy) = &site.store.program;
    container(
        name,
        (image, policy.as_ref()),
        &json!({ "args": arguments }),
        site.store.program_resources.as_ref(),
        site,
        mounts,
    )
}

fn container(
    name: &str,
    (image, policy): (&str, Option<&String>),
    runs: &Value,
    resources: Option<&ResourceRequirements>,
    site: &RehearsalSite,
    mounts: &Value,
) -> Value {
    let mut container = json!({
        "name": name,
        "image": image,
        "imagePullPolicy": policy,
        "resources": resources,
        "securityContext": site.store.etcd.security_context,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    });
    if let (Some(container), Some(runs)) = (container.as_object_mut(), runs.as_object()) {
        container.extend(runs.clone());
    }
    container
}

fn etcd_container(site: &RehearsalSite, name: &str, command: &[String]) -> Value {
    let etcd = &site.store.etcd;
    let mounts = json!([{"name": "keys", "mountPath": KEYS, "readOnly": true}, {"name": "store", "mountPath": STORE}]);
    let image = (etcd.image.as_deref().unwrap_or_default(), etcd.image_pull_policy.as_ref());
    container(name, image, &json!({ "command": command }), etcd.resources.as_ref(), site, &mounts)
}

/// Arguments of a member that is alone, for `etcdctl snapshot restore` and for etcd.
fn member_arguments() -> [String; 4] {
    let peer = "http://127.0.0.1:2380";
    [
        "--name=rehearsal".to_owned(),
        format!("--data-dir={STORE}/etcd"),
        format!("--initial-cluster=rehearsal={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
    ]
}

fn restore_command() -> Vec<String> {
    let command = ["etcdctl", "snapshot", "restore"].map(str::to_owned);
    command.into_iter().chain([format!("{STORE}/snapshot.db")]).chain(member_arguments()).collect()
}

fn etcd_command(quota_bytes: Option<u64>) -> Vec<String> {
    let client = format!("https://127.0.0.1:{ETCD_PORT}");
    let own = [
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--client-cert-auth=true".to_owned(),
        format!("--trusted-ca-file={KEYS}/etcd-ca.crt"),
        format!("--cert-file={KEYS}/etcd-server.crt"),
        format!("--key-file={KEYS}/etcd-server.key"),
        format!("--quota-backend-bytes={}", quota_bytes.unwrap_or(QUOTA_BYTES)),
        "--enable-grpc-gateway=false".to_owned(),
        // It is thrown away.
        "--unsafe-no-fsync".to_owned(),
    ];
    ["etcd".to_owned()].into_iter().chain(member_arguments()).chain(own).collect()
}

/// The API server with its own arguments, but for those that say where etcd is and who may connect.
fn api_server_container(site: &RehearsalSite) -> Value {
    let given = &site.api_server;
    let own = [
        format!("--etcd-servers=https://127.0.0.1:{ETCD_PORT}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={API_PORT}"),
        // Each read is one of etcd: a cache that one object keeps empty would answer for none.
        "--watch-cache=false".to_owned(),
        "--etcd-compaction-interval=0".to_owned(),
    ];
    let flag = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let is_own = |argument: &str| own.iter().any(|one| flag(one) == flag(argument));
    // What it logs is written nowhere else, and nobody has to be sent away before it ends.
    let is_left_out =
        |argument: &str| argument.starts_with("--audit-") || argument.starts_with("--shutdown-delay-duration");
    let keep = |arguments: &Option<Vec<String>>| -> Vec<String> {
        let arguments = arguments.iter().flatten().filter(|argument| !is_own(argument) && !is_left_out(argument));
        arguments.cloned().collect()
    };
    // A container without a command has its arguments only.
    let (mut command, mut args) = (keep(&given.command), keep(&given.args));
    if command.is_empty() {
        args.extend(own.clone());
    } else {
        command.extend(own.clone());
    }
    let mounts = json!([{"name": "keys", "mountPath": site.pki_path, "readOnly": true}]);
    let image = (given.image.as_deref().unwrap_or_default(), given.image_pull_policy.as_ref());
    let runs = json!({"command": command, "args": args, "env": given.env});
    let mut container = container(API_SERVER, image, &runs, given.resources.as_ref(), site, &mounts);
    container["securityContext"] = json!(given.security_context);
    container
}
