//! Starting what was restored: etcd until its members agree, then the API server, which nobody but this program reaches yet.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams};
use kube::config::{Kubeconfig as KubeKubeconfig, NamedCluster};
use kube::{Client, ResourceExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::RestoreTarget;
use super::components::{API_SERVER, ETCD};
use super::error::RestoreError;
use super::facts::RestoreFacts;
use super::fence::{deployments, sets};
use super::hold::hold_deletions;
use crate::api::labels::{API_VERSION, CLUSTER_GROUP, LABEL_INSTANCE};
use crate::control_plane::etcd::access::prepare_etcd_access;
use crate::control_plane::health::format_error_chain;
use crate::control_plane::keys::find_keys::from_cluster;
use crate::diagnose::pod::is_ready;
use crate::etcd::agreement::find_store_difference;
use crate::inventory::release::random_id;
use crate::k8s::connect::kubeconfig::connect_with;
use crate::k8s::connect::port_forward::open_pod_port;
use crate::pki::Kubeconfig;
use crate::pki::secrets::ADMIN_KUBECONFIG;

/// Port of the API server in its pods.
pub(super) const API_PORT: u16 = 6443;

impl RestoreTarget<'_> {
    /// Starts etcd and the API server, has agents hold deletions, and deletes the clusters that are to be forgotten.
    pub(super) async fn start_api(&self, facts: &RestoreFacts) -> Result<(), RestoreError> {
        self.start_etcd(facts).await?;
        let pod = self.start_api_server(facts).await?;
        let relay = Relay::open(self, &pod).await?;
        self.progress.update_step("waiting until the API server answers");
        self.wait_for_answer(&relay.client).await?;
        hold_deletions(&relay.client).await?;
        forget_clusters(&relay.client, &facts.forget).await
    }

    /// Starts etcd. Returns when every member answers, and all have the same data.
    pub(super) async fn start_etcd(&self, facts: &RestoreFacts) -> Result<(), RestoreError> {
        self.restore_replicas(ETCD, facts).await?;
        loop {
            let status = sets(self).get(ETCD).await?.status.unwrap_or_default();
            let ready = status.ready_replicas.unwrap_or_default();
            if ready >= facts.replicas_of(ETCD) {
                break;
            }
            self.wait_a_moment(&format!("{ready} of {} members of etcd are ready", facts.replicas_of(ETCD))).await?;
        }
        let access = prepare_etcd_access(self.client, self.name, self.namespace, &random_id()).await?;
        loop {
            match find_store_difference(&access.clients).await {
                None => return Ok(()),
                Some(why) => self.wait_a_moment(&why).await?,
            }
        }
    }

    /// Starts the API server. Returns a pod of it that is ready.
    pub(super) async fn start_api_server(&self, facts: &RestoreFacts) -> Result<String, RestoreError> {
        self.restore_replicas(API_SERVER, facts).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        let selector = format!("app.kubernetes.io/name={API_SERVER},{LABEL_INSTANCE}={}", self.name);
        loop {
            let status = deployments(self).get(API_SERVER).await?.status.unwrap_or_default();
            let found = pods.list(&ListParams::default().labels(&selector)).await?;
            let mut running = found.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            if let Some(pod) = running.find(|pod| is_ready(pod)) {
                return Ok(pod.name_any());
            }
            let ready = status.ready_replicas.unwrap_or_default();
            self.wait_a_moment(&format!("{ready} of {} API servers are ready", facts.replicas_of(API_SERVER))).await?;
        }
    }

    async fn wait_for_answer(&self, client: &Client) -> Result<(), RestoreError> {
        loop {
            match client.apiserver_version().await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let why = format!("the API server does not answer: {}", format_error_chain(&error));
                    self.wait_a_moment(&why).await?;
                }
            }
        }
    }
}

/// A client of the API server in one pod, over a port of this machine's loopback address that leads there.
struct Relay {
    client: Client,
    accepting: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Relay {
    async fn open(target: &RestoreTarget<'_>, pod: &str) -> Result<Self, RestoreError> {
        let files = from_cluster(target.client, target.namespace.as_str(), target.name.as_str()).await?;
        let text = files.get(ADMIN_KUBECONFIG);
        let text =
            text.ok_or_else(|| RestoreError::NoAccess("no kubeconfig of the control plane was found".to_owned()))?;
        let kubeconfig = Kubeconfig::parse(ADMIN_KUBECONFIG, text)?.of_control_plane(target.name.as_str());
        let bound = TcpListener::bind(("127.0.0.1", 0)).await;
        let bound = bound.and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        let (port, listener) = bound.map_err(|error| RestoreError::NoAccess(error.to_string()))?;
        let pods: Api<Pod> = Api::namespaced(target.client.clone(), target.namespace.as_str());
        let accepting = tokio::spawn(relay_connections(listener, pods, pod.to_owned()));
        let connected = connect_to_port(&kubeconfig, port).await;
        match connected {
            Ok(client) => Ok(Self { client, accepting }),
            Err(why) => {
                accepting.abort();
                Err(RestoreError::NoAccess(why))
            }
        }
    }
}

/// Joins each connection to the port of the pod. One that breaks is the client's to repeat.
async fn relay_connections(listener: TcpListener, pods: Api<Pod>, pod: String) {
    let (pods, pod) = (Arc::new(pods), Arc::new(pod));
    while let Ok((mut local, _)) = listener.accept().await {
        let (pods, pod) = (Arc::clone(&pods), Arc::clone(&pod));
        tokio::spawn(async move {
            if let Ok(mut remote) = open_pod_port(&pods, &pod, API_PORT).await {
                let _ = tokio::io::copy_bidirectional(&mut local, &mut remote).await;
            }
        });
    }
}

/// A client that calls a port of this machine, and verifies the name that the kubeconfig has.
async fn connect_to_port(kubeconfig: &Kubeconfig, port: u16) -> Result<Client, String> {
    let host: http::Uri = kubeconfig.server.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let host = host.host().ok_or("its kubeconfig names no host")?.trim_matches(['[', ']']).to_owned();
    let text = kubeconfig.to_yaml("kubeconfig").map_err(|error| error.to_string())?;
    let mut config = KubeKubeconfig::from_yaml(text.expose()).map_err(|error| error.to_string())?;
    for cluster in config.clusters.iter_mut().filter_map(|NamedCluster { cluster, .. }| cluster.as_mut()) {
        cluster.server = Some(format!("https://127.0.0.1:{port}"));
        cluster.tls_server_name = Some(host.clone());
    }
    connect_with(config).await.map(|connected| connected.client).map_err(|error| format_error_chain(&error))
}

/// Deletes registrations that the backup has brought back. Their namespaces and rights go as soon as the scheduler runs.
async fn forget_clusters(client: &Client, forget: &[String]) -> Result<(), RestoreError> {
    let clusters = cluster_api(client);
    for name in forget {
        match clusters.delete(name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}

/// Clusters as they are, whatever an agent has written into them.
fn cluster_api(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: CLUSTER_GROUP.to_owned(),
        version: API_VERSION.to_owned(),
        api_version: format!("{CLUSTER_GROUP}/{API_VERSION}"),
        kind: "Cluster".to_owned(),
        plural: "clusters".to_owned(),
    };
    Api::all_with(client.clone(), &resource)
}
