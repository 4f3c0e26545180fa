//! Proof that a renewal has arrived: the certificate that each pod shows in a handshake.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use tokio::time::Instant;

use super::restart::is_ready;
use super::summary::HeldCertificate;
use crate::api::labels::LABEL_INSTANCE;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::k8s::connect::port_forward::open_pod_port;
use crate::k8s::connect::served::{certificate_on_stream, served_certificate};
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
    pub(super) component: &'static str,
    pub(super) pod: String,
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) leaf: Leaf,
}

/// How a port of a pod is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// By the address of the pod, from inside of the hosting cluster.
    Address,
    /// Through the API of the hosting cluster.
    Forwarded,
}

/// A component whose pods do not show the certificate of the key set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Behind {
    pub(super) component: &'static str,
    /// File of the certificate.
    pub(super) file: &'static str,
    /// What they show, or the reason that they show none.
    pub(super) why: String,
}

/// The pods whose certificates are looked at.
pub(super) struct ServingPods<'a> {
    pub(super) client: &'a Client,
    pub(super) name: &'a ControlPlaneName,
    pub(super) namespace: &'a NamespaceName,
    pub(super) reach: Reach,
    /// Gets what is waited for.
    pub(super) waiting: &'a (dyn Fn(&str) + Send + Sync),
}

impl ServingPods<'_> {
    /// Waits until every ready pod shows the certificate of the key set. Returns what each shows, and those that do not
    /// after `within`. From outside each component needs a ready pod; the Job of an install runs before there are any.
    ///
    /// # Errors
    /// An API that does not answer or refuses.
    pub(super) async fn wait_until_served(
        &self,
        files: &Files,
        within: Duration,
    ) -> Result<(Vec<HeldCertificate>, Vec<Behind>), kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        let of_plane = ListParams::default().labels(&format!("{LABEL_INSTANCE}={}", self.name));
        let end = Instant::now() + within;
        loop {
            let ports = list_tls_ports(&pods.list(&of_plane).await?.items);
            let (mut seen, mut behind) = (Vec::new(), Vec::new());
            for (component, _, leaf) in TLS_PORTS {
                if self.reach == Reach::Forwarded && !ports.iter().any(|port| port.leaf == leaf) {
                    let why = format!("no pod of {component} is ready");
                    behind.push(Behind { component, file: leaf.leaf_store().stored_file(), why });
                }
            }
            for port in ports {
                let shown = self.observe_port(&pods, &port).await;
                match compare_served(&port, files, shown) {
                    Ok(held) => seen.push(held),
                    Err(why) => {
                        let file = port.leaf.leaf_store().stored_file();
                        behind.push(Behind { component: port.component, file, why });
                    }
                }
            }
            if behind.is_empty() || Instant::now() >= end {
                return Ok((seen, behind));
            }
            (self.waiting)(&join_reasons(&behind));
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Returns the certificate that a port shows.
    pub(super) async fn observe_port(&self, pods: &Api<Pod>, port: &TlsPort) -> Result<CertificateFacts, String> {
        let der = match self.reach {
            Reach::Address => served_certificate(port.address.clone(), port.port).await,
            Reach::Forwarded => match open_pod_port(pods, &port.pod, port.port).await {
                Ok(stream) => certificate_on_stream(stream).await,
                Err(error) => Err(error),
            },
        };
        CertificateFacts::from_der(&port.pod, &der.map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())
    }
}

/// The reasons of all in one line.
fn join_reasons(behind: &[Behind]) -> String {
    behind.iter().map(|one| one.why.as_str()).collect::<Vec<_>>().join("; ")
}

/// The ports of ready pods. Pods that are not ready show nothing, and will read the files that there are.
pub(super) fn list_tls_ports(pods: &[Pod]) -> Vec<TlsPort> {
    let mut found = Vec::new();
    for pod in pods.iter().filter(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none()) {
        let Some(address) = pod.status.as_ref().and_then(|status| status.pod_ip.clone()) else { continue };
        let component = pod.labels().get("app.kubernetes.io/name").map(String::as_str).unwrap_or_default();
        let of_component = TLS_PORTS.iter().filter(|(name, ..)| *name == component);
        found.extend(of_component.map(|(component, port, leaf)| TlsPort {
            component,
            pod: pod.name_any(),
            address: address.clone(),
            port: *port,
            leaf: *leaf,
        }));
    }
    found
}

/// Compares what a port shows with the key set: the certificate that it has to show, or the reason that it does not.
pub(super) fn compare_served(
    port: &TlsPort,
    files: &Files,
    shown: Result<CertificateFacts, String>,
) -> Result<HeldCertificate, String> {
    let file = port.leaf.leaf_store().stored_file();
    let place = format!("pod {} port {}", port.pod, port.port);
    let shown = shown.map_err(|why| format!("{place} presents no certificate: {why}"))?;
    let wanted = CertificateFacts::from_pem(file, files.get(file).unwrap_or_default())
        .map_err(|error| format!("{place}: {error}"))?;
    if shown.serial != wanted.serial {
        return Err(format!(
            "{place} serves {file} with serial {}, but the Secret has serial {}",
            shown.serial, wanted.serial
        ));
    }
    Ok(HeldCertificate::new(file, format!("Pod {}:{}", port.pod, port.port), &shown))
}

/// The serials that pods showed, by holder.
pub fn serials_by_holder(held: &[HeldCertificate]) -> BTreeMap<&str, &str> {
    held.iter().map(|one| (one.holder.as_str(), one.serial.as_str())).collect()
}
