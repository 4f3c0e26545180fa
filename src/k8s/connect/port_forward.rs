//! A connection to a port of a pod through the API server.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use tokio::io::{AsyncRead, DuplexStream, Join, ReadBuf, ReadHalf, WriteHalf, join, split};

use super::daemon_client::describe_error;
use crate::api::util::text::visible_line;

/// A stream to a port of a pod.
pub(crate) type ForwardedPort = Join<PortReader, WriteHalf<DuplexStream>>;

/// Its side that is read: what the kubelet says of the port, such as a refused connection, is the error of a read.
pub(crate) struct PortReader {
    stream: ReadHalf<DuplexStream>,
    refused: Option<BoxFuture<'static, Option<String>>>,
}

/// Opens a port of a pod: one WebSocket, with no keep-alive of its own.
///
/// # Errors
/// An API server that refuses or does not answer. That nobody listens at the port shows only when the stream is read.
pub(crate) async fn open_pod_port(pods: &Api<Pod>, pod: &str, port: u16) -> io::Result<ForwardedPort> {
    let mut forwarder =
        pods.portforward(pod, &[port]).await.map_err(|error| io::Error::other(describe_error(&error)))?;
    let refused = forwarder.take_error(port).map(FutureExt::boxed);
    let stream = forwarder.take_stream(port).ok_or_else(|| io::Error::other("the port was not forwarded"))?;
    let (stream, writer) = split(stream);
    Ok(join(PortReader { stream, refused }, writer))
}

impl AsyncRead for PortReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(refused) = &mut self.refused
            && let Poll::Ready(why) = refused.as_mut().poll(context)
        {
            self.refused = None;
            if let Some(why) = why {
                return Poll::Ready(Err(io::Error::other(visible_line(why.trim()).into_owned())));
            }
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}
