//! Servers between a client and the real API server: one that ends TLS with a certificate of the test's, and proxies. They
//! keep what they saw, so that two clients can be compared.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme, StreamOwned,
};

/// What a client showed of itself with its last request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// The name that it asked for (SNI).
    pub(super) name: Option<String>,
    /// Its certificate.
    pub(super) certificate: Option<Vec<u8>>,
    /// Headers about who it is and which host it means.
    pub(super) headers: BTreeMap<String, Vec<String>>,
    /// What it asked a proxy for, with the head of that.
    pub(super) proxied: Option<String>,
}

/// What was seen last, for one or more servers.
pub(super) type Log = Arc<Mutex<Option<Seen>>>;

fn note(log: &Log, change: impl FnOnce(&mut Seen)) {
    change(log.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Seen::default));
}

/// The real API server.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    pub(super) address: String,
    pub(super) ca: CertificateDer<'static>,
}

impl Upstream {
    fn connect(&self) -> Option<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone()).ok()?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let host = self.address.split(':').next()?.to_owned();
        let connection = ClientConnection::new(Arc::new(config), ServerName::try_from(host).ok()?).ok()?;
        Some(StreamOwned::new(connection, TcpStream::connect(&self.address).ok()?))
    }
}

/// Starts a server with a certificate for the rest of the test run and gives its port.
pub(super) fn serve(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    upstream: Upstream,
    log: Log,
) -> u16 {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(Arc::new(AnyClient(aws_lc_rs::default_provider().signature_verification_algorithms)))
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    listen(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
        let mut stream = StreamOwned::new(connection, stream);
        relay(&mut stream, &upstream, |stream, headers| {
            let (name, certificate) = (stream.conn.server_name(), stream.conn.peer_certificates());
            let (name, certificate) = (name.map(str::to_owned), certificate.map(|chain| chain[0].to_vec()));
            note(&log, |seen| (seen.name, seen.certificate, seen.headers) = (name, certificate, headers));
        });
        stream.conn.send_close_notify();
        stream.flush().ok()
    })
}

/// The same without TLS.
pub(super) fn serve_plain(upstream: Upstream, log: Log) -> u16 {
    listen(move |mut stream| {
        relay(&mut stream, &upstream, |_, headers| note(&log, |seen| seen.headers = headers));
        Some(())
    })
}

/// Starts a proxy that understands CONNECT. Of other requests it notes for which server they are, and ends.
pub(super) fn http_proxy(log: Log) -> u16 {
    listen(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let head = read_head(&mut reader)?;
        let mut line = head[0].split(' ').map(str::to_owned);
        let (method, target) = (line.next()?, line.next()?);
        let authorization = header(&head, "proxy-authorization").join(",");
        let is_tunnel = method == "CONNECT";
        // The programs ask for different objects.
        let target = if is_tunnel { target } else { target.split('/').take(3).collect::<Vec<_>>().join("/") };
        note(&log, |seen| seen.proxied = Some(format!("http {target} {authorization}")));
        if !is_tunnel {
            return None;
        }
        let server = TcpStream::connect(&target).ok()?;
        (&stream).write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
        pipe(stream, server)
    })
}

/// Starts a proxy that understands SOCKS 5 (RFC 1928), with the log-in of a user that has one (RFC 1929).
pub(super) fn socks_proxy(log: Log) -> u16 {
    listen(move |mut stream| {
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).ok()?;
        let mut methods = vec![0; greeting[1].into()];
        stream.read_exact(&mut methods).ok()?;
        let mut user = String::new();
        if methods.contains(&2) {
            stream.write_all(&[5, 2]).ok()?;
            stream.read_exact(&mut [0]).ok()?;
            user = [read_counted(&mut stream)?, read_counted(&mut stream)?].join(":");
            stream.write_all(&[1, 0]).ok()?;
        } else {
            stream.write_all(&[5, 0]).ok()?;
        }
        let mut request = [0; 4];
        stream.read_exact(&mut request).ok()?;
        let host = if request[3] == 1 {
            let mut address = [0; 4];
            stream.read_exact(&mut address).ok()?;
            std::net::Ipv4Addr::from(address).to_string()
        } else {
            read_counted(&mut stream)?
        };
        let mut port = [0; 2];
        stream.read_exact(&mut port).ok()?;
        let target = format!("{host}:{}", u16::from_be_bytes(port));
        note(&log, |seen| seen.proxied = Some(format!("socks5 {target} {user}")));
        let server = TcpStream::connect(&target).ok()?;
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
        pipe(stream, server)
    })
}

/// Reads a text behind its length.
fn read_counted(stream: &mut TcpStream) -> Option<String> {
    let mut length = [0; 1];
    stream.read_exact(&mut length).ok()?;
    let mut text = vec![0; length[0].into()];
    stream.read_exact(&mut text).ok()?;
    String::from_utf8(text).ok()
}

fn listen(answer: impl Fn(TcpStream) -> Option<()> + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

/// Sends one request on to the API server, and its answer back.
fn relay<S: Read + Write>(
    stream: &mut S,
    upstream: &Upstream,
    seen: impl FnOnce(&S, BTreeMap<String, Vec<String>>),
) -> Option<()> {
    let mut reader = BufReader::new(&mut *stream);
    let head = read_head(&mut reader)?;
    let length = header(&head, "content-length").first().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let is_kept = |name: &str| name == "authorization" || name == "host" || name.starts_with("impersonate-");
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in head[1..].iter().filter_map(|line| line.split_once(':')) {
        let name = name.to_ascii_lowercase();
        if is_kept(&name) {
            headers.entry(name).or_default().push(value.trim().to_owned());
        }
    }
    seen(stream, headers);
    let is_about_the_connection =
        |line: &&String| ["connection:", "accept-encoding:"].iter().any(|name| line.to_lowercase().starts_with(name));
    let kept: Vec<String> = head.iter().filter(|line| !is_about_the_connection(line)).cloned().collect();
    let mut server = upstream.connect()?;
    server.write_all(format!("{}\r\nConnection: close\r\n\r\n", kept.join("\r\n")).as_bytes()).ok()?;
    server.write_all(&body).ok()?;
    let mut answer = Vec::new();
    // A server that closes without saying so has said everything, too.
    let _ = server.read_to_end(&mut answer);
    stream.write_all(&answer).ok()
}

fn read_head(reader: &mut impl std::io::BufRead) -> Option<Vec<String>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            return (!head.is_empty()).then_some(head);
        }
        head.push(line.to_owned());
    }
}

fn header(head: &[String], name: &str) -> Vec<String> {
    let of = |line: &String| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    head.iter().filter_map(of).filter(|(found, _)| found == name).map(|(_, value)| value).collect()
}

fn pipe(client: TcpStream, server: TcpStream) -> Option<()> {
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        to.shutdown(std::net::Shutdown::Write)
    });
    let (mut from, mut to) = (server, client);
    let _ = std::io::copy(&mut from, &mut to);
    to.shutdown(std::net::Shutdown::Both).ok()
}

/// Asks for a certificate and takes any, or none.
#[derive(Debug)]
struct AnyClient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
