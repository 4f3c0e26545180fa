//! The pod of a rehearsal: keys and snapshot come into it, etcd and the API server start on them, and one container reads all.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use super::components::API_SERVER;
use super::error::RestoreError;
use super::pod_parts::{
    LOG_BYTES, RECEIVE, SPARE_BYTES, build_container, build_pod, etcd_container, program_container, receive_arguments,
};
use super::site::StoreSite;
use super::start::API_PORT;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::backup::Header;
use crate::etcd::CLIENT_PORT;

/// Component of these pods, in their labels.
pub(super) const COMPONENT: &str = "rehearsal";
/// Container that takes the keys.
pub(super) const RECEIVE_KEYS: &str = "receive-keys";
/// Container that reads everything.
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
    pub(super) async fn read_api_server(
        client: &Client,
        name: &ControlPlaneName,
        namespace: &NamespaceName,
    ) -> Result<Self, RestoreError> {
        let store = StoreSite::read_from_cluster(client, name, namespace, 1).await?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace.as_str());
        let site = Self::from_api_server(store, deployments.get(API_SERVER).await?);
        site.map_err(|what| {
            RestoreError::Unsuitable(format!("the API server cannot be started in a rehearsal: {what}"))
        })
    }

    /// The same from the API server's Deployment; without one of the parts, a clause.
    pub(super) fn from_api_server(store: StoreSite, deployment: Deployment) -> Result<Self, &'static str> {
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
    let size = header.snapshot_bytes.saturating_mul(2).saturating_add(LOG_BYTES + SPARE_BYTES);
    let (store, mounts) = (&site.store, [mount_keys(true), mount_store()]);
    let first = vec![
        receive_keys_container(site),
        receive_snapshot_container(site, header.snapshot_bytes),
        etcd_container(store, "restore", &restore_command(), &mounts),
    ];
    let containers = vec![
        etcd_container(store, "etcd", &etcd_command(header.quota_bytes), &mounts),
        api_server_container(site),
        probe_container(site),
    ];
    let volumes = vec![
        json!({"name": "keys", "emptyDir": {"medium": "Memory", "sizeLimit": KEYS_BYTES.to_string()}}),
        json!({"name": "store", "emptyDir": {"sizeLimit": size.to_string()}}),
    ];
    let name = format!("fleet-rehearsal-{run}");
    build_pod(store, (&name, COMPONENT), LIFE_SECONDS, [first, containers, volumes])
}

fn mount_keys(is_read_only: bool) -> Value {
    json!({"name": "keys", "mountPath": KEYS, "readOnly": is_read_only})
}

fn mount_store() -> Value {
    json!({"name": "store", "mountPath": STORE})
}

fn receive_keys_container(site: &RehearsalSite) -> Value {
    let mut arguments = receive_arguments(&format!("{KEYS}/bundle.json"), KEYS_BYTES);
    arguments.push("--bundle".to_owned());
    let resources = site.store.program_resources.as_ref();
    program_container(&site.store, RECEIVE_KEYS, &arguments, resources, &[mount_keys(false)])
}

fn receive_snapshot_container(site: &RehearsalSite, bytes: u64) -> Value {
    let arguments = receive_arguments(&format!("{STORE}/snapshot.db"), bytes);
    program_container(&site.store, RECEIVE, &arguments, site.store.program_resources.as_ref(), &[mount_store()])
}

fn probe_container(site: &RehearsalSite) -> Value {
    let arguments = [
        "probe".to_owned(),
        format!("--kubeconfig={KEYS}/scheduler.kubeconfig"),
        format!("--etcd=https://127.0.0.1:{CLIENT_PORT}"),
        format!("--etcd-ca-file={KEYS}/etcd-ca.crt"),
        format!("--etcd-cert-file={KEYS}/apiserver-etcd-client.crt"),
        format!("--etcd-key-file={KEYS}/apiserver-etcd-client.key"),
        "--report=/dev/termination-log".to_owned(),
    ];
    program_container(&site.store, PROBE, &arguments, site.store.program_resources.as_ref(), &[mount_keys(true)])
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
    let client = format!("https://127.0.0.1:{CLIENT_PORT}");
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

/// The API server with its own arguments, except for those that say where etcd is and who may connect.
fn api_server_container(site: &RehearsalSite) -> Value {
    let given = &site.api_server;
    let own = [
        format!("--etcd-servers=https://127.0.0.1:{CLIENT_PORT}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={API_PORT}"),
        // Each read is one of etcd: a cache that one object keeps empty would answer for none.
        "--watch-cache=false".to_owned(),
        "--etcd-compaction-interval=0".to_owned(),
    ];
    // A container without a command has its arguments only.
    let [mut command, mut args] =
        [&given.command, &given.args].map(|arguments| keep_arguments(arguments.as_deref().unwrap_or_default(), &own));
    if command.is_empty() {
        args.extend(own.clone());
    } else {
        command.extend(own.clone());
    }
    let mount = json!({"name": "keys", "mountPath": site.pki_path, "readOnly": true});
    let mut container = build_container(&site.store, API_SERVER, given.resources.as_ref(), &[mount]);
    container["image"] = json!(given.image);
    container["imagePullPolicy"] = json!(given.image_pull_policy);
    container["command"] = json!(command);
    container["args"] = json!(args);
    container["env"] = json!(given.env);
    container["securityContext"] = json!(given.security_context);
    container
}

/// The arguments without those that `own` replaces, and without those that a rehearsal has no use for: what it logs is
/// written nowhere else, and nobody has to be sent away before it ends.
fn keep_arguments(arguments: &[String], own: &[String]) -> Vec<String> {
    let kept = arguments.iter().filter(|argument| {
        !own.iter().any(|one| strip_option_value(one) == strip_option_value(argument))
            && !argument.starts_with("--audit-")
            && !argument.starts_with("--shutdown-delay-duration")
    });
    kept.cloned().collect()
}

fn strip_option_value(argument: &str) -> &str {
    argument.split('=').next().unwrap_or_default()
}
