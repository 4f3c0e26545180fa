//! The certificate that a server shows in a handshake. It is looked at and not trusted: nothing is sent to that server.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::trust;

/// Longest time for a connection, and for each read and write of its handshake.
const WITHIN: Duration = Duration::from_secs(5);

/// Returns the leaf certificate, in DER, that the server at a host and port shows to a client without a certificate.
///
/// # Errors
/// A host that cannot be resolved; a server that does not answer within a few seconds, or that shows no certificate.
pub(crate) async fn served_certificate(host: String, port: u16) -> io::Result<Vec<u8>> {
    tokio::task::spawn_blocking(move || look_at_server(&host, port)).await.map_err(io::Error::other)?
}

fn look_at_server(host: &str, port: u16) -> io::Result<Vec<u8>> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address: SocketAddr = (host, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, WITHIN)?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    let mut connection = begin_handshake(host)?;
    let mut ended = Ok(());
    while ended.is_ok() && connection.is_handshaking() {
        ended = connection.complete_io(&mut stream).map(drop);
    }
    shown_leaf(&connection, ended)
}

/// Returns the leaf certificate, in DER, that is shown at the other end of a stream, such as a port-forward.
///
/// # Errors
/// A stream that ends or stays silent for some seconds before a certificate is shown.
pub(crate) async fn certificate_on_stream(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Vec<u8>> {
    let mut connection = begin_handshake("localhost")?;
    let handshake = async {
        let mut buffer = vec![0; 16 << 10];
        while connection.is_handshaking() && connection.peer_certificates().is_none() {
            let mut record = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut record)?;
            }
            stream.write_all(&record).await?;
            stream.flush().await?;
            let count = stream.read(&mut buffer).await?;
            let mut read = &buffer[..count];
            if read.is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
            }
            while !read.is_empty() {
                connection.read_tls(&mut read)?;
                connection.process_new_packets().map_err(io::Error::other)?;
            }
        }
        Ok(())
    };
    let ended = tokio::time::timeout(2 * WITHIN, handshake).await;
    let ended = ended.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")));
    shown_leaf(&connection, ended)
}

/// A connection that accepts any certificate of the server.
fn begin_handshake(host: &str) -> io::Result<ClientConnection> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(trust::build_accepting_verifier(&provider))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)
}

/// The certificate that a server has shown; else the reason that it has not.
fn shown_leaf(connection: &ClientConnection, ended: io::Result<()>) -> io::Result<Vec<u8>> {
    // A server that wants a certificate of its client ends the connection after it has shown its own.
    match connection.peer_certificates().and_then(<[_]>::first) {
        Some(leaf) => Ok(leaf.to_vec()),
        None => Err(ended.err().unwrap_or_else(|| io::Error::other("the server presents no certificate"))),
    }
}
