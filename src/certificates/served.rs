//! Proof that a renewal has arrived: the certificate that each pod shows in a handshake.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use tokio::time::Instant;

use super::KeysError;
use super::complete::KeyTarget;
use super::summary::HeldCertificate;
use crate::api::labels::LABEL_INSTANCE;
use crate::k8s::connect::served::served_certificate;
use crate::pki::{CertificateFacts, Files, Leaf};

/// Longest time in which a volume follows its Secret and a server shows the new certificate.
pub const SERVED_WITHIN: Duration = Duration::from_secs(300);
/// Time between two looks.
const POLL_EVERY: Duration = Duration::from_secs(5);

/// Ports of pods that show a certificate: the component, the port and the certificate.
pub const TLS_PORTS: [(&str, u16, Leaf); 3] =
    [("etcd", 2379, Leaf::EtcdServer), ("etcd", 2380, Leaf::EtcdPeer), ("apiserver", 6443, Leaf::ApiServer)];

/// A port of a pod, and the certificate that it has to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TlsPort {
    pub(super) pod: String,
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) leaf: Leaf,
}

/// Waits until every ready pod shows the certificate of the key set. Returns what each shows.
///
/// # Errors
/// [`KeysError::NotServed`] with the pods that do not, after `within`.
pub(super) async fn wait_until_served(
    client: &Client,
    target: &KeyTarget,
    files: &Files,
    within: Duration,
) -> Result<Vec<HeldCertificate>, KeysError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), target.namespace.as_str());
    let of_plane = ListParams::default().labels(&format!("{LABEL_INSTANCE}={}", target.name));
    let end = Instant::now() + within;
    loop {
        let ports = list_tls_ports(&pods.list(&of_plane).await?.items);
        let mut seen = Vec::new();
        let mut missing = Vec::new();
        for port in ports {
            let shown = observe_port(&port).await;
            match compare_served(&port, files, shown) {
                Ok(held) => seen.push(held),
                Err(why) => missing.push(why),
            }
        }
        if missing.is_empty() {
            return Ok(seen);
        }
        if Instant::now() >= end {
            return Err(KeysError::NotServed(missing));
        }
        tracing::info!(waiting = missing.join("; "), "the new certificates are not served yet");
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// The ports of ready pods. Pods that are not ready show nothing, and will read the files that there are.
pub(super) fn list_tls_ports(pods: &[Pod]) -> Vec<TlsPort> {
    let mut found = Vec::new();
    for pod in pods.iter().filter(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none()) {
        let Some(address) = pod.status.as_ref().and_then(|status| status.pod_ip.clone()) else { continue };
        let component = pod.labels().get("app.kubernetes.io/name").map(String::as_str).unwrap_or_default();
        let of_component = TLS_PORTS.iter().filter(|(name, ..)| *name == component);
        found.extend(of_component.map(|(_, port, leaf)| TlsPort {
            pod: pod.name_any(),
            address: address.clone(),
            port: *port,
            leaf: *leaf,
        }));
    }
    found
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn observe_port(port: &TlsPort) -> Result<CertificateFacts, String> {
    let der = served_certificate(port.address.clone(), port.port).await.map_err(|error| error.to_string())?;
    CertificateFacts::from_der(&port.pod, &der).map_err(|error| error.to_string())
}

/// Compares what a port shows with the key set: the certificate that it has to show, or the reason that it does not.
pub(super) fn compare_served(
    port: &TlsPort,
    files: &Files,
    shown: Result<CertificateFacts, String>,
) -> Result<HeldCertificate, String> {
    let file = port.leaf.leaf_store().stored_file();
    let place = format!("pod {} port {}", port.pod, port.port);
    let shown = shown.map_err(|why| format!("{place} shows no certificate: {why}"))?;
    let wanted = CertificateFacts::from_pem(file, files.get(file).unwrap_or_default())
        .map_err(|error| format!("{place}: {error}"))?;
    if shown.serial != wanted.serial {
        return Err(format!(
            "{place} serves {file} with serial {}, and the Secret has serial {}",
            shown.serial, wanted.serial
        ));
    }
    Ok(HeldCertificate::new(file, format!("Pod {}:{}", port.pod, port.port), &shown))
}

/// The serials that pods showed, by holder.
pub fn serials_by_holder(held: &[HeldCertificate]) -> BTreeMap<&str, &str> {
    held.iter().map(|one| (one.holder.as_str(), one.serial.as_str())).collect()
}
