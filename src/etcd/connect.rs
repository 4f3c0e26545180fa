//! Connections to members: HTTP/2 and mutual TLS over any stream to a port of a pod.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Error, Identity};
use tower::Service;

use super::identity::ClientIdentity;

/// Port of a member for its clients.
pub const CLIENT_PORT: u16 = 2379;

/// Time that a connection may take to come up.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Time that a call may take, without the stream of a snapshot.
pub(super) const CALL_WITHIN: Duration = Duration::from_secs(10);
/// Time between two pings, and time that a peer has to answer one. etcd closes connections that send pings more often than
/// every 5 s, or while they have no call.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// A way to the ports of pods of one namespace: by port-forward, or from a pod beside them.
pub trait PodPorts: Clone + Send + Sync + 'static {
    /// The connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Opens a connection to a port of a pod.
    fn connect(&self, pod: &str, port: u16) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// A member of etcd: its pod, and the name that its certificate has to carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberAddress {
    /// Name of the pod, such as `etcd-0`.
    pub pod: String,
    /// Name that is verified, such as `etcd-0.etcd.fleet.svc`.
    pub server_name: String,
}

impl MemberAddress {
    /// The member that runs in pod `etcd-NUMBER` of a namespace.
    pub fn new(number: usize, namespace: &str) -> Self {
        let pod = format!("etcd-{number}");
        Self { server_name: format!("{pod}.etcd.{namespace}.svc"), pod }
    }
}

/// Makes connections to one port of one pod for a channel.
struct Connector<P> {
    ports: P,
    pod: String,
}

impl<P: PodPorts> Service<Uri> for Connector<P> {
    type Response = TokioIo<P::Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (ports, pod) = (self.ports.clone(), self.pod.clone());
        Box::pin(async move { ports.connect(&pod, CLIENT_PORT).await.map(TokioIo::new) })
    }
}

/// A channel that connects when it is first used, and again after a connection has broken.
pub(super) fn open_channel<P: PodPorts>(
    ports: P,
    member: &MemberAddress,
    identity: &ClientIdentity,
) -> Result<Channel, Error> {
    let uri = format!("https://{}:{CLIENT_PORT}", member.server_name);
    let endpoint = configured(Endpoint::from_shared(uri)?, identity)?;
    Ok(endpoint.connect_with_connector_lazy(Connector { ports, pod: member.pod.clone() }))
}

/// As [`open_channel`], to a URL, over the network of this machine.
pub(super) fn open_channel_to_url(url: Uri, identity: &ClientIdentity) -> Result<Channel, Error> {
    Ok(configured(Endpoint::from(url), identity)?.connect_lazy())
}

fn configured(endpoint: Endpoint, identity: &ClientIdentity) -> Result<Endpoint, Error> {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&identity.authority))
        .identity(Identity::from_pem(&identity.certificate, identity.key.expose()));
    // The name that is verified is the host of the URL.
    Ok(endpoint
        .tls_config(tls)?
        .connect_timeout(CONNECT_WITHIN)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWERED_WITHIN))
}
